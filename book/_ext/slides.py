"""A chapter as slides: the figures and computed tables of its built page, each under the heading of its section.

``python book/_ext/slides.py NAME`` writes ``NAME_slides.html`` beside the page, with the page's styles and figures.
What is folded is left out, and so are text, code, and all from the exercises on.
"""

import sys
from html import escape
from pathlib import Path

from bs4 import BeautifulSoup

from cflkit.checks import require
from cflkit.workbook import places

PAGES = places.ROOT / "_build" / "html" / "book"
# Styles, step-throughs and formulas; the rest of a page's scripts are about the page.
KEPT = 'link[rel="stylesheet"], script[src*="steps.js"], script[src*="mathjax"]'
SHOWN = "h1, h2, h3, figure, .cell_output:has(table)"
STYLE = """<style>
html { scroll-snap-type: y mandatory; font-size: 20px; }
section { box-sizing: border-box; height: 100vh; padding: 2vh 4vw; scroll-snap-align: start; overflow: auto; break-after: page; }
section > h2 { margin-top: 0; }
section img { width: 100%; max-height: 72vh; object-fit: contain; }
section ol.cfl-round { zoom: 1.4; }
section .cfl-panels { zoom: 1.25; }
section figcaption .caption-number { display: inline !important; }
section .cfl-table, .headerlink { display: none; }
</style>"""


def deck(page: str) -> str:
    """Make a deck of a page's HTML: the title with links to all slides, then a slide for each figure and table."""
    soup, title, heading, slides = BeautifulSoup(page, "html.parser"), "", "", []
    for part in soup.select_one("article.bd-article").select(SHOWN):
        if part.name in ("h1", "h2", "h3"):
            heading = part.get_text().removesuffix("#").strip()
            title = title or heading
            if heading == "Exercises":
                break
        elif not part.find_parent(["details", "figure"]):
            slides.append((escape(heading), part))
    links = "".join(f'<li><a href="#{i}">{heading}</a></li>' for i, (heading, _) in enumerate(slides, 1))
    sections = "".join(f'<section id="{i}" class="bd-article"><h2>{heading}</h2>{part}</section>'
                       for i, (heading, part) in enumerate(slides, 1))  # fmt: skip
    kept = "".join(map(str, soup.select(KEPT)))
    return (f'<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>{escape(title)}</title>'
            f'{kept}{STYLE}</head><body><main><section class="bd-article"><h1>{escape(title)}</h1><ol>{links}</ol>'
            f"</section>{sections}</main></body></html>")  # fmt: skip


if __name__ == "__main__":
    built = PAGES / f"{sys.argv[1]}.html"
    require(built.exists(), "page", built.stem, "one of the built book: run `make book` first")
    with places.atomic_write(built.with_name(f"{built.stem}_slides.html")) as file:
        file.write_text(deck(built.read_text("utf-8")), "utf-8")
