"""Nothing wrong in silence: each case is refused in one line before work, or gives what plain PyTorch gives.

Tables of cases, a kind a table: networks, random layers, numbers that only look like Python's, pixels and labels,
threads, and the seam where a method of one's own meets the engine.
"""

import enum
import json
import multiprocessing
import pickle
import random
import re
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn import metrics
from torch import nn

from cflkit import SGD, federation, images, rng, simulate
from cflkit.checks import enough_memory, plain
from cflkit.data.download import reading
from cflkit.engine.rows import Mixed, Pick
from cflkit.engine.rows import Rows as Uploaded
from cflkit.engine.sgd import Prox
from cflkit.engine.simulation import Simulation
from cflkit.methods import IFCA, Ditto, FedAvg, FedProx, LocalOnly, StoCFL
from cflkit.models import build
from cflkit.models.flat import Model, privately
from cflkit.testing.pretend import gpu

TRAINERS = ("auto", "lean", "stacked", "shared", "compiled")
DTYPES = {"float32": 1e-6, "float64": 1e-10}
LOCAL = SGD(0.05, epochs=2, batch_size=4, momentum=0.5, weight_decay=0.01)
QUIET = {"rounds": 2, "progress": False, "personal_clients": 0}


@pytest.fixture(scope="module")
def fed():
    """Three clients with 6, 10 and 7 pictures of 4 x 4 pixels, in three labels."""
    draw = np.random.default_rng(0)
    x, user = draw.integers(0, 256, (29, 4, 4)), np.repeat(np.arange(3), (8, 12, 9))
    return federation.by_user(images.of(x, np.arange(29) % 3, user), test="own")


def refusal(call, *args, **kwargs):
    """The line with which a call is refused."""
    with pytest.raises(ValueError) as caught:
        call(*args, **kwargs)
    line = str(caught.value)
    assert "\n" not in line and re.search(r"( = .*)?: must be ", line), line
    return caught.value


# ---------------------------------------------------------------------- networks
def by_pytorch(make, fed, dtype, seed=0):
    """FedAvg with a loop over modules, optimisers and tensors by name, as anybody would write it."""
    first = Model(make, getattr(torch, dtype)).fresh(rng.torch_seed(seed, "init", 0))
    names = [name for name, tensor in state(first).items() if tensor.is_floating_point()]
    for t in (1, 2):
        total, sizes = {}, fed.train.sizes.tolist()
        for client, n in enumerate(sizes):
            net = Model(make, getattr(torch, dtype)).fresh(0).train()
            with torch.no_grad():
                for name in names:
                    state(net)[name].copy_(state(first)[name])
            rule = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], LOCAL.lr, LOCAL.momentum,
                                   weight_decay=LOCAL.weight_decay)  # fmt: skip
            rows, y = fed.train.rows(client)
            x = fed.train.pool[rows].to(getattr(torch, dtype)) / fed.scale
            with torch.random.fork_rng([]):
                torch.manual_seed(rng.torch_seed(seed, t, client, "dropout"))
                for batch in LOCAL.batches(n, rng.generator(seed, t, client, "batches")):
                    rule.zero_grad()
                    F.cross_entropy(net(x[batch]), y[batch]).backward()
                    rule.step()
            for name in names:
                total[name] = total.get(name, 0) + state(net)[name].double() * n / sum(sizes)
        with torch.no_grad():
            for name in names:
                state(first)[name].copy_(total[name])
    return {name: state(first)[name].double() for name in names}


def state(net):
    return {name: tensor.detach() for name, tensor in (*net.named_parameters(), *net.named_buffers())}


class Net(nn.Module):
    """Two dense layers and what `between` does, given the module and what is hidden (n, 8)."""

    def __init__(self, between=None, **parts):
        super().__init__()
        self.a, self.b, self.between = nn.Linear(16, 8), nn.Linear(8, 3), between or (lambda net, h: h)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.b(self.between(self, self.a(x.flatten(1)).relu()))


def through(*layers):
    """A network with layers made by functions in its middle."""
    return lambda: Net(lambda net, h: net.layer(h), layer=nn.Sequential(*(layer() for layer in layers)))


def hidden(change):
    return lambda: Net(change)


def having(make, change):
    """What `make` makes, changed."""

    def made():
        net = make()
        change(net)
        return net

    return made


def tie(net):
    net.layer[0].weight = net.layer[1].weight


def share_memory(net):
    net.layer[0].weight = nn.Parameter(net.layer[1].weight.data.T)


class Rows(nn.Module):
    """A recurrent layer over the rows of a picture."""

    def __init__(self, kind=nn.LSTM, **options):
        super().__init__()
        self.cell, self.out = kind(4, 6, batch_first=True, **options), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.cell(x[:, 0])[0][:, -1])


class Buffers(nn.Module):
    """Constants of several kinds: integers, truth values, what is no part of the state, one without dimensions."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 3)
        self.register_buffer("order", torch.arange(15, -1, -1))
        self.register_buffer("mask", torch.arange(16) % 3 > 0, persistent=False)
        self.register_buffer("mean", torch.tensor(0.5))
        self.register_buffer("nothing", None)

    def forward(self, x):
        return self.out((x.flatten(1)[:, self.order] - self.mean) * self.mask)


class Short(nn.Module):
    """Shortens its weights before it uses them, as embeddings with `max_norm` do."""

    def __init__(self, always=False):
        super().__init__()
        self.out, self.always = nn.Linear(16, 3), always

    def forward(self, x):
        with torch.no_grad():
            if self.training or self.always:
                self.out.weight.clamp_(-0.1, 0.1)
        return self.out(x.flatten(1))


class Counting(nn.Module):
    """Divides by how often it was called."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, h):
        self.calls += self.training
        return h / (1 + self.calls)


