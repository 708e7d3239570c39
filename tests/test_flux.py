"""FLUX against descriptors and clusters worked out by hand, and against FedAvg where there is one cluster."""

import numpy as np
import pytest
import torch
from test_other_baselines import close
from tiny import federation, network, run, simulation, train

from cflkit import rng
from cflkit.engine.memory import Memory
from cflkit.methods import FLUX, FedAvg
from cflkit.methods.flux import dense, encoded

NEAR = np.array([[3, 0], [5, 2], [4, 4]]), np.array([0, 0, 1])
NEARER = NEAR[0] + 1, NEAR[1]
FAR = np.array([[90, 9], [94, 5], [92, 40]]), np.array([1, 1, 0])
FARTHER = FAR[0] + 2, FAR[1]
CLIENTS = [NEAR, FAR, NEARER, FARTHER]


def by_hand(x, y, directions, classes=3):
    """Moments of one client, moment after moment."""
    z = np.asarray(x, float) @ directions
    parts = [z.mean(0), z.std(0)]
    for label in range(classes):
        own = z[np.asarray(y) == label]
        parts += [own.mean(0), own.std(0)] if len(own) > 1 else [np.full(2, -1.0)] * 2
    return np.stack(parts)


def clustered(clients=CLIENTS, method=None, round=1):
    """The server's state just after clustering, with the network that made it."""
    method = method or FLUX(warmup=0, latent=2, scaling=9.0)
    fed = federation(*clients, classes=3)
    net = network(method, fed, round=round)
    return method.cluster(method.start(net), net), net, fed


def test_moments_and_scale_are_those_of_the_first_clustering():
    method = FLUX(warmup=0, latent=2, scaling=0.5)
    server = clustered()[0]
    before = server["scale"]
    server = server | {"models": torch.stack([server["models"][0] + 1, server["models"][1] + 2])}
    traded = federation(FAR, NEAR, FARTHER, (NEAR[0] + 100, NEAR[1]), classes=3)
    after = method.cluster(server, network(method, traded, round=2))
    assert after["assign"].tolist() == [0, 1, 0, 2]  # two are left alone, both nearest to NEAR's place
    assert torch.equal(after["models"], server["models"][[1, 0, 0]])  # each goes on with the model that was there
    assert torch.equal(after["scale"], before) and torch.equal(after["encoder"], server["encoder"])
    close(after["centroids"][0], server["centroids"][1])


def test_newcomers_are_placed_by_their_images_alone():
    """Labels change neither the descriptor of a newcomer nor where it goes; who is not there is in no cluster."""
    method = FLUX(warmup=0, latent=2, scaling=9.0)
    server, _, _ = clustered()
    absent = simulation(method, federation(*CLIENTS, NEAR, classes=3), arrival=torch.tensor([1, 1, 1, 1, 9]))
    net = absent.network(1, Memory(), torch.arange(4))
    assert method.cluster(method.start(net), net)["assign"].tolist() == [0, 1, 0, 1, -1]
    for x, k in ((NEAR[0] + 2, 0), (FAR[0] - 3, 1)):
        for y in ([0, 1, 0], [1, 1, 1]):
            fed = federation(*CLIENTS, (x, np.array(y)), classes=3)
            net = network(method, fed, round=3)
            unknown = server | {"assign": torch.tensor([0, 1, 0, 1, -1])}
            assert method.serve(unknown, torch.tensor([4, 1]), net).index.tolist() == [k, 1]
            told = method.described(server, torch.tensor([4]), method.describe_unlabelled, net)
            close(told, by_hand(x, y, server["directions"].numpy())[:2].reshape(1, -1))
            assert net.up == 2 * 4  # L means and L deviations, twice


def test_the_radius_is_the_elbow_of_nearest_distances():
    """Nearest others of 0 1 2 | 10 11 12.5 | 30 lie at 1 1 1 1 1 1.5 17.5: the elbow is 1.5."""
    line = np.array([0, 30, 1, 2, 10, 11, 12.5])[:, None]
    assert dense(line, 1.0).tolist() == [0, 2, 0, 0, 1, 1, 1]
    assert dense(line, 0.67).tolist() == [0, 2, 0, 0, 1, 1, 3]  # a radius of 1.005 leaves 12.5 alone
    assert dense(line, 100.0).tolist() == [0] * 7
    assert dense(line[:1], 1.0).tolist() == [0]
    assert dense(np.zeros((3, 2)), 1.0).tolist() == [0, 0, 0]
    assert dense(np.array([[0.0], [0.0], [0.5]]), 1.0).tolist() == [0, 0, 1]  # a radius of 0 joins what is the same
    assert dense(np.arange(5.0)[:, None], 1.0).tolist() == [0] * 5  # no elbow where all are equally far


