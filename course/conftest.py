"""The option of ``course/test_submission.py``."""

from pathlib import Path


def pytest_addoption(parser) -> None:
    """Add the notebook's path."""
    parser.addoption("--submission", type=Path, help="a submitted notebook, such as ada/a1.ipynb")
