"""What a simulation makes of its settings, and the order of what it does."""

import copy
import functools
import math
from unittest.mock import MagicMock

import numpy as np
import pytest
import tiny
import torch
from torch import nn

from cflkit.engine import fast, simulation
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation, digest, schedule, simulate
from cflkit.methods import Ditto, FedAvg, StoCFL
from cflkit.testing.pretend import gpu


class Told:
    """A method without a client's part that tells who took part when, and lets the test say the rest."""

    name = "told"
    told = False  # the domains of test images

    def __init__(self, assigned=None, numbers=()):
        self.assigned, self.numbers, self.seen = assigned, dict(numbers), []

    def config(self):
        return {"name": self.name}

    def check(self, task):
        self.task = task

    def start(self, net):
        self.seen.append((net.round, None))
        return {"round": 0}

    def round(self, server, clients, net):
        self.seen.append((net.round, clients.tolist()))
        return {"round": server["round"] + 1}

    def assignment(self, server):
        return self.assigned and torch.tensor(self.assigned[server["round"]])

    def log(self, server):
        return {name: server["round"] * value for name, value in self.numbers.items()}

    def serve(self, server, clients, net):
        return None

    personal = serve

    def shared(self, server):
        return None

    def predict(self, model, vector, x):
        return model.forward(vector, x)


@pytest.fixture
def four():
    """Four clients of one image each, in two true clusters."""
    return tiny.federation(*[([[i, 1]], [i % 2]) for i in range(4)], cluster=[0, 0, 1, 1])


def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(2, 2))


# ---------------------------------------------------------------------- rounds
def test_every_round_sees_its_own_clients_in_order(four):
    told = Told()
    run = tiny.simulation(told, four, rounds=3, participation=0.5)
    found = run.run()
    assert told.seen == [(0, None), *((t, run.schedule[t - 1].tolist()) for t in (1, 2, 3))]
    assert len({tuple(drawn.tolist()) for drawn in run.schedule}) > 1 and found.server == {"round": 3}
    assert told.task.clients == 4 and [row["round"] for row in found.rounds] == [0, 1, 2, 3]


def test_clusters_of_a_round_by_hand(four):
    # -1 is not known yet; from round 1 to 2 the second client goes over, and all are renamed
    told = Told(assigned=[[-1, -1, -1, -1], [0, 0, 1, -1], [5, 3, 3, 3]], numbers={"tau": 10})
    rows = tiny.run(told, four, rounds=2).rounds
    assert [row["sizes"] for row in rows] == [[], [2, 1], [3, 1]] and [row["moved"] for row in rows] == [0, 0, 1]
    assert np.isnan(rows[0]["ari"]) and rows[1]["ari"] == rows[1]["nmi"] == 1 and rows[2]["ari"] == 0
    assert [row["tau"] for row in rows] == [0, 10, 20]
    assert [row["clusters"] for row in rows] == [0, 2, 2]
    unknown = tiny.federation(*[([[i, 1]], [i % 2]) for i in range(4)])
    assert "ari" not in tiny.run(told, unknown, rounds=1).final and "moved" not in tiny.run(Told(), four).final


def test_whoever_asks_is_called_after_each_round(four, tmp_path, monkeypatch):
    """And may end the run there, which goes on from the round that was kept."""
    told, seen = Told(), []
    tiny.simulation(told, four, rounds=3).run(lambda history: seen.append(len(history.rounds)))
    assert seen == [2, 3, 4]

    def stop(history):
        raise KeyboardInterrupt

    monkeypatch.setenv("HOME", str(tmp_path))
    run = tiny.simulation(Told(), four, rounds=3, checkpoint="~/kept")
    with pytest.raises(KeyboardInterrupt):
        run.run(stop)
    told.seen.clear()
    tiny.simulation(told, four, rounds=3, checkpoint=tmp_path / "kept").run()
    assert [t for t, _ in told.seen] == [2, 3]


