"""SCAFFOLD, FedDANE, FedPer, FedDist, CFL, FedFomo, FedGroup, robust clustering and the stand-in for CGPFL.

Each against rounds computed by hand, against simpler methods under the exact conditions of an identity, and against
what it may send and may know.
"""

import re
from functools import partial
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.cluster
import tiny
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import trim_mean
from sklearn.exceptions import ConvergenceWarning
from tiny import average, close, federation, gradient, initial, loss, network, rounds, run, simulation, train
from torch import nn

from cflkit import methods, rng
from cflkit.data.federation import Federation
from cflkit.engine.memory import Memory
from cflkit.engine.network import Uploads
from cflkit.engine.rows import Rows
from cflkit.engine.sgd import SGD
from cflkit.methods import CFL, IFCA, FedAvg, FedDANE, FedDist, FedFomo, FedGroup, FedPer, Robust, Scaffold, robust
from cflkit.methods.cfl import bipartition, certified, cosines
from cflkit.methods.fedgroup import edc
from cflkit.methods.robust import central, trimmed_kmeans, trimmed_mean

# Five clients of 2, 3, 2, 3 and 4 samples, two pixels each.
# 0, 2 and 4 see label 0 to the right; 1 and 3 see it to the left.
CLIENTS = [(np.array(x), np.array(y)) for x, y in (
    ([[3, 0], [2, 1]], [0, 0]), ([[3, 1], [0, 2], [4, 0]], [1, 0, 1]), ([[2, 0], [1, 3]], [0, 1]),
    ([[4, 1], [2, 0], [0, 3]], [1, 1, 0]), ([[5, 1], [3, 0], [1, 2], [0, 1]], [0, 0, 1, 1]),
)]  # fmt: skip
SIZES = [2, 3, 2, 3, 4]
N = len(CLIENTS)
THREE_STEPS = {"local": SGD(0.1, epochs=3)}
STILL = {"local": SGD(0.1, epochs=0)}
MINIBATCH = {"model": "mlp16", "local": SGD(0.1, epochs=2, batch_size=4), "rounds": 3, "participation": 0.5}


def tiny_fed() -> Federation:
    return federation(*CLIENTS)


class Given:
    """A network whose clients upload what the test says, whatever they are asked."""

    def __init__(self, uploads=None, round=1, clients=None, seed=0, everybody=None):
        self.uploads, self.round, self.seed = uploads, round, seed
        self.everybody = everybody if everybody is not None or clients is None else torch.arange(clients)
        width = 0 if uploads is None else uploads.shape[1]
        model = SimpleNamespace(trainable=width)
        self.task = SimpleNamespace(clients=clients, model=model, optimiser=SGD(0.1))

    def rng(self, *purpose):
        return rng.generator(self.seed, self.round, *purpose)

    def call(self, clients, work, **_):
        ones = torch.ones(len(clients), dtype=torch.int64)
        return Uploads({"model": Rows([self.uploads])}, clients, ones)


# ------------------------------------------------------------------ SCAFFOLD
@pytest.mark.parametrize("option", ["I", "II"])
def test_scaffold_by_hand(option):
    how = THREE_STEPS | {"rounds": 4, "participation": 0.6}
    x, c, own = initial(), np.zeros(6), np.zeros((N, 6))
    for sampled in simulation(Scaffold(), tiny_fed(), **how).schedule:
        trained, changes = [], []
        for i in sampled.tolist():
            y = x
            for _ in range(3):
                y = y - 0.1 * (gradient(y, *CLIENTS[i]) - own[i] + c)
            new = gradient(x, *CLIENTS[i]) if option == "I" else own[i] - c + (x - y) / (3 * 0.1)
            trained.append(y)
            changes.append(new - own[i])
            own[i] = new
        x, c = x + 0.5 * (average(trained) - x), c + sum(changes) / N
    found = run(Scaffold(lr_server=0.5, option=option), tiny_fed(), **how)
    close(found.server["model"], x)
    close(found.server["control"], c)
    for i in range(N):
        close(found.memory.get("control", i), own[i])


def test_a_client_with_several_batches_divides_by_all_its_steps(uneven):
    """Option II reads the mean of its corrected gradients off the distance moved, however many steps there were."""
    found, memory = rounds(Scaffold(), uneven, **(MINIBATCH | {"rounds": 1, "participation": 1.0}))
    x = simulation(Scaffold(), uneven, **MINIBATCH).task.init()[0]
    average_of = run(FedAvg("uniform"), uneven, **(MINIBATCH | {"rounds": 1, "participation": 1.0}))
    assert torch.equal(found[0]["model"], average_of.server["model"])  # all controls are 0 in round 1
    rig = simulation(methods.LocalOnly(), uneven, **(MINIBATCH | {"rounds": 1, "participation": 1.0}))
    trained = rig.run().memory
    for i, n in enumerate((2, 5, 13, 22)):
        steps = 2 * -(-n // 4)
        close(memory.get("control", i), (x - trained.get("personal", i)) / (steps * 0.1))


@pytest.mark.parametrize("option", ["I", "II"])
def test_statistics_are_averaged_and_have_no_control(option):
    """They move without a gradient, which option II would read off their distance."""

    def normalised():
        return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(2), nn.Linear(2, 2))

    found, memory = rounds(Scaffold(option=option), tiny_fed(), **THREE_STEPS, model=normalised, rounds=2)
    fedavg, _ = rounds(FedAvg("uniform"), tiny_fed(), **THREE_STEPS, model=normalised, rounds=1)
    close(found[0]["model"], fedavg[0]["model"])  # all controls are 0 in round 1
    assert (found[0]["model"][-4:] != found[1]["model"][-4:]).all()
    for control in (found[1]["control"], *(memory.get("control", i) for i in range(N))):
        assert control[:-4].any() and not control[-4:].any()


