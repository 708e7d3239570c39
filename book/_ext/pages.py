"""The book's pages of results, written from data whenever the book is built.

``cflkit pages`` fills the templates of ``book/templates`` and writes what pages include (``book/_generated``): for
each paper what was found, its claims with their verdicts, a figure of measured beside
printed, and its tables; the ledger of everything; and how fast the engine is. What has no record yet reads "not yet
measured".
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import diagrams
import jinja2
import pandas as pd
import pictures
import reading
import status
import steps
from matplotlib.figure import Figure

from cflkit.workbook import places
from cflkit.workbook.chapters import notebooks
from cflkit.workbook.claims import attributes, evidence, figures, ledger, released
from cflkit.workbook.claims.evidence import CHAPTERS
from cflkit.workbook.claims.ledger import Row, number
from cflkit.workbook.runs import protocols, records
from cflkit.workbook.show import plots

OUT = places.BOOK / "_generated"
TEMPLATES = places.BOOK / "templates"
BENCHMARKS = places.ROOT / "benchmarks" / "results"
MISSING = "not yet measured"
BESIDE = 1, 3, 4  # the columns of a table that set a number beside the printed one
EACH = "claims", "dots", "tables"  # what a paper has of its own
MINUS = re.compile(r"(?<![\w`/.-])-(?=\d)")  # a hyphen that is a sign
NUMBER = re.compile(r"[-+−]?[\d.,]+( ± [\d.]+)?%?|–|")


def write(folder: Path = records.FOLDER, out: Path = OUT, benchmarks: Path = BENCHMARKS) -> None:
    """Write everything that chapters include.

    Parameters
    ----------
    folder : Path
        Where the run records are.
    out : Path
        Where pages and figures go.
    benchmarks : Path
        Where the measurements of speed and memory are, a file for each script and machine.
    """
    plots.use_style()
    places.need_folder("out", out)
    templates = environment(folder, out, benchmarks)
    for paper in CHAPTERS:
        for name in EACH:
            own = [f"{paper}_{name}.md.jinja", f"{name}.md.jinja"]  # a paper may have a template of its own
            _write(out / f"{paper}_{name}.md", typeset(templates.select_template(own).render(paper=paper)))
    for name in ("common_tables", "ledger", "performance", "status", "cite"):
        _write(out / f"{name}.md", typeset(templates.get_template(f"{name}.md.jinja").render()))
    _write(out / "printed_numbers.csv", evidence.numbers_csv(folder))
    for path in notebooks.chapters():
        _write(out / f"{path.stem}_time.md", reading.told(path))
    for name in diagrams.described():
        _write(out / f"{name}_diagram.md", diagrams.drawing(name))
    for name, picture in pictures.PICTURES.items():
        _write(out / f"{name}_steps.md", steps.drawing(name, picture()))


def environment(folder: Path, out: Path, benchmarks: Path = BENCHMARKS) -> jinja2.Environment:
    """Make the templates of the book, with all that they may call; the parameters are those of :func:`write`."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        extensions=["jinja2.ext.do"],
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"cell": cell, "mean": lambda values: sum(values) / len(values)}
    of_folder: list[Callable] = [tables, beside, covered, states, by_setting, over, stored]
    of_folder += [evidence.claims, evidence.bar, evidence.newer, evidence.gap]
    of_folder += [status.runs, status.repeated, ledger.tally, ledger.totals, ledger.problems]
    templates.globals |= {call.__name__: partial(call, folder=folder) for call in of_folder}
    templates.globals |= {
        "missing": MISSING,
        "links": links,
        "number": number,
        "released_cells": released.cells,
        "cards": cards,
        "grid": grid,
        "kinds": evidence.KINDS,
        "corrections": ledger.corrections,
        "built": status.built,
        "compared": status.compared,
        "citation": status.citation,
        "chapters": CHAPTERS,
        "not_run": not_run,
        "printed": ledger.printed,
        "protocols": protocols.protocols,
        "rows": partial(ledger.rows, folder=folder),
        "lacking": partial(ledger.missing, folder=folder),
        "measured": partial(ledger.measured, folder=folder),
        "machines": machines,
        "benchmarks": partial(measurements, folder=benchmarks),
        "image": partial(image, out=out),
        "unseen": figures.unseen,
        "sweep": figures.sweep,
        "best": figures.best,
        "counts": figures.counts,
        "dots": figures.dots,
        "printed_beside": figures.printed_beside,
        "printed_rows": attributes.printed_rows,
        "lines": figures.lines,
    }
    return templates