def test_the_bar_shows_method_rounds_and_accuracy(fed, settings_of_a_run, tmp_path, monkeypatch):
    bars = []

    def made(**how):
        bars.append(MagicMock(how=how))
        bars[-1].__enter__.return_value = bars[-1]
        return bars[-1]

    monkeypatch.setattr(simulation, "tqdm", made)
    settings = settings_of_a_run | {"checkpoint": tmp_path}
    simulate(Ditto(), fed, **settings | {"rounds": 1})
    found = simulate(Ditto(), fed, **settings | {"rounds": 3, "progress": True})
    first, last = bars
    assert first.how == {"total": 1, "initial": 0, "desc": "ditto", "unit": "round", "disable": True}
    assert last.how == {"total": 3, "initial": 1, "desc": "ditto", "unit": "round", "disable": False}
    shown = [call.args[0] for call in last.set_postfix.call_args_list]
    assert shown == [{"accuracy": round(row["accuracy"], 4)} for row in found.rounds[2:]]
    assert (first.update.call_count, last.update.call_count) == (1, 2)


# ---------------------------------------------------------------------- who takes part, who is scored
def test_a_schedule_refuses_what_cannot_be():
    for given, line in [
        ((4, 1.5, 1, 0), r"participation = 1.5: must be a finite number, in \(0, 1\]"),
        ((2, 1.0, 1, 0, torch.tensor([1, 1, 1])), r"len\(arrival\) = 3: must be the number of clients, 2"),
        ((2, 1.0, 1, 0, torch.ones(2)), r"arrival = 'torch.float32 of shape \(2,\)': must be integers.*"),
        ((2, 1.0, 1, 0, torch.tensor([[1], [1]])), r"arrival = 'torch.int64 of shape \(2, 1\)': must be int.*"),
        ((2, 1.0, 1, 0, torch.tensor([0, 1])), r"min\(arrival\) = 0: must be 1, so that round 1 has a client.*"),
        ((2, 1.0, 1_000_001, 0), "rounds = 1000001: must be at most 1000000"),
    ]:
        tiny.refused(line, schedule, *given)
    assert [drawn.tolist() for drawn in schedule(3, 0.1, 2, 0, torch.tensor([1, 3, 3]))] == [[0], [0]]
    assert schedule(2, 1.0, 3, 0, torch.tensor([3, 1]))[1:][1].tolist() == [0, 1]


@pytest.mark.parametrize("rounds, arrival, unseen", [
    (3, [1, 3, 4, 9], [2, 3]), (1, [1, 1, 2, 1], [2]), (0, [1, 1, 2, 1], [2]), (0, None, []),
])  # fmt: skip
def test_whoever_comes_after_the_last_round_is_scored_apart(rounds, arrival, unseen, four):
    given = arrival and torch.tensor(arrival)
    groups = tiny.simulation(FedAvg(), four, rounds=rounds, arrival=given).scoring.groups
    assert groups["unseen_"].tolist() == unseen
    assert groups[""].tolist() == [i for i in range(4) if i not in unseen]


def test_accuracies_of_clients_are_those_of_the_last_scores_to_the_last_bit(fed, settings_of_a_run):
    run = Simulation(StoCFL(), fed, **settings_of_a_run)
    found = run.run()
    scored = copy.deepcopy(run.scoring.of_clients)
    run.scoring.scorer = None  # they are kept, and not computed again
    each = run.accuracies(found)
    assert each["accuracy"] == scored["accuracy"][1].tolist()
    assert np.mean(each["accuracy"]) == found.final["accuracy"]


# ---------------------------------------------------------------------- what it is
def test_what_a_configuration_says_of_the_network(four):
    def config(model):
        return Simulation(Told(), four, model=model, local=tiny.SGD(0.1), rounds=0).config

    named, function, partly = config("mlp8"), config(linear), config(functools.partial(linear))
    assert named["model"] == "mlp8" and "network" not in named
    assert function["model"] == f"{__name__}.linear" and partly["model"] == "functools.partial"
    assert function["network"] == partly["network"] == repr(linear())
    assert (named["personal"], named["arrival"], named["chunk"]) == ([100, None], None, 32)
    later = tiny.simulation(Told(), four, chunk=5, arrival=torch.tensor([1, 1, 2, 1])).config
    assert (later["chunk"], later["arrival"]) == (5, [1, 1, 2, 1])