def test_scaffold_refuses_what_option_two_cannot_read():
    for settings, line in (({"momentum": 0.9}, "momentum = 0.9: must be 0 with option II"),
                           ({"epochs": 0}, "epochs = 0: must be 1 or more with option II")):  # fmt: skip
        tiny.refused(re.escape(line), simulation, Scaffold(), tiny_fed(), local=SGD(0.1, **settings))
        simulation(Scaffold(option="I"), tiny_fed(), local=SGD(0.1, **settings))
    simulation(Scaffold(), tiny_fed(), local=SGD(0.1, epochs=0, steps=2))


# ------------------------------------------------------------------ FedDANE
def dane(w, first, second, mu=0.7, steps=3):
    g = average([gradient(w, *CLIENTS[i]) for i in first])
    trained = []
    for i in second:
        v, correction = w, g - gradient(w, *CLIENTS[i])
        for _ in range(steps):
            v = v - 0.1 * (gradient(v, *CLIENTS[i]) + correction + mu * (v - w))
        trained.append(v)
    return average(trained)


def test_feddane_by_hand():
    how = THREE_STEPS | {"rounds": 3, "participation": 0.6}
    w = initial()
    for sampled in simulation(FedDANE(), tiny_fed(), **how).schedule:
        w = dane(w, sampled.tolist(), sampled.tolist())
    close(run(FedDANE(mu=0.7, second="same"), tiny_fed(), **how).server["model"], w)


def test_feddane_solves_on_a_second_set_of_as_many_clients_drawn_anew():
    """Of all sets of three, exactly one explains each round; and it is not always the first exchange's."""
    how = THREE_STEPS | {"rounds": 4, "participation": 0.6}
    rig = simulation(FedDANE(), tiny_fed(), **how)
    before, seen = initial(), []
    for server, sampled in zip(rounds(FedDANE(mu=0.7), tiny_fed(), **how)[0], rig.schedule, strict=True):
        after = server["model"].numpy()
        guesses = [s for s in combinations(range(N), 3)
                   if np.abs(dane(before, sampled.tolist(), s) - after).max() < 1e-12]  # fmt: skip
        assert len(guesses) == 1
        seen.append((tuple(sampled.tolist()), guesses[0]))
        before = after
    assert any(first != second for first, second in seen)
    assert len({second for _, second in seen}) > 1


# ------------------------------------------------------------------ FedPer
@pytest.mark.parametrize("weights", ["n", "uniform"])
def test_fedper_by_hand(weights):
    how = THREE_STEPS | {"rounds": 3, "participation": 0.6, "model": tiny.two_layers}
    method = FedPer(weights=weights)
    rig = simulation(method, tiny_fed(), **how)
    start = rig.task.init()[0].numpy()
    phi, heads = start[:6], np.repeat(start[None, 6:], N, axis=0)
    for sampled in rig.schedule:
        bodies = []
        for i in sampled.tolist():
            w = np.concatenate([phi, heads[i]])
            for _ in range(3):
                w = w - 0.1 * tiny.two_layer_gradient(w, *CLIENTS[i])
            bodies.append(w[:6])
            heads[i] = w[6:]
        phi = average(bodies, [SIZES[i] for i in sampled] if weights == "n" else None)
    found = rig.run()
    close(found.server["model"], np.concatenate([phi, start[6:]]))  # the server's head is where heads begin
    served = method.personal(found.server, torch.arange(N), rig.network(4, found.memory)).dense()
    close(served, [np.concatenate([phi, h]) for h in heads])
    assert method.serve(found.server, torch.arange(N), None) is None


# ------------------------------------------------------------------ FedDist
@pytest.mark.parametrize(("method", "mass"), [(FedDist(), None), (FedDist("n", epsilon=0.3), SIZES)])
def test_feddist_by_hand(method, mass):
    w, epsilon = initial(), 0.3 if mass else 0.6
    for _ in range(2):
        w = w + epsilon * (average([train(w, *c, steps=3) for c in CLIENTS], mass) - w)
    close(run(method, tiny_fed(), rounds=2, **THREE_STEPS).server["model"], w)


# ------------------------------------------------------------------ CFL
ALWAYS = {"eps1": 1e9, "eps2": 0.0, "min_round": 1}


