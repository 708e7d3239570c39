"""IFCA (Ghosh et al. 2020), the same alternation as HypCluster (Mansour et al. 2020)."""

from dataclasses import dataclass
from typing import Literal

import torch

from cflkit.checks import Count, require
from cflkit.engine.rows import Pick
from cflkit.methods.base import Clustered

LEAST = {2: 0.35, 4: 0.1}  # by K, the share of clients that each redrawn first model needs (released code)
DRAWS = 1000  # of first models, before it is given up


@dataclass(frozen=True)
class IFCA(Clustered):
    """Iterative federated clustering (Ghosh et al. 2020, Algorithm 1).

    Every sampled client receives all K models, takes the one with the least loss on its *training* data
    (ties to the lowest index), trains it, and sends it back with its choice.

    Parameters
    ----------
    k : int
        Number of clusters (K).
    average : {"model", "gradient"}
        Option II averages the trained models of a cluster's members. Option I takes one full-batch gradient of
        each and steps theta_j <- theta_j - lr/m sum_{i in cluster} g_i, divided by *all* m sampled clients.
    share : bool
        Average everything below the decision layer over all clients; only decision layers differ by cluster
        (the paper's weight sharing).
    init : {"distinct", "common", "redrawn"}
        K different initial models, or K equal ones: in round 1 all clients tie to cluster 0, and later leave it
        only if it serves them worse than the initial model does. Or K different ones that are drawn again until
        each is the choice of enough clients, as the authors' code for CIFAR has it: a tenth for K = 4, 35% for
        K = 2. There a sample of the clients is asked, here everybody.
    """

    k: Count = 4
    average: Literal["model", "gradient"] = "model"
    share: bool = False
    init: Literal["distinct", "common", "redrawn"] = "distinct"
    name = "ifca"

    def __post_init__(self):
        super().__post_init__()
        ok = not (self.share and self.average == "gradient")
        require(ok, "share", self.share, "False with average='gradient'")
        if self.init == "redrawn":
            require(self.k in LEAST, "k", self.k, "2 or 4 with init='redrawn', as in the released code")
            require(not self.share, "share", self.share, "False with init='redrawn'")

    def body(self, model) -> torch.Tensor:
        """Which entries of a vector (P,) are shared: all but the decision layer's."""
        body = torch.ones(model.size, dtype=torch.bool, device=model.device)
        body[model.head] = False
        return body

    def start(self, net):
        if self.init == "redrawn":
            models = self.redrawn(net)
        elif self.init == "distinct":
            models = net.task.init(self.k)
        else:
            models = net.task.init().expand(self.k, -1).clone()
        if self.share:
            body = self.body(net.task.model)
            models[:, body] = models[0, body]
        return {"models": models, "assign": torch.full((net.task.clients,), -1)}

    def redrawn(self, net) -> torch.Tensor:
        """The first K models in a row of draws of which each has enough clients (K, P)."""
        for draw in range(DRAWS):
            models = net.task.init(self.k, first=draw * self.k)
            chosen = net.call(net.everybody, self.client_choose, down={"models": models})["cluster"].dense()
            fewest = int(torch.bincount(chosen, minlength=self.k).min())
            if fewest / len(chosen) >= LEAST[self.k]:
                return models
        allowed = f"distinct or common here; no draw of {DRAWS} gave each model {LEAST[self.k]:.0%} of the clients"
        require(False, "init", self.init, allowed)

    def round(self, server, clients, net):
        models, body = server["models"], self.body(net.task.model)
        if self.share:  # one body and K heads travel, not K models
            up = net.call(clients, self.client_sharing, down={"body": models[0, body], "heads": models[:, ~body]})
        else:
            up = net.call(clients, self.client, down={"models": models})
        cluster = up["cluster"].dense()
        if self.average == "gradient":
            share = torch.bincount(cluster, minlength=self.k).to(models) / len(clients)
            gradient = up["model"].mean_by(cluster, self.k)
            models = models - net.task.optimiser.lr * share[:, None] * gradient
        else:
            everybody = up["model"].mean() if self.share else None
            models = up["model"].mean_by(cluster, self.k, keep=models)
            if self.share:
                models[:, body] = everybody[body]
        assign = server["assign"].clone()
        assign[clients] = cluster
        return {"models": models, "assign": assign}

    def client_choose(self, down, memory, data, local):
        """Take the model with the least loss (m,)."""
        return {"cluster": local.losses(down["models"], data).argmin(1).cpu()}

    def client(self, down, memory, data, local):
        cluster = self.client_choose(down, memory, data, local)["cluster"]
        mine = Pick(down["models"], cluster)
        trained = local.gradient(mine, data) if self.average == "gradient" else local.sgd(mine, data)
        return {"model": trained, "cluster": cluster}

    def client_sharing(self, down, memory, data, local):
        heads, body = down["heads"], self.body(local.model)
        models = heads.new_empty(len(heads), len(body))
        models[:, body], models[:, ~body] = down["body"], heads
        return self.client({"models": models}, memory, data, local)

    def serve(self, server, clients, net):
        chosen = net.call(clients, self.client_choose, down={"models": server["models"]})["cluster"]
        return Pick(server["models"], chosen.dense())
