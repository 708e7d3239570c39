"""What may stand in ``book/papers``: protocols, tables and claims, declared once and checked when they are read.

A key that nothing knows is refused with the nearest one that something does, a value with what is allowed; the line
names the file, the entry and the key. So a misspelt key cannot silently run, or decide, something else.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from cflkit import methods
from cflkit.checks import (
    Checked,
    Count,
    Fraction,
    Inside,
    Natural,
    Positive,
    Range,
    Weight,
    declared,
    distinct,
    known,
    require,
)
from cflkit.data import builders, images
from cflkit.engine.sgd import SGD
from cflkit.models import networks
from cflkit.workbook.claims import papers
from cflkit.workbook.runs.scores import METRICS, MODELS

CHAPTERS = ("mdicfl", "fesem", "stocfl", "lcfed", "fedcg")
PACKED = ("femnist", "sign", "svhn_sample")  # data sets that are read from a .npz of that name
LISTS = ("left_out", "corrections")
# what a label of a protocol may have for itself
OWN = {"rounds": Count, "participation": Fraction, "lr": Positive, "finetune": Natural}


@contextmanager
def _at(*where: str) -> Iterator[None]:
    """Put the place before what is refused inside, in one line."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{', '.join(where)}: {error}") from None


def _check(kind: type, given: Any) -> None:
    """Refuse a mapping that `kind`, a checked dataclass, cannot be made of: unknown or missing keys, bad values."""
    require(isinstance(given, Mapping), "entry", given, "a mapping")
    names = {f.name for f in fields(kind)}
    for key in given:
        known(names, key, "key")
    for f in fields(kind):
        needed = f.default is MISSING and f.default_factory is MISSING
        require(f.name in given or not needed, f.name, None, "given")
    kind(**given)


# ---------------------------------------------------------------------- protocols
@dataclass(frozen=True)
class Protocol(Checked):
    """An experiment. `cost`: minutes of a CPU core and of an H200, by label, or for `each`."""

    paper: Literal["mdicfl", "fesem", "stocfl", "lcfed", "fedcg", "ours"]
    feeds: str
    federation: Mapping
    model: str
    local: Mapping
    rounds: Count
    cost: Mapping
    methods: Mapping
    assumed: Sequence[str]
    since: date  # the day from which on its settings have been what they are
    participation: Fraction = 1.0
    evaluate_every: Count = 10
    personal_every: Count | None = None
    unseen: Inside | None = None  # share of the clients that comes after the last round
    sample: str | None = None  # what a verdict must say where less than the paper's data is used
    caution: str | None = None  # what else it must say of these runs
    constant: Annotated[float, Range(0, 100)] | None = None  # most frequent class, if classes differ [%]
    search: Sequence[Mapping] = ()  # what was tried before that day

    def __post_init__(self):
        super().__post_init__()
        require(len(self.assumed) > 0, "assumed", self.assumed, "at least one line")
        require(len(self.methods) > 0, "methods", self.methods, "at least one label")
        with _at("federation"):
            _federation(self.federation)
        check_model(self.model)
        with _at("local"):
            _check(SGD, self.local)
        for label, method in self.methods.items():
            with _at("methods", str(label)):
                _method(method)
        known(self.cost, "each", "cost")
        for label, minutes in self.cost.items():
            known([*self.methods, "each"], label, "cost")
            declared(f"cost of {label}", minutes, Sequence[Positive])
            two = "two numbers: minutes of a CPU core, of an H200"
            require(len(minutes) == 2, f"cost of {label}", minutes, two)
        for tried in self.search:
            with _at("search"):
                _check(Tried, tried)
        chosen = sum(bool(tried.get("chosen")) for tried in self.search)
        require(chosen == bool(self.search), "readings that were chosen", chosen, "one of a search")


@dataclass(frozen=True)
class Tried(Checked):
    """A reading of a protocol that was tried on a baseline before it was frozen: what came out, at which round."""

    reading: str
    label: str
    found: Mapping  # round -> accuracy [%]
    seed: Natural = 0
    chosen: str | None = None  # by what, if it was


def check_model(name: str) -> None:
    """Require that there is a network of that name."""
    if not re.fullmatch(r"mlp[1-9]\d*", name):
        known(networks.names(), name, "model")


def check_images(names: str | Sequence[str] | None) -> None:
    """Require that there are data sets of these names, each named once."""
    every = [names] if isinstance(names, str) else names or [None]
    for name in every:
        known([*images.names(), *PACKED], name, "images")
    distinct("images", every, every)


def check_run(method: Mapping, federation: Mapping, local: Mapping) -> None:
    """Check the arguments of a method, of a federation and of local training; no data is looked at."""
    _method(method)
    _options(federation)
    _check(SGD, local)


def _federation(given: Mapping) -> None:
    """Check a federation's options against its builder's, without any data."""
    known(builders.BUILDERS, given.get("builder"), "builder")
    check_images(given.get("images"))
    _options(given)