def halves(updates):
    """The bipartition with the least maximal cosine across, by trying all; the half of the first client is 0."""
    n, unit = len(updates), np.asarray(updates) / np.linalg.norm(updates, axis=1, keepdims=True)
    alpha, best = unit @ unit.T, (np.inf, None)
    for code in range(1, 2 ** (n - 1)):
        half = np.array([0] + [code >> i & 1 for i in range(n - 1)])
        best = min(best, (alpha[half == 0][:, half == 1].max(), half.tolist()))
    return best


def test_cfl_by_hand():
    """Two rounds, a split in each: first the two conflicts part, then the larger half again."""
    w, steps = initial(), 3
    trained = [train(w, *c, steps=steps) for c in CLIENTS]
    value, half = halves([v - w for v in trained])
    assert half == [0, 1, 0, 1, 0] and value < 0.5
    one, two = average([trained[i] for i in (0, 2, 4)]), average([trained[i] for i in (1, 3)])
    found, _ = rounds(CFL(**ALWAYS), tiny_fed(), rounds=2, **THREE_STEPS)
    assert found[0]["assign"].tolist() == half
    close(found[0]["models"], [one, two])
    trained = [train([one, two][h], *c, steps=steps) for h, c in zip(half, CLIENTS, strict=True)]
    _, again = halves([trained[i] - one for i in (0, 2, 4)])
    label = [0, 1, 2 * again[1], 1, 2 * again[2]]
    assert found[1]["assign"].tolist() == label  # two members are not more than min_size
    close(found[1]["models"], [average(np.array(trained)[np.array(label) == c]) for c in range(3)])


def test_lengths_that_reach_a_threshold_exactly_are_no_conflict():
    updates = torch.tensor([[6.0, 8], [4, -8]], dtype=torch.float64)  # the mean is 5 long, the longest 10
    assert CFL(5.1, 9.9, min_size=1).in_conflict(updates)
    assert not CFL(5, 9.9, min_size=1).in_conflict(updates)
    assert not CFL(5.1, 10, min_size=1).in_conflict(updates)


def test_no_split_before_min_round_nor_in_small_clusters():
    found, _ = rounds(CFL(**(ALWAYS | {"min_round": 3})), tiny_fed(), rounds=4, **THREE_STEPS)
    assert [len(s["models"]) for s in found] == [1, 1, 2, 3]
    found, _ = rounds(CFL(**ALWAYS, min_size=5), tiny_fed(), rounds=2, **THREE_STEPS)
    assert [len(s["models"]) for s in found] == [1, 1]
    assert (CFL().eps1, CFL().eps2, CFL().min_round, CFL().min_size) == (0.4, 1.6, 21, 2)  # released: c_round > 20


def vectors(n, dim=3):
    return st.lists(st.lists(st.integers(-9, 9), min_size=dim, max_size=dim), min_size=n[0], max_size=n[1])


@given(vectors((2, 7)), st.sampled_from(["single", "complete"]))
def test_single_linkage_is_the_best_bipartition(rows, method):
    updates = torch.tensor(rows, dtype=torch.float64)
    assume((updates.norm(dim=1) > 0).all())
    half = bipartition(updates, method)
    assert half[0] == 0 and half.max() == 1  # two halves, neither empty
    best, _ = halves(updates)
    across = float(cosines(updates)[half == 0][:, half == 1].max())
    assert across >= best - 1e-12
    if method == "single":
        assert across == pytest.approx(best, abs=1e-12)


def test_complete_linkage_need_not_be():
    """At 0, 39, 80 and 125 degrees the widest gap is the last; complete linkage halves the angle instead."""
    angle = torch.tensor([0.0, 39, 80, 125], dtype=torch.float64).deg2rad()
    updates = torch.stack([angle.cos(), angle.sin()], 1)
    assert bipartition(updates, "single").tolist() == halves(updates)[1] == [0, 0, 0, 1]
    assert bipartition(updates, "complete").tolist() == [0, 0, 1, 1]


def test_cosines_ignore_length_and_have_a_value_for_no_update():
    r = 0.5**0.5
    found = cosines(torch.tensor([[2.0, 0], [0, 0], [1, 1], [-9, 0]]))
    close(found, [[1, 0, r, -1], [0, 0, 0, 0], [r, 0, 1, -r], [-1, 0, -r, 1]])


def polar(degrees):
    return torch.tensor([np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))])[None]


def test_the_certificate_by_hand():
    """A deviation of 0.28 from (1, 0) allows cosines across below sqrt((1 - 0.28) / 2) = 0.6."""
    side, half = torch.tensor([[1, 0.28], [1, -0.28]], dtype=torch.float64), torch.tensor([0, 0, 1])
    edge = np.rad2deg(np.arctan(0.28) + np.arccos(0.6))
    for more, fine in ((0.1, True), (-0.1, False)):  # lengths across do not matter
        assert certified(torch.cat([side, 7 * polar(edge + more)]), half) == fine
        assert certified(torch.cat([polar(edge + more), side]), 1 - half.flip(0)) == fine
    wide = torch.tensor([[1, 1], [1, -1]], dtype=torch.float64)  # gamma = 1
    assert not certified(torch.cat([wide, polar(180)]), half)
    assert certified(torch.cat([0.99 * wide + torch.tensor([0.05, 0]), polar(180)]), half)
    # 3 and 1 deviate by 1 from 2, and (1, 1, 1, 1) has with (1, 1, 1, -1) the cosine 1/2, which is the bound itself
    reached = torch.tensor([[3.0, 3, 3, 3], [1, 1, 1, 1], [1, 1, 1, -1]], dtype=torch.float64)
    assert not certified(reached, torch.tensor([0, 0, 1]))


