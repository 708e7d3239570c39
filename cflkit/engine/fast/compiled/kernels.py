"""How the kernels are written.

**LLVM in four sentences.** LLVM is a compiler without a language: one hands it simple instructions ("load a
vector", "multiply and add") and it makes machine code. The instructions are written here by Python. A Python
``for`` writes its body again and again (the code is *unrolled*), ``with f.loop(...)`` writes it once, between two
jumps. What a Python variable holds is the name of a number that will exist when the code runs.

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

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import ir

from cflkit.engine.fast.compiled.plan import Conv, Dense, Plan, Shape

GROUP = 4  # images whose derivatives are added up first; no vector has fewer lanes
LINE = 64  # numbers to which the start of a buffer is rounded up
I32, I64, POINTER = ir.IntType(32), ir.IntType(64), ir.PointerType()


# ---------------------------------------------------------------------- writing instructions
class Int:
    """A whole number that is known when the code runs, with + - *."""

    def __init__(self, f: Function, value: ir.Value):
        self.f, self.value = f, value

    def _with(self, other: Int | int, operation: Callable) -> Int:
        return Int(self.f, operation(self.value, self.f.whole(other)))

    def __add__(self, other: Int | int) -> Int:
        return self if isinstance(other, int) and other == 0 else self._with(other, self.f.b.add)

    def __sub__(self, other: Int | int) -> Int:
        return self._with(other, self.f.b.sub)

    def __mul__(self, other: Int | int) -> Int | int:
        if isinstance(other, int) and other in (0, 1):
            return self if other else 0
        return self._with(other, self.f.b.mul)

    __radd__, __rmul__ = __add__, __mul__


class Sum:
    """A vector that grows: LLVM keeps it in a register while loops run."""

    def __init__(self, f: Function, value: ir.Value):
        self.f, self.type = f, value.type
        self.place = ir.IRBuilder(f.top).alloca(value.type)
        self.set(value)

    def get(self) -> ir.Value:
        """The vector as it is now."""
        return self.f.b.load(self.place, typ=self.type)

    def set(self, value: ir.Value) -> None:
        """Replace it."""
        self.f.b.store(value, self.place)

    def add(self, value: ir.Value) -> None:
        """Add a vector."""
        self.set(self.f.b.fadd(self.get(), value))

    def add_product(self, a: ir.Value, b: ir.Value) -> None:
        """Add the product of two vectors."""
        self.set(self.f.fma(a, b, self.get()))


class Code:
    """A module of functions for one kind of number and one width of vectors.

    Parameters
    ----------
    triple : str
        LLVM's name of the kind of machine.
    size : {4, 8}
        Bytes of a number.
    lanes, registers : int
        Numbers in a vector, vectors in registers.
    """

    def __init__(self, triple: str, size: int, lanes: int, registers: int):
        self.module = ir.Module("network")
        self.module.triple = triple
        self.size, self.lanes, self.registers = size, lanes, registers
        self.number = ir.FloatType() if size == 4 else ir.DoubleType()
        self.vector = ir.VectorType(self.number, lanes)
        self.places = ir.VectorType(ir.IntType(8 * size), lanes)  # which pixel of a window won
        self._intrinsics: dict[str, ir.Function] = {}

    def intrinsic(self, name: str, kind: ir.Type, arguments: int) -> ir.Function:
        """One of LLVM's own functions, for numbers or vectors."""
        width = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
        name = f"{name}.{width}f{8 * self.size}"
        if name not in self._intrinsics:
            self._intrinsics[name] = ir.Function(self.module, ir.FunctionType(kind, [kind] * arguments), name)
        return self._intrinsics[name]


