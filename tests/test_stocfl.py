"""StoCFL against a round computed by hand, its identities under their exact conditions, and its merging rules."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tiny import close, federation, gradient, network, rounds, run, simulation, train, zeros
from torch import nn

from cflkit.engine.memory import Memory
from cflkit.engine.rows import Dense
from cflkit.engine.sgd import SGD
from cflkit.methods import Ditto, FedAvg, OracleClusters, StoCFL
from cflkit.methods.stocfl import alike, cosines, merged

RULES = ["agglomerative", "union_find"]
SETTINGS = {"local": SGD(0.1, epochs=2, batch_size=10), "rounds": 4, "model": "mlp16"}
PARTIAL = SETTINGS | {"participation": 0.4}
ONE_STEP = {"local": SGD(0.1)}


def states(method, fed, **settings):
    return rounds(method, fed, **settings)[0]


# ------------------------------------------------------------------ a round, computed by hand
# Three clients of 1, 3 and 2 samples. 0 and 2 see label 0 to the right, and 1 sees it to the left.
CLIENTS = [
    (np.array([[3, 0]]), np.array([0])),
    (np.array([[3, 1], [0, 2], [4, 0]]), np.array([1, 0, 1])),
    (np.array([[2, 0], [1, 3]]), np.array([0, 1])),
]


def initial():
    return simulation(FedAvg(), federation(*CLIENTS)).task.init()[0].numpy()


def unit(v):
    return v / np.linalg.norm(v)


def test_two_rounds_computed_by_hand():
    w = initial()
    psi = [unit(gradient(w, *c)) for c in CLIENTS]
    assert psi[0] @ psi[2] > 0.2 > max(psi[0] @ psi[1], psi[1] @ psi[2])  # {0, 2} and {1}
    omega, theta, cluster = w, [w, w], [0, 1, 0]
    for _ in range(2):
        mine = [train(theta[cluster[i]], *c, steps=3, pull=0.7, centre=omega) for i, c in enumerate(CLIENTS)]
        ours = [train(omega, *c, steps=3) for c in CLIENTS]
        theta = [(1 * mine[0] + 2 * mine[2]) / 3, mine[1]]
        omega = (1 * ours[0] + 3 * ours[1] + 2 * ours[2]) / 6
    server = run(StoCFL(tau=0.2, lam=0.7), federation(*CLIENTS), local=SGD(0.1, epochs=3), rounds=2).server
    assert server["assign"].tolist() == cluster
    close(server["omega"], omega)
    close(server["theta"], theta)
    close(server["prints"], [psi[0] + psi[2], psi[1]])
    assert server["objective"] == pytest.approx(unit(psi[0] + psi[2]) @ psi[1], abs=1e-12)  # Eq. 2


def test_chained_global_model_by_hand():
    """Each client goes on from the one before; the round's model is the mean of the intermediates."""
    omega = initial()
    for _ in range(2):
        first = train(omega, *CLIENTS[0], steps=3)
        second = train(first, *CLIENTS[1], steps=3)
        third = train(second, *CLIENTS[2], steps=3)
        centre, omega = omega, (first + 3 * second + 2 * third) / 6
    how = {"local": SGD(0.1, epochs=3), "rounds": 2}
    before, after = states(StoCFL(tau=0.2, lam=0.7, global_update="chained"), federation(*CLIENTS), **how)
    close(after["omega"], omega)
    close(after["theta"][1], train(before["theta"][1].numpy(), *CLIENTS[1], steps=3, pull=0.7, centre=centre))


# ------------------------------------------------------------------ tau = -1
@pytest.mark.parametrize("merge", RULES)
def test_under_partial_participation_only_the_larger_rule_keeps_that_identity(fed, merge):
    average = states(FedAvg(), fed, **PARTIAL)
    larger = states(StoCFL(tau=-1, lam=0, merge=merge), fed, **PARTIAL)
    mean = states(StoCFL(tau=-1, lam=0, merge=merge, merged_model="mean"), fed, **PARTIAL)
    assert torch.equal(mean[0]["theta"], larger[0]["theta"])
    for t in range(4):
        assert torch.equal(larger[t]["theta"][0], average[t]["model"])
        assert torch.equal(larger[t]["omega"], average[t]["model"])
        assert torch.equal(mean[t]["omega"], average[t]["model"])
    known = larger[0]["assign"].ge(0).sum(), larger[1]["assign"].ge(0).sum()
    assert known[0] < known[1]  # somebody new came in round 2, and dragged the mean back to the start
    assert not torch.allclose(mean[1]["theta"][0], average[1]["model"], atol=1e-4)


