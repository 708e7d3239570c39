"""Every hyper-parameter of every method: what is declared is what is taken, and all else gets one clear line."""

import pytest
from tiny import federation, simulation

from cflkit import methods
from cflkit.checks import parameters

EVERY = [(name, parameter) for name, kind in methods.METHODS.items() for parameter in parameters(kind)]
#: (method, parameter, the first number beyond, the last that is allowed)
EDGES = [
    ("fedprox", "mu", -1e-9, 0), ("ditto", "lam", -1e-9, 0), ("ifca", "k", 0, 1),
    ("scaffold", "lr_server", 0, 1e-9), ("feddane", "mu", -1e-9, 0),
    ("feddist", "epsilon", -1e-9, 0), ("feddist", "epsilon", 1.5, 1),
    ("cfl", "eps1", -0.1, 0), ("cfl", "eps2", -1, 0), ("cfl", "min_round", -1, 0), ("cfl", "min_size", 0, 1),
    ("fedfomo", "models", -1, 0), ("fedfomo", "holdout", 0, 1e-9), ("fedfomo", "holdout", 1.0, 0.999),
    ("fedfomo", "epsilon", 2, 1), ("fedfomo", "epsilon", -1e-9, 0), ("fedfomo", "decay", -0.1, 0),
    ("fedgroup", "k", 0, 1), ("fedgroup", "pretrain", 0, 1), ("fedgroup", "pretrain_epochs", 0, 1),
    ("robust", "k", 0, 1), ("robust", "trim", -1e-9, 0), ("robust", "trim", 0.5, 0.499),
    ("robust", "iterations", 0, 1),
    ("cgpfl_like", "k", 0, 1), ("cgpfl_like", "mu", -1, 0),
    ("stocfl", "tau", 1.5, 1), ("stocfl", "tau", -1.1, -1), ("stocfl", "lam", -1, 0),
    ("stocfl", "fingerprint_epochs", 0, 1), ("fesem", "k", 0, 1), ("fesem", "lam", -1e-9, 0),
    ("mdicfl", "k", 0, 1), ("mdicfl", "samples", 0, 1), ("mdicfl", "prior_weight", -1e-9, 0),
    ("mdicfl", "warmup", -1, 0), ("mdicfl", "search_steps", 0, 1), ("mdicfl", "search_lr", 0, 1e-9),
    ("mdicfl", "generator_steps", 0, 1), ("mdicfl", "generator_lr", 0, 1e-9),
    ("lcfed", "k", 0, 1), ("lcfed", "mu", -1e-9, 0), ("lcfed", "lam", -0.1, 0), ("lcfed", "rank", 0, 1),
    ("fedcg", "domains", 0, 1), ("fedcg", "refresh", 0, 1), ("fedcg", "beta", 1.5, 1), ("fedcg", "beta", -1e-9, 0),
    ("fedcg", "lr_student", -1e-9, 0), ("feddrift", "delta", 0, 1e-9), ("feddrift", "every", 0, 1),
    ("flux", "warmup", -1, 0), ("flux", "every", 0, 1), ("flux", "latent", 0, 1), ("flux", "scaling", 0, 1e-9),
    ("flux", "epsilon", 0, 1e-9), ("fedem", "k", 0, 1), ("fedsoft", "sigma", 0.0, 1e-9),
    ("fedsoft", "draw", 1.5, 1), ("pacfl", "beta", -1.0, 0),
]  # fmt: skip


def line(name, **values):
    with pytest.raises(ValueError) as error:
        methods.get(name, **values)
    return str(error.value)


@pytest.mark.parametrize(("name", "parameter"), EVERY)
def test_what_is_declared_is_asked_of_every_parameter(name, parameter):
    value = {"neither": "number nor name"}
    _, allowed = parameters(methods.METHODS[name])[parameter]
    assert line(name, **{parameter: value}) == f"{parameter} = {value!r}: must be {allowed}"


@pytest.mark.parametrize(("name", "parameter", "beyond", "last"), EDGES)
def test_the_last_allowed_value_is_taken_and_the_next_is_refused(name, parameter, beyond, last):
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
