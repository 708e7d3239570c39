"""What a table lacks, run cheapest first."""

from collections.abc import Sequence
from functools import partial
from math import inf
from pathlib import Path

from cflkit.engine.simulation import check_device
from cflkit.workbook import places
from cflkit.workbook.claims import ledger
from cflkit.workbook.runs import plans, pool, protocols, run

Lacking = list[tuple[plans.Plan, float]]


def lacking(table: str, seeds: Sequence[int] | None = None, out: Path = places.RESULTS, **how) -> Lacking:
    """List what :func:`.ledger.missing` names as plans, each with its minutes of a core; images must be at hand."""
    check_device(how.get("device", "cpu"))
    lacks = ledger.missing(table, seeds, out)
    runs = [(protocols.plan(m.protocol, m.label, m.seed, **how), m.minutes) for m in lacks]
    for plan, _ in runs:
        plan.need_images()
    return runs


def reproduce(
    table: str, runs: Lacking, seconds: float = inf, out: Path = places.RESULTS, progress: bool = True
) -> int:
    """Run what a table lacks, pass over what another process is at work on, and return how many failed."""
    if not runs:
        print(f"{table} lacks no run")
    for label, seed in ledger.recorded(table, None, out):
        run.tidy(places.RUNS / ledger.tables()[table]["protocol"] / f"{label}-s{seed}")
    where = {"out": out.resolve(), "checkpoints": places.RUNS.resolve()}  # a worker may be in another folder
    tasks = {str(plan): partial(run.run, plan, progress=progress, **where) for plan, _ in runs}
    return pool.report(tasks, seconds, [minutes for _, minutes in runs])[1]
