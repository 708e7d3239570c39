"""The book's pages of results, written from data whenever the book is built.

``cflkit pages`` fills the templates of ``book/templates`` and writes what pages include (``book/_generated``): for
each paper its claims with their verdicts, a figure of measured beside printed, and its tables; the ledger of
everything; and how fast the engine is. What has no record yet reads "not yet measured".
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import charts
import drawings
import evidence
import jinja2
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pictures
import scores
import status
import steps
from evidence import CHAPTERS
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from cflkit.workbook import places, strict
from cflkit.workbook.chapters import notebooks
from cflkit.workbook.claims import ledger, papers, schema, verdicts
from cflkit.workbook.claims.ledger import Row
from cflkit.workbook.claims.measured import by_seed, measured, number
from cflkit.workbook.runs import protocols, records, results
from cflkit.workbook.show import plots

OUT = places.BOOK / "_generated"
TEMPLATES = places.BOOK / "templates"
BENCHMARKS = places.ROOT / "benchmarks" / "results"
MISSING = "not yet measured"
ACCURACY = "accuracy [%]"
LATER = ("FLUX", "Ditto", "FedSoft", "FeSEM", "FedEM", "FedRC")  # rows of the benchmark's second part, drawn apart
TRIED = "rotation", "renamed", "concept", "shares"  # shifts in which the benchmark's settings were chosen
PERSONAL = "ditto", "lcfed", "fedsoft"  # labels of tries that are scored by a client's own model
GROUPS = ["groups", "with_clusters", "with_labels"]  # what book/measure/groups.py measures
MINUS = re.compile(r"(?<![\w`/.-])-(?=\d)")  # a hyphen that is a sign
NUMBER = re.compile(r"[-+−]?[\d.,]+( ± [\d.]+)?%?|–|")


def write(folder: Path = records.FOLDER, out: Path = OUT, benchmarks: Path = BENCHMARKS) -> None:
    """Write everything that chapters include, from the run records and the measurements of speed and memory."""
    plots.use_style()
    places.need_folder("out", out)
    templates = environment(folder, out, benchmarks)
    pages = {f"{paper}_{kind}": (f"{kind}.md.jinja", paper) for kind in ("dots", "tables") for paper in CHAPTERS}
    rest = "common_tables", "shifts", "shifts_tables", "ledger", "performance", "status", "causes", "cite"
    pages |= {name: (f"{name}.md.jinja", "ours") for name in rest}
    places.write(out / "printed_numbers.csv", evidence.numbers_csv(ledger.coverage(folder)))
    for name, (template, paper) in pages.items():
        places.write(out / f"{name}.md", typeset(templates.get_template(template).render(paper=paper)))
    for path in notebooks.chapters():
        places.write(out / f"{path.stem}_time.md", status.told(path))
    for name, spec in drawings.diagrams().items():
        drawn = drawings.figure(spec["caption"], spec["label"], drawings.diagram(spec))
        places.write(out / f"{name}_diagram.md", drawn)
    for name, picture in pictures.PICTURES.items():
        places.write(out / f"{name}_steps.md", steps.drawing(name, picture()))


def environment(folder: Path, out: Path, benchmarks: Path = BENCHMARKS) -> jinja2.Environment:
    """Make the templates of the book, with all that they may call."""
    templates = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined,
                                   trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)  # fmt: skip
    templates.filters["cell"] = cell
    of_folder: list[Callable] = [
        clusters, made, compared_rows, covered, deciding, domains, doses, first, found_groups, settings, states,
        stored, tables, tried, evidence.bar, evidence.far, evidence.explained, evidence.lines, evidence.newer,
        status.causes, status.runs, status.repeated, ledger.coverage, results.problems, ledger.totals,
    ]  # fmt: skip
    templates.globals |= {call.__name__: partial(call, folder=folder) for call in of_folder}
    own = [cards, grid, listed, released, status.built, status.compared]
    templates.globals |= {call.__name__: call for call in own}
    templates.globals |= {
        "benchmarks": partial(measurements, folder=benchmarks), "chapters": CHAPTERS, "charts": charts,
        "citation": partial(strict.read, places.ROOT / "CITATION.cff"), "corrections": schema.corrections,
        "dose_shifts": [ledger.SHIFTS[shift] for shift in TRIED], "left_out": schema.left_out,
        "dose_tries": {data: [f"{begins.replace('-', '_')}_tune_{shift}" for shift in TRIED]
                       for data, begins in ledger.DATA.items()},
        "image": partial(image, out=out), "kinds": evidence.KINDS, "missing": MISSING, "printed": papers.printed,
    }  # fmt: skip
    return templates


def typeset(text: str) -> str:
    """Set hyphens before numbers as minus signs, and keep a number and its deviation in one line."""
    return MINUS.sub("−", text).replace(" ± ", "\u00a0±\u00a0")


def image(name: str, drawn: charts.Drawn, caption: str, out: Path) -> str:
    """Save a figure and return the Markdown that shows it, numbered, as ``fig-NAME``; say so if there is none."""
    if drawn is None:
        return f"{MISSING.capitalize()}.\n"
    figure, alt = drawn
    figure.set_dpi(150)
    (canvas := FigureCanvasAgg(figure)).draw()  # once: saving would draw twice, to set out and to paint
    plt.close(figure)
    with places.atomic_write(out / f"{name}.png") as part:
        whole = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        whole.quantize(256).save(part, "PNG", dpi=(150, 150))  # half as large
    label = f"fig-{name.replace('_', '-')}"
    width = 105 * figure.get_figwidth()  # pixels that make the letters as high as those of the text
    options = f":name: {label}\n:alt: {alt}\n:width: {width:.0f}px"
    return f"```{{figure}} _generated/{name}.png\n{options}\n\n{caption}\n```\n"


def grid(header: Sequence[str], rows: Iterable[Sequence], none: str = f"{MISSING.capitalize()}.") -> str:
    """Write a table; a column of numbers is set to the right. Without a row it says `none`."""
    rows = [[*map(str, row)] for row in rows]
    if not rows:
        return f"{none}\n"
    right = [all(NUMBER.fullmatch(row[i]) or row[i] == MISSING for row in rows) for i in range(len(header))]
    lines = [header, ["---:" if r else "---" for r in right], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cards(header: Sequence[str], rows: Iterable[Sequence]) -> str:
    """Write a table whose rows are cards on a phone: its first column says what the others are about."""
    return f"::::{{div}} cfl-cards\n\n{grid(header, rows)}\n::::\n"


def listed(entries: Iterable[dict], keys: Sequence[str]) -> list[list]:
    """Give entries of a file as rows of a table."""
    return [[CHAPTERS.get(entry.get(key), entry.get(key)) for key in keys] for entry in entries]


def cell(value) -> str:
    """Write a measurement into a cell: three digits of a float, thousands apart in an integer."""
    if value is None or isinstance(value, jinja2.Undefined):
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def measurements(kind: str, folder: Path = BENCHMARKS) -> list[dict]:
    """Load all results of one script of ``benchmarks``, a machine each."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob(f"{kind}-*.json"))]


