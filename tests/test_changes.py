"""Federations that change: who holds what at which time step, and runs that go on from one to the next."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from every import bits, make, remembered
from tiny import federation, refused, regression

from cflkit.data import builders
from cflkit.data.changes import time_steps
from cflkit.engine.clients import Data, Pixels
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation, simulate
from cflkit.methods import FedAvg, LocalOnly, OracleClusters
from cflkit.models.flat import Model
from cflkit.testing import promises

GROUPS = [[0, 0, 1], [0, 1, 1], [1, 1, 0]]


@pytest.fixture(scope="module")
def stock(digits):
    """Four clients upright and five turned, six images each: as many as GROUPS needs."""
    return builders.rotated(digits, clients=[4, 5], degrees=(0, 90), samples_per_client=6)


def test_each_client_holds_the_next_data_of_its_group(stock):
    """By hand: clients 0..3 of the stock are of cluster 0, and 4..8 of cluster 1."""
    for step, row, taken in zip(time_steps(stock, GROUPS), GROUPS, [[0, 1, 4], [2, 5, 6], [7, 8, 3]], strict=True):
        assert step.cluster.tolist() == row
        for client, origin in enumerate(taken):
            for ours, theirs in zip(step.train.rows(client), stock.train.rows(origin), strict=True):
                assert torch.equal(ours, theirs)
            test, usual = (fed.test.rows(int(fed.test_of[c])) for fed, c in ((step, client), (stock, origin)))
            assert torch.equal(test[0], usual[0])
        assert bits(builders.build(step.config).train.index) == bits(step.train.index)


@pytest.mark.parametrize(("groups", "line"), [
    ([[0, 0], [0]], r"groups = \[2, 1\]: must be rows of one length, the number of clients"),
    ([[0, 0, 1]] * 3, "clients of cluster 0 = 4: must be 6 or more, one for each client and time step"),
    ([[0, 2]], "clients of cluster 2 = 0: must be 1 or more"),
    ([], r"groups = \[\]: must be a sequence"),
    ([[0.5]], r"groups = \[\[0.5\]\]: must be a sequence"),
])  # fmt: skip
def test_bad_tables_are_refused(stock, groups, line):
    with pytest.raises(ValueError, match=line):
        time_steps(stock, groups)
    with pytest.raises(ValueError, match="stock = 'tiny': must be a federation whose true clusters are known"):
        time_steps(federation((np.ones((2, 2)), [0, 1])), [[0]])


@pytest.mark.parametrize("variant", ["fedavg", "local", "ditto", "scaffold", "stocfl", "feddrift", "flux"])
def test_time_steps_of_the_same_data_are_one_run(variant, fed, settings_of_a_run, tmp_path):
    """Server and clients keep all, in memory and on disk, and no round draws other batches."""
    method, settings = make(variant, fed), settings_of_a_run | {"personal_clients": 0}
    whole = simulate(method, fed, **settings | {"rounds": 4})
    for where in (None, tmp_path):
        parts = simulate(method, [fed, fed], **settings | {"rounds": 2}, checkpoint=where)
        assert bits(parts.server) == bits(whole.server)
        assert remembered(parts.memory) == remembered(whole.memory)
        assert parts.rounds == whole.rounds and len(parts.seconds) == 5


@pytest.mark.parametrize(("variant", "promise"), [
    *((variant, promises.survives_a_kill) for variant in ("local", "feddrift", "flux")),
    *(("feddrift", promise) for promise in (promises.chunks_and_trainers_change_rounding_only,
                                            promises.workers_change_no_bit, promises.runs_on_a_gpu)),
])  # fmt: skip
def test_promises_hold_in_the_second_time_step(variant, promise, fed, settings_of_a_run, monkeypatch):
    if promise is promises.runs_on_a_gpu:  # a pretended tensor has no checksum
        monkeypatch.setattr("cflkit.engine.simulation.checksum", repr)
    steps = [fed, time_steps(fed, [fed.cluster.tolist()])[0]]
    promise(make(variant, fed), steps, settings_of_a_run | {"rounds": 1, "participation": 1.0})


def test_clients_can_look_at_what_they_held_before(stock):
    """In the order of time, client by client; each time step may have pixels of its own."""
    before, now = (step.train for step in time_steps(stock, [[0, 1, 0], [1, 0, 0]]))
    pixels = Pixels(stock, Model(regression(64, 10)))
    moved = replace(before, pool=before.pool.flip(0), index=len(before.pool) - 1 - before.index)
    data = Data(now, [2, 0], pixels, 10, [moved])
    _, both = data[0], data.during(torch.tensor([[False, True], [True, True]]))  # whatever was looked at before
    held, rest = both.split(0.5, seed=0)
    assert (both.clients, both.sizes.tolist(), rest.sizes.tolist()) == ([2, 0], [6, 12], [3, 6])
    for i, rows in enumerate(([now.rows(2)], [before.rows(0), now.rows(0)])):
        where, y = (torch.cat(parts) for parts in zip(*rows, strict=True))
        for part, j in ((both, i), (both.take(i), 0)):
            assert int(part.sizes[j]) == len(y) and torch.equal(part[j][1], y)
            assert torch.equal(part[j][0], pixels(now.pool[where]))
            assert part.label_counts()[j].tolist() == torch.bincount(y, minlength=10).tolist()
        assert torch.equal(torch.cat([held[i][0], rest[i][0]]).sum(0), both[i][0].sum(0))
    for wrong in (torch.ones(2, 1).bool(), torch.tensor([[True, True], [False, False]])):
        refused(r"steps = .*: must be \(2, 2\), clients and time steps, one or more of each", data.during, wrong)


def test_going_on_leaves_the_first_run_alone_and_scores_new_data(stock, settings_of_a_run):
    one, other = time_steps(stock, [[0, 0], [1, 1]])
    settings = settings_of_a_run | {"rounds": 2}
    first = simulate(LocalOnly(), one, **settings)
    before = bits(first.server), remembered(first.memory), list(first.rounds)
    run = Simulation(FedAvg(), other, **settings | {"start": simulate(FedAvg(), one, **settings)})
    assert run.evaluate(run.start.server, run.start.memory)["accuracy"] != run.start.final["accuracy"]
    simulate(LocalOnly(), other, **settings | {"rounds": 3, "start": first})
    assert (bits(first.server), remembered(first.memory), first.rounds) == before


def test_what_cannot_be_gone_on_from_is_refused(stock, settings_of_a_run, tmp_path):
    one, other, more = time_steps(stock, [[0, 1]] * 3)
    settings = settings_of_a_run | {"rounds": 1}
    first = simulate(FedAvg(), one, **settings | {"rounds": 2})
    with pytest.raises(ValueError, match="rounds = 1: must be at least the 2 of the run that it goes on from"):
        Simulation(FedAvg(), other, **settings, start=first)
    refused("clients, classes and shape of each time step = .*", simulate, FedAvg(), [one, stock], **settings)
    refused("rounds = True: must be .*", simulate, FedAvg(), [one, other], **settings | {"rounds": True})
    refused(r".*federation = \[\]: must be a sequence.*", simulate, FedAvg(), [], **settings)
    simulate(FedAvg(), [one, other], **settings, checkpoint=tmp_path)
    (tmp_path / "1" / "state.pt").unlink()
    with pytest.raises(ValueError, match="of this configuration; start was"):
        simulate(FedAvg(), [more, other], **settings, checkpoint=tmp_path)


def test_the_oracle_moves_clients_as_they_move(stock):
    """By hand: cluster 1 begins at the first model when it is first seen, and cluster 0 keeps what it learnt."""
    steps = time_steps(stock, [[0, 0], [0, 1]])
    settings = {"model": regression(64, 10), "local": SGD(0.1), "progress": False, "trainer": "lean"}
    alone = simulate(OracleClusters.of, steps[:1], rounds=1, **settings).server["models"]
    both = simulate(OracleClusters.of, steps, rounds=1, **settings)
    assert both.server["assign"].tolist() == [0, 1] and both.final["ari"] == 1
    sim = Simulation(FedAvg(), steps[1], rounds=2, **settings)
    net = sim.network(2, both.memory)
    for k, start in enumerate((alone[0], sim.task.init()[0])):
        up = net.call(torch.tensor([k]), FedAvg().client, down={"model": start})
        assert torch.allclose(both.server["models"][k], up["model"].dense()[0], rtol=0, atol=1e-14)
