"""How often the rules err: the fast sums are the rules' own, and the shares are what theory says."""

import numpy as np
import pytest

from cflkit.workbook import chances
from cflkit.workbook.verdicts import FAILS, HOLDS, outcome


@pytest.mark.parametrize("rivals, seeds", [(1, 3), (4, 3), (9, 10)])
def test_claims_are_decided_as_the_ledger_does(rivals, seeds):
    random = np.random.default_rng(1)
    margins = random.normal(size=(300, rivals, seeds)) + random.uniform(-3, 5, size=(300, 1, 1))
    words = [outcome(each, strict=True) for each in margins.tolist()]
    holds, fails = chances.decided(margins)
    assert [HOLDS if h else FAILS if f else None for h, f in zip(holds, fails, strict=True)] == [
        word if word in (HOLDS, FAILS) else None for word in words]  # fmt: skip
    assert len(set(words)) == 3


def test_one_baseline_errs_once_in_forty_on_each_side():
    for share in chances.chances(1, extended=False):
        assert share == pytest.approx(0.025, abs=0.004)  # four standard errors of the simulation


def test_more_baselines_hold_less_and_fail_more_and_so_do_more_seeds():
    (holds, fails), (later_holds, later_fails) = (chances.chances(9, extended) for extended in (False, True))
    assert holds < 0.002 and 0.1 < fails < later_fails < 0.4
    assert later_holds >= holds
