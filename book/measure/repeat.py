"""Make one run of each protocol a second time, on a later day, and note up to which round its numbers are the same.

``.venv/bin/python book/measure/repeat.py [PROTOCOL ...]`` takes the quickest record of each protocol named, else of
all, that is older than today, was made on a CPU, and has no note yet. It writes ``book/results/repeats.json``.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cflkit.checks import known, require
from cflkit.workbook import places
from cflkit.workbook.runs import protocols, records, run


def waiting(names: Sequence[str], folder: Path, notes: Sequence[dict]) -> Iterator[dict]:
    """Give the records to make again; runs of a GPU would take a CPU many times the memory."""
    noted, today = {note["record"] for note in notes}, records.provenance()["date"]
    for name in names or protocols.protocols():
        known(protocols.protocols(), name, "protocol")
        if not names and any(record.startswith(f"{name}/") for record in noted):
            continue
        every = map(records.read, sorted((folder / name).glob("*.json")))
        old = [run for run in every if run["provenance"]["date"] < today
               and run["provenance"]["device"] == "cpu" and f"{name}/{records.name(run)}" not in noted]  # fmt: skip
        require(bool(old) or not names, "protocol", name, "one with a run of a day before, not yet made again")
        yield from sorted(old, key=lambda run: run["provenance"]["seconds"])[:1]


def repeat(record: dict, folder: Path) -> dict:
    """Make a run again, and note how far it is the same.

    The note has the number of ``rounds``, the last one up to which all is the ``same`` (-1: none), what is
    ``apart`` in the last, with both values, and the provenance of the run made ``again``.
    """
    how = {name: record["provenance"][name] for name in ("trainer", "chunk") if name in record["provenance"]}
    plan = protocols.plan(record["protocol"], record["label"], record["seed"], **how)
    now = _identity(plan.simulation(progress=False).config)
    require(now == _identity(record["config"]), records.name(record), now, "what its protocol still gives")
    aside = folder / ".repeats"
    made, _ = run.run(plan, out=aside, checkpoints=aside)
    again = records.read(made)
    apart = [{name: [a[name], b[name]] for name in a if name in b and a[name] != b[name]}
             for a, b in zip(record["rounds"], again["rounds"], strict=True)]  # fmt: skip
    equal = next((round for round, found in enumerate(apart) if found), len(apart))
    scored = [round for round, row in enumerate(record["rounds"][:equal]) if any("accuracy" in n for n in row)]
    made.unlink()
    return {"record": f"{record['protocol']}/{records.name(record)}", "rounds": len(apart) - 1,
            "same": scored[-1] if scored else -1, "apart": apart[-1], "again": again["provenance"]}  # fmt: skip


def _identity(config: dict) -> str:
    """Identity of a configuration, but for how often personal models are scored: training does not see that.

    What an older record's method leaves out has its default.
    """
    method = protocols.defaults()["method"][config["method"]["name"]] | config["method"]
    return records.identity(config | {"personal": config["personal"][0], "method": method})


def main(names: Sequence[str], folder: Path = places.RESULTS) -> None:
    """Make runs again, one after the other, and note each at once."""
    file = folder / "repeats.json"
    notes = json.loads(file.read_text("utf-8")) if file.exists() else []
    for record in list(waiting(names, folder, notes)):
        note = repeat(record, folder)
        notes.append(note)
        lines = (json.dumps(each) for each in sorted(notes, key=lambda each: each["record"]))
        with places.atomic_write(file) as part:
            part.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")
        on = [made["machine"]["processor"] for made in (record["provenance"], note["again"])]
        print(f"{note['record']}: the same up to round {note['same']} of {note['rounds']}; {on[0]}, then {on[1]}")


if __name__ == "__main__":
    main(sys.argv[1:])
