"""Experiments as data: ``book/papers/protocols.yaml`` names what can be run, and with what.

A :class:`Plan` is one run of an experiment, the paper's own, a changed one, or one made up at the console. It holds
all that a worker needs to run it and can be sent to another process or machine.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

from cflkit import methods, rng
from cflkit.checks import Checked, Count, Fraction, Natural, hints, known, parameters, require
from cflkit.data import builders as federation
from cflkit.data import images
from cflkit.data.federation import Federation
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.methods import OracleClusters
from cflkit.workbook import strict
from cflkit.workbook.runs import experiments, records, typed
from cflkit.workbook.runs.experiments import protocols

__all__ = ["Plan", "Setting", "accepted", "free", "plan", "protocols", "simulation"]


@dataclass(frozen=True)
class Setting(Checked):
    """What changes the result of a run, beside its method, its federation and its local training."""

    model: str = "mlp200"
    rounds: Count = 20
    participation: Fraction = 1.0
    evaluate_every: Count = 1
    personal_every: Count | None = None
    finetune: Natural = 0
    dtype: Literal["float32", "float64"] = "float32"


@dataclass(frozen=True)
class Training(SGD):
    """How clients train in a run: as :class:`~cflkit.engine.sgd.SGD` says, but every client does train."""

    epochs: Count = 1


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes
    ----------
    protocol, label : str
        The experiment: the folder of its records; the method's label in it, which says what was changed.
    method, federation, local, setting : dict
        Arguments of :func:`cflkit.methods.get`, of :func:`cflkit.data.builders.build`, of
        :class:`~cflkit.engine.sgd.SGD`, and of :class:`Setting`.
    seed : int
        Seeds data, initial models, sampling and batches alike.
    unseen : float
        Share of the clients that comes after the last round.
    how : dict
        Settings of :class:`~cflkit.engine.simulation.Simulation` that change numbers at rounding level only.
    source : str
        ``FILE.py:CLASS`` of a method that is none of the package's.
    """

    protocol: str
    label: str
    method: dict
    federation: dict
    local: dict
    setting: dict
    seed: int = 0
    unseen: float = 0.0
    how: dict = field(default_factory=dict)
    source: str = ""

    def __str__(self) -> str:
        return f"{self.label}, seed {self.seed}"

    def changed(self, given: Mapping[str, str]) -> "Plan":
        """Change parameters by name, as typed; the label says which."""
        parts = {"method": dict(self.method), "federation": dict(self.federation), "local": dict(self.local),
                 "setting": dict(self.setting)}  # fmt: skip
        takes, label = accepted(self.method["name"], self.federation["builder"]), [self.label]
        for name, text in given.items():
            known(takes, name, "parameter")
            part, hint, _ = takes[name]
            parts[part][name] = typed.value(name, hint, text)
            label.append(f"{name}={text}")
        changed = replace(self, label=records.label(",".join(label)), **parts)
        changed.check()
        return changed

    def check(self) -> None:
        """Refuse what no simulation could be made of, as far as can be told without data."""
        experiments.check_method(self.method)
        experiments.check_federation(self.federation)
        strict.check(SGD, self.local)
        experiments.check_model(Setting(**self.setting).model)

    def need_images(self) -> None:
        """Require that its images are on this machine; see :func:`cflkit.data.images.need`."""
        named = self.federation["images"]
        for name in [named] if isinstance(named, str) else named:
            images.need(name)

    def simulation(self, federation_: Federation | None = None, **overrides) -> Simulation:
        """Set the run up, on its federation if that is at hand already, and with other settings where given."""
        if self.source:
            named(self.source)  # in another process it is not known yet
        fed = federation_ or _federation(json.dumps(self.federation | {"seed": self.seed}))
        settings = asdict(Setting()) | self.setting | self.how
        if self.unseen:
            late = rng.generator(self.seed, "unseen").permutation(fed.clients)[: round(self.unseen * fed.clients)]
            settings["arrival"] = torch.ones(fed.clients, dtype=torch.int64)
            settings["arrival"][late] = max((settings | overrides)["rounds"], 1) + 1
        chosen = dict(self.method)
        kind = chosen.pop("name")
        method = OracleClusters.of(fed) if kind == "oracle" else methods.get(kind, **chosen)
        return Simulation(method, fed, local=SGD(**self.local), seed=self.seed, **(settings | overrides))


