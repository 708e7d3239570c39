"""The ledger: what the papers print beside what was measured, what is missing, and what that costs.

Everything is data, in ``book/papers`` and ``book/results``, and is only joined here: what has no record is missing.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cflkit.checks import known, require
from cflkit.workbook import places, strict
from cflkit.workbook.claims import papers
from cflkit.workbook.claims.measured import by_seed, measured, metric_of
from cflkit.workbook.claims.schema import gate, left_out, protocols, tables
from cflkit.workbook.claims.verdicts import SEEDS, Gap, compare, set_up
from cflkit.workbook.runs import records, results


# ---------------------------------------------------------------------- tables, and what they lack
@dataclass(frozen=True)
class Row:
    """One row of a table: a printed number, or none, and the runs beside it."""

    name: str  # as the table calls it
    label: str  # the method's, in the protocol
    entry: dict | None  # the printed number, as ``results.yaml`` has it
    printed: float | None
    metric: str  # which of a record's numbers stands beside it
    measured: list[dict]  # the records of the runs
    values: dict[int, float]  # these numbers by seed


def rows(name: str, folder: Path = records.FOLDER) -> Iterator[Row]:
    """The rows of a table; an unknown one is refused."""
    known(tables(), name, "table")
    table = tables()[name]
    for (title, row), entry in zip(table["rows"].items(), _beside(name), strict=True):
        runs, metric = measured(table["protocol"], row["label"], folder), metric_of(table, row)
        yield Row(title, row["label"], entry, entry and entry["value"], metric, runs, by_seed(runs, metric))


@places.kept
def _beside(name: str) -> list[dict | None]:
    """The printed entries that stand beside the rows of a table."""
    table, found = tables()[name], []
    for title, row in table["rows"].items():
        where = {"paper": table["paper"], **table["where"], **row.get("printed", {})}
        with strict.at("tables.yaml", name, "rows", title):
            found.append(papers.one(**where) if "printed" in row else None)
    return found


@dataclass(frozen=True)
class Missing:
    """A run that a table lacks, and its minutes of a CPU core: what another seed took, if known."""

    protocol: str
    label: str
    seed: int
    minutes: float


def missing(name: str, seeds: Sequence[int] | None = None, folder: Path = records.FOLDER) -> list[Missing]:
    """Runs that a table lacks, cheapest first; of these seeds, or of as many as the table asks for."""
    known(tables(), name, "table")
    protocol = tables()[name]["protocol"]
    cost, lacking = protocols()[protocol]["cost"], {}
    for row in rows(name, folder):
        took = [r["provenance"]["seconds"] / 60 for r in row.measured if r["provenance"]["device"] == "cpu"]
        for seed in _wanted(name, seeds) - {r["seed"] for r in row.measured}:
            minutes = sum(took) / len(took) if took else cost.get(row.label, cost["each"])
            lacking[row.label, seed] = Missing(protocol, row.label, seed, minutes)
    return sorted(lacking.values(), key=lambda m: (m.minutes, m.label, m.seed))


def _wanted(name: str, seeds: Sequence[int] | None) -> set[int]:
    table = tables()[name]
    return set(range(table.get("extended", table["seeds"])) if seeds is None else seeds)


# ---------------------------------------------------------------------- every printed number
MEASURED, RUNNABLE, NOT_RUN = STATES = "measured", "runnable", "not runnable here"
LEAST = 0.1  # of the way from chance to its printed number: what a row must have learnt to count


@dataclass(frozen=True)
class Coverage:
    """What became of one printed number."""

    entry: dict  # as ``results.yaml`` has it
    values: tuple[float, ...] = ()  # the measured numbers of the best row beside it
    state: str = RUNNABLE  # whether a run stands beside it, could, or cannot
    firm: bool = False  # three seeds or more stand beside it, in a set-up near the paper's
    early: bool = False  # all rows beside it are :func:`unlearnt`, or lean on a baseline that misses its print
    tables: tuple[str, ...] = ()  # which have a row for it
    because: str = ""  # why nothing can be run


def coverage(folder: Path = records.FOLDER) -> list[Coverage]:
    """What became of every printed number, in the file's order; one with neither row nor reason is refused."""
    beside: dict[int, list[tuple[bool, tuple[float, ...], str]]] = defaultdict(list)
    for name, table in tables().items():
        blocked = bool(set_up(table["protocol"], folder))
        for row in rows(name, folder):
            if row.entry is not None:
                early = blocked or unlearnt(table["protocol"], row)
                beside[id(row.entry)].append((early, tuple(row.values.values()), name))
    why = {id(entry): out["because"] for out in reversed(left_out()) if "where" in out
           for entry in papers.matching(paper=out["paper"], **out["where"])}  # fmt: skip
    found = []
    for entry in papers.matching():
        has = beside[id(entry)]
        require(bool(has) or id(entry) in why, "printed number", entry, "in a row of tables.yaml, or left_out")
        best = max(has, key=lambda row: (bool(row[1]) and not row[0], len(row[1])), default=(False, (), ""))
        early, values, because = bool(best[1]) and best[0], best[1], "" if has else why[id(entry)]
        state, firm = MEASURED if values else RUNNABLE if has else NOT_RUN, len(values) >= SEEDS and not early
        found.append(Coverage(entry, values, state, firm, early, tuple(name for *_, name in has), because))
    return found


