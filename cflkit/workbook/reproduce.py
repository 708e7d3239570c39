"""Run what a table lacks, cheapest first.

Each run leaves one record, goes on where it was stopped, and is never made twice.
"""

import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from cflkit.checks import known, require
from cflkit.data.federation import Federation
from cflkit.engine.checkpoint import BusyError
from cflkit.workbook import ledger, places, protocols, records

CHECKPOINTS = Path("runs")


def run(
    protocol: str,
    label: str,
    seed: int,
    *,
    federation: Federation | None = None,
    out: Path = records.FOLDER,
    checkpoints: Path = CHECKPOINTS,
    **settings,
) -> Path:
    """Run one method of a protocol into its record, from its last checkpoint, unless it has a record already.

    Parameters
    ----------
    protocol, label : str
        What to run.
    seed : int
        With which seed.
    federation : Federation, optional
        The protocol's federation of that seed, if it is at hand already.
    out : Path
        Where records go.
    checkpoints : Path
        Where an unfinished run is kept; it is deleted when the record has been written.
    **settings
        Settings of :class:`~cflkit.engine.simulation.Simulation` in place of the protocol's (device, rounds, ...).

    Returns
    -------
    Path
        The record.

    Raises
    ------
    ValueError
        For an unknown protocol or label, a folder that cannot be written to, or a checkpoint of another
        configuration.
    """
    try_folders(out, checkpoints)
    kept = checkpoints / protocol / f"{label}-s{seed}"
    settings |= {"federation_": federation, "checkpoint": kept}
    simulation = protocols.simulation(protocol, label, seed=seed, **settings)
    target = records.path(protocol, label, simulation.config, out)
    if not target.exists():
        history = simulation.run()
        with places.writing(target):
            records.write(protocol, label, simulation, history, out)
        shutil.rmtree(kept, ignore_errors=True)
    return target


def reproduce(
    table: str, seeds: Sequence[int] | None = None, minutes: float | None = None, **settings
) -> list[Path]:
    """Run what a table lacks, cheapest first, and pass over what another process is at work on.

    Parameters
    ----------
    table : str
        A table of ``book/papers/tables.yaml``.
    seeds : sequence of int, optional
        Which seeds are wanted; as many as the table asks for if None.
    minutes : float, optional
        Stop after so long, in the middle of a run if need be; the same call goes on from there. Only in the main
        thread.
    **settings
        As for :func:`run`.

    Returns
    -------
    list of Path
        The records written.

    Raises
    ------
    ValueError
        For an unknown table, or a budget that is not positive.
    TimeIsUp
        When the budget is spent before the table is full.
    """
    known(ledger.tables(), table, "table")
    require(minutes is None or minutes > 0, "budget", minutes, "more than 0 minutes")
    lacking = ledger.missing(table, seeds, settings.get("out", records.FOLDER))
    written = []
    with budget(minutes):
        for n, wanted in enumerate(lacking, 1):
            about = f"{wanted.label}, seed {wanted.seed}, about {wanted.minutes:.0f} min"
            print(f"{n} of {len(lacking)}: {about}", flush=True)
            try:
                written.append(run(wanted.protocol, wanted.label, wanted.seed, **settings))
            except BusyError:
                print("another process is at work on it", flush=True)
    return written


class TimeIsUp(KeyboardInterrupt):
    """A budget is spent. Like an interrupt, it passes through whatever is running."""


@contextlib.contextmanager
def budget(minutes: float | None) -> Iterator[None]:
    """Raise :class:`TimeIsUp` once so many minutes have passed; never if None."""
    if minutes is None:
        yield
        return
    main = threading.current_thread() is threading.main_thread()
    require(main, "budget", minutes, "None outside the main thread, which alone receives signals")

    def ring(*_):
        raise TimeIsUp(f"time is up after {minutes:g} min")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
