"""Pictures of a chapter: the bundled digits, or as many of another data set in their place."""

from dataclasses import replace

import torch

from cflkit.checks import require
from cflkit.data import images
from cflkit.data.images import Images


def pictures(name: str) -> Images:
    """Load the bundled digits, or put pictures of another data set in their place, one for one.

    Every digit is replaced by a picture of the same label and split, the first ones that there are. So clients hold
    as many pictures of each label as they do of the digits, and a chapter takes minutes, not hours.

    Parameters
    ----------
    name : str
        A data set with these ten labels, such as "mnist".

    Returns
    -------
    Images
        1,797 pictures.

    Raises
    ------
    FileNotFoundError
        If the data set is not on this machine; the line says how to fetch it.
    ValueError
        If it has not enough pictures of a label.
    """
    digits = images.load("digits")
    if name == digits.name:
        return digits
    found = images.load(name)
    rows = torch.empty(len(digits), dtype=torch.int64)
    for label in range(digits.classes):
        for train in (True, False):
            wanted = (digits.y == label) & (digits.train == train)
            there = torch.nonzero((found.y == label) & (found.train == train)).flatten()
            enough = f"at least {int(wanted.sum())} pictures of label {label} in each split"
            require(len(there) >= wanted.sum(), f"{name}: pictures of label {label}", len(there), enough)
            rows[wanted] = there[: int(wanted.sum())]
    return replace(digits, name=name, x=found.x[rows], scale=found.scale, source=None)
