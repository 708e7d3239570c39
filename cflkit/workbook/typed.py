"""What is typed at the console: parameters with one value or several, seeds, and times."""

import argparse
import re
from collections.abc import Iterable

from cflkit.checks import require

MANY_SEEDS = 10_000


def pair(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text}: must look like NAME=VALUE")
    return name.strip(), value.strip()


def lists(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Read ``NAME=VALUE,VALUE``; a comma inside brackets parts nothing."""
    pairs = list(pairs)
    names = [name for name, _ in pairs]
    for name in names:
        require(names.count(name) == 1, "parameter", name, "given once")
    found = {name: parts(text) for name, text in pairs}
    for name, texts in found.items():
        for text in texts:
            require(texts.count(text) == 1, name, text, "given once")
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
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        raise argparse.ArgumentTypeError(f"{text}: must look like 0-4 or 0,2")
    ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    for end in ends:
        if end[0] > end[-1]:
            raise argparse.ArgumentTypeError(f"{text}: must go upwards, such as {end[-1]}-{end[0]}")
    if max(max(end) for end in ends) >= 2**32 or sum(end[-1] - end[0] for end in ends) >= MANY_SEEDS:
        raise argparse.ArgumentTypeError(f"{text}: must be at most {MANY_SEEDS} seeds, each below 2**32")
    found = sorted(seed for end in ends for seed in range(end[0], end[-1] + 1))
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"{text}: must name each seed once")
    return found


def minutes(text: str) -> float:
    """Read ``20m`` or ``1.5h``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([mh])", text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text}: must look like 20m or 1.5h, and be more than nothing")
    return float(match[1]) * {"m": 1, "h": 60}[match[2]]
