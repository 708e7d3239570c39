"""Compiled kernels compute what PyTorch computes, in one order, and only trusted code is loaded."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from tiny import Chunk, optimisers, told
from torch import nn

from cflkit import IFCA, models, simulate
from cflkit.engine import fast
from cflkit.engine.fast import compiled, convolution
from cflkit.engine.fast.compiled import Compiled, Kernels, library
from cflkit.engine.fast.compiled.library import kernels_of
from cflkit.engine.fast.plan import TILES, Conv, plan_of
from cflkit.engine.local import Local
from cflkit.engine.sgd import SGD, Prox
from cflkit.engine.trainer import Trainer, Work
from cflkit.models.flat import Model

needs_llvm = pytest.mark.skipif(compiled.missing() is not None, reason=str(compiled.missing()))
CLASSES = 5
POOLS = {"max": nn.MaxPool2d, "mean": nn.AvgPool2d}


@pytest.fixture(autouse=True, scope="module")
def cache_folder(tmp_path_factory):
    """A cache folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache", numbered=True)))
        yield


def network(parts, shape, dtype=torch.float64, seed=0):
    """A Sequential of layers given in short: (filters, kernel, padding, relu, pool) or (units, relu).

    `pool` is "max", "mean" or "".
    """
    if dtype is not None:  # else a Model makes it, and has set both
        torch.manual_seed(seed)
    found, (c, h, w), flat = [], shape, False
    for part in parts:
        if len(part) == 5:
            filters, kernel, padding, relu, pool = part
            conv = nn.Conv2d(c, filters, kernel, padding=padding)
            found += [conv] + [nn.ReLU()] * relu + ([POOLS[pool](2)] if pool else [])
            sides = zip((h, w), conv.padding, conv.kernel_size, strict=True)
            h, w = ((side + 2 * p - k + 1) // (2 if pool else 1) for side, p, k in sides)
            c = filters
            if min(h, w) < 1:
                raise ValueError("a kernel is larger than the image")
        else:
            units, relu = part
            found += [nn.Flatten()] * (not flat) + [nn.Linear(c * h * w, units)] + [nn.ReLU()] * relu
            (c, h, w), flat = (units, 1, 1), True
    return nn.Sequential(*found) if dtype is None else nn.Sequential(*found).to(dtype)


def vector(net):
    return nn.utils.parameters_to_vector(net.parameters()).detach().clone()


def images(n, shape, dtype=torch.float64, seed=0, classes=CLASSES):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *shape, generator=g, dtype=torch.float64).to(dtype)
    return x, torch.randint(classes, (n,), generator=g)


def gradient(net, x, y):
    return torch.cat([g.flatten() for g in torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters()))])


def with_tiles(plan, winograd=True):
    """The plan with Winograd's products wherever there can be some, or nowhere."""
    if not winograd:
        return plan.plain()
    layers = (replace(layer, tile=TILES.get(layer.kernel[1], 1)) if isinstance(layer, Conv) else layer
              for layer in plan.layers)  # fmt: skip
    return replace(plan, layers=tuple(layers))


@cache
def kernels(net_shape, dtype=torch.float64, machine=0, winograd=False):
    parts, shape = net_shape
    plan = with_tiles(plan_of(network(parts, shape), shape), winograd)
    return Kernels(plan, dtype, library.machines()[machine])


def small(filters, other, pool):
    return ((filters, 3, 1, True, pool), (other, (2, 3), (0, 1), True, ""), (9, True), (CLASSES, False)), (2, 6, 7)


SMALL, SMALL_MEANS = (small(4, 7, pool) for pool in ("max", "mean"))
# filters for whole vectors: here the lanes are channels
WIDE, WIDE_MEANS = (small(32, 16, pool) for pool in ("max", "mean"))
KINDS = {"images": SMALL, "channels": WIDE, "images, means": SMALL_MEANS, "channels, means": WIDE_MEANS}
every = pytest.mark.parametrize(("net_shape", "winograd"), [
    pytest.param(net_shape, winograd, id=f"{name}{', tiles' * winograd}",
                 marks=[pytest.mark.slow] * ("means" in name))
    for name, net_shape in KINDS.items() for winograd in (False, True)
])  # fmt: skip