def stored(name: str, folder: Path) -> dict:
    """Load what a script of ``book/measure`` left beside the run records."""
    return json.loads((folder / name).read_text("utf-8"))


def covered(folder: Path) -> Iterator[list]:
    """Count what became of each paper's printed numbers."""
    every = ledger.coverage(folder)
    for paper, title in CHAPTERS.items():
        mine = [one for one in every if one.entry["paper"] == paper]
        measured, can, cannot = (sum(one.state == state for one in mine) for state in ledger.STATES)
        yield [title, len(mine), measured, sum(o.firm for o in mine), sum(o.early for o in mine), can, cannot]


def states(folder: Path) -> Iterator[tuple[str, ...]]:
    """Say of every table what it lacks, and what that costs."""
    for name, spec in schema.tables().items():
        lacking = ledger.missing(name, folder=folder)
        wanted = len({row["label"] for row in spec["rows"].values()}) * spec.get("extended", spec["seeds"])
        hours = sum(m.minutes for m in lacking) / 60
        linked = spec["paper"] in CHAPTERS or len(lacking) < wanted  # without a run the comparison shows no table
        title = f"[{spec['title']}](table-{name})" if linked else spec["title"]
        yield title, f"{wanted - len(lacking)} of {wanted}", f"{hours:.1f}", f"`{name}`"


