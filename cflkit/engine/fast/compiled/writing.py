"""How instructions are written: a thin layer over LLVM's own builder.

**LLVM in four sentences.** LLVM is a compiler without a language: one hands it simple instructions ("load a
vector", "multiply and add") and it makes machine code. The instructions are written here by Python. A Python
``for`` writes its body again and again (the code is *unrolled*), ``with f.loop(...)`` writes it once, between two
jumps. What a Python variable holds is the name of a number that will exist when the code runs.
"""

from __future__ import annotations  # LLVM's types are named in annotations; the book's pages do without the package

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llvmlite import ir

GROUP = 4  # images whose derivatives are added up first; no vector has fewer lanes
I32, I64, POINTER = ir.IntType(32), ir.IntType(64), ir.PointerType()


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

    def __rsub__(self, other: int) -> Int:
        return self * -1 + other

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
        How it is called.
    kinds : str
        A letter for each argument: a pointer "p", a whole number "i", a number "r".
    outside : bool
        Whether it is called from outside; of the others, LLVM drops what nobody calls.
    """

    def __init__(self, code: Code, name: str, kinds: str, outside: bool = False):
        self.code, self.lanes = code, code.lanes
        types = [{"p": POINTER, "i": I64, "r": code.number}[kind] for kind in kinds]
        name = code.module.get_unique_name(name)  # a network may have the same kernel in two layouts
        self.made = ir.Function(code.module, ir.FunctionType(ir.VoidType(), types), name)
        self.made.linkage = "" if outside else "internal"
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

    def choose(self, a, compare: str, b, one, other) -> Int:
        """One whole number if `a` and `b` compare so, else another."""
        a, b, one, other = map(self.whole, (a, b, one, other))
        return Int(self, self.b.select(self.b.icmp_signed(compare, a, b), one, other))

    def least(self, a, b) -> Int:
        """The smaller of two whole numbers."""
        return self.choose(a, "<", b, a, b)

    def most(self, a, b) -> Int:
        """The larger of two whole numbers."""
        return self.choose(a, ">", b, a, b)

    @contextmanager
    def loop(self, start, stop, step: int = 1, empty: bool = False) -> Iterator[Int | int]:
        """Do the body for start, start + step, ... below stop; at least once, unless it may be `empty`."""
        if empty:
            with self.when(start, "<", stop), self.loop(start, stop, step) as i:
                yield i
            return
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
