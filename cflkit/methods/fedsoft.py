"""FedSoft (Ruan and Joe-Wong 2022): personal models pulled towards the clusters of a client's images."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cflkit.checks import Count, Fraction, Weight
from cflkit.engine.rows import Pick
from cflkit.engine.sgd import Prox
from cflkit.methods.base import Clustered, recall


@dataclass(frozen=True)
class FedSoft(Clustered):
    """Soft clustered federated learning with proximal local updating (Ruan and Joe-Wong 2022, Algorithm 1).

    Client i counts for how many of its images each cluster's model has the least loss; the share of cluster s, or
    `sigma` if that is more, is its importance weight u_is. Each cluster draws clients with probabilities
    proportional to u_is n_i, without replacement. Whoever is drawn trains its personal model on
    h_i(w) = f_i(w) + lam/2 sum_s u_is ||w - c_s||^2, and c_s becomes the mean of the models of those it drew.

    Our reading: the round's clients are those that can be drawn; a client begins at its own last model (as the
    authors' code does); its u_is sum to 1, so that the pulls' gradient is lam (w - sum_s u_is c_s) and the server
    sends that one sum in place of all K models. A client is served by the cluster of its largest u_is.

    Parameters
    ----------
    k : int
        Number of clusters (K).
    lam : float
        Strength of the pulls (lambda).
    every : int
        Rounds for which importance weights hold (tau).
    draw : float
        Share of the round's clients that each cluster draws.
    sigma : float
        Least importance weight.
    """

    k: Count = 4
    lam: Weight = 0.1
    every: Count = 1
    draw: Fraction = 0.5
    sigma: Fraction = 1e-4
    name = "fedsoft"

    def start(self, net):
        n, models = net.task.clients, net.task.init(self.k)
        return {
            "models": models,
            "initial": models[0].clone(),
            "importance": torch.zeros(n, self.k, dtype=models.dtype),
            "asked": torch.full((n,), -self.every),  # the round in which
            "assign": torch.full((n,), -1),
        }

    def round(self, server, clients, net):
        importance, asked, assign = (server[name].clone() for name in ("importance", "asked", "assign"))
        models, old = server["models"], clients[net.round - asked[clients] >= self.every]
        if len(old):  # between two estimations there may be nobody to ask
            importance[old], asked[old] = self.weigh(models, old, net), net.round
        assign[old] = importance[old].argmax(1)
        drawn = [self.drawn(importance[clients, s] * net.task.sizes[clients], s, net) for s in range(self.k)]
        trains = torch.cat(drawn).unique()
        centre = importance[clients[trains]].to(models) @ models
        known = {"initial": server["initial"]}
        up = net.call(clients[trains], self.client, per_client={"centre": centre}, known=known)
        place = [torch.isin(trains, chosen) for chosen in drawn]
        models = torch.stack([up["model"].mean(chosen.to(torch.float64)) for chosen in place])
        return {**server, "models": models, "importance": importance, "asked": asked, "assign": assign}

    def drawn(self, weights: Tensor, s: int, net) -> Tensor:
        """Positions of the clients that cluster `s` draws, with probabilities proportional to `weights` (m,)."""
        m, p = max(1, round(self.draw * len(weights))), weights.double().numpy()
        return torch.from_numpy(net.rng("draw", s).choice(len(p), size=m, replace=False, p=p / p.sum()))

    def weigh(self, models: Tensor, clients: Tensor, net) -> Tensor:
        """Importance weights (m, K) of clients that are asked."""
        return net.call(clients, self.client_weigh, {"models": models})["importance"].dense().cpu()

    def client_weigh(self, down, memory, data, local):
        best = [losses.argmin(0) for losses in local.image_losses(down["models"], data)]
        clusters = torch.arange(self.k, device=down["models"].device)
        share = torch.stack([(each[:, None] == clusters).to(down["models"]).mean(0) for each in best])
        share = share.clamp_min(self.sigma)
        return {"importance": share / share.sum(1, keepdim=True)}

    def client(self, down, memory, data, local):
        begin = memory.get("personal", down["initial"])
        memory["personal"] = trained = local.sgd(begin, data, [Prox(self.lam, down["centre"])])
        return {"model": trained}

    def serve(self, server, clients, net):
        cluster = server["assign"][clients]
        new = cluster < 0
        if new.any():
            cluster[new] = self.weigh(server["models"], clients[new], net).argmax(1)
        return Pick(server["models"], cluster)

    def personal(self, server, clients, net):
        return net.call(clients, recall, known={"initial": server["initial"]})["model"]
