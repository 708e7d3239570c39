"""Runs that are made again: what is compared, what is noted, and what is refused."""

import json
from pathlib import Path

import pytest
import status

from cflkit.workbook import protocols, records, repeats, reproduce
from cflkit.workbook.console import main
from cflkit.workbook.spread import TimeIsUp


@pytest.fixture
def old(toy):
    """Records of both methods of the toy protocol, of another day; seconds tell which is quicker."""
    for label, seconds in (("a", 9.0), ("b", 4.0)):
        made = reproduce.run(protocols.plan("toy", label), out=Path("out"), progress=False)
        record = json.loads(made.read_text())
        record["provenance"] |= {"date": "2001-02-03", "seconds": seconds}
        made.write_text(json.dumps(record))
    return toy


def change(label, **numbers):
    """Change numbers of the last round of a record."""
    (file,) = Path("out/toy").glob(f"{label}-*.json")
    record = json.loads(file.read_text())
    record["final"] |= numbers
    record["rounds"][-1] |= numbers
    file.write_text(json.dumps(record))


def test_rounds_are_compared_by_what_both_records_have():
    rows = [{"round": 0, "accuracy": 0.1}, {"round": 1, "accuracy": 0.2}, {"round": 2, "accuracy": 0.5}]
    rows[2]["ari"] = None
    newer = [row | {"f1": 0.5} for row in rows]
    assert repeats.compared({"rounds": rows}, {"rounds": newer}) == {"rounds": 2, "same": 2, "apart": {}}
    newer[1] = newer[1] | {"accuracy": 0.200001}
    assert repeats.compared({"rounds": rows}, {"rounds": newer}) == {"rounds": 2, "same": 0, "apart": {}}
    newer[2] = newer[2] | {"accuracy": 0.25, "ari": 0.0}
    apart = {"accuracy": [0.5, 0.25], "ari": [None, 0.0]}
    assert repeats.compared({"rounds": rows}, {"rounds": newer}) == {"rounds": 2, "same": 0, "apart": apart}
    unscored = [rows[0], {"round": 1, "down": 5}, rows[2]]
    later = [rows[0], {"round": 1, "down": 5}, newer[2]]
    assert repeats.compared({"rounds": unscored}, {"rounds": later})["same"] == 0  # round 1 shows nothing
    newer[0] = newer[0] | {"accuracy": 0.0}
    assert repeats.compared({"rounds": rows}, {"rounds": newer})["same"] == -1


def test_words_for_what_was_found():
    note = {"rounds": 3, "same": 3, "apart": {}}
    assert repeats.said(note) == "all 3 rounds the same"
    apart = {"accuracy": [0.5, 0.25], "personal_accuracy": [0.5, 0.5625], "accuracy_std": [0.1, 0.9]}
    note |= {"same": 1, "apart": apart}
    assert repeats.furthest(note) == 0.25
    assert repeats.furthest(note | {"apart": {"accuracy_std": [0.1, 0.9]}}) == 0
    assert repeats.said(note) == "the same up to round 1 of 3; at the end accuracies 25.00 points apart"
    assert repeats.said(note | {"same": -1}).startswith("no scores the same; at the end")


def test_the_quickest_record_is_made_again_and_noted(old, capsys):
    assert main(["repeat", "--out", "out"]) == 0
    (note,) = repeats.notes(Path("out"))
    (record,) = Path("out/toy").glob("b-*.json")
    assert note["record"] == f"toy/{record.stem}"
    assert (note["rounds"], note["same"], note["apart"]) == (3, 3, {})
    assert note["again"]["date"] == records.provenance()["date"]
    assert capsys.readouterr().out.splitlines() == [f"toy/{record.stem}, which took 4 s", "  all 3 rounds the same"]
    assert len(records.load(folder=Path("out"))) == 2 and not list(Path("runs").rglob("*.json"))
    assert main(["repeat", "--out", "out"]) == 0  # the protocol has its note
    assert capsys.readouterr().out.startswith("nothing to repeat: ")
    processor = note["again"]["machine"]["processor"]
    days = [f"2001-02-03, {processor}", f"{note['again']['date']}, {processor}"]
    assert status.repeated(Path("out")) == [("`toy`", "b, seed 0", *days, "all 3", "0.00")]
    assert main(["repeat", "toy", "--out", "out"]) == 0  # named, it gives its next record
    assert [each["record"].split("-")[0] for each in repeats.notes(Path("out"))] == ["toy/a", "toy/b"]


