"""Products of matrices, the fast way for each kind of number.

PyTorch calls MKL, which Intel writes for its own processors. On one of AMD's with AVX-512, oneDNN is more than
twice as fast in single precision, and is used; with AVX2 alone MKL is the faster one. Double precision, and all
that is on a GPU, is PyTorch's own. The functions may leave derivatives unrecorded: call them where none is wanted.
The layer has its first ones.
"""

import platform
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _from_intel() -> bool:
    """Whether the processor is one of Intel's."""
    info = Path("/proc/cpuinfo")
    return "GenuineIntel" in (info.read_text("utf-8") if info.exists() else platform.processor())


def _mkl_is_fast() -> bool:
    """Whether MKL makes use of all that the processor has."""
    narrow = torch.backends.cpu.get_cpu_capability() != "AVX512"
    return torch.backends.mkl.is_available() and (narrow or _from_intel())


_ONEDNN = (
    torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise") and not _mkl_is_fast()
)


def _through_onednn(x: Tensor, other: Tensor) -> bool:
    return _ONEDNN and x.dtype == torch.float32 and x.device.type == "cpu" and min(x.numel(), other.numel()) > 0


def _dense(matrix: Tensor) -> Tensor:
    """The matrix, or a copy if rows as well as columns have gaps between them: oneDNN would crawl."""
    return matrix if matrix.is_contiguous() or matrix.mT.is_contiguous() else matrix.contiguous()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x W^T + b`` (..., o) of rows `x` (..., d), weights (o, d) and biases (o,)."""
    if _through_onednn(x, weight):
        return torch.ops.mkldnn._linear_pointwise(_dense(x), _dense(weight), bias, "none", [], "")
    return F.linear(x, weight, bias)


def add_product(to: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``to += a b`` for `a` (n, k) and `b` (k, m), in place; returns `to` (n, m)."""
    return to.add_(linear(a, b.T)) if _through_onednn(a, b) else to.addmm_(a, b)


class _Recorded(torch.autograd.Function):
    """:func:`linear` with its first derivatives, which are products of the same kind."""

    @staticmethod
    def forward(x, weight, bias):
        return linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        back = linear(grad, weight.T) if wanted[0] else None
        return back, linear(grad.T, x.T) if wanted[1] else None, grad.sum(0) if wanted[2] else None


class Linear(nn.Linear):
    """A dense layer as fast as :func:`linear`, derivatives included: first ones only, where oneDNN is used."""

    @classmethod
    def over(cls, layer: nn.Linear) -> "Linear":
        """The same layer, over the same weights, with all that hooks on to it."""
        new = cls.__new__(cls)
        new.__dict__ = dict(layer.__dict__)
        return new

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, o) of inputs (n, d)."""
        if x.dim() == 2 and _through_onednn(x, self.weight):
            return _Recorded.apply(x, self.weight, self.bias)
        return super().forward(x)
