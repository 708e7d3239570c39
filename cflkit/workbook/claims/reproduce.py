"""Runs into records, and what a table lacks, cheapest first.

Each run leaves one record, goes on where it was stopped, and is never made twice.
"""

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pandas as pd
from filelock import FileLock, Timeout

from cflkit.checks import known
from cflkit.data.federation import Federation
from cflkit.engine.checkpoint import BusyError
from cflkit.engine.history import History
from cflkit.engine.simulation import check_device
from cflkit.workbook import places
from cflkit.workbook.claims import ledger
from cflkit.workbook.runs import pool, protocols, records

CHECKPOINTS = Path("runs")


def run(
    plan: protocols.Plan,
    seconds: float | None = None,
    *,
    federation: Federation | None = None,
    out: Path = records.FOLDER,
    checkpoints: Path = CHECKPOINTS,
    checkpoint: Path | None = None,
    again: bool = False,
    **settings,
) -> tuple[Path, str]:
    """Run a plan into its record, from its last checkpoint, unless it has a record already.

    Parameters
    ----------
    plan : Plan
        What to run.
    seconds : float, optional
        Stop after so long, at the end of a round; the same call goes on from there.
    federation : Federation, optional
        The plan's federation, if it is at hand already.
    out : Path
        Where records go.
    checkpoints : Path
        Where an unfinished run is kept; it is deleted when the record has been written.
    checkpoint : Path, optional
        A folder to keep this run in instead, for good: with more rounds it goes on from there.
    again : bool
        Run it although it has a record, and overwrite that.
    **settings
        Settings of :class:`~cflkit.engine.simulation.Simulation` in place of the plan's (progress, ...).

    Returns
    -------
    Path
        The record.
    str
        "", or that it was there, made at which commit, and whether the code has changed since.

    Raises
    ------
    ValueError
        For a folder that cannot be written to, a checkpoint of another configuration, or a record that is damaged.
    BusyError
        If another process is at work on this run.
    TimeIsUp
        If time is up before the last round.
    """
    clock = pool.Clock(seconds)
    try_folders(out, checkpoints)
    kept = checkpoint or checkpoints / plan.protocol / f"{plan.label}-s{plan.seed}"
    simulation = plan.simulation(federation, checkpoint=kept, **settings)
    target = records.path(plan.protocol, plan.label, simulation.config, out)
    with alone(kept):  # until the record is there: nobody finds a run that is neither locked nor recorded
        new = again or not target.exists()
        if checkpoint is not None or new:  # what a checkpoint holds is not run again
            history = simulation.run(after=lambda so_far: len(so_far.rounds) > simulation.rounds or clock.check())
        was = "" if new else _was_there(target, records.code(records.of_method(simulation)))
        if new:
            records.write(plan.protocol, plan.label, simulation, history, out)
        if checkpoint is None:
            shutil.rmtree(kept, ignore_errors=True)
    return target, was


def _was_there(target: Path, code: str) -> str:
    """Say how old a record is: the configuration that names it does not tell the code that made it."""
    try:
        made = records.read(target)["provenance"]
    except ValueError as error:
        raise ValueError(f"{error}; delete {places.near(target)} to run it again") from None
    changed = " (code has changed since)" * (made.get("code") != code)
    return f"; was there, made at commit {made['commit'] or 'unknown'}{changed}"


