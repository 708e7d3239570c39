"""Grade one notebook: run it in a process of its own, ask its functions the hidden tests, add up the points."""

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from course import sandbox, talk
from course.checking import Check, Reference, Wrong, checks_of, source_of, tasks_of
from course.source import Assignment, load

MEMORY = 2 << 30  # bytes, beyond what Python and PyTorch take by themselves
CELL_SECONDS = 120
CALL_SECONDS = 10
ALL_SECONDS = 600  # of computing, for the whole submission
GRACE = 5  # seconds until a cell that ignores its interrupt is stopped by force
LARGEST_NOTEBOOK = 20 << 20  # bytes


@dataclass
class Result:
    """What one submission got."""

    student: str
    assignment: str
    lost: dict[Check, str]  # hidden tests that were failed, and why
    notes: list[str] = field(default_factory=list)
    notebook: NotebookNode | None = None  # the submission in the release's structure, with its outputs

    @property
    def points(self) -> dict[str, int]:
        """Automatic points of every task."""
        return {task: most - sum(check.points for check in self.lost if check.task == task)
                for task, most in tasks_of(self.assignment).items()}  # fmt: skip

    @property
    def total(self) -> int:
        """Automatic points."""
        return sum(self.points.values())

    def report(self, task: str) -> list[str]:
        """Return a line for each hidden test of a task that was failed."""
        return [f"-{check.points}  {check.says} ({why})" for check, why in self.lost.items() if check.task == task]


class Ended(Exception):
    """The submission's process is gone, or was stopped."""


