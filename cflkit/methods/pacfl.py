"""PACFL (Vahidian et al. 2023): cluster clients once, by the angles between the subspaces of their images."""

from dataclasses import dataclass
from typing import Literal

import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor
from torch.nn.functional import pad

from cflkit.checks import Count, Weight, require
from cflkit.engine.rows import Pick
from cflkit.methods.base import Method


@dataclass(frozen=True)
class PACFL(Method):
    """Clustering by principal angles between client data subspaces (Vahidian et al. 2023, Algorithm 1).

    Before round 1 every client sends the first p left singular vectors U_i (d, p) of the matrix of its images, one
    a column. The server compares all pairs, clusters them hierarchically until the least distance exceeds `beta`,
    and runs FedAvg in each cluster from the common initial model. A client that comes later joins the cluster to
    which its distance, measured as the linkage does, is least.

    Our reading: a client with fewer than p images (or labels) has empty directions; the sign of a singular vector
    means nothing, so angles are between lines; newcomers join, where the paper clusters everybody again. Which
    equation is which angle is our reading, too.

    Parameters
    ----------
    beta : float
        Distance up to which clusters merge, in degrees: 0 leaves every client alone, 90 p and more makes one.
    rank : int
        Directions of a subspace (p).
    angle : {"first", "sum", "entry"}
        Distance of two clients: the smallest principal angle (Eq. 2), the sum of the angles between directions of
        the same number (Eq. 3), or the smallest angle between any two directions (released code).
    subspace : {"client", "label"}
        Directions of all images, or of those of each label (released code), which fit only the latter two angles.
    link : {"average", "complete", "single"}
        Distance of two clusters: the mean, largest or least of their clients'.
    """

    beta: Weight = 15.0
    rank: Count = 3
    angle: Literal["first", "sum", "entry"] = "first"
    subspace: Literal["client", "label"] = "client"
    link: Literal["average", "complete", "single"] = "average"
    name = "pacfl"

    def __post_init__(self):
        super().__post_init__()
        ok = self.subspace == "client" or self.angle != "first"
        require(ok, "angle", self.angle, "sum or entry with subspace='label'")

    def start(self, net):
        there, n = net.everybody, net.task.clients
        found = self.directions(there, net)
        apart = self.distances(found, found)
        cluster = torch.zeros(len(there), dtype=torch.int64)
        if len(there) > 1:
            tree = linkage(squareform(apart.numpy(), checks=False), self.link)
            label = fcluster(tree, self.beta, "distance").tolist()
            cluster = torch.tensor([list(dict.fromkeys(label)).index(c) for c in label])  # as they first come
        assign, basis = torch.full((n,), -1), found.new_zeros(n, *found.shape[1:])
        assign[there], basis[there] = cluster, found
        models = net.task.init().expand(int(cluster.max()) + 1, -1).clone()
        return {"models": models, "basis": basis, "assign": assign}

    def round(self, server, clients, net):
        assign, basis, models = server["assign"].clone(), server["basis"].clone(), server["models"]
        new = clients[assign[clients] < 0]
        if len(new):
            basis[new] = self.directions(new, net)
            assign[new] = self.nearest(server, basis[new])
        here = assign[clients]
        up = net.call(clients, self.client, per_client={"model": Pick(models, here)})
        models = up["model"].mean_by(here, len(models), keep=models, weights=up.sizes)
        return {"models": models, "basis": basis, "assign": assign}

    def directions(self, clients: Tensor, net) -> Tensor:
        """What clients send of their images (m, d, p), on the CPU."""
        return net.call(clients, self.client_directions)["basis"].dense().cpu()

    def distances(self, ours: Tensor, theirs: Tensor) -> Tensor:
        """Degrees (m, n) between subspaces (m, d, p) and (n, d, p); between one and itself 0."""
        rows = []
        for basis in ours:
            cosines = torch.einsum("dp,ndq->npq", basis, theirs).double()
            if self.angle == "first":
                found = torch.linalg.matrix_norm(cosines, 2)[:, None]
            elif self.angle == "sum":
                found = cosines.diagonal(dim1=1, dim2=2).abs()
            else:
                found = cosines.abs().flatten(1).amax(1, keepdim=True)
            rows.append(found.clamp(max=1).acos().rad2deg().sum(1))
        return torch.stack(rows)

    def nearest(self, server, basis: Tensor) -> Tensor:
        """Clusters (m,) of newcomers with these directions (m, d, p)."""
        known = server["assign"] >= 0
        apart, of = self.distances(basis, server["basis"][known]), server["assign"][known]
        reduce = {"average": torch.mean, "complete": torch.amax, "single": torch.amin}[self.link]
        each = [reduce(apart[:, of == c], 1) for c in range(len(server["models"]))]
        return torch.stack(each, 1).argmin(1)

    def client_directions(self, down, memory, data, local):
        found = []
        for i in range(len(data)):
            x, y = data[i]
            groups = [x] if self.subspace == "client" else [x[y == label] for label in range(data.classes)]
            found.append(torch.cat([leading(group.flatten(1), self.rank) for group in groups], 1))
        return {"basis": torch.stack(found)}

    def client(self, down, memory, data, local):
        return {"model": local.sgd(down["model"], data)}

    def serve(self, server, clients, net):
        cluster = server["assign"][clients]
        new = cluster < 0
        if new.any():
            cluster[new] = self.nearest(server, self.directions(clients[new], net))
        return Pick(server["models"], cluster)


def leading(images: Tensor, rank: int) -> Tensor:
    """The first left singular vectors (d, rank) of the matrix whose columns are images (n, d); zeros beyond n."""
    found = torch.linalg.svd(images, full_matrices=False).Vh.T
    return pad(found, (0, rank - found.shape[1]))  # which cuts off what is too much