def test_a_digest_is_of_who_holds_what(four):
    """Stored records carry it: these digits may never change."""
    assert digest(four) == "4673628266a6f849"
    changed = tiny.federation(*[([[i, 2]], [i % 2]) for i in range(4)])
    assert digest(changed) != digest(four) and len(digest(changed)) == 16


# ---------------------------------------------------------------------- where, and how
@pytest.mark.parametrize("gpus, good, bad", [
    (0, ["cpu"], ["cuda", "cuda:0", "mps", ""]),
    (1, ["cpu", "cuda", "cuda:0"], ["cuda:1", "cuda:x", "cuda:-1"]),
    (2, ["cuda:1"], ["cuda:2"]),
])  # fmt: skip
def test_devices(gpus, good, bad, four, monkeypatch):
    class Accepted(Exception):
        pass

    def accept(make, dtype, device, **_):
        raise Accepted(device)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(simulation, "Model", accept)
    for device in good:
        with pytest.raises(Accepted, match=f"^{device}$"):
            tiny.simulation(FedAvg(), four, device=device)
    for device in bad:
        line = rf"^device = '{device}': must be cpu, or cuda where PyTorch sees a GPU \(here {gpus}\)$"
        with pytest.raises(ValueError, match=line):
            tiny.simulation(FedAvg(), four, device=device)


def test_a_cpu_leaves_the_trainer_as_it_is_and_holds_32_clients(four):
    run = tiny.simulation(FedAvg(), four, trainer="auto")
    assert (run.trainer, run.chunk, run.network(1, None)._chunk) == ("auto", 32, 32)
    run = tiny.simulation(FedAvg(), four, trainer="auto", chunk=3)
    assert (run.trainer, run.chunk) == ("auto", 3)


def test_a_gpu_stacks_as_many_clients_as_fit(four, monkeypatch):
    monkeypatch.setattr(simulation, "fitting", lambda model, passing: 7)
    with gpu():
        run = tiny.simulation(FedAvg(), four, trainer="auto", device="cuda")
        assert (run.trainer, run.chunk, run.config["chunk"]) == ("stacked", 7, None)  # free memory is no setting
        run = tiny.simulation(FedAvg(), four, trainer="lean", chunk=2, device="cuda")
        assert (run.trainer, run.chunk, run.config["chunk"]) == ("lean", 2, 2)


@pytest.mark.parametrize("batch, images", [(3, 3), (None, 7), (50, 7)])
def test_what_fits_counts_the_largest_batch_that_a_client_takes(batch, images, monkeypatch):
    asked = []
    monkeypatch.setattr(simulation, "fitting", lambda model, passing: asked.append(passing) or 1)
    fed = tiny.federation(*[([[i, 1]] * n, [0] * n) for i, n in enumerate((2, 7, 4))])
    with gpu():
        run = tiny.simulation(FedAvg(), fed, device="cuda", local=SGD(0.1, batch_size=batch))
        assert asked == [images * fast.passing(run.model, fed.shape) + 7 * math.prod(fed.shape)] and run.chunk == 1


def test_on_a_gpu_single_precision_is_single_in_convolutions_too(four, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    tiny.simulation(FedAvg(), four)
    assert torch.backends.cudnn.allow_tf32
    with gpu():
        tiny.simulation(FedAvg(), four, device="cuda")
    assert not torch.backends.cudnn.allow_tf32


def test_debugging_reaches_clients_one_by_one_in_one_thread(four):
    reached = []
    run = tiny.simulation(Told(), four, debug=True, workers=2)
    run.network(1, None).call(torch.arange(4), lambda down, memory, data, local: reached.append(len(data)) or {})
    assert reached == [1, 1, 1, 1] and run.workers == 1
    assert tiny.simulation(Told(), four, workers=2).workers == 2
