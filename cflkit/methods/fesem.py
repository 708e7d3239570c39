"""FeSEM (Long et al. 2022): federated k-means on the clients' weights."""

from dataclasses import dataclass

import torch
from sklearn.cluster import KMeans
from torch import Tensor

from cflkit.checks import one_of, require
from cflkit.matching import matched_mean
from cflkit.methods.base import Method
from cflkit.training import Pick, Prox


@dataclass(frozen=True)
class FeSEM(Method):
    """Multi-centre federated learning by stochastic expectation maximisation (Long et al. 2022, Algorithm 1).

    Before round 1 every device trains once from a common model, and k-means on the results gives centres and
    clusters. A round is LOCAL, E, M; the paper's loop E, M, LOCAL read from its last third, which also holds when
    only some devices take part (E and M then run over those just trained).

    Parameters
    ----------
    k : int
        Number of centres (K).
    lam : float
        Weight of the distance to the centre in a device's loss, lambda ||W_i - centre||^2 without one half (Eq. 7
        with alpha_i and 1/m dropped: they only rescale the learning rate).
    sub : {"all", "last"}
        Parameters that the E-step's distance sees: all, or the last dense kernel (released code).
    init : {"kmeans", "random"}
        Clusters before round 1: best of 20 k-means runs on the devices' models, or drawn at random.
    start_from : {"centre", "personal"}
        Where LOCAL begins: the centre (Algorithm 2), or the device's own last model.
    average : {"index", "matched"}
        M-step: plain mean (Eq. 9), or after matching neurons to the centre's (FeSEM-MA, Section 5.1).
    weights : {"uniform", "n"}
        Weight of a device in the M-step.
    """

    k: int = 4
    lam: float = 0.0
    sub: str = "all"
    init: str = "kmeans"
    start_from: str = "centre"
    average: str = "index"
    weights: str = "uniform"
    name = "fesem"

    def __post_init__(self):
        require(self.k >= 1, "k", self.k, "1 or more")
        require(self.lam >= 0, "lam", self.lam, "0 or more")
        one_of("sub", self.sub, ("all", "last"))
        one_of("init", self.init, ("kmeans", "random"))
        one_of("start_from", self.start_from, ("centre", "personal"))
        one_of("average", self.average, ("index", "matched"))
        one_of("weights", self.weights, ("uniform", "n"))

    def check(self, task):
        require(self.k <= task.clients, "k", self.k, f"at most the number of clients, {task.clients}")

    def start(self, net):
        everybody = torch.arange(net.task.clients)
        common = net.task.init()
        up = net.call(everybody, self.client, down={"centre": common[0]})
        if self.init == "random":
            assign = torch.from_numpy(net.rng("partition").integers(self.k, size=len(everybody)))
        else:
            points = torch.stack([w[self.seen(net.task.model)] for w in up["model"]])
            seed = int(net.rng("kmeans").integers(2**31))
            found = KMeans(self.k, n_init=20, random_state=seed).fit(points.cpu().numpy())
            assign = torch.from_numpy(found.labels_).long()
        empty = common.expand(self.k, -1)
        return {"centres": self.m_step(up, assign, empty, net.task.model), "assign": assign}

    def round(self, server, clients, net):
        centres, assign = server["centres"], server["assign"].clone()
        up = net.call(clients, self.client, per_client={"centre": Pick(centres, assign[clients])})
        assign[clients] = self.e_step(up["model"], centres, self.seen(net.task.model))
        return {"centres": self.m_step(up, assign[clients], centres, net.task.model), "assign": assign}

    def e_step(self, models, centres: Tensor, seen: slice) -> Tensor:
        """Closest centre of each model (m,), Eq. 8; ties to the lowest index."""
        nearest = [(w[seen] - centres[:, seen]).square().sum(1).argmin() for w in models]
        return torch.stack(nearest).cpu()

    def m_step(self, up, assign: Tensor, centres: Tensor, model) -> Tensor:
        """Mean of each cluster's models (K, P), Eq. 9; a cluster without members keeps its centre."""
        weights = up.sizes if self.weights == "n" else None
        if self.average == "matched":
            return matched_mean(up["model"], assign, centres, model, weights)
        return up["model"].mean_by(assign, self.k, keep=centres, weights=weights)

    def client(self, down, memory, data, local):
        """Algorithm 2."""
        centre = down["centre"]
        begin = memory.get("personal", centre) if self.start_from == "personal" else centre
        trained = local.sgd(begin, data, [Prox(2 * self.lam, centre)])
        memory["personal"] = trained
        return {"model": trained}

    def seen(self, model) -> slice:
        """Where the parameters lie that the distance sees."""
        return slice(0, model.trainable) if self.sub == "all" else model.spans[model.parameters[-2]]

    def serve(self, server, clients, net):
        return Pick(server["centres"], server["assign"][clients])

    def personal(self, server, clients, net):
        def recall(down, memory, data, local):
            return {"model": memory.get("personal", server["centres"][0])}

        return net.call(clients, recall)["model"]

    def assignment(self, server):
        return server["assign"]
