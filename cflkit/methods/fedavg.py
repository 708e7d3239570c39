"""FedAvg and FedSGD (McMahan et al. 2017), FedProx (Li et al. 2020): one global model."""

from dataclasses import dataclass
from typing import Literal

import torch

from cflkit.checks import Weight
from cflkit.engine.sgd import SGD, Prox
from cflkit.methods.base import Method, one_for_all


@dataclass(frozen=True)
class FedAvg(Method):
    """Federated averaging (McMahan et al. 2017, Algorithm 1).

    Parameters
    ----------
    weights : {"n", "uniform"}
        Weight of a client in the average: its number of images n_i, or 1.
    """

    weights: Literal["n", "uniform"] = "n"
    name = "fedavg"

    def start(self, net):
        return {"model": net.task.init()[0]}

    def round(self, server, clients, net):
        up = net.call(clients, self.client, {"model": server["model"]}, mean={"model": self.weigh(clients, net)})
        return {"model": up["model"][0]}

    def weigh(self, clients, net):
        """Weight of each client in the average (m,)."""
        sizes = net.task.sizes[clients]
        return sizes if self.weights == "n" else torch.ones_like(sizes)

    def client(self, down, memory, data, local):
        return {"model": local.sgd(down["model"], data)}

    def serve(self, server, clients, net):
        return one_for_all(server["model"], clients)


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with a pull towards the model that was received (Li et al. 2020).

    Local loss: F_i(w) + mu/2 ||w - w^t||^2. Stable while lr (L + mu) < 2.

    Parameters
    ----------
    mu : float
        Proximal weight.
    """

    mu: Weight = 0.05
    name = "fedprox"

    def client(self, down, memory, data, local):
        return {"model": local.sgd(down["model"], data, [Prox(self.mu, down["model"])])}


@dataclass(frozen=True)
class FedSGD(FedAvg):
    """One full-batch gradient step a round (McMahan et al. 2017): w <- w - lr sum_i p_i grad F_i(w)."""

    name = "fedsgd"

    def client(self, down, memory, data, local):
        return {"model": local.sgd(down["model"], data, optimiser=SGD(lr=local.optimiser.lr))}
