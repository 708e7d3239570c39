"""Every parameter of every chapter changes something that the chapter shows. Slow: a target of its own."""

import ast
import contextlib
import io
from itertools import islice
from typing import Literal, get_args, get_origin

import pytest
import torch

from cflkit import images
from cflkit.workbook.chapters import notebooks, parameters, rerun

SCHEMAS = {path.stem: parameters.of(path) for path in notebooks.chapters()}
KNOWN = [(chapter, name) for chapter, schema in SCHEMAS.items() for name in schema.parameters]
EVERY = {"refresh"}  # so many rounds


@pytest.fixture(autouse=True)
def default_dtype():
    """A chapter may set it for its own kernel."""
    yield
    torch.set_default_dtype(torch.float32)


def others(name: str, parameter: parameters.Parameter):
    """Values near the default, and the choices, that are allowed; of counts of rounds the least.

    In few rounds, what is done every four shows no more than what is done every five.
    """
    if name in EVERY:
        yield 1
    if get_origin(parameter.hint) is Literal:
        yield from (choice for choice in get_args(parameter.hint) if choice != parameter.default)
    elif parameter.type is bool:
        yield not parameter.default
    elif parameter.type is str:
        pytest.fail(f"{name}: a text without choices cannot be tried")
    else:
        for value in (parameter.default + 1, parameter.default - 1, parameter.default + 4, parameter.default / 2,
                      parameter.default + 0.25):  # fmt: skip
            yield parameter.type(value)


def small(schema: parameters.Schema) -> dict:
    """The defaults, with few rounds."""
    rounds = schema.parameters.get("rounds")
    return schema.read({"rounds": str(int(get_args(rounds.hint)[1].low))} if rounds else {})


def allowed(schema: parameters.Schema, values: dict) -> bool:
    try:
        schema.read({name: str(value) for name, value in values.items()})
    except ValueError:
        return False
    return True


def shown(path, values):
    """What each cell of a chapter prints, with its value where it ends with one, run in this process."""
    names: dict = {"__name__": "__main__", "display": print}
    for cell in rerun.coded(path):
        tree = ast.parse(cell["source"])
        for node in tree.body[-1:]:
            if isinstance(node, ast.Expr):
                node.value = ast.Call(ast.Name("print", ast.Load()), [node.value], [])
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.chdir(path.resolve().parent):
            exec(compile(ast.fix_missing_locations(tree), path.name, "exec"), names)
        names |= values if "parameters" in notebooks.tags(cell) else {}
        yield said.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("chapter, name", KNOWN)
def test_each_parameter_changes_what_the_chapter_shows(chapter, name, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    if name == "images" and images.status()["mnist"] == "absent":
        pytest.skip("MNIST is not here: `cflkit data mnist` downloads it")
    schema, path = SCHEMAS[chapter], notebooks.chapter(chapter)
    before = small(schema)
    wanted = (before | {name: value} for value in others(name, schema.parameters[name]) if value != before[name])
    after = next(values for values in wanted if allowed(schema, values))
    both = zip(shown(path, before), shown(path, after), strict=True)
    differs = any(one != other for one, other in islice(both, 1, None))
    assert differs, f"{name} = {before[name]} and {after[name]} show the same"


def test_a_parameter_without_effect_is_noticed(tmp_path):
    import nbformat

    cell = nbformat.v4.new_code_cell("a: int = 1  # one\nb: int = 2  # two", metadata={"tags": ["parameters"]})
    shows = nbformat.v4.new_code_cell("print(a)\na * 10")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell, shows]), tmp_path / "n.ipynb")
    one, other, third = ([*shown(tmp_path / "n.ipynb", values)][1] for values in ({}, {"a": 3}, {"b": 3}))
    assert one == third == "1\n10\n" and other == "3\n30\n"
