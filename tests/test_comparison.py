"""What the comparison reads from the records, by hand, and the book's pages beside it."""

import re
from dataclasses import replace
from itertools import product

import charts
import front
import pytest

from cflkit.workbook.claims import ledger, verdicts
from cflkit.workbook.runs import protocols
from cflkit.workbook.show import plots


@pytest.mark.parametrize("share", ["r20", "r100"])
@pytest.mark.parametrize("situation", ["rot", "shift", "rot-skew"])
def test_every_federation_has_its_methods(situation, share):
    table = ledger.tables()[f"comparison-{situation}-{share}"]
    labels = {row["label"] for row in table["rows"].values()}
    assert labels == set(protocols.protocols()[table["protocol"]]["methods"])


def test_every_dose_of_a_shift_has_its_methods_and_nothing_else_differs():
    every, builds = ledger.tables(), []
    for data, shift in product(ledger.DATA, ledger.SHIFTS):
        for strength, name in ledger.doses(data, shift).items():
            table, protocol = every[name], protocols.protocols()[every[name]["protocol"]]
            assert protocol["federation"] | {"shift": shift, "strength": strength} == protocol["federation"]
            apart = {"oracle-tuned", "pacfl-tuned", "ifca-tuned"}  # which have tables of their own
            assert {row["label"] for row in table["rows"].values()} == set(protocol["methods"]) - apart
            assert ("oracle" in protocol["methods"]) == (shift != "shares")  # which has no groups
            same = {k: v for k, v in protocol["federation"].items() if k not in ("images", "shift", "strength")}
            builds.append((same, protocol["local"], protocol["rounds"]))
    assert all(build == builds[0] for build in builds) and len(builds) == 50


def test_leads_are_drawn_beside_zero_with_their_intervals():
    gaps = {0.2: verdicts.Gap(3, -1.0, 0.5, 4.0), 1.0: verdicts.Gap(3, 4.0, 1.0, 4.0)}
    figure, said = charts.doses({"digits": {"turned": {"PACFL": gaps}}, "clothes": {"renamed": {"IFCA": gaps}}})
    assert charts.doses({}) is None and "digits, turned, PACFL: -1.0 at 0.2, +4.0 at 1" in said
    assert [axes.get_title() for axes in figure.axes] == ["turned", "renamed"]
    zero, line = figure.axes[0].lines[:2]
    assert set(zero.get_ydata()) == {0} and list(line.get_ydata()) == [-1, 4]
    bars = figure.axes[0].containers[0].lines[2][0].get_segments()
    assert [tuple(bar[:, 1]) for bar in bars] == [pytest.approx(gap.ends()) for gap in gaps.values()]


def test_a_run_has_the_ledgers_finding_or_one_by_the_same_rule(monkeypatch):
    part = verdicts.Finding("x", "a", "b", mean=1.0, low=0.5, high=2.0, word="open")
    assert front.measured([part], "y", "a", "b") == replace(part, what="y")
    monkeypatch.setattr(verdicts, "decide", lambda parts, numbers: [replace(part, what=f"{parts}")])
    assert front.measured([part], "y", "a", "c") == replace(part, what="y")
    runs = [verdicts.Finding("as printed", word="failed"), verdicts.Finding("as released", word="held")]
    assert front.Lead("A", "over B", 5.0, runs, "").words == "failed as printed; held as released"
    assert front.Lead("A", "over B", 5.0, [], "days").words == "not run"


@pytest.mark.parametrize("slim", [False, True])
def test_the_picture_of_leads_is_to_scale(slim):
    run = verdicts.Finding("x", mean=1.0, low=-2.0, high=4.0, word="open")
    found = {"a": front.Lead("A", "over <B>", 4.0, [run], "")}
    drawn = front.drawing(found, slim)
    low, high = map(float, re.search(r'<g class="open"><line x1="([\d.]+)" x2="([\d.]+)"', drawn).groups())
    disc = float(re.search(r'<circle cx="([\d.]+)"', drawn)[1])
    printed = float(re.search(r'class="printed" d="M([\d.]+)', drawn)[1]) + 7
    assert disc == pytest.approx((low + high) / 2, abs=0.1) and printed == pytest.approx(high, abs=0.1)
    assert "over &lt;B&gt;" in drawn and "open: x" in drawn
    assert "printed +4.00; measured +1.00, -2.00 to +4.00" in drawn


def test_clients_stand_in_one_place_each_and_groups_in_a_row():
    tiles = front.tiles()
    assert sorted(place for *_, place in tiles) == list(range(28))
    assert sorted(tile[:2] for tile in tiles) == [(group, column) for group in range(4) for column in range(7)]


def test_a_colour_belongs_to_one_method():
    seven = ("StoCFL", "IFCA", "FeSEM", "MD-ICFL", "LCFed", "FedCG", "FedAvg")
    assert len({plots.look(name)[0] for name in seven}) == 7
    assert plots.look("Sattler's CFL") == plots.look("CFL") and plots.look("Ditto")[0] == plots.OTHER
