"""A GPU without a GPU: a device that computes on the CPU, and refuses what a real one would refuse.

Within ``with gpu() as device`` whatever is made on "cuda" or moved there is a :class:`Pretended` tensor: it holds
its numbers in a tensor on the CPU, and says that it lies elsewhere. As on a GPU, operations on tensors of both
places raise, and random numbers are others than on the CPU. Whatever makes the two places wait for each other is
counted, with the line that asked for it. It knows neither storages (``torch.save``) nor threads of one's own.
"""

import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

import cflkit

LIBRARY = Path(cflkit.__file__).parent  # but for this room
OUTSIDE = torch.device("cuda", 0)  # how a tensor names its place
INSIDE = torch.device("meta")  # what PyTorch takes the place for: of "cuda" it would ask the driver
CPU = torch.device("cpu")

aten = torch.ops.aten
COPIES = {aten.copy_.default, aten._to_copy.default}
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}


class Pretended(Tensor):
    """A tensor on the pretended device; `held`, on the CPU, has its numbers."""

    @staticmethod
    def __new__(cls, held: Tensor):
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        return Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=INSIDE, **layout)

    def __init__(self, held: Tensor):
        self.held = held

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: OUTSIDE)
    is_cuda = property(lambda self: True)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError(f"{function} of a pretended tensor: only within gpu()")

    def data_ptr(self):
        return self.held.data_ptr()

    def tolist(self):
        return self.cpu().tolist()

    def numpy(self, **_):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")

    def __array__(self, *_, **__):
        return self.numpy()

    def __deepcopy__(self, memo):
        copied = self.detach().clone()
        if isinstance(self, nn.Parameter):
            copied = nn.Parameter(copied)
        return memo.setdefault(id(self), copied.requires_grad_(self.requires_grad))

    def __repr__(self, **_):
        return f"Pretended({self.held!r})"


class Device(TorchDispatchMode):
    """What becomes of operations while the device is there.

    Attributes
    ----------
    transfers : Counter
        How often each line of the library moved something from one place to the other, or waited for a number or
        a shape that only the device knew.
    """

    def __init__(self):
        super().__init__()
        self.transfers: Counter[str] = Counter()
        self.random = torch.Generator().manual_seed(2**40).get_state()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        there, here = [], []  # tensors on the device, and on the CPU

        def inner(leaf):
            if isinstance(leaf, Tensor):
                (there if isinstance(leaf, Pretended) else here).append(leaf)
            return getattr(leaf, "held", leaf)

        held = [_each(inner, a) for a in args]
        named = {name: _each(inner, a) for name, a in kwargs.items()}
        to = kwargs.get("device")
        lies = bool(there) if to is None else to.type == INSIDE.type  # where the result does
        if not there and not lies:
            return function(*args, **kwargs)
        if there and here:
            _refuse_mixing(function, args, here)
        if _crosses(function, held, named, here, there, lies):
            self.transfers[_line()] += 1
        if to is not None:
            named["device"] = CPU
        if lies and torch.Tag.nondeterministic_seeded in function.tags:
            result = self._draw(function, held, named)
        else:
            result = function(*held, **named)
        if torch.Tag.inplace_view in function.tags:
            with no_dispatch():
                function(*args, **kwargs)  # the shape that PyTorch sees changes too
        known = {id(getattr(t, "held", t)): t for t in there + here}  # what works in place returns what it got

        def outer(leaf):
            if not isinstance(leaf, Tensor):
                return leaf
            if id(leaf) in known:
                return known[id(leaf)]
            return Pretended(leaf) if lies else leaf

        return _each(outer, result)

    def _draw(self, function, args, kwargs):
        """Draw from the device's own random numbers."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.set_state(self.random)
            result = function(*args, **kwargs)
            self.random = torch.default_generator.get_state()
        return result


def _each(change, value):
    """`value` changed, or everything in it: operations take and return no deeper trees."""
    return type(value)(map(change, value)) if isinstance(value, list | tuple) else change(value)


def _refuse_mixing(function, args, here: list[Tensor]) -> None:
    """Raise where an operation on the device may not take the CPU's tensors `here`."""
    if function in COPIES:
        return
    first = isinstance(args[0], Pretended)
    if function in INDEXED and first:  # its indices may lie anywhere
        here, numbers = [t for t in args[2:3] if not isinstance(t, Pretended)], True
    else:
        numbers = torch.Tag.pointwise in function.tags or function is aten.fill_.Tensor
        numbers = numbers and (first or not function._schema.is_mutable)
    if numbers and all(t.dim() == 0 for t in here):
        return
    message = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    raise RuntimeError(f"{message} ({function})")


def _crosses(function, args, kwargs, here, there, lies) -> bool:
    """Whether the operation makes the two places wait for each other."""
    if function in COPIES:
        return bool(here and there) or bool(there) != lies
    if function in INDEXED:
        masks = [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
        fills = function is not aten.index.Tensor and args[2].numel() == 1  # where a mask says, whatever it says
        return bool(here) or bool(masks and not fills)
    if function is aten.repeat_interleave.Tensor:
        return kwargs.get("output_size") is None
    return not {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}.isdisjoint(function.tags)


def _line() -> str:
    """Where in the library we are: ``file:line``."""
    frame = sys._getframe()
    while frame and not (_file(frame).is_relative_to(LIBRARY) and _file(frame).parent != Path(__file__).parent):
        frame = frame.f_back
    return f"{_file(frame).relative_to(LIBRARY)}:{frame.f_lineno}" if frame else "elsewhere"


def _file(frame) -> Path:
    return Path(frame.f_code.co_filename)


class _Names(TorchFunctionMode):
    """Reads "cuda" as the pretended device, before PyTorch looks for a driver."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.device:
            return function(*args, **kwargs)
        args, kwargs = [_inside(a) for a in args], {k: _inside(v) for k, v in kwargs.items()}
        if function is Tensor.new_tensor:
            like, values = args
            function, args = torch.tensor, [values]
            kwargs = {"dtype": like.dtype, "device": _inside(like.device)} | kwargs
        if function in (Tensor.__getitem__, Tensor.__setitem__):
            args[1] = tuple(map(_index, args[1])) if isinstance(args[1], tuple) else _index(args[1])
        if function in (torch.tensor, torch.as_tensor) and kwargs.get("device") == INSIDE:
            return function(*args, **kwargs | {"device": CPU}).to(INSIDE)  # made there it would have no numbers
        return function(*args, **kwargs)


def _inside(argument):
    """The argument; where it is the device's name, PyTorch's."""
    named = isinstance(argument, str | torch.device) and str(argument).partition(":")[0] == OUTSIDE.type
    return INSIDE if named else argument


def _index(given):
    """An index; a list becomes a tensor, which PyTorch would make on the device, where it would have no numbers."""
    return torch.tensor(given) if isinstance(given, list) else given


@contextmanager
def gpu():
    """Pretend that PyTorch sees one GPU, with memory for many clients; gives its :class:`Device`."""
    device = Device()

    def seed(number: int) -> None:
        device.random = torch.Generator().manual_seed(number + 1).get_state()

    driver = {
        "device_count": lambda: 1,
        "mem_get_info": lambda *_: (2**40, 2**40),
        "get_rng_state": lambda *_: device.random,
        "set_rng_state": lambda state, *_: setattr(device, "random", state),
        "manual_seed_all": seed,
    }
    with ExitStack() as stack:
        stack.enter_context(patch.multiple(torch.cuda, **driver))
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))  # other threads know of no device
        stack.enter_context(_Names())
        yield stack.enter_context(device)
