"""MD-ICFL by hand, its identities, its two privacy settings, and what its pseudo-samples are."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import federation, refused, run, simulation, train

from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.methods import MDICFL, FedAvg, mdicfl
from cflkit.methods.mdicfl import Generator, closest, probabilities

FEW = {"samples": 3, "search_steps": 5, "generator_steps": 5}
CLIENTS = [
    (np.array([[3, 0], [0, 3]]), np.array([0, 1])),
    (np.array([[4, 1], [1, 3], [2, 0]]), np.array([0, 1, 0])),
    (np.array([[3, 1], [0, 4]]), np.array([1, 0])),
]
SETTINGS = {"local": SGD(0.1, epochs=2, batch_size=10), "model": "mlp16"}


def softmax(w, x):
    z = x @ w[:4].reshape(2, 2).T + w[4:]
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_one_round_computed_by_hand():
    """Pseudo-samples are the server's own; distances, choice and means are recomputed in NumPy."""
    fed, method = federation(*CLIENTS), MDICFL(k=2, init="distinct", **FEW)
    rig, memory = simulation(method, fed, local=SGD(0.5, epochs=4)), Memory()
    server = method.start(rig.network(0, memory))
    theta, assign = server["theta"].numpy(), server["assign"].tolist()
    pseudo = method.pseudo_samples(server["theta"], rig.network(1, memory)).flatten(3).numpy()  # (K, C, M, 2)
    own = [train(theta[assign[i]], *c, lr=0.5, steps=4) for i, c in enumerate(CLIENTS)]
    ratios = [np.bincount(y, minlength=2) / len(y) for _, y in CLIENTS]
    apart = np.array([[[np.abs(softmax(w, x) - softmax(theta[j], x)).sum(1).mean() for x in pseudo[j]]
                       for j in range(2)] for w in own])  # of each client from each cluster's model, by class
    given = torch.tensor(pseudo)[:, :, :, None, None]
    found = method.distances(torch.tensor(np.array(own)), server["theta"], given, rig.model)
    np.testing.assert_allclose(found, apart, rtol=0, atol=1e-12)
    choice = np.einsum("ic,ijc->ij", ratios, apart).argmin(1)
    means = [np.mean([own[i] for i in range(3) if choice[i] == j], 0) if j in choice else theta[j] for j in (0, 1)]
    after = method.round(server, torch.arange(3), rig.network(1, memory))
    assert after["assign"].tolist() == choice.tolist()
    np.testing.assert_allclose(after["theta"], means, rtol=0, atol=1e-12)  # plain means, with the new clusters


def test_an_empty_cluster_keeps_its_model(fed):
    method = MDICFL(k=2, init="distinct", **FEW)
    rig = simulation(method, fed, **SETTINGS)
    server = method.start(rig.network(0, Memory())) | {"assign": torch.zeros(12, dtype=torch.int64)}
    server["theta"][1] *= 50  # certain of everything, and far from all
    after = method.round(server, torch.arange(12), rig.network(1, Memory()))
    assert after["assign"].tolist() == [0] * 12 and not torch.equal(after["theta"][0], server["theta"][0])
    assert torch.equal(after["theta"][1], server["theta"][1]) and server["theta"][1].any()


def test_weak_and_strong_privacy_assign_alike(fed):
    weak, strong = (run(MDICFL(privacy=p, **FEW), fed, rounds=3, participation=0.5, **SETTINGS)
                    for p in ("weak", "strong"))  # fmt: skip
    assert torch.equal(weak.server["assign"], strong.server["assign"])
    assert torch.equal(weak.server["theta"], strong.server["theta"])
    assert (strong.server["labels"] == -1).all()  # the server never learnt them


