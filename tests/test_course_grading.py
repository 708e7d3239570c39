"""Grading: every way in which a submission can misbehave, what is said to it, and what nbgrader makes of it."""

import base64
import csv
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

pytest.importorskip("nbgrader", reason="the course needs requirements-course.txt")

from test_course import leaks, mistakes

from course import grade, judge
from course.checking import checks_of, tasks_of
from course.inside import points
from course.notebooks import notebook
from course.source import load, names

pytestmark = [pytest.mark.course, pytest.mark.timeout(1800)]
ONE_WORKER = pytest.mark.xdist_group("class")  # they share a graded class
ROOT = Path(__file__).resolve().parent.parent
RELEASE = notebook(load("a6"), "release")


def handed(part="solution", assignment="a6", student="tom", only=("student", "follow", "test-follow")):
    """A notebook as `student` hands it in; with `only` these cells of a6, which need no data."""
    nb = notebook(load(assignment), part)
    for cell in nb.cells:
        cell.source = cell.source.replace("your-user-name", student)

    def kept(cell):
        always = "student =" in cell.source or cell.source.startswith("import torch\n")
        return always or judge.grade_id(cell) in only

    if only:
        nb.cells = list(filter(kept, nb.cells))
    return nb


def graded(nb, tmp_path, student="tom", assignment="a6"):
    """Grade a notebook, given as such or as text."""
    path = tmp_path / f"{assignment}.ipynb"
    path.write_text(nb if isinstance(nb, str) else nbformat.writes(nb))
    return judge.judge(path, student, assignment, notebook(load(assignment), "release"))


def follow(result):
    return result.points["follow"]


def notes(result):
    """What was said, but for the cells that the small submission leaves out."""
    return [note for note in result.notes if not note.endswith("is missing")]


def with_cells(*codes):
    """The small submission with more cells, before its function."""
    nb = handed()
    nb.cells[2:2] = [new_code_cell(code) for code in codes]
    return nb


def changed(text, **options):
    """The small submission with another body of `follow`."""
    nb = handed(**options)
    for cell in nb.cells:
        if judge.grade_id(cell) == "follow":
            cell.source = f"def follow(student_weights, teacher_weights, x, lr):\n    {text}"
    return nb


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


def test_a_notebook_run_out_of_order(tmp_path):
    nb = with_cells("w + 1", "w = 1")
    for count, cell in zip((1, 2, 9, 3, 4, 5), (c for c in nb.cells if c.cell_type == "code"), strict=False):
        cell.execution_count = count
    result = graded(nb, tmp_path)
    assert any("NameError" in note and "not run from top to bottom" in note for note in result.notes)
    assert follow(result) == 3


def test_what_a_test_hands_over_cannot_be_printed(tmp_path):
    nb = changed("print('seen', x); globals().setdefault('kept', []).append(x); raise ValueError(x)")
    nb.cells.append(new_code_cell("print('kept', len(globals().get('kept')))"))
    result = graded(nb, tmp_path)
    shown = "".join(output.get("text", "") for cell in result.notebook.cells for output in cell.get("outputs", []))
    assert "kept 1" in shown  # what the visible test handed over
    assert "seen" not in shown and "tensor(" not in shown


def test_somebody_elses_numbers(tmp_path):
    result = graded(handed(student="ada", only=None), tmp_path, student="tom")
    assert result.points == tasks_of("a6") | {"measure": 0}
    assert "the id cell says 'ada', the folder 'tom'" in result.report("measure")[0]


def test_grading_is_the_same_again_and_in_another_order(tmp_path):
    """What was graded before leaves no trace: neither in what is drawn nor in what is said."""
    only = ("student", "follow", "test-follow", "hunt", "test-hunt")
    handed_in = {"ann": changed("return student_weights - lr * x.mean()", student="ann", only=only),
                 "ben": handed(student="ben", only=only)}  # fmt: skip

    def told(*order):
        found = {}
        for student in order:
            result = judge.judge(nbformat.writes(handed_in[student]).encode(), student, "a6", RELEASE, "secret")
            found[student] = result.points, result.lost, result.notes, result.notebook
        return found

    once, again = told("ann", "ben"), told("ben", "ann")
    assert once == again
    assert [once[student][0]["hunt"] for student in once] == [tasks_of("a6")["hunt"]] * 2
    assert once["ann"][0]["follow"] < once["ben"][0]["follow"] == tasks_of("a6")["follow"]


def test_the_grader_itself_has_a_limit_of_time(monkeypatch):
    monkeypatch.setattr(judge, "ALL_SECONDS", 2)
    if (child := os.fork()) == 0:
        judge.limit_here()
        while True:
            pass
    assert os.waitpid(child, 0)[1] == signal.SIGXCPU


