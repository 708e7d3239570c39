"""LCFed (Zhang et al. 2025): personal models, two pulls, and clustering by a low-rank cosine."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from cflkit.checks import Count, Weight, require
from cflkit.engine.rows import Pick, Rows
from cflkit.engine.sgd import Prox
from cflkit.methods.base import Clustered, finite

TIE = 1e-12  # cosines closer than this are equal: above float64's rounding, below any difference of two models


@dataclass(frozen=True)
class LCFed(Clustered):
    """Efficient clustered federated learning (Zhang et al. 2025, Algorithm 1; line numbers are the listing's).

    A device's model omega = (phi, h) stays with it and is pulled towards its cluster's centre Omega and, in its
    embedding phi, towards the global embedding Phi. Printed like this, mu = lam = 0 is *local-only* training:
    aggregates enter through the pulls alone.

    Parameters
    ----------
    k : int
        Number of clusters (K).
    mu, lam : float
        Pulls towards the centre and towards the global embedding, which is sent only for lam > 0. Stable while
        lr (L + mu + lam) < 2.
    rank : int, optional
        Dimensions of the low-rank models (D); None compares full models, and needs no `decomposition`.
    decomposition : {"svd", "pca"}
        M from the sampled models as they are (the cosine of Eq. 4 is uncentred too), or centred.
    start_from : {"own", "centre"}
        Where local training begins: the device's own model (line 7), or its cluster's centre.
    average : {"all", "sampled"}
        Centres and Phi are means over the last known models of all devices that are there, or over this round's.
    split : str, optional
        The layer where the decision h begins: "last", or a submodule's name. None: phi is everything.
    """

    k: Count = 10
    mu: Weight = 0.1
    lam: Weight = 0.1
    rank: Count | None = 50
    decomposition: Literal["svd", "pca"] = "svd"
    start_from: Literal["own", "centre"] = "own"
    average: Literal["all", "sampled"] = "all"
    split: str | None = "last"
    name = "lcfed"
    centres = "centres"

    def check(self, task):
        super().check(task)
        limit = min(task.clients - (self.decomposition == "pca"), task.model.trainable)
        require(self.rank is None or self.rank <= limit, "rank", self.rank, f"at most {limit} with these clients")
        layers = dict.fromkeys(name.rpartition(".")[0] for name in task.model.parameters)
        inside = any(layer == self.split or layer.startswith(f"{self.split}.") for layer in layers)
        require(self.split in (None, "last") or inside, "split", self.split, f"None, last or in {[*layers]}")

    # ------------------------------------------------------------------ server
    def start(self, net):
        model, n = net.task.init()[0], net.task.clients
        server = {
            "initial": model,
            "models": model.expand(n, -1).clone(),  # the server's copies of omega_i
            "centres": model.expand(self.k, -1).clone(),
            "phi": model[self.embedding(net.task.model)],
            "assign": torch.from_numpy(net.rng("R0").integers(self.k, size=n)),
            "server_flops": 0,
            "client_flops": 0,
        }
        if self.rank is not None:  # line 2, Section III-B: M from every device's first steps, sent to all once
            everybody = torch.arange(n)
            sample = net.call(everybody, self.client_sample, down={"model": model})["model"].dense()
            seen = slice(0, net.task.model.trainable)  # what is only carried, as running statistics, says nothing
            M = decompose(finite(sample, net)[:, seen], self.rank, centred=self.decomposition == "pca")
            net.call(everybody, lambda *_: {}, down={"M": M})
            z = (model[seen] @ M).double()  # in float64, where means of equal models stay equal
            server |= {"projection": M, "z": z.expand(n, -1).clone(), "z_centres": z.expand(self.k, -1).clone()}
        return server

    def round(self, server, clients, net):
        assign, models, M = server["assign"].clone(), server["models"].clone(), server.get("projection")
        up = net.call(
            clients,
            self.client,
            down={"phi": server["phi"]} if self.lam else {},
            per_client={"centre": Pick(server["centres"], assign[clients])},  # line 6
            known={"initial": server["initial"]} | ({} if M is None else {"M": M}),
        )
        models[clients] = up["model"].dense()
        chosen = net.everybody if self.average == "all" else clients
        m, dim = len(clients), net.task.model.trainable
        if M is None:
            points, centres = models[clients, :dim], server["centres"][:, :dim]
            assign[clients] = closest(points, centres, assign[clients])  # line 10
            low, flops = {}, similarity_flops(m, self.k, dim)
        else:  # M' Omega_k is the mean of its members' z_i, so that the server never multiplies by M
            z = server["z"].clone()
            z[clients] = up["z"].dense().double()
            assign[clients] = closest(z[clients], server["z_centres"], assign[clients])
            means = Rows([z[chosen]]).mean_by(assign[chosen], self.k, keep=server["z_centres"])
            low, flops = {"z": z, "z_centres": means}, similarity_flops(m, self.k, self.rank) + z[chosen].numel()
        rows = Rows([models[chosen]])  # line 11
        return {
            **server,
            **low,
            "models": models,
            "centres": rows.mean_by(assign[chosen], self.k, keep=server["centres"]),
            "phi": rows.mean()[self.embedding(net.task.model)],
            "assign": assign,
            "server_flops": flops,
            "client_flops": 0 if M is None else 2 * m * dim * self.rank,
        }

    # ------------------------------------------------------------------ client
    def client_sample(self, down, memory, data, local):
        return {"model": local.sgd(down["model"], data, optimiser=replace(local.optimiser, steps=5))}

    def client(self, down, memory, data, local):
        """LocalUpdate: omega <- omega - eta (grad l + mu (omega - Omega) + lambda (phi - Phi))."""
        phi, centre = self.embedding(local.model), down["centre"]
        begin = memory.get("personal", down["initial"]) if self.start_from == "own" else centre
        pulls = [Prox(self.mu, centre)]
        if self.lam:
            pulls.append(Prox(self.lam, F.pad(down["phi"], (0, local.model.size - phi.stop)), phi))
        omega = local.sgd(begin, data, pulls).dense()
        if self.start_from == "own":
            memory["personal"] = omega
        return {"model": omega, "z": omega[:, : len(down["M"])] @ down["M"]} if "M" in down else {"model": omega}

    def embedding(self, model) -> slice:
        """Where phi lies: everything before the first decision layer."""
        if self.split is None:
            return slice(0, model.trainable)
        return slice(0, (model.head if self.split == "last" else model.span(f"{self.split}.")).start)

    # ------------------------------------------------------------------ looking
    def personal(self, server, clients, net):
        return Rows([server["models"][clients]])

    def log(self, server):
        return {name: server[name] for name in ("server_flops", "client_flops")}


def closest(points: Tensor, centres: Tensor, current: Tensor) -> Tensor:
    """Cluster (m,) whose centre (K, D) has the largest cosine with each of the points (m, D), Eqs. 3 and 4.

    A device leaves its `current` cluster only for a cosine that is larger by more than ``TIE``, so that equal
    centres, as all are in round 1, move nobody; of several such, the first. In float64 whatever the run's
    precision: models that share a beginning have cosines too close to one for float32.
    """
    cosine = (F.normalize(points.double()) @ F.normalize(centres.double()).T).cpu()
    best = cosine >= cosine.amax(1, keepdim=True) - TIE
    stays = best.gather(1, current[:, None])[:, 0]
    return torch.where(stays, current, best.int().argmax(1))


def decompose(models: Tensor, rank: int, centred: bool = False) -> Tensor:
    """M (P, D): the `rank` leading right singular vectors of stacked models (m, P)."""
    points = models - models.mean(0) if centred else models
    return torch.linalg.svd(points, full_matrices=False).Vh[:rank].T.contiguous()


def similarity_flops(m: int, k: int, dim: int) -> int:
    """Floating-point operations of m x K cosines in `dim` dimensions: products, and lengths of both sides."""
    return 2 * m * k * dim + 2 * (m + k) * dim
