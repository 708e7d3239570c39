"""How old everything is and what it was made with: what the status page shows, collected when the book is built."""

import json
from importlib import metadata
from pathlib import Path

import reading
import yaml

from cflkit.workbook import places
from cflkit.workbook.chapters import notebooks, proof
from cflkit.workbook.claims import ledger
from cflkit.workbook.runs import protocols, records

SHOWN = ("numpy", "scipy", "scikit-learn", "matplotlib", "jupyter-book", "Sphinx")  # besides what records name


def built() -> dict[str, str]:
    """Give the day of this build, its commit, and the versions that made it."""
    now = records.provenance()
    versions = {"Python": now["versions"]["python"], "PyTorch": now["versions"]["torch"]}
    return {
        "day": now["date"],
        "commit": (now["commit"] or "unknown") + (", with changes" if now["changed"] else ""),
        "versions": versions | {name: metadata.version(name) for name in SHOWN},
    }


def compared() -> list[tuple[str, int, int, str, str]]:
    """Give for each notebook the minutes to read it, how many cells the tests compare, its seconds, and when."""
    found = []
    for path in notebooks.chapters():
        took = reading.ran(path) or {"seconds": None, "date": "–"}
        seconds = "–" if took["seconds"] is None else f"{took['seconds']:.0f}"
        found.append((path.stem, reading.minutes(path), proof.problems(path)[1], seconds, took["date"]))
    return found


def runs(folder: Path) -> list[tuple[str, int, str, str, str]]:
    """Give for each protocol with records how many count, their first and last day, and their hours together."""
    lines = []
    for name, protocol in protocols.protocols().items():
        labels = [ledger.measured(name, label, folder) for label in protocol["methods"]]
        made = [run["provenance"] for found in labels if found for run in found.runs]
        days, hours = sorted(run["date"] for run in made), sum(run["seconds"] for run in made) / 3600
        if made:
            lines.append((f"`{name}`", len(made), days[0], days[-1], f"{hours:.1f}"))
    return lines


def repeated(folder: Path) -> list[tuple[str, str, str, str, str, str]]:
    """Give for each run made twice both days, how many rounds are the same, and the points apart at the end."""
    lines = []
    file = folder / "repeats.json"  # which book/measure/repeat.py writes
    for note in json.loads(file.read_text("utf-8")) if file.exists() else []:
        first = records.read(folder / f"{note['record']}.json")
        days = (_day(made) for made in (first["provenance"], note["again"]))
        whole = note["same"] == note["rounds"]
        rounds = f"all {note['rounds']}" if whole else f"{_reached(note['same'])} of {note['rounds']}"
        run = f"{first['label']}, seed {first['seed']}"
        lines.append((f"`{first['protocol']}`", run, *days, rounds, f"{100 * _furthest(note):.2f}"))
    return lines


def _furthest(note: dict) -> float:
    """How far the accuracies of the last round are apart, as a share: of the served or the clients' own models."""
    pairs = [note["apart"].get(name, (0, 0)) for name in ("accuracy", "personal_accuracy")]
    return max(abs(a - b) for a, b in pairs)


def _reached(round: int) -> str:
    return "none" if round < 0 else f"{round}"


def _day(made: dict) -> str:
    """When and on what a run was made."""
    return f"{made['date']}, {made['card'] or made['machine']['processor']}"


def citation() -> dict:
    """Read how to cite the project, as ``CITATION.cff`` says it."""
    return yaml.safe_load((places.ROOT / "CITATION.cff").read_text("utf-8"))