def test_what_is_only_carried_splits_nobody_and_moves_no_group_of_fedgroup():
    """Running statistics, the last two numbers here, move far and alike; they are no part of an update."""
    updates = torch.tensor([[1, 0], [0.9, 0.1], [-0.9, 0.1], [-1, 0]], dtype=torch.float64)
    uploads = torch.cat([updates, torch.full((4, 2), 50.0)], 1)
    server = {"models": torch.zeros(1, 4, dtype=torch.float64), "assign": torch.zeros(4, dtype=torch.int64)}
    net = Given(uploads)
    net.task.model.trainable = 2
    split = CFL(eps1=0.4, eps2=0.8, min_round=1).round(server, torch.arange(4), net)
    assert split["assign"].tolist() == [0, 0, 1, 1]
    net = Pretrained(torch.full((4,), 3.0, dtype=torch.float64), uploads)
    net.task.model.trainable = 2
    method = FedGroup(k=2)
    begun = method.start(net)
    assert (begun["assign"] ^ int(begun["assign"][0])).tolist() == [0, 0, 1, 1]
    assert method.nearest(begun, torch.arange(4), net).tolist() == begun["assign"].tolist()


def test_a_split_that_is_not_certified_is_not_made():
    updates = torch.cat([torch.tensor([[1, 0.5], [1, -0.5]], dtype=torch.float64), polar(85)])
    server = {"models": torch.zeros(1, 2, dtype=torch.float64), "assign": torch.zeros(3, dtype=torch.int64)}
    plain = CFL(**ALWAYS).round(server, torch.arange(3), Given(updates))
    assert plain["assign"].tolist() == [0, 0, 1]
    close(plain["models"], [[1, 0], updates[2].tolist()])
    tested = CFL(**ALWAYS, gamma_test=True).round(server, torch.arange(3), Given(updates))
    assert tested["assign"].tolist() == [0, 0, 0]
    close(tested["models"], updates.mean(0)[None])


@given(st.integers(2, 9), st.integers(0, 99), st.sampled_from(["single", "complete"]), st.booleans())
def test_clusters_stay_a_partition_through_nested_splits(n, seed, linkage, everybody):
    """Each round refines the last; a cluster's model is the plain mean of its sampled members, or what it was."""
    random = np.random.default_rng(seed)
    method = CFL(eps1=2, eps2=0.5, min_round=1, min_size=int(random.integers(1, 3)), linkage=linkage)
    server = {"models": torch.zeros(1, 3, dtype=torch.float64), "assign": torch.zeros(n, dtype=torch.int64)}
    for t in range(1, 6):
        size = n if everybody else int(random.integers(1, n + 1))
        clients = torch.from_numpy(np.sort(random.choice(n, size, replace=False)))
        uploads = server["models"][server["assign"][clients]] + torch.from_numpy(random.normal(size=(size, 3)))
        before, server = server, method.round(server, clients, Given(uploads, t))
        old, new, k = before["assign"], server["assign"], len(server["models"])
        assert sorted(set(new.tolist())) == list(range(k))
        for c in range(k):
            assert len(set(old[new == c].tolist())) == 1
            inside = new[clients] == c
            if inside.any():
                close(server["models"][c], uploads[inside].mean(0))
            else:
                assert torch.equal(server["models"][c], before["models"][c])
        unsampled = np.setdiff1d(np.arange(n), clients.numpy())
        assert torch.equal(new[unsampled], old[unsampled])


# ------------------------------------------------------------------ FedFomo
def parts(client, seed=0, share=0.2):
    """The held-out and the remaining samples of a client."""
    x, y = CLIENTS[client]
    order = rng.generator(seed, client, "holdout").permutation(len(y))
    cut = max(1, min(len(y) - 1, round(share * len(y))))
    return (x[order[:cut]], y[order[:cut]]), (x[order[cut:]], y[order[cut:]])


def some_models(seed=3, scale=0.5):
    return np.random.default_rng(seed).normal(size=(N, 6)) * scale


def fomo_weights(models, client, offers):
    held = parts(client)[0]
    own = loss(models[client], *held)
    gain = [(own - loss(models[n], *held)) / np.linalg.norm(models[n] - models[client]) for n in offers]
    clipped = np.maximum(gain, 0)
    return clipped / clipped.sum() if clipped.sum() > 0 else clipped


