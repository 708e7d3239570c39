"""When kernels run, and how models and clients reach them."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cflkit.engine.fast.compiled.library import Kernels, kernels_of, missing, say_missing
from cflkit.engine.fast.plan import Conv, Dense, Shape, plan_for
from cflkit.engine.rows import Dense as DenseRows
from cflkit.engine.rows import row
from cflkit.engine.sgd import cross_entropy
from cflkit.engine.trainer import Trainer, Work
from cflkit.models.flat import Model

LARGE = 2**20  # weights of a dense layer from which a step is bound by moving them, which PyTorch does as well


def kernels_for(model: Model, shape: Shape, always: bool = False) -> Kernels | None:
    """The kernels that compute what a model does for images of `shape`, if they are to be used.

    Unless they `always` are, that is for convolutional networks in single precision. Double precision is for
    results that are printed and compared digit by digit; they must not depend on whether llvmlite is there.
    """
    if model.device.type != "cpu" or model.dtype not in (torch.float32, torch.float64):
        return None
    plan = plan_for(model, tuple(shape))
    if plan is None or not (always or (model.dtype == torch.float32 and isinstance(plan.layers[0], Conv))):
        return None
    if missing():
        say_missing()
        return None
    return kernels_of(plan, model.dtype)


def front_for(model: Model, shape: Shape) -> Kernels | None:
    """The kernels of a model's convolutions alone, if they are to be used."""
    code = kernels_for(model, shape)
    return code and kernels_of(code.plan.front(), code.dtype)


def look(model: Model, shape: Shape) -> Callable[[Tensor, Tensor], Tensor] | None:
    """A function ``(vector, images) -> logits`` for images of `shape` that is faster than the module, if any.

    Derivatives by the images can be taken of it, by the vector not.
    """
    code = kernels_for(model, shape)
    return code and partial(_look, code)


def _look(code: Kernels, vector: Tensor, images: Tensor) -> Tensor:
    derived = torch.is_grad_enabled() and images.requires_grad
    return Looking.apply(code, vector, images) if derived else code.look(vector, images)


class Looking(torch.autograd.Function):
    """Logits whose derivatives by the images the kernels compute as well."""

    @staticmethod
    def forward(ctx, code: Kernels, vector: Tensor, images: Tensor) -> Tensor:
        """Keep what the way back needs."""
        ctx.code, ctx.vector, ctx.room = code, vector, code.room(len(images))
        return code.look(vector, images, keep=ctx.room)

    @staticmethod
    @once_differentiable
    def backward(ctx, slopes: Tensor) -> tuple[None, None, Tensor]:
        """Derivatives by the images."""
        return None, None, ctx.code.pixels(ctx.vector, ctx.room, slopes)


class Compiled(Trainer):
    """The trainer that calls a kernel for the whole training of a client.

    Parameters
    ----------
    always : bool
        In every precision, and for every network that there are kernels for; else where it pays.
    """

    def __init__(self, always: bool = False):
        super().__init__()
        self.always = always

    def supports(self, work: Work) -> bool:
        """Networks with a plan, the cross-entropy, and clients that have images."""
        code = self._code(work)
        if code is None or work.objective is not cross_entropy:
            return False
        if len(work.data) and int(work.data.sizes.min()) == 0:
            return False
        dense = (layer for layer in code.plan.layers if isinstance(layer, Dense))
        return self.always or all(layer.inputs * layer.outputs < LARGE for layer in dense)

    def _code(self, work: Work) -> Kernels | None:
        return kernels_for(work.model, work.data.shape, self.always)

    def train_one(self, work: Work, i: int, out: Tensor) -> None:
        """Train the chunk's client `i` into `out` (P,)."""
        whole = slice(0, work.model.size)
        pulls = [(term.weight, row(term.anchor, i), term.span or whole) for term in work.prox]
        shift = None if work.shift is None else row(work.shift, i)
        x, y = work.data[i]
        start, weights = row(work.start, i), work.weights and work.weights[i]
        self._code(work).train(start, x, y, work.batches[i], work.optimiser, pulls, shift, out, weights)

    def losses(self, work: Work) -> Tensor:
        """Mean cross-entropy (m, K) of the K models ``work.start`` (K, P) on each client's images."""
        code, models = self._code(work), work.start
        out = torch.empty(len(work.data), len(models), dtype=code.dtype)
        for i in range(len(work.data)):
            x, y = work.data[i]
            for k, vector in enumerate(models):
                out[i, k] = torch.nn.functional.cross_entropy(code.look(vector.contiguous(), x), y)
        return out

    def gradient(self, work: Work) -> DenseRows:
        """Full-batch gradient (m, P) of each client's mean loss."""
        code = self._code(work)
        return DenseRows(torch.stack([code.gradient(row(work.start, i).contiguous(), *work.data[i])
                                      for i in range(len(work.data))]))  # fmt: skip
