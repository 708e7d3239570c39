"""Right functions in another style: loops over domains and pictures, and gradients by autograd."""

import torch


def adjacency(V, beta):
    """Return the adjacency of the domains."""
    V = list(V)
    near = [[float(1 / ((a - b).norm() + 1e-8)) if a is not b else 0.0 for b in V] for a in V]
    if len(V) == 1:
        return torch.tensor([[1.0]])
    return torch.tensor([[near[j][k] / sum(near[j]) * (1 - beta) + beta * (j == k) for k in range(len(V))]
                         for j in range(len(V))])  # fmt: skip


def logits(x, body, V, A, w, lam):
    """Return the logits of pictures."""
    mixed = [torch.relu(sum(a * v for a, v in zip(row, V, strict=True))) for row in A]
    return torch.stack([
        body @ picture + lam * sum(share * (m @ picture) for share, m in zip(shares, mixed, strict=True))
        for picture, shares in zip(x, w, strict=True)
    ])  # fmt: skip


def follow(student_weights, teacher_weights, x, lr):
    """Return the student's weights after a step."""
    free = student_weights.detach().clone().requires_grad_()
    chosen = torch.tensor([int((teacher_weights @ picture).argmax()) for picture in x])
    torch.nn.functional.cross_entropy(x @ free.T, chosen).backward()
    return free.detach() - lr * free.grad
