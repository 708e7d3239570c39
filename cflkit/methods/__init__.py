"""One file per algorithm, named as its paper names it."""

from dataclasses import fields

from cflkit.checks import known
from cflkit.methods.base import Method
from cflkit.methods.cfl import CFL
from cflkit.methods.cgpfl import CGPFLLike
from cflkit.methods.ditto import Ditto
from cflkit.methods.fedavg import FedAvg, FedProx, FedSGD
from cflkit.methods.fedcg import FedCG
from cflkit.methods.feddane import FedDANE
from cflkit.methods.feddist import FedDist
from cflkit.methods.fedfomo import FedFomo
from cflkit.methods.fedgroup import FedGroup
from cflkit.methods.fedper import FedPer
from cflkit.methods.fesem import FeSEM
from cflkit.methods.ifca import IFCA
from cflkit.methods.lcfed import LCFed
from cflkit.methods.mdicfl import MDICFL
from cflkit.methods.reference import LocalOnly, OracleClusters
from cflkit.methods.robust import Robust
from cflkit.methods.scaffold import Scaffold
from cflkit.methods.stocfl import StoCFL

_ALL = (
    LocalOnly, OracleClusters,
    FedAvg, FedSGD, FedProx, FedDist, Scaffold, FedDANE, Ditto, FedPer, FedFomo,
    IFCA, CFL, FedGroup, Robust, CGPFLLike, MDICFL, FeSEM, StoCFL, LCFed, FedCG,
)  # fmt: skip
METHODS: dict[str, type[Method]] = {method.name: method for method in _ALL}

__all__ = ["METHODS", "get", *(method.__name__ for method in _ALL)]


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