def tables(paper: str, folder: Path) -> list[dict]:
    """Give all tables of a paper, measured beside printed, as the templates write them."""
    return [_table(name, spec, [*ledger.rows(name, folder)], folder)
            for name, spec in schema.tables().items() if spec["paper"] == paper]  # fmt: skip


def made(paper: str, begins: str = "", *, folder: Path) -> Iterator[list[str]]:
    """Say of every protocol of a paper's tables on what, for how long and from which commits its runs were made."""
    named = [spec["protocol"] for spec in schema.tables().values() if spec["paper"] == paper]
    for protocol in dict.fromkeys(name for name in named if name.startswith(begins)):
        if runs := results.runs(protocol, folder):
            made = [run["provenance"] for run in runs]
            where = sorted({m["card"] or m["machine"]["processor"] for m in made})
            commits = sorted({(m["commit"] or "unknown") + " (changed)" * bool(m.get("changed")) for m in made})
            kinds = sorted({run["config"]["dtype"] for run in runs})
            hours = f"{sum(m['seconds'] for m in made) / 3600:.1f}"
            yield [f"`{protocol}`", str(len(runs)), hours, ", ".join(where + kinds), ", ".join(commits)]


def _table(name: str, spec: dict, rows: list[Row], folder: Path) -> dict:
    protocol = protocols.protocols()[spec["protocol"]]
    runs = {id(run): run for row in rows for run in row.measured}
    few = any(len(row.measured) < spec["seeds"] for row in rows if row.measured)
    early = verdicts.set_up(spec["protocol"], folder) if runs else ""
    said = [f"**Too early**: {early}." * bool(early),
            f"**Not complete**: not all of the {spec['seeds']} planned seeds have run." * few, spec.get("note", "")]
    return {
        "name": name, "spec": spec, "grid": _grid(spec, rows), "runs": runs,
        "changes": name.endswith("-why"),  # one thing of another table's rows
        "dose": name.startswith("dose-"),  # a cell of the benchmark of shifts
        "note": " ".join(filter(None, said)),
        "assumed": [*protocol["assumed"], f"These settings have stood since {protocol['since']}."],
        "search": grid(["tried on a baseline before", "method", "seed", "accuracy [%] at round"],
                       _search(protocol.get("search", [])), none=""),
        "trace": list(_trace(rows)),
        "curves": partial(_curves, rows if len(runs) > 1 and spec["metric"] == "accuracy" else []),
    }  # fmt: skip


def _grid(spec: dict, rows: Sequence[Row]) -> str:
    """Set a table's measured numbers beside the printed ones; a column that nothing fills is left out."""
    frame = pd.DataFrame([_line(row, spec) for row in rows], index=[row.name for row in rows]).fillna("–")
    frame = frame.loc[:, ~frame.isin(["–", ""]).all()]
    return grid(["method", *frame.columns], frame.reset_index().to_numpy())


def _line(row: Row, spec: dict) -> dict[str, str]:
    values, model = list(row.values.values()), "personal_" * row.metric.startswith("personal_")
    gap = [value - row.printed for value in values] if row.printed is not None else []
    others = {scores.words(metric): model + metric for metric in spec.get("also", [])}  # of the same model
    if row.metric.endswith("accuracy"):
        others["own label mix"] = row.metric.replace("accuracy", "own_accuracy")
    found = {title: [*by_seed(row.measured, metric).values()] if values else [] for title, metric in others.items()}
    return {
        "printed": "–" if row.printed is None else f"{row.printed:.2f}",
        "measured": number(values) + ", diverged" * any(map(results.diverged, row.measured)) if values else MISSING,
        "difference": number(gap, sign=True) if gap else "–",
        "own label mix": "–",
        **{title: number(each) if each else "–" for title, each in found.items()},
        "seeds": str(len(values)) if values else "–",
        "rounds": str(row.measured[0]["config"]["rounds"]) if values else "–",
    }


