"""Models as flat vectors."""

from functools import partial

import pytest
import torch
from torch import nn

from cflkit import models
from cflkit.models.flat import Model

mlp = partial(models.build, "mlp3", (1, 2, 2), 2)  # 3 x 4 + 3 + 2 x 3 + 2 = 23 numbers


class Normed(nn.Module):
    """Buffers of three kinds between parameters: running statistics, a constant, a counter."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("constant", torch.tensor([7.0]))
        self.decision = nn.Linear(4, 2)

    def forward(self, x):
        return self.decision(self.norm(x.flatten(1))) + self.constant


def test_layout_by_hand():
    model = Model(mlp)
    assert (model.size, model.trainable) == (23, 23)
    assert model.spans == {
        "hidden.weight": slice(0, 12),
        "hidden.bias": slice(12, 15),
        "decision.weight": slice(15, 21),
        "decision.bias": slice(21, 23),
    }
    assert model.head == model.span("decision") == slice(15, 23)
    assert model.span("hidden.") == slice(0, 15) and model.span("hidden.bias") == slice(12, 15)
    assert model.span("") == slice(0, 23)
    views = model.views(torch.arange(23.0))
    assert views["hidden.weight"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert views["decision.bias"].tolist() == [21, 22]


def test_buffers_come_last_and_counters_not_at_all():
    model = Model(Normed)
    assert model.parameters == ["norm.weight", "norm.bias", "decision.weight", "decision.bias"]
    assert model.carried == ["constant", "norm.running_mean", "norm.running_var"]
    assert (model.size, model.trainable) == (18 + 9, 18)
    assert list(model.spans) == model.parameters + model.carried
    assert model.init(0)[18:].tolist() == [7, 0, 0, 0, 0, 1, 1, 1, 1]
    assert not model.draws


@pytest.mark.parametrize("prefix", ["nothing", "running", "norm.running", "a"])
def test_a_span_must_exist_in_one_piece(prefix):
    split = Model(lambda: nn.ModuleDict({name: nn.Linear(1, 1) for name in ("a1", "b", "a2")}))
    with pytest.raises(ValueError, match=rf"^prefix = '{prefix}': must name neighbouring parameters, among \["):
        (split if prefix == "a" else Model(Normed)).span(prefix)


@pytest.mark.parametrize("make", [mlp, Normed, partial(models.build, "lenet", (1, 8, 8), 10)])
def test_initial_vectors_are_the_modules_own_and_a_function_of_the_seed(make):
    model = Model(make)
    state = torch.get_rng_state()
    first = model.init(5)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first, model.init(5)) and torch.equal(first, Model(make).init(5))
    assert not torch.equal(first, model.init(6))
    torch.manual_seed(5)
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        module = make()
    finally:
        torch.set_default_dtype(previous)
    assert torch.equal(first[: model.trainable], nn.utils.parameters_to_vector(module.parameters()))


def test_views_and_bound_modules_share_the_vectors_memory():
    model = Model(Normed)
    vector = model.init(0)
    views, module = model.views(vector), model.bound(vector)
    named = dict(module.named_parameters()) | dict(module.named_buffers())
    for name, view in views.items():
        assert view.data_ptr() == named[name].data_ptr() == vector[model.spans[name]].data_ptr()
    vector[model.head] = 3.0
    assert module.decision.weight.unique().tolist() == [3.0]
    with torch.no_grad():
        module.norm.weight.fill_(2.0)
    assert vector[:4].tolist() == [2.0] * 4
    module.train()(torch.rand(5, 4, dtype=torch.float64))  # a forward pass in training moves the statistics
    assert (vector[19:23] > 0).all()


@pytest.mark.parametrize("make", [mlp, Normed])
def test_forward_is_the_modules_in_evaluation_mode(make):
    model = Model(make)
    x = torch.rand(6, 1, 2, 2, dtype=torch.float64)
    a, b = model.init(1), model.init(2)
    before = a.clone()
    module = model.bound(b.clone())
    assert not torch.equal(model.forward(a, x), model.forward(b, x))
    assert torch.equal(model.forward(b, x), module.eval()(x))
    torch.testing.assert_close(model.forward(b, x[:1])[0], module(x)[0], rtol=0, atol=1e-14)
    assert torch.equal(a, before)  # nothing moved
