"""The notebooks of an assignment: nbgrader's source, the release, and the solution."""

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course.checking import tasks_of
from course.source import ANSWER, Assignment, Cell

RULES = """# Assignment {number}: {title}

*{hours} hours, {total} points: {points}. {chapters} of the built book.*

- Write your user name into the next cell. Your own numbers come from it.
- Replace each `raise NotImplementedError` by your code. Keep names and arguments. Add cells as you like.
- The tests you see are few. Your functions are graded by others, on other data.
- Below each picture that your functions draw stands the one that right functions draw.
- From `cflkit` you may import {uses}, and nothing else; not from {refuses} either.
- Before you hand in: *Kernel, Restart Kernel and Run All Cells*. The grader does the same, within a minute
  for each cell, four for all, and two gigabytes, without a network, and without any file but this one.
- Real numbers are `float64`, and `float32` is right, too; counts, sizes, labels and row numbers are integers. A
  function must not change the tensors it is given."""


def mark(cell: NotebookNode, **values) -> NotebookNode:
    """Give a cell nbgrader's metadata."""
    base = {"schema_version": 3, "grade": False, "solution": False, "locked": False, "task": False}
    cell.metadata["nbgrader"] = base | values
    return cell


def notebook(assignment: Assignment, part: str, pictures: dict[str, str] | None = None) -> NotebookNode:
    """Return the `part` "source", "release" or "solution"; the release that nbgrader makes must be this one.

    `pictures` are those that right functions draw, which :meth:`course.checking.Reference.pictures` makes.
    """
    points = tasks_of(assignment.name)
    written = sum(cell.points for cell in assignment.cells)
    rules = RULES.format(
        number=assignment.name[1:], title=assignment.title, hours=assignment.hours,
        total=sum(points.values()) + written,
        points=", ".join(f"{task} {n}" for task, n in points.items()) + f", written {written}",
        chapters=("Chapter: " if len(assignment.chapters) == 1 else "Chapters: ")
        + " and ".join(f"{title} (`book/{file}.html`)" for title, file in assignment.chapters.items()),
        uses=", ".join(f"`{name}`" for name in assignment.uses),
        refuses=" and ".join(f"`{name}`" for name in assignment.refuses),
    )  # fmt: skip
    cells = [new_markdown_cell(rules), *(made(cell, points, part) for cell in assignment.cells)]
    for cell in cells:
        for name, picture in (pictures or {}).items():
            if cell.cell_type == "markdown" and f"(attachment:{name}.png)" in cell.source:
                cell.attachments = {f"{name}.png": {"image/png": picture}}
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def made(cell: Cell, points: dict[str, int], part: str) -> NotebookNode:
    """Return the notebook's cell of a piece of source."""
    text = getattr(cell, part, cell.text).rstrip()  # Cell has `release` and `solution`
    if cell.kind in ("prose", "right"):
        return new_markdown_cell(cell.text)
    if cell.kind in ("code", "picture"):
        return new_code_cell(cell.text)
    if cell.kind == "earlier":
        return mark(new_code_cell(text), grade_id=f"earlier-{cell.id}", solution=True)
    if cell.kind == "task":
        return mark(new_code_cell(text), grade_id=cell.id, solution=True)
    if cell.kind == "check":
        worth = points[cell.id.removeprefix("test-")]
        return mark(new_code_cell(cell.text), grade_id=cell.id, grade=True, locked=True, points=worth)
    answer = ANSWER if part == "release" else cell.text
    return mark(new_markdown_cell(answer), grade_id=cell.id, grade=True, solution=True, points=cell.points)
