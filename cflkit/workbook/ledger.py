"""Claims, tables and verdicts: what the papers print, what was measured, what is missing and what it costs.

Everything is data. Under ``book/papers`` printed numbers are ``results.yaml``, claims ``claims.yaml``, tables
``tables.yaml``, experiments ``protocols.yaml``; measurements are the run records under ``book/results``. Here they
are only joined: a number that has no record is missing, never guessed, and a verdict changes when its records do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from cflkit.checks import one_of, require
from cflkit.engine import metrics
from cflkit.workbook import places, protocols, records

PAPERS = places.PAPERS
PLAIN = {"ari", "nmi", "clusters", "moved", "settled", "down", "up", "largest_share"}  # not shown in percent
HOLDS, PARTLY, FAILS, UNTESTED = "holds", "holds in part", "fails", "not tested"


# ---------------------------------------------------------------------- what the papers print
@cache
def _data(name: str) -> dict:
    return yaml.safe_load((PAPERS / f"{name}.yaml").read_text())


def entries() -> list[dict]:
    """All printed numbers, as ``book/papers/results.yaml`` lists them."""
    return _data("results")["entries"]


def stated(**where) -> float | list[float]:
    """The number, or numbers, that a paper's running text states.

    Parameters
    ----------
    **where
        Fields of one entry, such as ``paper="lcfed", what="low-rank dimension D"``.

    Raises
    ------
    ValueError
        Unless exactly one entry matches.
    """
    found = [e["value"] for e in _data("results")["in_text"] if where.items() <= e.items()]
    require(len(found) == 1, "where", where, "fields of exactly one number of the running texts")
    return found[0]


def tables() -> dict[str, dict]:
    """What is set beside what, by name, as ``book/papers/tables.yaml`` lists it."""
    return _data("tables")["tables"]


def claims() -> dict[str, list[dict]]:
    """The claims of each paper, as ``book/papers/claims.yaml`` lists them."""
    return _data("claims")


def found(**where) -> list[dict]:
    """Printed entries that match.

    Parameters
    ----------
    **where
        Fields of an entry, or of its setting: ``paper="stocfl", table="Table 1", participation=0.1``. A list
        allows each of its values.

    Raises
    ------
    ValueError
        If nothing matches.
    """

    def fits(entry: dict) -> bool:
        flat = entry | entry["setting"]
        return all(flat.get(k) in v if isinstance(v, list) else flat.get(k) == v for k, v in where.items())

    matching = [entry for entry in entries() if fits(entry) and entry["value"] is not None]
    require(bool(matching), "where", where, "fields of at least one entry of results.yaml")
    return matching


def printed(**where) -> list[float]:
    """Printed values of the entries that match (see :func:`found`), in the file's order; accuracies in percent."""
    return [entry["value"] for entry in found(**where)]


def printed_numbers(paper: str, what: dict | list) -> list[float]:
    """Printed numbers as claims ask for them.

    Parameters
    ----------
    paper : str
        Whose.
    what : dict or list
        Fields of the entries; or ``{"max": fields}``, ``{"min": fields}``, the extreme one, for each value of
        the field ``"by"`` if given; or a pair of such, their differences.
    """
    if isinstance(what, list):
        ours, theirs = (printed_numbers(paper, side) for side in what)
        return [a - b for a, b in zip(ours, theirs, strict=True)]
    extreme = next((name for name in ("max", "min") if name in what), None)
    if extreme is None:
        return printed(paper=paper, **what)
    groups: dict = {}
    for entry in found(paper=paper, **what[extreme]):
        groups.setdefault((entry | entry["setting"]).get(what.get("by")), []).append(entry["value"])
    return [{"max": max, "min": min}[extreme](values) for values in groups.values()]


