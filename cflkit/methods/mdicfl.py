"""MD-ICFL (Zhang et al. 2024): clients are assigned by the distance between models on server-made images."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cflkit import rng
from cflkit.checks import Count, Natural, Positive, Weight, declared, require
from cflkit.data.federation import Federation
from cflkit.engine.gemm import Linear
from cflkit.engine.rows import Pick
from cflkit.methods.base import Clustered
from cflkit.models.flat import Model


@dataclass(frozen=True)
class MDICFL(Clustered):
    """Model-distance based iterative clustered federated learning (Zhang et al. 2024, Algorithms 1 and 2).

    In each round the server makes images of every class that its cluster models recognise, sampled clients train
    the model of their cluster, and each goes to the cluster whose outputs on its images are closest to its own.

    Parameters
    ----------
    k : int
        Number of clusters (K).
    sampler : {"back_search", "generator", "real"}
        How pseudo-samples are made: gradient descent on pixels (Eq. 6, MD-ICFL-1), or a conditional generator
        (Eq. 7, MD-ICFL-2). "real" is no sampler but an oracle, which tells the distance's faults from the
        samplers': training images of the true clusters, handed over by :meth:`of`.
    privacy : {"weak", "strong"}
        Who weighs classes: the server, which is sent every client's label ratios once (Algorithm 1), or the client,
        which is sent its class-wise distances in a second exchange (Algorithm 2), and its present cluster, which
        ties keep: one integer more than the listing sends. Both assign alike.
    init : {"common", "distinct"}
        K equal initial models, which is our choice, or different ones. Section 3.4 draws models and clusters at
        random, and does not say whether the models are alike. From distinct ones, with back-searching, clients of
        the book's small network hardly ever leave their first cluster; with the generator they do, and so do those
        of a LeNet on MNIST, after some rounds.
    warmup : int
        Rounds of FedAvg with equal weights, from the first initial model, before clustering starts: then all K
        models are equal, whatever `init` says.
    samples : int
        Pseudo-samples of each class and cluster (M).
    prior_mean, prior_weight : float
        mu and lambda of Eqs. 6 and 7, in the range of the normalised pixels.
    search_steps : int
        Adam steps of the back-search.
    search_lr : float
        Their size.
    generator_steps : int
        Adam steps of the generator, on batches of 100.
    generator_lr : float
        Their size.
    truth : tuple of int
        True cluster of every client (N,); for "real" only.
    real : Tensor
        ``(K*, C, M, *shape)`` normalised training images of every true cluster and class; for "real" only.
    """

    k: Count = 4
    sampler: Literal["back_search", "generator", "real"] = "back_search"
    privacy: Literal["weak", "strong"] = "weak"
    init: Literal["common", "distinct"] = "common"
    warmup: Natural = 0
    samples: Count = 30
    prior_mean: float = 0.5
    prior_weight: Weight = 0.1
    search_steps: Count = 100
    search_lr: Positive = 0.1
    generator_steps: Count = 1000
    generator_lr: Positive = 0.01
    truth: tuple[Natural, ...] = field(default=(), repr=False)
    real: Tensor | None = field(default=None, repr=False, compare=False)
    name = "mdicfl"
    centres = "theta"

    @classmethod
    def of(cls, federation: Federation, *, samples: int = 30, **parameters) -> "MDICFL":
        """Make the oracle of a federation whose clusters are known: ``sampler="real"``.

        The images are drawn once, by the federation's seed, from what the clients of each true cluster hold; with
        replacement where these hold fewer than `samples` of a class.

        Raises
        ------
        ValueError
            If the true clusters are unknown, or one of them holds no image of a class.
        """
        declared("samples", samples, Count)
        require(federation.cluster is not None, "federation", federation.name, "one whose true clusters are known")
        train, truth = federation.train, federation.cluster
        of_image = truth.repeat_interleave(train.sizes)
        drawn = []
        for t in range(int(truth.max()) + 1):
            for k in range(federation.classes):
                rows = torch.nonzero((of_image == t) & (train.y == k)).flatten()
                require(len(rows) > 0, f"images of class {k} in true cluster {t}", len(rows), "1 or more")
                source = rng.generator(federation.config.get("seed", 0), "real", t, k)
                drawn.append(source.choice(rows.numpy(), samples, replace=len(rows) < samples))
        images = train.pool[train.index[torch.from_numpy(np.stack(drawn))]].double()
        mean, std = (torch.tensor(v).double().view(-1, 1, 1) for v in (federation.mean, federation.std))
        real = ((images / federation.scale - mean) / std).unflatten(0, (-1, federation.classes))
        return cls(sampler="real", samples=samples, truth=tuple(truth.tolist()), real=real, **parameters)

    def config(self):
        # what the oracle knows is the federation's, which a record holds already
        return {name: value for name, value in super().config().items() if name not in ("truth", "real")}

    def __post_init__(self):
        super().__post_init__()
        ok = self.sampler != "real" or self.real is not None
        require(ok, "sampler", self.sampler, "handed its images, as by MDICFL.of(federation)")

    def check(self, task):
        super().check(task)
        if self.sampler == "real":
            n = len(self.truth)
            require(n == task.clients, "len(truth)", n, f"the number of clients, {task.clients}")
            wanted = f"(clusters, {task.classes}, images, {', '.join(map(str, task.shape))})"
            shape, kinds = tuple(self.real.shape), max(self.truth) + 1
            right = len(shape) == 6 and shape[1] == task.classes and shape[3:] == tuple(task.shape)
            require(right, "real.shape", shape, wanted)
            require(shape[0] >= kinds, "len(real)", shape[0], f"{kinds} or more, the true clusters")

    # ------------------------------------------------------------------ server
    def start(self, net):
        n, task = net.task.clients, net.task
        theta = task.init(self.k) if self.init == "distinct" else task.init().expand(self.k, -1).clone()
        return {
            "theta": theta,
            "assign": torch.from_numpy(net.rng("assign").integers(self.k, size=n)),
            "labels": torch.full((n, task.classes), -1.0, dtype=theta.dtype),  # p_i(y), weak privacy only
        }

    def round(self, server, clients, net):
        theta, assign = server["theta"], server["assign"].clone()
        if net.round <= self.warmup:
            up = net.call(clients, self.client, down={"theta": theta[0]})
            return {**server, "theta": up["model"].mean().expand(self.k, -1).clone()}
        pseudo = self.pseudo_samples(theta, net, assign)  # line 3
        up = net.call(clients, self.client, per_client={"theta": Pick(theta, assign[clients])})  # lines 5-7
        distance = self.distances(up["model"], theta, pseudo, net.task.model)  # line 9
        labels = server["labels"]
        if self.privacy == "weak":
            new = clients[labels[clients, 0] < 0]
            labels = labels.clone()
            if len(new):
                labels[new] = net.call(new, self.client_labels)["labels"].dense().cpu()
            choice = closest(labels[clients].to(distance), distance, assign[clients])
        else:
            given = {"distance": distance, "current": assign[clients]}
            choice = net.call(clients, self.client_choose, per_client=given)["cluster"].dense()
        assign[clients] = choice.cpu()  # line 10
        theta = up["model"].mean_by(assign[clients], self.k, keep=theta)  # line 12
        return {"theta": theta, "assign": assign, "labels": labels}

    def pseudo_samples(self, theta: Tensor, net, assign: Tensor | None = None) -> Tensor:
        """Images ``(K, C, M, *shape)`` that each cluster model takes for each class, normalised as clients' are.

        What a finished simulation would make next::

            net = simulation.network(simulation.rounds + 1, history.memory)
            images = simulation.method.pseudo_samples(history.server["theta"], net)

        Parameters
        ----------
        theta : Tensor (K, P)
            The cluster models.
        net : Network
            Of the round, which keys the samplers' randomness.
        assign : Tensor (N,) of int64
            The clients' clusters; for ``sampler="real"`` only. There model j is given images of the true cluster
            that most of its members come from (of the first among equals, and of cluster 0 without members).
        """
        if self.sampler == "real":
            require(assign is not None, "assign", assign, "given with sampler='real'")
            kinds = len(self.real)
            votes = torch.bincount(assign * kinds + torch.tensor(self.truth), minlength=self.k * kinds)
            return self.real[votes.view(self.k, kinds).argmax(1)].to(theta)
        make = {"back_search": self.back_search, "generator": self.generate}[self.sampler]
        return torch.stack(
            [make(t, net.task, rng.torch_seed(net.task.seed, net.round, "pseudo", j)) for j, t in enumerate(theta)]
        )

    def back_search(self, theta: Tensor, task, seed: int) -> Tensor:
        """Eq. 6: from noise, descend CE(h(theta; x), y) + lambda/2 ||x - mu||; the norm is not squared."""
        source = torch.Generator().manual_seed(seed)
        y = torch.arange(task.classes, device=theta.device).repeat_interleave(self.samples)
        x = torch.randn(len(y), *task.shape, generator=source, dtype=torch.float64)
        x = x.to(theta.device, theta.dtype).requires_grad_()
        adam = torch.optim.Adam([x], lr=self.search_lr)
        for _ in range(self.search_steps):
            loss = self._energy(task.model, theta, x, y)
            x.grad = torch.autograd.grad(loss, x)[0]
            adam.step()
        return x.detach().view(task.classes, self.samples, *task.shape)

    def generate(self, theta: Tensor, task, seed: int) -> Tensor:
        """Eq. 7: train a conditional generator against the frozen cluster model, then draw M images a class."""
        with torch.random.fork_rng(devices=[theta.device] if theta.is_cuda else []):
            torch.manual_seed(seed)
            generator = Generator(task.classes, task.shape).to(theta.device, theta.dtype)
            adam = torch.optim.Adam(generator.parameters(), lr=self.generator_lr, fused=True)  # faster, same steps
            for _ in range(self.generator_steps):
                y = torch.randint(task.classes, (100,)).to(theta.device)
                adam.zero_grad()
                self._energy(task.model, theta, generator(y), y).backward(inputs=list(generator.parameters()))
                adam.step()
            generator.eval()
            y = torch.arange(task.classes, device=theta.device).repeat_interleave(self.samples)
            return generator(y).detach().view(task.classes, self.samples, *task.shape)

    def _energy(self, model: Model, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy plus prior, summed over samples; 1e-12 keeps the norm smooth where x is the mean."""
        off = (x - self.prior_mean).flatten(1).square().sum(1)
        prior = self.prior_weight / 2 * (off + 1e-12).sqrt().sum()
        return F.cross_entropy(model.forward(theta, x), y, reduction="sum") + prior

    @torch.no_grad()
    def distances(self, models, theta: Tensor, pseudo: Tensor, model: Model) -> Tensor:
        """Class-wise distances d_ij^k (m, K, C), Eq. 5: mean L1 distance of softmax outputs, in [0, 2]."""
        k, classes, m = pseudo.shape[:3]
        images = pseudo.flatten(0, 2)
        # every model sees the same batch, so that equal models give equal outputs to the last bit
        own = [probabilities(model, t, images).view(k, classes * m, -1)[j] for j, t in enumerate(theta)]
        own = torch.stack(own)
        apart = [(probabilities(model, w, images).view(k, classes * m, -1) - own).abs().sum(-1) for w in models]
        return torch.stack(apart).view(-1, k, classes, m).mean(-1)

    # ------------------------------------------------------------------ client
    def client(self, down, memory, data, local):
        """Local-update (Algorithm 3)."""
        return {"model": local.sgd(down["theta"], data)}

    def client_labels(self, down, memory, data, local):
        counts = data.label_counts().to(local.model.device, local.model.dtype)
        return {"labels": counts / counts.sum(1, keepdim=True)}

    def client_choose(self, down, memory, data, local):
        """Algorithm 2, lines 10-12: the label ratios never leave the client."""
        labels = self.client_labels(down, memory, data, local)["labels"]
        return {"cluster": closest(labels, down["distance"], down["current"])}


