"""The ledger over a small set of papers: rows, gaps, what became of each printed number, all counted by hand."""

import json
from datetime import date

import pytest
import yaml
from made import record

from cflkit.workbook import places
from cflkit.workbook.claims import ledger, measured
from cflkit.workbook.claims.ledger import MEASURED, NOT_RUN, RUNNABLE, Missing

# (paper, table, method, value), in the order of results.yaml
PRINTED = [
    ("stocfl", "Table 1", "A", 90.0), ("stocfl", "Table 1", "B", 80.0), ("stocfl", "Table 1", "C", 70.0),
    ("stocfl", "Table 1", "D", 60.0), ("fesem", "Table 1", "A", 50.0), ("fesem", "Table 2", "A", 40.0),
    ("fesem", "Table 2", "B", 30.0),
]  # fmt: skip
METHODS = {"a": {"name": "fedavg"}, "b": {"name": "ditto"}, "c": {"name": "fedsgd"}}
PROTOCOL = {
    "paper": "stocfl", "feeds": "nothing", "assumed": ["all of it"], "model": "mlp8", "local": {"lr": 0.1},
    "federation": {"builder": "rotated", "images": "digits", "clients": 8}, "rounds": 3, "methods": METHODS,
    "cost": {"each": 10, "b": 4}, "since": date(2026, 1, 1),
}  # fmt: skip
TABLE = {"paper": "stocfl", "title": "T", "metric": "accuracy", "seeds": 3,
         "where": {"table": "Table 1"}}  # fmt: skip
