"""The baselines against rounds computed by hand, against each other, and against what they may send."""

from itertools import pairwise

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from tiny import average, close, federation, gradient, initial, loss, network, one_layer, run, simulation, train
from torch import nn

from cflkit import rng
from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.methods import IFCA, METHODS, Ditto, FedAvg, FedProx, FedSGD, LocalOnly, OracleClusters
from cflkit.methods import ifca as ifca_file
from cflkit.models.flat import Model

# Three clients of 1, 3 and 2 samples, two pixels each.
CLIENTS = [
    (np.array([[2, 0]]), np.array([0])),
    (np.array([[0, 1], [1, 3], [2, 2]]), np.array([1, 0, 1])),
    (np.array([[3, 1], [0, 2]]), np.array([1, 0])),
]
SIZES = np.array([1, 3, 2])
FOUR = [*CLIENTS, (np.array([[1, 1], [2, 3], [0, 0]]), np.array([0, 1, 1]))]
TRUTH = (0, 1, 0, 1)


# ------------------------------------------------------------------ one round, computed by hand
@pytest.mark.parametrize("weights", ["n", "uniform"])
def test_fedavg_averages_trained_models(weights):
    w = initial()
    for _ in range(2):
        w = average([train(w, *c, steps=3) for c in CLIENTS], SIZES if weights == "n" else [1, 1, 1])
    ours = run(FedAvg(weights), federation(*CLIENTS), local=SGD(0.1, epochs=3), rounds=2).server["model"]
    close(ours, w)


def test_fedsgd_steps_along_the_mean_gradient_whatever_the_local_training():
    w = initial()
    for _ in range(2):
        w = w - 0.1 * average([gradient(w, *c) for c in CLIENTS], SIZES)
    close(run(FedSGD(), federation(*CLIENTS), local=SGD(0.1, epochs=5, batch_size=1), rounds=2).server["model"], w)


def test_fedprox_pulls_towards_what_was_received():
    w = initial()
    for _ in range(2):
        w = average([train(w, *c, steps=3, pull=0.7, centre=w) for c in CLIENTS], SIZES)
    close(run(FedProx(mu=0.7), federation(*CLIENTS), local=SGD(0.1, epochs=3), rounds=2).server["model"], w)


def test_ditto_keeps_personal_models_pulled_towards_the_global_one():
    w = initial()
    v = [w] * 3
    for _ in range(2):
        v = [train(v[i], *c, steps=3, pull=0.7, centre=w) for i, c in enumerate(CLIENTS)]
        w = average([train(w, *c, steps=3) for c in CLIENTS], SIZES)
    found = run(Ditto(lam=0.7), federation(*CLIENTS), local=SGD(0.1, epochs=3), rounds=2)
    close(found.server["model"], w)
    for i in range(3):
        close(found.memory.get("personal", i), v[i])


def test_local_only_trains_alone_and_goes_on_where_it_stopped():
    found = run(LocalOnly(), federation(*CLIENTS), local=SGD(0.1, epochs=3), rounds=2)
    for i, c in enumerate(CLIENTS):
        close(found.memory.get("personal", i), train(initial(), *c, steps=6))


def test_oracle_averages_within_the_true_clusters():
    models = [initial()] * 2
    sizes = [1, 3, 2, 3]
    for _ in range(2):
        trained = [train(models[k], *c, steps=3) for k, c in zip(TRUTH, FOUR, strict=True)]
        models = [average([trained[i], trained[j]], [sizes[i], sizes[j]]) for i, j in ((0, 2), (1, 3))]
    fed = federation(*FOUR, cluster=TRUTH)
    found = run(OracleClusters.of(fed), fed, local=SGD(0.1, epochs=3), rounds=2)
    close(found.server["models"], models)
    assert found.server["assign"].tolist() == list(TRUTH)
    oracle = OracleClusters(TRUTH)
    after = oracle.round(found.server, torch.tensor([0, 2]), network(oracle, fed))["models"]
    assert torch.equal(after[1], found.server["models"][1])  # nobody of that cluster was there
    assert not torch.equal(after[0], found.server["models"][0])


def three_models():
    return np.random.default_rng(46).normal(size=(3, 6))


def ifca_round(method, models, fed, clients=range(4), **how):
    server = {"models": torch.tensor(models), "assign": torch.full((fed.clients,), -1)}
    return method.round(server, torch.tensor(clients), network(method, fed, **how))


def ifca_choice(models):
    choice = [int(np.argmin([loss(m, *c) for m in models])) for c in FOUR]
    assert choice == [1, 0, 0, 1]  # two clusters with two members each, and an empty one
    return choice


