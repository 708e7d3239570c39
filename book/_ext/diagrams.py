"""Diagrams of one round of each method: who does what, and what travels between server and clients.

``book/diagrams.yaml`` describes them in words. A diagram is a list of steps, which ``book/_static/drawings.css``
sets out: on a page with room in two lanes, server above, clients below, time to the right; on a phone downwards.
A test runs every method and compares what it sends with what its diagram names.
"""

from html import escape

import icons

from cflkit.workbook import places, strict

WAYS = ("down", "up")


def described() -> dict[str, dict]:
    """Load what the diagrams show, by name."""
    return strict.read(places.BOOK / "diagrams.yaml")


def drawing(name: str) -> str:
    """Write the Markdown that shows a diagram as a numbered figure with its caption."""
    spec = described()[name]
    return f"```{{drawing}} {spec['caption']}\n:name: {spec['label']}\n\n{html(spec)}\n```\n"


def html(spec: dict) -> str:
    """Write a diagram, as HTML that is XML too."""
    steps = spec["steps"]
    broad = [not _spreads(steps, i) for i in range(len(steps))]
    columns = " ".join("1.4fr" if wide else "1fr" for wide in broad)
    lanes = "".join(f'<li class="lane {who}" aria-hidden="true"><b>{who}</b></li>' for who in ("server", "clients"))
    items = "".join(_step(steps, i, 1 if broad[i] else 2) for i in range(len(steps)))
    return (f'<ol class="cfl-round" aria-label="{escape(spec["title"])}" style="grid-template-columns:{columns}">'
            f"{lanes}{items}</ol>")  # fmt: skip


def _spreads(steps: list[dict], i: int) -> bool:
    """Whether the next column has room for the card of a step: the other lane acts there, in the same part."""
    after = steps[i + 1] if i + 1 < len(steps) else steps[i]
    return after["who"] != steps[i]["who"] and after.get("once") == steps[i].get("once")


def _step(steps: list[dict], i: int, columns: int) -> str:
    """Write a step: the card of who acts, what travels, and where what is done once ends."""
    step, once = steps[i], steps[i].get("once")
    who = f"{step['who']}, {once}" if once else step["who"]
    shown = icons.icons(step["shows"]) if "shows" in step else ""
    shown += icons.clients(step["clients"]) if "clients" in step else ""
    card = (f'<div class="card {step["who"]}" style="grid-column:{i + 1}/span {columns}"><b class="who">{who}</b>'
            f'<b class="number">{i + 1}</b><div>{escape(step["does"])}{shown}</div></div>')  # fmt: skip
    ways = "".join(_sent(way, step[way]) for way in WAYS if way in step)
    sent = f'<div class="sent" style="grid-column:{i + 1}">{ways}</div>' if ways else ""
    rule = ""
    if before := i and not once and steps[i - 1].get("once"):
        rule = f'<div class="rule" style="grid-column:{i + 1}"><small>{before}</small><small>in every round</small></div>'
    return f'<li class="{step["who"]}">{rule}{card}{sent}</li>'


def _sent(way: str, messages: dict[str, list[str]]) -> str:
    """Write what travels in one direction, under the names that it has in the code."""
    told = {"down": "Sent to the clients: ", "up": "Sent to the server: "}[way]
    lines = "".join(f'<div data-key="{escape(key)}">{icons.icons(drawn)}<span>{escape(says)}</span></div>'
                    for key, (drawn, says) in messages.items())  # fmt: skip
    return f'<div class="way {way}"><i class="arrow"></i><span class="cfl-hidden">{told}</span>{lines}</div>'
