"""Small parts of the book's drawings: icons, clients, text that breaks into lines. Colours come from the page.

A drawing is SVG inside the page, so that its text is text, and it turns dark with the page. Classes ``a`` to ``d``
are clusters: each has a colour (``book/_static/drawings.css``) and, because hue alone tells nothing, a marker.
"""

from html import escape

SIZE = 24  # of an icon, in the drawing's units, which are pixels of a page that has room
FONT, LINE = 14, 17  # of text: its size, and from one line to the next
NARROW, BROAD = set("fijlrtI.,:;'’|!()[] "), set("mwMW—→")


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

_ASKED = '<text y="4.5" class="middle">?</text>'


def width(text: str, size: float = FONT) -> float:
    """Estimate how wide a text is set in DejaVu Sans, the broadest of the fonts that browsers take."""
    return size * sum(0.37 if c in NARROW else 0.95 if c in BROAD else 0.7 if c.isupper() else 0.61 for c in text)


def lines(text: str, room: float, size: float = FONT) -> list[str]:
    """Break a text into lines no wider than `room`; a longer word stays whole."""
    found: list[str] = []
    for word in text.split(" "):  # a hard space holds words together
        longer = f"{found[-1]} {word}" if found else word
        if found and width(longer, size) <= room:
            found[-1] = longer
        else:
            found.append(word)
    return found


def words(text: list[str], x: float, y: float, kind: str = "") -> str:
    """Write lines of text; `y` is the base of the first one."""
    spans = "".join(f'<tspan x="{x:g}" y="{y + LINE * i:g}">{escape(line)} </tspan>' for i, line in enumerate(text))
    return f'<text class="{kind}">{spans}</text>' if kind else f"<text>{spans}</text>"


def icons(tokens: str, x: float, y: float) -> tuple[str, float]:
    """Draw things in a row, ``y`` being its top.

    Parameters
    ----------
    tokens : str
        Names of icons, each with the cluster that it belongs to after a dot, and plain words and signs between:
        ``model.a model.b → model``. An underscore is a gap.

    Returns
    -------
    str, float
        The drawing, and where it ends.
    """
    drawn = []
    for token in tokens.split():
        name, _, cluster = token.partition(".")
        if name in ICONS:
            place = f'transform="translate({x:g} {y:g}) scale({SIZE / 24:g})"'
            own = f'<g class="badge" transform="translate(20 20)">{MARKS[cluster]}</g>' if cluster else ""
            drawn.append(f'<g class="icon {cluster}" {place}>{ICONS[name]}{own}</g>')
            x += SIZE + 4
        elif token == "_":
            x += SIZE / 2
        else:
            drawn.append(words([token], x + 1, y + 17))
            x += width(token) + 6
    return "".join(drawn), x


def clients(row: str, x: float, y: float, step: float = 24) -> str:
    """Draw clients in a row, ``y`` being its top.

    Parameters
    ----------
    row : str
        A letter for each client, in upper case if it takes part: its cluster, or ``O`` where there are none. ``?``
        takes part and has no cluster yet, ``.`` is any other; ``→`` stands between clients that act in turn.
    """
    drawn = []
    for i, letter in enumerate(row):
        if letter == "→":
            drawn.append(words(["→"], x + 2 + step * i, y + 17))
            continue
        cluster = letter.lower() if letter.lower() in "abcd" else ""
        idle = "" if letter.isupper() or letter == "?" else " idle"
        mark = MARKS[cluster or "a"] if letter.isalpha() else _ASKED if letter == "?" else ""
        place = f'transform="translate({x + 9 + step * i:g} {y + 12:g})"'
        drawn.append(f'<g class="icon {cluster}{idle}" {place}><rect class="soft" x="-8.5" y="-11.5" width="17" '
                     f'height="23" rx="3.5"/>{mark}</g>')  # fmt: skip
    return "".join(drawn)
