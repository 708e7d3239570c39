"""The library knows nothing of the book, and imports go downwards only: read off the import statements."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "cflkit").rglob("*.py"))
WORKBOOK_ONLY = ("yaml", "matplotlib", "seaborn", "papermill", "nbformat", "nbclient", "jinja2")
LEVEL = {"checks": 0, "rng": 0, "data": 1, "models": 1, "engine": 2, "methods": 3, "testing": 4, "workbook": 5}


def module(file):
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


NAMES = {module(file) for file in FILES}


def imports(source):
    """Full names of the modules that a source imports, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where they lead"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in NAMES else node.module


def room(name):
    return name.split(".")[1] if name.startswith("cflkit.") else None


def wrong(name, source):
    """What `name` must not import."""
    own = LEVEL[room(name)]
    for other in imports(source):
        theirs = room(other)
        if theirs and theirs != room(name) and LEVEL[theirs] >= own:
            yield f"{name} imports {other}, which is not below it"
        if room(name) != "workbook" and other.split(".")[0] in WORKBOOK_ONLY:
            yield f"{name} imports {other}, which is the workbook's"


@pytest.mark.parametrize("file", [f for f in FILES if room(module(f)) in LEVEL], ids=module)
def test_imports_go_downwards(file):
    assert list(wrong(module(file), file.read_text())) == []


@pytest.mark.parametrize("file", [f for f in FILES if room(module(f)) in set(LEVEL) - {"workbook"}], ids=module)
def test_the_library_knows_no_folder_of_the_book(file):
    assert not re.search(r"[\"'/]book[\"'/]|benchmarks|_generated", file.read_text())


def test_no_module_imports_itself_through_others():
    ours = [f for f in FILES if room(module(f)) in LEVEL]
    below = {module(f): {name for name in imports(f.read_text()) if name in NAMES} for f in ours}
    packages = {name for name in NAMES if (ROOT / name.replace(".", "/")).is_dir()}
    below = {name: others - packages for name, others in below.items()}  # a package's own modules are named in full
    done: dict[str, bool] = {}

    def walk(name, path):
        assert name not in path, " > ".join([*path, name])
        if name not in done:
            for other in below.get(name, ()):
                walk(other, [*path, name])
            done[name] = True

    for name in below:
        walk(name, [])


@pytest.mark.parametrize(
    ("name", "source", "line"),
    [
        ("cflkit.engine.rows", "from cflkit.methods import base", "imports cflkit.methods.base, which is not"),
        ("cflkit.data.images", "import cflkit.models.flat", "imports cflkit.models.flat, which is not below it"),
        ("cflkit.methods.ifca", "def f():\n    import cflkit.workbook.show.plots", "imports cflkit.workbook.show"),
        ("cflkit.engine.sgd", "import yaml", "cflkit.engine.sgd imports yaml, which is the workbook's"),
    ],
)  # fmt: skip
def test_what_would_be_noticed(name, source, line):
    assert line in "".join(wrong(name, source))
