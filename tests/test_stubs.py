"""What editors and type checkers read names all that is there, from where it is."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import cflkit
from cflkit import methods


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
