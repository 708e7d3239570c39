"""Stochastic gradient descent: what a run sets, the batches of a client, and the update itself."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cflkit.checks import Checked, Count, Natural, Positive, Range, Weight, accepts, require
from cflkit.engine.rows import Rowwise


@dataclass(frozen=True)
class SGD(Checked):
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
        For a value that its annotation does not allow, and for Nesterov's step without momentum.
    """

    lr: Positive
    epochs: Natural = 1
    batch_size: Count | None = None
    steps: Count | None = None
    momentum: Annotated[float, Range(0, 1, open_high=True)] = 0.0
    weight_decay: Weight = 0.0
    nesterov: bool = False

    def __post_init__(self):
        super().__post_init__()
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
        drawn: list[np.ndarray] = []
        while len(drawn) < total:
            order = generator.permutation(n)
            drawn += [order[i : i + self.batch_size] for i in range(0, n, self.batch_size)]
        return drawn[:total]


@dataclass(frozen=True)
class Prox(Checked):
    """The term ``weight/2 * ||w[span] - anchor[span]||^2`` in a client's loss.

    Parameters
    ----------
    weight : float
        Strength (mu or lambda of the papers).
    anchor : Tensor (P,), Tensor (m, P) or Pick
        Where the pull goes to; full vectors, whatever the span.
    span : slice, optional
        The part of the vector that is pulled, with both ends; all trainable parameters if None.
    """

    weight: Weight
    anchor: Rowwise
    span: slice | None = None

    def __post_init__(self):
        super().__post_init__()
        ends = self.span and (self.span.start, self.span.stop)
        ok = ends is None or (self.span.step is None and all(accepts(int, end) for end in ends))
        require(ok, "span", self.span, "a slice between two integers, or None for all that is trained")


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
    momentum : list of Tensor, optional
        What earlier steps have left; this is the first step if None.
    """

    def __init__(self, parameters, pulls, shifts, optimiser: SGD, momentum: list[Tensor] | None = None):
        self.parameters, self.pulls, self.shifts, self.optimiser = parameters, pulls, shifts, optimiser
        self.momentum = momentum

    @torch.no_grad()
    def step(self, gradient: Sequence[Tensor]) -> None:
        """Move the parameters; `gradient` is overwritten."""
        optimiser, parameters = self.optimiser, self.parameters
        gradient = [g.contiguous() for g in gradient]  # mixed layouts would be slow to add
        if len({g.data_ptr() for g in gradient}) < len(gradient):  # parameters that are summed have one for all
            gradient = [g.clone() for g in gradient]
        if optimiser.weight_decay:
            torch._foreach_add_(gradient, parameters, alpha=optimiser.weight_decay)
        for weight, inside, anchor in self.pulls:
            pulled = torch._foreach_sub([parameters[k] for k in inside], anchor)
            torch._foreach_add_([gradient[k] for k in inside], pulled, alpha=weight)
        if self.shifts is not None:
            torch._foreach_add_(gradient, self.shifts)
        if optimiser.momentum:
            if self.momentum is None:
                self.momentum = [g.clone() for g in gradient]
            else:
                torch._foreach_mul_(self.momentum, optimiser.momentum)
                torch._foreach_add_(self.momentum, gradient)
            if optimiser.nesterov:
                torch._foreach_add_(gradient, self.momentum, alpha=optimiser.momentum)
            else:
                gradient = self.momentum
        torch._foreach_add_(parameters, gradient, alpha=-optimiser.lr)
