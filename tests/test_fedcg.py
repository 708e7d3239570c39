"""FedCG against its equations, by hand and by identity, and against what it may send and see."""

import re
from dataclasses import replace
from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny import run, simulation
from torch import nn

from cflkit import federation as federations
from cflkit import metrics
from cflkit.data.federation import Federation, Samples
from cflkit.engine.fast.plan import plan_of
from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.methods import FedAvg, FedCG, graph_layers
from cflkit.methods.graph_layers import GraphLayer, GraphNetwork, adjacency, euclidean, hamming, standardised


def convnet():
    """Two convolutions for 4 x 4 pixels; the last has q = 4 * 3 * 9 + 4 = 112 parameters."""
    return nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(4, 10))  # fmt: skip


def normnet(running=False):
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3, eps=0.2, track_running_stats=running), nn.ReLU(),
                         nn.Flatten(), nn.Linear(12, 10))  # fmt: skip


P, Q = sum(p.numel() for p in convnet().parameters()), 112
HOW = {"model": convnet, "local": SGD(0.1, epochs=2, batch_size=10), "rounds": 3, "participation": 0.5}


@pytest.fixture(scope="module")
def mixed(digits):
    """Six clients of 32 small digits, each in four rotations in its own shares; 40 test images a rotation."""
    rows = torch.cat([torch.nonzero(digits.train == part).flatten()[:n] for part, n in ((True, 400), (False, 40))])
    few = replace(digits, x=digits.x[rows][..., ::2, ::2], y=digits.y[rows], train=digits.train[rows])
    return federations.mixed(few, clients=6, samples_per_client=32)


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


def close(a, b, gap=1e-12):
    assert a.shape == b.shape and float((a - b).detach().abs().max()) <= gap


def network(base=convnet, domains=4, scatter=0.0, **options) -> GraphNetwork:
    """A graph network on 4 x 4 pixels in evaluation mode, with random adjacency and shaken parameters."""
    net = GraphNetwork(base(), (1, 4, 4), domains, **options).eval()
    net.A = torch.rand(domains, domains)
    with torch.no_grad():
        for p in net.graph.parameters():
            p += scatter * torch.randn_like(p)
    return net


def pictures(n=9):
    return torch.rand(n, 1, 4, 4)


# ------------------------------------------------------------------ identities with FedAvg
def test_frozen_layers_are_carried_along(mixed):
    def half():
        net = convnet()
        net[0].requires_grad_(False)
        return net

    rig = simulation(FedCG(domains=2, refresh=2), mixed, **HOW | {"model": half})
    graph = rig.method.network(rig.task.model, rig.task.shape)
    begin = graph.views(rig.method.start(rig.network(0, Memory()))["model"])
    end = graph.views(rig.run().server["model"])
    assert set(rig.method.parts(graph)) == {"agnostic", "graph", "student", "frozen", "A"}
    for name in ("agnostic.0.weight", "agnostic.0.bias"):
        close(end[name], begin[name])
    assert (end["agnostic.3.weight"] - begin["agnostic.3.weight"]).abs().max() > 0.001


def test_lambda_frozen_at_zero_is_fedavg_bit_for_bit(mixed):
    average = run(FedAvg(), mixed, **HOW).server["model"]
    frozen = run(FedCG(lam=0.0, learn_lam=False, refresh=2), mixed, **HOW).server["model"]
    assert torch.equal(frozen[:P], average)
    trained = run(FedCG(lam=0.0, refresh=2), mixed, **HOW).server["model"]
    assert not torch.equal(trained[:P], average)  # lambda leaves 0, for its gradient does not vanish there


# ------------------------------------------------------------------ the graph
def test_adjacency_by_hand():
    """Domains at 0, 1 and 3 on a line: inverse distances 1 and 1/3, 1 and 1/2, 1/3 and 1/2."""
    A = adjacency(euclidean(torch.tensor([[0.0], [1.0], [3.0]]).double()), beta=0.5)
    wanted = [[0.5, 0.375, 0.125], [1 / 3, 0.5, 1 / 6], [0.2, 0.3, 0.5]]
    close(A, torch.tensor(wanted).double(), 1e-7)  # the guard of 1e-8
    assert not torch.allclose(A, A.T)
    assert adjacency(torch.zeros(1, 1), 0.5).tolist() == [[1.0]]  # one domain alone is its own neighbour


