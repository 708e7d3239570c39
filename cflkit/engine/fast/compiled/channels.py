"""Kernels for convolutions with many filters, in batches of any size.

**Layout.** LEAF's convolutions have 32 and 64 filters: whole vectors of them. So here the lanes are *channels*. An
image is an array (rows, columns, channels), its own and not one of W in lock-step, and no lane is idle whether a
batch has 10 images or 16. A network of such convolutions is ``Plan.wide``; all others keep images in the lanes
(:mod:`cflkit.engine.fast.compiled.kernels`, which explains the rest), and so do the dense layers behind these.
Where filters do not fill a vector, the lanes that are left over hold zeros. That still is faster for the few images
that whole groups leave over, as a batch of 50 does 2.

**Weights** are needed in vectors, too: of filters on the way ahead, of input channels on the way back. They are
copied to such an order once a call, as (place of the kernel, channel, filter) or (place, filter, channel). The
derivatives by them grow in the first order and are added to the gradient at the end.

**Tiling.** A row of 14 pixels times two vectors of filters is 28 sums in registers. An input is loaded once, into
all lanes of a register, and serves both vectors; a vector of weights serves 14 pixels. Places of the kernel that
meet no pixel are left out: rows by the bounds of a loop, columns because every tile of a row has code of its own.
So no zeros are stored around an image, nor multiplied, as in PyTorch's convolutions of single precision.

**Sums in one order.** Each sum runs over kernel rows, kernel columns and channels, or for the weights over an
image's pixels, then over images. Lanes never add up among each other, so their number does not matter.
"""

from __future__ import annotations  # LLVM's types are named in annotations; the book's pages do without the package

from collections.abc import Callable
from itertools import accumulate, groupby, pairwise

from llvmlite import ir

from cflkit.engine.fast.compiled import kernels
from cflkit.engine.fast.compiled.kernels import Buffer, Kernel, pool, through, tiles
from cflkit.engine.fast.compiled.writing import Code, Function, Sum
from cflkit.engine.fast.plan import Conv, Plan, Shape


