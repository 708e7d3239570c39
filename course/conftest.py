"""The option of ``course/test_submission.py``, and the points that it ends with."""

from pathlib import Path

import pytest

POINTS = pytest.StashKey[list[str]]()


def pytest_addoption(parser) -> None:
    """Add the notebook's path."""
    parser.addoption("--submission", type=Path, help="a submitted notebook, such as ada/a1.ipynb")


def pytest_terminal_summary(terminalreporter, config) -> None:
    """Say how many points a submission got, with the notes to it."""
    for line in config.stash.get(POINTS, []):
        terminalreporter.write_line(line)