@pytest.mark.parametrize("D", [2, 3, 32])
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_rows_of_the_adjacency_sum_to_one_even_for_equal_domains(D, beta):
    V = torch.randn(D, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for distance in (euclidean(V), euclidean(V[:1].expand(D, -1)), hamming(D).double()):
        A = adjacency(distance, beta)
        close(A.sum(1), torch.ones(D).double())
        assert torch.equal(A.diagonal(), torch.full((D,), beta).double()) and (A >= 0).all()
    assert torch.equal(adjacency(euclidean(V), 1.0), torch.eye(D).double())
    assert torch.equal(adjacency(euclidean(V[:1].expand(D, -1)), 1.0), torch.eye(D).double())


def test_hamming_distances_are_of_binary_codes():
    assert hamming(4).tolist() == [[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 1], [2, 1, 1, 0]]


def test_graph_convolutions_by_hand(float64):
    conv, A = nn.Conv2d(2, 3, 2), torch.rand(3, 3)
    q = 3 * 2 * 4 + 3
    for gcn, activation in product(("full", "bottleneck", "per_filter", "none"), ("relu", "identity")):
        layer = GraphLayer(conv, 3, gcn=gcn, activation=activation)
        with torch.no_grad():
            for p in layer.parameters():
                p += 0.1 * torch.randn_like(p)
        V = A @ layer.V
        if gcn == "full":
            V = V @ layer.W
        if gcn == "bottleneck":  # q = 27 through one dimension
            assert layer.W1.shape == (q, 1) and layer.W2.shape == (1, q)
            V = V @ (torch.eye(q) + layer.W1 @ layer.W2)
        if gcn == "per_filter":  # the same 8 x 8 matrix for each of three filters; biases as they are
            W = torch.block_diag(*[layer.W] * 3, torch.eye(3))
            V = V @ W
        close(layer.mixed(A), V.clamp(min=0) if activation == "relu" else V)
        assert (V < 0).any()


# ------------------------------------------------------------------ domains per image
def test_large_images_are_classified_few_at_a_time():
    sizes = {side: [len(x) for x in graph_layers.pieces(torch.zeros(300, 1, side, side))] for side in (8, 28, 84)}
    assert sizes == {8: [256, 44], 28: [83, 83, 83, 51], 84: [9] * 33 + [3]}
    assert [len(x) for x in graph_layers.pieces(torch.zeros(2, 3, 999, 999))] == [1, 1]


CASES = [(convnet, "last"), (convnet, "all"), (normnet, "batchnorm"), (normnet, "all"),
         (partial(normnet, running=True), "all")]  # fmt: skip


@pytest.mark.parametrize(("base", "layers"), CASES)
@pytest.mark.parametrize("residual", [True, False])
def test_a_mixture_of_layers_is_a_layer_of_mixtures(base, layers, residual, float64, monkeypatch):
    """sum_d w_d f(z; V_d) = f(z; sum_d w_d V_d), biases included, over what the ReLU has left of V."""
    monkeypatch.setattr(graph_layers, "IMAGES_TOGETHER", 4)
    net = network(base, layers=layers, residual=residual, scatter=0.05)
    seen = {}

    def spy(twin, place):
        def hook(module, given, output):
            seen[place] = (given, output)

        return twin.register_forward_hook(hook)

    for k, twin in enumerate(net.graph):
        spy(twin, k)
    x, w = pictures(), torch.rand(9, 4).softmax(1)
    net(x, w)
    for k, twin in enumerate(net.graph):
        given, soft = seen[k]
        outcomes = []
        for d in range(4):
            twin.given = net.A, torch.full((9,), d)
            outcomes.append(twin.forward(*given))
        close(soft, sum(w[:, d, None, None, None] * outcomes[d] for d in range(4)))
        assert (twin.mixed(net.A) == 0).any() and not torch.allclose(outcomes[0], outcomes[1])


@pytest.mark.parametrize(("base", "layers"), CASES)
def test_hard_domains_are_one_hot_mixtures(base, layers, float64):
    net, x, d = network(base, layers=layers), pictures(), torch.tensor([3, 0, 0, 1, 3, 3, 1, 0, 0])
    close(net(x, d), net(x, F.one_hot(d, 4).double()))


def test_a_layers_place_is_kept(float64):
    """Strides, dilation, groups and a missing bias are those of the layer that is replaced."""
    conv = nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2, bias=False)
    net = GraphNetwork(nn.Sequential(conv), (4, 9, 9), 2, gcn="per_filter", pool=None, residual=False).eval()
    x = torch.rand(5, 4, 9, 9)
    for domain in (torch.ones(5, dtype=torch.int64), torch.tensor([[0.0, 1.0]] * 5)):
        weight = net.graph[0].mixed(net.A)[1].view(6, 2, 3, 3)
        close(net(x, domain), F.conv2d(x, weight, stride=2, padding=1, dilation=2, groups=2))


