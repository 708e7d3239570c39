"""Local SGD of a chunk of clients in lock-step with ``vmap``: what makes a GPU fast.

Every client of the chunk takes its step at once. The clients with most batches come first, so that those who still
have some are always the first of all; whenever a quarter of them has finished, the others go on alone.

Two layers have forms of their own here. A **convolution** becomes products of matrices, patches of the images times
kernels: under ``vmap`` PyTorch would make it a grouped convolution, for which GPUs have slow kernels. A
**normalisation by the batch** takes the padding of a ragged batch out of its mean and its variance.

On a GPU one step consists of many short pieces of work, and to ask for them takes longer than to do them. So a step
of a network that is known not to wait for the processor is recorded once and replayed (a CUDA graph).
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from cflkit.engine.rows import Dense, Pick, Rowwise
from cflkit.engine.sgd import cross_entropy
from cflkit.engine.trainer import Trainer, Work, descent, parameters_of
from cflkit.models.flat import Model

REPLAYED = 4  # steps from which a recording pays
_RECORDED: dict[torch.device, torch.cuda.CUDAGraph] = {}  # the last of each GPU: the next one works in its memory
_RECORDING = threading.Lock()


class Stacked(Trainer):
    """The same arithmetic as the reference, for all clients of the chunk at once."""

    def supports(self, work: Work) -> bool:
        """Networks whose whole vector is trained, and that draw nothing; so none that keeps running statistics."""
        model = work.model
        plain = model.trainable == model.size and not model.draws
        return plain and work.batches is not None and work.steps > 0 and work.objective is cross_entropy

    def train(self, work: Work) -> Dense:
        """Ragged clients are padded: a padded image has weight 0 in its batch's mean.

        A client that has no batch left may go on with the others, but its vector was put aside after its last one.
        """
        order = sorted(range(len(work.batches)), key=lambda i: len(work.batches[i]), reverse=True)
        device, ends = work.model.device, [len(work.batches[i]) for i in order]
        images, batches, gradient_of = _images(work, order), _batches(work, order), gradients(work.model)
        vectors = _ordered(work.start, order).expand(len(order), -1).clone()
        out, last = vectors.clone(), torch.tensor(ends, device=device)[:, None]
        now = torch.zeros(1, dtype=torch.int64, device=device)  # the step, where the recording finds it
        momentum, step = None, 0
        while step < work.steps:
            m = sum(end > step for end in ends)
            until = max(ends[-(-3 * m // 4) - 1], step + 1)  # when a quarter of them has finished
            parameters, theirs = parameters_of(work.model, vectors[:m]), partial(_ordered, order=order[:m])
            rule = descent(work, parameters, theirs, momentum and [each[:m] for each in momentum])
            x, y, clients = *(part[:m] for part in images), torch.arange(m, device=device)[:, None]

            def once(m=m, rule=rule, x=x, y=y, clients=clients):
                at, weight = (part[:, :m].index_select(0, now)[0] for part in batches)
                rule.step(gradient_of(rule.parameters, x[clients, at], y[clients, at], weight))
                now.add_(1)
                out[:m] = torch.where(last[:m] == now, vectors[:m], out[:m])

            repeat(once, until - step, work.model)
            momentum, step = rule.momentum, until
        return Dense(out[torch.tensor(order, device=device).argsort()])


def repeat(once: Callable[[], None], times: int, model: Model) -> None:
    """Do `once` so often; on a GPU record it the second time, where that pays, and replay it from then on."""
    known = type(model.module).__module__.startswith("cflkit.")
    if not (known and times > REPLAYED and model.device.type == "cuda" and torch.cuda.is_available()):
        for _ in range(times):
            once()
        return
    once()  # what is made at the first step must not be made by the recording
    graph = _recording(once, model.device)
    for _ in range(times - 1):
        graph.replay()


def _recording(once: Callable[[], None], device: torch.device) -> torch.cuda.CUDAGraph:
    """Record what `once` asks of the GPU, without doing it."""
    graph, aside = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
    with _RECORDING, torch.cuda.device(device):
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            memory = {"pool": _RECORDED[device].pool()} if device in _RECORDED else {}
            graph.capture_begin(**memory, capture_error_mode="thread_local")
            try:
                once()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(aside)
        _RECORDED[device] = graph
    return graph


def gradients(model: Model) -> Callable[..., list[Tensor]]:
    """What gives the loss's gradients (m, ...) by all clients' parameters (m, ...) on images, labels and shares."""
    module = in_lock_step(model)

    def loss(parameters, x, y, share):
        _weigh(module, share)
        logits = functional_call(module, dict(zip(model.parameters, parameters, strict=True)), (x,))
        return (F.cross_entropy(logits, y, reduction="none") * share).sum()

    return vmap(grad(loss))


# ---------------------------------------------------------------------- what the clients bring along
def _ordered(value: Rowwise, order: list[int]) -> Tensor:
    """Something shared (P,), or the rows (m, P) of the clients in that order."""
    if isinstance(value, Pick):
        return value.take(order).dense()
    return value if value.dim() == 1 else value[order]


def _images(work: Work, order: list[int]) -> tuple[Tensor, Tensor]:
    """All clients' images (m, n, C, H, W) and labels (m, n), padded with zeros to the longest."""
    pairs = [work.data[i] for i in order]
    pad = torch.nn.utils.rnn.pad_sequence
    return tuple(pad(part, batch_first=True) for part in zip(*pairs, strict=True))


