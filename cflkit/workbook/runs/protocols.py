"""Experiments as data: ``book/papers/protocols.yaml`` names what can be run, and with what.

What may stand there is checked when the file is read. That the library takes the values is checked of each run
before it starts, and of all by ``cflkit check``: PyTorch takes longer to import than the whole ledger.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cflkit.checks import Checked, Count, Fraction, Inside, Natural, Positive, Range, Some, declared, known, require
from cflkit.workbook import places, strict

if TYPE_CHECKING:
    from cflkit.engine.simulation import Simulation
    from cflkit.workbook.runs.plans import Plan

DEFAULTS = Path(__file__).with_name("defaults.json")  # which book/measure/defaults.py writes, and a test compares
SETTINGS = ("model", "rounds", "participation", "evaluate_every", "personal_every")  # of a run, by a protocol
# what a label of a protocol may have for itself
OWN = {"rounds": Count, "participation": Fraction, "lr": Positive, "finetune": Natural}


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
    assumed: Some[str]
    since: date  # the day from which on its settings have been what they are
    participation: Fraction = 1.0
    evaluate_every: Count = 10
    personal_every: Count | None = None
    unseen: Inside | None = None  # share of the clients that comes after the last round
    sample: str | None = None  # what a verdict must say where less than the paper's data is used
    caution: str | None = None  # what else it must say of these runs
    constant: Annotated[float, Range(0, 100)] | None = None  # most frequent class, if classes differ [%]
    search: Sequence[Mapping] = ()  # readings tried on a baseline before that day, and what came of each

    def __post_init__(self):
        super().__post_init__()
        require(len(self.methods) > 0, "methods", self.methods, "at least one label")
        known(defaults()["federation"], self.federation.get("builder"), "builder in defaults.json")
        for label, method in self.methods.items():
            require(isinstance(method, Mapping), f"method of {label}", method, "a mapping")
            known(defaults()["method"], method.get("name"), f"method of {label} in defaults.json")
            for key in OWN.keys() & method.keys():
                declared(f"{key} of {label}", method[key], OWN[key])
        for label, minutes in {"each": [1, 1], **self.cost}.items():
            known([*self.methods, *(["each"] if "each" in self.cost else [])], label, "cost")
            declared(f"cost of {label}", minutes, Sequence[Positive])
            two = "two numbers: minutes of a CPU core, of an H200"
            require(len(minutes) == 2, f"cost of {label}", minutes, two)
        chosen = sum(bool(tried.get("chosen")) for tried in self.search)
        require(chosen == bool(self.search), "readings that were chosen", chosen, "one of a search")


@cache
def defaults() -> dict:
    """What the library takes for what is left out, from a file: PyTorch takes long to import."""
    return json.loads(DEFAULTS.read_text("utf-8"))


@cache
def _protocols(folder: Path) -> dict[str, dict]:
    data = strict.keys(folder / "protocols.yaml", {"protocols": dict}, {})["protocols"]
    for name, given in data.items():
        with strict.at("protocols.yaml", name):
            strict.check(Protocol, given)
    return data


def protocols() -> dict[str, dict]:
    """All protocols by name; the first entry that is not as declared is refused, with file, entry and key."""
    return _protocols(places.PAPERS)


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
    return method, local, {"evaluate_every": Protocol.evaluate_every} | setting | own


def plan(name: str, label: str, seed: int = 0, **how) -> "Plan":
    """One run of a protocol, of a label or of ``FILE.py:CLASS``; `how` as for :class:`~.plans.Plan`."""
    from cflkit.workbook.runs import plans

    known(protocols(), name, "protocol")
    protocol, source = protocols()[name], ""
    if plans.own(label):
        label, source = plans.named(label)
        protocol = protocol | {"methods": {label: {"name": label}}}
    known(protocol["methods"], label, "label")
    method, local, setting = parts(protocol, label)
    unseen, federation = protocol.get("unseen", 0.0), protocol["federation"]
    with strict.at("protocols.yaml", name, label):
        return plans.Plan(name, label, method, federation, local, setting, seed, unseen, how, source).check()


def simulation(name: str, label: str, *, seed: int = 0, **overrides) -> "Simulation":
    """Set up one run of a protocol; see :func:`plan`; `overrides` are in place of its settings."""
    return plan(name, label, seed).simulation(**overrides)
