"""Right functions in another style: all clients at once in single precision, and whole numbers of pairs."""

import torch


def choose(centres, xs, ys):
    """Return each client's centre from one matrix of losses."""
    x, y = torch.cat(xs).float(), torch.cat(ys)
    logits = torch.bmm(x.expand(len(centres), -1, -1), centres.float().transpose(1, 2))
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.repeat(len(centres)), reduction="none").view(
        len(centres), -1
    )
    return torch.stack([part.mean(1) for part in losses.split([len(each) for each in ys], 1)]).argmin(1)


def update(centres, trained, chosen):
    """Return the new centres by a matrix of members."""
    member = torch.nn.functional.one_hot(chosen, len(centres)).float()
    count = member.sum(0)[:, None]
    return torch.where(count > 0, member.T @ trained.float() / count.clamp(min=1), centres.float())


def ari(found, truth):
    """Return the index as one fraction of whole numbers."""
    pairs = list(zip(found.tolist(), truth.tolist(), strict=True))

    def together(names):
        return sum(names.count(name) * (names.count(name) - 1) // 2 for name in set(names))

    both, one, two = (together(names) for names in (pairs, *(list(each) for each in zip(*pairs, strict=True))))
    every = len(pairs) * (len(pairs) - 1) // 2
    below = (one + two) * every - 2 * one * two
    return 2 * (both * every - one * two) / below if below else 1.0