def test_fedfomo_by_hand():
    models = some_models()
    server = {"models": torch.tensor(models), "useful": torch.full((N, N), 0.25, dtype=torch.float64)}
    found = FedFomo(models=4).round(server, torch.tensor([0, 1, 3]), network(FedFomo(), tiny_fed(), **THREE_STEPS))
    helped = 0
    for i in range(N):
        others = [n for n in range(N) if n != i]
        if i in (0, 1, 3):
            w = fomo_weights(models, i, others)
            mixed = models[i] + sum(a * (models[n] - models[i]) for a, n in zip(w, others, strict=True))
            close(found["models"][i], train(mixed, *parts(i)[1], steps=3))
            close(found["useful"][i, others], 0.25 + w)
            helped += (w > 0).sum()
            assert w.sum() == pytest.approx(1) or not w.any()
        else:
            assert torch.equal(found["models"][i], server["models"][i])
            assert found["useful"][i].tolist() == [0.25] * N
    assert 2 < helped < 12  # some offers helped and some were clipped


def test_without_offers_fedfomo_is_local_only_on_what_is_not_held_out():
    how = {"local": SGD(0.1, epochs=3, batch_size=1), "rounds": 3, "participation": 0.6}
    alone = run(methods.LocalOnly(), federation(*(parts(i)[1] for i in range(N))), **how)
    found = run(FedFomo(models=0), tiny_fed(), **how)
    met = [i for i in range(N) if alone.memory.get("personal", i) is not None]
    assert len(met) > 3
    for i in met:
        assert torch.equal(found.server["models"][i], alone.memory.get("personal", i))
    assert not found.server["useful"].any()


def test_a_client_whom_no_offer_helps_goes_on_from_its_own_model():
    """Its own model has been trained on what it holds out; the others' are that model turned around."""
    models = np.zeros((N, 6))
    models[0] = train(np.zeros(6), *parts(0)[0], steps=50)
    models[1:] = -models[0]
    server = {"models": torch.tensor(models), "useful": torch.zeros(N, N, dtype=torch.float64)}
    found = FedFomo(models=4).round(server, torch.tensor([0, 1]), network(FedFomo(), tiny_fed(), **STILL))
    assert torch.equal(found["models"][0], server["models"][0]) and not found["useful"][0].any()


def mixed(losses, own, offers):
    """What a client of FedFomo makes of offers, with these losses of its own model and of theirs."""
    data = SimpleNamespace(split=lambda *_: (SimpleNamespace(take=lambda i: None), None))
    local = SimpleNamespace(seed=0, losses=lambda *_: torch.tensor([losses], dtype=torch.float64),
                            sgd=lambda start, _: start, model=SimpleNamespace(trainable=2))  # fmt: skip
    down = {"own": Rows([torch.tensor([own]).double()]), "offers": torch.tensor([offers]).double()}
    return FedFomo(models=len(offers)).client(down, None, data, local)


def test_an_offer_without_distance_has_no_weight_even_if_its_loss_is_another_by_rounding():
    up = mixed([1.0, 0.9, 1.0, 1.1], [1, 1], [[1, 1]] * 3)
    assert up["weight"].tolist() == [[0, 0, 0]] and up["model"].tolist() == [[1, 1]]


def test_fedfomos_distance_sees_no_running_statistics():
    up = mixed([3.0, 1.0, 1.0], [0, 0, 0], [[1, 0, 99], [0, 2, 0]])
    close(up["weight"], [[2 / 3, 1 / 3]])  # gains of 2 at distances 1 and 2
    close(up["model"], [[2 / 3, 2 / 3, 66]])


def test_fedfomo_offers_the_models_of_those_who_are_there():
    there = torch.tensor([1, 4, 6])
    offers = FedFomo(models=5).offers(torch.zeros(8, 8), there, Given(clients=8, everybody=there))
    assert offers.sort(1).values.tolist() == [[4, 6], [1, 6], [1, 4]]


ABOUT_MODELS = [Robust(k=2), *(methods.LCFed(k=2, rank=rank) for rank in (3, None)),
                methods.FedCG(domains=2, clusters="kmeans")]


@pytest.mark.parametrize("method", ABOUT_MODELS, ids=["robust", "lcfed", "lcfed full", "fedcg kmeans"])
def test_running_statistics_cluster_nobody(method, fed):
    """Networks that differ only in how fast their running statistics move train alike, and are clustered alike."""

    def normalised(momentum):
        norm = nn.BatchNorm2d(2, momentum=momentum)
        return nn.Sequential(nn.Conv2d(1, 2, 8), norm, nn.Flatten(), nn.Linear(2, 10))

    how = {"local": SGD(0.1, epochs=3), "rounds": 2}
    slow, fast = (run(method, fed, model=partial(normalised, m), **how).server for m in (0.0, 1.0))
    assert torch.equal(slow["assign"], fast["assign"]) and len(slow["assign"].unique()) == 2
    models = next(name for name in ("models", "model") if name in slow)
    assert not torch.equal(slow[models], fast[models])  # what is carried has moved


