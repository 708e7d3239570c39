"""What a method is in a special case: another method, to the last bit but where the order of sums differs."""

import pytest
import torch
from every import bits, remembered
from tiny import close, run

from cflkit import methods
from cflkit.engine.sgd import SGD

MINIBATCH = {"model": "mlp16", "local": SGD(0.1, epochs=2, batch_size=4), "rounds": 3, "participation": 0.5}
FEW = {"samples": 3, "search_steps": 5, "generator_steps": 5}
FEDAVG, UNIFORM = methods.FedAvg(), methods.FedAvg("uniform")
ONE_MODEL = {  # of every cluster
    "one step of fedavg is fedsgd": (methods.FedSGD(), FEDAVG, {"local": SGD(0.1)}),
    "fedper with nothing private": (methods.FedPer("none"), FEDAVG, {}),
    "fedper with nothing private, uniform": (methods.FedPer("none", "uniform"), UNIFORM, {}),
    "cfl that never splits": (methods.CFL(eps1=0, eps2=0, min_round=1, min_size=1), UNIFORM, {}),
    "ifca with one cluster": (methods.IFCA(k=1), UNIFORM, {}),
    "ifca with one cluster and a shared body": (methods.IFCA(k=1, share=True), UNIFORM, {}),
    "fedem with one component": (methods.FedEM(k=1), FEDAVG, {}),
    "fedrc with one component": (methods.FedRC(k=1), FEDAVG, {}),
    "pacfl with one cluster": (methods.PACFL(beta=90.0), FEDAVG, {}),
    "flux with one cluster from the start": (methods.FLUX(scaling=1e6, warmup=0), FEDAVG, {}),
    "flux with one cluster after a warm-up": (methods.FLUX(scaling=1e6, warmup=2), FEDAVG, {}),
    "flux that finds one cluster again": (methods.FLUX(scaling=1e6, warmup=1, every=1), FEDAVG, {}),
    "mdicfl with one cluster": (methods.MDICFL(k=1, **FEW), UNIFORM, {}),
    "mdicfl with one cluster, by a generator": (methods.MDICFL(k=1, sampler="generator", **FEW), UNIFORM, {}),
    "mdicfl before its clusters part": (methods.MDICFL(warmup=3, **FEW), UNIFORM, {}),
    "mdicfl before its clusters part, distinct": (methods.MDICFL(init="distinct", warmup=3, **FEW), UNIFORM, {}),
    "stocfl pulled to its own start": (methods.StoCFL(tau=-1, lam=0.5, prox_centre="theta_start"),
                                       methods.FedProx(mu=0.5), {}),
    "stocfl with a pull but one step": (methods.StoCFL(tau=-1, lam=10.0), FEDAVG, {"local": SGD(0.1)}),
}  # fmt: skip
ROUNDED = ("fedem", "fedrc", "flux")
OWN_MODELS = {  # and what the memory calls them
    "fedper with all private": (methods.FedPer("all"), "head"),
    "fedsoft without a pull": (methods.FedSoft(k=1, lam=0.0, draw=1.0), "personal"),
    "lcfed without pulls": (methods.LCFed(k=3, mu=0, lam=0, rank=3), "personal"),
    "lcfed without pulls or projection": (methods.LCFed(k=4, mu=0, lam=0, rank=None), "personal"),
}


@pytest.mark.parametrize("case", ONE_MODEL)
def test_in_this_case_all_models_are_those_of(case, uneven):
    ours, theirs, how = ONE_MODEL[case]
    found, wanted = (run(method, uneven, **MINIBATCH | how).server for method in (ours, theirs))
    models = next(found[name] for name in ("models", "theta", "model") if name in found)
    wanted = wanted["model"].expand_as(models)
    close(models, wanted) if ours.name in ROUNDED else torch.testing.assert_close(models, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("case", OWN_MODELS)
def test_in_this_case_everybody_trains_alone(case, uneven):
    ours, name = OWN_MODELS[case]
    found, wanted = (run(method, uneven, **MINIBATCH).memory for method in (ours, methods.LocalOnly()))
    assert remembered(found)[name] == remembered(wanted)["personal"]


def test_cgpfl_like_is_lcfed_without_a_global_pull_and_with_the_full_cosine(uneven):
    both = methods.CGPFLLike(k=2, mu=0.3), methods.LCFed(k=2, mu=0.3, lam=0.0, rank=None)
    like, lcfed = (run(method, uneven, **MINIBATCH) for method in both)
    assert bits(like.server) == bits(lcfed.server) and remembered(like.memory) == remembered(lcfed.memory)