def test_running_statistics_move_once_and_are_shared(float64):
    x, d = pictures(), torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 0])
    net = network(partial(normnet, running=True), layers="batchnorm")
    alone = nn.BatchNorm2d(3)  # whose statistics know no epsilon
    alone(net.agnostic[0](x))
    net.train()(x, d)
    close(net.agnostic[1].running_mean, alone.running_mean)
    scale = net.graph[0].mixed(net.A)
    z = F.batch_norm(net.agnostic[0](x), None, None, training=True, eps=0.2)
    wanted = net.agnostic[1].weight[:, None, None] * z
    wanted += net.graph[0].lam * (scale[d, :3, None, None] * z + scale[d, 3:, None, None])
    close(net.train()(x, d), net.agnostic[4](F.relu(wanted).flatten(1)))


def test_at_test_running_statistics_are_those_of_training(float64):
    """They serve the residual too, so that what is said of an image does not depend on the others."""
    net, x, d = network(partial(normnet, running=True), layers="batchnorm"), pictures(), torch.arange(9) % 4
    norm, twin = net.agnostic[1], net.graph[0]
    norm.running_mean.copy_(torch.tensor([0.3, -0.2, 0.1]))
    norm.running_var.copy_(torch.tensor([0.5, 2.0, 1.5]))
    z = net.agnostic[0](x) - norm.running_mean[:, None, None]
    z = z / (norm.running_var[:, None, None] + 0.2).sqrt()
    own = twin.mixed(net.A)[d, :, None, None]
    wanted = z + twin.lam * (own[:, :3] * z + own[:, 3:])
    close(net(x, d), net.agnostic[4](F.relu(wanted).flatten(1)))
    close(net(x, d)[:1], net(x[:1], d[:1]))


def test_the_domains_of_a_normalisation_start_apart_and_above_their_usual_start(float64):
    net = GraphNetwork(nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3)), (3, 4, 4), 4, layers="all")
    added = torch.stack([layer.V.detach() for layer in net.graph]) - torch.tensor([1.0, 1, 1, 0, 0, 0])
    assert (added > 0).all() and (added < 0.1).all() and added.max() > 0.09
    assert len(added.flatten().unique()) == 2 * 4 * 6  # independent over layers, domains and channels


def test_a_layer_that_has_nothing_to_mix_or_is_padded_otherwise_is_told():
    bare = nn.Sequential(nn.BatchNorm2d(1, affine=False), nn.Conv2d(1, 2, 3))
    assert len(GraphNetwork(bare, (1, 4, 4), 2, layers="all").graph) == 1
    round_about = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"))
    with pytest.raises(ValueError, match=r"^layers = 'last': must be of convolutions that are padded with zeros$"):
        GraphNetwork(round_about, (1, 4, 4), 2)


# ------------------------------------------------------------------ one round by hand
X = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, 1.0], [2.0, 0.0], [1.0, 1.0]])  # images of 1 x 2 pixels
Y, TAG, SPLIT = np.array([0, 1, 1, 0, 1]), np.array([0, 1, 1, 1, 0]), [0, 2, 5]
A = np.array([[0.75, 0.25], [0.5, 0.5]])


