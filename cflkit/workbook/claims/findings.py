"""Findings: sentences written by hand, each with the comparison that must hold for it to stand.

``book/findings.yaml`` has them. ``says`` is the sentence, with numbers in braces; ``numbers`` computes those from
the run records, and ``holds`` is what must be true. Both are expressions in the words of ``WORDS``, such as
``ahead("common_rot_r20/ifca", "common_rot_r20/fedavg")``. A finding whose records are gone, or that they no longer
carry, is an error that names it: no sentence changes, or goes, by itself.
"""

import re
from statistics import fmean

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
    return fmean(values(cell).values())


def gap(a: str, b: str) -> dict[str, float]:
    """Difference a - b as verdicts estimate it: ``mean``, ``low`` and ``high`` of its 95% interval, ``n`` seeds."""
    found = verdicts.compare(a, b)
    require(found.n > 0, "cells", f"{a} and {b}", "two that have run records")
    low, high = found.ends()
    return {"mean": found.mean, "low": low, "high": high, "n": found.n}


WORDS = {word.__name__: word for word in (
    values, mean, gap, papers.stated, verdicts.verdict, abs, min, max, round, all)} | {
    "printed": lambda **where: papers.one(**where)["value"],
    "seeds": lambda cell: len(values(cell)),
    "counted": lambda cell, low, high: sum(low <= value <= high for value in values(cell).values()),
    "between": lambda cell, low, high: all(low <= value <= high for value in values(cell).values()),
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
    finding, about = findings()[name], f"finding {name}"
    says, holds = finding["says"], finding["holds"]
    require(not SCORE.search(says), about, says, "without scores typed by hand")
    try:
        numbers = {key: _value(what) for key, what in finding.get("numbers", {}).items()}
        right = _value(holds)
    except (ValueError, NameError, TypeError, SyntaxError, KeyError) as error:
        raise ValueError(f"{about}: {error}; it says: {says}") from None
    require(isinstance(right, bool | np.bool_) and bool(right), about, says, f"true, but {holds} is not")
    return says.format(**numbers)


def _value(expression: str):
    return eval(expression, {"__builtins__": {}} | WORDS)  # the project's own file, and no other