def test_fedavg_needs_no_pair_of_opposite_fingerprints():
    """Merging asks for more than tau: at -1 opposite clients stay apart, the one exception of the identity."""

    opposite = federation((np.array([[1, 0]]), [0]), (np.array([[1, 0]]), [1]))
    assert run(StoCFL(tau=-1), opposite, model=zeros).server["assign"].tolist() == [0, 1]


# ------------------------------------------------------------------ tau = 1
@pytest.mark.parametrize("merge", RULES)
@pytest.mark.parametrize("lam", [0.0, 0.7])
def test_without_merging_cluster_models_are_dittos_personal_models(fed, merge, lam):
    ditto = run(Ditto(lam=lam), fed, **PARTIAL)
    server = run(StoCFL(tau=1, lam=lam, merge=merge), fed, **PARTIAL).server
    assert torch.equal(server["omega"], ditto.server["model"])
    met = torch.nonzero(server["assign"] >= 0).flatten().tolist()
    assert 4 < len(met) == len(server["theta"])
    for i in met:
        close(server["theta"][server["assign"][i]], ditto.memory.get("personal", i))


@pytest.mark.parametrize("merge", RULES)
def test_identical_clients_stay_apart_although_cosines_exceed_one_by_rounding(merge):
    over = torch.tensor([[1, 1 + 1e-7], [1 + 1e-7, 1]], dtype=torch.float64)
    assert cosines(over).max() == 1 and merged(over, 1.0, merge).tolist() == [0, 1]
    assert merged(over, 1 - 1e-9, merge).tolist() == [0, 0]


# ------------------------------------------------------------------ lambda = 0, oracle
def test_a_new_cluster_starts_where_theta_init_says(fed):
    how = PARTIAL | {"rounds": 2}
    for init, key in (("omega_0", "psi"), ("omega_t", "omega")):
        method = StoCFL(tau=1, theta_init=init)
        rig = simulation(method, fed, **how)
        first = states(method, fed, **how)[0]
        fresh = rig.schedule[1][first["assign"][rig.schedule[1]] < 0]
        clustered = method.cluster(first, rig.schedule[1], rig.network(2, Memory()))
        assert len(fresh)
        for client in fresh:
            assert torch.equal(clustered["theta"][clustered["assign"][client]], first[key])


def test_with_the_true_clusters_and_no_pull_it_is_fedavg_in_each(digits):
    from cflkit.data.builders import pathological

    fed = pathological(digits, clients=[3, 2, 2, 3], samples_per_client=24)
    server = run(StoCFL(lam=0), fed, **SETTINGS).server
    assert torch.equal(server["assign"], fed.cluster)
    assert torch.equal(server["theta"], run(OracleClusters.of(fed), fed, **SETTINGS).server["models"])


# ------------------------------------------------------------------ clusters over rounds
def naive(vectors: np.ndarray, tau: float) -> list[int]:
    """Best pair, merge, and again: everything recomputed from the vectors each time."""
    clusters = [[i] for i in range(len(vectors))]
    while len(clusters) > 1:
        total = [vectors[c].sum(0) for c in clusters]  # as good as the mean, and exact for whole numbers
        pairs = [(a, b) for a in range(len(clusters)) for b in range(a + 1, len(clusters))]

        def cosine(pair, total=total):
            u, v = total[pair[0]], total[pair[1]]
            length = np.sqrt(u @ u) * np.sqrt(v @ v)
            return np.clip(u @ v / length, -1, 1) if length else 0.0

        a, b = max(pairs, key=cosine)  # the first of equals
        if cosine((a, b)) <= tau:
            break
        clusters[a] += clusters.pop(b)
    label = np.empty(len(vectors), int)
    for k, c in enumerate(sorted(clusters, key=min)):
        label[c] = k
    return label.tolist()


# ------------------------------------------------------------------ with fingerprints of our choice
@dataclass(frozen=True)
class Given(StoCFL):
    """StoCFL whose clients' fingerprints are given: only clustering is on trial."""

    table: tuple = ()

    def extract(self, down, memory, data, local):
        rows = torch.tensor([self.table[c] for c in data.clients], dtype=torch.float64)
        return {"psi": Dense(nn.functional.pad(rows, (0, len(down["psi"]) - rows.shape[1])))}


def at(*degrees):
    return tuple((float(np.cos(np.radians(d))), float(np.sin(np.radians(d)))) for d in degrees)


