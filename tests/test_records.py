"""Run records: what identifies a run, what stands apart, and that they are whole."""

import json
import os
from types import SimpleNamespace

import pytest
import torch
from made import record

from cflkit import methods
from cflkit.engine.simulation import Simulation
from cflkit.workbook import places
from cflkit.workbook.claims import measured
from cflkit.workbook.runs import protocols, records, results


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


def test_no_list_is_cut(finished, tmp_path):
    run, history = finished
    history.rounds[-1]["sizes"] = sizes = list(range(30, 0, -1))
    assert json.loads(records.write("toy", "stocfl", run, history, tmp_path).read_text())["final"]["sizes"] == sizes


def test_every_clients_accuracy_is_kept_with_four_digits(finished, tmp_path, fed, settings_of_a_run):
    run, history = finished
    kept = records.read(records.write("toy", "stocfl", run, history, tmp_path))["clients"]
    assert list(kept) == ["accuracy", "cluster"] and len(kept["accuracy"]) == fed.clients
    assert kept["cluster"] == history.server["assign"].tolist()
    assert sum(kept["accuracy"]) / fed.clients == pytest.approx(history.final["accuracy"], abs=1e-4)
    assert all(value == round(value, 4) for value in kept["accuracy"]) and len(set(kept["accuracy"])) > 1
    assert run.accuracies(history) == Simulation(run.method, fed, **settings_of_a_run).accuracies(history)
    settings = settings_of_a_run | {"personal_clients": 2}
    run = Simulation(methods.Ditto(), fed, **settings)
    found = run.accuracies(history := run.run())
    scored = [v for v in found["personal_accuracy"] if v == v]
    assert len(scored) == 2 and len(found["personal_accuracy"]) == len(found["accuracy"]) == fed.clients
    assert sum(scored) / 2 == pytest.approx(history.final["personal_accuracy"])
    kept = records.read(records.write("toy", "ditto", run, history, tmp_path))["clients"]
    assert list(kept) == ["accuracy", "personal_accuracy"]  # Ditto groups nobody
    kept = kept["personal_accuracy"]
    assert [v is None for v in kept] == [v != v for v in found["personal_accuracy"]]


def test_uncommitted_changes_are_told(monkeypatch):
    answers = {"rev-parse": "abc", "status": ""}
    monkeypatch.setattr(records.subprocess, "run", lambda command, **_: SimpleNamespace(stdout=answers[command[3]]))
    assert (records.provenance()["commit"], records.provenance()["changed"]) == ("abc", False)
    answers["status"] = " M cflkit/rng.py\n"
    assert records.provenance()["changed"] is True

    def no_git(*_, **__):
        raise OSError

    monkeypatch.setattr(records.subprocess, "run", no_git)
    assert (records.provenance()["commit"], records.provenance()["changed"]) == (None, None)


def _cut(text):
    return text[:650]


def _without(part):
    return lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != part})


def _with(**parts):
    def change(text):
        whole = json.loads(text)
        for part, value in parts.items():
            *path, last = part.split("__")
            place = whole
            for name in path:
                place = place[int(name) if name.isdigit() else name]
            place[int(last) if last.isdigit() else last] = value
        return json.dumps(whole)

    return change


def _last(**values):
    """Other numbers in the last round, told twice as a record does."""

    def change(text):
        whole = json.loads(text)
        whole["final"].update(values)
        whole["rounds"][-1].update(values)
        return json.dumps(whole)

    return change


def _missing(place, part):
    def change(text):
        whole = json.loads(text)
        del whole[place][part]
        return json.dumps(whole)

    return change


