"""FedRC (Guo et al. 2024): FedEM's alternation on an objective that label and feature shifts do not split."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from cflkit.methods.fedem import FedEM

LEAST = 1e-8  # mass of a label in a cluster, so that a label nobody has there can be divided by (released code)


@dataclass(frozen=True)
class FedRC(FedEM):
    """Robust clustering (Guo et al. 2024).

    An image's likelihood under cluster k is divided by how common its label is there,
    I(x, y; theta_k) ~ exp(-f(x, y; theta_k)) / C_{y;k}, with C_{y;k} the share of label y in the data of cluster k.
    So clients that differ in labels or features alone share a cluster, and those that disagree on labels do not:
    gamma_{ij;k} ~ omega_{i;k} I(x_ij, y_ij; theta_k), omega_{i;k} is the mean of gamma over the client's images,
    theta_k is trained on losses weighted by gamma, and C_{y;k} = sum of gamma of label y / sum of gamma.

    Our reading, where the listing leaves it open: C_{y;k} is made of what each client said last, and a client's
    cluster, for the history, is its largest omega.

    Parameters
    ----------
    k : int
        Number of clusters (K).
    """

    name = "fedrc"

    def start(self, net):
        n, classes = net.task.clients, net.task.classes
        models = net.task.init(self.k)
        return {
            "models": models,
            "labels": torch.full_like(models[:, :1], 1 / classes).expand(-1, classes).clone(),  # C
            "mass": torch.zeros(n, self.k, classes, dtype=models.dtype),
            "assign": torch.full((n,), -1),
        }

    def round(self, server, clients, net):
        up = net.call(clients, self.client, self.sent(server), mean={"models": net.task.sizes[clients]})
        mass, assign = server["mass"].clone(), server["assign"].clone()
        mass[clients] = up["mass"].dense().cpu()
        assign[clients] = mass[clients].sum(2).argmax(1)
        labels = mass.sum(0).clamp_min(LEAST)
        labels = (labels / labels.sum(1, keepdim=True)).to(server["labels"])
        return {"models": up["models"][0], "labels": labels, "mass": mass, "assign": assign}

    def sent(self, server):
        return {"models": server["models"], "labels": server["labels"]}

    def client(self, down, memory, data, local):
        gamma = self.e_step(down, memory.get("shares", self.equal(local)), data, local)
        memory["shares"] = torch.stack([each.mean(1) for each in gamma])
        known = [one_hot(data[i][1], data.classes).to(each) for i, each in enumerate(gamma)]
        mass = torch.stack([each @ labels for each, labels in zip(gamma, known, strict=True)])
        return {"models": self.m_step(down["models"], gamma, data, local), "mass": mass}

    def evidence(self, down, data, local) -> list[Tensor]:
        prior = down["labels"].log()
        likely = super().evidence(down, data, local)
        return [each - prior[:, data[i][1]] for i, each in enumerate(likely)]
