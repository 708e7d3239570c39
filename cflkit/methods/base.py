"""What every method is: a frozen dataclass of hyper-parameters with a server part and a client part."""

from dataclasses import asdict
from typing import ClassVar

import torch
from torch import Tensor

from cflkit.checks import Checked, Count, require
from cflkit.engine.clients import Data
from cflkit.engine.local import Local
from cflkit.engine.memory import ChunkMemory
from cflkit.engine.network import Network, Task
from cflkit.engine.rows import Mixed, Part, Pick, Rows
from cflkit.models.flat import Model


class Method(Checked):
    """The interface of a method. :meth:`start`, :meth:`round`, :meth:`client` and :meth:`serve` must be written.

    Hyper-parameters are the fields of a frozen dataclass, and their annotations say which values are allowed. The
    server's state is a plain dictionary of tensors and numbers; a method returns a new one and never changes the
    old. It never opens a file, prints, picks a device or sees a test image.
    """

    name: ClassVar[str]
    told: ClassVar[bool] = False  # whether `predict` gets the true domains of test images

    def config(self) -> dict:
        """Return what a run record says of the method: its name and every hyper-parameter."""
        return {"name": self.name, **asdict(self)}

    def check(self, task: Task) -> None:
        """Refuse hyper-parameters that this task cannot have (K > clients); called before any work."""

    def start(self, net: Network) -> dict:
        """Server state before round 1; exchanges made here are booked under round 0."""
        raise NotImplementedError(f"{self.name}.start: must be defined")

    def round(self, server: dict, clients: Tensor, net: Network) -> dict:
        """One communication round with the sampled `clients` (m,); any number of exchanges."""
        raise NotImplementedError(f"{self.name}.round: must be defined")

    def client(self, down: dict, memory: ChunkMemory, data: Data, local: Local) -> dict[str, Part | Tensor]:
        """What a chunk of m clients does in an exchange; a method may have several such parts.

        Parameters
        ----------
        down : dict of Tensor or Pick
            What the clients have received, and what they know without being sent it (``net.call(..., known=...)``):
            shared (...), or with a leading axis m.
        memory : ChunkMemory
            What these clients keep between rounds.
        data : Data
            Their training images.
        local : Local
            What they can do with them.

        Returns
        -------
        dict of Part or Tensor (m, ...)
            What they upload.
        """
        raise NotImplementedError(f"{self.name}.client: must be defined")

    def serve(self, server: dict, clients: Tensor, net: Network) -> Pick | Mixed | Rows | None:
        """The model that the server would give each of `clients`, or a mixture; None for methods without any."""
        raise NotImplementedError(f"{self.name}.serve: must be defined")

    def personal(self, server: dict, clients: Tensor, net: Network) -> Rows | None:
        """The models that `clients` keep for themselves; None for methods without any."""
        return None

    def shared(self, server: dict) -> Tensor | None:
        """The one model (P,) for everybody that a clustered method keeps besides; None if it has none."""
        return None

    def assignment(self, server: dict) -> Tensor | None:
        """Cluster of every client (N,), -1 where unknown yet; what the state has as `assign`, None without."""
        return server.get("assign")

    def log(self, server: dict) -> dict:
        """Numbers of the method's own for the history."""
        return {}

    def predict(self, model: Model, vector: Tensor, x: Tensor) -> Tensor:
        """Logits (n, classes) of a served vector (P,) on images `x`; where `told`, their domains come last."""
        return model.forward(vector, x)


class Clustered(Method):
    """A method with a fixed number ``k`` of clusters.

    Its server's state has ``assign`` (N,), every client's cluster, and under the name `centres` one model a
    cluster, (K, P).
    """

    k: Count
    centres: ClassVar[str] = "models"

    def check(self, task):
        most = task.clients
        require(self.k <= most, "k", self.k, f"at most the number of clients, {most}")

    def serve(self, server, clients, net):
        return Pick(server[self.centres], server["assign"][clients])


def one_for_all(vector: Tensor, clients: Tensor) -> Pick:
    """Serve the same vector (P,) to everybody."""
    return Pick(vector[None], torch.zeros(len(clients), dtype=torch.int64))


def finite(models: Tensor, net: Network) -> Tensor:
    """Require that what a first training gave (m, P) is finite, or no clustering can be made of it; return it."""
    lr = net.task.optimiser.lr
    require(bool(models.isfinite().all()), "lr", lr, "smaller; the models that are clustered first have diverged")
    return models


def kmeans(points: Tensor, k: int, net: Network, starts: int = 20) -> Tensor:
    """Cluster (m,) of each of `points` (m, P) by k-means: the best of several `starts`, which the server draws."""
    from sklearn.cluster import KMeans  # takes longer to import than PyTorch, and few methods need it

    seed = int(net.rng("kmeans").integers(2**31))
    found = KMeans(k, n_init=starts, random_state=seed).fit(finite(points, net).cpu().numpy())
    return torch.from_numpy(found.labels_).long()


def recall(down: dict, memory: ChunkMemory, data: Data, local: Local) -> dict[str, Tensor]:
    """The client's part that gives back its personal model, or ``down["initial"]`` where it has none yet."""
    return {"model": memory.get("personal", down["initial"])}
