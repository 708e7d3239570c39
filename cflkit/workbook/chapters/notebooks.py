"""Notebooks: where they are, how they are run in a kernel, and storing in place what they print."""

import contextlib
import copy
import hashlib
import json
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

from cflkit.checks import known, require
from cflkit.workbook import places

# What a kernel runs under, so that what it prints and draws does not depend on who runs it.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1",
               "MPLBACKEND": "module://matplotlib_inline.backend_inline"}  # fmt: skip
# Settings of a user that would reach it: start-up files, styles, and where Jupyter looks for more.
PERSONAL = ("PYTHONSTARTUP", "JUPYTER_PATH", "JUPYTER_CONFIG_PATH", "JUPYTER_PREFER_ENV_PATH", "IPYTHON_DIR")
OWN = ("IPYTHONDIR", "MATPLOTLIBRC", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
LONGEST = 80  # letters of a folder for sockets, whose whole path may have about a hundred

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "pygments_lexer": "ipython3"}
STRAY = ("papermill", "execution", "widgets")  # metadata that tells of one run, not of the notebook
TIMES = places.ROOT / "benchmarks" / "chapters"  # how long each notebook ran: shown, never compared


class CellFailed(Exception):
    """A cell of a notebook raised an exception."""


def chapters() -> list[Path]:
    """All notebooks of the book."""
    return sorted(places.BOOK.glob("*.ipynb"))


def listed() -> str:
    """Name all chapters in one line."""
    return "chapters: " + ", ".join(path.stem for path in chapters())


def chapter(name: str) -> Path:
    """Find a chapter by its name (``stocfl``) or by its path."""
    if name.endswith(".ipynb"):
        require(Path(name).is_file(), "chapter", name, "a chapter's name, or the path of a notebook")
        return Path(name)
    places.need_book()
    known([notebook.stem for notebook in chapters()], name, "chapter")
    return places.BOOK / f"{name}.ipynb"


def load(path: Path):
    """Read a notebook as nbformat has it; the source of each cell is one text."""
    import nbformat

    try:
        notebook = nbformat.from_dict(json.loads(path.read_text("utf-8")))
        for cell in notebook.cells:
            cell.source = "".join(cell.source)
        parts = [notebook, *notebook.cells]
        ok = all(isinstance(part.metadata, dict) for part in parts) and all(cell.cell_type for cell in parts[1:])
    except (ValueError, AttributeError, TypeError):
        ok = False
    require(ok, "notebook", str(path), "a Jupyter notebook")
    return notebook


def tags(cell: Mapping) -> list[str]:
    """Tags of a cell."""
    return cell["metadata"].get("tags", [])


def execute(notebook, path: Path, values: Mapping, executed: Path | None = None, **how):
    """Run a notebook, as nbformat has it, in a kernel in the folder of its `path`, with these `values`.

    `executed` is where it is written while it runs. A cell that fails raises :class:`CellFailed`.
    """
    import papermill
    from traitlets.config import Config

    target = str(executed or "").replace("{", "{{").replace("}", "}}")  # papermill fills parameters into braces
    for cell in notebook.cells:
        cell.metadata.setdefault("tags", [])  # papermill takes them for granted
    try:
        with environment():
            return papermill.execute_notebook(
                notebook, target or None, dict(values), language="python", cwd=str(path.resolve().parent),
                kernel_name="python3", start_timeout=300, progress_bar=sys.stderr.isatty(),
                config=Config(KernelManager=sockets()),
                extra_arguments=["--log-level=CRITICAL"],  # it says nothing of its own when it is interrupted
                **how)  # fmt: skip
    except papermill.PapermillExecutionError as error:
        raise CellFailed(f"{path.name}: {error.ename}: {error.evalue}") from None


def refresh(path: Path) -> None:
    """Execute the notebook at `path` in its own folder and store what it prints; one that fails stays as it was.

    Doing it twice gives the same bytes. How long a notebook of the book took goes to `TIMES`.
    """
    import nbformat

    notebook, before, seen = load(path), os.times(), {""}
    notebook.nbformat_minor = 5
    for number, cell in enumerate(notebook.cells):  # every one gets an identifier of its own
        if cell.get("id", "") in seen:
            cell.id = hashlib.sha256(f"{number}/{cell.source}".encode()).hexdigest()[:8]
        seen.add(cell.id)
    for part, key in product([notebook, *notebook.cells], STRAY):
        part.metadata.pop(key, None)
    done = execute(copy.deepcopy(notebook), path, {}, coalesce_streams=True, record_timing=False)
    for cell, ran in zip(notebook.cells, done.cells, strict=True):
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
    notebook.metadata.update(kernelspec=KERNEL, language_info=LANGUAGE)
    nbformat.validate(notebook)
    places.write(path, nbformat.writes(notebook) + "\n")
    if path.resolve().parent == places.BOOK:
        from cflkit.workbook.runs import records  # imports PyTorch, which takes seconds

        made, spent = records.provenance(), os.times()  # kernels are processes that this one saw end
        seconds = spent.children_user + spent.children_system - before.children_user - before.children_system
        took = {"seconds": round(seconds, 1), "date": made["date"], "processor": made["machine"]["processor"]}
        places.write(TIMES / f"{path.stem}.json", json.dumps(took, indent=1) + "\n")


def sockets() -> dict[str, str]:
    """Let a kernel talk through files: the ports that two kernels pick may collide."""
    folder = tempfile.gettempdir() if len(tempfile.gettempdir()) <= LONGEST else "/tmp"
    return {"transport": "ipc", "ip": f"{folder}/kernel-{uuid.uuid4().hex[:12]}"}


@contextlib.contextmanager
def environment() -> Iterator[None]:
    """Start kernels under `ENVIRONMENT`, with no settings of the user's; a kernel inherits its parent's."""
    from unittest import mock

    with tempfile.TemporaryDirectory(prefix="cflkit-") as folder:
        own = {name: f"{folder}/{name}" for name in OWN}
        Path(own["MATPLOTLIBRC"]).touch()  # an empty one: matplotlib's own defaults
        kept = {name: value for name, value in os.environ.items() if name not in PERSONAL}
        with mock.patch.dict(os.environ, kept | ENVIRONMENT | own, clear=True):
            yield
