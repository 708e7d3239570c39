"""Chapters with other parameters: executed as a notebook into a folder of its own, or as a function for a sweep.

A chapter's metrics are what its cell tagged `comparison` binds to a name: histories, or their last rows, by the
method's label.
"""

import ast
import contextlib
import hashlib
import io
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from cflkit.checks import require
from cflkit.workbook import places
from cflkit.workbook.chapters import notebooks, parameters

FORMAT = 1  # of a run.json
NOTE = """**A rerun of the chapter: {given}.** The text was written for the defaults, and its findings are theirs.
Admonitions, cross-references and includes are not rendered in this export; the book's own page has them."""
MATHJAX = """{"loader": {"load": ["core", "input/tex", "output/chtml"]}, "tex": {"inlineMath": [["$", "$"]]}}"""
GLUED = re.compile(r"\{glue:text\}`([^`]+)`")  # a number in the text that a cell has computed
LAST = "from cflkit.workbook.chapters import rerun\nrerun.leave(globals(), {names!r}, {file!r})"


def rerun(name: str, given: Mapping[str, str], out: Path = Path("runs")) -> Path:
    """Execute a chapter with other parameters; nothing starts before all of them are known to be allowed.

    Parameters
    ----------
    name : str
        A chapter, see :func:`cflkit.workbook.chapters.notebooks.chapter`.
    given : mapping of str to str
        Parameters as typed.
    out : Path
        Where the folder of this rerun is made: ``CHAPTER/NAME=VALUE,...``, or with the next free number.

    Returns
    -------
    Path
        The folder: the executed notebook, the same as HTML, and ``run.json`` with parameters, versions, commit,
        duration and metrics.

    Raises
    ------
    ValueError
        An unknown chapter or parameter, a value that is not allowed, or an `out` that cannot be written.
    FileNotFoundError
        Pictures that are not on this machine.
    CellFailed
        A cell failed; the executed notebook shows where.
    """
    path = notebooks.chapter(name)
    values = checked(path, given)
    places.need_folder("out", out)
    folder = _folder(out / path.stem / label(given))
    executed, left = folder / path.name, folder / "metrics.json"
    began, failed = time.perf_counter(), None
    try:
        with places.writing(executed):
            changed = {name: values[name] for name in given}
            _execute(path, executed, changed, LAST.format(names=bound(path), file=str(left.resolve())))
    except notebooks.CellFailed as error:
        failed = str(error)
    metrics = json.loads(left.read_text("utf-8")) if left.exists() else {}
    seconds = time.perf_counter() - began
    _html(executed, label(given))
    write(folder / "run.json", path.stem, values, metrics, seconds, failed)  # who finds it finds the rest
    left.unlink(missing_ok=True)
    if failed:
        raise notebooks.CellFailed(f"{failed}; {executed.with_suffix('.html')} shows where")
    return folder


def checked(path: Path, given: Mapping[str, str]) -> dict[str, parameters.Value]:
    """Read the values of all parameters of the notebook at `path`, and look whether its pictures are at hand.

    Raises
    ------
    ValueError
        An unknown parameter, or values that are not allowed.
    FileNotFoundError
        The parameter `images` names a data set that is not on this machine; the line says how to fetch it.
    """
    schema = parameters.of(path)
    values = schema.values(schema.read(given))
    if "images" in values:
        from cflkit.data import images  # imports PyTorch, which takes longer than all checks

        images.need(values["images"])
    return values


def label(given: Mapping[str, str]) -> str:
    """Name a rerun after what was changed."""
    return places.label(",".join(f"{name}={text}" for name, text in given.items()) or "default")


def _folder(path: Path) -> Path:
    """Make a new folder, if need be with the least number that makes it new: ``NAME_2``, ``NAME_3``."""
    number, free = 2, path
    while True:
        try:
            free.mkdir(parents=True)
            return free
        except FileExistsError:
            free, number = path.with_name(f"{path.name}_{number}"), number + 1


