"""FedEM, FedRC, FedSoft and PACFL: rounds worked by hand from the papers, and what they are in special cases."""

import numpy as np
import pytest
import torch
from every import remembered
from test_other_baselines import CLIENTS, MINIBATCH, SIZES, N, average, close, tiny_fed
from tiny import federation, network, run, simulation

from cflkit import rng
from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.methods import PACFL, FedAvg, FedEM, FedRC, FedSoft, LocalOnly
from cflkit.methods.pacfl import leading

TWO_STEPS = {"local": SGD(0.5, epochs=2), "rounds": 3, "participation": 0.6}


@pytest.fixture
def uneven(ragged):
    """Four clients of 2, 5, 13 and 22 real digits."""
    return ragged(2, 5, 13, 22)


def chances(w, x):
    """What softmax regression says (n, 2) of images."""
    z = np.asarray(x, float) @ w[:4].reshape(2, 2).T + w[4:]
    return np.exp(z) / np.exp(z).sum(1, keepdims=True)


def surprise(w, x, y):
    """Cross-entropy (n,) of each image."""
    return -np.log(chances(w, x)[np.arange(len(y)), y])


def trained(w, x, y, q=1.0, steps=2, lr=0.5, pull=0.0, centre=0.0):
    """Full-batch descent on 1/n sum_i q_i loss_i + pull/2 ||w - centre||^2."""
    for _ in range(steps):
        p = chances(w, x)
        p[np.arange(len(y)), y] -= 1
        p = (np.ones(len(y)) * q)[:, None] * p / len(y)
        w = w - lr * (np.concatenate([(p.T @ x).ravel(), p.sum(0)]) + pull * (w - centre))
    return w


def expected(evidence, pi):
    """Responsibilities (K, n), from log-likelihoods (K, n) and shares (K,)."""
    q = pi[:, None] * np.exp(evidence)
    return q / q.sum(0)


# ------------------------------------------------------------------ FedEM and FedRC
@pytest.mark.parametrize("kind", [FedEM, FedRC])
def test_mixtures_by_hand(kind):
    """FedRC divides each likelihood by the label's share in the cluster, as known from what clients said last."""
    rig = simulation(kind(k=2), tiny_fed(), **TWO_STEPS)
    models, pi = rig.task.init(2).numpy(), np.full((N, 2), 0.5)
    labels, mass = np.full((2, 2), 0.5), np.zeros((N, 2, 2))
    for sampled in rig.schedule:
        updates = []
        for i in sampled.tolist():
            x, y = CLIENTS[i]
            prior = np.log(labels[:, y]) if kind is FedRC else 0
            q = expected(np.stack([-surprise(w, x, y) for w in models]) - prior, pi[i])
            pi[i] = q.mean(1)
            mass[i] = np.stack([q[:, y == label].sum(1) for label in (0, 1)], 1)
            updates.append([trained(w, x, y, each) for w, each in zip(models, q, strict=True)])
        models = average(updates, [SIZES[i] for i in sampled])
        labels = np.maximum(mass.sum(0), 1e-8)
        labels = labels / labels.sum(1, keepdims=True)
    history = rig.run()
    close(history.server["models"], models)
    asked = sorted({i for sampled in rig.schedule for i in sampled.tolist()})
    for i in asked:
        close(history.memory.get("shares", i), pi[i])
    if kind is FedRC:
        close(history.server["labels"], labels)
        assert history.server["assign"].tolist() == [pi[i].argmax() if i in asked else -1 for i in range(N)]
    server, x = history.server, np.concatenate([x for x, _ in CLIENTS])
    for i in range(N):  # a newcomer takes one step from equal shares
        if i not in asked:
            prior = np.log(labels[:, CLIENTS[i][1]]) if kind is FedRC else 0
            pi[i] = expected(np.stack([-surprise(w, *CLIENTS[i]) for w in models]) - prior, np.full(2, 0.5)).mean(1)
    served = rig.method.serve(server, torch.arange(N), rig.network(9, history.memory))
    close(served.shares, pi)
    mixed = np.stack([pi[i] @ np.stack([chances(w, x) for w in models]).swapaxes(0, 1) for i in range(N)])
    truth = np.concatenate([y for _, y in CLIENTS])
    found = rig.evaluate(server, history.memory)["accuracy"]
    assert found == pytest.approx(np.mean([[(m[truth == c].argmax(1) == c).mean() for c in (0, 1)] for m in mixed]))


