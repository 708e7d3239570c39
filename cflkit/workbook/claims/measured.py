"""What was measured: the records of a protocol's present configuration; which records are left out, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cflkit.checks import known
from cflkit.engine import metrics
from cflkit.workbook.claims import schema
from cflkit.workbook.runs import protocols, records, results
from cflkit.workbook.runs.results import PLAIN, diverged, fits, problems, whole

__all__ = ["PLAIN", "Measured", "cell", "diverged", "fits", "measured", "number", "problems", "whole"]


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


def cell(name: str, folder: Path = records.FOLDER) -> tuple[dict[int, float], list[dict]]:
    """Values by seed, and the records, of ``protocol/label/metric`` (accuracy if left out).

    Only the seeds that a table states beforehand count: 0, 1, ... up to their number.

    Raises
    ------
    ValueError
        For a protocol or label that does not exist.
    """
    protocol, label, metric = [*name.split("/"), "accuracy"][:3]
    known(protocols.protocols(), protocol, "protocol")
    known(protocols.protocols()[protocol]["methods"], label, "label")
    m, wanted = measured(protocol, label, folder), schema.planned(protocol, label)
    if m is None:
        return {}, []
    ends = wanted or len(m.runs) + max(run["seed"] for run in m.runs)
    values = results.cells(protocol, folder).get((label, metric), {})
    return {seed: v for seed, v in values.items() if seed < ends}, [run for run in m.runs if run["seed"] < ends]
