"""The local steps of a client as one program for a GPU, written in Triton.

Lock-step (:mod:`cflkit.engine.fast.stacked`) asks the GPU for some hundred short pieces of work a step, each over
all clients, and every piece reads and writes all activations. Here one program takes a client through all of its
steps. What it works on lies in memory that no other program touches, so that it stays in the caches.

Every layer is one and the same thing, a convolution with ReLU and 2 x 2 pooling behind it or not: a dense layer is
a convolution of images of one pixel. So there are three kernels of a layer, all of them products of matrices whose
entries are picked by index: outputs from inputs (``_forward``), the slopes by its inputs from those by its outputs
(``_back``), and those by its weights (``_learn``), which move the weights as they come.

The programs of a round touch nothing in common and add in one fixed order, so a round gives the same bits twice.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from cflkit.engine.fast.plan import Conv, Plan


@dataclass(frozen=True)
class Layer:
    """A layer as kernels see it; fields as for :class:`cflkit.engine.fast.plan.Conv`.

    Attributes
    ----------
    step : int
        2 if 2 x 2 outputs are pooled into one, else 1.
    mean : bool
        Whether the pooled one is their mean; else it is the largest.
    inputs, outputs : int
        Where what comes in and what goes out begins, in numbers an image.
    """

    channels: int
    height: int
    width: int
    filters: int
    rows: int
    columns: int
    above: int
    left: int
    below: int
    across: int
    step: int
    mean: bool
    relu: bool
    weight: int
    bias: int
    inputs: int
    outputs: int

    @property
    def size(self) -> int:
        """Numbers that come out for an image."""
        return self.filters * self.below * self.across


@dataclass(frozen=True)
class Tiles:
    """How much of a product is computed at once: outputs, filters, weights of a filter; how precisely, and by whom.

    ``tf32x3`` takes three products of shorter numbers for one, which a GPU's matrix units do faster. Warps share a
    program; stages are loads in flight.
    """

    m: int = 64
    n: int = 16
    k: int = 32
    precision: str = "ieee"
    warps: int = 4
    stages: int = 2


@dataclass(frozen=True)
class Rule:
    """What a step has beside the slope: momentum, Nesterov's look ahead, terms that pull."""

    momentum: bool
    nesterov: bool
    pulled: bool


@dataclass(frozen=True)
class Network:
    """The layers of a network, in order; numbers of its vector; the most images in a batch."""

    layers: tuple[Layer, ...]
    size: int
    width: int

    @property
    def room(self) -> int:
        """Numbers that a batch takes: its images, and what all layers hand on."""
        return (self.layers[-1].outputs + self.layers[-1].size) * self.width


def network(plan: Plan, width: int) -> Network:
    """A network as kernels see it, for batches of at most `width` images."""
    c, h, w = plan.shape
    here, at, found = (c, h, w), 0, []
    for layer in plan.layers:
        if isinstance(layer, Conv):
            filters, kernel, padding, pool = layer.filters, layer.kernel, layer.padding, layer.pool
        else:
            filters, kernel, padding, pool = layer.outputs, (1, 1), (0, 0), ""
            here = (layer.inputs, 1, 1)
        after = at + here[0] * here[1] * here[2]
        pooled = (2 if pool else 1, pool == "mean", layer.relu)
        sizes = (*here, filters, *kernel, *padding, *layer.out[1:])
        found.append(Layer(*sizes, *pooled, layer.weight, layer.bias, at, after))
        here, at = layer.out, after
    return Network(tuple(found), plan.size, width)


@triton.constexpr_function
def _layer(net, i):
    """A layer, known when a kernel is made."""
    return net.layers[i]


