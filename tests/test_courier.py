"""Workers that share no memory: processes and clusters give the bits of one thread, and receive things once."""

import logging
import os
import signal
import sys
from collections import Counter
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from every import bits, make, model, remembered
from torch import nn

from cflkit.engine import courier
from cflkit.engine.courier import dask
from cflkit.engine.memory import Memory
from cflkit.engine.simulation import Simulation, simulate
from cflkit.methods import IFCA, Ditto, FedAvg, StoCFL
from cflkit.testing.promises import Far


def outcome(history):
    return bits(history.server), remembered(history.memory), repr(history.rounds)


# ---------------------------------------------------------------------- no bit changes
def test_a_pool_of_threads_is_used_as_it_is(fed, settings_of_a_run):
    near = simulate(Ditto(), fed, **settings_of_a_run, chunk=2)
    with ThreadPoolExecutor(2) as pool:
        run = Simulation(Ditto(), fed, **settings_of_a_run, chunk=2, workers=2, executor=pool)
        assert outcome(run.run()) == outcome(near) and run.courier is None
        assert pool.submit(int).result() == 0  # and still there
        asked, submit = [], pool.submit
        pool.submit = lambda *task: asked.append(task) or submit(*task)
        alone = settings_of_a_run | {"rounds": 1}
        simulate(Ditto(), fed, **alone, chunk=100, workers=1, executor=pool)
        assert asked  # even for one chunk, and one at a time


class Dropping(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10))


def test_dropout_may_go_far_and_draws_alike(fed, settings_of_a_run):
    settings = settings_of_a_run | {"model": Dropping, "chunk": 2, "workers": 2}
    near = simulate(FedAvg(), fed, **settings)
    run = Simulation(FedAvg(), fed, **settings, executor=Far())
    assert outcome(run.run()) == outcome(near) and run.courier.wire["answers"] > 0
    with ThreadPoolExecutor(2) as pool:
        assert Simulation(FedAvg(), fed, **settings, executor=pool).executor is None


def test_an_executor_comes_with_the_number_of_its_workers(fed, settings_of_a_run):
    with pytest.raises(ValueError, match=r"^workers = None: must be how many tasks the executor does at once$"):
        Simulation(FedAvg(), fed, **settings_of_a_run, executor=Far())
    with pytest.raises(ValueError, match=r"^executor = 2: must be of type Executor or None$"):
        Simulation(FedAvg(), fed, **settings_of_a_run, workers=2, executor=2)


# ---------------------------------------------------------------------- what travels, and how often
def test_a_parcel_travels_once_to_each_worker(fed, settings_of_a_run):
    far = Far(3)
    settings = settings_of_a_run | {"participation": 1.0, "chunk": 2, "evaluate_every": 9}
    run = Simulation(IFCA(k=2), fed, **settings, workers=3, executor=far)
    run.run()
    assert far.asked == 0 and set(far.received.values()) == {1}
    by_worker = Counter(number for number, _ in far.received)
    # the site; the code of training and, for scores, of choosing; the models of rounds 1 to 3 and the last ones
    assert by_worker == {number: 1 + 2 + 4 for number in range(3)}
    assert run.courier.wire["site"] == 3 * len(courier._packed(run.site, {}))


def test_what_is_sent_is_little_more_than_the_numbers(fed, settings_of_a_run):
    def wire(method, **settings):
        settings = settings_of_a_run | {"trainer": "lean", "chunk": 6, "evaluate_every": 9, "rounds": 1} | settings
        settings |= {"participation": 1.0, "personal_clients": 0, "workers": 2, "executor": Far()}
        run = Simulation(method, fed, **settings)
        run.run()
        return run.courier.wire, 8 * run.model.size

    little = 6000  # code, names and lists
    found, bytes_of_a_model = wire(FedAvg())
    assert 0 < found["shared"] - 2 * bytes_of_a_model < little and found["tasks"] < little
    assert 0 < found["answers"] - 12 * bytes_of_a_model < little
    once, _ = wire(Ditto())
    assert 0 < once["answers"] - 2 * 12 * bytes_of_a_model < little and once["tasks"] < little  # nothing kept yet
    twice, _ = wire(Ditto(), rounds=2)
    assert 0 < twice["tasks"] - once["tasks"] - 12 * bytes_of_a_model < little  # what was kept goes out again


def test_a_worker_that_lacks_a_parcel_asks_for_it(fed, settings_of_a_run, monkeypatch):
    near = simulate(StoCFL(), fed, **settings_of_a_run, chunk=2)
    forgetful = Far(2)
    monkeypatch.setattr(courier, "HELD_BYTES", 1)
    far = simulate(StoCFL(), fed, **settings_of_a_run, chunk=2, workers=2, executor=forgetful)
    assert outcome(far) == outcome(near) and forgetful.asked > 0
    assert all(len(store._held) <= 5 for store in forgetful.stores)  # what the last task needed


