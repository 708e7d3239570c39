"""What may stand in ``book/papers/tables.yaml`` and ``claims.yaml``: declared once, checked when they are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from cflkit.checks import Checked, Range, Weight, declared, known, require
from cflkit.workbook import places, strict
from cflkit.workbook.claims import papers
from cflkit.workbook.runs.protocols import OWN, protocols
from cflkit.workbook.runs.results import METRICS, MODELS

__all__ = ["CHAPTERS", "OWN", "claims", "corrections", "gates", "left_out", "planned", "protocols", "tables"]

CHAPTERS = ("mdicfl", "fesem", "stocfl", "lcfed", "fedcg")


@dataclass(frozen=True)
class Table(Checked):
    """What is set beside what; the comment in ``tables.yaml`` says what the keys mean."""

    paper: Literal["mdicfl", "fesem", "stocfl", "lcfed", "fedcg", "ours"]
    title: str
    protocol: str
    where: Mapping
    metric: Literal[METRICS]
    seeds: Annotated[int, Range(1, 10)]
    tolerance: Weight
    rows: Mapping
    note: str = ""
    also: Sequence[Literal[METRICS]] = ()
    extended: Annotated[int, Range(4, 10)] | None = None

    def __post_init__(self):
        super().__post_init__()
        require(self.seeds < (self.extended or 11), "extended", self.extended, "more than seeds")
        known(protocols(), self.protocol, "protocol")
        with strict.at("where"):
            papers.check_fields(self.where)
        for title, row in self.rows.items():
            with strict.at("rows", title):
                strict.check(TableRow, row)
                known(protocols()[self.protocol]["methods"], row["label"], "label")
                if "printed" in row:
                    where = {"paper": self.paper, **self.where, **row["printed"]}
                    papers.check_fields(where)
                    single = len(papers.found(**where)) == 1
                    require(single, "printed", where, "fields of exactly one printed number")


@dataclass(frozen=True)
class TableRow(Checked):
    """A label's numbers beside the one printed number that its fields single out."""

    label: str
    printed: Mapping | None = None
    model: Literal[MODELS] | None = None


@dataclass(frozen=True)
class LeftOut(Checked):
    """An experiment without a table, and why; `where` are its printed numbers, if it has any."""

    paper: Literal[CHAPTERS]
    item: str
    because: str
    where: Mapping = field(default_factory=dict)

    def __post_init__(self):
        super().__post_init__()
        papers.check_fields(self.where)


@dataclass(frozen=True)
class Claim(Checked):
    """What a paper says, where, and the comparisons that decide it; the comment in ``claims.yaml`` has the rest."""

    id: str
    says: str
    quote: str | None = None
    place: str | None = None
    main: bool = False
    kind: Literal["print", "arithmetic", "ours"] | None = None
    of: Literal["all", "most", "some"] = "all"
    lead: str | None = None
    numbers: Mapping = field(default_factory=dict)
    parts: Mapping = field(default_factory=dict)
    untested: str | None = None
    since: date | None = None

    def __post_init__(self):
        super().__post_init__()
        told = bool(self.parts) != bool(self.untested)
        require(told, "parts", self.parts, "given, or 'untested', which says why not")
        quoted = self.kind == "ours" or bool(self.quote and self.place)
        require(quoted, "quote", self.quote, "given with its place, unless it is ours")
        require(not (self.main and self.kind), "main", self.main, "a claim of the paper that runs decide")
        if self.lead:
            known(self.numbers, self.lead, "number")
        for name, part in self.parts.items():
            with strict.at("parts", name):
                _part(part, self.numbers)


@dataclass(frozen=True)
class Gate(Checked):
    """A protocol's baseline, the printed number that it must be near, and what else its runs must be like."""

    baseline: str
    classes: Annotated[int, Range(2)]
    printed: Mapping
    unlike: str | None = None
    mechanism: Mapping | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.mechanism is not None:
            strict.check(Mechanism, self.mechanism)


@dataclass(frozen=True)
class Mechanism(Checked):
    """What must happen in the runs of labels that begin so: a metric's mean is below, or at least, a number."""

    label: str
    metric: Literal[METRICS]
    why: str
    below: float | None = None
    least: float | None = None

    def __post_init__(self):
        super().__post_init__()
        require((self.below is None) != (self.least is None), "below", self.below, "given, or 'least'")


@dataclass(frozen=True)
class Correction(Checked):
    """A rule that was wrong: when and why it was corrected, what it said before and after, and with later runs."""

    claim: str
    day: date
    before: str
    after: str
    because: str
    now: str | None = None


# ---------------------------------------------------------------------- comparisons
RULES: dict[str, dict[str, Any]] = {  # what each may have besides its two sides
    "more": {"by": float, "lead": str},
    "less": {},
    "near": {"within": Weight},
    "ratio": {"to": float},
    "printed_more": {"within": Weight},
}


def kind_of(part: Mapping) -> str:
    """The rule of a part: the one of its keys that is a rule's name."""
    named = [key for key in part if key in RULES]
    known(RULES, *(named or [next(iter(part), "(none)")])[:1], "test")
    require(len(named) == 1, "test", named, "a single one")
    return named[0]