# ---------------------------------------------------------------------- what a plan is made of
@pytest.mark.parametrize("name", ["lenet", "lenet_unpadded", "leaf_femnist", "femnist_248"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_our_networks_are_lists_of_layers(name, shape):
    net = models.build(name, shape, 10)
    x, _ = images(2, shape, torch.float32)
    assert torch.equal(nn.Sequential(*net.layers())(x), net(x))
    found = plan_of(net, shape)
    assert found.size == sum(p.numel() for p in net.parameters()) and found.outputs == 10
    ends = np.cumsum([p.numel() for p in net.parameters()])
    assert [layer.bias for layer in found.layers] == ends[::2].tolist()


@pytest.mark.parametrize(("filters", "kernel", "padding", "wide"), [
    ((16, 32), 3, 1, True), ((16, 24), 3, 1, False), ((6, 16), 3, 1, False), ((16, 16), (3, 2), (2, 2), False),
    ((16, 16), 2, 1, True), ((), 1, 0, False),
])  # fmt: skip
def test_where_channels_are_in_the_lanes(filters, kernel, padding, wide):
    parts = [*((k, kernel, padding, True, "") for k in filters), (CLASSES, False)]
    assert plan_of(network(parts, (1, 6, 6)), (1, 6, 6)).wide == wide


class Other(models.networks.LeNet):
    def forward(self, x):
        return super().forward(-x)


def _hooked():
    net = network([(CLASSES, False)], (1, 2, 2))
    net[1].register_forward_hook(lambda *_: None)
    return net


def _shared():
    layer = nn.Linear(4, 4)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer)


def _buffered():
    net = network([(CLASSES, False)], (1, 2, 2))
    net.register_buffer("scale", torch.ones(1))
    return net


def _behind(*parts, into=4):
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(into, 3))


@pytest.mark.parametrize("net", [
    _behind(nn.Conv2d(1, 4, 1, stride=2)),
    _behind(nn.Conv2d(1, 1, 2, dilation=2, padding=1)),
    _behind(nn.Conv2d(1, 1, 1, bias=False)),
    _behind(nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")),
    _behind(nn.Conv2d(2, 1, 1)),
    _behind(nn.Conv2d(1, 1, 3)),
    _behind(nn.Conv2d(1, 2, 1), nn.Conv2d(2, 2, 1, groups=2), into=8),
    _behind(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)),
    _behind(nn.Conv2d(1, 1, 1), nn.AvgPool2d(2, stride=1), into=1),
    _behind(nn.Conv2d(1, 1, 1), nn.MaxPool2d(2, stride=1), into=1),
    _behind(nn.Conv2d(1, 1, 1), nn.MaxPool2d(2, ceil_mode=True), into=1),
    _behind(nn.Conv2d(1, 1, 1), nn.MaxPool2d(2, padding=1)),
    _behind(nn.MaxPool2d(2), into=1),
    _behind(nn.ReLU()),
    _behind(into=5),
    nn.Sequential(nn.Linear(2, 3)),
    nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=False)),
    nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten()),
    nn.Sequential(nn.Flatten(), nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(4, 3)),
    nn.Linear(4, 3),
    _hooked(), _shared(), _buffered(),
], ids=lambda net: str(net).replace("\n", "")[:60])  # fmt: skip
def test_what_is_refused(net):
    assert plan_of(net, (1, 2, 2)) is None


def test_another_forward_is_not_our_network():
    assert plan_of(Other((1, 28, 28), 10, pad=True), (1, 28, 28)) is None
    extra = models.build("lenet")
    extra.more = nn.Parameter(torch.zeros(1))
    assert plan_of(extra, (1, 28, 28)) is None


