"""Whatever is typed wrongly: one line, exit status 2, and no work begun."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from cflkit.workbook import console

ROOT = Path(__file__).resolve().parents[1]
CELL = """\
tau: float = 0.5  # merge above this cosine [-1, 1]
rounds: int = 2  # rounds [1, 9]
update: str = "parallel"  # how {parallel, chained}
bold: bool = False  # loudly
# require: rounds * tau < 4
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a chapter, files that are in the way, and nothing that would do any work."""
    def notebook(name, *sources, more=()):
        cells = [new_code_cell(source, metadata={"tags": ["parameters"]}) for source in sources]
        nbformat.write(new_notebook(cells=[*cells, *more]), tmp_path / name)

    notebook("good.ipynb", CELL, more=[new_code_cell("pass", metadata={"tags": ["comparison"]})])
    notebook("lonely.ipynb", CELL)
    notebook("none.ipynb")
    notebook("two.ipynb", CELL, CELL)
    notebook("together.ipynb", "x: int = 5  # number\n# require: x < 5")
    for name, x in {"text.ipynb": "no JSON", "cells.ipynb": '{"cells": [1]}', "file": "", "README.md": "x"}.items():
        (tmp_path / name).write_text(x)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CFLKIT_DATA", str(tmp_path / "data"))  # which holds none
    work = ("papermill.execute_notebook", "cflkit.workbook.chapters.notebooks.refresh",
            "cflkit.workbook.runs.plans._federation", "cflkit.workbook.runs.run.alone")  # fmt: skip
    for name in work:
        monkeypatch.setattr(name, None)  # whatever begins to work fails
    return tmp_path


TABLE = "lcfed-table1-n3"
LCFED = "simulate --protocol lcfed_mnist_n3 lcfed"
BAD = {
    "": "the following arguments are required: COMMAND",
    "list everything": "argument what: invalid choice: 'everything'",
    "ledger": "ledger has another name now: cflkit results --ledger [TABLE]",
    "results x --ledger lcfed-table1-n3": "name = 'x': must be left out with --ledger",
    "nonsense": "invalid choice: 'nonsense'", "data mnits": "name = 'mnits': must be one of",
    "data digits/../x": "name = 'digits/../x': must be one of",
    "simulate": "method = '': must be one name from `cflkit list methods`",
    "simulate --protocol nope": "protocol = 'nope': must be one of",
    "simulate --protocol lcfed_mnist_n3 lcfd": "label = 'lcfd': must be one of",
    f"{LCFED} --seed one": "argument --seed/--seeds: one: must look like 0-4 or 0,2",
    f"{LCFED} -p rounds=2.5": "rounds = '2.5': must be an integer, 1 or more",
    f"{LCFED} -p epochs=0": "epochs = '0': must be an integer, 1 or more",
    f"{LCFED} --workers many": "argument --workers: many: must be 1 or more",
    f"{LCFED} --out file": "out = 'file': must be a folder that can be written to (File exists)",
    "results --ledger nope": "table = 'nope': must be one of",
    "results --ledger --out typo": "out = 'typo': must be a folder that exists",
    "reproduce": "the following arguments are required: table", "reproduce nope": "table = 'nope': must be one of",
    f"reproduce {TABLE} --seeds 5-2": "5-2: must go upwards, such as 2-5",
    f"reproduce {TABLE} --seeds 0-2,1": "0-2,1: must name each seed once",
    f"reproduce {TABLE} --budget 20": "20: must look like 20m or 1.5h",
    f"reproduce {TABLE} --budget 0m": "0m: must look like 20m or 1.5h, and be more than nothing",
    f"reproduce {TABLE} --jobs 0": "argument --jobs: 0: must be 1 or more",
    f"reproduce {TABLE} --device cpu:1": "device = 'cpu:1': must be cpu, or cuda where PyTorch sees a GPU",
    f"reproduce {TABLE} --seeds 0-99": "run `cflkit data mnist`",
    "run": "the following arguments are required: chapter", "run stocf": "chapter = 'stocf': must be one of",
    "run good.ipynb -p seed=0 --seeds 0-1": "parameter = 'seed': must be given once",
    "simulate fedavg --seeds 0-1 --device gpu": "device = 'gpu': must be cpu, or cuda where PyTorch sees a GPU",
    "simulate own.py:Mine": "own.py: no such file",
    "simulate stocfl --on rotatd --help": "builder = 'rotatd': must be one of",
    "run missing.ipynb": "must be a chapter's name, or the path of a notebook",
    "run text.ipynb": "notebook = 'text.ipynb': must be a Jupyter notebook",
    "run cells.ipynb --help": "notebook = 'cells.ipynb': must be a Jupyter notebook",
    "run none.ipynb": "none.ipynb: cells tagged parameters = 0: must be exactly 1",
    "run two.ipynb": "two.ipynb: cells tagged parameters = 2: must be exactly 1",
    "run together.ipynb": "x = 5: must fulfil x < 5",
    "run good.ipynb tau=0": "cflkit run: unrecognized arguments: tau=0; a parameter is written -p NAME=VALUE",
    "run good.ipynb -p tau": "argument -p: tau: must look like NAME=VALUE",
    "run good.ipynb -p =1": "argument -p: =1: must look like NAME=VALUE",
    "run good.ipynb --seed 0": "parameter = 'seed': must be one of tau, rounds, update, bold",
    "simulate stocfll": "method = 'stocfll': must be one of",
    "simulate stocfl fedavg": "method = 'stocfl fedavg': must be one name",
    "simulate stocfl --images mnits": "name = 'mnits': must be one of",
    "simulate stocfl --images mnist": "run `cflkit data mnist`",
    "simulate stocfl --images missing.npz": "missing.npz: no such file",
    "simulate stocfl --on hybrid": "images = 'digits': must be two names or more, with commas between",
    "simulate stocfl --images digits,mnist": "images = 'digits,mnist': must be one name for rotated",
    "simulate stocfl --clients many": "clients = 'many': must be an integer, 1 or more",
    "simulate stocfl --clients 8 -p clients=9": "parameter = 'clients': must be given once",
    "simulate stocfl --checkpoint file": "checkpoint = 'file': must be a folder that can be written to",
    "simulate stocfl -p model=lenett": "model = 'lenett': must be one of",
    "simulate stocfl -p degrees=" + "[" * 99_999: "must be a sequence",
    "simulate stocfl --on=": "builder = '': must be one of",
    "simulate stocfl -p degrees=0,90": "degrees = '0': must be a sequence",
    f"{LCFED} --on rotated": "on = 'rotated': must be left out with --protocol",
    "simulate fedavg --on mixed": "samples_per_client = None: must be given",
    "simulate oracle -p cluster=[0]": "parameter = 'cluster': must be one of",
    "run good.ipynb -p tau=0,2": "tau = '2': must be a finite number, in [-1, 1]",
    "run own --seeds 0-1": "chapter = 'own': must be one that compares methods, in a cell tagged `comparison`",
    "simulate stocfl -p rounds=0,5": "rounds = '0': must be an integer, 1 or more",
    "simulate stocfl -p tau=0,,1": "tau = '': must be a finite number",
    "simulate stocfl -p tau=0,1,0": "tau = '0': must be given once",
    "simulate stocfl -p tau=0,1 --images mnist": "run `cflkit data mnist`",
    "results nope": "run = 'nope': must be one of",
    "results lcfed_mnist_n3/lcfed --out file": "out = 'file': must be a folder that exists",
    "results --delete": "name = '': must be given, to delete anything",
    "run good.ipynb -p tau=0 -p tau=1": "parameter = 'tau': must be given once",
    "run good.ipynb -p rounds=8": "tau = 0.5, rounds = 8: must fulfil rounds * tau < 4",
    "run good.ipynb --out file": "out = 'file': must be a folder that can be written to (File exists)",
    "check missing.ipynb": "missing.ipynb: No such file or directory",
    "run good.ipynb --out \udcfc": "('utf-8' codec can't encode character '\\udcfc' in position 0: ",
    "refresh": "the following arguments are required: notebook", "pages now": "unrecognized arguments: now",
}  # fmt: skip


@pytest.mark.parametrize("typed", BAD)
def test_one_line_and_status_2(typed, folder, capsys):
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    try:
        status = console.main(typed.split())
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr()
    assert status == 2 and BAD[typed] in said.err and said.err.count("\n") == 1 and len(said.err) < 900
    assert said.err.startswith("cflkit") and not said.out
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


# ---------------------------------------------------------------------- what goes wrong later
@pytest.mark.parametrize("error, status, line", [
    (KeyboardInterrupt(), 130, "interrupted"),
    (OSError(28, "No space left on device"), 2, "runs/good/default/good.ipynb: No space left on device"),
])  # fmt: skip
def test_a_chapter_that_stops_says_why_in_one_line_and_promises_nothing(error, status, line, capsys, monkeypatch):
    monkeypatch.setattr("papermill.execute_notebook", Mock(side_effect=error))
    assert console.main(["run", "good.ipynb"]) == status
    assert capsys.readouterr().err == f"cflkit: {line}\n"


def test_a_missing_package_is_one_line(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "papermill", None)
    assert console.main(["run", "good.ipynb"]) == 2
    assert "papermill" in (error := capsys.readouterr().err) and error.count("\n") == 1
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert console.main(["simulate", "fedavg", "--seeds", "0-1", "--dask", "tcp://127.0.0.1:1"]) == 2
    assert "dask is not installed" in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_without_the_book_every_command_works_or_says_what_it_misses(tmp_path):
    shutil.copytree(ROOT / "cflkit", tmp_path / "site" / "cflkit", ignore=shutil.ignore_patterns("__pycache__"))
    script = """