class Pixels(nn.Module):
    """What an embedding knows: whole numbers 0..4."""

    def forward(self, x):
        return (4 * x).long()


def ones(dtype=torch.float64):
    return nn.Parameter(torch.ones(8, dtype=dtype), requires_grad=dtype.is_floating_point)


def row(*layers):
    return lambda: nn.Sequential(nn.Flatten(), *(layer() for layer in layers))


ONE = Net()
dense, wide, out = partial(nn.Linear, 8, 8), partial(nn.Linear, 16, 16), partial(nn.Linear, 16, 3)
mlp = partial(build, "mlp8", (1, 4, 4), 3)
RIGHT = {
    "tied layers": having(through(dense, dense), tie),
    "a layer twice": lambda: Net(lambda net, h: net.layer(net.layer(h).relu()), layer=dense()),
    "a layer with two names": having(through(dense), lambda net: setattr(net, "again", net.layer)),
    "constants": Buffers, "batch norm": through(partial(nn.BatchNorm1d, 8)),
    "group norm": through(partial(nn.GroupNorm, 1, 8)),
    "weight norm": through(lambda: nn.utils.parametrizations.weight_norm(dense())),
    "frozen": having(through(dense), lambda net: net.a.requires_grad_(False)),
    "half": having(through(dense), lambda net: net.half()),
    "spectral norm": through(lambda: nn.utils.parametrizations.spectral_norm(dense())),
    "weights of limited length": Short, "a row of layers": row(wide, nn.ReLU, out),
    "a sum of weights": lambda: Net(lambda net, h: h * (net.p + net.q), p=ones(), q=ones()),
    "an embedding": lambda: nn.Sequential(Pixels(), nn.Embedding(5, 2), nn.Flatten(), nn.Linear(32, 3)),
    "tied rows of layers": having(row(wide, nn.ReLU, wide, nn.ReLU, out),
                                  lambda net: setattr(net[3], "weight", net[1].weight)),
    "a package's network in a function": mlp,
}
DRAWING = {
    "dropout": through(partial(nn.Dropout, 0.5)),
    "functional dropout": hidden(lambda net, h: F.dropout(h, 0.5, net.training)),
    "noise": hidden(lambda net, h: h + 0.1 * torch.randn_like(h) if net.training else h),
    "bernoulli": hidden(lambda net, h: h * torch.bernoulli(torch.full_like(h, 0.7)) if net.training else h),
    "dropout between LSTMs": partial(Rows, num_layers=2, dropout=0.4),
}
frozen = having(lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3)),
                lambda net: net[0].requires_grad_(False))  # fmt: skip
EITHER = {  # right where it is trained, refused by a trainer that could not
    "a decision by numbers": hidden(lambda net, h: h * 2 if h.sum() > 0 else h),
    "LSTM": Rows,
    "a frozen convolution": frozen,
    "instance norm": row(partial(nn.Unflatten, 1, (1, 4, 4)), partial(nn.Conv2d, 1, 2, 2), partial(
        nn.InstanceNorm2d, 2, affine=True, track_running_stats=True), nn.Flatten, partial(nn.Linear, 18, 3)),
    "the batch's mean": hidden(lambda net, h: h - h.mean(0)),
    "a hook": having(mlp, lambda net: net.hidden.register_forward_hook(lambda layer, given, out: 2 * out)),
    "a hook in a row of layers": having(row(wide, nn.ReLU, out), lambda net: net[1].register_forward_pre_hook(
        lambda layer, given: (3 * given[0],))),
    "another layer in a known network": having(mlp, lambda net: setattr(
        net, "hidden", nn.utils.parametrizations.weight_norm(nn.Linear(16, 8)))),
}  # fmt: skip
WRONG = {
    "cumulative batch norm": (through(partial(nn.BatchNorm1d, 8, momentum=None)), "layer.0.running_mean"),
    "a counter": (through(Counting), "keeps nothing but weights"),
    "old weight norm": (through(lambda: nn.utils.weight_norm(dense())), "can be copied"),
    "lazy": (through(partial(nn.LazyLinear, 8)), "known sizes"),
    "shared memory": (having(through(dense, dense), share_memory), "memory of their own"),
    "complex": (lambda: Net(lambda net, h: h * net.p.real, p=nn.Parameter(torch.ones(8) + 0j)), "real"),
    "integers": (lambda: Net(lambda net, h: h * net.p, p=ones(torch.int64)), "floating-point"),
    "without memory": (having(Net, lambda net: net.a.to("meta")), "['a.weight']"),
    "a counter of evaluations": (hidden(lambda net, h: [h, setattr(net, "n", getattr(net, "n", 1) + 1)][0] * (
        1 if net.training else net.n)), "always evaluated alike"),
    "rare noise of Python's": (hidden(lambda net, h: h if random.random() < 0.999 else -h), "by PyTorch alone"),
    "too few logits": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), "[2, 2]"),
    "wrong size": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(15, 3)), "mat1 and mat2"),
    "no module": (lambda: 3, "a function that"), "raises": (hidden(lambda net, h: 1 / 0), "ZeroDivisionError"),
    "a module": (ONE, "a function that makes a network"), "one module": (lambda: ONE, "a new network whenever"),
    "unused": (lambda: Net(c=nn.Linear(8, 8)), "c.weight"),
    "dropout in evaluation": (hidden(lambda net, h: F.dropout(h, 0.5)), "in evaluation"),
    "NumPy's noise": (hidden(lambda net, h: h * float(np.random.rand())), "by PyTorch alone"),
    "NumPy's weights": (having(Net, lambda net: net.a.bias.data.fill_(np.random.rand())), "one seed gave two"),
    "nothing to train": (having(Net, lambda net: net.requires_grad_(False)), "something to train"),
    "weights cut in evaluation": (partial(Short, always=True), "its weights as they are in evaluation"),
    "no derivative": (hidden(lambda net, h: h.detach().requires_grad_()), "a.weight"),
    "scripted": (lambda: torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(16, 3))), ""),
    "changes images": (row(partial(nn.Hardtanh, 0, 0.5, inplace=True), out), "leaves the images it is given"),
    "long lines": (hidden(lambda net, h: exec("raise RuntimeError('one\\ntwo' + 'x' * 999)")), "RuntimeError: one"),
}


