"""Whatever is typed wrongly: one line, exit status 2, and no work begun."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from cflkit.workbook import console, notebooks, reproduce

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
    def notebook(name, *sources):
        cells = [new_code_cell(source, metadata={"tags": ["parameters"]}) for source in sources]
        nbformat.write(new_notebook(cells=cells), tmp_path / name)

    notebook("good.ipynb", CELL)
    notebook("none.ipynb")
    notebook("two.ipynb", CELL, CELL)
    notebook("untyped.ipynb", "tau = 0.5")
    notebook("list.ipynb", "x: list = []  # numbers")
    notebook("outside.ipynb", "x: int = 5  # number [0, 4]")
    notebook("together.ipynb", "x: int = 5  # number\n# require: x < 5")
    for name, text in (("text.ipynb", "no JSON"), ("list_of.ipynb", "[1]"), ("cells.ipynb", '{"cells": [1]}'),
                       ("old.ipynb", '{"worksheets": []}'), ("file", ""), ("README.md", "read me")):  # fmt: skip
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    work = ("papermill.execute_notebook", "cflkit.workbook.notebooks.refresh", "cflkit.workbook.console.build",
            "cflkit.workbook.reproduce.run", "cflkit.workbook.reproduce.in_background")  # fmt: skip
    for name in work:
        monkeypatch.setattr(name, None)  # whatever begins to work fails
    return tmp_path


TABLE = "lcfed-table1-n3"
BAD = {
    "": "the following arguments are required: COMMAND",
    "nonsense": "invalid choice: 'nonsense'",
    "fetch": "the following arguments are required: name",
    "fetch mnits": "name = 'mnits': must be one of",
    "fetch digits/../x": "name = 'digits/../x': must be one of",
    "datasets --rot x": "unrecognized arguments",
    "methods stocfl": "unrecognized arguments: stocfl",
    "run": "the following arguments are required: protocol",
    "run nope": "protocol = 'nope': must be one of",
    "run lcfed_mnist_n33": "(the nearest is lcfed_mnist_n3)",
    "run lcfed_mnist_n3 lcfd": "label = 'lcfd': must be one of",
    "run lcfed_mnist_n3 lcfed --seed one": "argument --seed: invalid int value: 'one'",
    "run lcfed_mnist_n3 lcfed --seed": "argument --seed: expected at least one argument",
    "run lcfed_mnist_n3 lcfed --rounds 2.5": "argument --rounds: invalid int value: '2.5'",
    "run lcfed_mnist_n3 lcfed --workers many": "argument --workers: invalid int value: 'many'",
    "run lcfed_mnist_n3 lcfed --out file": "out = 'file': must be a folder that can be written to (File exists)",
    "run lcfed_mnist_n3 lcfed --out file/in": "must be a folder that can be written to (Not a directory)",
    "run lcfed_mnist_n3 lcfed --out /proc/x": "out = '/proc/x': must be a folder that can be written to",
    "run lcfed_mnist_n3 lcfed --checkpoints file --out o": "checkpoints = 'file': must be a folder",
    "ledger nope": "table = 'nope': must be one of",
    "ledger lcfed-table1-n33": "(the nearest is lcfed-table1-n3)",
    "ledger --out typo": "out = 'typo': must be a folder that exists",
    "ledger --out file": "out = 'file': must be a folder that exists",
    "ledger one two": "unrecognized arguments: two",
    "reproduce": "the following arguments are required: table",
    "reproduce nope": "table = 'nope': must be one of",
    "reproduce nope --background": "table = 'nope': must be one of",
    f"reproduce {TABLE} --seeds 5-2": "5-2: must go upwards, such as 2-5",
    f"reproduce {TABLE} --seeds 4-": "4-: must look like 0-4 or 0,2",
    f"reproduce {TABLE} --seeds a": "a: must look like 0-4 or 0,2",
    f"reproduce {TABLE} --seeds 0,,1": "0,,1: must look like 0-4 or 0,2",
    f"reproduce {TABLE} --seeds=-1": "-1: must look like 0-4 or 0,2",
    f"reproduce {TABLE} --budget 20": "20: must look like 20m or 1.5h",
    f"reproduce {TABLE} --budget 0m": "0m: must look like 20m or 1.5h, and be more than nothing",
    f"reproduce {TABLE} --budget=-5m": "-5m: must look like 20m or 1.5h",
    f"reproduce {TABLE} --budget infh": "infh: must look like 20m or 1.5h",
    f"reproduce {TABLE} --out file": "out = 'file': must be a folder that can be written to",
    f"reproduce {TABLE} --out file --background": "out = 'file': must be a folder that can be written to",
    f"reproduce {TABLE} --checkpoints file --out o": "checkpoints = 'file': must be a folder",
    "chapter": "the following arguments are required: chapter",
    "chapter stocf": "chapter = 'stocf': must be one of",
    "chapter nope --list": "chapter = 'nope': must be one of",
    "chapter missing.ipynb": "must be a chapter's name, or the path of a notebook",
    "chapter text.ipynb": "notebook = 'text.ipynb': must be a Jupyter notebook",
    "chapter list_of.ipynb": "notebook = 'list_of.ipynb': must be a Jupyter notebook",
    "chapter cells.ipynb --list": "notebook = 'cells.ipynb': must be a Jupyter notebook",
    "chapter old.ipynb": "notebook = 'old.ipynb': must be a Jupyter notebook",
    "chapter none.ipynb": "none.ipynb: cells tagged parameters = 0: must be exactly 1",
    "chapter two.ipynb": "two.ipynb: cells tagged parameters = 2: must be exactly 1",
    "chapter untyped.ipynb": "parameter line = 'tau = 0.5': must be",
    "chapter list.ipynb": "type of x = 'list': must be one of int, float, bool, str",
    "chapter outside.ipynb": "x = 5: must be an integer, in [0, 4]",
    "chapter together.ipynb": "x = 5: must fulfil x < 5",
    "chapter good.ipynb -p tau": "argument -p: expected 2 arguments",
    "chapter good.ipynb -p tua 1": "parameter = 'tua': must be one of tau, rounds, update, bold (the nearest is",
    "chapter good.ipynb -p Tau 1": "parameter = 'Tau': must be one of",
    "chapter good.ipynb -p tau 2": "tau = '2': must be a finite number, in [-1, 1]",
    "chapter good.ipynb -p tau nan": "tau = 'nan': must be a finite number, in [-1, 1]",
    "chapter good.ipynb -p tau inf": "tau = 'inf': must be a finite number, in [-1, 1]",
    "chapter good.ipynb -p tau 0,5": "tau = '0,5': must be a finite number, in [-1, 1]",
    "chapter good.ipynb -p rounds 2.0": "rounds = '2.0': must be an integer, in [1, 9]",
    "chapter good.ipynb -p rounds 1_0": "rounds = '1_0': must be an integer, in [1, 9]",
    "chapter good.ipynb -p rounds 0": "rounds = '0': must be an integer, in [1, 9]",
    "chapter good.ipynb -p rounds true": "rounds = 'true': must be an integer, in [1, 9]",
    "chapter good.ipynb -p update Chained": "update = 'Chained': must be one of parallel, chained",
    "chapter good.ipynb -p bold 1": "bold = '1': must be True or False",
    "chapter good.ipynb -p tau 0 -p tau 1": "parameter = 'tau': must be given once",
    "chapter good.ipynb -p rounds 8": "tau = 0.5, rounds = 8: must fulfil rounds * tau < 4",
    "chapter good.ipynb -o README.md": "out = 'README.md': must be a file that does not exist yet",
    "chapter good.ipynb -o good.ipynb": "out = 'good.ipynb': must be a file that does not exist yet",
    "chapter good.ipynb -o new.md": "out = 'new.md': must be a file that does not exist yet, and ends in .ipynb",
    "chapter good.ipynb -o file/new.ipynb": "out = 'file': must be a folder that can be written to (File exists)",
    "chapter good.ipynb -o /proc/new.ipynb": "out = '/proc': must be a folder that can be written to",
    "check missing.ipynb": "missing.ipynb: No such file or directory",
    "check text.ipynb": "notebook = 'text.ipynb': must be a Jupyter notebook",
    "refresh": "the following arguments are required: notebook",
    "pages now": "unrecognized arguments: now",
}  # fmt: skip


@pytest.mark.parametrize("typed", BAD)
def test_one_line_and_status_2(typed, folder, capsys):
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    try:
        status = console.main(typed.split())
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr()
    assert status == 2 and BAD[typed] in said.err and said.err.count("\n") == 1 and len(said.err) < 700
    assert said.err.startswith("cflkit") and not said.out
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_there_are_fifty():
    assert len(BAD) >= 50


# ---------------------------------------------------------------------- what goes wrong later
def test_an_interrupted_chapter_is_one_line_and_promises_nothing(folder, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("papermill.execute_notebook", interrupt)
    assert console.main(["chapter", "good.ipynb"]) == 130
    assert capsys.readouterr().err == "cflkit: interrupted\n"


def test_a_full_disk_is_called_so_with_the_files_name(folder, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("papermill.execute_notebook", full)
    assert console.main(["chapter", "good.ipynb"]) == 2
    assert capsys.readouterr().err == f"cflkit: {Path('runs', 'good.ipynb')}: No space left on device\n"


def test_what_was_there_stays_when_a_file_cannot_be_written_whole(folder, monkeypatch):
    def full(self, *_):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*README.md.part'"):
        notebooks._write(folder / "README.md", "new")
    assert (folder / "README.md").read_text() == "read me" and not list(folder.glob(".*.part"))


def test_a_missing_package_is_one_line(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "papermill.translators", None)
    assert console.main(["chapter", "good.ipynb", "--list"]) == 2
    assert "papermill" in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_without_the_book_every_command_works_or_says_what_it_misses(tmp_path):
    shutil.copytree(ROOT / "cflkit", tmp_path / "site" / "cflkit", ignore=shutil.ignore_patterns("__pycache__"))
    script = """
