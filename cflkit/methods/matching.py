"""Matched averaging: align neurons that do the same work before averaging weights.

Hidden units have no order: permuting the units of a layer, together with the inputs of the next, changes no output.
FedMA (Wang et al. 2020) therefore matches every client's units to the global model's before it averages. Here the
width is fixed and the score is the squared distance to the centre's unit, solved by the Hungarian method.
"""

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
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
    aligned = align(rows, (centres[g] for g in groups.tolist()), model)
    return Rows([aligned]).mean_by(groups, len(centres), keep=centres, weights=weights)


def align(vectors: Iterable[Tensor], centres: Iterable[Tensor], model: Model) -> Tensor:
    """Permute the hidden units of m vectors (P,), layer by layer, to lie closest to their centres'; a copy (m, P).

    No function changes. A unit is its incoming weights and its bias; scale, offset and running statistics of its
    normalisation go along.
    """
    out = torch.stack(list(vectors))
    mine, goals = [model.views(v) for v in out], [model.views(c) for c in centres]
    layers = _layers(model)
    entries = mine[0][f"{layers[0]}.weight"].shape[:2][-1]  # an image's channels or pixels stay
    orders = torch.arange(entries, device=out.device).expand(len(out), -1)
    for layer in layers:
        if len(model.shapes[f"{layer}.weight"]) > 1:  # inputs follow the units of the layer below
            for views, order in zip(mine, orders, strict=True):
                weight = views[f"{layer}.weight"]
                blocks = weight.reshape(len(weight), len(order), -1)  # a map is a block of them
                weight.copy_(blocks[:, order].reshape(weight.shape))
            if layer == layers[-1]:
                break  # outputs are classes: they have an order
            pairs = zip(goals, mine, strict=True)
            cost = torch.stack([torch.cdist(_units(g, layer), _units(v, layer)).square() for g, v in pairs])
            best = np.stack([linear_sum_assignment(c)[1] for c in cost.cpu().numpy()])
            orders = torch.from_numpy(best).to(out.device)
        for views, order in zip(mine, orders, strict=True):  # so does all that a layer has for each unit
            for name in ("weight", "bias", "running_mean", "running_var"):
                if (value := views.get(f"{layer}.{name}")) is not None:
                    value.copy_(value[order])
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
        before, after = (model.forward(vector, x) for vector in (one, align([one], [other], model)[0]))
    return bool(1e3 * (after - before).norm() <= before.norm())


def _layers(model: Model) -> list[str]:
    """Names of what has a weight, in order."""
    return [name.removesuffix(".weight") for name in model.parameters if name.endswith(".weight")]


def _units(views: dict[str, Tensor], layer: str) -> Tensor:
    """One row a unit: its incoming weights and its bias."""
    weight = views[f"{layer}.weight"]
    rows = weight.reshape(len(weight), -1)
    bias = views.get(f"{layer}.bias")
    return rows if bias is None else torch.cat([rows, bias[:, None]], dim=1)
