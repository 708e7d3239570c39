"""On a real GPU, where there is one: every method gives the CPU's numbers, and recorded steps those of plain ones.

``tests/test_pretended_gpu.py`` needs none.
"""

import pytest
import torch
from every import ALL, make, model
from torch import nn

from cflkit import FedAvg, simulate
from cflkit.engine.fast import stacked

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
# a basis of a subspace is any of many: the libraries of a CPU and of a GPU choose their own, so lengths and angles
# are compared in place of coordinates
ANY_BASIS = {"projection", "z", "z_centres"}


def same(found, usual) -> None:
    """The numbers of the CPU, up to rounding in double precision."""
    torch.testing.assert_close(found, usual, rtol=1e-10, atol=1e-10, check_device=False, equal_nan=True)


@pytest.mark.parametrize("variant", ALL)
def test_a_method_does_there_what_it_does_on_the_cpu(variant, fed, settings_of_a_run):
    settings = settings_of_a_run | {"rounds": 3, "model": model(variant), "evaluate_every": 9, "chunk": 4}
    usual = simulate(make(variant, fed), fed, **settings, trainer="stacked")
    found = simulate(make(variant, fed), fed, **settings, device="cuda")
    assert set(found.server) == set(usual.server)
    for name, value in usual.server.items():
        if name in ANY_BASIS:
            same(found.server[name] @ found.server[name].T, value @ value.T)
        elif isinstance(value, torch.Tensor | float | int):
            same(found.server[name], value)
    same(found.memory.state(), usual.memory.state())
    assert found.final.keys() == usual.final.keys()
    for name, value in usual.final.items():
        if not isinstance(value, list):
            assert found.final[name] == pytest.approx(value, abs=1e-10, nan_ok=True)


class OfOnesOwn(nn.Sequential):
    """A network that nobody knows: its steps are not recorded."""

    def __init__(self):
        super().__init__(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.ReLU(), nn.Flatten(),
                         nn.Linear(144, 10))  # fmt: skip


@pytest.mark.parametrize("network", ["lenet", "mlp8"])
def test_recorded_steps_are_plain_ones_to_the_last_bit(network, fed, settings_of_a_run, monkeypatch):
    settings = settings_of_a_run | {"model": network, "rounds": 3, "device": "cuda", "dtype": "float32"}
    recordings = []
    begin = torch.cuda.CUDAGraph.capture_begin
    counted = lambda graph, *args, **how: recordings.append(graph) or begin(graph, *args, **how)  # noqa: E731
    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", counted)
    monkeypatch.setattr(stacked, "REPLAYED", 1)
    found = simulate(FedAvg(), fed, **settings)
    assert recordings
    recordings.clear()
    monkeypatch.setattr(stacked, "REPLAYED", 10**9)
    usual = simulate(FedAvg(), fed, **settings)
    assert not recordings and torch.equal(found.server["model"], usual.server["model"])


def test_a_network_that_nobody_knows_is_not_recorded(fed, settings_of_a_run, monkeypatch):
    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", None)
    monkeypatch.setattr(stacked, "REPLAYED", 1)
    settings = settings_of_a_run | {"model": OfOnesOwn}
    found = simulate(FedAvg(), fed, **settings, device="cuda")
    same(found.server["model"], simulate(FedAvg(), fed, **settings, trainer="stacked").server["model"])
