"""Local SGD of a chunk of clients in lock-step with ``vmap``: what makes a GPU fast."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, vmap

from cflkit.engine.rows import stack


def sgd(start, data, batches, prox, shift, optimiser, model) -> Tensor:
    """Advance all clients of a chunk in lock-step; same arithmetic as the lean path.

    Ragged clients are padded: a padded image has weight 0 in its batch's mean, and a client that has no batch
    left stands still while others finish.
    """
    m, device = len(data), model.device
    pairs = [data[i] for i in range(m)]
    longest = max(len(y) for _, y in pairs)
    x = torch.zeros(m, longest, *pairs[0][0].shape[1:], dtype=model.dtype, device=device)
    y = torch.zeros(m, longest, dtype=torch.int64, device=device)
    for i, (xi, yi) in enumerate(pairs):
        x[i, : len(yi)], y[i, : len(yi)] = xi, yi
    steps = max(len(b) for b in batches)
    width = max((len(b) for bs in batches for b in bs), default=0)
    position = np.zeros((steps, m, width), dtype=np.int64)
    weight = np.zeros((steps, m, width))
    for i, bs in enumerate(batches):
        for s, batch in enumerate(bs):
            position[s, i, : len(batch)] = batch
            weight[s, i, : len(batch)] = 1 / len(batch)
    position = torch.from_numpy(position).to(device)
    weight = torch.from_numpy(weight).to(device, model.dtype)
    active = weight.sum(-1, keepdim=True).gt(0).to(model.dtype)  # (steps, m, 1)

    def loss(vector, xb, yb, wb):
        logits = functional_call(module, model.views(vector), (xb,))
        return (F.cross_entropy(logits, yb, reduction="none") * wb).sum()

    module = model.lent().train()
    gradient_of = vmap(grad(loss))
    first = stack(start)
    vectors = (first.expand(m, -1) if first.dim() == 1 else first).clone()
    clients = torch.arange(m, device=device)[:, None]
    pulls = [(p.weight, stack(p.anchor), p.span or slice(0, model.trainable)) for p in prox]
    momentum = None
    for s in range(steps):
        gradient = gradient_of(vectors, x[clients, position[s]], y[clients, position[s]], weight[s])
        if optimiser.weight_decay:
            gradient.add_(vectors, alpha=optimiser.weight_decay)
        for strength, anchor, span in pulls:
            gradient[:, span].add_(vectors[:, span] - anchor[..., span], alpha=strength)
        if shift is not None:
            gradient.add_(stack(shift))
        if optimiser.momentum:
            momentum = gradient.clone() if momentum is None else momentum.mul_(optimiser.momentum).add_(gradient)
            gradient = gradient.add(momentum, alpha=optimiser.momentum) if optimiser.nesterov else momentum
        vectors.sub_(optimiser.lr * active[s] * gradient)
    return vectors