precise = pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])


@precise
@pytest.mark.parametrize("name", [*RIGHT, *DRAWING, *EITHER])
def test_a_network_is_trained_as_pytorch_trains_it_or_refused(name, dtype, fed):
    make = (RIGHT | DRAWING | EITHER)[name]
    wanted, done = by_pytorch(make, fed, dtype), []
    for trainer in TRAINERS:
        try:
            run = Simulation(FedAvg(), fed, model=make, local=LOCAL, dtype=dtype, trainer=trainer, chunk=2, **QUIET)
        except ValueError as error:
            line = rf"trainer = '{trainer}': must be another one for this network, such as 'lean': \w+ .*"
            assert re.fullmatch(line, str(error)) and name in EITHER and trainer != "lean"
            continue
        found, done = run.model.views(run.run().server["model"]), [*done, trainer]
        for part, values in wanted.items():
            torch.testing.assert_close(found[part].double(), values, rtol=DTYPES[dtype], atol=DTYPES[dtype])
    assert "lean" in done


@precise
@pytest.mark.parametrize("name", WRONG)
def test_a_network_that_cannot_be_trained_rightly_is_refused_before_any_work(name, dtype, fed):
    make, words = WRONG[name]
    for trainer in ("lean", "stacked"):
        error = refusal(Simulation, FedAvg(), fed, model=make, local=LOCAL, dtype=dtype, trainer=trainer, **QUIET)
        assert words in str(error) and len(str(error)) < 900


@pytest.mark.parametrize("size, steps, batch, epochs, found", [
    (21, None, 10, 1, 1), (21, 2, 10, 1, 0), (21, 3, 10, 1, 1), (20, None, 10, 1, 0), (1, None, None, 1, 1),
    (5, None, 1, 1, 1), (21, None, 10, 0, 0), (2, None, None, 3, 0), (1, None, 10, 2, 1), (11, 1, 10, 1, 0),
    (11, None, 10, 2, 1), (3, None, 2, 1, 1)])  # fmt: skip
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_batch_of_one_before_a_batch_norm_is_refused_where_a_client_meets_it(size, steps, batch, epochs, found):
    owner, n = np.repeat([0, 1], (size + 1, 8)), size + 9
    x, train = np.random.default_rng(1).integers(0, 256, (n, 4, 4)), ~np.isin(np.arange(n), (size, n - 2, n - 1))
    split = federation.by_user(images.of(x, np.arange(n) % 2, owner, train=train))
    local = SGD(0.1, epochs=epochs, batch_size=batch, steps=steps)
    settings = {"model": BatchNormed, "local": local, **QUIET}
    if not found:
        assert len(simulate(FedAvg(), split, **settings).rounds) == 3
        return
    error = refusal(Simulation, FedAvg(), split, **settings)
    assert str(error).startswith(f"batch_size = {batch}: must be one that leaves no client a batch of one image, ")
    assert f"client 0, one of {2 if batch == 1 else 1}, with {size} images" in str(error) and error.__cause__


