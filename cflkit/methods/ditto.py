"""Ditto (Li et al. 2021): a global model, and personal models pulled towards it."""

from dataclasses import dataclass

from cflkit.checks import Weight
from cflkit.engine.sgd import Prox
from cflkit.methods.base import recall
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

    lam: Weight = 0.05
    name = "ditto"

    def start(self, net):
        model = net.task.init()[0]
        return {"model": model, "initial": model}

    def round(self, server, clients, net):
        down, known = {"model": server["model"]}, {"initial": server["initial"]}
        up = net.call(clients, self.client, down, mean={"model": self.weigh(clients, net)}, known=known)
        return {**server, "model": up["model"][0]}

    def client(self, down, memory, data, local):
        begin = memory.get("personal", down["initial"])
        memory["personal"] = local.sgd(begin, data, [Prox(self.lam, down["model"])])
        return {"model": local.sgd(down["model"], data)}

    def personal(self, server, clients, net):
        return net.call(clients, recall, known={"initial": server["initial"]})["model"]
