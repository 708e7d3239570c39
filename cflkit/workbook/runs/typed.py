"""What is typed at the console: values of parameters, lists of them, seeds, and times."""

import ast
import re
from argparse import ArgumentTypeError
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from cflkit.checks import accepts, allowed, require

MANY_SEEDS = 10_000
WORDS = {"true": True, "false": False, "null": None, "none": None}


def value(name: str, hint: Any, text: str) -> Any:
    """Read the value that an annotation allows: a number, a word, ``true``, ``null``, a list such as ``[1, 2]``."""
    read: list[Any] = [WORDS[text.lower()]] if text.lower() in WORDS else []
    with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # of brackets without end
        found = ast.literal_eval(text.strip())
        read += [] if isinstance(found, str) or re.search(r"\d_\d", text) else [found]  # 1_0 is no number
    for one in [*read, text]:
        if accepts(hint, one):
            whole = type(one) is int and "a finite number" in allowed(hint) and "an integer" not in allowed(hint)
            return float(one) if whole else one
    return require(False, name, text, allowed(hint))


def _must(ok: object, text: str, what: str) -> None:
    if not ok:
        raise ArgumentTypeError(f"{text}: must {what}")


def pair(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``."""
    name, equals, given = text.partition("=")
    _must(name and equals, text, "look like NAME=VALUE")
    return name.strip(), given.strip()


def lists(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Read ``NAME=VALUE,VALUE``, each name and each value given once."""
    found: dict[str, list[str]] = {}
    for name, text in pairs:
        require(name not in found, "parameter", name, "given once")
        found[name] = parts(text)
        for one in found[name]:
            require(found[name].count(one) == 1, name, one, "given once")
    return found


def parts(text: str) -> list[str]:
    """Cut ``VALUE,VALUE``; a comma inside brackets parts nothing."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [part.strip() for part in found]


def seeds(text: str) -> list[int]:
    """Read ``0-4`` or ``0,2,5-7``."""
    _must(re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text), text, "look like 0-4 or 0,2")
    ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    for first, *_, last in ([*end, *end] for end in ends):
        _must(first <= last, text, f"go upwards, such as {last}-{first}")
    few = max(map(max, ends)) < 2**32 and sum(end[-1] - end[0] for end in ends) < MANY_SEEDS
    _must(few, text, f"be at most {MANY_SEEDS} seeds, each below 2**32")
    found = sorted(seed for end in ends for seed in range(end[0], end[-1] + 1))
    _must(len(set(found)) == len(found), text, "name each seed once")
    return found


def count(text: str) -> int:
    """Read a number of processes or threads."""
    _must(re.fullmatch(r"0*[1-9]\d{0,3}", text), text, "be 1 or more")
    return int(text)


def seconds(text: str) -> float:
    """Read ``20m`` or ``1.5h``, in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([mh])", text)
    _must(match and float(match[1]), text, "look like 20m or 1.5h, and be more than nothing")
    return float(match[1]) * {"m": 60, "h": 3600}[match[2]]
