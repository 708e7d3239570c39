r"""Convolutions with fewer multiplications.

**Idea.** Four neighbouring outputs of a kernel of five numbers are 4 x 5 = 20 products. Eight do (Toom 1963, Cook
1966, Winograd 1980; for networks Lavin and Gray 2016). Let m outputs in a row, a *tile*, meet N = m + r - 1 inputs
through a kernel g (r,). Take N points, the last one infinite. The kernel is read as a polynomial, evaluated there,
and divided by what interpolation divides by: G g. Derivatives by the outputs are evaluated, too: A dy. Inputs d
(N,) go through the transposed interpolation: B d. Then

.. math:: y = A^\top (G g \odot B d), \qquad
          \delta d = B^\top (G g \odot A\, \delta y), \qquad
          \delta g = G^\top (B d \odot A\, \delta y).

These changes cost little. A kernel's is done once a batch, an input's once for all filters, an output's once for
all channels. Four outputs are a limit: with eight points rounding errors are about three times those of the plain
sums, with nine about ten times.

**A short tile.** Where m does not divide a row, its last tile has q < m outputs, and q + r - 1 products will do:
those of the first q + r - 2 points and of the infinite one. Its inputs are multiplied by what the kernel was
divided by for the points that are left out.

**Planes.** Tiles lie along rows. The n-th products of all tiles make an image of their own, the n-th *plane*: as
high as before, m times narrower, and one column less where the last tile leaves its point out. Between two changes
each plane goes through a convolution whose kernel is one column wide. For that there are kernels already, with
images in the lanes (:mod:`.kernels`) and with channels (:mod:`.channels`). With images in the lanes, a few rows at
a time are convolved and changed back, so that they stay near. Not on the way back: derivatives by weights are added
up over images, and their order would depend on how many images a vector has.

**What is not finite** spreads too far: infinity becomes NaN, in a whole tile. So :mod:`.library` computes results
that are not finite again, without all this.
"""

from __future__ import annotations  # LLVM's types are named in annotations; the book's pages do without the package

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from itertools import groupby
from math import prod

from llvmlite import ir

from cflkit.engine.fast.compiled import channels, kernels
from cflkit.engine.fast.compiled.kernels import LINE, Buffer, Kernel, pool, through, tiles
from cflkit.engine.fast.compiled.writing import Function, Sum
from cflkit.engine.fast.plan import Conv

POINTS = tuple(map(Fraction, ("0", "1", "-1", "1/2", "-1/2", "2", "-2")))  # the last point is infinite
ONE = 1  # where the point 1 stands: a constant in its plane is added to every output
NEAR = 1024  # vectors of outputs that a band of rows has in all planes, on the way ahead
# By how many numbers two planes are apart, beyond whole pages. A cache keeps few lines of the same place in a page,
# and each tile has a line in every plane.
PAGE, OFFSET = 1024, 128
Matrix = tuple[tuple[Fraction, ...], ...]


# ---------------------------------------------------------------------- the matrices
@cache
def matrices(m: int, r: int) -> tuple[Matrix, Matrix, Matrix]:
    """A (N, m), G (N, r) and B (N, N) for m outputs of a kernel of r numbers, N = m + r - 1."""
    points = [Fraction(p) for p in POINTS[: m + r - 2]]
    others = [[q for q in points if q != p] for p in points]

    def powers(count: int) -> list[list[Fraction]]:
        return [[p**j for j in range(count)] for p in points] + [[Fraction(0)] * (count - 1) + [Fraction(1)]]

    norms = [prod(p - q for q in rest) for p, rest in zip(points, others, strict=True)] + [Fraction(1)]
    a, g = powers(m), [[x / norm for x in row] for row, norm in zip(powers(r), norms, strict=True)]
    b = [_with_roots(rest, m + r - 1) for rest in [*others, points]]
    return tuple(tuple(map(tuple, each)) for each in (a, g, b))


@dataclass(frozen=True)
class Tile:
    """How some neighbouring outputs in a row are computed.

    Attributes
    ----------
    size : int
        How many outputs.
    reads : int
        How many inputs.
    numbers : tuple of int
        Of the planes that have its products.
    a, b : tuple of tuples
        A (n, size) and B (n, reads), a row for each of these n planes.
    """

    size: int
    reads: int
    numbers: tuple[int, ...]
    a: Matrix
    b: Matrix


