"""How the kernels are written: one for each thing that a layer does.

Convolutions whose filters all fill whole vectors have kernels of their own, in
:mod:`cflkit.engine.fast.compiled.channels`.

**Layout.** A processor's vector has W lanes (16 single or 8 double numbers with AVX-512, half of that with AVX2)
and does the same to all. The lanes are W images: each number of the network, say channel 3 of pixel (5, 7), is
one vector with a lane for each image, and everything that is usual for one image is written once and done for W.
Images go through in such groups, and the gradients of the groups add up. A :class:`Buffer` is an array (channels,
rows, columns) of vectors at a fixed place; where a convolution pads with zeros, they lie around the image and are
never written. Lanes that are left over repeat the last image and get no derivative.

**Tiling.** A multiplication waits for two numbers from memory, unless they are in registers already; there are 32
(AVX-512) or 16. So a kernel computes a *tile*: for 6 channels of 4 neighbouring pixels it keeps 24 sums in
registers, and then 6 weights and 4 inputs serve 24 multiplications. Each kernel's docstring says what its tile
is.

**Sums in one order.** Every sum has an order that does not depend on W or on the tile: over inputs and weights as
the formula has them; over images four by four (``GROUP``), or one by one. Multiplying and adding is one
instruction with one rounding everywhere. So results are the same bits on every processor that has that
instruction.
"""

from __future__ import annotations  # LLVM's types are named in annotations; the book's pages do without the package

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from cflkit.engine.fast.compiled.writing import I32, Code, Function, Int, Sum
from cflkit.engine.fast.plan import Conv, Dense, Plan, Shape

LINE = 64  # numbers to which the start of a buffer is rounded up