class Process:
    """The process of a submission, seen from the grader."""

    def __init__(self, folder: str):
        (theirs, down), (up, told) = os.pipe(), os.pipe()
        keep = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        own = {"HOME": folder, "TMPDIR": folder, "IPYTHONDIR": folder, "MPLCONFIGDIR": folder, "MPLBACKEND": "agg",
               "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "JOBLIB_MULTIPROCESSING": "0",
               "TQDM_DISABLE": "1",
               "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
        script = str(Path(__file__).with_name("worker.py"))
        self._process = subprocess.Popen(
            [*sandbox.namespaces(), sys.executable, script, str(theirs), str(told)], pass_fds=(theirs, told),
            cwd=folder, env=keep | own, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        os.close(told)
        self._down, self._up = down, up

    def send(self, message: dict) -> None:
        """Send a message; Ended if nobody reads it."""
        data = memoryview(talk.frame(message))
        try:
            while data:
                data = data[os.write(self._down, data) :]
        except BrokenPipeError:
            raise Ended("its process ended") from None

    def receive(self, seconds: float) -> dict:
        """Wait for a message; Ended if none comes in time, or none ever will."""
        deadline = time.monotonic() + seconds

        def take(n: int) -> bytes:
            data = b""
            while len(data) < n:
                if not select.select([self._up], [], [], max(0, deadline - time.monotonic()))[0]:
                    raise Ended("it ran longer than is allowed and had to be stopped")
                part = os.read(self._up, min(n - len(data), 1 << 20))
                if not part:
                    raise Ended("its process ended")
                data += part
            return data

        try:
            return talk.read(take)
        except ValueError:
            raise Ended("it sent no readable message") from None

    def close(self) -> None:
        """Stop the process and whatever it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        os.close(self._down)
        os.close(self._up)


class Student:
    """The functions of a submission, as the hidden tests call them: ``student.average(models, sizes)``."""

    def __init__(self, process: Process, id: str):
        self._process, self.id = process, id
        named = self._ask({"name": "student"})
        self.named = named["value"] if isinstance(named.get("value"), str) else ""

    def __getattr__(self, name: str) -> Callable:
        def call(*arguments):
            reply = self._call(name, arguments)
            if "error" in reply:
                raise Wrong(told(reply["error"], name))
            return talk.unpack(reply["value"])

        return call

    def raises(self, name: str, *arguments) -> str | None:
        """Return the type of the error that a call ends with, None if it ends well; Wrong if it is not written."""
        error = self._call(name, arguments).get("error")
        if error is not None and error["type"] in ("NotImplementedError", "missing", "TooLong", "died"):
            raise Wrong(told(error, name))
        return None if error is None else error["type"]

    def keeps(self, name: str, *arguments) -> bool:
        """Say whether a call leaves its arguments as they are."""
        reply = self._ask({"name": name, "arguments": talk.pack(list(arguments)), "keeps": True})
        if "error" in reply:
            raise Wrong(told(reply["error"], name))
        return reply["value"] is True

    def value(self, name: str):
        """Return a variable of the submission."""
        reply = self._ask({"name": name})
        if "error" in reply:
            raise Wrong(told(reply["error"], name))
        return talk.unpack(reply["value"])

    def _call(self, name: str, arguments: tuple) -> dict:
        functions: list[Callable] = []
        return self._ask({"name": name, "arguments": talk.pack(list(arguments), functions)}, functions)

    def _ask(self, request: dict, functions: list[Callable] = ()) -> dict:
        self._process.send(request | {"seconds": CALL_SECONDS})
        deadline = time.monotonic() + CALL_SECONDS + GRACE
        while True:
            message = self._process.receive(max(0, deadline - time.monotonic()))
            if "reply" in message:
                return message["reply"]
            try:
                value = functions[message["ask"]](*talk.unpack(message["arguments"]))
                self._process.send({"value": talk.pack(value)})
            except Ended:
                raise
            except Exception as error:  # what a test hands to our implementation is the student's affair
                self._process.send({"error": type(error).__name__})


def told(error: dict, name: str) -> str:
    """Return an error in a few words; its text is left out, for it could hold a test's numbers."""
    if error["type"] == "NotImplementedError":
        return f"{name} is not written yet"
    if error["type"] in ("missing", "TooLong", "died", "MemoryError"):
        return error["text"] if error["type"] == "missing" else f"{name}: {error['text']}"
    line = f" in line {error['line']}" if error["line"] else ""
    return f"{name} raises {error['type']}{line}"


def grade_id(cell: NotebookNode) -> str | None:
    """Return the name that the release gave a cell."""
    mark = cell.metadata.get("nbgrader")
    return mark.get("grade_id") if isinstance(mark, dict) else None


def canonical(release: NotebookNode, handed: NotebookNode | None, notes: list[str]) -> NotebookNode:
    """Return the submission in the release's structure: tests as released, each named cell once, none missing.

    Whatever else the student wrote stays where it is, as ordinary cells.
    """
    known = {grade_id(cell): cell for cell in release.cells if grade_id(cell)}
    fresh = deepcopy(release)
    fresh.cells, seen = [], set()
    for cell in handed.cells if handed else release.cells:
        name, text = grade_id(cell), "".join(cell.source)
        if name in known and name not in seen and cell.cell_type == known[name].cell_type:
            official = deepcopy(known[name])
            if official.metadata.nbgrader.solution:
                official.source = text
            fresh.cells.append(official)
            seen.add(name)
            continue
        if name in known:
            notes.append(f"a second cell '{name}' was run as an ordinary cell")
        make = new_code_cell if cell.cell_type == "code" else new_markdown_cell
        fresh.cells.append(make(text))
    for name in known.keys() - seen if handed else ():
        notes.append(f"the cell '{name}' is missing")
        official = deepcopy(known[name])
        if official.metadata.nbgrader.solution:
            official.source = ""
        fresh.cells.append(official)
    for number, cell in enumerate(fresh.cells):
        cell.id = f"cell-{number}"
    return fresh


def run_cells(notebook: NotebookNode, assignment: Assignment, process: Process, skip: set[int], where: list):
    """Run all cells but the tests and those in `skip`; outputs and errors go into the notebook, `where` follows."""
    cells = [(number, cell) for number, cell in enumerate(notebook.cells)
             if cell.cell_type == "code" and not is_test(cell)]  # fmt: skip
    process.send({
        "cells": ["" if number in skip else cell.source for number, cell in cells],
        "cell_seconds": CELL_SECONDS, "seconds": ALL_SECONDS, "memory": MEMORY, "readable": sandbox.readable(),
        "uses": assignment.uses, "refuses": assignment.refuses,
    })  # fmt: skip
    for number, cell in cells:
        where[:] = [number]
        message = process.receive(CELL_SECONDS + GRACE + (60 if number == cells[0][0] else 0))
        cell.outputs = []
        if message["output"]:
            cell.outputs.append(nbformat.v4.new_output("stream", name="stdout", text=message["output"]))
        cell.metadata["error"] = message["error"]
    where[:] = []


def is_test(cell: NotebookNode) -> bool:
    """Say whether a cell holds an automatic test."""
    mark = cell.metadata.get("nbgrader")
    return bool(mark and mark.get("grade") and not mark.get("solution"))


def complain(notebook: NotebookNode, order_kept: bool) -> list[str]:
    """Return a note on every cell that raised something other than a stub's error."""
    notes, hint = [], "" if order_kept else "; the notebook was not run from top to bottom before it was handed in"
    for number, cell in enumerate(notebook.cells, 1):
        error = cell.metadata.pop("error", None)
        if error and error["type"] != "NotImplementedError":
            name = f"'{grade_id(cell)}'" if grade_id(cell) else f"number {number}"
            line = f" in line {error['line']}" if error["line"] else ""
            notes.append(f"the cell {name} raises {error['type']}{line}: {error['text']}{hint}")
    return notes


@cache
def reference(assignment: str) -> Reference:
    """Return the model solution's functions; made once."""
    return Reference(load(assignment))


def judge(path: Path, student: str, assignment: str, release: NotebookNode) -> Result:
    """Grade the notebook at `path`."""
    result = Result(student, assignment, dict.fromkeys(checks_of(assignment), "it was not run"))
    try:
        if path.stat().st_size > LARGEST_NOTEBOOK:
            raise ValueError(f"larger than {LARGEST_NOTEBOOK >> 20} MB")
        handed = nbformat.read(path, as_version=4)
        result.notebook = canonical(release, handed, result.notes)
    except Exception as error:
        handed, result.notebook = None, canonical(release, None, result.notes)
        result.notes.append(f"{path.name} is no notebook that can be read ({type(error).__name__})")
    if handed is not None:
        counts = [cell.get("execution_count") for cell in handed.cells if cell.cell_type == "code"]
        counts = [count for count in counts if count]
        _run(result, load(assignment), sorted(counts) == counts)
    _show(result)
    return result


def _run(result: Result, assignment: Assignment, order_kept: bool) -> None:
    """Run the cells and the hidden tests; a cell that ends the process is left out of another try."""
    skip: set[int] = set()
    while len(skip) < 4:
        where: list[int] = []
        with tempfile.TemporaryDirectory(prefix="submission-") as folder:
            process = Process(folder)
            try:
                run_cells(result.notebook, assignment, process, skip, where)
                result.notes += complain(result.notebook, order_kept)
                test(result, Student(process, result.student))
                return
            except Ended as error:
                if not where:
                    result.notes.append(f"the hidden tests could not be finished: {error}")
                    return
                cell = result.notebook.cells[where[0]]
                name = f"'{grade_id(cell)}'" if grade_id(cell) else f"number {where[0] + 1}"
                result.notes.append(f"the cell {name} was left out: {error}")
                skip.add(where[0])
            finally:
                process.close()
    result.notes.append("too many cells end the process; nothing was tested")


def test(result: Result, student: Student) -> None:
    """Go through the hidden tests."""
    for check in checks_of(result.assignment):
        try:
            check.run(student, reference(result.assignment), source_of(result.assignment, check.says))
            del result.lost[check]
        except Ended:
            raise
        except Wrong as wrong:
            result.lost[check] = str(wrong)
        except Exception as error:  # what a function returned may be anything; a test that trips over it is failed
            result.lost[check] = f"its result does not fit: {type(error).__name__}"


def _show(result: Result) -> None:
    """Write each task's report under its tests, and the number from which nbgrader takes the points."""
    most = tasks_of(result.assignment)
    for cell in result.notebook.cells:
        if is_test(cell):
            task = grade_id(cell).removeprefix("test-")
            lines = [f"{task}: {result.points[task]} of {most[task]} points", *result.report(task)]
            number = {"text/plain": str(result.points[task])}
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="\n".join(lines) + "\n"),
                            nbformat.v4.new_output("execute_result", number, execution_count=1)]  # fmt: skip
            cell.execution_count = 1
