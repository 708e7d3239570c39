"""Every parameter of every chapter changes something that the chapter shows. Slow: a target of its own."""

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


def others(parameter: parameters.Parameter):
    """Values near the default, and the choices, that are allowed; of counts of rounds the least.

    In few rounds, what is done every four shows no more than what is done every five.
    """
    if parameter.name in EVERY:
        yield 1
    if get_origin(parameter.hint) is Literal:
        yield from (choice for choice in get_args(parameter.hint) if choice != parameter.default)
    elif parameter.type is bool:
        yield not parameter.default
    elif parameter.type is str:
        pytest.fail(f"{parameter}: a text without choices cannot be tried")
    else:
        for value in (parameter.default + 1, parameter.default - 1, parameter.default + 4, parameter.default / 2,
                      parameter.default + 0.25):  # fmt: skip
            yield parameter.type(value)


def small(schema: parameters.Schema) -> dict:
    """The defaults, with few rounds."""
    rounds = schema.parameters.get("rounds")
    return schema.values({"rounds": int(get_args(rounds.hint)[1].low)} if rounds else {})


def allowed(schema: parameters.Schema, values: dict) -> bool:
    try:
        schema.read({name: str(value) for name, value in values.items()})
    except ValueError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("chapter, name", KNOWN)
def test_each_parameter_changes_what_the_chapter_shows(chapter, name, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    if name == "images" and images.status()["mnist"] == "absent":
        pytest.skip("MNIST is not here: `cflkit data mnist` downloads it")
    schema, path = SCHEMAS[chapter], notebooks.chapter(chapter)
    before = small(schema)
    wanted = (before | {name: value} for value in others(schema.parameters[name]) if value != before[name])
    after = next(values for values in wanted if allowed(schema, values))
    both = zip(rerun.cells(path, before), rerun.cells(path, after), strict=True)
    differs = any(one != other for (one, _), (other, _) in islice(both, 1, None))
    assert differs, f"{name} = {before[name]} and {after[name]} show the same"


def test_a_parameter_without_effect_is_noticed(tmp_path):
    import nbformat

    cell = nbformat.v4.new_code_cell("a: int = 1  # one\nb: int = 2  # two", metadata={"tags": ["parameters"]})
    shows = nbformat.v4.new_code_cell("print(a)\na * 10")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell, shows]), tmp_path / "n.ipynb")
    (_, one), (_, other), (_, third) = (list(rerun.cells(tmp_path / "n.ipynb", values))
                                        for values in ({}, {"a": 3}, {"b": 3}))  # fmt: skip
    assert one[0] == "1\n10\n" and other[0] == "3\n30\n" and third[0] == one[0]