def _write(path: Path, text: str) -> None:
    with places.writing(path):
        path.write_text(text, "utf-8")


def typeset(text: str) -> str:
    """Set hyphens before numbers as minus signs, and keep a number and its deviation in one line."""
    return MINUS.sub("−", text).replace(" ± ", "\u00a0±\u00a0")


def image(name: str, figure: Figure, alt: str, caption: str, out: Path) -> str:
    """Save a figure and return the Markdown that shows it, numbered, as ``fig-NAME``."""
    with places.writing(out / f"{name}.png"):
        figure.savefig(out / f"{name}.png", dpi=150, metadata={"Software": None})
    label = f"fig-{name.replace('_', '-')}"
    width = 105 * figure.get_figwidth()  # pixels that make the letters as high as those of the text
    options = f":name: {label}\n:alt: {alt}\n:width: {width:.0f}px"
    return f"```{{figure}} _generated/{name}.png\n{options}\n\n{caption}\n```\n"


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; a column of numbers is set to the right."""
    rows = [[*map(str, row)] for row in rows]
    right = [all(NUMBER.fullmatch(row[i]) or row[i] == MISSING for row in rows) for i in range(len(header))]
    lines = [header, ["---:" if r and rows else "---" for r in right], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cards(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table whose rows are cards on a phone: its first column says what the others are about."""
    return f"::::{{div}} cfl-cards\n\n{grid(header, rows)}\n::::\n"


def cell(value) -> str:
    """Write a measurement into a cell: three digits of a float, thousands apart in an integer."""
    if value is None or isinstance(value, jinja2.Undefined):
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def machines(runs: Sequence[dict]) -> str:
    """Say on what, for how long and from which commit runs were made."""
    where = sorted({r["provenance"]["card"] or r["provenance"]["machine"]["processor"] for r in runs})
    made = sorted({evidence.commit(r) for r in runs})
    minutes = sum(r["provenance"]["seconds"] for r in runs) / 60
    kind = ", ".join(sorted({r["config"]["dtype"] for r in runs}))
    return (f"{len(runs)} run{'s' * (len(runs) > 1)} on {', '.join(where)}, {kind}, {minutes:.0f} minutes in all; "
            f"commit {', '.join(made)}.")  # fmt: skip


def measurements(kind: str, folder: Path = BENCHMARKS) -> list[dict]:
    """Load all results of one script of ``benchmarks``, a machine each."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob(f"{kind}-*.json"))]


def stored(name: str, folder: Path) -> dict | None:
    """Load a file beside the run records, or None if it is not there."""
    return json.loads((folder / name).read_text()) if (folder / name).exists() else None


# ---------------------------------------------------------------------- tables
def states(folder: Path) -> Iterator[tuple[str, ...]]:
    """Say of every table what it lacks, and what that costs."""
    for name, spec in ledger.tables().items():
        lacking = ledger.missing(name, folder=folder)
        wanted = len({row["label"] for row in spec["rows"].values()}) * spec.get("extended", spec["seeds"])
        hours, gpu = sum(m.minutes for m in lacking) / 60, sum(m.gpu_minutes for m in lacking)
        linked = spec["paper"] in CHAPTERS or len(lacking) < wanted  # without a run the comparison shows no table
        title = f"[{spec['title']}](table-{name})" if linked else spec["title"]
        yield (title, f"{wanted - len(lacking)} of {wanted}", f"{hours:.1f}",
               f"{gpu:.0f}", f"`{name}`")  # fmt: skip


def covered(folder: Path) -> Iterator[list[str]]:
    """Count what became of each paper's printed numbers."""
    numbers = ledger.coverage(folder)
    for paper, title in CHAPTERS.items():
        mine = [number for number in numbers if number.entry["paper"] == paper]
        states = [number.state for number in mine]
        done, early = [n for n in mine if n.state == ledger.MEASURED], sum(n.early for n in mine)
        firm = sum(n.seeds >= ledger.SEEDS and not n.early for n in done)
        yield [title, *map(str, (len(mine), len(done), firm, early, states.count(ledger.RUNNABLE),
                                 states.count(ledger.NOT_RUN)))]  # fmt: skip


