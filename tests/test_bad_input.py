"""Bad input gets one clear line: the argument, its value, and what is allowed."""

import re
from dataclasses import replace

import pytest
import torch

from cflkit import federation, images, methods
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation, simulate
from cflkit.methods import Ditto, FedAvg, StoCFL


def refused(line, work, *args, **kwargs):
    """`work` raises a ValueError whose whole message is `line` (a regular expression, on one line)."""
    with pytest.raises(ValueError) as caught:
        work(*args, **kwargs)
    assert re.fullmatch(line, str(caught.value)), str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------------- names
def test_unknown_names_are_answered_with_the_known_ones(fed, settings_of_a_run):
    line = refused("method = 'fedavgg': must be one of .*", methods.get, "fedavgg")
    assert all(name in line for name in methods.METHODS)
    refused("stocfl's parameter = 'taau': must be one of tau, lam, .*", methods.get, "stocfl", taau=1)
    refused(r"local's parameter = 'mu': must be one of \(none\)", methods.get, "local", mu=1)
    for model, line in (("lenett", "name = 'lenett': must be one of .*"), (3, "model = 3: must be a text or a .*")):
        refused(line, Simulation, FedAvg(), fed, **settings_of_a_run | {"model": model})


# ---------------------------------------------------------------------- numbers
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


# ---------------------------------------------------------------------- checkpoints
@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A finished run's checkpoint, to damage copies of."""
    fed = federation.rotated(images.load("digits"), clients=12, samples_per_client=24)
    folder = tmp_path_factory.mktemp("kept")
    settings = {"model": "mlp16", "local": SGD(0.1, batch_size=10), "rounds": 2, "participation": 0.5,
                "personal_clients": 0, "progress": False}  # fmt: skip
    simulate(Ditto(), fed, checkpoint=folder, **settings)
    return folder, settings, fed


@pytest.mark.parametrize(("changed", "what"), [
    ({"method": Ditto(lam=0.1)}, "method"),
    ({"method": StoCFL()}, "method"),
    ({"local": SGD(0.2, batch_size=10)}, "local"),
    ({"model": "mlp8"}, "model"),
    ({"participation": 0.6}, "participation"),
    ({"dtype": "float32"}, "dtype"),
    ({"trainer": "stacked"}, "trainer"),
    ({"chunk": 7}, "chunk"),
    ({"evaluate_every": 2}, "evaluate_every"),
    ({"personal_clients": 5}, "personal"),
    ({"arrival": torch.ones(12, dtype=torch.int64)}, "arrival"),
    ({"federation": "smaller"}, "federation"),
    ({"federation": "relabelled"}, "federation"),
    ({"federation": "mirrored"}, "images"),
    ({"federation": "regrouped"}, "images"),
])  # fmt: skip
def test_a_checkpoint_of_another_configuration(changed, what, kept):
    folder, settings, fed = kept
    call = {"method": Ditto(), "federation": fed, **settings, **changed}
    if changed.get("federation") == "smaller":
        call["federation"] = fed.subset(range(11))
    elif changed.get("federation") == "relabelled":
        call["federation"] = replace(fed, train=replace(fed.train, y=(fed.train.y + 1) % 10))
    elif changed.get("federation") == "mirrored":  # the sum of all pixels stays
        call["federation"] = replace(fed, train=replace(fed.train, pool=fed.train.pool.flip(3)))
    elif changed.get("federation") == "regrouped":
        call["federation"] = replace(fed, cluster=fed.cluster.flip(0))
    line = rf"checkpoint = '.*state\.pt': must be of this configuration; {what}[\w.]* was .* and is now .*"
    refused(line, simulate, call.pop("method"), call.pop("federation"), checkpoint=folder, **call)


def test_fewer_rounds_than_are_done(kept):
    folder, settings, fed = kept
    refused(r"rounds = 1: must be at least the 2 that the checkpoint .*state\.pt holds",
            simulate, Ditto(), fed, checkpoint=folder, **settings | {"rounds": 1})  # fmt: skip


def test_more_rounds_may_not_change_who_is_unseen(kept, tmp_path):
    _, settings, fed = kept
    arrival = torch.tensor([1] * 10 + [2, 4])
    simulate(Ditto(), fed, checkpoint=tmp_path, **settings, arrival=arrival)
    simulate(Ditto(), fed, checkpoint=tmp_path, **settings | {"rounds": 3}, arrival=arrival)  # the last still waits
    refused(r"rounds = 4: must be 3, as in the checkpoint .*state\.pt: who arrives later counts as unseen .*",
            simulate, Ditto(), fed, checkpoint=tmp_path, **settings | {"rounds": 4}, arrival=arrival)  # fmt: skip
