"""Grading: every way in which a submission can misbehave, what is said to it, and what nbgrader makes of it."""

import csv
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell

pytest.importorskip("nbgrader", reason="the course needs requirements-course.txt")

from test_course import leaks, mistakes, points

from course import build, grade, judge, sandbox
from course.checking import tasks_of
from course.notebooks import notebook
from course.source import load, names

pytestmark = [pytest.mark.course, pytest.mark.timeout(800)]
ROOT = Path(__file__).resolve().parent.parent
RELEASE = notebook(load("a6"), "release")


def handed(part="solution", assignment="a6", student="tom", only=("student", "follow", "test-follow")):
    """A notebook as `student` hands it in; with `only` these cells of a6, which need no data."""
    nb = notebook(load(assignment), part)
    for cell in nb.cells:
        cell.source = cell.source.replace("your-user-name", student)
    if only:
        nb.cells = [cell for cell in nb.cells if judge.grade_id(cell) in only or "student =" in cell.source
                    or cell.source.startswith("import torch\n")]  # fmt: skip
    return nb


def graded(nb, tmp_path, student="tom", assignment="a6"):
    """Grade a notebook, given as such or as text."""
    path = tmp_path / f"{assignment}.ipynb"
    path.write_text(nb if isinstance(nb, str) else nbformat.writes(nb))
    return judge.judge(path, student, assignment, notebook(load(assignment), "release"))


def with_cell(code, at=2, **options):
    """The small submission with one more cell."""
    nb = handed(**options)
    nb.cells.insert(at, new_code_cell(code))
    return nb


@pytest.fixture
def short(monkeypatch):
    """Limits of a few seconds."""
    monkeypatch.setattr(judge, "CELL_SECONDS", 6)
    monkeypatch.setattr(judge, "CALL_SECONDS", 4)


def follow(result):
    return result.points["follow"]


def test_the_small_submission_is_right(tmp_path):
    result = graded(handed(), tmp_path)
    assert follow(result) == 3
    assert all(note.endswith("is missing") for note in result.notes)


@pytest.mark.parametrize(
    ("code", "note"),
    [
        ("while True: pass", "TooLong: it ran longer than is allowed"),
        ("import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass", "had to be stopped"),
        ("import os\nos._exit(3)", "was left out: its process ended"),
        ("import ctypes\nctypes.string_at(0)", "was left out: its process ended"),
        ("big = torch.ones(1 << 40)", "MemoryError: it needs more memory than is allowed"),
        ("hog = []\nwhile True: hog.append(torch.empty(1 << 24))", "MemoryError"),
        ("def broken(:", "SyntaxError in line 1"),
        ("x = undefined + 1", "NameError in line 1: name 'undefined' is not defined"),
        ("import sys\nsys.exit(1)", "SystemExit"),
        (f"open({str(ROOT / 'course' / 'checks' / 'a6.py')!r}).read()", "PermissionError"),
        (f"open({str(ROOT / 'canary.txt')!r}, 'w').write('x')", "PermissionError"),
        ("import os\nos.listdir('/root')", "PermissionError"),
        ("import os\nos.listdir('/proc')", "PermissionError"),
        ("import socket\nsocket.socket()", "a submission may not open a socket"),
        ("import urllib.request\nurllib.request.urlopen('http://127.0.0.1')", "URLError"),
        ("import subprocess\nsubprocess.run(['ls'])", "a submission may not start a program"),
        ("!ls", "a submission may not start a program"),
        ("from cflkit import IFCA", "from cflkit this assignment uses only images, rng"),
        ("import sklearn.metrics", "sklearn may not be used in this assignment"),
    ],
)
def test_misbehaviour_is_named_and_costs_nothing_else(code, note, tmp_path, short):
    result = graded(with_cell(code), tmp_path)
    assert any(note in line for line in result.notes), result.notes
    assert follow(result) == 3, result.notes
    assert not (ROOT / "canary.txt").exists()


@pytest.mark.skipif(not sandbox.landlock(), reason="this kernel has no Landlock")
def test_the_kernel_refuses_what_the_audit_hook_cannot_see(tmp_path, short):
    code = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
seen = [libc.open({str(ROOT / "course" / "judge.py").encode()!r}, 0), libc.open(b"/etc/passwd", 0)]
seen.append(libc.open({str(ROOT / "canary.txt").encode()!r}, 65, 420))
inside = libc.open(b"mine.txt", 65, 420)
assert seen == [-1, -1, -1] and inside >= 0, (seen, inside)
"""
    assert not [line for line in graded(with_cell(code), tmp_path).notes if "raises" in line]
    assert not (ROOT / "canary.txt").exists()


@pytest.mark.skipif(not sandbox.namespaces(), reason="users may not make namespaces here")
def test_there_is_no_network_and_no_other_process(tmp_path, short):
    code = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
assert os.getpid() < 10
assert libc.kill({os.getpid()}, 0) == -1
sock = libc.socket(2, 2, 0)
address = bytes([2, 0, 0, 53, 8, 8, 8, 8]) + bytes(8)
assert libc.connect(sock, address, 16) == -1 and ctypes.get_errno() == 101  # the network is unreachable
"""
    assert not [line for line in graded(with_cell(code), tmp_path).notes if "raises" in line]


