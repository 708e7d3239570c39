"""FLUX (Fenoglio et al. 2025): describe every client by moments of its latent images, and cluster descriptions."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch import Tensor

from cflkit import rng
from cflkit.checks import Count, Natural, Positive
from cflkit.engine.clients import Data
from cflkit.engine.local import Local
from cflkit.engine.rows import Pick, Rows
from cflkit.methods.base import Method, finite, one_for_all
from cflkit.models.flat import Model


@dataclass(frozen=True)
class FLUX(Method):
    """Descriptor-driven clustering without a number of clusters (Fenoglio et al. 2025).

    After `warmup` rounds of FedAvg the global model becomes the encoder for good. All clients send a descriptor:
    mean and standard deviation of their encoded images, over all and label by label. The server scales each of
    these moments to [0, 1] and clusters by DBSCAN, whose radius it reads off the descriptors; whoever is left alone
    is a cluster. Clusters then run FedAvg. Whoever comes later needs no label: it joins the cluster whose centroid
    is nearest in the part of the descriptor that looks at images alone.

    Parameters
    ----------
    warmup : int
        Rounds of FedAvg before clients are clustered; until then `ari` and `nmi` are NaN, as there is no cluster.
    every : int or None
        Cluster anew every so many rounds, and let each cluster begin at the model of the old one that is nearest
        (``flux_dynamic`` of the released code, at a round that it is told); once if None.
    latent : int
        Numbers that an encoded image is projected to (L).
    scaling : float
        Factor of the radius (``eps_scaling`` of the released code).
    epsilon : float or None
        Privacy of the descriptors: Laplace noise of scale range / (n_i epsilon) on each number; none if None.

    Notes
    -----
    Our reading, where the released code (``dariofenoglio98/FLUX``) does more. It ends the warm-up when validation
    accuracy grows by less than 6 points, in round 3 at the earliest; here rounds are counted. It encodes before the
    first dense layer, and projects by a PCA of random points; here an image is what reaches the decision layer, and
    the L directions are random and orthonormal, from a seed that all share. The elbow is the point furthest below
    the chord, in place of a library's.
    """

    warmup: Natural = 3
    every: Count | None = None
    latent: Count = 10
    scaling: Positive = 1.0
    epsilon: Positive | None = None
    name = "flux"

    def start(self, net):
        model = net.task.init()[0]
        width = net.task.model.shapes[f"{decision(net.task.model)}.weight"][1]
        drawn = net.rng("directions").standard_normal((width, min(self.latent, width)))
        return {
            "models": model[None],
            "encoder": model,
            "directions": torch.from_numpy(np.linalg.qr(drawn)[0]).to(model),  # (H, L), from a shared seed
            "centroids": model.new_zeros(0),  # (K, D) of scaled descriptors; empty until clients are clustered
            "assign": torch.full((net.task.clients,), -1),
        }

    def round(self, server, clients, net):
        since = net.round - 1 - self.warmup
        if since >= 0 and (since % self.every if self.every else since) == 0:
            server = self.cluster(server, net)
        k, models = self.found(server, clients, net), server["models"]
        up = net.call(clients, self.client, per_client={"model": Pick(models, k)})
        assign = server["assign"].clone()
        if len(server["centroids"]):
            assign[clients] = k
        models = up["model"].mean_by(k, len(models), keep=models, weights=up.sizes)
        return {**server, "models": models, "assign": assign}

    def cluster(self, server: dict, net) -> dict:
        """Describe everybody, and cluster."""
        there, old = net.everybody, server["centroids"]
        if not len(old):
            server = server | {"encoder": server["models"][0]}
        described = finite(self.described(server, there, self.describe, net), net)
        if not len(old):
            parts = moments(described, server["directions"].shape[1])
            server = server | {"scale": torch.stack([parts.amin((0, 2)), parts.amax((0, 2))])}  # of each moment
        scaled = self.scaled(server, described)
        k = torch.from_numpy(dense(scaled.cpu().double().numpy(), self.scaling))
        centroids = Rows([scaled]).mean_by(k, int(k.max()) + 1)
        origin = torch.cdist(centroids, old).argmin(1) if len(old) else torch.zeros(len(centroids)).long()
        assign = torch.full_like(server["assign"], -1)
        assign[there] = k
        return {**server, "models": server["models"][origin], "centroids": centroids, "assign": assign}

    def described(self, server: dict, clients: Tensor, work, net) -> Tensor:
        """Descriptors (m, D) of clients."""
        known = {"directions": server["directions"]}
        return net.call(clients, work, down={"encoder": server["encoder"]}, known=known)["moments"].dense()

    def scaled(self, server: dict, described: Tensor) -> Tensor:
        """Descriptors (m, D) with each moment moved to [0, 1], as the first clustering found it."""
        parts = moments(described, server["directions"].shape[1])
        low, high = server["scale"][:, : parts.shape[1], None]
        return ((parts - low) / torch.where(high > low, high - low, 1)).flatten(1)

    def found(self, server: dict, clients: Tensor, net) -> Tensor:
        """Cluster (m,) of clients; of those that are in none, by their images alone."""
        if not len(server["centroids"]):
            return torch.zeros(len(clients), dtype=torch.int64)
        k = server["assign"][clients]
        new = k < 0
        if new.any():
            seen = self.scaled(server, self.described(server, clients[new], self.describe_unlabelled, net))
            k[new] = torch.cdist(seen, server["centroids"][:, : seen.shape[1]]).argmin(1).cpu()
        return k

    def describe(self, down, memory, data, local):
        """Moments of all encoded images, then of those of each label (m, 2 L (1 + C))."""
        return {"moments": self.summed(down, data, local, labelled=True)}

    def describe_unlabelled(self, down, memory, data, local):
        """Moments of all encoded images (m, 2 L); looks at no label."""
        return {"moments": self.summed(down, data, local, labelled=False)}

    @torch.no_grad()
    def summed(self, down: dict, data: Data, local: Local, labelled: bool) -> Tensor:
        """Mean and standard deviation of projected latents; -1 for a label with fewer than two images."""
        rows = []
        for i, client in enumerate(data.clients):
            x, y = data[i]
            z = encoded(local.model, down["encoder"], x) @ down["directions"]  # (n, L)
            classes = torch.arange(data.classes, device=z.device) if labelled else torch.arange(0, device=z.device)
            of = torch.cat([torch.ones_like(z[:, :1]), (y[:, None] == classes).to(z)], 1)  # all, then each label
            n = of.sum(0)[:, None]
            mean = of.T @ z / n  # not a number where a label is missing
            spread = ((of[:, :, None] * (z[:, None] - mean) ** 2).sum(0) / n).sqrt()
            row = torch.stack([mean, spread], 1)  # (1 + C, 2, L)
            row[1:] = torch.where(n[1:, None] > 1, row[1:], -1.0)
            row = row.flatten()
            if self.epsilon is not None:
                noise = rng.generator(local.seed, local.round, client, "descriptor").laplace(size=len(row))
                row = row + torch.from_numpy(noise).to(row) * (z.max() - z.min()) / (len(z) * self.epsilon)
            rows.append(row)
        return torch.stack(rows)

    def client(self, down, memory, data, local):
        return {"model": local.sgd(down["model"], data)}

    def serve(self, server, clients, net):
        if not len(server["centroids"]):
            return one_for_all(server["models"][0], clients)
        return Pick(server["models"], self.found(server, clients, net))


def decision(model: Model) -> str:
    """Name of the decision layer: the last submodule with parameters."""
    return model.parameters[-1].rpartition(".")[0]


def encoded(model: Model, vector: Tensor, x: Tensor) -> Tensor:
    """What reaches the decision layer (n, H) from images `x` (n, C, H, W)."""
    module, reached = model.bound(vector).eval(), []
    module.get_submodule(decision(model)).register_forward_pre_hook(lambda _, given: reached.append(given[0]))
    module(x)
    return reached[0]


def moments(described: Tensor, latent: int) -> Tensor:
    """Cut descriptors (m, D) into their moments (m, D / L, L)."""
    return described.unflatten(1, (-1, latent))


def dense(points: np.ndarray, scaling: float) -> np.ndarray:
    """Cluster (n,) of each of `points` (n, D) by DBSCAN within `scaling` times the elbow of nearest distances.

    A point is joined to every point within that radius. The elbow is where the ascending curve of distances to the
    nearest other point lies furthest below its chord.
    """
    from sklearn.cluster import DBSCAN  # takes longer to import than PyTorch, and few methods need it

    if len(points) == 1:
        return np.zeros(1, np.int64)
    apart = cdist(points, points)
    nearest = np.sort(np.sort(apart, 1)[:, 1])  # the first is one's own, 0
    chord = np.linspace(nearest[0], nearest[-1], len(nearest))
    radius = scaling * nearest[np.argmax(chord - nearest)]
    label = DBSCAN(max(radius, 1e-300), min_samples=2, metric="precomputed").fit(apart).labels_
    alone = label < 0
    label[alone] = label.max() + 1 + np.arange(alone.sum())
    return label.astype(np.int64)