def test_downloads_are_the_most_useful_unless_chance_decides_and_its_share_decays():
    n, method = 150, FedFomo(models=2, epsilon=1.0, decay=0.25)
    useful = torch.zeros(n, n, dtype=torch.float64)
    best = (torch.arange(n)[:, None] + torch.tensor([1, 2])) % n
    useful.scatter_(1, best, torch.tensor([2.0, 1.0], dtype=torch.float64).expand(n, -1))
    for round, share in ((1, 0.0), (3, 0.5), (4, 0.75), (5, 1.0), (9, 1.0)):
        offers = method.offers(useful, torch.arange(n), Given(round=round, clients=n))
        assert offers.shape == (n, 2) and (offers != torch.arange(n)[:, None]).all()
        assert (offers[:, 0] != offers[:, 1]).all()
        greedy = float((offers == best).all(1).double().mean())
        assert abs(greedy - share) < 0.1 if 0 < share < 1 else greedy == share
    assert FedFomo(models=9).offers(torch.zeros(3, 3), torch.arange(3), Given(clients=3)).shape == (3, 2)


# ------------------------------------------------------------------ FedGroup
@given(vectors((3, 6), dim=4), st.integers(1, 3))
def test_edc_is_the_cosine_with_each_leading_direction(rows, k):
    updates = np.array(rows, float)
    assume((np.linalg.norm(updates, axis=1) > 0).all())
    values, vectors_ = np.linalg.eigh(updates.T @ updates)
    assume(np.diff(values).min() > 1e-3)  # else directions are not determined
    V = vectors_[:, ::-1][:, :k]
    expected = updates @ V / np.linalg.norm(updates, axis=1, keepdims=True)
    close(edc(torch.tensor(updates), k).abs(), np.abs(expected), atol=1e-9)


def best_groups(points, k=2):
    """The 2-means optimum by trying all bipartitions; the group of the first is 0."""

    def cost(half):
        return sum(((points[half == c] - points[half == c].mean(0)) ** 2).sum() for c in range(k))

    codes = [np.array([0] + [code >> i & 1 for i in range(len(points) - 1)]) for code in range(1, 2 ** (N - 1))]
    return min(codes, key=cost)


def test_fedgroup_by_hand():
    w = initial()
    first = np.array([train(w, *c, steps=1) for c in CLIENTS])  # one epoch of pre-training, whatever comes later
    V = np.linalg.svd(first - w, full_matrices=False)[2][:2]
    points = (first - w) @ V.T / np.linalg.norm(first - w, axis=1, keepdims=True)
    group = best_groups(points)
    assert group.tolist() == [0, 1, 0, 1, 0]
    start = [average(first[group == c]) for c in (0, 1)]  # plain means
    models = start
    for _ in range(2):
        trained = np.array([train(models[g], *c, steps=3) for g, c in zip(group, CLIENTS, strict=True)])
        before, models = models, [average(trained[group == c], np.array(SIZES)[group == c]) for c in (0, 1)]
    found = run(FedGroup(k=2), tiny_fed(), rounds=2, **THREE_STEPS).server
    flip = int(found["assign"][0])  # k-means may call the first group 1
    assert (found["assign"] ^ flip).tolist() == group.tolist()
    close(found["models"][[flip, 1 - flip]], models)
    close(found["moved"][[flip, 1 - flip]], np.array(models) - np.array(before))
    close(found["initial"], w)


class Pretrained(Given):
    """A network whose clients have pre-trained from `initial` to `initial` + `updates`."""

    def __init__(self, initial, updates):
        super().__init__(initial + updates, clients=len(updates))
        self.task.init = lambda: initial[None]


def test_fedgroup_compares_updates_wherever_they_begin():
    updates = torch.tensor([[1, 0, 0], [0, 1, 0], [3, 0, 0], [0, 0.5, 0]], dtype=torch.float64)
    for height in (0.0, 100.0):  # where all models point the same way
        found = FedGroup(k=2).start(Pretrained(torch.tensor([0, 0, height], dtype=torch.float64), updates))
        assert (found["assign"] ^ int(found["assign"][0])).tolist() == [0, 1, 0, 1]


def test_a_group_of_fedgroup_without_members_stands_where_all_began():
    began = torch.tensor([0.0, 7], dtype=torch.float64)
    alike = torch.tensor([[1.0, 0]] * 3, dtype=torch.float64)
    with pytest.warns(ConvergenceWarning, match="distinct clusters"):
        found = FedGroup(k=2).start(Pretrained(began, alike))
    mine = found["assign"][0]
    assert (found["assign"] == mine).all()
    assert found["models"][1 - mine].tolist() == [0, 7] and found["models"][mine].tolist() == [1, 7]


def test_a_group_of_fedgroup_without_sampled_members_stays():
    method = FedGroup(k=2)
    rig = simulation(method, tiny_fed(), **THREE_STEPS)
    server = method.start(rig.network(0, Memory()))
    here, there = server["assign"][0], server["assign"][1]
    after = method.round(server, torch.tensor([0, 2]), rig.network(1, Memory()))
    assert here != there
    for name in ("models", "moved"):
        assert torch.equal(after[name][there], server[name][there])
        assert not torch.equal(after[name][here], server[name][here])