def changed(text, **options):
    """The small submission with another body of `follow`."""
    nb = handed(**options)
    for cell in nb.cells:
        if judge.grade_id(cell) == "follow":
            cell.source = f"def follow(student_weights, teacher_weights, x, lr):\n    {text}"
    return nb


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("while True: pass", "it ran longer than is allowed"),
        ("import os; os._exit(0)", "its process ended"),
        ("raise ValueError(str(x))", "follow raises ValueError in line 2"),
        ("return [0] * (1 << 33)", "it needs more memory than is allowed"),
        ("return 'ten points'", "it returned str, not numbers"),
        ("return student_weights * float('nan')", "not all numbers are finite"),
        ("return student_weights[0]", "shape (5,), not (3, 5)"),
        ("return object()", "follow raises TypeError"),
        ("return student_weights.tolist()[0][0]", "its result does not fit"),
    ],
)
def test_functions_that_misbehave_lose_their_own_points_only(body, why, tmp_path, short):
    result = graded(changed(body), tmp_path)
    assert follow(result) == 0
    assert any(why in line for line in result.report("follow")), result.report("follow")
    assert not any("tensor(" in line for line in result.report("follow")), "a test's numbers are shown"


def test_traps_of_the_tool(tmp_path):
    """What would fool nbgrader: marks come from outside the notebook, whatever its cells look like."""
    nb = handed()
    for cell in nb.cells:
        if judge.grade_id(cell) == "test-follow":
            cell.source = "100"  # an edited test, whose last expression is a number
    nb.cells[1].source += "\nimport sys\nget_ipython().showtraceback = sys.excepthook = lambda *a, **k: None"
    nb.cells.append(new_code_cell("import sys, warnings\nprint('noise', file=sys.stderr)\nwarnings.warn('noise')"))
    again = deepcopy(nb.cells[2])  # a copied cell, with its name
    nb.cells.append(again)
    nb.cells[2], nb.cells[3] = nb.cells[3], nb.cells[2]  # the test before the function
    result = graded(nb, tmp_path)
    assert follow(result) == 3
    assert "a second cell 'follow' was run as an ordinary cell" in result.notes
    found = [cell for cell in result.notebook.cells if judge.is_test(cell)]
    assert len(found) == len(tasks_of("a6"))
    for cell in found:  # every test ends in a number, prints nothing to stderr, and has its released text
        assert cell.source != "100"
        assert [output.output_type for output in cell.outputs] == ["stream", "execute_result"]
        assert cell.outputs[0].name == "stdout"
        assert cell.outputs[1].data["text/plain"] in ("0", "3")


def test_a_test_that_is_missing_scores_nothing(tmp_path):
    result = graded(handed(only=("student",)), tmp_path)
    assert result.total == 0
    assert "the cell 'test-follow' is missing" in result.notes


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 3, "nbformat": 4, "nbformat_minor": 5}'])
def test_what_is_no_notebook(text, tmp_path):
    result = graded(text, tmp_path)
    assert result.total == 0
    assert "is no notebook that can be read" in result.notes[-1]


def test_a_notebook_run_out_of_order(tmp_path):
    nb = with_cell("w = 1", at=4)
    nb.cells.insert(2, new_code_cell("w + 1"))
    for count, cell in zip((1, 2, 9, 3, 4, 5), (c for c in nb.cells if c.cell_type == "code"), strict=False):
        cell.execution_count = count
    result = graded(nb, tmp_path)
    assert any("NameError" in note and "not run from top to bottom" in note for note in result.notes)
    assert follow(result) == 3


def test_what_a_test_hands_over_cannot_be_printed(tmp_path):
    nb = changed("print('seen', x); globals().setdefault('kept', []).append(x); raise ValueError(x)")
    nb.cells.append(new_code_cell("print('kept', globals().get('kept'))"))
    result = graded(nb, tmp_path)
    shown = "".join(output.get("text", "") for cell in result.notebook.cells for output in cell.get("outputs", []))
    assert "kept None" in shown
    assert "seen" not in shown and "tensor(" not in shown


def test_somebody_elses_numbers(tmp_path):
    result = graded(handed(student="ada", only=None), tmp_path, student="tom")
    assert result.points == tasks_of("a6") | {"measure": 0}
    assert "the id cell says 'ada', the folder 'tom'" in result.report("measure")[0]


