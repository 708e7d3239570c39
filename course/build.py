"""Build the course: ``python -m course.build`` makes of every source a release, a solution and a rubric.

They go to ``build/course``. ``release`` is for students, and has the chapters that assignments lead to; ``source``,
``solution`` and ``rubric`` are not.
"""

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import yaml
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config

from course.checking import Reference, checks_of, tasks_of
from course.inside import cells, points
from course.notebooks import notebook
from course.source import ANSWER, STUB, Assignment, load, names

HOME = Path("build/course")
BOOK = Path(__file__).resolve().parent.parent / "book"
AUTOMATIC, WRITTEN = 20, 5  # points of every assignment


def rubric(assignment: Assignment) -> str:
    """Return the mark scheme: hidden tests with their points, the written question's, and what mistakes leave.

    The last is computed: every planted mistake is graded here, so that the table is never behind the tests.
    """
    title = f"# Rubric of assignment {assignment.name[1:]}: {assignment.title}"
    lines = [title, "", "| task | points | hidden test |", "|---|---|---|"]
    lines += [f"| {check.task} | {check.points} | {check.says} |" for check in checks_of(assignment.name)]
    for cell in assignment.cells:
        if cell.kind == "answer":
            lines += ["", f"## Written question, {cell.points} points", "", cell.text]
    lines += [
        "",
        "## Common mistakes, and the points they leave",
        "",
        "A function that remembers earlier calls leaves less where the notebook itself has called it before.",
        "",
        "| task | mistake | left | of |",
        "|---|---|---|---|",
    ]
    most = tasks_of(assignment.name)
    for each in planted(assignment.name):
        task = each["task"]
        where = f"course/wrong/{assignment.name}.yaml: {each['mistake']}: "
        try:
            code = cells(assignment.name, change=each, measured=task == "measure")
        except LookupError as stale:
            print(f"{where}{stale}; mend `from` and `to` there")
            continue
        left = points(assignment.name, code, only=task)[0][task]
        lines.append(f"| {task} | {each['mistake']} | {left} | {most[task]} |")
        if left == most[task]:
            print(f"{where}no hidden test of {task} notices it; mend the test, or `to` where it is right by now")
        elif left != (said := each["points"].get(task, most[task])):
            print(f"{where}leaves {left} points in {task} and not {said}; mend `points` there")
    return "\n".join(lines) + "\n"


def planted(assignment: str) -> list[dict]:
    """Return the planted mistakes of an assignment, as its file has them."""
    return yaml.safe_load(Path(__file__).with_name("wrong").joinpath(f"{assignment}.yaml").read_text())


def config(root: Path = HOME) -> Config:
    """Return nbgrader's settings for a course in the folder `root`."""
    # nbgrader calls the program alembic
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    found = Config()
    found.CourseDirectory.root = str(root.resolve())
    found.ClearSolutions.code_stub = {"python": STUB}
    found.ClearSolutions.text_stub = ANSWER
    found.ClearSolutions.enforce_metadata = True
    return found


@contextmanager
def alone() -> Iterator[None]:
    """Keep another program of the course from the same folder; SystemExit if one is there."""
    try:
        HOME.mkdir(parents=True, exist_ok=True)
        with (HOME / "running").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError:
        sys.exit(f"{HOME} is in use by another `make grade` or `make course`: wait until that ends")


def build(assignment: Assignment, root: Path, api: NbGraderAPI) -> dict[str, int]:
    """Build one assignment in the folder `root` and return its points by task."""
    worth = tasks_of(assignment.name)
    written = sum(cell.points for cell in assignment.cells)
    tests = [cell.id.removeprefix("test-") for cell in assignment.cells if cell.kind == "check"]
    if sorted(tests) != sorted(worth):
        sys.exit(f"{assignment.name}: tasks {sorted(worth)} in checks, {sorted(tests)} in the source")
    if (sum(worth.values()), written) != (AUTOMATIC, WRITTEN):
        sys.exit(f"{assignment.name}: {sum(worth.values())} + {written} points, allowed {AUTOMATIC} + {WRITTEN}")
    pictures = Reference(assignment).pictures()
    for part in ("source", "solution"):
        folder = root / part / assignment.name
        folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook(assignment, part, pictures), folder / f"{assignment.name}.ipynb")
    for chapter in assignment.chapters.values():
        (root / "release" / "book").mkdir(parents=True, exist_ok=True)
        shutil.copy(BOOK / f"{chapter}.ipynb", root / "release" / "book")
    (root / "rubric").mkdir(exist_ok=True)
    (root / "rubric" / f"{assignment.name}.md").write_text(rubric(assignment))
    done = api.generate_assignment(assignment.name, force=True, create=True)
    if not done["success"]:
        sys.exit(f"{assignment.name}: nbgrader could not make the release:\n{done['log']}")
    return worth | {"written": written}


def main() -> None:
    """Build all assignments and print their points; where one is refused, what was built before stays."""
    part = HOME / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    book = HOME / "gradebook.db"
    if book.exists():
        shutil.copy(book, part)
    api = NbGraderAPI(config=config(part))
    for name in names():
        worth = build(load(name), part, api)
        print(f"{name}  {sum(worth.values())} points: " + ", ".join(f"{task} {n}" for task, n in worth.items()))
    for built in ("source", "release", "solution", "rubric"):
        shutil.rmtree(HOME / built, ignore_errors=True)
        (part / built).rename(HOME / built)
    (part / book.name).rename(book)
    shutil.rmtree(part)
    print(f"{HOME}/release is for students; {HOME}/solution and {HOME}/rubric are not")


if __name__ == "__main__":
    with alone():
        main()
