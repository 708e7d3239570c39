"""FedDrift against time steps computed by hand in NumPy, and against FedAvg where nobody drifts."""

from itertools import combinations

import numpy as np
import pytest
import torch
from tiny import close, federation, loss, simulation, train

from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import simulate
from cflkit.methods import FedAvg, FedDrift
from cflkit.methods.feddrift import merged

PIXELS = [np.array(x) for x in (
    [[3, 0], [2, 1], [0, 3], [1, 4]], [[4, 1], [1, 0], [1, 3]], [[5, 2], [0, 2]], [[3, 1], [2, 4], [4, 0]],
    [[2, 0], [1, 5], [3, 2], [0, 1]],
)]  # fmt: skip
RIGHT = [(x, (x[:, 0] < x[:, 1]).astype(int)) for x in PIXELS]  # what is to the right has label 0
LEFT = [(x, 1 - y) for x, y in RIGHT]
# five clients: at first all agree; 3 turns, then 2 follows and 0 comes to what 3 knows by now
TURNED = [[0, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 1, 1, 0], [1, 0, 1, 1, 0]]
STEPS = [[(RIGHT, LEFT)[turned][c] for c, turned in enumerate(row)] for row in TURNED]


def parts_by_hand(loss, mine, sizes, delta):
    """Complete linkage in loops, over clients who stay: the nearest two clusters, while they are near enough."""
    def on(i, j):
        of = [c for c in mine if mine[c] == j]
        return np.average([loss[c][i] for c in of], weights=[sizes[c] for c in of])

    def apart(a, b):
        return max(max(on(i, j) - on(i, i), on(j, i) - on(j, j), 0) for i in a for j in b)

    parts, used = [[k] for k in range(len(loss[0]))], set(mine.values())
    while True:
        pairs = [(apart(a, b), a, b) for a, b in combinations(parts, 2) if {*a, *b} <= used]
        if not pairs or min(pairs)[0] > delta:
            return parts
        _, a, b = min(pairs)
        parts = sorted([part for part in parts if part not in (a, b)] + [sorted(a + b)])


def by_hand(steps, delta, every, first, lr=0.3, local_steps=2):
    """Models, and clusters of all clients after each time step, in plain loops."""
    start = simulation(FedAvg(), federation(*steps[0])).task.init()[0].numpy()
    n, seen = len(steps[0]), []
    models, times = ([start] * n, [1] * n) if first == "each" else ([start], [n])
    mine, known = list(range(n)) if first == "each" else [0] * n, None
    for data in steps:
        score = [[loss(w, *d) for w in models] for d in data]
        if known:
            mine = [int(np.argmin(s)) for s in score]
            leaving = [c for c in range(n) if min(score[c]) > known[c] + delta]
            stay = {c: mine[c] for c in range(n) if c not in leaving}
            for k in stay.values():
                times[k] += 1
            parts = parts_by_hand(score, stay, [len(y) for _, y in data], delta)
            alone = [models[mine[c]] for c in leaving]
            weights = [[times[k] for k in p] for p in parts]
            models = [np.average([models[k] for k in p], 0, w) for p, w in zip(parts, weights, strict=True)] + alone
            times = [sum(times[k] for k in p) for p in parts] + [1] * len(leaving)
            mine = [next(g for g, p in enumerate(parts) if k in p) for k in mine]
            for place, c in enumerate(leaving):
                mine[c] = len(parts) + place
        known = [min(s) for s in score]
        for _ in range(every):
            for k in set(mine):
                members = [c for c in range(n) if mine[c] == k]
                trained = [train(models[k], *data[c], lr, local_steps) for c in members]
                models[k] = np.average(trained, axis=0, weights=[len(data[c][1]) for c in members])
        seen.append(list(mine))
    return models, seen


