"""How kernels are compiled, kept and called.

Writing the instructions and having LLVM turn them into machine code takes about a second a network, so the
result, an *object* as any compiler makes it, is kept in the user's cache folder. Its name is a digest of all it
depends on: the plan, the precision, the kind of processor, LLVM's version and the text of this package. Loading
it takes milliseconds. It is code that will run, so it is read only from a folder that nobody else may write to, and
only whole: its own digest stands before it. Whatever else is found there is made anew.

A :class:`Kernels` belongs to a plan; every thread has arenas of its own, where its numbers lie while it computes.
While a kernel runs, Python's lock is released.
"""

import contextlib
import ctypes
import hashlib
import logging
import math
import os
import secrets
import stat
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cflkit.checks import require
from cflkit.engine.fast import plan as plans
from cflkit.engine.fast.plan import Dense, Plan

VERSION = "0.50.0"  # of llvmlite, whose interface changes from one to the next
_p, _i = ctypes.c_void_p, ctypes.c_int64
_known: dict = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Machine:
    """A kind of processor.

    Attributes
    ----------
    name : str
        What LLVM calls it.
    needs : str
        What a processor must have to be of this kind.
    width, registers : int
        Bytes of a vector; vectors in registers.
    """

    name: str
    needs: str
    width: int
    registers: int


MACHINES = (
    Machine("x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl", 64, 32),
    Machine("x86-64-v3", "avx2 fma bmi bmi2 f16c lzcnt movbe", 32, 16),
)


@cache
def missing() -> str | None:
    """Say in a few words why nothing can be compiled here; None if it can."""
    try:
        import llvmlite
        from llvmlite import binding
    except Exception as error:  # whatever a broken installation raises
        return f"llvmlite cannot be imported ({error})"
    if llvmlite.__version__ != VERSION:
        return f"llvmlite is {llvmlite.__version__}, not {VERSION}"
    if not binding.get_process_triple().startswith("x86_64"):
        return f"the kernels were not tried on {binding.get_process_triple()}"
    return None if machines() else "the kernels need a processor with AVX2"


@cache
def machines() -> tuple[Machine, ...]:
    """All kinds that this processor is of, the best first."""
    from llvmlite import binding

    has = binding.get_host_cpu_features()
    return tuple(kind for kind in MACHINES if all(has.get(each) for each in kind.needs.split()))


@cache
def say_missing() -> None:
    """Say once why PyTorch does what the kernels could."""
    text = "cflkit: small convolutional networks train with PyTorch, which is several times slower: %s"
    logging.getLogger("cflkit").warning(text, missing())


