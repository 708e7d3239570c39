"""What annotations allow, and the line that says so."""

import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from typing import Annotated, Literal

import numpy as np
import pytest

from cflkit import checks
from cflkit.checks import Checked, Count, Fraction, Inside, Natural, Positive, Range, Some, Unit, Weight


@pytest.mark.parametrize(("hint", "right", "wrong", "words"), [
    (Count, [1, 7, np.int64(3)], [0, -1, 1.0, 2.5, "4", True, None, math.nan], "an integer, 1 or more"),
    (Natural, [0, 5], [-1, 0.0, False], "an integer, 0 or more"),
    (Weight, [0, 0.5, 2, np.float32(1)], [-0.1, math.inf, math.nan, "0.5", True], "a finite number, 0 or more"),
    (Positive, [1e-9, 3], [0, -1, math.inf], "a finite number, greater than 0"),
    (Fraction, [0.1, 1], [0, 1.1, True], "a finite number, in (0, 1]"),
    (Inside, [0.5], [0, 1], "a finite number, in (0, 1)"),
    (Unit, [0, 1], [-0.1, 1.1], "a finite number, in [0, 1]"),
    (Annotated[float, Range(0, 1, open_high=True)], [0, 0.9], [1.0], "a finite number, in [0, 1)"),
    (Annotated[float, Range(-1, 1)], [-1, 1], [1.5], "a finite number, in [-1, 1]"),
    (float, [-5, 0.1], [math.nan, "1"], "a finite number"),
    (bool, [True, False], [0, 1, "no", None], "True or False"), (str, ["a"], [1, None], "a text"),
    (Literal["a", "b"], ["a"], ["c", None, 1], "one of a, b"),
    (Count | None, [None, 2], [0, "x"], "an integer, 1 or more or None"),
    (Sequence[int], [[1, 2], (3,), []], ["12", [1, "2"], [2.5], 3], "a sequence, each an integer"),
    (Some[int], [[1], (2, 3)], [[], (), 1, ["a"]], "a sequence, each an integer, not empty"),
    (tuple[float, ...], [(0.5,), [1]], [(math.nan,), 0.5], "a sequence, each a finite number"),
    (Callable, [len], [3], "a function"), (Range, [Range()], [3, None], "of type Range"),
])  # fmt: skip
def test_what_an_annotation_allows(hint, right, wrong, words):
    assert checks.allowed(hint) == words
    for value in right:
        checks.declared("x", value, hint)
    for value in wrong:
        with pytest.raises(ValueError) as caught:
            checks.declared("x", value, hint)
        assert str(caught.value) == f"x = {value!r}: must be {words}"


@dataclass(frozen=True)
class Thing(Checked):
    k: Count
    mode: Literal["fast", "slow"] = "fast"


def test_a_checked_dataclass_names_the_first_wrong_field():
    assert Thing(3).k == 3
    with pytest.raises(ValueError, match=r"^k = 0: must be an integer, 1 or more$"):
        Thing(0, "none")
    with pytest.raises(ValueError, match=r"^mode = 'none': must be one of fast, slow$"):
        Thing(1, "none")
    modes = ("fast", "one of fast, slow")
    assert checks.parameters(Thing) == {"k": (MISSING, "an integer, 1 or more"), "mode": modes}


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"'participaton': must be one of participation, lr \(the nearest is "):
        checks.known({"participation": 1, "lr": 2}, "participaton", "key")
    with pytest.raises(ValueError, match=r"must be one of lr$"):
        checks.known(["lr"], "zzz", "key")


def test_a_long_value_is_cut_and_stays_on_one_line():
    with pytest.raises(ValueError) as caught:
        checks.require(False, "x", "a\nb" * 500, "short")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250
