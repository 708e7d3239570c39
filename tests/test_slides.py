"""Slides hold what a plan shows: tables and figures of the cells, and those that the text includes."""

import re
import shutil

import diagrams
import pages
import pictures
import pytest
import slides
import steps
from nbconvert import SlidesExporter
from nbformat import read, v4
from test_plans import PLANS, rows

from cflkit.workbook import places
from cflkit.workbook.chapters import notebooks
from cflkit.workbook.show import canvas

DECKS = sorted(set(PLANS) - {"comparison"})  # whose page is no notebook: its plan shows the page


def dots(name, folder):
    """What shows a paper's measured numbers beside printed ones, in small."""
    figure, _ = canvas.subplots(figsize=(1, 1))
    return pages.image(f"{name}_dots", (figure, "Two < three."), "Measured & printed.", folder / "_generated")


def written(name, part, folder):
    """What `cflkit pages` writes to a file that a chapter includes, or a stand-in."""
    if part == "diagram":
        return diagrams.drawing(name)
    if part == "steps":
        return steps.drawing(name, pictures.PICTURES[name]())
    return dots(name, folder) if part == "dots" else "Words.\n"


@pytest.fixture
def book(tmp_path):
    """A folder that becomes the book once it holds what a chapter includes."""
    shutil.copytree(places.BOOK / "_static", tmp_path / "_static", ignore=shutil.ignore_patterns("mathjax"))
    (tmp_path / "_generated").mkdir()
    return tmp_path


@pytest.fixture
def deck(book, monkeypatch):
    """A function that makes the slides of a chapter."""

    def made(chapter):
        nb = read(notebooks.chapter(chapter), 4)
        for file in re.findall(r"\{include\} _generated/(\w+)\.md", "\n".join(cell.source for cell in nb.cells)):
            (book / "_generated" / f"{file}.md").write_text(written(*file.rsplit("_", 1), book), "utf-8")
        monkeypatch.setattr(places, "BOOK", book)
        return slides.Deck().preprocess(nb, {})[0].cells

    return made


@pytest.mark.parametrize("chapter", DECKS)
def test_a_deck_has_every_figure_of_the_plan_once(chapter, deck):
    cells = deck(chapter)
    names = [cell.metadata["figure"] for cell in cells if cell.metadata.get("figure")]
    assert len(names) == len(set(names))
    assert set(re.findall(r"`(fig-[\w-]+)`", PLANS[chapter])) <= set(names)
    title, *heads = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert title.startswith("# ") and heads and all(head.startswith("## ") for head in heads)
    assert len(cells) == 2 + 2 * len(heads)  # the title has the style, each heading its table or figure


@pytest.mark.parametrize("chapter", DECKS)
def test_what_a_plan_shows_is_on_a_slide_or_on_the_page(chapter, deck):
    heads = [cell.source[3:].lower() for cell in deck(chapter) if cell.cell_type == "markdown"]
    shown = {re.sub(r"\W+", "-", head).strip("-") for head in heads}
    for _, said in rows(chapter):
        assert "on the page" in said or set(re.findall(r"\.ipynb#([\w-]+)", said)) <= shown, said


# As the built pages have them. Two figures of Foundations are folded: they are no slides, but Sphinx counts them.
NUMBERS = {
    "foundations": {"fig-foundations-round": "1.1", "fig-skews": "1.2", "fig-rotated": "1.6"},
    "stocfl": {"fig-stocfl-dots": "4.2", "fig-stocfl-steps": "4.6", "fig-stocfl-chained": "4.7"},
}


@pytest.mark.parametrize("chapter", NUMBERS)
def test_a_caption_begins_with_the_number_of_the_page(chapter, deck):
    figures = {cell.metadata["figure"]: cell.outputs[0] for cell in deck(chapter) if cell.metadata.get("figure")}
    for name, number in NUMBERS[chapter].items():
        assert re.findall(r"<p><strong>Fig\. (\S+)</strong> \w", figures[name].data["text/html"]) == [number]


def test_a_deck_shows_what_is_not_folded_up_to_the_exercises(book, monkeypatch):
    made, table = {"slideshow": {"slide_type": "slide"}}, v4.new_output("execute_result", {"text/plain": "a table"})
    kinds = [made, made | {"tags": ["hide-cell"]}, {}, made]
    code = [v4.new_code_cell("the code", outputs=[table], metadata=kind) for kind in kinds]
    opening = "(t)=\n# Title\n```{include} _generated/x_dots.md\n```\nWords"
    title, part, exercises = map(v4.new_markdown_cell, [opening, "## Whole\n### Part\nWords", "## Exercises"])
    (book / "_generated" / "x_dots.md").write_text(dots("x", book), "utf-8")
    monkeypatch.setattr(places, "BOOK", book)
    nb = v4.new_notebook(cells=[title, part, *code[:3], exercises, code[3]])
    html, _ = SlidesExporter(preprocessors=[slides.Deck], exclude_input=True).from_notebook_node(nb)
    assert html.count("a table") == 1 and not re.search("Words|Whole|Exercises|the code|Fig\\.", html)
    assert 'alt="Two &lt; three."' in html and "base64,iVBORw0" in html
    assert html.index("<h1") < html.index("Measured &amp; printed.") < html.index(">Part<") < html.index("a table")


def test_a_deck_says_what_has_to_be_written_first(book, monkeypatch):
    monkeypatch.setattr(places, "BOOK", book)
    nb = v4.new_notebook(cells=[v4.new_markdown_cell("# T\n```{include} _generated/x_dots.md\n```")])
    with pytest.raises(ValueError, match=r"^file = '_generated/x_dots\.md': must be one that is written: run "):
        slides.Deck().preprocess(nb, {})