def test_ifca_rounds_are_those_of_plain_pytorch(fed):
    """Five rounds of half of twelve clients, in minibatches, from the same first models."""
    sgd = SGD(0.1, epochs=2, batch_size=10)
    sim = simulation(IFCA(k=4), fed, model="mlp16", local=sgd, rounds=5, participation=0.5, seed=3)
    data, models, chosen = fed.train, sim.task.init(4), torch.full((fed.clients,), -1)
    for t, sampled in enumerate(sim.schedule, start=1):
        took = {}
        for i in sampled.tolist():
            mine = slice(*data.offset[i : i + 2].tolist())
            x, y, nets = sim.scorer.pixels(data.pool[data.index[mine]]), data.y[mine], []
            for model in models:
                nets.append(sim.model.fresh(0))
                nn.utils.vector_to_parameters(model.clone(), nets[-1].parameters())
            chosen[i] = min(range(4), key=lambda j: F.cross_entropy(nets[j](x), y).item())
            net = nets[chosen[i]]
            theirs = torch.optim.SGD(net.parameters(), lr=0.1)
            for batch in sgd.batches(len(y), rng.generator(3, t, i, "batches")):
                theirs.zero_grad()
                F.cross_entropy(net(x[batch]), y[batch]).backward()
                theirs.step()
            took.setdefault(int(chosen[i]), []).append(nn.utils.parameters_to_vector(net.parameters()).detach())
        models = torch.stack([torch.stack(took[j]).mean(0) if j in took else models[j] for j in range(4)])
    found = sim.run().server
    assert torch.equal(found["assign"], chosen) and len(chosen.unique()) > 2
    close(found["models"], models)


def test_ifca_gradient_averaging_divides_by_all_sampled_clients():
    models, fed = three_models(), federation(*FOUR)
    ifca_choice(models)
    g = [gradient(models[k], *c) for k, c in zip([1, 0, 0, 1], FOUR, strict=True)]
    found = ifca_round(IFCA(k=3, average="gradient"), models, fed, local=SGD(0.1, epochs=3, batch_size=1))
    close(found["models"][0], models[0] - 0.1 / 4 * (g[1] + g[2]))
    close(found["models"][1], models[1] - 0.1 / 4 * (g[0] + g[3]))
    close(found["models"][2], models[2])
    # one step of model averaging is the same with a rate larger by m over the cluster's size: 4 / 2
    by_model = ifca_round(IFCA(k=3), models, fed, local=SGD(0.1 * 2 / 4))
    close(by_model["models"], found["models"])
    three = ifca_round(IFCA(k=3, average="gradient"), models, fed, clients=[0, 1, 2])  # one is away
    close(three["models"][0], models[0] - 0.1 / 3 * (g[1] + g[2]))
    close(three["models"][1], models[1] - 0.1 / 3 * g[0])


def test_ifca_weight_sharing_has_one_body_and_a_head_a_cluster():
    fed, method = federation(*FOUR), IFCA(k=3, share=True)
    net = network(method, fed, model=tiny.two_layers)
    models = np.random.default_rng(18).normal(size=(3, 12))
    models[:, :6] = models[0, :6]
    choice = [int(np.argmin([loss(one_layer(m), *c) for m in models])) for c in FOUR]
    assert sorted(set(choice)) == [0, 1]  # and nobody takes the third
    chosen = zip(choice, FOUR, strict=True)
    trained = np.array([models[k] - 0.1 * tiny.two_layer_gradient(models[k], *c) for k, c in chosen])
    server = {"models": torch.tensor(models), "assign": torch.full((4,), -1)}
    found = method.round(server, torch.arange(4), net)
    assert found["assign"].tolist() == choice
    for k in range(3):
        close(found["models"][k, :6], trained[:, :6].mean(0))
        mine = trained[np.array(choice) == k, 6:]
        close(found["models"][k, 6:], mine.mean(0) if len(mine) else models[k, 6:])
    start = method.start(net)["models"]
    assert torch.equal(start[0, :6], start[2, :6]) and not torch.equal(start[0, 6:], start[2, 6:])


# ------------------------------------------------------------------ identities
MINIBATCH = {"local": SGD(0.1, epochs=2, batch_size=10), "rounds": 3, "participation": 0.5, "model": "mlp16"}


def test_personal_models_are_kept_until_their_client_is_sampled_again(ragged):
    fed = ragged(4, 5, 6, 7)
    for method in (Ditto(), LocalOnly()):
        rig = simulation(method, fed, rounds=1, participation=0.5)
        sampled, history = rig.schedule[0].tolist(), rig.run()
        models = method.personal(history.server, torch.arange(4), rig.network(1, history.memory)).dense()
        for i in range(4):
            assert torch.equal(models[i], rig.task.init()[0]) == (i not in sampled)


