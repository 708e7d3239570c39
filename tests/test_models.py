"""The networks against their printed sizes and what the package relies on; and models as flat vectors."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils.flop_counter import FlopCounterMode

from cflkit.models import networks as models
from cflkit.models.flat import Model

GREY, RGB = (1, 28, 28), (3, 32, 32)
# name, shape, classes, trainable parameters, forward MFLOP a sample (a multiply-add is 2)
PAPERS = [
    ("linear", GREY, 10, 7_850, 0.0157), ("mlp200", GREY, 10, 159_010, 0.318),
    ("mlp2048", GREY, 10, 1_628_170, 3.25), ("mlp32", (1, 8, 8), 10, 2_410, 0.0047),
    ("lenet", GREY, 10, 61_706, 0.833), ("lenet", RGB, 10, 62_006, 1.3), ("lenet", RGB, 100, 69_656, 1.32),
    ("lenet_unpadded", GREY, 10, 44_426, 0.563), ("cnn_femnist_stocfl", GREY, 62, 1_206_590, 24),
    ("leaf_femnist", GREY, 62, 6_603_710, 34.4), ("femnist_248", GREY, 62, 845_510, 22.9),
    ("leaf_celeba", (3, 84, 84), 2, 31_202, 55.1), ("leaf_celeba_running", (3, 84, 84), 2, 31_202, 55.1),
    ("resnet18", RGB, 10, 11_173_962, 1110), ("resnet18_tv", RGB, 10, 11_181_642, 74),
    ("mobilenetv2", RGB, 10, 2_296_922, 182), ("mobilenetv2_tv", RGB, 10, 2_236_682, 12.2),
]
SHAPES = {name: (shape, classes) for name, shape, classes, *_ in PAPERS}


@pytest.mark.parametrize(("name", "shape", "classes", "count", "mflop"), PAPERS)
def test_each_network_has_its_printed_size_cost_and_decision_layer(name, shape, classes, count, mflop):
    net = models.build(name, shape, classes).eval()
    assert sum(p.numel() for p in net.parameters()) == count
    with FlopCounterMode(display=False) as counter:
        logits = net(torch.zeros(1, *shape))
    assert logits.shape == (1, classes)
    assert counter.get_total_flops() == pytest.approx(1e6 * mflop, rel=0.01)

    *_, (weight, w), (bias, b) = net.named_parameters()
    layer = net.get_submodule(weight.rpartition(".")[0])
    assert isinstance(layer, nn.Linear)
    assert layer.weight is w and layer.bias is b and bias.endswith("bias")
    last = []
    layer.register_forward_hook(lambda *call: last.append(call[-1]))
    assert net(torch.zeros(1, *shape)) is last[0]  # its output is the logits: nothing comes after it


def test_every_name_is_checked_above():
    assert set(models.names()) == set(SHAPES) - {"mlp32"}


@pytest.mark.parametrize("name", models.names())
def test_every_network_runs_in_float64_and_stacked_under_vmap(name):
    shape, classes = SHAPES[name]
    nets = [models.build(name, shape, classes).double().eval() for _ in range(2)]
    x = torch.rand(2, 2, *shape, dtype=torch.float64)
    params, buffers = torch.func.stack_module_state(nets)
    stacked = vmap(lambda p, b, xi: functional_call(nets[0], (p, b), (xi,)))(params, buffers, x)
    apart = torch.stack([net(xi) for net, xi in zip(nets, x, strict=True)])
    assert stacked.dtype == torch.float64
    torch.testing.assert_close(stacked, apart, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["cnn_femnist_stocfl", "leaf_celeba_running", "mobilenetv2", "resnet18"])
def test_training_mode_differentiates_under_vmap_and_moves_running_statistics(name):
    shape = (3, 16, 16)
    nets = [models.build(name, shape) for _ in range(2)]
    params, buffers = torch.func.stack_module_state(nets)
    before = {key: value.clone() for key, value in buffers.items()}
    x, y = torch.rand(2, 4, *shape), torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]])

    def loss(p, b, xi, yi):
        return nn.functional.cross_entropy(functional_call(nets[0], (p, b), (xi,)), yi)

    gradient = vmap(grad(loss), randomness="different")(params, buffers, x, y)
    assert all(g.isfinite().all() for g in gradient.values())
    assert all(b.is_floating_point() and not torch.equal(b, before[key]) for key, b in buffers.items())


@pytest.mark.parametrize("name", models.names())
def test_the_least_shape_works_and_one_pixel_less_is_refused_in_one_line(name):
    least, _ = models._NETS[name]
    for channels in (1, 3):
        net = models.build(name, (channels, least, least + 1), 2)
        assert net(torch.rand(4, channels, least, least + 1)).shape == (4, 2)
    with pytest.raises(ValueError, match=rf"^shape = .*at least {least} x {least} pixels for {name}$"):
        models.build(name, (1, least + 1, least - 1), 2)


@pytest.mark.parametrize("side", range(5, 70))
def test_lenet_fits_every_side(side):
    assert models.build("lenet", (1, side, side), 3)(torch.rand(2, 1, side, side)).shape == (2, 3)


REFUSED = [(name, {}, rf"name = '{name}': must be one of linear, .*, or mlp<width>")
           for name in ("", "LeNet", "mlp", "mlp0", "mlp-3", "mlp<width>", "mlp32x")]  # fmt: skip
REFUSED += [("linear", {"shape": shape}, r"shape = .*: must be \(channels, height, width\).*")
            for shape in ((28, 28), (0, 28, 28), (1, 1, 28, 28))]  # fmt: skip
REFUSED += [("linear", {"classes": 1}, "classes = 1: must be at least 2")]


@pytest.mark.parametrize(("name", "options", "line"), REFUSED)
def test_what_cannot_be_built_is_refused(name, options, line):
    with pytest.raises(ValueError, match=f"^{line}$"):
        models.build(name, **options)


def test_stocfl_femnist_starts_from_xavier_and_drops_half_in_training_only():
    net = models.build("cnn_femnist_stocfl", GREY, 62)
    bound = (6 / (64 * 12 * 12 + 128)) ** 0.5  # Glorot & Bengio 2010, Equation 16
    assert 0.99 * bound < net.fc.weight.abs().max() <= bound
    x = torch.rand(2, *GREY)
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))


def test_leaf_celeba_normalises_by_the_batch_and_the_running_variant_does_not():
    x = torch.rand(4, 3, 32, 32)
    leaf, running = (models.build(f"leaf_celeba{kind}", x.shape[1:], 2).eval() for kind in ("", "_running"))
    assert not list(leaf.buffers())
    assert not torch.allclose(leaf(x)[:2], leaf(x[:2]), atol=1e-4)
    torch.testing.assert_close(running(x)[:2], running(x[:2]))


def test_the_cifar_mobilenet_projects_exactly_where_channels_change_at_stride_one():
    net = models.build("mobilenetv2", RGB)
    projecting = [m.shortcut[-1].num_features for m in net.modules() if hasattr(m, "shortcut")]
    assert projecting == [16, 24, 96, 320]


# ---------------------------------------------------------------------- as flat vectors
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
    assert model.spans == {"hidden.weight": slice(0, 12), "hidden.bias": slice(12, 15),
                           "decision.weight": slice(15, 21), "decision.bias": slice(21, 23)}  # fmt: skip
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
