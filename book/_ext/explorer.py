"""The explorer of runs, round by round (an extension): the directive ``{explorer}``, and the numbers it draws.

A page without JavaScript shows the list of tables. ``explorer.js`` makes a choice of the list, and loads a table's
runs as a script of their own, because a page that is opened from a disk may load scripts and nothing else.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import drawings
import evidence
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from cflkit.workbook import places
from cflkit.workbook.claims import ledger, measured
from cflkit.workbook.runs import records, results
from cflkit.workbook.show import plots

FOLDER = Path("_static", "explorer")  # in the built book: a script for each table
MEGABYTES = 4e-6  # of a number in single precision
SHOWN = 12  # rows of a table, until a reader asks for more


def tables(folder: Path = records.FOLDER) -> dict[str, list[ledger.Row]]:
    """Rows that have runs, of every table of scores in percent, by the table's name."""
    found = {name: [row for row in ledger.rows(name, folder) if row.values]
             for name, spec in ledger.tables().items() if spec["metric"] not in results.PLAIN}  # fmt: skip
    return {name: rows for name, rows in found.items() if rows}


def data(name: str, rows: list[ledger.Row]) -> dict:
    """What is drawn of a table, as JSON has it: rows, and the places of those that are drawn at first."""
    metric, drawn, lines = ledger.tables()[name]["metric"], Counter(), []
    for row in rows:
        colour, runs = colour_of(row.name), row.measured
        lines.append({
            "name": row.name, "printed": row.printed, "colour": colour, "dash": drawn[colour],
            "ari": [*measured.by_seed(runs, "ari").values()], "diverged": any(map(results.diverged, runs)),
            "runs": [curve(run, row.metric) for run in runs],
        })  # fmt: skip
        drawn[colour] += 1
    grey = [row["colour"] == "cfl" and not row["name"].startswith("oracle") for row in lines]
    first = sorted(range(len(lines)), key=lambda at: (grey[at], lines[at]["printed"] is None))[:SHOWN]
    return {"name": name, "score": "F1" if "f1" in metric else "Accuracy", "first": sorted(first), "rows": lines}


def colour_of(row: str) -> str:
    """Name a row's colour as ``book.css`` does: that of the figures, which is grey for what has none of its own."""
    mine = (plots.look(row) or (plots.OTHER, ""))[0]
    return next(name for name, (own, _) in plots.LOOKS.items() if own == mine).lower().replace("-", "")


def curve(run: dict, metric: str) -> dict:
    """The rounds in which a run was scored, megabytes sent until then (down and up), and the score in percent."""
    sent, points = 0, []
    for row in run["rounds"]:
        sent += row["down"] + row["up"]
        if row.get(metric) is not None:
            points.append((row["round"], round(MEGABYTES * sent, 2), round(100 * row[metric], 4)))
    rounds, traffic, score = zip(*points, strict=True)
    return {"seed": run["seed"], "rounds": rounds, "traffic": traffic, "score": score}


def listing(names: list[str]) -> Iterator[str]:
    """The tables by paper, each a link to its page of results, in MyST."""
    for paper, title in {"ours": "The comparison", **evidence.CHAPTERS}.items():
        own = {name: spec["title"].removeprefix("The comparison: ") for name, spec in ledger.tables().items()
               if spec["paper"] == paper and name in names}  # fmt: skip
        yield f"- {title}"
        yield from (f"  - [{said[0].upper()}{said[1:]}](table-{name})" for name, said in own.items())


class Explorer(SphinxDirective):
    """The choice of tables, and the place of the chart."""

    def run(self) -> list[nodes.Node]:
        """Return the list of tables amid what the script fills."""
        self.env.note_reread()  # a run may have filled a table
        whole, links = nodes.container(classes=["ex"]), nodes.container(classes=["ex-list"])
        self.state.nested_parse(StringList(list(listing(list(tables())))), 0, links)
        whole += [nodes.raw("", drawings.render("explorer"), format="html"), links]
        runs = "../" * self.env.docname.count("/") + FOLDER.as_posix()
        drawings.needs(self, "explorer.css", "explorer.js", **{"data-runs": runs})
        return [whole]


def write(app, error: Exception | None) -> None:
    """Write the runs of every table beside the built pages (event "build-finished")."""
    if error is None and app.builder.format == "html":
        folder = Path(app.outdir, FOLDER)
        places.need_folder("explorer", folder)
        for name, rows in tables().items():
            numbers = json.dumps(data(name, rows), separators=(",", ":"))
            places.write(folder / f"{name}.js", f"explorer.take({numbers})\n")


def setup(app) -> dict:
    """Make the directive known."""
    app.add_directive("explorer", Explorer)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