def _execute(path: Path, executed: Path, values: Mapping, last: str) -> None:
    """Run the notebook, and a last cell that does not stay in it."""
    import nbformat
    import papermill
    from traitlets.config import Config

    notebook = nbformat.convert(nbformat.from_dict(parameters.load(path)), 4)
    notebook.cells.append(nbformat.v4.new_code_cell(last))
    for cell in notebook.cells:
        cell.metadata.setdefault("tags", [])  # papermill takes them for granted
    try:
        with notebooks.environment():
            papermill.execute_notebook(
                notebook,
                notebooks.literally(executed),
                dict(values),
                language="python",
                cwd=str(path.resolve().parent),
                start_timeout=300,
                progress_bar=sys.stderr.isatty(),
                config=Config(KernelManager=notebooks.sockets()),
                **notebooks.START,
            )
    except papermill.PapermillExecutionError as error:
        raise notebooks.CellFailed(f"{path.name}: {error.ename}: {error.evalue}") from None
    finally:
        if executed.exists():
            done = nbformat.read(executed, 4)
            done.cells = [cell for cell in done.cells if cell.source != last]
            with places.atomic_write(executed) as part:
                nbformat.write(done, part)


def _html(executed: Path, given: str) -> None:
    """Write the executed notebook as a page that says what was changed, and finds its mathematics in the book."""
    import nbformat
    from nbconvert import HTMLExporter

    notebook = nbformat.read(executed, 4)
    _fill(notebook.cells)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(NOTE.format(given=given)))
    mathjax = places.BOOK / "_static" / "mathjax" / "startup.js"
    page, _ = HTMLExporter(
        mathjax_url=mathjax.as_uri() if mathjax.exists() else "", require_js_url="", jquery_url=""
    ).from_notebook_node(notebook)
    page = page.replace("<head>", f"<head><script>window.MathJax = {MATHJAX};</script>", 1)
    with places.atomic_write(executed.with_suffix(".html")) as part:
        part.write_text(page, "utf-8")


def _fill(cells: list) -> None:
    """Set the numbers that cells have glued into the text, as the book does."""
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    glued = {
        output.metadata.scrapbook.name: output.data["application/papermill.record/text/plain"].strip("'")
        for output in outputs if "scrapbook" in output.get("metadata", {})
    }  # fmt: skip
    for cell in cells:
        if cell.cell_type == "markdown":
            cell.source = GLUED.sub(lambda found: glued.get(found[1], found[0]), cell.source)


def comparison(path: Path) -> int | None:
    """Find the cell tagged `comparison`: its number among the cells with code, from 0; None without one."""
    coded = (cell for cell in parameters.load(path)["cells"] if cell["cell_type"] == "code")
    return next((number for number, cell in enumerate(coded) if "comparison" in parameters.tags(cell)), None)


def bound(path: Path) -> list[str]:
    """The names that the cell tagged `comparison` assigns: what a chapter measures is among them."""
    if (number := comparison(path)) is None:
        return []
    coded = [cell for cell in parameters.load(path)["cells"] if cell["cell_type"] == "code"]
    assigned = (node for node in ast.parse(parameters.code(coded[number])).body if isinstance(node, ast.Assign))
    return [target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)]


def key(path: Path) -> str:
    """Short hash of what a demonstration depends on, beside the values that are given.

    It is over the notebook's folder, its code up to the comparison, with the defaults, and the library's code.
    """
    from cflkit.workbook.runs import records

    coded = [parameters.code(cell) for cell in parameters.load(path)["cells"] if cell["cell_type"] == "code"]
    parts = [str(path.resolve().parent), records.code(), *coded[: comparison(path) + 1]]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=4).hexdigest()


def demonstrate(path: Path, values: Mapping, out: Path, seconds: float | None = None) -> tuple[Path, str]:
    """Run a chapter as a function: its code, in this process, up to the cell that compares methods.

    Parameters
    ----------
    path : Path
        The notebook, with a cell tagged `comparison`.
    values : mapping
        All its parameters.
    out : Path
        The file to write, see :func:`write`, in a folder that is named after :func:`key`: it is not run again if
        the file is there.
    seconds : float, optional
        Ignored: a demonstration takes seconds, and is run whole.

    Returns
    -------
    Path
        The file.
    str
        Whether it was there.

    Raises
    ------
    ValueError
        The tagged cell binds no histories of several methods to a name, see :func:`compared`; or the file is there,
        and is of other values.
    RuntimeError
        Its code fails with these values.
    """
    from cflkit.workbook.claims.reproduce import alone

    with alone(out.parent):
        if out.exists():
            there = read(out)["parameters"]
            require(there == dict(values), "parameters", there, f"{dict(values)}; delete {out} to run it again")
            return out, "; was there"
        began = time.perf_counter()
        *_, (_, names) = islice(cells(path, values), comparison(path) + 1)
        found = compared({name: names[name] for name in bound(path)})
        require(bool(found), f"{path.name}: methods that its cell `comparison` compares", len(found), "two or more")
        write(out, path.stem, values, found, time.perf_counter() - began)
    return out, ""


