"""A run that is made again on a later day: which one, what is noted, and what is refused."""

import json
from pathlib import Path

import made
import pytest
import status

from cflkit.workbook.runs import protocols, run

repeat = made.script("repeat")


@pytest.fixture
def old(toy):
    """Records of both methods of the toy protocol, of another day; seconds tell which is quicker."""
    for label, seconds in (("a", 9.0), ("b", 4.0)):
        file, _ = run.run(protocols.plan("toy", label), out=Path("out"), progress=False)
        record = json.loads(file.read_text())
        record["provenance"] |= {"date": "2001-02-03", "seconds": seconds}
        file.write_text(json.dumps(record))
    return toy


def test_the_quickest_record_is_made_again_and_noted(old, capsys):
    repeat.main([], Path("out"))
    (record,), (note,) = Path("out/toy").glob("b-*.json"), json.loads(Path("out/repeats.json").read_text())
    assert note["record"] == f"toy/{record.stem}" and (note["rounds"], note["same"], note["apart"]) == (3, 3, {})
    assert f"toy/{record.stem}: the same up to round 3 of 3; " in capsys.readouterr().out
    assert not list(Path("out").rglob(".repeats/**/*.json"))
    repeat.main([], Path("out"))  # the protocol has its note
    assert next(status.repeated(Path("out")))[4:] == ("all 3", "0.00")
    (other,) = Path("out/toy").glob("a-*.json")  # named, it gives its next record; here one that differs
    changed = json.loads(other.read_text())
    for row in (changed["final"], changed["rounds"][-1]):
        row["moved"] = 7
    other.write_text(json.dumps(changed))
    repeat.main(["toy"], Path("out"))
    first, second = json.loads(Path("out/repeats.json").read_text())
    assert (first["record"], first["same"]) == (f"toy/{other.stem}", 2 if first["apart"] else 3) and second == note


def test_runs_of_today_or_of_another_setting_are_refused(old, monkeypatch):
    with pytest.raises(ValueError, match="protocol = 'nope': must be one of toy"):
        repeat.main(["nope"], Path("out"))
    monkeypatch.setattr(run, "run", None)  # nothing is run
    plan = protocols.plan("toy", "b").changed({"rounds": "2"})
    with monkeypatch.context() as patch:
        patch.setattr(protocols, "plan", lambda *_, **how: plan)
        with pytest.raises(ValueError, match="must be what its protocol still gives"):
            repeat.main(["toy"], Path("out"))
    for file in Path("out/toy").glob("*.json"):
        file.write_text(file.read_text().replace("2001-02-03", "2100-01-01"))
    with pytest.raises(ValueError, match="protocol = 'toy': must be one with a run of a day before"):
        repeat.main(["toy"], Path("out"))