# ---------------------------------------------------------------------- where numbers lie
class Places:
    """Where everything of a wide plan lies: W images one after the other, then what the dense layers need.

    Attributes
    ----------
    values, winners, slopes, full : list of Buffer
        As in :class:`kernels.Places`, but of one image and with the channels last. What the convolutions begin
        and end with is kept with the image, derivatives as well.
    rows : list of Buffer
        Two rows of a convolution's outputs, before they are pooled.
    ahead, back, grown : list of Buffer
        A convolution's weights (place, channel, filter) and (place, filter, channel); derivatives by them, as the
        first.
    biases, grown_biases : list of Buffer
        Its biases, and derivatives by them.
    apart : int
        Numbers from one image to the next.
    dense : kernels.Places or None
        Of the dense layers, behind the images.
    kept, passing : int
        Numbers in each arena.
    """

    def __init__(self, plan: Plan, lanes: int, kept: int = 0, passing: int = 0):
        self._begin, self.apart, self._passed = kept, 0, passing
        layers = plan.convolutions

        def last(shape: Shape) -> Shape:  # channels last, in whole vectors
            return shape[1], shape[2], -(-shape[0] // lanes) * lanes

        outputs = [last(layer.out) for layer in layers]
        taps = [layer.kernel[0] * layer.kernel[1] for layer in layers]
        self.values = [self._room(True, shape) for shape in [(*plan.shape[1:], plan.shape[0]), *outputs]]
        self.winners = [self._room(True, shape) for shape in outputs]
        self.slopes = [self._room(i in (0, len(layers)), shape)
                       for i, shape in enumerate([last(plan.shape), *outputs])]  # fmt: skip
        self.full = [self._room(False, last(layer.full)) if layer.pool else slope
                     for layer, slope in zip(layers, self.slopes[1:], strict=True)]  # fmt: skip
        self.rows = [self._room(False, (2, layer.full[2], shape[2]))
                     for layer, shape in zip(layers, outputs, strict=True)]  # fmt: skip
        sizes = [(n, layer.shape[0], shape[2]) for n, layer, shape in zip(taps, layers, outputs, strict=True)]
        self.ahead, self.grown = ([self._room(False, size) for size in sizes] for _ in range(2))
        self.back = [self._room(False, (n, layer.filters, slope.shape[2]))
                     for n, layer, slope in zip(taps, layers, self.slopes, strict=False)]  # fmt: skip
        self.biases, self.grown_biases = (
            [self._room(False, (1, 1, shape[2])) for shape in outputs] for _ in range(2))
        self.kept, self.passing = kept + self.apart * lanes, self._passed
        self.dense = None
        if len(plan.layers) > len(layers):
            self.dense = kernels.Places(plan.rest(), lanes, self.kept, self.passing)
            self.kept, self.passing = self.dense.kept, self.dense.passing

    def _room(self, kept: bool, shape: Shape) -> Buffer:
        found = Buffer(kept, self._begin + self.apart if kept else self._passed, 1, shape)
        size = -(-found.size // kernels.LINE) * kernels.LINE
        self.apart, self._passed = self.apart + kept * size, self._passed + (not kept) * size
        return found


# ---------------------------------------------------------------------- changes of order
def ordered(code: Code, buffer: Buffer, channels: int, name: str, out: bool) -> Function:
    """Write ``name(arena, table, stride)``: copy a buffer to an image (C, H, W) whose numbers are `stride` apart.

    Without `out` the other way round.
    """
    f = Function(code, name, "ppi")
    arena, table, stride = f.arguments
    height, width, _ = buffer.shape
    with f.loop(0, channels) as c, f.loop(0, height) as y, f.loop(0, width) as x:
        here, there = buffer.at(y, x, c), stride * ((c * height + y) * width + x)
        if out:
            f.put_number(f.number(arena, here), table, there)
        else:
            f.put_number(f.number(table, there), arena, here)
    f.made.attributes.add("noinline")
    return f.end()


def pack_ahead(f: Kernel, layer: Conv, ahead: Buffer, biases: Buffer) -> None:
    """Order the weights for :func:`convolve`, the last place of the kernel first."""
    (channels, _, _), taps = layer.shape, layer.kernel[0] * layer.kernel[1]
    for first, count, size in tiles(layer.filters, f.lanes):
        with f.loop(0, count) as t, f.loop(0, channels) as c, f.loop(0, taps) as tap:
            for k in (t * size + (first + j) for j in range(size)):
                weight = f.number(f.w, (k * channels + c) * taps + tap + layer.weight)
                f.put_number(weight, f.arena(ahead), ahead.at(tap * -1 + (taps - 1), c, k))
    with f.loop(0, layer.filters) as k:
        f.put_number(f.number(f.w, k + layer.bias), f.arena(biases), biases.at(0, 0, k))


def pack_back(f: Kernel, layer: Conv, back: Buffer) -> None:
    """Order the weights for :func:`convolve_inputs`."""
    (channels, _, _), taps = layer.shape, layer.kernel[0] * layer.kernel[1]
    with f.loop(0, layer.filters) as k, f.loop(0, taps) as tap, f.loop(0, channels) as c:
        weight = f.number(f.w, (k * channels + c) * taps + tap + layer.weight)
        f.put_number(weight, f.arena(back), back.at(tap, k, c))


def add_grown(f: Kernel, layer: Conv, grown: Buffer) -> None:
    """Add what one image after the other has summed up to the gradient; it becomes 0."""
    (channels, _, _), taps = layer.shape, layer.kernel[0] * layer.kernel[1]
    for first, count, size in tiles(layer.filters, f.lanes):
        with f.loop(0, count) as t, f.loop(0, channels) as c, f.loop(0, taps) as tap:
            for k in (t * size + (first + j) for j in range(size)):
                _move(f, grown, grown.at(tap, c, k), (k * channels + c) * taps + tap + layer.weight)


def add_biases(f: Kernel, layer: Conv, grown_biases: Buffer) -> None:
    """The same of the biases."""
    with f.loop(0, layer.filters) as k:
        _move(f, grown_biases, grown_biases.at(0, 0, k), k + layer.bias)


def _move(f: Kernel, buffer: Buffer, index, place) -> None:
    """Add a number to the gradient at `place`, and set it to 0."""
    f.put_number(f.b.fadd(f.number(f.g, place), f.number(f.arena(buffer), index)), f.g, place)
    f.put_number(f.constant(0.0, f.code.number), f.arena(buffer), index)


# ---------------------------------------------------------------------- one image
def convolve(f: Kernel, layer: Conv, source: Buffer, target: Buffer, winners: Buffer, rows: Buffer,
             ahead: Buffer, biases: Buffer) -> None:  # fmt: skip
    """Convolution, ReLU and pooling: two rows at a time, which are still near when they are pooled."""
    lanes, reach = f.lanes, tuple(k - 1 - p for k, p in zip(layer.kernel, layer.padding, strict=True))
    height, width, filters = target.shape
    for first, count, size in tiles(filters // lanes, 2):
        with f.loop(0, count) as t, f.loop(0, height) as y:
            k = t * (size * lanes) + first * lanes

            def bias(j, k=k):
                return f.get(biases, biases.at(0, 0, k + j * lanes))

            def done(x, j, value, k=k, y=y):
                value = f.rectified(value, value) if layer.relu else value
                f.put(value, target, target.at(y, x, k + j * lanes))

            if not layer.pool:
                _row(f, layer.kernel, reach, source, ahead, (y, width), (k, size), bias, done)
                continue
            with f.loop(0, 2) as dy:

                def aside(x, j, value, k=k, dy=dy):
                    f.put(value, rows, rows.at(dy, x, k + j * lanes))

                _row(f, layer.kernel, reach, source, ahead, (y * 2 + dy, width * 2), (k, size), bias, aside)
            with f.loop(0, width) as x:
                for j in range(size):
                    values = [f.get(rows, rows.at(i // 2, x * 2 + i % 2, k + j * lanes)) for i in range(4)]
                    pool(f, layer, values, (y, x, k + j * lanes), target, winners)


def _row(f: Kernel, kernel: tuple[int, int], reach: tuple[int, int], source: Buffer, weights: Buffer,
         row: tuple, vectors: tuple, start: Callable, done: Callable) -> None:  # fmt: skip
    """Compute some vectors of channels of a row of pixels.

    ``out[y, x] = start + sum_uv source[y + up - u, x + left - v] weights[u, v]``

    Parameters
    ----------
    reach : tuple of int
        up, left.
    row : tuple
        y, and how many x.
    vectors : tuple
        The first channel, how many vectors.
    start : function of (vector)
        What the sums begin with.
    done : function of (x, vector, sum)
        What becomes of them.
    """
    (below, beside, apart), (high, wide), (up, left), channels = source.shape, kernel, reach, weights.shape[1]
    (y, width), (k, size) = row, vectors
    y = y + up
    for begin, count, step, meets in kernels.across(width, left, wide, beside, (f.code.registers - 4) // 2):
        with f.loop(0, count) as tile:
            x = tile * step + begin
            sums = [[Sum(f, start(j)) for j in range(size)] for _ in meets]
            with f.loop(f.most(y - (below - 1), 0), f.least(y + 1, high), empty=True) as u:
                for v in range(wide):
                    near = [p for p, taps in enumerate(meets) if v in taps]
                    if not near:
                        continue
                    with f.loop(0, channels) as c:
                        place, corner = weights.at(u * wide + v, c, k), source.at(u * -1 + y, x + (left - v), c)
                        here = [f.get(weights, place + j * f.lanes) for j in range(size)]
                        for p in near:
                            pixel = f.weight(f.arena(source), corner + p * apart)
                            for j in range(size):
                                sums[p][j].add_product(pixel, here[j])
            for p in range(len(meets)):
                for j in range(size):
                    done(x + p, j, sums[p][j].get())


def spread(f: Kernel, layer: Conv, target: Buffer, winners: Buffer, slopes: Buffer, full: Buffer,
           grown_biases: Buffer) -> None:  # fmt: skip
    """Take derivatives back through pooling and ReLU; those by the biases are their sums."""
    height, width, filters = target.shape
    with f.loop(0, filters, f.lanes) as k:
        total = Sum(f, f.constant(0.0))
        with f.loop(0, height) as y, f.loop(0, width) as x:
            slope = f.get(slopes, slopes.at(y, x, k))
            values, passed = through(f, layer, slope, (y, x, k), target, winners)
            for i, value in enumerate(values):
                f.put(value, full, full.at(y * 2 + i // 2, x * 2 + i % 2, k) if layer.pool else full.at(y, x, k))
            total.add(passed)
        grow(grown_biases, f, k, total.get())


def grow(grown_biases: Buffer, f: Kernel, k, total: ir.Value) -> None:
    """Add to the derivatives by biases."""
    place = grown_biases.at(0, 0, k)
    f.put(f.b.fadd(f.get(grown_biases, place), total), grown_biases, place)


def convolve_weights(f: Kernel, layer: Conv, source: Buffer, full: Buffer, grown: Buffer) -> None:
    """Add the derivatives by a convolution's weights.

    A tile is six input channels times four vectors of filters (two, where there are 16 registers) at one place of
    the kernel, summed over the pixels that this place meets; of fewer channels, as many places of a kernel's row.
    """
    (channels, height, width), (below, beside, filters) = layer.shape, full.shape
    (high, wide), (up, left), lanes = layer.kernel, layer.padding, f.lanes
    together = 4 if f.code.registers > 16 else 2
    with f.loop(0, high) as u:
        # rows of outputs whose input is inside the image
        top, bottom = f.most(u * -1 + up, 0), f.least(u * -1 + (height + up), below)
        for c0, c_tiles, some in tiles(channels, 6):
            for k0, k_tiles, vectors in tiles(filters // lanes, together):
                for taps in _runs(wide, 6 * together // (some * vectors)):
                    with f.when(top, "<", bottom), f.loop(0, c_tiles) as i, f.loop(0, k_tiles) as j:
                        c, k = i * some + c0, j * (vectors * lanes) + k0 * lanes
                        sums = {(v, m): [Sum(f, f.constant(0.0)) for _ in range(vectors)]
                                for v in taps for m in range(some)}  # fmt: skip
                        with f.loop(top, bottom) as y:
                            for first, last, meets in _columns(taps, width, left, beside):
                                with f.loop(first, last) as x:
                                    corner, spot = source.at(y + u - up, x + (-left), c), full.at(y, x, k)
                                    slopes = [f.get(full, spot + n * lanes) for n in range(vectors)]
                                    for v in meets:
                                        for m in range(some):
                                            pixel = f.weight(f.arena(source), corner + (v * source.shape[2] + m))
                                            for total, slope in zip(sums[v, m], slopes, strict=True):
                                                total.add_product(pixel, slope)
                        for (v, m), totals in sums.items():
                            for n, total in enumerate(totals):
                                place = grown.at(u * wide + v, c + m, k + n * lanes)
                                f.put(f.b.fadd(f.get(grown, place), total.get()), grown, place)


def _runs(total: int, most: int) -> list[range]:
    """Cut 0..total into ranges of at most `most`."""
    return [range(first + i * size, first + (i + 1) * size) for first, count, size in tiles(total, most)
            for i in range(count)]  # fmt: skip


def _columns(taps: range, width: int, left: int, beside: int) -> list[tuple[int, int, list[int]]]:
    """Columns of outputs (first, behind the last) and which kernel columns among `taps` meet a pixel there."""
    meets = [[v for v in taps if 0 <= x + v - left < width] for x in range(beside)]
    runs = [(here, len(list(same))) for here, same in groupby(meets)]
    ends = list(accumulate((count for _, count in runs), initial=0))
    return [(first, last, here) for (here, _), (first, last) in zip(runs, pairwise(ends), strict=True) if here]


def convolve_inputs(f: Kernel, layer: Conv, full: Buffer, to: Buffer, back: Buffer) -> None:
    """Derivatives by a convolution's inputs: a convolution of the derivatives by its outputs."""
    height, width, channels = to.shape
    for first, count, size in tiles(channels // f.lanes, 2):
        with f.loop(0, count) as t, f.loop(0, height) as y:
            c = t * (size * f.lanes) + first * f.lanes

            def done(x, j, value, c=c, y=y):
                f.put(value, to, to.at(y, x, c + j * f.lanes))

            _row(f, layer.kernel, layer.padding, full, back, (y, width), (c, size), lambda _: f.constant(0.0), done)
