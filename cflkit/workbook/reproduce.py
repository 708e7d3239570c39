"""Run what a table lacks: cheapest first, resumable, one record a run, never what exists already."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cflkit.checks import one_of, require
from cflkit.data.federation import Federation
from cflkit.workbook import ledger, protocols, records

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
        For an unknown protocol or label, or a checkpoint of another configuration.
    """
    kept = checkpoints / protocol / f"{label}-s{seed}"
    settings |= {"federation_": federation, "checkpoint": kept}
    simulation = protocols.simulation(protocol, label, seed=seed, **settings)
    target = records.path(protocol, label, simulation.config, out)
    if not target.exists():
        records.write(protocol, label, simulation, simulation.run(), out)
        shutil.rmtree(kept, ignore_errors=True)
    return target


def reproduce(table: str, seeds: Sequence[int] | None = None, minutes: float | None = None, **places) -> list[Path]:
    """Run what a table lacks, cheapest first.

    Parameters
    ----------
    table : str
        A table of ``book/papers/tables.yaml``.
    seeds : sequence of int, optional
        Which seeds are wanted; as many as the table asks for if None.
    minutes : float, optional
        Stop after so long, in the middle of a run if need be; the same command goes on from there.
    **places
        As for :func:`run`.

    Returns
    -------
    list of Path
        The records written.

    Raises
    ------
    ValueError
        For an unknown table, or a budget that is not positive.
    KeyboardInterrupt
        When the time is up.
    """
    one_of("table", table, ledger.tables())
    require(minutes is None or minutes > 0, "budget", minutes, "more than 0 minutes")
    if minutes is not None:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    found = []
    lacking = ledger.missing(table, seeds, places.get("out", records.FOLDER))
    for n, wanted in enumerate(lacking, 1):
        about = f"{wanted.label}, seed {wanted.seed}, about {wanted.minutes:.0f} min"
        print(f"{n} of {len(lacking)}: {about}", flush=True)
        found.append(run(wanted.protocol, wanted.label, wanted.seed, **places))
    signal.setitimer(signal.ITIMER_REAL, 0)
    return found


def in_background(arguments: Sequence[str], log: Path) -> int:
    """Start ``cflkit`` with `arguments` as a process of its own that outlives this one; returns its number."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as said:
        print(time.strftime("%Y-%m-%d %H:%M:%S"), *arguments, file=said, flush=True)
        command = [sys.executable, "-m", "cflkit", *arguments]
        return subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True).pid
