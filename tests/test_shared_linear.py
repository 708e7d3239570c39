"""The shared linear layer computes what training every client's own layer computes."""


from functools import partial

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import local, optimisers, sizes, told
from torch import nn

from cflkit import federation, images, methods
from cflkit.engine.fast import shared_linear
from cflkit.engine.fast.shared_linear import Factored
from cflkit.engine.memory import Memory
from cflkit.engine.rows import Dense, Pick, Rows
from cflkit.engine.sgd import SGD, Prox
from cflkit.engine.simulation import simulate
from cflkit.models.flat import Model
from cflkit.models.networks import build

SHAPE, CLASSES = (1, 4, 4), 3
Chunk = partial(tiny.Chunk, shape=SHAPE, classes=CLASSES)


def model_of(name):
    deep = {"deep": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(),
                                          nn.Linear(5, CLASSES))}  # fmt: skip
    return Model(deep.get(name) or (lambda: build(name, SHAPE, CLASSES)))


def table(model, k, seed=0):
    return torch.stack([model.init(seed + j) for j in range(k)])


@settings(max_examples=30)
@given(st.data(), st.sampled_from(["linear", "mlp5", "deep"]), optimisers, sizes)
def test_equals_the_lean_path(data, name, optimiser, sizes):
    model, chunk, m = model_of(name), Chunk(sizes), len(sizes)
    layers = [] if name == "linear" else [model.head, slice(0, model.head.start)]
    start, prox, _ = data.draw(told(model, m, *layers))
    lean, found = (local(model, optimiser, trainer).sgd(start, chunk, prox) for trainer in ("lean", "shared"))
    assert isinstance(found, Factored) and not isinstance(lean, Factored)
    for i in range(m):
        assert (found.row(i) - lean.row(i)).abs().max() <= 1e-10
    index, weights = torch.arange(m) % 2, torch.rand(m, generator=torch.Generator().manual_seed(0)).double()
    expected = Rows([lean]).mean_by(index, 3, weights=weights)
    assert (Rows([found]).mean_by(index, 3, weights=weights) - expected).abs().max() <= 1e-10
    assert (found.dense() - lean.dense()).abs().max() <= 1e-10


@pytest.mark.parametrize("name", ["linear", "mlp5", "deep"])
def test_losses_and_gradients(name):
    model, data = model_of(name), Chunk([3, 1, 6])
    rows = table(model, 3)
    lean, shared = (local(model, SGD(0.1), t) for t in ("lean", "shared"))
    before = shared.losses(rows, data)
    assert (before - lean.losses(rows, data)).abs().max() <= 1e-12
    at = Pick(rows, torch.tensor([2, 0, 2]))
    assert (shared.gradient(at, data).dense() - lean.gradient(at, data).dense()).abs().max() <= 1e-12
    assert torch.equal(shared.losses(rows, data), before)  # products are kept, and nobody wrote into them
    rows.mul_(2)  # a change in place is noticed
    assert (shared.losses(rows, data) - lean.losses(rows, data)).abs().max() <= 1e-12


def trained(sizes=(3, 2, 4)):
    model, data = model_of("mlp5"), Chunk(list(sizes))
    optimiser, start = SGD(0.1, epochs=3), model.init(0)
    return tuple(local(model, optimiser, t).sgd(start, data) for t in ("shared", "lean")), start


def test_factors_look_like_rows():
    (found, lean), _ = trained()
    for name in ("dtype", "device", "floats"):
        assert getattr(found, name) == getattr(lean, name)
    assert tuple(found.shape) == tuple(lean.shape)
    for ours, theirs in zip(found, lean, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    whole = lean.dense()
    found.row(0).mul_(3)  # a row is built for whoever asks
    torch.testing.assert_close(found.dense(), whole, rtol=0, atol=1e-12)


def test_rows_of_factors_equal_rows_of_vectors():
    (found, lean), _ = trained()
    (more, more_lean), _ = trained((2, 2))
    rows, dense = Rows([found, more]), Rows([lean, more_lean])
    for look in (
        lambda r: r[3], lambda r: r[[0, 4]], lambda r: torch.stack(list(r)), lambda r: r.mean(torch.arange(5.0)),
        lambda r: r.mean_by(torch.tensor([0, 2, 0, 1, 1]), 4, keep=torch.ones(4, lean.shape[1]).double()),
        lambda r: r.gram(), lambda r: r.products(lean.dense()[1:]), lambda r: r.dense(),
    ):  # fmt: skip
        torch.testing.assert_close(look(rows), look(dense), rtol=0, atol=1e-11)
    memory = Memory()
    memory.put("personal", 0, rows[0], 1)
    torch.testing.assert_close(memory.get("personal", 0), lean.row(0), rtol=0, atol=1e-12)


def test_a_vector_without_direction_becomes_zero():
    model, data = model_of("linear"), Chunk([3, 2])
    gradient = local(model, SGD(0.1), "shared").gradient(model.init(0), data)
    gradient.a[:3] = 0
    assert gradient.unit().dense().norm(dim=1).tolist() == pytest.approx([0, 1])
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0], [torch.nan, 1.0]])
    assert Dense(rows).unit().dense().tolist() == [[0, 0], pytest.approx([0.6, 0.8]), [0, 0]]


