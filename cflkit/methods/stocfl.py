"""StoCFL (Zeng et al. 2023): fingerprint every client once, merge alike clusters, train with a global pull."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from cflkit.checks import Count, Range, Weight
from cflkit.engine.rows import Dense, Part, Pick, Rows
from cflkit.engine.sgd import Prox
from cflkit.methods.base import Method, one_for_all


@dataclass(frozen=True)
class StoCFL(Method):
    """Stochastic clustered federated learning (Zeng et al. 2023, Algorithm 1; line numbers are the listing's).

    Parameters
    ----------
    tau : float
        Merge clusters whose fingerprints have a cosine above this, in [-1, 1].
    lam : float
        Pull of cluster models towards the global model (lambda). Stable while lr (L + lam) < 2.
    fingerprint : {"gradient", "displacement"}
        Psi: the full-batch gradient at the anchor (Section 3.1), or how far local training moves from it
        (released code).
    fingerprint_epochs : int
        Local epochs of the displacement.
    members : {"all", "sampled"}
        Whose fingerprints represent a cluster: all that the server has seen, or this round's only (released code;
        needs all N fingerprints on the server).
    merge : {"agglomerative", "union_find"}
        Merge the best pair, recompute, repeat (Section 3.2); or all connected pairs at once (released code). The
        literal loop of lines 12-14 depends on the order of clients, and is not offered.
    merged_model : {"larger", "mean"}
        A merged cluster keeps the model of the part with more trained members (released code; a tie takes the
        mean), or the mean over all members, which drags it back towards the initial model.
    theta_init : {"omega_0", "omega_t"}
        Model of a new cluster: the initial one (Section 3.3), or the current global one (released code).
    global_update : {"parallel", "chained"}
        Clients update the global model side by side (line 16 of the listing), or one after another in order of
        their ids, each from the result of the one before (released code); the round's result is the mean of what
        they return.
    prox_centre : {"omega_t", "theta_start"}
        Pull towards the global model as received, or towards the cluster model as received (then tau=-1 is
        FedProx).

    Notes
    -----
    A cluster's cosine needs only inner products, and cosines ignore scale: with ``members="all"`` the server keeps
    the *sum* of each cluster's fingerprints, never all N of them.
    """

    tau: Annotated[float, Range(-1, 1)] = 0.5
    lam: Weight = 0.05
    fingerprint: Literal["gradient", "displacement"] = "gradient"
    fingerprint_epochs: Count = 1
    members: Literal["all", "sampled"] = "all"
    merge: Literal["agglomerative", "union_find"] = "agglomerative"
    merged_model: Literal["larger", "mean"] = "larger"
    theta_init: Literal["omega_0", "omega_t"] = "omega_0"
    global_update: Literal["parallel", "chained"] = "parallel"
    prox_centre: Literal["omega_t", "theta_start"] = "omega_t"
    name = "stocfl"

    # ------------------------------------------------------------------ server
    def start(self, net):
        omega = net.task.init()[0]
        none = omega.new_zeros(0, len(omega))
        server = {
            "psi": omega,  # the anchor
            "omega": omega,
            "theta": none,  # one model a cluster
            "prints": none,  # sum of the fingerprints of each cluster's members
            "trained": torch.zeros(net.task.clients, dtype=torch.bool),  # who has trained so far
            "assign": torch.full((net.task.clients,), -1),
            "objective": 0.0,
        }
        if self.members == "sampled":
            server["cache"] = omega.new_zeros(net.task.clients, len(omega))
        return server

    def round(self, server, clients, net):
        server = self.cluster(server, clients, net)  # lines 5-14
        return self.train(server, clients, net)  # lines 15-21

    def cluster(self, server: dict, clients: Tensor, net) -> dict:
        """Fingerprint the sampled clients that are new, and merge clusters that are alike (lines 5-14)."""
        new = clients[server["assign"][clients] < 0]
        up = net.call(new, self.extract, known={"psi": server["psi"]})  # lines 6-8; psi comes from a shared seed
        old = len(server["theta"])
        n = old + len(new)
        assign = server["assign"].clone()
        assign[new] = torch.arange(old, n)  # every newcomer is a cluster of its own
        prints = Rows([server["prints"], *(up["psi"].parts if len(new) else ())])

        if self.members == "all":  # line 10
            group = merged(prints.gram(), self.tau, self.merge)  # lines 11-14
        else:  # only the clusters of this round's clients have a representation, and may merge
            server = server | {"cache": server["cache"].index_put((new,), prints.dense()[old:])}
            touched, position = assign[clients].unique(return_inverse=True)
            represent = Rows([server["cache"][clients]]).sum_by(position, len(touched))
            group = torch.arange(n)
            group[touched] = touched[merged(Rows([represent]).gram(), self.tau, self.merge)]
            group = numbered(group)

        k = int(group.max()) + 1
        counted = assign[assign >= 0] if self.merged_model == "mean" else assign[server["trained"]]
        weight = torch.bincount(counted, minlength=n)
        start = server["psi"] if self.theta_init == "omega_0" else server["omega"]
        parts = [torch.nonzero(group == c).flatten() for c in range(k)]
        sums = prints.sum_by(group, k)
        return {
            **server,
            "theta": torch.stack([self._merge_models(p, weight[p], server["theta"], start) for p in parts]),
            "prints": sums,
            "assign": torch.where(assign >= 0, group[assign], -1),
            "objective": objective(sums),
        }

    def _merge_models(self, parts: Tensor, weight: Tensor, theta: Tensor, start: Tensor) -> Tensor:
        """Model (P,) of a cluster made of `parts`; clusters beyond the table are new and hold `start`."""
        models = [theta[p] if p < len(theta) else start for p in parts.tolist()]
        if self.merged_model == "larger":
            weight = (weight == weight.max()).long()  # the larger part's model; the mean of parts of one size
        chosen = [(m, w) for m, w in zip(models, weight.tolist(), strict=True) if w > 0]
        if len(chosen) == 1 or all(m is start for m, _ in chosen):
            return chosen[0][0]
        return sum(m * w for m, w in chosen) / sum(w for _, w in chosen)

    def train(self, server: dict, clients: Tensor, net) -> dict:
        """Train global and cluster models on the sampled clients (lines 15-21)."""
        omega, theta, k = server["omega"], server["theta"], server["assign"][clients]
        down, own = {"omega": omega}, {"theta": Pick(theta, k)}
        mean = {"omega": net.task.sizes[clients]}  # line 19
        if self.global_update == "parallel":
            up = net.call(clients, self.client, down, own, mean)
            omega = up["omega"][0]
        else:
            up = net.call(clients, self.client_theta, down, own)
            omega = net.chain(clients, self.client_omega, carry="omega", start=omega, mean=mean)["omega"][0]
        trained = server["trained"].clone()
        trained[clients] = True
        return {
            **server,
            "omega": omega,
            "theta": up["theta"].mean_by(k, len(theta), keep=theta, weights=up.sizes),  # line 21
            "trained": trained,
        }

    # ------------------------------------------------------------------ client
    def extract(self, down, memory, data, local):
        """Fingerprint Psi(D_i) of length 1 (line 7); zero where it has no direction."""
        psi = down["psi"]
        if self.fingerprint == "gradient":
            direction = local.gradient(psi, data)
        else:
            once = replace(local.optimiser, epochs=self.fingerprint_epochs, steps=None)
            moved = psi - local.sgd(psi, data, optimiser=once).dense()
            moved[:, local.model.trainable :] = 0  # what is only carried has no direction
            direction = Dense(moved)
        return {"psi": direction.unit()}

    def client(self, down, memory, data, local):
        """Train both models on the same batches (lines 23-24)."""
        return self.client_theta(down, memory, data, local) | self.client_omega(down, memory, data, local)

    def client_theta(self, down, memory, data, local):
        """Line 23: theta <- theta - eta (grad f_i(theta) + lambda (theta - omega_t))."""
        centre = down["omega"] if self.prox_centre == "omega_t" else down["theta"]
        return {"theta": local.sgd(down["theta"], data, [Prox(self.lam, centre)])}

    def client_omega(self, down, memory, data, local):
        """Line 24: omega <- omega - eta grad f_i(omega)."""
        return {"omega": local.sgd(down["omega"], data)}

    # ------------------------------------------------------------------ looking
    def serve(self, server, clients, net):
        if len(server["theta"]) == 0:
            return one_for_all(server["omega"], clients)
        k = server["assign"][clients]
        unseen = k < 0
        if unseen.any():  # Section 4.4: whoever was never sampled gets the model of the closest cluster
            down, known = {"prints": server["prints"]}, {"psi": server["psi"]}
            k[unseen] = net.call(clients[unseen], self.choose, down, known=known)["closest"].dense().cpu()
        return Pick(server["theta"], k)

    def choose(self, down, memory, data, local):
        """Most similar cluster of clients that the server has not met (m,)."""
        psi = self.extract(down, memory, data, local)["psi"]
        return {"closest": alike(psi, down["prints"]).argmax(1)}

    def shared(self, server):
        return server["omega"]

    def log(self, server):
        return {"objective": server["objective"]}


# ---------------------------------------------------------------------- merging
def alike(psi: Part, prints: Tensor) -> Tensor:
    """Cosine (m, K) of fingerprints (m, P), of length 1 or 0, with summed ones (K, P)."""
    return Rows([psi]).products(torch.nn.functional.normalize(prints, dim=1))


def cosines(gram: Tensor) -> Tensor:
    """Cosine matrix of vectors with Gram matrix `gram` (n, n), clamped to [-1, 1]; 0 against a zero vector."""
    length = torch.from_numpy(np.sqrt(gram.diagonal().clamp(min=0).numpy()))  # rounded alike on every processor
    scale = length[:, None] * length[None]
    return torch.where(scale > 0, gram / scale, 0.0).clamp(-1, 1)


def objective(sums: Tensor) -> float:
    """Eq. 2: the cosines between clusters' fingerprints, given their sums (K, P), added up over pairs."""
    return float(cosines(Rows([sums]).gram()).triu(1).sum())


