"""What the first groups follow: the true clusters, or the label of which a client has most images."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from sklearn.metrics import adjusted_mutual_info_score

from cflkit.engine import metrics
from cflkit.engine.simulation import Simulation
from cflkit.workbook import places, protocols, records
from cflkit.workbook.comparison import METHODS, short

FILE = "groups.json"
FEDERATIONS = {"common_rot_r20": "four rotations", "common_rot_skew_r20": "rotations, skewed labels"}
ONCE = ("fedgroup", "fesem", "stocfl")  # methods that measure a client once, before its group has trained it
SEEDS = range(5)


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
    often = fed.label_counts().argmax(1)
    others = {"with_clusters": fed.cluster, "with_labels": often}
    agreement = {name: round(adjusted_mutual_info_score(other, found), 6) for name, other in others.items()}
    return {"groups": len(found.unique())} | agreement


def write(folder: Path = records.FOLDER) -> Path:
    """Measure it in two federations of the comparison, and store it with its provenance."""
    places.need_folder("out", folder)
    rows = []
    for protocol in FEDERATIONS:
        for label in ONCE:
            for seed in SEEDS:
                plan = protocols.plan(protocol, label, seed)
                measured = first(plan.simulation(rounds=1, participation=1.0, progress=False))
                rows.append({"protocol": protocol, "label": label, "seed": seed} | measured)
    target = folder / FILE
    partial = target.with_suffix(".part")
    with places.writing(partial):
        partial.write_text(json.dumps({"rows": rows, "provenance": records.provenance()}, indent=1) + "\n")
    os.replace(partial, target)
    return target


def cells(measured: Mapping) -> Iterator[list[str]]:
    """Give the table of what was measured, a list of cells for each federation and method."""
    for protocol, title in FEDERATIONS.items():
        for method in (method for method in METHODS if method.label in ONCE):
            runs = [row for row in measured["rows"] if (row["protocol"], row["label"]) == (protocol, method.label)]
            if runs:
                agreement = [_spread([row[name] for row in runs]) for name in ("with_clusters", "with_labels")]
                yield [title, method.name, short(row["groups"] for row in runs), *agreement, f"{len(runs)}"]


def _spread(values: list[float]) -> str:
    """Mean and standard deviation with two decimals; no minus at zero."""
    found = metrics.spread(values)
    return f"{round(found['mean'], 2) + 0.0:.2f} ± {found['std']:.2f}"
