"""Notebooks: where they are, how a kernel is started, and executing them in place."""

import contextlib
import hashlib
import json
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from cflkit.checks import known, require
from cflkit.workbook import places
from cflkit.workbook.chapters import parameters

# What a kernel runs under, so that what it prints and draws does not depend on who runs it.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1",
               "MPLBACKEND": "module://matplotlib_inline.backend_inline"}  # fmt: skip
# Settings of a user that would reach it: start-up files, styles, and where Jupyter looks for more.
PERSONAL = ("PYTHONSTARTUP", "JUPYTER_PATH", "JUPYTER_CONFIG_PATH", "JUPYTER_PREFER_ENV_PATH", "IPYTHON_DIR")
LONGEST = 80  # letters of a folder for sockets, whose whole path may have about a hundred

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
# How every kernel starts; it says nothing of its own when it is interrupted.
START = {"kernel_name": "python3", "extra_arguments": ["--log-level=CRITICAL"]}
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
    """Find a chapter by its name (``stocfl``) or by its path.

    Raises
    ------
    ValueError
        No such notebook.
    """
    if name.endswith(".ipynb"):
        require(Path(name).is_file(), "chapter", name, "a chapter's name, or the path of a notebook")
        return Path(name)
    places.need_book()
    known([notebook.stem for notebook in chapters()], name, "chapter")
    return places.BOOK / f"{name}.ipynb"


def refresh(path: Path) -> None:
    """Execute the notebook at `path` in its own folder and store what it prints.

    Timings, widget state and the traces of earlier runs are dropped, identifiers are kept or derived from the
    text of the cell: doing it twice gives the same bytes. How long a notebook of the book took goes to `TIMES`.

    Parameters
    ----------
    path : Path
        A notebook; left untouched when one of its cells fails.

    Raises
    ------
    CellFailed
        A cell failed.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError
    from traitlets.config import Config

    notebook = nbformat.convert(nbformat.from_dict(parameters.load(path)), 4)
    notebook.nbformat_minor = 5
    _clear(notebook)
    client = NotebookClient(
        notebook,
        timeout=None,
        startup_timeout=300,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.resolve().parent)}},
        config=Config(KernelManager=sockets()),
        **START,
    )
    before = _of_children()
    try:
        with environment(), client.setup_kernel():  # as papermill does: an interrupt passes through
            for number, cell in enumerate(notebook.cells):
                client.execute_cell(cell, number, execution_count=None)
    except CellExecutionError as error:
        raise CellFailed(f"{path.name}: {error.ename}: {error.evalue}") from None
    for key in STRAY:
        notebook.metadata.pop(key, None)
    notebook.metadata.update(kernelspec=KERNEL, language_info=LANGUAGE)
    nbformat.validate(notebook)
    _write(path, nbformat.writes(notebook) + "\n")
    if path.resolve().parent == places.BOOK:
        _keep_time(path.stem, _of_children() - before)


def _of_children() -> float:
    """Give the processor's seconds of all processes that this one started and saw end: kernels are such."""
    spent = os.times()
    return spent.children_user + spent.children_system


def _keep_time(name: str, seconds: float) -> None:
    """Store a notebook's seconds of a processor's core, which a busy machine hardly changes, when and on what."""
    from cflkit.workbook.runs import records  # imports PyTorch, which takes seconds

    made = records.provenance()
    took = {"seconds": round(seconds, 1), "date": made["date"], "processor": made["machine"]["processor"]}
    places.need_folder("times", TIMES)
    _write(TIMES / f"{name}.json", json.dumps(took, indent=1) + "\n")


def sockets() -> dict[str, str]:
    """Let a kernel talk through files: the ports that two kernels pick may collide."""
    folder = tempfile.gettempdir()
    folder = folder if len(folder) <= LONGEST else "/tmp"
    return {"transport": "ipc", "ip": f"{folder}/kernel-{uuid.uuid4().hex[:12]}"}


@contextlib.contextmanager
def environment() -> Iterator[None]:
    """Start kernels under `ENVIRONMENT`, with no settings of the user's; a kernel inherits its parent's."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="cflkit-") as folder:
        own = {name: f"{folder}/{name}" for name in ("IPYTHONDIR", "MATPLOTLIBRC", "JUPYTER_CONFIG_DIR",
                                                     "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}  # fmt: skip
        Path(own["MATPLOTLIBRC"]).touch()  # an empty one: matplotlib's own defaults
        for name in PERSONAL:
            os.environ.pop(name, None)
        os.environ.update(ENVIRONMENT | own)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def _clear(notebook) -> None:
    """Drop outputs and traces of earlier runs, and give every cell an identifier of its own."""
    seen: set[str] = set()
    for number, cell in enumerate(notebook.cells):
        cell.source = parameters.code(cell)
        if cell.get("id", "") in seen | {""}:
            cell.id = hashlib.sha256(f"{number}/{cell.source}".encode()).hexdigest()[:8]
        seen.add(cell.id)
        for key in STRAY:
            cell.metadata.pop(key, None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def _write(path: Path, text: str) -> None:
    """Write all of `text`, or leave the file as it was."""
    with places.atomic_write(path) as part:
        part.write_text(text, "utf-8")


def literally(path: Path) -> str:
    """Write a path for papermill, which fills parameters into braces."""
    return str(path).replace("{", "{{").replace("}", "}}")
