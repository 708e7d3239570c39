"""Grade one notebook: run it in a process of its own, ask its functions the hidden tests, add up the points."""

import base64
import builtins
import contextlib
import json
import math
import os
import re
import resource
import select
import signal
import stat
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
import psutil
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from course import sandbox, talk
from course.checking import Check, Reference, Wrong, checks_of, draws, hunt, tasks_of
from course.source import Assignment, load

MEMORY = 2 << 30  # bytes of one process, beyond what Python and PyTorch take by themselves
MEMORY_OF_ALL = 3 << 30  # bytes of all processes of a submission together
PROCESSES = 60
DISK, FILES, DEEPEST = 1 << 29, 5000, 2000  # bytes and files that a submission may write, letters of a path
CELL_SECONDS = 60
CALL_SECONDS = 10
ALL_SECONDS = 240  # for the whole submission
START_SECONDS = 60  # until Python, PyTorch and IPython are there
BUSY = 5  # by the clock on the wall nothing takes more than so many times its seconds
GRACE = 5  # seconds until a cell that ignores its interrupt is stopped by force
LOOK = 0.3  # seconds between two looks at memory and processes
LARGEST_NOTEBOOK = 20 << 20  # bytes
LARGEST_PICTURE = 1 << 20  # bytes of one picture, drawn or attached
PIXELS = 20_000_000  # of one picture: a small file may unpack to a large one
PICTURES = 3 << 20  # bytes of all pictures of a submission, in base64
SHOWN, SHOWN_OF_ONE = 200_000, 20_000  # letters of code, text and output in the feedback, of all and of one cell
NOTES = 30
CELLS, PASTED = 500, 20  # in a notebook, and pictures pasted into one of its cells
LONGEST_TOLD = 400  # a line number above is not told: numbers could carry what a test handed over

PNG = b"\x89PNG\r\n\x1a\n"
KINDS = {"image/png": PNG, "image/jpeg": b"\xff\xd8\xff"}
BUILTIN = {
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
}
FOREVER = (math.inf, math.inf)
OWN = {"missing", "TooLong", "died"}  # what the worker says of a request, besides names of exceptions
TOO_LONG, TOO_MUCH = "it ran longer than is allowed", "it needs more memory than is allowed"


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
        return {
            task: most - sum(check.points for check in self.lost if check.task == task)
            for task, most in tasks_of(self.assignment).items()
        }

    @property
    def total(self) -> int:
        """Automatic points."""
        return sum(self.points.values())

    def report(self, task: str) -> list[str]:
        """Return a line for each hidden test of a task that was failed."""
        return [f"-{check.points}  {check.says} ({why})" for check, why in self.lost.items() if check.task == task]


class Ended(Exception):
    """The submission's process is gone, or was stopped."""


class CannotStart(Exception):
    """The process did not even come to the first cell: the machine's fault, not the submission's."""


class TooLate(Ended):
    """The time for a request is over; the submission's process may still be there."""

    def __init__(self):
        super().__init__(f"{TOO_LONG} and had to be stopped")