import sys
from cflkit.workbook import console
for line in sys.stdin.read().splitlines():
    print(line, "->", console.main(line.split()), flush=True)
    print("--", file=sys.stderr, flush=True)
"""
    works = ["methods", "datasets", "chapter good.ipynb --list"]
    lacks = ["protocols", "ledger", f"run {TABLE}", f"reproduce {TABLE}", "chapter stocfl", "check", "pages"]
    settings = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", script], input="\n".join(works + lacks), env=settings,
                          capture_output=True, text=True, cwd=tmp_path, check=True)  # fmt: skip
    assert [f"{line} -> 0" in done.stdout for line in works] == [True] * len(works)
    assert [f"{line} -> 2" in done.stdout for line in lacks] == [True] * len(lacks)
    errors = done.stderr.split("--\n")[len(works) :]
    missed = f"cflkit: the book is not in {tmp_path / 'site' / 'book'}: run this from a clone of the project"
    assert all(error.startswith(missed) and error.count("\n") == 1 for error in errors[:-1])


def test_a_budget_rings_once_and_leaves_the_alarm_as_it_was():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(reproduce.TimeIsUp, match=r"time is up after 0\.0002 min"), reproduce.budget(0.0002):
        signal.pause()
    with reproduce.budget(1):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
    with pytest.raises(RuntimeError), reproduce.budget(1):
        raise RuntimeError
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    refused = []

    def elsewhere():
        try:
            with reproduce.budget(1):
                pass
        except ValueError as error:
            refused.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert refused == ["budget = 1: must be None outside the main thread, which alone receives signals"]


@pytest.mark.slow
def test_an_interrupt_while_a_cell_runs_leaves_no_stack(folder):
    notebook = nbformat.read(folder / "good.ipynb", 4)
    source = "from pathlib import Path\nimport time\nPath('runs').touch()\ntime.sleep(600)"
    notebook.cells.append(new_code_cell(source))
    (folder / "long").mkdir()
    nbformat.write(notebook, folder / "long" / "long.ipynb")
    command = [sys.executable, "-m", "cflkit", "chapter", "long/long.ipynb"]
    settings = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=settings)
    while not (folder / "long" / "runs").exists():  # the cell has begun
        assert process.poll() is None
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=200)[1] == "cflkit: interrupted\n" and process.returncode == 130