# ---------------------------------------------------------------------- what was measured
@dataclass(frozen=True)
class Measured:
    """The runs of one method of a protocol, one per seed.

    Attributes
    ----------
    runs : list of dict
        Their records, by seed.
    """

    runs: list[dict]

    @property
    def rounds(self) -> int:
        """Communication rounds of the runs."""
        return self.runs[0]["config"]["rounds"]

    def values(self, metric: str = "accuracy") -> dict[int, float]:
        """The last round's value for each seed, accuracies in percent; empty if no run has it.

        ``settled`` is the last round in which a client moved to another cluster.
        """
        if metric == "settled":
            moves = {r["seed"]: [t["round"] for t in r["rounds"] if t.get("moved")] for r in self.runs}
            return {seed: max(rounds, default=0) for seed, rounds in moves.items()}
        scale = 1 if metric in PLAIN else 100
        known = [r for r in self.runs if isinstance(r["final"].get(metric), int | float)]
        return {r["seed"]: scale * r["final"][metric] for r in known}

    def percent(self, metric: str = "accuracy") -> list[float]:
        """The same as a list."""
        return list(self.values(metric).values())


def fits(record: dict) -> bool:
    """Whether a record is of its protocol's present configuration, as far as that can be told without the data."""
    protocol = protocols.protocols().get(record["protocol"], {"methods": {}})
    if record["label"] not in protocol["methods"]:
        return False
    config, wanted = record["config"], protocol["methods"][record["label"]]
    arrival = config.get("arrival") or []
    if sum(t > config["rounds"] for t in arrival) != round(protocol.get("unseen", 0) * len(arrival)):
        return False
    sides = [
        (wanted, config["method"]),
        (protocol["federation"], config["federation"]),
        (protocol["local"], config["local"]),
        ({k: protocol[k] for k in ("model", "rounds", "participation") if k in protocol}, config),
    ]
    return all(has.get(name) == value for needs, has in sides for name, value in needs.items())


def measured(protocol: str, label: str, folder: Path = records.FOLDER) -> Measured | None:
    """The records of a method in a protocol, of its present configuration; None if there are none."""
    runs = {r["seed"]: r for r in _load(protocol, folder) if r["label"] == label and fits(r)}
    return Measured([runs[seed] for seed in sorted(runs)]) if runs else None


def _load(protocol: str, folder: Path) -> list[dict]:
    stamp = tuple((f.name, f.stat().st_mtime_ns) for f in sorted((folder / protocol).glob("*.json")))
    return _cached(protocol, folder, stamp)


@cache
def _cached(protocol: str, folder: Path, stamp: tuple) -> list[dict]:
    return records.load(protocol, folder)


