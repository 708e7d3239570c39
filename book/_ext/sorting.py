"""Clients that sort themselves: forty digits of MNIST, as one model for all has them, and one model a group.

The directive ``{sorting}`` draws it, without a script: two buttons choose where the digits stand. Without a style
sheet's ``:has``, and in print, they stand in their groups. ``python book/_ext/sorting.py FILE`` makes the picture
of the digits, of the real MNIST.
"""

import sys
from pathlib import Path

import numpy as np
from docutils import nodes
from PIL import Image
from sphinx.util.docutils import SphinxDirective

from cflkit import rng
from cflkit.data import images
from cflkit.workbook import places
from cflkit.workbook.claims import findings

GROUPS, EACH, SIDE = 4, 7, 28  # four rotations, seven clients each; a digit has 28 pixels a side
NAMES = ("upright", "a quarter turn", "upside down", "three quarters")
FOR_ALL, BY_GROUP = "common_rot_r20/fedavg", "common_rot_r20/oracle"


def sheet() -> Image.Image:
    """Seven digits for each group, a row a group, turned as the group's clients hold them; dark on light."""
    mnist = images.load("mnist")
    drawn = rng.generator(3, "front page").permutation(len(mnist))[: GROUPS * EACH]
    digits = mnist.x[drawn].numpy().reshape(GROUPS, EACH, SIDE, SIDE)
    rows = [np.hstack([np.rot90(digit, turn) for digit in row]) for turn, row in enumerate(digits)]
    return Image.fromarray(255 - np.vstack(rows))


def tiles() -> str:
    """A tile for each client: where it stands among all, and in its group."""
    stands = rng.generator(5, "front page").permutation(GROUPS * EACH)
    found = []
    for client, place in enumerate(stands.tolist()):
        group, column = divmod(client, EACH)
        row, at = divmod(place, EACH)
        found.append(f'<i class="g{group}" style="--x:{column};--y:{group};--mx:{at};--my:{row}"></i>')
    return "".join(found)


class Sorting(SphinxDirective):
    """The picture, with its content as the caption."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the figure."""
        every, grouped = (f"{findings.mean(cell):.0f}%" for cell in (FOR_ALL, BY_GROUP))
        caption, problems = self.parse_inline(" ".join(self.content))
        told = f"Handwritten digits, seven each {', '.join(NAMES)}."
        names = "".join(f"<b>{name}</b>" for name in NAMES)
        html = (
            '<figure class="sorting"><fieldset><legend class="cfl-told">How the clients share a model</legend>'
            '<label><input type="radio" name="sorting" value="all"> One model for all '
            f"<strong>{every}</strong></label>"
            f'<label><input type="radio" name="sorting" value="groups" checked> One model a group '
            f"<strong>{grouped}</strong></label></fieldset>"
            f'<div class="tiles" role="img" aria-label="{told}">{tiles()}{names}</div><figcaption>'
        )
        return [nodes.raw("", html, format="html"), nodes.paragraph("", "", *caption),
                nodes.raw("", "</figcaption></figure>", format="html"), *problems]  # fmt: skip


def setup(app) -> dict:
    """Make the directive known."""
    app.add_directive("sorting", Sorting)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    with places.atomic_write(Path(sys.argv[1])) as part:
        sheet().save(part, "PNG", optimize=True)
