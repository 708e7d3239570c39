"""Many runs side by side, by joblib: in this process, on processes of this machine, or on a Dask cluster.

A task is a function of the seconds that are left to it, perhaps infinitely many. It can be sent to another process.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from cflkit.workbook import places

Task = Callable[[float], Any]
Outcome = tuple[int, Any, Exception | None]  # the task's number, what it returned, and what went wrong
THREADS = {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "MPLBACKEND": "agg"}  # of a worker


class TimeIsUp(Exception):
    """A budget is spent."""


class WorkerDied(RuntimeError):
    """A worker was killed, or out of memory."""


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def place(jobs: int, dask: str | None = None) -> Iterator[None]:
    """Make joblib run tasks on `jobs` processes of this machine, or on the Dask cluster at an address.

    Workers of this machine end when this process does, however it ends. Those of a cluster must see its folders.
    """
    from joblib import parallel_config

    if not dask:
        begin = {"initializer": _begin, "initargs": (os.getpid(),)} if jobs > 1 else {}
        with parallel_config("loky", n_jobs=jobs, **begin):
            yield
        return
    try:
        from distributed import Client

        client = Client(dask, timeout=10)
    except ModuleNotFoundError:
        raise ModuleNotFoundError("dask is not installed: pip install 'cflkit[cluster]'") from None
    except (OSError, ValueError) as error:
        line = f"dask = {dask!r}: must be the address of a scheduler that answers ({error})"
        raise ValueError(line) from None
    with client, parallel_config("dask", n_jobs=-1):
        yield


def _begin(parent: int) -> None:
    """Set up a worker: an interrupt is its parent's matter, and it ends with its parent."""
    from tqdm import tqdm

    os.environ.update(THREADS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tqdm.set_lock(threading.RLock())  # its own is a semaphore, which a worker that is killed leaves behind

    def watch():
        while os.getppid() == parent:
            sleep(0.1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run(tasks: Sequence[Task], seconds: float = inf) -> Iterator[Outcome]:
    """Run tasks where :func:`place` says, and give the outcomes as they come; none when `seconds` are over."""
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    end = monotonic() + seconds
    calls = (delayed(attempt)(number, task, left) for number, task in enumerate(tasks)
             if (left := end - monotonic()) > 0)  # fmt: skip
    try:
        yield from Parallel(return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1)(calls)
    except TerminatedWorkerError:
        line = "a worker died (killed, or out of memory); the same command goes on, and fewer --jobs need less"
        raise WorkerDied(line) from None


def attempt(number: int, task: Task, seconds: float) -> Outcome:
    """Run a task where one is; what goes wrong is made an error that can be sent anywhere, of one line."""
    import torch

    from cflkit.engine.checkpoint import BusyError

    torch.set_num_threads(1)
    try:
        return number, task(seconds), None
    except Exception as error:
        plain = isinstance(error, TimeIsUp | BusyError | OSError | ValueError) and len(error.args) <= 3
        return number, None, error if plain else RuntimeError(f"{type(error).__name__}: {error}")


def report(
    tasks: Mapping[str, Task], seconds: float = inf, minutes: Sequence[float] = ()
) -> tuple[dict[str, Path], int]:
    """Run tasks that give a file and whether it was there, and print a line for each that ends.

    `minutes` say how long each takes about, if known. Returns the files by name, and how many tasks failed.
    :class:`TimeIsUp` is raised when the budget of `seconds` was spent before the last task had ended.
    """
    from cflkit.engine.checkpoint import BusyError

    names, began, done, made, found, failed = [*tasks], monotonic(), 0, 0.0, {}, 0
    long = minutes or [1.0] * len(names)
    rest = sum(long)
    if minutes:
        print(f"{len(names)} to run, about {_long(60 * rest)} on one core", flush=True)
    for number, value, error in run([*tasks.values()], seconds):
        if isinstance(error, TimeIsUp):
            continue
        name, done, rest = names[number], done + 1, rest - long[number]
        if isinstance(error, BusyError):
            print(f"{name}: another process is at work on it", flush=True)
        elif error:
            failed += 1
            print(f"cflkit: {name} failed: {error}", file=sys.stderr, flush=True)
        else:  # what is left takes as long of its estimate as what has run
            found[name], was = value
            made += long[number] * (not was)
            left = f"; about {_long((monotonic() - began) * rest / made)} left" if rest and made else ""
            print(f"{done} of {len(names)}: {name}: {places.near(found[name])}{was or left}", flush=True)
    if done < len(names):
        raise TimeIsUp("time is up")
    return found, failed


def _long(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"
