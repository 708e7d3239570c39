"""Every method, and the variants that keep other state or make other exchanges: for tests that hold for all."""

import pytest
import torch
from torch import nn

from cflkit import methods
from cflkit.testing.promises import bits, remembered

SMALL = {
    "lcfed": {"k": 3, "rank": 3},
    "cgpfl_like": {"k": 3},
    "mdicfl": {"samples": 5, "search_steps": 5, "generator_steps": 5},
    "cfl": {"eps1": 1e9, "eps2": 0.0, "min_round": 1},  # splits from the first round on
    "fesem": {"k": 3, "init": "random"},  # from k-means nobody moves
    "fedgroup": {"pretrain": 5},
    "fedsoft": {"draw": 1.0},  # so that whoever is sampled trains
    "fedcg": {"domains": 2},
    "feddrift": {"delta": 0.01, "every": 1, "first": "each"},
    "flux": {"warmup": 1, "latent": 4},
}
VARIANTS = {name: (name, {}) for name in methods.METHODS} | {
    "stocfl chained": ("stocfl", {"global_update": "chained"}),
    "stocfl sampled": ("stocfl", {"members": "sampled", "tau": 0.2}),
    "stocfl displacement": ("stocfl", {"fingerprint": "displacement", "merge": "union_find", "tau": 0.3}),
    "ifca share": ("ifca", {"share": True}),
    "ifca gradient": ("ifca", {"average": "gradient"}),
}
SWITCHES = {  # for resuming and trainers, which may depend on every switch
    "scaffold I": ("scaffold", {"option": "I"}),
    "feddane same": ("feddane", {"second": "same"}),
    "mdicfl strong": ("mdicfl", {"privacy": "strong"}),
    "mdicfl generator": ("mdicfl", {"sampler": "generator"}),
    "mdicfl real": ("mdicfl", {"sampler": "real"}),
    "mdicfl distinct": ("mdicfl", {"init": "distinct"}),
    "mdicfl warm-up": ("mdicfl", {"warmup": 2}),
    "fesem kmeans": ("fesem", {"init": "kmeans", "lam": 0.1}),
    "fesem personal": ("fesem", {"start_from": "personal"}),
    "fesem last": ("fesem", {"sub": "last", "k": 4}),
    "fesem n": ("fesem", {"weights": "n"}),
    "fesem matched": ("fesem", {"average": "matched"}),
    "lcfed centre": ("lcfed", {"start_from": "centre"}),
    "lcfed full": ("lcfed", {"rank": None}),
    "lcfed pca": ("lcfed", {"decomposition": "pca"}),
    "lcfed sampled": ("lcfed", {"average": "sampled"}),
    "lcfed split": ("lcfed", {"split": None}),
    "fedcg kmeans": ("fedcg", {"clusters": "kmeans"}),
    "fedcg oracle": ("fedcg", {"clusters": "oracle", "domains": 4}),
    "fedcg bottleneck": ("fedcg", {"gcn": "bottleneck"}),
    "feddrift one": ("feddrift", {"first": "one"}),
    "flux private": ("flux", {"epsilon": 1.0, "every": 1}),
    "fedcg bare": ("fedcg", {"residual": False}),
}
ALL = VARIANTS | SWITCHES
every_variant = pytest.mark.parametrize(  # each method's own forms always, the switches in `make test-slow`
    "variant", [pytest.param(v, marks=pytest.mark.slow) if v in SWITCHES else v for v in ALL]
)
__all__ = ["ALL", "SMALL", "SWITCHES", "VARIANTS", "Convolution", "bits", "every_variant", "make",
           "model", "remembered"]


def make(variant, federation):
    """The method of that name, fit for `federation`."""
    name, parameters = ALL[variant]
    if name == "oracle":
        return methods.OracleClusters.of(federation)
    if variant == "mdicfl real":  # so few images lack a class here and there: any will do
        images = torch.linspace(-1, 1, 4 * 10 * 5 * 64, dtype=torch.float64).view(64, 4, 10, 5).movedim(0, -1)
        known = {"real": images.reshape(4, 10, 5, 1, 8, 8), "truth": tuple(federation.cluster.tolist())}
        parameters = parameters | known
    return methods.get(name, **SMALL.get(name, {}) | parameters)


class Convolution(nn.Sequential):
    """The least network with a convolution."""

    def __init__(self):
        super().__init__(nn.Conv2d(1, 2, 3, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 10))


def model(variant):
    """A small model that the method takes: graph layers stand beside a convolution."""
    return Convolution if variant.startswith("fedcg") else "mlp16"
