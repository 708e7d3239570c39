"""What is served: fine-tuned models, mixtures of models, and training on weighted images."""

import numpy as np
import pytest
import torch
from every import Convolution, bits, remembered
from test_other_baselines import CLIENTS, close, tiny_fed
from tiny import loss, refused, run, simulation, train

from cflkit.engine import metrics
from cflkit.engine.fast import trainers
from cflkit.engine.local import Local
from cflkit.engine.rows import Mixed, Pick
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation, simulate
from cflkit.methods import IFCA, Ditto, FedAvg, FedCG, FedEM, LCFed, LocalOnly


def vectors(models):
    """Weights of softmax regressions, one a row."""
    return np.stack([torch.cat([p.detach().reshape(-1) for p in m.parameters()]).numpy() for m in models])


# ------------------------------------------------------------------ fine-tuning
def test_fedavg_with_fine_tuning_by_hand():
    """Two rounds of FedAvg, then three steps of every client on its own, from the global model."""
    rig = simulation(FedAvg(), tiny_fed(), rounds=2, finetune=3)
    w = rig.task.init()[0].numpy()
    for _ in range(2):
        w = np.average([train(w, *client) for client in CLIENTS], axis=0, weights=[len(y) for _, y in CLIENTS])
    history = rig.run()
    close(history.server["model"], w)
    tuned = np.stack([train(w, *client, steps=3) for client in CLIENTS])
    close(vectors(history.models()), tuned)
    x, y = (np.concatenate(part) for part in zip(*CLIENTS, strict=True))
    guess = [(x @ v[:4].reshape(2, 2).T + v[4:]).argmax(1) for v in tuned]
    right = [np.mean([(g[y == c] == c).mean() for c in (0, 1)]) for g in guess]
    assert history.final["accuracy"] == pytest.approx(np.mean(right), abs=1e-12)
    assert all(loss(v, *c) < loss(w, *c) for v, c in zip(tuned, CLIENTS, strict=True))


@pytest.mark.parametrize("method", [FedAvg(), IFCA(k=2), Ditto(), LCFed(k=2, rank=2)], ids=lambda m: m.name)
def test_what_is_learnt_does_not_depend_on_fine_tuning(method, fed, settings_of_a_run):
    plain, tuned = (simulate(method, fed, **settings_of_a_run, finetune=steps) for steps in (0, 5))
    assert bits(plain.server) == bits(tuned.server) and remembered(plain.memory) == remembered(tuned.memory)
    for before, after in zip(plain.rounds, tuned.rounds, strict=True):
        apart = {name for name in before if repr(before[name]) != repr(after[name])}  # of nan, too
        assert before.keys() == after.keys() and {name.split("_")[0] for name in apart} <= {"accuracy", "own", "f1"}
        assert "accuracy" in apart
    assert tuned.run.evaluate(tuned.server, tuned.memory).items() <= tuned.final.items()  # the same batches again
    assert metrics.accuracy(tuned.confusions()).mean() == pytest.approx(tuned.final["accuracy"], abs=1e-12)


def test_what_is_no_single_network_is_not_fine_tuned(fed, settings_of_a_run):
    with pytest.raises(ValueError, match=r"^finetune = 2: must be 0 for a method that serves mixtures of models$"):
        simulate(FedEM(k=2), fed, **settings_of_a_run, finetune=2)
    with pytest.raises(ValueError, match=r"^finetune = 2: must be 0 for fedcg, which predicts by more than a net"):
        Simulation(FedCG(domains=2), fed, **settings_of_a_run | {"model": Convolution}, finetune=2)
    assert "accuracy" not in run(LocalOnly(), fed, model="mlp16", finetune=2).final  # who serves nothing
    assert "finetune" not in Simulation(FedAvg(), fed, **settings_of_a_run).config
    assert Simulation(FedAvg(), fed, **settings_of_a_run, finetune=2).config["finetune"] == 2


