"""Refuse built pages that ask the network for something, or that link to what is not there.

usage: check_pages.py FOLDER
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# <link> relations that a browser fetches or prepares for; the others only name a place
FETCHED = {
    "stylesheet",
    "icon",
    "shortcut",
    "preload",
    "prefetch",
    "modulepreload",
    "preconnect",
    "dns-prefetch",
}
SOURCES = {"src", "srcset", "poster", "data"}
OUTSIDE = re.compile(r"(https?:)?//", re.IGNORECASE)
STYLE = re.compile(r"""(?:url\(|@import)\s*["']?\s*((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)
CODE = re.compile(r"""(?:import\s*\(?|\bfetch\(|\.src\s*=|\bfrom)\s*["'`](https?://[^"'`]+)""")


class Page(HTMLParser):
    """What a page fetches, links to, and offers as anchors."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.fetches: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
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
        if tag == "a" and "href" in values:
            self.links.append(values["href"])

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self.fetches += STYLE.findall(data)
        if self._inside == "script":
            self.fetches += CODE.findall(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


def html(folder: Path) -> list[Path]:
    """Return the pages under `folder`; themes leave templates in ``_static`` that nobody opens."""
    return sorted(path for path in folder.rglob("*.html") if "_static" not in path.parts)


def problems(folder: Path) -> list[str]:
    """Return one line per outside request, missing file or missing anchor under `folder`."""
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
    for path in sorted(folder.rglob("*.css")):
        name = path.relative_to(folder)
        found += [f"{name}: asks the network for {url}" for url in STYLE.findall(path.read_text("utf-8"))]
    return found


if __name__ == "__main__":
    root = Path(sys.argv[1])
    lines = problems(root)
    print("\n".join(lines) or f"{len(html(root))} pages, no outside request, no dead link")
    sys.exit(bool(lines))
