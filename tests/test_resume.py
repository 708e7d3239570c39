"""A run killed at any moment and started again ends as if it never was; and what else a run promises."""

import json
import os
import warnings
from functools import cache
from pathlib import Path

import pytest
import torch
from every import bits, make, model, remembered
from filelock import FileLock
from torch import nn

from cflkit import federation, images
from cflkit.engine.checkpoint import BusyError
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation, simulate
from cflkit.methods import Ditto, FedAvg, LocalOnly
from cflkit.methods.base import Method

SETTINGS = {"local": SGD(0.1, epochs=2, batch_size=10), "rounds": 5, "participation": 0.5,
            "personal_every": 2, "progress": False}  # fmt: skip


@cache
def few():
    return federation.rotated(images.load("digits"), clients=8, samples_per_client=12, test="own")


def simulation(variant, folder, **settings):
    return Simulation(make(variant, few()), few(), model=model(variant), checkpoint=folder, **SETTINGS, **settings)


def outcome(history):
    """Everything that must be the same: the history as it is written, and every bit of state and memory."""
    return json.dumps(history.rounds), bits(history.server), remembered(history.memory)


@cache
def uninterrupted(variant):
    return outcome(simulation(variant, None).run())


# ---------------------------------------------------------------------- at chosen moments
class Killed(BaseException):
    """Stands for SIGKILL where the moment must be exact: nothing catches it, nothing is cleaned up."""


@pytest.mark.parametrize("variant", ["ditto", "stocfl"])
@pytest.mark.parametrize("moment", ["written half", "written whole", "replaced", "sweeping"])
@pytest.mark.parametrize("round", [0, 3])
def test_killed_in_the_middle_of_a_checkpoint(variant, moment, round, tmp_path, monkeypatch):
    expected = uninterrupted(variant)
    save, replace, seen = torch.save, os.replace, []

    def dying_save(state, file):
        seen.append(file)
        save(state, file)
        if len(seen) == round + 1:
            if moment == "written half":
                file.flush()
                os.truncate(file.name, os.path.getsize(file.name) // 2)
            if moment.startswith("written"):
                raise Killed

    def dying_replace(a, b):
        replace(a, b)
        if len(seen) == round + 1 and moment == "replaced":
            raise Killed

    def dying_unlink(file, **_):
        os.unlink(file)
        if len(seen) >= round + 1 and moment == "sweeping":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", dying_save)
        patch.setattr(os, "replace", dying_replace)
        patch.setattr(Path, "unlink", dying_unlink)
        try:
            simulation(variant, tmp_path / "killed").run()
            assert moment == "sweeping" and (variant == "stocfl" or round == 0)  # then nothing is swept
        except Killed:
            pass
    resumed = simulation(variant, tmp_path / "killed")
    assert outcome(resumed.run()) == expected
    rows = sum(map(len, resumed.run().memory.state().values()))
    left = [f.name for f in (tmp_path / "killed").rglob("*") if f.is_file()]
    assert {"state.pt", "lock"} <= set(left) and len(left) == 2 + rows  # nothing of the killed run is left


@pytest.mark.parametrize("every", [1, 2, 7])
def test_a_run_goes_on_from_its_last_checkpoint_and_no_earlier(every, tmp_path, monkeypatch):
    expected = uninterrupted("ditto")
    run = simulation("ditto", tmp_path / "killed", checkpoint_every=every)
    ditto_round = Ditto.round

    def dying(self, server, clients, net):
        if net.round == 4:
            raise Killed
        return ditto_round(self, server, clients, net)

    with monkeypatch.context() as patch:
        patch.setattr(Ditto, "round", dying)
        with pytest.raises(Killed):
            run.run()
    done = []
    monkeypatch.setattr(Ditto, "round", lambda *a: done.append(a[3].round) or ditto_round(*a))
    assert outcome(simulation("ditto", tmp_path / "killed", checkpoint_every=every).run()) == expected
    assert done == list(range({1: 4, 2: 3, 7: 1}[every], 6))


def test_a_finished_run_is_not_run_again(tmp_path, monkeypatch):
    first = simulation("fedavg", tmp_path).run()
    monkeypatch.setattr(FedAvg, "round", lambda *_: pytest.fail("a finished run was run again"))
    again = simulation("fedavg", tmp_path).run()
    assert outcome(again) == outcome(first) and again.seconds == first.seconds


# ---------------------------------------------------------------------- promises
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