def test_traffic_of_both_settings(fed):
    p = simulation(MDICFL(), fed, **SETTINGS).model.size
    weak = run(MDICFL(**FEW), fed, rounds=2, **SETTINGS).rounds
    assert [(r["down"], r["up"]) for r in weak[1:]] == [(12 * p, 12 * (p + 10)), (12 * p, 12 * p)]  # C once
    strong = run(MDICFL(privacy="strong", **FEW), fed, rounds=1, **SETTINGS).final
    some = simulation(MDICFL(**FEW), fed, rounds=6, participation=0.5, **SETTINGS)
    met = set()
    for row, clients in zip(some.run().rounds[1:], some.schedule, strict=True):
        new = set(clients.tolist()) - met
        met |= new
        assert row["up"] == 6 * p + 10 * len(new)  # also of those who have no image of class 0
    # K C distances down and one integer up; the client's present cluster comes along, since ties keep it
    assert (strong["down"], strong["up"]) == (12 * (p + 4 * 10 + 1), 12 * (p + 1))


@given(st.integers(0, 10**6), st.floats(0.1, 10))
def test_the_choice_is_scale_free_keeps_ties_and_reads_only_classes_held(seed, scale):
    torch.manual_seed(seed)
    d, labels = torch.rand(6, 3, 4).double(), torch.rand(6, 4).double()
    now = torch.randint(3, (6,))
    best = closest(labels, d, now)
    assert torch.equal(best, closest(labels, scale * d, now))
    assert torch.equal(best, (d * labels[:, None]).sum(-1).argmin(1))
    one = torch.eye(4).double()[[2] * 6]
    assert torch.equal(closest(one, d, now), d[:, :, 2].argmin(1))
    assert torch.equal(closest(labels, torch.ones_like(d), now), now)


def test_back_search_finds_what_its_model_takes_for_each_class(digits):
    """Samples of cluster j, class k are classified k by the model that they were made with."""
    from cflkit import federation as builders

    fed = builders.rotated(digits, clients=4)
    history = run(FedAvg(), fed, rounds=10, model="mlp32", local=SGD(0.1, epochs=5))
    rig = simulation(MDICFL(), fed, model="mlp32")
    x = MDICFL(samples=5).back_search(history.server["model"], rig.task, seed=1)
    taken = probabilities(rig.model, history.server["model"], x.flatten(0, 1)).view(10, 5, 10)
    assert x.shape == (10, 5, 1, 8, 8)
    assert torch.equal(taken.argmax(2), torch.arange(10)[:, None].expand(10, 5))
    noise = probabilities(rig.model, history.server["model"], torch.randn(50, 1, 8, 8).double()).view(10, 5, 10)
    assert taken.mean(1).diagonal().mean() > 0.5 > 2 * noise.mean(1).diagonal().mean()