def meet(method, *groups, done=()):
    """Partitions after each of the rounds in which these clients are sampled."""
    fed = federation(*[(np.array([[i + 1, 2]]), [i % 2]) for i in range(len(method.table))])
    server, found = method.start(network(method, fed, 0)), []
    for t, clients in enumerate(groups, 1):
        server = method.round(server, torch.tensor(clients), network(method, fed, t))
        found.append(server)
    return found, fed


def labels(servers):
    return [server["assign"].tolist() for server in servers]


def test_all_members_represent_a_cluster_or_only_those_sampled():
    """0 and 50 degrees merge; 100 is 75 from their mean, and 50 from the only one of them that is here again."""
    table, visits = at(0, 50, 100), ([0, 1], [1, 2])
    assert labels(meet(Given(table=table), *visits)[0]) == [[0, 0, -1], [0, 0, 1]]
    assert labels(meet(Given(table=table, members="sampled"), *visits)[0]) == [[0, 0, -1], [0, 0, 0]]
    table, visits = at(0, 10), ([0], [1], [0, 1])  # a cluster of which nobody is here cannot merge then
    assert labels(meet(Given(table=table), *visits)[0]) == [[0, -1], [0, 0], [0, 0]]
    assert labels(meet(Given(table=table, members="sampled"), *visits)[0]) == [[0, -1], [0, 1], [0, 0]]


