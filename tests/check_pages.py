"""Refuse built pages that ask the network for something, link to what is not there, or hold too fine pictures.

usage: check_pages.py FOLDER
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# <link> relations that a browser fetches or prepares for; the others only name a place
FETCHED = {"stylesheet", "icon", "shortcut", "preload", "prefetch", "modulepreload", "preconnect", "dns-prefetch"}
SOURCES = {"src", "srcset", "poster", "data"}
OUTSIDE = re.compile(r"(https?:)?//", re.IGNORECASE)
STYLE = re.compile(r"""(?:url\(|@import)\s*["']?\s*((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)
CODE = re.compile(r"""(?:import\s*\(?|\bfetch\(|\.src\s*=|\bfrom)\s*["'`](https?://[^"'`]+)""")
# A picture of a chapter is shown as wide as this at most, on a screen of 1280 pixels; its smallest letters are of
# so many points, and have so many pixels there at least. On a phone what would shrink below that scrolls (book.js).
COLUMN, POINTS, LEAST = 752, 9.2, 9


class Page(HTMLParser):
    """What a page fetches, links to, and offers as anchors."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.fetches: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.pictures: list[tuple[str, float]] = []  # each with the width it is given
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.fetches += [values[name] for name in SOURCES & set(values)]
        self.fetches += STYLE.findall(values.get("style", ""))
        if tag == "link" and FETCHED & set(values.get("rel", "").lower().split()):
            self.fetches.append(values.get("href", ""))
        if tag == "img" and values.get("src", "").endswith(".png"):
            wide = re.search(r"width: ?([\d.]+)px", values.get("style", ""))
            self.pictures.append((values["src"], float(wide[1] if wide else values.get("width") or COLUMN)))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self.fetches += STYLE.findall(data)
        if self._inside == "script":
            self.fetches += CODE.findall(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


def letters(picture: Path, width: float) -> float:
    """Pixels of the smallest letters of a PNG where the page gives it `width`, by the resolution stored in it."""
    data = picture.read_bytes()
    at = data.find(b"pHYs")
    natural, metre = (int.from_bytes(data[i : i + 4], "big") for i in (16, at + 4))
    return min(width, COLUMN) / (natural / (0.0254 * metre)) * POINTS / 72 if at > 0 else LEAST


def html(folder: Path) -> list[Path]:
    """Return the pages under `folder`; themes leave templates in ``_static`` that nobody opens."""
    return sorted(path for path in folder.rglob("*.html") if "_static" not in path.parts)


def problems(folder: Path) -> list[str]:
    """Return one line per outside request, missing file, missing anchor or picture too fine under `folder`."""
    pages = {path.resolve(): Page(path.read_text("utf-8")) for path in html(folder)}
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        found += [f"{name}: asks the network for {url}" for url in page.fetches if OUTSIDE.match(url)]
        for url in page.fetches + page.links:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{name}: leads to {url}, which is not there")
            elif "=" in parts.fragment:  # what a script is to show
                continue
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name}: leads to {url}, which has no such anchor")
        for source, width in page.pictures:
            picture = path.parent / unquote(source)
            if picture.is_file() and (pixels := round(letters(picture, width), 1)) < LEAST:
                found.append(f"{name}: {source} has letters of {pixels:.1f} pixels, fewer than {LEAST}")
    for path in sorted(folder.rglob("*.css")):
        name = path.relative_to(folder)
        found += [f"{name}: asks the network for {url}" for url in STYLE.findall(path.read_text("utf-8"))]
    return found


if __name__ == "__main__":
    root = Path(sys.argv[1])
    lines = problems(root)
    sound = f"{len(html(root))} pages, no outside request, no dead link, no letters under {LEAST} pixels"
    print("\n".join(lines) or sound)
    sys.exit(bool(lines))