# ---------------------------------------------------------------------- fewer products
@needs_llvm
@given(st.sampled_from([(2, 3), (4, 3), (2, 5), (4, 5), (3, 2)]), st.data())
def test_fewer_products_are_the_same_convolution(sizes, data):
    """Exactly, in fractions: ahead, by inputs and by the kernel; of whole tiles, and of short ones."""
    from cflkit.engine.fast.compiled.winograd import matrices, tile_of

    most, r = sizes
    m = data.draw(st.integers(1, most))
    tile = tile_of(m, most, r)
    a, b = (np.array(each, object) for each in (tile.a, tile.b))
    g = np.array(matrices(most, r)[1], object)[list(tile.numbers)]
    assert len(g) == tile.reads == m + r - 1
    kernel, inputs, slopes = (np.array(data.draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n)), object)
                              for n in (r, m + r - 1, m))  # fmt: skip
    assert list(a.T @ ((g @ kernel) * (b @ inputs))) == [kernel @ inputs[i : i + r] for i in range(m)]
    assert list(g.T @ ((b @ inputs) * (a @ slopes))) == [slopes @ inputs[v : v + m] for v in range(r)]
    by_inputs = sum(np.pad(kernel * slope, (i, m - 1 - i)) for i, slope in enumerate(slopes))
    assert list(b.T @ ((g @ kernel) * (a @ slopes))) == list(by_inputs)


@needs_llvm
@pytest.mark.parametrize("filters", [(4, 6), (16, 32)])
def test_bands_of_rows(filters, monkeypatch, tmp_path):
    """However many rows are near at once: the same bits, and the gradient. Pooling leaves odd rows out."""
    from cflkit.engine.fast.compiled import winograd

    shape = (2, 21, 12)
    parts = (filters[0], 5, 2, True, "max"), (filters[1], (2, 3), 0, True, "mean"), (CLASSES, False)
    net = network(parts, shape)
    plan, (x, y) = with_tiles(plan_of(net, shape)), images(5, shape)
    found, expected = [], gradient(net, x, y)
    for most in (1, 10**9):
        monkeypatch.setattr(winograd, "NEAR", most)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / str(most)))  # else one finds what the other has kept
        code = Kernels(plan, torch.float64, library.machines()[0])
        found.append(torch.cat([code.look(vector(net), x).flatten(), code.gradient(vector(net), x, y)]))
        assert (found[-1][-plan.size :] - expected).abs().max() <= 1e-12
    assert torch.equal(*found)


# ---------------------------------------------------------------------- against PyTorch
sides = st.integers(1, 5)


def convs(filters, sides, most):
    """Convolutions with kernels of these sides, and `most` zeros around an image or less."""
    kernel, padding = st.one_of(sides, st.tuples(sides, sides)), st.one_of(st.integers(0, most), st.just((most, 0)))
    return st.tuples(filters, kernel, padding, st.booleans(), st.sampled_from(["", "max", "mean"]))


@st.composite
def networks(draw):
    shape = draw(st.tuples(st.integers(1, 3), st.integers(3, 18), st.integers(3, 18)))
    wide = convs(st.sampled_from([16, 32, 48]), st.integers(2, 5), 1)
    inner = draw(st.one_of(st.lists(wide, min_size=1, max_size=3), st.lists(convs(sides, sides, 2), max_size=3)))
    inner += draw(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=2))
    return (*inner, (draw(st.integers(2, 20)), False)), shape