# ---------------------------------------------------------------------- verdicts
@dataclass(frozen=True)
class Part:
    """One test of a claim.

    Attributes
    ----------
    name : str
        What it tests.
    passed : bool or None
        None while something is missing.
    value : str
        What was measured, in words.
    seeds : int
        Over how many seeds; 0 for printed numbers.
    runs : list of dict
        The records behind it.
    """

    name: str
    passed: bool | None
    value: str
    seeds: int = 0
    runs: tuple[dict, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes
    ----------
    word : {"holds", "holds in part", "fails", "not tested"}
        Whether all, some or none of the parts that could be tested passed.
    note : str
        What weakens it: parts missing, few seeds, a sample, printed numbers alone; or why it was not tested.
    parts : list of Part
    """

    word: str
    note: str
    parts: list[Part]

    def __str__(self) -> str:
        return self.word + (f" ({self.note})" if self.note else "")


def number(values: Sequence[float], sign: bool = False) -> str:
    """Mean with two decimals, and the standard deviation over seeds where there are several."""
    spread = metrics.spread(values)
    text = f"{spread['mean']:{'+' if sign else ''}.2f}"
    return text if spread["n"] == 1 else f"{text} ± {spread['std']:.2f}"


def _cell(name: str, folder: Path) -> tuple[dict[int, float], list[dict]]:
    """Values by seed, and the records, of ``protocol/label/metric``."""
    protocol, label, metric = [*name.split("/"), "accuracy"][:3]
    one_of("protocol", protocol, protocols.protocols())
    one_of("label", label, protocols.protocols()[protocol]["methods"])
    m = measured(protocol, label, folder)
    return (m.values(metric), m.runs) if m else ({}, [])


def _paired(names: Sequence, folder: Path) -> tuple[list[float], list[float], list[dict]] | None:
    """Two cells over their common seeds; the second may be a list of cells, of which the largest mean counts."""
    first, runs = _cell(names[0], folder)
    others = [_cell(n, folder) for n in (names[1] if isinstance(names[1], list) else [names[1]])]
    common = sorted(set(first).intersection(*(set(values) for values, _ in others)))
    if not common:
        return None
    best, its = max(others, key=lambda cell: sum(cell[0][s] for s in common))
    kept = [r for r in [*runs, *its] if r["seed"] in common]
    return [first[s] for s in common], [best[s] for s in common], kept


def decide(name: str, part: dict, numbers: dict[str, list[float]], folder: Path = records.FOLDER) -> Part:
    """Decide one part of a claim that rests on run records; ``claims.yaml`` says what each kind of test means.

    Raises
    ------
    ValueError
        For a test of an unknown kind, or a cell that no protocol has.
    """
    kind = next(key for key in part if key != "needs")
    kinds = ("more", "least", "near", "ratio", "above", "below", "equals", "as_printed", "printed_above")
    one_of("test", kind, kinds)
    if kind == "printed_above":
        return Part(name, min(numbers[part[kind]]) > part["than"], f"least {min(numbers[part[kind]]):.2f}")
    if kind in ("more", "least", "near", "ratio"):
        if (pair := _paired(part[kind], folder)) is None:
            return Part(name, None, "not yet measured")
        ours, theirs, runs = pair
        if kind == "ratio":
            ratio = sum(ours) / sum(theirs)
            return Part(name, abs(ratio - part["is"]) < 0.005, f"{ratio:.3f}", len(ours), tuple(runs))
        gap = metrics.paired_difference(ours, theirs)
        text = number([a - b for a, b in zip(ours, theirs, strict=True)], sign=True)
        if kind in ("least", "near"):
            off = abs(gap["mean"]) if kind == "near" else -gap["mean"]
            return Part(name, off <= part["within"], text, len(ours), tuple(runs))
        # several seeds must also agree that there is a lead at all
        leads = gap["mean"] > 0 and (len(ours) == 1 or gap["low"] > 0)
        return Part(name, leads and gap["mean"] >= part.get("by", 0), text, len(ours), tuple(runs))
    values, runs = _cell(part[kind], folder)
    if not values:
        return Part(name, None, "not yet measured")
    found, text = list(values.values()), number(list(values.values()))
    mean = metrics.spread(found)["mean"]
    passed = {
        "above": lambda: mean >= part["than"],
        "below": lambda: mean <= part["than"],
        "equals": lambda: all(value == part["to"] for value in found),
        "as_printed": lambda: all(abs(mean - n) <= part["within"] for n in numbers[part["number"]]),
    }[kind]()
    return Part(name, passed, text, len(found), tuple(runs))


def _too_early(paper: str, basis: dict, folder: Path) -> str:
    """Say so if a baseline was measured and has not come half of the way from chance to its printed number."""
    values, _ = _cell(basis["halfway"], folder)
    halfway = (100 / basis["classes"] + min(printed_numbers(paper, basis["to"]))) / 2
    if not values or (mean := metrics.spread(list(values.values()))["mean"]) >= halfway:
        return ""
    return f"`{basis['halfway'].split('/')[1]}` itself is at {mean:.2f}: too early to compare"


def judge(paper: str, claim: dict, folder: Path = records.FOLDER) -> Verdict:
    """Decide a claim: it holds if every part that could be tested does, in part if some do, fails if none does.

    Parameters
    ----------
    paper : str
        Whose claim.
    claim : dict
        An item of ``claims.yaml``.
    folder : Path
        Where the run records are.
    """
    numbers = {k: printed_numbers(paper, what) for k, what in claim.get("numbers", {}).items()}
    parts, early = [], {}
    for name, part in claim.get("parts", {}).items():
        basis = part.get("needs", claim.get("needs"))
        if "printed_more" in part:
            pairs = zip(*(numbers[k] for k in part["printed_more"]), strict=True)
            parts += [Part(name, a > b, f"{a - b:+.2f}") for a, b in pairs]
        elif basis and (why := _too_early(paper, basis, folder)):
            parts.append(Part(name, None, why))
            early[why] = None
        else:
            parts.append(decide(name, part, numbers, folder))
    known = [part for part in parts if part.passed is not None]
    if not known:
        return Verdict(UNTESTED, "; ".join(early) or claim.get("untested", "not yet measured"), parts)
    passed = sum(part.passed for part in known)
    word = HOLDS if passed == len(known) else PARTLY if passed else FAILS
    notes = [f"{len(known)} of {len(parts)} parts"] if len(known) < len(parts) else []
    if runs := [run for part in known for run in part.runs]:
        seeds = min(part.seeds for part in known if part.seeds)
        notes += [f"preliminary: {seeds} seed{'s' * (seeds > 1)}"] if seeds < 3 else []
        notes += sorted({protocols.protocols()[run["protocol"]].get("sample", "") for run in runs} - {""})
    else:
        notes += ["the printed numbers alone"]
    return Verdict(word, "; ".join(notes), parts)


def mark(paper: str, folder: Path = records.FOLDER) -> str:
    """What a title says of the paper's claims, in the way of ReScience: ``[Re]`` if all that were tested hold."""
    words = {judge(paper, claim, folder).word for claim in claims()[paper]} - {UNTESTED}
    if not words:
        return "[Re: open]"
    return "[Re]" if words == {HOLDS} else "[¬Re]" if words == {FAILS} else "[Re in part]"


def says(paper: str, claim: dict) -> str:
    """The claim in words, with the paper's numbers."""

    def shown(values: list[float]) -> str:
        low, high = f"{min(values):.2f}", f"{max(values):.2f}"
        return low if low == high else f"{low} to {high}"

    numbers = {k: shown(printed_numbers(paper, what)) for k, what in claim.get("numbers", {}).items()}
    return claim["says"].format(**numbers)


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
    one_of("table", name, tables())
    table = tables()[name]
    for title, row in table["rows"].items():
        where = table["where"] | row["printed"] if "printed" in row else None
        values = [None] if where is None else [e["value"] for e in found(paper=table["paper"], **where)]
        require(len(values) == 1, "printed", where, "fields of exactly one entry of results.yaml")
        metric = f"{row['model']}_{table['metric']}" if "model" in row else table["metric"]
        yield Row(title, row["label"], values[0], metric, measured(table["protocol"], row["label"], folder))


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
    one_of("table", name, tables())
    table = tables()[name]
    seeds = range(table["seeds"]) if seeds is None else seeds
    cost = protocols.protocols()[table["protocol"]]["cost"]
    lacking = {}
    for row in rows(name, folder):
        runs = row.measured.runs if row.measured else []
        took = [r["provenance"]["seconds"] / 60 for r in runs if r["provenance"]["device"] == "cpu"]
        cpu, gpu = cost.get(row.label, cost["each"])
        for seed in set(seeds) - {r["seed"] for r in runs}:
            minutes = sum(took) / len(took) if took else cpu
            lacking[row.label, seed] = Missing(table["protocol"], row.label, seed, minutes, gpu)
    return sorted(lacking.values(), key=lambda m: (m.minutes, m.label, m.seed))
