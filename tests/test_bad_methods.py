"""Settings of runs and hyper-parameters of methods: what is declared is taken, and all else gets one clear line."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from types import SimpleNamespace

import pytest
from tiny import federation, refused, simulation

from cflkit import methods
from cflkit.checks import parameters
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.methods import FedAvg

CLOSED = ThreadPoolExecutor(1), ProcessPoolExecutor(1, get_context("spawn"))
for pool in CLOSED:
    pool.shutdown()
EVERY = [(name, parameter) for name, kind in methods.METHODS.items() for parameter in parameters(kind)]
EDGES = {  # the first number beyond and the last that is allowed, of these parameters
    (0, 1): "ifca.k cfl.min_size fedgroup.k fedgroup.pretrain fedgroup.pretrain_epochs robust.k robust.iterations "
            "cgpfl_like.k stocfl.fingerprint_epochs fesem.k mdicfl.k mdicfl.samples mdicfl.search_steps "
            "mdicfl.generator_steps lcfed.k lcfed.rank fedcg.domains fedcg.refresh feddrift.every flux.every "
            "flux.latent fedem.k",
    (0, 1e-9): "scaffold.lr_server fedfomo.holdout mdicfl.search_lr mdicfl.generator_lr feddrift.delta "
               "flux.scaling flux.epsilon fedsoft.sigma",
    (-1e-9, 0): "fedprox.mu ditto.lam feddane.mu feddist.epsilon cfl.eps1 cfl.eps2 fedfomo.epsilon fedfomo.decay "
                "robust.trim cgpfl_like.mu stocfl.lam fesem.lam mdicfl.prior_weight lcfed.mu lcfed.lam fedcg.beta "
                "fedcg.lr_student pacfl.beta",
    (-1, 0): "cfl.min_round fedfomo.models mdicfl.warmup flux.warmup",
    (1.1, 1): "feddist.epsilon fedfomo.epsilon stocfl.tau fedcg.beta fedsoft.draw",
    (1.0, 0.999): "fedfomo.holdout", (0.5, 0.499): "robust.trim", (-1.1, -1): "stocfl.tau",
}  # fmt: skip


def line(name, **values):
    with pytest.raises(ValueError) as error:
        methods.get(name, **values)
    return str(error.value)


@pytest.mark.parametrize(("name", "parameter"), EVERY)
def test_what_is_declared_is_asked_of_every_parameter(name, parameter):
    value = {"neither": "number nor name"}
    _, allowed = parameters(methods.METHODS[name])[parameter]
    assert line(name, **{parameter: value}) == f"{parameter} = {value!r}: must be {allowed}"


@pytest.mark.parametrize(("parameter", "edge"), [(p, edge) for edge, some in EDGES.items() for p in some.split()])
def test_the_last_allowed_value_is_taken_and_the_next_is_refused(parameter, edge):
    (name, parameter), (beyond, last) = parameter.split("."), edge
    assert methods.get(name, **{parameter: last}).config()[parameter] == last
    assert line(name, **{parameter: beyond}).startswith(f"{parameter} = {beyond!r}: must be ")


@pytest.mark.parametrize("name", ["ifca", "fedgroup", "robust", "cgpfl_like", "fesem", "mdicfl", "lcfed"])
def test_more_clusters_than_clients_are_refused_before_any_work(name):
    fed, rank = federation(*[([[1, 2]], [k % 2]) for k in range(4)]), {"rank": None} if name == "lcfed" else {}
    simulation(methods.get(name, k=4, **rank), fed)
    with pytest.raises(ValueError, match=r"^k = 5: must be at most the number of clients, 4$"):
        simulation(methods.get(name, k=5, **rank), fed)


@pytest.mark.parametrize(("name", "values", "said"), [
    ("ifca", {"share": True, "average": "gradient"}, "share = True: must be False with average='gradient'"),
    ("ifca", {"K": 3}, "ifca's parameter = 'K': must be one of k, average, share, init (the nearest is k)"),
    ("local", {"lr": 1}, "local's parameter = 'lr': must be one of (none)"),
    ("cgpfl_like", {"lam": 0.1}, "lam = 0.1: must be 0; with a global pull this is lcfed"),
    ("cgpfl_like", {"rank": 5}, "rank = 5: must be None; with a projection this is lcfed"),
])  # fmt: skip
def test_what_does_not_go_together(name, values, said):
    assert line(name, **values) == said


def test_unknown_names_are_answered_with_the_known_ones(fed, settings_of_a_run):
    line = refused("method = 'fedavgg': must be one of .*", methods.get, "fedavgg")
    assert all(name in line for name in methods.METHODS)
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
    ("checkpoint = '': must be a folder, such as 'kept', or None", {"checkpoint": ""}),
    ("checkpoint = .*: must be a folder, such as 'kept', or None; NotADirectory.*", {"checkpoint": __file__}),
    ("checkpoint = .*: must be a folder, .*; ValueError: .*null .*", {"checkpoint": "a\0b"}),
    *[("executor = .*: must be open; this one was shut down", {"executor": pool, "workers": 1}) for pool in CLOSED],
    ("model = None: must be a text or a function", {"model": None}),
    ("method = 'fedavg': must be a method with its hyper-parameters, .*", {"method": "fedavg"}),
    ("method = .*FedAvg.*: must be a method with its hyper-parameters, .*", {"method": FedAvg}),
    ("method = namespace.*: must be a method with its .*", {"method": SimpleNamespace(round=print)}),
    ("method = namespace.*: must be a method with its .*", {"method": SimpleNamespace(name="x")}),
    ("federation = None: must be of type Federation", {"federation": None}),
])  # fmt: skip
def test_simulations(line, settings, fed, settings_of_a_run):
    settings = {"method": FedAvg(), "federation": fed} | settings_of_a_run | settings
    refused(line, Simulation, settings.pop("method"), settings.pop("federation"), **settings)
