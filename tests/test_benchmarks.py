"""The benchmarks time equal work: both sides end with the same models."""

import copy
import json
import threading
from dataclasses import replace
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from benchmarks import cluster, cores, engine, lockstep, measure, peers, server
from cflkit import federation
from cflkit.engine.fast import stacked
from cflkit.engine.network import Network
from cflkit.engine.sgd import SGD
from cflkit.testing.promises import Far


def small(work):
    shape = (3, 8, 8) if work.model == "resnet18" else work.shape
    local = replace(work.local, batch_size=work.local.batch_size and 2)
    name = f"{work.name[0]} {work.round}"
    return replace(work, name=name, shape=shape, clients=4, images=4, local=local, least=None, aim=None)


@pytest.mark.parametrize("work", {w.name: w for w in map(small, engine.WORKLOADS)}.values(), ids=lambda w: w.name)
def test_both_sides_train_the_same_models(work):
    both = engine.Round(work, dtype="float64")
    ours, usual = both.ours(), both.usual()
    assert ours.shape == usual.shape
    assert work.round == "evaluation" or (ours - both.omega).abs().max() > 1e-4
    assert (ours - usual).abs().max() <= 1e-10


def test_operations_by_hand():
    """Two passes, two clients, three steps: a step has two products in the first layer and three in the second."""
    work = engine.Workload("hand", "mlp7", (1, 4, 4), 3, 2, 5, SGD(0.1, epochs=3), round="stocfl")
    step = 2 * (2 * 5 * 16 * 7 + 3 * 5 * 7 * 3)
    assert engine.Round(work).operations() == 2 * 2 * 3 * step


def test_a_run_prints_a_table_and_stores_it(tmp_path, capsys, monkeypatch):
    work = engine.Workload("tiny", "mlp4", (1, 4, 4), 3, 2, 5, SGD(0.1, epochs=3), least=1.0, repeats=3)
    monkeypatch.setattr(engine, "WORKLOADS", (work,))
    assert engine.main(["--json", str(tmp_path)]) == 0
    (file,) = tmp_path.iterdir()
    stored = json.loads(file.read_text())
    assert file.name.startswith("engine-") and str(file) in capsys.readouterr().out
    (row,) = stored["rows"]
    assert row["workload"] == "tiny" and row["ratio_cpu"] > 0 and row["difference"] < 1e-5
    assert stored["machine"]["machine"]["processor"] and stored["machine"]["card"] is None
    assert file.stem.endswith(f"-{stored['machine']['vectors'].lower()}")  # of one name, and not the same processor
    assert engine.main(["--quick", "--json", str(tmp_path / "none")]) == 0
    assert not (tmp_path / "none").exists()


def test_lock_step_is_measured_both_ways(monkeypatch):
    asked, times = [], iter([4, 2, 8, 16])
    monkeypatch.setattr(measure, "seconds", lambda *_: (0, asked.append(stacked.REPLAYED) or next(times)))
    work = replace(small(lockstep.WORKLOADS[0]), images=5)
    found = lockstep.row(work, "cpu")
    assert asked == [1, 1, 10**9, 10**9]  # steps from which a step is recorded
    steps = 3 * lockstep.EPOCHS
    assert found["recorded"] == pytest.approx(2e3 / steps) and found["plain"] == pytest.approx(8e3 / steps)
    assert found["ratio"] == pytest.approx(4) and found["difference"] == 0 and found["batch"] == 2


def test_ratios_are_taken_pair_by_pair(monkeypatch):
    clock = iter([(1, 10), (2, 30), (4, 40), (6, 60), (5, 50), (1, 20)])  # usual, ours; ours, usual; usual, ours
    monkeypatch.setattr(measure, "seconds", lambda *_: next(clock))
    found = measure.paired(print, print, 3)
    assert found == {
        "ours_cpu": 2, "usual_cpu": 5, "ratio_cpu": 1.5,  # 1/2, 6/4, 5/1
        "ours_wall": 30, "usual_wall": 50, "ratio_wall": 1.5,
    }  # fmt: skip


def test_a_second_worker_is_timed_on_the_same_round(monkeypatch, capsys):
    threads, plain = {}, Network._work

    def noted(self, *args):
        threads.setdefault(self._workers, set()).add(threading.get_ident())
        return plain(self, *args)

    monkeypatch.setattr(Network, "_work", noted)
    small = replace(cores.WORKLOADS[0], model="mlp8", images=4)
    monkeypatch.setattr(cores, "WORKLOADS", (small, replace(small, name="B")))
    assert cores.main(["--quick"]) == 0
    assert capsys.readouterr().out.count("64 clients") == 2
    assert threads.pop(1) == {threading.get_ident()} and len(threads.pop(cores.WORKERS)) >= cores.WORKERS
    one, two = cores.second_core("A", 64, 2)
    assert one["ratio"] == 1 and two["workers"] == cores.WORKERS and two["wall"] > 0 and one["work"] == two["work"]