def pixelnet():
    """One 1 x 1 convolution (scale and offset of a pixel), then softmax regression."""
    return nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(2, 2))


def tiny() -> Federation:
    pool = torch.tensor(X, dtype=torch.uint8)[:, None, None]
    rows, zero = torch.arange(5), torch.zeros(2, dtype=torch.int64)
    train = Samples(pool, rows, torch.tensor(Y), torch.tensor(SPLIT), torch.tensor(TAG))
    test = Samples(pool, rows, torch.tensor(Y), torch.tensor([0, 5]))
    return Federation("tiny", train, test, zero, None, 2, 1.0, 0.0, 1.0, None, {})


def step(p: dict, x, y, d, lr=0.1) -> dict:
    """One full-batch step of Eqs. (4) and (5) with the chain rule written out."""
    raw = A @ p["V"] @ p["W"]
    hat = np.maximum(raw, 0)
    z = p["k"][0] * x + p["k"][1] + p["lam"] * (hat[d, :1] * x + hat[d, 1:])
    logits = z @ p["U"].T + p["c"]
    e = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    e[np.arange(len(y)), y] -= 1
    e /= len(y)
    dz = e @ p["U"]
    dhat = np.zeros_like(hat)
    np.add.at(dhat, d, p["lam"] * np.stack([(dz * x).sum(1), dz.sum(1)], 1))
    draw = dhat * (raw > 0)
    grad = {"k": np.array([(dz * x).sum(), dz.sum()]), "U": e.T @ z, "c": e.sum(0), "V": A.T @ draw @ p["W"].T,
            "W": (A @ p["V"]).T @ draw, "lam": (dz * (hat[d, :1] * x + hat[d, 1:])).sum()}  # fmt: skip
    return {name: p[name] - lr * grad[name] for name in p}


def test_one_round_by_hand():
    p = {"k": np.array([0.5, -0.25]), "U": np.array([[0.4, -0.3], [-0.2, 0.6]]), "c": np.array([0.1, -0.1]),
         "V": np.array([[0.8, -0.6], [0.3, 0.2]]), "W": np.array([[1.0, 0.2], [-0.1, 1.0]]),
         "lam": np.array(0.7)}  # fmt: skip
    names = {"agnostic.0.weight": lambda p: p["k"][:1], "agnostic.0.bias": lambda p: p["k"][1:],
             "agnostic.2.weight": lambda p: p["U"], "agnostic.2.bias": lambda p: p["c"],
             "graph.0.V": lambda p: p["V"], "graph.0.W": lambda p: p["W"],
             "graph.0.lam": lambda p: p["lam"], "A": lambda p: A}  # fmt: skip
    method = FedCG(domains=2, clusters="oracle", adjacency="hamming", refresh=1)
    rig = simulation(method, tiny(), model=pixelnet, local=SGD(0.1))
    graph = method.network(rig.model, (1, 1, 2))
    assert list(names) == list(graph.shapes)

    def vector(p):
        return torch.tensor(np.concatenate([np.ravel(of(p)) for of in names.values()]))

    server = rig._start().server | {"model": vector(p)}
    found = method.round(server, torch.arange(2), rig.network(1, rig._start().memory))
    parts = [step(p, X[a:b], Y[a:b], TAG[a:b]) for a, b in pairwise(SPLIT)]
    close(found["model"], vector({n: (2 * parts[0][n] + 3 * parts[1][n]) / 5 for n in p}))  # n_k = 2 and 3
    assert found["images"].tolist() == [2, 3]


