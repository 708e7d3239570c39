"""SCAFFOLD (Karimireddy et al. 2020): control variates that cancel client drift."""

from dataclasses import dataclass
from typing import Literal

import torch

from cflkit.checks import Positive, require
from cflkit.methods.base import Method, one_for_all


@dataclass(frozen=True)
class Scaffold(Method):
    """Stochastic controlled averaging (Karimireddy et al. 2020, Algorithm 1).

    A client's steps are y <- y - lr (g_i(y) - c_i + c), where c estimates the gradient of everybody and c_i the
    client's own; plain SGD without momentum is assumed, since option II reads a gradient off the distance moved.

    Parameters
    ----------
    lr_server : float
        Step of the server along the mean update (eta_g).
    option : {"II", "I"}
        New c_i: from the distance moved, c_i - c + (x - y) / (K lr); or the full gradient at x.
    """

    lr_server: Positive = 1.0
    option: Literal["II", "I"] = "II"
    name = "scaffold"

    def check(self, task):
        if self.option == "II":
            sgd = task.optimiser
            require(sgd.momentum == 0, "momentum", sgd.momentum, "0 with option II")
            require(bool(sgd.epochs or sgd.steps), "epochs", sgd.epochs, "1 or more with option II")

    def start(self, net):
        model = net.task.init()[0]
        return {"model": model, "control": torch.zeros_like(model), "clients": len(net.everybody)}

    def round(self, server, clients, net):
        x, there = server["model"], len(net.everybody)
        c = server["control"] * (server["clients"] / there)  # stays the mean of c_i: who arrives brings zero
        up = net.call(clients, self.client, down={"model": x, "control": c})
        share = len(clients) / there
        return {
            "model": x.lerp(up["model"].mean(), self.lr_server),
            "control": c + share * up["change"].mean(),
            "clients": there,
        }

    def client(self, down, memory, data, local):
        x, c = down["model"], down["control"]
        own = memory.get("control", torch.zeros_like(c))
        y = local.sgd(x, data, shift=c - own).dense()
        if self.option == "I":
            new = local.gradient(x, data).dense()
        else:
            new = own - c + (x - y) / (local.steps(data)[:, None].to(x) * local.optimiser.lr)
            new[:, local.model.trainable :] = 0  # what is only carried has no gradient
        memory["control"] = new
        return {"model": y, "change": new - own}

    def serve(self, server, clients, net):
        return one_for_all(server["model"], clients)
