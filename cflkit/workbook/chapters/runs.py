"""What was run at the console: records of simulations and of chapters, found by name, listed, deleted."""

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from cflkit.checks import known
from cflkit.workbook import places
from cflkit.workbook.chapters import rerun
from cflkit.workbook.runs import records

_SCORES = {"accuracy": "accuracy", "personal_accuracy": "personal"}  # the first that a run has, and its short name
HIDDEN = {"digest", "seed", "device", "trainer", "chunk"}  # of a configuration: what no reader has changed


@dataclass(frozen=True)
class Run:
    """One run that has ended.

    Attributes
    ----------
    name : str
        ``FOLDER/LABEL``, the same for all seeds.
    seed : int
        Its seed.
    parameters : dict
        Everything that was set, flat.
    metrics : dict of str to list of dict
        By the method's label, the numbers of the last round; a list, as a chapter may use several seeds itself.
    rounds : dict of str to list of list of dict
        By label, the rows of each run.
    date : str
        When.
    seconds : float
        How long it took.
    file : Path
        Where it was read.
    failed : bool
        Whether a cell of the chapter failed: what came before it was measured all the same.
    """

    name: str
    seed: int
    parameters: dict
    metrics: dict[str, list[dict]]
    rounds: dict[str, list[list[dict]]]
    date: str
    seconds: float
    file: Path
    failed: bool = False

    @property
    def short(self) -> str:
        """Its name without folder and parameters, for a figure."""
        return self.name.partition("/")[2].partition(",")[0]

    @property
    def diverged(self) -> list[str]:
        """The labels whose models have diverged by some round, here or in one of several runs."""
        rows = {label: [row for one in each for row in one] for label, each in self.rounds.items()}
        return [label for label, every in rows.items() if any(row.get("diverged") for row in every)]


def load(folder: Path, patterns: Sequence[str] = ("*",)) -> tuple[list[Run], list[str]]:
    """All runs of these names in the order of names and seeds, and a line for each that cannot be read."""
    good, bad = [], []
    for file in _files(folder):
        if not any(fnmatch(_name(file), pattern) for pattern in patterns):
            continue
        try:
            good.append(read(file))
        except ValueError as error:
            bad.append(str(error))
    return sorted(good, key=lambda run: (run.name, run.seed)), bad


def _files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*/*.json"), *folder.glob("*/*/run.json")])


def _name(file: Path) -> str:
    """What a run is called by, told from where it lies; its seed is no part of it."""
    if file.name != "run.json":
        return f"{file.parent.name}/{file.stem.rsplit('-', 2)[0]}"  # LABEL-DIGEST-sSEED
    changed = [part for part in file.parent.name.split(",") if not part.startswith("seed=")]
    return f"{file.parent.parent.name}/{','.join(changed) or 'default'}"


def read(file: Path) -> Run:
    """Read a run: a record, or a chapter's ``run.json``.

    Raises
    ------
    ValueError
        It is damaged, or of another version; one line naming the file.
    """
    return _chapter(file) if file.name == "run.json" else _simulation(file)


def _simulation(file: Path) -> Run:
    record = records.read(file)
    came, method = record["provenance"], record["config"]["method"]["name"]
    final, rounds = {method: [record["final"]]}, {method: [record["rounds"]]}
    parameters = _flat(record["config"])
    return Run(_name(file), record["seed"], parameters, final, rounds, came["date"], came["seconds"], file)


def _chapter(file: Path) -> Run:
    run = rerun.read(file)
    seed = run["parameters"].get("seed", 0)
    metrics = {label: [one["final"] for one in each] for label, each in run["metrics"].items()}
    rounds = {label: [one["rounds"] for one in each] for label, each in run["metrics"].items()}
    came, parameters = run["provenance"], {k: v for k, v in run["parameters"].items() if k != "seed"}
    failed = bool(run.get("failed"))
    return Run(_name(file), seed, parameters, metrics, rounds, came["date"], came["seconds"], file, failed)


def _flat(config: Mapping, before: str = "") -> dict:
    """Bring a configuration to one level; methods, federations and local training have few names in common."""
    flat = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{name}.")
        elif name not in HIDDEN:
            flat[f"{before}{name}"] = value
    return flat


def find(names: Iterable[str], folders: Iterable[Path]) -> dict[str, list[Run]]:
    """Find runs by name, or by a pattern such as ``stocfl/*``.

    Returns
    -------
    dict of str to list of Run
        By name, one run a seed. A name that several folders have comes once for each: ``NAME (FOLDER)``.

    Raises
    ------
    ValueError
        For a name that no run has, or whose runs are all damaged.
    """
    names = list(names)
    folders = {folder.resolve(): folder for folder in folders}.values()
    everything = {folder: load(folder, names) for folder in folders}
    found: dict[tuple[str, Path], list[Run]] = {}
    for name in names:
        here = [(folder, run) for folder in folders for run in everything[folder][0] if fnmatch(run.name, name)]
        if not here:
            there = sorted({_name(file) for folder in folders for file in _files(folder)})
            if not any(fnmatch(one, name) for one in there):
                known(there, name, "run")
            raise ValueError(next(line for folder in folders for line in load(folder, [name])[1]))
        for folder, run in here:
            group = found.setdefault((run.name, folder), [])
            if run not in group:  # which another pattern has found
                group.append(run)
    twice = Counter(name for name, _ in found)
    return {f"{name} ({places.near(folder)})" if twice[name] > 1 else name: group
            for (name, folder), group in found.items()}  # fmt: skip


def line(run: Run) -> str:
    """Write a run in one line, for reading."""
    score = next((f"{word} {row[y]:.4f}" for rows in run.metrics.values() for row in rows[-1:]
                  for y, word in _SCORES.items() if row.get(y) is not None), None)  # fmt: skip
    many = f"{len(run.metrics)} methods" if run.metrics else "no metrics"
    shown = score if score and len(run.metrics) == 1 else many
    mark = "  failed" * run.failed + "  diverged" * bool(run.diverged)
    return f"{run.name:44} seed {run.seed:<3} {shown:17} {run.seconds:7.1f} s  {run.date}{mark}"


def delete(run: Run) -> None:
    """Delete a run with all that lies beside it."""
    with places.writing(run.file):
        if run.file.name == "run.json":
            shutil.rmtree(run.file.parent)
            return
        for suffix in (".csv", ".png", ".json"):
            run.file.with_suffix(suffix).unlink(missing_ok=True)
