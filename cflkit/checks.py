"""One clear line for bad input: the argument, its value, and what is allowed.

Parameters are declared once, as annotations of a dataclass, and checked before any work::

    @dataclass(frozen=True)
    class IFCA(Checked):
        k: Count = 4
        average: Literal["model", "gradient"] = "model"
"""

import contextlib
import difflib
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

MANY = 30  # names that are listed, of those that there are


def require(ok: bool, name: str, value: object, allowed: str) -> None:
    """Raise a one-line ``ValueError`` unless `ok`: ``<name> = <value>: must be <allowed>``."""
    if not ok:
        shown = " ".join(repr(value).split())
        raise ValueError(f"{name} = {shown if len(shown) <= 200 else shown[:197] + '...'}: must be {allowed}")


def distinct(name: str, value: object, seen: Sequence) -> None:
    """Require that no two true clusters show the same; `seen` is what each of them shows."""
    require(len(set(seen)) == len(seen), name, value, "all different, or two true clusters would be one")


@contextlib.contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Say in one line that there is too little memory for something; PyTorch tells it in many words.

    Raises
    ------
    MemoryError
        In place of PyTorch's own error.
    """
    try:
        yield
    except RuntimeError as error:  # of a GPU, too, which has a class of its own below this one
        if not re.search("can't allocate memory|out of memory", str(error)):
            raise
        size = re.search(r"allocate (\d+ bytes|[\d.]+ .iB)", str(error))
        wanted = f", of which {size[1]} more are wanted" if size else ""
        raise MemoryError(f"{what}: too little memory{wanted}") from error


@contextlib.contextmanager
def writing(file: Path) -> Iterator[None]:
    """Name the file that cannot be written: the system tells of a full disk without it, PyTorch tells nothing.

    Raises
    ------
    OSError
        Of the system's number, with the file's name.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        cause = error if isinstance(error, OSError) else error.__context__
        if isinstance(cause, OSError) and cause.filename is None:
            raise OSError(cause.errno, cause.strerror or str(cause), str(file)) from None
        raise


# ---------------------------------------------------------------------- declared once
@dataclass(frozen=True)
class Range:
    """Bounds of a number, in ``Annotated[int, Range(1)]``; each included unless it is said to be open.

    Attributes
    ----------
    low, high : float
        Bounds. Infinite values are never allowed.
    open_low, open_high : bool
        Whether the bound itself is excluded.
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        return above and (value < self.high if self.open_high else value <= self.high)

    def __str__(self) -> str:
        if self.high < math.inf:
            return f"in {'(['[not self.open_low]}{self.low:g}, {self.high:g}{')]'[not self.open_high]}"
        if self.low == -math.inf:
            return ""
        return f"greater than {self.low:g}" if self.open_low else f"{self.low:g} or more"


LARGEST = 1e30  # of a number: single precision holds it, and a few products of it with others
Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Weight = Annotated[float, Range(0)]
Positive = Annotated[float, Range(0, open_low=True)]
Fraction = Annotated[float, Range(0, 1, open_low=True)]  # a share of something, all of it included
Inside = Annotated[float, Range(0, 1, open_low=True, open_high=True)]  # a share that leaves something over
Unit = Annotated[float, Range(0, 1)]


class _NotEmpty:
    """The bound of a sequence that has something in it."""

    def __contains__(self, value: Sequence) -> bool:
        return len(value) > 0

    def __str__(self) -> str:
        return "not empty"


_T = TypeVar("_T")
Some = Annotated[Sequence[_T], _NotEmpty()]  # Some[int]: one or more


def allowed(hint: Any) -> str:
    """Say in words which values an annotation allows; completes the sentence "must be ..."."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = str(next(a for a in args[1:] if isinstance(a, Range | _NotEmpty)))
        return f"{allowed(args[0])}{', ' * bool(bounds)}{bounds}"
    if origin is Literal:
        return "one of " + ", ".join(map(str, args))
    if origin in (Union, types.UnionType):
        return " or ".join(allowed(a) for a in args)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return f"a sequence, each {allowed(args[0])}" if args else "a sequence"
    if hint is Callable or origin is Callable:
        return "a function"
    words = {int: "an integer", float: "a finite number", bool: "True or False", str: "a text", type(None): "None"}
    return words.get(hint) or f"of type {getattr(origin or hint, '__name__', hint)}"


