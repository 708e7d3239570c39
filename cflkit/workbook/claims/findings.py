"""Findings: sentences written by hand, each with the comparison that must hold for it to stand.

``book/findings.yaml`` has them. ``says`` is the sentence, with numbers in braces; ``numbers`` computes those from
the run records, and ``holds`` is what must be true. Both are expressions in the words of ``WORDS``, such as
``ahead("common_rot_r20/ifca", "common_rot_r20/fedavg")``. A finding whose records are gone, or that they no longer
carry, is an error that names it: no sentence changes, or goes, by itself.
"""

import re

import numpy as np

from cflkit.checks import known, require
from cflkit.workbook import places, strict
from cflkit.workbook.claims import measured, papers, verdicts

FILE = places.BOOK / "findings.yaml"
SCORE = re.compile(r"\d\s*(%|points?\b)")  # a score typed by hand; what is computed stands in braces


def values(cell: str) -> dict[int, float]:
    """Values by seed of ``protocol/label/metric`` (accuracy in percent if left out); at least one."""
    require(bool(found := measured.cell(cell).values), "cell", cell, "one that has a run record")
    return found


def mean(cell: str) -> float:
    """Mean over seeds."""
    return float(np.mean([*values(cell).values()]))


def gap(a: str, b: str) -> dict[str, float]:
    """Difference a - b as verdicts estimate it: ``mean``, ``low`` and ``high`` of its 95% interval, ``n`` seeds."""
    found = verdicts.compare(a, b)
    require(found.n > 0, "cells", f"{a} and {b}", "two that have run records")
    low, high = found.ends()
    return {"mean": found.mean, "low": low, "high": high, "n": found.n}


def printed(**where) -> float:
    """The one printed number with these fields (see :func:`cflkit.workbook.claims.papers.found`)."""
    numbers = papers.printed(**where)
    require(len(numbers) == 1, "printed", where, "fields of exactly one printed number")
    return numbers[0]


def counted(cell: str, low: float, high: float) -> int:
    """How many seeds have a value in [low, high]."""
    return sum(low <= value <= high for value in values(cell).values())


WORDS = {word.__name__: word for word in (
    values, mean, gap, printed, counted, papers.stated, verdicts.verdict, abs, min, max, round, all)} | {
    "seeds": lambda cell: len(values(cell)),
    "between": lambda cell, low, high: counted(cell, low, high) == len(values(cell)),  # in every seed
    "lead": lambda a, b: gap(a, b)["mean"],
    "ahead": lambda a, b, by=0.0: gap(a, b)["low"] > by,  # the whole interval of a - b lies above `by`
    "level": lambda a, b: gap(a, b)["low"] <= 0 <= gap(a, b)["high"],  # the seeds do not rank the two
}  # fmt: skip


def findings() -> dict[str, dict]:
    """Every finding by name, as ``book/findings.yaml`` has it."""
    return strict.read(FILE)


def text(name: str) -> str:
    """Write a finding's sentence.

    One with a score typed by hand, without a record, or whose comparison does not hold, is refused by name.
    """
    known(findings(), name, "finding")
    finding = findings()[name]
    require(not SCORE.search(finding["says"]), f"finding {name}", finding["says"], "without scores typed by hand")
    try:
        numbers = {key: _value(what) for key, what in finding.get("numbers", {}).items()}
        right = _value(finding["holds"])
    except (ValueError, NameError, TypeError, SyntaxError, KeyError) as error:
        raise ValueError(f"finding {name}: {error}; it says: {finding.get('says')}") from None
    true = isinstance(right, bool | np.bool_) and bool(right)
    require(true, f"finding {name}", finding["says"], f"true, but {finding['holds']} is not")
    return finding["says"].format(**numbers)


def _value(expression: str):
    return eval(expression, {"__builtins__": {}} | WORDS)  # the project's own file, and no other