class Clock:
    """The seconds that a process and its children had: what they compute, and what passes while none wants to.

    Waiting for a processor does not count, so that limits and marks are the same on a machine that is busy.
    """

    def __init__(self, pid: int, inspect: Callable[[list], None] = lambda family: None):
        self.seconds, self._computed, self._each, self._looked = 0.0, 0.0, {}, time.monotonic()
        self._root, self._inspect, self.whole = psutil.Process(pid), inspect, FOREVER

    def after(self, seconds: float) -> tuple[float, float]:
        """Return when so many seconds will be over, by this clock and at the latest by that on the wall."""
        return self.seconds + seconds, time.monotonic() + BUSY * seconds

    def check(self, until: tuple[float, float], idle: bool) -> None:
        """Look at the processes now and then, which may be `idle`; TooLate if the time is over."""
        if idle or time.monotonic() - self._looked > LOOK:
            family, computed, own, busy, start = [], 0.0, {}, False, time.thread_time()
            with contextlib.suppress(psutil.Error):
                family = [self._root, *self._root.children(recursive=True)]
            for each in family:
                with contextlib.suppress(psutil.Error):
                    times = each.cpu_times()
                    computed, own[each.pid] = computed + sum(times[:4]), times.user + times.system
                    busy |= each.status() in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)
            # what a child computed is lost with it, unless its parent waits: so each counts by itself, too
            apart = sum(max(0.0, took - self._each.get(pid, 0.0)) for pid, took in own.items())
            gained = max(computed - self._computed, apart)
            self.seconds += max(gained, LOOK) if idle and not busy else gained
            self._computed, self._each = max(self._computed, computed), own
            self._inspect(family[1:])
            self.seconds += time.thread_time() - start  # it pays for being looked at: files, maps, processes
            self._looked = time.monotonic()
        if self.seconds >= min(until[0], self.whole[0]) or time.monotonic() >= min(until[1], self.whole[1]):
            raise TooLate


class Pipe:
    """Two ends of a connection with a process that may do anything: messages, deadlines, a look while waiting."""

    def __init__(self, down: int, up: int, clock: Clock):
        self._down, self._up, self._clock, self._got = down, up, clock, bytearray()

    def _wait(self, until: tuple[float, float], writing: bool = False) -> None:
        reads, writes = ([], [self._down]) if writing else ([self._up], [])
        idle = False
        while True:
            self._clock.check(until, idle)
            if any(select.select(reads, writes, [], LOOK)):
                return
            idle = True

    def send(self, message: dict, until: tuple[float, float]) -> None:
        """Send a message; Ended if nobody reads it in time."""
        data = memoryview(talk.frame(message))
        os.set_blocking(self._down, False)
        try:
            while data:
                self._wait(until, writing=True)
                with contextlib.suppress(BlockingIOError):
                    data = data[os.write(self._down, data[: 1 << 16]) :]
        except BrokenPipeError:
            self._clock.check(until, True)
            raise Ended("its process ended") from None

    def receive(self, until: tuple[float, float]) -> dict:
        """Wait for a message; TooLate if none comes in time, Ended if none will, or none that can be read."""
        end = 0

        def take(n: int) -> bytes:
            nonlocal end
            end += n
            while len(self._got) < end:
                self._wait(until)
                part = os.read(self._up, min(end - len(self._got), 1 << 20))
                if not part:
                    self._clock.check(until, True)
                    raise Ended("its process ended")
                self._got += part
            return bytes(self._got[end - n : end])

        try:
            message = talk.read(take)
        except ValueError:
            raise Ended("it sent no readable message") from None
        self._got.clear()
        return message

    def close(self) -> None:
        """Close both ends."""
        os.close(self._down)
        os.close(self._up)


