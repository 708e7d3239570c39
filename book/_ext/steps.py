"""Step-throughs: every frame drawn when the book is built, one shown at a time by ``book/_static/steps.js``.

Without JavaScript, and in print, the first, the middle and the last frame are shown below each other. A table says
the numbers of all frames.
"""

from dataclasses import dataclass
from html import escape

from panel import Panel


@dataclass(frozen=True)
class Frame:
    """One frame: its charts, the sentences that say what to see, and its row of the table."""

    panels: list[Panel]
    says: str
    row: list[str]


@dataclass(frozen=True)
class Steps:
    """A step-through.

    Parameters
    ----------
    caption : str
        Of the figure, in Markdown.
    axis : str
        What the slider sets.
    labels : list of str
        Its values.
    variants : list of str
        What the reader may switch between; a single one is not shown.
    header : list of str
        Of the table.
    frames : list of list of Frame
        For each variant, for each value.
    start : int
        The value that is shown first.
    """

    caption: str
    axis: str
    labels: list[str]
    variants: list[str]
    header: list[str]
    frames: list[list[Frame]]
    start: int = 0


def drawing(name: str, steps: Steps) -> str:
    """Write the Markdown that shows a step-through as a numbered figure."""
    caption = " ".join(steps.caption.split())
    return f"```{{drawing}} {caption}\n:name: fig-{name}-steps\n\n{html(name, steps)}\n```\n"


def html(name: str, steps: Steps) -> str:
    """Write a step-through, as HTML that is XML too."""
    last = len(steps.labels) - 1
    frames = [_frame(f"{name}-{v}-{s}", steps, v, s) for v in range(len(steps.variants)) for s in range(last + 1)]
    own = f"{name}-steps-slider"
    parts = [
        f'<div class="cfl-steps" role="group" aria-label="Step through: {escape(steps.axis)}" '
        f'data-start="{steps.start}">',
        '<div class="cfl-controls" hidden="hidden">',
        _switch(name, steps.variants),
        f'<p class="cfl-axis"><label for="{own}">{escape(steps.axis)}</label> <output for="{own}"></output></p>',
        '<div class="cfl-slide"><button type="button" data-move="-1" aria-label="Back">◀</button>'
        f'<input id="{own}" type="range" min="0" max="{last}" step="1" value="{steps.start}" '
        f'data-labels="{escape("|".join(steps.labels))}"/>'
        '<button type="button" data-move="1" aria-label="Forward">▶</button></div>',
        "</div>",
        '<p class="cfl-live" aria-live="polite"></p>',
        *frames,
        _table(steps),
        "</div>",
    ]
    return "\n".join(part for part in parts if part)


def _frame(own: str, steps: Steps, variant: int, step: int) -> str:
    frame = steps.frames[variant][step]
    where = f"{steps.axis} {steps.labels[step]}"
    if len(steps.variants) > 1:
        where += f", {steps.variants[variant]}"
    last = len(steps.labels) - 1
    key = " key" if step in (0, (last + 1) // 2, last) else ""  # shown without JavaScript
    charts = "".join(panel.svg(f"{own}-{i}", f"{where}: {frame.says}") for i, panel in enumerate(frame.panels))
    return (f'<div class="cfl-frame{key}" data-variant="{variant}" data-step="{step}">'
            f'<div class="cfl-panels">{charts}</div>'
            f'<p class="cfl-says"><b>{escape(where)}.</b> {escape(frame.says)}</p></div>')  # fmt: skip


def _switch(name: str, variants: list[str]) -> str:
    """Write the buttons that switch between variants, if there are several."""
    if len(variants) == 1:
        return ""
    first = ' checked="checked"'
    choices = "".join(f'<label><input type="radio" name="{name}-variant" value="{i}"{first * (i == 0)}/> '
                      f"{escape(variant)}</label>" for i, variant in enumerate(variants))  # fmt: skip
    return f'<fieldset><legend class="cfl-hidden">Shown</legend>{choices}</fieldset>'


def _table(steps: Steps) -> str:
    """Write what all frames show as a table, folded."""
    several = len(steps.variants) > 1
    header = [*(["shown"] if several else []), steps.axis, *steps.header]
    rows = [[*([variant] if several else []), label, *frame.row]
            for variant, frames in zip(steps.variants, steps.frames, strict=True)
            for label, frame in zip(steps.labels, frames, strict=True)]  # fmt: skip
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (f'<details class="cfl-table"><summary>All of it as a table</summary><div tabindex="0" role="region" '
            f'aria-label="Table of all frames"><table class="table"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div></details>")  # fmt: skip