class BatchNormed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(16, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(self.norm(self.a(x.flatten(1))))


@pytest.mark.parametrize("name", DRAWING)
def test_a_seed_means_one_run_whatever_has_drawn_before_and_however_it_is_cut(name, fed):
    runs = []
    for before, more in ((1, {}), (2, {"chunk": 1}), (3, {"chunk": 2, "workers": 2}), (4, {"trainer": "stacked"})):
        torch.manual_seed(before)
        kept = torch.get_rng_state()
        run = simulate(FedAvg(), fed, model=DRAWING[name], local=LOCAL, seed=7, **QUIET, **more)
        runs.append(run.server["model"])
        assert torch.equal(kept, torch.get_rng_state())
    for run in runs[1:]:
        torch.testing.assert_close(run, runs[0], rtol=0, atol=1e-15)
    other = simulate(FedAvg(), fed, model=DRAWING[name], local=LOCAL, seed=8, **QUIET).server["model"]
    assert not torch.allclose(other, runs[0])


# ---------------------------------------------------------------------- numbers
class Five(enum.IntEnum):
    """A number with a name."""

    FIVE = 5


FIVES = [np.int8(5), np.uint64(5), np.array(5), torch.tensor(5), Five.FIVE]
NO_COUNTS = [True, np.True_, "5", np.str_("5"), Fraction(5), 5.0, torch.tensor(5.0), [5], np.array([5]), 5j, b"5",
             np.nan, np.timedelta64(5, "s")]  # fmt: skip
HALF = [kind(0.5) for kind in (np.float16, np.float32, np.float64, np.longdouble, torch.tensor, np.array, Fraction)]


@pytest.mark.parametrize("five", FIVES, ids=lambda v: f"{type(v).__name__} {getattr(v, 'dtype', '')}")
def test_what_looks_like_a_number_is_that_number(five, fed):
    def run(n):
        every = dict.fromkeys(("seed", "chunk", "personal_clients", "evaluate_every", "checkpoint_every"), n)
        local = SGD(0.1, epochs=n)
        return Simulation(IFCA(k=n - 3), fed, model=mlp, local=local, rounds=n - 3, progress=False, **every)

    usual, other = run(5), run(five)
    assert json.dumps(other.config) == json.dumps(usual.config)
    assert torch.equal(usual.run().server["models"], other.run().server["models"])
    if getattr(five, "shape", None) == () and not isinstance(five, np.generic):
        refusal(rng.torch_seed, five)
    else:
        assert rng.torch_seed(five, five, "x") == rng.torch_seed(5, 5, "x") != rng.torch_seed(5, 6, "x")
    digits = images.load("digits")
    a, b = (federation.dirichlet(digits, clients=n, alpha=1.0, seed=n, test="own") for n in (5, five))
    assert a.config == json.loads(json.dumps(b.config)) and torch.equal(a.train.index, b.train.index)
    assert fed.subset([plain(n) - 3 for n in (five,)]).clients == 1


@pytest.mark.parametrize("value", NO_COUNTS, ids=repr)
def test_what_is_no_whole_number_is_refused_wherever_one_is_wanted(value, fed):
    usual = {"model": mlp, "local": SGD(0.1), **QUIET}
    for name in ("seed", "rounds", "chunk", "workers", "evaluate_every", "personal_clients", "checkpoint_every"):
        assert str(refusal(Simulation, FedAvg(), fed, **usual | {name: value})).startswith(f"{name} = ")
    refusal(SGD, 0.1, epochs=value)
    refusal(IFCA, k=value)
    refusal(federation.rotated, images.load("digits"), clients=8, seed=value)
    if not isinstance(value, str):
        refusal(rng.generator, value)
        refusal(rng.torch_seed, 1, value)


@pytest.mark.parametrize("half", HALF, ids=lambda v: type(v).__name__)
def test_what_looks_like_a_half_is_a_half(half):
    made = SGD(lr=half, momentum=half, weight_decay=half)
    assert made == SGD(0.5, momentum=0.5, weight_decay=0.5) and json.dumps(made.lr) == "0.5"
    assert type(StoCFL(tau=half).tau) is float


@pytest.mark.parametrize("value", [True, "0.5", Decimal("0.5"), 0.5j, np.nan, np.float32("inf"), torch.ones(1),
                                   np.array([0.5]), np.timedelta64(5, "s"), None, 1e31])  # fmt: skip
def test_what_is_no_number_is_refused_as_a_rate(value):
    assert str(refusal(SGD, lr=value)).startswith("lr = ")


# ---------------------------------------------------------------------- pixels and labels
N = 12
BYTES = np.random.default_rng(2).integers(0, 256, (N, 5, 5)).astype(np.uint8)
BYTES[0, 0, 0] = 255
LABELS = np.arange(N) % 3
PIXELS = [  # given, options, what a model sees of the first pixel
    (BYTES, {}, 1.0), (BYTES / 255, {}, 1.0), (torch.tensor(BYTES / 255).bfloat16(), {}, 1.0),
    (torch.tensor(BYTES / 255).to_sparse(), {}, 1.0), ((BYTES // 16), {"scale": 16}, 15 / 16),
    (BYTES[::-1].copy()[::-1], {}, 1.0), ((BYTES > 99).astype(np.uint8), {"scale": 1}, 1.0),
    (BYTES.astype(np.int32) * 4, {"scale": 1023}, 1020 / 1023), (0 * BYTES, {}, 0.0),
    (0.2 * (BYTES / 255), {"scale": 1}, 0.2),
]
WRONG_PIXELS = [
    (BYTES // 16, "scale = None: must be given, as no pixel is above 15: the value that means 1, such as 15, or "),
    (BYTES > 99, "x.dtype = 'bool'"), (BYTES.astype(int) * 4, "x = [1020]"),
    (BYTES / 255 - 0.5, "x = ["),
    (BYTES / 255 + 0j, "x.dtype = 'complex128'"), (np.where(BYTES > 99, np.nan, 1), "x = [nan]"),
    (np.ma.masked_array(BYTES, BYTES > 99), "x = 'a masked array'"),
    ([[1, 2], [3]], "x = list: must be a tensor or an array of numbers"),
    ("digits", "x = 'digits': must be a tensor or an array of numbers"),
    (np.repeat(BYTES[..., None], 3, 3), "channels before rows and columns"),
    (np.zeros((N, 28, 28, 4), np.uint8), "channels before rows and columns"),
    (np.concatenate([np.repeat(BYTES[:, None], 3, 1), np.full((N, 1, 5, 5), 255)], 1), "(alpha)"),
    (BYTES[:, 0], "x.shape"),
]


@pytest.mark.parametrize("case", range(len(PIXELS)))
def test_a_model_sees_the_pixels_that_are_meant(case):
    x, options, first = PIXELS[case]
    found = images.of(x, LABELS, **options)
    assert found.x.dtype == torch.uint8 and abs(int(found.x[0, 0, 0, 0]) / found.scale - first) < 0.004
    facts, mosaic = images.describe(found)
    assert facts["brightest"] == int(found.x.max()) / found.scale and 0 <= mosaic.min() <= mosaic.max() <= 1


@pytest.mark.parametrize("case", range(len(WRONG_PIXELS)))
def test_pixels_are_not_guessed(case):
    x, words = WRONG_PIXELS[case]
    assert words in str(refusal(images.of, x, LABELS))


@pytest.mark.parametrize("y, words", [
    (LABELS + 48, "label 0 has no picture"), (LABELS * 7, "label 1 has no picture"), (LABELS + 1, "label 0"),
    (LABELS * 10**9, "label 1"), (LABELS + 10**12, "label 0"), (np.where(LABELS == 1, 2, LABELS), "label 1"),
    (LABELS.astype(float), "12 integers"), (np.eye(3)[LABELS], "12 integers"), (LABELS > 0, "12 integers"),
    (LABELS.astype(str), "12 integers"), (LABELS - 1, "labels in 0..1"), (LABELS[:5], "12 integers"),
    (LABELS * 0 - 1, "labels in 0..0"),
    (torch.tensor(LABELS).double(), "12 integers"), (np.full(N, 2**63, np.uint64), "integers below")])  # fmt: skip
def test_labels_are_not_guessed(y, words, tmp_path):
    line = str(refusal(images.of, BYTES, y))
    assert words in line and line.startswith("own: y = ")
    np.savez(tmp_path / "a.npz", x=BYTES, y=np.asarray(y), train=LABELS > 0)
    assert words in str(refusal(images.load, tmp_path / "a.npz"))


@pytest.mark.parametrize("y", [LABELS.tolist(), torch.tensor(LABELS, dtype=torch.int8), LABELS.astype(np.uint64)])
def test_labels_of_every_kind_of_integer_are_labels(y):
    assert images.of(BYTES, y).y.tolist() == LABELS.tolist() and images.of(BYTES, y).classes == 3


def test_the_same_picture_in_training_and_test_is_counted():
    twice, user = np.concatenate([BYTES, BYTES]), np.repeat([0, 1], N)
    found = images.of(twice, np.tile(LABELS, 2), user, train=np.arange(2 * N) < N)
    facts, mosaic = images.describe(found)
    assert (facts["pictures"], facts["train"], facts["copies"], facts["copies_in_test"]) == (24, 12, 12, 12)
    assert facts["users"] == 2 and facts["shape"] == (1, 5, 5) and mosaic.shape == (15, 15)
    assert facts["shown"] == sorted(facts["shown"]) and set(facts["shown"]) == {0, 1, 2}
    for row, corner in ((facts["rows"][0], mosaic[:5, :5]), (facts["rows"][-1], mosaic[10:, 10:])):
        assert np.array_equal(corner, twice[row] / 255)
    fed = federation.by_user(found, test="own", test_fraction=0.25)
    parts = (fed.test, fed.train)
    tested, trained = ({tuple(part.pool[i].flatten().tolist()) for i in part.index} for part in parts)
    assert fed.copies() == len(tested & trained) > 0
    assert federation.rotated(images.load("digits"), clients=4).copies() == 0
    few, colours = images.describe(images.of(np.repeat(BYTES[:2, None], 3, 1), [0, 1]))
    assert colours.shape == (15, 15, 3) and len(few["rows"]) == 2 and not colours[5:].any()


# ---------------------------------------------------------------------- threads, and what PyTorch is set to
@pytest.mark.parametrize("make", ["mlp8", DRAWING["dropout"]])
@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode,
                                    partial(torch.autocast, "cpu", torch.bfloat16)])  # fmt: skip
def test_a_run_is_the_same_whatever_pytorch_does_for_the_code_that_calls(make, around, fed):
    settings = {"model": make, "local": LOCAL, "dtype": "float32", **QUIET}
    usual = simulate(StoCFL(), fed, **settings)
    with around():
        other = simulate(StoCFL(), fed, **settings)
    assert torch.equal(usual.server["theta"], other.server["theta"]) and usual.rounds == other.rounds
    heard = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert "hooks on every module = True" in str(refusal(Simulation, FedAvg(), fed, **settings))
    heard.remove()
    with torch.device("meta"):
        assert "torch's default device = 'meta'" in str(refusal(Simulation, FedAvg(), fed, **settings))


@pytest.mark.parametrize("make", [mlp, DRAWING["functional dropout"]])
def test_runs_side_by_side_are_those_one_after_the_other(make, fed):
    def run(seed):
        return simulate(IFCA(k=2), fed, model=make, local=LOCAL, seed=seed, **QUIET).server["models"]

    wanted = list(map(run, range(8)))
    with ThreadPoolExecutor(8) as pool:
        assert all(map(torch.equal, wanted, pool.map(run, range(8))))
    assert torch.get_default_dtype() == torch.float32


MADE = """tensor(0.5) tensor([1,2]) tensor(np.float32(0.1)) tensor([0.1],dtype=torch.float16) ones(2) rand(3) eye(2)
arange(0,1,0.1) arange(4) full((2,),0.1) full((2,),3) linspace(0,1,3) randn(2,3) randint(9,(5,)) randint(2,9,(5,))
randperm(7) rand_like(torch.ones(3)) randn_like(torch.zeros(3)) zeros(4).normal_() as_tensor([0.1,0.2])
bernoulli(torch.full((9,),0.5)) multinomial(torch.ones(9),4) normal(0.0,1.0,(3,)) empty(3).exponential_()
nn.init.orthogonal_(torch.empty(3,3)) nn.init.trunc_normal_(torch.empty(9)) normal(torch.zeros(3),torch.ones(3))"""


@pytest.mark.parametrize("code", MADE.split())
def test_what_a_network_is_made_of_is_as_with_pytorchs_own_generator_and_precision(code):
    def make():
        return eval(f"torch.{code}")

    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        torch.set_default_dtype(torch.float64)
        try:
            wanted = make()
        finally:
            torch.set_default_dtype(torch.float32)
    with privately(3):
        found = make()
    assert found.dtype == wanted.dtype and torch.equal(found, wanted)


# ---------------------------------------------------------------------- fast paths, and methods of one's own
STEEP = [
    (Ditto(lam=50.0), SGD(0.1, 10, batch_size=5)), (FedProx(mu=1e30), SGD(1e30, 6, batch_size=5, momentum=0.9)),
    (FedAvg(), SGD(1e30, 4, batch_size=5, weight_decay=1e30)),
    (FedAvg(), SGD(1e20, 4, batch_size=5, momentum=0.9, nesterov=True, weight_decay=1e10)),
    (Ditto(lam=1e4), SGD(0.1, 9)), (FedAvg(), SGD(1e9, 2, weight_decay=1e10, nesterov=True, momentum=0.1)),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", range(len(STEEP)))
def test_what_overflows_ends_as_in_the_reference(case, dtype):
    method, local = STEEP[case]
    split = federation.rotated(images.load("digits"), clients=4, samples_per_client=20)
    scores = []
    for trainer in ("lean", "auto", "shared", "stacked"):
        settings = {"dtype": dtype, "trainer": trainer, "rounds": 2, "evaluate_every": 2, "progress": False}
        final = simulate(method, split, model="mlp32", local=local, **settings).final
        scores.append({name: final.get(name) for name in ("accuracy", "personal_accuracy", "diverged", "clusters")})
    assert scores[0]["diverged"] or method.name == "ditto"
    assert all(each == scores[0] for each in scores[1:])


@dataclass(frozen=True)
class Mine(FedAvg):
    """FedAvg, of which a part is replaced."""

    name = "mine"


def replaced(**parts):
    return type("Mine", (Mine,), {name: part for name, part in parts.items()})()


def calling(clients, **more):
    """A method that calls what `clients` makes of those that were sampled."""

    def round(self, server, sampled, net):
        net.call(clients(sampled), lambda *_: {}, **more)
        return server

    return replaced(round=round)


def averaging(mean):
    """A method whose server takes that mean of what clients have trained."""

    def round(self, server, sampled, net):
        return {"model": mean(net.call(sampled, self.client, {"model": server["model"]})["model"])}

    return replaced(round=round)


def doing(work):
    """A method whose clients upload what `work` makes of a model, their data and what they can do with them."""
    return replaced(client=lambda self, down, memory, data, local: {"model": work(down["model"], data, local)})


def pulled(terms, **more):
    """A method whose clients train with these proximal terms."""
    return doing(lambda at, data, local: local.sgd(at, data, terms(at), **more))


def upload(made):
    return replaced(client=lambda self, down, memory, data, local: made(local.sgd(down["model"], data).dense()))


SEAM = {  # a method, and what its line says
    "round gives nothing": (replaced(round=lambda *_: None), "mine.round = None: must be a dict"),
    "client gives nothing": (upload(lambda rows: None), "= None: must be a dict of what clients upload"),
    "client gives a number": (upload(lambda rows: {"model": 3.0}), ": model = 3.0: must be a tensor or a Part"),
    "one row for all": (upload(lambda rows: {"model": rows[:1]}), "rows of model = 1: must be 2, one of "),
    "one number": (upload(lambda rows: {"model": rows.sum()}), "must be a tensor or a Part with a row of each"),
    "another name": (upload(lambda rows: {"weights": rows}), "a dict with ['model'], of which a mean is wanted"),
    "chunks that differ": (upload(lambda rows: {"model": rows[:, len(rows):]}), "must be as of the first clients"),
    "weights of 0": (replaced(weigh=lambda self, clients, net: 0 * clients), "weights of model = [0, 0, 0]"),
    "weights without end": (replaced(weigh=lambda self, clients, net: clients / 0), "weights of model = [nan, inf"),
    "weights below 0": (replaced(weigh=lambda self, clients, net: 2 * clients - 1), "weights of model = [-1, 1"),
    "weights of some": (replaced(weigh=lambda self, clients, net: clients[:2]), "weights of model = 2: must be 3"),
    "a list of clients": (calling(lambda c: [0, 1]), "clients = [0, 1]: must be a tensor"),
    "truth values for clients": (calling(lambda c: c > 0), "clients = tensor([False"),
    "a client too far": (calling(lambda c: c + 1), "clients = [3]: must be in 0..2"),
    "a client too low": (calling(lambda c: c - 1), "clients = [-1]: must be in 0..2"),
    "a table of clients": (calling(lambda c: c[:, None]), "clients = tensor([[0], [1], [2]]): must be a"),
    "rows for some": (calling(lambda c: c, per_client={"x": torch.zeros(2, 4)}), "rows of x = 2: must be 3"),
    "a vector cut short": (doing(lambda at, data, local: local.sgd(at[1:], data)), "shape of start = ("),
    "vectors of others": (doing(lambda at, data, local: local.sgd(at.expand(5, -1), data)), "shape of start = (5"),
    "a shift cut short": (doing(lambda at, data, local: local.sgd(at, data, shift=at[1:])), "shape of shift = ("),
    "a gradient elsewhere": (doing(lambda at, data, local: local.gradient(at[1:], data)), "shape of at = ("),
    "log gives nothing": (replaced(log=lambda *_: None), "mine.log = None: must be a dict"),
    "log takes round": (replaced(log=lambda *_: {"round": 7, "tau": 1}), "mine.log = ['round']: must be names of"),
    "log gives a tensor": (replaced(log=lambda *_: {"w": torch.zeros(2)}), "mine.log: w = tensor"),
    "clusters that are no integers": (replaced(assignment=lambda *_: torch.zeros(3)), "mine.assignment = tensor"),
    "serves some": (replaced(serve=lambda self, server, clients, net: server["model"].expand(2, -1)),
                    "models that are served = "),
    "an integer for a model": (upload(lambda rows: {"model": rows.long()}), "['model']: must be floats"),
    "changes what it receives": (doing(lambda at, data, local: local.sgd(at.add_(1), data)), "received and left"),
    "another precision": (doing(lambda at, data, local: local.sgd(at.float(), data)), "dtype of start = torch.flo"),
    "keeps one row for all": (replaced(client=lambda self, down, memory, data, local: [
        memory.__setitem__("own", torch.zeros(5, 1)), {}][1]), "what clients keep as own = "),
    "a client twice": (calling(lambda c: c * 0), "clients = [0, 0, 0]: must be different"),
    "a model that is not there": (replaced(round=lambda self, server, sampled, net: Pick(
        torch.zeros(2, 4), torch.tensor([0, 1, -1]))), "index = [0, 1, -1]: must be in 0..1"),
    "a cluster that is not known": (averaging(lambda rows: rows.mean_by(torch.tensor([0, 1, -1]), 2)),
                                    "groups = [0, 1, -1]: must be in 0..1"),
    "a mean of nobody": (averaging(lambda rows: rows.mean(torch.zeros(3))), "weights = tensor([0., 0., 0.]): must"),
    "a mean by a list": (replaced(weigh=lambda self, clients, net: [1.0] * 3), "weights of model = [1.0, 1"),
    "a number for everybody": (calling(lambda c: c, down={"a": 3.0}), "a, which is sent = 3.0: must be a tensor"),
    "a number for a pull": (pulled(lambda at: 0.1), "prox = 0.1: must be a sequence, each of type Prox"),
    "a pull of all": (pulled(lambda at: [Prox(0.1, at, slice(None))]), "span = slice(None, None, None): must"),
    "a pull of a half": (pulled(lambda at: [Prox(0.1, at, slice(0, 4, 2))]), "span = slice(0, 4, 2): must be a"),
    "a push": (pulled(lambda at: [Prox(-0.1, at)]), "weight = -0.1: must be a finite number, 0 or more"),
    "a pull to a number": (pulled(lambda at: [Prox(0.1, 0.0)]), "anchor = 0.0: must be of type Tensor"),
    "a rate for an optimiser": (pulled(lambda at: (), optimiser=0.1), "optimiser = 0.1: must be of type SGD"),
    "predicts for some": (replaced(predict=lambda self, model, vector, x: model.forward(vector, x)[:1]),
                          "predicted = 'torch.float64(1, 3)': must be floats (2, 3)"),
    "predicts labels": (replaced(predict=lambda self, model, vector, x: model.forward(vector, x).long()),
                        "predicted = 'torch.int64(2, 3)': must be floats (2, 3)"),
    "shares of 3": (replaced(serve=lambda self, server, clients, net: Mixed(server["model"][None], torch.full(
        (len(clients), 1), 3.0))), "shares = tensor([[3.]"),
    "clusters of some": (replaced(assignment=lambda *_: torch.tensor([0, 1])), "mine.assignment = tensor([0, 1])"),
    "clusters below -1": (replaced(assignment=lambda *_: torch.tensor([-5, 0, 1])), "mine.assignment = tensor([-5"),
    "config without a number": (replaced(config=lambda self: {"a": np.nan}), "mine.config = {'a': nan}"),
    "less than nothing": (averaging(lambda rows: rows.mean(torch.tensor([-1.0, 1, 1]))), "weights = [-1.0, 1.0, 1"),
    "config of tensors": (replaced(config=lambda self: {"a": torch.zeros(1)}), "mine.config = {'a': "),
    "log by numbers": (replaced(log=lambda *_: {1: 1}), "mine.log = [1]: must be a dict"),
    "serves single precision": (replaced(serve=lambda self, server, clients, net: server["model"].float().expand(
        len(clients), -1)), "a model that is scored = tensor"),
    "serves a list": (replaced(serve=lambda self, server, clients, net: [0.0] * len(clients)), "models that are"),
    "serves tables": (replaced(serve=lambda self, server, clients, net: server["model"].expand(
        len(clients), 1, -1)), "a model that is scored = tensor"),
}  # fmt: skip


@pytest.mark.parametrize("case", SEAM)
def test_what_a_method_hands_over_is_looked_at(case, fed):
    method, words = SEAM[case]
    for more in ({"chunk": 2}, {"chunk": 2, "workers": 2}):
        assert words in str(refusal(simulate, method, fed, model=mlp, local=LOCAL, **QUIET, **more))


@pytest.mark.parametrize("call, words", [
    (lambda: Mixed(torch.ones(1, 4), torch.full((3, 2), 0.5)), "shares = tensor([[0.5000, 0.5000]"),
    (lambda: Mixed(torch.ones(2, 4), torch.tensor([[2.0, -1.0]])), "shares = tensor([[ 2., -1.]]): must be (m, K)"),
    (lambda: Pick(torch.ones(2, 4), torch.zeros(3)), "index = tensor([0., 0., 0.]): must be a tensor of integers"),
    (lambda: Uploaded([torch.ones(3, 4)]).sum_by(torch.tensor([0, 1]), 2), "groups = 2: must be 3 long, one a row"),
    (lambda: Uploaded([torch.ones(3, 4)]).mean(torch.ones(2)), "weights = 2: must be 3 long, one a row"),
    (lambda: Uploaded([torch.ones(3, 4).long()]).mean(), "rows = torch.int64: must be floats")])  # fmt: skip
def test_rows_and_what_points_to_them_are_looked_at(call, words):
    assert words in str(refusal(call))
    assert len(Mixed(torch.ones(1, 4), torch.full((3, 1), torch.nan))) == 3  # of diverged models


def test_a_chain_needs_what_is_passed_on(fed):
    net = Simulation(FedAvg(), fed, model=mlp, local=LOCAL, **QUIET).network(1, None)
    line = str(refusal(net.chain, torch.arange(3), lambda *_: {"x": torch.zeros(1, 2)}, "w", torch.zeros(2)))
    assert "a dict with 'w', which is passed on" in line


def test_what_a_method_logs_and_uploads_is_plain(fed):
    up = simulate(upload(lambda rows: {"model": rows.requires_grad_()}), fed, model=mlp, local=LOCAL, **QUIET)
    assert not up.server["model"].requires_grad
    method = replaced(log=lambda *_: {"a": np.float32(0.5), "b": torch.tensor(2), "c": [np.int64(1)], "d": np.nan})
    final = simulate(method, fed, model=mlp, local=LOCAL, **QUIET).final
    assert json.dumps([final["a"], final["b"], final["c"]]) == "[0.5, 2, [1]]" and np.isnan(final["d"])


@pytest.mark.parametrize("rounds, every, kept", [(3, 2, 3), (4, 3, 4), (5, 9, 5), (4, 2, 4)])
def test_the_last_round_is_kept_whatever_checkpoint_every_is(rounds, every, kept, fed, tmp_path):
    settings = {"model": mlp, "local": LOCAL, "progress": False, "checkpoint": tmp_path, "checkpoint_every": every}
    simulate(FedAvg(), fed, **settings, rounds=rounds)
    assert len(json.loads(torch.load(tmp_path / "state.pt")["rounds"])) == kept + 1


def test_processes_that_fork_are_refused_with_a_gpu(fed):
    settings = {"model": "mlp8", "local": LOCAL, "device": "cuda", "workers": 1, **QUIET}
    with gpu():
        for way, ok in (("fork", False), ("spawn", True)):
            with ProcessPoolExecutor(1, multiprocessing.get_context(way)) as pool:
                if ok:
                    assert Simulation(FedAvg(), fed, executor=pool, **settings).workers == 1
                else:
                    line = refusal(Simulation, FedAvg(), fed, executor=pool, **settings)
                    assert "an executor that forks" in str(line)
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        assert Simulation(FedAvg(), fed, executor=pool, **settings | {"device": "cpu"}).workers == 1


# ---------------------------------------------------------------------- what a run leaves
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", ["mlp8", RIGHT["tied layers"], RIGHT["batch norm"], DRAWING["dropout"]],
                         ids=["mlp8", "tied layers", "batch norm", "dropout"])  # fmt: skip
def test_trained_networks_come_out_of_a_run_and_score_what_it_says(make, dtype, fed):
    history = simulate(IFCA(k=2), fed, model=make, local=LOCAL, dtype=dtype, rounds=2, progress=False)
    nets, confusions, right = history.models(), history.confusions(), []
    assert len(nets) == 3 and len(set(map(id, nets))) <= 2  # three clients share two models
    for client, net in enumerate(nets):
        rows, y = fed.test.rows(int(fed.test_of[client]))
        guess = net(fed.test.pool[rows].to(getattr(torch, dtype)) / fed.scale).argmax(1)
        assert np.array_equal(confusions[client], metrics.confusion_matrix(y, guess, labels=range(3)))
        right.append(float((guess == y).double().mean()))
        assert not net.training and all(p.dtype == getattr(torch, dtype) for p in net.parameters())
    assert history.final["accuracy"] == pytest.approx(np.mean(right))
    before = history.server["models"].clone()
    with torch.no_grad():
        next(nets[0].parameters()).zero_()
    assert torch.equal(history.server["models"], before) and len(history.models(torch.tensor([1]))) == 1


def test_personal_networks_come_out_too_and_what_has_none_says_so(fed):
    settings = {"model": "mlp8", "local": LOCAL, **QUIET}
    history = simulate(Ditto(lam=0.1), fed, **settings)
    own, served = history.models(personal=True), history.models()
    kept = [history.memory.get("personal", i) for i in range(3)]
    for net, vector in zip(own, kept, strict=True):
        assert torch.equal(nn.utils.parameters_to_vector(net.parameters()), vector)
    assert served[0] is served[2] and not torch.equal(served[0].hidden.weight, own[0].hidden.weight)
    assert "personal models" in str(refusal(simulate(FedAvg(), fed, **settings).models, personal=True))
    assert "served models" in str(refusal(simulate(LocalOnly(), fed, **settings).models))
    odd = simulate(replaced(predict=lambda self, model, vector, x: 2 * model.forward(vector, x)), fed, **settings)
    assert "predicts by a network alone" in str(refusal(odd.models)) and odd.confusions().shape == (3, 3, 3)
    assert "run = None" in str(refusal(pickle.loads(pickle.dumps(history)).models))


def test_too_little_memory_is_called_so(fed):
    for room in (lambda: torch.empty(2**55), lambda: torch.empty(2**55, dtype=torch.uint8)):
        with pytest.raises(MemoryError, match=r"^work: too little memory, of which \d+ bytes more are wanted$"), \
                enough_memory("work"):  # fmt: skip
            room()
    with pytest.raises(MemoryError, match=r"^work: too little memory$"), enough_memory("work"):
        raise RuntimeError("CUDA out of memory")
    with pytest.raises(MemoryError), reading(Path("a.npz")):
        raise MemoryError  # no damage of the file
    with pytest.raises(RuntimeError, match="other"), enough_memory("work"):
        raise RuntimeError("other")
    method = replaced(client=lambda *_: {"model": torch.empty(2**55)})
    with pytest.raises(MemoryError, match=r"^mine with a chunk of 5: too little memory"):
        simulate(method, fed, model="mlp8", local=LOCAL, chunk=5, **QUIET)
