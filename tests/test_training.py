"""Local training against ``torch.optim.SGD``, and the stacked path against the lean one."""

from functools import cache, partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tiny import Tensors, optimisers, sizes, told
from torch import nn

from cflkit import models, rng
from cflkit.engine.clients import IMAGES_AT_ONCE, Data, Pixels
from cflkit.engine.fast import passing, trainers
from cflkit.engine.rows import Pick, row
from cflkit.engine.sgd import SGD, Prox
from cflkit.engine.trainer import Trainer
from cflkit.models.flat import Model

SEED, ROUND = 3, 7


@cache
def flat(name, dtype=torch.float64):
    return Model(partial(models.build, name, (1, 8, 8), 10), dtype)


class Dropping(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 10))


class NormedByBatch(nn.Sequential):
    """Convolutions of every kind, and normalisations that only know the batch."""

    def __init__(self):
        norms = [partial(kind, track_running_stats=False) for kind in (nn.BatchNorm2d, nn.BatchNorm1d)]
        super().__init__(
            nn.Conv2d(1, 4, 3, stride=2, padding=1), norms[0](4), nn.ReLU(),
            nn.Conv2d(4, 4, (3, 2), padding=1), nn.Tanh(),
            nn.Conv2d(4, 4, (2, 3), padding=(0, 2), dilation=(1, 2), bias=False), norms[0](4, affine=False),
            nn.Conv2d(4, 6, 2, groups=2), nn.Conv2d(6, 4, 1, padding="same"), nn.Flatten(), nn.Tanh(),
            nn.Linear(32, 8), norms[1](8, eps=0.1), nn.Linear(8, 10),
        )  # fmt: skip


def held(fed, model, clients=None):
    clients = range(fed.clients) if clients is None else clients
    return Data(fed.train, clients, Pixels(fed, model), fed.classes)


def local(model, sgd, trainer="lean", **kwargs):
    return Tensors(model, sgd, SEED, ROUND, trainers(trainer, **kwargs))


def vectors(model, count, key):
    """Random models: initial ones, with everything moved a little, so that biases are not special."""
    draw = torch.Generator().manual_seed(key)
    noise = torch.randn(count, model.size, generator=draw, dtype=torch.float64).to(model.dtype)
    noise[:, model.trainable :] = 0
    return torch.stack([model.init(key + i) for i in range(count)]) + 0.05 * noise


def reference(model, fed, client, sgd, start, prox=(), shift=None):
    """What plain PyTorch makes of it: a module, autograd, and ``torch.optim.SGD``."""
    module = model.make().to(model.dtype)
    nn.utils.vector_to_parameters(start[: model.trainable].clone(), module.parameters())
    module.train()
    optimiser = torch.optim.SGD(module.parameters(), lr=sgd.lr, momentum=sgd.momentum,
                                weight_decay=sgd.weight_decay, nesterov=sgd.nesterov)  # fmt: skip
    index, y = fed.train.rows(client)
    x = fed.train.pool[index].to(model.dtype) / fed.scale
    for batch in sgd.batches(len(y), rng.generator(SEED, ROUND, client, "batches")):
        optimiser.zero_grad()
        loss = F.cross_entropy(module(x[batch]), y[batch])
        w = nn.utils.parameters_to_vector(module.parameters())
        for p in prox:
            span = p.span or slice(0, model.trainable)
            loss = loss + p.weight / 2 * ((w - row(p.anchor, client)[: model.trainable])[span] ** 2).sum()
        if shift is not None:
            loss = loss + w @ shift[: model.trainable]
        loss.backward()
        optimiser.step()
    return nn.utils.parameters_to_vector(module.parameters()).detach()


# ---------------------------------------------------------------------- the lean path is torch.optim.SGD
@pytest.mark.parametrize("name", ["mlp8", "lenet"])
def test_lean_training_is_plain_sgd(name, ragged):
    model = flat(name)

    @settings(max_examples=60 if name == "mlp8" else 15)
    @given(optimisers, sizes, st.data())
    def check(sgd, sizes, data):
        fed = ragged(*sizes)
        start, prox, shift = data.draw(told(model, fed.clients, model.head, model.span(model.parameters[0])))
        found = local(model, sgd).sgd(start, held(fed, model), prox, shift)
        for i in range(fed.clients):
            expected = reference(model, fed, i, sgd, row(start, i), prox, None if shift is None else shift[i])
            torch.testing.assert_close(found[i, : model.trainable], expected, rtol=0, atol=1e-10)

    check()


