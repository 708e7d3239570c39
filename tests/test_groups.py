"""What groups follow, where it is known."""

import json
from dataclasses import replace

import made

from cflkit.data import builders, images
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.methods import OracleClusters
from cflkit.workbook.runs import plans

groups = made.script("groups")


class ByLabel(OracleClusters):
    """Says that clients are grouped by the label of which they have most images."""

    name = "by-label"

    def assignment(self, server):
        return federation().label_counts().argmax(1)


def federation(seed=0):
    return builders.rotated(images.load("digits"), clients=24, samples_per_client=20, alpha=0.5, seed=seed)


def simulation(kind):
    method = kind(cluster=federation().cluster.tolist())
    return Simulation(method, federation(), model="linear", local=SGD(0.1), rounds=1, progress=False)


def test_groups_that_follow_the_true_clusters_and_nothing_else():
    found = groups.first(simulation(OracleClusters))
    assert found["groups"] == 4 and found["with_clusters"] == 1 and abs(found["with_labels"]) < 0.3


def test_groups_that_follow_the_most_frequent_label():
    found = groups.first(simulation(ByLabel))
    assert found["with_labels"] == 1 and abs(found["with_clusters"]) < 0.3
    assert found["groups"] == len(set(federation().label_counts().argmax(1).tolist()))


def test_every_seed_is_stored_with_its_provenance(tmp_path, monkeypatch):
    monkeypatch.setattr(groups, "SEEDS", range(2))
    monkeypatch.setattr(groups, "GROUPED", (("stocfl", {"tau": 0.1}), ("stocfl", {"tau": 0.999})))
    asked = []

    def plan(protocol, label, seed):
        asked.append((protocol, label, seed))
        given = {"rounds": "3", "clients": "8", "tau": "0.2"}
        return replace(plans.free("stocfl"), seed=seed).changed(given | {"participation": "0.5"})

    monkeypatch.setattr(groups.protocols, "plan", plan)
    stored = json.loads(groups.write(tmp_path).read_text())
    assert [(row["protocol"], row["label"], row["seed"]) for row in stored["rows"]] == asked
    kinds = {(row["protocol"], row["label"], *row["changed"].values()) for row in stored["rows"]}
    assert len(asked) == 2 * 2 * 2 and len(kinds) == 4
    assert {row["groups"] for row in stored["rows"] if row["changed"]["tau"] == 0.999} == {8}  # everybody took part
    assert set(stored["provenance"]) >= {"date", "commit", "versions"}
