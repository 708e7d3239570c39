"""The console program, as a user types it."""

import json
import subprocess
import sys

import pytest
import yaml

from cflkit import __main__ as console
from cflkit import __version__, protocols


def test_version_and_methods(capsys):
    with pytest.raises(SystemExit) as ended:
        console.main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"cflkit {__version__}\n"
    assert console.main(["methods"]) == 0
    listed = capsys.readouterr().out
    assert "stocfl " in listed and "tau = 0.5" in listed and "fedavg " in listed


def test_datasets_are_listed_with_their_state(capsys, tmp_path):
    assert console.main(["datasets", "--root", str(tmp_path)]) == 0
    state = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert state["digits"] == "bundled" and state["mnist"] == "absent"


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A protocol on the bundled digits, in place of the real ones."""
    file = tmp_path / "protocols.yaml"
    protocol = {
        "feeds": "nothing", "federation": {"builder": "rotated", "images": "digits", "clients": 8},
        "model": "mlp8", "local": {"lr": 0.1}, "rounds": 3,
        "methods": {"a": {"name": "fedavg"}, "b": {"name": "oracle"}},
    }  # fmt: skip
    file.write_text(yaml.safe_dump({"protocols": {"toy": protocol}}))
    monkeypatch.setattr(protocols, "FILE", file)
    monkeypatch.chdir(tmp_path)
    protocols.protocols.cache_clear()
    yield tmp_path
    protocols.protocols.cache_clear()


def test_run_writes_a_record_a_method_and_seed_and_computes_none_twice(toy, capsys):
    assert console.main(["run", "toy", "--seed", "0", "1", "--out", "out"]) == 0
    files = sorted((toy / "out").glob("toy/*.json"), key=lambda f: f.name[0] + f.name[-8:])
    assert [f.name[0] + f.name[-8:] for f in files] == ["a-s0.json", "a-s1.json", "b-s0.json", "b-s1.json"]
    before = [f.stat().st_mtime_ns for f in files]
    assert console.main(["run", "toy", "a", "--out", "out"]) == 0
    assert [f.stat().st_mtime_ns for f in files] == before
    assert json.loads(files[0].read_text())["config"]["dtype"] == "float32"
    assert capsys.readouterr().out.count(".json") == 5


@pytest.mark.parametrize(
    "given, line",
    [
        (["run", "nope"], "protocol = 'nope': must be one of toy"),
        (["run", "toy", "c"], "label = 'c': must be one of a, b"),
        (["run", "toy", "a", "--dtype", "half"], "dtype = 'half': must be one of float32, float64"),
        (["fetch", "nope"], "'nope'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(given, line, toy, capsys):
    assert console.main(given) == 2
    error = capsys.readouterr().err
    assert error.startswith("cflkit: ") and line in error and error.count("\n") == 1


def test_the_module_is_the_same_program():
    done = subprocess.run([sys.executable, "-m", "cflkit", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"cflkit {__version__}\n"