def test_fedgroup_pretrains_by_epochs_where_the_run_counts_steps():
    found = run(FedGroup(k=1), tiny_fed(), local=SGD(0.1, steps=3), rounds=0).server
    close(found["models"][0], average([train(initial(), *c, steps=1) for c in CLIENTS]))


def test_a_newcomer_joins_the_group_that_moved_its_way_last():
    method = FedGroup(k=2, pretrain=1, pretrain_epochs=2)
    rig = simulation(method, tiny_fed(), **THREE_STEPS)
    server = method.start(rig.network(0, Memory()))
    known = torch.nonzero(server["assign"] >= 0).flatten().tolist()
    assert len(known) == 2  # min(pretrain k, N), one a group
    w = initial()
    show = np.array([train(w, *c, steps=2) - w for c in CLIENTS])
    for i in known:
        close(server["moved"][server["assign"][i]], show[i])
    turned = server | {"moved": -server["moved"]}  # and not by the groups' models
    served = method.serve(server, torch.arange(N), rig.network(1, Memory()))
    assert torch.equal(method.serve(turned, torch.tensor(known), None).index, server["assign"][known])
    for state in (server, turned):
        moved = state["moved"].numpy()
        cosine = show @ moved.T / np.linalg.norm(show, axis=1, keepdims=True) / np.linalg.norm(moved, axis=1)
        after = method.round(state, torch.arange(1, N), rig.network(1, Memory()))
        for i in range(N):
            if i in known or i == 0:
                assert after["assign"][i] == server["assign"][i]
            else:
                assert after["assign"][i] == cosine[i].argmax()
                assert state is turned or served.index[i] == cosine[i].argmax()


# ------------------------------------------------------------------ robust clustering
@given(st.integers(1, 30), st.floats(0, 0.49), st.integers(0, 99))
def test_trimmed_mean_is_scipys(n, trim, seed):
    points = np.random.default_rng(seed).normal(size=(n, 3))
    close(trimmed_mean(torch.tensor(points), trim), trim_mean(points, trim))


@given(st.integers(10, 40), st.integers(2, 5), st.integers(1, 3), st.integers(0, 99))
def test_without_trimming_it_is_lloyds_algorithm(n, k, iterations, seed):
    random = np.random.default_rng(seed)
    points, centres = random.normal(size=(n, 2)), random.normal(size=(k, 2))
    centres[0] += 100  # stays empty
    found, assign = trimmed_kmeans(torch.tensor(points), torch.tensor(centres), 0.0, iterations)
    for _ in range(iterations):
        label = ((points[:, None] - centres) ** 2).sum(-1).argmin(1)
        centres = np.array([points[label == c].mean(0) if (label == c).any() else centres[c] for c in range(k)])
    close(found, centres)
    assert assign.tolist() == ((points[:, None] - centres) ** 2).sum(-1).argmin(1).tolist()


@pytest.mark.parametrize(("lie", "seed"), [(1e6, 0), (-1e9, 1)])
def test_a_lying_client_neither_seeds_nor_moves_a_centre(lie, seed):
    class Lied(Robust):
        def client(self, down, memory, data, local):
            up = super().client(down, memory, data, local)["model"].dense()
            up[[client == 10 for client in data.clients]] = lie
            return {"model": up}

    two_kinds, how = [CLIENTS[0], CLIENTS[3]] * 5, THREE_STEPS | {"seed": seed, "rounds": 2}
    rig = simulation(Lied(k=2, trim=0.2), federation(*two_kinds, CLIENTS[1]), **how)
    start, w = rig._start().server, rig.task.init()[0].numpy()
    order = start["assign"][:2].tolist()
    assert start["assign"][:10].tolist() == order * 5 and sorted(order) == [0, 1]
    close(start["models"][order], [train(w, *c, steps=3) for c in two_kinds[:2]])  # but for the lie all agree
    close(rig.run().server["models"][order], [train(w, *c, steps=9) for c in two_kinds[:2]])


def test_the_points_that_may_seed():
    points = torch.tensor([[0.0], [5], [1], [100], [2], [3]])
    assert central(points, 4).tolist() == [0, 2, 4, 5]  # nearest to the median, in their order
    assert central(points, 6).tolist() == list(range(6))
    for far in (-50, 50):
        assert central(points + far, 4).tolist() == [0, 2, 4, 5]  # wherever they lie


def test_all_but_the_trimmed_share_may_seed(monkeypatch):
    given, draw = [], sklearn.cluster.kmeans_plusplus
    monkeypatch.setattr(sklearn.cluster, "kmeans_plusplus", lambda x, *a, **k: given.append(x) or draw(x, *a, **k))
    for k, trim in ((2, 0.34), (4, 0.49)):  # floor(0.34 * 5) = 1
        run(Robust(k=k, trim=trim), tiny_fed(), rounds=0, **THREE_STEPS)
    trained = np.array([train(initial(), *c, steps=3) for c in CLIENTS])
    farthest = np.linalg.norm(trained - np.median(trained, axis=0), axis=1).argmax()
    close(given[0], np.delete(trained, farthest, axis=0))
    assert len(given[1]) == 4  # not 3: there must be K of them


