"""The guide's new method works as it stands there."""

import re
import sys
from pathlib import Path
from types import ModuleType

import torch

from cflkit.engine.memory import Memory
from cflkit.engine.simulation import Simulation
from cflkit.methods import FedAvg

GUIDE = (Path(__file__).resolve().parents[1] / "CONTRIBUTING.md").read_text()


def test_the_guides_method_runs_as_it_stands(fed, settings_of_a_run, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    source = next(block for block in blocks if "class Median" in block)
    module = ModuleType("median")
    monkeypatch.setitem(sys.modules, "median", module)
    exec(source, module.__dict__)
    run = Simulation(module.Median(step=0.5), fed, **settings_of_a_run | {"rounds": 1})
    history, clients = run.run(), run.schedule[0]
    begin = run.task.init()[0]
    models = run.network(1, Memory()).call(clients, FedAvg().client, down={"model": begin})["model"].dense()
    torch.testing.assert_close(history.server["model"], (begin + models.median(0).values) / 2, rtol=0, atol=1e-12)
    assert history.final["up"] == len(clients) * run.model.size
    assert module.Median().config() == {"name": "median", "step": 1.0}


def test_a_file_among_the_methods_is_found():
    from cflkit.methods import METHODS

    folder = Path(__file__).resolve().parents[1] / "cflkit" / "methods"
    sources = "\n".join(file.read_text() for file in folder.glob("*.py"))
    written = set(re.findall(r'^    name = "(\w+)"', sources, re.MULTILINE))
    assert written == set(METHODS)


def test_the_readmes_program_prints_what_the_readme_shows(capsys):
    readme = (Path(__file__).resolve().parents[1] / "README.md").read_text()
    program, shown = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", readme, re.DOTALL).groups()
    assert len(program.strip().splitlines()) <= 10
    exec(program.replace("rounds=20", "rounds=20, progress=False"), {})
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == shown.splitlines()
