"""What trains a chunk of clients: the work, the interface of a trainer, and the reference."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cflkit import rng
from cflkit.checks import require
from cflkit.engine.clients import IMAGES_AT_ONCE, Data
from cflkit.engine.rows import Dense, Part, Rowwise, row
from cflkit.engine.sgd import SGD, Descent, Prox, cross_entropy
from cflkit.models.flat import Model


@dataclass(frozen=True)
class Work:
    """What a chunk of m clients is to do: train, or look at its data without training.

    Model, data, optimiser, prox, shift, objective and weights are as for :meth:`cflkit.engine.local.Local.sgd`.

    Attributes
    ----------
    start : Tensor (P,), Tensor (m, P) or Pick
        Where each client begins, or takes its gradient; the K models (K, P) whose losses are wanted.
    batches : list of m lists of integer arrays, optional
        Each client's batches; None where nothing is trained.
    keys : tuple of int
        Seed and round: with the client they key what training draws.
    """

    model: Model
    data: Data
    start: Rowwise
    optimiser: SGD
    batches: list[list[np.ndarray]] | None = None
    prox: Sequence[Prox] = ()
    shift: Rowwise | None = None
    objective: Callable[[nn.Module, Tensor, Tensor], Tensor] = cross_entropy
    keys: tuple[int, int] = (0, 0)
    weights: Sequence[Tensor] | None = None

    @cached_property
    def positions(self) -> list[list[Tensor]]:
        """The batches where the model is, all moved in one transfer."""
        every = list(chain.from_iterable(self.batches))
        flat = torch.from_numpy(np.concatenate(every or [np.arange(0)])).to(self.model.device)
        moved = iter(flat.split(list(map(len, every))))
        return [list(islice(moved, len(batches))) for batches in self.batches]

    @property
    def plain_loss(self) -> bool:
        """Whether the loss is the mean cross-entropy, perhaps with proximal terms."""
        return self.objective is cross_entropy and self.weights is None

    def loss(self, module: nn.Module, x: Tensor, y: Tensor, i: int, batch: Tensor | slice) -> Tensor:
        """Loss of client `i`'s `batch` of images and labels."""
        if self.weights is None:
            return self.objective(module, x[batch], y[batch])
        return (F.cross_entropy(module(x[batch]), y[batch], reduction="none") * self.weights[i][batch]).mean()

    @property
    def steps(self) -> int:
        """Steps of the client that takes most; 0 where nothing is trained."""
        return max(map(len, self.batches or ()), default=0)

    def drawing(self, client: int) -> contextlib.AbstractContextManager[None]:
        """Give what training draws a stream for each (seed, round, client); nothing for models that do not."""
        if not self.model.draws:
            return contextlib.nullcontext()
        return drawing(self.model.device, rng.torch_seed(*self.keys, client, "dropout"))


_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def drawing(device: torch.device, seed: int) -> Iterator[None]:
    """Let PyTorch's own generator begin at `seed`, for one thread at a time, and go on afterwards as if it had not.

    Layers ask for random numbers without saying from where, and all threads share that one generator.
    """
    gpu = device.type == "cuda"
    with _ONE_AT_A_TIME, torch.random.fork_rng([device] if gpu else []):
        (torch.manual_seed if gpu else torch.default_generator.manual_seed)(seed)
        yield