# ------------------------------------------------------------------ teacher and student
@pytest.mark.parametrize("more", [{}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}])
def test_the_student_takes_its_own_plain_steps(mixed, more):
    """Local training moves the student as gradient descent of its own, with its own rate, would."""
    fed, lr = mixed.subset([0]), 0.05
    method = FedCG(lr_student=lr, gcn="none", refresh=100)
    rig = simulation(method, fed, model=convnet, local=SGD(0.1, epochs=3, **more), rounds=1)
    first, last = rig._start().server, rig.run().server
    graph, classifier = (f(rig.model, fed.shape) for f in (method.network, method.classifier))
    span = graph.span("student.")
    student = graph_layers.DomainClassifier(fed.shape, 4, "local").double()
    weights = list(student.parameters())
    nn.utils.vector_to_parameters(first["model"][span].clone(), weights)
    x = standardised(rig.site.data([0])[0][0])
    d = classifier.forward(first["teacher"], x).argmax(1)
    for _ in range(3):
        gradient = torch.autograd.grad(F.cross_entropy(student(x), d), weights)
        with torch.no_grad():
            for w, g in zip(weights, gradient, strict=True):
                w -= lr * g
    close(last["model"][span], nn.utils.parameters_to_vector(weights).detach())
    assert last["images"].tolist() == torch.bincount(d, minlength=4).tolist()
    frozen = run(replace(method, lr_student=0.0), fed, model=convnet, rounds=2).server
    assert torch.equal(frozen["model"][span], first["model"][span])


def test_the_teacher_changes_only_when_refreshed_and_travels_only_to_those_without_it(mixed):
    method = FedCG(refresh=2, gcn="none", lr_student=0.1)
    rig = simulation(method, mixed, **HOW | {"rounds": 5})
    span = method.network(rig.model, mixed.shape).span("student.")
    history, states = rig._start(), []
    for t, clients in enumerate(rig.schedule, 1):
        net = rig.network(t, history.memory)
        states.append(method.round(states[-1] if states else history.server, clients, net))
        states[-1] = states[-1] | {"down": net.down}
    first = history.server["teacher"]
    assert torch.equal(states[0]["teacher"], first)
    for before, t in ((1, 2), (3, 4)):
        assert torch.equal(states[before]["teacher"], states[before]["model"][span])
        assert torch.equal(states[t]["teacher"], states[before]["teacher"])
    assert [s["refreshed"] for s in states] == [0, 1, 1, 2, 2]
    everybody, holds = P + 4 * Q + 1 + len(first) + 16, {}
    for clients, t in zip(rig.schedule, range(1, 6), strict=True):
        version = (t - 1) // 2
        late = [c for c in clients.tolist() if holds.get(c) != version]
        holds |= dict.fromkeys(late, version)
        assert states[t - 1]["down"] == 3 * everybody + len(late) * len(first)
    assert len(states[0]["held"].unique()) == 2


@pytest.mark.parametrize("adjacency_", ["eye", "random", "uniform", "hamming"])
def test_the_adjacency_follows_its_schedule(mixed, adjacency_):
    method = FedCG(refresh=2, gcn="none", adjacency=adjacency_, beta=0.3, layers="all")
    rig = simulation(method, mixed, **HOW)
    graph, history = method.network(rig.model, mixed.shape), rig._start()
    A = [graph.views(history.server["model"])["A"]]
    server = history.server
    for t, clients in enumerate(rig.schedule, 1):
        server = method.round(server, clients, rig.network(t, history.memory))
        A.append(graph.views(server["model"])["A"].clone())
    close(A[0].sum(1), torch.ones(4).double())
    assert torch.equal(A[1], A[0])  # before the first refresh
    V = [graph.views(server["model"])[f"graph.{layer}.V"] for layer in (0, 1)]
    if adjacency_ in ("eye", "random"):  # one A for both layers, from what each domain has in them together
        apart = sum((v[:, None] - v).square().sum(2) for v in V).sqrt()
        close(A[3], adjacency(apart, 0.3), 1e-9)
        assert not torch.equal(A[2], A[0])  # the second round is the first that refreshes
        assert not torch.equal(A[2], A[3])
        assert torch.equal(A[0], torch.eye(4).double()) == (adjacency_ == "eye")
    else:
        assert torch.equal(A[3], A[0])
        first = [0.25] * 4 if adjacency_ == "uniform" else [0.3, 0.28, 0.28, 0.14]
        assert A[0][0].tolist() == pytest.approx(first)


def test_three_domains_share_alike_in_float64(mixed):
    rig = simulation(FedCG(domains=3, adjacency="uniform"), mixed, **HOW)
    A = rig.method.network(rig.model, mixed.shape).views(rig._start().server["model"])["A"]
    assert A.flatten().tolist() == [1 / 3] * 9


