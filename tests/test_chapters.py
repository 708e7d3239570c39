"""Every chapter runs at the edges of its parameters and on MNIST, and each parameter changes what it shows."""

import ast
import contextlib
import io
import resource
from itertools import islice
from typing import Literal, get_args, get_origin

import pytest
import torch

from cflkit import images
from cflkit.workbook.chapters import notebooks, parameters, rerun
from cflkit.workbook.runs import records

SCHEMAS = {path.stem: parameters.of(path) for path in notebooks.chapters()}
KNOWN = [(chapter, name) for chapter, schema in SCHEMAS.items() for name in schema.parameters]
CHAPTERS = [chapter for chapter, schema in SCHEMAS.items() if "images" in schema.parameters]
# Together these reach every end of an interval and every choice; but not the most rounds, which only take hours,
# nor the largest seed. An open end is approached.
EDGES = {
    "baselines": [{"rounds": 8, "participation": 0.01, "per_cluster": 5, "alpha": 0.1},
                  {"rounds": 8, "participation": 1.0, "per_cluster": 20, "alpha": 1000.0}],
    "fedcg": [{"domains": 2, "beta": 0.0, "refresh": 1, "layers": "last", "rounds": 2},
              {"domains": 16, "beta": 1.0, "refresh": 200, "layers": "all", "rounds": 2}],
    "comparison": [{"share": "fifth", "seeds": 3}, {"share": "all", "seeds": 5}],
    "drift": [{"rounds": 2, "size": 20, "delta": 0.01, "scaling": 0.5, "tau": -1.0},
              {"rounds": 2, "size": 300, "delta": 10.0, "scaling": 5.0, "tau": 1.0}],
    "fesem": [{"k": 2, "lam": 0.0, "sub": "all", "init": "kmeans", "rounds": 4},
              {"k": 8, "lam": 4.0, "sub": "last", "init": "random", "rounds": 4}],
    "foundations": [{"clients": 8, "participation": 0.01, "rounds": 8, "epochs": 1, "lr": 0.01, "width": 1},
                    {"clients": 160, "participation": 1.0, "rounds": 8, "epochs": 1, "lr": 1.0, "width": 1},
                    {"clients": 8, "participation": 0.01, "rounds": 8, "epochs": 50, "lr": 0.01, "width": 1},
                    {"clients": 8, "participation": 1.0, "rounds": 8, "epochs": 1, "lr": 1.0, "width": 1024}],
    "lcfed": [{"mu": 0.0, "lam": 0.0, "rank": 1, "k": 2, "rounds": 2},
              {"mu": 5.0, "lam": 5.0, "rank": 39, "k": 20, "rounds": 2}],
    "mdicfl": [{"k": 1, "init": "common", "rounds": 3, "per_cluster": 24},
               {"k": 12, "init": "distinct", "rounds": 3, "per_cluster": 3}],
    "own": [{"rounds": 2, "epochs": 1, "lr": 0.01, "width": 1},
            {"rounds": 2, "epochs": 50, "lr": 1.0, "width": 1024}],
    "scale": [{"clients": 1, "participation": 0.01, "workers": 1, "gigabits": 0.01},
              {"clients": 100000000, "participation": 1.0, "workers": 100000, "gigabits": 1000.0}],
    "stocfl": [{"tau": -1.0, "lam": 0.0, "rounds": 2, "participation": 0.01, "per_cluster": 3},
               {"tau": 1.0, "lam": 10.0, "rounds": 2, "participation": 1.0, "per_cluster": 60}],
}  # fmt: skip


def ends(name: str, parameter: parameters.Parameter) -> set:
    """Give the values at the edges of what a parameter allows."""
    if get_origin(parameter.hint) is Literal:
        return set(get_args(parameter.hint))
    (limits,) = get_args(parameter.hint)[1:]
    low = {0.01} if limits.open_low else {limits.low}
    return low if name == "rounds" else low | {limits.high}


def test_the_edges_are_those_that_the_chapters_declare():
    assert set(EDGES) == {path.stem for path in notebooks.chapters()}
    assert CHAPTERS == ["baselines", "drift", "fedcg", "fesem", "lcfed", "mdicfl", "stocfl"]
    for chapter, settings in EDGES.items():
        schema = SCHEMAS[chapter]
        for name, parameter in schema.parameters.items():
            if name not in ("seed", "images"):
                reached = {setting[name] for setting in settings}
                assert reached == ends(name, parameter), f"{chapter}: {name}"
        for setting in settings:
            schema.read({name: str(value) for name, value in setting.items()})


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "chapter, setting",
    [(name, setting) for name, settings in EDGES.items() for setting in settings],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_a_chapter_runs_at_its_edges(chapter, setting, tmp_path):
    given = {name: str(value) for name, value in setting.items()}
    assert rerun.rerun(chapter, given, tmp_path).exists()


def need_mnist():
    if images.status()["mnist"] == "absent":
        pytest.skip("MNIST is not here: `cflkit data mnist` downloads it")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_runs_on_mnist_in_five_minutes(chapter, tmp_path):
    """Of the processor's time: a machine that is busy takes longer."""
    need_mnist()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = records.read(rerun.rerun(chapter, {"images": "mnist"}, tmp_path) / "run.json")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run["parameters"]["images"] == "mnist" and run["metrics"]
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 300


# ---------------------------------------------------------------------- what each parameter changes
@pytest.fixture(autouse=True)
def default_dtype():
    """A chapter may set it for its own kernel."""
    yield
    torch.set_default_dtype(torch.float32)


def others(name: str, parameter: parameters.Parameter):
    """Values near the default, and the choices, that are allowed."""
    if get_origin(parameter.hint) is Literal:
        yield from (choice for choice in get_args(parameter.hint) if choice != parameter.default)
    elif type(parameter.default) is bool:
        yield not parameter.default
    elif type(parameter.default) is str:
        pytest.fail(f"{name}: a text without choices cannot be tried")
    else:
        for value in (parameter.default + 1, parameter.default - 1, parameter.default + 4, parameter.default / 2,
                      parameter.default + 0.25):  # fmt: skip
            yield type(parameter.default)(value)


def small(schema: parameters.Schema) -> dict:
    """The defaults, with few rounds, and in each of them what is done every few."""
    few = schema.parameters.keys() & {"rounds", "refresh"}
    return schema.read({name: str(int(get_args(schema.parameters[name].hint)[1].low)) for name in few})


def allowed(schema: parameters.Schema, values: dict) -> bool:
    try:
        schema.read({name: str(value) for name, value in values.items()})
    except ValueError:
        return False
    return True


def shown(path, values):
    """What each cell of a chapter prints, with its value where it ends with one, run in this process."""
    names: dict = {"__name__": "__main__", "display": print}
    for cell in (cell for cell in notebooks.load(path).cells if cell.cell_type == "code"):
        tree = ast.parse(cell["source"])
        for node in tree.body[-1:]:
            if isinstance(node, ast.Expr):
                node.value = ast.Call(ast.Name("print", ast.Load()), [node.value], [])
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.chdir(path.resolve().parent):
            exec(compile(ast.fix_missing_locations(tree), path.name, "exec"), names)
        names |= values if "parameters" in notebooks.tags(cell) else {}
        yield said.getvalue()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("chapter, name", KNOWN)
def test_each_parameter_changes_what_the_chapter_shows(chapter, name, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    if name == "images":
        need_mnist()
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
