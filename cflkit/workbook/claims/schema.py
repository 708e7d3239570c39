"""What may stand in ``book/papers/tables.yaml`` and ``claims.yaml``: declared once, checked when they are read."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Annotated, Literal

from cflkit.checks import Range, Weight, known, require
from cflkit.workbook import places, strict
from cflkit.workbook.runs.protocols import protocols
from cflkit.workbook.runs.results import METRICS, MODELS

CHAPTERS = ("mdicfl", "fesem", "stocfl", "lcfed", "fedcg")

# The keys of each kind of entry; what may be None may be left out. Comments in the files say what they mean.
TABLE = {
    "paper": Literal[(*CHAPTERS, "ours")], "title": str, "protocol": str, "where": Mapping, "rows": Mapping,
    "metric": Literal[METRICS], "seeds": Annotated[int, Range(1, 10)], "note": str | None, "why": str | None,
    "also": Sequence[Literal[METRICS]] | None, "extended": Annotated[int, Range(4, 10)] | None, "guess": str | None,
}  # fmt: skip
ROW = {"label": str, "printed": Mapping | None, "model": Literal[MODELS] | None}  # beside the one printed number
LEFT_OUT = {"paper": Literal[CHAPTERS], "item": str, "because": str, "where": Mapping | None}
CLAIM = {
    "id": str, "says": str, "quote": str | None, "place": str | None, "main": bool | None, "lead": str | None,
    "kind": Literal["print", "arithmetic", "ours"] | None, "of": Literal["all", "most", "some"] | None,
    "numbers": Mapping | None, "parts": Mapping | None, "untested": str | None, "since": date | None,
}  # fmt: skip
RULES = {  # of a comparison, and what each has besides its two sides
    "more": {"by": float | None, "lead": str | None}, "less": {"lead": str | None}, "ratio": {"to": float},
    "near": {"within": Weight | None, "lead": str | None}, "printed_more": {"within": Weight | None},
}  # fmt: skip
GATE = {"baseline": str, "classes": Annotated[int, Range(2)], "printed": Mapping, "unlike": str | None,
        "mechanism": Mapping | None}  # fmt: skip
MECHANISM = {"label": str, "metric": Literal[METRICS], "why": str, "below": float | None, "least": float | None}
CORRECTION = {"claim": str, "day": date, "before": str, "after": str, "because": str, "now": str | None}


def _check_table(given: Mapping) -> None:
    strict.entry(TABLE, given)
    require(given["seeds"] < given.get("extended", 11), "extended", given.get("extended"), "more than seeds")
    known(protocols(), given["protocol"], "protocol")
    _each(partial(strict.entry, ROW), given["rows"], "rows")
    for row in given["rows"].values():
        known(protocols()[given["protocol"]]["methods"], row["label"], "label")


def _check_claim(given: Mapping) -> None:
    strict.entry(CLAIM, given)
    parts, numbers, ours = given.get("parts", {}), given.get("numbers", {}), given.get("kind") == "ours"
    require(bool(parts) != bool(given.get("untested")), "parts", parts, "given, or 'untested', which says why not")
    quoted = ours or bool(given.get("quote") and given.get("place"))
    require(quoted, "quote", given.get("quote"), "given with its place, unless it is ours")
    require(not given.get("main") or "kind" not in given, "main", True, "a claim of the paper that runs decide")
    if "lead" in given:
        known(numbers, given["lead"], "number")
    _each(partial(_check_part, numbers), parts, "parts")


def _check_part(numbers: Mapping, part: Mapping) -> None:
    """Refuse a comparison that is not one rule with two sides, each a cell, a number, or a printed one's name."""
    rules = [rule for rule in RULES if rule in part]
    for key in part if not rules else ():
        known(RULES, key, "key")
    require(len(rules) == 1, "rule", rules, f"a single one of {', '.join(RULES)}")
    (rule,) = rules
    strict.entry({rule: Sequence} | RULES[rule], part)
    require(len(part[rule]) == 2, rule, part[rule], "a list of 2")
    for one in [*sides(part)[1], part.get("lead", 0)]:
        require(isinstance(one, str | int | float), "side", one, "a cell, a number, or a number's name")
        if isinstance(one, str) and "/" not in one:
            known(numbers, one, "number")


def _check_gate(given: Mapping) -> None:
    strict.entry(GATE, given)
    if rule := given.get("mechanism"):
        strict.entry(MECHANISM, rule)
        require(("below" in rule) != ("least" in rule), "below", rule.get("below"), "given, or 'least'")


