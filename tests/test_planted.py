"""Clusters that were planted are found, on the bundled digits; and what no model can do, none does."""

from dataclasses import replace

import pytest
import torch
from tiny import run

from cflkit import federation
from cflkit.engine.sgd import SGD
from cflkit.methods import FedAvg, FedProx, StoCFL

SEEDS = (0, 1, 2)
FEW = {"model": "linear", "rounds": 4, "participation": 0.4}
HARD = {"rounds": 5, "local": SGD(0.5, epochs=3)}


def plant(kind, digits, size=100):
    """Twenty clients in four clusters; hybrid: in two, and the digits and their negatives are its data sets."""
    how = {"clients": 20, "samples_per_client": size, "overlap": True}
    if kind == "hybrid":
        return federation.hybrid([digits, replace(digits, name="negatives", x=16 - digits.x)], **how)
    return getattr(federation, kind)(digits, **how)


@pytest.mark.parametrize("kind", ["rotated", "shifted", "pathological", "hybrid"])
def test_stocfl_finds_planted_clusters_without_knowing_their_number(digits, kind):
    fed = plant(kind, digits)
    for seed in SEEDS:
        final = run(StoCFL(tau=0.4 if kind == "hybrid" else 0.5), fed, seed=seed, **FEW).final
        assert final["clusters"] == len(fed.cluster.unique()) and final["ari"] == 1


@pytest.mark.parametrize(("method", "score"), [
    (FedAvg(), "accuracy"),
    (FedProx(), "accuracy"),
    (StoCFL(), "global_accuracy"),
    (StoCFL(global_update="chained"), "global_accuracy"),
])  # fmt: skip
def test_no_global_model_reads_more_than_a_quarter_of_shifted_labels(digits, method, score):
    """Every test image occurs with four labels, equally often: one answer an image is right once at most."""
    fed = plant("shifted", digits, size=50)
    tests = [fed.test.rows(k) for k in range(4)]
    assert all(torch.equal(fed.test.pool[index], fed.test.pool[tests[0][0]]) for index, _ in tests)
    assert all(len(set(labels)) == 4 for labels in torch.stack([y for _, y in tests], dim=1).tolist())
    final = run(method, fed, model="linear", **HARD).final
    assert 0.15 < final[score] <= 0.25
    if method.name == "stocfl":
        assert final["accuracy"] > 0.6  # what the clusters' own models are worth