def test_equal_vectors_stay_apart_and_one_vector_stays_one():
    """Trainers share products between vectors that lie in one place, and a result may depend on which do."""
    vector, other = torch.ones(3), torch.ones(3)

    def work(down, memory, data, local):
        return {"places": torch.tensor([[down[name].data_ptr() for name in ("one", "same", "other")]])}

    network = SimpleNamespace(draws=False, device=torch.device("cpu"))
    site = SimpleNamespace(local=lambda round: None, data=lambda clients: None, model=network)
    exchange = courier.Exchange(courier.Courier(Far(1), 1, site), work, [vector, vector, other], Memory(), 1)
    uploads = exchange.send([0], {"one": vector, "same": vector, "other": other}, None)
    one, same, apart = uploads()["places"][0].tolist()
    assert one == same != apart


# ---------------------------------------------------------------------- what goes wrong
class Failing(FedAvg):
    def client(self, down, memory, data, local):
        if 5 in data.clients:
            raise ArithmeticError(f"clients {data.clients}")
        return super().client(down, memory, data, local)


def test_what_a_far_worker_raises_is_raised(fed, settings_of_a_run):
    with pytest.raises(ArithmeticError, match=r"^clients \[4, 5\]$"):
        simulate(Failing(), fed, **settings_of_a_run | {"participation": 1.0}, chunk=2, workers=2, executor=Far())


class Breaking(Far):
    """Breaks after so many tasks, as a pool of processes does whose worker dies."""

    def __init__(self, tasks):
        super().__init__()
        self.left = tasks

    def submit(self, *task):
        self.left -= 1
        if self.left < -2:
            raise BrokenExecutor  # nothing more is taken
        future = super().submit(*task)
        if self.left < 0:
            future = Future()
            future.set_exception(BrokenExecutor())  # what was under way is lost
        return future


@pytest.mark.parametrize("tasks", [0, 1, 4])
def test_where_an_executor_breaks_the_run_goes_on_here(tasks, fed, settings_of_a_run, caplog):
    near = simulate(Ditto(), fed, **settings_of_a_run, chunk=2)
    courier._say_broken.cache_clear()
    far = simulate(Ditto(), fed, **settings_of_a_run, chunk=2, workers=2, executor=Breaking(tasks))
    assert outcome(far) == outcome(near)
    assert caplog.messages == ["cflkit: a worker died, and its executor with it: going on in this process"]


class Deadly(StoCFL):
    """Kills the process that it is trained in, once, unless that is the one that runs the simulation."""

    def client(self, down, memory, data, local):
        marks = Path(os.environ["DEADLY"])
        if not (marks / "killed").exists() and str(os.getpid()) != (marks / "home").read_text():
            (marks / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().client(down, memory, data, local)


@pytest.fixture
def deadly(tmp_path, monkeypatch):
    monkeypatch.setenv("DEADLY", str(tmp_path))
    (tmp_path / "home").write_text(str(os.getpid()))
    yield Deadly()
    assert (tmp_path / "killed").exists()


@pytest.mark.slow
def test_processes_give_the_bits_of_one_thread_though_one_is_killed(fed, settings_of_a_run, deadly):
    near = simulate(deadly, fed, **settings_of_a_run, chunk=2)
    for method in (StoCFL(), deadly):
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            far = simulate(method, fed, **settings_of_a_run, chunk=2, workers=2, executor=pool)
        assert outcome(far) == outcome(near)


# ---------------------------------------------------------------------- Dask
FEW = ("stocfl", "stocfl chained", "ditto", "scaffold", "lcfed", "fedcg", "mdicfl")


def speaks():
    """Does this process say that its scheduler is gone, as one that ends late would?"""
    return logging.getLogger("distributed.worker").isEnabledFor(logging.ERROR)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_dask_cluster_gives_the_bits_of_one_thread_though_a_worker_is_killed(fed, settings_of_a_run, deadly):
    """One cluster for all, as starting one takes seconds; afterwards nothing of it is left."""
    pytest.importorskip("distributed")
    settings = {v: settings_of_a_run | {"model": model(v), "chunk": 2, "rounds": 2} for v in FEW}
    near = {v: outcome(simulate(make(v, fed), fed, **settings[v])) for v in FEW}
    before = set(psutil.Process().children(recursive=True))
    with dask(2) as executor:
        cluster = set(psutil.Process().children(recursive=True)) - before
        open_to = {c.laddr.ip for process in (psutil.Process(), *cluster) for c in process.net_connections()}
        assert open_to == {"127.0.0.1"}
        assert not any(executor._client.run(speaks).values())  # it would stand between the lines of a notebook
        for v in FEW:
            run = Simulation(make(v, fed), fed, **settings[v], workers=2, executor=executor)
            assert outcome(run.run()) == near[v]
            assert run.courier.wire["site"] == 2 * len(courier._packed(run.site, {}))  # whoever gets first tasks
        far = simulate(deadly, fed, **settings_of_a_run, chunk=2, workers=2, executor=executor)
    assert outcome(far) == outcome(simulate(deadly, fed, **settings_of_a_run, chunk=2))
    left = [process for process in cluster if process.is_running() and process.status() != "zombie"]
    assert all("resource_tracker" in " ".join(process.cmdline()) for process in left)  # which is this process's


def test_without_dask_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    line = r"^Dask is not installed: pip install 'cflkit\[cluster\]' installs it$"
    with pytest.raises(ModuleNotFoundError, match=line), dask(2):
        pass
    with pytest.raises(ValueError, match=r"^where = 0: must be a text or an integer, 1 or more$"), dask(0):
        pass
