"""The source of an assignment: one Markdown file with fenced code, read into cells.

Prose is prose. A fence says what its code is::

    ```python              code that students get as it is
    ```python id=parameters   the same; the student's own numbers, made from the cell ``student``
    ```python task=NAME    code to be written; what stands between the SOLUTION marks is taken out of the release
    ```python check=NAME   tests that students see; the hidden ones of course/checks are worth the points
    ```python earlier=a1_train   a function of an earlier assignment, which students paste; worth no points
    ```python picture=NAME code that draws what the student's functions do; a right picture is put below it
    ```text answer=5       a written question's mark scheme, worth 5 points; students get an empty cell

Every assignment begins with two cells that stand here and not in its file: who the student is, and how numbers are
kept. The file begins with a few lines of YAML between ``---``.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

HOME = Path(__file__).resolve().parent
STUDENT = 'student = "your-user-name"'
NAMED = 'assert student != "your-user-name", "write your user name into the first code cell; run all cells again"'
TENSORS = '''import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def expect(what, came, right, known=None):
    """Raise AssertionError unless `came` is `right`; `known` says which usual mistake gives which numbers."""
    assert came is not None, what + ": your function returned nothing"
    came, right = torch.as_tensor(came), torch.as_tensor(right)

    def alike(other):
        other = torch.as_tensor(other).double()
        return came.shape == other.shape and torch.allclose(came.double(), other, atol=1e-5, equal_nan=True)

    if not alike(right):
        lines = [what, f"expected {right.tolist()}", f"came     {came.tolist()}"]
        lines += [f"which comes when {mistake}" for mistake, numbers in (known or {}).items() if alike(numbers)]
        raise AssertionError("\\n    ".join(lines))'''
RIGHT = "*What right functions draw:*\n\n![what right functions draw](attachment:{}.png)"
MARKS = re.compile(r"^( *)### BEGIN SOLUTION\n.*?^ *### END SOLUTION\n?", re.MULTILINE | re.DOTALL)
ANSWER = "Your answer here."
STUB = "raise NotImplementedError  # your code here"
PASTE = (
    """# Paste your `{name}` of assignment {number} here: the picture below is drawn with it. It has no points."""
)
FENCE = re.compile(r"^```(?:python|text)(?: (\w+)=(\w+))?\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Cell:
    """A piece of an assignment; `text` is as written in the source."""

    kind: str  # prose, code, task, check, earlier, picture, right or answer
    id: str
    text: str
    points: int = 0

    @cached_property
    def solution(self) -> str:
        """The text with its solution, without the marks."""
        return re.sub(r"^ *### (BEGIN|END) SOLUTION\n", "", self.text, flags=re.MULTILINE)

    @cached_property
    def release(self) -> str:
        """The text with a stub for each solution."""
        return MARKS.sub(lambda found: f"{found[1]}{STUB}\n", self.text)


@dataclass(frozen=True)
class Assignment:
    """An assignment as read from its source."""

    name: str
    title: str
    chapters: dict[str, str]  # title and file in the book
    hours: str
    uses: list[str]  # what may be imported from cflkit
    cells: list[Cell]

    refuses = ("sklearn", "scipy")


def task(assignment: str, name: str) -> str:
    """Return the source of a task of another assignment."""
    return next(cell.text for cell in load(assignment).cells if (cell.kind, cell.id) == ("task", name))


def names() -> list[str]:
    """Names of all assignments, in the order of the course."""
    return sorted(path.stem for path in (HOME / "sources").glob("a*.md"))


def load(name: str) -> Assignment:
    """Read an assignment."""
    text = (HOME / "sources" / f"{name}.md").read_text()
    _, head, body = text.split("---\n", 2)
    cells: list[Cell] = []

    def prose(part: str) -> None:
        if part.strip():
            cells.append(Cell("prose", f"prose-{len(cells)}", part.strip()))

    cells += [Cell("code", "student", STUDENT), Cell("code", "tensors", TENSORS)]
    end = 0
    for found in FENCE.finditer(body):
        prose(body[end : found.start()])
        end = found.end()
        key, value, code = found.groups()
        if key is None or key == "id":
            cells.append(Cell("code", value or f"code-{len(cells)}", code.rstrip()))
        elif key == "task":
            cells.append(Cell("task", value, code.rstrip() + "\n"))
        elif key == "earlier":
            before, function = value.split("_", 1)
            paste = PASTE.format(name=function, number=before[1:])
            cells.append(Cell("earlier", function, f"{paste}\n{task(before, function)}"))
        elif key == "picture":
            cells += [Cell("picture", value, code.rstrip()), Cell("right", f"right-{value}", RIGHT.format(value))]
        elif key == "check":
            named = f"{NAMED}\n" * (value == "measure")
            cells.append(Cell("check", f"test-{value}", named + code.rstrip()))
        else:
            cells.append(Cell("answer", "written", code.rstrip(), int(value)))
    prose(body[end:])
    return Assignment(name, cells=cells, **yaml.safe_load(head))
