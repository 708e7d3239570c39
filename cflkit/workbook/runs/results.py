"""One table of results: a row for each run and metric, read once from the records under ``book/results``.

Records are kept until one is written or deleted; that each is sound is asked by a test over the folder. What cannot
be read, or stands twice, is left out and named by :func:`problems`.
"""

import gc
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cflkit.workbook.runs import protocols, records

if TYPE_CHECKING:
    import pandas as pd

MODELS = ("personal", "global", "unseen")  # whose score a row shows, if not that of the model which serves a client
SHARES = (*(f"{axis}{end}" for axis in ("accuracy", "own_accuracy") for end in ("", "_std", "_worst10", "_micro")),
          "f1", "f1_micro")  # fmt: skip
# not shown in percent
PLAIN = ("ari", "nmi", "clusters", "main_clusters", "moved", "settled", "down", "up", "server_flops",
         "client_flops", "largest_share", "entropy", "objective", "images", "lam")  # fmt: skip
METRICS = (*SHARES, *(f"{model}_{share}" for model in MODELS for share in SHARES), *PLAIN)
COMPARED = ("model", "rounds", "participation", "finetune", "dtype")  # settings that change a score


def base(metric: str) -> str:
    """Strip from a metric whose model is scored: ``personal_accuracy`` is an accuracy."""
    model, _, rest = metric.partition("_")
    return rest if model in MODELS else metric


def scores(run: dict) -> dict[str, float]:
    """What a run scored in its last round, accuracies and F1 in percent.

    ``settled`` is the last round in which a client moved to another cluster; ``main_clusters`` counts clusters that
    hold a tenth of the clients met or more; ``lam`` is the weight of FedCG's residuals in its last layer.
    """
    final = run["final"]
    found = {metric: value if metric in PLAIN else 100 * value for metric, value in final.items()
             if type(value) in (int, float) and metric != "round"}  # fmt: skip
    found["settled"] = max((row["round"] for row in run["rounds"] if row.get("moved")), default=0)
    if sizes := final.get("sizes"):
        found["main_clusters"] = sum(10 * size >= sum(sizes) for size in sizes)
    if final.get("lam") and final["lam"][-1] is not None:
        found["lam"] = final["lam"][-1]
    return found


def diverged(run: dict) -> bool:
    """Whether a run's models had diverged by some round."""
    return any(row.get("diverged") for row in run["rounds"])


def fits(record: dict) -> bool:
    """Whether a record is of its protocol's present configuration, as far as that can be told without the data.

    What either of them leaves out has its default. How often a run is scored is left open: it changes no score.
    """
    protocol, label, config = protocols.protocols().get(record["protocol"]), record["label"], record["config"]
    if protocol and "." in label:  # the method of a file, with whatever settings it has
        protocol = protocol | {"methods": {label: config["method"]}}
    if not protocol or label not in protocol["methods"]:
        return False
    method, local, setting = protocols.parts(protocol, label)
    arrival, never = config.get("arrival") or [], config["rounds"] + 1
    away = round(protocol.get("unseen", 0) * len(arrival))
    federation, usual = protocol["federation"] | {"seed": record["seed"], "digest": None}, protocols.defaults()
    needed, has = ({key: given[key] for key in COMPARED if key in given} for given in (setting, config))
    pairs = ((usual["method"].get(method["name"], {}), method, config["method"]), (usual["setting"], needed, has),
             (usual["federation"][federation["builder"]], federation, config["federation"] | {"digest": None}),
             (usual["local"], local, config["local"]))  # fmt: skip
    return (
        [arrival.count(never), arrival.count(1)] == [away, len(arrival) - away]
        and (config.get("personal") or [usual["scored"]])[0] == usual["scored"]
        and all(kind | one == kind | other for kind, one, other in pairs)
    )


# ---------------------------------------------------------------------- kept until a folder changes
def stamp(protocol: str, folder: Path = records.FOLDER) -> int:
    """What changes when a record of a protocol comes, goes or is replaced, to keep what is computed from them."""
    place = folder / protocol
    return place.stat().st_mtime_ns if place.is_dir() else 0


@cache
def _survey(protocol: str, folder: Path, stamp: int) -> tuple[list[dict], list[str]]:
    """Records of the present configuration, and a line for each file that is damaged or stands twice."""
    good, bad, same, dealt = [], [], defaultdict(list), defaultdict(list)
    for file in sorted((folder / protocol).glob("*.json")):
        try:
            record = records.read(file)
        except ValueError as error:
            bad.append(str(error))
            continue
        if fits(record):
            good.append(record)
            same[record["label"], record["seed"]].append(record)
            dealt[record["seed"]].append(record)
    wrong = [(these, "two records of one run; delete one") for these in same.values() if len(these) > 1]
    wrong += [(these, f"the data of seed {seed} differ, so they cannot be paired") for seed, these in dealt.items()
              if len({str(one["config"]["federation"].get("digest")) for one in these}) > 1]  # fmt: skip
    for these, why in wrong:
        bad.append(f"{protocol}: {' and '.join(f'{records.name(one)}.json' for one in these)}: {why}")
    lost = {id(one) for these, _ in wrong for one in these}
    gc.freeze()  # else records are searched for garbage again and again, which takes seconds
    return [record for record in good if id(record) not in lost], bad


def runs(protocol: str, folder: Path = records.FOLDER) -> list[dict]:
    """The records of a protocol that count, in the order of their files."""
    return _survey(protocol, folder, stamp(protocol, folder))[0]


def problems(folder: Path = records.FOLDER) -> list[str]:
    """Say of each record that is left out which it is and why: damaged, or one of two of the same run."""
    names = [place.name for place in sorted(folder.glob("*/"))]
    return [line for name in names for line in _survey(name, folder, stamp(name, folder))[1]]


def frame(folder: Path = records.FOLDER) -> "pd.DataFrame":
    """The table: protocol, label, seed, metric, value of the last round, rounds, diverged and date of each run."""
    import pandas as pd  # which the ledger does without

    rows = []
    for run in (run for place in sorted(folder.glob("*/")) for run in runs(place.name, folder)):
        rest = run["config"]["rounds"], diverged(run), run["provenance"]["date"]
        rows += [(run["protocol"], run["label"], run["seed"], *score, *rest) for score in scores(run).items()]
    columns = ["protocol", "label", "seed", "metric", "value", "rounds", "diverged", "date"]
    return pd.DataFrame(rows, columns=columns)