class Process:
    """The process of a submission, seen from the grader."""

    def __init__(self, folder: str, seconds: float):
        self._seconds, self._folder, self._verdict = seconds, folder, ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        (theirs, down), (up, told) = os.pipe(), os.pipe()
        keep = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        own = {
            "HOME": folder,
            "USER": "student",  # the system's list of users cannot be read there, and PyTorch asks for a name
            "TMPDIR": folder,
            "IPYTHONDIR": folder,
            "MPLCONFIGDIR": folder,
            "MPLBACKEND": "agg",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "JOBLIB_MULTIPROCESSING": "0",
            "TQDM_DISABLE": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for name, text in fonts().items():
            Path(folder, name).write_bytes(text)
        script = str(Path(__file__).with_name("worker.py"))
        self._process = subprocess.Popen(
            [*sandbox.namespaces(), sys.executable, script, str(theirs), str(told)],
            pass_fds=(theirs, told),
            cwd=folder,
            env=keep | own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,
        )
        os.close(theirs)
        os.close(told)
        self.clock = Clock(self._process.pid, self._look)
        self._pipe = Pipe(down, up, self.clock)

    def _look(self, family: list[psutil.Process]) -> None:
        """Stop a submission whose processes are too many or take too much together."""
        if not self._verdict:
            if len(family) > PROCESSES:
                self._verdict = f"it started more than {PROCESSES} processes"
            elif sum(map(held, family)) > MEMORY_OF_ALL:
                self._verdict = TOO_MUCH
            elif written(self._folder) + sum(unnamed(each, self._folder) for each in family) > DISK:
                self._verdict = "it writes more than is allowed"
            if self._verdict:
                self._stop()
        if self._verdict:
            raise Ended(self._verdict)

    def start(self, order: dict) -> None:
        """Hand over the cells; CannotStart unless the process reports that it is ready."""
        try:
            self.send(order, START_SECONDS)
            if self.receive(START_SECONDS) != {"ready": True}:
                raise Ended("it sent something else than that it is ready")
            self.clock.whole = self.clock.after(self._seconds)
        except Ended as ended:
            self._errors.seek(0)
            last = self._errors.read()[-2000:].decode(errors="replace").strip().splitlines()[-1:]
            raise CannotStart(f"the process of a submission cannot start: {ended}; {' '.join(last)}") from None

    def send(self, message: dict, seconds: float) -> None:
        """Send a message; Ended if nobody reads it."""
        self._pipe.send(message, self.clock.after(seconds))

    def receive(self, seconds: float) -> dict:
        """Wait for a message; TooLate if none comes in time, Ended if none ever will."""
        return self._pipe.receive(self.clock.after(seconds))

    def left(self) -> float:
        """Return how many seconds of its own the submission has left."""
        return self.clock.whole[0] - self.clock.seconds

    def interrupt(self) -> None:
        """Interrupt the cell that runs."""
        with contextlib.suppress(psutil.Error):
            self._worker().send_signal(signal.SIGALRM)

    def stop_call(self) -> None:
        """End the call that runs."""
        with contextlib.suppress(psutil.Error):
            kill_family(self._worker().pid)

    def _worker(self) -> psutil.Process:
        first = psutil.Process(self._process.pid)
        return first.children()[0] if sandbox.namespaces() and first.children() else first

    def _stop(self) -> None:
        kill_family(self._process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)

    def close(self) -> None:
        """Stop the process and whatever it has started."""
        self._stop()
        self._process.wait()
        self._pipe.close()
        self._errors.close()


def kill_family(pid: int) -> None:
    """End all processes that the process `pid` has started, and theirs."""
    with contextlib.suppress(psutil.Error):
        for each in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                each.kill()


def held(process: psutil.Process) -> int:
    """Return the bytes of memory that a process holds; what several share is divided between them, where told."""
    total = 0
    with contextlib.suppress(psutil.Error):
        found = process.memory_full_info()
        total = getattr(found, "pss", found.uss)
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{process.pid}/fd"):  # files without a name are memory, too
            with contextlib.suppress(OSError):
                link = f"/proc/{process.pid}/fd/{number}"
                total += os.stat(link).st_size if os.readlink(link).startswith("/memfd:") else 0
    return total


def written(folder: str) -> int:
    """Return the bytes in a folder; more files than are allowed, or shut folders, count as too many bytes."""
    total, count, shut = 0, 0, []
    for where, _, files in os.walk(folder, onerror=shut.append):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(where, name)).st_size
        count += 1 + len(files)
        if count > FILES or len(where) > DEEPEST:  # what lies deeper could not be seen
            return DISK + 1
    return DISK + 1 if any(isinstance(error, PermissionError) for error in shut) else total


def unnamed(process: psutil.Process, folder: str) -> int:
    """Return the bytes of a process's files in a folder that are open or mapped, and have no name any more."""
    total, end = 0, " (deleted)"
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{process.pid}/fd"):
            with contextlib.suppress(OSError):
                link = f"/proc/{process.pid}/fd/{number}"
                name = os.readlink(link)
                total += os.stat(link).st_size if name.startswith(folder) and name.endswith(end) else 0
        for line in Path(f"/proc/{process.pid}/maps").read_text("utf-8", "replace").splitlines():
            if line.endswith(end) and folder in line:
                first, last = line.partition(" ")[0].split("-")
                total += int(last, 16) - int(first, 16)
    return total


