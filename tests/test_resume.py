"""A run killed at chosen moments and started again ends like one that was never killed, byte for byte."""

import json
import os
from functools import cache
from pathlib import Path

import pytest
import torch
from every import bits, make, model, remembered

from cflkit import federation, images
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.methods import Ditto, FedAvg

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