def test_a_difference_is_noted(old):
    (record,) = Path("out/toy").glob("b-*.json")
    right = json.loads(record.read_text())["final"]["sizes"]
    change("b", sizes=[right[0] + 1, *right[1:]])
    repeats.all_of(["toy"], out=Path("out"))
    (note,) = repeats.notes(Path("out"))
    assert note["same"] == 0 and list(note["apart"]) == ["sizes"]
    assert status.repeated(Path("out"))[0][4:] == ("0 of 3", "0.00")  # of rounds with scores


def test_a_run_of_today_is_not_repeated(toy, capsys):
    made = reproduce.run(protocols.plan("toy", "a"), out=Path("out"), progress=False)
    assert repeats.waiting(folder=Path("out")) == []
    assert main(["repeat", "toy", "--out", "out"]) == 2
    assert "protocol = 'toy': must be one with a run of a day before" in capsys.readouterr().err
    with pytest.raises(ValueError, match="must be of a day before"):
        repeats.repeat(records.read(made), out=Path("out"))


def test_runs_of_a_gpu_are_passed_over(old):
    (file,) = Path("out/toy").glob("b-*.json")
    record = json.loads(file.read_text())
    record["provenance"]["device"] = "cuda"
    file.write_text(json.dumps(record))
    assert [run["label"] for run in repeats.waiting(folder=Path("out"))] == ["a"]


def test_a_changed_protocol_is_told(old, monkeypatch):
    (record,) = repeats.waiting(folder=Path("out"))
    plan = protocols.plan("toy", "b").changed({"rounds": "2"})
    monkeypatch.setattr(protocols, "plan", lambda *_, **how: plan)
    monkeypatch.setattr(reproduce, "run", None)  # nothing is run
    with pytest.raises(ValueError, match="must be what its protocol still gives"):
        repeats.repeat(record, out=Path("out"), progress=False)
    assert repeats.notes(Path("out")) == []


def test_what_an_older_record_leaves_out_of_its_method_has_its_default(old):
    (file,) = Path("out/toy").glob("a-*.json")
    record = json.loads(file.read_text())
    assert record["config"]["method"].pop("weights") == "n"
    assert repeats.repeat(record, out=Path("out"), progress=False)["same"] == 3
    record["config"]["method"]["weights"] = "uniform"
    with pytest.raises(ValueError, match="must be what its protocol still gives"):
        repeats.repeat(record, out=Path("out"), progress=False)


def test_how_often_personal_models_were_scored_is_no_change_of_a_protocol(old):
    (file,) = Path("out/toy").glob("b-*.json")
    record = json.loads(file.read_text())
    clients, every = record["config"]["personal"]
    record["config"]["personal"] = [clients, 2 if every is None else None]
    assert repeats.repeat(record, out=Path("out"), progress=False)["same"] == 3
    record["config"]["personal"] = [clients + 1, every]
    with pytest.raises(ValueError, match="must be what its protocol still gives"):
        repeats.repeat(record, out=Path("out"), progress=False)


def test_an_interrupted_repetition_goes_on(old):
    (record,) = repeats.waiting(folder=Path("out"))
    with pytest.raises(TimeIsUp):
        repeats.repeat(record, 0.0, out=Path("out"), progress=False)
    assert repeats.notes(Path("out")) == [] and list(Path("runs/repeats").iterdir())
    assert repeats.repeat(record, out=Path("out"), progress=False)["same"] == 3


def test_a_budget_that_is_spent_says_so(old, capsys):
    assert main(["repeat", "--out", "out", "--budget", "0.00001m"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "time is up after 1e-05 min; the same command goes on from the last checkpoint"
