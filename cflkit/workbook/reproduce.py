"""Runs into records, and what a table lacks, cheapest first.

Each run leaves one record, goes on where it was stopped, and is never made twice.
"""

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pandas as pd
from filelock import FileLock, Timeout

from cflkit.checks import known, require
from cflkit.data.federation import Federation
from cflkit.engine.checkpoint import BusyError
from cflkit.engine.history import History
from cflkit.engine.simulation import check_device
from cflkit.workbook import ledger, places, protocols, records
from cflkit.workbook.spread import Clock, Outcome, Pool, TimeIsUp, spread

CHECKPOINTS = Path("runs")


def run(
    plan: protocols.Plan,
    seconds: float | None = None,
    *,
    federation: Federation | None = None,
    out: Path = records.FOLDER,
    checkpoints: Path = CHECKPOINTS,
    checkpoint: Path | None = None,
    **settings,
) -> Path:
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
    **settings
        Settings of :class:`~cflkit.engine.simulation.Simulation` in place of the plan's (progress, ...).

    Returns
    -------
    Path
        The record.

    Raises
    ------
    ValueError
        For a folder that cannot be written to, or a checkpoint of another configuration.
    BusyError
        If another process is at work on this run.
    TimeIsUp
        If time is up before the last round.
    """
    clock = Clock(seconds)
    try_folders(out, checkpoints)
    kept = checkpoint or checkpoints / plan.protocol / f"{plan.label}-s{plan.seed}"
    simulation = plan.simulation(federation, checkpoint=kept, **settings)
    target = records.path(plan.protocol, plan.label, simulation.config, out)
    with alone(kept):  # until the record is there: nobody finds a run that is neither locked nor recorded
        if checkpoint is not None or not target.exists():  # what a checkpoint holds is not run again
            history = simulation.run(after=lambda so_far: len(so_far.rounds) > simulation.rounds or clock.check())
        if not target.exists():
            records.write(plan.protocol, plan.label, simulation, history, out)
        if checkpoint is None:
            shutil.rmtree(kept, ignore_errors=True)
    return target


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
              pool: Pool | None = None, out: Path = records.FOLDER, checkpoints: Path = CHECKPOINTS,
              **how) -> int:  # fmt: skip
    """Run what a table lacks, cheapest first, and pass over what another process is at work on.

    A line is printed for each run that begins, with its time as this machine's last runs make it likely, and for
    each that ends; or one that the table lacks none.

    Parameters
    ----------
    table : str
        A table of ``book/papers/tables.yaml``.
    seeds : sequence of int, optional
        Which seeds are wanted; as many as the table asks for if None.
    minutes : float, optional
        Stop after so long, each run at the end of a round; the same call goes on from there.
    pool : Pool, optional
        Where; one after the other in this process if None.
    out, checkpoints : Path
        As for :func:`run`.
    **how
        As for :class:`~cflkit.workbook.protocols.Plan`.

    Returns
    -------
    int
        How many runs failed.

    Raises
    ------
    ValueError
        For an unknown table, a device that is not here, or a budget that is not positive.
    FileNotFoundError
        For images that are not on this machine.
    TimeIsUp
        When the budget is spent before the table is full.
    """
    require(minutes is None or minutes > 0, "budget", minutes, "more than 0 minutes")
    runs = lacking(table, seeds, out, **how)
    plans = [plan for plan, _ in runs]
    if not plans:
        print(f"{table} lacks no run")
    for label, seed in ledger.recorded(table, seeds, out):
        _tidy(checkpoints / ledger.tables()[table]["protocol"] / f"{label}-s{seed}")
    where = {"out": out.resolve(), "checkpoints": checkpoints.resolve()}  # a worker may be in another folder
    tasks = [partial(run, one, **where, progress=pool is None) for one in plans]
    cost, ended, failed = Cost([minutes for _, minutes in runs]), 0, 0

    def begun(number: int) -> None:
        print(f"{number + 1} of {len(plans)}: {plans[number]}, about {_long(cost.of(number))}", flush=True)

    for outcome in spread(tasks, pool, None if minutes is None else 60 * minutes, begun):
        if not isinstance(outcome.error, TimeIsUp):
            ended += 1
            failed += _told(outcome, plans[outcome.number], cost, pool.width if pool else 1)
    if ended < len(plans):
        raise TimeIsUp(f"time is up after {minutes:g} min")
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


def _told(outcome: Outcome, plan: protocols.Plan, cost: "Cost", width: int) -> bool:
    """Say how a run ended; whether it failed."""
    if isinstance(outcome.error, BusyError):
        print(f"{plan}: another process is at work on it", flush=True)
    elif outcome.error:
        print(f"cflkit: {plan} failed: {outcome.error}", file=sys.stderr, flush=True)
        return True
    else:
        cost.took(outcome.number, _minutes(outcome.value))
        left = f"; about {_long(cost.left / width)} left" if cost.left else ""
        print(f"{places.near(outcome.value)}{left}", flush=True)
    return False


class Cost:
    """What runs cost, in minutes: as estimated, times what this machine has needed of an estimate so far."""

    def __init__(self, minutes: Sequence[float]):
        self.estimate = dict(enumerate(minutes))
        self.told = self.measured = 0.0

    @property
    def factor(self) -> float:
        """How much slower this machine is than the estimates, 1 while nothing was measured."""
        return self.measured / self.told if self.told else 1.0

    @property
    def left(self) -> float:
        """Of all runs that have not ended."""
        return self.factor * sum(self.estimate.values())

    def of(self, number: int) -> float:
        """Of one run."""
        return self.factor * self.estimate[number]

    def took(self, number: int, minutes: float) -> None:
        """Learn what a run took."""
        self.told += self.estimate.pop(number)
        self.measured += minutes


def _long(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes >= 1 else "less than a minute"


def _minutes(record: Path) -> float:
    return json.loads(record.read_text())["provenance"]["seconds"] / 60


def show(record: Path) -> list[Path]:
    """Write the rounds of a record beside it, as CSV and as a learning curve.

    Returns
    -------
    list of Path
        The two files.
    """
    from cflkit.workbook import plots

    table, picture = record.with_suffix(".csv"), record.with_suffix(".png")
    read = records.read(record)
    History(rounds=read["rounds"]).to_csv(table)
    scores = pd.DataFrame(read["rounds"])
    y = "accuracy" if "accuracy" in scores else "personal_accuracy"
    plots.use_style()
    with places.whole(picture) as part:
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


def in_background(arguments: Sequence[str], log: Path) -> int:
    """Start ``cflkit`` with `arguments` in a process that outlives this one, and return its number."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as said:
        print(time.strftime("%Y-%m-%d %H:%M:%S"), *arguments, file=said, flush=True)
        command = [sys.executable, "-m", "cflkit", *arguments]
        return subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True).pid
