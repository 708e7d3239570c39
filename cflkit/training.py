"""Local SGD for many clients, and evaluation.

All paths compute the same. The *lean* path takes one client after the other through any ``nn.Module``; it is
the reference. The *stacked* path advances a whole chunk of clients in lock-step with ``vmap``; it is what makes a
GPU fast. The *shared* path (:mod:`cflkit.shared_linear`) never builds the first layer of a multilayer perceptron;
it is what makes a CPU fast. For convolutional networks :mod:`cflkit.convolution` does the same, on the lean path or
beside it. A method calls :class:`Local` and never learns which path runs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from cflkit import convolution, rng, shared_linear
from cflkit.checks import positive, require
from cflkit.federation import Federation, Samples
from cflkit.flat import Model

PIECE = 2048  # images in one forward pass of an evaluation or a full gradient; bounds the activations' memory


@dataclass(frozen=True)
class SGD:
    """How every client trains: plain stochastic gradient descent, as ``torch.optim.SGD`` does it.

    Parameters
    ----------
    lr : float
        Learning rate, the papers' eta.
    epochs : int
        Passes over the client's data in one round (E). Ignored when `steps` is given.
    batch_size : int, optional
        Images in a minibatch (B); None is the full batch.
    steps : int, optional
        Minibatch steps in one round instead of epochs; passes are re-shuffled as they run out.
    momentum, weight_decay : float
        As in ``torch.optim.SGD``; the momentum buffer starts anew every round.
    nesterov : bool
        Nesterov momentum.

    Raises
    ------
    ValueError
        For a learning rate, epochs, steps or batch size that is not positive.
    """

    lr: float
    epochs: int = 1
    batch_size: int | None = None
    steps: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self):
        positive("lr", self.lr)
        for name in ("batch_size", "steps"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        require(self.epochs >= 0, "epochs", self.epochs, "0 or more")
        require(0 <= self.momentum < 1, "momentum", self.momentum, "in [0, 1)")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")
        require(not self.nesterov or self.momentum > 0, "nesterov", self.nesterov, "False without momentum")

    def count(self, n: int) -> int:
        """Steps in one round of a client that holds `n` images."""
        per_epoch = 1 if self.batch_size is None else math.ceil(n / self.batch_size)
        return self.epochs * per_epoch if self.steps is None else self.steps

    def batches(self, n: int, generator: np.random.Generator) -> list[np.ndarray]:
        """Positions 0..n-1 of one client's images, batch by batch, in the order it will see them."""
        total = self.count(n)
        if self.batch_size is None:
            return [np.arange(n)] * total  # a full batch needs no shuffling, and keeps the order of sums
        found: list[np.ndarray] = []
        while len(found) < total:
            order = generator.permutation(n)
            found += [order[i : i + self.batch_size] for i in range(0, n, self.batch_size)]
        return found[:total]


@dataclass(frozen=True)
class Pick:
    """Client i has row ``index[i]`` of a short table: many clients, few distinct models, none of them copied.

    Parameters
    ----------
    table : Tensor (K, ...)
        The distinct rows.
    index : Tensor (m,) of int64
        Which row each client has.
    """

    table: Tensor
    index: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i) -> Tensor:
        return self.table[self.index[i]]

    def take(self, positions) -> "Pick":
        """The same for some of the clients."""
        return Pick(self.table, self.index[positions])

    def dense(self) -> Tensor:
        """One row a client (m, ...), copied."""
        return self.table[self.index]


Rowwise = Tensor | Pick  # (P,) shared by all clients, (m, P), or a Pick


def row(value: Rowwise, i: int) -> Tensor:
    """Client `i`'s vector (P,) of something shared, stacked or picked."""
    return value if isinstance(value, Tensor) and value.dim() == 1 else value[i]


def stack(value: Rowwise) -> Tensor:
    """Turn something shared (P,) or row by row into what broadcasts against (m, P)."""
    return value.dense() if isinstance(value, Pick) else value


def pick(value: Rowwise, m: int) -> Pick:
    """The rows of `m` clients as a Pick, whichever way they are given; nothing is copied."""
    if isinstance(value, Pick):
        return value
    if isinstance(value, shared_linear.Factored):
        value = value.dense()
    shared = value.dim() == 1
    return Pick(value[None], torch.zeros(m, dtype=torch.int64)) if shared else Pick(value, torch.arange(m))


