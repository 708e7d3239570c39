"""Runs that were made a second time on another day, and whether every number came out again.

What a second run gave is compared with the record, round by round. Only the outcome is kept, in one file for all
protocols; the second record is not.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from cflkit.checks import require
from cflkit.methods import METHODS
from cflkit.workbook import places, protocols, records, reproduce
from cflkit.workbook.measured import measured, whole
from cflkit.workbook.spread import Clock, TimeIsUp

FILE = "repeats.json"  # in the folder of the records


def compared(first: dict, again: dict) -> dict:
    """Set a second record beside the first, by what both have: records of older versions have fewer numbers.

    Returns
    -------
    dict
        ``rounds``: the number of rounds. ``same``: the last round with scores up to which all is the same, to
        the six decimals of a record; -1 if there is none. ``apart``: what differs in the last
        round, by name, with both values.
    """
    apart = [_apart(a, b) for a, b in zip(first["rounds"], again["rounds"], strict=True)]
    equal = next((i for i, found in enumerate(apart) if found), len(apart))
    scored = [i for i, row in enumerate(first["rounds"][:equal]) if any("accuracy" in name for name in row)]
    return {"rounds": len(apart) - 1, "same": scored[-1] if scored else -1, "apart": apart[-1]}


def _apart(a: dict, b: dict) -> dict[str, list]:
    """Numbers of a round that differ, with both values."""
    return {name: [a[name], b[name]] for name in a if name in b and a[name] != b[name]}


def repeat(record: dict, seconds: float | None = None, *, out: Path = records.FOLDER,
           checkpoints: Path = reproduce.CHECKPOINTS, progress: bool = True) -> dict:  # fmt: skip
    """Make a recorded run again, and note what came of it.

    Parameters
    ----------
    record : dict
        Of an earlier day.
    seconds : float, optional
        Stop after so long, at the end of a round; the same call goes on from there.
    out : Path
        Where the records are, and the note goes.
    checkpoints : Path
        Where the second run is kept until it is compared.
    progress : bool
        Show a progress bar.

    Returns
    -------
    dict
        The note: which ``record``, what :func:`compared` says, and the provenance of the run made ``again``.

    Raises
    ------
    ValueError
        If the record is of today, or its protocol has been changed since.
    TimeIsUp
        If time is up before the last round.
    """
    run, day = f"{record['protocol']}/{records.name(record)}", record["provenance"]["date"]
    today = records.provenance()["date"]
    require(day < today, run, f"of {day}", f"of a day before {today}")
    how = {name: record["provenance"][name] for name in ("trainer", "chunk") if name in record["provenance"]}
    plan = protocols.plan(record["protocol"], record["label"], record["seed"], **how)
    now = _training_identity(plan.simulation(progress=False).config)
    require(now == _training_identity(record["config"]), run, now, "what its protocol still gives")
    aside = checkpoints / "repeats"
    made = reproduce.run(plan, seconds, out=aside, checkpoints=aside, progress=progress)
    again = records.read(made)
    note = {"record": run, **compared(record, again), "again": again["provenance"]}
    with FileLock(checkpoints / f"{FILE}.lock"), places.whole(out / FILE) as part:
        kept = [other for other in notes(out) if other["record"] != run]
        lines = (json.dumps(each) for each in sorted([*kept, note], key=lambda each: each["record"]))
        part.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    made.unlink()
    return note


def _training_identity(config: dict) -> str:
    """Identity of a configuration, but for how often personal models are scored: training does not see that.

    What an older record's method leaves out has its default.
    """
    clients, _ = config["personal"]
    method = whole(METHODS[config["method"]["name"]], config["method"])
    return records.identity(config | {"personal": clients, "method": method})


def notes(folder: Path = records.FOLDER) -> list[dict]:
    """Every note, in the order of the records' names."""
    file = folder / FILE
    return json.loads(file.read_text()) if file.exists() else []


def waiting(names: Sequence[str] = (), folder: Path = records.FOLDER) -> list[dict]:
    """Find the quickest record of each protocol among those of earlier days that were not made again.

    Runs of a GPU are passed over: they trained clients in lock-step, which takes a CPU many times the memory.

    Parameters
    ----------
    names : sequence of str
        Of which protocols. By default of all that have no note yet.
    folder : Path
        Where the records and the notes are.

    Raises
    ------
    ValueError
        If a named protocol has no such record.
    """
    today, done = records.provenance()["date"], {note["record"] for note in notes(folder)}
    protocols_done = {record.partition("/")[0] for record in done}
    found = []
    for name in names or [name for name in protocols.protocols() if name not in protocols_done]:
        counted = [measured(name, label, folder) for label in protocols.protocols()[name]["methods"]]
        runs = [run for each in counted if each for run in each.runs]
        runs = [run for run in runs if f"{name}/{records.name(run)}" not in done]
        old = [run for run in runs if run["provenance"]["date"] < today and run["provenance"]["device"] == "cpu"]
        wanted = f"one with a run of a day before {today}, on a CPU, not repeated"
        require(bool(old or not names), "protocol", name, wanted)
        found += sorted(old, key=_seconds)[:1]
    return sorted(found, key=_seconds)


def _seconds(record: dict) -> float:
    return record["provenance"]["seconds"]


def all_of(names: Sequence[str] = (), minutes: float | None = None, *, out: Path = records.FOLDER,
           checkpoints: Path = reproduce.CHECKPOINTS) -> None:  # fmt: skip
    """Repeat what is :func:`waiting`, quickest first, and print a line for each run.

    Raises
    ------
    ValueError
        As :func:`waiting` and :func:`repeat`, or for a folder that is not there or cannot be written to.
    FileNotFoundError
        For images that are not on this machine.
    TimeIsUp
        When the budget is spent before all are repeated.
    """
    require(out.is_dir(), "out", str(out), "a folder that exists")
    reproduce.try_folders(out, checkpoints)
    clock = Clock(None if minutes is None else 60 * minutes)
    todo = waiting(names, out)
    for record in todo:
        protocols.plan(record["protocol"], record["label"], record["seed"]).need_images()
    for record in todo:
        print(f"{record['protocol']}/{records.name(record)}, which took {_seconds(record):.0f} s", flush=True)
        try:
            note = repeat(record, clock.left(), out=out, checkpoints=checkpoints)
        except TimeIsUp:
            raise TimeIsUp(f"time is up after {minutes:g} min") from None
        print(f"  {said(note)}", flush=True)
    if not todo:
        print("nothing to repeat: every protocol with a run of an earlier day has its note")


def said(note: dict) -> str:
    """How a second run compares with the first, in words."""
    if note["same"] == note["rounds"]:
        return f"all {note['rounds']} rounds the same"
    begin = f"the same up to round {note['same']} of {note['rounds']}"
    begin = "no scores the same" if note["same"] < 0 else begin
    return f"{begin}; at the end accuracies {100 * furthest(note):.2f} points apart"


def furthest(note: dict) -> float:
    """How far the accuracies of the last round are apart, as a share: of the served or the clients' own models."""
    pairs = [note["apart"].get(name, (0, 0)) for name in ("accuracy", "personal_accuracy")]
    return max(abs(a - b) for a, b in pairs)