def not_run() -> list[tuple[str, ...]]:
    """List what no table faces, and why."""
    return [(CHAPTERS[out["paper"]], out["item"], out["because"]) for out in ledger.left_out()]


def tables(paper: str, folder: Path) -> Iterator[dict]:
    """Give all tables of a paper, measured beside printed, as the template writes them."""
    for name, spec in ledger.tables().items():
        if spec["paper"] == paper:
            yield _table(name, spec, list(ledger.rows(name, folder)), folder)


def beside(paper: str, folder: Path) -> dict[str, list[Row]]:
    """Give the rows of a paper's tables of accuracy, by title, that stand beside printed ones, most seeds first.

    The first table is the figure that a chapter opens with; all of them are one on the page of results.
    """
    shown = {}
    for name, spec in ledger.tables().items():
        if spec["paper"] == paper and spec["metric"].startswith("accuracy"):
            rows = [r for r in ledger.rows(name, folder) if r.measured and r.measured.percent(r.metric)]
            if sum(row.printed is not None for row in rows) > 1:
                shown[spec["title"]] = rows
    seeds = {title: max(len(row.measured.runs) for row in rows) for title, rows in shown.items()}
    return {title: shown[title] for title in sorted(shown, key=seeds.get, reverse=True)}


def _table(name: str, spec: dict, rows: list[Row], folder: Path) -> dict:
    skewed, also = any(_own(row) for row in rows), spec.get("also", [])
    printed = any(row.printed is not None for row in rows)
    lines = [_line(row, spec["tolerance"], skewed, also) for row in rows]
    extra = [*(["own label mix"] if skewed else []), *(metric.replace("ari", "ARI") for metric in also)]
    runs = list({(r["label"], r["seed"]): r for row in rows if row.measured for r in row.measured.runs}.values())
    header = ["method", "printed", "measured", "beside print", "difference", *extra, "seeds", "rounds"]
    if not printed and not any(line[BESIDE[1]] for line in lines):  # nor has one diverged, which stands there
        header, *lines = ([text for at, text in enumerate(line) if at not in BESIDE] for line in [header, *lines])
    return {
        "name": name,
        "spec": spec,
        "header": header,
        "printed": printed,
        "lines": lines,
        "runs": runs,
        "few": any(len(row.measured.runs) < spec["seeds"] for row in rows if row.measured),
        "lacking": bool(ledger.missing(name, folder=folder)),
        "early": ledger.too_early(spec["protocol"], folder) if runs else "",
        "assumed": protocols.protocols()[spec["protocol"]]["assumed"],
        "since": protocols.protocols()[spec["protocol"]]["since"],
        "search": protocols.protocols()[spec["protocol"]].get("search", []),
        "trace": list(_trace(rows)),
        "curves": _curves(rows) if len(runs) > 1 and spec["metric"] == "accuracy" else None,
    }


