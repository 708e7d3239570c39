"""Build the course: ``python -m course.build`` makes of every source a release, a solution and a rubric.

They go to ``build/course``: ``release/a1/a1.ipynb`` is for students; ``source``, ``solution`` and ``rubric`` are not.
"""

import os
import shutil
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config

from course.checking import checks_of, tasks_of
from course.source import STUB, Assignment, Cell, load, names

HOME = Path("build/course")
AUTOMATIC, WRITTEN = 20, 5  # points of every assignment

RULES = """# Assignment {number}: {title}

*{hours} hours, {total} points: {points}. Chapter: {chapters} of the book.*

- Write your user name into the next cell. Your own numbers come from it.
- Replace each `raise NotImplementedError` by your code. Keep names and arguments. Add cells as you like.
- The tests you see are few. Your functions are graded by others, on other data.
- From `cflkit` you may import {uses}, and nothing else; not from {refuses} either.
- Before you hand in: *Kernel, Restart Kernel and Run All Cells*. The grader does the same, within two minutes a
  cell and two gigabytes, without a network, and without any file but this one.
- All tensors are `float64`. A function must not change the tensors it is given."""


def mark(cell: NotebookNode, **values) -> NotebookNode:
    """Give a cell nbgrader's metadata."""
    base = {"schema_version": 3, "grade": False, "solution": False, "locked": False, "task": False}
    cell.metadata["nbgrader"] = base | values
    return cell


def notebook(assignment: Assignment) -> NotebookNode:
    """Return nbgrader's source notebook of an assignment, solutions and all."""
    points = tasks_of(assignment.name)
    written = sum(cell.points for cell in assignment.cells)
    rules = RULES.format(
        number=assignment.name[1:], title=assignment.title, hours=assignment.hours, total=sum(points.values()) + written,
        points=", ".join(f"{task} {n}" for task, n in points.items()) + f", written {written}",
        chapters=" and ".join(f"*{chapter}*" for chapter in assignment.chapters),
        uses=", ".join(f"`{name}`" for name in assignment.uses),
        refuses=" and ".join(f"`{name}`" for name in assignment.refuses),
    )  # fmt: skip
    cells = [new_markdown_cell(rules), *(made(cell, points) for cell in assignment.cells)]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def made(cell: Cell, points: dict[str, int]) -> NotebookNode:
    """Return the notebook's cell of a piece of source."""
    if cell.kind == "prose":
        return new_markdown_cell(cell.text)
    if cell.kind == "code":
        return new_code_cell(cell.text)
    if cell.kind == "task":
        return mark(new_code_cell(cell.text.rstrip()), grade_id=cell.id, solution=True)
    if cell.kind == "check":
        worth = points[cell.id.removeprefix("test-")]
        return mark(new_code_cell(cell.text), grade_id=cell.id, grade=True, locked=True, points=worth)
    return mark(new_markdown_cell(cell.text), grade_id=cell.id, grade=True, solution=True, points=cell.points)


def rubric(assignment: Assignment) -> str:
    """Return the mark scheme: every hidden test with its points, and the written question's scheme."""
    lines = [f"# Rubric of assignment {assignment.name[1:]}: {assignment.title}", "", "| task | points | hidden test |",
             "|---|---|---|"]  # fmt: skip
    lines += [f"| {check.task} | {check.points} | {check.says} |" for check in checks_of(assignment.name)]
    for cell in assignment.cells:
        if cell.kind == "answer":
            lines += ["", f"## Written question, {cell.points} points", "", cell.text]
    return "\n".join(lines) + "\n"


def config() -> Config:
    """Return nbgrader's settings."""
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # nbgrader calls alembic
    found = Config()
    found.CourseDirectory.root = str(HOME.resolve())
    found.ClearSolutions.code_stub = {"python": STUB}
    found.ClearSolutions.text_stub = "Your answer here."
    found.ClearSolutions.enforce_metadata = True
    return found


def build(assignment: Assignment, api: NbGraderAPI) -> dict[str, int]:
    """Build one assignment and return its points by task."""
    points = tasks_of(assignment.name)
    written = sum(cell.points for cell in assignment.cells)
    tests = [cell.id.removeprefix("test-") for cell in assignment.cells if cell.kind == "check"]
    if sorted(tests) != sorted(points):
        sys.exit(f"{assignment.name}: tasks {sorted(points)} in checks, {sorted(tests)} in the source")
    if (sum(points.values()), written) != (AUTOMATIC, WRITTEN):
        sys.exit(f"{assignment.name}: {sum(points.values())} + {written} points, allowed {AUTOMATIC} + {WRITTEN}")
    nb = notebook(assignment)
    for part in ("source", "solution"):
        folder = HOME / part / assignment.name
        folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(nb, folder / f"{assignment.name}.ipynb")
        for cell, piece in zip(nb.cells[1:], assignment.cells, strict=True):
            if piece.kind == "task":
                cell.source = piece.solution.rstrip()
    (HOME / "rubric").mkdir(exist_ok=True)
    (HOME / "rubric" / f"{assignment.name}.md").write_text(rubric(assignment))
    done = api.generate_assignment(assignment.name, force=True, create=True)
    if not done["success"]:
        sys.exit(f"{assignment.name}: nbgrader could not make the release:\n{done['log']}")
    return points | {"written": written}


def main() -> None:
    """Build all assignments and print their points."""
    for part in ("source", "release", "solution", "rubric"):
        shutil.rmtree(HOME / part, ignore_errors=True)
    HOME.mkdir(parents=True, exist_ok=True)
    api = NbGraderAPI(config=config())
    for name in names():
        points = build(load(name), api)
        print(f"{name}  {sum(points.values())} points: " + ", ".join(f"{task} {n}" for task, n in points.items()))
    print(f"{HOME}/release is for students; {HOME}/solution and {HOME}/rubric are not")


if __name__ == "__main__":
    main()