@cache
def tile_of(size: int, m: int, r: int) -> Tile:
    """A tile of `size` outputs among those of m, with the same changed kernel."""
    a, _, b = matrices(size, r)
    last, few = m + r - 2, size + r - 2
    spared = POINTS[few:last]
    factors = [prod((p - q for q in spared), start=Fraction(1)) for p in POINTS[:few]] + [Fraction(1)]
    scaled = tuple(tuple(factor * x for x in row) for factor, row in zip(factors, b, strict=True))
    return Tile(size, size + r - 1, (*range(few), last), a, scaled)


def _with_roots(roots: list[Fraction], length: int) -> list[Fraction]:
    """Coefficients of the product of all (x - root), the constant first."""
    found = [Fraction(1)] + [Fraction(0)] * (length - 1)
    for root in roots:
        found = [before - root * here for before, here in zip([Fraction(0), *found], found, strict=False)]
    return found


def linear(f: Function, coefficients: Sequence[Fraction], values: Sequence[ir.Value | None]) -> ir.Value | None:
    """Write the sum of coefficients times values, from the first to the last; None stands for 0."""
    total = None
    for factor, value in zip(coefficients, values, strict=True):
        if not factor or value is None:
            continue
        if total is None and factor == 1:
            total = value
        elif total is None:
            total = f.b.fmul(f.constant(float(factor), value.type), value)
        elif abs(factor) == 1:
            total = (f.b.fadd if factor > 0 else f.b.fsub)(total, value)
        else:
            total = f.fma(f.constant(float(factor), value.type), value, total)
    return total


def _halves(matrix: Matrix, i: int) -> tuple[list[Fraction], list[Fraction]] | None:
    """Split row i into what the next row has as well and what it has with the other sign, if that is all."""
    if i + 1 >= len(matrix) or any(abs(x) != abs(y) for x, y in zip(matrix[i], matrix[i + 1], strict=True)):
        return None
    rows = list(zip(matrix[i], matrix[i + 1], strict=True))
    return [x if x == y else Fraction(0) for x, y in rows], [x if x != y else Fraction(0) for x, y in rows]


def changed(f: Function, matrix: Matrix, values: Sequence[ir.Value | None]) -> list[ir.Value | None]:
    """Write matrix times values; rows of opposite points share what they have in common."""
    found: list[ir.Value | None] = []
    while len(found) < len(matrix):
        halves = _halves(matrix, len(found))
        if halves is None:
            found.append(linear(f, matrix[len(found)], values))
            continue
        both = [linear(f, half, values) for half in halves]
        found += [linear(f, (Fraction(1), Fraction(sign)), both) for sign in (1, -1)]
    return found


def changed_back(f: Function, matrix: Matrix, values: Sequence[ir.Value]) -> list[ir.Value | None]:
    """Write the transposed matrix times values."""
    rows: list[Sequence[Fraction]] = []
    parts: list[ir.Value | None] = []
    while len(parts) < len(matrix):
        i = len(parts)
        halves = _halves(matrix, i)
        rows += halves or [matrix[i]]
        parts += [linear(f, (Fraction(1), Fraction(sign)), values[i : i + 2]) for sign in (1, -1)] if halves \
            else [values[i]]  # fmt: skip
    return [linear(f, column, parts) for column in zip(*rows, strict=True)]


# ---------------------------------------------------------------------- where numbers lie
@dataclass(frozen=True)
class Grid:
    """An array of vectors by channel, row and column, wherever its channels stand.

    Attributes
    ----------
    buffer : Buffer
        (channels, rows, columns) with images in the lanes; (rows, columns, channels) with channels in them.
    last : bool
        Whether the channels are last.
    lanes : int
        Channels in a vector.
    """

    buffer: Buffer
    last: bool
    lanes: int

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.buffer.shape[:2] if self.last else self.buffer.shape[1:]

    @property
    def channels(self) -> tuple[int, int, int]:
        """What to loop over."""
        return (0, self.buffer.shape[2], self.lanes) if self.last else (0, self.buffer.shape[0], 1)

    def part(self, columns: int) -> Grid:
        """The first columns of each row."""
        whole = self.buffer.shape
        shape = (whole[0], columns, whole[2]) if self.last else (whole[0], whole[1], columns)
        return replace(self, buffer=replace(self.buffer, shape=shape, room=whole))

    def spot(self, c, y, x) -> tuple:
        """Channel, row and column in the buffer's order."""
        return (y, x, c) if self.last else (c, y, x)

    def place(self, c, y, x):
        """Where a vector lies."""
        return self.buffer.inside(*self.spot(c, y, x))


