"""What was measured: the records of a protocol's present configuration, and the seeds of them that count."""

from collections.abc import Mapping, Sequence
from functools import cache
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from cflkit.checks import known
from cflkit.engine import metrics
from cflkit.workbook.claims import schema
from cflkit.workbook.runs import records, results


class Cell(NamedTuple):
    """A number of a method in a protocol: of the seeds that count its records, and its last `values` by seed."""

    runs: list[dict]
    values: dict[int, float]
    gone: set[int]  # seeds whose models diverged
    steady: dict[int, float]  # the values of the others


def number(values: Sequence[float], sign: bool = False) -> str:
    """Mean with two decimals, and the standard deviation over seeds where there are several."""
    spread = metrics.spread(values)
    text = f"{spread['mean']:{'+' if sign else ''}.2f}"
    return text if spread["n"] == 1 else f"{text} ± {spread['std']:.2f}"


def measured(protocol: str, label: str, folder: Path = records.FOLDER) -> list[dict]:
    """The records of a method in a protocol, of its present configuration, by seed."""
    return sorted((run for run in results.runs(protocol, folder) if run["label"] == label), key=itemgetter("seed"))


def by_seed(runs: Sequence[dict], metric: str = "accuracy") -> dict[int, float]:
    """The last round's value for each seed (:func:`.results.scores`); empty if no run has it."""
    found = {run["seed"]: results.scores(run) for run in runs}
    return {seed: score[metric] for seed, score in found.items() if metric in score}


def metric_of(table: Mapping, row: Mapping) -> str:
    """The metric that a table shows in a row."""
    return f"{row['model']}_{table['metric']}" if "model" in row else table["metric"]


def cell(name: str, folder: Path = records.FOLDER) -> Cell:
    """Read ``protocol/label/metric`` (accuracy if left out); what does not exist is refused.

    Only the seeds that a table states beforehand count: 0, 1, ... up to their number.
    """
    protocol, label, metric = schema.split(name)
    known(schema.protocols(), protocol, "protocol")
    if "." not in label:  # a method of a file is in no protocol
        known(schema.protocols()[protocol]["methods"], label, "label")
    known(results.METRICS, metric, "metric")
    seeds = schema.planned().get((protocol, label), inf)
    return _cell(protocol, label, metric, folder, seeds, results.stamp(protocol, folder))


@cache
def _cell(protocol: str, label: str, metric: str, folder: Path, seeds: float, stamp: int) -> Cell:
    runs = [run for run in measured(protocol, label, folder) if run["seed"] < seeds]
    values, gone = by_seed(runs, metric), {run["seed"] for run in runs if results.diverged(run)}
    return Cell(runs, values, gone, {seed: value for seed, value in values.items() if seed not in gone})