def _numbers(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """The same tensors (n_i,) as arrays, all moved in one transfer."""
    return np.split(torch.cat(list(tensors)).cpu().numpy(), np.cumsum(list(map(len, tensors)))[:-1])


def _batches(work: Work, order: list[int]) -> tuple[Tensor, Tensor]:
    """Of every step: positions (steps, m, width) of each client's batch, and each image's share in the mean."""
    m, width = len(order), max((len(b) for bs in work.batches for b in bs), default=0)
    position = np.zeros((work.steps, m, width), dtype=np.int64)
    share = np.zeros((work.steps, m, width))
    weights = None if work.weights is None else _numbers(work.weights)
    for row, i in enumerate(order):
        for step, batch in enumerate(work.batches[i]):
            position[step, row, : len(batch)] = batch
            weight = 1 if weights is None else weights[i][batch]
            share[step, row, : len(batch)] = weight / len(batch)
    device, dtype = work.model.device, work.model.dtype
    return torch.from_numpy(position).to(device), torch.from_numpy(share).to(device, dtype)


# ---------------------------------------------------------------------- the network
def in_lock_step(model: Model) -> nn.Module:
    """The architecture, without weights, in the form in which many clients train it at once."""
    module = model.skeleton().train()
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Conv2d and _plain(child):
                setattr(parent, name, _Conv(child))
            elif type(child) in (nn.BatchNorm1d, nn.BatchNorm2d):
                setattr(parent, name, _Norm(child))
    return module


def passing(model: Model, shape: tuple[int, int, int]) -> int:
    """Numbers that an image (C, H, W) needs in lock-step: those kept for the derivative, and the most patches."""

    def of(images: int) -> int:
        module, numbers, patches = in_lock_step(model).eval(), [], [0]
        for layer in module.modules():
            if isinstance(layer, _Conv):
                layer.register_forward_hook(
                    lambda conv, x, y: patches.append((x[0].numel() + y.numel()) * conv.weight[0, 0].numel())
                )
        x, share = (torch.zeros(images, *s, dtype=model.dtype, device=model.device) for s in (shape, ()))
        _weigh(module, share)
        weights = model.views(x.new_zeros(model.size).requires_grad_())
        with torch.autograd.graph.saved_tensors_hooks(lambda t: numbers.append(t.numel()), lambda _: None):
            functional_call(module, weights, (x,))
        return sum(numbers) + max(patches)

    return of(3) - of(2)  # without the weights, which are kept once


def _weigh(module: nn.Module, share: Tensor) -> None:
    """Tell normalisations how much each image (n,) of the next batch counts."""
    for layer in module.modules():
        if isinstance(layer, _Norm):
            layer.share = share


def _plain(layer: nn.Conv2d) -> bool:
    """Whether a convolution moves by one pixel over no more padding than its kernel reaches."""
    usual = layer.groups == 1 and layer.padding_mode == "zeros" and layer.stride == layer.dilation == (1, 1)
    return usual and layer.padding not in ("same", "valid") and all(
        p < k for p, k in zip(layer.padding, layer.kernel_size, strict=True)
    )  # fmt: skip


class _Conv(nn.Module):
    """A convolution as a product of its kernels with all patches of the images."""

    def __init__(self, layer: nn.Conv2d):
        super().__init__()
        self.weight, self.bias, self.padding = layer.weight, layer.bias, layer.padding

    def forward(self, x: Tensor) -> Tensor:
        found = _Product.apply(x, self.weight, self.padding)
        return found if self.bias is None else found + self.bias[:, None, None]


class _Product(torch.autograd.Function):
    """Patches are made again for the derivative: to keep them would take as much memory as the kernel has pixels.

    The derivative by the images is itself such a product: that of the outputs' derivative with the turned kernels.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, padding):
        return _times(weight, x, padding)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.padding = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, delta):
        x, weight = ctx.saved_tensors
        size = weight.shape[2:]
        patches, _ = _patches(x, size, ctx.padding)
        by_weight = (delta.flatten(2) @ patches.mT).sum(0).view(weight.shape)
        if not ctx.needs_input_grad[0]:
            return None, by_weight, None
        around = [k - 1 - p for k, p in zip(size, ctx.padding, strict=True)]
        return _times(weight.flip(2, 3).movedim(1, 0), delta, around), by_weight, None


def _times(weight: Tensor, x: Tensor, padding: tuple[int, int]) -> Tensor:
    """Kernels (O, C, k, l) times the patches of images (n, C, H, W): images (n, O, h, w), a product each."""
    patches, sides = _patches(x, weight.shape[2:], padding)
    return torch.bmm(weight.flatten(1).expand(len(x), -1, -1), patches).unflatten(2, sides)


def _patches(x: Tensor, size: tuple[int, int], padding: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
    """All patches (n, C k l, h w) of images (n, C, H, W), and (h, w)."""
    if any(padding):
        x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    views = x.unfold(2, size[0], 1).unfold(3, size[1], 1)  # (n, C, h, w, k, l), nothing copied
    sides = tuple(views.shape[2:4])
    return views.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3), sides


class _Norm(nn.Module):
    """A normalisation by the batch in which each image counts by its share, as it does in the loss."""

    def __init__(self, layer: nn.BatchNorm1d | nn.BatchNorm2d):
        super().__init__()
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.share: Tensor | None = None  # (n,), set with every batch

    def forward(self, x: Tensor) -> Tensor:
        found, _ = _Normalised.apply(x.flatten(2) if x.dim() > 2 else x[..., None], self.share, self.eps)
        found = found.view(x.shape)
        if self.weight is None:
            return found
        weight, bias = (each.view(-1, *[1] * (x.dim() - 2)) for each in (self.weight, self.bias))
        return torch.addcmul(bias, found, weight)


class _Normalised(torch.autograd.Function):
    """Images (n, C, p) less their mean, over their deviation, which are those of all pixels by the images' shares.

    Written out since the derivative, left to PyTorch, would pass over the images three times as often.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x, share, eps):
        own_variance, own_mean = torch.var_mean(x, 2, correction=0)
        mean = share @ own_mean
        variance = share @ (own_variance + (own_mean - mean).square())
        scale = (variance + eps).rsqrt()
        return torch.addcmul((-mean * scale)[:, None], x, scale[:, None]), scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        found, scale = output
        ctx.mark_non_differentiable(scale)
        ctx.save_for_backward(found, inputs[1], scale)

    @staticmethod
    def backward(ctx, delta, _):
        found, share, scale = ctx.saved_tensors
        each = share[:, None] / found.shape[2]  # of a pixel in the mean
        level, slope = delta.sum((0, 2)), (delta * found).sum((0, 2))
        moved = torch.addcmul(delta, found, -(each * slope)[..., None])
        return (moved - (each * level)[..., None]) * scale[:, None], None, None
