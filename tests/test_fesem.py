"""FeSEM by hand, by the identities that the paper's equations imply, and matched averaging."""

from dataclasses import replace

import made
import numpy as np
import pytest
import torch
from every import bits
from tiny import close, federation, initial, run, simulation, train, zeros
from torch import nn

from cflkit import metrics
from cflkit.engine.memory import Memory
from cflkit.engine.rows import Rows
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import History
from cflkit.methods import FedAvg, FedProx, FeSEM
from cflkit.methods.matching import align, alignable, matched_mean
from cflkit.models.flat import Model
from cflkit.models.networks import build

released = made.script("released")

# Four clients: 0 and 1 see label 0 to the right, 2 and 3 see it to the left.
CLIENTS = [(np.array(x), np.array(y)) for x, y in (
    ([[3, 0], [0, 3]], [0, 1]), ([[4, 1], [1, 3]], [0, 1]), ([[3, 1], [0, 4]], [1, 0]), ([[4, 0]], [1]),
)]  # fmt: skip
MINIBATCH = {"local": SGD(0.1, epochs=2, batch_size=10), "model": "mlp16"}


@pytest.mark.parametrize("start_from", ["centre", "personal"])
def test_warm_up_and_two_rounds_computed_by_hand(start_from):
    """The pull's gradient is 2 lambda (W - centre): Eq. 7 has no one half."""
    own, centres = [initial()] * 4, [initial()] * 2
    for _ in range(3):  # first the warm-up
        begin = own if start_from == "personal" else [centres[i // 2] for i in range(4)]
        own = [train(w, *c, steps=2, pull=2 * 0.3, centre=centres[i // 2])
               for i, (w, c) in enumerate(zip(begin, CLIENTS, strict=True))]  # fmt: skip
        centres = [(own[0] + own[1]) / 2, (own[2] + own[3]) / 2]
    method = FeSEM(k=2, lam=0.3, start_from=start_from)
    found = run(method, federation(*CLIENTS), local=SGD(0.1, epochs=2), rounds=2)
    assign = found.server["assign"].tolist()
    assert assign[0] == assign[1] != assign[2] == assign[3]
    net = simulation(method, federation(*CLIENTS)).network(3, found.memory)
    close(method.personal(found.server, torch.tensor([3, 0, 1, 2]), net).dense(), [own[i] for i in (3, 0, 1, 2)])
    assert net.down == 0  # nothing is sent for what devices keep
    for client in range(4):
        close(found.server["centres"][assign[client]], centres[client // 2])


@pytest.mark.parametrize("weights", ["uniform", "n"])
def test_one_centre_weighs_clients_of_unequal_sizes_as_fedavg_does(weights):
    """Sizes 2, 2, 2 and 1: Eq. 9 is a plain mean, whatever FedAvg's own default."""
    settings, fed = {"local": SGD(0.1, epochs=2)}, federation(*CLIENTS)
    ours = run(FeSEM(k=1, weights=weights), fed, rounds=2, **settings).server["centres"][0]
    theirs = {w: run(FedAvg(weights=w), fed, rounds=3, **settings).server["model"] for w in ("uniform", "n")}
    close(ours, theirs[weights])
    assert (theirs["n"] - theirs["uniform"]).abs().max() > 1e-3


def test_one_centre_with_a_pull_is_fedprox_with_twice_the_weight(fed):
    settings = MINIBATCH | {"local": SGD(0.1, epochs=2)}
    method = FeSEM(k=1, lam=0.2)
    ours = run(method, fed, rounds=2, **settings).server["centres"][0]
    theirs = run(FedProx(weights="uniform", mu=0.4), fed, rounds=3, **settings).server["model"]
    assert torch.equal(ours, theirs)
    halved = run(FedProx(weights="uniform", mu=0.2), fed, rounds=3, **settings).server["model"]
    assert not torch.allclose(ours, halved)


# Kernels part clients 0 and 1 from 2 and 3, biases part 0 and 2 from 1 and 3, and are farther apart. With pixels
# +-0.3 and zero weights one step of rate 0.1 moves a kernel's first column by +-0.015 and biases by +-0.05.
CROSSED = [(np.array([[60, 30]]), np.array([0])), (np.array([[0, 30]]), np.array([1])),
           (np.array([[0, 30]]), np.array([0])), (np.array([[60, 30]]), np.array([1]))]  # fmt: skip


def crossed():
    return federation(*CROSSED, scale=100.0, mean=0.3)


@pytest.mark.parametrize(("sub", "pairs", "left"), [("last", [0, 0, 1, 1], 0.0), ("all", [0, 1, 0, 1], 4.5e-4)])
def test_the_first_clusters_are_those_that_the_distance_sees(sub, pairs, left):
    history = run(FeSEM(k=2, sub=sub), crossed(), model=zeros, rounds=0)
    assert metrics.moved(torch.tensor(pairs), history.server["assign"]) == 0
    assert history.final["objective"] == pytest.approx(left, abs=1e-15)  # two entries of 0.015 to the mean


@pytest.mark.parametrize(("sub", "k"), [("last", 1), ("all", 0)])
def test_a_round_moves_a_client_by_what_the_distance_sees(sub, k):
    """Client 0 trains from centre 0; centre 1 has the kernel it arrives at, and biases far away."""
    method = FeSEM(k=2, sub=sub)
    rig = simulation(method, crossed(), model=zeros)
    centres = torch.zeros(2, 6, dtype=torch.float64)
    centres[1] = torch.tensor([0.015, 0.0, -0.015, 0.0, 9.0, 9.0])
    server = {"centres": centres, "assign": torch.zeros(4, dtype=torch.int64)}
    found = method.round(server, torch.tensor([0]), rig.network(1, Memory()))
    assert found["assign"].tolist() == [k, 0, 0, 0]


def test_ties_go_to_the_lowest_centre():
    method, model = FeSEM(k=2), Model(lambda: build("linear", (1, 2, 2), 2))
    centres = torch.zeros(2, model.size, dtype=torch.float64)
    assert method.e_step(torch.ones(3, model.size).double(), centres, method.seen(model)).tolist() == [0, 0, 0]


def test_the_last_kernel_is_that_of_the_last_layer_however_many_there_are():
    model = Model(lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Linear(3, 2), nn.Linear(2, 2)))
    assert FeSEM(sub="last").seen(model) == slice(23, 27)  # 15 and 8 below, the bias above
    bare = Model(lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Linear(3, 2, bias=False)))
    assert FeSEM(sub="last").seen(bare) == slice(15, 21)  # not the bias before it
    assert FeSEM().seen(model) == slice(0, 29)


def test_k_means_draws_from_the_runs_seed_alone(fed):
    found = []
    for seed in range(3):
        np.random.seed(seed)
        found.append(run(FeSEM(k=4), fed, rounds=0, **MINIBATCH).server)
    assert bits(found[0]) == bits(found[1]) == bits(found[2])


def test_a_random_partition_starts_from_the_means_of_its_members(fed):
    method = FeSEM(init="random", k=2)
    rig = simulation(method, fed, **MINIBATCH)
    server = method.start(rig.network(0, Memory()))
    everybody, down = torch.arange(fed.clients), {"centre": rig.task.init()[0]}
    models = rig.network(0, Memory()).call(everybody, method.client, down=down)["model"].dense()
    for k in range(2):
        close(server["centres"][k], models[server["assign"] == k].mean(0))


# ------------------------------------------------------------------ the released score
def test_the_released_score_asks_every_centre_about_every_client():
    """Two clients of one and three images, whose tests mirror each other; a centre for each test, one for none."""
    left, right = (np.array([[0, 9]]), np.array([1])), (np.array([[9, 0]] * 3), np.array([1] * 3))
    fed = federation(left, right)
    tests = replace(fed.test, offset=torch.tensor([0, 1, 4]))
    rig = simulation(FeSEM(k=2), replace(fed, test=tests, test_of=torch.arange(2)), personal_clients=2)
    to_one = torch.tensor([0.0, 0.0, -1.0, 1.0, 0.0, 0.0], dtype=torch.float64)  # label 1 where the second pixel is
    centres = torch.stack([to_one, -to_one, torch.zeros(6).double()])
    found = released.released_score(rig, History(server={"centres": centres, "assign": torch.tensor([0, 1])}))
    assert found == {"each": [0.25, 0.75, 0.0], "micro": 0.75, "mean": pytest.approx(1 / 3), "macro": 0.0}
    found = released.released_score(rig, History(server={"centres": centres[:2], "assign": torch.tensor([0, 1])}))
    assert (found["micro"], found["macro"]) == (0.75, 0.5)  # by images, by clients
    assert rig.evaluate({"centres": centres, "assign": torch.tensor([0, 1])}, Memory())["accuracy_micro"] == 1.0


# ------------------------------------------------------------------ matched averaging
def shuffled(vector, model, seed):
    """The same function, hidden units in another order."""
    torch.manual_seed(seed)
    out = vector.clone()
    views, names = model.views(out), [n.removesuffix(".weight") for n in model.parameters if n.endswith("weight")]
    order = torch.arange(views[f"{names[0]}.weight"].shape[:2][-1])
    for name in names:
        if (weight := views[f"{name}.weight"]).dim() > 1:
            blocks = weight.reshape(len(weight), len(order), -1)
            weight.copy_(blocks[:, order].reshape(weight.shape).clone())
            order = torch.randperm(len(weight)) if name != names[-1] else torch.arange(len(weight))
        for own in [key for key in views if key.startswith(f"{name}.")]:
            views[own].copy_(views[own][order].clone())
    return out


def shaken(model, seed=0):
    """No two units alike, in nothing: an initial model has equal scales, offsets and running statistics."""
    return model.init(seed) + 0.1 * torch.rand(model.size, generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize("name, shape", [("mlp8", (1, 4, 4)), ("lenet", (1, 28, 28)),
                                         ("leaf_celeba", (3, 12, 12)), ("leaf_celeba_running", (3, 12, 12))])
def test_matching_recovers_a_common_model_from_shuffled_copies_exactly(name, shape):
    model = Model(lambda: build(name, shape, 10))
    common = shaken(model, 3)
    copies = torch.stack([shuffled(common, model, seed) for seed in range(3)])
    x = torch.randn(5, *shape, dtype=torch.float64)
    assert torch.allclose(model.forward(copies[1], x), model.forward(common, x), atol=1e-12)
    assert torch.equal(align(copies, [common] * 3, model), common.expand(3, -1))
    [near] = align(copies[:1], [model.init(4)], model)  # a centre whose units are others
    assert torch.allclose(model.forward(near, x), model.forward(common, x), atol=1e-12)
    groups = torch.zeros(3, dtype=torch.int64)
    found = matched_mean(Rows([copies]), groups, common[None], model)[0]
    assert torch.allclose(found, common, atol=1e-15)
    assert not torch.allclose(copies.mean(0), common, atol=1e-3)  # averaging by index does not
    assert alignable(model, shape)


class Shortcut(nn.Module):
    """Every layer fits the one before; but the first also feeds the last."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.decision = nn.Linear(16, 5), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, x):
        z = self.one(x.flatten(1))
        return self.decision(z + self.two(z.relu()))


def after_the_decision():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 2), nn.BatchNorm1d(2))


def wide_normalisation():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.BatchNorm1d(8), nn.Linear(8, 2))


@pytest.mark.parametrize("model", [Shortcut, after_the_decision, wide_normalisation, "resnet18", "mobilenetv2"])
def test_matching_is_refused_before_any_work_where_units_cannot_be_renamed_layer_by_layer(model):
    side = 5 if isinstance(model, str) else 4
    fed = federation(*[(np.ones((2, side * side), int), np.array([1, 1]))] * 2)
    square = replace(fed.train, pool=fed.train.pool.view(-1, 1, side, side))
    fed = replace(fed, train=square, test=replace(fed.test, pool=square.pool))
    simulation(FeSEM(k=1), fed, model=model)
    with pytest.raises(ValueError) as error:
        simulation(FeSEM(k=1, average="matched"), fed, model=model)
    line = "average = 'matched': must be index for this model, whose layers do not follow in a row"
    assert str(error.value) == line


def normalised_inputs():
    return nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))


def test_matching_leaves_inputs_where_they_are_and_takes_a_model_that_says_nothing():
    model = Model(normalised_inputs)
    assert alignable(model, (3, 4, 4))
    common = shaken(model)
    assert torch.equal(align([shuffled(common, model, 1)], [common], model)[0], common)
    assert alignable(Model(zeros), (1, 1, 2))


def test_matching_units_that_are_in_place_already_is_the_plain_mean():
    model = Model(lambda: build("mlp8", (1, 4, 4), 10))
    centre = model.init(0)
    near = torch.stack([centre + 1e-6 * torch.randn_like(centre) for _ in range(4)])
    groups = torch.tensor([0, 0, 1, 1])
    matched = matched_mean(Rows([near]), groups, centre.expand(3, -1), model)
    assert torch.equal(matched, Rows([near]).mean_by(groups, 3, keep=centre.expand(3, -1)))
    assert torch.equal(matched[2], centre)


def test_units_that_differ_in_their_bias_alone_are_matched():
    model = Model(lambda: nn.Sequential(nn.Flatten(), nn.Linear(1, 2), nn.Linear(2, 1)))
    centre = torch.tensor([1.0, 1, 5, -5, 2, 3, 0], dtype=torch.float64)  # two weights of 1, biases 5 and -5
    turned = torch.tensor([1.0, 1, -5, 5, 3, 2, 0], dtype=torch.float64)
    assert torch.equal(align([turned], [centre], model)[0], centre)


@pytest.mark.parametrize("weights", ["uniform", "n"])
def test_a_round_recovers_each_clusters_model_from_shuffled_copies(ragged, weights):
    """Clients hold renamed copies, and hardly train: matched averaging is the copies' model, by index it is not.

    The copies of cluster 1 are two models, a distance apart that the clients' weights divide.
    """
    fed, how = ragged(1, 2, 3, 5, 7), {"model": "mlp4", "local": SGD(1e-14)}
    method = FeSEM(k=3, start_from="personal", average="matched", weights=weights)
    rig = simulation(method, fed, **how)
    model, memory = rig.model, Memory()
    centres = torch.stack([shaken(model, k) for k in range(3)])
    centres[1, -1], centres[2, -1] = 1e3, 1e6  # decision biases say whose copy a model is, whatever its order
    held, assign = torch.stack([centres[k] for k in (0, 0, 1, 1, 1)]), torch.tensor([0, 0, 1, 1, 1])
    held[4, -1] += 1.0
    for client, w in enumerate(held):
        memory.put("personal", client, shuffled(w, model, client), 0)
    server = {"centres": centres, "assign": assign}
    for average, recovers in (("matched", True), ("index", False)):
        net = rig.network(1, memory)
        found = replace(method, average=average).round(server, torch.arange(5), net)
        assert found["assign"].tolist() == assign.tolist()
        wanted = centres.clone()
        wanted[1, -1] += 1 / 3 if weights == "uniform" else 7 / 15
        gap = (found["centres"] - wanted).abs().amax(1)
        assert (gap[:2] < 1e-9).all() if recovers else (gap[:2] > 1e-2).all()
        assert gap[2] == 0