def test_gram_over_several_blocks(monkeypatch):
    monkeypatch.setattr("cflkit.engine.rows.BLOCK", (2, 3))
    monkeypatch.setattr("cflkit.engine.rows.SLAB_BLOCKS", 2)
    x = torch.randn(7, 10, dtype=torch.float64)
    torch.testing.assert_close(Rows([x[:4], x[4:]]).gram(), x @ x.T)
    assert torch.equal(Rows([x[:4], x[4:]]).gram(), Rows([x]).gram())


def test_a_start_changed_while_in_use_is_refused():
    (found, _), start = trained()
    start.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        Rows([found]).mean()


def test_what_is_not_supported_trains_lean():
    model, data = model_of("mlp5"), Chunk([3, 2])
    start, optimiser = model.init(0), SGD(0.1, epochs=2)
    weight_only = slice(0, model.spans["hidden.weight"].stop)
    half = [Prox(1.0, start, weight_only)]
    shared, lean = (local(model, optimiser, t) for t in ("shared", "lean"))
    for terms in ({"prox": half}, {"shift": start}, {"objective": lambda net, x, y: net(x).square().mean()}):
        assert torch.equal(shared.sgd(start, data, **terms).dense(), lean.sgd(start, data, **terms).dense())
    tied = nn.Linear(16, 16)
    for net in (
        nn.Sequential(nn.Flatten(), nn.Linear(16, 3, bias=False)),
        nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 3)),
        nn.Sequential(nn.Flatten(), tied, nn.ReLU(), tied),
        build("lenet", (1, 16, 16), 3),
    ):
        assert shared_linear.layers(net) is None


def test_auto_takes_it_where_it_pays():
    model = model_of("mlp5")

    def took(sizes, **settings):
        return isinstance(local(model, SGD(0.1, **settings), "auto").sgd(model.init(0), Chunk(sizes)), Factored)

    assert took([8, 8], epochs=2) and took([8, 7], batch_size=4)
    assert not took([8, 8], epochs=1)  # a single step
    assert not took([9, 9], epochs=3)  # more images than half of 16 pixels
    assert took([16, 16], epochs=4)  # four passes
    assert not took([17, 17], epochs=4)  # more images than pixels
    assert not took([16, 16], epochs=4, steps=2, batch_size=4)  # steps in place of passes
    assert not isinstance(local(model, SGD(0.1, epochs=4), "auto").gradient(model.init(0), Chunk([9])), Factored)


@pytest.mark.parametrize("method", [
    methods.FedAvg(), methods.FedProx(mu=0.1), methods.Ditto(), methods.IFCA(k=2), methods.StoCFL(tau=0.3),
    methods.StoCFL(tau=0.3, global_update="chained", fingerprint="displacement", prox_centre="theta_start"),
], ids=lambda m: f"{m.name}-{getattr(m, 'global_update', '')}")  # fmt: skip
def test_whole_runs_agree(method):
    fed = federation.rotated(images.load("digits"), clients=40)
    common = {"model": "mlp16", "local": SGD(0.1, epochs=3), "rounds": 3, "participation": 0.25, "progress": False}
    lean = simulate(method, fed, trainer="lean", **common)
    for chunk in (4, 32):
        shared = simulate(method, fed, trainer="shared", chunk=chunk, **common)
        for name, value in lean.server.items():
            if torch.is_tensor(value):
                torch.testing.assert_close(shared.server[name], value, rtol=0, atol=1e-9)
        for ours, theirs in zip(shared.rounds, lean.rounds, strict=True):
            assert ours == {k: pytest.approx(v, abs=1e-9, nan_ok=True) for k, v in theirs.items()}
