"""One run into its record: it goes on where it was stopped, and is never made twice."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from cflkit.engine.checkpoint import BusyError
from cflkit.workbook import places
from cflkit.workbook.runs import plans, pool, records


def run(
    plan: plans.Plan,
    seconds: float | None = None,
    *,
    out: Path = places.RESULTS,
    checkpoints: Path = places.RUNS,
    checkpoint: Path | None = None,
    again: bool = False,
    **settings,
) -> tuple[Path, str]:
    """Run a plan into its record, from its last checkpoint, unless it has a record already.

    Parameters
    ----------
    plan, seconds
        What to run, and after how long to stop (:class:`.TimeIsUp`), at the end of a round.
    out, checkpoints : Path
        Where records go, and where an unfinished run is kept until it has one.
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
    """
    clock = pool.Clock(seconds)
    places.need_folder("out", out)
    places.need_folder("checkpoints", checkpoints)
    kept = checkpoint or checkpoints / plan.protocol / f"{plan.label}-s{plan.seed}"
    simulation = plan.simulation(checkpoint=kept, **settings)
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
    """Hold a run while it is worked on, or raise `BusyError`; the lock of a process that died is free."""
    run.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(run.with_name(f"{run.name}.lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        line = f"run = {str(run)!r}: must be free; another process is at work on this run"
        raise BusyError(line) from None
    try:
        yield
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)  # first: who waits sees that it is gone
        lock.release()


def tidy(kept: Path) -> None:
    """Remove what is left of a recorded run whose process was killed between its record and its end."""
    if kept.exists() or kept.with_name(f"{kept.name}.lock").exists():
        with contextlib.suppress(BusyError), alone(kept):
            shutil.rmtree(kept, ignore_errors=True)
