"""Plans of lessons: rows add up, exercises get their minutes, and a plan names only what its page holds."""

import re

import pytest
import status
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


@each
def test_students_try_an_exercise_before_anything_of_its_row_is_shown(chapter):
    for _, said in rows(chapter):
        assert not re.search(r"`[\w-]*ex-", said.partition(" | ")[2]), said


@each
def test_a_row_links_what_it_shows(chapter):
    for _, said in rows(chapter):
        assert re.search(rf"\]\({chapter}\.(?:ipynb|md)#[^)]+\)|\{{numref\}}`", said), said


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