class Planes:
    """Where the planes of a layer lie, one after the other, in the arena of passing things.

    Attributes
    ----------
    layer : Conv
        The convolution that is done in each plane.
    many, apart : int
        How many planes; numbers from one to the next.
    tiles : list of Tile
        Those of a row.
    inputs : Grid
        Inputs; later, in the same place, derivatives by them.
    outputs : Grid
        Outputs, or derivatives by them; without a row or column that pooling leaves out.
    weights, grown : Buffer
        Changed weights, and derivatives by them.
    end : int
        The first number behind them.
    """

    last: bool  # whether channels are last, and in the lanes

    def __init__(self, layer: Conv, lanes: int, start: int):
        self.lanes, self.end = lanes, start
        (c, height, _), k, size = layer.shape, layer.filters, 2 if layer.pool else 1
        rows, width, (high, wide) = layer.out[1] * size, layer.out[2] * size, layer.kernel
        across = -(-width // layer.tile)
        self.many = layer.tile + wide - 1
        self.tiles = [tile_of(min(layer.tile, width - t * layer.tile), layer.tile, wide) for t in range(across)]
        self.layer = Conv((c, height, across), k, (high, 1), (layer.padding[0], 0), 0, 0)
        self.inputs = self.grid(self._room((c, height, across), self.layer.padding))
        self.outputs = self.grid(self._room((k, rows, across)))
        self._make()
        self.apart = self.end - start + (OFFSET - self.end + start) % PAGE
        self.end = start + self.many * self.apart

    def grid(self, buffer: Buffer) -> Grid:
        """A buffer as a grid."""
        return Grid(buffer, self.last, self.lanes)

    def _room(self, shape: tuple[int, int, int], padding: tuple[int, int] = (0, 0), single: bool = False) -> Buffer:
        """Room for vectors by (channel, row, column), or for single numbers in the order given."""
        if self.last and not single:
            (c, height, across), padding = shape, (0, 0)
            shape = height, across, -(-c // self.lanes) * self.lanes
        found = Buffer(False, self.end, 1 if self.last or single else self.lanes, shape, padding)
        self.end += -(-found.size // LINE) * LINE
        return found

    @property
    def seen(self) -> Buffer:
        """A plane's inputs, which :func:`each_plane` finds elsewhere than the rest."""
        return replace(self.inputs.buffer, kept=True)

    def part(self, columns: int) -> Planes:
        """The same planes, of which only so many columns are used."""
        found, (c, height, _) = copy.copy(self), self.layer.shape
        found.layer = replace(self.layer, shape=(c, height, columns))
        found.inputs, found.outputs = self.inputs.part(columns), self.outputs.part(columns)
        return found

    def band(self, layer: Conv) -> tuple[int, Planes]:
        """Cut the outputs into bands of rows of at most `NEAR` vectors, if it can be: how many; planes for one."""
        return 1, self


class ByImages(Planes):
    """Images in the lanes. Weights and derivatives by them are in the model's order; biases lie behind weights."""

    last = False

    def _make(self) -> None:
        k, (c, _, _), high = self.layer.filters, self.layer.shape, self.layer.kernel[0]
        self.weights, self.grown = (self._room((1, 1, k * c * high + k), single=True) for _ in range(2))
        self.layer = replace(self.layer, weight=self.weights.start, bias=self.weights.start + k * c * high)

    def band(self, layer: Conv) -> tuple[int, Planes]:
        """Rows that divide the height, whole windows of them."""
        (k, rows, across), size = self.outputs.buffer.shape, 2 if layer.pool else 1
        fitting = [n for n in range(size, rows + 1, size) if rows % n == 0 and n * k * across * self.many <= NEAR]
        each, found = max(fitting, default=size), copy.copy(self)
        found.outputs = self.grid(replace(self.outputs.buffer, shape=(k, each, across)))
        return rows // each, found

    def convolve(self, f: Kernel) -> None:
        """A plane's outputs."""
        kernels.convolve(f, self.layer, self.seen, self.outputs.buffer, None)

    def by_weights(self, f: Kernel) -> None:
        """A plane's derivatives by weights."""
        layer = replace(self.layer, weight=self.grown.start)
        kernels.convolve_weights(f, layer, self.seen, self.outputs.buffer)

    def by_inputs(self, f: Kernel) -> None:
        """A plane's derivatives by inputs."""
        kernels.convolve_inputs(f, self.layer, self.outputs.buffer, self.inputs.buffer)

    def place(self, buffer: Buffer, k, c, u):
        """Where a weight lies in a plane."""
        return (k * self.layer.shape[0] + c) * self.layer.kernel[0] + u + buffer.start

    def pack_ahead(self, f: Kernel, layer: Conv) -> None:
        """Change weights, for both ways, and biases."""
        pack(f, layer, self, lambda *at: self.place(self.weights, *at), lambda k: k + self.layer.bias)

    def finish(self, f: Kernel, layer: Conv) -> None:
        """Change derivatives by weights back."""
        add_grown(f, layer, self, lambda *at: self.place(self.grown, *at))


class ByChannels(Planes):
    """Channels in the lanes. Weights lie as (place, channel, filter) ahead and as (place, filter, channel) back."""

    last = True

    def _make(self) -> None:
        k, (c, _, _), high, lanes = self.layer.filters, self.layer.shape, self.layer.kernel[0], self.lanes
        ahead, back = (high, c, -(-k // lanes) * lanes), (high, k, -(-c // lanes) * lanes)
        self.weights, self.grown, self.back = (self._room(shape, single=True) for shape in (ahead, ahead, back))
        self.biases = self._room((1, 1, ahead[2]), single=True)

    def convolve(self, f: Kernel) -> None:
        """A plane's outputs."""
        outputs = self.outputs.buffer
        channels.convolve(f, self.layer, self.seen, outputs, None, None, self.weights, self.biases)

    def by_weights(self, f: Kernel) -> None:
        """A plane's derivatives by weights."""
        channels.convolve_weights(f, self.layer, self.seen, self.outputs.buffer, self.grown)

    def by_inputs(self, f: Kernel) -> None:
        """A plane's derivatives by inputs."""
        channels.convolve_inputs(f, self.layer, self.outputs.buffer, self.inputs.buffer, self.back)

    def pack_ahead(self, f: Kernel, layer: Conv) -> None:
        """Change weights, the last place of the kernel first, and biases."""
        last = layer.kernel[0] - 1
        pack(f, layer, self, lambda k, c, u: self.weights.at(u * -1 + last, c, k), partial(self.biases.at, 0, 0))

    def pack_back(self, f: Kernel, layer: Conv) -> None:
        """Change weights for the way back."""
        pack(f, layer, self, lambda k, c, u: self.back.at(u, k, c))

    def finish(self, f: Kernel, layer: Conv) -> None:
        """Change derivatives by weights back."""
        add_grown(f, layer, self, lambda k, c, u: self.grown.at(u, c, k))


# ---------------------------------------------------------------------- there and back
def runs(planes: Planes, left: int, width: int, inputs: bool = False) -> list[tuple[int, int, list[int], Tile]]:
    """Equal tiles of a row: first, behind the last, which columns of each lie inside a row of `width`, the tile.

    The columns of its outputs, or those of its `inputs`. The first tile begins `left` of the row.
    """
    def kind(t: int) -> tuple[list[int], Tile]:
        tile, begin = planes.tiles[t], t * planes.tiles[0].size - left
        return [j for j in range(tile.reads if inputs else tile.size) if 0 <= begin + j < width], tile

    found = []
    for (valid, tile), same in groupby(range(len(planes.tiles)), key=kind):
        ts = list(same)
        found.append((ts[0], ts[-1] + 1, valid, tile))
    return found


def _get(f: Kernel, planes: Planes, tile: Tile, source: Grid, spot: tuple) -> list[ir.Value]:
    """A tile's numbers in its planes."""
    place = source.place(*spot)
    return [f.get(source.buffer, place + n * planes.apart) for n in tile.numbers]


def _put(f: Kernel, planes: Planes, tile: Tile, values: list[ir.Value | None], to: Grid, spot: tuple) -> None:
    place = to.place(*spot)
    for n, value in zip(tile.numbers, values, strict=True):
        f.put(f.constant(0.0) if value is None else value, to.buffer, place + n * planes.apart)


def join_outputs(f: Kernel, layer: Conv, planes: Planes, target: Grid, winners: Buffer | None, above) -> None:
    """Change planes into outputs, by A; then ReLU and pooling. `above` says how many rows are done already."""
    source, size = planes.outputs, 2 if layer.pool else 1
    with f.loop(*target.channels) as k, f.loop(0, source.sides[0] // size) as row:
        y = row + above
        for first, last, valid, tile in runs(planes, 0, target.sides[1] * size):
            with f.loop(first, last) as t:
                pixels = [changed_back(f, tile.a, _get(f, planes, tile, source, (k, row * size + i, t)))
                          for i in range(size)]  # fmt: skip
                for j in valid[::size]:
                    x = t * (layer.tile // size) + j // size
                    if layer.pool:
                        window = [values[i] for values in pixels for i in (j, j + 1)]
                        pool(f, layer, window, target.spot(k, y, x), target.buffer, winners)
                        continue
                    value = f.rectified(pixels[0][j], pixels[0][j]) if layer.relu else pixels[0][j]
                    f.put(value, target.buffer, target.place(k, y, x))


def spread(f: Kernel, layer: Conv, planes: Planes, target: Grid, winners: Buffer | None, slopes: Grid,
           biases: Callable) -> None:  # fmt: skip
    """Take derivatives back through pooling and ReLU and change them into planes, by A.

    ``biases(f, filter, sum)`` takes the sum of those that passed.
    """
    to, size = planes.outputs, 2 if layer.pool else 1
    with f.loop(*slopes.channels) as k:
        total = Sum(f, f.constant(0.0))
        with f.loop(0, to.sides[0] // size) as y:
            for first, last, valid, tile in runs(planes, 0, slopes.sides[1] * size):
                with f.loop(first, last) as t:
                    pixels: list[list[ir.Value | None]] = [[None] * tile.size for _ in range(size)]
                    for j in valid[::size]:
                        spot = target.spot(k, y, t * (layer.tile // size) + j // size)
                        slope = f.get(slopes.buffer, slopes.buffer.at(*spot))
                        values, passed = through(f, layer, slope, spot, target.buffer, winners)
                        total.add(passed)
                        for i, value in enumerate(values):
                            pixels[i // 2][j + i % 2] = value
                    for i, values in enumerate(pixels):
                        _put(f, planes, tile, changed(f, tile.a, values), to, (k, y * size + i, t))
        biases(f, k, total.get())


def join_inputs(f: Kernel, layer: Conv, planes: Planes, to: Grid) -> None:
    """Change planes into derivatives by inputs, by B; where tiles overlap, they add up."""
    source, left, beyond, (rows, width) = planes.inputs, layer.padding[1], layer.kernel[1] - 1, to.sides
    with f.loop(*to.channels) as c, f.loop(0, rows) as y:
        begun = [Sum(f, f.constant(0.0)) for _ in range(beyond)]  # columns that the next tiles add to
        for first, last, valid, tile in runs(planes, left, width):
            with f.loop(first, last) as t:
                found = changed_back(f, tile.b, _get(f, planes, tile, source, (c, y, t)))
                found[:beyond] = [f.b.fadd(before.get(), value)
                                  for before, value in zip(begun, found, strict=False)]  # fmt: skip
                for j in valid:
                    f.put(found[j], to.buffer, to.place(c, y, t * layer.tile - left + j))
                for before, value in zip(begun, found[tile.size :], strict=True):
                    before.set(value)
        end = sum(tile.size for tile in planes.tiles) - left
        for x in range(max(end, 0), width):  # what no tile met stays 0
            f.put(begun[x - end].get() if x - end < beyond else f.constant(0.0), to.buffer, to.place(c, y, x))


def each_plane(f: Kernel, planes: Planes, above=0) -> Iterator[tuple[Planes, Kernel]]:
    """Write a loop over all planes: what one has, and the function as it is called there.

    Weights, gradient and passing things are that plane's. The inputs count as kept; they are found `above` rows
    further below.
    """
    inputs, last, columns = planes.inputs.buffer, planes.many - 1, len(planes.tiles)
    few = len(planes.tiles[-1].numbers) - 1  # the last tile has products in so many planes, and in the last one

    def inside(n) -> Kernel:
        mine, seen = (f.at(f.arena(inputs), n * planes.apart + rows * (inputs.columns * inputs.lanes))
                      for rows in (0, above))  # fmt: skip
        return f.moved(mine, mine, seen, mine)

    with f.loop(0, few + 1) as i:
        yield planes, inside(f.choose(i, "<", few, i, last))
    if few < last and columns > 1:
        with f.loop(few, last) as n:
            yield planes.part(columns - 1), inside(n)


# ---------------------------------------------------------------------- a layer
def split(f: Kernel, layer: Conv, planes: Planes, source: Grid) -> None:
    """Change inputs into planes, by B."""
    rows, width = source.sides
    with f.loop(*source.channels) as c, f.loop(0, rows) as y:
        for first, last, valid, tile in runs(planes, layer.padding[1], width, inputs=True):
            with f.loop(first, last) as t:
                x = t * layer.tile - layer.padding[1]
                values = [f.get(source.buffer, source.place(c, y, x + j)) if j in valid else None
                          for j in range(tile.reads)]  # fmt: skip
                _put(f, planes, tile, changed(f, tile.b, values), planes.inputs, (c, y, t))


def convolve(f: Kernel, layer: Conv, planes: Planes, target: Grid, winners: Buffer | None) -> None:
    """Convolution of inputs that are in planes, ReLU and pooling."""
    count, band = planes.band(layer)
    rows = band.outputs.sides[0]
    with f.loop(0, count) as i:
        for plane, inside in each_plane(f, band, above=i * rows):
            plane.convolve(inside)
        join_outputs(f, layer, band, target, winners, i * (rows // (2 if layer.pool else 1)))


def convolve_weights(f: Kernel, planes: Planes) -> None:
    """Derivatives by weights, where inputs and derivatives by outputs are in planes."""
    for plane, inside in each_plane(f, planes):
        plane.by_weights(inside)


def convolve_inputs(f: Kernel, layer: Conv, planes: Planes, to: Grid) -> None:
    """Derivatives by inputs, where those by outputs are in planes; there they take the inputs' place."""
    for plane, inside in each_plane(f, planes):
        plane.by_inputs(inside)
    join_inputs(f, layer, planes, to)


# ---------------------------------------------------------------------- weights
def _each_row(f: Kernel, layer: Conv, do: Callable, by_channel: bool = False) -> None:
    """Call ``do(filter, channel, kernel row, where the row's weights begin)``, with neighbouring filters in turn.

    Or with neighbouring channels: what is neighbouring is stored side by side.
    """
    (c, _, _), (high, wide) = layer.shape, layer.kernel

    def call(k, channel, u) -> None:
        do(k, channel, u, ((k * c + channel) * high + u) * wide + layer.weight)

    if by_channel:
        with f.loop(0, layer.filters) as k, f.loop(0, high) as u, f.loop(0, c) as channel:
            call(k, channel, u)
        return
    for first, count, size in tiles(layer.filters, f.lanes):
        with f.loop(0, count) as t, f.loop(0, c) as channel, f.loop(0, high) as u, f.loop(0, size) as j:
            call(t * size + first + j, channel, u)


def pack(f: Kernel, layer: Conv, planes: Planes, place: Callable, bias: Callable | None = None) -> None:
    """Change the weights by G.

    ``place(filter, channel, kernel row)`` says where in a plane a weight goes, ``bias(filter)`` where a bias, which
    is in one plane only.
    """
    matrix, passing = matrices(layer.tile, layer.kernel[1])[1], f.arena(planes.weights)

    def change(k, c, u, at) -> None:
        values = changed(f, matrix, [f.number(f.w, at + v) for v in range(layer.kernel[1])])
        for n, value in enumerate(values):
            f.put_number(value, passing, place(k, c, u) + n * planes.apart)

    _each_row(f, layer, change, by_channel=bias is None)
    if bias:
        with f.loop(0, layer.filters) as k:
            f.put_number(f.number(f.w, k + layer.bias), passing, bias(k) + ONE * planes.apart)


def add_grown(f: Kernel, layer: Conv, planes: Planes, place: Callable) -> None:
    """Change derivatives by the changed weights, by G, and add them to the gradient; they become 0."""
    matrix, passing = matrices(layer.tile, layer.kernel[1])[1], f.arena(planes.grown)

    def change(k, c, u, at) -> None:
        places = [place(k, c, u) + n * planes.apart for n in range(planes.many)]
        for v, value in enumerate(changed_back(f, matrix, [f.number(passing, here) for here in places])):
            f.put_number(f.b.fadd(f.number(f.g, at + v), value), f.g, at + v)
        for here in places:
            f.put_number(f.constant(0.0, f.code.number), passing, here)

    _each_row(f, layer, change)
