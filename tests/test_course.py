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
from course import judge, talk
from course.checking import Reference, checks_of, tasks_of
from course.notebooks import notebook
from course.source import STUB, load, names

pytestmark = [pytest.mark.course, pytest.mark.timeout(800)]
ROOT = Path(__file__).resolve().parent.parent
STUDENTS = ["tom", "ada", "bob", "eve", "kim", "joe", "sue", "max"]


class Inside(judge.Student):
    """A student whose functions are here, in this process: for solutions that we wrote ourselves."""

    def __init__(self, cells: list[tuple[str, str]], id: str):
        self.names, self.id, self.named = {"__name__": "__main__", "print": lambda *_: None}, id, id
        for name, code in cells:
            try:
                exec(compile(code, name, "exec"), self.names)
            except Exception:  # as in a notebook: the next cell is run all the same
                continue
            finally:
                self.names["student"] = id

    def _ask(self, request, functions=()):
        try:
            value = self.names[request["name"]]
            if "arguments" in request:
                arguments = talk.unpack(request["arguments"], lambda number: functions[number])
                value = value(*arguments)
                if "keeps" in request:
                    value = talk.pack(arguments) == request["arguments"]
            return {"value": talk.pack(value)}
        except Exception as error:
            return {"error": {"type": type(error).__name__, "line": None, "text": str(error)}}


def cells(assignment: str, part: str = "solution", change: dict | None = None) -> list[tuple[str, str]]:
    """The code of a part of an assignment, by cell; a planted mistake may have changed one."""
    found = []
    for cell in load(assignment).cells:
        if cell.kind in ("code", "task"):
            code = getattr(cell, part)
            if change and (cell.kind, cell.id) == ("task", change["task"]):
                assert code.count(change["from"]) == 1, f"{assignment}, {change['mistake']}: no such text"
                code = code.replace(change["from"], change["to"])
            found.append((cell.id, code))
    return found


def points(assignment: str, code: list[tuple[str, str]], id: str = "tom") -> tuple[dict[str, int], list[str]]:
    """Points by task, and what was lost."""
    result = judge.Result(id, assignment, dict.fromkeys(checks_of(assignment), "it was not run"))
    judge.test(result, Inside(code, id))
    return result.points, [line for task in result.points for line in result.report(task)]


def mistakes(assignment: str) -> list[dict]:
    return yaml.safe_load((ROOT / "course" / "wrong" / f"{assignment}.yaml").read_text())


def test_there_are_six_assignments_of_twenty_and_five_points():
    assert names() == ["a1", "a2", "a3", "a4", "a5", "a6"]
    for name in names():
        written = sum(cell.points for cell in load(name).cells)
        assert (sum(tasks_of(name).values()), written) == (20, 5), name
        assert {"hunt", "measure"} <= set(tasks_of(name)), name


@pytest.mark.parametrize("assignment", names())
def test_the_solution_gets_everything_and_the_release_nothing(assignment):
    assert points(assignment, cells(assignment)) == (tasks_of(assignment), [])
    assert sum(points(assignment, cells(assignment, "release"))[0].values()) == 0


@pytest.mark.parametrize("assignment", names())
def test_planted_mistakes_get_exactly_their_points(assignment):
    planted, full = mistakes(assignment), tasks_of(assignment)
    assert len(planted) >= 6
    assert {"hunt", "measure"} <= {each["task"] for each in planted}
    for each in planted:
        got, lines = points(assignment, cells(assignment, change=each))
        assert got == full | each["points"], (each["mistake"], lines)
        assert sum(got.values()) < 20, f"{each['mistake']} costs nothing"


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
        if cell.kind == "task":
            solution = iter(cell.solution.splitlines())
            kept = [line for line in cell.release.splitlines() if line.strip() != STUB]
            assert all(line in solution for line in kept), (cell.id, kept)
            assert cell.release.count(STUB) == cell.text.count("### BEGIN SOLUTION") == 1
    found = [judge.grade_id(cell) for cell in notebook(source, "source").cells if judge.grade_id(cell)]
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


SIGHT = {  # what every student must see in the own numbers, whatever they are
    "a1": lambda a: 0.3 < a["skew"] < 0.8 and a["accuracy"] > 0.8,
    "a2": lambda a: 0.3 < a["ari"] <= 1 and 0.005 < a["spread"] < 0.3,
    "a3": lambda a: a["chained"] > a["parallel"] + 0.05,
    "a4": lambda a: a["own"] > a["others"] + 0.1,
    "a5": lambda a: a["lcfed_ari"] > a["fesem_ari"] + 0.1 and a["lcfed_moved"] > a["fesem_moved"],
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
    paths = [*(ROOT / "book").glob("*.ipynb"), *(ROOT / "book").glob("*.md"), *(ROOT / "cflkit").rglob("*.py"),
             ROOT / "course" / "student.md", *(ROOT / "_build" / "html").rglob("*.html"),
             *(ROOT / "_build" / "html").glob("searchindex.js")]  # fmt: skip
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
