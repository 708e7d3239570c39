"""FedDANE (Li et al. 2019): an approximate Newton step from two exchanges."""

from dataclasses import dataclass
from typing import Literal

import torch

from cflkit.checks import Weight
from cflkit.engine.sgd import Prox
from cflkit.methods.base import Method, one_for_all


@dataclass(frozen=True)
class FedDANE(Method):
    """Federated Newton-type optimisation (Li et al. 2019, Algorithm 2).

    First the sampled clients' gradients at w are averaged to g; then a second set of clients minimises
    F_i(v) + <g - grad F_i(w), v> + mu/2 ||v - w||^2 by local SGD from w, and their results are averaged.

    Parameters
    ----------
    mu : float
        Proximal weight.
    second : {"independent", "same"}
        Who solves: a set drawn anew, or the clients of the first exchange (released code).
    """

    mu: Weight = 0.0
    second: Literal["independent", "same"] = "independent"
    name = "feddane"

    def start(self, net):
        return {"model": net.task.init()[0]}

    def round(self, server, clients, net):
        w = server["model"]
        up = net.call(clients, self.client_gradient, down={"model": w})
        g = up["gradient"].mean()
        if self.second == "same":  # they hold w already
            up = net.call(clients, self.client, down={"gradient": g}, known={"model": w})
        else:
            drawn = net.rng("second").choice(net.everybody.numpy(), size=len(clients), replace=False)
            solvers = torch.from_numpy(drawn).sort().values
            up = net.call(solvers, self.client, down={"model": w, "gradient": g})
        return {"model": up["model"].mean()}

    def client_gradient(self, down, memory, data, local):
        return {"gradient": local.gradient(down["model"], data)}

    def client(self, down, memory, data, local):
        w = down["model"]
        correction = down["gradient"] - local.gradient(w, data).dense()
        return {"model": local.sgd(w, data, [Prox(self.mu, w)], shift=correction)}

    def serve(self, server, clients, net):
        return one_for_all(server["model"], clients)
