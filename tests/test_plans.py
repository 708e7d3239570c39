"""Chapters are built alike; plans of lessons add up and name what a page holds; slides hold what a plan shows."""

import re

import pytest
import slides
import status
from bs4 import BeautifulSoup
from evidence import CHAPTERS

from cflkit.workbook import places
from cflkit.workbook.chapters import notebooks

COURSE = (places.BOOK / "course.md").read_text("utf-8")
LESSONS = COURSE.partition("\n(course-slides)=")[0]
PARTS = re.split(r"^### \[[^]]+\]\((\w+)\.(?:ipynb|md)\)$", LESSONS, flags=re.MULTILINE)
PLANS = dict(zip(PARTS[1::2], PARTS[2::2], strict=True))
EXERCISE = re.compile(r"\{exercise(?:-start)?\} (?:.*, )?(\d+) minutes\n:label: (\S+)")
each = pytest.mark.parametrize("chapter", PLANS)


def text(chapter):
    page = places.BOOK / f"{chapter}.md"
    return page.read_text("utf-8") if page.is_file() else status.prose(notebooks.chapter(chapter))


def rows(chapter):
    """Minutes and words of each row of a plan."""
    found = re.findall(r"^\| (\d+) minutes \|(.*)\|$", PLANS[chapter], re.MULTILINE)
    return [(int(minutes), said) for minutes, said in found]


def test_every_chapter_has_a_plan():
    assert set(PLANS) == {*CHAPTERS, "foundations", "baselines", "comparison"}


@each
def test_the_rows_of_a_plan_add_up_to_ninety_minutes(chapter):
    assert sum(minutes for minutes, _ in rows(chapter)) == 90
    assert len(rows(chapter)) == PLANS[chapter].count("\n|") - 2  # every line below the head is a row


@each
def test_a_row_that_names_an_exercise_takes_its_minutes(chapter):
    stated = {label: int(minutes) for minutes, label in EXERCISE.findall(text(chapter))}
    assert len(stated) == len(re.findall(r"\{exercise(?:-start)?\}", text(chapter)))
    planned = [(label, minutes) for minutes, said in rows(chapter) for label in re.findall(r"`([\w-]+)`", said)]
    planned = [(label, minutes) for label, minutes in planned if not label.startswith("fig-")]
    assert planned and planned == [(label, stated.get(label)) for label, _ in planned]


@pytest.mark.parametrize("chapter", sorted(set(PLANS) - {"comparison"}))
def test_a_plan_names_the_assignments_that_build_on_its_chapter(chapter):
    built = re.findall(rf"^\| (\d) \|[^|]*\({chapter}\.ipynb\)", COURSE, re.MULTILINE)
    named = re.findall(r"\[Assignment (\d)\]\(course-assignments\)", PLANS[chapter])
    assert named and set(named) <= set(built)


def test_files_of_the_repository_exist():
    named = re.findall(r"\{repository\}`[^`<]+<([^>]+)>`", COURSE)
    assert {"course/README.md", "course/student.md"} <= set(named)
    assert all((places.ROOT / name).is_file() for name in named)


@pytest.mark.parametrize("path", notebooks.chapters(), ids=lambda path: path.stem)
def test_an_exercise_names_its_tables(path):
    """Where an exercise stands, nobody can tell which table is the first, or above."""
    exercises = status.prose(path).partition("\n## Exercises")[2]
    nameless = r"(?:first|second|last|next) (?:table|figure)|(?:table|figure|section) (?:above|below)"
    assert re.findall(nameless, exercises) == []


# ---------------------------------------------------------------------- chapters
COLUMNS = 88


def cells(name, kind):
    return [cell for cell in notebooks.load(notebooks.chapter(name))["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("path", notebooks.chapters(), ids=lambda path: path.stem)
def test_tables_that_a_notebook_prints_are_shown_as_tables(path):
    assert notebooks.load(path)["metadata"]["mystnb"]["render_markdown_format"] == "myst"


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_opens_with_the_idea_and_its_picture_then_the_finding(name):
    prose = text(name)
    idea, picture = prose.index("\n## The idea"), prose.index(f"_generated/{name}_diagram.md")
    found, code = prose.index("{finding}"), prose.index("{literalinclude}")
    assert idea < picture < found < code < prose.index("\n## Exercises")


@pytest.mark.parametrize("name", [*CHAPTERS, "foundations", "baselines"])
def test_code_fits_the_page(name):
    lines = [line for cell in cells(name, "code") for line in cell["source"].splitlines()]
    assert [line for line in lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_exercise_has_a_solution(name):
    exercises = re.findall(r"^:+\{exercise\} \d+ minutes\n:label: (\S+)", text(name), re.MULTILINE)
    solutions = re.findall(r"\{solution(?:-start)?\} (\S+)", text(name))
    assert exercises and exercises == solutions


# ---------------------------------------------------------------------- slides
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
    page = slides.PAGES / f"{chapter}.html"
    if not page.exists():
        pytest.skip("the book is not built: make book")
    (_, *sections), _ = made(page.read_text("utf-8"))
    names = [figure["id"] for section in sections for figure in section.find_all("figure", id=True)]
    assert len(names) == len(set(names))
    assert set(re.findall(r"`(fig-[\w-]+)`", PLANS[chapter])) <= set(names)
    shown = {re.sub(r"\W+", "-", section.h2.text.lower()).strip("-") for section in sections}
    for _, said in rows(chapter):
        assert "on the page" in said or set(re.findall(r"\.ipynb#([\w-]+)", said)) <= shown, said
