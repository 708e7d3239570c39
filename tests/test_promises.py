"""What a run promises: checkpoints are its own, divergence is said, frozen layers stay, more rounds can follow."""

import shutil
import warnings

import pytest
import torch
from every import bits, remembered
from filelock import FileLock
from torch import nn
from torch.func import functional_call

from cflkit.engine.checkpoint import BusyError
from cflkit.engine.fast import trainers
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation, simulate
from cflkit.methods import Ditto, FedAvg, FedProx, LocalOnly
from cflkit.methods.base import Method


class Net(nn.Module):
    """Two dense layers with an activation that the printed structure does not show."""

    def __init__(self, activation=torch.relu, frozen=False):
        super().__init__()
        self.first, self.last, self.activation = nn.Linear(64, 8), nn.Linear(8, 10), activation
        self.first.requires_grad_(not frozen)

    def forward(self, x):
        return self.last(self.activation(self.first(x.flatten(1))))


def relu():
    return Net()


class Wild(Net):
    """Gives values beyond all measure, unless its weights are zero."""

    def forward(self, x):
        return super().forward(x) * 1e6


def tanh():
    return Net(torch.tanh)


tanh.__qualname__ = relu.__qualname__  # as two lambdas have


def test_a_finished_run_goes_on_to_more_rounds(fed, settings_of_a_run, tmp_path):
    whole = simulate(Ditto(), fed, **settings_of_a_run | {"rounds": 5, "evaluate_every": 2})
    simulate(Ditto(), fed, checkpoint=tmp_path, **settings_of_a_run | {"rounds": 3, "evaluate_every": 2})
    more = simulate(Ditto(), fed, checkpoint=tmp_path, **settings_of_a_run | {"rounds": 5, "evaluate_every": 2})
    assert bits(more.server) == bits(whole.server) and remembered(more.memory) == remembered(whole.memory)
    assert more.rounds[:3] == whole.rounds[:3] and more.rounds[4:] == whole.rounds[4:]
    assert whole.rounds[3].items() <= more.rounds[3].items()
    assert "accuracy" in more.rounds[3]  # it was the last once


def test_a_checkpoint_of_another_network_is_refused(fed, settings_of_a_run, tmp_path):
    settings = settings_of_a_run | {"checkpoint": tmp_path}
    simulate(FedAvg(), fed, **settings | {"model": relu})
    simulate(FedAvg(), fed, **settings | {"model": relu})
    with pytest.raises(ValueError, match=r"state\.pt': must be of this network; it was trained with another one$"):
        simulate(FedAvg(), fed, **settings | {"model": tanh})


@pytest.mark.parametrize("one, other", [(False, True), (True, False)])
def test_a_checkpoint_with_other_layers_frozen_is_refused(one, other, fed, settings_of_a_run, tmp_path):
    """The same layers, the same outputs; but another order in the vector."""
    made = {frozen: lambda frozen=frozen: Net(frozen=frozen) for frozen in (one, other)}
    settings = settings_of_a_run | {"checkpoint": tmp_path}
    simulate(FedAvg(), fed, **settings | {"model": made[one]})
    with pytest.raises(ValueError, match=r"state\.pt': must be of this network; it was trained with another one$"):
        simulate(FedAvg(), fed, **settings | {"model": made[other]})


def test_rows_of_another_run_are_refused(fed, settings_of_a_run, tmp_path):
    for name, lam in (("mine", 1.0), ("theirs", 9.0)):
        simulate(Ditto(lam=lam), fed, checkpoint=tmp_path / name, **settings_of_a_run)
    for file in (tmp_path / "theirs" / "memory").iterdir():
        shutil.copy(file, tmp_path / "mine" / "memory")
    with pytest.raises(ValueError, match=r"^memory = '.*': must be the whole row of its client"):
        simulate(Ditto(lam=1.0), fed, checkpoint=tmp_path / "mine", **settings_of_a_run | {"rounds": 4})


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


@pytest.mark.parametrize("trainer", ["lean", "stacked", "shared", "auto"])
def test_frozen_layers_stay_frozen(trainer, fed, settings_of_a_run):
    sgd = SGD(0.1, epochs=2, momentum=0.9, weight_decay=0.1)
    settings = settings_of_a_run | {"model": lambda: Net(frozen=True), "trainer": trainer, "local": sgd}
    run = Simulation(FedProx(mu=0.5), fed, **settings)
    begin, end = run.task.init()[0], run.run().server["model"]
    assert run.model.parameters == ["last.weight", "last.bias"]
    assert run.model.carried == ["first.weight", "first.bias"]
    # FedAvg's sum of equal numbers rounds
    torch.testing.assert_close(end[run.model.trainable :], begin[run.model.trainable :], rtol=0, atol=1e-15)
    assert (end[: run.model.trainable] - begin[: run.model.trainable]).abs().max() > 0.01