@needs_llvm
@settings(max_examples=8)
@example((((1, 2, 0, False, ""), (1, 1, (2, 0), False, ""), (2, False)), (1, 2, 3)), 1, 0, False)  # one row
@given(networks(), st.integers(1, 40), st.integers(0, 1), st.booleans())
def test_outputs_and_gradients(drawn, n, machine, winograd):
    parts, shape = drawn
    try:
        net = network(parts, shape)
    except ValueError:
        reject()
    plan = with_tiles(plan_of(net, shape), winograd)
    code = Kernels(plan, torch.float64, library.machines()[machine % len(library.machines())])
    x, y = images(n, shape, classes=parts[-1][0])
    expected = gradient(net, x, y)
    assert (code.look(vector(net), x) - net(x)).abs().max() <= 1e-12
    assert (code.gradient(vector(net), x, y) - expected).abs().max() <= 1e-12
    assert (code.gradient(vector(net), x[:1], y[:1]) - gradient(net, x[:1], y[:1])).abs().max() <= 1e-12

    by_images = x.clone().requires_grad_()
    weights = torch.linspace(-1, 2, n * parts[-1][0], dtype=torch.float64).view(n, -1)
    (weights * net(by_images)).sum().backward()
    keep = code.room(n)
    code.look(vector(net), x, keep=keep)
    assert (code.pixels(vector(net), keep, weights) - by_images.grad).abs().max() <= 1e-12
    assert (code.gradient(vector(net), x, y) - expected).abs().max() <= 1e-12  # nothing is left of the images' way


@needs_llvm
@pytest.mark.parametrize(("name", "n"), [("lenet", 96), ("femnist_248", 16)])
def test_single_precision(name, n):
    torch.manual_seed(0)
    net = nn.Sequential(*models.build(name).layers())
    x, y = images(n, (1, 28, 28), torch.float32, classes=10)
    code = kernels_of(plan_of(net, (1, 28, 28)), torch.float32)
    assert (code.look(vector(net), x) - net(x)).abs().max() <= 1e-5
    ours, theirs = code.gradient(vector(net), x, y), gradient(net, x, y)
    assert (ours - theirs).norm() <= 1e-3 * theirs.norm()  # more than rounding: pixels may tie to seven digits


@needs_llvm
@pytest.mark.parametrize("relu", [True, False])
def test_of_equal_pixels_the_first_is_taken(relu):
    parts, shape = ((3, 2, 0, relu, "max"), (CLASSES, False)), (1, 9, 8)
    net = network(parts, shape)
    with torch.no_grad():  # whole numbers: sums are exact, and many windows have several largest pixels
        for p in net[0].parameters():
            p.copy_((3 * p).round())
    x, y = images(30, shape)
    x = x.round()
    code = Kernels(plan_of(net, shape), torch.float64, library.machines()[0])
    assert (code.gradient(vector(net), x, y) - gradient(net, x, y)).abs().max() <= 1e-12
    windows = net[0](x).unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
    ties = (windows == windows.amax(-1, keepdim=True)).sum(-1) > 1
    assert (ties & (windows.amax(-1) > 0)).sum() > 20


@needs_llvm
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", ["pixel", "convolution", "dense", "decision"])
@every
def test_what_is_not_finite_passes_through(net_shape, winograd, value, place):
    """In single precision PyTorch does not multiply the zeros around an image, and wide kernels never do."""
    dtype = torch.float64 if net_shape in (SMALL, SMALL_MEANS) else torch.float32
    net, code = network(*net_shape, dtype), kernels(net_shape, dtype, winograd=winograd)
    x, y = images(18, SMALL[1], dtype, seed=2)  # in which every filter is alive in some place
    if place == "pixel":
        x[17, 1, 2, 3] = value  # the last image, which spare lanes repeat
    else:
        layer = {"convolution": net[0], "dense": net[-3], "decision": net[-1]}[place]
        with torch.no_grad():
            layer.weight.flatten()[1] = value
    w = vector(net)
    expected = net(x)
    assert not expected.isfinite().all()
    close = 1e-10 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(code.look(w, x), expected, rtol=0, atol=close, equal_nan=True)
    assert torch.equal(code.gradient(w, x, y).isfinite(), gradient(net, x, y).isfinite())
    keep, g = code.room(18), torch.zeros(code.plan.size, dtype=dtype)
    code.look(w, x, keep=keep)
    by_images = x.clone().requires_grad_()
    net(by_images).sum().backward()
    slopes = torch.ones_like(expected)
    assert torch.equal(code.pixels(w, keep, slopes).isfinite(), by_images.grad.isfinite())
    code.back(w, keep, slopes, g)
    wanted = torch.cat([p.grad.flatten() for p in net.parameters()])
    assert torch.equal(g.isfinite(), wanted.isfinite())
    # a step later everything is lost, in the same numbers
    w2, theirs = code.train(w, x, y, [np.arange(18)], SGD(0.1)), torch.optim.SGD(net.parameters(), lr=0.1)
    theirs.zero_grad()
    F.cross_entropy(net(x), y).backward()
    theirs.step()
    assert torch.equal(w2.isfinite(), vector(net).isfinite())


