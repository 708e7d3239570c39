"""Grade one notebook without nbgrader: ``pytest course/test_submission.py --submission ada/a1.ipynb``.

Every hidden test is one test of pytest. The student is named by the folder.
"""

from pathlib import Path

import pytest

from course.checking import Check, checks_of, tasks_of
from course.conftest import POINTS
from course.judge import judge
from course.notebooks import notebook
from course.source import load, names


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each hidden test of the submission's assignment."""
    path = metafunc.config.getoption("submission")
    checks = checks_of(path.stem) if path and path.stem in names() else []
    metafunc.parametrize("check", checks, ids=[f"{check.task}-{check.points}-{check.says}" for check in checks])


@pytest.fixture(scope="session")
def result(request):
    """What the submission got."""
    path: Path = request.config.getoption("submission").resolve()
    found = judge(path, path.parent.name, path.stem, notebook(load(path.stem), "release"))
    total = sum(tasks_of(path.stem).values())
    request.config.stash[POINTS] = [f"{path.name}: {found.total} of {total} points", *found.notes]
    return found


def test_submission(check: Check, result) -> None:
    """The submission passes this hidden test."""
    assert check not in result.lost, result.lost[check]