TABLES = {
    "one": TABLE | {"protocol": "free", "rows": {
        "A": {"label": "a", "printed": {"method": "A"}},
        "personal B": {"label": "b", "model": "personal", "printed": {"method": "B"}},
        "unprinted": {"label": "c"}}},
    "two": TABLE | {"protocol": "gated", "extended": 5, "rows": {
        "A": {"label": "a", "printed": {"method": "A"}}, "B": {"label": "b", "printed": {"method": "B"}},
        "C": {"label": "b", "printed": {"method": "C"}}}},
    "three": TABLE | {"protocol": "gated", "metric": "ari", "seeds": 4, "rows": {
        "C": {"label": "a", "printed": {"method": "C"}}}},
}  # fmt: skip
LEFT_OUT = [
    {"paper": "stocfl", "item": "a figure", "because": "no number stands in it"},
    {"paper": "stocfl", "item": "D", "where": {"method": "D"}, "because": "the first reason counts"},
    {"paper": "stocfl", "item": "all", "where": {"table": "Table 1"}, "because": "not the second"},
    {"paper": "fesem", "item": "all", "where": {"method": ["A", "B"]}, "because": "of another paper"},
]
GATES = {"free": "none", "gated": {"baseline": "c", "classes": 10, "printed": {"method": "A"}}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for records, beside papers of seven printed numbers."""
    entries = [{"paper": paper, "table": table, "dataset": "digits", "partition": "p", "setting": {"n_clients": 8},
                "method": method, "metric": "accuracy", "value": value, "std": None}
               for paper, table, method, value in PRINTED]  # fmt: skip
    files = {"results": {"entries": entries, "in_text": []}, "tables": {"tables": TABLES, "left_out": LEFT_OUT},
             "protocols": {"protocols": {"free": PROTOCOL, "gated": PROTOCOL}},
             "claims": {"rules_since": date(2026, 1, 1), "gates": GATES}}  # fmt: skip
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    monkeypatch.setattr(places, "PAPERS", tmp_path)
    return tmp_path / "records"


def seeds(folder, protocol, label, n, seconds=60, device="cpu", first=0, **final):
    for seed in range(first, first + n):
        path = record(folder, protocol, label, seed, device=device, **final)
        whole = json.loads(path.read_text())
        whole["provenance"]["seconds"] = seconds
        places.write(path, json.dumps(whole))


# ---------------------------------------------------------------------- rows
def test_a_row_has_its_printed_number_its_metric_and_its_runs(folder):
    seeds(folder, "free", "b", 1, personal_accuracy=0.5, accuracy=0.4)
    a, b, c = ledger.rows("one", folder)
    assert (a.name, a.label, a.printed, a.metric, a.values) == ("A", "a", 90.0, "accuracy", {})
    assert (b.name, b.label, b.printed, b.metric) == ("personal B", "b", 80.0, "personal_accuracy")
    assert measured.by_seed(b.measured, b.metric) == b.values == {0: 50.0} and not a.measured
    assert (c.name, c.label, c.printed, c.metric, c.values) == ("unprinted", "c", None, "accuracy", {})


@pytest.mark.parametrize("what", [lambda name, folder: list(ledger.rows(name, folder)), ledger.missing])
def test_an_unknown_table_is_refused_with_the_nearest(what, folder):
    with pytest.raises(ValueError, match=r"^table = 'onne': must be one of one, .* \(the nearest is one\)$"):
        what("onne", folder)


# ---------------------------------------------------------------------- what is missing
def test_a_missing_run_takes_what_others_took_on_a_cpu_or_what_the_protocol_says(folder):
    seeds(folder, "free", "a", 1, seconds=60)
    seeds(folder, "free", "a", 1, seconds=180, first=4)  # (1 + 3) / 2 minutes
    seeds(folder, "free", "a", 1, seconds=6000, device="cuda", first=5)
    seeds(folder, "free", "c", 3)
    assert ledger.missing("one", folder=folder) == [
        Missing("free", "a", 1, 2), Missing("free", "a", 2, 2),
        Missing("free", "b", 0, 4), Missing("free", "b", 1, 4), Missing("free", "b", 2, 4),
    ]  # fmt: skip
    assert ledger.missing("one", [0, 9], folder) == [  # cheapest first
        Missing("free", "c", 9, 1), Missing("free", "a", 9, 2),
        Missing("free", "b", 0, 4), Missing("free", "b", 9, 4),
    ]  # fmt: skip
    assert [m.seed for m in ledger.missing("two", folder=folder) if m.label == "a"] == [0, 1, 2, 3, 4]
    assert [m.label for m in ledger.missing("two", [0], folder)] == ["b", "a"]  # once, though two rows need it


# ---------------------------------------------------------------------- every printed number
def became(folder):
    return [(c.entry["value"], c.state, len(c.values), c.early, c.tables, c.because)
            for c in ledger.coverage(folder)]  # fmt: skip


def test_a_row_that_has_learnt_stands_beside_print_however_many_seeds_another_has(folder):
    seeds(folder, "gated", "c", 1, accuracy=0.9)
    seeds(folder, "gated", "b", 5, accuracy=0.1)  # chance
    seeds(folder, "free", "b", 3, personal_accuracy=0.5)
    assert became(folder)[1] == (80.0, MEASURED, 3, False, ("one", "two"), "")


REASONS = [
    (60.0, NOT_RUN, 0, False, (), "the first reason counts"),
    (50.0, NOT_RUN, 0, False, (), "of another paper"),
    (40.0, NOT_RUN, 0, False, (), "of another paper"),
    (30.0, NOT_RUN, 0, False, (), "of another paper"),
]


def test_what_became_of_every_number_and_what_is_lacking_cost(folder):
    """Free lacks a, b and c with three seeds each, gated a and b with five; b is the cheaper one."""
    lacking = {"runs": 19, "hours": (6 * 10 + 3 * 4 + 5 * 10 + 5 * 4) / 60}
    none = {"printed": 7, "measured": 0, "firm": 0, "early": 0, "runnable": 3, "left out": 4}
    blank = [(value, RUNNABLE, 0, False, names, "") for value, names in
             ((90.0, ("one", "two")), (80.0, ("one", "two")), (70.0, ("two", "three")))]  # fmt: skip
    assert became(folder) == blank + REASONS and ledger.totals(folder) == pytest.approx(none | lacking)
    seeds(folder, "free", "b", 3, personal_accuracy=0.5, accuracy=0.4)
    assert became(folder) == [blank[0], (80.0, MEASURED, 3, False, ("one", "two"), ""), blank[2], *REASONS]
    some = {"measured": 1, "firm": 1, "runnable": 2, "runs": 16, "hours": (142 - 12) / 60}
    assert ledger.totals(folder) == pytest.approx(none | some)


def test_a_row_unlearnt_does_not_count(folder):
    """Chance is 10: from there to 90 a tenth of the way ends at 18."""
    seeds(folder, "gated", "c", 1, accuracy=0.9)
    for low, high, near in ((0.17, 0.18, True), (0.17, 0.9, True), (0.18, 0.18, False)):
        seeds(folder, "gated", "a", 1, accuracy=low, ari=0.01)
        seeds(folder, "gated", "a", 1, first=1, accuracy=high, ari=0.01)
        rows = {row.name: row for row in ledger.rows("two", folder)}
        assert ledger.unlearnt("gated", rows["A"]) == near and not ledger.unlearnt("gated", rows["C"])
        assert became(folder)[0] == (90.0, MEASURED, 2, near, ("one", "two"), "")
        (index,) = ledger.rows("three", folder)
        assert not ledger.unlearnt("gated", index)  # chance is of accuracies
    assert not ledger.unlearnt("free", rows["A"])  # where nothing leans on learning


def test_a_row_with_a_diverged_run_or_near_the_most_frequent_class_does_not_count(folder, monkeypatch):
    seeds(folder, "gated", "c", 1, accuracy=0.9)
    seeds(folder, "gated", "a", 3, accuracy=0.19)
    (row,) = (row for row in ledger.rows("two", folder) if row.name == "A")
    assert not ledger.unlearnt("gated", row)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "protocols", lambda: {"gated": PROTOCOL | {"constant": 12.0}})
        assert ledger.unlearnt("gated", row)
    row.measured[1]["rounds"][-1]["diverged"] = True
    assert ledger.unlearnt("gated", row)


def test_a_number_with_neither_row_nor_reason_is_named_with_its_setting(folder, monkeypatch):
    monkeypatch.setattr(ledger, "left_out", lambda: LEFT_OUT[2:3])
    line = r"^printed number = .*'fesem'.*'Table 1'.*'A'.*'n_clients': 8.*: must be in a row of tables.yaml, or "
    with pytest.raises(ValueError, match=line):
        ledger.coverage(folder)
