"""What may stand in ``book/papers/tables.yaml`` and ``claims.yaml``: declared once, checked when they are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from cflkit.checks import Checked, Range, Weight, known, require
from cflkit.workbook import places, strict
from cflkit.workbook.claims import papers
from cflkit.workbook.runs.protocols import OWN, protocols
from cflkit.workbook.runs.results import METRICS, MODELS

__all__ = ["CHAPTERS", "OWN", "claims", "corrections", "gate", "left_out", "planned", "protocols", "tables"]

CHAPTERS = ("mdicfl", "fesem", "stocfl", "lcfed", "fedcg")
PAPERS = (*CHAPTERS, "ours")
RULES = {"more": ("by", "lead"), "less": ("lead",), "near": ("within", "lead"), "ratio": ("to",),
         "printed_more": ("within",)}  # fmt: skip


@dataclass(frozen=True)
class Table(Checked):
    """What is set beside what; the comment in ``tables.yaml`` says what the keys mean."""

    paper: Literal[PAPERS]
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
            papers.matching(**self.where)
        _each(TableRow, self.rows, "rows")
        for row in self.rows.values():
            known(protocols()[self.protocol]["methods"], row["label"], "label")


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
        papers.matching(**self.where)


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
        _each(Part, self.parts, "parts")


@dataclass(frozen=True)
class Part(Checked):
    """A comparison: one rule with its two sides, and what the rule may have besides."""

    more: Sequence | None = None
    less: Sequence | None = None
    near: Sequence | None = None
    ratio: Sequence | None = None
    printed_more: Sequence | None = None
    by: float | None = None
    within: Weight | None = None
    to: float | None = None
    lead: str | None = None

    def __post_init__(self):
        super().__post_init__()
        part = {key: value for key, value in vars(self).items() if value is not None}
        rules = [rule for rule in RULES if rule in part]
        require(len(rules) == 1, "rule", rules, f"a single one of {', '.join(RULES)}")
        for key in part:
            known([*rules, *RULES[rules[0]]], key, "key")
        require("to" in part or not self.ratio, "to", self.to, "given")
        require(len(part[rules[0]]) == 2, rules[0], part[rules[0]], "a list of 2")
        for one in sides(part):
            require(isinstance(one, str | int | float), "side", one, "a cell, a number, or a number's name")


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


# ---------------------------------------------------------------------- comparisons and cells
def kind_of(part: Mapping) -> str:
    """The rule of a comparison."""
    return next(rule for rule in RULES if rule in part)


def sides(part: Mapping) -> list:
    """What a comparison compares: the cell that it is about, then its rivals, a number, or the name of one."""
    ours, theirs = part[kind_of(part)]
    return [ours, *(theirs if isinstance(theirs, list) else [theirs])]


def cells(claim: Mapping) -> list[str]:
    """Every cell that a claim's comparisons name."""
    return [one for part in claim.get("parts", {}).values() for one in sides(part) if "/" in str(one)]


def split(cell: str) -> tuple[str, str, str]:
    """Protocol, label and metric of ``protocol/label/metric``, whose metric is the accuracy if left out."""
    protocol, _, rest = cell.partition("/")
    label, _, metric = rest.partition("/")
    return protocol, label, metric or "accuracy"


# ---------------------------------------------------------------------- the files
def _each(kind: type, entries: Mapping | Sequence, *where: str) -> None:
    """Check every entry of a mapping, or of a list, whose entries are named by their `id` or their place."""
    for at, given in entries.items() if isinstance(entries, Mapping) else enumerate(entries, 1):
        with strict.at(*where, given.get("id", at) if isinstance(given, Mapping) else at):
            strict.check(kind, given)


@cache
def _tables(folder: Path) -> dict:
    data = strict.keys(folder / "tables.yaml", {"tables": dict}, {"left_out": list})
    protocols()  # whose faults are named as its own
    _each(Table, data["tables"], "tables.yaml")
    _each(LeftOut, data.get("left_out", []), "tables.yaml", "left_out")
    return data


@cache
def _claims(folder: Path) -> dict:
    more = dict.fromkeys(CHAPTERS, list) | {"corrections": list}
    data = strict.keys(folder / "claims.yaml", {"rules_since": date, "gates": dict}, more)
    gated = {name: given for name, given in data["gates"].items() if not isinstance(given, str)}
    _each(Gate, gated, "claims.yaml", "gates")
    for paper in CHAPTERS:
        _each(Claim, data.get(paper, []), "claims.yaml", paper)
    _each(Correction, data.get("corrections", []), "claims.yaml", "corrections")
    every = [claim for paper in CHAPTERS for claim in data.get(paper, [])]
    with strict.at("claims.yaml"):
        for name in [*data["gates"], *(split(cell)[0] for claim in every for cell in cells(claim))]:
            known(protocols(), name, "protocol")
            known(data["gates"], name, "gate of protocol")
        for claim in every:
            require(sum(one["id"] == claim["id"] for one in every) == 1, "id", claim["id"], "there once")
        for paper in CHAPTERS:
            mains = [claim["id"] for claim in data.get(paper, []) if claim.get("main")]
            require(len(mains) < 2, f"main claims of {paper}", mains, "one at most")
    return data


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


def gate(protocol: str) -> dict:
    """What a protocol's claims lean on; nothing if they lean on nothing; raises as ``protocols``."""
    given = _claims(places.PAPERS)["gates"].get(protocol, "")
    return {} if isinstance(given, str) else given


def rules_since() -> date:
    """Since when the rules that hold for every claim are what they are; raises as ``protocols``."""
    return _claims(places.PAPERS)["rules_since"]


def corrections() -> list[dict]:
    """Rules that were wrong, when and why they were corrected, with their verdicts; raises as ``protocols``."""
    return [{"now": one["after"], **one} for one in _claims(places.PAPERS).get("corrections", [])]
