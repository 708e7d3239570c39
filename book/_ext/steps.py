"""Step-throughs: every frame drawn when the book is built, one shown at a time by ``book/_static/steps.js``.

Without JavaScript, and in print, the first, the middle and the last frame are shown below each other. A table says
the numbers of all frames. ``book/steps.yaml`` has the words around them.
"""

from dataclasses import dataclass

import drawings
from panel import Panel

from cflkit.workbook import places, strict


@dataclass(frozen=True)
class Frame:
    """One frame: its charts, the sentences that say what to see, and its row of the table."""

    panels: list[Panel]
    says: str
    row: list[str]


@dataclass(frozen=True)
class Steps:
    """The values of the slider, and their frames: for each variant, for each value."""

    labels: list[str]
    frames: list[list[Frame]]


def described(name: str) -> dict:
    """Load the words around a step-through; what has one variant names none."""
    return {"variants": [""], "start": 0} | strict.read(places.BOOK / "steps.yaml")[name]


def drawing(name: str, steps: Steps) -> str:
    """Write the Markdown that shows a step-through as a numbered figure."""
    return f"```{{drawing}} {described(name)['caption']}\n:name: fig-{name}-steps\n\n{html(name, steps)}\n```\n"


def html(name: str, steps: Steps) -> str:
    """Write a step-through, as HTML that is XML too."""
    spec = described(name)
    spec["start"] %= len(steps.labels)  # -1 is the last one
    return drawings.render("steps", name=name, labels=steps.labels, frames=steps.frames, **spec)
