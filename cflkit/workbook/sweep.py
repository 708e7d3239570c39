"""One command with several values and seeds: every combination is run, side by side, none twice.

Each combination is a run of its own, with a lock and, for simulations, a checkpoint. What was stopped or killed
goes on when the same sweep is started again; two processes on one sweep share the work.
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
from cflkit.engine import metrics
from cflkit.engine.checkpoint import BusyError
from cflkit.workbook import compare, notebooks, places, plots, protocols, reproduce, rerun, runs
from cflkit.workbook.spread import Pool, Task, TimeIsUp, spread

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
    """

    values: dict[str, str]
    seed: int
    task: Task
    run: str

    def __str__(self) -> str:
        return ", ".join([*(f"{name}={text}" for name, text in self.values.items()), f"seed {self.seed}"])


def chapters() -> list[str]:
    """Chapters that compare methods: of any other a sweep would have no table."""
    return [path.stem for path in notebooks.chapters() if rerun.comparison(path) is not None]


def chapter(name: str) -> Path:
    """Find a chapter as :func:`cflkit.workbook.notebooks.chapter` does, and require that it compares methods."""
    path = notebooks.chapter(name)
    swept = f"one that compares methods, in a cell tagged `comparison`: {', '.join(chapters()) or '(none)'}"
    require(rerun.comparison(path) is not None, "chapter", name, swept)
    return path


def of_chapter(name: str, given: Given, seeds: Sequence[int] | None, out: Path) -> list[Point]:
    """Make a point of every combination of a chapter; see :func:`cflkit.workbook.rerun.demonstrate`.

    Without `seeds` it has its own.

    Raises
    ------
    ValueError
        An unknown chapter or parameter, a chapter that compares no methods, or values that are not allowed.
    FileNotFoundError
        Pictures that are not on this machine.
    """
    path, out, points = chapter(name).resolve(), out.resolve(), []
    require("seed" not in given, "parameter", "seed", "left to --seeds")
    for one in _combinations(given):
        for chosen in [one] if seeds is None else [one | {"seed": str(seed)} for seed in seeds]:
            values = rerun.checked(path, chosen)
            file = out / f"{path.stem}-demonstration" / rerun.label(chosen) / "run.json"
            task = partial(rerun.demonstrate, path, values, file)
            points.append(Point(_varying(one, given), values.get("seed", 0), task, str(file.relative_to(out))))
    return points


def of_plans(make: Mapping[str, Make], given: Given, seeds: Sequence[int], out: Path) -> list[Point]:
    """Make a point of every combination of simulations.

    Parameters
    ----------
    make : mapping of str to callable
        By label, what makes a plan of parameters as typed and a seed.
    given, seeds, out
        What varies, and where records and checkpoints go.

    Raises
    ------
    ValueError
        An unknown parameter, or a value that is not allowed.
    FileNotFoundError
        Images that are not on this machine.
    """
    out, points = out.resolve(), []  # a worker may be in another folder
    for label, one in product(make, _combinations(given)):
        for seed in seeds:
            plan = make[label](one, seed)
            plan.need_images()
            which = {"label": label} if len(make) > 1 else {}
            task = partial(_simulated, plan, out=out)
            points.append(Point(which | _varying(one, given), seed, task, f"{plan.protocol}/{plan}"))
    return points


def _simulated(plan: protocols.Plan, seconds: float | None, *, out: Path) -> Path:
    return reproduce.run(plan, seconds, out=out, checkpoints=out, progress=False)


def _combinations(given: Given) -> list[dict[str, str]]:
    return [dict(zip(given, values, strict=True)) for values in product(*given.values())]


def _varying(one: Mapping[str, str], given: Given) -> dict[str, str]:
    return {name: text for name, text in one.items() if len(given[name]) > 1}


def sweep(points: Sequence[Point], pool: Pool, seconds: float | None = None) -> tuple[dict[int, Path], int]:
    """Run all points; a line each, with the time that is left.

    Returns
    -------
    dict of int to Path
        By the point's number, the file that it left.
    int
        How many failed.

    Raises
    ------
    TimeIsUp
        When the budget is spent before the last point.
    """
    files, failed, passed, made, began = {}, 0, 0, 0, time.time()
    for outcome in spread([point.task for point in points], pool, seconds):
        point, error = points[outcome.number], outcome.error or _unreadable(outcome.value)
        if isinstance(error, TimeIsUp):
            continue
        if isinstance(error, BusyError):
            passed += 1
            print(f"{point}: another process is at work on it", flush=True)
            continue
        if error:
            failed += 1
            print(f"cflkit: {point} failed: {error}", file=sys.stderr, flush=True)
            continue
        files[outcome.number] = places.near(outcome.value)
        done = len(files) + failed + passed
        new = outcome.value.stat().st_mtime >= began
        made += new
        left = (time.time() - began) / max(made, 1) * (len(points) - done)
        more = "; was there" if not new else f"; about {left:.0f} s left" if left else ""
        more += "; diverged" * bool(runs.read(outcome.value).diverged)
        print(f"{done} of {len(points)}: {point}: {files[outcome.number]}{more}", flush=True)
    if len(files) + failed + passed < len(points):
        raise TimeIsUp("time is up")
    return files, failed