import sys
from cflkit.workbook import console
for line in sys.stdin.read().splitlines():
    print(line, "->", console.main(line.split()), flush=True)
    print("--", file=sys.stderr, flush=True)
"""
    works = ["list", "list methods", "data", "results"]
    lacks = ["list protocols", "results --ledger", LCFED, f"reproduce {TABLE}", "run stocfl", "check", "pages"]
    settings = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", script], input="\n".join(works + lacks), env=settings,
                          capture_output=True, text=True, cwd=tmp_path, check=True)  # fmt: skip
    assert [f"{line} -> 0" in done.stdout for line in works] == [True] * len(works)
    assert [f"{line} -> 2" in done.stdout for line in lacks] == [True] * len(lacks)
    errors = done.stderr.split("--\n")[len(works) :]
    missed = f"cflkit: the book is not in {tmp_path / 'site' / 'book'}: run this from a clone of the project"
    assert all(error.startswith(missed) and error.count("\n") == 1 for error in errors[:-1])


def test_an_interrupt_while_a_library_is_imported_cannot_be_swallowed(tmp_path):
    lines = ["from pathlib import Path", "import time", "try:", "    Path('imported').touch()",
             "    time.sleep(600)", "except BaseException:", "    pass"]  # fmt: skip
    (tmp_path / "torch.py").write_text("\n".join(lines))
    _interrupt(["list"], tmp_path / "imported", tmp_path, f"{tmp_path}:{ROOT}")


def _interrupt(command, begun, folder, path):
    """Interrupt a command as soon as a file is there that shows that it has begun."""
    settings = {"env": os.environ | {"PYTHONPATH": path}, "cwd": folder, "preexec_fn": _listen, "text": True}
    process = subprocess.Popen([sys.executable, "-m", "cflkit", *command], stderr=subprocess.PIPE, **settings)
    while not begun.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=200)[1] == "cflkit: interrupted\n" and process.returncode == 130


def _listen():
    """Heed interrupts, which a test in the background was told to ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.slow
def test_an_interrupt_while_a_cell_runs_leaves_no_stack(folder):
    notebook = nbformat.read(folder / "good.ipynb", 4)
    source = "from pathlib import Path\nimport time\nPath('runs').touch()\ntime.sleep(600)"
    notebook.cells.append(new_code_cell(source))
    (folder / "long").mkdir()
    nbformat.write(notebook, folder / "long" / "long.ipynb")
    _interrupt(["run", "long/long.ipynb"], folder / "long" / "runs", folder, str(ROOT))