# ---------------------------------------------------------------------- the same bits
def trained(code, seed=0):
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(code.plan.size, dtype=torch.float64, generator=g).to(code.dtype)
    w, (x, y) = w / 10, images(40, code.plan.shape, code.dtype, seed)
    batches = SGD(0.1, batch_size=13, epochs=3).batches(40, np.random.default_rng(seed))
    return code.train(w, x, y, batches, SGD(0.1, momentum=0.9, weight_decay=0.01))


@needs_llvm
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)])
@every
def test_every_processor_gives_the_same_bits(net_shape, winograd, dtype):
    if len(library.machines()) == 1:
        pytest.skip("this processor is of one kind only")
    one, two = (kernels(net_shape, dtype, machine, winograd) for machine in (0, 1))
    assert one.lanes == 2 * two.lanes
    assert torch.equal(trained(one), trained(two))
    x, _ = images(19, SMALL[1], dtype)
    w = vector(network(*net_shape, dtype=dtype))
    assert torch.equal(one.look(w, x), two.look(w, x))


@needs_llvm
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_every_processor_gives_lenet_the_same_bits(shape):
    """Its first layer is too large to go through planes at once."""
    plan = plan_of(models.build("lenet", shape, CLASSES), shape)
    first, *others = (trained(Kernels(plan, torch.float32, machine)) for machine in library.machines())
    assert all(torch.equal(first, other) for other in others)


@needs_llvm
def test_threads_do_not_disturb_each_other():
    code = kernels(SMALL, torch.float32, winograd=True)
    alone = [trained(code, seed) for seed in range(8)]
    found = [None] * 8

    def work(seeds):
        for seed in [*seeds] * 9:
            found[seed] = trained(code, seed)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [range(i, 8, 4) for i in range(4)]))
    assert all(torch.equal(a, b) for a, b in zip(alone, found, strict=True))
    assert not torch.equal(alone[0], alone[1])


@needs_llvm
@pytest.mark.parametrize("winograd", [False, True])
@pytest.mark.parametrize("padding", [(0, 0), (2, 2), (1, 0), (0, 2)])
def test_whatever_lay_in_a_room_before(padding, winograd, monkeypatch):
    """Memory is not cleared, but for the zeros around images that a convolution counts on."""
    first, second = nn.Conv2d(2, 3, (3, 3), padding=padding), nn.Conv2d(3, 4, (2, 3), padding=padding[::-1])
    last = nn.ReLU(), nn.Flatten(), nn.LazyLinear(5)
    net = nn.Sequential(first, nn.ReLU(), nn.MaxPool2d(2), second, *last).double()
    x, _ = images(21, (2, 10, 12))
    net(x)  # tells the last layer its size
    plan = with_tiles(plan_of(net, (2, 10, 12)), winograd)
    code = Kernels(plan, torch.float64, library.machines()[0])
    by_images = x.clone().requires_grad_()
    slopes = torch.linspace(-1, 2, 105, dtype=torch.float64).view(21, 5)
    (slopes * net(by_images)).sum().backward()

    def filled(*size, dtype):
        return torch.full(size, float("nan"), dtype=dtype)

    monkeypatch.setattr(torch, "empty", filled)
    keep, g = code.room(21), torch.zeros(code.plan.size, dtype=torch.float64)
    assert (code.look(vector(net), x, keep=keep) - net(x)).abs().max() <= 1e-12
    assert (code.pixels(vector(net), keep, slopes) - by_images.grad).abs().max() <= 1e-12
    code.back(vector(net), keep, slopes, g)
    assert (g - torch.cat([p.grad.flatten() for p in net.parameters()])).abs().max() <= 1e-12
    assert code.look(vector(net), x[:0], keep=code.room(0)).shape == (0, 5)


