"""What was run at the console: records and reruns of chapters, found by name, listed, and set beside each other."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator

from cflkit.checks import known, require
from cflkit.engine import metrics
from cflkit.engine.history import History
from cflkit.workbook import places
from cflkit.workbook.runs import records
from cflkit.workbook.show import plots

SHOWN = ("accuracy", "own_accuracy", "personal_accuracy", "unseen_accuracy", "global_accuracy", "ari", "clusters",
         "down", "up")  # fmt: skip
HIDDEN = {"digest", "seed", "device", "trainer", "chunk"}  # of a configuration: what no reader has changed
ONE = ["run", "method", "seed", "number"]  # what tells one run's rounds from another's


@dataclass(frozen=True)
class Run:
    """One run that has ended."""

    file: Path
    seed: int
    parameters: dict  # everything else that was set, flat
    rounds: dict[str, list[list[dict]]]  # rows of each run of each method; "" for the only one
    made: dict  # its provenance
    failed: bool = False  # whether a cell of the chapter failed

    @property
    def label(self) -> str:
        """What it is called by where it stands alone: its method."""
        return name(self.file).partition("/")[2].partition(",")[0]

    @property
    def diverged(self) -> list[str]:
        """The methods whose models have diverged by some round."""
        return [method for method, each in self.rounds.items()
                if any(row.get("diverged") for one in each for row in one)]  # fmt: skip

    def __str__(self) -> str:
        last = [one[-1] for each in self.rounds.values() for one in each]
        named = [f"{y} {last[0][y]:.4f}" for y in ("accuracy", "personal_accuracy") if last and y in last[0]]
        shown = named[0] if named and len(self.rounds) == 1 else f"{len(self.rounds) or 'no'} methods"
        mark = "  failed" * self.failed + "  diverged" * bool(self.diverged)
        took = f"{self.made['seconds']:7.1f} s  {self.made['date']}"
        return f"{name(self.file):44} seed {self.seed:<3} {shown:24} {took}{mark}"


Groups = Mapping[str, Sequence[Run]]  # the runs of each name, one a seed


# ---------------------------------------------------------------------- finding
def name(file: Path) -> str:
    """What a run is called by, ``FOLDER/LABEL``, the same for all seeds; told from where its file lies."""
    if file.name != "run.json":
        return f"{file.parent.name}/{file.stem.rsplit('-', 2)[0]}"  # LABEL-DIGEST-sSEED
    changed = [part for part in file.parent.name.split(",") if not part.startswith("seed=")]
    return f"{file.parent.parent.name}/{','.join(changed) or 'default'}"


def find(names: Iterable[str], folders: Iterable[Path]) -> dict[str, list[Path]]:
    """Find the files of runs by name or pattern, such as ``stocfl/*``; a second folder's are ``NAME (FOLDER)``."""
    there: dict[str, list[Path]] = {}
    for number, folder in enumerate(dict.fromkeys(folder.resolve() for folder in folders)):
        where = f" ({places.near(folder)})" * bool(number)
        files = [*folder.glob("*/*.json"), *folder.glob("*/*/run.json")]
        for file in sorted(files, key=lambda file: (name(file), file)):
            there.setdefault(f"{name(file)}{where}", []).append(file)
    found: dict[str, list[Path]] = {}
    for pattern in names:
        here = {key: files for key, files in there.items() if fnmatch(key.partition(" (")[0], pattern)}
        if not here and pattern != "*":
            known(dict.fromkeys(key.partition(" (")[0] for key in there), pattern, "run")
        found |= here
    return found


def read(file: Path) -> Run:
    """Read a run: a record, or a chapter's ``run.json``."""
    record = records.read(file)
    if file.name == "run.json":
        given, failed = record["parameters"], bool(record["failed"])
        return Run(file, given.pop("seed", 0), given, record["metrics"], record["provenance"], failed)
    (flat,) = pd.json_normalize(record["config"]).to_dict("records")  # such as local.lr
    given = {name: value for name, value in flat.items() if name.split(".")[-1] not in HIDDEN}
    return Run(file, record["seed"], given, {"": [record["rounds"]]}, record["provenance"])


def load(found: Mapping[str, Iterable[Path]]) -> tuple[dict[str, list[Run]], list[str]]:
    """Read the runs of each name, in the order of their seeds; and give a line for each that cannot be read."""
    good, bad = {}, []
    for name, files in found.items():
        for file in files:
            try:
                good[name] = [*good.get(name, []), read(file)]  # no name without a run
            except ValueError as error:
                bad.append(f"left out: {error}")
    return {name: sorted(runs, key=lambda run: run.seed) for name, runs in good.items()}, bad


def delete(file: Path) -> None:
    """Delete a run with all that lies beside it."""
    if file.name == "run.json":
        shutil.rmtree(file.parent)
    for beside in file.parent.glob(f"{file.stem}.*"):
        beside.unlink()


# ---------------------------------------------------------------------- comparing
def show(found: Groups, out: Path, metric: str, form: str) -> None:
    """Print what differs between groups of runs as text, CSV or LaTeX, and draw the curves of a metric."""
    groups = {f"{chr(65 + n % 26)}{n // 26 or ''}": runs for n, runs in enumerate(found.values())}
    table = summary(groups)
    ok = "one that has metrics; a chapter that compares methods leaves some"
    require(len(table) > 0, "run", ", ".join(found), ok)
    known(sorted({"accuracy", *rounds(groups).columns} - {*ONE}), metric, "metric")
    places.need_folder("out", out)
    if form != "text":
        print(written(table if form == "csv" else cells(table, metric), form))
        return
    print(*head(groups, found), written(cells(table, metric)), *differences(table, metric), sep="\n")
    picture = out / f"compare-{places.digest([*found, metric])}.png"
    drawn = draw(groups, metric, picture)
    print(places.near(picture) if drawn else f"no figure: no run has several rounds with a number {metric!r}")


def show_one(record: Path) -> list[Path]:
    """Write the rounds of a record beside it, as CSV and as a learning curve; returns the two files."""
    run, csv, png = read(record), record.with_suffix(".csv"), record.with_suffix(".png")
    (rows,) = run.rounds[""]
    History(rounds=rows).to_csv(csv)
    draw({run.label: [run]}, "accuracy" if "accuracy" in rows[-1] else "personal_accuracy", png)
    return [csv, png]


def head(groups: Groups, names: Iterable[str]) -> list[str]:
    """Say which runs each group has, which of these have diverged, and in which parameters the groups differ."""
    lines = []
    for (key, runs), name in zip(groups.items(), names, strict=True):
        bad = [", ".join(filter(None, [*run.diverged, f"seed {run.seed}"])) for run in runs if run.diverged]
        seeds = ", ".join(str(run.seed) for run in runs)
        lines.append(f"{key}: {name} (seeds {seeds})" + f", diverged: {'; '.join(bad)}" * bool(bad))
    texts = {key: {name: str(value) for name, value in runs[0].parameters.items()} for key, runs in groups.items()}
    given = pd.DataFrame(texts).fillna("None")
    for name, values in given[given.nunique(axis=1) > 1].iterrows():
        lines.append(f"{name}: " + ", ".join(f"{key} {value}" for key, value in values.items()))
    return lines


def rounds(groups: Groups) -> pd.DataFrame:
    """The numbers of every round: ``run`` (the group), ``method``, ``seed``, which run it is, and each metric."""
    rows = [row | {"run": key, "method": method, "seed": run.seed, "number": number} for key, runs in groups.items()
            for run in runs for method, each in run.rounds.items() for number, one in enumerate(each)
            for row in one]  # fmt: skip
    frame = pd.DataFrame(rows, columns=None if rows else ONE)
    return frame[ONE].join(frame.drop(columns=ONE).select_dtypes("number"))


def summary(groups: Groups) -> pd.DataFrame:
    """One row for each group of runs, method and metric: over how many seeds, ``mean`` and ``std`` (ddof 1).

    What counts is the last round; several runs of one seed count as their mean. The ``difference`` to the first
    group is over the ``shared`` seeds, with its 95% interval (``low``, ``high``).
    """
    last = rounds(groups).groupby(ONE, sort=False).tail(1).drop(columns="round", errors="ignore").set_index(ONE)
    long = last.rename_axis(columns="metric").stack().dropna()
    long = long.groupby(["run", "method", "metric", "seed"], sort=False).mean()
    values = {key: part.droplevel([0, 1, 2]) for key, part in long.groupby(level=[0, 1, 2], sort=False)}
    rows, first = [], next(iter(groups), "")
    for (run, method, metric), ours in values.items():
        theirs = values.get((first, method, metric), ours[:0])
        both = ours.index.intersection(theirs.index) if run != first else ours.index[:0]
        gap = metrics.paired_difference(ours[both], theirs[both]) if len(both) else {}
        own = metrics.spread(ours)
        mine, lead = (own[key] for key in ("n", "mean", "std")), map(gap.get, ("n", "mean", "low", "high"))
        rows.append([run, method, metric, *mine, *lead])
    columns = ["run", "method", "metric", "seeds", "mean", "std", "shared", "difference", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def cells(table: pd.DataFrame, metric: str = "accuracy") -> pd.DataFrame:
    """Write a summary for reading: a row for each group and method, a column for each metric."""
    shown = [f"{mean:.{digits}f}" + f" ± {std:.{digits}f}" * (seeds > 1) for mean, std, seeds, digits in
             zip(table["mean"], table["std"], table["seeds"], 4 * (table["mean"].abs() < 1000), strict=True)]
    wide = table.assign(cell=shown).set_index(["run", "method", "metric"])["cell"].unstack(sort=False)
    wide = wide[[name for name in dict.fromkeys([*SHOWN, metric]) if name in wide]].fillna("–")
    wide.insert(0, "seeds", table.groupby(["run", "method"])["seeds"].max())
    wide = wide.rename_axis(columns=None).reset_index()
    return wide if wide["method"].any() else wide.drop(columns="method")


def differences(table: pd.DataFrame, metric: str = "accuracy") -> list[str]:
    """The differences to the first group that a reader sees, as a table, if there are any."""
    shown = table[table["metric"].isin([*SHOWN, metric])].dropna(subset=["difference"])
    columns = ["run", *["method"] * bool(shown["method"].any()), "metric", "shared", "difference", "low", "high"]
    first = f"\nless {table['run'].iloc[0]}, over the seeds that both have, with a 95% interval:"
    return [first, written(shown[columns].round(4).astype({"shared": int}))] if len(shown) else []


def written(frame: pd.DataFrame, form: str = "text") -> str:
    """Write a table as text, CSV or LaTeX."""
    if form == "csv":
        return frame.to_csv(index=False).rstrip()
    if form == "latex":
        table = frame.to_latex(index=False, escape=True, na_rep="–", float_format="{:.2f}".format)
        return table.rstrip().replace("±", r"$\pm$")
    return frame.astype(object).where(frame.notna(), "–").to_string(index=False)


def figure(groups: Groups, y: str) -> Figure | None:
    """Draw the last round's score over the one number that varies, else learning curves; None without either."""
    every, names = rounds(groups), pd.Series([*groups]).str.partition("=")
    numbers = pd.to_numeric(names[2], errors="coerce")
    swept = numbers.notna().all() and numbers.nunique() > 1
    if swept:
        last = every.groupby(ONE, sort=False).tail(1)
        every = last.assign(round=last["run"].map(dict(zip(groups, numbers, strict=True))), run="")
    else:
        every = every[every.groupby(ONE)["seed"].transform("size") > 1]
    parts = every.groupby(["run", "method"], sort=False) if y in every else ()
    frames = {", ".join(filter(None, (method, run))) or y: part for (run, method), part in parts
              if part[y].notna().any()}  # fmt: skip
    if not frames:
        return None
    plots.use_style()
    drawn = plots.learning_curves(frames, y)
    if swept:
        drawn.axes[0].set_xlabel(names[0].iloc[0])
        drawn.axes[0].xaxis.set_major_locator(AutoLocator())
    return drawn


def draw(groups: Groups, y: str, file: Path) -> bool:
    """Write the figure to a file, whole or not at all; tells whether there is something to draw."""
    if drawn := figure(groups, y):
        with places.atomic_write(file) as part:
            drawn.savefig(part, format="png")
    return drawn is not None
