"""A chapter as a deck of slides: its tables and figures, and those that its text includes.

nbconvert knows the cells of a notebook. The diagram of a round, the step-through, and *measured beside printed* are
files that MyST includes; here they become cells. What is folded is left out, and so are exercises and solutions.
"""

import re
from base64 import b64encode
from collections.abc import Iterator
from html import escape

import yaml
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from cflkit.checks import require
from cflkit.workbook import places

CHAPTER = re.compile(r"^\(chapter-(?P<name>\w+)\)=\n")
PARTS = re.compile(r"^#{1,3} (?P<heading>.+)$|^```\{include\} (?P<file>_generated/\w+\.md)$", re.MULTILINE)
FIGURE = re.compile(
    r"^```\{(?P<kind>figure|drawing)\} (?P<said>.+)\n"
    r":name: (?P<name>.+)\n(?::alt: (?P<alt>.+)\n)?(?::width: .+\n)?\n(?P<body>[^`]+)\n```$",
    re.MULTILINE,
)
# A slide has 960 by 700 pixels for its heading, figure and caption. A figure is as large as they let it be,
# and text leaves room for the arrows.
FITTING = """
.reveal section h2 { font-size: 36px; margin: 0 0 10px; }
.reveal section img { width: 100%; max-height: 460px; object-fit: contain; }
.reveal section svg.cfl-wide { max-width: 100% !important; max-height: 520px; }
.reveal section .cfl-panels { zoom: 1.25; }
.reveal section p { margin: 0.3em 0; padding-right: 5em; font-size: 80%; line-height: 1.3; }
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
        title, *slides = _slides(nb.cells, _numbers(nb.cells))
        nb.cells = [title, _cell("", style + script), *slides]
        return nb, resources


def _numbers(cells: list[NotebookNode]) -> dict[str, str]:
    """Return what Sphinx calls each figure of a chapter, which counts folded ones, too; nothing for other pages."""
    if not (label := CHAPTER.match(cells[0].source)):
        return {}
    toc = yaml.safe_load((places.ROOT / "_toc.yml").read_text("utf-8"))
    files = [each["file"] for part in toc["parts"] if part.get("numbered") for each in part["chapters"]]
    chapter = 1 + files.index(f"book/{label['name']}")
    return {name: f"Fig. {chapter}.{count}" for count, name in enumerate(_names(cells), 1)}


def _names(cells: list[NotebookNode]) -> Iterator[str]:
    """Name the figures of a page in its order."""
    for cell in cells:
        if cell.cell_type == "code":
            if figure := cell.metadata.get("mystnb", {}).get("figure"):
                yield figure["name"]
            continue
        files = (part["file"] for part in PARTS.finditer(cell.source) if part["file"])
        yield from (figure["name"] for file in files if (figure := _written(file)))


def _slides(cells: list[NotebookNode], numbers: dict[str, str]) -> Iterator[NotebookNode]:
    """Make the title, then two cells for each table and figure: the heading of its section, and itself."""
    section = ""
    for cell in cells:
        if cell.cell_type == "code":
            if cell.metadata.get("slideshow") and "hide-cell" not in cell.metadata.get("tags", []):
                yield from (_heading(f"## {section}"), _captioned(cell, numbers))
            continue
        for part in PARTS.finditer(cell.source):
            if part["heading"] == "Exercises":
                return
            if part["heading"]:
                if not section:
                    yield _heading(f"# {part['heading']}")
                section = part["heading"]
            elif figure := _written(part["file"]):
                yield from (_heading(f"## {section}"), _included(figure, numbers))


def _heading(text: str) -> NotebookNode:
    return new_markdown_cell(text, metadata={"slideshow": {"slide_type": "slide"}})


def _captioned(cell: NotebookNode, numbers: dict[str, str]) -> NotebookNode:
    """Make a cell of what another one shows, with the caption that the page has."""
    shown = [output for output in cell.outputs if output.output_type == "execute_result"]
    if not (page := cell.metadata.get("mystnb")):
        return new_code_cell(outputs=shown)
    (drawn,) = shown
    figure = page["figure"]
    picture = _image(page["image"]["alt"], drawn.data["image/png"])
    return _figure(figure["name"], picture, figure["caption"], numbers)


def _written(file: str) -> re.Match | None:
    """Find the figure in a file that a chapter includes; None if it has none."""
    path = places.BOOK / file
    require(path.exists(), "file", file, "one that is written: run `.venv/bin/cflkit pages` first")
    return FIGURE.search(path.read_text("utf-8"))


def _included(figure: re.Match, numbers: dict[str, str]) -> NotebookNode:
    """Make a cell of a figure in a file that a chapter includes."""
    if figure["kind"] == "drawing":
        return _figure(figure["name"], figure["body"], figure["said"], numbers)
    picture = b64encode((places.BOOK / figure["said"]).read_bytes()).decode()
    return _figure(figure["name"], _image(figure["alt"], picture), figure["body"], numbers)


def _image(alt: str, picture: str) -> str:
    """Return the HTML of a PNG in base64."""
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{picture.strip()}">'


def _figure(name: str, picture: str, caption: str, numbers: dict[str, str]) -> NotebookNode:
    """Make a cell of a picture's HTML, with its number and caption below; `name` is as pages refer to it."""
    number = f"<strong>{numbers[name]}</strong> " if numbers else ""
    return _cell(name, f"{picture}<p>{number}{escape(caption)}</p>")


def _cell(name: str, html: str) -> NotebookNode:
    """Make a cell that shows HTML; `name` is the figure's."""
    return new_code_cell(outputs=[new_output("display_data", {"text/html": html})], metadata={"figure": name})
