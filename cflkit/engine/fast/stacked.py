"""Local SGD of a chunk of clients in lock-step with ``vmap``: what makes a GPU fast.

Two layers have forms of their own here. A **convolution** becomes one product of matrices: patches of the images
times kernels. Under ``vmap`` PyTorch would make it a grouped convolution, for which GPUs have slow kernels. A
**normalisation by the batch** takes the padding of a ragged batch out of its mean and its variance.
"""

from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from cflkit.engine.rows import Dense, stack
from cflkit.engine.sgd import Descent
from cflkit.engine.trainer import Trainer, Work
from cflkit.models.flat import Model


class Stacked(Trainer):
    """Every client of the chunk takes its step at once; the same arithmetic as the reference."""

    def supports(self, work: Work) -> bool:
        """Networks whose whole vector is trained, without dropout; so none that keeps running statistics."""
        model = work.model
        plain = model.trainable == model.size and not model.has_dropout
        return plain and work.batches is not None and work.steps > 0 and work.plain_loss

    def train(self, work: Work) -> Dense:
        """Ragged clients are padded: a padded image has weight 0 in its batch's mean.

        A client that has no batch left goes on with the others, but its vector was put aside after its last one.
        """
        x, y = _images(work)
        position, weight = _batches(work)
        model, module = work.model, in_lock_step(work.model)
        norms = _norms(module)

        def loss(vector, xb, yb, wb):
            for norm in norms:
                norm.share = wb
            logits = functional_call(module, model.views(vector), (xb,))
            return (F.cross_entropy(logits, yb, reduction="none") * wb).sum()

        gradient_of = vmap(grad(loss))
        begin, m = stack(work.start), len(work.data)
        vectors = (begin.expand(m, -1) if begin.dim() == 1 else begin).clone()
        spans, rule = _rule(work, vectors)
        clients = torch.arange(m, device=model.device)[:, None]
        ends = torch.tensor([len(b) for b in work.batches], device=model.device)[:, None]
        out = vectors.clone()
        for step in range(work.steps):
            at = position[step]
            gradient = gradient_of(vectors, x[clients, at], y[clients, at], weight[step])
            rule.step([gradient[:, span] for span in spans])
            out = torch.where(ends == step + 1, vectors, out)
        return Dense(out)


def in_lock_step(model: Model) -> nn.Module:
    """The architecture, without weights, in the form in which many clients train it at once."""
    module = model.skeleton().train()
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Conv2d and _one_product(child):
                setattr(parent, name, _Conv(child))
            elif isinstance(child, (nn.BatchNorm1d, nn.BatchNorm2d)):
                setattr(parent, name, _Norm(child))
    return module


def kept(model: Model, shape: tuple[int, int, int]) -> int:
    """Numbers that a client in lock-step keeps of each image (C, H, W) for the derivative."""

    def of(images: int) -> int:
        module, numbers = in_lock_step(model).eval(), []
        x, share = (torch.zeros(images, *s, dtype=model.dtype, device=model.device) for s in (shape, ()))
        for norm in _norms(module):
            norm.share = share
        weights = model.views(x.new_zeros(model.size).requires_grad_())
        with torch.autograd.graph.saved_tensors_hooks(lambda t: numbers.append(t.numel()), lambda _: None):
            functional_call(module, weights, (x,))
        return sum(numbers)

    return of(3) - of(2)  # without the weights, which are kept once


def _norms(module: nn.Module) -> list["_Norm"]:
    return [layer for layer in module.modules() if isinstance(layer, _Norm)]


def _one_product(layer: nn.Conv2d) -> bool:
    return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


class _Conv(nn.Module):
    """A convolution as a product of its kernels with all patches of the images."""

    def __init__(self, layer: nn.Conv2d):
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.how = {"dilation": layer.dilation, "padding": layer.padding, "stride": layer.stride}
        self.size = layer.kernel_size

    def forward(self, x: Tensor) -> Tensor:
        patches = F.unfold(x, self.size, **self.how)  # (n, C kh kw, positions)
        edges = zip(x.shape[2:], self.size, *self.how.values(), strict=True)
        sides = [(s + 2 * p - d * (k - 1) - 1) // step + 1 for s, k, d, p, step in edges]
        found = (self.weight.flatten(1) @ patches).unflatten(2, sides)
        return found if self.bias is None else found + self.bias[:, None, None]


class _Norm(nn.Module):
    """A normalisation by the batch in which each image counts by its share, as it does in the loss."""

    def __init__(self, layer: nn.BatchNorm1d | nn.BatchNorm2d):
        super().__init__()
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.share: Tensor | None = None  # (n,), set with every batch

    def forward(self, x: Tensor) -> Tensor:
        def mean(values):
            return self.share @ (values.flatten(2).mean(2) if values.dim() > 2 else values)

        def shaped(values):
            return values.view(-1, *[1] * (x.dim() - 2))

        centred = x - shaped(mean(x))
        found = centred * shaped((mean(centred.square()) + self.eps).rsqrt())
        return found if self.weight is None else found * shaped(self.weight) + shaped(self.bias)


def _images(work: Work) -> tuple[Tensor, Tensor]:
    """All clients' images (m, n, C, H, W) and labels (m, n), padded with zeros to the longest."""
    pairs = [work.data[i] for i in range(len(work.data))]
    pad = torch.nn.utils.rnn.pad_sequence
    return tuple(pad(part, batch_first=True) for part in zip(*pairs, strict=True))


def _batches(work: Work) -> tuple[Tensor, Tensor]:
    """Of every step: positions of each client's batch (steps, m, width), and the weight of each in the mean."""
    m, width = len(work.batches), max((len(b) for bs in work.batches for b in bs), default=0)
    position = np.zeros((work.steps, m, width), dtype=np.int64)
    weight = np.zeros((work.steps, m, width))
    for i, batches in enumerate(work.batches):
        for step, batch in enumerate(batches):
            position[step, i, : len(batch)] = batch
            weight[step, i, : len(batch)] = 1 / len(batch)
    device, dtype = work.model.device, work.model.dtype
    return torch.from_numpy(position).to(device), torch.from_numpy(weight).to(device, dtype)


def _rule(work: Work, vectors: Tensor) -> tuple[list[slice], Descent]:
    """The update of all clients' vectors (m, P), and the spans that it treats alike, which the pulls cut."""
    whole = slice(0, work.model.trainable)
    pulled = [term.span or whole for term in work.prox]
    edges = sorted({edge for span in (whole, *pulled) for edge in (span.start, span.stop)})
    spans = [slice(a, b) for a, b in pairwise(edges)]
    pulls = []
    for term, span in zip(work.prox, pulled, strict=True):
        inside = [k for k, s in enumerate(spans) if span.start <= s.start and s.stop <= span.stop]
        anchor = stack(term.anchor)
        pulls.append((term.weight, inside, [anchor[..., spans[k]] for k in inside]))
    shift = None if work.shift is None else stack(work.shift)
    shifts = None if shift is None else [shift[..., s] for s in spans]
    return spans, Descent([vectors[:, s] for s in spans], pulls, shifts, work.optimiser)
