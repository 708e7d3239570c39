"""The course's sources: points, names, model solutions, planted mistakes, numbers for every student, leaks."""

import importlib.metadata
import re
from html import unescape
from pathlib import Path

import pytest
import torch
import yaml

pytest.importorskip("nbgrader", reason="the course needs requirements-course.txt")

from cflkit import metrics
from cflkit.methods import graph_layers, stocfl
from course import judge
from course.checking import Reference, checks_of, tasks_of
from course.inside import Inside, cells, points
from course.notebooks import notebook
from course.source import STUB, load, names

pytestmark = [pytest.mark.course, pytest.mark.timeout(800)]
ROOT = Path(__file__).resolve().parent.parent
STUDENTS = ["tom", "ada", "bob", "eve", "kim", "joe", "sue", "max"]


def mistakes(assignment: str) -> list[dict]:
    return yaml.safe_load((ROOT / "course" / "wrong" / f"{assignment}.yaml").read_text())


def test_assignments_have_twenty_and_five_points():
    assert names() == [f"a{k}" for k in range(1, len(names()) + 1)] and len(names()) >= 7
    for name in names():
        written = sum(cell.points for cell in load(name).cells)
        assert (sum(tasks_of(name).values()), written) == (20, 5), name
        assert {"hunt", "measure"} <= set(tasks_of(name)), name


@pytest.mark.parametrize("assignment", names())
def test_the_solution_gets_everything_and_the_release_nothing(assignment):
    assert points(assignment, cells(assignment)) == (tasks_of(assignment), [])
    for student in STUDENTS[1:5]:  # other draws of the hidden tests
        got, lines = points(assignment, cells(assignment, measured=False), student)
        assert got == tasks_of(assignment) | {"measure": 0}, (student, lines)
    assert sum(points(assignment, cells(assignment, "release"))[0].values()) == 0


@pytest.mark.parametrize("assignment", names())
def test_planted_mistakes_get_exactly_their_points(assignment):
    planted, full = mistakes(assignment), tasks_of(assignment)
    assert len(planted) >= 6
    assert {"hunt", "measure"} <= {each["task"] for each in planted}
    measurement = next(cell.text for cell in load(assignment).cells if cell.id == "measure")
    for number, each in enumerate(planted):
        measured = each["task"] == "measure" or f"{each['task']}(" in measurement
        student = "tom" if measured else STUDENTS[number % len(STUDENTS)]
        got, lines = points(assignment, cells(assignment, change=each, measured=measured), student)
        expected = full | each["points"] if measured else full | each["points"] | {"measure": 0}
        assert got == expected, (each["mistake"], student, lines)
        assert measured or "measure" not in each["points"], f"{each['mistake']}: the measurement does not call it"
        assert got != full, f"{each['mistake']} costs nothing"


SINGLE = """
def single(function):
    def called(*given):
        try:
            return function(*(one(each) for each in given))
        except RuntimeError:  # of a solution that asks for double precision itself
            return function(*given).float()
    return called
def one(each):
    if isinstance(each, list):
        return [one(item) for item in each]
    return each.float() if isinstance(each, torch.Tensor) and each.is_floating_point() else each
"""


@pytest.mark.parametrize("assignment", names())
def test_other_styles_and_single_precision_are_right_too(assignment):
    functions = [task for task in tasks_of(assignment) if task not in ("hunt", "measure")]
    wrap = ("single", SINGLE + "".join(f"{name} = single({name})\n" for name in functions))
    code = cells(assignment, measured=False)
    other = [("other", path.read_text()) for path in (ROOT / "course" / "honest").glob(f"{assignment}.py")]
    for student in STUDENTS[:4]:
        for style in ([wrap], other, [*other, wrap]):
            got, lines = points(assignment, code + style, student)
            assert got == tasks_of(assignment) | {"measure": 0}, (student, lines)


TRIVIAL = ["1.0", "0.0", "given[0]", "torch.zeros_like(given[0])", "torch.ones_like(given[0])", "given[-1]",
           "given[1]", "[0] * len(given[0])", "torch.zeros(len(given[0]))",
           "torch.ones(len(given[0])).long()"]  # fmt: skip


