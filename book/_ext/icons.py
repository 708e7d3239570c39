"""Small parts of the book's drawings, as inline SVG: icons and clients. Colours come from the page.

A drawing stands inside the page, so that its text is text, and it turns dark with the page. Classes ``a`` to ``d``
are clusters: each has a colour (``book/_static/drawings.css``) and, because hue alone tells nothing, a marker.
"""

from html import escape


def _dots(radius: float, *centres: str) -> str:
    """Draw filled dots around ``x y``."""
    found = (centre.split() for centre in centres)
    return "".join(f'<circle class="full" cx="{x}" cy="{y}" r="{radius}"/>' for x, y in found)


ICONS = {
    "model": '<path d="M4 7 12 4M4 7 12 12M4 7 12 20M4 17 12 4M4 17 12 12M4 17 12 20M12 4 20 12 12 20M12 12H20"/>'
             + _dots(2.6, "4 7", "4 17", "12 4", "12 12", "12 20", "20 12"),
    "body": '<path d="M4 7 14 4M4 7 14 12M4 7 14 20M4 17 14 4M4 17 14 12M4 17 14 20"/>'
            '<path d="M20 3V21" stroke-dasharray="2 2"/>' + _dots(2.6, "4 7", "4 17", "14 4", "14 12", "14 20"),
    "gradient": '<path class="bold" d="M5 19 18 6M10 5H19V14"/>' + _dots(3, "5 19"),
    "labels": '<path class="full" d="M3 11H7V21H3ZM10 4H14V21H10ZM17 15H21V21H17Z"/><path d="M1 21H23"/>',
    "choice": '<path class="soft" d="M2 8 8 3H22V19H8L2 14Z"/><path class="bold" d="M12 11 14 14 19 8"/>'
              + _dots(2, "7 11"),
    "sample": '<path class="full" d="M2 2H8.6V8.6H2ZM15.4 8.6H22V15.4H15.4ZM8.6 15.4H15.4V22H8.6Z"/>'
              '<path d="M2 2H22V22H2ZM8.6 2V22M15.4 2V22M2 8.6H22M2 15.4H22" stroke-dasharray="2 1.4"/>',
    "matrix": '<path class="soft" d="M6 1H18V23H6Z"/><path d="M10 1V23M14 1V23M6 6H18M6 11H18M6 16H18"/>',
    "short": '<path class="soft" d="M1 8H23V16H1Z"/><path d="M8.3 8V16M15.6 8V16"/>',
    "sorter": '<path d="M2 12H9M9 12 18 5M9 12H18M9 12 18 19"/>' + _dots(2.6, "20 4.5")
              + '<path class="full" d="M17.6 9.6H22.4V14.4H17.6ZM20 16.4 23 21.6H17Z"/>',
    "layers": "".join(f'<path class="soft" d="M12 {y} 22 {y + 4} 12 {y + 8} 2 {y + 4}Z"/>' for y in (13, 8, 3)),
    "graph": '<path d="M5 5 19 4M5 5 7 19M19 4 7 19M19 4 19 18M7 19 19 18M5 5 19 18"/>'
             + _dots(3, "5 5", "19 4", "7 19", "19 18"),
}  # fmt: skip
MARKS = {
    "a": '<circle class="full" r="4.6"/>',
    "b": '<path class="full" d="M-4.2-4.2H4.2V4.2H-4.2Z"/>',
    "c": '<path class="full" d="M0-5 5 4H-5Z"/>',
    "d": '<path class="full" d="M0-5.6 4.8 0 0 5.6-4.8 0Z"/>',
}


def icon(kind: str, box: str, drawn: str) -> str:
    """Wrap a small drawing; the words beside it say what it shows."""
    return f'<svg class="icon {kind}" viewBox="{box}" aria-hidden="true">{drawn}</svg>'


def icons(tokens: str) -> str:
    """Draw things in a row.

    Parameters
    ----------
    tokens : str
        Names of icons, each with the cluster that it belongs to after a dot, and plain words and signs between:
        ``model.a model.b → model``. An underscore is a gap.
    """
    drawn = []
    for token in tokens.replace("_", "\u2003").split(" "):
        name, _, cluster = token.partition(".")
        badge = f'<g class="badge" transform="translate(20 20)">{MARKS[cluster]}</g>' if cluster else ""
        drawn.append(icon(cluster, "0 0 24 24", ICONS[name] + badge) if name in ICONS else f"<i>{escape(token)}</i>")
    return f'<span class="icons">{"".join(drawn)}</span>'


def clients(row: str) -> str:
    """Draw clients in a row.

    Parameters
    ----------
    row : str
        A letter for each client, in upper case if it takes part: its cluster, or ``O`` where there are none. ``?``
        takes part and has no cluster yet, ``.`` is any other; ``→`` stands between clients that act in turn.
    """
    drawn = []
    for letter in row:
        cluster = letter.lower() if letter in "ABCDabcd" else ""
        idle = "" if letter.isupper() or letter == "?" else " idle"
        mark = MARKS[cluster or "a"] if letter.isalpha() else '<text y="5">?</text>' if letter == "?" else ""
        card = f'<rect class="soft" x="-8.5" y="-11.5" width="17" height="23" rx="3.5"/>{mark}'
        drawn.append("<i>→</i>" if letter == "→" else icon(f"{cluster} client{idle}", "-12 -12 24 24", card))
    return f'<span class="icons">{"".join(drawn)}</span>'
