"""Right functions in another style: lists of numbers, and gradients by autograd."""

import torch


def skew(counts):
    """Return the skew of each client."""
    rows = counts.tolist()
    common = [sum(column) / sum(map(sum, rows)) for column in zip(*rows, strict=True)]
    return torch.tensor([sum(abs(n / sum(row) - c) for n, c in zip(row, common, strict=True)) / 2 for row in rows])


def train(weights, x, y, lr, batches):
    """Return the weights after a step for each batch."""
    for rows in batches:
        free = weights.detach().clone().requires_grad_()
        torch.nn.functional.cross_entropy(x[rows] @ free.T, y[rows]).backward()
        weights = (free - lr * free.grad).detach()
    return weights


def average(models, sizes):
    """Return the weighted mean of models."""
    return sum(float(n) * model for n, model in zip(sizes, models, strict=True)) / float(sum(sizes))
