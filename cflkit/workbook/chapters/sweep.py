"""One command with several values and seeds: every combination is run, side by side, none twice.

Each combination is a run of its own, with a lock and, for simulations, a checkpoint. What was stopped or killed
goes on when the same command is given again; two processes on one sweep share the work.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator

from cflkit.checks import require
from cflkit.engine.checkpoint import BusyError
from cflkit.workbook import places
from cflkit.workbook.chapters import compare, notebooks, rerun, runs
from cflkit.workbook.claims import reproduce
from cflkit.workbook.runs import pool, protocols
from cflkit.workbook.show import plots

Given = Mapping[str, Sequence[str]]  # the values of each parameter, as typed
Make = Callable[[Mapping[str, str], int], protocols.Plan]


@dataclass(frozen=True)
class Point:
    """One combination.

    Attributes
    ----------
    values : dict of str to str
        What varies, as typed.
    seed : int
        Its seed.
    task : callable
        Runs it, and returns the file that it leaves.
    run : str
        Which run it is, whatever else varies: it names what was set once, too.
    plan : Plan or None
        Of a simulation: what is run.
    """

    values: dict[str, str]
    seed: int
    task: pool.Task
    run: str
    plan: protocols.Plan | None = None

    def __str__(self) -> str:
        return ", ".join([*(f"{name}={text}" for name, text in self.values.items()), f"seed {self.seed}"])


def of_chapter(name: str, given: Given, seeds: Sequence[int] | None, out: Path) -> list[Point]:
    """Make a point of every combination of a chapter; see :func:`cflkit.workbook.chapters.rerun.demonstrate`.

    Without `seeds` it has its own.

    Raises
    ------
    ValueError
        An unknown chapter or parameter, a chapter that compares no methods, or values that are not allowed.
    FileNotFoundError
        Pictures that are not on this machine.
    """
    path, points = notebooks.chapter(name).resolve(), []
    require(rerun.comparison(path) is not None, "chapter", name,
            "one that compares methods, in a cell tagged `comparison`, to be run for several values")  # fmt: skip
    folder = out.resolve() / f"{path.stem}-{rerun.key(path)}"
    for one in _combinations(given):
        for chosen in [one] if seeds is None else [one | {"seed": str(seed)} for seed in seeds]:
            values = rerun.checked(path, chosen)
            file = folder / rerun.label(chosen) / "run.json"
            task = partial(rerun.demonstrate, path, values, file)
            points.append(Point(_varying(one, given), values.get("seed", 0), task, f"{folder.name}/{chosen}"))
    return points


def of_plans(make: Mapping[str, Make], given: Given, seeds: Sequence[int], **how) -> list[Point]:
    """Make a point of every combination of simulations.

    Parameters
    ----------
    make : mapping of str to callable
        By label, what makes a plan of parameters as typed and a seed.
    given, seeds
        What varies.
    **how
        As for :func:`cflkit.workbook.claims.reproduce.run`.

    Raises
    ------
    ValueError
        An unknown parameter, or a value that is not allowed.
    """
    points = []
    for label, one in product(make, _combinations(given)):
        for seed in seeds:
            plan = make[label](one, seed)
            which = {"label": label} if len(make) > 1 else {}
            task = partial(_simulated, plan, **how)
            points.append(Point(which | _varying(one, given), seed, task, f"{plan.protocol}/{plan}", plan))
    return points


def _simulated(plan: protocols.Plan, seconds: float | None, **how) -> tuple[Path, str]:
    return reproduce.run(plan, seconds, progress=False, **how)


def _combinations(given: Given) -> list[dict[str, str]]:
    return [dict(zip(given, values, strict=True)) for values in product(*given.values())]


def _varying(one: Mapping[str, str], given: Given) -> dict[str, str]:
    return {name: text for name, text in one.items() if len(given[name]) > 1}


def sweep(points: Sequence[Point], seconds: float | None = None) -> tuple[dict[int, runs.Run], int]:
    """Run all points; a line each, with the time that is left.

    Returns
    -------
    dict of int to Run
        By the point's number, what it has measured.
    int
        How many failed.

    Raises
    ------
    TimeIsUp
        When the budget is spent before the last point.
    """
    found, failed, passed, made, began = {}, 0, 0, 0, time.monotonic()
    for number, value, error in pool.run([point.task for point in points], seconds):
        point, was = points[number], ""
        if isinstance(error, pool.TimeIsUp):
            continue
        if isinstance(error, BusyError):
            passed += 1
            print(f"{point}: another process is at work on it", flush=True)
            continue
        try:
            if error:
                raise error
            file, was = value
            found[number] = runs.read(file)
        except (ValueError, OSError, RuntimeError) as wrong:
            failed += 1
            hint = "" if error else f"; delete {places.near(file)} to run it again"
            print(f"cflkit: {point} failed: {wrong}{hint}", file=sys.stderr, flush=True)
            continue
        done = len(found) + failed + passed
        made += not was
        left = (time.monotonic() - began) / max(made, 1) * (len(points) - done)
        more = was or (f"; about {left:.0f} s left" if left else "")
        more += "; diverged" * bool(found[number].diverged)
        print(f"{done} of {len(points)}: {point}: {places.near(file)}{more}", flush=True)
    if len(found) + failed + passed < len(points):
        raise pool.TimeIsUp("time is up")
    return found, failed


def table(points: Sequence[Point], found: Mapping[int, runs.Run]) -> pd.DataFrame:
    """Put what a sweep has measured into a table.

    Returns
    -------
    DataFrame
        A row for each combination and method: what varies, the seeds, mean and standard deviation of each metric;
        where a run has diverged, how many have.
    """
    groups, rows = _groups(points, found), []
    for values, several in groups.items():
        cells = compare.summary({"": several})
        for label, part in cells.groupby("method", sort=False):
            row = dict(values) | ({"method": label} if label else {}) | {"seeds": len(several)}
            for metric, mean, std in part[["metric", "mean", "std"]].itertuples(index=False):
                row |= {metric: mean, f"{metric} std": std}
            row["diverged"] = sum(label in run.diverged if label else bool(run.diverged) for run in several)
            rows.append(row)
    frame = pd.DataFrame(rows)
    some = "diverged" in frame and frame["diverged"].any()
    return frame if some else frame.drop(columns="diverged", errors="ignore")


def _groups(points: Sequence[Point], found: Mapping[int, runs.Run]) -> dict[tuple, list[runs.Run]]:
    """The runs of each combination, one a seed."""
    groups: dict[tuple, list[runs.Run]] = {}
    for number, run in sorted(found.items()):
        groups.setdefault(tuple(points[number].values.items()), []).append(run)
    return groups


def unmoved(frame: pd.DataFrame, points: Sequence[Point]) -> bool:
    """Tell whether all combinations have measured the same: a chapter may use a parameter after its comparison."""
    varying = list(points[0].values)
    groups = frame.groupby(varying) if varying else ()
    parts = [part.drop(columns=varying).reset_index(drop=True) for _, part in groups]
    return len(parts) > 1 and all(part.equals(parts[0]) for part in parts)


def figure(frame: pd.DataFrame, points: Sequence[Point], found: Mapping[int, runs.Run]) -> Figure | None:
    """Draw the last round's accuracy over the one number that varies, else learning curves."""
    y = next((y for y in ("accuracy", "personal_accuracy") if y in frame), None)
    varying, groups = list(points[0].values), _groups(points, found)
    numbers = pd.to_numeric(frame[varying[0]], errors="coerce") if len(varying) == 1 else pd.Series([None])
    if y is None or numbers.isna().any() or len(groups) < 2:
        named = {", ".join(f"{n}={v}" for n, v in key) or several[0].short: several
                 for key, several in groups.items()}  # fmt: skip
        return compare.figure(named, y, named) if y else None
    plots.use_style()
    frame = frame.assign(x=numbers).dropna(subset=[y]).sort_values("x")  # of some methods it is not measured
    curves = {}
    for label, part in frame.groupby("method") if "method" in frame else [("accuracy", frame)]:
        std = part[f"{y} std"].fillna(0)
        curves[label] = (part["x"], part[y], part[y] - std, part[y] + std)
    drawn = plots.learning_curves(curves, ylabel=y)
    drawn.axes[0].set_xlabel(varying[0])
    drawn.axes[0].xaxis.set_major_locator(AutoLocator())
    return drawn


