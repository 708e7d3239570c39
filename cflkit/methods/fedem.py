"""FedEM (Marfoq et al. 2021): every client's data are a mixture, and every client has its own shares of it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cflkit.checks import Count
from cflkit.engine.clients import Data
from cflkit.engine.local import Local
from cflkit.engine.rows import Mixed
from cflkit.methods.base import Method


@dataclass(frozen=True)
class FedEM(Method):
    """Federated expectation-maximisation (Marfoq et al. 2021, Algorithm 1).

    Client t's data come from M distributions in shares pi_t, which never leave it. In a round it receives all M
    models. E-step: image i belongs to component m with q_i(m) ~ pi_tm exp(-loss of model m on it). M-step: pi_tm is
    the mean of q_i(m), and model m is trained on the loss weighted by q_i(m). The server averages each component by
    the clients' numbers of images. A client is served the mixture: its shares of what the models predict.

    Our reading, where the listing leaves it open: the average is over the clients that took part; the mean of a
    batch divides by its images, not by their q (as the authors' code does); models begin apart, since equal ones
    would stay equal; and a client that never took part finds its shares by one E- and M-step from equal ones.

    Parameters
    ----------
    k : int
        Number of components (M).
    """

    k: Count = 3
    name = "fedem"

    def start(self, net):
        return {"models": net.task.init(self.k)}

    def round(self, server, clients, net):
        up = net.call(clients, self.client, self.sent(server), mean={"models": net.task.sizes[clients]})
        return {"models": up["models"][0]}

    def sent(self, server: dict) -> dict[str, Tensor]:
        """What every client receives, to train or to be served."""
        return {"models": server["models"]}

    def client(self, down, memory, data, local):
        q = self.e_step(down, memory.get("shares", self.equal(local)), data, local)
        memory["shares"] = torch.stack([each.mean(1) for each in q])
        return {"models": self.m_step(down["models"], q, data, local)}

    def e_step(self, down: dict, shares: Tensor, data: Data, local: Local) -> list[Tensor]:
        """Responsibilities q (M, n_i) of every component for each image, client by client; `shares` is (m, M)."""
        evidence = self.evidence(down, data, local)
        return [(pi.log()[:, None] + seen).softmax(0) for pi, seen in zip(shares, evidence, strict=True)]

    def evidence(self, down: dict, data: Data, local: Local) -> list[Tensor]:
        """Log-likelihood (M, n_i) of each image under every model, up to a constant."""
        return [-losses for losses in local.image_losses(down["models"], data)]

    def m_step(self, models: Tensor, q: list[Tensor], data: Data, local: Local) -> Tensor:
        """Every client's M trained models (m, M, P)."""
        trained = [local.sgd(w, data, weights=[each[m] for each in q]).dense() for m, w in enumerate(models)]
        return torch.stack(trained, 1)

    def equal(self, local: Local) -> Tensor:
        """Equal shares (M,), of a client that knows nothing yet."""
        return torch.ones(self.k, dtype=local.model.dtype, device=local.model.device) / self.k

    def client_shares(self, down, memory, data, local):
        """The shares that a client keeps, or those of one step from equal ones."""
        q = self.e_step(down, self.equal(local).expand(len(data), -1), data, local)
        return {"shares": memory.get("shares", torch.stack([each.mean(1) for each in q]))}

    def serve(self, server, clients, net):
        shares = net.call(clients, self.client_shares, self.sent(server))["shares"]
        return Mixed(server["models"], shares.dense())
