"""A chapter as slides: the figures and computed tables of its built page, each under the heading of its section.

``python book/_ext/slides.py NAME`` writes ``NAME_slides.html`` beside the page, with the page's styles and figures.
What is folded is left out, and so are text, code, and all from the exercises on.
"""

import sys

import drawings
from bs4 import BeautifulSoup

from cflkit.checks import require
from cflkit.workbook import places

PAGES = places.ROOT / "_build" / "html" / "book"
# Styles, step-throughs and formulas; the rest of a page's scripts are about the page.
KEPT = 'link[rel="stylesheet"], script[src*="steps.js"], script[src*="mathjax"]'
SHOWN = "h1, h2, h3, figure, .cell_output:has(table)"


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
            slides.append((heading, part))
    return drawings.render("slides", title=title, slides=slides, kept=soup.select(KEPT))


if __name__ == "__main__":
    built = PAGES / f"{sys.argv[1]}.html"
    require(built.exists(), "page", built.stem, "one of the built book: run `make book` first")
    places.write(built.with_name(f"{built.stem}_slides.html"), deck(built.read_text("utf-8")))