# they cluster what a first training gives
FIRST = [Robust(k=2), FedGroup(k=2, pretrain_epochs=9), methods.FeSEM(k=2), methods.LCFed(k=2, rank=2)]


def test_robust_tells_models_apart_that_began_alike_in_single_precision():
    """Thirty models near a common one: products of them agree to all digits that single precision has."""
    g = torch.Generator().manual_seed(0)
    common, gap = 10 * torch.randn(2000, generator=g), 1e-3 * torch.randn(2, 2000, generator=g)
    truth = torch.arange(30) % 2
    points = common + gap[truth] + 1e-5 * torch.randn(30, 2000, generator=g)
    assert torch.equal(robust.apart(points, common + gap).argmin(1), truth)
    exact = torch.cdist(points.double(), (common + gap).double())
    torch.testing.assert_close(robust.apart(points, common + gap).double(), exact, rtol=1e-2, atol=0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", FIRST, ids=lambda m: m.name)
def test_a_first_training_that_diverges_is_told_in_one_line(method):
    line = "lr = 1e+30: must be smaller; the models that are clustered first have diverged"
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        run(method, tiny_fed(), local=SGD(1e30, steps=9), model="mlp4", rounds=0, dtype="float32")


def test_robust_by_hand():
    """Local models, two clusters of them, then means in each without the least and the greatest."""
    models, kinds = [initial()] * 2, [0, 1, 0, 1, 0]
    for t in (0, 1):
        trained = np.array([train(models[g], *c, steps=3) for g, c in zip(kinds, CLIENTS, strict=True)])
        models = [np.median(trained[[0, 2, 4]], axis=0), trained[[1, 3]].mean(0)]  # 0.34 of 3 is 1, of 2 is 0
        server = run(Robust(k=2, trim=0.34), tiny_fed(), rounds=t, **THREE_STEPS).server
        flip = int(server["assign"][0])
        assert (server["assign"] ^ flip).tolist() == kinds
        close(server["models"][[flip, 1 - flip]], models)


# ------------------------------------------------------------------ traffic
P = 61_706  # of which the decision layer 850


TRAFFIC = {  # down and up for each sampled client, before round 1 and for each newcomer: methods
    (0, 0, 0, 0): [methods.LocalOnly()],
    (P, P, 0, 0): [FedAvg(), methods.FedSGD(), methods.FedProx(), methods.Ditto(), FedDist(), CFL(), CFL(**ALWAYS),
                   FedFomo(models=0), methods.OracleClusters((0, 1) * 5),
                   methods.CGPFLLike(k=2)],  # no global pull, no global embedding to send
    (P, P, 10 * P, 0): [methods.FeSEM(), FedGroup(), Robust()],
    (P, P, 2 * P, P): [FedGroup(k=2, pretrain=1)],
    (246_824, 61_707, 0, 0): [IFCA(k=4), IFCA(k=4, average="gradient")],
    (617_060, 61_707, 0, 0): [IFCA(k=10)],
    (64_256, 61_707, 0, 0): [IFCA(k=4, share=True)],
    (123_412, 123_412, 0, P): [methods.StoCFL(), methods.StoCFL(members="sampled", merge="union_find")],
    (3 * P, 123_412, 0, P): [methods.StoCFL(global_update="chained")],  # the chain needs omega itself, too
    (123_412, 123_412, 0, 0): [Scaffold(), Scaffold(option="I"), FedDANE(second="same")],
    (185_118, 123_412, 0, 0): [FedDANE()],  # who solves is drawn anew and needs w too: w, then w and g
    (60_856, 60_856, 0, 0): [FedPer()],
    (370_236, 61_711, 0, 0): [FedFomo()],  # the server learns whom to offer next from the 5 weights
}


@pytest.mark.parametrize(("method", "paid"), [(m, paid) for paid, some in TRAFFIC.items() for m in some], ids=repr)
def test_traffic_of_lenet_is_what_the_tables_say(pictures, method, paid):
    down, up, start, once = paid
    rig = simulation(method, pictures, model="lenet", participation=0.3, rounds=3, dtype="float32")
    first, *rows = rig.run().rounds
    assert (first["down"], first["up"]) == (start, start)
    group = method.name == "fedgroup"  # which knows some from its start, and sends newcomers what they train
    met = set(torch.nonzero(rig._start().server["assign"] >= 0).flatten().tolist()) if group else set()
    for row, clients in zip(rows, rig.schedule, strict=True):
        extra = once * len(set(clients.tolist()) - met)
        met |= set(clients.tolist())
        assert (row["down"], row["up"]) == (3 * down + extra * group, 3 * up + extra)
    assert len(met) < 9 + 2 * group  # somebody came twice, and paid once


def test_a_client_of_one_image_has_nothing_to_hold_out(ragged):
    with pytest.raises(ValueError, match=r"^images of the smallest client = 1: must be 2 or more, to hold"):
        simulation(FedFomo(), ragged(1, 5), local=SGD(0.1), model="mlp16")