def _part(part: Any, numbers: Mapping) -> None:
    require(isinstance(part, Mapping), "entry", part, "a mapping")
    kind = kind_of(part)
    for key in part:
        known([kind, *RULES[kind]], key, "key")
        declared(key, part[key], RULES[kind].get(key, Any))
    require(kind != "ratio" or "to" in part, "key", "to", "there")
    two = isinstance(part[kind], list) and len(part[kind]) == 2
    require(two, kind, part[kind], "a list of 2")
    if "lead" in part:
        known(numbers, part["lead"], "number")
    for n, side in enumerate(part[kind]):
        for one in side if n and isinstance(side, list) else [side]:
            if n and isinstance(one, int | float) and not isinstance(one, bool):
                continue
            declared("cell", one, str)
            known(numbers, one, "number") if kind == "printed_more" or (n and "/" not in one) else check_cell(one)


def split(cell: str) -> tuple[str, str, str]:
    """Protocol, label and metric of ``protocol/label/metric``, whose metric is the accuracy if left out."""
    protocol, label, metric = [*cell.split("/"), "accuracy"][:3]
    return protocol, label, metric


def check_cell(cell: str) -> None:
    """Require that the protocol, the label and the metric of a cell exist."""
    protocol, label, metric = split(cell)
    known(protocols(), protocol, "protocol")
    known(protocols()[protocol]["methods"], label, "label")
    known(METRICS, metric, "metric")


# ---------------------------------------------------------------------- the files
@cache
def _tables(folder: Path) -> dict:
    data = strict.keys(folder / "tables.yaml", {"tables": dict}, {"left_out": list})
    protocols()  # whose faults are named as its own
    for name, given in data["tables"].items():
        with strict.at("tables.yaml", name):
            strict.check(Table, given)
    for given in data.get("left_out", []):
        with strict.at("tables.yaml", "left_out", _name(given, "item")):
            strict.check(LeftOut, given)
    return data


def _name(given: Any, key: str) -> Any:
    return given.get(key, given) if isinstance(given, Mapping) else given


@cache
def _claims(folder: Path) -> dict:
    more = dict.fromkeys(CHAPTERS, list) | {"corrections": list}
    data = strict.keys(folder / "claims.yaml", {"rules_since": date, "gates": dict}, more)
    protocols()
    for name, gate in data["gates"].items():
        with strict.at("claims.yaml", "gates", name):
            known(protocols(), name, "protocol")
            if not isinstance(gate, str):
                strict.check(Gate, gate)
                check_cell(f"{name}/{gate['baseline']}")
                papers.found(paper=protocols()[name]["paper"], **gate["printed"])
    ids: list[str] = []
    for paper in CHAPTERS:
        for given in data.get(paper, []):
            with strict.at("claims.yaml", _name(given, "id")):
                strict.check(Claim, given)
                require(given["id"] not in ids, "id", given["id"], "there once")
                for number, what in given.get("numbers", {}).items():
                    with strict.at("numbers", number):
                        papers.printed_numbers(paper, what)
                for cell in cells(given):
                    known(data["gates"], cell.partition("/")[0], "gate of protocol")
            ids.append(given["id"])
        mains = [given["id"] for given in data.get(paper, []) if given.get("main")]
        require(len(mains) < 2, f"claims.yaml, {paper}: main claims", mains, "one at most")
    for given in data.get("corrections", []):
        with strict.at("claims.yaml", "corrections"):
            strict.check(Correction, given)
    return data


def cells(claim: Mapping) -> list[str]:
    """Every cell that a claim's comparisons name."""
    sides = [side for part in claim.get("parts", {}).values() for side in part[kind_of(part)]]
    flat = [one for side in sides for one in (side if isinstance(side, list) else [side])]
    return [one for one in flat if "/" in str(one)]


def tables() -> dict[str, dict]:
    """What is set beside what, by name, as ``book/papers/tables.yaml`` lists it; raises as ``protocols``."""
    return _tables(places.PAPERS)["tables"]


def planned(protocol: str, label: str) -> int | None:
    """How many seeds the tables state for a method, `extended` included; None if it stands in none."""
    return _planned(places.PAPERS).get((protocol, label))


@cache
def _planned(folder: Path) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for table in _tables(folder)["tables"].values():
        for row in table["rows"].values():
            key = table["protocol"], row["label"]
            found[key] = max(found.get(key, 0), table.get("extended", table["seeds"]))
    return found


def left_out() -> list[dict]:
    """Experiments without a table, and why, as ``tables.yaml`` lists them; raises as ``protocols``."""
    return _tables(places.PAPERS).get("left_out", [])


def claims() -> dict[str, list[dict]]:
    """The claims of each paper, as ``book/papers/claims.yaml`` lists them; raises as ``protocols``."""
    return {paper: found for paper, found in _claims(places.PAPERS).items() if paper in CHAPTERS}


def gates() -> dict[str, dict | str]:
    """What a protocol's claims lean on, or why on nothing; raises as ``protocols``."""
    return _claims(places.PAPERS)["gates"]


def rules_since() -> date:
    """Since when the rules that hold for every claim are what they are; raises as ``protocols``."""
    return _claims(places.PAPERS)["rules_since"]


def corrections() -> list[dict]:
    """Rules that were wrong, when and why they were corrected, with their verdicts; raises as ``protocols``."""
    return [{"now": one["after"], **one} for one in _claims(places.PAPERS).get("corrections", [])]
