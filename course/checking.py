"""What the hidden tests are written with: ``course/checks/a1.py`` and the others hold the tests themselves."""

import base64
import importlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import hypothesis
import torch
from hypothesis import strategies

from cflkit import rng
from course import talk
from course.source import Assignment

EXAMPLES = 3  # sizes that Hypothesis draws for a test, besides all the smallest and all the largest
ROUNDING = {torch.float32: 3e-5}  # of the largest number; a formula in single precision is right, too
OTHERWISE = 2e-6  # results that went through single precision on their way


class Wrong(Exception):
    """A test has failed; its text is at most a few words, and gives no expected number away."""


@dataclass(frozen=True)
class Check:
    """One hidden test: what it is worth, what it says, and the function that decides.

    `sizes` names what is drawn for it, with the least and the greatest value. A test of a hunt has instead
    functions that are `right` and some that are `wrong`.
    """

    task: str
    points: int
    says: str
    run: Callable
    sizes: tuple[tuple[str, int, int], ...] = ()
    right: tuple[Callable, ...] = ()
    wrong: tuple[Callable, ...] = ()


def check(task: str, points: int, says: str, **sizes: tuple[int, int]) -> Callable:
    """Mark ``function(student, reference, draw)`` as a hidden test worth `points`; it raises or returns nothing."""

    def mark(function: Callable) -> Check:
        return Check(task, points, says, function, tuple((name, *span) for name, span in sizes.items()))

    return mark


def hunted(points: int, says: str, right: list[Callable], wrong: list[Callable]) -> Check:
    """Return the hidden test that ``hunt`` accepts each of `right` and refuses each of `wrong`."""

    def run(answers: dict[Callable, str]) -> None:
        for function in wrong:
            if answers[function]:
                raise Wrong(answers[function])

    return Check("hunt", points, says, run, (), tuple(right), tuple(wrong))


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
            if cell.kind in ("code", "task", "earlier") and cell.id not in ("student", "parameters", "measure"):
                self._run(cell.solution, self._names)

    def _run(self, code: str, names: dict) -> None:
        exec(compile(code, self._assignment.name, "exec"), names)

    def __getattr__(self, name: str):
        return self._names[name]

    def pictures(self) -> dict[str, str]:
        """Return what the assignment's pictures show with right functions: PNG, in base64."""
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot

        found, names = {}, dict(self._names)
        for cell in self._assignment.cells:
            if cell.kind == "picture":
                self._run(cell.text, names)
                data = io.BytesIO()
                pyplot.savefig(data, format="png", dpi=64)
                pyplot.close("all")
                found[cell.id] = base64.b64encode(data.getvalue()).decode()
        return found

    def answer(self, student: str) -> dict[str, float]:
        """Return what the measurement of `student` gives."""
        if student not in self._answers:
            names = self._names | {"student": student}
            for cell in self._assignment.cells:
                if cell.id in ("parameters", "measure"):
                    self._run(cell.solution, names)
            self._answers[student] = names["answer"]
        return self._answers[student]