# ---------------------------------------------------------------------- making machine code
def compiled(plan: Plan, dtype: torch.dtype, machine: Machine) -> bytes:
    """Write a plan's kernels and have LLVM compile them into an object."""
    from llvmlite import binding

    from cflkit.engine.fast.compiled import program, writing

    size = dtype.itemsize
    code = writing.Code(binding.get_process_triple(), size, machine.width // size, machine.registers)
    program.write(code, plan)
    target = _target(machine)
    module = binding.parse_assembly(str(code.module))
    module.verify()
    settings = binding.create_pipeline_tuning_options(speed_level=2)
    # the code is made of vectors and unrolled as it should be; LLVM's own ideas of that would only undo it
    settings.loop_vectorization = settings.slp_vectorization = settings.loop_unrolling = False
    builder = binding.create_pass_builder(target, settings)
    builder.getModulePassManager().run(module, builder)
    return target.emit_object(module)


def _target(machine: Machine):
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    kind = binding.Target.from_triple(binding.get_process_triple())
    # LLVM would halve the widest vectors
    return kind.create_target_machine(cpu=machine.name, features="-prefer-256-bit", opt=3, reloc="pic", jit=True)


# ---------------------------------------------------------------------- keeping it
def folder() -> Path:
    """Where objects are kept: ``$XDG_CACHE_HOME/cflkit/kernels``, by default in ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "cflkit" / "kernels"


def key(plan: Plan, dtype: torch.dtype, machine: Machine) -> str:
    """Digest of all that an object depends on."""
    from llvmlite import binding

    text = repr((plan, dtype, machine, VERSION, binding.llvm_version_info))
    digest = hashlib.sha256(text.encode())
    for file in [*sorted(Path(__file__).parent.glob("*.py")), Path(plans.__file__)]:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _private(place: Path) -> bool:
    """Whether a folder is the user's, and neither it nor a folder above may be changed by others."""
    if not hasattr(os, "getuid"):
        return False
    place = place.resolve()
    for each in (place, *place.parents):
        found = each.stat()
        open_to_others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if open_to_others and (each == place or not found.st_mode & stat.S_ISVTX):
            return False
        if found.st_uid not in ((os.getuid(),) if each == place else (os.getuid(), 0)):
            return False
    return True


def kept(name: str, make: Callable[[], bytes]) -> bytes:
    """Return the object kept under a name; where there is none, or none to be trusted, make and keep it."""
    place = folder()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _private(place):
            return make()
        found = _read(place / name, name)
    except OSError:
        return make()
    if found is None:
        found = make()
        with contextlib.suppress(OSError):  # a full disk is no reason to stop
            _write(place / name, name, found)
    return found


def _digest(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + content).digest()


def _read(file: Path, name: str) -> bytes | None:
    """Read an entry; None unless it is the user's own, whole, and of that name."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
                return None
            digest, content = opened.read(32), opened.read()
    except OSError:
        return None
    return content if digest == _digest(name, content) else None


def _write(file: Path, name: str, content: bytes) -> None:
    """Write an entry aside, then put it in its place: nobody ever sees a part of it."""
    aside = file.with_name(f"{name}.{secrets.token_hex(8)}")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(_digest(name, content) + content)
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)


# ---------------------------------------------------------------------- calling it
def kernels_of(plan: Plan, dtype: torch.dtype) -> "Kernels":
    """The kernels of a plan for this processor, made at the first call."""
    with _lock:
        if (plan, dtype) not in _known:
            _known[plan, dtype] = Kernels(plan, dtype, machines()[0])
        return _known[plan, dtype]


class Kernels:
    """The compiled forward pass, gradient and training of one plan, for any number of images.

    Vectors hold the parameters as the model does; images are tensors (n, C, H, W) of the kernels' precision, and
    labels 64-bit whole numbers. Results that are not finite are computed again with plain products, from which
    infinity and NaN come out as in PyTorch.

    Parameters
    ----------
    plan : Plan
        The network.
    dtype : torch.dtype
        Of all numbers: float32 or float64.
    machine : Machine
        The kind of processor.
    """

    def __init__(self, plan: Plan, dtype: torch.dtype, machine: Machine):
        from llvmlite import binding

        from cflkit.engine.fast.compiled.program import Rooms

        self.plan, self.dtype, self._machine = plan, dtype, machine
        self.lanes = machine.width // dtype.itemsize
        rooms = Rooms(plan, self.lanes)
        self._sizes = rooms.kept, rooms.passing  # numbers in a thread's arenas
        self._apart = rooms.most.kept // self.lanes  # numbers that an image keeps
        self._framed = [buffer for buffer in rooms.most.values if any(buffer.padding)]
        name = key(plan, dtype, machine)
        code = kept(name, lambda: compiled(plan, dtype, machine))
        real = ctypes.c_float if dtype == torch.float32 else ctypes.c_double
        signatures = {"look": [_p] * 3 + [_i, _p, _p, _p, _i, _p], "back": [_p] * 3 + [_i, _p, _p, _i],
                      "pixels": [_p] * 3 + [_i, _p, _p, _i, _p]}  # fmt: skip
        if isinstance(plan.layers[-1], Dense):
            signatures["slope"] = [_p] * 8 + [_i, real]
            signatures["train"] = [_p] * 10 + [_i] + [real] * 3 + [_i, _i] + [_p] * 3 + [_i, _p]
        self._jit = binding.create_lljit_compiler(_target(machine))
        library = binding.JITLibraryBuilder().add_object_img(code).add_current_process()
        for each in signatures:
            library = library.export_symbol(each)
        self._library = library.link(self._jit, name)  # the code lives as long as this does
        self._call = {each: ctypes.CFUNCTYPE(None, *kinds)(self._library[each])
                      for each, kinds in signatures.items()}  # fmt: skip
        self._threads = threading.local()

    @cached_property
    def _plain(self) -> "Kernels":
        return Kernels(self.plan.plain(), self.dtype, self._machine)

    def _sound(self, result: Tensor) -> bool:
        """Whether a result may stay as it is: it is finite, or plain products made it."""
        return self.plan.is_plain or math.isfinite(result.sum())

    def _arenas(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A thread's own: what is kept for the backward pass, what is passing, gradient, momentum."""
        if not hasattr(self._threads, "arenas"):
            sizes = (*self._sizes, self.plan.size, self.plan.size)
            self._threads.arenas = tuple(aligned(size, self.dtype) for size in sizes)
        return self._threads.arenas

    def room(self, images: int) -> Tensor:
        """Make an arena that keeps the forward pass of so many images."""
        groups, size = -(-images // self.lanes), self._apart * self.lanes
        made = aligned(groups * size, self.dtype, torch.empty)
        for buffer in self._framed:  # the zeros that a convolution counts on around its inputs
            (channels, height, width), (up, left) = buffer.shape, buffer.padding
            whole = made.view(groups, size)[:, buffer.start : buffer.start + buffer.size]
            whole = whole.view(groups, channels, height + 2 * up, width + 2 * left, self.lanes)
            above, below = whole[:, :, :up], whole[:, :, up + height :]
            before, behind = whole[..., :left, :], whole[..., left + width :, :]
            for edge in (above, below, before, behind):
                edge.zero_()
        return made

    def look(self, w: Tensor, x: Tensor, order: np.ndarray | None = None, keep: Tensor | None = None) -> Tensor:
        """Outputs (n, ...) of the last layer for the images x[order], all of them if None.

        `keep` is a :meth:`room` for them, if :meth:`back` or :meth:`pixels` is to follow.
        """
        order = np.arange(len(x)) if order is None else order
        out = torch.empty(len(order), self.plan.outputs, dtype=self.dtype)
        if len(order):
            self._check(w, x, order)
            mine, passing, g, _ = self._arenas()
            apart = 0 if keep is None else self._apart
            arena = mine if keep is None else keep
            self._call["look"](*_at(w, g, arena), apart, *_at(passing, x, order), len(order), *_at(out))
        return out if self._sound(out) else self._plain.look(w, x, order, keep)

    def back(self, w: Tensor, keep: Tensor, slopes: Tensor, g: Tensor) -> None:
        """Add to `g` (P,) the gradient of a loss whose derivatives by the outputs of :meth:`look` are `slopes`."""
        slopes, before = slopes.contiguous(), None if self.plan.is_plain else g.clone()
        passing = self._arenas()[1]
        self._call["back"](*_at(w, g, keep), self._apart, *_at(passing, slopes), len(slopes))
        if not self._sound(g):
            self._plain.back(w, keep, slopes, g.copy_(before))

    def pixels(self, w: Tensor, keep: Tensor, slopes: Tensor) -> Tensor:
        """Derivatives (n, C, H, W) by the images, of a loss whose derivatives by :meth:`look` are `slopes`."""
        out = torch.empty(len(slopes), *self.plan.shape, dtype=self.dtype)
        if len(slopes):
            slopes = slopes.contiguous()
            _, passing, g, _ = self._arenas()
            self._call["pixels"](*_at(w, g, keep), self._apart, *_at(passing, slopes), len(slopes), *_at(out))
        return out if self._sound(out) else self._plain.pixels(w, keep, slopes)

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Gradient (P,) of the mean cross-entropy of all images."""
        order = np.arange(len(x))
        self._check(w, x, order, y)
        mine, passing, g, _ = self._arenas()
        g.zero_()
        q = torch.ones(len(order), dtype=self.dtype)
        self._call["slope"](*_at(w, g, mine, passing, x, y, q, order), len(order), 1 / len(order))
        return g.clone() if self._sound(g) else self._plain.gradient(w, x, y)

    def train(
        self,
        w: Tensor,
        x: Tensor,
        y: Tensor,
        batches: Sequence[np.ndarray],
        optimiser,
        pulls: Sequence[tuple[float, Tensor, slice]] = (),
        shift: Tensor | None = None,
        out: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Train from the vector `w` (P,), a step for each batch.

        Parameters
        ----------
        w, x, y : Tensor
            Parameters (P,), images (n, C, H, W), labels (n,).
        batches : sequence of int arrays
            Positions of each step's images.
        optimiser : object
            Has ``lr``, ``momentum``, ``weight_decay`` and ``nesterov``, as ``torch.optim.SGD`` means them.
        pulls : sequence of (float, Tensor (P,), slice)
            Strength of a proximal term, where to, and which entries.
        shift : Tensor (P,), optional
            Added to every gradient.
        out : Tensor (P,), optional
            Where the trained vector goes, not `w` itself; a new one if None.
        weights : Tensor (n,), optional
            Weight of each image in its batch's mean; all 1 if None.
        """
        out = torch.empty_like(w) if out is None else out
        out.copy_(w)
        if not batches:
            return out
        sizes, order = [len(b) for b in batches], np.concatenate(batches)
        require(min(sizes) > 0, "batches", sizes, "of one image or more")
        bounds = np.array([*accumulate(sizes, initial=0)])
        self._check(out, x, order, y)
        for name, vector in [("anchor", a) for _, a, _ in pulls] + [("shift", w if shift is None else shift)]:
            right = vector.dtype == self.dtype and len(vector) >= self.plan.size
            require(right, name, f"{len(vector)} x {vector.dtype}", f"{self.plan.size} x {self.dtype}")
        for *_, span in pulls:
            require(span.start >= 0 and span.stop <= self.plan.size, "span", span, f"within 0..{self.plan.size}")
        mine, passing, g, m = self._arenas()
        g.zero_()
        anchors = [anchor.contiguous() for _, anchor, _ in pulls]
        where = np.array([a.data_ptr() for a in anchors], np.int64)
        spans = np.array([(span.start, span.stop) for *_, span in pulls], np.int64)
        strengths = np.array([strength for strength, *_ in pulls], f"f{self.dtype.itemsize}")
        by = w if shift is None else shift.contiguous()
        q = torch.ones(len(y), dtype=self.dtype) if weights is None else weights.contiguous()
        require(q.shape == y.shape and q.dtype == self.dtype, "weights", f"{len(q)} x {q.dtype}",
                f"{len(y)} x {self.dtype}, one an image")
        self._call["train"](
            *_at(out, m, g, mine, passing, x, y, q, order, bounds), len(batches), optimiser.lr, optimiser.momentum,
            optimiser.weight_decay, optimiser.nesterov, len(pulls), *_at(where, spans, strengths),
            shift is not None, *_at(by),
        )  # fmt: skip
        if self._sound(out):
            return out
        return self._plain.train(w, x, y, batches, optimiser, pulls, shift, out, weights)

    def _check(self, w: Tensor, x: Tensor, order: np.ndarray, y: Tensor | None = None) -> None:
        """Refuse what the kernels, which trust every address, would stumble over."""
        for name, tensor in (("w", w), ("x", x)):
            plain = tensor.is_contiguous() and tensor.device.type == "cpu" and tensor.dtype == self.dtype
            require(plain, name, f"{tensor.dtype} on {tensor.device}", f"contiguous {self.dtype} on the CPU")
        size, images, classes = w.shape[0], x.shape[0], self.plan.outputs
        require(size >= self.plan.size, "len(w)", size, f"{self.plan.size} or more")
        require(x.shape[1:] == self.plan.shape, "x.shape", tuple(x.shape), f"(n, *{self.plan.shape})")
        require(order.dtype == np.int64, "order.dtype", order.dtype, "int64")
        require(_below(order, images), "order", order, f"within 0..{images - 1}")
        if y is not None:
            require(y.dtype == torch.int64 and y.is_contiguous(), "y", y.dtype, "contiguous int64")
            require(y.shape[0] == images, "len(y)", y.shape[0], f"{images}, one an image")
            require(_below(y.numpy(), classes), "y", y, f"within 0..{classes - 1}")


def _below(numbers: np.ndarray, bound: int) -> bool:
    """Whether all of these 64-bit whole numbers are at least 0 and below a bound."""
    return numbers.view(np.uint64).max() < bound  # unsigned, negative ones are the largest


def aligned(size: int, dtype: torch.dtype, make: Callable = torch.zeros) -> Tensor:
    """What `make` makes, from where a cache line begins."""
    raw = make(size + 64, dtype=dtype)
    skip = -raw.data_ptr() % 64 // dtype.itemsize
    return raw[skip : skip + size]


def _at(*arrays: Tensor | np.ndarray) -> list[int]:
    """Addresses of tensors and arrays."""
    return [a.data_ptr() if isinstance(a, Tensor) else a.ctypes.data for a in arrays]