def test_cflkit_is_no_source_of_functions(tmp_path):
    nb = handed()
    for cell in nb.cells:
        if judge.grade_id(cell) == "follow":
            cell.source = "from torch.nn.functional import linear as follow"
    assert "not a function written in this notebook" not in graded(nb, tmp_path).report("follow")[0]  # no text
    assert "follow raises TypeError" in graded(nb, tmp_path).report("follow")[0]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A built course and a graded class: a solution, an untouched release, and a mixture of mistakes."""
    home = tmp_path_factory.mktemp("course")
    before = Path.cwd()
    os.chdir(home)
    try:
        build.main()
        expected = {}
        for name in names():
            for student in ("good", "empty", "mixed"):
                nb = handed("release" if student == "empty" else "solution", name, student, only=None)
                if student == "mixed":
                    planted = {each["task"]: each for each in mistakes(name)}
                    for cell in nb.cells:
                        if (each := planted.get(judge.grade_id(cell))) and each["task"] != "measure":
                            cell.source = cell.source.replace(each["from"], each["to"])
                    run = [cell for cell in nb.cells if cell.cell_type == "code" and not judge.is_test(cell)]
                    code = [(cell.source[:9], cell.source) for cell in run]
                    expected[name] = sum(points(name, code, "mixed")[0].values())
                path = home / "handed" / student / f"{name}.ipynb"
                path.parent.mkdir(parents=True, exist_ok=True)
                nbformat.write(nb, path)
        (home / "handed" / "broken").mkdir()
        (home / "handed" / "broken" / "a1.ipynb").write_text("{")
        grade.main(home / "handed", 2)
        yield home / "build" / "course", expected
    finally:
        os.chdir(before)


def marks(home):
    with (home / "marks.csv").open(newline="") as file:
        return {(row["student"], row["assignment"]): row for row in csv.DictReader(file)}


def test_marks_of_a_class(course):
    home, expected = course
    rows = marks(home)
    assert {name: int(rows["good", name]["automatic"]) for name in names()} == dict.fromkeys(names(), 20)
    assert {name: int(rows["empty", name]["automatic"]) for name in names()} == dict.fromkeys(names(), 0)
    assert {name: int(rows["mixed", name]["automatic"]) for name in names()} == expected
    assert rows["broken", "a1"]["automatic"] == "0" and "no notebook" in rows["broken", "a1"]["notes"]
    assert all(0 < value < 20 for value in expected.values())


def test_nbgrader_books_the_same_points(course):
    from nbgrader.api import Gradebook

    home, _ = course
    with Gradebook(f"sqlite:///{home}/gradebook.db") as book:
        for (student, name), row in marks(home).items():
            assert book.find_submission(name, student).score == int(row["automatic"]), (student, name)


def test_nbgraders_release_is_ours(course):
    home, _ = course
    for name in names():
        theirs = nbformat.read(home / "release" / name / f"{name}.ipynb", 4)
        ours = notebook(load(name), "release")
        assert [(c.cell_type, c.source) for c in theirs.cells] == [(c.cell_type, c.source) for c in ours.cells]


def test_nothing_leaks(course):
    home, _ = course
    paths = [*(home / "release").rglob("*.ipynb"), *(home / "feedback" / "empty").rglob("*.html"),
             *(home / "feedback" / "broken").rglob("*.html")]  # fmt: skip
    assert len(paths) == 13
    assert leaks(paths) == []


def test_feedback_says_what_was_lost_and_asks_the_network_for_nothing(course):
    home, _ = course
    pages = list((home / "feedback").rglob("*.html"))
    assert len(pages) == 19
    for page in pages:
        assert not grade.OUTSIDE.search(page.read_text()), page
    assert "A client weighs as many pictures as it has." in (home / "feedback/empty/a1/a1.html").read_text()
    assert "no notebook that can be read" in (home / "feedback/broken/a1/a1.html").read_text()


def test_a_written_mark_survives_grading_again(course, monkeypatch):
    home, _ = course
    monkeypatch.chdir(home.parent.parent)
    text = (home / "marks.csv").read_text()
    (home / "marks.csv").write_text(text.replace("broken,a1,0,20,,5", "broken,a1,0,20,4,5"))
    assert (home / "marks.csv").read_text() != text
    again = home.parent.parent / "again" / "broken"
    again.mkdir(parents=True)
    (again / "a1.ipynb").write_text("{")
    grade.main(again.parent, 1)
    assert marks(home)["broken", "a1"]["written"] == "4"
    assert len(marks(home)) == 19


def test_the_way_without_nbgrader(tmp_path):
    for student, part, failed in (("tom", "solution", 0), ("eve", "release", 14)):
        path = tmp_path / student / "a6.ipynb"
        path.parent.mkdir()
        nbformat.write(handed(part, student=student, only=None), path)
        command = [sys.executable, "-m", "pytest", "course/test_submission.py", "--submission", str(path), "-p",
                   "no:xdist", "-p", "no:cacheprovider"]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == (1 if failed else 0), done.stdout
        assert (f"{failed} failed" if failed else "15 passed") in done.stdout, done.stdout


