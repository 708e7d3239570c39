"""The ledger: what the papers print, what was measured, what it decides, what is missing and what that costs.

Everything is data. Under ``book/papers`` printed numbers are ``results.yaml``, claims ``claims.yaml``, tables
``tables.yaml``, experiments ``protocols.yaml``; measurements are the run records under ``book/results``. Here they
are only joined: a number that has no record is missing, never guessed, and a verdict changes when its records do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cflkit.checks import known, require
from cflkit.workbook import places
from cflkit.workbook.claims import papers
from cflkit.workbook.claims.measured import Measured, measured, metric_of, number
from cflkit.workbook.claims.papers import entries, printed, stated
from cflkit.workbook.claims.schema import gates, left_out, tables
from cflkit.workbook.claims.verdicts import SEEDS, tally, too_early, verdicts
from cflkit.workbook.runs import protocols, records, results
from cflkit.workbook.runs.results import problems

__all__ = [
    "Coverage", "Missing", "Row", "coverage", "entries", "missing", "number", "printed", "problems", "recorded",
    "rows", "stated", "tables", "tally", "totals", "verdicts",
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
    entry : dict or None
        The printed number, as ``results.yaml`` has it.
    metric : str
        Which of a record's numbers stands beside it.
    measured : Measured or None
        The runs.
    """

    name: str
    label: str
    entry: dict | None
    metric: str
    measured: Measured | None

    @property
    def printed(self) -> float | None:
        """The paper's number."""
        return self.entry and self.entry["value"]

    @property
    def values(self) -> dict[int, float]:
        """The measured numbers by seed."""
        return self.measured.values(self.metric) if self.measured else {}


def rows(name: str, folder: Path = records.FOLDER) -> Iterator[Row]:
    """The rows of a table.

    Raises
    ------
    ValueError
        For an unknown table.
    """
    known(tables(), name, "table")
    table = tables()[name]
    for (title, row), entry in zip(table["rows"].items(), _beside(places.PAPERS)[name], strict=True):
        runs = measured(table["protocol"], row["label"], folder)
        yield Row(title, row["label"], entry, metric_of(table, row), runs)


@cache
def _beside(papers_folder: Path) -> dict[str, list[dict | None]]:
    """The printed entries that stand beside the rows of every table."""
    return {
        name: [papers.found(**{"paper": table["paper"], **table["where"], **row["printed"]})[0]
               if "printed" in row else None for row in table["rows"].values()]
        for name, table in tables().items()
    }  # fmt: skip


@dataclass(frozen=True)
class Missing:
    """A run that a table lacks: what to run, and its minutes of one CPU core, and of an H200.

    A core's are what another seed took, else what the protocol says, as for an H200.
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
    cost, lacking = protocols.protocols()[protocol]["cost"], {}
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
    early : bool
        Whether every row beside it is :func:`unlearnt`, or leans on a baseline that has hardly learnt, or that
        is missing.
    values : tuple of float
        The measured numbers of the best row beside it.
    tables : tuple of str
        Which tables have a row for it.
    because : str
        Why nothing can be run.
    """

    entry: dict
    state: str
    early: bool = False
    values: tuple[float, ...] = ()
    tables: tuple[str, ...] = ()
    because: str = ""

    @property
    def firm(self) -> bool:
        """Whether three seeds or more stand beside it, in a set-up near the paper's."""
        return len(self.values) >= SEEDS and not self.early


def coverage(folder: Path = records.FOLDER) -> list[Coverage]:
    """Every printed number, in the order of ``results.yaml``, with what became of it.

    Raises
    ------
    ValueError
        For a number with neither a row nor a reason.
    """
    beside: dict[int, list[tuple[bool, tuple[float, ...], str]]] = {}
    for name, table in tables().items():
        blocked = bool(too_early(table["protocol"], folder))
        for row in rows(name, folder):
            if row.entry is not None:
                early = blocked or unlearnt(table["protocol"], row)
                beside.setdefault(id(row.entry), []).append((early, tuple(row.values.values()), name))
    why = {id(entry): out["because"] for out in reversed(left_out()) if "where" in out
           for entry in papers.matching(paper=out["paper"], **out["where"])}  # fmt: skip
    found = []
    for entry in entries():
        if has := beside.get(id(entry)):
            early, values, _ = max(has, key=lambda row: (bool(row[1]) and not row[0], len(row[1])))
            names = tuple(name for *_, name in has)
            state = MEASURED if values else RUNNABLE
            found.append(Coverage(entry, state, bool(values) and early, values, names))
        else:
            one = {key: entry[key] for key in ("paper", "table", "dataset", "method", "metric")} | entry["setting"]
            require(id(entry) in why, "printed number", one, "in a row of tables.yaml, or in its left_out")
            found.append(Coverage(entry, NOT_RUN, because=why[id(entry)]))
    return found


def unlearnt(protocol: str, row: Row) -> bool:
    """Whether a run of a printed accuracy or F1 has diverged, or is not a tenth of the way from chance to print."""
    gate = gates().get(protocol, "")
    if isinstance(gate, str) or not row.values or row.metric in results.PLAIN:
        return False
    chance = protocols.protocols()[protocol].get("constant") or 100 / gate["classes"]
    near = min(row.values.values()) < chance + LEAST * (row.printed - chance)
    return near or any(map(results.diverged, row.measured.runs))


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
        every = coverage(folder)
        lacking = {(m.protocol, m.label, m.seed): m for name in tables() for m in missing(name, folder=folder)}
    states = [one.state for one in every]
    return {
        "printed": len(every),
        "measured": states.count(MEASURED),
        "firm": sum(one.firm for one in every),
        "early": sum(one.early for one in every),
        "runnable": states.count(RUNNABLE),
        "left out": states.count(NOT_RUN),
        "runs": len(lacking),
        "hours": sum(m.minutes for m in lacking.values()) / 60,
        "gpu_hours": sum(m.gpu_minutes for m in lacking.values()) / 60,
    }
