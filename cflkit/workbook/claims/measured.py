"""What was measured: the records of a protocol's present configuration, and the seeds of them that count."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cflkit.checks import known
from cflkit.engine import metrics
from cflkit.workbook.claims import schema
from cflkit.workbook.runs import protocols, records, results


@dataclass(frozen=True)
class Measured:
    """The runs of one method of a protocol, one per seed.

    Attributes
    ----------
    runs : list of dict
        Their records, by seed.
    """

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


def number(values: Sequence[float], sign: bool = False) -> str:
    """Mean with two decimals, and the standard deviation over seeds where there are several."""
    spread = metrics.spread(values)
    text = f"{spread['mean']:{'+' if sign else ''}.2f}"
    return text if spread["n"] == 1 else f"{text} ± {spread['std']:.2f}"


def measured(protocol: str, label: str, folder: Path = records.FOLDER) -> Measured | None:
    """The records of a method in a protocol, of its present configuration; None if there are none."""
    runs = {run["seed"]: run for run in results.runs(protocol, folder) if run["label"] == label}
    return Measured([runs[seed] for seed in sorted(runs)]) if runs else None


def metric_of(table: Mapping, row: Mapping) -> str:
    """The metric that a table shows in a row."""
    return f"{row['model']}_{table['metric']}" if "model" in row else table["metric"]


def cell(name: str, folder: Path = records.FOLDER) -> tuple[dict[int, float], list[dict]]:
    """Values by seed, and the records, of ``protocol/label/metric`` (accuracy if left out).

    Only the seeds that a table states beforehand count: 0, 1, ... up to their number.

    Raises
    ------
    ValueError
        For a protocol or label that does not exist.
    """
    protocol, label, metric = schema.split(name)
    known(protocols.protocols(), protocol, "protocol")
    known(protocols.protocols()[protocol]["methods"], label, "label")
    wanted, m = schema.planned(protocol, label), measured(protocol, label, folder)
    runs = [run for run in (m.runs if m else []) if wanted is None or run["seed"] < wanted]
    values = results.cells(protocol, folder).get((label, metric), {})
    return {run["seed"]: values[run["seed"]] for run in runs if run["seed"] in values}, runs