def _options(given: Mapping) -> None:
    declared("validating", given.get("validating", False), bool)
    ok = not given.get("validating") or given.get("validation_fraction") is not None
    require(ok, "validating", True, "given with validation_fraction, the share of the images to score on")
    options = {key: value for key, value in given.items() if key not in ("builder", "images", "validating")}
    _check(builders.BUILDERS[given["builder"]], options)


def _method(given: Any) -> None:
    """Check a method, its hyper-parameters and what its label sets for itself."""
    require(isinstance(given, Mapping), "entry", given, "a mapping")
    known(methods.METHODS, given.get("name"), "name")
    kind = methods.METHODS[given["name"]]
    for key in given:
        known([*(f.name for f in fields(kind)), "name", *OWN], key, "key")
    for key, hint in OWN.items():
        if key in given:
            declared(key, given[key], hint)
    methods.get(**{key: value for key, value in given.items() if key not in OWN})


# ---------------------------------------------------------------------- tables
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
    where: Mapping | None = None


def _table(given: Any, labels: Mapping[str, Mapping]) -> None:
    _check(Table, given)
    known(labels, given["protocol"], "protocol")
    require("extended" not in given or given["extended"] > given["seeds"], "extended", given.get("extended"),
            "more than seeds")  # fmt: skip
    with _at("where"):
        _fields(given["where"])
    for title, row in given["rows"].items():
        with _at("rows", str(title)):
            _check(TableRow, row)
            known(labels[given["protocol"]], row["label"], "label")
            if "printed" in row:
                _fields(row["printed"])
                where = {"paper": given["paper"], **given["where"], **row["printed"]}
                require(len(papers.found(**where)) == 1, "printed", where, "fields of exactly one printed number")


def _fields(where: Mapping) -> None:
    """Refuse fields that no printed number has."""
    for key in where:
        known(_all_fields(papers.PAPERS), key, "field")


@cache
def _all_fields(folder: Path) -> set[str]:
    """The fields of the entries in `folder`, which must be the present one."""
    return {key for entry in papers.entries() for key in (*entry, *entry["setting"])}


# ---------------------------------------------------------------------- claims
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
            _check(Mechanism, self.mechanism)


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
    """A rule that was wrong: when it was corrected, why, and what it said before and after."""

    claim: str
    day: date
    before: str
    after: str
    because: str


@dataclass(frozen=True)
class Rule(Checked):
    """What the settings of every kind of part are: `operands`, how many cells it compares."""

    operands: int
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


RULES = {
    "more": Rule(2, may=("by", "lead")),
    "least": Rule(2, ("within",), ("lead",)),
    "near": Rule(2, ("within",)),
    "ratio": Rule(2, ("to",)),
    "above": Rule(1, ("than",)),
    "below": Rule(1, ("than",)),
    "equals": Rule(1, ("to",)),
    "as_printed": Rule(1, ("number", "within")),
    "printed_more": Rule(2, may=("within",)),
    "printed_above": Rule(1, ("than",)),
}
SIZES: dict[str, Any] = {
    "by": Weight, "within": Weight, "than": float, "to": float, "number": str, "lead": str,
}  # fmt: skip


def kind_of(part: Mapping) -> str:
    """The rule of a part: the one of its keys that is a rule's name."""
    named = [key for key in part if key in RULES]
    if len(named) != 1:
        known(RULES, next((key for key in part if key not in SIZES), "(none)"), "test")
    require(len(named) == 1, "test", named, "a single one")
    return named[0]


def _part(part: Any, numbers: Mapping, cell: Callable[[Any], None]) -> None:
    require(isinstance(part, Mapping), "entry", part, "a mapping")
    kind = kind_of(part)
    rule = RULES[kind]
    for key in part:
        known([kind, *rule.needs, *rule.may], key, "key")
    for key in rule.needs:
        require(key in part, "key", key, "there")
    for key in set(part) - {kind}:
        declared(key, part[key], SIZES[key])
    given = part[kind] if rule.operands == 2 else [part[kind]]
    ok = isinstance(given, list) and len(given) == rule.operands
    require(ok, kind, part[kind], f"a list of {rule.operands}")
    for key in ("number", "lead"):
        if key in part:
            known(numbers, part[key], "number")
    for side in given:
        if kind.startswith("printed"):
            declared(kind, side, str)
            known(numbers, side, "number")
        else:
            for one in side if isinstance(side, list) and kind == "more" else [side]:
                cell(one)


def _cell(labels: Mapping[str, Mapping], gates: Mapping | None = None) -> Callable[[Any], None]:
    """Return a check of a cell's name; with `gates`, also that something is said of what it leans on."""

    def check(name: Any) -> None:
        declared("cell", name, str)
        protocol, _, rest = name.partition("/")
        label, _, metric = rest.partition("/")
        known(labels, protocol, "protocol")
        known(labels[protocol], label, "label")
        known(METRICS, metric or "accuracy", "metric")
        if gates is not None:
            known(gates, protocol, "gate of protocol")

    return check