def test_with_everybody_union_find_may_go_on_merging_where_agglomeration_is_done():
    """Pairs at cosine .78, across .64 and so apart at .7; but their means are at .72."""
    s, x = 0.4, 0.38
    table = tuple((1.0, a * s, b * x if a > 0 else 0.0, b * x if a < 0 else 0.0) for a in (1, -1) for b in (1, -1))
    table = tuple(tuple(unit(np.array(v))) for v in table)
    everybody = [range(4)] * 3
    found = labels(meet(Given(table=table, tau=0.7, merge="union_find"), *map(list, everybody))[0])
    assert found == [[0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    found = labels(meet(Given(table=table, tau=0.7), *map(list, everybody))[0])
    assert found == [[0, 0, 0, 0]] * 3


@pytest.mark.parametrize("rule", ["larger", "mean"])
def test_a_merged_cluster_keeps_the_model_of_more_trained_members(rule):
    """Client 2 sits between {0, 1} and {3}, and joins them all."""
    method = Given(table=at(0, 0, 45, 90), merge="union_find", merged_model=rule, tau=0.6)
    (server,), fed = meet(method, [0, 1, 3])
    assert server["assign"].tolist() == [0, 0, -1, 1]
    joined = method.cluster(server, torch.tensor([2]), network(method, fed, 2))
    assert joined["assign"].tolist() == [0, 0, 0, 0]
    two, one, new = *server["theta"], server["psi"]
    close(joined["theta"][0], two if rule == "larger" else (2 * two + one + new) / 4)


def test_whoever_never_trained_carries_no_weight():
    method = Given(table=at(0, 10))
    (server,), fed = meet(method, [0])
    joined = method.cluster(server, torch.tensor([1]), network(method, fed, 2))
    assert joined["assign"].tolist() == [0, 0] and torch.equal(joined["theta"], server["theta"])


def test_whoever_was_never_sampled_is_served_by_the_closest_cluster():
    """Closest by angle: that two fingerprints were summed on the one side must not count."""
    method = Given(table=at(0, 90, 60, 20, -80, 0))
    (server,), fed = meet(method, [0, 1, 5])
    served = method.serve(server, torch.tensor([4, 1, 2, 3]), network(method, fed, 2))
    assert served.index.tolist() == [0, 1, 1, 0]
    assert torch.equal(served.table, server["theta"])
    assert server["assign"].tolist() == [0, 1, -1, -1, -1, 0]  # looking changes nothing
    before = method.serve(method.start(network(method, fed, 0)), torch.arange(6), network(method, fed, 0))
    assert torch.equal(before.dense(), server["psi"].expand(6, -1))


@pytest.mark.parametrize("members", ["all", "sampled"])
def test_newcomers_join_the_closest_cluster_or_open_one_with_its_model(members):
    """At tau .5 clients within 60 degrees join; the one 70 away from the nearest opens a cluster."""
    method = Given(table=at(0, 120, 45, 190, 100), members=members)
    (server,), fed = meet(method, [0, 1])
    net, prints = network(method, fed, 2), server["prints"].clone()
    after = method.join(server, torch.tensor([2, 3, 4]), net)
    assert torch.equal(server["prints"], prints)
    assert after["assign"].tolist() == [0, 1, 0, 2, 1]
    assert torch.equal(after["theta"], server["theta"][[0, 1, 1]])
    psi = method.extract(server, None, type("Data", (), {"clients": range(5)}), None)["psi"].dense()
    close(after["prints"], torch.stack([psi[0] + psi[2], psi[1] + psi[4], psi[3]]))
    assert (net.down, net.up) == (0, 3 * 6)  # one fingerprint each
    close(after["objective"], cosines(after["prints"] @ after["prints"].T).triu(1).sum())
    assert abs(after["objective"] - server["objective"]) > 0.1
    assert server["assign"].tolist() == [0, 1, -1, -1, -1]
    again = method.round(after, torch.tensor([2, 3, 4]), network(method, fed, 3))
    alike = members == "sampled"  # then 45 and 100 degrees stand for their clusters, which merge
    assert again["assign"].tolist() == ([0, 0, 0, 1, 0] if alike else [0, 1, 0, 2, 1])
    assert torch.equal(again["trained"], torch.ones(5, dtype=torch.bool))


def test_joining_at_exactly_tau_is_allowed_where_merging_is_not():
    method = Given(table=((1.0, 0.0), (0.0, 1.0), (0.6, 0.8)), tau=0.8)
    (server,), fed = meet(method, [0, 1])
    assert method.join(server, torch.tensor([2]), network(method, fed, 2))["assign"].tolist() == [0, 1, 1]
    assert labels(meet(method, [0, 1, 2])[0]) == [[0, 1, 2]]


def test_joining_is_refused_without_clusters_and_twice():
    method = Given(table=at(0, 120, 40))
    (server,), fed = meet(method, [0, 1])
    net = network(method, fed, 2)
    for state, clients, line in [
        (method.start(net), [2], "clusters = 0: must be 1 or more; run a round before anybody joins"),
        (server, [1, 2], "clients = [1]: must be newcomers, which no cluster has yet"),
        (server, [0], "clients = [0]: must be newcomers, which no cluster has yet"),
    ]:
        with pytest.raises(ValueError) as error:
            method.join(state, torch.tensor(clients), net)
        assert str(error.value) == line


# ------------------------------------------------------------------ fingerprints
def fingerprints(method, fed, **settings):
    """All clients' fingerprints (N, P), at the initial model."""
    rig = simulation(method, fed, **settings)
    psi = rig.task.init()[0]
    net = rig.network(1, Memory())
    return net.call(torch.arange(fed.clients), method.extract, known={"psi": psi})["psi"].dense()


def test_displacement_by_one_full_batch_step_is_the_gradient(fed):
    one = fingerprints(StoCFL(), fed, model="mlp16")
    two = fingerprints(StoCFL(fingerprint="displacement"), fed, model="mlp16")
    close(two, one)
    assert torch.allclose(one.norm(dim=1), torch.ones(fed.clients, dtype=torch.float64), rtol=0, atol=1e-12)
    longer = fingerprints(StoCFL(fingerprint="displacement", fingerprint_epochs=20), fed, model="mlp16")
    assert not torch.allclose(longer @ longer.T, one @ one.T, atol=1e-2)
    how = {"model": "mlp16", "local": SGD(0.1, epochs=7)}  # its epochs are its own
    close(fingerprints(StoCFL(fingerprint="displacement"), fed, **how), one)
    steps = {"model": "mlp16", "local": SGD(0.1, steps=7)}
    close(fingerprints(StoCFL(fingerprint="displacement"), fed, **steps), one)
    far = StoCFL(fingerprint="displacement", fingerprint_epochs=9)  # and all else is the run's
    plain, heavy = (fingerprints(far, fed, model="mlp16", local=SGD(0.1, momentum=m)) for m in (0, 0.9))
    assert not torch.allclose(plain, heavy, atol=1e-3)


def test_a_displacement_sees_no_running_statistics(fed):
    def normalised():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 10))

    found = fingerprints(StoCFL(fingerprint="displacement"), fed, model=normalised)
    assert not found[:, -12:].any()  # means and variances of six
    close(found.norm(dim=1), torch.ones(len(found)))


def test_fingerprints_are_taken_once_and_at_the_initial_model(fed):
    seen = states(StoCFL(tau=-1), fed, **PARTIAL)
    everybody = fingerprints(StoCFL(), fed, model="mlp16")
    met = [server["assign"] >= 0 for server in seen]
    assert met[0].sum() < met[-1].sum() < 4 * met[0].sum()  # some were new later, and some came again
    for known, server in zip(met, seen, strict=True):
        close(server["prints"][0], everybody[known].sum(0))


