"""FedGroup (Duan et al. 2021): group clients once, by the directions of their first updates."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from cflkit.checks import Count, require
from cflkit.engine.rows import Pick
from cflkit.methods.base import Clustered, finite, kmeans


@dataclass(frozen=True)
class FedGroup(Clustered):
    """Static grouping by the decomposed cosine (Duan et al. 2021, "EDC").

    Before round 1, min(`pretrain` K, N) clients pre-train; the K leading directions V of their updates span a small
    space, k-means on the cosines between updates and V makes groups, and a group's model is the mean of its
    members'. Any other client joins, when first sampled, the group whose last update is most similar to its own
    pre-training update. Groups then stay, and run FedAvg inside.

    Parameters
    ----------
    k : int
        Number of groups (K).
    pretrain : int
        Pre-training clients for each group.
    pretrain_epochs : int
        Local epochs of pre-training.
    """

    k: Count = 4
    pretrain: Count = 20
    pretrain_epochs: Count = 1
    name = "fedgroup"

    def start(self, net):
        there, initial = net.everybody, net.task.init()[0]
        n = len(there)
        require(self.k <= n, "k", self.k, f"at most {n}, the clients that are there before round 1")
        drawn = net.rng("pretrain").choice(n, size=min(self.pretrain * self.k, n), replace=False)
        first = there[torch.from_numpy(drawn)].sort().values
        up = net.call(first, self.client_pretrain, down={"model": initial})
        seen = slice(0, net.task.model.trainable)
        updates = finite(up["model"].dense() - initial, net)[:, seen]
        group = kmeans(edc(updates, self.k), self.k, net)
        models = up["model"].mean_by(group, self.k, keep=initial.expand(self.k, -1))
        assign = torch.full((net.task.clients,), -1)
        assign[first] = group
        return {"initial": initial, "models": models, "moved": models - initial, "assign": assign}

    def round(self, server, clients, net):
        assign = server["assign"].clone()
        new = clients[assign[clients] < 0]
        if len(new):
            assign[new] = self.nearest(server, new, net)
        models, group = server["models"], assign[clients]
        up = net.call(clients, self.client, per_client={"model": Pick(models, group)})
        means = up["model"].mean_by(group, self.k, keep=models, weights=up.sizes)
        moved = server["moved"].clone()
        moved[group.unique()] = (means - models)[group.unique()]
        return {**server, "models": means, "moved": moved, "assign": assign}

    def nearest(self, server, new, net) -> Tensor:
        """Groups (m,) of newcomers: whose last update is most similar to the newcomer's pre-training update."""
        up = net.call(new, self.client_pretrain, down={"model": server["initial"]})
        seen = slice(0, net.task.model.trainable)
        updates = (up["model"].dense() - server["initial"])[:, seen]
        return (normalize(updates) @ normalize(server["moved"][:, seen]).T).argmax(1).cpu()

    def client_pretrain(self, down, memory, data, local):
        few = replace(local.optimiser, epochs=self.pretrain_epochs, steps=None)
        return {"model": local.sgd(down["model"], data, optimiser=few)}

    def client(self, down, memory, data, local):
        return {"model": local.sgd(down["model"], data)}

    def serve(self, server, clients, net):
        group = server["assign"][clients]
        new = group < 0
        if new.any():
            group[new] = self.nearest(server, clients[new], net)
        return Pick(server["models"], group)


def edc(updates: Tensor, k: int) -> Tensor:
    """Cosines (n, k) between updates (n, P) and their k leading right singular vectors."""
    directions = torch.linalg.svd(updates, full_matrices=False).Vh[:k]
    return normalize(updates) @ directions.T
