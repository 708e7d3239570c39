"""What imports what, and by which name: the library knows nothing of the book, and imports go downwards only."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

import cflkit
from cflkit import methods

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "cflkit").rglob("*.py"))
WORKBOOK_ONLY = ("yaml", "matplotlib", "seaborn", "papermill", "nbformat", "nbclient", "jinja2")
LEVEL = {"checks": 0, "rng": 0, "data": 1, "models": 1, "engine": 2, "methods": 3, "testing": 4, "workbook": 5}
WORKBOOK = {"places": 0, "strict": 0, "show": 1, "runs": 2, "claims": 3, "chapters": 4, "console": 5}  # its rooms


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


def level(name):
    """The floor of a module, and its room."""
    _, first, *rest = [*name.split("."), ""]
    return (LEVEL[first], WORKBOOK.get(rest[0], 0), rest[0]) if first == "workbook" else (LEVEL[first], 0, first)


def wrong(name, source):
    """What `name` must not import."""
    for other in imports(source):
        if room(other) and level(other)[2] != level(name)[2] and level(other)[:2] >= level(name)[:2]:
            yield f"{name} imports {other}, which is not below it"
        if room(name) != "workbook" and other.split(".")[0] in WORKBOOK_ONLY:
            yield f"{name} imports {other}, which is the workbook's"


def test_the_workbook_has_six_floors_and_every_room_of_it_has_one():
    names = {module(file).split(".")[2] for file in FILES if module(file).startswith("cflkit.workbook.")}
    assert names <= WORKBOOK.keys() and len({*WORKBOOK.values()}) == 6


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


@pytest.mark.parametrize(("name", "source", "line"), [
    ("cflkit.engine.rows", "from cflkit.methods import base", "imports cflkit.methods.base, which is not"),
    ("cflkit.data.images", "import cflkit.models.flat", "imports cflkit.models.flat, which is not below it"),
    ("cflkit.methods.ifca", "def f():\n    import cflkit.workbook.show.plots", "imports cflkit.workbook.show"),
    ("cflkit.workbook.runs.pool", "from cflkit.workbook.claims import papers", "workbook.claims.papers, which"),
    ("cflkit.workbook.places", "from cflkit.workbook.show import plots", "imports cflkit.workbook.show.plots"),
    ("cflkit.engine.sgd", "import yaml", "cflkit.engine.sgd imports yaml, which is the workbook's"),
])  # fmt: skip
def test_what_would_be_noticed(name, source, line):
    assert line in "".join(wrong(name, source))


@pytest.mark.parametrize("package", [cflkit, methods], ids=lambda package: package.__name__)
def test_a_stub_names_what_its_package_gives(package):
    source = Path(package.__file__).with_suffix(".pyi").read_text()
    named = {}
    for node in ast.parse(source).body:
        for alias in getattr(node, "names", ()):
            named[alias.asname] = (node.module, alias.name)
        if isinstance(node, ast.Assign):  # a name that is another one's
            named[node.targets[0].id] = named.pop(node.value.id)
    assert set(named) - {"Method"} == set(package.__all__) - {"METHODS", "get"}
    for name, (module, own) in named.items():
        home = import_module(module)
        assert getattr(home, own, None) is getattr(package, name) or import_module(f"{module}.{own}")
    assert (Path(cflkit.__file__).parent / "py.typed").exists()
