"""Run records to the letter: names, digits, lines, and what is told of the machine."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import torch

from cflkit.engine.history import History
from cflkit.workbook import places
from cflkit.workbook.runs import records

CONFIG = {"method": {"name": "ifca", "k": 2}, "rounds": 3, "seed": 7, "model": "lenet"}


def test_a_hash_is_the_same_on_every_machine_whatever_the_order():
    assert records.identity(CONFIG) == "d09a42cbe0"  # stored records bear such names
    assert records.identity(dict(reversed(CONFIG.items()))) == records.identity(CONFIG)
    assert records.path("p", "ifca", CONFIG, Path("here")) == Path("here/p/ifca-d09a42cbe0-s7.json")


def test_a_label_can_name_a_file_and_stays_apart_from_others():
    assert places.label("tau=0.6, k/2 (a)") == "tau=0.6,_k_2_a_" and places.label("a+b-c_1.5") == "a+b-c_1.5"
    assert places.label(80 * "x") == 80 * "x"
    long, other = places.label(81 * "x"), places.label(82 * "x")
    assert long[:72] == 71 * "x" + "_" and len(long) == len(other) == 80 and long != other


def finished(rounds, clients):
    """A run as far as a record looks at it."""
    model = SimpleNamespace(device=SimpleNamespace(type="cpu"))
    run = SimpleNamespace(config=CONFIG, seed=7, model=model, trainer="auto", chunk=32, workers=1)
    run.accuracies = lambda history: clients
    run.method = SimpleNamespace(assignment=lambda server: server.get("assign"))
    return run, History(rounds, [1.26, 2.0])


def test_a_record_line_by_line(tmp_path):
    first = {"round": 0, "accuracy": 0.12345678, "sizes": [2, 1]}
    last = {"round": 1, "accuracy": math.inf, "x": -1.0}
    run, history = finished([first, last], {"accuracy": [0.12345678, math.nan]})
    file = records.write("p", "ifca", run, history, tmp_path / "not" / "there")
    assert file.read_text().splitlines()[:12] == [
        "{",
        ' "format": 2,',
        ' "protocol": "p",',
        ' "label": "ifca",',
        ' "config": {"method": {"name": "ifca", "k": 2}, "rounds": 3, "seed": 7, "model": "lenet"},',
        ' "seed": 7,',
        ' "final": {"round": 1, "accuracy": null, "x": -1.0},',
        ' "clients": {"accuracy": [0.1235, null]},',
        ' "rounds": [',
        '  {"round": 0, "accuracy": 0.123457, "sizes": [2, 1]},',
        '  {"round": 1, "accuracy": null, "x": -1.0}',
        " ],",
    ]
    told = json.loads(file.read_text())["provenance"]
    assert told["seconds"] == 3.3 and (told["device"], told["card"]) == ("cpu", None)
    assert (told["trainer"], told["chunk"], told["workers"]) == ("auto", 32, 1)


def test_the_clusters_of_clients_are_kept(tmp_path):
    run, history = finished([{"round": 0}, {"round": 1}], {"accuracy": [0.5, 0.25]})
    history.server = {"assign": torch.tensor([3, -1])}
    kept = json.loads(records.write("p", "ifca", run, history, tmp_path).read_text())["clients"]
    assert kept == {"accuracy": [0.5, 0.25], "cluster": [3, -1]}


# ---------------------------------------------------------------------- the machine
def test_versions_and_machine_are_told():
    told = records.provenance()
    assert set(told["versions"]) == {"cflkit", "python", "torch", "numpy", "scikit-learn"}
    assert set(told["machine"]) == {"processor", "cores", "threads"} and all(told["machine"].values())


def test_the_processor_has_a_name(tmp_path, monkeypatch):
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(records, "Path", lambda name: {"/proc/cpuinfo": info}[name])
    monkeypatch.setattr(records.platform, "processor", lambda: "x86")
    monkeypatch.setattr(records.platform, "machine", lambda: "x86_64")
    info.write_text("vendor_id : one\nmodel name\t: A CPU @ 2: GHz\nmodel name\t: another\n")
    assert records._processor() == "A CPU @ 2: GHz"
    info.write_text("vendor_id : one\n")
    assert records._processor() == "x86"
    info.unlink()
    assert records._processor() == "x86"
    monkeypatch.setattr(records.platform, "processor", lambda: "")
    assert records._processor() == "x86_64"
