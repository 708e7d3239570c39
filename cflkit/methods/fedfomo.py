"""FedFomo (Zhang et al. 2021): every client mixes its own model from other clients' models that help it."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cflkit.checks import Inside, Natural, Unit, Weight, require
from cflkit.engine.rows import Pick, Rows
from cflkit.methods.base import Method


@dataclass(frozen=True)
class FedFomo(Method):
    """First-order model optimisation (Zhang et al. 2021, Section 3).

    A client downloads M models and weighs each by how much it lowers the loss on held-out data per distance:
    w_n = (L_i(theta_i) - L_i(theta_n)) / ||theta_n - theta_i||, clipped at 0 and normalised to sum 1. It moves to
    theta_i + sum_n w_n (theta_n - theta_i) and trains. The server learns whom each client found useful.

    Parameters
    ----------
    models : int
        Models downloaded by each client and round (M).
    holdout : float
        Share of a client's training data that weighs models and is not trained on.
    epsilon, decay : float
        Chance that a client downloads at random instead of by usefulness, and what is taken off it each round.
    """

    models: Natural = 5
    holdout: Inside = 0.2
    epsilon: Unit = 0.3
    decay: Weight = 0.05
    name = "fedfomo"

    def check(self, task):
        least = int(task.sizes.min())
        require(least >= 2, "images of the smallest client", least, "2 or more, to hold some out")

    def start(self, net):
        n = net.task.clients
        model = net.task.init()[0]
        return {"models": model.expand(n, -1).clone(), "useful": torch.zeros(n, n, dtype=torch.float64)}

    def round(self, server, clients, net):
        models, useful = server["models"], server["useful"].clone()
        offers = self.offers(useful, clients, net)
        down = {"own": Pick(models, clients), "offers": Pick(models, offers.to(models.device))}
        up = net.call(clients, self.client, per_client=down)
        models = models.clone()
        models[clients] = up["model"].dense()
        useful[clients[:, None], offers] += up["weight"].dense().to(useful)
        return {"models": models, "useful": useful}

    def offers(self, useful: Tensor, clients: Tensor, net) -> Tensor:
        """Whose models each client downloads (m, M): the most useful so far, or by chance."""
        chance = max(0.0, self.epsilon - self.decay * (net.round - 1))
        chosen = []
        for client in clients.tolist():
            generator = net.rng("offers", client)
            others = net.everybody[torch.from_numpy(generator.permutation(len(net.everybody)))]
            others = others[others != client]
            if generator.random() >= chance:  # ties stay in their random order
                others = others[useful[client, others].argsort(descending=True, stable=True)]
            chosen.append(others[: self.models])
        return torch.stack(chosen)

    def client(self, down, memory, data, local):
        held, train = data.split(self.holdout, local.seed)
        start, weight = down["own"].dense(), []
        for i, (own, offers) in enumerate(zip(start, down["offers"], strict=True)):
            losses = local.losses(torch.cat([own[None], offers]), held.take(i))[0]
            gap = offers - own
            gain = (losses[0] - losses[1:]) / gap[:, : local.model.trainable].norm(dim=1)
            gain = gain.nan_to_num(0, 0, 0).clamp(min=0)  # an offer equal to the client's own model is no help
            weight.append(F.normalize(gain, p=1, dim=0))
            own += weight[i] @ gap
        return {"model": local.sgd(start, train), "weight": torch.stack(weight)}

    def serve(self, server, clients, net):
        return None

    def personal(self, server, clients, net):
        return Rows([server["models"][clients]])
