"""What the first groups follow: the true clusters, or the label of which a client has most images."""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from sklearn.metrics import adjusted_mutual_info_score
from tqdm import tqdm

from cflkit.engine import metrics
from cflkit.engine.simulation import Simulation
from cflkit.workbook import places, protocols, records
from cflkit.workbook.comparison import METHODS, hundredths, short

FILE = "groups.json"
FEDERATIONS = {"common_rot_r20": "four rotations", "common_rot_skew_r20": "rotations, skewed labels"}
SEEDS = range(5)
# methods that take their first groups from one common model, with what is changed of the comparison's setting
GROUPED = (("fedgroup", {}), ("fesem", {}), *(("stocfl", {"tau": tau}) for tau in (0.1, 0.3, 0.5, 0.7, 0.9)))


def first(simulation: Simulation) -> dict[str, float | int]:
    """Group all clients in one round, and set the groups beside true clusters and most frequent labels.

    Parameters
    ----------
    simulation : Simulation
        Of one round, in which all clients take part, and of a method that groups them.

    Returns
    -------
    dict
        How many ``groups`` there are; adjusted mutual information, 1 for the same groups and about 0 for groups
        that have nothing to do with each other, with the true clusters (``with_clusters``) and with the most
        frequent labels (``with_labels``).
    """
    fed = simulation.federation
    found = simulation.method.assignment(simulation.run().server).cpu()
    others = {"with_clusters": fed.cluster, "with_labels": fed.label_counts().argmax(1)}
    agreement = {name: round(adjusted_mutual_info_score(other, found), 6) for name, other in others.items()}
    return {"groups": len(found.unique())} | agreement


def write(folder: Path = records.FOLDER) -> Path:
    """Measure it in two federations of the comparison, and store it with its provenance."""
    places.need_folder("out", folder)
    rows = []
    runs = [*itertools.product(FEDERATIONS, GROUPED, SEEDS)]
    for protocol, (label, changed), seed in tqdm(runs, desc="groups", unit="run", leave=False):
        plan = protocols.plan(protocol, label, seed)
        plan = replace(plan, method=plan.method | changed)
        measured = first(plan.simulation(rounds=1, participation=1.0, progress=False))
        rows.append({"protocol": protocol, "label": label, "changed": changed, "seed": seed} | measured)
    with places.whole(folder / FILE) as part:
        part.write_text(json.dumps({"rows": rows, "provenance": records.provenance()}, indent=1) + "\n")
    return folder / FILE


def cells(measured: Mapping) -> Iterator[list[str]]:
    """Give the table of what was measured, a list of cells for each federation and method."""
    names = {method.label: method.name.partition(",")[0] for method in METHODS}
    for protocol, (label, changed) in itertools.product(FEDERATIONS, GROUPED):
        what = {"protocol": protocol, "label": label, "changed": changed}
        runs = [row for row in measured["rows"] if what.items() <= row.items()]
        if runs:
            name = ", ".join([names[label], *(f"τ = {tau:g}" for tau in changed.values())])
            agreement = [_spread([row[other] for row in runs]) for other in ("with_clusters", "with_labels")]
            groups = short(row["groups"] for row in runs)
            yield [FEDERATIONS[protocol], name, groups, *agreement, f"{len(runs)}"]


def _spread(values: list[float]) -> str:
    """Mean and standard deviation with two decimals."""
    found = metrics.spread(values)
    return f"{hundredths(found['mean'])} ± {hundredths(found['std'])}"