def _trace(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        files = {run["seed"]: f"results/{run['protocol']}/{records.name(run)}.json" for run in row.measured}
        linked = [f"{seed}: {{download}}`{value:.2f} <{files[seed]}>`" for seed, value in row.values.items()]
        if linked:
            yield row.name, f"`{row.label}`, {scores.words(row.metric)} (`{row.metric}`)", ", ".join(linked)


def _search(search: Sequence[dict]) -> Iterator[tuple]:
    """Give the readings that were tried on a baseline, before the protocol was frozen."""
    for tried in search:
        found = ", ".join(f"{value:.2f} at {at}" for at, value in tried["found"].items())
        reading = f"**{tried['reading']}**, chosen {tried['chosen']}" if tried.get("chosen") else tried["reading"]
        yield reading, f"`{tried['label']}`", tried.get("seed", 0), found


def _curves(rows: Sequence[Row]) -> tuple[charts.Drawn, str] | None:
    """Draw the learning curves of a table's rows, where there are points between the first and the last."""
    curves, rest = {}, []
    for row in (row for row in rows if row.measured):
        known = [(at["round"], 100 * at[row.metric]) for run in row.measured for at in run["rounds"]
                 if at.get(row.metric) is not None]  # fmt: skip
        if len({at for at, _ in known}) > 2:
            curves[row.name] = pd.DataFrame(known, columns=["round", ACCURACY])
        else:
            rest.append(row.name)
    said = "Accuracy over the rounds, mean over the seeds."
    said += f" Scored after the last round alone, so not drawn: {', '.join(rest)}." if rest else ""
    return (charts.learning(curves, ACCURACY), said) if curves else None


def deciding(paper: str, folder: Path) -> tuple[str, list[Row]]:
    """Give the title and the rows of the table that a chapter opens with: those that decide its main claim.

    It is the table of accuracy with most seeds beside print. If no claim is about it, all printed rows decide.
    """
    found = [(spec, [row for row in ledger.rows(name, folder) if row.values])
             for name, spec in schema.tables().items()
             if spec["paper"] == paper and spec["metric"].startswith("accuracy")]  # fmt: skip
    found = [one for one in found if sum(row.printed is not None for row in one[1]) > 1]
    if not found:
        return "", []
    spec, rows = max(found, key=lambda one: max(len(row.values) for row in one[1]))
    (claim,) = (claim for claim in schema.claims()[paper] if claim.get("main"))
    asked = {schema.split(name)[:2] for name in schema.cells(claim)}
    decide = [row for row in rows if (spec["protocol"], row.label) in asked]
    return spec["title"], decide if len(decide) > 1 else [row for row in rows if row.printed is not None]


def settings(named: dict[str, str], method: str, folder: Path, only: str = "") -> pd.DataFrame:
    """Join a method's runs in several protocols (by title) with its parameters; labels that set `only` this one."""
    labels = [{"setting": title, "protocol": protocol, "label": label, **chosen}
              for title, protocol in named.items()
              for label, chosen in protocols.protocols()[protocol]["methods"].items()
              if chosen["name"] == method and (not only or set(chosen) == {"name", only})]  # fmt: skip
    return pd.DataFrame(labels).merge(results.frame(folder), on=["protocol", "label"])


def first(named: dict[str, str], label: str, folder: Path) -> dict[str, list[dict]]:
    """Give the runs of a label in several protocols, where there are any."""
    return {title: m for title, protocol in named.items() if (m := measured(protocol, label, folder))}


def clusters(named: dict[str, str], true: Sequence[int], folder: Path) -> Iterator[list]:
    """Say how many clusters StoCFL found in each of several protocols, beside the true number."""
    for (title, protocol), truth in zip(named.items(), true, strict=True):
        found = [title, truth, MISSING, "–", "–", "–", "–"]
        if m := measured(protocol, "stocfl", folder):
            first, listed = m[0], ", ".join(f"{run['final']['clusters']}" for run in m)
            rest = charts.unseen(first), len(m), first["config"]["rounds"]
            found[2:] = listed, f"{first['final']['ari']:.2f}", *rest
        yield found


def compared_rows(table: str, folder: Path) -> Iterator[list[str]]:
    """Set FeSEM with four centres beside each baseline of a table, by four scores, with as many local passes."""
    for row in ledger.rows(table, folder):
        apart = row.name.startswith("FeSEM") or row.name == "FedSGD" or "equal passes" in row.name
        if row.measured and row.printed and not apart:
            four = "FeSEM(4)" if row.name == "Robust(TKM)" else "FeSEM(4), 59 rounds"
            line = [row.name, four]
            for scored in (f"{table}{end}" for end in ("", "-macro", "-micro-f1", "-macro-f1")):
                rows = {row.name: row for row in ledger.rows(scored, folder)}
                protocol = schema.tables()[scored]["protocol"]
                cells = (f"{protocol}/{rows[n].label}/{rows[n].metric}" for n in (four, row.name))
                gap = verdicts.compare(*cells, folder)
                low, high = gap.ends()
                told = "–" if low <= 0 <= high else f"{abs(gap.mean):.2f} {'above' if gap.mean > 0 else 'below'}"
                line.append(told if gap.n else "")
            yield line


def released(rows: Sequence[dict]) -> Iterator[list[str]]:
    """Give both of FeSEM's scores, a line for each seed, in percent."""
    for row in rows:
        each = ", ".join(f"{100 * value:.1f} ({n})" for value, n in zip(row["each"], row["members"], strict=True))
        scores = (row[name] for name in ("own_micro", "micro", "mean", "own_macro", "macro"))
        yield [f"{row['seed']}", *(f"{100 * value:.2f}" for value in scores), each]


def domains(table: str, folder: Path) -> Iterator[list]:
    """Say of each run of FedCG in a table what its domains came to, and what it sends beside FedAvg."""
    basis = measured(schema.tables()[table]["protocol"], "fedavg", folder)
    for row in ledger.rows(table, folder):
        for run in row.measured if row.measured and "lam" in row.measured[0]["final"] else []:
            final, parted = run["final"], [r["round"] for r in run["rounds"] if r.get("largest_share", 1) < 1]
            whole = max(parted, default=0) + 1
            sent, *base = (at["rounds"][1]["down"] + at["rounds"][1]["up"] for at in (run, *basis[:1]))
            yield [row.name, run["seed"], f"{100 * final['largest_share']:.1f}",
                   whole if whole <= run["config"]["rounds"] else "–", f"{final['lam'][-1]:.2f}",
                   f"{sent / base[0]:.1f}" if base else "–"]  # fmt: skip


def found_groups(folder: Path) -> Iterator[list]:
    """Give what the first groups follow, mean over the seeds, as ``book/measure/groups.py`` left it."""
    frame = pd.DataFrame(stored("groups.json", folder)["rows"], columns=["protocol", "label", "changed", *GROUPS])
    frame["tau"] = [changed.get("tau", 0) for changed in frame.changed]
    for protocol, title in (("common_rot_r20", "turned images"), ("common_rot_skew_r20", "turned, uneven labels")):
        means = frame[frame.protocol == protocol].groupby(["label", "tau"])[GROUPS].mean()
        for (label, tau), (groups, true, labels) in means.iterrows():
            name = f"{label}, τ = {tau:g}" if tau else label
            yield [title, name, f"{groups:.1f}", f"{true:.2f}", f"{labels:.2f}"]


def doses(folder: Path) -> dict[str, dict[str, dict]]:
    """Give the leads over fine-tuned FedAvg by row of the benchmark's picture, by shift and by method."""
    found: dict[str, dict[str, dict]] = {}
    for data, (shift, title) in product(ledger.DATA, ledger.SHIFTS.items()):
        for method, gaps in ledger.leads(data, shift, folder).items():
            row = f"{data}, more methods" if method in LATER else data
            found.setdefault(row, {}).setdefault(title, {})[method] = gaps
    return found


def tried(named: Sequence[str], folder: Path) -> Iterator[list[str]]:
    """Give the held-out accuracy of every setting tried in these protocols, and the mean of several."""
    for label, method in protocols.protocols()[named[0]]["methods"].items():
        runs = [measured(protocol, label, folder) for protocol in named]
        if all(runs):
            metric = "personal_accuracy" if label.startswith(PERSONAL) else "accuracy"
            found = [float(np.mean([*by_seed(run, metric).values()])) for run in runs]
            given = ", ".join(f"{key} = {value}" for key, value in method.items() if key != "name")
            yield [f"`{label}`", given, *map("{:.1f}".format, found + [np.mean(found)] * (len(found) > 1))]
