"""Rounds: who takes part, what is recorded, and what may not change a result."""

import numpy as np
import pandas as pd
import pytest
import torch
from every import VARIANTS, bits, make, model, remembered
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cflkit import methods, metrics
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import History, Simulation, fitting, schedule, simulate
from cflkit.methods import IFCA, CGPFLLike, Ditto, FedAvg, FedDANE, FedGroup, LCFed, LocalOnly, Scaffold, StoCFL
from cflkit.models.flat import Model
from cflkit.testing import promises


# ---------------------------------------------------------------------- the schedule
@given(st.integers(1, 40), st.floats(0.01, 1), st.integers(0, 6), st.integers(0, 9))
def test_a_schedule_samples_the_stated_share_ascending_without_replacement(clients, participation, rounds, seed):
    found = schedule(clients, participation, rounds, seed)
    assert len(found) == rounds
    for drawn in found:
        ids = drawn.tolist()
        assert len(ids) == max(1, round(participation * clients))
        assert ids == sorted(set(ids)) and ids[0] >= 0 and ids[-1] < clients
    longer = schedule(clients, participation, rounds + 2, seed)
    assert all(torch.equal(a, b) for a, b in zip(found, longer, strict=False))


def test_rounds_and_seeds_draw_apart_and_everybody_is_drawn_alike():
    a, b = schedule(100, 0.1, 2000, 0), schedule(100, 0.1, 20, 1)
    assert not torch.equal(a[0], a[1]) and not torch.equal(a[0], b[0])
    counts = torch.cat(a).bincount(minlength=100)
    assert counts.sum() == 20_000 and counts.min() > 140 and counts.max() < 260  # 200 each, sd 13.4
    assert schedule(3, 1.0, 1, 5)[0].tolist() == [0, 1, 2]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.floats(0.1, 1))
def test_nobody_takes_part_before_arriving(later, participation):
    arrival = torch.tensor([1, *later])
    for t, drawn in enumerate(schedule(len(arrival), participation, 6, 0, arrival), start=1):
        assert (arrival[drawn] <= t).all()
        assert len(drawn) == max(1, round(participation * int((arrival <= t).sum())))


def test_all_methods_of_a_comparison_see_the_same_clients_and_start(fed, settings_of_a_run):
    runs = [Simulation(make(v, fed), fed, **settings_of_a_run) for v in VARIANTS if model(v) == "mlp16"]
    first = runs[0]
    for run in runs:
        assert all(torch.equal(a, b) for a, b in zip(run.schedule, first.schedule, strict=True))
        assert torch.equal(run.scoring.sample, first.scoring.sample)
        assert torch.equal(run.task.init()[0], first.task.init(2)[0])
    assert not torch.equal(first.task.init(2)[0], first.task.init(2)[1])


# ---------------------------------------------------------------------- the history
CLUSTERING = {"sizes", "clusters", "moved", "ari", "nmi"}
AXES = {f"{axis}{part}" for axis in ("accuracy", "own_accuracy") for part in ("", "_std", "_worst10", "_micro")}
SCORES = AXES | {"f1", "f1_micro"}


def test_columns_of_a_global_a_personal_and_a_clustered_method(fed, settings_of_a_run):
    found = simulate(FedAvg(), fed, **settings_of_a_run)
    assert [row["round"] for row in found.rounds] == [0, 1, 2, 3]
    assert all(set(row) == {"round", "down", "up"} | SCORES for row in found.rounds)
    assert len(found.seconds) == 4 and all(s > 0 for s in found.seconds)
    assert [r["up"] for r in found.rounds] == [r["down"] for r in found.rounds] == [0, *[6 * 1210] * 3]

    found = simulate(LocalOnly(), fed, **settings_of_a_run)
    assert all(set(row) == {"round", "down", "up"} for row in found.rounds[:-1])
    assert set(found.final) == {"round", "down", "up"} | {f"personal_{s}" for s in SCORES}
    assert found.final["down"] == found.final["up"] == 0

    found = simulate(Ditto(), fed, personal_every=2, **settings_of_a_run)
    assert ["personal_accuracy" in row for row in found.rounds] == [True, False, True, True]

    found = simulate(StoCFL(), fed, **settings_of_a_run)
    assert CLUSTERING | SCORES | {"global_accuracy", "objective"} <= set(found.final)
    schedule = Simulation(FedAvg(), fed, **settings_of_a_run).schedule
    assert sum(found.final["sizes"]) == len(torch.cat(schedule).unique())


