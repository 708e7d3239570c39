"""Experiments as data: ``book/papers/protocols.yaml`` names what can be run, and with what.

What may stand there is checked when the file is read. That the library takes the values is checked of each run
before it starts, and of all by ``cflkit check``: PyTorch takes longer to import than the whole ledger.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cflkit.checks import Count, Fraction, Inside, Natural, Positive, Range, Some, declared, known, require
from cflkit.workbook import places, strict

if TYPE_CHECKING:
    from cflkit.workbook.runs.plans import Plan

DEFAULTS = Path(__file__).with_name("defaults.json")  # which book/measure/defaults.py writes, and a test compares
SETTINGS = ("model", "rounds", "participation", "evaluate_every", "personal_every")  # of a run, by a protocol
OWN = {"rounds": Count, "participation": Fraction, "lr": Positive, "finetune": Natural}  # what a label may set

PROTOCOL = {  # the keys of an experiment; what may be None may be left out
    "paper": Literal["mdicfl", "fesem", "stocfl", "lcfed", "fedcg", "ours"], "feeds": str, "federation": Mapping,
    "model": str, "local": Mapping, "rounds": Count, "methods": Mapping, "assumed": Some[str],
    "cost": Mapping,  # minutes of a CPU core, by label, or for `each`
    "since": date,  # the day from which on its settings have been what they are
    "participation": Fraction | None, "evaluate_every": Count | None, "personal_every": Count | None,
    "unseen": Inside | None,  # share of the clients that comes after the last round
    "sample": str | None,  # what a verdict must say where less than the paper's data is used
    "caution": str | None,  # what else it must say of these runs
    "constant": Annotated[float, Range(0, 100)] | None,  # most frequent class, if classes differ [%]
    "search": Sequence[Mapping] | None,  # readings tried on a baseline before that day, and what came of each
}  # fmt: skip


def _check(given: Mapping) -> None:
    strict.entry(PROTOCOL, given)
    labels, search = given["methods"], given.get("search", [])
    require(len(labels) > 0, "methods", labels, "at least one label")
    known(defaults()["federation"], given["federation"].get("builder"), "builder in defaults.json")
    for label, method in labels.items():
        require(isinstance(method, Mapping), f"method of {label}", method, "a mapping")
        known(defaults()["method"], method.get("name"), f"method of {label} in defaults.json")
        for key in OWN.keys() & method.keys():
            declared(f"{key} of {label}", method[key], OWN[key])
    known(given["cost"], "each", "cost")
    for label, minutes in given["cost"].items():
        known([*labels, "each"], label, "cost")
        declared(f"cost of {label}", minutes, Positive)
    chosen = sum(bool(tried.get("chosen")) for tried in search)
    require(chosen == bool(search), "readings that were chosen", chosen, "one of a search")


@cache
def defaults() -> dict:
    """What the library takes for what is left out, from a file: PyTorch takes long to import."""
    return json.loads(DEFAULTS.read_text("utf-8"))


@places.kept
def protocols() -> dict[str, dict]:
    """All protocols by name; the first entry that is not as declared is refused, with file, entry and key."""
    data = strict.keys(places.PAPERS / "protocols.yaml", {"protocols": dict})["protocols"]
    for name, given in data.items():
        with strict.at("protocols.yaml", name):
            _check(given)
    return data


def check() -> None:
    """Require that the library takes what every protocol gives it."""
    for name, protocol in protocols().items():
        for label in protocol["methods"]:
            plan(name, label)


def parts(protocol: Mapping, label: str) -> tuple[dict, dict, dict]:
    """Give a label's method, local training and other settings: the protocol's, but for what it has for itself."""
    method = dict(protocol["methods"][label])
    own = {name: method.pop(name) for name in OWN if name in method}
    local = protocol["local"] | ({"lr": own.pop("lr")} if "lr" in own else {})
    setting = {name: protocol[name] for name in SETTINGS if name in protocol}
    return method, local, {"evaluate_every": 10} | setting | own


def plan(name: str, label: str, seed: int = 0, **how) -> "Plan":
    """One run of a protocol, of a label or of ``FILE.py:CLASS``; `how` as for :class:`~.plans.Plan`."""
    from cflkit.workbook.runs import plans

    known(protocols(), name, "protocol")
    protocol, source = protocols()[name], ""
    if plans.FILE.search(label):
        label, source = plans.named(label)
        protocol = protocol | {"methods": {label: {"name": label}}}
    known(protocol["methods"], label, "label")
    method, local, setting = parts(protocol, label)
    unseen, federation = protocol.get("unseen", 0.0), protocol["federation"]
    with strict.at("protocols.yaml", name, label):
        return plans.Plan(name, label, method, federation, local, setting, seed, unseen, how, source).check()