def plan(name: str, label: str, seed: int = 0, **how) -> Plan:
    """One run of a protocol; `label` may be ``FILE.py:CLASS``, too; `how` is as for :class:`Plan`."""
    known(protocols(), name, "protocol")
    protocol, source = protocols()[name], ""
    if own(label):
        label, source = named(label)
        protocol = protocol | {"methods": {label: {"name": label}}}
    known(protocol["methods"], label, "label")
    method, local, setting = parts(protocol, label)
    setting, unseen = {"evaluate_every": 10} | setting, protocol.get("unseen", 0.0)
    return Plan(name, label, method, protocol["federation"], local, setting, seed, unseen, how, source)


def own(label: str) -> bool:
    """Whether a label is no name, but a method of one's own: ``FILE.py:CLASS``, or ``FILE.py`` of a single one."""
    return ".py:" in label or label.endswith(".py")


def parts(protocol: Mapping, label: str) -> tuple[dict, dict, dict]:
    """Give a label's method, local training and other settings: the protocol's, but for what it has for itself."""
    method = dict(protocol["methods"][label])
    mine = {name: method.pop(name) for name in experiments.OWN if name in method}
    local = protocol["local"] | ({"lr": mine.pop("lr")} if "lr" in mine else {})
    return method, local, {name: protocol[name] for name in hints(Setting) if name in protocol} | mine


def free(method: str, builder: str, images: str, given: Mapping[str, str], seed: int = 0, **how) -> Plan:
    """One run of a method that belongs to no protocol: 40 clients on the digits unless told otherwise.

    Parameters
    ----------
    method, builder : str
        Names from `METHODS` and `BUILDERS`, or for a method ``FILE.py:CLASS``.
    images : str
        A data set's name, or several with commas between them; or the path of an ``.npz``.
    given : mapping of str to str
        Parameters as typed.
    seed, **how
        See :class:`Plan`.
    """
    method, source = named(method)
    known(federation.BUILDERS, builder, "builder")
    pictures = images.split(",") if "," in images else images
    if not images.endswith(".npz"):
        experiments.check_images(pictures)
    joins = federation.BUILDERS[builder].joins  # of one builder its options say
    takes = "two names or more, with commas between them," if joins else "one name"
    require(joins not in (True, False) or joins == (pictures != images), "images", images, f"{takes} for {builder}")
    place = re.sub(r"[^\w,.-]+", "-", f"{builder}-{images}").strip("-")
    many = {"clients": 40} if "clients" in hints(federation.BUILDERS[builder]) else {}
    local, setting = {"lr": 0.1, "epochs": 5}, {"model": "mlp200", "rounds": 20}
    fed = {"builder": builder, "images": pictures} | many
    return Plan(place, method, {"name": method}, fed, local, setting, seed, how=how, source=source).changed(given)


def named(method: str) -> tuple[str, str]:
    """Find a method by its name, or by ``FILE.py:CLASS``, and make that one known as ``FILE.CLASS``.

    Returns
    -------
    str
        Its name in `METHODS`.
    str
        The absolute path and class of one that comes from a file; else "".
    """
    path, _, kind = method.partition(".py:")
    if not own(method):
        known(methods.METHODS, method, "method")
        return method, ""
    from cflkit.testing.promises import methods_of

    file = Path(path if kind else method.removesuffix(".py")).with_suffix(".py").resolve()
    found = {one.__name__: one for one in methods_of(file)}
    require(bool(kind) or len(found) == 1, "method", method, f"{method}:CLASS, with one of {', '.join(found)}")
    kind = kind or next(iter(found))
    known(found, kind, f"method of {file.name}")
    name = f"{file.stem}.{kind}"
    methods.METHODS[name] = found[kind]
    return name, f"{file}:{kind}"


def accepted(method: str, builder: str) -> dict[str, tuple[str, Any, object]]:
    """What may be changed in a run, by name: the part of the plan, the annotation, and the default."""
    kinds = {"method": methods.METHODS[method], "federation": federation.BUILDERS[builder], "local": Training,
             "setting": Setting}  # fmt: skip
    found = {}
    for part, kind in kinds.items():
        plain = parameters(kind)
        found |= {name: (part, hint, plain[name][0]) for name, hint in hints(kind).items()
                  if name != "seed" and (method, name) not in _MADE}  # fmt: skip
    return found


_MADE = {("oracle", "cluster"), ("mdicfl", "truth"), ("mdicfl", "real")}  # made from the federation, never typed


def simulation(name: str, label: str, *, seed: int = 0, **overrides) -> Simulation:
    """Set up one run of a protocol; see :func:`plan` and :meth:`Plan.simulation`."""
    return plan(name, label, seed).simulation(**overrides)


@lru_cache(maxsize=1)
def _federation(config: str) -> Federation:
    """The federation of a configuration; the methods of a sweep follow each other on the same one."""
    return federation.build(json.loads(config))