# ---------------------------------------------------------------------- the stacked path is the lean one
@pytest.mark.parametrize("name", ["mlp8", "lenet", NormedByBatch])
def test_stacked_training_is_lean_training(name, ragged):
    model = Model(name) if isinstance(name, type) else flat(name)
    # a batch of one, normalised by itself, has no derivative at all: lean refuses it
    few = sizes if isinstance(name, str) else st.lists(st.sampled_from([2, 4, 6, 9]), min_size=1, max_size=4)

    @settings(max_examples=60 if name == "mlp8" else 15)
    @given(optimisers, few, st.data())
    def check(sgd, sizes, data):
        if isinstance(name, type):
            assume(sgd.batch_size != 1 and all(n % (sgd.batch_size or n) != 1 for n in sizes))
        fed = ragged(*sizes)
        start, prox, shift = data.draw(told(model, fed.clients, model.head, slice(0, model.head.start)))
        lean, stacked = (local(model, sgd, trainer).sgd(start, held(fed, model), prox, shift)
                         for trainer in ("lean", "stacked"))  # fmt: skip
        torch.testing.assert_close(stacked, lean, rtol=0, atol=1e-10)

    check()


@pytest.mark.parametrize("layers, numbers", [
    ([nn.Flatten(), nn.Linear(64, 10)], 64),  # what the weights are multiplied with
    ([nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 10)], 64 + 2 * 72 + 9 * (64 + 72)),
])  # fmt: skip
def test_what_an_image_needs_in_training_is_counted(layers, numbers):
    assert passing(Model(lambda: nn.Sequential(*layers)), (1, 8, 8)) == numbers


def test_stacked_training_does_run_stacked(ragged, monkeypatch):
    """Otherwise the comparison above would compare the lean path with itself."""
    fed, model = ragged(3, 4), flat("mlp8")
    monkeypatch.setattr(Trainer, "train_one", None)
    local(model, SGD(0.1), "stacked").sgd(model.init(0), held(fed, model))
    with pytest.raises(TypeError):
        local(model, SGD(0.1), "lean").sgd(model.init(0), held(fed, model))


# ---------------------------------------------------------------------- looking, without training
@pytest.mark.parametrize("name", ["mlp8", "lenet"])
def test_gradient_and_losses_are_those_of_the_mean_cross_entropy(name, ragged):
    fed, model = ragged(1, 6, 11), flat(name)
    table = vectors(model, 3, 0)
    losses = local(model, SGD(0.1)).losses(table, held(fed, model))
    for at in (table, Pick(table, torch.tensor([2, 0, 1])), table[0]):
        gradient = local(model, SGD(0.1)).gradient(at, held(fed, model))
        for i in range(3):
            index, y = fed.train.rows(i)
            x = fed.train.pool[index].double() / 16
            module = model.make().double()
            nn.utils.vector_to_parameters(row(at, i), module.parameters())
            loss = F.cross_entropy(module(x), y)
            expected = nn.utils.parameters_to_vector(torch.autograd.grad(loss, list(module.parameters())))
            torch.testing.assert_close(gradient[i], expected, rtol=0, atol=1e-13)
            k = next(k for k in range(3) if torch.equal(table[k], row(at, i)))
            assert losses[i, k].item() == pytest.approx(loss.item(), abs=1e-13)


def test_a_client_larger_than_a_piece_is_scored_and_differentiated_whole(ragged, monkeypatch):
    fed, model = ragged(23), flat("mlp8")
    at, train = model.init(0), local(model, SGD(0.1))
    whole = train.gradient(at, held(fed, model)), train.losses(at[None], held(fed, model))
    assert IMAGES_AT_ONCE > 23
    monkeypatch.setattr("cflkit.engine.trainer.IMAGES_AT_ONCE", 5)
    pieces = train.gradient(at, held(fed, model)), train.losses(at[None], held(fed, model))
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-13)


@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 4))
def test_every_epoch_sees_every_image_once(n, size, epochs):
    found = SGD(0.1, epochs=epochs, batch_size=size).batches(n, np.random.default_rng(0))
    per_epoch = -(-n // size)
    assert len(found) == epochs * per_epoch
    for e in range(epochs):
        epoch = found[e * per_epoch : (e + 1) * per_epoch]
        assert sorted(np.concatenate(epoch)) == list(range(n))
        assert all(len(batch) == size for batch in epoch[:-1])


@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 30))
def test_steps_are_the_first_batches_of_as_many_epochs_as_it_takes(n, size, steps):
    found = SGD(0.1, batch_size=size, steps=steps).batches(n, np.random.default_rng(0))
    long = SGD(0.1, batch_size=size, epochs=steps).batches(n, np.random.default_rng(0))
    assert len(found) == steps
    assert all(np.array_equal(a, b) for a, b in zip(found, long, strict=False))