def accepts(hint: Any, value: object) -> bool:
    """Tell whether a value fits an annotation. A whole number is a float too; True is neither; NaN is no number."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin is Annotated:
        return accepts(args[0], value) and all(value in a for a in args[1:] if isinstance(a, Range | _NotEmpty))
    if origin is Literal:
        return any(type(value) is type(a) and value == a for a in args)
    if origin in (Union, types.UnionType):
        return any(accepts(a, value) for a in args)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        plain = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return plain and (not args or all(accepts(args[0], v) for v in value))
    if hint is Callable or origin is Callable:
        return callable(value)
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool) and not _is_time(value)
    if hint is float:
        number = isinstance(value, Real) and not isinstance(value, bool) and not _is_time(value)
        return number and abs(value) < math.inf
    return isinstance(value, origin or hint)


def _is_time(value: object) -> bool:
    """Whether it is NumPy's time difference, which calls itself an integer."""
    return type(value) is not int and getattr(getattr(value, "dtype", None), "kind", "") == "m"


def declared(name: str, value: object, hint: Any) -> None:
    """Require that a value fits an annotation, and that no number in it is beyond `LARGEST`."""
    if not accepts(hint, value):  # only then are the words wanted: records have thousands of numbers to check
        require(False, name, value, allowed(hint))
    require(not _beyond(value), name, value, f"at most {LARGEST:g}, so that single precision holds it")


def plain(value: Any) -> Any:
    """Return Python's own number or text where a value only looks like one; anything else as it is.

    NumPy's scalars, tensors and arrays of no dimension, fractions and members of an ``IntEnum`` are of other types.
    As such they would key other random draws than the number that they show, and JSON knows none of them.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        made = type(value)(map(plain, value))
        return value if all(a is b for a, b in zip(value, made, strict=True)) else made
    kind = getattr(getattr(value, "dtype", None), "kind", "f")  # a tensor's has none
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item") and kind in "biufU":
        value = value.item()
    if isinstance(value, bool) or not accepts(float | str, value):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, Integral) else float(value)


def _beyond(value: object) -> bool:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return any(map(_beyond, value))
    return isinstance(value, Real) and abs(value) > LARGEST


class Checked:
    """A dataclass whose fields are checked against their annotations when it is made, and made :func:`plain`.

    A subclass that has more to check overrides ``__post_init__`` and calls this one first.

    Raises
    ------
    ValueError
        For the first field whose value its annotation does not allow.
    """

    def __post_init__(self):
        for name, hint in hints(type(self)).items():
            given = getattr(self, name)
            value = given if hint is Any else plain(given)
            declared(name, value, hint)
            if value is not given:
                object.__setattr__(self, name, value)


@cache
def hints(owner: type) -> dict[str, Any]:
    """List the annotations of what a checked dataclass takes, by name."""
    every = get_type_hints(owner, include_extras=True)
    return {f.name: every[f.name] for f in fields(owner) if f.init}


def parameters(owner: type) -> dict[str, tuple[object, str]]:
    """List what a checked dataclass takes: by name, its default and which values are allowed.

    The default is ``dataclasses.MISSING`` where a value must be given.
    """
    plain = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(owner)}
    return {name: (plain[name], allowed(hint)) for name, hint in hints(owner).items()}


def known(names: Mapping | Iterable[str], given: str, what: str) -> None:
    """Require that a name is known; the line says which is the nearest, and lists the first of the known ones."""
    names = list(names)
    if given in names:
        return
    small = {name.lower(): name for name in names}
    close = difflib.get_close_matches(str(given).lower(), small, 1, 0.6)
    hint = f" (the nearest is {small[close[0]]})" if close else ""
    listed = ", ".join(names[:MANY]) + f" and {len(names) - MANY} more" * (len(names) > MANY)
    require(False, what, given, f"one of {listed or '(none)'}{hint}")
