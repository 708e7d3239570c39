"""Run records: what identifies a run, what stands apart, and that they are whole."""

import json

import pytest
import torch

from cflkit import methods
from cflkit.engine.simulation import Simulation
from cflkit.workbook import protocols, records


@pytest.fixture
def finished(fed, settings_of_a_run):
    run = Simulation(methods.StoCFL(), fed, **settings_of_a_run)
    return run, run.run()


def test_a_record_holds_the_run_and_is_found_again(finished, tmp_path):
    run, history = finished
    file = records.write("toy", "stocfl", run, history, tmp_path)
    assert file == records.path("toy", "stocfl", run.config, tmp_path)
    assert file.name == f"stocfl-{records.identity(run.config)}-s0.json"
    assert [f.name for f in file.parent.iterdir()] == [file.name]  # nothing half-written is left
    (record,) = records.load("toy", tmp_path)
    assert record["config"] == json.loads(json.dumps(run.config)) and record["seed"] == 0
    assert len(record["rounds"]) == 4 and record["final"] == record["rounds"][-1]
    assert record["final"]["accuracy"] == round(history.final["accuracy"], 6)
    assert {"date", "commit", "versions", "machine", "seconds"} <= record["provenance"].keys()
    assert file.stat().st_size < 50_000
    assert records.load(folder=tmp_path) == [record] and records.load("other", tmp_path) == []


def test_seed_and_machine_do_not_change_the_identity_and_all_else_does(finished):
    config = finished[0].config
    for apart in ("seed", "device", "trainer", "chunk"):
        assert records.identity(config | {apart: "another"}) == records.identity(config)
    for name in config.keys() - {"seed", "device", "trainer", "chunk"}:
        assert records.identity(config | {name: "another"}) != records.identity(config), name


def test_what_is_not_a_number_becomes_null(finished, tmp_path):
    run, history = finished
    history.rounds[-1]["ari"] = float("nan")
    text = records.write("toy", "stocfl", run, history, tmp_path).read_text()
    assert "NaN" not in text and json.loads(text)["final"]["ari"] is None


def test_every_protocol_names_methods_that_exist():
    for name, protocol in protocols.protocols().items():
        assert protocol["feeds"] and protocol["rounds"] > 0, name
        for label, method in protocol["methods"].items():
            chosen = dict(method)
            assert chosen.pop("name") in methods.METHODS, (name, label)
            if method["name"] != "oracle":
                methods.get(**method)


def test_a_protocol_sets_up_the_run_it_describes(fed):
    run = protocols.simulation("stocfl_rotmnist_4800_r10", "ifca4", seed=3, federation_=fed, rounds=2, model="mlp8")
    assert (run.method, run.local.epochs, run.local.lr) == (methods.IFCA(k=4), 5, 0.1)
    assert (run.rounds, run.seed, run.config["dtype"], run.config["participation"]) == (2, 3, "float32", 0.1)
    oracle = protocols.simulation("stocfl_rotmnist_4800_r10", "oracle", federation_=fed, rounds=2, model="mlp8")
    assert oracle.method.cluster == tuple(fed.cluster.tolist())
    assert oracle.config["method"] == {"name": "oracle"}  # the record of the federation says the rest
    personal = protocols.simulation("lcfed_mnist_n3", "local", federation_=fed, rounds=2, model="mlp8")
    assert (personal.evaluate_every, personal.personal_every) == (50, 50)


def test_a_protocol_may_keep_a_share_of_the_clients_away(fed):
    settings = {"federation_": fed, "model": "mlp8"}
    one, two = (protocols.simulation("stocfl_femnist_unseen", "fedavg", seed=s, **settings) for s in (0, 1))
    away = round(0.3 * fed.clients)
    for run in (one, two):
        assert len(run.scoring.groups["unseen_"]) == away and len(run.scoring.groups[""]) == fed.clients - away
        assert not set(run.scoring.groups["unseen_"].tolist()) & set(torch.cat(run.schedule).tolist())
    assert one.unseen.tolist() != two.unseen.tolist()
    assert len(protocols.simulation("stocfl_femnist_unseen", "fedavg", rounds=3, **settings).unseen) == away


@pytest.mark.parametrize("name, label", [("nothing", "fedavg"), ("stocfl_rotmnist_4800_r10", "nobody")])
def test_unknown_protocols_and_labels_are_named(name, label, fed):
    with pytest.raises(ValueError, match=r"^(protocol|label) = 'no.*': must be one of "):
        protocols.simulation(name, label, federation_=fed)