@dataclass(frozen=True)
class Prox:
    """The term ``weight/2 * ||w[span] - anchor[span]||^2`` in a client's loss.

    Parameters
    ----------
    weight : float
        Strength (mu or lambda of the papers).
    anchor : Tensor (P,), Tensor (m, P) or Pick
        Where the pull goes to; full vectors, whatever the span.
    span : slice, optional
        The part of the vector that is pulled; all trainable parameters if None.
    """

    weight: float
    anchor: Rowwise
    span: slice | None = None


class Pixels:
    """From raw pixels to what a model sees: (pixel / scale - mean) / std, in the run's precision and place.

    Parameters
    ----------
    federation : Federation
        Whose scale, mean and standard deviation are used.
    model : Model
        Whose precision and device are used.
    """

    def __init__(self, federation: Federation, model: Model):
        def shaped(value):
            return torch.as_tensor(value, dtype=model.dtype, device=model.device).reshape(-1, 1, 1)

        self.dtype, self.device, self.scale = model.dtype, model.device, federation.scale
        self.mean, self.std = shaped(federation.mean), shaped(federation.std)

    def __call__(self, raw: Tensor) -> Tensor:
        """Normalise pool rows (n, C, H, W)."""
        return raw.to(self.device).to(self.dtype).div_(self.scale).sub_(self.mean).div_(self.std)


class Data:
    """The training images of a chunk of clients, and nothing else.

    Parameters
    ----------
    samples : Samples
        The clients' training sets.
    clients : sequence of int
        Which of them this chunk holds (m).
    pixels : Pixels
        Turns raw pool rows into what a model sees.
    classes : int
        Number of labels.
    """

    def __init__(self, samples: Samples, clients: Sequence[int], pixels: Pixels, classes: int):
        self.clients, self.classes = list(clients), classes
        self._samples, self._pixels = samples, pixels
        self.sizes = samples.sizes[self.clients]
        self.positions: list[Tensor] | None = None  # of each client's images, if only some are meant
        self.typical = len(samples.index) / len(samples)  # images of a client, on average over the federation
        self.shape = samples.pool.shape[1:]

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        """Images (n_i, C, H, W) and labels (n_i,) of the chunk's client `i`."""
        where = self._where(i)
        x = self._pixels(self._samples.pool[self._samples.index[where]])
        return x, self._samples.y[where].to(x.device)

    def tags(self, i: int) -> Tensor | None:
        """The true domain (n_i,) of each of client `i`'s images, where known; for oracles only."""
        return None if self._samples.tag is None else self._samples.tag[self._where(i)]

    def label_counts(self) -> Tensor:
        """How many images of each class every client holds (m, classes)."""
        labels = (self._samples.y[self._where(i)] for i in range(len(self)))
        return torch.stack([torch.bincount(y, minlength=self.classes) for y in labels])

    def take(self, i: int) -> "Data":
        """Only the chunk's client `i`."""
        part = Data(self._samples, self.clients[i : i + 1], self._pixels, self.classes)
        part.positions = None if self.positions is None else self.positions[i : i + 1]
        part.sizes = self.sizes[i : i + 1]
        return part

    def split(self, share: float, seed: int) -> tuple["Data", "Data"]:
        """Hold out a `share` of every client's images, at least one and never all; returns (held out, rest).

        The split depends on `seed` and the client alone, so it is the same in every round.
        """
        parts = [Data(self._samples, self.clients, self._pixels, self.classes) for _ in range(2)]
        orders = [
            torch.from_numpy(rng.generator(seed, client, "holdout").permutation(int(n)))
            for client, n in zip(self.clients, self.sizes, strict=True)
        ]
        for client, n in zip(self.clients, self.sizes.tolist(), strict=True):
            require(n >= 2, f"size of client {client}", n, "at least 2 to hold some out")
        cuts = [max(1, min(len(o) - 1, round(share * len(o)))) for o in orders]
        parts[0].positions = [o[:cut] for o, cut in zip(orders, cuts, strict=True)]
        parts[1].positions = [o[cut:] for o, cut in zip(orders, cuts, strict=True)]
        for part in parts:
            part.sizes = torch.tensor([len(p) for p in part.positions])
        return parts[0], parts[1]

    def _where(self, i: int) -> Tensor | slice:
        """Which rows of the samples are client `i`'s."""
        begin, end = self._samples.offset[self.clients[i]], self._samples.offset[self.clients[i] + 1]
        return slice(int(begin), int(end)) if self.positions is None else int(begin) + self.positions[i]


