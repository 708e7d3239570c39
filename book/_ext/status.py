"""How old everything is and what it was made with: what the status page shows, collected when the book is built."""

import json
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from cflkit.workbook.chapters import notebooks, proof
from cflkit.workbook.claims.measured import measured
from cflkit.workbook.runs import protocols, records

SPEED = 100  # words a minute, with the formulas, tables and figures that stand between them
MARKUP = re.compile(
    r"^(:{3,}|`{3,})\{(?:include|literalinclude|math)[^}]*\}.*?^\1\s*?$|\$\$.*?\$\$|^:[a-z-]+:.*?$",
    re.DOTALL | re.MULTILINE,
)
SHOWN = ("numpy", "scipy", "scikit-learn", "matplotlib", "jupyter-book", "Sphinx")  # besides what records name


def built() -> dict[str, str]:
    """Give the day of this build, its commit, and the versions that made it."""
    now = records.provenance()
    versions = {"Python": now["versions"]["python"], "PyTorch": now["versions"]["torch"]}
    versions |= {name: metadata.version(name) for name in SHOWN}
    return {
        "day": now["date"],
        "commit": (now["commit"] or "unknown") + (", with changes" if now["changed"] else ""),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }


def prose(path: Path) -> str:
    """Give the Markdown of a notebook."""
    return "\n\n".join(cell["source"] for cell in notebooks.load(path)["cells"] if cell["cell_type"] == "markdown")


def minutes(path: Path) -> int:
    """Give the minutes that a notebook takes to read, folded or not, exercises and what follows them aside."""
    read = MARKUP.sub("", prose(path).partition("\n## Exercises")[0])
    return round(len(re.findall(r"[A-Za-z][\w'’-]*", read)) / SPEED)


def ran(path: Path) -> dict | None:
    """Give how long a notebook of the book ran when it was last refreshed, where and when, or None."""
    file = notebooks.TIMES / f"{path.stem}.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else None


def told(path: Path) -> str:
    """Say how long a notebook takes to read and to run."""
    said = f"Reading takes about {minutes(path)} minutes, without the exercises."
    if took := ran(path):
        how = f"{took['seconds']:.0f} seconds of one core of {took['processor']}"
        said += f" The notebook took {how}, on {took['date']}."
    return said + "\n"


def compared() -> Iterator[tuple[str, int, int, str, str]]:
    """Give for each notebook the minutes to read it, how many cells the tests compare, its seconds, and when."""
    for path in notebooks.chapters():
        took = ran(path) or {"seconds": None, "date": "–"}
        seconds = "–" if took["seconds"] is None else f"{took['seconds']:.0f}"
        yield path.stem, minutes(path), proof.problems(path)[1], seconds, took["date"]


def runs(folder: Path) -> Iterator[tuple[str, int, str, str, str]]:
    """Give for each protocol with records how many count, their first and last day, and their hours together."""
    for name, protocol in protocols.protocols().items():
        made = [run["provenance"] for label in protocol["methods"] for run in measured(name, label, folder)]
        days, hours = sorted(run["date"] for run in made), sum(run["seconds"] for run in made) / 3600
        if made:
            yield f"`{name}`", len(made), days[0], days[-1], f"{hours:.1f}"


def repeated(folder: Path) -> Iterator[tuple[str, str, str, str, str, str]]:
    """Give for each run made twice both days, how many rounds are the same, and the points apart at the end."""
    file = folder / "repeats.json"  # which book/measure/repeat.py writes
    for note in json.loads(file.read_text("utf-8")) if file.exists() else []:
        first = records.read(folder / f"{note['record']}.json")
        days = (f"{made['date']}, {made['card'] or made['machine']['processor']}"
                for made in (first["provenance"], note["again"]))  # fmt: skip
        same, of = note["same"], note["rounds"]
        rounds = f"all {of}" if same == of else f"{'none' if same < 0 else same} of {of}"
        pairs = [note["apart"].get(name, (0, 0)) for name in ("accuracy", "personal_accuracy")]
        apart = 100 * max(abs(a - b) for a, b in pairs)  # the served or the clients' own models, in the last round
        yield f"`{first['protocol']}`", f"{first['label']}, seed {first['seed']}", *days, rounds, f"{apart:.2f}"


def causes(folder: Path) -> list[tuple[str, int, int]]:
    """Give for each thing that was changed how many runs kept every bit, and of how many."""
    notes: dict[str, list] = {}
    for note in json.loads((folder / "causes.json").read_text("utf-8")):  # which book/measure/causes.py writes
        notes.setdefault(note["cause"], []).append(note["bits"])
    return [(cause, bits.count(None), len(bits)) for cause, bits in notes.items()]
