"""What a run promises: checkpoints are its own, divergence is said, frozen layers stay, more rounds can follow."""

import warnings

import pytest
import torch
from every import bits, remembered
from filelock import FileLock
from torch import nn

from cflkit.engine.checkpoint import BusyError
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import simulate
from cflkit.methods import Ditto, FedAvg, LocalOnly
from cflkit.methods.base import Method


class Net(nn.Module):
    """Two dense layers with an activation that the printed structure does not show."""

    def __init__(self, activation=torch.relu, frozen=False):
        super().__init__()
        self.first, self.last, self.activation = nn.Linear(64, 8), nn.Linear(8, 10), activation
        self.first.requires_grad_(not frozen)

    def forward(self, x):
        return self.last(self.activation(self.first(x.flatten(1))))


class Wild(Net):
    """Gives values beyond all measure, unless its weights are zero."""

    def forward(self, x):
        return super().forward(x) * 1e6


def test_a_finished_run_goes_on_to_more_rounds(fed, settings_of_a_run, tmp_path):
    whole = simulate(Ditto(), fed, **settings_of_a_run | {"rounds": 5, "evaluate_every": 2})
    simulate(Ditto(), fed, checkpoint=tmp_path, **settings_of_a_run | {"rounds": 3, "evaluate_every": 2})
    more = simulate(Ditto(), fed, checkpoint=tmp_path, **settings_of_a_run | {"rounds": 5, "evaluate_every": 2})
    assert bits(more.server) == bits(whole.server) and remembered(more.memory) == remembered(whole.memory)
    assert more.rounds[:3] == whole.rounds[:3] and more.rounds[4:] == whole.rounds[4:]
    assert whole.rounds[3].items() <= more.rounds[3].items()
    assert "accuracy" in more.rounds[3]  # it was the last once


@pytest.mark.parametrize("one, other", [({}, {"activation": torch.tanh}), ({"frozen": False}, {"frozen": True}),
                                        ({"frozen": True}, {"frozen": False})])  # fmt: skip
def test_a_checkpoint_of_another_network_is_refused(one, other, fed, settings_of_a_run, tmp_path):
    """Functions of one name; with other layers frozen, the same outputs, but another order in the vector."""
    made, changed = (lambda: Net(**one)), (lambda: Net(**other))
    made.__qualname__ = changed.__qualname__ = "made"
    settings = settings_of_a_run | {"checkpoint": tmp_path}
    for _ in range(2):
        simulate(FedAvg(), fed, **settings | {"model": made})
    with pytest.raises(ValueError, match=r"state\.pt': must be of this network; it was trained with another one$"):
        simulate(FedAvg(), fed, **settings | {"model": changed})


def test_one_process_at_a_time(fed, settings_of_a_run, tmp_path):
    with FileLock(tmp_path / "lock"), pytest.raises(BusyError, match=r"^checkpoint = '.*': must be free; another"):
        simulate(FedAvg(), fed, checkpoint=tmp_path, **settings_of_a_run)
    assert simulate(FedAvg(), fed, checkpoint=tmp_path, **settings_of_a_run).final["round"] == 3


# where weights blow up and die, and where they become infinite
@pytest.mark.parametrize("local", [SGD(1e6), SGD(1e6, epochs=5, weight_decay=1e30)], ids=["large", "infinite"])
@pytest.mark.parametrize("method", [FedAvg(), LocalOnly()], ids=lambda m: m.name)
def test_divergence_is_said(method, local, fed, settings_of_a_run):
    with pytest.warns(RuntimeWarning, match=rf"^{method.name} has diverged by round \d: .* not finite$"):
        wild = simulate(method, fed, **settings_of_a_run | {"local": local})
    assert wild.final["diverged"] is True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all("diverged" not in row for row in simulate(method, fed, **settings_of_a_run).rounds)


def test_a_run_that_has_diverged_says_so_for_good_also_when_it_goes_on(fed, settings_of_a_run, tmp_path):
    """Outputs are beyond all measure before round 1 only."""

    class Calming(FedAvg):
        def round(self, server, clients, net):
            return {"model": 0 * super().round(server, clients, net)["model"]}

    def ends(rounds, **where):
        settings = settings_of_a_run | {"model": Wild, "rounds": rounds, "local": SGD(1e-9)}
        return simulate(Calming(), fed, **settings, **where).rounds

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = ends(3)
        ends(1, checkpoint=tmp_path)
        again = ends(3, checkpoint=tmp_path)
    assert [row.get("diverged") for row in whole] == [True] * 4
    assert [row.get("diverged") for row in again] == [True] * 4


@pytest.mark.parametrize("lacking", ["start", "round", "client", "serve"])
def test_what_a_method_lacks_is_named(lacking, fed, settings_of_a_run):
    method = type("Half", (FedAvg,), {"name": "half", lacking: getattr(Method, lacking)})()
    with pytest.raises(NotImplementedError, match=rf"^half\.{lacking}: must be defined$"):
        simulate(method, fed, **settings_of_a_run)