def unlearnt(protocol: str, row: Row) -> bool:
    """Whether a run of a printed accuracy or F1 has diverged, or is not a tenth of the way from chance to print."""
    if not (leans := gate(protocol)) or not row.values or row.metric in results.PLAIN:
        return False
    chance = protocols()[protocol].get("constant") or 100 / leans["classes"]
    near = min(row.values.values()) < chance + LEAST * (row.printed - chance)
    return near or any(map(results.diverged, row.measured))


def totals(folder: Path = records.FOLDER) -> dict[str, int | float]:
    """How many printed numbers became what, as :class:`Coverage` says, and what all missing ``runs`` cost."""
    every = coverage(folder)
    lacking = {(m.protocol, m.label, m.seed): m for name in tables() for m in missing(name, folder=folder)}
    states = [one.state for one in every]
    return {
        "printed": len(every), "measured": states.count(MEASURED), "runnable": states.count(RUNNABLE),
        "left out": states.count(NOT_RUN), "firm": sum(one.firm for one in every),
        "early": sum(one.early for one in every), "runs": len(lacking),
        "hours": sum(m.minutes for m in lacking.values()) / 60,
    }  # fmt: skip


# ---------------------------------------------------------------------- the benchmark of shifts
SHIFTS = {"rotation": "images turned", "renamed": "labels renamed", "concept": "some classes turned",
          "shares": "uneven labels", "corruption": "images corrupted"}  # fmt: skip
DATA = {"MNIST": "dose", "Fashion-MNIST": "dose-fashion"}  # how the names of their tables begin
TUNED = "FedAvg + fine-tuning"  # the row that all others are compared with


def doses(data: str, shift: str) -> dict[float, str]:
    """Names of the tables of a shift on a data set of `DATA`, by strength: "dose-rotation-02" has that of 0.2."""
    begins = f"{DATA[data]}-{shift}-"
    return {int(name[-2:]) / 10: name for name in sorted(tables()) if name.startswith(begins)}


def leads(data: str, shift: str, folder: Path = records.FOLDER) -> dict[str, dict[float, Gap]]:
    """Points ahead of it by row and strength of the tables, where all seeds have run."""
    found: dict[str, dict[float, Gap]] = defaultdict(dict)
    for strength, name in doses(data, shift).items():
        table = tables()[name]
        cells = {row.name: f"{table['protocol']}/{row.label}/{row.metric}" for row in rows(name, folder)}
        tuned = cells.pop(TUNED)
        for row, cell in cells.items():
            if (gap := compare(cell, tuned, folder)).n >= table["seeds"]:
                found[row][strength] = gap
    return found
