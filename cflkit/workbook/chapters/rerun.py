"""Chapters with other parameters: executed as a notebook into a folder of its own, or as a function for a sweep.

A chapter's metrics are what its cell tagged `comparison` binds to a name: histories, or their last rows, by the
method's label.
"""

import ast
import contextlib
import io
import json
import re
import time
from collections.abc import Iterator, Mapping
from itertools import count
from math import inf
from pathlib import Path

from cflkit.checks import require, writing
from cflkit.workbook import places
from cflkit.workbook.chapters import notebooks, parameters
from cflkit.workbook.runs import records

NOTE = """**A rerun of the chapter: {given}.** The text was written for the defaults, and its findings are theirs.
Admonitions, cross-references and includes are not rendered in this export; the book's own page has them."""
MATHJAX = """{"loader": {"load": ["core", "input/tex", "output/chtml"]}, "tex": {"inlineMath": [["$", "$"]]}}"""
GLUED = re.compile(r"\{glue:text\}`([^`]+)`")  # a number in the text that a cell has computed
LAST = """import json
from cflkit.workbook.chapters.rerun import compared
print(json.dumps(compared(globals(), {names!r})))"""


def rerun(name: str, given: Mapping[str, str], out: Path = places.RUNS) -> Path:
    """Execute a chapter with other parameters, given as typed; nothing starts before all are known to be allowed.

    Returns a new folder ``CHAPTER/NAME=VALUE,...`` with the executed notebook, the same as HTML, and ``run.json``.
    After a cell that failed :class:`.CellFailed` says where the notebook shows it.
    """
    import nbformat

    path = notebooks.chapter(name)
    values, notebook = checked(path, given), notebooks.load(path)
    places.need_folder("out", out)
    for number in count(1):  # the least that makes the folder a new one: NAME, NAME_2, NAME_3
        folder = out / path.stem / (label(given) + f"_{number}" * (number > 1))
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    executed, began, metrics, failed = folder / path.name, time.perf_counter(), {}, None
    notebook.cells.append(nbformat.v4.new_code_cell(LAST.format(names=bound(path))))
    try:
        with writing(executed):
            done = notebooks.execute(notebook, path, {name: values[name] for name in given}, executed)
        metrics = json.loads(next(one.text for one in done.cells[-1].outputs if one.get("name") == "stdout"))
    except notebooks.CellFailed as error:
        failed = f"{error}; {executed.with_suffix('.html')} shows where"
    seconds, done = time.perf_counter() - began, nbformat.read(executed, 4)
    done.cells.pop()
    places.write(executed, nbformat.writes(done) + "\n")
    places.write(executed.with_suffix(".html"), _html(done, label(given)))
    write(folder / "run.json", path.stem, values, metrics, seconds, failed)  # who finds it finds the rest
    if failed:
        raise notebooks.CellFailed(failed)
    return folder


def checked(path: Path, given: Mapping[str, str]) -> dict[str, parameters.Value]:
    """Read the values of all parameters of the notebook at `path`, and require that its pictures are at hand."""
    values = parameters.of(path).read(given)
    if "images" in values:
        from cflkit.data import images  # imports PyTorch, which takes longer than all checks

        images.need(values["images"])
    return values


def label(given: Mapping[str, str]) -> str:
    """Name a rerun after what was changed."""
    return places.label(",".join(f"{name}={text}" for name, text in given.items()) or "default")


def _html(notebook, given: str) -> str:
    """Export an executed notebook as a page that says what was changed, with the numbers that cells have glued."""
    import nbformat
    from nbconvert import HTMLExporter

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    glued = {one.metadata.scrapbook.name: one.data["application/papermill.record/text/plain"].strip("'")
             for one in outputs if "scrapbook" in one.get("metadata", {})}  # fmt: skip
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = GLUED.sub(lambda found: glued.get(found[1], found[0]), cell.source)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(NOTE.format(given=given)))
    mathjax = places.BOOK / "_static" / "mathjax" / "startup.js"
    address = mathjax.as_uri() if mathjax.exists() else ""
    page = HTMLExporter(mathjax_url=address, require_js_url="", jquery_url="")
    text, _ = page.from_notebook_node(notebook)
    return text.replace("<head>", f"<head><script>window.MathJax = {MATHJAX};</script>", 1)


