"""Solutions that we wrote ourselves, run and graded in this process: for rubrics and for tests of the course."""

from course import judge, talk
from course.checking import checks_of
from course.source import load


class Inside(judge.Student):
    """A student whose functions are here, in this process: for solutions that we wrote ourselves.

    As in the grader's forks, each request meets the functions as the cells left them.
    """

    def __init__(self, cells: list[tuple[str, str]], id: str):
        self.names, self.id, self.named, self.hung = (
            {"__name__": "__main__", "print": lambda *_: None},
            id,
            id,
            False,
        )
        self.cells = [(name, compile(code, name, "exec")) for name, code in cells if compiles(code)]
        self.run(self.cells, self.names)
        self.cells = [
            each
            for each in self.cells
            if each[0] not in ("parameters", "measure", "tensors") and not each[0].startswith("code")
        ]

    def run(self, cells: list, names: dict) -> None:
        """Run cells in `names`, as a notebook does: what fails is left out."""
        for _, code in cells:
            try:
                exec(code, names)
            except Exception:  # as in a notebook: the next cell is run all the same
                continue
            finally:
                names["student"] = self.id

    def _ask(self, request, functions=()):
        try:
            names = dict(self.names)
            if "calls" not in request:
                return {"value": talk.pack(names[request["name"]])}
            self.run(self.cells, names)
            given = [talk.unpack(each, lambda number: functions[number]) for each in request["calls"]]
            values = [talk.pack(names[request["name"]](*given[number])) for number in request["order"]]
            return {"values": values, "left": None if request["asks"] else talk.pack(given)}
        except Exception as error:
            return {"error": {"type": judge.nearest(error), "line": None, "text": str(error)}}


def compiles(code: str) -> bool:
    """Say whether a cell is Python at all."""
    try:
        compile(code, "cell", "exec")
    except SyntaxError:
        return False
    return True


def cells(
    assignment: str, part: str = "solution", change: dict | None = None, measured: bool = True
) -> list[tuple[str, str]]:
    """Return the code of a part of an assignment, by cell; a planted mistake may have changed one.

    Without the measurement, which takes seconds, ``answer`` is missing and its points are lost.
    """
    found = []
    for cell in load(assignment).cells:
        if cell.kind in ("code", "task") and (measured or cell.id not in ("parameters", "measure")):
            code = getattr(cell, part)
            if change and (cell.kind, cell.id) == ("task", change["task"]):
                if (times := code.count(change["from"])) != 1:
                    raise LookupError(f"its `from` is {times} times in the solution, and should be once")
                code = code.replace(change["from"], change["to"])
            found.append((cell.id, code))
    return found


def points(
    assignment: str, code: list[tuple[str, str]], id: str = "tom", only: str = ""
) -> tuple[dict[str, int], list[str]]:
    """Return the points by task, or `only` a task's, and a line for each that was lost."""
    result = judge.Result(id, assignment, dict.fromkeys(checks_of(assignment), "it was not run"))
    judge.test(result, Inside(code, id), only=only)
    return result.points, [line for task in result.points for line in result.report(task)]