@triton.jit
def _patches(values, L: tl.constexpr, images, m, k, o):
    """The inputs (m, k) that weights k of a filter meet in the `o`-th of the outputs pooled into output m."""
    rest = m % (L.below * L.across)
    image = m // (L.below * L.across)
    y = (rest // L.across * L.step + o // L.step - L.above)[:, None] + (k // L.columns % L.rows)[None, :]
    x = (rest % L.across * L.step + o % L.step - L.left)[:, None] + (k % L.columns)[None, :]
    channel = (k // (L.rows * L.columns))[None, :]
    ok = (y >= 0) & (y < L.height) & (x >= 0) & (x < L.width) & (image < images)[:, None] & (channel < L.channels)
    where = ((image[:, None] * L.channels + channel) * L.height + y) * L.width + x
    return tl.load(values + where, mask=ok, other=0.0)


@triton.jit
def _slopes(slopes, passing, L: tl.constexpr, where, o, ok):
    """The slopes by outputs before pooling and ReLU: the `o`-th of those pooled into the outputs at `where`."""
    slope = tl.load(slopes + where, mask=ok, other=0.0)
    bits = tl.load(passing + where, mask=ok, other=0).to(tl.int32)
    slope = tl.where((bits >> o) & 1 == 1, slope, 0.0)
    if L.mean:
        slope = slope / 4
    return slope


@triton.jit
def _forward(weights, values, out, passing, L: tl.constexpr, images, T: tl.constexpr):
    """What a layer hands on; and, a bit for each of the outputs pooled into one, which of them get slopes."""
    BM: tl.constexpr = T.m
    BN: tl.constexpr = T.n
    area: tl.constexpr = L.below * L.across
    every: tl.constexpr = L.channels * L.rows * L.columns
    for m0 in range(0, images * area, T.m):
        m = m0 + tl.arange(0, T.m)
        for f0 in range(0, L.filters, T.n):
            f = f0 + tl.arange(0, T.n)
            bias = tl.load(weights + L.bias + f, mask=f < L.filters, other=0.0)
            found = tl.full((BM, BN), 0.0 if L.mean else float("-inf"), dtype=values.dtype.element_ty)
            bits = tl.zeros((BM, BN), dtype=tl.int32)
            for o in range(L.step * L.step):
                sums = tl.zeros((BM, BN), dtype=values.dtype.element_ty)
                for k0 in range(0, every, T.k):
                    k = k0 + tl.arange(0, T.k)
                    ok = (k < every)[:, None] & (f < L.filters)[None, :]
                    w = tl.load(weights + L.weight + f[None, :] * every + k[:, None], mask=ok, other=0.0)
                    sums = tl.dot(_patches(values, L, images, m, k, o), w, sums, input_precision=T.precision,
                                  out_dtype=values.dtype.element_ty)  # fmt: skip
                sums += bias[None, :]
                bit = tl.zeros((BM, BN), dtype=tl.int32) + (1 << o)
                if L.relu:
                    bit = tl.where(sums > 0, bit, 0)
                    sums = tl.where(sums > 0, sums, 0.0)
                if L.mean:
                    found += sums / 4
                    bits |= bit
                else:
                    bits = tl.where(sums > found, bit, bits)
                    found = tl.maximum(sums, found)
            where = (m // area * L.filters * area + m % area)[:, None] + f[None, :] * area
            ok = (m < images * area)[:, None] & (f < L.filters)[None, :]
            tl.store(out + where, found, mask=ok)
            tl.store(passing + where, bits.to(tl.int8), mask=ok)


@triton.jit
def _back(weights, slopes, passing, out, L: tl.constexpr, images, T: tl.constexpr):
    """The slopes by a layer's inputs."""
    BM: tl.constexpr = T.m
    BN: tl.constexpr = T.n
    area: tl.constexpr = L.height * L.width
    every: tl.constexpr = L.filters * L.rows * L.columns
    for m0 in range(0, images * area, T.m):
        m = m0 + tl.arange(0, T.m)
        image = (m // area)[:, None]
        for c0 in range(0, L.channels, T.n):
            c = c0 + tl.arange(0, T.n)
            sums = tl.zeros((BM, BN), dtype=slopes.dtype.element_ty)
            for k0 in range(0, every, T.k):
                k = k0 + tl.arange(0, T.k)
                f = k // (L.rows * L.columns)
                y = (m % area // L.width + L.above)[:, None] - (k // L.columns % L.rows)[None, :]
                x = (m % area % L.width + L.left)[:, None] - (k % L.columns)[None, :]
                ok = (y >= 0) & (y < L.below * L.step) & (x >= 0) & (x < L.across * L.step)
                ok = ok & (m < images * area)[:, None] & (k < every)[None, :]
                where = (image * L.filters + f[None, :]) * L.below + y // L.step
                where = where * L.across + x // L.step
                slope = _slopes(slopes, passing, L, where, y % L.step * L.step + x % L.step, ok)
                at = (f[:, None] * L.channels + c[None, :]) * (L.rows * L.columns)
                at += (k % (L.rows * L.columns))[:, None]
                ok = (k < every)[:, None] & (c < L.channels)[None, :]
                w = tl.load(weights + L.weight + at, mask=ok, other=0.0)
                sums = tl.dot(slope, w, sums, input_precision=T.precision, out_dtype=slopes.dtype.element_ty)
            where = (image * L.channels + c[None, :]) * area + (m % area)[:, None]
            tl.store(out + where, sums, mask=(m < images * area)[:, None] & (c < L.channels)[None, :])


@triton.jit
def _move(weights, kept, pull, anchor, where, slope, ok, lr, momentum, R: tl.constexpr):
    """A step of ``torch.optim.SGD``; the terms that pull have the slope ``pull * w - anchor``."""
    w = tl.load(weights + where, mask=ok, other=0.0)
    if R.pulled:
        slope += tl.load(pull + where, mask=ok, other=0.0) * w - tl.load(anchor + where, mask=ok, other=0.0)
    if R.momentum:
        step = momentum * tl.load(kept + where, mask=ok, other=0.0) + slope
        tl.store(kept + where, step, mask=ok)
        slope = slope + momentum * step if R.nesterov else step
    tl.store(weights + where, w - lr * slope, mask=ok)


@triton.jit
def _learn(weights, kept, pull, anchor, values, slopes, passing, L: tl.constexpr, images, lr, momentum,
           R: tl.constexpr, T: tl.constexpr):  # fmt: skip
    """Move a layer's weights and biases by their slopes."""
    BN: tl.constexpr = T.n
    BK: tl.constexpr = T.k
    area: tl.constexpr = L.below * L.across
    every: tl.constexpr = L.channels * L.rows * L.columns
    for f0 in range(0, L.filters, T.n):
        f = f0 + tl.arange(0, T.n)
        for k0 in range(0, every, T.k):
            k = k0 + tl.arange(0, T.k)
            sums = tl.zeros((BN, BK), dtype=slopes.dtype.element_ty)
            bias = tl.zeros((BN,), dtype=slopes.dtype.element_ty)
            for m0 in range(0, images * area, T.m):
                m = m0 + tl.arange(0, T.m)
                ok = (f < L.filters)[:, None] & (m < images * area)[None, :]
                where = (m // area * L.filters * area + m % area)[None, :] + f[:, None] * area
                for o in range(L.step * L.step):
                    slope = _slopes(slopes, passing, L, where, o, ok)
                    sums = tl.dot(slope, _patches(values, L, images, m, k, o), sums, input_precision=T.precision,
                                  out_dtype=slopes.dtype.element_ty)  # fmt: skip
                    bias += tl.sum(slope, axis=1)
            ok = (f < L.filters)[:, None] & (k < every)[None, :]
            where = L.weight + f[:, None] * every + k[None, :]
            _move(weights, kept, pull, anchor, where, sums, ok, lr, momentum, R)
            _move(weights, kept, pull, anchor, L.bias + f, bias, (f < L.filters) & (k0 == 0), lr, momentum, R)


@triton.jit
def _look(weights, images, rows, scratch, passing, N: tl.constexpr, count, T: tl.constexpr):
    """Fetch the images of a batch, and take them through all layers."""
    pixels: tl.constexpr = N.layers[0].outputs
    for p0 in range(0, count * pixels, 1024):
        p = p0 + tl.arange(0, 1024)
        row = tl.load(rows + p // pixels, mask=p < count * pixels, other=0)
        value = tl.load(images + row * pixels + p % pixels, mask=p < count * pixels, other=0.0)
        tl.store(scratch + p, value, mask=p < count * pixels)
    tl.debug_barrier()
    for i in tl.static_range(len(N.layers)):
        _forward(weights, scratch + N.layers[i].inputs * N.width, scratch + N.layers[i].outputs * N.width,
                 passing + N.layers[i].outputs * N.width, _layer(N, i), count, T)  # fmt: skip
        tl.debug_barrier()


@triton.jit
def train(vectors, kept, pull, anchors, images, labels, rows, counts, ends, scratch, passing, lr, momentum,
          STEPS, ANCHORS, N: tl.constexpr, R: tl.constexpr, T: tl.constexpr):  # fmt: skip
    """Take client ``program_id(0)`` through its steps.

    Parameters
    ----------
    vectors, kept : pointers to (m, size)
        Each client's model, moved in place; its momentum.
    pull, anchors : pointers to (size,), (ANCHORS, size)
        How strongly each weight is pulled and where to; of one row for all clients, or one each.
    images, labels : pointers to (n, C * H * W), (n,)
        All clients' images, one after the other.
    rows, counts : pointers to (m, STEPS, width), (m, STEPS)
        Which images each batch has, and how many.
    ends : pointer to (m,)
        Steps of each client.
    scratch, passing : pointers to (m, 2, room), (m, room)
        Room for what layers hand on and for the slopes by it; for the ways that slopes go back.
    """
    client = tl.program_id(0).to(tl.int64)
    last: tl.constexpr = len(N.layers) - 1
    classes: tl.constexpr = triton.next_power_of_2(N.layers[last].filters)
    weights, held = vectors + client * N.size, kept + client * N.size
    anchor = anchors + client % ANCHORS * N.size
    values, ways = scratch + client * (2 * N.room), passing + client * N.room
    slopes = values + N.room
    for step in range(tl.load(ends + client)):
        batch = rows + (client * STEPS + step) * N.width
        count = tl.load(counts + client * STEPS + step)
        _look(weights, images, batch, values, ways, N, count, T)
        logits = N.layers[last].outputs * N.width
        label_of = tl.arange(0, classes)
        for m0 in range(0, count, 16):
            m = m0 + tl.arange(0, 16)
            ok = (m < count)[:, None] & (label_of < N.layers[last].filters)[None, :]
            where = m[:, None] * N.layers[last].filters + label_of[None, :]
            z = tl.load(values + logits + where, mask=ok, other=float("-inf"))
            z = tl.where((m < count)[:, None], z, 0.0)
            share = tl.exp(z - tl.max(z, axis=1)[:, None])
            share = share / tl.sum(share, axis=1)[:, None]
            label = tl.load(labels + tl.load(batch + m, mask=m < count, other=0), mask=m < count, other=0)
            slope = (share - (label[:, None] == label_of[None, :]).to(share.dtype)) / count
            tl.store(slopes + logits + where, slope, mask=ok)
        tl.debug_barrier()
        for i in tl.static_range(last, -1, -1):
            behind = N.layers[i].outputs * N.width
            before = N.layers[i].inputs * N.width
            if i > 0:
                _back(weights, slopes + behind, ways + behind, slopes + before, _layer(N, i), count, T)
                tl.debug_barrier()
            _learn(weights, held, pull, anchor, values + before, slopes + behind, ways + behind, _layer(N, i),
                   count, lr, momentum, R, T)  # fmt: skip
        tl.debug_barrier()