def tiles(total: int, most: int) -> list[tuple[int, int, int]]:
    """Cut `total` into tiles of at most `most`, as equal as can be: (first, how many, size) of each size."""
    count = -(-total // most)
    size, larger = divmod(total, count)
    found = [(0, larger, size + 1), (larger * (size + 1), count - larger, size)]
    return [tile for tile in found if tile[1]]


# ---------------------------------------------------------------------- where numbers lie
@dataclass(frozen=True)
class Buffer:
    """An array (channels, rows, columns) of vectors in one of the two arenas.

    Attributes
    ----------
    kept : bool
        In the arena of what the backward pass needs of the forward pass, or in that of passing things.
    start, lanes : int
        Where it begins; numbers in a vector.
    shape : tuple of int
        Without the padding.
    padding : tuple of int
        Zeros above and below, left and right.
    room : tuple of int, optional
        The shape that there is room for, if only a part is used.
    """

    kept: bool
    start: int
    lanes: int
    shape: Shape
    padding: tuple[int, int] = (0, 0)
    room: Shape | None = None

    @property
    def rows(self) -> int:
        """With the padding."""
        return (self.room or self.shape)[1] + 2 * self.padding[0]

    @property
    def columns(self) -> int:
        """With the padding."""
        return (self.room or self.shape)[2] + 2 * self.padding[1]

    @property
    def size(self) -> int:
        """Numbers in it."""
        return self.shape[0] * self.rows * self.columns * self.lanes

    def at(self, channel, row=0, column=0):
        """Where a vector lies; rows and columns count from the padding's corner."""
        return ((channel * self.rows + row) * self.columns + column) * self.lanes + self.start

    def inside(self, channel, row, column):
        """Where a vector lies; rows and columns count from the image's corner."""
        return self.at(channel, row + self.padding[0], column + self.padding[1])


class Places:
    """Where everything of a plan lies.

    Attributes
    ----------
    values : list of Buffer
        The images, then the outputs of each layer, with the zeros that the next one wants around them.
    winners : list of Buffer or None
        Which of the four pixels of each window is the largest; 4 if none is positive and ReLU follows. Of a mean
        the sum of 1, 2, 4 and 8 for those that ReLU lets through.
    slopes : list of Buffer
        Derivatives of the loss by the values.
    full : list of Buffer or None
        Derivatives by a convolution's outputs before pooling.
    turned : Buffer
        A dense layer's inputs, one image after the other.
    kept, passing : int
        Numbers in each arena, those given at the start included.
    """

    def __init__(self, plan: Plan, lanes: int, kept: int = 0, passing: int = 0):
        self.lanes, self.kept, self.passing = lanes, kept, passing
        layers, flat = plan.layers, (0, 0)
        around = [layer.padding for layer in layers] + [flat]
        shapes = [plan.shape] + [layer.out for layer in layers]
        pooled = [layer.out if isinstance(layer, Conv) and layer.pool else None for layer in layers]
        self.values = [self._room(True, *each) for each in zip(shapes, around, strict=True)]
        self.winners = [shape and self._room(True, shape) for shape in pooled]
        self.slopes = [self._room(False, shape) for shape in shapes]
        self.full = [self._room(False, layer.full) if shape else slope
                     for layer, shape, slope in zip(layers, pooled, self.slopes[1:], strict=True)]  # fmt: skip
        widest = max([layer.inputs for layer in layers if isinstance(layer, Dense)], default=0)
        self.turned = self._room(False, (-(-widest // lanes) * lanes, 1, 1))

    def behind(self, n: int) -> Places:
        """The same without the first `n` layers."""
        rest = copy.copy(self)
        rest.values, rest.winners, rest.slopes, rest.full = (
            each[n:] for each in (self.values, self.winners, self.slopes, self.full))
        return rest

    def _room(self, kept: bool, shape: Shape, padding: tuple[int, int] = (0, 0)) -> Buffer:
        found = Buffer(kept, self.kept if kept else self.passing, self.lanes, shape, padding)
        size = -(-found.size // LINE) * LINE
        self.kept, self.passing = self.kept + kept * size, self.passing + (not kept) * size
        return found


class Kernel(Function):
    """A function of a layer: its arguments are weights, gradient and the two arenas."""

    def __init__(self, code: Code, name: str):
        super().__init__(code, name, "pppp")
        self.w, self.g, self._kept, self._passing = self.arguments

    def moved(self, w: ir.Value, g: ir.Value, kept: ir.Value, passing: ir.Value) -> Kernel:
        """The same function, with its arguments elsewhere."""
        found = copy.copy(self)
        found.w, found.g, found._kept, found._passing = w, g, kept, passing
        return found

    def arena(self, buffer: Buffer) -> ir.Value:
        """Pointer to the arena in which a buffer lies."""
        return self._kept if buffer.kept else self._passing

    def get(self, buffer: Buffer, place, kind: ir.Type | None = None) -> ir.Value:
        """The vector at a place of a buffer."""
        return self.vector(self.arena(buffer), place, kind)

    def put(self, value: ir.Value, buffer: Buffer, place) -> None:
        """Store a vector at a place of a buffer."""
        self.put_vector(value, self.arena(buffer), place)

    def taps(self, n: int) -> Iterator[Int | int]:
        """0 to n - 1: unrolled, so that pixels are shared, where there are registers to keep them; else a loop."""
        if self.code.registers > 16:
            yield from range(n)
        else:
            with self.loop(0, n) as tap:
                yield tap

    def add_products(self, sums: list[list[Sum]], ahead: list[Callable], beside: list[Callable]) -> None:
        """Add the products of all of `ahead` and all of `beside`.

        With few registers the shorter list waits in them. With many `beside` does: the next tap shares some of it.
        """
        if len(beside) < len(ahead) or self.code.registers > 16:
            held = [load() for load in beside]
            for row, load in zip(sums, ahead, strict=True):
                one = load()
                for total, other in zip(row, held, strict=True):
                    total.add_product(one, other)
        else:
            held = [load() for load in ahead]
            for i, load in enumerate(beside):
                other = load()
                for row, one in zip(sums, held, strict=True):
                    row[i].add_product(one, other)


# ---------------------------------------------------------------------- convolutions
def convolve(f: Kernel, layer: Conv, source: Buffer, target: Buffer, winners: Buffer | None) -> None:
    """Convolution, ReLU and pooling.

    A tile is four pixels (the window that is pooled, or four in a row) of as many channels as registers allow. A
    window is pooled while it is in registers: only the largest pixel and which it was are stored.
    """
    (channels, _, _), (filters, _, width) = layer.shape, layer.full
    (high, wide), stride = layer.kernel, 2 if layer.pool else 1
    spare = 6 if f.code.registers > 16 else 4
    for left, columns, across in [(0, target.shape[2], 1)] if layer.pool else tiles(width, 4):
        pixels = [(0, 0), (0, 1), (1, 0), (1, 1)] if layer.pool else [(0, j) for j in range(across)]
        for first, count, size in tiles(filters, (f.code.registers - spare) // len(pixels)):
            with f.loop(0, count) as t, f.loop(0, target.shape[1]) as y, f.loop(0, columns) as at:
                k, x = t * size + first, at * across + left
                sums = []
                for j in range(size):
                    bias = f.weight(f.w, k + (j + layer.bias))
                    sums.append([Sum(f, bias) for _ in pixels])
                with f.loop(0, channels) as c, f.loop(0, high) as u:
                    corner = source.at(c, y * stride + u, x * stride)
                    for v in f.taps(wide):
                        spots = [corner + (v + (dy * source.columns + dx)) * source.lanes for dy, dx in pixels]
                        places = [(((k + j) * channels + c) * high + u) * wide + (v + layer.weight)
                                  for j in range(size)]  # fmt: skip
                        f.add_products(sums, [partial(f.weight, f.w, place) for place in places],
                                       [partial(f.get, source, spot) for spot in spots])  # fmt: skip
                for j in range(size):
                    values = [total.get() for total in sums[j]]
                    if layer.pool:
                        pool(f, layer, values, (k + j, y, x), target, winners)
                        continue
                    for value, (_, dx) in zip(values, pixels, strict=True):
                        value = f.rectified(value, value) if layer.relu else value
                        f.put(value, target, target.inside(k + j, y, x + dx))


def pool(f: Kernel, layer: Conv, values: list, spot: tuple, target: Buffer, winners: Buffer) -> None:
    """Store the largest of four pixels, the first of equals, or one that is not a number; and which it was."""
    if layer.pool == "mean":
        average(f, layer, values, spot, target, winners)
        return
    best, place = values[0], f.constant(0, f.code.places)
    for i, value in enumerate(values[1:], 1):
        larger = f.b.or_(f.b.fcmp_ordered(">", value, best), f.b.fcmp_unordered("uno", value, value))
        best = f.b.select(larger, value, best)
        place = f.b.select(larger, f.constant(i, f.code.places), place)
    if layer.relu:
        dead = f.b.fcmp_ordered("<=", best, f.constant(0.0))
        place = f.b.select(dead, f.constant(4, f.code.places), place)
        best = f.rectified(best, best)
    f.put(best, target, target.inside(*spot))
    f.put(place, winners, winners.at(*spot))


def average(f: Kernel, layer: Conv, values: list, spot: tuple, target: Buffer, passed: Buffer) -> None:
    """Store the mean of four pixels after ReLU, and which of them it lets through."""
    zero, none = f.constant(0.0), f.constant(0, f.code.places)
    bits = [f.constant(1 << i, f.code.places) for i in range(4)]
    if layer.relu:
        bits = [f.b.select(f.b.fcmp_ordered("<=", value, zero), none, bit)
                for value, bit in zip(values, bits, strict=True)]  # fmt: skip
        values = [f.rectified(value, value) for value in values]
    upright = [f.b.fadd(values[i], values[i + 2]) for i in range(2)]
    f.put(f.b.fmul(f.b.fadd(*upright), f.constant(0.25)), target, target.inside(*spot))
    f.put(f.b.or_(f.b.or_(*bits[:2]), f.b.or_(*bits[2:])), passed, passed.at(*spot))


def spread(f: Kernel, layer: Conv, target: Buffer, winners: Buffer | None, slopes: Buffer, full: Buffer) -> None:
    """Take derivatives back through pooling and ReLU; those by the biases are their sums."""
    with f.loop(0, layer.filters) as k:
        total = Sum(f, f.constant(0.0))
        with f.loop(0, layer.out[1]) as y, f.loop(0, layer.out[2]) as x:
            slope = f.get(slopes, slopes.at(k, y, x))
            values, passed = through(f, layer, slope, (k, y, x), target, winners)
            for i, value in enumerate(values):
                f.put(value, full, full.at(k, y * 2 + i // 2, x * 2 + i % 2) if layer.pool else full.at(k, y, x))
            total.add(passed)
        f.add_lanes(f.g, k + layer.bias, [total.get()])


def through(f: Kernel, layer: Conv, slope: ir.Value, spot: tuple, target: Buffer, winners: Buffer | None) -> tuple:
    """Put a derivative where it belongs in a window: the window's four, or one, and what passes through ReLU."""
    zero = f.constant(0.0)
    if layer.pool == "mean":
        passed, none = f.get(winners, winners.at(*spot), f.code.places), f.constant(0, f.code.places)
        bits = [f.b.and_(passed, f.constant(1 << i, f.code.places)) for i in range(4)]
        quarter = f.b.fmul(slope, f.constant(0.25))
        parts = [f.b.select(f.b.icmp_signed("==", bit, none), zero, quarter) for bit in bits]
        return parts, f.b.fadd(f.b.fadd(*parts[:2]), f.b.fadd(*parts[2:]))
    if layer.pool:
        place = f.get(winners, winners.at(*spot), f.code.places)
        here = [f.b.icmp_signed("==", place, f.constant(i, f.code.places)) for i in range(5)]
        return [f.b.select(each, slope, zero) for each in here[:4]], f.b.select(here[4], zero, slope)
    if layer.relu:
        slope = f.rectified(slope, f.get(target, target.inside(*spot)))
    return [slope], slope


def convolve_weights(f: Kernel, layer: Conv, source: Buffer, full: Buffer) -> None:
    """Add the derivatives by a convolution's weights.

    A tile is some places of the kernel times some filters, summed over all pixels of an image in registers.
    """
    (channels, _, _), (filters, height, width) = layer.shape, full.shape
    high, wide = layer.kernel
    taps = [(u, v) for u in range(high) for v in range(wide)]
    registers = f.code.registers
    for begin, count, size in tiles(len(taps), 9 if registers > 16 else 6):
        for tile in range(count):
            here = taps[begin + tile * size :][:size]
            for first, groups, together in tiles(filters, (registers - 1) // (size + 1)):
                with f.loop(0, groups) as t, f.loop(0, channels) as c:
                    k = t * together + first
                    sums = [[Sum(f, f.constant(0.0)) for _ in here] for _ in range(together)]
                    with f.loop(0, height) as y, f.loop(0, width) as x:
                        slopes = [f.get(full, full.at(k + j, y, x)) for j in range(together)]
                        corner = source.at(c, y, x)
                        for i, (u, v) in enumerate(here):
                            pixel = f.get(source, corner + (u * source.columns + v) * source.lanes)
                            for j in range(together):
                                sums[j][i].add_product(slopes[j], pixel)
                    for j in range(together):
                        place = ((k + j) * channels + c) * len(taps) + (begin + tile * size + layer.weight)
                        f.add_lanes(f.g, place, [total.get() for total in sums[j]])


def convolve_inputs(f: Kernel, layer: Conv, full: Buffer, to: Buffer) -> None:
    """Derivatives by a convolution's inputs.

    A tile is some pixels in a row of some channels. Near the border fewer places of the kernel meet an output:
    above and below the loop is shorter, left and right such tiles have code of their own; nothing is done in vain.
    """
    (channels, height, width), (filters, below, beside) = layer.shape, full.shape
    (high, wide), (up, left) = layer.kernel, layer.padding
    empty = height + up - below >= high  # without a row that pooling leaves out, the last inputs may meet none
    # with few registers, two pixels of many channels: what they share is used again at once
    together = 2 if f.code.registers <= 16 and channels > 3 else 4
    sizes = tiles(channels, (f.code.registers - (6 if f.code.registers > 16 else 4)) // together)
    for begin, count, step, meets in across(width, left, wide, beside, together):
        for first, groups, size in sizes:
            with f.loop(0, groups) as t, f.loop(0, height) as y, f.loop(0, count) as tile:
                c, x, row = t * size + first, tile * step + begin, y + up
                sums = [[Sum(f, f.constant(0.0)) for _ in meets] for _ in range(size)]
                with (
                    f.loop(0, filters) as k,
                    f.loop(f.most(row - (below - 1), 0), f.least(row + 1, high), empty=empty) as u,
                ):
                    corner = full.at(k, row - u, x + left)
                    for v in range(wide):
                        near = [p for p, taps in enumerate(meets) if v in taps]
                        places = [((k * channels + (c + j)) * high + u) * wide + (v + layer.weight)
                                  for j in range(size)]  # fmt: skip
                        spots = [corner + (p - v) * full.lanes for p in near]
                        f.add_products([[totals[p] for p in near] for totals in sums],
                                       [partial(f.weight, f.w, place) for place in places],
                                       [partial(f.get, full, spot) for spot in spots])  # fmt: skip
                for j in range(size):
                    for p, total in enumerate(sums[j]):
                        f.put(total.get(), to, to.inside(c + j, y, x + p))


def across(width: int, left: int, wide: int, beside: int, most: int) -> list[tuple[int, int, int, list[range]]]:
    """Cut a row of inputs into tiles: (first pixel, how many, pixels in one, kernel columns each meets)."""
    found: list[tuple[int, int, int, list[range]]] = []
    begin = 0
    for _, count, size in tiles(width, most):
        for _ in range(count):
            columns = range(begin + left, begin + left + size)
            meets = [range(max(0, x - beside + 1), min(x + 1, wide)) for x in columns]
            if found and found[-1][3] == meets:
                found[-1] = (found[-1][0], found[-1][1] + 1, size, meets)
            else:
                found.append((begin, 1, size, meets))
            begin += size
    return found


# ---------------------------------------------------------------------- dense layers
def multiply(f: Kernel, rows: int, inner: int, weight: Callable, start: Callable, value: Callable, done: Callable):
    """``out[r] = start(r) + sum_i weight(r, i) value(i)``; a tile is some rows."""
    for first, count, size in tiles(rows, 13):
        with f.loop(0, count) as t:
            r = t * size + first
            sums = [Sum(f, start(r + j)) for j in range(size)]
            with f.loop(0, inner) as i:
                vector = value(i)
                for j in range(size):
                    sums[j].add_product(weight(r + j, i), vector)
            for j in range(size):
                done(r + j, sums[j].get())


def dense(f: Kernel, layer: Dense, source: Buffer, target: Buffer) -> None:
    """Outputs of a dense layer, with ReLU."""

    def done(o, value):
        f.put(f.rectified(value, value) if layer.relu else value, target, target.at(o))

    multiply(f, layer.outputs, layer.inputs, lambda o, i: f.weight(f.w, o * layer.inputs + i + layer.weight),
             lambda o: f.weight(f.w, o + layer.bias), lambda i: f.get(source, i * source.lanes + source.start),
             done)  # fmt: skip


def rectify(f: Kernel, layer: Dense, target: Buffer, slopes: Buffer) -> None:
    """Take derivatives back through ReLU; those by the biases are their sums."""
    with f.loop(0, layer.outputs) as o:
        slope = f.get(slopes, slopes.at(o))
        if layer.relu:
            slope = f.rectified(slope, f.get(target, target.at(o)))
            f.put(slope, slopes, slopes.at(o))
        f.add_lanes(f.g, o + layer.bias, [slope])


def dense_weights(f: Kernel, layer: Dense, source: Buffer, slopes: Buffer, turned: Buffer) -> None:
    """Add the derivatives by a dense layer's weights.

    Here the lanes are inputs, not images: the inputs are turned around first, and then the images are added up one
    by one. A tile is some vectors of inputs times some outputs.
    """
    lanes, inputs = f.lanes, layer.inputs
    length = -(-inputs // lanes) * lanes
    whole, rest = divmod(inputs, lanes)
    if whole:
        with f.loop(0, whole * lanes, lanes) as i:
            square = f.turned([f.get(source, (i + j) * lanes + source.start) for j in range(lanes)])
            for n, vector in enumerate(square):
                f.put(vector, turned, i + (n * length + turned.start))
    for i in range(whole * lanes, inputs):
        for n in range(lanes):
            value = f.number(f.arena(source), i * lanes + (n + source.start))
            f.put_number(value, f.arena(turned), i + (n * length + turned.start))
    parts = [(first * lanes, count, size, lanes) for first, count, size in (tiles(whole, 4) if whole else [])]
    for begin, many, vectors, valid in parts + ([(inputs - rest, 1, 1, rest)] if rest else []):
        for first, count, size in tiles(layer.outputs, 4 if f.code.registers > 16 else 2):
            with f.loop(0, count) as t, f.loop(0, many) as tile:
                o, i = t * size + first, tile * (vectors * lanes) + begin
                places = [[(o + j) * inputs + i + (m * lanes + layer.weight) for m in range(vectors)]
                          for j in range(size)]  # fmt: skip
                sums = [[Sum(f, _some(f, place, valid)) for place in row] for row in places]
                with f.loop(0, lanes) as n:
                    values = [f.get(turned, n * length + i + (m * lanes + turned.start)) for m in range(vectors)]
                    for j in range(size):
                        slope = f.weight(f.arena(slopes), (o + j) * lanes + n + slopes.start)
                        for m in range(vectors):
                            sums[j][m].add_product(slope, values[m])
                for row, here in zip(sums, places, strict=True):
                    for total, place in zip(row, here, strict=True):
                        _put_some(f, total.get(), place, valid)


def _some(f: Kernel, place, valid: int) -> ir.Value:
    """The first `valid` lanes of a vector of the gradient; nothing beyond it is touched."""
    if valid == f.lanes:
        return f.vector(f.g, place, loose=True)
    vector = f.constant(0.0)
    for lane in range(valid):
        vector = f.b.insert_element(vector, f.number(f.g, place + lane), ir.Constant(I32, lane))
    return vector


def _put_some(f: Kernel, vector: ir.Value, place, valid: int) -> None:
    if valid == f.lanes:
        f.put_vector(vector, f.g, place, loose=True)
        return
    for lane in range(valid):
        f.put_number(f.b.extract_element(vector, ir.Constant(I32, lane)), f.g, place + lane)


def dense_inputs(f: Kernel, layer: Dense, slopes: Buffer, to: Buffer) -> None:
    """Derivatives by a dense layer's inputs."""
    multiply(f, layer.inputs, layer.outputs, lambda i, o: f.weight(f.w, o * layer.inputs + i + layer.weight),
             lambda i: f.constant(0.0), lambda o: f.get(slopes, slopes.at(o)),
             lambda i, value: f.put(value, to, i * to.lanes + to.start))  # fmt: skip
