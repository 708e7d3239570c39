"""Robust clustering (Ghosh et al. 2019), FeSEM's "Robust (TKM)": trimmed k-means, trimmed means."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cflkit.checks import Count, Range
from cflkit.engine.rows import Pick
from cflkit.methods.base import Clustered, finite


@dataclass(frozen=True)
class Robust(Clustered):
    """Three stages (Ghosh et al. 2019): local models, trimmed k-means on them, robust averaging in each cluster.

    As there, clients are clustered once. There each first minimises its own loss, and the last stage trims
    gradients; here each first trains for one round, and the last stage trims models, since models are what clients
    send. FeSEM compares with "Robust (TKM)" without printing its settings; the code released with it goes on
    clustering, with eight Lloyd steps at first and one in every later round.

    Parameters
    ----------
    k : int
        Number of clusters (K).
    trim : float
        Share cut off at *each* end of every coordinate before averaging, in [0, 0.5): floor(trim n) of n members,
        so that a cluster resists an outlier from 1 / trim members on. The same share of all clients, the farthest
        from the median, seeds no cluster.
    iterations : int
        Lloyd steps of the clustering.
    """

    k: Count = 4
    trim: Annotated[float, Range(0, 0.5, open_high=True)] = 0.05
    iterations: Count = 8
    name = "robust"

    def start(self, net):
        from sklearn.cluster import kmeans_plusplus  # takes longer to import than PyTorch, and few methods need it

        initial = net.task.init()[0]
        up = net.call(torch.arange(net.task.clients), self.client, down={"model": initial})
        points = finite(up["model"].dense(), net)
        seed = int(net.rng("kmeans").integers(2**31))
        seen = slice(0, net.task.model.trainable)  # what is only carried, as running statistics, says nothing
        inner = central(points[:, seen], max(self.k, len(points) - int(self.trim * len(points))))
        _, seeds = kmeans_plusplus(points[inner, seen].cpu().numpy(), self.k, random_state=seed)
        first = points[inner[torch.from_numpy(seeds).to(inner)]]
        centres, assign = trimmed_kmeans(points, first, self.trim, self.iterations, seen)
        return {"models": centres, "assign": assign}

    def round(self, server, clients, net):
        models, here = server["models"], server["assign"][clients]
        up = net.call(clients, self.client, per_client={"model": Pick(models, here)})
        models = models.clone()
        for c in here.unique().tolist():
            models[c] = trimmed_mean(up["model"][here == c], self.trim)
        return {**server, "models": models}

    def client(self, down, memory, data, local):
        return {"model": local.sgd(down["model"], data)}


def trimmed_mean(points: Tensor, trim: float) -> Tensor:
    """Mean (P,) of points (n, P) without the floor(trim n) least and greatest of each coordinate."""
    cut = int(trim * len(points))
    return points.sort(0).values[cut : len(points) - cut].mean(0)


def central(points: Tensor, keep: int) -> Tensor:
    """Which `keep` of points (n, P) are nearest to their median; k-means++ would seed at the farthest first."""
    return (points - points.median(0).values).norm(dim=1).argsort()[:keep].sort().values


def trimmed_kmeans(
    points: Tensor, centres: Tensor, trim: float, iterations: int, seen: slice = slice(None)
) -> tuple[Tensor, Tensor]:
    """Lloyd's algorithm with trimmed means: centres (K, P), assignment (n,); an empty cluster keeps its own.

    Distances are between the coordinates `seen`; means are of all.
    """
    centres = centres.clone()
    for _ in range(iterations):
        assign = apart(points[:, seen], centres[:, seen]).argmin(1)
        for c in assign.unique().tolist():
            centres[c] = trimmed_mean(points[assign == c], trim)
    return centres, apart(points[:, seen], centres[:, seen]).argmin(1).cpu()


def apart(points: Tensor, centres: Tensor) -> Tensor:
    """Distances (n, K), each from a difference: products of models that began alike cancel in single precision."""
    return torch.cdist(points, centres, compute_mode="donot_use_mm_for_euclid_dist")
