"""Clustered federated learning, five papers under one interface.

A federation is data, a method is an algorithm, a simulation joins the two and leaves a history::

    from cflkit import IFCA, SGD, federation, images, simulate

    rotated = federation.rotated(images.load("digits"), clients=40)
    history = simulate(IFCA(k=4), rotated, model="mlp200", local=SGD(lr=0.1, epochs=5), rounds=20)
    print(history.frame()[["accuracy", "ari"]])
"""

from importlib import import_module

__version__ = "0.1.0"

# Imported when they are first asked for: PyTorch takes seconds, in which the console must already answer to Ctrl-C.
_MODULES = {"federation": "data.builders", "images": "data.images", "methods": "methods",
            "metrics": "engine.metrics", "models": "models"}  # fmt: skip
_NAMES = {"Federation": "data.federation", "SGD": "engine.sgd", "History": "engine.history",
          "Simulation": "engine.simulation", "simulate": "engine.simulation"}  # fmt: skip


def __getattr__(name: str):
    """Import what the package offers: modules, classes, and every method by its class's name."""
    if name == "__all__":
        value = [*_MODULES, *_NAMES, *(one for one in import_module("cflkit.methods").__all__ if one[0].isupper())]
    elif name in _MODULES:
        value = import_module(f"cflkit.{_MODULES[name]}")
    elif name in _NAMES:
        value = getattr(import_module(f"cflkit.{_NAMES[name]}"), name)
    elif name[0].isupper() and hasattr(import_module("cflkit.methods"), name):
        value = getattr(import_module("cflkit.methods"), name)
    else:
        raise AttributeError(f"module 'cflkit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
