"""The two reference points every chapter carries: no cooperation, and cooperation in the true clusters."""

from dataclasses import dataclass

import torch

from cflkit.checks import Natural, require
from cflkit.engine.rows import Pick
from cflkit.methods.base import Method, recall


@dataclass(frozen=True)
class LocalOnly(Method):
    """Every client trains its own model on its own data and sends nothing."""

    name = "local"

    def start(self, net):
        return {"model": net.task.init()[0]}

    def round(self, server, clients, net):
        # the common start comes from a shared seed: nothing is sent
        net.call(clients, self.client, known={"initial": server["model"]})
        return server

    def client(self, down, memory, data, local):
        memory["personal"] = local.sgd(memory.get("personal", down["initial"]), data)
        return {}

    def serve(self, server, clients, net):
        return None

    def personal(self, server, clients, net):
        return net.call(clients, recall, known={"initial": server["model"]})["model"]


@dataclass(frozen=True)
class OracleClusters(Method):
    """FedAvg within each true cluster: what perfect clustering from the first round would give.

    Where the federation changes, ``OracleClusters.of`` makes the oracle of each time step: clients move as they do
    in truth, and a cluster that is new begins at the first model.

    Parameters
    ----------
    cluster : tuple of int
        True cluster of every client (N), 0..K-1.
    """

    cluster: tuple[Natural, ...] = ()
    name = "oracle"

    @classmethod
    def of(cls, federation):
        """Make the oracle of a federation whose clusters are known."""
        require(federation.cluster is not None, "federation", federation.name, "one whose true clusters are known")
        return cls(tuple(federation.cluster.tolist()))

    def config(self):
        return {"name": self.name}  # the clusters are the federation's, which a record holds already

    def check(self, task):
        n = len(self.cluster)
        require(n == task.clients, "len(cluster)", n, f"the number of clients, {task.clients}")

    def start(self, net):
        k = max(self.cluster) + 1
        return {"models": net.task.init().expand(k, -1).clone(), "assign": torch.tensor(self.cluster)}

    def round(self, server, clients, net):
        models, assign = server["models"], torch.tensor(self.cluster)
        new = max(self.cluster) + 1 - len(models)
        if new > 0:
            models = torch.cat([models, net.task.init().expand(new, -1)])
        k = assign[clients]
        up = net.call(clients, self.client, per_client={"model": Pick(models, k)})
        models = up["model"].mean_by(k, len(models), keep=models, weights=up.sizes)
        return {"models": models, "assign": assign}

    def client(self, down, memory, data, local):
        return {"model": local.sgd(down["model"], data)}

    def serve(self, server, clients, net):
        return Pick(server["models"], server["assign"][clients])
