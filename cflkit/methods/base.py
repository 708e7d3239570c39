"""What every method is: a frozen dataclass of hyper-parameters with a server part and a client part."""

from dataclasses import asdict
from typing import ClassVar

import torch
from torch import Tensor

from cflkit.engine.network import Network
from cflkit.engine.rows import Pick, Rows
from cflkit.models.flat import Model


class Method:
    """The interface of a method. Only :meth:`start`, :meth:`round` and :meth:`serve` must be written.

    The server's state is a plain dictionary of tensors and numbers; a method returns a new one and never changes
    the old. It never opens a file, prints, picks a device or sees a test image.
    """

    name: ClassVar[str]

    def config(self) -> dict:
        """Return what a run record says of the method: its name and every hyper-parameter."""
        return {"name": self.name, **asdict(self)}

    def check(self, task) -> None:
        """Refuse hyper-parameters that this task cannot have (K > clients); called before any work."""

    def start(self, net: Network) -> dict:
        """Server state before round 1; exchanges made here are booked under round 0."""
        raise NotImplementedError

    def round(self, server: dict, clients: Tensor, net: Network) -> dict:
        """One communication round with the sampled `clients` (m,); any number of exchanges."""
        raise NotImplementedError

    def serve(self, server: dict, clients: Tensor, net: Network) -> Pick | Rows | None:
        """The model that the server would give each of `clients`; None for methods without any."""
        raise NotImplementedError

    def personal(self, server: dict, clients: Tensor, net: Network) -> Rows | None:
        """The models that `clients` keep for themselves; None for methods without any."""
        return None

    def shared(self, server: dict) -> Tensor | None:
        """The one model (P,) for everybody that a clustered method keeps besides; None if it has none."""
        return None

    def assignment(self, server: dict) -> Tensor | None:
        """Cluster of every client (N,), -1 where unknown yet; None for methods that do not cluster."""
        return None

    def log(self, server: dict) -> dict:
        """Numbers of the method's own for the history."""
        return {}

    def predict(self, model: Model, vector: Tensor, x: Tensor) -> Tensor:
        """Logits (n, classes) of a served vector (P,) on images `x`."""
        return model.forward(vector, x)


def one_for_all(vector: Tensor, clients: Tensor) -> Pick:
    """Serve the same vector (P,) to everybody."""
    return Pick(vector[None], torch.zeros(len(clients), dtype=torch.int64))