@needs_llvm
def test_bad_input_is_refused():
    code = kernels(SMALL)
    w, (x, y) = vector(network(*SMALL)), images(4, SMALL[1])
    optimiser, batch = SGD(0.1), [np.arange(4)]
    for change, said in [
        ({"y": y - 9}, "y = "), ({"y": y.where(y > 9, CLASSES)}, "within 0..4"), ({"y": y[:3]}, r"len\(y\) = 3"),
        ({"y": y.int()}, "contiguous int64"), ({"x": x.float()}, "x = "), ({"x": x[:, :1]}, "x"),
        ({"x": x[..., :5].contiguous()}, "x.shape"), ({"w": w[:-1]}, r"len\(w\)"), ({"w": w.float()}, "w = "),
        ({"batches": [np.array([4])]}, "within 0..3"), ({"batches": [np.array([-1])]}, "within 0..3"),
        ({"batches": [np.arange(4), np.arange(0)]}, "batches"), ({"pulls": [(1.0, w[:-1], slice(0, 3))]}, "anchor"),
        ({"pulls": [(1.0, w.float(), slice(0, 3))]}, "anchor"), ({"pulls": [(1.0, w, slice(0, 999999))]}, "span"),
        ({"shift": w[:-1]}, "shift"),
    ]:  # fmt: skip
        given = {"w": w, "x": x, "y": y, "batches": batch, "optimiser": optimiser} | change
        with pytest.raises(ValueError, match=said):
            code.train(**given)


