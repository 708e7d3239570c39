"""A run killed at any moment and started again ends like one that was never killed, byte for byte.

Importing PyTorch takes seconds, so one process imports it and forks children that run, and are killed with SIGKILL
after random delays. They are started again until one ends. The process that forks runs nothing itself: what a run
leaves behind (threads, and locks that they hold) would be copied into its children, and could block them forever.
"""

import json
import os
import pickle
import random
import select
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path

import pytest
import torch
from every import ALL, bits, make, model, remembered

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


# ---------------------------------------------------------------------- fork, kill, compare
PATIENCE = 60  # seconds on the wall for a run that takes a tenth of one; whoever needs more is blocked


def attempt(variant, folder, delay=None, timer=False):
    """Run in a child that is killed after `delay` seconds; give its outcome and seconds, or None if it was killed.

    Either this process sends SIGKILL, or the child dies of its own SIGPROF, which nothing handles: as sudden, and
    its timer counts the seconds that the child has run, so that it strikes on a busy machine too.
    """
    result = Path(f"{folder}.result")
    ours, its = os.pipe()  # says that the child begins to run, and at its end of file that it has gone
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run = simulation(variant, folder)
            os.write(its, b".")
            if timer:
                signal.setitimer(signal.ITIMER_PROF, delay)
            began = time.process_time()
            found = outcome(run.run()), time.process_time() - began
            result.write_bytes(pickle.dumps(found))
            code = 0
        finally:
            os._exit(code)
    os.close(its)
    for patience in (PATIENCE, PATIENCE if timer or delay is None else delay):
        if select.select([ours], [], [], patience)[0]:
            os.read(ours, 1)
    os.close(ours)
    os.kill(child, signal.SIGKILL)  # one that has ended waits as a zombie, and nothing happens to it
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGPROF)
        return None
    assert os.WEXITSTATUS(status) == 0, "the run failed by itself"
    return pickle.loads(result.read_bytes())


def prove(variant, folder, kills, draw):
    """Kill a run `kills` times at random moments, let it end, and compare it with an uninterrupted one."""
    expected, seconds = attempt(variant, folder / "whole") or pytest.fail(f"{variant}: a run never ended")
    killed = 0
    for n in range(kills):
        delay = draw.uniform(0.001, 1.2 * seconds / kills)
        killed += attempt(variant, folder / "killed", delay, timer=n % 2 == 0) is None
    last = attempt(variant, folder / "killed")
    assert last is not None, f"{variant}: a resumed run never ended"
    assert last[0] == expected, f"{variant}: a resumed run differs"
    return killed


def main(folder, kills, seed, variants):
    import sklearn.datasets  # noqa: F401  what runs would import late, each child for itself
    import torch._dynamo

    assert threading.active_count() == 1
    torch.set_num_threads(1)
    draw = random.Random(int(seed))
    for variant in variants.split(","):
        home = Path(folder) / variant.replace(" ", "-")
        home.mkdir()
        print(variant, prove(variant, home, int(kills), draw), sep="\t", flush=True)


def killed_and_resumed(folder, kills, seed, variants):
    """How many kills of each variant struck before its run had ended."""
    command = [sys.executable, __file__, str(folder), str(kills), str(seed), ",".join(variants)]
    alone = os.environ | {"CUDA_VISIBLE_DEVICES": ""}  # autograd starts no threads, which a fork would lose
    done = subprocess.run(command, capture_output=True, text=True, env=alone, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return {name: int(killed) for name, killed in (line.split("\t") for line in done.stdout.splitlines())}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("variants", "kills"), [(["ditto", "stocfl", "fesem", "mdicfl", "fedgroup"], 2),
                                                 pytest.param(ALL, 4, marks=pytest.mark.slow)])  # fmt: skip
def test_every_method_survives_being_killed_at_random_moments(variants, kills, tmp_path):
    killed = killed_and_resumed(tmp_path, kills, 0, variants)
    assert set(killed) == set(variants)
    assert sum(killed.values()) > len(variants) * kills / 4  # kills must have struck, or nothing was tested


@pytest.mark.parametrize("variant", ["cfl", "cgpfl_like", "fesem personal", "lcfed", "lcfed centre", "mdicfl",
                                     "mdicfl generator", "mdicfl real", "mdicfl warm-up"])  # fmt: skip
def test_clusters_change_in_the_runs_that_are_killed(variant):
    assert sum(row["moved"] for row in json.loads(uninterrupted(variant)[0])) > 0


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


def test_checkpoints_change_nothing(tmp_path):
    assert outcome(simulation("ditto", None).run()) == outcome(simulation("ditto", tmp_path).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
