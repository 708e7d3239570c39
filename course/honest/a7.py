"""Right functions in another style: autograd, a weighted loss, and sums over classes in loops."""

import torch


def at_zero(x, y, classes):
    """Return the gradient by autograd."""
    anchor = torch.zeros(classes, x.shape[1], dtype=x.dtype, requires_grad=True)
    torch.nn.functional.cross_entropy(x @ anchor.T, y).backward()
    return anchor.grad


def balanced(x, y, classes):
    """Return the gradient of the mean over classes of each class's mean loss."""
    anchor = torch.zeros(classes, x.shape[1], dtype=x.dtype, requires_grad=True)
    each = torch.nn.functional.cross_entropy(x @ anchor.T, y, reduction="none")
    held = sorted(set(y.tolist()))
    sum(each[y == c].mean() / len(held) for c in held).backward()
    return anchor.grad


def agreement(one, two, first, second):
    """Return the cosine over common rows, summed number by number."""
    common = [c for c in range(len(first)) if int(first[c]) > 0 and int(second[c]) > 0]
    pairs = [(float(a), float(b)) for c in common for a, b in zip(one[c], two[c], strict=True)]
    lengths = sum(a * a for a, _ in pairs) ** 0.5 * sum(b * b for _, b in pairs) ** 0.5
    return sum(a * b for a, b in pairs) / lengths if lengths else 0.0


def hunt(weigh):
    """Add up the weights of each class, for three clients."""
    for labels, classes in (([0, 0, 0, 1], 2), ([3, 1, 1], 5), ([2, 2], 4)):
        weights = torch.as_tensor(weigh(torch.tensor(labels), classes)).double().tolist()
        held = set(labels)
        for c in held:
            mine = [w for w, label in zip(weights, labels, strict=True) if label == c]
            assert max(mine) - min(mine) < 1e-6
            assert abs(sum(mine) - 1 / len(held)) < 1e-6