@cache
def fonts() -> dict[str, bytes]:
    """Return Matplotlib's list of fonts, so that not every submission makes it again."""
    import matplotlib
    from matplotlib import font_manager  # makes the list if there is none

    assert font_manager.fontManager
    return {path.name: path.read_bytes() for path in Path(matplotlib.get_cachedir()).glob("fontlist-*.json")}


class Implementations:
    """Functions of ours that a submission's test may call, in a process with limits: it may ask for anything.

    A thousand million steps or clients cost this process, and so the test, its time.
    """

    def __init__(self, functions: list[Callable]):
        (theirs, down), (up, told) = os.pipe(), os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(down)
            os.close(up)
            try:
                _serve(functions, Pipe(told, theirs, Clock(os.getpid())))
            finally:
                os._exit(0)
        os.close(theirs)
        os.close(told)
        self._clock = Clock(self._child)
        self._pipe = Pipe(down, up, self._clock)

    def ask(self, message: dict, clock: Clock, until: tuple[float, float]) -> dict:
        """Return the value, or the built-in name of the error, that a call ends with; `clock` counts it, too."""
        before = self._clock.seconds
        own = before + until[0] - clock.seconds, until[1]
        try:
            self._pipe.send({key: message.get(key) for key in ("ask", "arguments")}, own)
            return self._pipe.receive(own)
        except Ended as ended:
            return {"error": TOO_LONG if isinstance(ended, TooLate) else "MemoryError"}
        finally:
            clock.seconds += self._clock.seconds - before

    def close(self) -> None:
        """End the process."""
        os.kill(self._child, 9)
        os.waitpid(self._child, 0)
        self._pipe.close()


