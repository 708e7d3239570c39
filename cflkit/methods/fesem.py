"""FeSEM (Long et al. 2022): federated k-means on the clients' weights."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cflkit.checks import Count, Weight, require
from cflkit.engine.rows import Pick
from cflkit.engine.sgd import Prox
from cflkit.methods.base import Clustered, kmeans, recall
from cflkit.methods.matching import alignable, matched_mean


@dataclass(frozen=True)
class FeSEM(Clustered):
    """Multi-centre federated learning by stochastic expectation maximisation (Long et al. 2022, Algorithm 1).

    Before round 1 every device trains once from a common model, as in the first round of the paper's Section 3.1,
    and k-means on the results gives centres and clusters. A round is LOCAL, E, M, the order of Section 3.1; the
    listing's loop E, M, LOCAL has the same steps, begun elsewhere. Where only some devices take part, E and M run
    over those just trained.

    Parameters
    ----------
    k : int
        Number of centres (K).
    lam : float
        Weight of the distance to the centre in a device's loss, lambda ||W_i - centre||^2 without one half (Eq. 7
        with alpha_i and 1/m dropped). Where all devices hold equally many images, that only rescales the learning
        rate; otherwise devices with many images are pulled harder than in Eq. 7, relative to their loss, and those
        with few less.
    sub : {"all", "last"}
        Parameters that the E-step's distance sees: all, or the last dense kernel (released code).
    init : {"kmeans", "random"}
        Clusters before round 1: best of 20 k-means runs on the devices' models, or drawn at random.
    start_from : {"centre", "personal"}
        Where LOCAL begins: the centre (Algorithm 2), or the device's own last model.
    average : {"index", "matched"}
        M-step: plain mean (Eq. 9), or after matching neurons to the centre's (FeSEM-MA, Section 5.1);
        the latter for networks whose layers follow in a row.
    weights : {"uniform", "n"}
        Weight of a device in the M-step.
    """

    k: Count = 4
    lam: Weight = 0.0
    sub: Literal["all", "last"] = "all"
    init: Literal["kmeans", "random"] = "kmeans"
    start_from: Literal["centre", "personal"] = "centre"
    average: Literal["index", "matched"] = "index"
    weights: Literal["uniform", "n"] = "uniform"
    name = "fesem"
    centres = "centres"

    def check(self, task):
        super().check(task)
        ok = self.average == "index" or alignable(task.model, task.shape)
        require(ok, "average", self.average, "index for this model, whose layers do not follow in a row")

    def start(self, net):
        everybody = torch.arange(net.task.clients)
        common = net.task.init()
        up = net.call(everybody, self.client, down={"centre": common[0]})
        if self.init == "random":
            assign = torch.from_numpy(net.rng("partition").integers(self.k, size=len(everybody)))
        else:
            points = torch.stack([w[self.seen(net.task.model)] for w in up["model"]])
            assign = kmeans(points, self.k, net)
        return self.centred(up, assign, common.expand(self.k, -1), net.task.model) | {"assign": assign}

    def round(self, server, clients, net):
        centres, assign = server["centres"], server["assign"].clone()
        up = net.call(clients, self.client, per_client={"centre": Pick(centres, assign[clients])})
        assign[clients] = self.e_step(up["model"], centres, self.seen(net.task.model))
        return self.centred(up, assign[clients], centres, net.task.model) | {"assign": assign}

    def centred(self, up, assign: Tensor, centres: Tensor, model) -> dict:
        """The M-step, and what it leaves of Eq. 6 for the history."""
        centres = self.m_step(up, assign, centres, model)
        return {"centres": centres, "objective": self.objective(up["model"], assign, centres, self.seen(model))}

    def objective(self, models, assign: Tensor, centres: Tensor, seen: slice) -> float:
        """Intra-cluster distance of Eq. 6: mean over the models (m,) of the squared distance to their centre."""
        pairs = zip(models, assign.tolist(), strict=True)
        return float(torch.stack([(w[seen] - centres[g, seen]).square().sum() for w, g in pairs]).mean())

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
        trained = local.sgd(begin, data, [Prox(2 * self.lam, centre)]).dense()
        memory["personal"] = trained
        return {"model": trained}

    def seen(self, model) -> slice:
        """Where the parameters lie that the distance sees."""
        if self.sub == "all":
            return slice(0, model.trainable)
        return model.spans[model.parameters[-1].rpartition(".")[0] + ".weight"]

    def personal(self, server, clients, net):
        fallback = server["centres"][0]  # of no use here: every device has trained since the start
        return net.call(clients, recall, known={"initial": fallback})["model"]

    def log(self, server):
        return {"objective": server["objective"]}
