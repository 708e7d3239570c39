"""A client's steps as one program of a GPU, interpreted on a CPU: the weights of the reference."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from test_training import ROUND, SEED, held
from tiny import Tensors
from torch import nn

from benchmarks import card, fused, lockstep
from cflkit import models
from cflkit.data.federation import Federation, Samples
from cflkit.engine.fast import trainers
from cflkit.engine.fast.fused.trainer import Fused
from cflkit.engine.sgd import SGD, Prox
from cflkit.models.flat import Model

pytest.importorskip("triton")
from cflkit.engine.fast.fused import programs

pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def network(*parts):
    return lambda: nn.Sequential(*[part() for part in parts])


SMALL = {
    "dense": network(nn.Flatten, partial(nn.Linear, 64, 5), nn.ReLU, partial(nn.Linear, 5, 10)),
    "pools": network(partial(nn.Conv2d, 1, 3, 3, padding=1), nn.ReLU, partial(nn.MaxPool2d, 2),
                     partial(nn.Conv2d, 3, 18, (3, 2)), partial(nn.AvgPool2d, 2), nn.Flatten,
                     partial(nn.Linear, 18, 10)),
    "pools, ReLU the other way": network(partial(nn.Conv2d, 1, 2, 2), partial(nn.MaxPool2d, 2),
                                         partial(nn.Conv2d, 2, 2, 2), nn.ReLU, partial(nn.AvgPool2d, 2), nn.Flatten,
                                         partial(nn.Linear, 2, 10)),
}  # fmt: skip


@pytest.fixture
def done(monkeypatch):
    """Work that was done by the kernels."""
    works, train = [], Fused.train
    monkeypatch.setattr(Fused, "train", lambda self, work: works.append(work) or train(self, work))
    return works


def both(model, fed, optimiser, start, **terms):
    data = held(fed, model, [0, 2, 1])
    sides = (Tensors(model, optimiser, SEED, ROUND, trainers(name)) for name in ("fused", "lean"))
    return [side.sgd(start, data, **terms) for side in sides]


def compare(found, usual, start, done):
    tolerance = TOLERANCE[usual.dtype]
    torch.testing.assert_close(found, usual, rtol=tolerance, atol=tolerance)
    assert done and not torch.equal(found, start.expand_as(found))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n != "dense" else []) for n in SMALL])
def test_the_weights_of_the_reference(name, dtype, fed, done):
    model = Model(SMALL[name], dtype)
    compare(*both(model, fed, SGD(0.1, batch_size=17), model.init(1)), model.init(1), done)  # batches of 17 and 7


@pytest.mark.slow
@pytest.mark.parametrize("rule", [{"weight_decay": 0.1}, {"momentum": 0.9}, {"momentum": 0.5, "nesterov": True}])
def test_every_rule_and_every_pull(rule, fed, done):
    model = Model(SMALL["dense"], torch.float64)
    start, other, shift = (torch.stack([model.init(seed + i) for i in range(3)]) for seed in (1, 4, 7))
    span = slice(0, model.spans["1.bias"].stop)
    terms = {"prox": [Prox(0.3, other), Prox(0.2, other[0], span)], "shift": shift}
    optimiser = SGD(0.1, epochs=2, batch_size=17, **rule)
    for given in ({}, terms):
        compare(*both(model, fed, optimiser, start, **given), start, done)


def test_what_has_no_kernels_goes_in_lock_step(fed, done):
    norm = network(nn.Flatten, partial(nn.BatchNorm1d, 64, track_running_stats=False), partial(nn.Linear, 64, 10))
    model = Model(norm, torch.float64)
    found, usual = both(model, fed, SGD(0.1), model.init(1))
    torch.testing.assert_close(found, usual, rtol=1e-9, atol=1e-9)
    assert not done


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("name", "shape"), [
    ("lenet", (1, 28, 28)), ("lenet", (3, 32, 32)), ("femnist_248", (1, 28, 28)), ("mlp200", (1, 28, 28)),
])  # fmt: skip
def test_networks_of_the_papers(name, shape, dtype, done, monkeypatch):
    with_large_tiles = partial(programs.Tiles, m=64, n=64, k=256)  # fewer, as NumPy likes them
    monkeypatch.setattr(programs, "Tiles", with_large_tiles)
    torch.manual_seed(0)
    pool = torch.randint(0, 256, (6, *shape), dtype=torch.uint8)
    samples = Samples(pool, torch.arange(6), torch.arange(6), torch.tensor([0, 2, 5, 6]))
    fed = Federation("drawn", samples, samples, torch.arange(3), None, 10, 255.0, 0.0, 1.0, None, {})
    model = Model(partial(models.build, name, shape, 10), dtype)
    compare(*both(model, fed, SGD(0.1, batch_size=2), model.init(1)), model.init(1), done)


@pytest.mark.slow
def test_every_way_of_a_step_ends_with_the_same_models(monkeypatch):
    monkeypatch.setattr(fused, "TILES", [{}, {"m": 16, "n": 32, "k": 16, "precision": "tf32x3"}])
    small = {"model": "mlp8", "shape": (1, 8, 8), "clients": 2, "images": 5, "local": SGD(0.1, batch_size=2)}
    work = replace(lockstep.WORKLOADS[0], **small)
    found = fused.row(work, "cpu")
    assert found["difference"] < 1e-5 and {"recorded", "vmap", "fused", "tiles"} <= set(found)


def test_a_card_is_asked_for():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for script in (fused, card):
        with pytest.raises(ValueError, match="device = 'cuda': must be a GPU that PyTorch sees"):
            script.main([])


@pytest.mark.slow
def test_kernels_are_made_for_a_real_gpu():
    """To machine code for an H100; that needs no GPU."""
    code = """
import torch
from test_fused import SMALL
from triton.backends.compiler import GPUTarget
import triton
from cflkit.engine.fast.fused import programs
from cflkit.engine.fast.plan import plan_of
net = programs.network(plan_of(SMALL["pools"](), (1, 8, 8)), 17)
values = "vectors kept pull anchors images scratch".split()
types = dict.fromkeys(values, "*fp32") | dict.fromkeys(["labels", "rows"], "*i64") | {"passing": "*i8"}
types |= dict.fromkeys(["counts", "ends"], "*i32") | dict.fromkeys(["lr", "momentum"], "fp32")
fixed = {"N": net, "R": programs.Rule(True, True, True), "T": programs.Tiles()}
types |= dict.fromkeys(["STEPS", "ANCHORS"], "i32") | dict.fromkeys(fixed, "constexpr")
source = triton.compiler.ASTSource(programs.train, {k: types[k] for k in programs.train.arg_names}, fixed)
print(len(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]))
"""
    own = {"TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10_000