class Trainer:
    """The reference, one client after the other through any ``nn.Module``; and what every other trainer offers.

    A fast path derives from it, says what it supports, and overrides what it does faster.

    Parameters
    ----------
    quick : bool
        Let modules compute the same faster (see :class:`cflkit.models.flat.Model`).
    debug : bool
        Name client, round and batch in any exception, and refuse a loss that is not finite.
    """

    def __init__(self, quick: bool = False, debug: bool = False):
        self.quick, self.debug = quick, debug

    def supports(self, work: Work) -> bool:
        """Whether this trainer does that work; the reference does any."""
        return True

    def train(self, work: Work) -> Part:
        """Train every client: vectors (m, P)."""
        out = torch.empty(len(work.data), work.model.size, dtype=work.model.dtype, device=work.model.device)
        for i in range(len(work.data)):
            self.train_one(work, i, out[i])
        return Dense(out)

    def train_one(self, work: Work, i: int, out: Tensor) -> None:
        """Train the chunk's client `i` into `out` (P,)."""
        model, optimiser, client = work.model, work.optimiser, work.data.clients[i]
        out.copy_(row(work.start, i))
        module = model.bound(out, quick=self.quick).train()
        rule = descent(work, [p for p in module.parameters() if p.requires_grad], partial(row, i=i))
        x, y = work.data[i]
        with work.drawing(client):
            for b, batch in enumerate(work.positions[i]):
                try:
                    loss = work.loss(module, x, y, i, slice(None) if optimiser.batch_size is None else batch)
                    if self.debug and not torch.isfinite(loss):
                        raise FloatingPointError(f"loss = {loss.item()}: must be finite")
                    gradient = torch.autograd.grad(loss, rule.parameters)
                except Exception as error:
                    if self.debug:
                        error.add_note(f"in client {client}, round {work.keys[1]}, batch {b}")
                    raise
                rule.step(gradient)

    @torch.no_grad()
    def losses(self, work: Work) -> Tensor:
        """Mean cross-entropy (m, K) of the K models ``work.start`` (K, P) on each client's images."""
        model, models = work.model, work.start
        out = torch.empty(len(work.data), len(models), dtype=model.dtype, device=model.device)
        for i in range(len(work.data)):
            x, y = work.data[i]
            for k, vector in enumerate(models):
                logits = torch.cat([model.forward(vector, piece) for piece in x.split(IMAGES_AT_ONCE)])
                out[i, k] = F.cross_entropy(logits, y)
        return out

    def gradient(self, work: Work) -> Part:
        """Full-batch gradient (m, P) of each client's mean loss; zero on what is not trained.

        BatchNorm layers use the statistics of up to ``IMAGES_AT_ONCE`` images, and leave their buffers alone.
        """
        model = work.model
        out = torch.zeros(len(work.data), model.size, dtype=model.dtype, device=model.device)
        for i in range(len(work.data)):
            module = model.bound(row(work.start, i).clone(), quick=self.quick).train()
            parameters = [p for p in module.parameters() if p.requires_grad]
            x, y = work.data[i]
            with work.drawing(work.data.clients[i]):
                for xb, yb in zip(x.split(IMAGES_AT_ONCE), y.split(IMAGES_AT_ONCE), strict=True):
                    loss = F.cross_entropy(module(xb), yb, reduction="sum") / len(y)
                    gradient = torch.autograd.grad(loss, parameters)
                    out[i, : model.trainable] += torch.cat([g.reshape(-1) for g in gradient])
        return Dense(out)


def parameters_of(model: Model, vectors: Tensor) -> list[Tensor]:
    """Views of what the model trains, in its order, in a vector (P,) or in many (m, P)."""
    m = vectors.shape[:-1]
    return [vectors[..., model.spans[name]].view(*m, *model.shapes[name]) for name in model.parameters]


def descent(
    work: Work, parameters: list[Tensor], theirs: Callable[[Rowwise], Tensor], momentum: list[Tensor] | None = None
) -> Descent:
    """The rule that moves `parameters`, all that the model trains, in its order.

    `theirs` takes what the clients of these parameters have of an anchor or a shift.
    """
    pulls = []
    for term in work.prox:
        inside, anchor = covered(work.model, term.span), parameters_of(work.model, theirs(term.anchor))
        pulls.append((term.weight, inside, [anchor[k] for k in inside]))
    shifts = None if work.shift is None else parameters_of(work.model, theirs(work.shift))
    return Descent(parameters, pulls, shifts, work.optimiser, momentum)


def covered(model: Model, span: slice | None) -> list[int]:
    """Which parameters a span covers, by position; it must not cut one in two."""
    span = span or slice(0, model.trainable)
    where = [model.spans[name] for name in model.parameters]
    inside = [k for k, s in enumerate(where) if span.start <= s.start and s.stop <= span.stop]
    whole = sum(where[k].stop - where[k].start for k in inside)
    require(whole == span.stop - span.start, "span", span, "made of whole parameters")
    return inside
