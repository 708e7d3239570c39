"""FedDist (FeSEM's baseline, after Reptile, Nichol et al. 2018): a partial step towards the clients' mean."""

from dataclasses import dataclass
from typing import Literal

from cflkit.checks import Unit
from cflkit.methods.fedavg import FedAvg


@dataclass(frozen=True)
class FedDist(FedAvg):
    """w <- w + epsilon sum_i p_i (w_i - w); with ``weights="n"`` it is FedDist+WS.

    Parameters
    ----------
    epsilon : float
        Length of the step; 1 is FedAvg, 0 stands still.
    """

    weights: Literal["n", "uniform"] = "uniform"
    epsilon: Unit = 0.6
    name = "feddist"

    def round(self, server, clients, net):
        w, mean = server["model"], super().round(server, clients, net)["model"]
        return {"model": w.lerp(mean, self.epsilon)}
