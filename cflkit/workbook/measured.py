"""What was measured: the records of a protocol's present configuration; which records are left out, and why."""

import json
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path

from cflkit import methods
from cflkit.checks import known, parameters
from cflkit.data import builders
from cflkit.engine import metrics
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.workbook import protocols, records, schema

# not shown in percent
PLAIN = {"ari", "nmi", "clusters", "moved", "settled", "down", "up", "largest_share", "entropy", "objective",
         "images", "lam", "server_flops", "client_flops"}  # fmt: skip
SCORED = Simulation.personal_clients  # clients whose own models are scored, in every protocol


@dataclass(frozen=True)
class Measured:
    """The runs of one method of a protocol, one per seed.

    Attributes
    ----------
    runs : list of dict
        Their records, by seed.
    """

    runs: list[dict]

    @property
    def rounds(self) -> int:
        """Communication rounds of the runs."""
        return self.runs[0]["config"]["rounds"]

    def values(self, metric: str = "accuracy") -> dict[int, float]:
        """The last round's value for each seed, accuracies in percent; empty if no run has it.

        ``settled`` is the last round in which a client moved to another cluster; ``main_clusters`` counts clusters
        that hold a tenth of the clients met or more; ``lam`` is the weight of FedCG's residuals in its last layer.
        """
        if metric == "settled":
            moves = {r["seed"]: [t["round"] for t in r["rounds"] if t.get("moved")] for r in self.runs}
            return {seed: max(rounds, default=0) for seed, rounds in moves.items()}
        if metric == "main_clusters":
            sizes = {r["seed"]: r["final"]["sizes"] for r in self.runs if "sizes" in r["final"]}
            return {seed: sum(10 * size >= sum(found) for size in found) for seed, found in sizes.items()}
        if metric == "lam":
            return {r["seed"]: r["final"]["lam"][-1] for r in self.runs if "lam" in r["final"]}
        scale = 1 if metric in PLAIN else 100
        has = [r for r in self.runs if isinstance(r["final"].get(metric), int | float)]
        return {r["seed"]: scale * r["final"][metric] for r in has}

    def percent(self, metric: str = "accuracy") -> list[float]:
        """The same as a list."""
        return list(self.values(metric).values())


def number(values: Sequence[float], sign: bool = False) -> str:
    """Mean with two decimals, and the standard deviation over seeds where there are several."""
    spread = metrics.spread(values)
    text = f"{spread['mean']:{'+' if sign else ''}.2f}"
    return text if spread["n"] == 1 else f"{text} ± {spread['std']:.2f}"


def diverged(run: dict) -> bool:
    """Whether a run's models had diverged by some round."""
    return any(row.get("diverged") for row in run["rounds"])


def fits(record: dict) -> bool:
    """Whether a record is of its protocol's present configuration, as far as that can be told without the data.

    What either of them leaves out has its default. How often a run is scored is left open: it changes no score.
    """
    protocol = protocols.protocols().get(record["protocol"], {"methods": {}})
    if record["label"] not in protocol["methods"]:
        return False
    config, (method, local, setting) = record["config"], protocols.parts(protocol, record["label"])
    arrival, never = config.get("arrival") or [], config["rounds"] + 1
    away = round(protocol.get("unseen", 0) * len(arrival))
    if arrival.count(never) != away or arrival.count(1) != len(arrival) - away:
        return False
    federation = {key: value for key, value in config["federation"].items() if key != "digest"}
    made = protocol["federation"] | {"seed": record["seed"]}
    compared = [f.name for f in fields(protocols.Setting) if f.name not in ("evaluate_every", "personal_every")]
    needed, has = ({key: given[key] for key in compared if key in given} for given in (setting, config))
    return (
        whole(methods.METHODS[method["name"]], method)
        == whole(methods.METHODS[method["name"]], config["method"])
        and whole(builders.BUILDERS[made["builder"]], made)
        == whole(builders.BUILDERS[made["builder"]], federation)
        and whole(SGD, local) == whole(SGD, config["local"])
        and whole(protocols.Setting, needed) == whole(protocols.Setting, has)
        and (config.get("personal") or [SCORED])[0] == SCORED
    )


def whole(kind: type, given: dict) -> dict:
    """Arguments of a dataclass with its defaults for those that are left out, as JSON has them."""
    return _defaults(kind) | given


@cache
def _defaults(kind: type) -> dict:
    plain = {name: default for name, (default, _) in parameters(kind).items() if default is not MISSING}
    return json.loads(json.dumps(plain))


def measured(protocol: str, label: str, folder: Path = records.FOLDER) -> Measured | None:
    """The records of a method in a protocol, of its present configuration; None if there are none."""
    runs = {r["seed"]: r for r in _survey(protocol, folder)[0] if r["label"] == label and fits(r)}
    return Measured([runs[seed] for seed in sorted(runs)]) if runs else None


def cell(name: str, folder: Path = records.FOLDER) -> tuple[dict[int, float], list[dict]]:
    """Values by seed, and the records, of ``protocol/label/metric`` (accuracy if left out).

    Only the seeds that a table states beforehand count: 0, 1, ... up to their number.

    Raises
    ------
    ValueError
        For a protocol or label that does not exist.
    """
    protocol, label, metric = [*name.split("/"), "accuracy"][:3]
    known(protocols.protocols(), protocol, "protocol")
    known(protocols.protocols()[protocol]["methods"], label, "label")
    m, wanted = measured(protocol, label, folder), schema.planned(protocol, label)
    if m and wanted:
        m = Measured([run for run in m.runs if run["seed"] < wanted])
    return (m.values(metric), m.runs) if m else ({}, [])


def problems(folder: Path = records.FOLDER) -> list[str]:
    """Say of each record that is left out which it is and why: damaged, or one of two of the same run."""
    return [line for place in sorted(folder.glob("*/")) for line in _survey(place.name, folder)[1]]


def _survey(protocol: str, folder: Path) -> tuple[list[dict], list[str]]:
    return _cached(protocol, folder, tuple(map(_stamp, sorted((folder / protocol).glob("*.json")))))


def _stamp(file: Path) -> tuple:
    """What tells that a file has changed; of one that is gone, or a link to nothing, no more than its name."""
    try:
        return file.name, file.stat().st_mtime_ns, file.stat().st_size
    except OSError:
        return (file.name,)


@cache
def _cached(protocol: str, folder: Path, stamp: tuple) -> tuple[list[dict], list[str]]:
    """Records that count, and a line for each that does not."""
    good, bad, runs, data = [], [], {}, {}
    for name, *_ in stamp:
        try:
            record = records.read(folder / protocol / name)
        except ValueError as error:
            bad.append(str(error))
            continue
        good.append(record)
        if fits(record):
            runs.setdefault((record["label"], record["seed"]), []).append(record)
            data.setdefault(record["seed"], []).append(record)
    lost = []
    for twice in (same for same in runs.values() if len(same) > 1):
        bad.append(f"{protocol}: {_named(twice)}: two records of one run; delete one")
        lost += twice
    for seed, these in data.items():
        if len({str(record["config"]["federation"].get("digest")) for record in these}) > 1:
            bad.append(f"{protocol}: {_named(these)}: the data of seed {seed} differ, so they cannot be paired")
            lost += these
    return [record for record in good if not any(record is one for one in lost)], bad


def _named(these: Sequence[dict]) -> str:
    return " and ".join(f"{records.name(record)}.json" for record in these)