# ---------------------------------------------------------------------- what is kept
@pytest.fixture
def place(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "cflkit" / "kernels"


class Made:
    """Counts how often something is made."""

    def __init__(self, content=b"object"):
        self.times, self.content = 0, content

    def __call__(self):
        self.times += 1
        return self.content


def test_an_object_is_made_once(place):
    make = Made()
    assert library.kept("name", make) == library.kept("name", make) == b"object"
    assert make.times == 1 and [f.name for f in place.iterdir()] == ["name"]
    assert (place / "name").stat().st_mode & 0o777 == 0o600


def _damage(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def _foreign(file):
    library._write(file.with_name("other"), "other", b"of another name")
    file.with_name("other").replace(file)


def _link(file):
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


@pytest.mark.parametrize("spoil", [
    _damage, _foreign, _link, lambda f: f.write_bytes(f.read_bytes()[:-1]), lambda f: f.write_bytes(b""),
    lambda f: f.write_bytes(f.read_bytes()[:20]), lambda f: (f.unlink(), os.mkfifo(f)),
], ids=["damaged", "foreign", "link", "cut", "empty", "short", "pipe"])  # fmt: skip
def test_what_is_not_whole_is_made_anew(place, spoil):
    library.kept("name", Made(b"old"))
    spoil(place / "name")
    make = Made()
    assert library.kept("name", make) == library.kept("name", make) == b"object"
    assert make.times == 1


@pytest.mark.parametrize("above", [0, 1, 2])
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_may_write_to_is_left_alone(place, above, mode):
    library.kept("name", Made(b"planted"))
    [place, *place.parents][above].chmod(mode)
    make = Made()
    assert library.kept("name", make) == library.kept("name", make) == b"object"
    assert make.times == 2 and library._read(place / "name", "name") == b"planted"


@needs_llvm
def test_the_name_depends_on_everything(monkeypatch):
    plans = [plan_of(network(SMALL[0], shape), shape) for shape in (SMALL[1], (2, 6, 8))]
    kinds = product(plans, (torch.float32, torch.float64), library.MACHINES)
    names = {library.key(*kind) for kind in kinds}
    monkeypatch.setattr(library, "VERSION", "0")
    assert len(names) == 8 and library.key(plans[0], torch.float32, library.MACHINES[0]) not in names


# ---------------------------------------------------------------------- in the engine
def flat(make, dtype=torch.float64):
    return Model(make, dtype, look=compiled.look)


def local(model, trainers, **optimiser):
    return Local(model, SGD(0.1, **optimiser), seed=1, round=1, trainers=trainers)


@pytest.fixture
def calls(monkeypatch):
    """What the kernels were asked for."""
    seen = []
    for name in ("train", "look", "pixels", "gradient"):
        plain = getattr(Kernels, name)

        def noted(self, *args, _plain=plain, _name=name, **named):
            seen.append(_name)
            return _plain(self, *args, **named)

        monkeypatch.setattr(Kernels, name, noted)
    return seen


@needs_llvm
@settings(max_examples=10)
@given(st.data(), st.sampled_from([*KINDS.values()]), optimisers,
       st.lists(st.integers(1, 37), min_size=1, max_size=3))  # fmt: skip
def test_clients_train_as_by_the_reference(data, net_shape, optimiser, sizes):
    model, chunk, m = flat(lambda: network(*net_shape, dtype=None)), Chunk(sizes, SMALL[1], CLASSES), len(sizes)
    table = torch.stack([model.init(k) for k in range(m)])
    start, prox, shift = data.draw(told(model, m, model.head, slice(0, model.head.start)))
    sides = [Local(model, optimiser, seed=1, round=1, trainers=by) for by in ([Compiled(always=True)], [Trainer()])]
    ours, theirs = (side.sgd(start, chunk, prox, shift).dense() for side in sides)
    assert (ours - theirs).abs().max() <= 1e-12
    ours, theirs = (side.gradient(start, chunk).dense() for side in sides)
    assert (ours - theirs).abs().max() <= 1e-12
    ours, theirs = (side.losses(table, chunk) for side in sides)
    assert (ours - theirs).abs().max() <= 1e-12


@needs_llvm
def test_who_trains_what(calls, monkeypatch):
    def trained(dtype=torch.float32, parts=SMALL, name="auto", sizes=(3, 2), **settings):
        model = flat(lambda: network(*parts, dtype=None), dtype)
        calls.clear()
        found = local(model, fast.trainers(name, settings.pop("debug", False)), epochs=2).sgd(
            model.init(0), Chunk(sizes, SMALL[1], CLASSES, dtype), **settings)  # fmt: skip
        assert found.shape == (len(sizes), model.size)
        return calls.count("train")

    assert trained() == trained(name="compiled") == trained(torch.float64, name="compiled") == 2
    assert trained(torch.float64) == trained(name="lean") == trained(debug=True) == 0
    assert trained(objective=lambda net, x, y: net(x).square().mean()) == 0
    flat_ones = ((9, True), (CLASSES, False)), SMALL[1]
    assert trained(parts=flat_ones, sizes=(99, 98)) == 0
    assert trained(parts=flat_ones, name="compiled") == 2
    model = flat(lambda: network(*SMALL, dtype=None), torch.float32)
    work = Work(model, Chunk([2], SMALL[1], CLASSES, torch.float32), model.init(0), SGD(0.1))
    assert Compiled().supports(work)
    assert not Compiled().supports(replace(work, data=Chunk([2, 0], SMALL[1], CLASSES, torch.float32)))
    monkeypatch.setattr(compiled.trainer, "LARGE", 9 * 5)
    assert not Compiled().supports(work) and Compiled(always=True).supports(work)


@needs_llvm
def test_derivatives_by_images(calls):
    """As MD-ICFL's samplers take them: compiled in single precision, and never where weights want one as well."""
    x, y = images(19, SMALL[1], torch.float32)
    found = {}
    for dtype in (torch.float32, torch.float64):
        model, seen = flat(lambda: network(*SMALL, dtype=None), dtype), x.to(dtype).requires_grad_()
        loss = F.cross_entropy(model.forward(model.init(0), seen), y)
        found[dtype] = torch.autograd.grad(loss, seen)[0].double()
    assert calls == ["look", "pixels"]
    torch.testing.assert_close(found[torch.float32], found[torch.float64], rtol=0, atol=1e-6)

    model = flat(lambda: network(*SMALL, dtype=None), torch.float32)
    w, seen = model.init(0).requires_grad_(), x.clone().requires_grad_()
    F.cross_entropy(model.forward(w, seen), y).backward()
    assert len(calls) == 2 and w.grad.abs().sum() > 0
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope = torch.autograd.grad(model.forward(w.detach(), seen).square().sum(), seen, create_graph=True)[0]
        slope.sum().backward()


@needs_llvm
@pytest.mark.parametrize("sizes", [[5], [5, 21, 3, 4]])
def test_convolutions_within_the_factored_layer(sizes, monkeypatch, calls):
    """LEAF's network: the dense layer stays factors, and the convolutions below it are compiled."""
    monkeypatch.setattr(convolution, "LARGE", 0)
    monkeypatch.setattr(compiled.trainer, "kernels_for", partial(compiled.trainer.kernels_for, always=True))
    shape = (1, 8, 8)
    model, chunk = flat(lambda: models.networks.LeafFemnist(shape, CLASSES, width=80)), Chunk(sizes, shape, CLASSES)
    start = model.init(3)
    kind = {"epochs": 2, "batch_size": 2, "momentum": 0.9, "weight_decay": 0.1}
    ours, theirs = (local(model, by, **kind).sgd(start, chunk, [Prox(0.5, start)]).dense()
                    for by in ([convolution.DenseFactors(quick=True)], [Trainer()]))  # fmt: skip
    assert (ours - theirs).abs().max() <= 1e-10
    assert calls and set(calls) == {"look"}


@needs_llvm
def test_workers_chunks_and_a_break_change_no_bit(fed, tmp_path, calls):
    def run(folder=None, rounds=3, **settings):
        settings |= {"model": "lenet", "local": SGD(0.1, batch_size=10, momentum=0.9), "dtype": "float32"}
        history = simulate(IFCA(k=2), fed, rounds=rounds, progress=False, checkpoint=folder, **settings)
        return repr(history.rounds), history.server["models"]

    whole, folder = run(), tmp_path / "run"
    run(folder, rounds=1)
    for found in (run(chunk=1, workers=2), run(chunk=5), run(folder)):
        assert found[0] == whole[0] and torch.equal(found[1], whole[1])
    assert {"train", "look"} <= set(calls)


# ---------------------------------------------------------------------- without llvmlite
@pytest.mark.parametrize(("module", "said"), [
    (None, "cannot be imported"), (SimpleNamespace(__version__="0.1", binding=None), "is 0.1, not 0.50.0"),
])  # fmt: skip
def test_llvmlite_must_be_the_one_that_was_tried(module, said, monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite", module)
    assert said in library.missing.__wrapped__()


@pytest.mark.parametrize(("dtype", "lines"), [(torch.float64, 0), (torch.float32, 1)])
def test_who_would_have_used_the_kernels_is_told_once_that_they_are_missing(dtype, lines, monkeypatch, caplog):
    monkeypatch.setattr(compiled.trainer, "missing", lambda: "not here")
    library.say_missing.cache_clear()
    model = flat(lambda: network(*SMALL, dtype=None), dtype)
    for _ in range(2):
        with torch.no_grad():
            model.forward(model.init(0), images(2, SMALL[1], dtype)[0])
        assert not Compiled().supports(Work(model, Chunk([2], SMALL[1], CLASSES, dtype), model.init(0), SGD(0.1)))
    assert len(caplog.records) == lines


@needs_llvm
@pytest.mark.parametrize(("triple", "has", "said"), [
    ("aarch64-apple-darwin", {}, "not tried on aarch64-apple-darwin"), ("x86_64-linux", {"avx2": True}, "AVX2"),
])  # fmt: skip
def test_other_processors_are_left_alone(triple, has, said, monkeypatch):
    from llvmlite import binding

    monkeypatch.setattr(binding, "get_process_triple", lambda: triple)
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: has)
    for function in (library.missing, library.machines):
        monkeypatch.setattr(library, function.__name__, function.__wrapped__)
    assert said in library.missing()