class Function:
    """A function that is being written.

    Parameters
    ----------
    code : Code
        The module it joins.
    name : str
        How it is called from outside.
    kinds : str
        A letter for each argument: a pointer "p", a whole number "i", a number "r".
    """

    def __init__(self, code: Code, name: str, kinds: str):
        self.code, self.lanes = code, code.lanes
        types = [{"p": POINTER, "i": I64, "r": code.number}[kind] for kind in kinds]
        self.made = ir.Function(code.module, ir.FunctionType(ir.VoidType(), types), name)
        self.top = self.made.append_basic_block()  # where room for the sums is reserved
        self._first = self.made.append_basic_block()
        self.b = ir.IRBuilder(self._first)
        self.arguments = [Int(self, a) if k == "i" else a for a, k in zip(self.made.args, kinds, strict=True)]

    def end(self) -> Function:
        """Close the function."""
        self.b.ret_void()
        ir.IRBuilder(self.top).branch(self._first)
        return self

    def call(self, other: Function, *arguments) -> None:
        """Call another function of the module."""
        self.b.call(other.made, [self.whole(a) for a in arguments])

    # ------------------------------------------------------------------ whole numbers and jumps
    def whole(self, value):
        """LLVM's value of a whole number; other values as they are."""
        if isinstance(value, Int):
            return value.value
        return ir.Constant(I64, value) if isinstance(value, int) else value

    def least(self, a, b) -> Int:
        """The smaller of two whole numbers."""
        a, b = self.whole(a), self.whole(b)
        return Int(self, self.b.select(self.b.icmp_signed("<", a, b), a, b))

    def most(self, a, b) -> Int:
        """The larger of two whole numbers."""
        a, b = self.whole(a), self.whole(b)
        return Int(self, self.b.select(self.b.icmp_signed(">", a, b), a, b))

    @contextmanager
    def loop(self, start, stop, step: int = 1) -> Iterator[Int | int]:
        """Do the body for start, start + step, ... below stop; at least once."""
        if isinstance(start, int) and isinstance(stop, int) and stop - start <= step:
            yield start
            return
        before, body, after = self.b.block, self.made.append_basic_block(), self.made.append_basic_block()
        first, last = self.whole(start), self.whole(stop)
        self.b.branch(body)
        self.b.position_at_end(body)
        i = self.b.phi(I64)
        i.add_incoming(first, before)
        yield Int(self, i)
        following = self.b.add(i, self.whole(step))
        i.add_incoming(following, self.b.block)
        self.b.cbranch(self.b.icmp_signed("<", following, last), body, after)
        self.b.position_at_end(after)

    @contextmanager
    def when(self, a, compare: str, b) -> Iterator[None]:
        """Do the body if two whole numbers compare so."""
        body, after = self.made.append_basic_block(), self.made.append_basic_block()
        self.b.cbranch(self.b.icmp_signed(compare, self.whole(a), self.whole(b)), body, after)
        self.b.position_at_end(body)
        yield
        self.b.branch(after)
        self.b.position_at_end(after)

    # ------------------------------------------------------------------ numbers and vectors
    def at(self, pointer: ir.Value, index, kind: ir.Type | None = None) -> ir.Value:
        """Pointer to the number at `index` behind a pointer."""
        return self.b.gep(pointer, [self.whole(index)], source_etype=kind or self.code.number)

    def number(self, pointer: ir.Value, index) -> ir.Value:
        """The number at `index` behind a pointer."""
        return self.b.load(self.at(pointer, index), typ=self.code.number, align=self.code.size)

    def put_number(self, value: ir.Value, pointer: ir.Value, index) -> None:
        """Store a number."""
        self.b.store(value, self.at(pointer, index), align=self.code.size)

    def integer(self, pointer: ir.Value, index) -> Int:
        """The 64-bit whole number at `index` behind a pointer."""
        return Int(self, self.b.load(self.at(pointer, index, I64), typ=I64, align=8))

    def vector(self, pointer: ir.Value, index, kind: ir.Type | None = None, loose: bool = False) -> ir.Value:
        """The vector that begins at `index`, which a multiple of W lies under unless `loose`."""
        align = self.code.size * (1 if loose else self.lanes)
        return self.b.load(self.at(pointer, index), typ=kind or self.code.vector, align=align)

    def put_vector(self, value: ir.Value, pointer: ir.Value, index, loose: bool = False) -> None:
        """Store a vector, as :meth:`vector` loads it."""
        self.b.store(value, self.at(pointer, index), align=self.code.size * (1 if loose else self.lanes))

    def all(self, number: ir.Value) -> ir.Value:
        """A vector with one number in every lane."""
        empty = ir.Constant(self.code.vector, ir.Undefined)
        one = self.b.insert_element(empty, number, ir.Constant(I32, 0))
        return self.b.shuffle_vector(one, empty, ir.Constant(ir.VectorType(I32, self.lanes), None))

    def weight(self, pointer: ir.Value, index) -> ir.Value:
        """The number at `index` in every lane."""
        return self.all(self.number(pointer, index))

    def constant(self, value, kind: ir.Type | None = None) -> ir.Value:
        """A constant in every lane; of a kind that is no vector, the constant."""
        kind = kind or self.code.vector
        if not isinstance(kind, ir.VectorType):
            return ir.Constant(kind, value)
        return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """``a b + c`` with one rounding."""
        return self.b.call(self.code.intrinsic("llvm.fma", a.type, 3), [a, b, c])

    def rectified(self, value: ir.Value, by: ir.Value) -> ir.Value:
        """`value` where `by` is positive, else 0; what is not a number counts as positive, as in PyTorch."""
        zero = self.constant(0.0)
        return self.b.select(self.b.fcmp_ordered("<=", by, zero), zero, value)

    def add_lanes(self, pointer: ir.Value, index, vectors: list[ir.Value]) -> None:
        """Add each vector's sum over its lanes to one of neighbouring numbers.

        Four lanes are a group. Four vectors become one that has four sums, one of each, in every group; then the
        groups are added one after the other.
        """
        for begin in range(0, len(vectors), GROUP):
            four = vectors[begin : begin + GROUP]
            valid, four = len(four), four + [self.constant(0.0)] * (GROUP - len(four))
            sums = self._pairs(self._pairs(*four[:2]), self._pairs(*four[2:]))
            kind = ir.VectorType(self.code.number, valid)
            total = self.vector(pointer, index + begin, kind, loose=True)
            for group in range(0, self.lanes, GROUP):
                mask = ir.Constant(ir.VectorType(I32, valid), [ir.Constant(I32, group + i) for i in range(valid)])
                total = self.b.fadd(total, self.b.shuffle_vector(sums, sums, mask))
            self.put_vector(total, pointer, index + begin, loose=True)

    def _pairs(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """In each group of four lanes: a0 + a1, a2 + a3, b0 + b1, b2 + b3."""
        halves = []
        for odd in (0, 1):
            picked = [group + odd + i for group in range(0, self.lanes, GROUP)
                      for i in (0, 2, self.lanes, self.lanes + 2)]  # fmt: skip
            mask = ir.Constant(ir.VectorType(I32, self.lanes), [ir.Constant(I32, i) for i in picked])
            halves.append(self.b.shuffle_vector(a, b, mask))
        return self.b.fadd(*halves)

    def turned(self, rows: list[ir.Value]) -> list[ir.Value]:
        """Exchange rows and columns of W vectors: swap halves, then quarters of the halves, and so on."""
        reach = 1
        while reach < self.lanes:
            for i in (i for i in range(self.lanes) if not i & reach):
                pair = rows[i], rows[i + reach]
                for at, into in ((0, i), (reach, i + reach)):  # the lower and the upper half of each pair of blocks
                    picked = [(j & ~reach) + at + (self.lanes if j & reach else 0) for j in range(self.lanes)]
                    mask = ir.Constant(ir.VectorType(I32, self.lanes), [ir.Constant(I32, j) for j in picked])
                    rows[into] = self.b.shuffle_vector(*pair, mask)
            reach *= 2
        return rows


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
    """

    kept: bool
    start: int
    lanes: int
    shape: Shape
    padding: tuple[int, int] = (0, 0)

    @property
    def columns(self) -> int:
        """With the padding."""
        return self.shape[2] + 2 * self.padding[1]

    @property
    def size(self) -> int:
        """Numbers in it."""
        return self.shape[0] * (self.shape[1] + 2 * self.padding[0]) * self.columns * self.lanes

    def at(self, channel, row=0, column=0):
        """Where a vector lies; rows and columns count from the padding's corner."""
        rows = self.shape[1] + 2 * self.padding[0]
        return ((channel * rows + row) * self.columns + column) * self.lanes + self.start

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
        Which of the four pixels of each window is the largest; 4 if none is positive and ReLU follows.
    slopes : list of Buffer or None
        Derivatives of the loss by the values; None for the images.
    full : list of Buffer or None
        Derivatives by a convolution's outputs before pooling.
    turned : Buffer
        A dense layer's inputs, one image after the other.
    kept, passing : int
        Numbers in each arena.
    """

    def __init__(self, plan: Plan, lanes: int):
        self.lanes, self.kept, self.passing = lanes, 0, 0
        layers, flat = plan.layers, (0, 0)
        around = [layer.padding for layer in layers] + [flat]
        shapes = [plan.shape] + [layer.out for layer in layers]
        pooled = [layer.out if isinstance(layer, Conv) and layer.pool else None for layer in layers]
        self.values = [self._room(True, *each) for each in zip(shapes, around, strict=True)]
        self.winners = [shape and self._room(True, shape) for shape in pooled]
        self.slopes = [None] + [self._room(False, layer.out) for layer in layers]
        self.full = [self._room(False, layer.full) if shape else slope
                     for layer, shape, slope in zip(layers, pooled, self.slopes[1:], strict=True)]  # fmt: skip
        widest = max([layer.inputs for layer in layers if isinstance(layer, Dense)], default=0)
        self.turned = self._room(False, (-(-widest // lanes) * lanes, 1, 1))

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

    def arena(self, buffer: Buffer) -> ir.Value:
        """Pointer to the arena in which a buffer lies."""
        return self._kept if buffer.kept else self._passing

    def get(self, buffer: Buffer, place, kind: ir.Type | None = None) -> ir.Value:
        """The vector at a place of a buffer."""
        return self.vector(self.arena(buffer), place, kind)

    def put(self, value: ir.Value, buffer: Buffer, place) -> None:
        """Store a vector at a place of a buffer."""
        self.put_vector(value, self.arena(buffer), place)


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
                    corner, seen = source.at(c, y * stride + u, x * stride), {}
                    for v in range(wide):
                        for j in range(size):
                            place = (((k + j) * channels + c) * high + u) * wide + (v + layer.weight)
                            weight = f.weight(f.w, place)
                            for total, (dy, dx) in zip(sums[j], pixels, strict=True):
                                spot = dy * source.columns + dx + v
                                if spot not in seen:
                                    seen[spot] = f.get(source, corner + spot * source.lanes)
                                total.add_product(weight, seen[spot])
                for j in range(size):
                    values = [total.get() for total in sums[j]]
                    if layer.pool:
                        _pool(f, layer, values, (k + j, y, x), target, winners)
                        continue
                    for value, (_, dx) in zip(values, pixels, strict=True):
                        value = f.rectified(value, value) if layer.relu else value
                        f.put(value, target, target.inside(k + j, y, x + dx))


def _pool(f: Kernel, layer: Conv, values: list, spot: tuple, target: Buffer, winners: Buffer) -> None:
    """Store the largest of four pixels, the first of equals, or one that is not a number; and which it was."""
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


def spread(f: Kernel, layer: Conv, target: Buffer, winners: Buffer | None, slopes: Buffer, full: Buffer) -> None:
    """Take derivatives back through pooling and ReLU; those by the biases are their sums."""
    zero = f.constant(0.0)
    with f.loop(0, layer.filters) as k:
        total = Sum(f, zero)
        with f.loop(0, layer.out[1]) as y, f.loop(0, layer.out[2]) as x:
            slope = f.get(slopes, slopes.at(k, y, x))
            if layer.pool:
                place = f.get(winners, winners.at(k, y, x), f.code.places)
                for i in range(4):
                    here = f.b.icmp_signed("==", place, f.constant(i, f.code.places))
                    f.put(f.b.select(here, slope, zero), full, full.at(k, y * 2 + i // 2, x * 2 + i % 2))
                slope = f.b.select(f.b.icmp_signed("==", place, f.constant(4, f.code.places)), zero, slope)
            elif layer.relu:
                slope = f.rectified(slope, f.get(target, target.inside(k, y, x)))
                f.put(slope, full, full.at(k, y, x))
            total.add(slope)
        f.add_lanes(f.g, k + layer.bias, [total.get()])


def convolve_weights(f: Kernel, layer: Conv, source: Buffer, full: Buffer) -> None:
    """Add the derivatives by a convolution's weights.

    A tile is some places of the kernel times some filters, summed over all pixels of an image in registers.
    """
    (channels, _, _), (filters, height, width) = layer.shape, layer.full
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
    (channels, height, width), (filters, below, beside) = layer.shape, layer.full
    (high, wide), (up, left) = layer.kernel, layer.padding
    together = 4
    sizes = tiles(channels, (f.code.registers - (6 if f.code.registers > 16 else 4)) // together)
    for begin, count, step, meets in _rows(width, left, wide, beside, together):
        for first, groups, size in sizes:
            with f.loop(0, groups) as t, f.loop(0, height) as y, f.loop(0, count) as tile:
                c, x, row = t * size + first, tile * step + begin, y + up
                sums = [[Sum(f, f.constant(0.0)) for _ in meets] for _ in range(size)]
                with (
                    f.loop(0, filters) as k,
                    f.loop(f.most(row - (below - 1), 0), f.least(row + 1, high)) as u,
                ):
                    corner, seen = full.at(k, row - u, x + left), {}
                    for v in range(wide):
                        near = [p for p, taps in enumerate(meets) if v in taps]
                        for j in range(size if near else 0):
                            place = (((k * channels) + c + j) * high + u) * wide + (v + layer.weight)
                            weight = f.weight(f.w, place)
                            for p in near:
                                if p - v not in seen:
                                    seen[p - v] = f.get(full, corner + (p - v) * full.lanes)
                                sums[j][p].add_product(weight, seen[p - v])
                for j in range(size):
                    for p, total in enumerate(sums[j]):
                        f.put(total.get(), to, to.at(c + j, y, x + p))


def _rows(width: int, left: int, wide: int, beside: int, most: int) -> list[tuple[int, int, int, list[range]]]:
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


def dense_weights(
    f: Kernel, layer: Dense, source: Buffer, target: Buffer, slopes: Buffer, turned: Buffer
) -> None:
    """Take derivatives back through ReLU; add those by a dense layer's weights and biases.

    Here the lanes are inputs, not images: the inputs are turned around first, and then the images are added up one
    by one. A tile is some vectors of inputs times some outputs.
    """
    with f.loop(0, layer.outputs) as o:
        slope = f.get(slopes, slopes.at(o))
        if layer.relu:
            slope = f.rectified(slope, f.get(target, target.at(o)))
            f.put(slope, slopes, slopes.at(o))
        f.add_lanes(f.g, o + layer.bias, [slope])
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


# ---------------------------------------------------------------------- in and out
def _image(f: Function, order: ir.Value, count: Int, lane) -> Int:
    """Which image a lane holds; lanes that are left over hold the last one."""
    return f.integer(order, f.least(lane, count - 1))


def gather(code: Code, plan: Plan, to: Buffer) -> Function:
    """Write ``gather(kept, x, order, count)``: put the images x[order[0]], x[order[1]], ... into lanes."""
    f = Function(code, "gather", "pppi")
    kept, x, order, count = f.arguments
    (channels, height, width), lanes = plan.shape, code.lanes
    begins = [_image(f, order, count, lane) * (channels * height * width) for lane in range(lanes)]
    with f.loop(0, channels) as c, f.loop(0, height) as y:
        at = (c * height + y) * width
        if width < lanes:
            with f.loop(0, width) as column:
                for lane, begin in enumerate(begins):
                    f.put_number(f.number(x, begin + at + column), kept, to.inside(c, y, column) + lane)
        else:  # squares of W images and W pixels; the last two may overlap
            for column in sorted({*range(0, width - lanes, lanes), width - lanes}):
                square = f.turned([f.vector(x, begin + at + column, loose=True) for begin in begins])
                for j, vector in enumerate(square):
                    f.put_vector(vector, kept, to.inside(c, y, column + j))
    return f.end()


def rows(code: Code, buffer: Buffer, name: str, out: bool) -> Function:
    """Write ``name(arena, table, count)``: copy a buffer's lanes to rows of a table (count, numbers), or back."""
    f = Function(code, name, "ppi")
    arena, table, count = f.arguments
    length = buffer.size // buffer.lanes
    with f.loop(0, count if out else code.lanes) as lane:
        row = (lane if out else f.least(lane, count - 1)) * length
        with f.loop(0, length) as i:
            place = i * buffer.lanes + buffer.start + lane
            if out:
                f.put_number(f.number(arena, place), table, row + i)
            else:
                value = f.number(table, row + i)
                real = f.b.icmp_signed("<", f.whole(lane), count.value)
                f.put_number(f.b.select(real, value, f.constant(0.0, code.number)), arena, place)
    return f.end()


def softmax(code: Code, classes: int, logits: Buffer, slopes: Buffer) -> Function:
    """Write ``softmax(kept, passing, y, order, count, scale)``: derivatives of the cross-entropy by the logits.

    `scale` is 1 over the images of the batch; lanes that are left over get 0.
    """
    f = Function(code, "softmax", "ppppir")
    kept, passing, y, order, count, scale = f.arguments
    whole = ir.VectorType(I64, code.lanes)
    labels, numbers = Sum(f, f.constant(0, whole)), [ir.Constant(I64, i) for i in range(code.lanes)]
    for lane in range(code.lanes):
        label = f.integer(y, _image(f, order, count, lane)).value
        labels.set(f.b.insert_element(labels.get(), label, ir.Constant(I32, lane)))
    top = Sum(f, f.vector(kept, logits.at(0)))
    with f.loop(0, classes) as k:
        value = f.vector(kept, logits.at(k))
        top.set(f.b.select(f.b.fcmp_unordered(">", value, top.get()), value, top.get()))
    total = Sum(f, f.constant(0.0))
    with f.loop(0, classes) as k:
        power = f.b.fsub(f.vector(kept, logits.at(k)), top.get())
        value = f.b.call(code.intrinsic("llvm.exp", code.vector, 1), [power])
        f.put_vector(value, passing, slopes.at(k))
        total.add(value)
    last = ir.Constant(whole, [ir.Constant(I64, 0)] * code.lanes)
    for lane in range(code.lanes):
        last = f.b.insert_element(last, count.value, ir.Constant(I32, lane))
    real = f.b.icmp_signed("<", ir.Constant(whole, numbers), last)
    zero, factor = f.constant(0.0), f.b.fdiv(f.all(scale), total.get())
    with f.loop(0, classes) as k:
        here = f.constant(0, whole)
        for lane in range(code.lanes):
            here = f.b.insert_element(here, f.whole(k), ir.Constant(I32, lane))
        hit = f.b.select(f.b.icmp_signed("==", here, labels.get()), f.all(scale), zero)
        slope = f.b.fsub(f.b.fmul(f.vector(passing, slopes.at(k)), factor), hit)
        f.put_vector(f.b.select(real, slope, zero), passing, slopes.at(k))
    return f.end()


# ---------------------------------------------------------------------- stochastic gradient descent
def update(code: Code, size: int) -> Function:
    """Write ``update(w, m, g, first, lr, momentum, decay, nesterov)``: as ``torch.optim.SGD``; g becomes 0."""
    f = Function(code, "update", "pppirrri")
    w, m, g, first, lr, momentum, decay, nesterov = f.arguments
    fresh, ahead = (f.b.icmp_signed("!=", a.value, ir.Constant(I64, 0)) for a in (first, nesterov))
    moving = f.b.fcmp_ordered("!=", momentum, f.constant(0.0, code.number))
    whole = size // code.lanes * code.lanes
    for begin, end, step in ((0, whole, code.lanes), (whole, size, 1)):  # vectors, then what is left
        if begin == end:
            continue
        kind, spread_out = (code.vector, f.all) if step > 1 else (code.number, lambda number: number)
        down, keep, shrink = (spread_out(v) for v in (f.b.fneg(lr), momentum, decay))
        branches = [f.made.append_basic_block() for _ in range(2)]
        after = f.made.append_basic_block()
        f.b.cbranch(moving, *branches)
        for branch, with_momentum in zip(branches, (True, False), strict=True):
            f.b.position_at_end(branch)
            with f.loop(begin, end, step) as i:
                weight = f.vector(w, i, kind, loose=True)
                slope = f.fma(shrink, weight, f.vector(g, i, kind, loose=True))
                if with_momentum:
                    speed = f.b.select(fresh, slope, f.fma(keep, f.vector(m, i, kind, loose=True), slope))
                    f.put_vector(speed, m, i, loose=True)
                    slope = f.b.select(ahead, f.fma(keep, speed, slope), speed)
                f.put_vector(f.fma(down, slope, weight), w, i, loose=True)
                f.put_vector(f.constant(0.0, kind), g, i, loose=True)
            f.b.branch(after)
        f.b.position_at_end(after)
    return f.end()


def pull(code: Code) -> Function:
    """Write ``pull(w, g, anchor, begin, end, strength)``: ``g += strength (w - anchor)`` from begin to end."""
    f = Function(code, "pull", "pppiir")
    w, g, anchor, begin, end, strength = f.arguments
    with f.when(begin, "<", end), f.loop(begin, end) as i:
        gap = f.b.fsub(f.number(w, i), f.number(anchor, i))
        f.put_number(f.fma(strength, gap, f.number(g, i)), g, i)
    return f.end()


def shift(code: Code, size: int) -> Function:
    """Write ``shift(g, by)``: ``g += by``."""
    f = Function(code, "shift", "pp")
    g, by = f.arguments
    with f.loop(0, size) as i:
        f.put_number(f.b.fadd(f.number(g, i), f.number(by, i)), g, i)
    return f.end()


# ---------------------------------------------------------------------- the whole network
def layers(code: Code, plan: Plan, places: Places) -> tuple[Function, Function]:
    """Write ``forward(w, g, kept, passing)`` and ``backward``, likewise, for images that lie in the arena."""
    ahead: list[Function] = []
    back: list[Function] = []
    values, slopes = places.values, places.slopes

    def add(to: list[Function], kernel: Callable, *arguments) -> None:
        f = Kernel(code, f"{kernel.__name__}_{len(ahead)}")
        kernel(f, *arguments)
        f.made.attributes.add("noinline")
        to.append(f.end())

    for i, layer in enumerate(plan.layers):
        source, target, slope, to = values[i], values[i + 1], slopes[i + 1], slopes[i]
        winners, full = places.winners[i], places.full[i]
        down: list[Function] = []  # one layer's kernels on the way back, in their order
        if isinstance(layer, Conv):
            add(down, spread, layer, target, winners, slope, full)
            add(down, convolve_weights, layer, source, full)
            if to:
                add(down, convolve_inputs, layer, full, to)
            add(ahead, convolve, layer, source, target, winners)
        else:
            add(down, dense_weights, layer, source, target, slope, places.turned)
            if to:
                add(down, dense_inputs, layer, slope, to)
            add(ahead, dense, layer, source, target)
        back = down + back
    found = []
    for name, parts in (("forward", ahead), ("backward", back)):
        f = Kernel(code, name)
        for part in parts:
            f.call(part, *f.arguments)
        found.append(f.end())
    return found[0], found[1]


def write(code: Code, plan: Plan, places: Places) -> None:
    """Write all that is called from outside; :mod:`cflkit.engine.fast.compiled.library` says what each does."""
    forward, backward = layers(code, plan, places)
    read = gather(code, plan, places.values[0])
    give = rows(code, places.values[-1], "give", out=True)
    take = rows(code, places.slopes[-1], "take", out=False)

    f = Function(code, "look", "pppippip")
    w, g, kept, apart, x, order, n, out = f.arguments
    with f.loop(0, n, code.lanes) as at:
        count, mine = f.least(n - at, code.lanes), f.at(kept, at * apart)
        f.call(read, mine, x, f.at(order, at, I64), count)
        f.call(forward, w, g, mine, mine)
        f.call(give, mine, f.at(out, at * plan.outputs), count)
    f.end()

    f = Function(code, "back", "pppippi")
    w, g, kept, apart, passing, table, n = f.arguments
    with f.loop(0, n, code.lanes) as at:
        f.call(take, passing, f.at(table, at * plan.outputs), f.least(n - at, code.lanes))
        f.call(backward, w, g, f.at(kept, at * apart), passing)
    f.end()
    if not isinstance(plan.layers[-1], Dense):
        return

    differ = softmax(code, plan.outputs, places.values[-1], places.slopes[-1])
    slope = Function(code, "slope", "pppppppir")
    w, g, kept, passing, x, y, order, n, scale = slope.arguments
    with slope.loop(0, n, code.lanes) as at:
        count, mine = slope.least(n - at, code.lanes), slope.at(order, at, I64)
        slope.call(read, kept, x, mine, count)
        slope.call(forward, w, g, kept, passing)
        slope.call(differ, kept, passing, y, mine, count, scale)
        slope.call(backward, w, g, kept, passing)
    slope.end()

    step, to_anchor, aside = update(code, plan.size), pull(code), shift(code, plan.size)
    f = Function(code, "train", "ppppppppp" + "i" + "rrri" + "ippp" + "ip")
    w, m, g, kept, passing, x, y, order, bounds = f.arguments[:9]
    steps, lr, momentum, decay, nesterov, pulls, anchors, spans, strengths, shifted, by = f.arguments[9:]
    with f.loop(0, steps) as s:
        begin, end = f.integer(bounds, s), f.integer(bounds, s + 1)
        count = f.b.sitofp((end - begin).value, code.number)
        scale = f.b.fdiv(f.constant(1.0, code.number), count)
        f.call(slope, w, g, kept, passing, x, y, f.at(order, begin, I64), end - begin, scale)
        with f.when(pulls, ">", 0), f.loop(0, pulls) as p:
            anchor = f.b.inttoptr(f.integer(anchors, p).value, POINTER)
            begin, end = f.integer(spans, p * 2), f.integer(spans, p * 2 + 1)
            f.call(to_anchor, w, g, anchor, begin, end, f.number(strengths, p))
        with f.when(shifted, "!=", 0):
            f.call(aside, g, by)
        f.call(step, w, m, g, Int(f, f.b.zext(f.b.icmp_signed("==", f.whole(s), f.whole(0)), I64)), lr, momentum,
               decay, nesterov)  # fmt: skip
    f.end()
