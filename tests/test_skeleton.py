"""Every chapter of a paper is built alike: the answer first, then the idea, and no more than a session can hold."""

import re

import pytest

from cflkit.workbook import notebooks, parameters
from cflkit.workbook.evidence import CHAPTERS

SECTIONS = [
    "The idea", "The algorithm beside its code", "A demonstration on digits", "Measured beside printed",
    "What differs from the paper", "What differed, and why", "Exercises", "Questions to recall",
]  # fmt: skip
WORDS = 3000
COLUMNS = 88
FOLDED = re.compile(
    r"^(:{3,}|`{3,})\{(?:dropdown|exercise|solution|include|literalinclude|math)[^}]*\}.*?^\1\s*?$"
    r"|^(:{3,})\{admonition\}[^\n]*\n:class: dropdown.*?^\2\s*?$|\$\$.*?\$\$|^:[a-z-]+:.*?$",
    re.DOTALL | re.MULTILINE,
)


def cells(name, kind):
    return [cell for cell in parameters.load(notebooks.chapter(name))["cells"] if cell["cell_type"] == kind]


def text(name):
    return "\n\n".join(map(parameters.code, cells(name, "markdown")))


def words(prose):
    """Count the words that a page shows unasked, exercises aside."""
    return len(re.findall(r"[A-Za-z][\w'’-]*", FOLDED.sub("", prose.split("\n## Exercises")[0])))


def test_what_is_folded_is_not_counted():
    assert words("one two\n:::{admonition} three\n:class: dropdown\nfour\n:::\nfive\n\n## Exercises\nsix") == 3


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_opens_with_the_answer_and_goes_the_same_way(name):
    opening = parameters.code(cells(name, "markdown")[0])
    places = [opening.find(f"_generated/{name}_{part}.md") for part in ("finding", "dots", "diagram")]
    assert -1 < places[0] < places[1] < opening.index("\n## The idea") < places[2]
    titles = re.findall(r"^## (.+)$", text(name), re.MULTILINE)
    assert [title for title in titles if title in SECTIONS] == SECTIONS


@pytest.mark.parametrize("name", [*CHAPTERS, "foundations", "baselines"])
def test_a_chapter_fits_a_session(name):
    assert words(text(name)) <= WORDS
    lines = [line for cell in cells(name, "code") for line in parameters.code(cell).splitlines()]
    assert [line for line in lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_code_stands_beside_notes_and_every_exercise_has_a_solution(name):
    assert text(name).count("{literalinclude}") >= 2
    exercises = re.findall(r"^:+\{exercise\}\n:label: (\S+)", text(name), re.MULTILINE)
    solutions = re.findall(r"\{solution(?:-start)?\} (\S+)", text(name))
    assert exercises and exercises == solutions
    assert text(name).split("## Questions to recall")[1].count("{dropdown}") >= 4