# ---------------------------------------------------------------------- as a function
def compares(path: Path) -> list[dict]:
    """The cells with code up to the one tagged `comparison`, which is the last; none without one."""
    cells = [cell for cell in notebooks.load(path).cells if cell.cell_type == "code"]
    numbers = [number for number, cell in enumerate(cells, 1) if "comparison" in notebooks.tags(cell)]
    return cells[: min(numbers, default=0)]


def bound(path: Path) -> list[str]:
    """The names that the cell tagged `comparison` assigns: what a chapter measures is among them."""
    nodes = [node for cell in compares(path)[-1:] for node in ast.parse(cell.source).body]
    return [target.id for node in nodes if isinstance(node, ast.Assign)
            for target in node.targets if isinstance(target, ast.Name)]  # fmt: skip


def demonstrate(path: Path, values: Mapping, out: Path, seconds: float = inf) -> tuple[Path, str]:
    """Run a chapter as a function: its code, in this process, up to the cell that compares methods.

    `values` are those of all its parameters. Returns the file `out`, and whether it was there, so nothing was run.
    """
    from cflkit.workbook.runs.run import alone

    with alone(out.parent):
        if out.exists():
            return out, "; was there"
        began, names = time.perf_counter(), {"__name__": "__main__", "display": print}
        for number, cell in enumerate(compares(path)):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(path.resolve().parent):
                exec(compile(cell.source, f"{path.name}, cell {number}", "exec"), names)
            names |= values if "parameters" in notebooks.tags(cell) else {}
        found = compared(names, bound(path))
        require(bool(found), f"{path.name}: methods that its cell `comparison` compares", len(found), "two or more")
        write(out, path.stem, values, found, time.perf_counter() - began)
    return out, ""


# ---------------------------------------------------------------------- what a chapter measures
def compared(names: Mapping, measured: list[str]) -> dict[str, list[list[dict]]]:
    """Take what was measured: by label, the rows of each run.

    Of the names in `measured` those count that bind a mapping from labels to histories (also to several each, one a
    seed), or to last rows. Two such mappings must agree where they have a label in common.
    """
    found: dict[str, list] = {}
    for name in measured:
        value = names.get(name)
        if isinstance(value, dict) and len(value) > 1 and all(isinstance(key, str) for key in value):
            runs = {key: [*_runs(one)] for key, one in value.items()}
            for key, one in runs.items() if all(runs.values()) else ():
                require(found.setdefault(key, one) == one, f"{name}: label", key, "of one method only")
    return found


def _runs(value) -> Iterator[list[dict]]:
    """Give the rows of each run in a value, of each row the numbers, and the mark of a run that has diverged."""
    from cflkit.engine.history import History
    for one in value if isinstance(value, list | tuple) else [value]:
        rows = one.rounds if isinstance(one, History) else [one]
        if rows and isinstance(rows[-1], dict) and {"round", "down"} <= rows[-1].keys():
            yield [records.rounded({name: x for name, x in row.items() if name == "diverged" or
                                    (isinstance(x, int | float) and type(x) is not bool)}) for row in rows]


def write(
    file: Path, chapter: str, values: Mapping, metrics: dict, seconds: float, failed: str | None = None
) -> None:
    """Write what a rerun was and what it measured, whole or not at all."""
    content = {"format": records.FORMAT, "chapter": chapter, "parameters": dict(values), "failed": failed,
               "metrics": metrics, "provenance": records.provenance() | {"seconds": round(seconds, 1)}}  # fmt: skip
    places.write(file, json.dumps(content, indent=1) + "\n")