@pytest.mark.parametrize("trainer", ["lean", "stacked", "shared", "compiled", "auto"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("frozen", [0, 3])  # a convolution, a dense layer
def test_frozen_layers_of_a_convolutional_network_stay_frozen(frozen, dtype, trainer, fed, settings_of_a_run):
    def make():
        parts = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8), nn.ReLU(), nn.Linear(8, 10)
        net = nn.Sequential(*parts)
        net[frozen].requires_grad_(False)
        return net

    settings = settings_of_a_run | {"model": make, "trainer": trainer, "dtype": dtype, "local": SGD(0.1, epochs=2)}
    try:
        run = Simulation(FedAvg(), fed, **settings)
    except ValueError as refusal:
        assert trainer == "compiled", str(refusal)
        return
    begin, end = run.task.init()[0], run.run().server["model"]
    torch.testing.assert_close(end[run.model.trainable :], begin[run.model.trainable :], rtol=0, atol=1e-7)
    assert (end[: run.model.trainable] - begin[: run.model.trainable]).abs().max() > 0.01
    x = torch.rand(5, 1, 8, 8, dtype=begin.dtype)
    expected = functional_call(run.model.module, run.model.views(end), (x,))
    with torch.no_grad():  # which is how models are scored
        torch.testing.assert_close(run.model.forward(end, x), expected, rtol=1e-5, atol=1e-6)


def test_a_network_without_anything_to_train_is_refused(fed, settings_of_a_run):
    with pytest.raises(ValueError, match=r"^model = 'Linear': must be a network with something to train$"):
        Simulation(FedAvg(), fed, **settings_of_a_run | {"model": lambda: nn.Linear(64, 10).requires_grad_(False)})


@pytest.mark.parametrize(
    "model",
    [lambda: nn.Linear(64, 10), lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 9)), nn.Linear(64, 10), int],
)
def test_networks_that_do_not_fit_the_images(model, fed, settings_of_a_run):
    with pytest.raises(ValueError, match=r"^model = .*: must be a (network that maps images|name, or a function)"):
        Simulation(FedAvg(), fed, **settings_of_a_run | {"model": model})


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"rounds": 2.5}, "rounds = 2.5: must be an integer, 0 or more"),
        ({"rounds": None}, "rounds = None: must be an integer, 0 or more"),
        ({"rounds": True}, "rounds = True: must be an integer, 0 or more"),
        ({"chunk": 2.5}, "chunk = 2.5: must be an integer, 1 or more or None"),
        ({"workers": 1.5}, "workers = 1.5: must be an integer, 1 or more or None"),
        ({"workers": "2"}, "workers = '2': must be an integer, 1 or more or None"),
        ({"local": 0.1}, "local = 0.1: must be of type SGD"),
        ({"local": None}, "local = None: must be of type SGD"),
        ({"checkpoint": 5}, "checkpoint = 5: must be a text or of type Path or None"),
        ({"checkpoint_every": 0.5}, "checkpoint_every = 0.5: must be an integer, 1 or more"),
        ({"evaluate_every": 1.5}, "evaluate_every = 1.5: must be an integer, 1 or more"),
        ({"personal_clients": "all"}, "personal_clients = 'all': must be an integer, 0 or more"),
        ({"participation": True}, "participation = True: must be a finite number, in (0, 1]"),
        ({"participation": "0.5"}, "participation = '0.5': must be a finite number, in (0, 1]"),
        ({"seed": 0.5}, "seed = 0.5: must be an integer, 0 or more"),
        ({"seed": "0"}, "seed = '0': must be an integer, 0 or more"),
        ({"seed": None}, "seed = None: must be an integer, 0 or more"),
        ({"seed": -1}, "seed = -1: must be an integer, 0 or more"),
        ({"progress": 1}, "progress = 1: must be True or False"),
        ({"debug": "no"}, "debug = 'no': must be True or False"),
        ({"arrival": [1] * 12}, "arrival = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]: must be of type Tensor or None"),
        ({"model": None}, "model = None: must be a text or a function"),
        ({"method": "fedavg"}, "method = 'fedavg': must be a method with its hyper-parameters, such as FedAvg()"),
        ({"federation": None}, "federation = None: must be of type Federation"),
        ({"dtype": "float16"}, "dtype = 'float16': must be one of float32, float64"),
        ({"trainer": None}, "trainer = None: must be one of auto, lean, stacked, shared, compiled"),
    ],
)
def test_settings_of_the_wrong_kind(changed, line, fed, settings_of_a_run):
    settings = {"method": FedAvg(), "federation": fed, **settings_of_a_run, **changed}
    with pytest.raises(ValueError) as caught:
        Simulation(settings.pop("method"), settings.pop("federation"), **settings)
    assert str(caught.value) == line


def test_a_class_is_no_method(fed, settings_of_a_run):
    with pytest.raises(ValueError, match=r"^method = .*FedAvg.*: must be a method with its hyper-parameters"):
        Simulation(FedAvg, fed, **settings_of_a_run)


@pytest.mark.parametrize("lacking", ["start", "round", "client", "serve"])
def test_what_a_method_lacks_is_named(lacking, fed, settings_of_a_run):
    method = type("Half", (FedAvg,), {"name": "half", lacking: getattr(Method, lacking)})()
    with pytest.raises(NotImplementedError, match=rf"^half\.{lacking}: must be defined$"):
        simulate(method, fed, **settings_of_a_run)


def test_debugging_trains_by_the_reference_alone():
    assert [type(t).__name__ for t in trainers("auto", debug=True)] == ["Trainer"]