def command(home, module, *arguments):
    """Run a program of the course as its user does, with `home` as the folder of the clone."""
    settings = {"cwd": home, "env": os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}}
    program = [sys.executable, "-m", f"course.{module}", *arguments]
    done = subprocess.run(program, capture_output=True, text=True, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A built course and a graded class: a solution, an untouched release, a mixture of mistakes, and mischief."""
    home = tmp_path_factory.mktemp("course")
    command(home, "build")
    expected = {}
    for name in names():
        for student in ("good", "mixed", "empty") if name in ("a1", "a4") else ("good", "mixed"):
            nb = handed("release" if student == "empty" else "solution", name, student, only=None)
            if student == "mixed":
                planted = {each["task"]: each for each in mistakes(name)[::-1]}  # the first of each task
                for cell in nb.cells:
                    if (each := planted.get(judge.grade_id(cell))) and each["task"] != "measure":
                        cell.source = cell.source.replace(each["from"], each["to"])
                run = [cell for cell in nb.cells if cell.cell_type == "code" and not judge.is_test(cell)]
                code = [(judge.grade_id(cell) or "code", cell.source) for cell in run]
                expected[name] = sum(points(name, code, "mixed")[0].values())
            path = home / "handed" / student / f"{name}.ipynb"
            path.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(nb, path)
    mischief(home)
    before = computed()
    (home / "out.txt").write_text(command(home, "grade", "handed", "--jobs", "2") + f"{computed() - before:.0f} s")
    assert computed() - before < 900  # of the 1200 seconds that two cores have in ten minutes
    return home / "build" / "course", expected


def computed():
    """Seconds that the programs which this process has started and seen end have computed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


EVIL = [  # cells of submissions that end, take or hold up what they can; their function gets its points
    "import os\nos._exit(1)", "import os\nos.abort()", "print('x' * 10**8)\nraise SystemExit",
    "import os, time\n[os.fork() for _ in range(6)]; time.sleep(99)", "hog = bytearray(3 << 30)",
    "import ctypes\nctypes.string_at(0)", "open('x', 'wb').write(bytes(1 << 28))", "x = '\ud800'",
]  # fmt: skip


def mischief(home):
    """Hand in what crashed, held up or fooled a grader: each costs its own points."""
    folder = home / "handed"
    for number, code in enumerate(EVIL):
        (folder / f"evil{number}").mkdir(parents=True)
        nb = handed(student=f"evil{number}")
        nb.cells.insert(2, new_code_cell(code))
        (folder / f"evil{number}" / "a6.ipynb").write_text(nbformat.writes(nb).replace("\ud800", "\\ud800"))
    for student in ("broken", "loud", "pipe", "link", "away", "zoe/sub", "shout", "html"):
        (folder / student).mkdir(parents=True)
    (folder / "broken" / "a1.ipynb").write_text("{")
    nbformat.write(with_cells("print('\\ud800')"), folder / "loud" / "a6.ipynb")
    os.mkfifo(folder / "pipe" / "a1.ipynb")
    (folder / "link" / "a6.ipynb").symlink_to(folder / "good" / "a6.ipynb")
    (folder / "away" / "a6.ipynb").symlink_to(home / "build/course/solution/a6/a6.ipynb")
    (folder / "linked").symlink_to(folder / "good", target_is_directory=True)
    nbformat.write(handed(student="zoe"), folder / "zoe" / "sub" / "a6.ipynb")
    nbformat.write(handed(student="shout"), folder / "shout" / "A6 (1).ipynb")
    (folder / "shout" / "notes.ipynb").write_text("{}")
    nb = handed(student="html")
    text = new_markdown_cell(
        "<script>alert(1)</script> <iframe src='http://x.org'></iframe>\n\n"  # a block, in which Markdown is text
        "<img src=//x.org/p onerror=f()> ![](http://x.org/q.png) [a](javascript:f()) ![d](attachment:d.png)"
    )
    png = base64.b64encode(judge.PNG).decode()
    text.attachments = {"d.png": {"image/png": png}}
    nb.cells.append(text)
    nbformat.write(nb, folder / "html" / "a6.ipynb")


def marks(home):
    with (home / "marks.csv").open(newline="") as file:
        return {(row["student"], row["assignment"]): row for row in csv.DictReader(file)}


@ONE_WORKER
def test_marks_of_a_class(course):
    home, expected = course
    rows = marks(home)
    assert {name: int(rows["good", name]["automatic"]) for name in names()} == dict.fromkeys(names(), 20)
    assert [rows["empty", name]["automatic"] for name in ("a1", "a4")] == ["0", "0"]
    assert {name: int(rows["mixed", name]["automatic"]) for name in expected} == expected
    assert rows["broken", "a1"]["automatic"] == "0" and "no notebook" in rows["broken", "a1"]["notes"]
    small = ("loud", "zoe", "shout", "html", *(f"evil{k}" for k in range(len(EVIL))))
    follows = {student: rows[student, "a6"]["automatic"] for student in small}
    assert sum(row["of"] != "" for row in rows.values()) >= 30
    assert follows == dict.fromkeys(follows, "3")
    for student, name, note in (
        ("loud", "a6", "the cell 'test-measure' is missing"),
        ("pipe", "a1", "not a plain file"), ("link", "a6", "a link, not a file"), ("away", "a6", "a link"),
        ("zoe", "a6", "handed in as 'zoe/sub/a6.ipynb'"), ("shout", "a6", "handed in as 'shout/A6 (1).ipynb'"),
        ("", "", "linked is left out"), ("shout", "", "notes.ipynb is left out: its name"),
    ):  # fmt: skip
        assert note in rows[student, name]["notes"], (student, rows[student, name])
    assert rows["link", "a6"]["automatic"] == "0" == rows["away", "a6"]["automatic"]
    assert all(0 < value < 20 for value in expected.values())


def booked(home, student, name="a6"):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{home}/gradebook.db") as book:
        return book.find_submission(name, student).score


@ONE_WORKER
def test_nbgrader_books_the_same_points(course):
    home, _ = course
    for (student, name), row in marks(home).items():
        if (home / "feedback" / student / name).is_dir() and name:
            assert booked(home, student, name) == int(row["automatic"]), (student, name)


@ONE_WORKER
def test_nbgraders_release_is_ours(course):
    home, _ = course
    for name in names():
        theirs = nbformat.read(home / "release" / name / f"{name}.ipynb", 4)
        ours = notebook(load(name), "release")
        assert [(c.cell_type, c.source) for c in theirs.cells] == [(c.cell_type, c.source) for c in ours.cells]


@ONE_WORKER
def test_nothing_leaks(course):
    home, _ = course
    pages = (page for student in ("empty", "broken") for page in (home / "feedback" / student).rglob("*.html"))
    paths = [*(home / "release").rglob("*.ipynb"), *pages]
    assert len(paths) == len(names()) + 7 + 3  # releases, chapters, feedback
    assert leaks(paths) == []


@ONE_WORKER
def test_feedback_says_what_was_lost_and_asks_the_network_for_nothing(course):
    home, _ = course
    pages = list((home / "feedback").rglob("*.html"))
    assert len(pages) == 2 * len(names()) + 7 + len(EVIL)  # of "good" and "mixed", and of the others
    for page in pages:
        text = page.read_text()
        assert not grade.OUTSIDE.search(text) and grade.POLICY in text and not grade.ELSEWHERE.search(text), page
    assert "<msub>" in (home / "feedback/good/a1/a1.html").read_text()  # a formula of the text
    text = (home / "feedback/html/a6/a6.html").read_text()
    assert "<script>alert" not in text and "<iframe" not in text and 'href="javascript' not in text
    assert "data:image/png" in text
    assert "A client weighs as many pictures as it has." in (home / "feedback/empty/a1/a1.html").read_text()
    assert "no notebook that can be read" in (home / "feedback/broken/a1/a1.html").read_text()


@ONE_WORKER
def test_a_written_mark_survives_grading_again_and_reaches_the_feedback(course):
    home, _ = course
    text, count, before = (home / "marks.csv").read_text(), len(marks(home)), marks(home)
    assert "loud,a6,3,20,,5" in text
    (home / "marks.csv").write_text(text.replace("loud,a6,3,20,,5", "loud,a6,3,20,4,5"))
    again = home.parent.parent / "again" / "loud"
    again.mkdir(parents=True)
    nbformat.write(with_cells("print('\\ud800')"), again / "a6.ipynb")
    for student in ("evil0", "html"):  # alone, and in another order
        shutil.copytree(home.parent.parent / "handed" / student, again.parent / student)
    command(home.parent.parent, "grade", "again")
    row = marks(home)["loud", "a6"]
    typed = {"written", "total", "late"}
    kept = [{key: {k: v for k, v in row.items() if k not in typed} for key, row in each.items()}
            for each in (before, marks(home))]  # fmt: skip
    assert kept[0] == kept[1]
    assert (row["written"], row["total"], len(marks(home))) == ("4", "7", count)
    assert "loud" in (home / "export/canvas.csv").read_text()
    page = (home / "feedback/loud/a6/a6.html").read_text()
    assert "7 of 25 points: automatic 3 of 20, written 4 of 5" in page
    assert "Out[1]" not in page and "Test cell" not in page
    for written, total in (("2", "5 of 25"), ("", "3 of 25")):
        text = re.sub(",a6,3,20,[24],5", f",a6,3,20,{written},5", (home / "marks.csv").read_text())
        (home / "marks.csv").write_text(text)
        command(home.parent.parent, "grade")
        assert f"{total} points: automatic 3" in (home / "feedback/loud/a6/a6.html").read_text()
        assert booked(home, "loud") == float(total[0])


def test_the_way_without_nbgrader(tmp_path):
    count = len(checks_of("a6"))
    for student, part, failed in (("tom", "solution", 0), ("eve", "release", count)):
        path = tmp_path / student / "a6.ipynb"
        path.parent.mkdir()
        nbformat.write(handed(part, student=student, only=None), path)
        command = [sys.executable, "-m", "pytest", "course/test_submission.py", "--submission", str(path),
                   "-p", "no:xdist", "-p", "no:cacheprovider"]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == (1 if failed else 0), done.stdout
        assert (f"{failed} failed" if failed else f"{count} passed") in done.stdout, done.stdout
        total = sum(tasks_of("a6").values())
        assert f"a6.ipynb: {0 if failed else total} of {total} points" in done.stdout.splitlines(), done.stdout