@pytest.mark.parametrize("assignment", names())
def test_functions_that_do_nothing_get_nothing(assignment):
    functions = [task for task in tasks_of(assignment) if task not in ("hunt", "measure")]
    for result in TRIVIAL:
        code = [*cells(assignment)[:2], *((name, f"def {name}(*given): return {result}") for name in functions)]
        got, _ = points(assignment, code)
        assert sum(got.values()) == 0, (result, got)


@pytest.mark.parametrize("assignment", names())
def test_visible_tests_accept_the_solution_and_refuse_the_release(assignment):
    student = Inside(cells(assignment), "tom").names
    stub = Inside(cells(assignment, "release"), "tom").names
    for cell in load(assignment).cells:
        if cell.kind == "check":
            exec(cell.text, student)
            with pytest.raises((AssertionError, NotImplementedError)):
                exec(cell.text, stub)


@pytest.mark.parametrize("assignment", names())
def test_stubs_occur_in_their_solutions_and_names_are_stable(assignment):
    source = load(assignment)
    for cell in source.cells:
        if cell.kind in ("task", "earlier"):
            solution = iter(cell.solution.splitlines())
            kept = [line for line in cell.release.splitlines() if line.strip() != STUB]
            assert all(line in solution for line in kept), (cell.id, kept)
            assert cell.release.count(STUB) == cell.text.count("### BEGIN SOLUTION") == 1
    found = [name for cell in notebook(source, "source").cells if (name := judge.grade_id(cell))]
    found = [name for name in found if not name.startswith("earlier-")]
    tasks = list(tasks_of(assignment))
    assert sorted(found) == sorted([*tasks, *(f"test-{task}" for task in tasks), "written"])


def test_model_solutions_agree_with_the_package():
    a2, a3, a6 = (Reference(load(name)) for name in ("a2", "a3", "a6"))
    source = torch.Generator().manual_seed(5)
    found, truth = torch.randint(5, (2, 40), generator=source)
    assert a2.ari(found, truth) == pytest.approx(metrics.ari(found, truth), abs=1e-12)
    prints = torch.nn.functional.normalize(torch.randn(30, 8, generator=source) + 1, dim=1)
    for tau in (0.5, 0.7, 0.9):
        assert a3.merge(prints, tau) == stocfl.merged(prints @ prints.T, tau).tolist()
    V = torch.randn(4, 6, generator=source)
    graph = graph_layers.adjacency((V[:, None] - V).norm(dim=2), 0.5)
    assert torch.allclose(a6.adjacency(V, 0.5), graph, atol=1e-9)


@pytest.mark.parametrize("assignment", names())
def test_pictures_are_drawn_by_right_functions_and_come_with_the_release(assignment):
    drawn = Reference(load(assignment)).pictures()
    assert drawn and all(len(picture) > 8000 for picture in drawn.values())
    release = notebook(load(assignment), "release", drawn)
    assert [cell.attachments for cell in release.cells if "attachments" in cell] == [
        {f"{name}.png": {"image/png": picture}} for name, picture in drawn.items()
    ]
    used = {cell.id for cell in load(assignment).cells if cell.kind == "earlier"}
    code = " ".join(cell.text for cell in load(assignment).cells if cell.kind == "picture")
    asked = used | (set(tasks_of(assignment)) - {"hunt", "measure"})
    assert all(f"{name}(" in code for name in used) and any(f"{name}(" in code for name in asked - used)


SIGHT = {  # what every student must see in the own numbers, whatever they are
    "a1": lambda a: 0.3 < a["skew"] < 0.8 and a["accuracy"] > 0.8,
    "a2": lambda a: 0.3 < a["ari"] <= 1 and 0.005 < a["spread"] < 0.3,
    "a3": lambda a: a["chained"] > a["parallel"] + 0.05,
    "a4": lambda a: a["own"] > a["others"] + 0.1,
    "a5": lambda a: a["lcfed_ari"] > a["fesem_ari"] + 0.1 and a["lcfed_moved"] > a["fesem_moved"],
    "a7": lambda a: a["labels"] > a["rotation"] + 0.1 and a["fair_rotation"] > a["fair_labels"] + 0.05,
    "a6": lambda a: a["attributes"] > a["majority"] + 0.03,
}


