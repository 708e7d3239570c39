"""The ledger: what the papers print, what was measured, what it decides, what is missing and what that costs.

Everything is data. Under ``book/papers`` printed numbers are ``results.yaml``, claims ``claims.yaml``, tables
``tables.yaml``, experiments ``protocols.yaml``; measurements are the run records under ``book/results``. Here they
are only joined: a number that has no record is missing, never guessed, and a verdict changes when its records do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cflkit.checks import known, require
from cflkit.workbook.claims.measured import PLAIN, Measured, diverged, fits, measured, number, problems
from cflkit.workbook.claims.papers import PAPERS, entries, found, matching, printed, printed_numbers, stated
from cflkit.workbook.claims.schema import claims, corrections, gates, left_out, rules_since, tables
from cflkit.workbook.claims.verdicts import SEEDS, Verdict, agreement, judge, tally, too_early, verdicts
from cflkit.workbook.runs import protocols, records, results

__all__ = [
    "MEASURED", "NOT_RUN", "PAPERS", "PLAIN", "RUNNABLE", "SEEDS", "Coverage", "Measured", "Missing", "Row",
    "Verdict", "agreement", "claims", "corrections", "coverage", "entries", "fits", "found", "judge",
    "left_out", "matching", "measured", "missing", "number", "printed", "printed_numbers", "problems", "rows",
    "rules_since", "stated", "tables", "tally", "too_early", "totals", "unlearnt", "verdicts",
]  # fmt: skip


# ---------------------------------------------------------------------- tables, and what they lack
@dataclass(frozen=True)
class Row:
    """One row of a table: a printed number, or none, and the runs beside it.

    Attributes
    ----------
    name : str
        As the table calls it.
    label : str
        The method's label in the protocol.
    printed : float or None
        The paper's number.
    metric : str
        Which of a record's numbers stands beside it.
    measured : Measured or None
        The runs.
    """

    name: str
    label: str
    printed: float | None
    metric: str
    measured: Measured | None


def rows(name: str, folder: Path = records.FOLDER) -> Iterator[Row]:
    """The rows of a table.

    Raises
    ------
    ValueError
        For an unknown table.
    """
    known(tables(), name, "table")
    table = tables()[name]
    for title, row in table["rows"].items():
        entry = _beside(table, row)
        metric = f"{row['model']}_{table['metric']}" if "model" in row else table["metric"]
        value = None if entry is None else entry["value"]
        yield Row(title, row["label"], value, metric, measured(table["protocol"], row["label"], folder))


def _beside(table: dict, row: dict) -> dict | None:
    """The printed entry that stands beside a row."""
    return found(**{"paper": table["paper"], **table["where"], **row["printed"]})[0] if "printed" in row else None


@dataclass(frozen=True)
class Missing:
    """A run that a table lacks.

    Attributes
    ----------
    protocol, label : str
        What to run.
    seed : int
        With which seed.
    minutes : float
        Of one CPU core: as another seed took, else as the protocol says.
    gpu_minutes : float
        Likewise of one H200, which is the protocol's estimate.
    """

    protocol: str
    label: str
    seed: int
    minutes: float
    gpu_minutes: float


def missing(name: str, seeds: Sequence[int] | None = None, folder: Path = records.FOLDER) -> list[Missing]:
    """Runs that a table lacks, cheapest first.

    Parameters
    ----------
    name : str
        A table of ``tables.yaml``.
    seeds : sequence of int, optional
        Which seeds are wanted; as many as the table asks for if None.
    folder : Path
        Where the run records are.
    """
    known(tables(), name, "table")
    protocol = tables()[name]["protocol"]
    cost = protocols.protocols()[protocol]["cost"]
    lacking = {}
    for row in rows(name, folder):
        runs = row.measured.runs if row.measured else []
        took = [r["provenance"]["seconds"] / 60 for r in runs if r["provenance"]["device"] == "cpu"]
        cpu, gpu = cost.get(row.label, cost["each"])
        for seed in _wanted(name, seeds) - {r["seed"] for r in runs}:
            minutes = sum(took) / len(took) if took else cpu
            lacking[row.label, seed] = Missing(protocol, row.label, seed, minutes, gpu)
    return sorted(lacking.values(), key=lambda m: (m.minutes, m.label, m.seed))


def recorded(name: str, seeds: Sequence[int] | None = None, folder: Path = records.FOLDER) -> list[tuple[str, int]]:
    """Label and seed of the runs that a table has; parameters as for :func:`missing`."""
    runs = {(row.label, run["seed"]) for row in rows(name, folder) if row.measured for run in row.measured.runs}
    return sorted(run for run in runs if run[1] in _wanted(name, seeds))


def _wanted(name: str, seeds: Sequence[int] | None) -> set[int]:
    """The seeds that a table states, unless others are named."""
    table = tables()[name]
    return set(range(table.get("extended", table["seeds"])) if seeds is None else seeds)


# ---------------------------------------------------------------------- every printed number
MEASURED, RUNNABLE, NOT_RUN = "measured", "runnable", "not runnable here"
LEAST = 0.1  # of the way from chance to its printed number: what a row must have learnt to count


@dataclass(frozen=True)
class Coverage:
    """What became of one printed number.

    Attributes
    ----------
    entry : dict
        As ``results.yaml`` has it.
    state : {"measured", "runnable", "not runnable here"}
        Whether a run stands beside it, could, or why not.
    seeds : int
        Of the best row beside it.
    early : bool
        Whether every row beside it is :func:`unlearnt`, or leans on a baseline that has hardly learnt, or that
        is missing.
    tables : tuple of str
        Which tables have a row for it.
    because : str
        Why nothing can be run.
    """

    entry: dict
    state: str
    seeds: int = 0
    early: bool = False
    tables: tuple[str, ...] = ()
    because: str = ""


def coverage(folder: Path = records.FOLDER) -> list[Coverage]:
    """Every printed number, in the order of ``results.yaml``, with what became of it.

    Raises
    ------
    ValueError
        For a number with neither a row nor a reason.
    """
    beside: dict[int, list[tuple[str, int, bool]]] = {}
    for name, table in tables().items():
        protocol = table["protocol"]
        blocked = bool(too_early(protocol, folder))
        for row, shown in zip(table["rows"].values(), rows(name, folder), strict=True):
            if (entry := _beside(table, row)) is not None:
                seeds = len(shown.measured.values(shown.metric)) if shown.measured else 0
                beside.setdefault(id(entry), []).append((name, seeds, blocked or unlearnt(protocol, shown)))
    why = {id(entry): out["because"] for out in reversed(left_out()) if "where" in out
           for entry in matching(paper=out["paper"], **out["where"])}  # fmt: skip
    everything = []
    for entry in entries():
        if has := beside.get(id(entry)):
            ready = [(name, seeds) for name, seeds, early in has if not early and seeds]
            seeds = max((seeds for _, seeds in ready), default=max(seeds for _, seeds, _ in has))
            state, names = MEASURED if seeds else RUNNABLE, tuple(name for name, *_ in has)
            everything.append(Coverage(entry, state, seeds, bool(seeds) and not ready, names))
            continue
        one = {key: entry[key] for key in ("paper", "table", "dataset", "method", "metric")} | entry["setting"]
        require(id(entry) in why, "printed number", one, "in a row of tables.yaml, or in its left_out")
        everything.append(Coverage(entry, NOT_RUN, because=why[id(entry)]))
    return everything


def unlearnt(protocol: str, row: Row) -> bool:
    """Whether a run of a printed accuracy or F1 has diverged, or is not a tenth of the way from chance to print."""
    gate = gates().get(protocol, "")
    values = row.measured.percent(row.metric) if row.measured and row.metric not in PLAIN else []
    if isinstance(gate, str) or not values:
        return False
    if any(map(diverged, row.measured.runs)):
        return True
    chance = protocols.protocols()[protocol].get("constant") or 100 / gate["classes"]
    return min(values) < chance + LEAST * (row.printed - chance)


def totals(folder: Path = records.FOLDER) -> dict[str, int | float]:
    """How many printed numbers were measured and how, and what the missing runs of all tables cost.

    Returns
    -------
    dict
        ``printed``; ``measured``, of which ``firm`` with three seeds, and ``early`` where a baseline has hardly
        learnt, or a run of the row has diverged or is near chance; ``runnable``; ``left out``; ``runs`` missing,
        each counted once, their ``hours`` of a CPU core and ``gpu_hours`` of an H200.
    """
    with results.unchanged():
        return _totals(folder)


def _totals(folder: Path) -> dict[str, int | float]:
    numbers = coverage(folder)
    lacking = {(m.protocol, m.label, m.seed): m for name in tables() for m in missing(name, folder=folder)}.values()
    return {
        "printed": len(numbers),
        "measured": sum(c.state == MEASURED for c in numbers),
        "firm": sum(c.seeds >= SEEDS and not c.early for c in numbers),
        "early": sum(c.early for c in numbers),
        "runnable": sum(c.state == RUNNABLE for c in numbers),
        "left out": sum(c.state == NOT_RUN for c in numbers),
        "runs": len(lacking),
        "hours": sum(m.minutes for m in lacking) / 60,
        "gpu_hours": sum(m.gpu_minutes for m in lacking) / 60,
    }
