"""Matched averaging: align neurons that do the same work before averaging weights.

Hidden units have no order: permuting the units of a layer, together with the inputs of the next, changes no output.
FedMA (Wang et al. 2020) therefore matches every client's units to the global model's before it averages. Here the
width is fixed and the score is the squared distance to the centre's unit, solved by the Hungarian method.
"""

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from cflkit.flat import Model


def matched_mean(rows, groups: Tensor, centres: Tensor, model: Model, weights: Tensor | None = None) -> Tensor:
    """Mean of each group's models (K, P) after aligning each model with its group's centre.

    Parameters
    ----------
    rows : Rows of m vectors (P,)
        The clients' models.
    groups : Tensor (m,) of int64
        Cluster of each.
    centres : Tensor (K, P)
        What units are matched to; a group without members keeps its row.
    model : Model
        The architecture: dense and convolutional layers in a row.
    weights : Tensor (m,), optional
        Weight of each client.
    """
    from cflkit.network import Rows  # network knows nothing of matching; imported late to keep it so

    aligned = (align(w, centres[g], model) for w, g in zip(rows, groups.tolist(), strict=True))
    return Rows([torch.stack(list(aligned))]).mean_by(groups, len(centres), keep=centres, weights=weights)


def align(vector: Tensor, centre: Tensor, model: Model) -> Tensor:
    """Permute the hidden units of `vector` (P,), layer by layer, to lie closest to `centre`'s; same function."""
    out = vector.clone()
    mine, goal = model.views(out), model.views(centre)
    layers = [name.removesuffix(".weight") for name in model.parameters if name.endswith(".weight")]
    before = None
    for layer in layers:
        weight = mine[f"{layer}.weight"]
        if before is not None:  # the inputs follow the units of the layer below; a map is a block of inputs
            blocks = weight.reshape(len(weight), len(before), -1)
            weight.copy_(blocks[:, before].reshape(weight.shape))
        if layer == layers[-1]:
            break  # outputs are classes: they have an order
        ours, theirs = _units(mine, layer), _units(goal, layer)
        cost = torch.cdist(theirs, ours).square().cpu().numpy()
        before = torch.from_numpy(linear_sum_assignment(cost)[1]).to(vector.device)
        for name in (f"{layer}.weight", f"{layer}.bias"):
            if name in mine:
                mine[name].copy_(mine[name][before].clone())
    return out


def _units(views: dict[str, Tensor], layer: str) -> Tensor:
    """One row a unit: its incoming weights and its bias."""
    weight = views[f"{layer}.weight"]
    rows = weight.reshape(len(weight), -1)
    bias = views.get(f"{layer}.bias")
    return rows if bias is None else torch.cat([rows, bias[:, None]], dim=1)
