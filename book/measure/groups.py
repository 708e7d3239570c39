"""What the first groups follow: the true clusters, or the label of which a client has most images.

``.venv/bin/python book/measure/groups.py [FOLDER]`` stores it for the comparison; it needs MNIST.
"""

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path

from sklearn.metrics import adjusted_mutual_info_score
from tqdm import tqdm

from cflkit.engine.simulation import Simulation
from cflkit.workbook import places
from cflkit.workbook.runs import protocols, records

FILE = "groups.json"
SEEDS = range(5)
FEDERATIONS = ("common_rot_r20", "common_rot_skew_r20")
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
    with places.atomic_write(folder / FILE) as part:
        part.write_text(json.dumps({"rows": rows, "provenance": records.provenance()}, indent=1) + "\n", "utf-8")
    return folder / FILE


if __name__ == "__main__":
    print(write(Path(*sys.argv[1:2] or [places.RESULTS])))
