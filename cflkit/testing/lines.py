"""Lines of a stranger's file: which of them ran, and which one raised an error."""

import inspect
import sys
import threading
import traceback
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType


class Lines:
    """The lines of functions in a class's file, and those that ran while a ``with`` block lasted, in any thread.

    Parameters
    ----------
    kind : type
        A class of the file.

    Attributes
    ----------
    ran : set of int
        Lines of the file, from 1.
    """

    def __init__(self, kind: type):
        self.file, self.ran = inspect.getfile(kind), set[int]()

    def __enter__(self):
        self._before = sys.gettrace(), threading.gettrace()
        sys.settrace(self._called)
        threading.settrace(self._called)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before[0])
        threading.settrace(self._before[1])

    def _called(self, frame: FrameType, *_):
        return self._line if frame.f_code.co_filename == self.file else None  # other files lose no time

    def _line(self, frame: FrameType, *_):
        self.ran.add(frame.f_lineno)
        return self._line

    def missed(self) -> list[str]:
        """Name the lines of functions that never ran, those in a row together: ``["7", "40-44"]``."""
        code = compile(Path(self.file).read_bytes(), self.file, "exec")
        ordered = sorted(set(_of_functions(code)))
        runs = [list(lines) for ran, lines in groupby(ordered, self.ran.__contains__) if not ran]
        return [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]


def _of_functions(code: CodeType) -> Iterator[int]:
    """All lines of functions, at any depth; their heads run where they are defined."""
    if code.co_flags & inspect.CO_OPTIMIZED:  # neither a module nor a class
        head = None if code.co_name.startswith("<") else code.co_firstlineno  # a lambda has its body there
        yield from (line for *_, line in code.co_lines() if line and line != head)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _of_functions(part)


def where(error: Exception, file: str, head: int = 1) -> str:
    """Give ``FILE:LINE``, the last line of a file that an error passed through; `head` if there is none."""
    passed = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:  # before any of it ran
        passed = [error.lineno]
    return f"{Path(file).name}:{[head, *passed][-1]}"