def cells(path: Path, values: Mapping) -> Iterator[tuple[str, dict]]:
    """Run a chapter's code in this process, cell by cell, from the folder of the chapter.

    Parameters
    ----------
    path : Path
        The notebook.
    values : mapping
        Parameters in place of those that its cell sets.

    Yields
    ------
    str
        What the cell has printed, and its value where it ends with one.
    dict
        All that is bound to a name so far.
    """
    names: dict = {"__name__": "__main__", "display": print}
    for number, cell in enumerate(parameters.load(path)["cells"]):
        if cell["cell_type"] == "code":
            tree = ast.parse(parameters.code(cell))
            for node in tree.body[-1:]:
                if isinstance(node, ast.Expr):
                    node.value = ast.Call(ast.Name("print", ast.Load()), [node.value], [])
            code = compile(ast.fix_missing_locations(tree), f"{path.name}, cell {number}", "exec")
            with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.chdir(path.resolve().parent):
                exec(code, names)
            if "parameters" in parameters.tags(cell):
                names |= values
            yield said.getvalue(), names


# ---------------------------------------------------------------------- what a chapter measures
def leave(names: Mapping, measured: Iterable[str], file: str) -> None:
    """Write what a chapter has measured; the last cell of a rerun does so."""
    found = compared({name: names[name] for name in measured if name in names})
    Path(file).write_text(json.dumps(found), "utf-8")


def compared(names: Mapping) -> dict[str, dict]:
    """Take what was measured: by label, the last round's ``final`` numbers and the ``rounds`` of each run.

    Parameters
    ----------
    names : mapping
        What the cell tagged `comparison` has bound. A mapping from labels to histories counts, also to several
        histories each (one per seed), and to last rows.

    Raises
    ------
    ValueError
        Two such mappings have a label in common, with other numbers.
    """
    found: dict[str, list] = {}
    for name, value in names.items():
        if isinstance(value, dict) and len(value) > 1:
            runs = {key: list(_runs(one)) for key, one in value.items() if isinstance(key, str)}
            if len(runs) == len(value) and all(runs.values()):
                for key, one in runs.items():
                    require(found.setdefault(key, one) == one, f"{name}: label", key, "of one method only")
    return {key: [{"final": _numbers(rows[-1]), "rounds": [_numbers(row) for row in rows]} for rows in runs]
            for key, runs in found.items()}  # fmt: skip


def _runs(value) -> Iterator[list[dict]]:
    """Give the rows of each run in a value: a history, a last row, or several, perhaps with a simulation."""
    from cflkit.engine.history import History

    for one in value if isinstance(value, list | tuple) else [value]:
        rows = one.rounds if isinstance(one, History) else [one]
        if rows and isinstance(rows[-1], dict) and {"round", "down"} <= rows[-1].keys():
            yield rows


def _numbers(row: Mapping) -> dict[str, float]:
    """Keep the numbers of a row, and the mark of a run that has diverged."""
    from cflkit.workbook.runs import records

    numbers = {k: v for k, v in row.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return records.rounded(numbers | {k: row[k] for k in ("diverged",) if k in row})


def write(
    file: Path, chapter: str, values: Mapping, metrics: dict, seconds: float, failed: str | None = None
) -> None:
    """Write what a rerun was and what it measured, whole or not at all."""
    from cflkit.workbook.runs import records

    content = {
        "format": FORMAT,
        "chapter": chapter,
        "parameters": dict(values),
        "failed": failed,
        "metrics": metrics,
        "provenance": records.provenance() | {"seconds": round(seconds, 1)},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with places.atomic_write(file) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def read(file: Path) -> dict:
    """Read a ``run.json``.

    Raises
    ------
    ValueError
        It is damaged, or of another version; one line naming the file.
    """
    try:
        run = json.loads(file.read_text("utf-8"))
        parts = {"chapter", "parameters", "metrics", "provenance"}
        require(isinstance(run, dict) and parts <= run.keys(), "parts", sorted(run), f"{', '.join(sorted(parts))}")
        require(run.get("format") == FORMAT, "format", run.get("format"), f"{FORMAT}; another version wrote this")
    except (ValueError, TypeError, OSError, RecursionError) as error:
        raise ValueError(f"{file}: {error}") from None
    return run
