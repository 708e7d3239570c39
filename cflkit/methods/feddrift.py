"""FedDrift (Jothimurugesan et al. 2023): clusters over time, which clients leave when their loss jumps."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from cflkit.checks import Count, Positive, require
from cflkit.engine.clients import Data
from cflkit.engine.rows import Pick, Rows
from cflkit.methods.base import Method


@dataclass(frozen=True)
class FedDrift(Method):
    """Clustering under distributed concept drift (Jothimurugesan et al. 2023, FedDrift).

    Time steps of `every` rounds bring new data. When one begins, each client measures all models on its new data
    and takes the best. If even that one is worse than the best was a time step ago, by more than delta, the client
    drifts: it is isolated for this time step in a cluster of its own, which begins at its best model. Then clusters
    are merged that serve each other's data. In the rounds of the time step each cluster runs FedAvg on all its
    data: what its members have now, and what clients had in earlier time steps, when they were in it.

    Parameters
    ----------
    delta : float
        Loss that a client may gain before it counts as drifted, and that two clusters may lose by a merge.
    every : int
        Rounds of a time step.
    first : {"one", "each"}
        Clusters of the first time step: one of all clients, or each client its own (``H_A_C`` and ``H_A_F`` of the
        released code). From one cluster, clients part only by drifting.
    keep : bool
        Whether clients keep the data of earlier time steps. Without them, a cluster trains and is measured on the
        newest data of its present members, and waits where it has none.

    Notes
    -----
    As we read the paper it compares losses; its code (``microsoft/FedDrift``, ``cluster_hierarchical``) accuracies.
    Our reading, where the code decides: the loss of "a time step ago" was measured on data that were new then, and
    at first by the untrained model; a merged model weighs its parts by their client time steps. Not followed: the
    code measures clusters on a sample of twenty batches, caps the number of models, and does not train a model that
    no client has in the present time step.
    """

    delta: Positive = 0.5
    every: Count = 10
    first: Literal["one", "each"] = "one"
    keep: bool = True
    name = "feddrift"

    def start(self, net):
        initial, there = net.task.init(), net.everybody
        k = len(there) if self.first == "each" else 1
        return {
            "models": initial.expand(k, -1).clone(),
            "open": 1,  # the first so many models may be chosen; later ones are isolated
            "steps": torch.zeros(k, dtype=torch.int64),  # client time steps in each cluster so far
            "assign": torch.full((net.task.clients,), -1),
            "past": torch.zeros(0, net.task.clients, dtype=torch.int64),  # in the time steps before
            "best": torch.full((net.task.clients,), torch.inf, dtype=initial.dtype),  # loss when the step began
            "drifted": 0,
        }

    def round(self, server, clients, net):
        if self.keep:  # data that are no longer the newest stay in the cluster in which they were last
            line = "a run of this process, which knows the data of earlier time steps"
            require(len(net.held) > 0, "start", "of another process", line)
            over = len(net.held) - 1 - len(server["past"])
            server = server | {"past": torch.cat([server["past"], server["assign"].expand(over, -1)])}
        else:  # a run before may have kept them
            server = server | {"past": server["past"][:0]}
        if (net.round - 1) % self.every == 0:
            server = self.cluster(server, net)
        assign = server["assign"].clone()
        new = clients[assign[clients] < 0]
        if len(new):  # who arrives within a time step
            assign[new] = self.losses(server, new, net).argmin(1)
        server, models = server | {"assign": assign}, server["models"]
        up, k, images = self.ask(clients, self.client, server, net)
        return server | {"models": up.mean_by(k, len(models), keep=models, weights=images)}

    def ask(self, clients, work: Callable, server: dict, net, **known: Tensor) -> tuple[Rows, Tensor, Tensor]:
        """Let clients work on all that they hold of a cluster's data, once for each cluster of which they hold any.

        They receive the cluster's model, unless all they need is `known`. Gives what comes up (q, ...), clusters
        (q,) and numbers of images (q,).
        """
        of = torch.cat([server["past"], server["assign"][None]])[:, clients]
        left = of[..., None] == torch.arange(len(server["models"]))  # (T, m, K)
        held, done = torch.stack([*net.held] if self.keep else [net.task.sizes])[:, clients], []
        while left.any():  # a client can be asked once at a time
            who = torch.nonzero(left.any(2).any(0)).flatten()
            k = left[:, who].any(0).int().argmax(1)
            steps = left[:, who, k]
            own = {"steps": steps.T} if len(of) > 1 else {}
            own |= {} if known else {"model": Pick(server["models"], k)}
            (up,) = net.call(clients[who], work, per_client=own, known=known).values()
            done.append((up.parts, k, (steps * held[:, who]).sum(0)))
            left[:, who, k] = False
        parts, *numbers = zip(*done, strict=True)
        return Rows([*chain.from_iterable(parts)]), *map(torch.cat, numbers)

    def cluster(self, server: dict, net) -> dict:
        """Begin a time step: choose, drift and merge."""
        there, models, first = net.everybody, server["models"], net.round == 1
        if not first:
            server = server | {"open": len(models)}  # whoever was isolated is so no longer
        loss = self.losses(server, there, net)
        best, k = loss.min(1)
        if first:
            k = torch.arange(len(there)) % len(models)  # models are equal: each client its own, or all the one
        drifted = best > server["best"][there] + self.delta
        steps = server["steps"] + torch.bincount(k[~drifted], minlength=len(models))
        alone, isolated = models[k[drifted].to(models.device)], int(drifted.sum())
        known = loss[~drifted], k[~drifted], net.task.sizes[there][~drifted]
        if len(server["past"]):  # clusters have older data, too
            now = server["assign"].index_put((there,), torch.where(drifted, -1, k))
            rows, *of = self.ask(there, self.measure, server | {"assign": now}, net, models=models)
            known = rows.dense().cpu(), *of
        group = torch.arange(len(models)) if first else merged(*known, self.delta)
        k = group[k]
        k[drifted] = int(group.max()) + 1 + torch.arange(isolated)
        parts = [torch.nonzero(group == g).flatten().tolist() for g in range(int(group.max()) + 1)]
        return {
            "models": torch.cat([torch.stack([together(models, steps, part) for part in parts]), alone]),
            "open": 1 if first else len(parts),
            "steps": torch.cat([torch.stack([steps[part].sum() for part in parts]), torch.ones_like(k[drifted])]),
            "assign": server["assign"].index_put((there,), k),
            "past": torch.cat([group, torch.tensor([-1])])[server["past"]],
            "best": server["best"].index_put((there,), best),
            "drifted": isolated,
        }

    def losses(self, server: dict, clients: Tensor, net) -> Tensor:
        """Loss (m, K) of every client on every model that may be chosen."""
        down = {"models": server["models"][: server["open"]]}
        return net.call(clients, self.measure, down=down)["loss"].dense().cpu()

    def measure(self, down, memory, data, local):
        """Loss of each model (m, K) on the newest data, or on those of some time steps."""
        return {"loss": local.losses(down["models"], chosen(down, data))}

    def client(self, down, memory, data, local):
        return {"model": local.sgd(down["model"], chosen(down, data))}

    def serve(self, server, clients, net):
        k = server["assign"][clients]
        new = k < 0
        if new.any():
            k[new] = self.losses(server, clients[new], net).argmin(1)
        return Pick(server["models"], k)

    def log(self, server):
        return {"drifted": server["drifted"]}


def chosen(down: dict, data: Data) -> Data:
    """The data of the time steps that a client is asked about; the newest if of none."""
    return data.during(down["steps"]) if "steps" in down else data


def merged(loss: Tensor, k: Tensor, sizes: Tensor, delta: float) -> Tensor:
    """Merge clusters by complete linkage: in a merged one no two parts are further apart than delta.

    With L_ij the mean loss of model i over the images of cluster j, the distance of two clusters is
    max(L_ij - L_ii, L_ji - L_jj, 0): how much worse a model is on the other's data than on its own.

    Parameters
    ----------
    loss : Tensor (m, K)
        Loss of each model on parts of the data, such as a client's.
    k : Tensor (m,) of int64
        Cluster of each part. A cluster without data is merged with none.
    sizes : Tensor (m,) of int64
        Images of each part.
    delta : float
        Largest distance within a merged cluster.

    Returns
    -------
    Tensor (K,) of int64
        Group of each cluster, numbered 0.. by its lowest member.
    """
    group, used = torch.arange(loss.shape[1]), k.unique()
    if len(used) > 1:
        weight = (k[:, None] == used) * sizes[:, None].to(loss.dtype)  # (m, used)
        mean = loss[:, used].T @ (weight / weight.sum(0))  # L_ij
        further = mean - mean.diagonal()[:, None]
        apart = torch.maximum(further, further.T).clamp(min=0).numpy()
        label = fcluster(linkage(squareform(apart, checks=False), "complete"), delta, "distance")
        lowest = np.unique(label, return_index=True, return_inverse=True)
        group[used] = used[torch.from_numpy(lowest[1][lowest[2]])]
    return group.unique(return_inverse=True)[1]


def together(models: Tensor, steps: Tensor, part: list[int]) -> Tensor:
    """Mean (P,) of the models of a `part` of the clusters, weighed by their client time steps."""
    if len(part) == 1:
        return models[part[0]]
    weight = steps[part].to(models)
    return weight @ models[part] / weight.sum()