class Draw:
    """The random numbers of one example of a hidden test; its sizes are attributes: ``draw.normal(draw.n, 3)``."""

    def __init__(self, source, sizes: dict[str, int]):
        self.source = source
        vars(self).update(sizes)

    def normal(self, *shape: int) -> torch.Tensor:
        """Return standard normal numbers."""
        return torch.from_numpy(self.source.standard_normal(shape))

    def whole(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Return integers from `low` to below `high`."""
        return torch.from_numpy(self.source.integers(low, high, shape))

    def order(self, n: int) -> torch.Tensor:
        """Return 0 to n - 1 in a drawn order."""
        return torch.from_numpy(self.source.permutation(n))

    def between(self, low: float, high: float) -> float:
        """Return a number between two others."""
        return float(self.source.uniform(low, high))


def source_of(assignment: str, says: str, student: str, secret: str, number: int = 0):
    """Return the random numbers of a hidden test for one student; `secret` is the course's own."""
    return rng.generator(20261, assignment, says, student, secret, number)


def draws(check: Check, assignment: str, student: str, secret: str) -> Iterator[Draw]:
    """Yield a test's examples: its smallest sizes, its largest, and some that Hypothesis draws from the seed."""
    sizes = [{name: least for name, least, _ in check.sizes}, {name: most for name, _, most in check.sizes}]
    if check.sizes:
        seed = int(source_of(assignment, check.says, student, secret).integers(1 << 32))

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(
            strategies.fixed_dictionaries(
                {name: strategies.integers(least, most) for name, least, most in check.sizes}
            )
        )
        def collect(drawn: dict[str, int]) -> None:
            sizes.append(drawn)

        collect()
    for number, each in enumerate(sizes if check.sizes else sizes[:1], 1):
        yield Draw(source_of(assignment, check.says, student, secret, number), each)


def same(got, expected, tolerance: float = 0.0, says: str = "the values are wrong") -> None:
    """Demand a number or tensor of the expected shape, and of the expected values but for rounding.

    Single precision is allowed for: a right formula in float32 is right. A `tolerance` that is larger replaces it.
    """
    expected = torch.as_tensor(expected)
    if not isinstance(got, torch.Tensor | int | float | bool | list):
        raise Wrong(f"it returned {type(got).__name__}, not numbers")
    try:
        got = torch.as_tensor(got)
    except (TypeError, ValueError):
        raise Wrong("it returned a list that is no tensor") from None
    if got.dim() != expected.dim():
        raise Wrong(f"its shape has {min(got.dim(), 9)} dimensions, not {expected.dim()}")
    if got.shape != expected.shape:  # no sizes: a function could put what it was handed into them
        first = next(k for k, (a, b) in enumerate(zip(got.shape, expected.shape, strict=True)) if a != b)
        exchanged = tuple(got.shape) == tuple(expected.shape)[::-1]
        raise Wrong("rows and columns are exchanged" if exchanged else f"its shape is wrong in dimension {first}")
    if not got.double().isfinite().all():
        raise Wrong("not all numbers are finite")
    if expected.numel():
        gap = float((got.double() - expected.double()).abs().max())
        scale = max(1.0, float(expected.double().abs().max()))
        if gap > max(tolerance, scale * ROUNDING.get(got.dtype, OTHERWISE)):
            raise Wrong(says)


def demand(condition, says: str) -> None:
    """Demand a condition; `says` tells what was seen instead."""
    if not bool(condition):
        raise Wrong(says)


def pure(student, name: str, first: tuple, second: tuple) -> None:
    """Demand that a function leaves its arguments alone, remembers nothing between calls, and uses what it gets.

    It is called in one process with the first arguments, the second, and the first again.
    """
    values, left = student.calls(name, [first, second], [0, 1, 0])
    one, two, again = (torch.as_tensor(value).double() for value in values)
    demand(talk.pack(left) == talk.pack([list(first), list(second)]), "an argument was changed")
    same(again, one, says="the same call gives something else the second time")
    demand(one.shape != two.shape or not torch.equal(one, two), "it gives the same whatever it is handed")


def hunt(student, checks: list[Check], secret: str) -> dict[Callable, str]:
    """Ask the student's ``hunt`` about right and wrong functions, in an order and number that are drawn.

    Returns what is held against it for every wrong function: "" where it was refused, with an AssertionError, each
    time. A test that refuses one right function is no test, so that this is held against it everywhere.
    """
    found = [check for check in checks if check.wrong]
    source = source_of("hunt", found[0].says if found else "", student.id, secret)
    right = {function for check in found for function in check.right}
    wrong = [function for check in found for function in check.wrong]
    asked = [function for check in found[:1] for function in check.right] + wrong
    asked = [function for function in asked for _ in range(int(source.integers(2, 5 if function in right else 4)))]
    against = dict.fromkeys(wrong, "")
    for place in source.permutation(len(asked)):
        function = asked[place]
        if against.get(function):
            continue
        try:
            said = student.raises("hunt", function)
        except Wrong as failed:
            return dict.fromkeys(wrong, str(failed))
        if function not in right:
            against[function] = "" if said == "AssertionError" else said or "the mistake goes unnoticed"
        elif said:
            refused = "it refuses an implementation that is right"
            return dict.fromkeys(wrong, refused if said == "AssertionError" else said)
    return against


def measured(student, reference, key: str, tolerance: float) -> None:
    """Demand the number ``answer[key]`` of this student's own measurement."""
    answer = student.value("answer")
    if not isinstance(answer, dict) or key not in answer:
        raise Wrong(f"answer has no '{key}'")
    if student.named not in ("", student.id):
        raise Wrong(f"the id cell says '{student.named}', the folder '{student.id}'")
    same(answer[key], torch.tensor(reference.answer(student.id)[key]).double(), tolerance)