@pytest.mark.parametrize(
    "damage, told",
    [
        (_cut, "Unterminated string|Expecting"),
        (lambda text: "", "Expecting value"),
        (lambda text: "{}", "part = 'protocol': must be there"),
        (lambda text: "[1, 2]", r"record = \[1, 2\]: must be a mapping"),
        (_without("final"), "part = 'final': must be there"),
        (_without("provenance"), "part = 'provenance': must be there"),
        (lambda text: text.replace('"accuracy": 0', '"accuracy": NaN, "x": 0', 1), "NaN stands where a number"),
        (_with(rounds__0__accuracy=12.5), "accuracy of round 0 = 12.5: must be"),
        (_with(rounds__0__accuracy="0.5"), "accuracy of round 0 = '0.5': must be"),
        (_with(seed="0"), "seed = '0': must be an integer"),
        (_with(seed=1), "seed = 1: must be the configuration's, 0"),
        (_with(format=3), "format = 3: must be 2; another version wrote this"),
        (_with(config={}), "config's method = None: must be"),
        (_with(rounds=[]), r"rounds = \[\]: must be 0 to 3, each once"),
        (_with(final={}), "final = {}: must be the last of the rounds"),
        (_with(provenance__date=None), "provenance's date = None: must be a text"),
        (_with(config__local__lr=0.3), "must be the name that its configuration gives it"),
        (_with(label="other"), "must be the name that its configuration gives it"),
        (lambda text: "\x00\x01", "Expecting value"),
        (lambda text: '{"a":' * 100_000, "recursion"),
        (lambda text: text.replace('"seed": 0', f'"seed": {"[" * 900}0{"]" * 900}', 1), "recursion|must be"),
        (lambda text: text.replace('"label"', '"label": 1, "label"', 1), "key = 'label': must be there once"),
        (lambda text: text.replace('"nmi": 0', '"nmi": 1e400, "x": 0', 1), "inf|1e400 stands where a number"),
        (_last(ari=12), "ari of round 3 = 12: must be"),
        (_last(nmi=[0.5]), r"nmi of round 3 = \[0.5\]: must be"),
        (_last(clusters=-4), "clusters of round 3 = -4: must be an integer"),
        (_last(clusters=2.5), "clusters of round 3 = 2.5: must be an integer"),
        (_last(down="12"), "down of round 3 = '12': must be an integer"),
        (_last(up=None), "up of round 3 = None: must be an integer"),
        (_last(objective="x"), "objective of round 3 = 'x': must be"),
        (_last(entropy=-1), "entropy of round 3 = -1: must be"),
        (_last(objective=10**400), r"at most 1e\+30"),
        (_last(personal_f1=7), "personal_f1 of round 3 = 7: must be"),
        (_last(sizes="x"), "sizes of round 3 = 'x': must be a sequence"),
        (_last(diverged="no"), "diverged of round 3 = 'no': must be True or False"),
        (_last(accuracy=0.123), "accuracy of the last round = 0.123: must be the mean of the clients'"),
        (_with(clients__accuracy=12.5), "clients' accuracy = 12.5: must be a sequence"),
        (_with(clients__accuracy__0=12.5), "clients' accuracy = .*12.5.*: must be a sequence, each"),
        (_with(clients={}), "clients' accuracy = None: must be there, as the last round has it"),
        (_without("clients"), "part = 'clients': must be there"),
        (_with(provenance__commit=5), "provenance's commit = 5: must be a text or None"),
        (_missing("provenance", "commit"), "provenance's part = 'commit': must be there"),
        (_missing("provenance", "card"), "provenance's part = 'card': must be there"),
        (_with(provenance__machine={}), "provenance's machine's processor = None: must be a text"),
        (_with(provenance__date="yesterday"), "provenance's date = 'yesterday': must be a day"),
        (_with(provenance__date="2026-02-30"), "day is out of range"),
        (_with(provenance__seconds=-5), "provenance's seconds = -5: must be"),
        (_with(provenance__changed="no"), "provenance's changed = 'no': must be"),
        (_with(config__dtype=None), "config's dtype = None: must be one of float32, float64"),
        (_with(config__arrival=3), "config's arrival = 3: must be a sequence"),
        (_with(config__method={}), "config's method's name = None: must be a text"),
    ],
)
def test_a_damaged_record_is_named(damage, told, finished, tmp_path, fed):
    run, history = finished
    file = records.write("toy", "stocfl", run, history, tmp_path)
    file.write_text(damage(file.read_text()))
    with pytest.raises(ValueError, match=rf"^toy/{file.name}[: ].*({told})") as error:
        records.read(file)
    assert "\n" not in str(error.value)


