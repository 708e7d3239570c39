"""Ditto (Li et al. 2021): a global model, and personal models pulled towards it."""

from dataclasses import dataclass
from functools import partial

from cflkit.checks import require
from cflkit.engine.sgd import Prox
from cflkit.methods.fedavg import FedAvg


@dataclass(frozen=True)
class Ditto(FedAvg):
    """FedAvg, plus personal models v_i that minimise F_i(v) + lam/2 ||v - w^t||^2.

    A sampled client trains both from the same batches: w from what it received, v_i from its own last value with
    w^t frozen. Personal models persist, and are updated only when their client is sampled.

    Parameters
    ----------
    lam : float
        Pull towards the global model (lambda); 0 makes the personal part local-only.
    """

    lam: float = 0.05
    name = "ditto"

    def __post_init__(self):
        super().__post_init__()
        require(self.lam >= 0, "lam", self.lam, "0 or more")

    def start(self, net):
        model = net.task.init()[0]
        return {"model": model, "initial": model}

    def round(self, server, clients, net):
        work = partial(self.client, server["initial"])
        up = net.call(clients, work, {"model": server["model"]}, mean={"model": self.weigh(clients, net)})
        return {**server, "model": up["model"][0]}

    def client(self, start, down, memory, data, local):
        memory["personal"] = local.sgd(memory.get("personal", start), data, [Prox(self.lam, down["model"])])
        return {"model": local.sgd(down["model"], data)}

    def personal(self, server, clients, net):
        recall = net.call(clients, lambda down, memory, *_: {"model": memory.get("personal", server["initial"])})
        return recall["model"]
