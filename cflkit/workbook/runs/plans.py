"""One run as data: all that a worker needs to make it, in this process or on another machine."""

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

from cflkit import methods, rng
from cflkit.checks import Checked, Count, Fraction, Natural, declared, distinct, hints, known, parameters, require
from cflkit.data import images
from cflkit.data.builders import BUILDERS, build
from cflkit.data.federation import Federation
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.methods import OracleClusters
from cflkit.models import networks
from cflkit.workbook import places
from cflkit.workbook.runs import typed

MADE = {("oracle", "cluster"), ("mdicfl", "truth"), ("mdicfl", "real")}  # from the federation, never typed
FILE = re.compile(r"\.py(:|$)")  # stands in a method that is named by its file


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

    def __post_init__(self):
        super().__post_init__()
        if not re.fullmatch(r"mlp[1-9]\d*", self.model):
            known(networks.names(), self.model, "model")


@dataclass(frozen=True)
class Training(SGD):
    """How clients train in a run: as :class:`~cflkit.engine.sgd.SGD` says, but every client does train."""

    epochs: Count = 1


@dataclass(frozen=True)
class Plan:
    """One run: arguments of :func:`cflkit.methods.get`, of :func:`cflkit.data.builders.build`, and so on."""

    protocol: str  # the experiment: the folder of its records
    label: str  # the method's in it; says what was changed
    method: dict
    federation: dict
    local: dict  # of an SGD
    setting: dict  # of a Setting
    seed: int = 0  # of data, initial models, sampling and batches alike
    unseen: float = 0.0  # share of the clients that comes after the last round
    how: dict = field(default_factory=dict)  # of a Simulation, what changes numbers at rounding level only
    source: str = ""  # FILE.py:CLASS of a method that is none of the package's

    def __str__(self) -> str:
        return f"{self.label}, seed {self.seed}"

    def changed(self, given: Mapping[str, str]) -> "Plan":
        """Change parameters by name, as typed; the label says which. What no simulation takes is refused."""
        parts = {part: dict(getattr(self, part)) for part in ("method", "federation", "local", "setting")}
        takes, label = accepted(self.method["name"], self.federation["builder"]), [self.label]
        for name, text in given.items():
            known(takes, name, "parameter")
            part, hint, _ = takes[name]
            parts[part][name] = typed.value(name, hint, text)
            label.append(f"{name}={text}")
        return replace(self, label=places.label(",".join(label)), **parts).check()

    def check(self) -> "Plan":
        """Require that the library takes all that is given here; nothing is read or made."""
        fed = dict(self.federation)
        builder, pictures, validating = (fed.pop(name, None) for name in ("builder", "images", "validating"))
        known(BUILDERS, builder, "builder")
        distinct("images", pictures, pictures if isinstance(pictures, list) else [pictures])
        declared("validating", validating or False, bool)
        ok = not validating or fed.get("validation_fraction") is not None
        require(ok, "validating", True, "given with validation_fraction, the share of the images to score on")
        methods.get(**self.method)
        for kind, given in ((BUILDERS[builder], fed), (SGD, self.local), (Setting, self.setting)):
            for key in given:
                known(hints(kind), key, "key")
            for name, (default, _) in parameters(kind).items():
                require(name in given or default is not MISSING, name, None, "given")
            kind(**given)
        return self

    def need_images(self) -> None:
        """Require that its images are on this machine; see :func:`cflkit.data.images.need`."""
        names = self.federation["images"]
        for name in [names] if isinstance(names, str) else names:
            images.need(name)

    def simulation(self, federation_: Federation | None = None, **overrides) -> Simulation:
        """Set the run up, on its federation if that is at hand already, and with other settings where given."""
        if self.source:
            named(self.source)  # in another process it is not known yet
        fed = federation_ or _federation(json.dumps(self.federation | {"seed": self.seed}))
        settings = asdict(Setting()) | self.setting | self.how | overrides
        if self.unseen:
            late = rng.generator(self.seed, "unseen").permutation(fed.clients)[: round(self.unseen * fed.clients)]
            settings["arrival"] = torch.ones(fed.clients, dtype=torch.int64)
            settings["arrival"][late] = max(settings["rounds"], 1) + 1
        oracle = self.method["name"] == "oracle"
        method = OracleClusters.of(fed) if oracle else methods.get(**self.method)
        return Simulation(method, fed, local=SGD(**self.local), seed=self.seed, **settings)


@lru_cache(maxsize=1)
def _federation(config: str) -> Federation:
    """The federation of a configuration; the methods of a sweep follow each other on the same one."""
    return build(json.loads(config))


def free(method: str, on: str = "rotated", images: str = "digits", **how) -> Plan:
    """One run of a method, `on` data as a builder divides it between 40 clients; it belongs to no protocol.

    `method` is a name, or ``FILE.py:CLASS``; `images` are a data set's name, several with commas between them, or
    the path of an ``.npz``; `how` is as for :class:`Plan`.
    """
    method, source = named(method)
    known(BUILDERS, on, "builder")
    pictures = images.split(",") if "," in images else images
    joins = BUILDERS[on].joins  # of one builder its options say
    takes = "two names or more, with commas between them," if joins else "one name"
    require(joins not in (True, False) or joins == (pictures != images), "images", images, f"{takes} for {on}")
    place = re.sub(r"[^\w,.-]+", "-", f"{on}-{images}").strip("-")
    many = {"clients": 40} if "clients" in hints(BUILDERS[on]) else {}
    fed = {"builder": on, "images": pictures} | many
    return Plan(place, method, {"name": method}, fed, {"lr": 0.1, "epochs": 5}, {}, how=how, source=source)


def named(method: str) -> tuple[str, str]:
    """Find a method by its name, or by ``FILE.py:CLASS``, and make that one known as ``FILE.CLASS``.

    Returns its name in `METHODS`, and the absolute path and class of one that comes from a file (else "").
    """
    if not FILE.search(method):
        known(methods.METHODS, method, "method")
        return method, ""
    from cflkit.testing.promises import methods_of

    path, _, kind = method.partition(".py:")
    file = Path(f"{path.removesuffix('.py')}.py").resolve()
    found = {one.__name__: one for one in methods_of(file)}
    require(bool(kind) or len(found) == 1, "method", method, f"{method}:CLASS, with one of {', '.join(found)}")
    kind = kind or next(iter(found))
    known(found, kind, f"method of {file.name}")
    methods.METHODS[name := f"{file.stem}.{kind}"] = found[kind]
    return name, f"{file}:{kind}"


def accepted(method: str, builder: str) -> dict[str, tuple[str, Any, object]]:
    """What may be changed in a run, by name: the part of the plan, the annotation, and the default."""
    kinds = {"method": methods.METHODS[method], "federation": BUILDERS[builder], "local": Training,
             "setting": Setting}  # fmt: skip
    return {name: (part, hint, parameters(kind)[name][0]) for part, kind in kinds.items()
            for name, hint in hints(kind).items() if name != "seed" and (method, name) not in MADE}  # fmt: skip
