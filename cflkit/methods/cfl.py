"""CFL, also ClusteredFL and FedCluster (Sattler, Mueller, Samek 2020): split clusters that stop agreeing."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from cflkit.checks import Count, Natural, Weight
from cflkit.engine.rows import Pick
from cflkit.methods.base import Method


@dataclass(frozen=True)
class CFL(Method):
    """Clustered federated learning by recursive bipartition (Sattler et al. 2020, Algorithm 1).

    All clients start in one cluster and every cluster averages its members. A cluster c whose mean update is short
    while some member's is long has stationary conflict: it is split in two so that the largest cosine across the
    halves is least. Clusters stay a partition of the clients however often they split. Who is not sampled when a
    cluster is split stays with the half of its first sampled client. So a client that was never sampled counts, is
    served and is scored in cluster 0; the paper takes newcomers down the tree of splits.

    Parameters
    ----------
    eps1, eps2 : float
        Split where ||mean update|| < eps1 and max ||update|| > eps2.
    min_round : int
        No split before this round (released notebook: after the 20th); a run that ends earlier is FedAvg with
        equal weights.
    min_size : int
        Only clusters with more members are split.
    linkage : {"single", "complete"}
        The optimal bipartition cuts the weakest edge of the maximum spanning tree (single linkage on -cosine); the
        released notebook uses complete linkage, which need not be optimal.
    gamma_test : bool
        Accept a split only if max cosine across < sqrt((1 - gamma_max) / 2), with gamma_i the deviation of a
        member's update from the mean of its half, relative to that mean (the paper's certificate).
    """

    eps1: Weight = 0.4
    eps2: Weight = 1.6
    min_round: Natural = 21
    min_size: Count = 2
    linkage: Literal["single", "complete"] = "single"
    gamma_test: bool = False
    name = "cfl"

    def start(self, net):
        return {"models": net.task.init(), "assign": torch.zeros(net.task.clients, dtype=torch.int64)}

    def round(self, server, clients, net):
        models, assign = server["models"], server["assign"].clone()
        here = assign[clients]
        up = net.call(clients, self.client, per_client={"model": Pick(models, here)})
        updates = (up["model"].dense() - models[here])[:, : net.task.model.trainable]
        if net.round >= self.min_round:
            for c in here.unique().tolist():
                members = torch.nonzero(here == c).flatten()
                if self.in_conflict(updates[members]):
                    half = bipartition(updates[members], self.linkage)
                    if not self.gamma_test or certified(updates[members], half):
                        assign[clients[members[half == 1]]] = len(models)
                        models = torch.cat([models, models[c][None]])
        # each cluster, new ones too, goes on from the mean of its own members
        return {"models": up["model"].mean_by(assign[clients], len(models), keep=models), "assign": assign}

    def in_conflict(self, updates: Tensor) -> bool:
        """Whether a cluster with these members' updates (c, P) has stopped moving while its members have not."""
        large = len(updates) > self.min_size
        return large and bool(updates.mean(0).norm() < self.eps1 and updates.norm(dim=1).max() > self.eps2)

    def client(self, down, memory, data, local):
        return {"model": local.sgd(down["model"], data)}

    def serve(self, server, clients, net):
        return Pick(server["models"], server["assign"][clients])


def cosines(updates: Tensor) -> Tensor:
    """Cosine matrix (n, n) of updates (n, P) in float64, clamped to [-1, 1]."""
    unit = torch.nn.functional.normalize(updates.double(), dim=1)
    return (unit @ unit.T).clamp(-1, 1).cpu()


def bipartition(updates: Tensor, method: str = "single") -> Tensor:
    """Halves 0 and 1 (n,) of n clients; the half of the first client is 0."""
    apart = (1 - cosines(updates)).numpy()
    np.fill_diagonal(apart, 0)
    tree = linkage(squareform(apart, checks=False), method)
    label = cut_tree(tree, 2).ravel()  # exactly two, also where the last two merges tie
    return torch.from_numpy((label != label[0]).astype(np.int64))


def certified(updates: Tensor, half: Tensor) -> bool:
    """Whether every cosine across is less than sqrt((1 - gamma_max) / 2), where gamma_max < 1."""
    gamma = 0.0
    for side in (0, 1):
        mean = updates[half == side].mean(0)
        gamma = max(gamma, float((updates[half == side] - mean).norm(dim=1).max() / mean.norm()))
    across = cosines(updates)[half == 0][:, half == 1].max()
    return gamma < 1 and bool(across < ((1 - gamma) / 2) ** 0.5)