def test_two_records_of_one_run_are_refused(tmp_path):
    p = "mdicfl_rotmnist_r100"
    one, other = (record(tmp_path, p, "ifca", 0, accuracy=0.9) for _ in range(2))
    assert one == other and results.problems(tmp_path) == [] and measured.measured(p, "ifca", tmp_path)
    whole = json.loads(one.read_text())
    whole["config"]["evaluate_every"] = 7  # a setting that the protocol does not fix
    twin = one.with_name(f"{records.name(whole)}.json")
    twin.write_text(json.dumps(whole))
    record(tmp_path, p, "ifca", 1, accuracy=0.8)
    (line,) = results.problems(tmp_path)
    assert "two records of one run" in line and one.name in line and twin.name in line
    assert list(measured.measured(p, "ifca", tmp_path).values()) == [1]  # neither is believed


def test_a_record_of_another_configuration_does_not_count(tmp_path):
    p = "mdicfl_rotmnist_r100"
    path = record(tmp_path, p, "ifca", 0, accuracy=0.94)
    whole = json.loads(path.read_text())
    for place, key, value in (("local", "lr", 0.2), ("method", "k", 5), ("federation", "clients", 4)):
        other = json.loads(path.read_text())
        other["config"][place][key] = value
        assert results.fits(whole) and not results.fits(other)
    for key, value in (("rounds", 31), ("participation", 0.5), ("model", "mlp8")):
        assert not results.fits(whole | {"config": whole["config"] | {key: value}})
    assert not results.fits(whole | {"label": "nobody"}) and not results.fits(whole | {"protocol": "none"})


def test_a_label_may_have_its_own_rounds(tmp_path, fed):
    p = "fesem_femnist_60_r60"
    record(tmp_path, p, "fedavg-equal", 0, accuracy=0.94)
    assert measured.measured(p, "fedavg-equal", tmp_path).rounds == 61
    assert protocols.simulation(p, "fedavg-equal", federation_=fed, model="mlp8").rounds == 61
    assert protocols.simulation(p, "fedavg", federation_=fed, model="mlp8").rounds == 60


def test_what_is_not_a_number_becomes_null(finished, tmp_path):
    run, history = finished
    history.rounds[-1]["ari"] = float("nan")
    text = records.write("toy", "stocfl", run, history, tmp_path).read_text()
    assert "NaN" not in text and json.loads(text)["final"]["ari"] is None


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
    assert one.scoring.groups["unseen_"].tolist() != two.scoring.groups["unseen_"].tolist()
    short = protocols.simulation("stocfl_femnist_unseen", "fedavg", rounds=3, **settings)
    assert len(short.scoring.groups["unseen_"]) == away


@pytest.mark.parametrize("name, label", [("nothing", "fedavg"), ("stocfl_rotmnist_4800_r10", "nobody")])
def test_unknown_protocols_and_labels_are_named(name, label, fed):
    with pytest.raises(ValueError, match=r"^(protocol|label) = 'no.*': must be one of "):
        protocols.simulation(name, label, federation_=fed)


def test_outside_of_a_repository_no_commit_is_claimed(monkeypatch, tmp_path):
    monkeypatch.setattr(records.places, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert (records.provenance()["commit"], records.provenance()["changed"]) == (None, None)


def test_every_stored_record_is_whole_and_no_two_are_of_one_run():
    assert results.problems() == []
    assert len(records.load()) == len(list(records.FOLDER.glob("*/*.json")))


def test_what_a_killed_process_left_of_a_file_goes_after_a_day_and_what_a_live_one_writes_stays(tmp_path):
    file, other = tmp_path / "a [1].png", tmp_path / "b.png"
    left, busy, apart = (each.with_name(f".{each.name}.{name}.part") for each, name in
                         [(file, "old"), (file, "new"), (other, "old")])  # fmt: skip
    for part in (left, busy, apart):
        part.touch()
    for part in (left, apart):
        os.utime(part, (0, 0))
    with places.atomic_write(file) as part:
        part.write_text("new")
    assert file.read_text() == "new" and not part.exists()
    assert not left.exists() and busy.exists() and apart.exists()