@pytest.mark.parametrize("kind", [FedEM, FedRC])
def test_one_component_is_fedavg(kind, uneven):
    ours, fedavg = (run(method, uneven, **MINIBATCH).server for method in (kind(k=1), FedAvg()))
    close(ours["models"][0], fedavg["model"])


def test_before_labels_have_been_counted_fedrc_is_fedem(uneven):
    one, two = (run(kind(k=3), uneven, **MINIBATCH | {"rounds": 2}) for kind in (FedEM, FedRC))
    first = [run(kind(k=3), uneven, **MINIBATCH | {"rounds": 1}).server["models"] for kind in (FedEM, FedRC)]
    close(*first)
    assert not torch.allclose(one.server["models"], two.server["models"], atol=1e-6)


def test_the_e_and_m_step_of_shares_never_make_a_clients_images_less_likely():
    method, memory = FedEM(k=3), Memory()
    server = method.start(network(method, tiny_fed(), 0))
    likely = []
    for t in range(1, 9):
        method.round(server, torch.arange(N), network(method, tiny_fed(), t))  # leaves nothing behind
        rig = simulation(method, tiny_fed(), local=SGD(0.1, epochs=0))
        method.round(server, torch.arange(N), rig.network(t, memory))
        pi = np.stack([memory.get("shares", i) for i in range(N)])
        p = [np.stack([np.exp(-surprise(w, *c)) for w in server["models"].numpy()]) for c in CLIENTS]
        likely.append([np.log(share @ each).sum() for share, each in zip(pi, p, strict=True)])
    assert (np.diff(likely, axis=0) >= -1e-12).all() and np.ptp(likely) > 1e-3


def test_a_label_that_nobody_has_in_a_cluster_can_be_divided_by():
    only = [(np.array([[3, 0], [2, 1]]), np.array([0, 0]))] * 2  # nobody has label 1
    found = run(FedRC(k=2), federation(*only), rounds=2).server
    assert found["models"].isfinite().all()
    mass = found["mass"].sum(0)
    assert not mass[:, 1].any()
    close(found["labels"][:, 1] * (mass[:, 0] + 1e-8), [1e-8, 1e-8], 1e-15)


# ------------------------------------------------------------------ FedSoft
@pytest.mark.parametrize("every", [1, 2])
def test_fedsoft_by_hand(every):
    method = FedSoft(k=2, lam=0.7, every=every, draw=0.6, sigma=0.01)
    rig = simulation(method, tiny_fed(), **TWO_STEPS | {"rounds": 4, "participation": 0.9})
    models = rig.task.init(2).numpy()
    own, u, asked = np.repeat(models[:1], N, 0), np.zeros((N, 2)), np.full(N, -9)
    for t, sampled in enumerate((s.tolist() for s in rig.schedule), 1):
        for i in sampled:
            if t - asked[i] >= every:
                best = np.stack([surprise(w, *CLIENTS[i]) for w in models]).argmin(0)
                u[i], asked[i] = np.maximum([(best == s).mean() for s in (0, 1)], 0.01), t
                u[i] /= u[i].sum()
        drawn = []
        for s in (0, 1):
            p = u[sampled, s] * np.array(SIZES)[sampled]
            draw = rng.generator(0, t, "server", "draw", s).choice(len(sampled), 2, replace=False, p=p / p.sum())
            drawn.append([sampled[k] for k in draw])
        for i in {i for some in drawn for i in some}:
            own[i] = trained(own[i], *CLIENTS[i], pull=0.7, centre=u[i] @ models)
        models = np.stack([average(own[some]) for some in drawn])
    history = rig.run()
    close(history.server["models"], models)
    close(history.server["importance"], u)
    assert history.server["assign"].tolist() == np.where(asked > 0, u.argmax(1), -1).tolist()
    trains = [i for i in range(N) if history.memory.get("personal", i) is not None]
    close(np.stack([history.memory.get("personal", i) for i in trains]), own[trains])
    assert len(trains) > 0
    personal = method.personal(history.server, torch.arange(N), rig.network(9, history.memory)).dense()
    close(personal, own)
    served = method.serve(history.server, torch.arange(N), rig.network(9, history.memory))
    for i in range(N):  # who was never asked is asked when served
        best = np.stack([surprise(w, *CLIENTS[i]) for w in models]).argmin(0)
        assert served.index[i] == (u[i].argmax() if asked[i] > 0 else np.bincount(best, minlength=2).argmax())