def _claim(paper: str, given: Any, labels: Mapping[str, Mapping], gates: Mapping) -> None:
    _check(Claim, given)
    numbers = given.get("numbers", {})
    for name, what in numbers.items():
        with _at("numbers", str(name)):
            papers.printed_numbers(paper, what)
    if "lead" in given:
        known(numbers, given["lead"], "number")
    for name, part in given.get("parts", {}).items():
        with _at("parts", str(name)):
            _part(part, numbers, _cell(labels, gates))


# ---------------------------------------------------------------------- the files
def _file(file: Path, needed: Sequence[str], more: Sequence[str] = ()) -> dict:
    """Read a file whose outermost keys must be those."""
    data = papers.read(file)
    with _at(file.name):
        for key in data:
            known([*needed, *more], key, "key")
        for key in needed:
            require(key in data, "key", key, "there")
        for key in data:
            kind = list if key in (*CHAPTERS, *LISTS) else (Mapping if key != "rules_since" else Any)
            declared(key, data[key], kind)
    return data


@cache
def _protocols(folder: Path) -> dict[str, dict]:
    data = _file(folder / "protocols.yaml", ["protocols"])
    for name, given in data["protocols"].items():
        with _at("protocols.yaml", str(name)):
            _check(Protocol, given)
    return data["protocols"]


@cache
def _tables(folder: Path) -> tuple[dict[str, dict], list[dict]]:
    data = _file(folder / "tables.yaml", ["tables"], ["left_out"])
    labels = {name: protocol["methods"] for name, protocol in _protocols(folder).items()}
    for name, given in data["tables"].items():
        with _at("tables.yaml", str(name)):
            _table(given, labels)
    for given in data.get("left_out", []):
        with _at("tables.yaml", "left_out", str(given.get("item", given) if isinstance(given, Mapping) else given)):
            _check(LeftOut, given)
            _fields(given.get("where", {}))
    return data["tables"], data.get("left_out", [])


@cache
def _claims(folder: Path) -> tuple[dict[str, list[dict]], dict[str, dict | str], date, list[dict]]:
    data = dict(_file(folder / "claims.yaml", ["rules_since", "gates"], [*CHAPTERS, "corrections"]))
    labels = {name: protocol["methods"] for name, protocol in _protocols(folder).items()}
    since, gates, corrected = data.pop("rules_since"), data.pop("gates"), data.pop("corrections", [])
    with _at("claims.yaml"):
        declared("rules_since", since, date)
    for name, gate in gates.items():
        with _at("claims.yaml", "gates", str(name)):
            known(labels, name, "protocol")
            if not isinstance(gate, str):
                _check(Gate, gate)
                _cell(labels)(f"{name}/{gate['baseline']}")
                papers.found(paper=_protocols(folder)[name]["paper"], **gate["printed"])
    for paper, found in data.items():
        for given in found:
            with _at("claims.yaml", str(given.get("id", given) if isinstance(given, Mapping) else given)):
                _claim(paper, given, labels, gates)
        with _at("claims.yaml", paper):
            mains = [given["id"] for given in found if given.get("main")]
            require(len(mains) < 2, "main claims", mains, "one at most")
    ids = [given["id"] for found in data.values() for given in found]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    require(not twice, "claims.yaml, id", twice, "there once")
    for given in corrected:
        with _at("claims.yaml", "corrections"):
            _check(Correction, given)
    return data, gates, since, corrected


def protocols() -> dict[str, dict]:
    """All protocols by name, as ``book/papers/protocols.yaml`` has them.

    Raises
    ------
    ValueError
        For the first entry that is not as declared; one line naming file, entry and key.
    """
    return _protocols(papers.PAPERS)


def tables() -> dict[str, dict]:
    """What is set beside what, by name, as ``book/papers/tables.yaml`` lists it; raises as ``protocols``."""
    return _tables(papers.PAPERS)[0]


def planned(protocol: str, label: str) -> int | None:
    """How many seeds the tables state for a method, `extended` included; None if it stands in none."""
    wanted = [table.get("extended", table["seeds"]) for table in tables().values() if table["protocol"] == protocol
              and any(row["label"] == label for row in table["rows"].values())]  # fmt: skip
    return max(wanted, default=None)


def left_out() -> list[dict]:
    """Experiments without a table, and why, as ``tables.yaml`` lists them; raises as ``protocols``."""
    return _tables(papers.PAPERS)[1]


def claims() -> dict[str, list[dict]]:
    """The claims of each paper, as ``book/papers/claims.yaml`` lists them; raises as ``protocols``."""
    return _claims(papers.PAPERS)[0]


def gates() -> dict[str, dict | str]:
    """What a protocol's claims lean on, or why on nothing; raises as ``protocols``."""
    return _claims(papers.PAPERS)[1]


def rules_since() -> date:
    """Since when the rules that hold for every claim are what they are; raises as ``protocols``."""
    return _claims(papers.PAPERS)[2]


def corrections() -> list[dict]:
    """Rules that were wrong, when and why they were corrected, and both verdicts; raises as ``protocols``."""
    return _claims(papers.PAPERS)[3]
