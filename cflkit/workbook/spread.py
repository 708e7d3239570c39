"""Many runs side by side: one after the other in this process, on workers of this machine, or on any executor.

A task is a function of the seconds that are left to it (None for no limit). It can be sent to another process.
"""

import contextlib
import importlib
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from tqdm import tqdm

from cflkit.checks import require
from cflkit.engine.checkpoint import BusyError

Task = Callable[[float | None], Any]


class TimeIsUp(Exception):
    """A budget is spent."""


@dataclass(frozen=True)
class Outcome:
    """How a task ended: with a value, or with an error.

    Attributes
    ----------
    number : int
        Which of the tasks.
    value : object
        What it returned.
    error : Exception or None
        What went wrong: :class:`TimeIsUp`, a :class:`~cflkit.engine.checkpoint.BusyError`, or anything else.
    """

    number: int
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True)
class Pool:
    """Where tasks are run.

    Attributes
    ----------
    start : callable
        Returns a context that gives an executor, and ends it with all that runs on it.
    width : int
        How many tasks it runs at a time.
    """

    start: Callable[[], AbstractContextManager[Executor]]
    width: int


class Clock:
    """A budget of time, checked by whoever is asked to stop; no signals, so it works in any thread or process."""

    def __init__(self, seconds: float | None):
        self.end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Seconds that are left, None for no limit."""
        return None if self.end is None else self.end - time.monotonic()

    def check(self, *_) -> None:
        """Raise :class:`TimeIsUp` if nothing is left."""
        if self.over:
            raise TimeIsUp

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.end is not None and time.monotonic() >= self.end


# ---------------------------------------------------------------------- where
def workers(jobs: int) -> Pool:
    """Processes of this machine, one thread each; they end when this process does, however it ends."""

    @contextmanager
    def start():
        from joblib.externals.loky.process_executor import ProcessPoolExecutor

        env = {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "MPLBACKEND": "agg"}
        executor = ProcessPoolExecutor(jobs, initializer=_begin, initargs=(os.getpid(),), env=env)
        try:
            yield executor
        except BaseException:
            executor.shutdown(kill_workers=True)
            raise
        executor.shutdown()

    return Pool(start, jobs)


def executor(name: str, jobs: int) -> Pool:
    """An executor of any library that has one, by its full name.

    Parameters
    ----------
    name : str
        Such as ``concurrent.futures.ThreadPoolExecutor`` or ``mpi4py.futures.MPIPoolExecutor``.
    jobs : int
        How many tasks at a time.

    Raises
    ------
    ValueError
        There is no such class.
    """
    module, _, kind = name.rpartition(".")
    found = None
    with contextlib.suppress(ImportError, ValueError, TypeError):
        found = getattr(importlib.import_module(module), kind, None)
    ok = isinstance(found, type) and issubclass(found, Executor)
    require(ok, "executor", name, "the full name of an executor, such as concurrent.futures.ThreadPoolExecutor")
    return Pool(lambda: found(max_workers=jobs), jobs)


def dask(address: str) -> Pool:
    """A Dask cluster that is running already. Its workers must see the folders of this machine.

    Raises
    ------
    ModuleNotFoundError
        Dask is not installed.
    ValueError
        Nothing answers at the address, or no worker is there.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise ModuleNotFoundError("dask is not installed: pip install 'cflkit[cluster]'") from None
    try:
        with Client(address, timeout=10, set_as_default=False) as client:
            threads = sum(client.nthreads().values())
    except (OSError, ValueError) as error:
        raise ValueError(f"dask = {address!r}: must be the address of a scheduler that answers ({error})") from None
    require(threads > 0, "dask", address, "a scheduler that has workers")

    @contextmanager
    def start():
        with Client(address, timeout=10, set_as_default=False) as client:
            yield client.get_executor(pure=False)

    return Pool(start, threads)


def _begin(parent: int) -> None:
    """Set up a worker: an interrupt is its parent's matter, and it ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tqdm.set_lock(threading.RLock())  # its own is a semaphore, which a worker that is killed leaves behind

    def watch():
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# ---------------------------------------------------------------------- how
def spread(
    tasks: Sequence[Task],
    pool: Pool | None = None,
    seconds: float | None = None,
    begun: Callable[[int], object] = lambda number: None,
) -> Iterator[Outcome]:
    """Run tasks, and give the outcomes as they come. Where time runs out, the tasks that are left have none.

    A worker that dies takes nobody with it: what ran beside it runs again, one at a time, and only what was alone
    when a worker died has failed.

    Parameters
    ----------
    tasks : sequence of callable
        See this module.
    pool : Pool, optional
        Where; in this process and one after the other if None.
    seconds : float, optional
        The budget.
    begun : callable
        Told the number of each task that begins.
    """
    clock = Clock(seconds)
    if pool is None:
        for number, task in enumerate(tasks):
            if clock.over:
                return
            begun(number)
            yield Outcome(number, *attempt(task, clock.left()))
        return
    with ExitStack() as stack:
        running: dict[Future, int] = {}
        todo, suspects = deque(range(len(tasks))), deque()
        at_work = stack.enter_context(pool.start())
        while True:
            while not clock.over and (number := _next(todo, suspects, len(running), pool.width)) is not None:
                begun(number)
                running[at_work.submit(attempt, tasks[number], clock.left())] = number
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                try:
                    outcome = Outcome(running[future], *future.result())
                except BrokenExecutor:
                    break
                except Exception as error:  # what an executor says of a task that it has lost
                    outcome = Outcome(running[future], error=_plain(error))
                del running[future]
                yield outcome
            else:
                continue
            lost = list(running.values())
            running.clear()
            stack.close()
            if len(lost) == 1:
                yield Outcome(lost[0], error=RuntimeError("the worker that was at work on it died"))
            else:
                print("cflkit: a worker died; what was running starts again, one at a time", file=sys.stderr)
                suspects.extend(lost)
            at_work = stack.enter_context(pool.start())


def _next(todo: deque, suspects: deque, running: int, width: int) -> int | None:
    """What to begin now, if anything; a suspect runs alone."""
    if suspects:
        return None if running else suspects.popleft()
    return todo.popleft() if todo and running < width else None


def attempt(task: Task, seconds: float | None) -> tuple[Any, Exception | None]:
    """Run a task where one is: its value, or its error."""
    torch.set_num_threads(1)
    try:
        return task(seconds), None
    except Exception as error:
        return None, _plain(error)


def _plain(error: Exception) -> Exception:
    """An error that can be sent anywhere, and is one line."""
    if isinstance(error, TimeIsUp | BusyError | OSError | ValueError) and len(error.args) <= 3:
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")
