"""Slides hold what a plan shows: the figures and computed tables of a built page that are not folded."""

import re

import pytest
import slides
from bs4 import BeautifulSoup
from test_plans import PLANS, rows

PAGE = """<head><link rel="stylesheet" href="a.css"><script src="x/steps.js"></script><script src="b.js"></script>
</head><article class="bd-article"><h1>Title<a>#</a></h1><figure id="one">1</figure><h2>Part &lt;<a>#</a></h2>
<details><figure id="folded">2</figure></details><table id="written"></table>
<figure id="steps"><div class="cell_output"><table></table></div></figure><div class="cell_output">no table</div>
<div class="cell_output" id="computed"><table></table></div><h2>Exercises<a>#</a></h2>
<figure id="solution"></figure></article>"""


def made(page):
    """The sections of a deck, the first with the title, and all of it."""
    deck = BeautifulSoup(slides.deck(page), "html.parser")
    return deck.select("section"), deck


def test_a_deck_shows_what_is_not_folded_up_to_the_exercises():
    (title, *rest), deck = made(PAGE)
    assert [section.select_one("figure, .cell_output")["id"] for section in rest] == ["one", "steps", "computed"]
    assert [section.h2.text for section in rest] == ["Title", "Part <", "Part <"]
    assert title.h1.text == deck.title.text == "Title"
    assert [link["href"] for link in title.select("a")] == [f"#{section['id']}" for section in rest]
    assert deck.link["href"] == "a.css" and [script["src"] for script in deck.select("script")] == ["x/steps.js"]


@pytest.mark.browser
@pytest.mark.parametrize("chapter", sorted(set(PLANS) - {"comparison"}))  # its plan shows the page
def test_what_a_plan_shows_is_on_a_slide_or_on_the_page(chapter):
    (_, *sections), _ = made((slides.PAGES / f"{chapter}.html").read_text("utf-8"))
    names = [figure["id"] for section in sections for figure in section.find_all("figure", id=True)]
    assert len(names) == len(set(names))
    assert set(re.findall(r"`(fig-[\w-]+)`", PLANS[chapter])) <= set(names)
    shown = {re.sub(r"\W+", "-", section.h2.text.lower()).strip("-") for section in sections}
    for _, said in rows(chapter):
        assert "on the page" in said or set(re.findall(r"\.ipynb#([\w-]+)", said)) <= shown, said
