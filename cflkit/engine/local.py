"""Local SGD for many clients, and evaluation.

All paths compute the same. The *lean* path takes one client after the other through any ``nn.Module``; it is
the reference. The *stacked* path advances a whole chunk of clients in lock-step with ``vmap``; it is what makes a
GPU fast. The *shared* path (:mod:`cflkit.engine.fast.shared_linear`) never builds the first layer of a multilayer
perceptron; it is what makes a CPU fast. For convolutional networks :mod:`cflkit.engine.fast.convolution` does the
same, on the lean path or beside it. A method calls :class:`Local` and never learns which path runs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cflkit import rng
from cflkit.checks import require
from cflkit.engine.clients import PIECE, Data
from cflkit.engine.fast import convolution, shared_linear, stacked
from cflkit.engine.rows import Rowwise, pick, row
from cflkit.engine.sgd import SGD, Descent, Prox, cross_entropy
from cflkit.models.flat import Model


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
        else, on a CPU, the lean one quickened by :mod:`cflkit.engine.fast.convolution`.
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
            return stacked.sgd(start, data, batches, prox, shift, optimiser, model)
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
