"""One file per algorithm, named as its paper names it. A new file is found by its being here."""

from dataclasses import fields
from importlib import import_module
from pkgutil import iter_modules

from cflkit.checks import known
from cflkit.methods.base import Method


def _all() -> dict[str, type[Method]]:
    """Every method that a module of this folder defines, by its name."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    own = [value for m in modules for value in vars(m).values() if getattr(value, "__module__", "") == m.__name__]
    kinds = [value for value in own if isinstance(value, type) and issubclass(value, Method)]
    return {kind.name: kind for kind in kinds if "name" in vars(kind)}


METHODS = _all()
globals().update({kind.__name__: kind for kind in METHODS.values()})
__all__ = ["METHODS", "get", *(kind.__name__ for kind in METHODS.values())]


def get(name: str, **parameters) -> Method:
    """Make a method by name.

    Raises
    ------
    ValueError
        For an unknown method or parameter, or a value out of range.
    """
    known(METHODS, name, "method")
    for parameter in parameters:
        known([field.name for field in fields(METHODS[name])], parameter, f"{name}'s parameter")
    return METHODS[name](**parameters)