class Stub:
    """Clients' gradients as given."""

    def __init__(self, rows):
        self.rows = torch.tensor(rows, dtype=torch.float64)

    def gradient(self, at, data):
        return Dense(self.rows)


def test_a_gradient_without_direction_is_like_nobody():
    rows = [[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [-6.0, -8.0]]
    psi = StoCFL().extract({"psi": None}, None, None, Stub(rows))["psi"].dense()
    close(psi, [[0.6, 0.8], [0, 0], [0, 0], [0, 0], [-0.6, -0.8]])
    expected = np.zeros((5, 5))
    expected[[0, 4], [0, 4]], expected[[0, 4], [4, 0]] = 1, -1
    close(cosines(psi @ psi.T), expected)
    for rule in RULES:
        assert merged(psi @ psi.T, 0.0, rule).tolist() == [0, 1, 2, 3, 4]


# ------------------------------------------------------------------ merging rules
def directions(seed, n, d=3):
    v = np.random.default_rng(seed).normal(size=(n, d)) + np.eye(d)[0]  # somewhat alike
    return v / np.linalg.norm(v, axis=1, keepdims=True)


def grouping(vectors, tau, rule):
    return merged(torch.tensor(vectors @ vectors.T), tau, rule).tolist()


SEEDS, COUNTS, TAUS = st.integers(0, 10**6), st.integers(1, 14), st.floats(-1, 1)


@settings(max_examples=200)
@example(6, 11, -0.1)  # a merged cluster ties with a row's best partner, and comes before it
@given(SEEDS, COUNTS, st.sampled_from([-0.9, -0.1, 0.0, 0.3, 0.6]))
def test_agglomeration_is_the_plain_loop_where_much_ties(seed, n, tau):
    """Whole numbers, so equal cosines are equal: the lowest pair goes first. Some vectors are 0."""
    v = np.random.default_rng(seed).integers(-1, 2, size=(n, 3)).astype(float)
    assert grouping(v, tau, "agglomerative") == naive(v, tau)


@pytest.mark.parametrize("rule", RULES)
@given(SEEDS, COUNTS, TAUS, st.sampled_from([-20, -3, 3]))
def test_lengths_do_not_matter(rule, seed, n, tau, power):
    """Powers of two, so that nothing rounds; short vectors have inner products far below 1."""
    v = directions(seed, n)
    assert grouping(v * 2.0**power, tau, rule) == grouping(v, tau, rule)
    close(cosines(torch.tensor((v @ v.T) * 4.0**power)), (v @ v.T).clip(-1, 1))


@given(SEEDS, COUNTS, TAUS)
def test_union_find_joins_what_a_chain_of_alike_vectors_connects(seed, n, tau):
    v = directions(seed, n)
    reach = (v @ v.T > tau) | np.eye(n, dtype=bool)
    for _ in range(n):
        reach = reach @ reach
    assert grouping(v, tau, "union_find") == np.unique(reach.argmax(1), return_inverse=True)[1].tolist()


@pytest.mark.parametrize("rule", RULES)
@given(seed=SEEDS, n=COUNTS, tau=TAUS, shuffle=st.randoms(use_true_random=False))
def test_both_rules_ignore_the_order_of_clients(rule, seed, n, tau, shuffle):
    v, order = directions(seed, n), list(range(n))
    assume(n < 2 or np.abs((v @ v.T)[np.triu_indices(n, 1)] - tau).min() > 1e-9)
    shuffle.shuffle(order)
    plain, shuffled = grouping(v, tau, rule), grouping(v[order], tau, rule)
    same = np.equal.outer(plain, plain)
    assert (same[np.ix_(order, order)] == np.equal.outer(shuffled, shuffled)).all()


def test_of_equal_cosines_a_merged_cluster_comes_first():
    """1 and 2 merge, and lie as close to 0 as 3 does: 2 * 57 / (10 * 19) = 60 / (10 * 10)."""
    gram = torch.tensor([[100, 57, 57, 60], [57, 100, 80.5, 0], [57, 80.5, 100, 0], [60, 0, 0, 100]])
    assert merged(gram, 0.5).tolist() == [0, 0, 0, 1]


def test_fingerprints_beside_clusters_of_several_members():
    """A cluster's fingerprint is a sum, of any length: the cosine counts its direction alone."""
    psi = Dense(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 0.0]]).double())
    sums = torch.tensor([[3.0, 4.0], [0.0, 20.0], [0.5, 0.0]]).double()
    expected = [[0.6, 0.0, 1.0], [1.0, 0.8, 0.6], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(alike(psi, sums), expected, atol=1e-7)  # products are of single precision