class Peer:
    """FedAvg in a few lines, as a library would offer it; `drift` multiplies its learning rate."""

    drift = 1.0

    def __init__(self, module, clients, local):
        self.logits, self.clients, self.local = module, clients, local

    def round(self):
        trained = []
        for x, y in self.clients:
            module = copy.deepcopy(self.logits)
            optimiser = torch.optim.SGD(module.parameters(), self.local.lr * self.drift)
            pairs = list(zip(x.split(self.local.batch_size), y.split(self.local.batch_size), strict=True))
            for images, labels in pairs * self.local.epochs:
                optimiser.zero_grad()
                F.cross_entropy(module(images), labels).backward()
                optimiser.step()
            trained.append(torch.nn.utils.parameters_to_vector(module.parameters()))
        torch.nn.utils.vector_to_parameters(torch.stack(trained).mean(0).detach(), self.logits.parameters())


class Drifting(Peer):
    drift = 1.1


@pytest.fixture
def work(monkeypatch):
    full = engine.Workload("full", "mlp4", (1, 4, 4), 3, 2, 5, SGD(0.1, epochs=3), repeats=2)
    batches = engine.Workload("batches", "lenet", (1, 8, 8), 3, 2, 6, SGD(0.1, batch_size=2), repeats=2)
    monkeypatch.setattr(peers, "WORKLOADS", (full, batches))
    for name in ("XLA_FLAGS", "JAX_PLATFORMS"):  # set by the script: so they are put back
        monkeypatch.setenv(name, "")


@pytest.mark.usefixtures("work")
def test_a_peer_with_the_same_losses_gets_a_row_a_workload(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(peers, "PEERS", {"torch": Peer, "nosuchlibrary": Peer})
    assert peers.main(["--json", str(tmp_path)]) == 0
    said = capsys.readouterr()
    (file,) = tmp_path.iterdir()
    rows = json.loads(file.read_text())["rows"]
    assert file.name.startswith("peers-") and str(file) in said.out
    assert said.err.startswith("nosuchlibrary: not installed; see benchmarks/peers.py\n")
    assert [row["workload"] for row in rows] == ["full", "batches"]
    for row in rows:
        assert row["library"] == f"torch {version('torch')}" and row["cpu"] > 0 and row["ratio"] > 0
        assert row["difference"] < 1e-6


@pytest.mark.usefixtures("work")
def test_a_peer_with_other_losses_is_left_out(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(peers, "PEERS", {"torch": Drifting})
    assert peers.main(["full", "--json", str(tmp_path)]) == 1
    assert not list(tmp_path.iterdir()) and "torch, full: from 1." in capsys.readouterr().err


def test_what_one_client_costs_by_hand(digits, monkeypatch):
    monkeypatch.setattr(cluster, "SIZES", (4, 8, 12))
    plain, personal = cluster.costs("fedavg", digits), cluster.costs("ditto", digits)
    size = plain["numbers"]
    assert size == 64 * 200 + 200 + 200 * 10 + 10
    assert plain["state"] == [4 * size, 0, 0] and personal["kept"] == 4 * size and plain["kept"] == 0
    assert plain["down"] == plain["up"] == personal["up"] == size and plain["seconds"] > 0


def test_a_state_grows_with_those_sides_that_are_as_long_as_there_are_clients():
    def server(clients, found):
        square = torch.zeros(clients, clients, dtype=torch.int64)
        return {"square": square, "each": torch.zeros(clients, 5), "found": torch.zeros(found, 5), "number": 1.0}

    assert cluster.law({3: server(3, 3), 5: server(5, 4)}) == [4 * 4 * 5, 4 * 5, 8]


def test_places_are_compared_bit_by_bit(digits, monkeypatch):
    small = {"work": (federation.rotated(digits, clients=4, samples_per_client=5), {"model": "mlp4", "chunk": 1})}
    monkeypatch.setattr(cluster, "ROUNDS", 3)
    one, two = cluster.places(small, ("1 thread", "2 threads"))
    assert (one["clients"], one["chunks"], one["more"], one["site"]) == (4, 4, 0.0, 0)
    assert two["more"] == pytest.approx((two["seconds"] - one["seconds"]) / 4)
    monkeypatch.setattr(cluster, "executors", lambda *_: {"workers": 3, "executor": Far(3)})
    (far,) = cluster.places(small, ("3 processes",))
    assert far["times"] == 3 and far["site"] > 0 == one["times"]
    other = SimpleNamespace(server={"model": torch.ones(1)}, seconds=[1.0] * 4)
    run = SimpleNamespace(schedule=[[0]], chunk=1, courier=None)
    first = {"history": SimpleNamespace(server={"model": torch.zeros(1)}), "seconds": 1.0}
    with pytest.raises(AssertionError, match="2 threads: not the bits of one thread"):
        cluster.row("work", "2 threads", run, other, first)


def test_the_servers_clock_stands_still_while_clients_work(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(server.time, "process_time", lambda: now[0])

    def spend(seconds):
        now[0] += seconds

    clock = server.Watched()
    net = clock.watch(SimpleNamespace(call=lambda: spend(10), chain=lambda: spend(100)))

    def work():
        spend(1)
        net.call()
        spend(2)
        net.chain()
        return "done"

    assert clock.seconds(work) == ("done", 3)
    assert clock.seconds(work) == ("done", 3)  # what clients did before does not count