class Generator(nn.Module):
    """Two dense layers with BatchNorm and ReLU between: noise of length 16 and a class in, an image out.

    The paper states no more than this. The width between the layers and the tanh, which keeps pixels in the range
    of images normalised to [-1, 1], are our assumptions.
    """

    def __init__(self, classes: int, shape: tuple[int, int, int], noise: int = 16, hidden: int = 256):
        super().__init__()
        self.classes, self.shape, self.noise = classes, shape, noise
        self.first = Linear(noise + classes, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.second = Linear(hidden, shape[0] * shape[1] * shape[2])

    def forward(self, y: Tensor) -> Tensor:
        """Images (n, C, H, W) in [-1, 1] of the classes `y` (n,)."""
        epsilon = torch.randn(len(y), self.noise, dtype=torch.float64).to(self.first.weight)
        given = torch.cat([epsilon, F.one_hot(y, self.classes).to(epsilon)], dim=1)
        return self.second(self.norm(self.first(given)).relu()).tanh().view(-1, *self.shape)


def probabilities(model: Model, vector: Tensor, x: Tensor) -> Tensor:
    """Softmax outputs h(theta; x) (n, C)."""
    return model.forward(vector, x).softmax(-1)


def closest(labels: Tensor, distance: Tensor, current: Tensor) -> Tensor:
    """Cluster (m,) with the least d_ij = sum_k p_i(k) d_ij^k (Eq. 4); a client leaves `current` only for less."""
    total = (distance * labels[:, None]).sum(-1)
    best = total.argmin(1)
    at = torch.arange(len(total))
    current = current.to(best.device)
    return torch.where(total[at, best] < total[at, current], best, current)
