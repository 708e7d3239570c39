"""A chapter as a deck of slides: its tables and figures, and those that its text includes.

nbconvert knows the cells of a notebook. The diagram of a round, the step-through, and *measured beside printed* are
files that MyST includes; here they become cells. What is folded is left out, and so are exercises and solutions.
"""

import re
from base64 import b64encode
from collections.abc import Iterator
from html import escape

from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from cflkit.checks import require
from cflkit.workbook import places

PARTS = re.compile(r"^##? (?P<heading>.+)$|^```\{include\} (?P<file>_generated/\w+\.md)$", re.MULTILINE)
FIGURE = re.compile(
    r"^```\{(?P<kind>figure|drawing)\} (?P<said>.+)\n"
    r":name: (?P<name>.+)\n(?::alt: (?P<alt>.+)\n)?(?::width: .+\n)?\n(?P<body>[^`]+)\n```$",
    re.MULTILINE,
)
# A slide has 960 by 700 pixels for its heading, figure and caption.
FITTING = """
.reveal section img { max-height: 410px; }
.reveal section p { margin: 0.3em 0; font-size: 80%; line-height: 1.3; }
.reveal .cfl-says { min-height: 0; }
.cfl-table { display: none; }
"""


class Deck(Preprocessor):
    """Put each table and figure of a chapter on a slide of its own, under the heading of its section."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """Replace the notebook's cells by slides (nbconvert calls this).

        Parameters
        ----------
        nb : NotebookNode
            A chapter; changed in place.
        resources : dict
            nbconvert's, handed on.

        Raises
        ------
        ValueError
            A file that the chapter includes is not written yet.
        """
        static = places.BOOK / "_static"
        style = f"<style>{(static / 'drawings.css').read_text('utf-8')}{FITTING}</style>"
        script = f"<script>{(static / 'steps.js').read_text('utf-8')}</script>"
        title, *slides = _slides(nb.cells)
        nb.cells = [title, _cell("", style + script), *slides]
        return nb, resources


def _slides(cells: list[NotebookNode]) -> Iterator[NotebookNode]:
    """Make the title, then two cells for each table and figure: the heading of its section, and itself."""
    section = ""
    for cell in cells:
        if cell.cell_type == "code":
            if cell.metadata.get("slideshow") and "hide-cell" not in cell.metadata.get("tags", []):
                yield from (_heading(f"## {section}"), _captioned(cell))
            continue
        for part in PARTS.finditer(cell.source):
            if part["heading"] == "Exercises":
                return
            if part["heading"]:
                if not section:
                    yield _heading(f"# {part['heading']}")
                section = part["heading"]
            elif figure := _included(part["file"]):
                yield from (_heading(f"## {section}"), figure)


def _heading(text: str) -> NotebookNode:
    return new_markdown_cell(text, metadata={"slideshow": {"slide_type": "slide"}})


def _captioned(cell: NotebookNode) -> NotebookNode:
    """Make a cell of what another one shows, with the caption that the page has."""
    shown = [output for output in cell.outputs if output.output_type == "execute_result"]
    if not (page := cell.metadata.get("mystnb")):
        return new_code_cell(outputs=shown)
    (drawn,) = shown
    figure = page["figure"]
    return _figure(figure["name"], page["image"]["alt"], drawn.data["image/png"], figure["caption"])


def _cell(name: str, html: str) -> NotebookNode:
    """Make a cell that shows HTML; `name` is the figure's, as pages refer to it."""
    return new_code_cell(outputs=[new_output("display_data", {"text/html": html})], metadata={"figure": name})


def _included(file: str) -> NotebookNode | None:
    """Make a cell of the figure in a file that a chapter includes; None if it has none."""
    path = places.BOOK / file
    require(path.exists(), "file", file, "one that is written: run `.venv/bin/cflkit pages` first")
    if not (figure := FIGURE.search(path.read_text("utf-8"))):
        return None
    if figure["kind"] == "drawing":
        return _cell(figure["name"], f"{figure['body']}<p>{escape(figure['said'])}</p>")
    picture = b64encode((places.BOOK / figure["said"]).read_bytes()).decode()
    return _figure(figure["name"], figure["alt"], picture, figure["body"])


def _figure(name: str, alt: str, picture: str, caption: str) -> NotebookNode:
    """Make a cell of a PNG in base64."""
    image = f'<img alt="{escape(alt)}" src="data:image/png;base64,{picture.strip()}">'
    return _cell(name, f"{image}<p>{escape(caption)}</p>")
