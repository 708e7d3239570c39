"""The convolutional networks' faster paths compute what PyTorch computes."""

from functools import cache, partial

import pytest
import tiny
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from tiny import Tensors, optimisers, sizes, told

from cflkit.engine.fast import convolution, trainers
from cflkit.engine.fast.convolution import quick
from cflkit.engine.local import Local
from cflkit.engine.rows import Pick
from cflkit.engine.sgd import SGD, Prox
from cflkit.models import networks as models
from cflkit.models.flat import Model

SHAPE, CLASSES = (1, 8, 8), 3
Chunk = partial(tiny.Chunk, shape=SHAPE, classes=CLASSES)


@cache
def flat(name, shape=SHAPE, dtype=torch.float64):
    return Model(partial(models.build, name, shape, CLASSES), dtype, quicken=quick)


def leaf(dtype=torch.float64):
    return Model(lambda: models.LeafFemnist(SHAPE, CLASSES, width=80), dtype, quicken=quick)


def local(model, optimiser, trainer, **settings):
    return Tensors(model, optimiser, 1, 1, trainers(trainer, **settings))


@pytest.fixture(autouse=True)
def small_layers_count(monkeypatch):
    monkeypatch.setattr(convolution, "LARGE", 0)


@pytest.fixture
def lockstep(monkeypatch):
    """Count the clients that train in lock-step, group by group."""
    seen = []
    plain = convolution._lockstep

    def counted(*args):
        seen.append(args[2])
        return plain(*args)

    monkeypatch.setattr(convolution, "_lockstep", counted)
    return seen


@given(st.data(), st.sampled_from(["leaf", "lenet"]), optimisers, sizes)
def test_equals_the_lean_path(data, name, optimiser, sizes):
    model, chunk = leaf() if name == "leaf" else flat("lenet"), Chunk(sizes)
    start, prox, _ = data.draw(told(model, len(sizes), model.head, slice(0, model.head.start)))
    lean, auto = (local(model, optimiser, trainer).sgd(start, chunk, prox) for trainer in ("lean", "auto"))
    assert (auto - lean).abs().max() <= 1e-10


@pytest.mark.parametrize("momentum", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
@pytest.mark.parametrize("pull", [0.0, 0.5])
def test_many_batches_run_in_lockstep(momentum, pull, lockstep, monkeypatch):
    monkeypatch.setattr(convolution, "CLIENTS_TOGETHER", 2)
    model, data = leaf(), Chunk([5, 21, 3, 4])  # the second sees 42 rows, more than half of 80
    optimiser, start = SGD(0.1, epochs=2, batch_size=2, weight_decay=0.1, **momentum), model.init(3)
    trainer = local(model, optimiser, "auto")
    found = trainer.sgd(start, data, [Prox(pull, start)])
    assert lockstep == [[0, 2], [3]]
    lean = local(model, optimiser, "lean").sgd(start, data, [Prox(pull, start)])
    assert (found - lean).abs().max() <= 1e-10 and (found - start).abs().amax(1).min() > 1e-3


def uploaded(model, start):
    """What the trainer of factors brings back: the second client's vector whole, the others' not."""
    optimiser = SGD(0.1, epochs=2, batch_size=2, momentum=0.5)
    return Local(model, optimiser, 1, 1, [convolution.DenseFactors(quick=True)]).sgd(start, Chunk([5, 21, 3, 4]))


def test_uploads_are_factors_until_they_are_looked_at():
    model = leaf()
    start = Pick(torch.stack([model.init(0), model.init(1)]), torch.tensor([0, 1, 1, 0]))
    whole, groups, weights = uploaded(model, start).dense(), [1, 0, 1, 1], [0.5, 2.0, 1.0, 3.0]
    expected = torch.zeros(2, model.size, dtype=torch.float64)
    for vector, group, weight in zip(whole, groups, weights, strict=True):
        expected[group] += weight * vector
    kept = uploaded(model, start)
    assert [f is None for f in kept.factors] == [False, True, False, False]
    total = kept.zeros(2)
    kept.add_to(total, groups, weights)
    assert (total - expected).abs().max() <= 1e-12
    for span in (slice(0, kept.layer.start), slice(kept.layer.stop, model.size)):
        assert torch.equal(kept.columns(span), whole[:, span])
    assert kept.factors.count(None) == 1  # nothing had to be built so far
    assert torch.equal(kept.row(0), whole[0]) and kept.factors.count(None) == 2
    total = kept.zeros(2)
    kept.add_to(total, groups, weights)
    assert (total - expected).abs().max() <= 1e-12
    edge = slice(kept.layer.start - 5, kept.layer.start + 50)
    assert torch.equal(kept.columns(edge), whole[:, edge]) and kept.factors.count(None) == 4
    assert (uploaded(model, start).unit().dense() - whole / whole.norm(dim=1, keepdim=True)).abs().max() <= 1e-12
    kept = uploaded(model, start)
    start.table.mul_(2)
    with pytest.raises(RuntimeError, match="changed in place"):
        kept.row(0)


def test_what_is_not_supported_trains_lean(lockstep):
    model, data = leaf(), Chunk([3, 2])
    start, other, optimiser = model.init(0), model.init(1), SGD(0.1, epochs=2, batch_size=2)
    weight = model.spans["fc.weight"]  # without its bias
    cases = [{"prox": [Prox(1.0, other)]}, {"prox": [Prox(1.0, start, weight)]}, {"shift": other},
             {"objective": lambda net, x, y: net(x).square().mean()}]  # fmt: skip
    for case in cases:
        lean, auto = (local(model, optimiser, trainer).sgd(start, data, **case) for trainer in ("lean", "auto"))
        assert (auto - lean).abs().max() <= 1e-10
    debug = local(model, optimiser, "auto", debug=True).sgd(start, data)
    assert torch.equal(debug, local(model, optimiser, "lean").sgd(start, data))
    assert lockstep == []


@pytest.mark.parametrize("name", ["lenet", "leaf_femnist", "cnn_femnist_stocfl", "leaf_celeba",
                                  pytest.param("resnet18", marks=pytest.mark.slow)])  # fmt: skip
def test_single_precision(name):
    shape = (3, 16, 16)
    exact, single = flat(name, shape), flat(name, shape, torch.float32)
    x, start = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0)), exact.init(0)
    y = torch.tensor([0, 1, 2, 0])
    with torch.no_grad():
        torch.testing.assert_close(single.forward(start.float(), x).double(), exact.forward(start, x.double()),
                                   rtol=1e-3, atol=1e-4)  # fmt: skip
    gradients = []
    for model in (exact, single):
        module = model.bound(start.clone().to(model.dtype), quick=model is single).eval()
        loss = F.cross_entropy(module(x.to(model.dtype)), y)
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]))
    one, two = gradients
    assert (two.double() - one).norm() <= 1e-3 * one.norm()


def test_quick_changes_the_copy_alone():
    net = models.build("lenet", SHAPE, CLASSES)
    assert quick(models.build("lenet", SHAPE, CLASSES))._forward_pre_hooks and not net._forward_pre_hooks
    x = torch.randn(2, *SHAPE, requires_grad=True)  # images may be searched for, too
    expected = torch.autograd.grad(net(x).sum(), x)[0]
    assert torch.allclose(torch.autograd.grad(quick(net)(x).sum(), x)[0], expected, atol=1e-6)