def test_the_first_step_of_a_back_search_is_as_long_as_told():
    """Adam moves every pixel by its step at first, whichever way."""
    rig, seed = simulation(MDICFL(k=2), federation(*CLIENTS)), 3
    noise = torch.randn(8, 1, 1, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for lr in (0.1, 0.25):
        x = MDICFL(samples=4, search_steps=1, search_lr=lr).back_search(rig.task.init()[0], rig.task, seed)
        torch.testing.assert_close((x.flatten(0, 1) - noise).abs(), torch.full_like(noise, lr), rtol=0, atol=1e-4)


def test_the_prior_pulls_pixels_towards_its_mean_by_an_unsquared_norm():
    fed = federation(*CLIENTS)
    rig = simulation(MDICFL(k=2), fed)
    theta = torch.zeros(rig.model.size).double()  # all classes alike: only the prior acts
    method = MDICFL(prior_weight=0.6, prior_mean=0.5)
    x = torch.tensor([[[[3.5, 0.5]]], [[[0.5, 4.5]]]]).double()
    energy = method._energy(rig.model, theta, x, torch.tensor([0, 1]))
    assert float(energy) == pytest.approx(2 * np.log(2) + 0.3 * (3 + 4), abs=1e-9)
    more = torch.tensor([[[[3.5, 4.5]]], [[[0.5, 4.5]]]]).double()  # a norm an image, not a pixel
    energy = method._energy(rig.model, theta, more, torch.tensor([0, 1]))
    assert float(energy) == pytest.approx(2 * np.log(2) + 0.3 * (5 + 4), abs=1e-9)


def test_the_generator_makes_one_image_a_label_from_its_own_stream():
    torch.manual_seed(1)
    images = Generator(3, (1, 4, 4)).double().eval()(torch.tensor([0, 1, 2, 2]))
    assert images.shape == (4, 1, 4, 4) and images.abs().max() <= 1
    fed = federation(*CLIENTS)
    rig = simulation(MDICFL(k=2, **FEW), fed)
    theta = rig.task.init()[0].requires_grad_()
    before = torch.random.get_rng_state()
    a, b, c = (MDICFL(**FEW).generate(theta, rig.task, seed) for seed in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c)
    assert not torch.equal(a, MDICFL(**FEW, generator_lr=0.02).generate(theta, rig.task, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    assert theta.grad is None and not a.requires_grad  # the cluster model is frozen


def test_the_generator_has_two_dense_layers_with_biases_and_a_normalisation_between():
    shapes = [tuple(p.shape) for p in Generator(10, (1, 4, 6)).parameters()]
    assert shapes == [(256, 26), (256,), (256,), (256,), (24, 256), (24,)]


def test_the_generator_normalises_its_samples_by_what_it_saw_in_training(monkeypatch):
    """Or a sample would depend on the classes that are drawn beside it."""
    modes = []

    class Watched(mdicfl.Generator):
        def forward(self, y):
            modes.append(self.training)
            return super().forward(y)

    monkeypatch.setattr(mdicfl, "Generator", Watched)
    rig = simulation(MDICFL(k=2, **FEW), federation(*CLIENTS))
    MDICFL(**FEW).generate(rig.task.init()[0], rig.task, 1)
    assert modes == [True] * FEW["generator_steps"] + [False]


def test_the_generator_learns_what_its_model_takes_for_each_class(monkeypatch):
    """Label 0 is brighter to the right: after training, on batches of 100, so are its images."""
    fed, sizes = federation(*CLIENTS), []
    rig = simulation(MDICFL(k=2), fed)
    theta = torch.tensor([5.0, -5, -5, 5, 0, 0], dtype=torch.float64)
    forward = Generator.forward
    monkeypatch.setattr(Generator, "forward", lambda self, y: sizes.append(len(y)) or forward(self, y))
    taken = []
    for steps in (1, 30):
        x = MDICFL(samples=20, generator_steps=steps).generate(theta, rig.task, seed=1)
        assert x.shape == (2, 20, 1, 1, 2)
        taken.append(probabilities(rig.model, theta, x.flatten(0, 1)).view(2, 20, 2).mean(1).diagonal().min())
    assert taken[1] > 0.95 and taken[0] < 0.9
    assert sizes == [100, 40, *[100] * 30, 40]


def test_a_common_start_still_gives_every_cluster_its_own_samples(fed):
    method = MDICFL(**FEW)
    rig = simulation(method, fed, **SETTINGS)
    server = method.start(rig.network(0, Memory()))
    pseudo = method.pseudo_samples(server["theta"], rig.network(1, Memory()))
    assert torch.equal(server["theta"][0], server["theta"][1]) and not torch.equal(pseudo[0], pseudo[1])


def test_models_begin_equal_or_as_different_as_told(fed):
    for init in ("common", "distinct"):
        rig = simulation(MDICFL(k=3, init=init), fed, **SETTINGS)
        drawn = rig.task.init(3)
        theta = rig.method.start(rig.network(0, Memory()))["theta"]
        assert torch.equal(theta, drawn if init == "distinct" else drawn[:1].expand(3, -1))
        assert not torch.equal(drawn[1], drawn[0])


@pytest.mark.parametrize("sampler", ["back_search", "generator"])
def test_every_round_and_seed_has_its_own_samples(fed, sampler):
    method = MDICFL(k=2, sampler=sampler, **FEW)
    rig, reseeded = (simulation(method, fed, seed=seed, **SETTINGS) for seed in (0, 1))
    theta, keys = rig.task.init(2), [(rig, 1), (rig, 1), (rig, 2), (reseeded, 1)]
    a, again, b, other = (method.pseudo_samples(theta, r.network(t, Memory())) for r, t in keys)
    assert torch.equal(a, again) and not torch.equal(a, b) and not torch.equal(a, other)
    alike = method.pseudo_samples(theta[:1].expand(2, -1), rig.network(1, Memory()))
    assert not torch.equal(alike[0], alike[1])


def test_the_oracle_hands_out_training_images_of_the_true_cluster_of_most_members():
    one = (np.array([[10, 0], [0, 10]]), np.array([0, 1]))
    two = (np.array([[20, 0], [0, 20], [0, 30]]), np.array([0, 1, 1]))
    fed = federation(one, two, two, one, cluster=[0, 1, 1, 0], mean=0.5, scale=10.0)
    assert MDICFL.of(fed, k=3).real.shape[2] == MDICFL().samples
    method = MDICFL.of(fed, samples=4, k=3)
    a = [[0.5, -0.5], [-0.5, 0.5]]  # (10, 0) / 10 - 0.5, and the like; here as (class, pixel)
    assert method.real.shape == (2, 2, 4, 1, 1, 2)
    assert method.real[0].flatten(2).view(2, 4, 2).tolist() == [[a[0]] * 4, [a[1]] * 4]
    assert method.real[1, 0].view(4, 2).tolist() == [[1.5, -0.5]] * 4
    held = sorted(method.real[1, 1, :, 0, 0, 1].tolist())
    assert held == [1.5, 1.5, 2.5, 2.5]  # both clients' images, each once
    theta = torch.zeros(3, 6).double()
    made = method.pseudo_samples(theta, None, torch.tensor([1, 1, 1, 0]))  # members 3; 0, 1, 2; none
    assert torch.equal(made, method.real[[0, 1, 0]])
    made = method.pseudo_samples(theta, None, torch.tensor([2, 2, 0, 1]))  # model 2: one client of each
    assert torch.equal(made, method.real[[1, 0, 0]])
    assert not {"real", "truth"} & set(method.config())  # tensors do not go into records


def test_the_oracle_is_only_made_where_the_truth_is_known_and_every_class_held(fed):
    refused("sampler = 'real': must be handed its images.*", MDICFL, sampler="real")
    refused("federation = 'tiny': must be one whose true clusters are known.*", MDICFL.of, federation(*CLIENTS))
    for few in (-1, 0, 2.5, None):
        refused(rf"samples = {few}: must be an integer, 1 or more", MDICFL.of, fed, samples=few)
    narrow = federation((np.array([[1, 2]]), np.array([0])), CLIENTS[0], cluster=[0, 1])
    refused("images of class 1 in true cluster 0 = 0: must be 1 or more", MDICFL.of, narrow)
    refused(r"len\(truth\) = 12: must be the number of clients, 2.*", simulation, MDICFL.of(fed, k=2), narrow)
    oracle = MDICFL.of(fed, k=2)
    refused("assign = None: must be given with sampler='real'", oracle.pseudo_samples, torch.zeros(2, 3), None)
    with pytest.raises(ValueError, match=r"^real.shape = .*: must be \(clusters, 10, images, 1, 8, 8\)$"):
        simulation(replace(oracle, real=oracle.real[:, :7]), fed)
    with pytest.raises(ValueError, match=r"^len\(real\) = 3: must be \d+ or more, the true clusters$"):
        simulation(replace(oracle, real=oracle.real[:-1]), fed)
