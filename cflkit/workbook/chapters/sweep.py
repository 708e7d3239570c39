"""Several runs by one command, none twice: every combination of values and seeds, or all that a table lacks.

What was stopped or killed goes on when the same command is given again; two processes on one sweep share the work.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from cflkit.checks import require
from cflkit.engine.simulation import check_device
from cflkit.workbook import places
from cflkit.workbook.chapters import compare, notebooks, rerun
from cflkit.workbook.claims import ledger
from cflkit.workbook.runs import plans, pool, protocols, records, run

Given = Mapping[str, Sequence[str]]  # the values of each parameter, as typed


class Point(NamedTuple):
    """One combination: what varies, its seed, and the task that runs it and gives the file that it leaves."""

    varying: str
    seed: int
    task: pool.Task

    def __str__(self) -> str:
        return ", ".join(filter(None, [self.varying, f"seed {self.seed}"]))


def of_chapter(name: str, given: Given, out: Path) -> list[Point]:
    """Make a point of every combination of a chapter that compares methods."""
    path, points = notebooks.chapter(name).resolve(), []
    sources = [cell.source for cell in rerun.compares(path)]
    ok = "one that compares methods, in a cell tagged `comparison`, to be run for several values"
    require(bool(sources), "chapter", name, ok)
    code = places.digest([str(path.parent), records.code(), *sources])  # no other code's numbers lie in this folder
    folder = out.resolve() / f"{path.stem}-{code}"
    for varying, one in _combinations(given):
        values = rerun.checked(path, one)
        task = partial(rerun.demonstrate, path, values, folder / rerun.label(one) / "run.json")
        points.append(Point(varying, values.get("seed", 0), task))
    return points


def of_plans(
    bases: Sequence[plans.Plan], given: Given, seeds: Sequence[int], folders: Mapping[str, Path], **how
) -> list[Point]:
    """Make a point of every combination of runs; `folders` and `how` are as for :func:`.runs.run.run`."""
    points, made = [], []
    how |= {name: folder.resolve() for name, folder in folders.items()}  # workers may be elsewhere
    for base, (varying, one), seed in product(bases, _combinations(given), seeds):
        made.append(replace(base, seed=seed).changed(one))
        which = [base.label] * (len(bases) > 1) + [varying] * bool(varying)
        points.append(Point(", ".join(which), seed, partial(run.run, made[-1], **how)))
    for name, folder in folders.items():
        places.need_folder(name, folder)
    for plan in made:
        plan.need_images()
    return points


def of_table(
    table: str, seeds: Sequence[int] | None, out: Path, device: str, progress: bool
) -> tuple[list[Point], list[float]]:
    """Make a point of every run that a table lacks, cheapest first, and give the minutes of a core of each."""
    check_device(device)
    lacking = ledger.missing(table, seeds, out)
    how = {"out": out.resolve(), "checkpoints": places.RUNS.resolve(), "progress": progress}
    made = [protocols.plan(one.protocol, one.label, one.seed, device=device) for one in lacking]
    for plan in made:
        plan.need_images()
    for one in (one for row in ledger.rows(table, out) for one in row.measured):
        run.tidy(places.RUNS / one["protocol"] / f"{one['label']}-s{one['seed']}")
    points = [Point(plan.label, plan.seed, partial(run.run, plan, **how)) for plan in made]
    return points, [one.minutes for one in lacking]


def _combinations(given: Given) -> Iterator[tuple[str, dict[str, str]]]:
    """Every combination of values, and what varies in it beside the seed."""
    for values in product(*given.values()):
        one = dict(zip(given, values, strict=True))
        yield ", ".join(f"{name}={one[name]}" for name in given if len(given[name]) > 1 and name != "seed"), one


def store(points: Sequence[Point], files: Mapping[str, Path], out: Path) -> list[Path]:
    """Print what a sweep has measured, `files` by point; write it as CSV and LaTeX, and perhaps a figure.

    The files are named after the runs: the same sweep renews its own, and another's stay.
    """
    groups: dict[str, list[compare.Run]] = {}
    for point in points:
        if (file := files.get(str(point))) is not None:
            one = compare.read(file)
            groups.setdefault(point.varying or one.label, []).append(one)
    table = compare.summary(groups)
    print(compare.written(compare.cells(table)))
    for one in (one for runs in groups.values() for one in runs if one.diverged):
        print(" ".join(["diverged:", *filter(None, one.diverged), str(places.near(one.file))]))
    found = {str(part[["method", "metric", "mean"]].to_numpy().tolist()) for _, part in table.groupby("run")}
    if len(groups) > len(found) == 1:
        names = (part.partition("=")[0] for part in next(iter(groups)).split(", "))
        print(f"{', '.join(names)}: has no effect on what is compared here")
    base = out / compare.name(next(iter(files.values()))).partition("/")[0]
    base /= f"sweep-{places.digest('/'.join(file.parts[-3:]) for file in files.values())}"
    csv, tex, png = (base.with_suffix(suffix) for suffix in (".csv", ".tex", ".png"))
    places.write(csv, table.to_csv(index=False))
    places.write(tex, compare.written(compare.cells(table), "latex") + "\n")
    y = next((y for y in ("accuracy", "personal_accuracy") if y in set(table["metric"])), "accuracy")
    return [csv, tex, *[png] * compare.draw(groups, y, png)]
