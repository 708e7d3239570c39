"""FedDist (FeSEM's baseline, after Reptile, Nichol et al. 2018): a partial step towards the clients' mean."""

from dataclasses import dataclass

from cflkit.checks import require
from cflkit.methods.fedavg import FedAvg


@dataclass(frozen=True)
class FedDist(FedAvg):
    """w <- w + epsilon sum_i p_i (w_i - w); with ``weights="n"`` it is FedDist+WS.

    Parameters
    ----------
    epsilon : float
        Length of the step; 1 is FedAvg, 0 stands still.
    """

    weights: str = "uniform"
    epsilon: float = 0.6
    name = "feddist"

    def __post_init__(self):
        super().__post_init__()
        require(0 <= self.epsilon <= 1, "epsilon", self.epsilon, "in [0, 1]")

    def round(self, server, clients, net):
        w, mean = server["model"], super().round(server, clients, net)["model"]
        return {"model": w.lerp(mean, self.epsilon)}