def test_rounds_are_scored_when_due_and_scoring_changes_nothing(fed, settings_of_a_run):
    often = simulate(Ditto(), fed, **settings_of_a_run, personal_every=1)
    seldom = simulate(Ditto(), fed, **settings_of_a_run, evaluate_every=2, personal_clients=0)
    assert ["accuracy" in row for row in seldom.rounds] == [True, False, True, True]
    assert not any("personal_accuracy" in row for row in seldom.rounds)
    assert bits(often.server) == bits(seldom.server)
    assert [r["accuracy"] for r in often.rounds][2] == seldom.rounds[2]["accuracy"]
    assert [(r["down"], r["up"]) for r in often.rounds] == [(r["down"], r["up"]) for r in seldom.rounds]


def test_a_history_becomes_a_table(fed, settings_of_a_run, tmp_path):
    found = simulate(StoCFL(), fed, **settings_of_a_run, evaluate_every=3)
    frame = found.frame()
    assert frame.index.tolist() == [0, 1, 2, 3] and frame.loc[3, "sizes"] == found.final["sizes"]
    found.to_csv(tmp_path / "history.csv")
    assert [f.name for f in tmp_path.iterdir()] == ["history.csv"]
    read = pd.read_csv(tmp_path / "history.csv", index_col="round")
    assert read.loc[3, "accuracy"] == found.final["accuracy"] and np.isnan(read.loc[1, "accuracy"])
    assert [int(n) for n in str(read.loc[3, "sizes"]).split()] == found.final["sizes"]
    assert list(read.columns) == list(frame.columns)
    History([{"round": 0, "down": 0}]).to_csv(tmp_path / "no_lists.csv")


def test_personal_models_are_scored_on_a_fixed_sample(fed, settings_of_a_run):
    few = Simulation(Ditto(), fed, **settings_of_a_run, personal_clients=5)
    again = Simulation(LocalOnly(), fed, **settings_of_a_run, personal_clients=5)
    assert torch.equal(few.scoring.sample, again.scoring.sample)
    assert torch.equal(few.scoring.sample, few.scoring.sample.unique()) and len(few.scoring.sample) == 5
    assert Simulation(Ditto(), fed, **settings_of_a_run).scoring.sample.tolist() == list(range(12))
    other = Simulation(Ditto(), fed, **settings_of_a_run, personal_clients=5, seed=1)
    assert other.scoring.sample.tolist() != few.scoring.sample.tolist()


# ---------------------------------------------------------------------- what may not change a result
# methods that neither draw anything by a client's number nor, like chained StoCFL, take clients in turn
NAMELESS = ("local", "fedavg", "fedsgd", "fedprox", "ditto", "oracle", "ifca", "ifca share", "ifca gradient", "cfl",
            "stocfl", "stocfl sampled", "stocfl displacement", "scaffold", "scaffold I", "feddane same", "fedper",
            "feddist")  # fmt: skip


@pytest.mark.parametrize("variant", NAMELESS)
def test_permuting_clients_permutes_results(variant, fed, settings_of_a_run):
    """With full batches, a client's randomness plays no part, and its number is only a name."""
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    settings = {**settings_of_a_run, "local": SGD(0.1, epochs=3), "participation": 1.0, "evaluate_every": 9}
    runs = []
    for f in (fed, fed.subset(order.tolist())):
        run = Simulation(make(variant, f), f, **settings)
        runs.append((run, run.run()))
    (_, a), (run, b) = runs
    for x, y in zip(a.rounds, b.rounds, strict=True):
        assert set(x) == set(y)
        for name in x:
            if name != "moved":  # a new cluster's number depends on who came first
                assert x[name] == pytest.approx(y[name], abs=1e-9, nan_ok=True), name
    assigned = run.method.assignment(a.server)
    if assigned is not None:
        assert metrics.ari(assigned[order], run.method.assignment(b.server)) == 1
    for name, rows in remembered(a.memory).items():
        for i, client in enumerate(order.tolist()):
            if client in rows:
                torch.testing.assert_close(a.memory.get(name, client), b.memory.get(name, i), rtol=0, atol=1e-10)


# by design: also clients beside the schedule's
ASK_OTHERS = {"feddane", "fesem", "fedgroup", "robust", "lcfed", "feddrift", "pacfl"}


@pytest.mark.parametrize("variant", sorted(VARIANTS.keys() - ASK_OTHERS))
def test_other_data_on_a_client_that_is_not_sampled_changes_nothing(variant, fed, settings_of_a_run):
    settings = settings_of_a_run | {"model": model(variant), "rounds": 1, "evaluate_every": 9}
    run = Simulation(make(variant, fed), fed, **settings)
    changed = promises.relabelled(fed, next(c for c in range(12) if c not in run.schedule[0].tolist()))
    one, other = run.run(), simulate(make(variant, changed), changed, **settings)
    assert bits(one.server) == bits(other.server) and remembered(one.memory) == remembered(other.memory)


