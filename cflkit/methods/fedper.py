"""FedPer (Arivazhagan et al. 2019): a shared body and private decision layers."""

from dataclasses import dataclass
from functools import partial

import torch

from cflkit.checks import one_of
from cflkit.methods.base import Method


@dataclass(frozen=True)
class FedPer(Method):
    """Personalisation layers (Arivazhagan et al. 2019).

    The body phi is averaged; every client keeps its own head h_i and trains both together.

    Parameters
    ----------
    private : {"head", "none", "all"}
        What stays with the client: the decision layer, nothing (then FedAvg), or everything (then local-only).
    weights : {"n", "uniform"}
        Weight of a client in the average.
    """

    private: str = "head"
    weights: str = "n"
    name = "fedper"

    def __post_init__(self):
        one_of("private", self.private, ("head", "none", "all"))
        one_of("weights", self.weights, ("n", "uniform"))

    def own(self, model) -> torch.Tensor:
        """Which entries of a vector stay with the client (P,)."""
        own = torch.full((model.size,), self.private == "all", device=model.device)
        if self.private == "head":
            own[model.head] = True
        return own

    def start(self, net):
        return {"model": net.task.init()[0]}  # its private part is where every client's own begins

    def round(self, server, clients, net):
        own = self.own(net.task.model)
        work = partial(self.client, server["model"][own])
        up = net.call(clients, work, down={"phi": server["model"][~own]})
        model = server["model"].clone()
        model[~own] = up["phi"].mean(up.sizes if self.weights == "n" else None)
        return {"model": model}

    def client(self, initial, down, memory, data, local):
        own = self.own(local.model)
        trained = local.sgd(self.joined(own, down["phi"], memory.get("head", initial)), data)
        memory["head"] = trained[:, own]
        return {"phi": trained[:, ~own]}

    def joined(self, own, phi, heads) -> torch.Tensor:
        """Put a body (P - H,) and heads (m, H) together to vectors (m, P)."""
        whole = phi.new_empty(len(heads), len(own))
        whole[:, own], whole[:, ~own] = heads, phi
        return whole

    def serve(self, server, clients, net):
        return None

    def personal(self, server, clients, net):
        own = self.own(net.task.model)
        body, initial = server["model"][~own], server["model"][own]

        def recall(down, memory, data, local):
            return {"model": self.joined(own, body, memory.get("head", initial))}

        return net.call(clients, recall)["model"]
