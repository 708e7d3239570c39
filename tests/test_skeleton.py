"""Every chapter of a paper is built alike: the answer first, then the idea, and no more than a session can hold."""

import json
import re

import pytest

from cflkit.workbook import notebooks, parameters, reading
from cflkit.workbook.evidence import CHAPTERS

SECTIONS = [
    "The idea", "The algorithm beside its code", "A demonstration on digits", "Measured beside printed",
    "What differs from the paper", "What differed, and why", "Exercises", "Questions to recall",
]  # fmt: skip
WORDS = 3000
COLUMNS = 88


def cells(name, kind):
    return [cell for cell in parameters.load(notebooks.chapter(name))["cells"] if cell["cell_type"] == kind]


def text(name):
    return reading.prose(notebooks.chapter(name))


def test_what_is_folded_is_not_counted():
    text = "one two\n:::{admonition} three\n:class: dropdown\nfour\n:::\nfive\n\n## Exercises\nsix"
    assert reading.words(text) == 3


def test_reading_times_are_counted_section_by_section(tmp_path, monkeypatch):
    path = tmp_path / "one.ipynb"
    prose = "# T\n" + "a " * 100 + "\n## B\n" + "b " * 249
    cell = {"cell_type": "markdown", "metadata": {}, "source": f"{prose}\n## Exercises\n" + "c " * 500}
    path.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    assert reading.sections(path) == {"B": 2} and reading.minutes(path) == 4
    monkeypatch.setattr(notebooks, "TIMES", tmp_path)
    assert reading.told(path) == "Reading takes about 4 minutes: *B* 2. Exercises come on top.\n"
    (tmp_path / "one.json").write_text('{"seconds": 71.6, "date": "2026-01-02", "processor": "P"}')
    assert reading.told(path).endswith("The notebook took 72 seconds of one core of P, on 2026-01-02.\n")


@pytest.mark.parametrize("path", notebooks.chapters(), ids=lambda path: path.stem)
def test_tables_that_a_notebook_prints_are_shown_as_tables(path):
    assert parameters.load(path)["metadata"]["mystnb"]["render_markdown_format"] == "myst"


@pytest.mark.parametrize("name", [*CHAPTERS, "foundations", "baselines"])
def test_what_a_chapter_shows_unasked_is_a_slide(name):
    for cell in cells(name, "code"):
        shown = cell["outputs"] and "hide-cell" not in cell["metadata"].get("tags", [])
        assert (cell["metadata"].get("slideshow") == {"slide_type": "slide"}) == bool(shown)


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_opens_with_the_answer_and_goes_the_same_way(name):
    opening = parameters.code(cells(name, "markdown")[0])
    places = [opening.find(f"_generated/{name}_{part}.md") for part in ("finding", "dots", "diagram")]
    assert -1 < places[0] < places[1] < opening.index("\n## The idea") < places[2]
    titles = re.findall(r"^## (.+)$", text(name), re.MULTILINE)
    assert [title for title in titles if title in SECTIONS] == SECTIONS


@pytest.mark.parametrize("name", [*CHAPTERS, "foundations", "baselines"])
def test_a_chapter_fits_a_session(name):
    assert reading.words(text(name)) <= WORDS
    lines = [line for cell in cells(name, "code") for line in parameters.code(cell).splitlines()]
    assert [line for line in lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_code_stands_beside_notes_and_every_exercise_has_a_solution(name):
    assert text(name).count("{literalinclude}") >= 2
    exercises = re.findall(r"^:+\{exercise\} \d+ minutes\n:label: (\S+)", text(name), re.MULTILINE)
    solutions = re.findall(r"\{solution(?:-start)?\} (\S+)", text(name))
    assert exercises and exercises == solutions


@pytest.mark.parametrize("name", [*CHAPTERS, "foundations", "baselines"])
def test_a_chapter_ends_with_questions_and_their_answers(name):
    asked = re.findall(r"\{dropdown\} .+\?\n+(?![:`]{3})", text(name).split("## Questions to recall")[1])
    assert len(asked) >= 4
