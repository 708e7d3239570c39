"""Matched averaging: align neurons that do the same work before averaging weights.

Hidden units have no order: permuting the units of a layer, together with the inputs of the next, changes no output.
FedMA (Wang et al. 2020) therefore matches every client's units to the global model's before it averages. Here the
width is fixed and the score is the squared distance to the centre's unit, solved by the Hungarian method.
"""

import math
from itertools import pairwise

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from cflkit.engine.rows import Rows
from cflkit.models.flat import Model


def matched_mean(
    rows: Rows, groups: Tensor, centres: Tensor, model: Model, weights: Tensor | None = None
) -> Tensor:
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
        The architecture: dense and convolutional layers in a row, normalised or not (:func:`alignable`).
    weights : Tensor (m,), optional
        Weight of each client.
    """
    aligned = (align(w, centres[g], model) for w, g in zip(rows, groups.tolist(), strict=True))
    return Rows([torch.stack(list(aligned))]).mean_by(groups, len(centres), keep=centres, weights=weights)


def align(vector: Tensor, centre: Tensor, model: Model) -> Tensor:
    """Permute the hidden units of `vector` (P,), layer by layer, to lie closest to `centre`'s; same function.

    A unit is its incoming weights and its bias; scale, offset and running statistics of its normalisation go along.
    """
    out = vector.clone()
    mine, goal = model.views(out), model.views(centre)
    layers = _layers(model)
    before = torch.arange(mine[f"{layers[0]}.weight"].shape[:2][-1])  # an image's channels or pixels stay
    for layer in layers:
        weight = mine[f"{layer}.weight"]
        if weight.dim() == 1:  # a normalisation: its numbers follow the units of the layer below
            _permute(mine, layer, before)
            continue
        blocks = weight.reshape(len(weight), len(before), -1)  # so do inputs; a map is a block of them
        weight.copy_(blocks[:, before].reshape(weight.shape))
        if layer == layers[-1]:
            break  # outputs are classes: they have an order
        ours, theirs = _units(mine, layer), _units(goal, layer)
        cost = torch.cdist(theirs, ours).square().cpu().numpy()
        before = torch.from_numpy(linear_sum_assignment(cost)[1])
        _permute(mine, layer, before)
    return out


def alignable(model: Model, shape: tuple[int, int, int]) -> bool:
    """Whether :func:`align` leaves the function alone: each layer feeds the next, and nothing else.

    Layers that do not fit one after another are told by their shapes; a shortcut past them, by what one permuted
    model says of a few images of that shape (C, H, W).
    """
    weights = [model.shapes[f"{layer}.weight"] for layer in _layers(model)]
    for (units, *_), (outputs, *inputs) in pairwise(weights):
        if inputs[0] % units if inputs else outputs != units:
            return False
    one, other = model.init(0), model.init(1)
    x = torch.arange(4 * math.prod(shape), dtype=model.dtype, device=model.device).sin().view(4, *shape)
    with torch.no_grad():
        before, after = (model.forward(vector, x) for vector in (one, align(one, other, model)))
    return bool(1e3 * (after - before).norm() <= before.norm())


def _layers(model: Model) -> list[str]:
    """Names of what has a weight, in order."""
    return [name.removesuffix(".weight") for name in model.parameters if name.endswith(".weight")]


def _permute(views: dict[str, Tensor], layer: str, order: Tensor) -> None:
    """Put all that a layer has for each unit into that order."""
    for name in ("weight", "bias", "running_mean", "running_var"):
        if (value := views.get(f"{layer}.{name}")) is not None:
            value.copy_(value[order])


def _units(views: dict[str, Tensor], layer: str) -> Tensor:
    """One row a unit: its incoming weights and its bias."""
    weight = views[f"{layer}.weight"]
    rows = weight.reshape(len(weight), -1)
    bias = views.get(f"{layer}.bias")
    return rows if bias is None else torch.cat([rows, bias[:, None]], dim=1)
