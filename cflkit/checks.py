"""One clear line for bad input: the argument, its value, and what is allowed."""

import math
from collections.abc import Iterable
from numbers import Real


def require(ok: bool, name: str, value: object, allowed: str) -> None:
    """Raise a one-line ``ValueError`` unless `ok`.

    Parameters
    ----------
    ok : bool
        Whether the value is acceptable.
    name : str
        The argument, as the caller wrote it.
    value : object
        What was given.
    allowed : str
        What would have been right; completes the sentence "must be ...".

    Raises
    ------
    ValueError
        ``<name> = <value>: must be <allowed>``.
    """
    if not ok:
        raise ValueError(f"{name} = {value!r}: must be {allowed}")


def one_of(name: str, value: object, choices: Iterable) -> None:
    """Require that `value` is among `choices`, and list them if it is not."""
    choices = list(choices)
    require(value in choices, name, value, "one of " + ", ".join(map(str, choices)))


def positive(name: str, value: float) -> None:
    """Require a finite number above zero."""
    ok = isinstance(value, Real) and 0 < value < math.inf
    require(ok, name, value, "a finite number greater than 0")


def fraction(name: str, value: float) -> None:
    """Require a share in (0, 1]."""
    require(isinstance(value, Real) and 0 < value <= 1, name, value, "in (0, 1]")