def test_fedsoft_serves_by_what_a_client_said_and_asks_who_was_never_asked():
    method = FedSoft(k=2)
    rig = simulation(method, tiny_fed(), participation=0.4)
    history = rig.run()
    known = history.server["assign"] >= 0
    assert known.sum() == 2
    fresh = method.weigh(history.server["models"], torch.arange(N), rig.network(9, Memory())).argmax(1)
    turned = history.server | {"assign": torch.where(known, 1 - fresh, -1)}
    served = method.serve(turned, torch.arange(N), rig.network(9, history.memory))
    assert served.index.tolist() == torch.where(known, 1 - fresh, fresh).tolist()


def test_a_fedsoft_cluster_draws_in_proportion_to_images_and_importance():
    method, counts = FedSoft(k=1, draw=0.2), np.zeros(5)
    net = network(method, tiny_fed())
    for net.round in range(2000):
        counts[method.drawn(torch.tensor([1.0, 2, 3, 4, 0.0001]), 0, net)] += 1
    assert len(FedSoft(draw=0.01).drawn(torch.ones(5), 0, net)) == 1  # never nobody
    assert counts.sum() == 2000 and np.abs(counts[:4] / 2000 - np.arange(1, 5) / 10).max() < 0.03 and counts[4] < 3


def test_fedsoft_without_pull_is_local_training_and_its_centre_the_mean(uneven):
    ours = run(FedSoft(k=1, lam=0.0, draw=1.0), uneven, **MINIBATCH)
    alone = run(LocalOnly(), uneven, **MINIBATCH)
    assert remembered(ours.memory) == remembered(alone.memory)
    last = simulation(LocalOnly(), uneven, **MINIBATCH).schedule[-1].tolist()
    close(ours.server["models"][0], average([alone.memory.get("personal", i) for i in last]))


# ------------------------------------------------------------------ PACFL
# images on lines at 0, 36.87 and 90 degrees
LINES = [(np.array([[4, 0], [9, 0]]), np.array([0, 1])), (np.array([[4, 3], [8, 6]]), np.array([0, 1])),
         (np.array([[0, 7], [0, 2]]), np.array([1, 0]))]  # fmt: skip


def clusters(method, *clients):
    return run(method, federation(*clients), rounds=0).server["assign"].tolist()


@pytest.mark.parametrize(
    ("link", "beta", "found"),
    [
        ("average", 36.8, [0, 1, 2]), ("average", 36.9, [0, 0, 1]), ("average", 71.5, [0, 0, 1]),
        ("average", 71.6, [0, 0, 0]), ("complete", 89.9, [0, 0, 1]), ("complete", 90.1, [0, 0, 0]),
        ("single", 53.1, [0, 0, 1]), ("single", 53.2, [0, 0, 0]),
    ],
)  # fmt: skip
def test_pacfl_cuts_where_the_distance_exceeds_beta(link, beta, found):
    for angle in ("first", "sum", "entry"):
        method = PACFL(beta=beta, rank=1, link=link, angle=angle)
        assert clusters(method, *LINES) == found
        assert clusters(method, LINES[0]) == [0]


def test_pacfls_three_angles_by_hand():
    """Planes that meet in a line, with bases that do not: the first principal angle alone sees the line."""
    e, h = np.eye(3), np.sqrt(0.5)
    one, two = np.stack([e[0], e[1]], 1), np.stack([h * (e[0] - e[1]), e[2]], 1)
    for angle, degrees in (("first", 0), ("entry", 45), ("sum", 45 + 90)):
        found = PACFL(rank=2, angle=angle).distances(torch.tensor(one)[None], torch.tensor(np.stack([two, one])))
        close(found, [[degrees, 0]], 1e-5)


