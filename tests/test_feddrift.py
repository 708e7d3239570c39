"""FedDrift's merges, newcomers and traffic; its rounds by hand are in ``test_outsiders.py``."""

import pickle

import numpy as np
import pytest
import torch
from tiny import close, federation, refused, regression, simulation

from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import simulate
from cflkit.methods import FedAvg, FedDrift
from cflkit.methods.feddrift import merged

PIXELS = [np.array(x) for x in (
    [[3, 0], [2, 1], [0, 3], [1, 4]], [[4, 1], [1, 0], [1, 3]], [[5, 2], [0, 2]], [[3, 1], [2, 4], [4, 0]],
    [[2, 0], [1, 5], [3, 2], [0, 1]], [[3, 0], [2, 1], [0, 3], [1, 4]],
)]  # fmt: skip
METHOD, NEWEST = FedDrift(0.2, every=3), FedDrift(0.2, every=3, keep=False)
SETTINGS = {"model": regression(), "local": SGD(0.3, epochs=2), "progress": False}


def step(turned):
    """A time step: what is to the right has label 0, and of clients that have turned label 1."""
    return federation(*((x, (x[:, 0] < x[:, 1]).astype(int) ^ t) for x, t in zip(PIXELS, turned, strict=False)))


def drift(steps, method=METHOD, **more):
    """Three rounds in each of these time steps."""
    return simulate(method, list(map(step, steps)), rounds=3, **SETTINGS, **more)


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_one_cluster_that_nobody_leaves_is_fedavg(fed, settings_of_a_run, participation):
    settings = settings_of_a_run | {"rounds": 2, "participation": participation}
    ours = simulate(FedDrift(delta=1e6, every=1), [fed, fed], **settings)
    theirs = simulate(FedAvg(), [fed, fed], **settings)
    close(ours.server["models"], theirs.server["model"][None])
    assert ours.final["accuracy"] == theirs.final["accuracy"] and ours.final["drifted"] == 0


def test_merging_is_by_complete_linkage():
    """Clusters at 0, 0.3 and 0.6: two pairs are near, and all three are not, although they are a chain."""
    place = torch.tensor([0.0, 0.3, 0.6, 9.0], dtype=torch.float64)
    apart, one = (place[:, None] - place).abs(), torch.ones(4, dtype=torch.int64)
    assert merged(apart, torch.arange(4), one, 0.29).tolist() == [0, 1, 2, 3]
    assert merged(apart[:3], torch.arange(3), one[:3], 0.5).tolist() in ([0, 0, 1, 2], [0, 1, 1, 2])
    assert merged(apart, torch.arange(4), one, 0.6).tolist() == [0, 0, 0, 1]
    lonely = merged(apart[[0, 2]], torch.tensor([0, 2]), one[:2], 0.7)  # 1 has nobody: it is merged with none
    assert lonely.tolist() == [0, 1, 0, 2]


def test_distance_is_what_a_model_loses_on_the_others_data():
    """The worse way counts, images weigh, and a model that is *better* elsewhere is at no distance."""
    k, sizes = torch.tensor([0, 1, 1]), torch.tensor([5, 1, 3])
    loss = torch.tensor([[1.0, 1.3], [1.0, 1.2], [2.0, 1.6]], dtype=torch.float64)
    # L_00 = 1, L_10 = 1.3, L_01 = (1 + 3 * 2) / 4 = 1.75, L_11 = (1.2 + 3 * 1.6) / 4 = 1.5: max(0.75, -0.2)
    assert merged(loss, k, sizes, 0.74).tolist() == [0, 1]
    assert merged(loss, k, sizes, 0.76).tolist() == [0, 0]
    assert merged(torch.tensor([[2.0, 1.0], [1.0, 1.5]]), torch.tensor([0, 1]), sizes[:2], 1e-9).tolist() == [0, 0]


