"""Right functions in another style: loops, and cosines that count as equal within rounding."""

import torch


def fingerprint(anchor, x, y):
    """Return the unit gradient, a picture at a time."""
    flat = torch.zeros_like(anchor)
    for picture, label in zip(x, y, strict=True):
        flat = flat + torch.outer((anchor @ picture).softmax(0) - torch.eye(len(anchor))[label], picture)
    return torch.nn.functional.normalize(flat.flatten(), dim=0, eps=torch.finfo(flat.dtype).tiny)


def merge(prints, tau):
    """Return clusters from dictionaries, by their lowest members."""
    members = {i: [i] for i in range(len(prints))}

    def cosine(a, b):
        one, two = (prints[members[i]].double().mean(0) for i in (a, b))
        scale = float(one.norm() * two.norm())
        return float(one @ two) / scale if scale else 0.0

    while len(members) > 1:
        cosines = {(a, b): cosine(a, b) for a in members for b in members if a < b}
        largest = max(cosines.values())
        if largest <= tau + 1e-12:
            break
        a, b = min(pair for pair, value in cosines.items() if value >= largest - 1e-12)
        members[a] += members.pop(b)
    return [next(k for k, group in enumerate(members.values()) if i in group) for i in range(len(prints))]


def pulled(theta, omega, A, b, lr, steps, lam):
    """Return theta by autograd on the loss with the pull's penalty."""
    for _ in range(steps):
        free = theta.detach().clone().requires_grad_()
        (((A @ free - b) ** 2).mean() / 2 + lam / 2 * (free - omega).square().sum()).backward()
        theta = (free - lr * free.grad).detach()
    return theta