def cross_entropy(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy of a batch: the loss of all five papers."""
    return F.cross_entropy(module(x), y)


class Descent:
    """The update of ``torch.optim.SGD``, with proximal terms and a shift.

    Parameters
    ----------
    parameters : list of Tensor
        What is trained, in place.
    pulls : list of (float, list of int, list of Tensor)
        Strength of a proximal term, which parameters it pulls, and where to.
    shifts : list of Tensor, optional
        Added to the gradient of each parameter.
    optimiser : SGD
        How to train.
    """

    def __init__(self, parameters, pulls, shifts, optimiser: SGD):
        self.parameters, self.pulls, self.shifts, self.optimiser = parameters, pulls, shifts, optimiser
        self._momentum: list[Tensor] | None = None

    @torch.no_grad()
    def step(self, gradient: list[Tensor]) -> None:
        """Move the parameters; `gradient` is overwritten."""
        optimiser, parameters = self.optimiser, self.parameters
        gradient = [g.contiguous() for g in gradient]  # mixed layouts would be slow to add
        if optimiser.weight_decay:
            torch._foreach_add_(gradient, parameters, alpha=optimiser.weight_decay)
        for weight, inside, anchor in self.pulls:
            pulled = torch._foreach_sub([parameters[k] for k in inside], anchor)
            torch._foreach_add_([gradient[k] for k in inside], pulled, alpha=weight)
        if self.shifts is not None:
            torch._foreach_add_(gradient, self.shifts)
        if optimiser.momentum:
            if self._momentum is None:
                self._momentum = [g.clone() for g in gradient]
            else:
                torch._foreach_mul_(self._momentum, optimiser.momentum)
                torch._foreach_add_(self._momentum, gradient)
            if optimiser.nesterov:
                torch._foreach_add_(gradient, self._momentum, alpha=optimiser.momentum)
            else:
                gradient = self._momentum
        torch._foreach_add_(parameters, gradient, alpha=-optimiser.lr)


class Local:
    """What a client can do with its data: train, score models on it, take a gradient.

    A method's client part receives one of these for a chunk of m clients; every result has a leading axis m.

    Parameters
    ----------
    model : Model
        The architecture.
    optimiser : SGD
        The local training of the run.
    seed, round : int
        Keys of the batch order, which depends on (seed, round, client) alone: two passes in a round see the same
        batches, which the papers' identities need.
    trainer : {"auto", "lean", "stacked", "shared"}
        Which path runs, where it can; otherwise the lean one. "auto" is the shared path where it pays: clients
        hold, on average, at most half as many images as an image has numbers, and training takes several steps;
        else, on a CPU, the lean one quickened by :mod:`cflkit.convolution`.
    debug : bool
        Name client, round and batch in any exception, and refuse a loss that is not finite.
    """

    def __init__(
        self, model: Model, optimiser: SGD, seed: int, round: int, trainer: str = "lean", debug: bool = False
    ):
        self.model, self.optimiser, self.seed, self.round = model, optimiser, seed, round
        self.trainer, self.debug = trainer, debug
        self._quick = trainer == "auto" and not debug

    # ------------------------------------------------------------------ training
    def sgd(
        self,
        start: Rowwise,
        data: Data,
        prox: Sequence[Prox] = (),
        shift: Rowwise | None = None,
        objective: Callable[[nn.Module, Tensor, Tensor], Tensor] = cross_entropy,
        optimiser: SGD | None = None,
        model: Model | None = None,
    ) -> Tensor:
        """Train from `start` on each client's data.

        Parameters
        ----------
        start : Tensor (P,), Tensor (m, P) or Pick
            Where each client begins.
        data : Data
            The m clients' images.
        prox : sequence of Prox
            Proximal terms added to the loss.
        shift : Tensor (P,), Tensor (m, P) or Pick, optional
            A constant added to every gradient (SCAFFOLD's and FedDANE's corrections).
        objective : callable
            ``(module, x, y) -> scalar loss`` of a batch.
        optimiser : SGD, optional
            In place of the run's.
        model : Model, optional
            In place of the run's.

        Returns
        -------
        Tensor (m, P)
            The trained vectors; from the shared path as factors, built when they are looked at.
        """
        optimiser, model = optimiser or self.optimiser, model or self.model
        prox = [p for p in prox if p.weight != 0 and (p.span is None or p.span.start < p.span.stop)]
        for p in prox:
            _inside(model, p.span)  # refuses a span that cuts a parameter, whichever path runs
        batches = [
            optimiser.batches(int(n), rng.generator(self.seed, self.round, client, "batches"))
            for n, client in zip(data.sizes, data.clients, strict=True)
        ]
        many_steps = max(map(len, batches), default=0) > 1 or self.trainer == "shared"
        if objective is cross_entropy and shift is None and many_steps and self._shared(model, data, prox):
            terms = [replace(p, anchor=pick(p.anchor, len(data))) for p in prox]
            return shared_linear.sgd(pick(start, len(data)), data, batches, terms, optimiser, model)
        plain = not (model.has_dropout or model.has_batchnorm or model.buffers)
        stackable = objective is cross_entropy and plain
        if self.trainer == "stacked" and stackable and not self.debug:
            return _stacked(start, data, batches, prox, shift, optimiser, model)
        out = torch.empty(len(data), model.size, dtype=model.dtype, device=model.device)
        left: Sequence[int] = range(len(data))
        if objective is cross_entropy and shift is None and self._quick:
            begin, terms = pick(start, len(data)), [replace(p, anchor=pick(p.anchor, len(data))) for p in prox]
            if convolution.supports(model, begin, terms):
                left = convolution.sgd(out, begin, data, batches, terms, optimiser, model, Descent)
        for i in left:
            out[i] = row(start, i)
            terms = [replace(p, anchor=row(p.anchor, i)) for p in prox]
            self._lean(out[i], data, i, batches[i], terms, None if shift is None else row(shift, i),
                       objective, optimiser, model)  # fmt: skip
        return out

    def _shared(self, model: Model, data: Data, prox: Sequence[Prox] = ()) -> bool:
        """Whether the shared path takes this work; alike for all chunks of a run."""
        pays = self.trainer == "auto" and 2 * data.typical <= math.prod(data.shape)
        wanted = (pays or self.trainer == "shared") and not self.debug
        return wanted and shared_linear.supports(model, prox)

    def _lean(self, vector, data, i, batches, prox, shift, objective, optimiser, model) -> None:
        """Train one client's `vector` (P,) in place."""
        module = model.bound(vector, quick=self._quick)
        module.train()
        parameters = list(module.parameters())
        names, views = model.parameters, model.views
        pulls = []
        for term in prox:
            inside = _inside(model, term.span)
            anchor = views(term.anchor)
            pulls.append((term.weight, inside, [anchor[names[k]] for k in inside]))
        shifts = [views(shift)[name] for name in names] if shift is not None else None
        rule = Descent(parameters, pulls, shifts, optimiser)
        x, y = data[i]
        with _dropout_seed(self, model, data.clients[i]):
            for b, batch in enumerate(batches):
                try:
                    whole = len(batch) == len(y) and optimiser.batch_size is None
                    xb, yb = (x, y) if whole else (x[batch], y[batch])
                    loss = objective(module, xb, yb)
                    if self.debug and not torch.isfinite(loss):
                        raise FloatingPointError(f"loss = {loss.item()}: must be finite")
                    gradient = list(torch.autograd.grad(loss, parameters))
                except Exception as error:
                    if self.debug:
                        error.add_note(f"in client {data.clients[i]}, round {self.round}, batch {b}")
                    raise
                rule.step(gradient)

    # ------------------------------------------------------------------ looking, without training
    def steps(self, data: Data) -> Tensor:
        """Steps (m,) that each client takes in one :meth:`sgd` of the run's optimiser."""
        return torch.tensor([self.optimiser.count(int(n)) for n in data.sizes])

    @torch.no_grad()
    def losses(self, models: Tensor, data: Data) -> Tensor:
        """Mean cross-entropy (m, K) of each of K models (K, P) on each client's training data."""
        if self._shared(self.model, data):
            return shared_linear.losses(models, data, self.model)
        out = torch.empty(len(data), len(models), dtype=self.model.dtype, device=self.model.device)
        for i in range(len(data)):
            x, y = data[i]
            for k, vector in enumerate(models):
                logits = torch.cat([self.model.forward(vector, piece) for piece in x.split(PIECE)])
                out[i, k] = F.cross_entropy(logits, y)
        return out

    def gradient(self, at: Rowwise, data: Data) -> Tensor:
        """Full-batch gradient (m, P) of each client's mean loss at `at`; zero on buffers.

        BatchNorm layers use the statistics of up to ``PIECE`` images, and leave their buffers alone.
        """
        if self._shared(self.model, data):
            return shared_linear.gradient(pick(at, len(data)), data, self.model)
        out = torch.zeros(len(data), self.model.size, dtype=self.model.dtype, device=self.model.device)
        for i in range(len(data)):
            module = self.model.bound(row(at, i).clone(), quick=self._quick)
            module.train()
            x, y = data[i]
            with _dropout_seed(self, self.model, data.clients[i]):
                for xb, yb in zip(x.split(PIECE), y.split(PIECE), strict=True):
                    loss = F.cross_entropy(module(xb), yb, reduction="sum") / len(y)
                    gradient = torch.autograd.grad(loss, list(module.parameters()))
                    out[i, : self.model.trainable] += torch.cat([g.reshape(-1) for g in gradient])
        return out


def _inside(model: Model, span: slice | None) -> list[int]:
    """Which parameters a span covers, by position; it must not cut one in two."""
    span = span or slice(0, model.trainable)
    where = [model.spans[name] for name in model.parameters]
    inside = [k for k, s in enumerate(where) if span.start <= s.start and s.stop <= span.stop]
    covered = sum(where[k].stop - where[k].start for k in inside)
    require(covered == span.stop - span.start, "span", span, "made of whole parameters")
    return inside


class _dropout_seed:
    """Give dropout its own stream for each (seed, round, client); a no-op for models without dropout."""

    def __init__(self, local: Local, model: Model, client: int):
        devices = [model.device] if model.device.type == "cuda" else []
        self.fork = torch.random.fork_rng(devices=devices) if model.has_dropout else None
        self.key = (local.seed, local.round, client, "dropout")

    def __enter__(self):
        if self.fork:
            self.fork.__enter__()
            torch.manual_seed(rng.torch_seed(*self.key))

    def __exit__(self, *raised):
        if self.fork:
            self.fork.__exit__(*raised)


def _stacked(start, data, batches, prox, shift, optimiser, model) -> Tensor:
    """Advance all clients of a chunk in lock-step; same arithmetic as the lean path.

    Ragged clients are padded: a padded image has weight 0 in its batch's mean, and a client that has no batch
    left stands still while others finish.
    """
    m, device = len(data), model.device
    pairs = [data[i] for i in range(m)]
    longest = max(len(y) for _, y in pairs)
    x = torch.zeros(m, longest, *pairs[0][0].shape[1:], dtype=model.dtype, device=device)
    y = torch.zeros(m, longest, dtype=torch.int64, device=device)
    for i, (xi, yi) in enumerate(pairs):
        x[i, : len(yi)], y[i, : len(yi)] = xi, yi
    steps = max(len(b) for b in batches)
    width = max((len(b) for bs in batches for b in bs), default=0)
    position = np.zeros((steps, m, width), dtype=np.int64)
    weight = np.zeros((steps, m, width))
    for i, bs in enumerate(batches):
        for s, batch in enumerate(bs):
            position[s, i, : len(batch)] = batch
            weight[s, i, : len(batch)] = 1 / len(batch)
    position = torch.from_numpy(position).to(device)
    weight = torch.from_numpy(weight).to(device, model.dtype)
    active = weight.sum(-1, keepdim=True).gt(0).to(model.dtype)  # (steps, m, 1)

    def loss(vector, xb, yb, wb):
        logits = functional_call(module, model.views(vector), (xb,))
        return (F.cross_entropy(logits, yb, reduction="none") * wb).sum()

    module = model.lent().train()
    gradient_of = vmap(grad(loss))
    first = stack(start)
    vectors = (first.expand(m, -1) if first.dim() == 1 else first).clone()
    clients = torch.arange(m, device=device)[:, None]
    pulls = [(p.weight, stack(p.anchor), p.span or slice(0, model.trainable)) for p in prox]
    momentum = None
    for s in range(steps):
        gradient = gradient_of(vectors, x[clients, position[s]], y[clients, position[s]], weight[s])
        if optimiser.weight_decay:
            gradient.add_(vectors, alpha=optimiser.weight_decay)
        for strength, anchor, span in pulls:
            gradient[:, span].add_(vectors[:, span] - anchor[..., span], alpha=strength)
        if shift is not None:
            gradient.add_(stack(shift))
        if optimiser.momentum:
            momentum = gradient.clone() if momentum is None else momentum.mul_(optimiser.momentum).add_(gradient)
            gradient = gradient.add(momentum, alpha=optimiser.momentum) if optimiser.nesterov else momentum
        vectors.sub_(optimiser.lr * active[s] * gradient)
    return vectors
