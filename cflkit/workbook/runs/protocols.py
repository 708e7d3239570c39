"""Experiments as data: ``book/papers/protocols.yaml`` names what can be run, and with what; checked when read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from cflkit import methods
from cflkit.checks import Checked, Count, Fraction, Inside, Natural, Positive, Range, Some, declared, known, require
from cflkit.data.builders import BUILDERS
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.workbook import places, strict
from cflkit.workbook.runs import plans
from cflkit.workbook.runs.plans import Plan, Setting, check_federation, check_images, check_model

# what a label of a protocol may have for itself
OWN = {"rounds": Count, "participation": Fraction, "lr": Positive, "finetune": Natural}


@dataclass(frozen=True)
class Tried(Checked):
    """A reading of a protocol that was tried on a baseline before it was frozen: what came out, at which round."""

    reading: str
    label: str
    found: Mapping  # round -> accuracy [%]
    seed: Natural = 0
    chosen: str | None = None  # by what, if it was


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
    search: Sequence[Mapping] = ()  # what was tried before that day

    def __post_init__(self):
        super().__post_init__()
        require(len(self.methods) > 0, "methods", self.methods, "at least one label")
        with strict.at("federation"):
            known(BUILDERS, self.federation.get("builder"), "builder")
            check_images(self.federation.get("images"))
            check_federation(self.federation)
        check_model(self.model)
        with strict.at("local"):
            strict.check(SGD, self.local)
        for label, method in self.methods.items():
            with strict.at("methods", label):
                _check_method(method)
        for label, minutes in {"each": [1, 1], **self.cost}.items():
            known([*self.methods, *(["each"] if "each" in self.cost else [])], label, "cost")
            declared(f"cost of {label}", minutes, Sequence[Positive])
            two = "two numbers: minutes of a CPU core, of an H200"
            require(len(minutes) == 2, f"cost of {label}", minutes, two)
        with strict.at("search"):
            for tried in self.search:
                strict.check(Tried, tried)
        chosen = sum(bool(tried.get("chosen")) for tried in self.search)
        require(chosen == bool(self.search), "readings that were chosen", chosen, "one of a search")


def _check_method(given: Any) -> None:
    """Check a method, its hyper-parameters and what its label sets for itself."""
    require(isinstance(given, Mapping), "entry", given, "a mapping")
    known(methods.METHODS, given.get("name"), "name")
    taken = [f.name for f in fields(methods.METHODS[given["name"]])]
    for key, value in given.items():
        known([*taken, "name", *OWN], key, "key")
        declared(key, value, OWN.get(key, Any))
    methods.get(**{key: value for key, value in given.items() if key not in OWN})


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


def parts(protocol: Mapping, label: str) -> tuple[dict, dict, dict]:
    """Give a label's method, local training and other settings: the protocol's, but for what it has for itself."""
    method = dict(protocol["methods"][label])
    own = {name: method.pop(name) for name in OWN if name in method}
    local = protocol["local"] | ({"lr": own.pop("lr")} if "lr" in own else {})
    return method, local, {f.name: protocol[f.name] for f in fields(Setting) if f.name in protocol} | own


def plan(name: str, label: str, seed: int = 0, **how) -> Plan:
    """One run of a protocol, of a label or of ``FILE.py:CLASS``; `how` as for :class:`~.plans.Plan`."""
    known(protocols(), name, "protocol")
    protocol, source = protocols()[name], ""
    if plans.own(label):
        label, source = plans.named(label)
        protocol = protocol | {"methods": {label: {"name": label}}}
    known(protocol["methods"], label, "label")
    method, local, setting = parts(protocol, label)
    setting = {"evaluate_every": Protocol.evaluate_every} | setting
    unseen = protocol.get("unseen", 0.0)
    return Plan(name, label, method, protocol["federation"], local, setting, seed, unseen, how, source)


def simulation(name: str, label: str, *, seed: int = 0, **overrides) -> Simulation:
    """Set up one run of a protocol; see :func:`plan`; `overrides` are in place of its settings."""
    return plan(name, label, seed).simulation(**overrides)