def _trace(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Give every seed's number with its run record."""
    for row in rows:
        linked = row.measured and links(row.measured, row.metric)
        if linked:
            yield row.name, f"`{row.label}`, `{row.metric}`", linked


def links(measured: ledger.Measured, metric: str) -> str:
    """List the numbers of all seeds, each a link to its run record."""
    files = {r["seed"]: f"results/{r['protocol']}/{records.name(r)}.json" for r in measured.runs}
    values = measured.values(metric).items()
    return ", ".join(f"{seed}: {{download}}`{value:.2f} <{files[seed]}>`" for seed, value in values)


def _own(row: Row) -> dict[int, float]:
    """Give the score on clients' own label mix, where it was taken besides the class-balanced one."""
    if row.measured is None or not row.metric.endswith("accuracy"):
        return {}
    return row.measured.values(row.metric.replace("accuracy", "own_accuracy"))


def _line(row: Row, tolerance: float, skewed: bool, also: Sequence[str]) -> list[str]:
    beside = "–" if row.printed is None else f"{row.printed:.2f}"
    values = list(row.measured.values(row.metric).values()) if row.measured else []
    if not values:
        return [row.name, beside, MISSING, "", "–", *(["–"] * (skewed + len(also))), "–", "–"]
    own = list(_own(row).values())
    model = "personal_" if row.metric.startswith("personal_") else ""  # of whichever model the row scores
    besides = [row.measured.percent(model + metric) for metric in also]
    others = [number(percent) if percent else "–" for percent in besides]
    gap = None if row.printed is None else [v - row.printed for v in values]
    word = "" if gap is None else ledger.agreement(values, row.printed, tolerance)
    if any(run["final"].get("diverged") for run in row.measured.runs):
        word = "diverged"
    mix, off = number(own) if own else "–", "–" if gap is None else number(gap, sign=True)
    size = str(len(values)), str(row.measured.rounds)
    return [row.name, beside, number(values), word, off, *([mix] * skewed), *others, *size]


def _curves(rows: Sequence[Row]) -> dict | None:
    """Draw the learning curves of a table's rows, where there are points between the first and the last."""
    curves = {}
    for row in rows:
        series = [pd.DataFrame(r["rounds"]) for r in row.measured.runs] if row.measured else []
        if series and row.metric in series[0] and series[0][row.metric].notna().sum() > 2:
            curves[row.name] = pd.concat([s.assign(**{"accuracy [%]": 100 * s[row.metric]}) for s in series])
    if not curves:
        return None
    split = figures.crowded(curves, "accuracy [%]")
    return {
        "figure": (figures.families if split else plots.learning_curves)(curves, "accuracy [%]"),
        "split": split,
        "ends": [f"{n} ends at {_end(c):.1f}%" for n, c in curves.items()],
        "band": not split and any(c["round"].duplicated().any() for c in curves.values()),
        "rest": [row.name for row in rows if row.measured and row.name not in curves],
    }


def _end(curve: pd.DataFrame) -> float:
    """Give the mean over the seeds in the last round that was scored."""
    known = curve.dropna(subset="accuracy [%]")
    return known.loc[known["round"] == known["round"].max(), "accuracy [%]"].mean()


# ---------------------------------------------------------------------- what a hyper-parameter does
def by_setting(
    settings: dict[str, str], method: str, over: str, split: str, kinds: Sequence[str], folder: Path
) -> dict[str, dict[tuple[str, float], ledger.Measured]]:
    """Gather the runs of a method over two of its parameters, for each of several protocols.

    Parameters
    ----------
    settings : dict of str to str
        Protocols by the title they get; those without any run are left out.
    method : str
        Name of the method.
    over, split : str
        The parameters: a number, and one of `kinds`, the first of which is meant where a protocol names none.
    kinds : sequence of str
        A run at 0 counts for all of them, because they differ in nothing there.
    folder : Path
        Where the run records are.
    """
    gathered: dict[str, dict] = {}
    for title, protocol in settings.items():
        for label, chosen in protocols.protocols()[protocol]["methods"].items():
            runs = ledger.measured(protocol, label, folder) if chosen["name"] == method else None
            if runs is not None:
                for kind in kinds if chosen[over] == 0 else [chosen.get(split, kinds[0])]:
                    gathered.setdefault(title, {})[kind, chosen[over]] = runs
    return gathered


def over(protocol: str, parameter: str, metric: str, folder: Path) -> dict[float, float]:
    """Give a metric's mean over the seeds for each value of the only parameter that a label sets."""
    means = {}
    for label, chosen in protocols.protocols()[protocol]["methods"].items():
        runs = ledger.measured(protocol, label, folder) if set(chosen) == {"name", parameter} else None
        if runs is not None:
            values = runs.values(metric).values()
            means[chosen[parameter]] = sum(values) / len(values)
    return means