def test_full_batches_keep_the_order_of_images_and_epochs_differ():
    assert [b.tolist() for b in SGD(0.1, epochs=2).batches(3, np.random.default_rng(0))] == [[0, 1, 2]] * 2
    assert len(SGD(0.1, steps=5, epochs=2).batches(3, np.random.default_rng(0))) == 5
    first, second = SGD(0.1, epochs=2, batch_size=50).batches(50, np.random.default_rng(0))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("make", [Dropping, partial(models.build, "mlp8", (1, 8, 8), 10)])
def test_randomness_belongs_to_seed_round_and_client_alone(make, ragged):
    fed, model = ragged(9, 9, 9), Model(make)
    sgd, start = SGD(0.1, epochs=2, batch_size=4), model.init(0)
    train = Tensors(model, sgd, SEED, ROUND)
    once = train.sgd(start, held(fed, model))
    torch.manual_seed(123)  # the global generator plays no part, and is left alone
    before = torch.get_rng_state()
    assert torch.equal(once, train.sgd(start, held(fed, model)))  # two passes in a round see the same batches
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(once[[2, 0]], train.sgd(start, held(fed, model, [2, 0])))
    for other in (Tensors(model, sgd, SEED, ROUND + 1), Tensors(model, sgd, SEED + 1, ROUND)):
        assert not (other.sgd(start, held(fed, model)) == once).all(1).any()
    twins = Data(fed.train.take([0, 0]), [0, 1], Pixels(fed, model), 10)
    assert torch.equal(*train.sgd(start, twins)) is False  # clients draw their batches apart,
    a, b = Tensors(model, SGD(0.1, epochs=2), SEED, ROUND).sgd(start, twins)
    assert torch.equal(a, b) is not model.draws  # and their dropout


def test_other_labels_are_trained_on_by_who_has_kept_the_images(ragged):
    fed, model = ragged(9, 5), flat("mlp8")
    data, sgd, found = held(fed, model), SGD(0.1, epochs=2, batch_size=4), {}
    for trainer in ("lean", "shared"):
        train = local(model, sgd, trainer)
        train.sgd(model.init(0), data)
        found[trainer] = train.sgd(model.init(0), data.relabelled(lambda i, y: (y + 1) % 10))
    torch.testing.assert_close(found["shared"], found["lean"], rtol=0, atol=1e-12)


# ---------------------------------------------------------------------- when something goes wrong
def _fails_for(n):
    def objective(module, x, y):
        if len(y) == n:
            raise RuntimeError("broken")
        return F.cross_entropy(module(x), y)

    return objective


def test_debug_names_client_round_and_batch(ragged):
    fed, model = ragged(8, 9), flat("mlp8")
    train = local(model, SGD(0.1, batch_size=4), debug=True)
    with pytest.raises(RuntimeError, match="broken") as caught:  # client 1's third batch is a single image
        train.sgd(model.init(0), held(fed, model), objective=_fails_for(1))
    assert caught.value.__notes__ == ["in client 1, round 7, batch 2"]
    with pytest.raises(RuntimeError, match="broken") as caught:
        local(model, SGD(0.1, batch_size=4)).sgd(model.init(0), held(fed, model), objective=_fails_for(1))
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize("trainer", ["lean", "stacked"])
def test_debug_refuses_a_loss_that_is_not_finite(trainer, ragged):
    fed, model = ragged(8, 9), flat("mlp8")
    start = vectors(model, 2, 0)
    start[1] *= torch.inf
    with pytest.raises(FloatingPointError, match=r"^loss = nan: must be finite\n") as caught:
        local(model, SGD(0.1, batch_size=4), trainer, debug=True).sgd(start, held(fed, model))
    assert caught.value.__notes__ == ["in client 1, round 7, batch 0"]


def test_a_span_must_not_cut_a_parameter(ragged):
    fed, model = ragged(3), flat("mlp8")
    for trainer in ("lean", "stacked"):
        with pytest.raises(ValueError, match=r"^span = slice\(0, 5, None\): must be made of whole parameters$"):
            local(model, SGD(0.1), trainer).sgd(
                model.init(0), held(fed, model), [Prox(1.0, model.init(1), slice(0, 5))]
            )
