"""Bad input gets one clear line: the argument, its value, and what is allowed."""

import pytest
from tiny import refused

from cflkit import methods
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.methods import FedAvg


def test_unknown_names_are_answered_with_the_known_ones(fed, settings_of_a_run):
    line = refused("method = 'fedavgg': must be one of .*", methods.get, "fedavgg")
    assert all(name in line for name in methods.METHODS)
    refused("stocfl's parameter = 'taau': must be one of tau, lam, .*", methods.get, "stocfl", taau=1)
    refused(r"local's parameter = 'mu': must be one of \(none\)", methods.get, "local", mu=1)
    for model, line in (("lenett", "name = 'lenett': must be one of .*"), (3, "model = 3: must be a text or a .*")):
        refused(line, Simulation, FedAvg(), fed, **settings_of_a_run | {"model": model})


@pytest.mark.parametrize(("line", "settings"), [
    ("batch_size = 0: must be an integer, 1 or more or None", {"batch_size": 0}),
    ("steps = 0: must be an integer, 1 or more or None", {"steps": 0}),
    ("epochs = -1: must be an integer, 0 or more", {"epochs": -1}),
    (r"momentum = 1.0: must be a finite number, in \[0, 1\)", {"momentum": 1.0}),
    ("weight_decay = -0.1: must be a finite number, 0 or more", {"weight_decay": -0.1}),
    ("nesterov = True: must be False without momentum", {"nesterov": True}),
])  # fmt: skip
def test_local_training(line, settings):
    refused(line, SGD, 0.1, **settings)


@pytest.mark.parametrize(("line", "settings"), [
    (r"participation = 1.2: must be a finite number, in \(0, 1\]", {"participation": 1.2}),
    ("personal_clients = -1: must be an integer, 0 or more", {"personal_clients": -1}),
    ("evaluate_every = 0: must be an integer, 1 or more", {"evaluate_every": 0}),
    ("dtype = 'float16': must be one of float32, float64", {"dtype": "float16"}),
    (r"arrival = \[1, 1\]: must be of type Tensor or None", {"arrival": [1, 1]}),
    ("local = 0.1: must be of type SGD", {"local": 0.1}),
    ("seed = -1: must be an integer, 0 or more", {"seed": -1}),
    ("debug = 'no': must be True or False", {"debug": "no"}),
    ("model = None: must be a text or a function", {"model": None}),
    ("method = 'fedavg': must be a method with its hyper-parameters, .*", {"method": "fedavg"}),
    ("method = .*FedAvg.*: must be a method with its hyper-parameters, .*", {"method": FedAvg}),
    ("federation = None: must be of type Federation", {"federation": None}),
])  # fmt: skip
def test_simulations(line, settings, fed, settings_of_a_run):
    settings = {"method": FedAvg(), "federation": fed} | settings_of_a_run | settings
    refused(line, Simulation, settings.pop("method"), settings.pop("federation"), **settings)