def _serve(functions: list[Callable], pipe: Pipe) -> None:
    sandbox.limit(MEMORY // 2, CALL_SECONDS + GRACE)
    while True:
        message = pipe.receive(FOREVER)
        try:
            reply = {"value": talk.pack(functions[message["ask"]](*talk.unpack(message["arguments"])))}
        except Exception as error:
            reply = {"error": nearest(error)}
        pipe.send(reply, FOREVER)


def nearest(error: BaseException) -> str:
    """Return the name of the built-in exception that an error is."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in BUILTIN)


class Student:
    """The functions of a submission, as the hidden tests call them: ``student.average(models, sizes)``."""

    def __init__(self, process: Process, id: str, assignment: Assignment):
        self._process, self.id, self.hung = process, id, False
        self._more = {"package": sandbox.package(), "uses": assignment.uses}
        named = self._ask({"name": "student"})
        self.named = clean(named["value"])[:40] if isinstance(named.get("value"), str) else ""

    def __getattr__(self, name: str) -> Callable:
        def call(*arguments):
            return self.calls(name, [arguments], [0])[0][0]

        return call

    def calls(self, name: str, given: list[tuple], order: list[int]) -> tuple[list, list]:
        """Call a function in one process, with ``given[order[0]]`` and so on.

        Returns the results, and the arguments as they are after the last call.
        """
        packed = [talk.pack(list(arguments)) for arguments in given]
        reply = self._ask({"name": name, "calls": packed, "order": order, "asks": False})
        if "error" in reply:
            raise self._wrong(reply["error"], name)
        values = talk.unpack(reply["values"])
        if not isinstance(values, list) or len(values) != len(order):
            raise ValueError("not as many results as calls")
        return values, talk.unpack(reply.get("left"))

    def raises(self, name: str, function: Callable) -> str | None:
        """Return what a test says to `function`: None, or its error and line; Wrong if it is not written."""
        functions: list[Callable] = []
        packed = talk.pack([function], functions)
        reply = self._ask({"name": name, "calls": [packed], "order": [0], "asks": True}, functions)
        if (error := reply.get("error")) is None:
            return None
        if error["type"] == "NotImplementedError" or error["type"] in OWN:
            raise self._wrong(error, name)
        return error["type"] if error["type"] == "AssertionError" else told(error, name)

    def value(self, name: str):
        """Return a variable of the submission."""
        reply = self._ask({"name": name})
        if "error" in reply:
            raise self._wrong(reply["error"], name)
        return talk.unpack(reply["value"])

    def _wrong(self, error: dict, name: str) -> Wrong:
        self.hung |= error["type"] == "TooLong"
        return Wrong(told(error, name))

    def _ask(self, request: dict, functions: list[Callable] = ()) -> dict:
        ours = Implementations(functions) if functions else None
        process, clock = self._process, self._process.clock
        until = clock.after(CALL_SECONDS)
        late = False
        try:
            process.send(request | self._more, CALL_SECONDS)
            while True:
                try:
                    message = process.receive(GRACE if late else until[0] - clock.seconds)
                    if "ask" not in message or not ours:
                        return TOO_LATE if late else checked(message.get("reply"))
                    answer = {"error": TOO_LONG} if late else ours.ask(message, clock, until)
                    process.send(answer, CALL_SECONDS)
                except TooLate:
                    if late:
                        raise
                    late = True
                    process.stop_call()
        finally:
            if ours:
                ours.close()


TOO_LATE = {"error": {"type": "TooLong", "line": None, "text": ""}}


def checked(reply) -> dict:
    """Return the reply to a request, of which only an error's kind and line are taken over; Ended if it is none."""
    if not isinstance(reply, dict) or not reply.keys() & {"error", "value", "values"}:
        raise Ended("it sent no readable message")
    return {"error": error_of(reply["error"])} if "error" in reply else reply


def error_of(error) -> dict:
    """Return an error as a submission reports it: nothing but a known kind, a small line and a short text."""
    error = error if isinstance(error, dict) else {}
    kind, line, text = error.get("type"), error.get("line"), error.get("text")
    return {
        "type": kind if isinstance(kind, str) and kind in BUILTIN | OWN else "Exception",
        "line": line if type(line) is int and 0 < line <= LONGEST_TOLD else None,
        "text": clean(text)[:200] if isinstance(text, str) else "",
    }


def told(error: dict, name: str) -> str:
    """Return an error in a few words; its text is left out, for it could hold a test's numbers."""
    fixed = {
        "NotImplementedError": f"{name} is not written yet",
        "missing": f"{name} is not defined",
        "TooLong": f"{name}: {TOO_LONG}",
        "died": f"{name}: its process ended",
        "MemoryError": f"{name}: {TOO_MUCH}",
    }
    line = f" in line {error['line']}" if error["line"] else ""
    return fixed.get(error["type"], f"{name} raises {error['type']}{line}")


def clean(text: str) -> str:
    """Return a text that can be written to any file: half of a surrogate pair, say, cannot."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def plain(path: Path) -> bytes:
    """Read a file that must be one, of bounded size: no link, no pipe, no device; ValueError otherwise."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ValueError("a link, not a file" if path.is_symlink() else f"unreadable, {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise ValueError("not a plain file")
    with open(file, "rb") as source:
        data = source.read(LARGEST_NOTEBOOK + 1)
    if len(data) > LARGEST_NOTEBOOK:
        raise ValueError(f"larger than {LARGEST_NOTEBOOK >> 20} MB")
    return data


def parsed(data: bytes) -> NotebookNode:
    """Read of a notebook what is graded: its cells, without outputs and whatever else may stand there."""
    found = json.loads(data.decode("utf-8-sig", "surrogatepass"))
    if found["nbformat"] != 4:
        raise ValueError("its nbformat is not 4; open and save it in Jupyter")
    if len(found["cells"]) > CELLS:
        raise ValueError(f"more than {CELLS} cells")
    return nbformat.from_dict({"cells": [bare(cell) for cell in found["cells"]]})


def bare(cell: dict) -> dict:
    """Return a cell's kind, text, name, count, and as many of the pictures pasted into it as may be shown."""
    mark = (cell.get("metadata") or {}).get("nbgrader")
    name = mark.get("grade_id") if isinstance(mark, dict) else None
    return {
        "cell_type": cell["cell_type"],
        "source": "".join(cell["source"]),
        "metadata": {"nbgrader": {"grade_id": name}} if isinstance(name, str) else {},
        "execution_count": cell.get("execution_count"),
        "attachments": dict([*(cell.get("attachments") or {}).items()][:PASTED]),
    }


def grade_id(cell: NotebookNode) -> str | None:
    """Return the name that the release gave a cell."""
    mark = cell.metadata.get("nbgrader")
    return mark.get("grade_id") if isinstance(mark, dict) else None


def pasted(cell: NotebookNode) -> dict:
    """Return the pictures that a student pasted into a text, those that are PNG or JPEG and not too large."""
    found = {}
    for name, kinds in (cell.get("attachments") or {}).items():
        kept = {kind: data for kind, begin in KINDS.items() for data in picture([kinds.get(kind)], begin)}
        if kept:
            found[clean(name)] = kept
    return found


def canonical(release: NotebookNode, handed: NotebookNode | None, notes: list[str]) -> NotebookNode:
    """Return the submission in the release's structure: tests as released, each named cell once, none missing.

    Whatever else the student wrote stays where it is, as ordinary cells.
    """
    known = {grade_id(cell): cell for cell in release.cells if grade_id(cell)}
    fresh = deepcopy(release)
    fresh.cells, seen = [], set()
    for cell in handed.cells if handed else release.cells:
        name, text = grade_id(cell), "".join(cell.source).encode("utf-8", "replace").decode("utf-8")
        if name in known and name not in seen and cell.cell_type == known[name].cell_type:
            new = deepcopy(known[name])
            if new.metadata.nbgrader.solution:
                new.source = text
            seen.add(name)
        else:
            if name in known:
                notes.append(f"a second cell '{name}' was run as an ordinary cell")
            new = (new_code_cell if cell.cell_type == "code" else new_markdown_cell)(text)
        if new.cell_type == "markdown" and (pictures := pasted(cell)):
            new.attachments = pictures
        if new.cell_type == "markdown":  # a picture that is named but not there ends nbgrader's feedback
            for missing in set(re.findall(r"attachment:([^)\"'\s>]+)", new.source)) - set(
                new.get("attachments", {})
            ):
                new.source = new.source.replace(f"attachment:{missing}", "missing-picture")
        fresh.cells.append(new)
    for name in [name for name in known if name not in seen] if handed else ():
        notes.append(f"the cell '{name}' is missing")
        official = deepcopy(known[name])
        if official.metadata.nbgrader.solution:
            official.source = ""
        fresh.cells.append(official)
    for number, cell in enumerate(fresh.cells):
        cell.id = f"cell-{number}"
    return fresh


def run_cells(notebook: NotebookNode, assignment: Assignment, process: Process, skip: set[int], where: list):
    """Run all cells but those in `skip`; outputs and errors go into the notebook, `where` follows.

    The tests that students see are run too, for what they define, in less time.
    """
    cells = [(number, cell) for number, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    process.start(
        {
            "cells": ["" if number in skip else cell.source for number, cell in cells],
            "seconds": ALL_SECONDS,
            "memory": MEMORY,
            "readable": sandbox.readable(),
            "namespaces": bool(sandbox.namespaces()),
            "uses": assignment.uses,
            "refuses": assignment.refuses,
        }
    )
    for place, (number, cell) in enumerate(cells):
        where[:] = [number]
        try:
            message = process.receive(CALL_SECONDS if is_test(cell) else CELL_SECONDS)
        except TooLate:
            process.interrupt()
            message = process.receive(GRACE)
        if message.get("cell") != place:
            raise Ended("it sent no readable message")
        cell.outputs = []
        if isinstance(text := message.get("output"), str) and text:
            cell.outputs.append(nbformat.v4.new_output("stream", name="stdout", text=clean(text[:10_000])))
        for data in picture(message.get("pictures")):
            cell.outputs.append(nbformat.v4.new_output("display_data", {"image/png": data}))
        if message.get("error") is not None:
            cell.metadata["error"] = error_of(message["error"])
    where[:] = []


def picture(sent, begin: bytes = PNG) -> list[str]:
    """Return, in clean base64, what is a picture of bounded size among what a submission sent as pictures."""
    found = []
    for data in sent[:4] if isinstance(sent, list) else ():
        with contextlib.suppress(TypeError, ValueError):
            raw = base64.b64decode(data)
            pixels = int.from_bytes(raw[16:20]) * int.from_bytes(raw[20:24]) if begin == PNG else 0
            if raw.startswith(begin) and len(raw) <= LARGEST_PICTURE and pixels <= PIXELS:
                found.append(base64.b64encode(raw).decode())
    return found


def bounded(notebook: NotebookNode, notes: list[str]) -> None:
    """Cut what the feedback would show to a few megabytes, and say so; it was run as it is."""
    letters, room, cut = SHOWN, PICTURES, False
    for cell in notebook.cells:
        own = () if is_test(cell) else (cell, *cell.get("outputs", ()))
        for each, key in [(each, key) for each in own for key in ("source", "text") if key in each]:
            most = min(letters, SHOWN_OF_ONE)
            cut |= len(each[key]) > most
            each[key] = each[key][:most]
            letters -= len(each[key])
        for output in [output for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})]:
            room -= len(output.data["image/png"])
            if room < 0:
                cell.outputs.remove(output)
        pasted = [data for kinds in cell.get("attachments", {}).values() for data in kinds.values()]
        if pasted:  # each may stand in the text more than once
            room -= max(map(len, pasted)) * cell.source.count("![")
            if room < 0:
                del cell["attachments"]
                cell.source = cell.source.replace("attachment:", "missing-picture:")
    if cut or room < 0:
        notes.append("the feedback leaves out pictures or text: there is too much of them")
    if len(notes) > NOTES:
        notes[NOTES - 1 :] = [f"and {len(notes) - NOTES + 1} more notes"]


def is_test(cell: NotebookNode) -> bool:
    """Say whether a cell holds an automatic test."""
    mark = cell.metadata.get("nbgrader")
    return bool(mark and mark.get("grade") and not mark.get("solution"))


def complain(notebook: NotebookNode, order_kept: bool) -> list[str]:
    """Return a note on every cell that raised something other than a stub's error; tests are told of elsewhere."""
    notes, hint = [], "" if order_kept else "; the notebook was not run from top to bottom before it was handed in"
    for number, cell in enumerate(notebook.cells, 1):
        error = cell.metadata.pop("error", None)
        if error and error["type"] != "NotImplementedError" and not is_test(cell):
            name = f"'{grade_id(cell)}'" if grade_id(cell) else f"number {number}"
            line = f" in line {error['line']}" if error["line"] else ""
            text = {"TooLong": TOO_LONG, "MemoryError": TOO_MUCH}.get(error["type"], error["text"])
            notes.append(f"the cell {name} raises {error['type']}{line}: {text}{hint}")
    return notes


@cache
def reference(assignment: str) -> Reference:
    """Return the model solution's functions; made once."""
    return Reference(load(assignment))


def judge(path: Path | bytes, student: str, assignment: str, release: NotebookNode, secret: str = "") -> Result:
    """Grade a notebook, given by its path or its bytes; whatever it does, a result comes back.

    Raises
    ------
    CannotStart
        if this machine cannot start the process of a submission.
    """
    result = Result(student, assignment, dict.fromkeys(checks_of(assignment), "it was not run"))
    try:
        data = path if isinstance(path, bytes) else plain(path)
        if not data.strip():
            raise ValueError("the file is empty")
        handed = parsed(data)
        result.notebook = canonical(release, handed, result.notes)
    except Exception as error:
        handed, result.notebook = None, canonical(release, None, result.notes)
        why = str(error) if type(error) is ValueError else type(error).__name__
        why = "it is not JSON" if isinstance(error, json.JSONDecodeError) else why
        result.notes.append(f"{assignment}.ipynb is no notebook that can be read: {clean(why)[:60]}")
    if handed is not None:
        counts = [cell.get("execution_count") for cell in handed.cells if cell.cell_type == "code"]
        counts = [count for count in counts if type(count) is int]
        _run(result, load(assignment), sorted(counts) == counts, secret)
    bounded(result.notebook, result.notes)
    _show(result)
    return result


def _run(result: Result, assignment: Assignment, order_kept: bool, secret: str) -> None:
    """Run the cells and the hidden tests; a cell that ends the process is left out of another try."""
    skip: set[int] = set()
    left = ALL_SECONDS
    for _ in range(4):
        where: list[int] = []
        folder = tempfile.mkdtemp(prefix="submission-")
        try:
            process = Process(folder, left)
            try:
                run_cells(result.notebook, assignment, process, skip, where)
                result.notes += complain(result.notebook, order_kept)
                student = Student(process, result.student, assignment)
                if student.named not in ("", student.id):
                    result.notes.append(f"the id cell says '{student.named}', the folder '{student.id}'")
                test(result, student, secret)
                return
            except Ended as error:
                if not where:
                    result.notes.append(f"the hidden tests could not be finished: {error}")
                    return
                cell = result.notebook.cells[where[0]]
                name = f"'{grade_id(cell)}'" if grade_id(cell) else f"number {where[0] + 1}"
                result.notes.append(f"the cell {name} was left out: {error}")
                skip.add(where[0])
                left = process.left()
                if left <= 0:
                    break
            finally:
                process.close()
        finally:
            for remove in (["chmod", "-R", "u+rwX", folder], ["rm", "-rf", folder]):  # however deep its folders are
                subprocess.run(remove, stderr=subprocess.DEVNULL)
    for cell in result.notebook.cells:
        cell.metadata.pop("error", None)
    result.notes.append("too many cells end the process, or take too long; nothing was tested")


def test(result: Result, student: Student, secret: str = "", only: str = "") -> None:
    """Go through the hidden tests, or `only` a task's; a task that hung in two of them is not tried again."""
    hung: dict[str, int] = {}
    checks = [check for check in checks_of(result.assignment) if only in ("", check.task)]
    answers = hunt(student, checks, secret)
    for check in checks:
        student.hung = False
        try:
            if hung.get(check.task, 0) >= 2:
                raise Wrong(f"{check.task}: {TOO_LONG}")
            if check.wrong:
                check.run(answers)
            else:
                for draw in draws(check, result.assignment, result.student, secret):
                    check.run(student, reference(result.assignment), draw)
            del result.lost[check]
        except Ended:
            raise
        except Wrong as wrong:
            result.lost[check] = str(wrong)
            hung[check.task] = hung.get(check.task, 0) + student.hung
        except Exception as error:  # what a function returned may be anything; a test that trips over it is failed
            result.lost[check] = f"its result does not fit: {nearest(error)}"


def limit_here() -> None:
    """Limit memory and time of the grader's own process for one submission; its children set their own limits."""
    used = psutil.Process().memory_info().data if sys.platform == "linux" else 0
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (round(time.process_time()) + ALL_SECONDS // 2, hard))


def _show(result: Result) -> None:
    """Write each task's report under its tests, and the number from which nbgrader takes the points."""
    most = tasks_of(result.assignment)
    for cell in result.notebook.cells:
        if is_test(cell):
            task = grade_id(cell).removeprefix("test-")
            lines = [f"{task}: {result.points[task]} of {most[task]} points", *result.report(task)]
            number = {"text/plain": str(result.points[task])}
            cell.outputs = [
                nbformat.v4.new_output("stream", name="stdout", text="\n".join(lines) + "\n"),
                nbformat.v4.new_output("execute_result", number, execution_count=1),
            ]
            cell.execution_count = 1