def test_leading_directions_are_of_unit_length_and_empty_beyond_the_images():
    images = torch.tensor([[0.0, 3, 0], [4, 0, 0]], dtype=torch.float64)
    close(leading(images, 3).abs(), [[1, 0, 0], [0, 1, 0], [0, 0, 0]])


def test_by_label_pacfl_compares_directions_of_the_same_label():
    """Two clients see the same images under exchanged labels, which only directions by label tell apart."""
    same = [(np.array([[4, 0], [0, 9]]), np.array(y)) for y in ([0, 1], [1, 0])]
    assert clusters(PACFL(beta=1.0, rank=1, angle="sum"), *same) == [0, 0]
    by_label = PACFL(beta=179.0, rank=1, angle="sum", subspace="label")
    basis = run(by_label, federation(*same), rounds=0).server["basis"].abs()
    close(basis, [np.eye(2), np.eye(2)[::-1]])  # a column a label
    assert clusters(by_label, *same) == [0, 1]
    assert clusters(PACFL(beta=1.0, rank=1, angle="entry", subspace="label"), *same) == [0, 0]
    with pytest.raises(ValueError, match=r"^angle = 'first': must be sum or entry with subspace='label'$"):
        PACFL(subspace="label")


def test_pacfl_is_fedavg_in_one_cluster_and_training_alone_in_as_many_as_clients(uneven):
    together, fedavg = (run(method, uneven, **MINIBATCH) for method in (PACFL(beta=90.0), FedAvg()))
    assert torch.equal(together.server["models"][0], fedavg.server["model"])
    everybody = MINIBATCH | {"participation": 1.0}
    apart, alone = (run(method, uneven, **everybody) for method in (PACFL(beta=0.0), LocalOnly()))
    assert apart.server["assign"].tolist() == [0, 1, 2, 3]
    for i in range(4):
        close(apart.server["models"][i], alone.memory.get("personal", i))


def test_a_round_of_pacfl_averages_each_cluster_by_images():
    clients = [LINES[0], (np.array([[5, 0], [1, 0], [2, 0]]), np.array([0, 1, 1])), LINES[2]]
    rig = simulation(PACFL(rank=1), federation(*clients), local=SGD(0.5, epochs=2))
    history, w = rig.run(), rig.task.init()[0].numpy()
    found = history.server
    assert found["assign"].tolist() == [0, 0, 1]
    assert [row["up"] for row in history.rounds] == [3 * 2, 3 * 6]  # nobody is asked for directions twice
    turned = found | {"assign": torch.tensor([1, 0, 0])}
    assert rig.method.serve(turned, torch.arange(3), rig.network(9, Memory())).index.tolist() == [1, 0, 0]
    alone = rig.method.round(found, torch.tensor([2]), rig.network(2, Memory()))["models"]
    assert torch.equal(alone[0], found["models"][0])  # nobody of this cluster took part
    first, second, third = (trained(w, *client) for client in clients)
    close(found["models"], [(2 * first + 3 * second) / 5, third])


def test_newcomers_join_the_cluster_that_is_nearest_as_the_linkage_measures():
    line = {d: np.round(100 * np.array([[np.cos(np.radians(d)), np.sin(np.radians(d))]])) for d in (0, 28, 50, 90)}
    clients = [(line[d], np.array([0])) for d in (0, 28, 90, 50)]  # 0 and 28 become a cluster, 50 is new
    for link, joins in (("single", 0), ("average", 0), ("complete", 1)):
        rig = simulation(PACFL(beta=30.0, rank=1, link=link), federation(*clients), rounds=2,
                         arrival=torch.tensor([1, 1, 1, 2]))  # fmt: skip
        history = rig.run()
        assert history.rounds[0]["sizes"] == [2, 1]
        assert history.server["assign"].tolist() == [0, 0, 1, joins]
        never = simulation(rig.method, federation(*clients), arrival=torch.tensor([1, 1, 1, 9])).run()
        served = rig.method.serve(never.server, torch.arange(4), rig.network(9, Memory()))
        assert served.index.tolist() == [0, 0, 1, joins]
        assert never.server["assign"].tolist() == [0, 0, 1, -1]