def _unreadable(file: Path) -> ValueError | None:
    """What is wrong with a file that was there already."""
    try:
        runs.read(file)
    except ValueError as error:
        return ValueError(f"{error}; delete {places.near(file)} to run it again")
    return None


def report(points: Sequence[Point], files: Mapping[int, Path]) -> tuple[pd.DataFrame, Figure | None]:
    """Put what a sweep has measured into a table and a figure.

    Returns
    -------
    DataFrame
        A row for each combination and method: what varies, the seeds, mean and standard deviation of each metric;
        where a run has diverged, how many have.
    Figure or None
        The last round's accuracy over the one number that varies, else learning curves.
    """
    groups: dict[tuple, list[runs.Run]] = {}
    for number, file in sorted(files.items()):
        groups.setdefault(tuple(points[number].values.items()), []).append(runs.read(file))
    rows = []
    for values, found in groups.items():
        scored: dict[str, dict[str, dict]] = {}
        for key, by_seed in compare.scores(found).items():
            label, _, metric = key.rpartition(": ")
            one = metrics.spread(list(by_seed.values()))
            scored.setdefault(label, {})[metric] = one
        for label, cells in scored.items():
            row = dict(values) | ({"method": label} if label else {}) | {"seeds": len(found)}
            for metric, one in cells.items():
                row |= {metric: one["mean"], f"{metric} std": one["std"]}
            row["diverged"] = sum(label in run.diverged if label else bool(run.diverged) for run in found)
            rows.append(row)
    frame = pd.DataFrame(rows)
    if "diverged" in frame and not frame["diverged"].any():
        frame = frame.drop(columns="diverged")
    return frame, _figure(frame, groups)


def unmoved(frame: pd.DataFrame, points: Sequence[Point]) -> bool:
    """Tell whether all combinations have measured the same: a chapter may use a parameter after its comparison."""
    varying = list(points[0].values)
    if not varying:
        return False
    parts = [part.drop(columns=varying).reset_index(drop=True) for _, part in frame.groupby(varying)]
    return len(parts) > 1 and all(part.equals(parts[0]) for part in parts)


def _figure(frame: pd.DataFrame, groups: Mapping[tuple, list[runs.Run]]) -> Figure | None:
    y = next((y for y in ("accuracy", "personal_accuracy") if y in frame), None)
    varying = [name for name, _ in next(iter(groups))] if groups else []
    numbers = pd.to_numeric(frame[varying[0]], errors="coerce") if len(varying) == 1 else pd.Series([None])
    if y is None or numbers.isna().any() or len(groups) < 2:
        named = {", ".join(f"{n}={v}" for n, v in key) or found[0].name: found for key, found in groups.items()}
        return compare.figure(named, y) if y else None
    plots.use_style()
    frame = frame.assign(x=numbers).dropna(subset=[y]).sort_values("x")  # of some methods it is not measured
    by = frame.groupby("method") if "method" in frame else [("accuracy", frame)]
    curves = {}
    for label, part in by:
        std = part[f"{y} std"].fillna(0)
        curves[label] = (part["x"], part[y], part[y] - std, part[y] + std)
    figure = plots.learning_curves(curves, ylabel=y)
    figure.axes[0].set_xlabel(varying[0])
    figure.axes[0].xaxis.set_major_locator(AutoLocator())
    return figure


def lines(frame: pd.DataFrame) -> str:
    """Write the table for reading: each metric with its spread."""
    means = [name for name in frame if f"{name} std" in frame]
    shown = frame[[name for name in frame if name not in means and not name.endswith(" std")]].copy()
    for name in means:
        stats = zip(frame[name], frame[f"{name} std"], frame["seeds"], strict=True)
        shown[name] = ["–" if pd.isna(m) else compare.number({"mean": m, "std": s, "n": n}) for m, s, n in stats]
    return shown.to_string(index=False)


def store(points: Sequence[Point], files: Mapping[int, Path], out: Path) -> list[Path]:
    """Write table and figure beside the runs, named after all of these: the same sweep renews its own.

    Raises
    ------
    ValueError
        No point has left anything.
    """
    require(bool(files), "sweep", "no run", "at least one run that ended")
    frame, figure = report(points, files)
    first = next(iter(files.values()))
    folder = out / first.resolve().relative_to(out.resolve()).parts[0]
    named = f"sweep-{places.digest(point.run for point in points)}"
    written = [folder / f"{named}.csv"]
    with places.whole(written[0]) as part:
        frame.to_csv(part, index=False)
    if figure is not None:
        written.append(folder / f"{named}.png")
        with places.whole(written[1]) as part:
            figure.savefig(part, format="png")
    return written
