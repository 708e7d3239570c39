import copy
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import nbformat
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from cflkit.checks import allowed
from cflkit.workbook import console, places
from cflkit.workbook.chapters import notebooks, parameters, proof, rerun
from cflkit.workbook.runs import records, typed

PARAMETERS = """\
# What may be changed
tau: float = 0.5  # merge clusters above this cosine [-1, 1]
rounds: int = 2  # communication rounds [1, inf)
rate: float = 0.1  # learning rate (0, 1]
update: str = "parallel"  # how the global model is updated {parallel, chained}
bold: bool = False  # print loudly (never needed)
# require: rounds > 1 or tau > 0
"""
PICTURE = {"mystnb": {"image": {"alt": "a line"}}}


def executed():
    """A notebook that holds everything the checker looks at, and passes."""
    printed = new_output("stream", name="stdout", text="0.5\n")
    drawn = new_output("display_data", {"image/png": "aGk=", "text/plain": "<Figure size 1x1>"})
    return new_notebook(
        metadata={"kernelspec": notebooks.KERNEL, "language_info": notebooks.LANGUAGE},
        cells=[
            new_markdown_cell("# Title"),
            new_code_cell(PARAMETERS, execution_count=1, metadata={"tags": ["parameters"]}),
            new_code_cell("print(tau)", execution_count=2, outputs=[printed]),
            new_code_cell("plot()", execution_count=3, metadata=copy.deepcopy(PICTURE), outputs=[drawn, printed]),
        ],
    )


def write(path, notebook):
    nbformat.write(notebook, path)
    return path


def output(kind, *data, **more):
    """Add an output to the third cell."""
    return lambda nb: nb.cells[2].outputs.append(new_output(kind, *data, **more))


def strip(*parts):
    """Take outputs, and perhaps counts, from all cells."""
    def change(nb):
        for cell in nb.cells[1:]:
            cell.update({part: {"outputs": [], "execution_count": None}[part] for part in parts})

    return change


def retag(number, *tags):
    return lambda nb: nb.cells[number].metadata.update(tags=list(tags))


REFUSALS = {
    "cell 3: has execution count 3": lambda nb: nb.cells[2].update(execution_count=3),
    "cell 2: has execution count None": strip("outputs", "execution_count"),
    "cell 3: holds output on stderr": output("stream", name="stderr", text="careful\n"),
    "notebook: holds widgets metadata": lambda nb: nb.metadata.update(widgets={}),
    "notebook: holds papermill metadata": lambda nb: nb.metadata.update(papermill={}),
    "cell 3: holds papermill metadata": lambda nb: nb.cells[2].metadata.update(papermill={}),
    "cell 1: holds execution metadata": lambda nb: nb.cells[0].metadata.update(execution={}),
    "cell 3: holds parameters injected": retag(2, "injected-parameters"),
    "cells tagged parameters = 0: must be exactly 1": retag(1),
    "cells tagged parameters = 2: must be exactly 1": retag(2, "parameters"),
    "parameter line = 'tau = 1'": lambda nb: nb.cells[1].update(source="tau = 1"),
    "cell 4: shows a picture without alt text": lambda nb: nb.cells[3].metadata.clear(),
    "cell 3: shows a picture without alt text": output("display_data", {"image/svg+xml": "<svg/>"}),
    "cell 4: shows a picture but prints": lambda nb: nb.cells[3].outputs.pop(),
    "notebook: has no output that can be compared": strip("outputs"),
    "cell 1: has the number 97.00 typed in its prose": lambda nb: nb.cells[0].update(source="It has 97.00%."),
    "cell 3: has the number 95.72 typed in its code": lambda nb: nb.cells[2].update(source="best = 95.72"),
}


