"""FedPer (Arivazhagan et al. 2019): a shared body and private decision layers."""

from dataclasses import dataclass
from typing import Literal

import torch

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

    private: Literal["head", "none", "all"] = "head"
    weights: Literal["n", "uniform"] = "n"
    name = "fedper"

    def own(self, model) -> torch.Tensor:
        """Which entries of a vector stay with the client (P,)."""
        own = torch.full((model.size,), self.private == "all", device=model.device)
        if self.private == "head":
            own[model.head] = True
        return own

    def start(self, net):
        return {"model": net.task.init()[0]}  # its private part is where every client's own begins

    def round(self, server, clients, net):
        own, model = self.own(net.task.model), server["model"].clone()
        up = net.call(clients, self.client, down={"phi": model[~own]}, known={"head": model[own]})
        model[~own] = up["phi"].mean(up.sizes if self.weights == "n" else None)
        return {"model": model}

    def client(self, down, memory, data, local):
        own = self.own(local.model)
        trained = local.sgd(self.recall(down, memory, data, local)["model"], data).dense()
        memory["head"] = trained[:, own]
        return {"phi": trained[:, ~own]}

    def recall(self, down, memory, data, local):
        """Put the body (P - H,) and the clients' heads (m, H) together to vectors (m, P)."""
        own, heads = self.own(local.model), memory.get("head", down["head"])
        whole = heads.new_empty(len(heads), len(own))
        whole[:, own], whole[:, ~own] = heads, down["phi"]
        return {"model": whole}

    def serve(self, server, clients, net):
        return None

    def personal(self, server, clients, net):
        own = self.own(net.task.model)
        known = {"phi": server["model"][~own], "head": server["model"][own]}
        return net.call(clients, self.recall, known=known)["model"]
