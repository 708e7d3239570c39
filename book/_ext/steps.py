"""Step-throughs: every frame drawn when the book is built, one shown at a time by ``book/_static/steps.js``.

Without JavaScript, and in print, the first, the middle and the last frame are shown below each other. A table says
the numbers of all frames. ``book/steps.yaml`` has the words around them.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import drawings
import numpy as np
from PIL import Image

from cflkit.workbook import places, strict

LEFT, RIGHT, TOP, BOTTOM = 34, 10, 26, 40


@dataclass
class Panel:
    """A chart that things are drawn into, in the units of its axes, which are marked at ticks: (value, words).

    Width and height are pixels of a page that has room. A bare one has no lines across.
    """

    title: str
    x: tuple[float, float]
    y: tuple[float, float]
    width: float = 340
    height: float = 280
    xlabel: str = ""
    xticks: Sequence[tuple[float, str]] = ()
    yticks: Sequence[tuple[float, str]] = ()
    bare: bool = False
    drawn: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Place of a point on the paper."""
        left, bottom = LEFT if self.yticks else 6, BOTTOM if self.xlabel else 22 if self.xticks else 6
        across = (x - self.x[0]) / (self.x[1] - self.x[0]) * (self.width - left - RIGHT)
        up = (y - self.y[0]) / (self.y[1] - self.y[0]) * (self.height - TOP - bottom)
        return round(left + across, 1), round(self.height - bottom - up, 1)

    def line(self, points: Sequence[tuple[float, float]], kind: str = "") -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in (self.at(*point) for point in points))
        self.drawn.append(f'<polyline class="line {kind}" points="{path}"/>')

    def mark(self, x: float, y: float, shape: str = "a", kind: str = "", scale: float = 1) -> None:
        """Draw one of the clusters' markers."""
        x, y = self.at(x, y)
        place = f"translate({x:g} {y:g})" + (f" scale({scale:g})" if scale != 1 else "")
        self.drawn.append(f'<g class="icon {kind}" transform="{place}">{drawings.icons()["marks"][shape]}</g>')

    def text(self, x: float, y: float, words: str, kind: str = "", dx: float = 0, dy: float = 4) -> None:
        """Write words, beside a point."""
        x, y = self.at(x, y)
        self.drawn.append(f'<text class="{kind}" x="{x + dx:g}" y="{y + dy:g}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str, opacity: float = 1) -> None:
        """Fill a box, whose lower left corner is given."""
        (left, low), (right, high) = self.at(x, y), self.at(x + width, y + height)
        light = f' fill-opacity="{opacity:.3f}"' if opacity != 1 else ""
        self.drawn.append(f'<rect class="box {kind}" x="{left:g}" y="{high:g}" width="{right - left:.1f}" '
                          f'height="{low - high:.1f}"{light}/>')  # fmt: skip

    def disc(self, x: float, y: float, radius: float, kind: str = "") -> None:
        """Draw a disc of a radius in pixels."""
        x, y = self.at(x, y)
        self.drawn.append(f'<circle class="box {kind}" cx="{x:g}" cy="{y:g}" r="{radius:.1f}"/>')

    def course(self, values: Sequence[Sequence[tuple[float, float]]], names: Sequence[str], now: float) -> None:
        """Draw one or two series as lines, named at their ends, and where the reader is."""
        self.line([(now, self.y[0]), (now, self.y[1])], "now")
        ends = [self.at(*series[-1])[1] for series in values]
        for series, name, kind, end in zip(values, names, "ab", ends, strict=False):
            self.line(series, f"{kind} strong")
            for x, y in series:
                if x == now:
                    self.mark(x, y, kind, kind)
            below = end == max(ends) and max(ends) - min(ends) < 26 and len(ends) > 1 and kind == "b"
            self.text(*series[-1], name, f"end {kind}", 0, 20 if below else -9)

    def pixels(self, grey: np.ndarray) -> None:
        """Fill the axes with a picture (h, w) of grey values 0 to 255, not smoothed; -1 lets the page through."""
        file = io.BytesIO()
        layers = np.stack([grey.clip(0), 255 * (grey >= 0)], -1).astype(np.uint8)
        Image.fromarray(layers, "LA").save(file, "PNG")
        coded = base64.b64encode(file.getvalue()).decode()
        (left, low), (right, high) = self.at(self.x[0], self.y[0]), self.at(self.x[1], self.y[1])
        self.drawn.append(f'<image class="pixels" x="{left:g}" y="{high:g}" width="{right - left:g}" '
                          f'height="{low - high:g}" preserveAspectRatio="none" '
                          f'href="data:image/png;base64,{coded}"/>')  # fmt: skip

    def svg(self, name: str, tells: str) -> str:
        """Write the chart, with a name of its own in the page and what it tells to those who do not see it."""
        return drawings.render("panel", it=self, name=name, tells=tells)


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
    return drawings.figure(described(name)["caption"], f"fig-{name}-steps", html(name, steps))


def html(name: str, steps: Steps) -> str:
    """Write a step-through, as HTML that is XML too."""
    spec = described(name)
    spec["start"] %= len(steps.labels)  # -1 is the last one
    return drawings.render("steps", name=name, labels=steps.labels, frames=steps.frames, **spec)