@pytest.mark.parametrize(("first", "delta", "every"), [
    ("one", 0.2, 3), ("one", 0.9, 3), ("each", 0.2, 3), ("each", 2.0, 2),
])  # fmt: skip
def test_time_steps_by_hand(first, delta, every):
    models, seen = by_hand(STEPS, delta, every, first)
    method, steps = FedDrift(delta, every, first), [federation(*data) for data in STEPS]
    settings = {"model": simulation(method, steps[0]).model.make, "local": SGD(0.3, epochs=2), "progress": False}
    for t in range(1, len(steps) + 1):
        found = simulate(method, steps[:t], rounds=every, trainer="lean", **settings).server
        assert found["assign"].tolist() == seen[t - 1]
    close(found["models"], models)
    if (first, delta) == ("one", 0.2):  # as the clients turned
        assert seen == TURNED


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
    data = [[(RIGHT, LEFT)[t][c] for c, t in enumerate(row)] for row in turned]
    steps, method = [federation(*d) for d in data], FedDrift(0.2, every=3)
    settings = {"model": simulation(method, steps[0]).model.make, "local": SGD(0.3, epochs=2), "progress": False}
    arrival = torch.tensor([1, 1, 1, 1, 5])
    seen = [simulate(method, steps[:t], rounds=3, arrival=arrival, **settings).server for t in (1, 2, 3)]
    assert [s["assign"].tolist() for s in seen] == [[0, 0, 0, 0, -1], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1]]
    assert seen[0]["best"][4] == torch.inf and [s["drifted"] for s in seen] == [0, 1, 0]
    late = simulate(method, steps, rounds=3, arrival=torch.tensor([1, 1, 1, 1, 99]), **settings)
    net = simulation(method, steps[2]).network(9, late.memory)
    assert method.serve(late.server, torch.tensor([4, 0]), net).index.tolist() == [1, 0]


def test_clients_that_drift_together_begin_apart():
    """2 and 3 turn in step 2. In step 3 both choose 3's model, and so does 0; 5 comes later, and is turned."""
    turned = [[0, 0, 0, 0, 0, 1], [0, 0, 1, 1, 0, 1], [1, 0, 1, 1, 0, 1]]
    pixels = [*RIGHT, RIGHT[0]], [*LEFT, LEFT[0]]
    steps = [federation(*(pixels[t][c] for c, t in enumerate(row))) for row in turned]
    method = FedDrift(0.2, every=3)
    settings = {"model": simulation(method, steps[0]).model.make, "local": SGD(0.3, epochs=2), "progress": False}
    arrival = torch.tensor([1, 1, 1, 1, 1, 8])
    ends = [simulate(method, steps[:t], rounds=3, arrival=arrival, **settings) for t in (1, 2, 3)]
    seen = [end.server for end in ends]
    assert [s["assign"].tolist() for s in seen] == [[0] * 5 + [-1], [0, 0, 1, 2, 0, -1], [2, 0, 2, 2, 0, 2]]
    assert [s["steps"].tolist() for s in seen] == [[5], [5 + 3, 1, 1], [8 + 2, 1, 1 + 3]]
    net = simulation(method, federation(*pixels[1])).network(9, ends[2].memory)
    everybody = torch.arange(6)  # members stay, until a time step begins, whatever they have turned to
    assert method.serve(seen[2], everybody, net).index.tolist() == seen[2]["assign"].tolist()


def test_what_a_time_step_costs():
    """Each client receives all models that may be chosen, and sends a loss of each; then FedAvg's traffic."""
    steps, P = [federation(*d) for d in STEPS], 6
    method = FedDrift(0.2, every=3)
    settings = {"model": simulation(method, steps[0]).model.make, "local": SGD(0.3, epochs=2), "progress": False}
    rows = simulate(method, steps[:3], rounds=3, **settings).rounds
    for row, models in zip((rows[1], rows[2], rows[4], rows[7]), (1, 0, 1, 2), strict=True):
        assert (row["down"], row["up"]) == (5 * P * (models + 1), 5 * (models + P))