@pytest.mark.parametrize("assignment", names())
def test_every_student_has_other_numbers_and_the_same_finding(assignment):
    reference = Reference(load(assignment))
    answers = {student: reference.answer(student) for student in STUDENTS}
    different = {tuple(answer.values()) for answer in answers.values()}
    assert len(different) == len(STUDENTS), "two students, one answer"
    for student, answer in answers.items():
        assert SIGHT[assignment](answer), (student, answer)
    assert Reference(load(assignment)).answer("tom") == answers["tom"]


def secrets() -> dict[str, str]:
    """Lines that no student may see, by where they come from: solutions, mark schemes, hidden tests."""
    found = {}

    def add(text: str, where: str) -> None:
        for line in text.splitlines():
            bare = " ".join(line.split())
            if len(bare) >= 25 and not bare.startswith(('"""', "import ", "from ", "@")):
                found[bare] = where

    for name in names():
        given = " ".join(cell.release for cell in load(name).cells if cell.kind != "answer")
        for cell in load(name).cells:
            if cell.kind == "task":
                for hidden in re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", cell.text, re.DOTALL):
                    add(hidden, f"{name}, solution of {cell.id}")
            if cell.kind == "answer":
                add(cell.text, f"{name}, mark scheme")
        add((ROOT / "course" / "checks" / f"{name}.py").read_text(), f"{name}, hidden tests")
        given = " ".join(given.split())
        found = {line: where for line, where in found.items() if not (where.startswith(name) and line in given)}
    for name in names():  # what the grader says when a test is failed is no secret
        for check in checks_of(name):
            found = {line: where for line, where in found.items() if check.says not in line}
    return found


def leaks(paths) -> list[str]:
    """Return every secret line that occurs in one of these files."""
    lines, found = secrets(), []
    assert len(lines) > 300
    for path in paths:
        text = path.read_text("utf-8", errors="ignore").replace('\\"', '"').replace("\\n", " ")
        if path.suffix == ".html":  # coloured code has a tag around each word
            text = unescape(re.sub(r"<[^>]*>", "", text))
        text = " ".join(text.split())
        found += [f"{path}: {where}: {line}" for line, where in lines.items() if line in text]
    return found


def test_no_solution_in_what_students_get(tmp_path):
    shown = ("book/*.ipynb", "book/*.md", "cflkit/**/*.py", "course/student.md", "_build/html/**/*.html",
             "_build/html/searchindex.js")  # fmt: skip
    paths = [path for pattern in shown for path in ROOT.glob(pattern)]
    for name in names():
        release = tmp_path / f"{name}.md"
        release.write_text("\n".join(cell.source for cell in notebook(load(name), "release").cells))
        paths.append(release)
    assert leaks(paths) == []


def test_the_leak_check_notices(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<p><b>shares</b> = sizes.double() /   sizes.sum()</p>")
    assert len(leaks([page])) == 1


def test_the_book_does_not_build_the_course():
    assert yaml.safe_load((ROOT / "_config.yml").read_text())["only_build_toc_files"] is True
    assert "course/" not in (ROOT / "_toc.yml").read_text()
    for path in (ROOT / "book").glob("*"):
        if path.suffix in (".md", ".ipynb"):
            assert not re.search(r"\]\([^)]*course/(sources|checks|wrong)", path.read_text()), path


def test_both_lists_of_requirements_are_installed_together():
    for file in ("requirements.txt", "requirements-course.txt"):
        for line in (ROOT / file).read_text().splitlines():
            if line and not line.startswith("#"):
                package, version = line.split("==")
                assert importlib.metadata.version(package).split("+")[0] == version, line