def test_test_images_get_the_students_weights_or_its_first_choice(float64):
    x = pictures()
    mixing, choosing = network(), network(soft=False)
    logits = mixing.student(standardised(x))
    assert torch.equal(mixing.assign(x), logits.softmax(1))  # what the paper does, unless told otherwise
    assert torch.equal(choosing.assign(x), choosing.student(standardised(x)).argmax(1))
    assert logits.softmax(1).max() < 0.99  # a mixture


@pytest.mark.parametrize("soft", [True, False])
def test_a_served_model_takes_test_images_for_what_its_student_does(mixed, soft):
    rig = simulation(FedCG(gcn="none", soft=soft, lr_student=0.1), mixed, **HOW)
    served, x = rig.run().server["model"], rig.scorer.pixels(mixed.test.pool[:99])
    graph = rig.method.network(rig.model, mixed.shape)
    network = graph.lent()
    network.load_state_dict(graph.views(served))
    told = network.assign(x)
    outputs = rig.method.predict(rig.model, served, x)
    close(outputs, rig.method.predict(rig.model, served, x, told), 1e-5)
    other = 1 - told if soft else (told + 1) % 4
    assert (outputs - rig.method.predict(rig.model, served, x, other)).abs().max() > 1e-3


# ------------------------------------------------------------------ the other ways to domains
def test_kmeans_puts_all_images_of_a_client_in_one_domain(mixed):
    method = FedCG(domains=2, clusters="kmeans", gcn="none", refresh=1)
    rig = simulation(method, mixed, **HOW)
    history = rig.run()
    assert (history.rounds[0]["down"], history.rounds[0]["up"]) == (0, 6 * P)
    message = P + 2 * Q + 1
    assert (history.rounds[1]["down"], history.rounds[1]["up"]) == (3 * (message + 4 + 1), 3 * (message + 2))
    assign = method.assignment(history.server)
    assert history.server["images"].tolist() == [32 * int((assign[rig.schedule[-1]] == k).sum()) for k in (0, 1)]
    assert history.rounds[0]["clusters"] == 2


def test_oracle_domains_are_the_images_tags(mixed):
    method = FedCG(clusters="oracle", gcn="none")
    rig = simulation(method, mixed, **HOW)
    server = rig.run().server
    tags = torch.cat([rig.site.data([int(c)]).tags(0) for c in rig.schedule[-1]])
    assert server["images"].tolist() == torch.bincount(tags, minlength=4).tolist()
    x = pictures().double()
    alike = method.predict(rig.model, server["model"], x, torch.full((9, 4), 0.25).double())
    close(method.predict(rig.model, server["model"], x), alike)


def test_told_models_are_scored_in_the_true_domain_of_every_image(mixed):
    method, how = FedCG(clusters="oracle", gcn="none", told=True), HOW | {"local": SGD(0.5, epochs=10), "rounds": 4}
    rig = simulation(method, mixed, **how)
    history = rig.run()
    test, right = mixed.test, []
    for i in range(len(test)):
        (index, y), tag = test.rows(i), test.take([i]).tag
        logits = method.predict(rig.model, history.server["model"], rig.scorer.pixels(test.pool[index]), tag)
        right.append((logits.argmax(1) == y).double().mean())
    assert len({*test.tag.tolist()}) == 4
    assert history.final["accuracy"] == pytest.approx(float(torch.stack(right)[mixed.test_of].mean()))
    untold = run(replace(method, told=False), mixed, **how)
    assert torch.equal(untold.server["model"], history.server["model"])
    assert untold.final["accuracy"] != history.final["accuracy"]


def test_without_residual_the_layers_own_weights_are_gone(mixed):
    method = FedCG(residual=False, gcn="none", clusters="oracle", adjacency="uniform")
    rig = simulation(method, mixed, **HOW)
    graph = method.network(rig.model, mixed.shape)
    assert graph.trainable == P - Q + 4 * Q
    assert rig.run().rounds[1]["up"] == 3 * (P + 3 * Q + 4)


