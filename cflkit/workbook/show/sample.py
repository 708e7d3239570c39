"""Pictures of a chapter: the bundled digits, or as many of another data set in their place."""

from dataclasses import replace

import torch

from cflkit.checks import require
from cflkit.data import images
from cflkit.data.images import Images


def pictures(name: str) -> Images:
    """Load the bundled digits, or put pictures of a data set with these ten labels in their place, one for one.

    Each digit gives way to a picture of its label and split, the first ones that there are; too few are refused.
    So clients hold as many pictures of each label as they do of the digits, and a chapter takes minutes, not hours.
    """
    digits = images.load("digits")
    if name == digits.name:
        return digits
    found = images.load(name)
    ours, theirs = (2 * given.y + given.train for given in (digits, found))  # label and split
    rows = torch.empty(len(digits), dtype=torch.int64)
    for kind in ours.unique().tolist():
        wanted, there = ours == kind, torch.nonzero(theirs == kind).flatten()
        enough = f"at least {int(wanted.sum())} pictures of label {kind // 2} in each split"
        require(len(there) >= wanted.sum(), f"{name}: pictures of label {kind // 2}", len(there), enough)
        rows[wanted] = there[: int(wanted.sum())]
    return replace(digits, name=name, x=found.x[rows], scale=found.scale, source=None)
