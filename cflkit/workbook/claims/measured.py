"""What was measured: the records of a protocol's present configuration, and the seeds of them that count."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from cflkit.checks import known
from cflkit.engine import metrics
from cflkit.workbook.claims import schema
from cflkit.workbook.runs import records, results
from cflkit.workbook.runs.results import METRICS


@dataclass(frozen=True)
class Measured:
    """The runs of one method of a protocol: `runs` are their records, one a seed, by seed."""

    runs: list[dict]

    @property
    def rounds(self) -> int:
        """Communication rounds of the runs."""
        return self.runs[0]["config"]["rounds"]

    def values(self, metric: str = "accuracy") -> dict[int, float]:
        """The last round's value for each seed (:func:`.results.scores`); empty if no run has it."""
        found = {run["seed"]: results.scores(run) for run in self.runs}
        return {seed: score[metric] for seed, score in found.items() if metric in score}

    def percent(self, metric: str = "accuracy") -> list[float]:
        """The same as a list."""
        return list(self.values(metric).values())


@dataclass(frozen=True)
class Cell:
    """A number of a method in a protocol: its records, and its last `values` by seed, of the seeds that count."""

    runs: list[dict]
    values: dict[int, float]

    @cached_property
    def gone(self) -> set[int]:
        """Seeds whose models diverged."""
        return {run["seed"] for run in self.runs if results.diverged(run)}

    @cached_property
    def steady(self) -> dict[int, float]:
        """The values without those."""
        return {seed: value for seed, value in self.values.items() if seed not in self.gone}


def number(values: Sequence[float], sign: bool = False) -> str:
    """Mean with two decimals, and the standard deviation over seeds where there are several."""
    spread = metrics.spread(values)
    text = f"{spread['mean']:{'+' if sign else ''}.2f}"
    return text if spread["n"] == 1 else f"{text} ± {spread['std']:.2f}"


def measured(protocol: str, label: str, folder: Path = records.FOLDER) -> Measured | None:
    """The records of a method in a protocol, of its present configuration; None if there are none."""
    runs = sorted((run for run in results.runs(protocol, folder) if run["label"] == label), key=lambda r: r["seed"])
    return Measured(runs) if runs else None


def metric_of(table: Mapping, row: Mapping) -> str:
    """The metric that a table shows in a row."""
    return f"{row['model']}_{table['metric']}" if "model" in row else table["metric"]


def cell(name: str, folder: Path = records.FOLDER) -> Cell:
    """Read ``protocol/label/metric`` (accuracy if left out).

    Only the seeds that a table states beforehand count: 0, 1, ... up to their number.

    Raises
    ------
    ValueError
        For a protocol, label or metric that does not exist.
    """
    protocol, label, metric = schema.split(name)
    known(schema.protocols(), protocol, "protocol")
    known(schema.protocols()[protocol]["methods"], label, "label")
    known(METRICS, metric, "metric")
    stamps = results.stamps(protocol, folder)
    return _cell(protocol, label, metric, folder, schema.planned(protocol, label), stamps)


@cache
def _cell(protocol: str, label: str, metric: str, folder: Path, wanted: int | None, stamps: tuple) -> Cell:
    m = measured(protocol, label, folder)
    runs = [run for run in (m.runs if m else []) if wanted is None or run["seed"] < wanted]
    values = results.cells(protocol, folder).get((label, metric), {})
    return Cell(runs, {run["seed"]: values[run["seed"]] for run in runs if run["seed"] in values})