@pytest.mark.parametrize(("every", "rounds"), [(None, [3]), (2, [3, 5, 7]), (3, [3, 6])])
def test_when_clients_are_clustered(every, rounds):
    """Everybody gets the encoder then, and sends 2 L (1 + C) numbers; else a model goes there and back."""
    rows = run(FLUX(warmup=2, every=every, latent=1, scaling=9.0), federation(*CLIENTS), rounds=7).rounds
    assert [row["round"] for row in rows if row["down"] == 4 * 12] == rounds
    assert {row["round"]: row["up"] - 4 * 6 for row in rows[1:] if row["up"] != 4 * 6} == dict.fromkeys(rounds, 24)
    assert [row["clusters"] for row in rows[:4]] == [0, 0, 0, 2]


def test_a_cluster_averages_its_sampled_members_by_their_images():
    """By hand: of clusters {0, 2} and {1, 3} only the first is sampled."""
    clients = [NEAR, FAR, (np.concatenate([NEAR[0], NEARER[0]]), np.concatenate([NEAR[1], NEARER[1]])), FARTHER]
    method, fed = FLUX(warmup=0), federation(*clients)
    server = method.start(network(method, fed))
    models = torch.cat([server["models"], server["models"] + 0.1])
    server = server | {"models": models, "assign": torch.tensor([0, 1, 0, 1]), "centroids": torch.ones(2, 1)}
    after = method.round(server, torch.tensor([0, 2]), network(method, fed, round=2))
    start = server["models"][0].numpy()
    close(after["models"][0], np.average([train(start, *clients[i]) for i in (0, 2)], 0, [3, 6]))
    assert torch.equal(after["models"][1], server["models"][1]) and torch.equal(after["assign"], server["assign"])


def test_noise_on_descriptors():
    """Laplace noise of scale range / (n epsilon), another of each client and round."""
    plain, private = FLUX(warmup=0, latent=2, scaling=9.0), FLUX(warmup=0, latent=2, scaling=9.0, epsilon=0.5)
    server, net, _ = clustered()
    found = private.described(server, net.everybody, private.describe, net)
    for i, (x, y) in enumerate(CLIENTS):
        z = np.asarray(x, float) @ server["directions"].numpy()
        noise = rng.generator(0, 1, i, "descriptor").laplace(size=16) * (z.max() - z.min()) / (3 * 0.5)
        close(found[i], by_hand(x, y, server["directions"].numpy()).ravel() + noise, 1e-9)
    assert (found != plain.described(server, net.everybody, plain.describe, net)).all()


def test_what_reaches_the_decision_layer(fed):
    sim = simulation(FedAvg(), fed, model="mlp16")
    vector, x = sim.task.init()[0], torch.rand(3, 1, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        hidden = encoded(sim.model, vector, x)
        parts = sim.model.views(vector)
        logits = hidden @ parts["decision.weight"].T + parts["decision.bias"]
    assert hidden.shape == (3, 16) and (hidden >= 0).all()
    close(logits, sim.model.forward(vector, x).detach())


def test_before_clustering_everybody_has_one_model_and_no_cluster(fed):
    history = run(FLUX(warmup=3), fed, model="mlp16", rounds=2)
    assert history.server["assign"].unique().tolist() == [-1]
    net = simulation(FLUX(), fed, model="mlp16").network(3, Memory())
    assert FLUX().serve(history.server, torch.tensor([5, 7]), net).index.tolist() == [0, 0]


def test_diverged_models_are_not_clustered(fed):
    method = FLUX(warmup=0)
    net = network(method, fed, model="mlp16")
    server = method.start(net)
    with pytest.raises(ValueError, match=r"lr = 0\.1: must be smaller"):
        method.cluster(server | {"models": server["models"] * torch.nan}, net)
