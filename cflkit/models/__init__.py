"""Networks, and models as points in R^P."""

from cflkit.models.flat import Model
from cflkit.models.networks import build, names

__all__ = ["Model", "build", "names"]
