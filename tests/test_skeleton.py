"""Every chapter of a paper is built alike: the idea and its picture first, then the finding."""

import re

import pytest
import status
from evidence import CHAPTERS

from cflkit.workbook.chapters import notebooks

COLUMNS = 88


def cells(name, kind):
    return [cell for cell in notebooks.load(notebooks.chapter(name))["cells"] if cell["cell_type"] == kind]


def text(name):
    return status.prose(notebooks.chapter(name))


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
def test_code_stands_beside_notes_and_every_exercise_has_a_solution(name):
    assert text(name).count("{literalinclude}") >= 2
    exercises = re.findall(r"^:+\{exercise\} \d+ minutes\n:label: (\S+)", text(name), re.MULTILINE)
    solutions = re.findall(r"\{solution(?:-start)?\} (\S+)", text(name))
    assert exercises and exercises == solutions


@pytest.mark.parametrize("name", [*CHAPTERS, "foundations", "baselines"])
def test_a_chapter_ends_with_questions_and_their_answers(name):
    asked = re.findall(r"\{dropdown\} .+\?\n+(?![:`]{3})", text(name).split("## Questions to recall")[1])
    assert len(asked) >= 4
