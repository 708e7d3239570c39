"""FedEM, FedRC, FedSoft and PACFL in special cases, and newcomers; their rounds are in ``test_outsiders.py``."""

import numpy as np
import pytest
import torch
from test_other_baselines import CLIENTS, N, close, tiny_fed
from tiny import federation, network, refused, run, simulation

from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.methods import PACFL, FedEM, FedRC, FedSoft
from cflkit.methods.pacfl import leading

TWO_STEPS = {"local": SGD(0.5, epochs=2), "rounds": 3, "participation": 0.6}


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


@pytest.mark.parametrize("kind", [FedEM, FedRC])
def test_who_never_took_part_in_a_mixture_takes_one_step_from_equal_shares(kind):
    rig = simulation(kind(k=2), tiny_fed(), **TWO_STEPS)
    history = rig.run()
    shares = [history.memory.get("shares", i) for i in range(N)]
    assert 0 < sum(each is None for each in shares) < N
    if kind is FedRC:
        assert history.server["assign"].tolist() == [-1 if pi is None else int(pi.argmax()) for pi in shares]
    for i, (x, y) in enumerate(CLIENTS):
        if shares[i] is None:
            prior = history.server["labels"][:, y].numpy() if kind is FedRC else 1
            q = np.exp([-surprise(w.numpy(), x, y) for w in history.server["models"]]) / prior
            shares[i] = torch.tensor((q / q.sum(0)).mean(1))
    served = rig.method.serve(history.server, torch.arange(N), rig.network(9, history.memory))
    close(served.shares, torch.stack(shares))


def test_a_label_that_nobody_has_in_a_cluster_can_be_divided_by():
    only = [(np.array([[3, 0], [2, 1]]), np.array([0, 0]))] * 2  # nobody has label 1
    found = run(FedRC(k=2), federation(*only), rounds=2).server
    assert found["models"].isfinite().all()
    mass = found["mass"].sum(0)
    assert not mass[:, 1].any()
    close(found["labels"][:, 1] * (mass[:, 0] + 1e-8), [1e-8, 1e-8], 1e-15)


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


def test_fedsoft_draws_by_importance_times_images(monkeypatch):
    drawn, given = FedSoft.drawn, []
    monkeypatch.setattr(FedSoft, "drawn", lambda self, weights, *more: given.append(weights) or drawn(
        self, weights, *more))  # fmt: skip
    method = FedSoft(k=2)
    net, clients = network(method, tiny_fed()), torch.tensor([1, 4])
    after = method.round(method.start(net), clients, net)
    close(torch.stack(given, 1), after["importance"][clients] * torch.tensor([[3], [4]]))


def test_a_fedsoft_cluster_never_draws_nobody():
    assert len(FedSoft(draw=0.01).drawn(torch.ones(5), 0, network(FedSoft(), tiny_fed()))) == 1


# images on lines at 0, 36.87 and 90 degrees
LINES = [(np.array([[4, 0], [9, 0]]), np.array([0, 1])), (np.array([[4, 3], [8, 6]]), np.array([0, 1])),
         (np.array([[0, 7], [0, 2]]), np.array([1, 0]))]  # fmt: skip


def test_one_client_is_one_cluster_of_pacfl():
    assert run(PACFL(rank=1), federation(LINES[0]), rounds=0).server["assign"].tolist() == [0]


def test_leading_directions_are_of_unit_length_and_empty_beyond_the_images():
    images = torch.tensor([[0.0, 3, 0], [4, 0, 0]], dtype=torch.float64)
    close(leading(images, 3).abs(), [[1, 0, 0], [0, 1, 0], [0, 0, 0]])


def test_pacfl_by_label_keeps_a_direction_of_each_and_needs_an_angle_for_each():
    method = PACFL(beta=179.0, rank=1, angle="sum", subspace="label")
    exchanged = [(np.array([[4, 0], [0, 9]]), np.array(y)) for y in ([0, 1], [1, 0])]
    close(run(method, federation(*exchanged), rounds=0).server["basis"].abs(), [np.eye(2), np.eye(2)[::-1]])
    refused("angle = 'first': must be sum or entry with subspace='label'", PACFL, subspace="label")


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
