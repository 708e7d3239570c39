"""What programs in public repositories do under a method's name, in place of what its paper says.

``.venv/bin/cflkit simulate --protocol dose_rotation_10 book/measure/deviations.py:FedRCsIFCA`` runs one in a
cell of the benchmark. Settings are those that the method has there; PACFL's thresholds were chosen anew, of the
same three and on the same held-out images, because other angles need others. "Is the baseline the method?" says
where each was read. Records come to ``runs/``; those that findings cite were moved to ``book/results``.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from cflkit.engine.rows import Pick
from cflkit.methods import CFL, IFCA, PACFL, FedSoft


@dataclass(frozen=True)
class FedRCsIFCA(IFCA):
    """A model that nobody picked does not stay: its weights become zero."""

    k: int = 8
    name = "ifca-fedrc"

    def round(self, server, clients, net):
        after = super().round(server, clients, net)
        picked = torch.bincount(after["assign"][clients], minlength=self.k) > 0
        return after | {"models": after["models"] * picked[:, None].to(after["models"])}


@dataclass(frozen=True)
class FedRCsFedSoft(FedSoft):
    """An image counts for the cluster with the largest loss, not with the least."""

    lam: float = 0.01
    name = "fedsoft-fedrc"

    def client_weigh(self, down, memory, data, local):
        worst = [losses.argmax(0) for losses in local.image_losses(down["models"], data)]
        share = torch.stack([torch.bincount(each, minlength=self.k) / len(each) for each in worst])
        share = share.to(down["models"]).clamp_min(self.sigma)
        return {"importance": share / share.sum(1, keepdim=True)}


@dataclass(frozen=True)
class FedZoosCFL(CFL):
    """A client begins at the first model again, every round; here, as in the benchmark, no cluster splits."""

    name = "cfl-fedzoo"

    def round(self, server, clients, net):
        first = net.task.init()
        here = server["assign"][clients]
        up = net.call(clients, self.client, per_client={"model": Pick(first, torch.zeros_like(here))})
        return server | {"models": up["model"].mean_by(here, len(server["models"]), keep=server["models"])}


@dataclass(frozen=True)
class PACFLByEntry(PACFL):
    """The smallest angle between any two basis vectors, not between the subspaces."""

    beta: float = 10
    angle: Literal["first", "sum", "entry"] = "entry"
    name = "pacfl-entry"


@dataclass(frozen=True)
class PACFLByLabel(PACFLByEntry):
    """And a basis for the images of each label, not one for all."""

    beta: float = 5
    subspace: Literal["client", "label"] = "label"
    name = "pacfl-label"