def test_newcomers_choose_among_models_that_are_not_isolated():
    """Client 4 comes in the middle of time step 2, in which 3 is isolated though its model would suit."""
    turned = [[0, 0, 0, 0, 1], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]
    seen = [drift(turned[:t], arrival=torch.tensor([1, 1, 1, 1, 5])).server for t in (1, 2, 3)]
    assert [s["assign"].tolist() for s in seen] == [[0, 0, 0, 0, -1], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1]]
    assert seen[2]["past"].tolist() == [[0, 0, 0, 0, -1], [0, 0, 0, 1, 0]]
    assert seen[0]["best"][4] == torch.inf and [s["drifted"] for s in seen] == [0, 1, 0]
    late = drift(turned, arrival=torch.tensor([1, 1, 1, 1, 99]))
    net = simulation(METHOD, step(turned[2])).network(9, late.memory)
    assert METHOD.serve(late.server, torch.tensor([4, 0]), net).index.tolist() == [1, 0]


@pytest.mark.parametrize(("method", "end", "spent"), [
    (NEWEST, [2, 0, 2, 2, 0, 2], [8 + 2, 1, 1 + 3]), (METHOD, [1, 0, 1, 1, 0, 1], [8 + 2, 1 + 1 + 3]),
])  # fmt: skip
def test_clients_that_drift_together_begin_apart(method, end, spent):
    """2 and 3 turn in step 2. In step 3 both choose 3's model, and so does 0; 5 comes later, and is turned.

    2's model has nobody then, and merges only where its data of step 2 are kept.
    """
    turned = [[0, 0, 0, 0, 0, 1], [0, 0, 1, 1, 0, 1], [1, 0, 1, 1, 0, 1]]
    ends = [drift(turned[:t], method, arrival=torch.tensor([1, 1, 1, 1, 1, 8])) for t in (1, 2, 3)]
    seen = [end.server for end in ends]
    assert [s["assign"].tolist() for s in seen] == [[0] * 5 + [-1], [0, 0, 1, 2, 0, -1], end]
    assert [s["steps"].tolist() for s in seen] == [[5], [5 + 3, 1, 1], spent]
    net = simulation(method, step([1] * 6)).network(9, ends[2].memory)
    everybody = torch.arange(6)  # members stay, until a time step begins, whatever they have turned to
    assert method.serve(seen[2], everybody, net).index.tolist() == seen[2]["assign"].tolist()


@pytest.mark.parametrize(("method", "costs"), [
    (NEWEST, [(1, 1, 1, 0, 5), (2, 0, 1, 0, 5), (4, 1, 1, 0, 5), (7, 2, 1, 0, 5)]),
    (METHOD, [(1, 1, 1, 0, 5), (4, 1, 2, 5, 6), (6, 0, 2, 0, 6), (7, 2, 3, 7, 7)]),
])  # fmt: skip
def test_what_a_time_step_costs(method, costs):
    """Each client receives all models that may be chosen, and sends a loss of each; then FedAvg's traffic.

    Once there are T time steps, it is asked for losses on the data of every cluster of which it has any, and trains
    each such model; every time it hears which time steps are meant. 3 leaves in the second, 2 in the third.
    """
    rows, P = drift([[0, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 1, 1, 0]], method).rounds, 6
    for t, models, T, asked, trained in costs:
        marks = T if T > 1 else 0
        assert rows[t]["down"] == 5 * P * models + asked * marks + trained * (P + marks)
        assert rows[t]["up"] == (5 + asked) * models + trained * P


def test_data_stay_in_the_cluster_where_they_were_last():
    """They change in round 5, within the second time step. A history that was pickled does not know older ones."""
    one, other = step([0, 0, 0]), step([0, 1, 0])
    ends = {n: simulate(METHOD, [one, one, other, other][:n], rounds=2, **SETTINGS) for n in (2, 3, 4)}
    assert [ends[n].server["past"].tolist() for n in (2, 3, 4)] == [[], [[0, 0, 0]], [[0, 0, 0]]]
    assert [ends[n].server["assign"].tolist() for n in (3, 4)] == [[0, 0, 0], [0, 1, 0]]
    line = "start = 'of another process': must be a run of this process, which knows the data of earlier time steps"
    start = pickle.loads(pickle.dumps(ends[3]))
    refused(line, simulation(METHOD, other, rounds=7, start=start).run)
    assert len(simulation(NEWEST, other, rounds=7, start=start).run().server["past"]) == 0
