"""What may stand in ``book/papers/protocols.yaml``: declared once, and checked when the file is read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
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
    declared,
    distinct,
    known,
    require,
)
from cflkit.data import builders, images
from cflkit.engine.sgd import SGD
from cflkit.models import networks
from cflkit.workbook import places, strict

PACKED = ("femnist", "sign", "svhn_sample")  # data sets that are read from a .npz of that name
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
        with strict.at("federation"):
            known(builders.BUILDERS, self.federation.get("builder"), "builder")
            check_images(self.federation.get("images"))
            check_federation(self.federation)
        check_model(self.model)
        with strict.at("local"):
            strict.check(SGD, self.local)
        for label, method in self.methods.items():
            with strict.at("methods", label):
                check_method(method)
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


def check_federation(given: Mapping) -> None:
    """Check a federation's options against its builder's, without any data."""
    declared("validating", given.get("validating", False), bool)
    ok = not given.get("validating") or given.get("validation_fraction") is not None
    require(ok, "validating", True, "given with validation_fraction, the share of the images to score on")
    options = {key: value for key, value in given.items() if key not in ("builder", "images", "validating")}
    strict.check(builders.BUILDERS[given["builder"]], options)


def check_method(given: Any) -> None:
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
    """All protocols by name, as ``book/papers/protocols.yaml`` has them.

    Raises
    ------
    ValueError
        For the first entry that is not as declared; one line naming file, entry and key.
    """
    return _protocols(places.PAPERS)
