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
from pathlib import Path

from cflkit.checks import require
from cflkit.workbook import places
from cflkit.workbook.chapters import notebooks, parameters

NOTE = """**A rerun of the chapter: {given}.** The text was written for the defaults, and its findings are theirs.
Admonitions, cross-references and includes are not rendered in this export; the book's own page has them."""
MATHJAX = """{"loader": {"load": ["core", "input/tex", "output/chtml"]}, "tex": {"inlineMath": [["$", "$"]]}}"""
GLUED = re.compile(r"\{glue:text\}`([^`]+)`")  # a number in the text that a cell has computed
LAST = """import json
from cflkit.workbook.chapters.rerun import compared
print(json.dumps(compared(globals(), {names!r})))"""


def rerun(name: str, given: Mapping[str, str], out: Path = places.RUNS) -> Path:
    """Execute a chapter with other parameters; nothing starts before all of them are known to be allowed.

    `given` are parameters as typed. A new folder ``CHAPTER/NAME=VALUE,...`` of `out` is made and returned. It has
    the executed notebook, the same as HTML, and ``run.json`` with parameters, versions, commit, duration, metrics.

    After a cell that failed :class:`.CellFailed` says where the executed notebook shows it.
    """
    import nbformat

    path = notebooks.chapter(name)
    values = checked(path, given)
    places.need_folder("out", out)
    folder = _folder(out / path.stem / label(given))
    executed, notebook, began = folder / path.name, notebooks.node(path), time.perf_counter()
    notebook.cells.append(nbformat.v4.new_code_cell(LAST.format(names=bound(path))))
    metrics, failed = {}, None
    try:
        with places.writing(executed):
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


def _folder(path: Path) -> Path:
    """Make a new folder, if need be with the least number that makes it new: ``NAME_2``, ``NAME_3``."""
    for number in count(1):
        free = path if number == 1 else path.with_name(f"{path.name}_{number}")
        with contextlib.suppress(FileExistsError):
            free.mkdir(parents=True)
            return free


def _html(notebook, given: str) -> str:
    """Export an executed notebook as a page that says what was changed, with the numbers that cells have glued."""
    import nbformat
    from nbconvert import HTMLExporter

    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    glued = {
        output.metadata.scrapbook.name: output.data["application/papermill.record/text/plain"].strip("'")
        for output in outputs if "scrapbook" in output.get("metadata", {})
    }  # fmt: skip
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = GLUED.sub(lambda found: glued.get(found[1], found[0]), cell.source)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(NOTE.format(given=given)))
    mathjax = places.BOOK / "_static" / "mathjax" / "startup.js"
    exporter = HTMLExporter(
        mathjax_url=mathjax.as_uri() if mathjax.exists() else "", require_js_url="", jquery_url=""
    )
    text, _ = exporter.from_notebook_node(notebook)
    return text.replace("<head>", f"<head><script>window.MathJax = {MATHJAX};</script>", 1)


# ---------------------------------------------------------------------- as a function
def coded(path: Path) -> list[dict]:
    """The cells with code."""
    return [cell for cell in notebooks.load(path)["cells"] if cell["cell_type"] == "code"]


def compares(path: Path) -> list[dict]:
    """The cells with code up to the one tagged `comparison`, which is the last; none without one."""
    cells = coded(path)
    numbers = [number for number, cell in enumerate(cells, 1) if "comparison" in notebooks.tags(cell)]
    return cells[: min(numbers, default=0)]


def bound(path: Path) -> list[str]:
    """The names that the cell tagged `comparison` assigns: what a chapter measures is among them."""
    trees = [ast.parse(cell["source"]) for cell in compares(path)[-1:]]
    return [target.id for tree in trees for node in tree.body if isinstance(node, ast.Assign)
            for target in node.targets if isinstance(target, ast.Name)]  # fmt: skip


def key(path: Path) -> str:
    """Short hash of a notebook's folder, its code up to the comparison (defaults, too), and the library."""
    from cflkit.workbook.runs import records

    sources = [cell["source"] for cell in compares(path)]
    return places.digest([json.dumps([str(path.resolve().parent), records.code(), *sources])])


def demonstrate(path: Path, values: Mapping, out: Path, seconds: float | None = None) -> tuple[Path, str]:
    """Run a chapter as a function: its code, in this process, up to the cell that compares methods.

    `values` are those of all its parameters. What is in the file `out`, of a folder named after :func:`key`, is not
    run again. `seconds` is for other tasks: a demonstration takes few, and is run whole.
    Returns the file, and whether it was there.
    """
    from cflkit.workbook.runs.run import alone

    with alone(out.parent):
        if out.exists():
            return out, "; was there"
        began, names = time.perf_counter(), {"__name__": "__main__", "display": print}
        for number, cell in enumerate(compares(path)):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(path.resolve().parent):
                exec(compile(cell["source"], f"{path.name}, cell {number}", "exec"), names)
            names |= values if "parameters" in notebooks.tags(cell) else {}
        found = compared(names, bound(path))
        require(bool(found), f"{path.name}: methods that its cell `comparison` compares", len(found), "two or more")
        write(out, path.stem, values, found, time.perf_counter() - began)
    return out, ""


# ---------------------------------------------------------------------- what a chapter measures
def compared(names: Mapping, measured: list[str]) -> dict[str, list[list[dict]]]:
    """Take what was measured: by label, the rows of each run.

    Of the names in `measured`, those count that bind a mapping from labels to histories, also to several histories
    each (one per seed), or to last rows. Two such mappings must agree where they have a label in common.
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
    from cflkit.workbook.runs import records

    for one in value if isinstance(value, list | tuple) else [value]:
        rows = one.rounds if isinstance(one, History) else [one]
        if rows and isinstance(rows[-1], dict) and {"round", "down"} <= rows[-1].keys():
            yield [records.rounded({name: x for name, x in row.items() if name == "diverged" or
                                    (isinstance(x, int | float) and not isinstance(x, bool))}) for row in rows]


def write(
    file: Path, chapter: str, values: Mapping, metrics: dict, seconds: float, failed: str | None = None
) -> None:
    """Write what a rerun was and what it measured, whole or not at all."""
    from cflkit.workbook.runs import records

    content = {"format": records.FORMAT, "chapter": chapter, "parameters": dict(values), "failed": failed,
               "metrics": metrics, "provenance": records.provenance() | {"seconds": round(seconds, 1)}}  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    places.write(file, json.dumps(content, indent=1) + "\n")


def read(file: Path) -> dict:
    """Read a ``run.json``; one that is damaged, or of another version, is refused in a line with its name."""
    from cflkit.workbook.runs import records

    try:
        return records.parse(file, ["chapter", "parameters", "metrics", "provenance", "failed"])
    except (ValueError, TypeError, OSError, RecursionError) as error:
        raise ValueError(f"{file}: {error}") from None