@contextlib.contextmanager
def alone(run: Path) -> Iterator[None]:
    """Hold a run while it is worked on; the lock of a process that died is free.

    Raises
    ------
    BusyError
        If another process holds it.
    """
    run.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(run.with_name(f"{run.name}.lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        line = f"run = {str(run)!r}: must be free; another process is at work on this run"
        raise BusyError(line) from None
    with contextlib.ExitStack() as end:
        end.callback(lock.release)
        end.callback(Path(lock.lock_file).unlink, missing_ok=True)  # first: who waits sees that it is gone
        yield


def reproduce(table: str, seeds: Sequence[int] | None = None, minutes: float | None = None, *,
              out: Path = records.FOLDER, checkpoints: Path = CHECKPOINTS, progress: bool = True,
              **how) -> int:  # fmt: skip
    """Run what a table lacks, cheapest first, and pass over what another process is at work on.

    A line is printed for each run that begins, with its estimated time, and for each that ends; or one that the
    table lacks none.

    Parameters
    ----------
    table : str
        A table of ``book/papers/tables.yaml``.
    seeds : sequence of int, optional
        Which seeds are wanted; as many as the table asks for if None.
    minutes : float, optional
        Stop after so long, each run at the end of a round; the same call goes on from there.
    out, checkpoints : Path
        As for :func:`run`.
    progress : bool
        Show a bar for each run.
    **how
        As for :class:`~cflkit.workbook.runs.protocols.Plan`.

    Returns
    -------
    int
        How many runs failed.

    Raises
    ------
    ValueError
        For an unknown table, or a device that is not here.
    FileNotFoundError
        For images that are not on this machine.
    TimeIsUp
        When the budget is spent before the table is full.
    """
    runs = lacking(table, seeds, out, **how)
    if not runs:
        print(f"{table} lacks no run")
    for label, seed in ledger.recorded(table, seeds, out):
        _tidy(checkpoints / ledger.tables()[table]["protocol"] / f"{label}-s{seed}")
    where = {"out": out.resolve(), "checkpoints": checkpoints.resolve()}  # a worker may be in another folder
    tasks = [partial(run, plan, **where, progress=progress) for plan, _ in runs]
    ended = failed = told = 0  # told: the estimates, in minutes, of what has run
    began, total = time.monotonic(), sum(minutes for _, minutes in runs)

    def begun(number: int) -> None:
        plan, estimate = runs[number]
        print(f"{number + 1} of {len(runs)}: {plan}, about {_long(estimate)}", flush=True)

    for number, value, error in pool.run(tasks, None if minutes is None else 60 * minutes, begun):
        plan, estimate = runs[number]
        if isinstance(error, pool.TimeIsUp):
            continue
        ended, told = ended + 1, told + estimate
        if isinstance(error, BusyError):
            print(f"{plan}: another process is at work on it", flush=True)
        elif error:
            failed += 1
            print(f"cflkit: {plan} failed: {error}", file=sys.stderr, flush=True)
        else:  # what is left takes as long of its estimate as what has run
            left = (time.monotonic() - began) / 60 * (total - told) / told
            print(f"{places.near(value[0])}" + f"; about {_long(left)} left" * (ended < len(runs)), flush=True)
    if ended < len(runs):
        raise pool.TimeIsUp(f"time is up after {minutes:g} min")
    return failed


def lacking(
    table: str, seeds: Sequence[int] | None = None, out: Path = records.FOLDER, **how
) -> list[tuple[protocols.Plan, float]]:
    """List the runs that a table lacks, cheapest first, each with its minutes; see :func:`reproduce`."""
    known(ledger.tables(), table, "table")
    check_device(how.get("device", "cpu"))
    runs = []
    for m in ledger.missing(table, seeds, out):
        runs.append((protocols.plan(m.protocol, m.label, m.seed, **how), m.minutes))
        runs[-1][0].need_images()
    return runs


def _tidy(kept: Path) -> None:
    """Remove what is left of a recorded run whose process was killed between its record and its end."""
    if kept.exists() or kept.with_name(f"{kept.name}.lock").exists():
        with contextlib.suppress(BusyError), alone(kept):
            shutil.rmtree(kept, ignore_errors=True)


def _long(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes >= 1 else "less than a minute"


def show(record: Path) -> list[Path]:
    """Write the rounds of a record beside it, as CSV and as a learning curve.

    Returns
    -------
    list of Path
        The two files.
    """
    from cflkit.workbook.show import plots

    table, picture = record.with_suffix(".csv"), record.with_suffix(".png")
    read = records.read(record)
    History(rounds=read["rounds"]).to_csv(table)
    scores = pd.DataFrame(read["rounds"])
    y = "accuracy" if "accuracy" in scores else "personal_accuracy"
    plots.use_style()
    with places.atomic_write(picture) as part:
        plots.learning_curves({read["label"].partition(",")[0]: scores}, y).savefig(part, format="png")
    return [table, picture]


def try_folders(out: Path, checkpoints: Path) -> None:
    """Require that records and checkpoints can be written, before hours of work.

    Raises
    ------
    ValueError
        The line names the folder and says why it cannot be written to.
    """
    places.need_folder("out", out)
    places.need_folder("checkpoints", checkpoints)