# ------------------------------------------------------------------ mixtures
def test_a_mixture_predicts_the_mean_of_probabilities(fed, ragged):
    """With all of the weight on one model it is that model; the mean of weights is something else."""
    for data in (fed, ragged(2, 5, 13)):
        rig = simulation(FedAvg(), data, model="mlp16")
        table, clients = 3 * rig.task.init(3), torch.arange(data.clients)
        chosen = clients % 3
        one = rig.scorer.confusions(Mixed(table, torch.eye(3)[chosen]), clients)
        np.testing.assert_array_equal(one, rig.scorer.confusions(Pick(table, chosen), clients))
        shares = torch.tensor(np.random.default_rng(0).dirichlet(np.ones(3), data.clients))
        found = rig.scorer.confusions(Mixed(table, shares), clients)
        for i in clients.tolist():
            s = int(data.test_of[i])
            index, y = data.test.rows(s)
            x = rig.scorer.pixels(data.test.pool[index])
            said = torch.stack([rig.model.forward(w, x).softmax(1) for w in table], 2)
            guess = (said @ shares[i]).argmax(1)
            for truth, row in enumerate(found[i]):
                assert row.tolist() == guess[y == truth].bincount(minlength=data.classes).tolist()
        assert (found != rig.scorer.confusions(shares @ table, clients)).any()
    history = run(FedEM(k=2), data, model="mlp16")
    assert history.confusions().sum() == data.clients * 50
    refused("method = 'fedem': must be one that predicts by a network alone.*", history.models)


# ------------------------------------------------------------------ weighted images
@pytest.mark.parametrize("trainer", ["lean", "stacked", "shared", "compiled", "auto"])
@pytest.mark.parametrize("model", ["mlp16", "lenet"])
def test_a_weighted_image_counts_for_its_weight(trainer, model, fed):
    """Weights 2, 1 and 0 are an image that is there twice, once, and not at all."""
    pytest.importorskip("llvmlite") if trainer == "compiled" else None
    rig = Simulation(FedAvg(), fed, model=model, local=SGD(0.1, steps=3), rounds=1)
    data, w = rig.site.data([0, 4]), rig.task.init()[0]
    local = Local(rig.model, rig.local, 0, 1, trainers(trainer))
    q = [torch.tensor([2.0, 1, 0], dtype=torch.float64).repeat(8), torch.ones(24, dtype=torch.float64)]
    found = local.sgd(w, data, weights=q).dense()
    plain = local.sgd(w, data).dense()
    close(found[1], plain[1])
    twice = w.clone()
    x, y = data[0]
    for _ in range(3):
        twice.requires_grad_()
        losses = torch.nn.functional.cross_entropy(rig.model.forward(twice, x), y, reduction="none")
        (slope,) = torch.autograd.grad((losses[0::3].sum() * 2 + losses[1::3].sum()) / 24, twice)
        twice = (twice - 0.1 * slope).detach()
    close(found[0], twice)
    assert (found[0] - plain[0]).abs().max() > 1e-3


def test_weights_follow_their_images_through_batches(fed):
    rig = Simulation(FedAvg(), fed, model="mlp16", local=SGD(0.1, epochs=2, batch_size=7), rounds=1)
    data, w = rig.site.data([0, 4, 9]), rig.task.init()[0]
    q = [torch.rand(24, generator=torch.Generator().manual_seed(i), dtype=torch.float64) for i in range(3)]
    each = [Local(rig.model, rig.local, 0, 1, trainers(name)).sgd(w, data, weights=q).dense()
            for name in ("lean", "stacked", "compiled")]  # fmt: skip
    close(each[1], each[0])
    close(each[2], each[0])
    local = Local(rig.model, rig.local, 0, 1)
    losses = local.image_losses(rig.task.init(2), data)
    close(torch.stack([part.mean(1) for part in losses]), local.losses(rig.task.init(2), data))
    with pytest.raises(ValueError, match=r"^len\(weights\) = \[24, 23, 24\]: must be \[24, 24, 24\], one an"):
        local.sgd(w, data, weights=[q[0], q[1][1:], q[2]])
    with pytest.raises(ValueError, match=r"^objective = .*: must be the cross-entropy with weights$"):
        local.sgd(w, data, weights=q, objective=lambda module, x, y: module(x).sum())