# ---------------------------------------------------------------------- comparisons and cells
def sides(part: Mapping) -> tuple[str, list]:
    """A comparison's rule, and what it compares: the cell that it is about, then its rivals, or a number's name."""
    rule = next(rule for rule in RULES if rule in part)
    ours, theirs = part[rule]
    return rule, [ours, *(theirs if isinstance(theirs, list) else [theirs])]


def cells(claim: Mapping) -> list[str]:
    """Every cell that a claim's comparisons name."""
    return [one for part in claim.get("parts", {}).values() for one in sides(part)[1] if "/" in str(one)]


def split(cell: str) -> tuple[str, str, str]:
    """Protocol, label and metric of ``protocol/label/metric``, whose metric is the accuracy if left out."""
    protocol, label, metric = [*cell.split("/", 2), "", ""][:3]
    return protocol, label, metric or "accuracy"


# ---------------------------------------------------------------------- the files
def _each(check: Callable[[Mapping], None], entries: Mapping | Sequence, *where: str) -> None:
    """Check every entry of a mapping, or of a list, whose entries are named by their `id` or their place."""
    for at, given in entries.items() if isinstance(entries, Mapping) else enumerate(entries, 1):
        is_mapping = isinstance(given, Mapping)
        with strict.at(*where, given.get("id", at) if is_mapping else at):
            require(is_mapping, "entry", given, "a mapping")
            check(given)


@places.kept
def _tables() -> dict:
    data = strict.keys(places.PAPERS / "tables.yaml", {"tables": dict, "left_out": list | None})
    protocols()  # whose faults are named as its own
    _each(_check_table, data["tables"], "tables.yaml")
    _each(partial(strict.entry, LEFT_OUT), data.get("left_out", []), "tables.yaml", "left_out")
    return {"left_out": []} | data


@places.kept
def _claims() -> dict:
    more = (*CHAPTERS, "corrections")
    may = dict.fromkeys(more, list | None)
    data = strict.keys(places.PAPERS / "claims.yaml", {"rules_since": date, "gates": dict, **may})
    data = {key: [] for key in more} | data
    gates = {name: given for name, given in data["gates"].items() if not isinstance(given, str)}  # but for "none"
    _each(_check_gate, gates, "claims.yaml", "gates")
    for key in more:
        _each(_check_claim if key in CHAPTERS else partial(strict.entry, CORRECTION), data[key], "claims.yaml", key)
    data |= {paper: [{"since": data["rules_since"]} | claim for claim in data[paper]] for paper in CHAPTERS}
    every = [claim for paper in CHAPTERS for claim in data[paper]]
    with strict.at("claims.yaml"):
        for name in [*data["gates"], *(split(cell)[0] for claim in every for cell in cells(claim))]:
            known(protocols(), name, "protocol")
            known(data["gates"], name, "gate of protocol")
        for claim in every:
            require(sum(one["id"] == claim["id"] for one in every) == 1, "id", claim["id"], "there once")
    return data


def tables() -> dict[str, dict]:
    """What is set beside what, by name, as ``book/papers/tables.yaml`` lists it; raises as ``protocols``."""
    return _tables()["tables"]


def left_out() -> list[dict]:
    """Experiments without a table, and why, as ``tables.yaml`` lists them; raises as ``protocols``."""
    return _tables()["left_out"]


@places.kept
def planned() -> dict[tuple[str, str], int]:
    """How many seeds the tables state for each label of a protocol, `extended` included."""
    stated = [(table.get("extended", table["seeds"]), table["protocol"], row["label"])
              for table in tables().values() for row in table["rows"].values()]  # fmt: skip
    return {(protocol, label): seeds for seeds, protocol, label in sorted(stated)}


def claims() -> dict[str, list[dict]]:
    """The claims of each paper, as ``book/papers/claims.yaml`` lists them; raises as ``protocols``."""
    return {paper: _claims()[paper] for paper in CHAPTERS}


def gate(protocol: str) -> dict:
    """What a protocol's claims lean on; nothing if they lean on nothing; raises as ``protocols``."""
    given = _claims()["gates"].get(protocol)
    return given if isinstance(given, Mapping) else {}


def corrections() -> list[dict]:
    """Rules that were wrong, when and why they were corrected, with their verdicts; raises as ``protocols``."""
    return [{"now": one["after"], **one} for one in _claims()["corrections"]]