def merged(gram: Tensor, tau: float, rule: str = "agglomerative") -> Tensor:
    """Merge vectors whose sums are alike.

    Parameters
    ----------
    gram : Tensor (n, n)
        Inner products of the clusters' summed fingerprints. A cluster that is merged is represented by the sum of
        its parts, whose inner products are sums of entries of this matrix.
    tau : float
        Merge above this cosine.
    rule : {"agglomerative", "union_find"}
        Merge the best pair (ties: the lowest pair), recompute, repeat; or everything connected, at once.

    Returns
    -------
    Tensor (n,) of int64
        Group of each vector, numbered 0.. by its lowest member.
    """
    if rule == "union_find":
        label = connected_components((cosines(gram) > tau).numpy(), directed=False)[1]
    else:
        label = _agglomerate(gram.double().numpy().copy(), tau)
    return numbered(torch.from_numpy(label))


def numbered(label: Tensor) -> Tensor:
    """Rename groups to 0, 1, ... in the order of their lowest members (n,)."""
    _, first, inverse = np.unique(label.numpy(), return_index=True, return_inverse=True)
    return torch.from_numpy(first.argsort().argsort()[inverse])


def _agglomerate(gram: np.ndarray, tau: float) -> np.ndarray:
    """Best pair first, with each row's best partner remembered, so that a merge costs about n and not n^2."""
    n = len(gram)
    label = np.arange(n)
    cosine = cosines(torch.from_numpy(gram)).numpy().copy()
    cosine[np.tril_indices(n)] = -np.inf  # a pair (a, b) has a < b
    best = cosine.argmax(1) if n else np.zeros(0, int)
    value = cosine[np.arange(n), best]
    while n > 1:
        a = int(value.argmax())
        b = int(best[a])
        if not value[a] > tau:
            break
        label[label == b] = a
        gram[a] += gram[b]
        gram[:, a] += gram[:, b]
        cosine[b], cosine[:, b], value[b] = -np.inf, -np.inf, -np.inf
        alive = np.unique(label)
        length = np.sqrt(np.clip(gram.diagonal()[alive], 0, None)) * np.sqrt(max(gram[a, a], 0))
        fresh = np.divide(gram[a, alive], length, out=np.zeros(len(alive)), where=length > 0).clip(-1, 1)
        below, above = alive < a, alive > a
        cosine[alive[below], a] = fresh[below]
        cosine[a, alive[above]] = fresh[above]
        stale = alive[(best[alive] == a) | (best[alive] == b) | (alive == a)]
        best[stale] = cosine[stale].argmax(1)
        value[stale] = cosine[stale, best[stale]]
        gained = alive[below][(fresh[below] > value[alive[below]])
                              | ((fresh[below] == value[alive[below]]) & (a < best[alive[below]]))]  # fmt: skip
        best[gained], value[gained] = a, cosine[gained, a]
    return label
