"""Runs beside each other: which parameters differ, how far metrics do, and the curves in one figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from cflkit.checks import known, require
from cflkit.engine import metrics
from cflkit.workbook import places
from cflkit.workbook.chapters.runs import Run
from cflkit.workbook.show import plots

SHOWN = ("accuracy", "own_accuracy", "personal_accuracy", "unseen_accuracy", "global_accuracy", "ari", "clusters",
         "down", "up")  # fmt: skip
OF_CHAPTERS = ("accuracy", "personal_accuracy", "global_accuracy", "ari", "clusters")  # for each of several methods

Groups = Mapping[str, Sequence[Run]]  # the runs of each name, one a seed


def show(groups: Groups, out: Path, metric: str, form: str) -> None:
    """Print what differs between groups of runs as text, CSV or LaTeX, and draw the curves of a metric."""
    measured = any(run.metrics for runs in groups.values() for run in runs)
    require(measured, "run", ", ".join(groups), "one that has metrics; a chapter that compares methods leaves some")
    known(["accuracy", *numbers(groups)], metric, "metric")  # the default may have no curve
    places.need_folder("out", out)
    found = summary(groups, _shared(groups))
    if form != "text":
        print(written(found if form == "csv" else cells(found), form))
        return
    print(*head(groups), cells(found).to_string(index=False), *differences(found), sep="\n")
    drawn = figure(groups, metric, letters(groups))
    if drawn is None:
        print(f"no figure: no run has several rounds with a number {metric!r}")
        return
    file = out / f"compare-{places.digest([*groups, metric])}.png"
    with places.atomic_write(file) as part:
        drawn.savefig(part, format="png")
    print(places.near(file))


def letters(groups: Groups) -> list[str]:
    """Short names: A to Z, then A1 and so on."""
    return [f"{chr(65 + n % 26)}{n // 26 or ''}" for n in range(len(groups))]


def differing(groups: Groups) -> dict[str, list]:
    """By name, the value of each group for the parameters in which they differ; None where one has no such."""
    first = [runs[0].parameters for runs in groups.values()]
    table = {name: [one.get(name) for one in first] for one in first for name in one}
    return {name: values for name, values in table.items() if any(value != values[0] for value in values)}


def head(groups: Groups) -> list[str]:
    """Say which group has which letter, which of its runs have diverged, and in which parameters they differ."""
    lines = []
    for letter, (name, runs) in zip(letters(groups), groups.items(), strict=True):
        bad = [", ".join([*(run.diverged if len(run.metrics) > 1 else []), f"seed {run.seed}"])
               for run in runs if run.diverged]  # fmt: skip
        seeds = ", ".join(str(run.seed) for run in runs)
        lines.append(f"{letter}: {name} (seeds {seeds})" + f", diverged: {'; '.join(bad)}" * bool(bad))
    for parameter, values in differing(groups).items():
        lines.append(f"{parameter}: " + ", ".join(f"{x} {v}" for x, v in zip(letters(groups), values, strict=True)))
    return lines


def summary(groups: Groups, also: Sequence[str] = ()) -> pd.DataFrame:
    """One row for each group, method and metric: of those that matter most, and of what is asked for `also`.

    Returns
    -------
    DataFrame
        ``letter``, ``run``, ``method`` ("" where a run has one), ``metric``; the number of ``seeds``, the ``mean``
        and the ``std`` (ddof 1) over these; and the ``difference`` to the first group over the ``shared`` seeds,
        with its 95% confidence interval from ``low`` to ``high``.
    """
    rows, first = [], None
    found = [_scores(runs, also) for runs in groups.values()]
    for letter, name, each in zip(letters(groups), groups, found, strict=True):
        first = each if first is None else first
        for (method, metric), by_seed in each.items():
            one = metrics.spread(list(by_seed.values()))
            row = {"letter": letter, "run": name, "method": method, "metric": metric, "seeds": one["n"],
                   "mean": one["mean"], "std": one["std"]}  # fmt: skip
            seeds = sorted(set(by_seed) & set(first.get((method, metric), {})))
            if each is not first and seeds:
                gap = metrics.paired_difference([by_seed[s] for s in seeds],
                                                [first[method, metric][s] for s in seeds])  # fmt: skip
                row |= {"shared": len(seeds), "difference": gap["mean"], "low": gap["low"], "high": gap["high"]}
            rows.append(row)
    frame = pd.DataFrame(rows, columns=["letter", "run", "method", "metric", "seeds", "mean", "std", "shared",
                                        "difference", "low", "high"])  # fmt: skip
    return frame


def _scores(runs: Sequence[Run], also: Sequence[str]) -> dict[tuple[str, str], dict[int, float]]:
    """By method and metric, the value of each seed; several runs of a method in a chapter count as their mean."""
    table: dict[tuple[str, str], dict[int, float]] = {}
    many = any(len(run.metrics) > 1 for run in runs)
    for run in runs:
        for label, rows in run.metrics.items():
            for metric in OF_CHAPTERS if many else (*SHOWN, *also):
                values = [row[metric] for row in rows if isinstance(row.get(metric), int | float)]
                if values:
                    table.setdefault((label if many else "", metric), {})[run.seed] = sum(values) / len(values)
    return table


def _shared(groups: Groups) -> list[str]:
    """The numbers that all runs have of their last round, beside those that are always shown."""
    rows = [row for runs in groups.values() for run in runs for each in run.metrics.values() for row in each]
    apart = {"round", "diverged", *SHOWN}
    return [name for name in (rows[0] if rows else ())
            if name not in apart and all(isinstance(row.get(name), int | float) for row in rows)]  # fmt: skip


def numbers(groups: Groups) -> list[str]:
    """The names of all numbers that any run has of a round."""
    runs = [run for several in groups.values() for run in several]
    rows = [row for run in runs for each in run.metrics.values() for row in each]
    rows += [row for run in runs for each in run.rounds.values() for one in each for row in one]
    return sorted({name for row in rows for name, value in row.items() if isinstance(value, int | float)})


def cells(found: pd.DataFrame) -> pd.DataFrame:
    """Write a summary with a column for each group, for reading."""
    shown = found.assign(cell=[number(*row) for row in found[["mean", "std", "seeds"]].itertuples(index=False)])
    wide = shown.pivot(index=["method", "metric"], columns="letter", values="cell")
    wide = wide.reindex(index=pd.MultiIndex.from_frame(found[["method", "metric"]].drop_duplicates()),
                        columns=found["letter"].unique()).fillna("–").reset_index()  # fmt: skip
    wide.columns.name = None
    return wide if (wide["method"] != "").any() else wide.drop(columns="method")


def differences(found: pd.DataFrame) -> list[str]:
    """A line for each difference to the first group."""
    lines = []
    for row in found.dropna(subset=["difference"]).itertuples():
        what = f"{row.method}: {row.metric}" if row.method else row.metric
        sure = "" if pd.isna(row.low) else f", 95% interval {row.low:+.4f} to {row.high:+.4f}"
        seeds = f"{row.shared:.0f} seed{'s' * (row.shared > 1)}"
        lines.append(f"{what}, {row.letter} - A: {row.difference:+.4f} over {seeds}{sure}")
    return lines


def number(mean: float, std: float, seeds: int) -> str:
    """Write a mean, and the standard deviation where there are several seeds."""
    if pd.isna(mean):
        return "–"
    digits = 4 if abs(mean) < 1000 else 0
    return f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if seeds > 1 else "")


def written(frame: pd.DataFrame, form: str) -> str:
    """Write a table as text, CSV or LaTeX."""
    if form == "csv":
        return frame.to_csv(index=False).rstrip()
    if form == "latex":
        table = frame.style.format(escape="latex", na_rep="–", precision=2).format_index(escape="latex", axis=1)
        return table.hide(axis=0).to_latex(hrules=True).rstrip().replace("±", r"$\pm$")
    return frame.astype(object).where(frame.notna(), "–").to_string(index=False)


def figure(groups: Groups, y: str, names: Sequence[str]) -> Figure | None:
    """Learning curves, the mean over seeds with a band; None where no run has any. `names` are those of groups."""
    frames = {}
    for name, runs in zip(names, groups.values(), strict=True):
        for label in dict.fromkeys(label for run in runs for label in run.rounds):
            rows = [row for run in runs for one in run.rounds.get(label, []) for row in one if len(one) > 1]
            frame = pd.DataFrame(rows)
            if y in frame and frame[y].notna().any():
                frames[f"{label}, {name}" if len(runs[0].metrics) > 1 else name] = frame
    plots.use_style()
    return plots.learning_curves(frames, y) if frames else None