def test_all_that_lies_below_the_decision_layer_is_shared_running_statistics_too(ragged):
    def normalised():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 10))

    fed, model = ragged(5, 9, 13), Model(normalised)
    for rounds in (0, 2):
        how = MINIBATCH | {"model": normalised, "rounds": rounds}
        first, *others = run(IFCA(k=3, share=True), fed, **how).server["models"]
        for other in others:
            same = model.views(first == other)
            assert not same["4.weight"].any()
            assert all(part.all() for name, part in same.items() if not name.startswith("4."))


def test_equal_models_tie_to_the_first_and_the_others_freeze(ragged):
    fed = ragged(1, 5, 13, 22)
    once = MINIBATCH | {"rounds": 1}
    found = run(IFCA(k=3, init="common"), fed, **once)
    first = simulation(FedAvg(), fed, **once).task.init()[0]
    assert torch.equal(found.server["models"][0], run(FedAvg("uniform"), fed, **once).server["model"])
    assert all(torch.equal(m, first) for m in found.server["models"][1:])
    assert set(found.server["assign"].tolist()) == {-1, 0}


def shares(sim, models):
    """How many clients have each of the models as the one with the least loss."""
    data = sim.federation.train
    places = list(pairwise(data.offset.tolist()))
    images = [(sim.scorer.pixels(data.pool[data.index[a:b]]), data.y[a:b]) for a, b in places]
    losses = [[F.cross_entropy(sim.model.forward(m, x), y).item() for m in models] for x, y in images]
    return np.bincount(np.argmin(losses, 1), minlength=len(models))


def test_first_models_are_redrawn_until_each_has_enough_clients(fed, monkeypatch):
    """A tenth of twelve clients are two; the draws go on where those of distinct models end."""
    how, took = {"model": "mlp16", "rounds": 1}, []
    for seed in range(4):
        sim = simulation(IFCA(k=4, init="redrawn"), fed, seed=seed, **how)
        draws = iter(sim.task.init(4 * 400).split(4))
        first = next(n for n, models in enumerate(draws, start=1) if shares(sim, models).min() >= 2)
        found = sim.method.start(net := sim.network(0, Memory()))["models"]
        assert torch.equal(found, sim.task.init(4 * first)[-4:])
        assert net.down == first * 4 * sim.model.size * 12
        took.append(first)
    assert min(took) < max(took)
    monkeypatch.setattr(ifca_file, "DRAWS", max(took) - 1)
    with pytest.raises(ValueError, match=r"^init = 'redrawn': must be distinct or common here; no draw of"):
        run(IFCA(k=4, init="redrawn"), fed, seed=took.index(max(took)), **how)


@pytest.mark.parametrize("share, enough", [(0.35, 5), (4 / 12, 4)])
def test_redrawn_first_models_that_both_have_enough_clients_at_once_are_the_distinct_ones(
    share, enough, fed, monkeypatch
):
    """35% of twelve clients are more than four; a third of them are four, which is enough then."""
    monkeypatch.setitem(ifca_file.LEAST, 2, share)
    found = set()
    for seed in range(6):
        sim = simulation(IFCA(k=2, init="redrawn"), fed, seed=seed, model="mlp16", rounds=1)
        plain = run(IFCA(k=2), fed, seed=seed, model="mlp16", rounds=1)
        fewest = shares(sim, sim.task.init(2)).min()
        assert torch.equal(sim.run().server["models"], plain.server["models"]) == (fewest >= enough)
        found.add(fewest)
    assert {4, 5} <= found  # either side of 35%


@pytest.mark.parametrize(
    "change, says", [({"k": 3}, "k = 3: must be 2 or 4"), ({"share": True}, "share = True: must be False")]
)
def test_first_models_are_redrawn_as_the_released_code_can(change, says):
    tiny.refused(f"{says}.*", IFCA, **{"k": 4, "init": "redrawn"} | change)


def test_ifca_serves_whom_it_never_met_by_training_loss():
    models, fed = three_models(), federation(*FOUR)
    served = IFCA(k=3).serve({"models": torch.tensor(models)}, torch.arange(4), network(IFCA(k=3), fed))
    assert served.index.tolist() == ifca_choice(models)


def test_bad_combinations_get_one_clear_line_before_any_work():
    fed = federation(*FOUR)
    for make, line in [
        (lambda: simulation(OracleClusters((0, 1)), fed), "len(cluster) = 2: must be the number of clients, 4"),
        (lambda: simulation(OracleClusters(), fed), "len(cluster) = 0: must be the number of clients, 4"),
        (lambda: OracleClusters.of(fed), "federation = 'tiny': must be one whose true clusters are known"),
    ]:
        with pytest.raises(ValueError) as error:
            make()
        assert str(error.value) == line
    assert all(kind.name == name for name, kind in METHODS.items())