@pytest.mark.parametrize("method", [methods.FeSEM(k=2), LCFed(k=2, rank=2), methods.Robust(k=2)])
def test_whoever_asks_clients_before_they_arrive_is_refused(method, fed, settings_of_a_run):
    simulate(method, fed, **settings_of_a_run | {"rounds": 1}, arrival=torch.ones(12, dtype=torch.int64))
    arrival = torch.tensor([1] * 9 + [3] * 3)
    line = r"^arrival = 'after round 0 for clients \[9, 10, 11\]': must be None for a method that reaches"
    with pytest.raises(ValueError, match=line):
        simulate(method, fed, **settings_of_a_run, arrival=arrival)


def test_feddane_solves_with_clients_that_have_arrived(fed, settings_of_a_run):
    reached = []

    class Told(FedDANE):
        def client(self, down, memory, data, local):
            reached.append((local.round, *data.clients))
            return super().client(down, memory, data, local)

    late = settings_of_a_run | {"rounds": 4, "arrival": torch.tensor([1] * 6 + [3] * 6)}
    simulate(Told(), fed, **late)
    assert all(client < 6 for t, *clients in reached if t < 3 for client in clients)
    assert any(client >= 6 for t, *clients in reached if t >= 3 for client in clients)


def test_fedgroup_begins_with_those_who_are_there_and_takes_in_the_others(fed, settings_of_a_run):
    how = settings_of_a_run | {"rounds": 3, "participation": 1.0}
    late = simulate(FedGroup(k=2), fed, **how, arrival=torch.tensor([3] * 3 + [1] * 9)).rounds
    assert [sum(row["sizes"]) for row in late] == [9, 9, 9, 12]
    line = "^k = 4: must be at most 3, the clients that are there before round 1$"
    with pytest.raises(ValueError, match=line):
        simulate(FedGroup(k=4), fed, **how, arrival=torch.tensor([1] * 3 + [3] * 9))


def test_scaffolds_control_stays_the_mean_of_those_who_are_there(fed, settings_of_a_run):
    arrival = torch.tensor([1] * 6 + [3] * 3 + [9] * 3)
    found = simulate(Scaffold(), fed, **settings_of_a_run | {"rounds": 4, "participation": 0.5}, arrival=arrival)
    own = [c for c in (found.memory.get("control", i) for i in range(12)) if c is not None]
    assert 3 < len(own) <= 9
    torch.testing.assert_close(found.server["control"], sum(own) / 9, rtol=0, atol=1e-12)


INDIFFERENT = [FedAvg(), IFCA(k=2), StoCFL(), FedGroup(k=2), Scaffold(), Scaffold(option="I"),
               LCFed(k=1, rank=None), CGPFLLike(k=1)]  # fmt: skip


@pytest.mark.parametrize("method", INDIFFERENT, ids=lambda m: m.name)
def test_clients_that_never_come_are_scored_apart_and_change_nothing(method, fed, settings_of_a_run):
    settings = {**settings_of_a_run, "participation": 1.0, "evaluate_every": 1}
    found = simulate(method, fed, **settings, arrival=torch.tensor([1] * 9 + [9] * 3))
    assert all({"accuracy", "unseen_accuracy"} <= set(row) for row in found.rounds)
    alone = simulate(method, fed.subset(range(9)), **settings)
    assert [row["accuracy"] for row in alone.rounds] == [row["accuracy"] for row in found.rounds]
    run = Simulation(method, fed, **settings)
    late = run.evaluate(found.server, found.memory, torch.arange(9, 12))
    assert late["accuracy"] == found.final["unseen_accuracy"]
    assert "unseen_accuracy" not in simulate(method, fed, **settings).final


@pytest.mark.parametrize("clients, chunk", [(0, 1), (1, 1), (2, 2), (7, 4), (64, 64), (10**6, 1024)])
def test_on_a_gpu_as_many_clients_as_fit_are_trained_together(clients, chunk, monkeypatch):
    task = Model(lambda: nn.Linear(3, 2), torch.float32)
    # half of it is theirs: ten vectors of four-byte numbers each, and three times what passes through
    free = 2 * clients * (10 * task.size + 3 * 100) * 4
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2 * free))
    assert fitting(task, 100) == chunk