@pytest.mark.parametrize("gcn", ["full", "per_filter", "bottleneck"])
def test_traffic_is_what_the_formula_says(mixed, gcn):
    """theta_a + D q + W + lambda + student both ways; A, and the teacher if new, down; D counts up."""
    method = FedCG(gcn=gcn, refresh=2)
    rig = simulation(method, mixed, **HOW)
    W = {"full": Q * Q, "per_filter": 27 * 27, "bottleneck": 2 * Q * (Q // 16)}[gcn]
    classifier = 32 * 10 + 64 * (32 * 9 + 1) + 4 * (64 * 4 + 1)
    message = P + 4 * Q + W + 1 + classifier
    first = rig.run().rounds[1]
    assert (first["down"], first["up"]) == (3 * (message + 16 + classifier), 3 * (message + 4))


@pytest.mark.parametrize("pool", ["local", "global"])
def test_a_classifier_is_the_network_that_its_layers_say(float64, pool):
    net, x = graph_layers.DomainClassifier((2, 5, 6), 3, pool), torch.randn(4, 2, 5, 6)
    close(net(x), nn.Sequential(*net.layers())(x))
    assert (plan_of(net, (2, 5, 6)) is not None) == (pool == "local")


def test_images_are_standardised_one_by_one(float64):
    x = standardised(5 + 3 * torch.rand(4, 2, 5, 6))
    close(x.mean((1, 2, 3)), torch.zeros(4))
    assert (x.var((1, 2, 3), correction=0) - 1).abs().max() < 1e-3


def test_what_a_round_reports(mixed):
    rows = run(FedCG(refresh=2), mixed, **HOW).rounds
    assert "largest_share" not in rows[0]
    counts = rows[1]["images"]
    assert sum(counts) == 3 * 32 and rows[1]["largest_share"] == max(counts) / 96
    assert rows[1]["entropy"] == metrics.entropy(counts)
    assert len(rows[1]["lam"]) == 1 and 0 < abs(rows[1]["lam"][0] - 1) < 0.1


@pytest.mark.parametrize(("untold", "change", "how", "line"), [
    ("", {}, {"model": "mlp16"}, "layers = 'last': must be found in the model; MLP has no such layer"),
    ("", {"layers": "batchnorm"}, {},
     "layers = 'batchnorm': must be found in the model; Sequential has no such layer"),
    ("", {"clusters": "kmeans", "domains": 7}, {},
     "domains = 7: must be at most the number of clients, 6, for k-means"),
    ("", {"clusters": "oracle", "domains": 3}, {}, "domains = 3: must be 4 or more, the true domains"),
    ("", {"clusters": "kmeans", "told": True}, {}, "told = True: must be False unless clusters is 'oracle'"),
    ("train", {"clusters": "oracle"}, {}, "clusters = 'oracle': must be another where images have no true domain"),
    ("test", {"clusters": "oracle", "told": True}, {},
     "told = True: must be False unless all images have a true domain"),
])  # fmt: skip
def test_bad_combinations_get_one_clear_line(untold, change, how, line, mixed):
    fed = replace(mixed, **{untold: replace(getattr(mixed, untold), tag=None)}) if untold else mixed
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        simulation(FedCG(**change), fed, **HOW | how)  # before any work


def test_a_bottleneck_starts_close_to_the_identity_and_its_strength_at_one():
    layer = GraphLayer(nn.Conv2d(4, 8, 3), 2, gcn="bottleneck")
    for W in (layer.W1, layer.W2):  # 1e-3 times a standard normal
        assert 5e-4 < float(W.std()) < 2e-3
    base = nn.Conv2d(1, 2, 3)
    layer, own = GraphLayer(base, 3), torch.cat([base.weight.flatten(), base.bias])
    assert float(layer.lam) == 1 and len({*map(tuple, [own.tolist(), *layer.V.tolist()])}) == 4  # all drawn apart


@pytest.mark.parametrize(("height", "width"), [(2, 2), (5, 4), (3, 7), (1, 6)])
def test_pooling_means_2_x_2_pixels_and_leaves_an_odd_row_or_column_out(height, width):
    x = torch.randn(3, 2, height, width, dtype=torch.float64)
    wanted = F.avg_pool2d(x, 2) if height > 1 else x[:, :, :0, : width // 2]
    torch.testing.assert_close(graph_layers.pooled(x), wanted)
