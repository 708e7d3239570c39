"""One run into its record: it goes on where it was stopped, and is never made twice."""

import contextlib
import shutil
from collections.abc import Iterator
from math import inf
from pathlib import Path
from time import monotonic

from filelock import FileLock, Timeout

from cflkit.engine.checkpoint import BusyError
from cflkit.workbook import places
from cflkit.workbook.runs import plans, pool, records


def run(
    plan: plans.Plan, seconds: float = inf, *, out: Path = places.RESULTS, checkpoints: Path = places.RUNS,
    checkpoint: Path | None = None, again: bool = False, keep_models: bool = False, **settings
) -> tuple[Path, str]:  # fmt: skip
    """Run a plan into its record, from its last checkpoint, unless it has a record already.

    Records go to `out`. After so many `seconds` :class:`.TimeIsUp` stops it at the end of a round; an unfinished
    run is kept in `checkpoints` until it has a record, or for good in the folder `checkpoint`: with more rounds it
    goes on from there. `again` runs what has a record, and overwrites that; `keep_models` writes the trained
    networks beside it (:func:`.records.keep_models`), and runs it if they are not there. `settings` are of
    :class:`~cflkit.engine.simulation.Simulation`, in place of the plan's.

    Returns the record, and "" or that it was there, made at which commit, and whether the code has changed since.
    """
    end = monotonic() + seconds
    places.need_folder("out", out)
    places.need_folder("checkpoints", checkpoints)
    kept = checkpoint or checkpoints / plan.protocol / f"{plan.label}-s{plan.seed}"
    simulation = plan.simulation(checkpoint=kept, **settings)
    target = records.path(plan.protocol, plan.label, simulation.config, out)

    def after(so_far) -> None:
        if monotonic() >= end and len(so_far.rounds) <= simulation.rounds:
            raise pool.TimeIsUp("time is up")

    with alone(kept):  # until the record is there: nobody finds a run that is neither locked nor recorded
        new = again or not target.exists() or (keep_models and not target.with_suffix(".pt").exists())
        if checkpoint is not None or new:  # what a checkpoint holds is not run again
            history = simulation.run(after=after)
        was = "" if new else _was_there(target, records.code(simulation.method))
        if new:
            records.write(plan.protocol, plan.label, simulation, history, out)
            if keep_models:
                records.keep_models(target, history)
        if checkpoint is None:
            shutil.rmtree(kept, ignore_errors=True)
    return target, was


def _was_there(target: Path, code: str) -> str:
    made = records.read(target)["provenance"]
    changed = " (code has changed since)" * (made.get("code") != code)  # which the record's name does not tell
    return f"; was there, made at commit {made['commit'] or 'unknown'}{changed}"


@contextlib.contextmanager
def alone(run: Path) -> Iterator[None]:
    """Hold a run while it is worked on, or raise `BusyError`; the lock of a process that died is free."""
    run.parent.mkdir(parents=True, exist_ok=True)
    lock = run.with_name(f"{run.name}.lock")
    try:
        with FileLock(lock, timeout=0), contextlib.ExitStack() as before_it_is_free:
            before_it_is_free.callback(lock.unlink, missing_ok=True)  # who waits sees that it is gone
            yield
    except Timeout:
        raise BusyError(f"run = {str(run)!r}: must be free; another process is at work on this run") from None


def tidy(kept: Path) -> None:
    """Remove what is left of a recorded run whose process was killed between its record and its end."""
    if kept.exists() or kept.with_name(f"{kept.name}.lock").exists():
        with contextlib.suppress(BusyError), alone(kept):
            shutil.rmtree(kept, ignore_errors=True)
