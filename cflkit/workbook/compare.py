"""Runs beside each other: which parameters differ, how far metrics do, and the curves in one figure."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from cflkit.engine import metrics
from cflkit.workbook import plots
from cflkit.workbook.runs import Run

SHOWN = ("accuracy", "own_accuracy", "personal_accuracy", "unseen_accuracy", "global_accuracy", "ari", "clusters",
         "down", "up")  # fmt: skip
OF_CHAPTERS = ("accuracy", "personal_accuracy", "global_accuracy", "ari", "clusters")  # for each of several methods

Groups = Mapping[str, Sequence[Run]]  # the runs of each name, one a seed


def differing(groups: Groups) -> dict[str, list]:
    """By name, the value of each group for the parameters in which they differ; None where one has no such."""
    first = {name: runs[0].parameters for name, runs in groups.items()}
    names = dict.fromkeys(name for parameters in first.values() for name in parameters)
    table = {name: [parameters.get(name) for parameters in first.values()] for name in names}
    return {name: values for name, values in table.items() if any(value != values[0] for value in values)}


def scores(runs: Sequence[Run], also: Sequence[str] = ()) -> dict[str, dict[int, float]]:
    """By metric, the value of each seed: of those that matter most, and of what is asked for `also`.

    Methods of a chapter have a metric each, ``FedAvg: accuracy``; several runs of one in a chapter count as their
    mean.
    """
    table: dict[str, dict[int, float]] = {}
    many = any(len(run.metrics) > 1 for run in runs)
    for run in runs:
        for label, rows in run.metrics.items():
            for metric in OF_CHAPTERS if many else (*SHOWN, *also):
                values = [row[metric] for row in rows if isinstance(row.get(metric), int | float)]
                if values:
                    key = f"{label}: {metric}" if many else metric
                    table.setdefault(key, {})[run.seed] = sum(values) / len(values)
    return table


def shared(groups: Groups) -> list[str]:
    """The numbers that all runs have of their last round, beside those that are always shown."""
    rows = [row for runs in groups.values() for run in runs for each in run.metrics.values() for row in each]
    apart = {"round", "diverged", *SHOWN}
    return [name for name in rows[0]
            if name not in apart and all(isinstance(row.get(name), int | float) for row in rows)]  # fmt: skip


def numbers(groups: Groups) -> list[str]:
    """The names of all numbers that any run has of a round."""
    runs = [run for several in groups.values() for run in several]
    rows = [row for run in runs for each in run.metrics.values() for row in each]
    rows += [row for run in runs for each in run.rounds.values() for one in each for row in one]
    return sorted({name for row in rows for name, value in row.items() if isinstance(value, int | float)})


def table(groups: Groups) -> list[str]:
    """What differs, line by line: parameters, then metrics with their paired difference to the first group."""
    names = list(groups)
    lines = [f"{letter}: {name} (seeds {', '.join(str(run.seed) for run in runs)}){_diverged(runs)}"
             for letter, (name, runs) in zip(letters(names), groups.items(), strict=True)]  # fmt: skip
    for parameter, values in differing(groups).items():
        lines.append(f"{parameter}: " + ", ".join(f"{x} {v}" for x, v in zip(letters(names), values, strict=True)))
    found = [scores(runs, shared(groups)) for runs in groups.values()]
    lines.append(f"{'':36}" + "".join(f"{letter:>20}" for letter in letters(names)))
    for metric in dict.fromkeys(metric for each in found for metric in each):
        row = "".join(f"{_mean(each.get(metric, {}).values()):>20}" for each in found)
        lines.append(f"{metric:36}{row}".rstrip())
        for letter, each in list(zip(letters(names), found, strict=True))[1:]:
            paired = _paired(each.get(metric, {}), found[0].get(metric, {}))
            if paired:
                lines.append(f"{'':36}{letter} - A: {paired}")
    return lines


def _diverged(runs: Sequence[Run]) -> str:
    """Say which of a group's runs have diverged; "" if none has."""
    marked = [", ".join([*(run.diverged if len(run.metrics) > 1 else []), f"seed {run.seed}"])
              for run in runs if run.diverged]  # fmt: skip
    return f", diverged: {'; '.join(marked)}" if marked else ""


def letters(names: Sequence[str]) -> list[str]:
    """Short names: A to Z, then A1 and so on."""
    return [f"{chr(65 + n % 26)}{n // 26 or ''}" for n in range(len(names))]


def _mean(values) -> str:
    if not values:
        return "–"
    return number(metrics.spread(list(values)))


def number(found: Mapping[str, float]) -> str:
    """Mean, and standard deviation where there are several seeds; see :func:`cflkit.engine.metrics.spread`."""
    digits = 4 if abs(found["mean"]) < 1000 else 0
    return f"{found['mean']:.{digits}f}" + (f" ± {found['std']:.{digits}f}" if found["n"] > 1 else "")


def _paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """The difference over the seeds that both have."""
    seeds = sorted(set(ours) & set(theirs))
    if not seeds:
        return ""
    gap = metrics.paired_difference([ours[s] for s in seeds], [theirs[s] for s in seeds])
    sure = "" if math.isnan(gap["low"]) else f", 95% interval {gap['low']:+.4f} to {gap['high']:+.4f}"
    return f"{gap['mean']:+.4f} over {len(seeds)} seed{'s' * (len(seeds) > 1)}{sure}"


def figure(groups: Groups, y: str = "accuracy") -> Figure | None:
    """Learning curves, the mean over seeds with a band; None where no run has any."""
    frames = {}
    for name, runs in groups.items():
        for label in dict.fromkeys(label for run in runs for label in run.rounds):
            rows = [row for run in runs for one in run.rounds.get(label, []) for row in one if len(one) > 1]
            frame = pd.DataFrame(rows)
            if y in frame and frame[y].notna().any():
                many = len(runs[0].metrics) > 1
                frames[f"{label}, {name.partition('/')[2] or name}" if many else name] = frame
    plots.use_style()
    return plots.learning_curves(frames, y) if frames else None
