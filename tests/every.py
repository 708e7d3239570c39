"""Every method, and the variants that keep other state or make other exchanges: for tests that hold for all."""

import torch
from torch import nn

from cflkit import methods
from cflkit.memory import Memory

SMALL = {
    "lcfed": {"k": 3, "rank": 3},
    "cgpfl_like": {"k": 3},
    "mdicfl": {"samples": 5, "search_steps": 5, "generator_steps": 5},
    "cfl": {"min_round": 1},
    "fedgroup": {"pretrain": 5},
    "fedcg": {"domains": 2},
}
VARIANTS = {name: (name, {}) for name in methods.METHODS} | {
    "stocfl chained": ("stocfl", {"global_update": "chained"}),
    "stocfl sampled": ("stocfl", {"members": "sampled", "tau": 0.2}),
    "stocfl displacement": ("stocfl", {"fingerprint": "displacement", "merge": "union_find", "tau": 0.3}),
    "ifca share": ("ifca", {"share": True}),
    "ifca gradient": ("ifca", {"average": "gradient"}),
}


def make(variant, federation):
    """The method of that name, fit for `federation`."""
    name, parameters = VARIANTS[variant]
    if name == "oracle":
        return methods.OracleClusters.of(federation)
    return methods.get(name, **SMALL.get(name, {}), **parameters)


class Convolution(nn.Sequential):
    """The least network with a convolution."""

    def __init__(self):
        super().__init__(nn.Conv2d(1, 2, 3, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 10))


def model(variant):
    """A small model that the method takes: graph layers stand beside a convolution."""
    return Convolution if variant.startswith("fedcg") else "mlp16"


def bits(value):
    """Everything in a tree of tensors and numbers, comparable with == to the last bit."""
    if isinstance(value, dict):
        return {name: bits(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [bits(part) for part in value]
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes()
    return repr(value)


def remembered(memory: Memory):
    """What every client keeps, wherever it lies, comparable with ==."""
    return {name: {c: bits(memory.get(name, c)) for c in sorted(rows)} for name, rows in memory.state().items()}
