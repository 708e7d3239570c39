"""Build the course: ``python -m course.build`` makes of every source a release, a solution and a rubric.

They go to ``build/course``. ``release`` is for students, and has the chapters that assignments lead to; ``source``,
``solution`` and ``rubric`` are not.
"""

import os
import shutil
import sys
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
        code = cells(assignment.name, change=each, measured=task == "measure")
        left = points(assignment.name, code, only=task)[0][task]
        lines.append(f"| {task} | {each['mistake']} | {left} | {most[task]} |")
    return "\n".join(lines) + "\n"


def planted(assignment: str) -> list[dict]:
    """Return the planted mistakes of an assignment, as its file has them."""
    return yaml.safe_load(Path(__file__).with_name("wrong").joinpath(f"{assignment}.yaml").read_text())


def config() -> Config:
    """Return nbgrader's settings."""
    # nbgrader calls the program alembic
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    found = Config()
    found.CourseDirectory.root = str(HOME.resolve())
    found.ClearSolutions.code_stub = {"python": STUB}
    found.ClearSolutions.text_stub = ANSWER
    found.ClearSolutions.enforce_metadata = True
    return found


def build(assignment: Assignment, api: NbGraderAPI) -> dict[str, int]:
    """Build one assignment and return its points by task."""
    worth = tasks_of(assignment.name)
    written = sum(cell.points for cell in assignment.cells)
    tests = [cell.id.removeprefix("test-") for cell in assignment.cells if cell.kind == "check"]
    if sorted(tests) != sorted(worth):
        sys.exit(f"{assignment.name}: tasks {sorted(worth)} in checks, {sorted(tests)} in the source")
    if (sum(worth.values()), written) != (AUTOMATIC, WRITTEN):
        sys.exit(f"{assignment.name}: {sum(worth.values())} + {written} points, allowed {AUTOMATIC} + {WRITTEN}")
    pictures = Reference(assignment).pictures()
    for part in ("source", "solution"):
        folder = HOME / part / assignment.name
        folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook(assignment, part, pictures), folder / f"{assignment.name}.ipynb")
    for chapter in assignment.chapters.values():
        (HOME / "release" / "book").mkdir(parents=True, exist_ok=True)
        shutil.copy(BOOK / f"{chapter}.ipynb", HOME / "release" / "book")
    (HOME / "rubric").mkdir(exist_ok=True)
    (HOME / "rubric" / f"{assignment.name}.md").write_text(rubric(assignment))
    done = api.generate_assignment(assignment.name, force=True, create=True)
    if not done["success"]:
        sys.exit(f"{assignment.name}: nbgrader could not make the release:\n{done['log']}")
    return worth | {"written": written}


def main() -> None:
    """Build all assignments and print their points."""
    for part in ("source", "release", "solution", "rubric"):
        shutil.rmtree(HOME / part, ignore_errors=True)
    HOME.mkdir(parents=True, exist_ok=True)
    api = NbGraderAPI(config=config())
    for name in names():
        worth = build(load(name), api)
        print(f"{name}  {sum(worth.values())} points: " + ", ".join(f"{task} {n}" for task, n in worth.items()))
    print(f"{HOME}/release is for students; {HOME}/solution and {HOME}/rubric are not")


if __name__ == "__main__":
    main()