def text(frame: pd.DataFrame) -> pd.DataFrame:
    """Write each metric with its spread, for reading."""
    means = [name for name in frame if f"{name} std" in frame]
    shown = frame[[name for name in frame if name not in means and not name.endswith(" std")]].copy()
    for name in means:
        cells = zip(frame[name], frame[f"{name} std"], frame["seeds"], strict=True)
        shown[name] = [compare.number(*cell) for cell in cells]
    return shown


def store(points: Sequence[Point], found: Mapping[int, runs.Run], out: Path) -> tuple[pd.DataFrame, list[Path]]:
    """Write table and figure, named after all runs of the sweep: the same sweep renews its own.

    Returns
    -------
    DataFrame
        The table.
    list of Path
        The files: CSV, LaTeX and, where there is something to draw, a PNG.
    """
    frame = table(points, found)
    drawn, folder = figure(frame, points, found), out / points[0].run.partition("/")[0]
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / f"sweep-{places.digest(point.run for point in points)}"
    with places.atomic_write(base.with_suffix(".csv")) as part:
        frame.to_csv(part, index=False)
    with places.atomic_write(base.with_suffix(".tex")) as part:
        part.write_text(compare.written(text(frame), "latex") + "\n", "utf-8")
    if drawn is None:
        return frame, [base.with_suffix(".csv"), base.with_suffix(".tex")]
    with places.atomic_write(base.with_suffix(".png")) as part:
        drawn.savefig(part, format="png")
    return frame, [base.with_suffix(suffix) for suffix in (".csv", ".tex", ".png")]
