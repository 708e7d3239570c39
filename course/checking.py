"""What the hidden tests are written with: ``course/checks/a1.py`` and the others hold the tests themselves."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cflkit import rng
from course.source import Assignment


class Wrong(Exception):
    """A test has failed; its text is at most a few words, and gives no expected number away."""


@dataclass(frozen=True)
class Check:
    """One hidden test: what it is worth, what it says, and the function that decides."""

    task: str
    points: int
    says: str
    run: Callable


def check(task: str, points: int, says: str) -> Callable:
    """Mark ``function(student, reference, draw)`` as a hidden test worth `points`; it raises or returns nothing."""

    def mark(function: Callable) -> Check:
        return Check(task, points, says, function)

    return mark


def checks_of(assignment: str) -> list[Check]:
    """Return the hidden tests of an assignment, in the order of its file."""
    module = importlib.import_module(f"course.checks.{assignment}")
    return [value for value in vars(module).values() if isinstance(value, Check)]


def tasks_of(assignment: str) -> dict[str, int]:
    """Return the automatic points of every task of an assignment."""
    points: dict[str, int] = {}
    for one in checks_of(assignment):
        points[one.task] = points.get(one.task, 0) + one.points
    return points


class Reference:
    """The functions of the model solution, run in the grader; the measurement is run for one student at a time."""

    def __init__(self, assignment: Assignment):
        self._assignment, self._answers = assignment, {}
        self._names = {"__name__": "__main__", "print": lambda *_: None}
        for cell in assignment.cells:
            if cell.kind in ("code", "task") and cell.id not in ("student", "parameters", "measure"):
                self._run(cell.solution, self._names)

    def _run(self, code: str, names: dict) -> None:
        exec(compile(code, self._assignment.name, "exec"), names)

    def __getattr__(self, name: str):
        return self._names[name]

    def answer(self, student: str) -> dict[str, float]:
        """Return what the measurement of `student` gives."""
        if student not in self._answers:
            names = self._names | {"student": student}
            for cell in self._assignment.cells:
                if cell.id in ("parameters", "measure"):
                    self._run(cell.solution, names)
            self._answers[student] = names["answer"]
        return self._answers[student]


def source_of(assignment: str, task: str):
    """Return the random numbers of a hidden test: always the same, and those of no visible test."""
    return rng.generator(20261, assignment, task)


def normal(draw, *shape: int) -> torch.Tensor:
    """Return a tensor of standard normal numbers."""
    return torch.from_numpy(draw.standard_normal(shape))


def same(got, expected, tolerance: float = 1e-9) -> None:
    """Demand a number or tensor of the expected shape and values."""
    expected = torch.as_tensor(expected)
    if not isinstance(got, torch.Tensor | int | float | bool | list):
        raise Wrong(f"it returned {type(got).__name__}, not numbers")
    try:
        got = torch.as_tensor(got)
    except (TypeError, ValueError):
        raise Wrong("it returned a list that is no tensor") from None
    if got.shape != expected.shape:
        raise Wrong(f"shape {tuple(got.shape)}, not {tuple(expected.shape)}")
    if not got.double().isfinite().all():
        raise Wrong("not all numbers are finite")
    if expected.numel() and float((got.double() - expected.double()).abs().max()) > tolerance:
        raise Wrong("the values are wrong")


def demand(condition, says: str) -> None:
    """Demand a condition; `says` tells what was seen instead."""
    if not bool(condition):
        raise Wrong(says)


def hunts(student, name: str, right: list[Callable], wrong: Callable) -> None:
    """Demand that the student's test `name` accepts each of `right`, and refuses `wrong` with an AssertionError."""
    for function in right:
        if student.raises(name, function):
            raise Wrong("it refuses an implementation that is right")
    if student.raises(name, wrong) != "AssertionError":
        raise Wrong("the mistake goes unnoticed")


def measured(student, reference, key: str, tolerance: float) -> None:
    """Demand the number ``answer[key]`` of this student's own measurement."""
    answer = student.value("answer")
    if not isinstance(answer, dict) or key not in answer:
        raise Wrong(f"answer has no '{key}'")
    if student.named not in ("", student.id):
        raise Wrong(f"the id cell says '{student.named}', the folder '{student.id}'")
    same(answer[key], torch.tensor(reference.answer(student.id)[key]).double(), tolerance)

