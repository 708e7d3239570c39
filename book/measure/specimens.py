"""Real images at their real size, as the papers' clients hold them: ``make specimens`` (needs MNIST and FEMNIST).

The pictures are stored, so that the book builds without the data sets. Faces are not among them: the terms of
CelebA forbid passing them on.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image

from cflkit import rng
from cflkit.data import images
from cflkit.workbook import places
from cflkit.workbook.show import plots

TURNS = ("upright", "quarter turn", "upside down", "three quarters")
LETTERS, FIRST_LETTER = "abdefghnrt", 36  # FEMNIST counts ten digits and 26 capitals before the small letters
WRITERS = 4
SHARES = {"device A": (1, 4, 7), "device B": (0, 2, 5), "device C": (3, 8, 9), "device D": (1, 2, 6)}
SHIFTS = (0, 3, 6, 9)


def of_each(data: images.Images, labels: list[int]) -> torch.Tensor:
    """The first pictures (n, 1, H, W) with the labels asked for; one asked for twice comes with its next."""
    taken = [labels[:n].count(label) for n, label in enumerate(labels)]
    rows = [torch.nonzero(data.y == label).flatten()[at] for label, at in zip(labels, taken, strict=True)]
    return data.x[torch.stack(rows)]


def rotated() -> Figure:
    """Ten digits, as each of four groups of clients holds them."""
    digits = of_each(images.load("mnist"), list(range(10)))
    return plots.image_grid(255 - torch.cat([digits.rot90(turn, (2, 3)) for turn in range(4)]), rows=TURNS)


def renamed() -> Figure:
    """Ten digits with the names that each of four groups of clients gives them."""
    digits = of_each(images.load("mnist"), list(range(10)))
    names = [str((digit + shift) % 10) for shift in SHIFTS for digit in range(10)]
    return plots.image_grid(255 - digits.repeat(4, 1, 1, 1), names, rows=[f"group {n + 1}" for n in range(4)])


def writers() -> Figure:
    """The same ten letters by four writers who wrote all of them."""
    data = images.load("femnist")
    wanted = [FIRST_LETTER + ord(letter) - ord("a") for letter in LETTERS]
    drawn = []
    for writer in data.user.unique().tolist():
        own = data.user == writer
        rows = [torch.nonzero(own & (data.y == label)).flatten() for label in wanted]
        if all(map(len, rows)):
            drawn.append(data.x[torch.stack([row[0] for row in rows])])
    names = [f"writer {n + 1}" for n in range(WRITERS)]
    return plots.image_grid(torch.cat(drawn[:WRITERS])[..., 3:-3, 3:-3], rows=names)


def shares() -> Figure:
    """Ten digits each of four devices that hold three labels."""
    labels = [held[n % 3] for held in SHARES.values() for n in range(10)]
    return plots.image_grid(255 - of_each(images.load("mnist"), labels), rows=list(SHARES))


def sheet() -> Image.Image:
    """Seven digits for each group of the front page, a row a group, as its clients hold them; dark on light."""
    mnist = images.load("mnist")
    drawn = rng.generator(3, "front page").permutation(len(mnist))[:28]
    digits = mnist.x[drawn].numpy().reshape(4, 7, 28, 28)
    rows = [np.hstack([np.rot90(digit, turn) for digit in row]) for turn, row in enumerate(digits)]
    return Image.fromarray(255 - np.vstack(rows))


PICTURES: dict[str, Callable[[], Figure]] = {f.__name__: f for f in (rotated, renamed, writers, shares)}


def main(folder: Path) -> None:
    """Write every picture into `folder`."""
    plots.use_style()
    with places.atomic_write(folder / "digits.png") as part:
        sheet().save(part, "PNG", optimize=True)
    for name, draw in PICTURES.items():
        with places.atomic_write(folder / f"specimens_{name}.png") as part:
            figure = draw()
            figure.set_size_inches(5.2, 2.5 if name == "renamed" else 1.75)  # as wide as a phone can show
            figure.savefig(part, format="png", dpi=150)
            plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