def test_a_good_notebook_passes_and_its_cells_are_counted(tmp_path, capsys):
    path = write(tmp_path / "good.ipynb", executed())
    assert proof.problems(path) == ([], 2)
    assert console.main(["check", str(path), str(path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == 2 * ["good.ipynb: 2 cells compared"] + ["4 cells compared in 2 notebooks"]


@pytest.mark.parametrize("text, found", [
    ("With $\\tau=0.5$ and `lr=0.1`, Python 3.11, Section 4.2.2: [a](x1.5.md).", []),
    ("A gain of 5.26 points, then −0.11.", ["5.26", "−0.11"]),
    ("```python\nx = 1.5\n```\n\n$$\n1.5\n$$\n\n1.5", ["1.5"]),
    ("One in 10 of 1,000 images; 95% of them, 32 units.\n\n::::{grid} 1 1 3 3\n:gutter: 2", []),
    ("FedAvg is at 11%, others at 63 to 65% and 53 %.", ["11%", "63 to 65%", "53 %"]),
    ("Of the clusters, 11 of 12 are true, or 90%.", ["11 of 12", "90%"]),
])  # fmt: skip
def test_results_typed_in_prose_are_found(text, found):
    assert proof.typed(text) == found


def test_pages_are_searched_for_typed_results_too(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(places, "BOOK", tmp_path)
    write(tmp_path / "good.ipynb", executed())
    (tmp_path / "page.md").write_text("It reaches 96.94.")
    assert console.main(["check"]) == 1
    assert "page.md: has the number 96.94 typed in its prose" in capsys.readouterr().err


@pytest.mark.parametrize("line", REFUSALS)
def test_each_refusal_fires(tmp_path, capsys, line):
    notebook = executed()
    REFUSALS[line](notebook)
    path = write(tmp_path / "bad.ipynb", notebook)
    assert console.main(["check", str(path)]) == 1
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(
    "mark", [{"metadata": {"tags": ["nbval-skip"]}}, {"source": "# NBVAL_IGNORE_OUTPUT\nprint(1)"}]
)
def test_a_cell_that_nbval_passes_over_is_not_counted(tmp_path, mark):
    notebook = executed()
    notebook.cells[2].update(nbformat.from_dict(mark))
    assert proof.problems(write(tmp_path / "n.ipynb", notebook)) == ([], 1)


def test_schema_reads_types_intervals_and_choices():
    schema = parameters.read(PARAMETERS)
    assert {name: allowed(parameter.hint) for name, parameter in schema.parameters.items()} == {
        "tau": "a finite number, in [-1, 1]", "rounds": "an integer, 1 or more",
        "rate": "a finite number, in (0, 1]", "update": "one of parallel, chained", "bold": "True or False",
    }  # fmt: skip
    assert schema.parameters["bold"].default is False and schema.required == ["rounds > 1 or tau > 0"]
    assert allowed(parameters.read("k: int = 2  # clusters {2, 4}").parameters["k"].hint) == "one of 2, 4"
    whole = parameters.read("x: float = 1  # a whole number will do").parameters["x"]
    assert whole.default == 1.0 and type(whole.default) is float


@pytest.mark.parametrize(("source", "line"), [
    ("x: list = []  # a list", "type of x = 'list': must be one of int, float, bool, str"),
    ("x: int = 1.5  # half", "x = 1.5: must be an integer"),
    ("x: int = True  # not a number", "x = True: must be an integer"),
    ("x: int = 5  # five [0, 4]", "x = 5: must be an integer, in [0, 4]"),
    ("x: int = 5  # five [9, 4]", "interval = '[9, 4]': must be one that has numbers in it"),
    ("x: int = 5  # five [0 4]", "help = 'five [0 4]': must be ended by [lo, hi], by {a, b}, or by words"),
    ("x: str = 'a'  # a [0, 4]", "type = 'str': must be int or float, with an interval"),
    ("x: int = y  # name", "the parameters cell, or a `# require:` line of it: name 'y' is not defined"),
    ("x: int = 1", "parameter line"),
    ("x: int | None = 1  # a", "parameter line"),
    ("if True: x = 1", "parameter line"),
    ("x: int = 3  # a\n# require: x % 2 == 0", "x = 3: must fulfil x % 2 == 0"),
    ("x: int = 3  # a\n# require: y > 0", "a `# require:` line of it: name 'y' is not defined"),
    ("x: int = 3  # a\n# require: x >", "a `# require:` line of it: invalid syntax"),
    ("x: int = 1  # a\nx: int = 1  # a", "parameter = 'x': must be given once"),
    ("# nothing", "parameters cell"),
])  # fmt: skip
def test_schema_refuses(source, line):
    with pytest.raises(ValueError) as refusal:
        parameters.read(source)
    assert line in str(refusal.value)


@pytest.mark.parametrize(("name", "text", "value"), [
    ("tau", "-1", -1.0), ("tau", "1", 1.0), ("tau", "-1.01", None), ("tau", "nan", None), ("tau", "high", None),
    ("tau", ".5", 0.5), ("tau", "1e400", None),
    ("rounds", "1", 1), ("rounds", "0", None), ("rounds", "2.0", None), ("rounds", "1_0", None),
    ("rate", "0", None), ("rate", "1e-3", 1e-3),
    ("update", "chained", "chained"), ("update", "Chained", None), ("update", "'chained'", None),
    ("bold", "True", True), ("bold", "false", False), ("bold", "0", None),
])  # fmt: skip
def test_values_are_read_strictly(name, text, value):
    schema = parameters.read(PARAMETERS)
    if value is None:
        with pytest.raises(ValueError, match=f"^{name} = {re.escape(repr(text))}: must be "):
            schema.read({name: text})
    else:
        found = schema.read({name: text})[name]
        assert found == value and type(found) is type(schema.parameters[name].default)


def test_help_prints_the_schema(tmp_path, capsys):
    path = write(tmp_path / "c.ipynb", executed())
    with pytest.raises(SystemExit) as ended:
        console.main(["run", str(path), "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.splitlines()[-6:] == [
        "  tau = 0.5  (a finite number, in [-1, 1]): merge clusters above this cosine",
        "  rounds = 2  (an integer, 1 or more): communication rounds",
        "  rate = 0.1  (a finite number, in (0, 1]): learning rate",
        "  update = 'parallel'  (one of parallel, chained): how the global model is updated",
        "  bold = False  (True or False): print loudly (never needed)",
        "  together: rounds > 1 or tau > 0",
    ]


@given(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True) | st.integers() | st.booleans() | st.none()
       | st.floats(allow_nan=False, allow_infinity=False) | st.lists(st.integers() | st.floats(-9, 9)))  # fmt: skip
def test_what_is_typed_comes_back(value):
    """Numbers below zero, true, null, lists and words survive being typed."""
    assume(value not in ("true", "false", "null", "none"))
    hint = bool | int | float | None | Sequence[float] | str
    back = typed.value("x", hint, value if isinstance(value, str) else json.dumps(value))
    assert back == value and (isinstance(value, list) or type(back) is type(value))


BODY = """\
import os, random
from pathlib import Path
print(tau, rounds, update, Path.cwd().name, Path("beside.txt").read_text())
print(os.environ["OMP_NUM_THREADS"], hash("a"), random.Random(0).random())
assert rounds < 9, "too many rounds"
from myst_nb import glue
glue("reached", f"{tau}", display=False)
last = {"round": rounds, "down": 7, "accuracy": tau}
found = {"a": last, "b": [last, last]}
rounds"""
FINAL = {"round": 2, "down": 7, "accuracy": -0.25}


@pytest.fixture
def fresh(tmp_path):
    """A notebook never executed, beside the file that it reads."""
    (tmp_path / "beside.txt").write_text("found")
    notebook = executed()
    told = new_markdown_cell("It reached {glue:text}`reached`, not {glue:text}`what nobody knows`.")
    notebook.cells[2:] = [new_code_cell(BODY, metadata={"tags": ["comparison"]}), told]
    return write(tmp_path / "fresh.ipynb", notebook)


def test_refresh_twice_is_byte_identical_and_passes_the_check(fresh):
    notebook = json.loads(fresh.read_text())
    notebook["metadata"].update(papermill={"x": 1}, widgets={})
    notebook["cells"][2]["metadata"] = {"execution": {"iopub.status.busy": "now"}}
    notebook["cells"][2]["id"] = notebook["cells"][1]["id"]
    del notebook["cells"][0]["id"]
    twin = fresh.with_name("twin.ipynb")
    for path in (fresh, twin):
        path.write_text(json.dumps(notebook))
    notebooks.refresh(fresh)
    notebooks.refresh(twin)
    once = fresh.read_bytes()
    assert twin.read_bytes() == once
    assert proof.problems(fresh) == ([], 1)
    text = json.loads(once)["cells"][2]["outputs"][0]["text"]
    assert text[0] == f"0.5 2 parallel {fresh.parent.name} found\n"
    assert text[1].startswith("1 ")
    notebooks.refresh(fresh)
    assert fresh.read_bytes() == once


def test_rerun_executes_with_the_values_given_and_names_a_failing_cell(fresh, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = fresh.read_bytes()
    assert console.main(["run", "fresh.ipynb", "-p", "tau=-0.25", "-p", "update=chained"]) == 0
    folder = tmp_path / "runs" / "fresh" / "tau=-0.25,update=chained"
    assert capsys.readouterr().out == f"{folder.relative_to(tmp_path)}\n"
    assert {file.name for file in folder.iterdir()} == {"fresh.ipynb", "fresh.html", "run.json"}
    cells = json.loads((folder / "fresh.ipynb").read_text())["cells"]
    assert any(f"-0.25 2 chained {tmp_path.name} found" in str(cell.get("outputs")) for cell in cells)
    assert not any("compared(globals" in str(cell["source"]) for cell in cells)
    run = records.read(folder / "run.json")
    assert run["parameters"] == {"tau": -0.25, "rounds": 2, "rate": 0.1, "update": "chained", "bold": False}
    assert run["failed"] is None and run["provenance"]["seconds"] > 0 and run["provenance"]["versions"]["torch"]
    assert run["metrics"] == {"a": [[FINAL]], "b": [[FINAL], [FINAL]]}
    page = (folder / "fresh.html").read_text()
    assert "chained" in page and 'src="https://' not in page
    assert re.search(r"It reached -0\.25, not \{glue:text\}.*what nobody knows", page)
    assert "A rerun of the chapter: tau=-0.25,update=chained." in page  # whose prose tells of the defaults
    mathematics = re.search(r'src="file://([^"]+/startup\.js)"', page)[1]
    loaded = json.loads(re.search(r"window\.MathJax = (.*?);</script>", page)[1])["loader"]["load"]
    assert Path(mathematics).exists()
    assert all(Path(mathematics).parent.joinpath(f"{one}.js").exists() for one in loaded)
    assert console.main(["run", "fresh.ipynb", "-p", "rounds=9"]) == 1
    page = Path("runs", "fresh", "rounds=9", "fresh.html")
    assert f"AssertionError: too many rounds; {page} shows where" in capsys.readouterr().err
    assert "too many rounds" in records.read(page.with_name("run.json"))["failed"] and page.exists()
    assert console.main(["run", "fresh.ipynb", "-p", "rounds=9"]) == 1
    assert Path("runs", "fresh", "rounds=9_2", "run.json").exists()
    assert fresh.read_bytes() == before


def test_a_chapter_is_a_function_too(fresh, tmp_path):
    before = Path.cwd()
    values = parameters.of(fresh).read({"tau": "0.25"})
    file, was = rerun.demonstrate(fresh, values, tmp_path / "f" / "p" / "run.json")
    assert not was and (run := records.read(file))["parameters"] == values and list(run["metrics"]) == ["a", "b"]
    with pytest.raises(AssertionError, match="too many rounds"):
        rerun.demonstrate(fresh, values | {"rounds": 9}, tmp_path / "f" / "q" / "run.json")
    assert Path.cwd() == before and not (tmp_path / "f" / "q").exists()


def test_what_a_chapter_measures_is_what_its_comparison_binds(fresh):
    """Other dictionaries of histories count for nothing, and none is dropped in silence."""
    notebook = nbformat.read(fresh, 4)
    notebook.cells.insert(2, new_code_cell("warm = {'a': {'round': 1, 'down': 1}, 'b': {'round': 1, 'down': 1}}"))
    write(fresh, notebook)
    assert rerun.bound(fresh) == ["last", "found"]
    row, other = ({"round": 1, "down": 1, "accuracy": a} for a in (0.5, 0.75))
    found = rerun.compared({"x": {"a": row, "b": row}, "y": {"a": row, "c": row}, "z": 1}, ["x", "y", "z"])
    assert list(found) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="y: label = 'a': must be of one method only"):
        rerun.compared({"x": {"a": row, "b": row}, "y": {"a": other, "c": row}}, ["x", "y"])


LEAKS = """\
import matplotlib, os
print(matplotlib.rcParams["lines.linewidth"], round is None, "leaked" in globals())
from pathlib import Path
print(Path("beside.txt").read_text(), os.environ.get("PYTHONSTARTUP"))
import matplotlib.pyplot as plt
plt.plot([1])
plt.show()"""


def test_the_users_settings_reach_no_kernel(fresh, tmp_path, monkeypatch):
    """Start-up files, a backend without pictures, a style, another place for sockets, and a locale."""
    home, startup = tmp_path / "home", tmp_path / "startup.py"
    for folder in (home / "profile_default" / "startup", tmp_path / "jupyter", tmp_path / ("x" * 90)):
        folder.mkdir(parents=True)
    for file in (startup, home / "profile_default" / "startup" / "00.py"):
        file.write_text("import builtins\nleaked = round\nbuiltins.round = None\n")
    (tmp_path / "rc").write_text("lines.linewidth: 9\n")
    fresh.with_name("beside.txt").write_text("é", "utf-8")
    for name, value in {"PYTHONSTARTUP": startup, "IPYTHONDIR": home, "MPLBACKEND": "Agg", "LC_ALL": "C",
                        "MATPLOTLIBRC": tmp_path / "rc", "JUPYTER_PATH": tmp_path / "jupyter", "PYTHONUTF8": "0",
                        "JUPYTER_RUNTIME_DIR": "/proc/none", "TMPDIR": tmp_path / ("x" * 90)}.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("tempfile.tempdir", None)
    notebook = nbformat.read(fresh, 4)
    notebook.cells[2].source = LEAKS
    write(fresh, notebook)
    before = dict(os.environ)
    notebooks.refresh(fresh)
    assert dict(os.environ) == before
    outputs = json.loads(fresh.read_text("utf-8"))["cells"][2]["outputs"]
    assert "".join(outputs[0]["text"]).split() == ["1.5", "False", "False", "é", "None"]
    assert "image/png" in outputs[1]["data"]


def test_a_failing_cell_leaves_the_notebook_as_it_was(fresh, capsys):
    fresh.write_text(fresh.read_text().replace("import os, random", "1 / 0"))
    before = fresh.read_bytes()
    assert console.main(["refresh", str(fresh)]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert fresh.read_bytes() == before
