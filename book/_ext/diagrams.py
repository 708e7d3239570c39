"""Diagrams of one round of each method: who does what, and what travels between server and clients.

``book/diagrams.yaml`` describes them in words. A diagram is a list of steps, which ``book/_static/drawings.css``
sets out: on a page with room in two lanes, server above, clients below, time to the right; on a phone downwards.
A test runs every method and compares what it sends with what its diagram names.
"""

import drawings

from cflkit.workbook import places, strict


def described() -> dict[str, dict]:
    """Load what the diagrams show, by name."""
    return strict.read(places.BOOK / "diagrams.yaml")


def drawing(name: str) -> str:
    """Write the Markdown that shows a diagram as a numbered figure with its caption."""
    spec = described()[name]
    return f"```{{drawing}} {spec['caption']}\n:name: {spec['label']}\n\n{html(spec)}\n```\n"


def html(spec: dict) -> str:
    """Write a diagram; a card spreads over the next column where the other lane acts there, in the same part."""
    steps = spec["steps"]
    spread = [step["who"] != after["who"] and step.get("once") == after.get("once")
              for step, after in zip(steps, [*steps[1:], steps[-1]], strict=True)]  # fmt: skip
    return drawings.render("diagram", title=spec["title"], steps=steps, spread=spread, **drawings.icons())
