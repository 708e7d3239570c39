"""Run records: what identifies a run, what stands apart, and that they are whole."""

import json
import math
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import sound
import torch
from made import record

from cflkit import methods
from cflkit.engine.history import History
from cflkit.engine.simulation import Simulation
from cflkit.workbook import places
from cflkit.workbook.claims import measured
from cflkit.workbook.runs import protocols, records, results

CONFIG = {"method": {"name": "ifca", "k": 2}, "rounds": 3, "seed": 7, "model": "lenet"}


@pytest.fixture
def finished(fed, settings_of_a_run):
    run = Simulation(methods.StoCFL(), fed, **settings_of_a_run)
    return run, run.run()


def test_a_record_holds_the_run_and_is_found_again(finished, tmp_path, fed):
    run, history = finished
    file = records.write("toy", "stocfl", run, history, tmp_path)
    assert file == records.path("toy", "stocfl", run.config, tmp_path)
    assert [f.name for f in file.parent.iterdir()] == [f"stocfl-{records.identity(run.config)}-s0.json"]
    record = records.read(file)
    assert record["config"] == json.loads(json.dumps(run.config)) and record["seed"] == 0
    assert len(record["rounds"]) == 4 and record["final"] == record["rounds"][-1]
    assert record["final"]["accuracy"] == round(history.final["accuracy"], 6)
    assert set(record["provenance"]["versions"]) == {"cflkit", "python", "torch", "numpy", "scikit-learn"}
    assert all(record["provenance"]["machine"][part] for part in ("processor", "cores", "threads"))
    kept = record["clients"]
    assert kept["cluster"] == history.server["assign"].tolist() and len(kept["accuracy"]) == fed.clients
    assert sum(kept["accuracy"]) / fed.clients == pytest.approx(history.final["accuracy"], abs=1e-4)


def test_of_models_of_their_own_only_those_that_were_scored_are_kept(fed, settings_of_a_run, tmp_path):
    run = Simulation(methods.Ditto(), fed, **settings_of_a_run | {"personal_clients": 2})
    history = run.run()
    kept = records.read(records.write("toy", "ditto", run, history, tmp_path))["clients"]
    assert list(kept) == ["accuracy", "personal_accuracy"]  # Ditto groups nobody
    scored = [value for value in kept["personal_accuracy"] if value is not None]
    assert len(kept["personal_accuracy"]) == fed.clients and len(scored) == 2
    assert sum(scored) / 2 == pytest.approx(history.final["personal_accuracy"], abs=1e-4)


def test_seed_and_machine_do_not_change_the_identity_and_all_else_does(finished):
    config = finished[0].config
    for name in config:
        same = records.identity(config | {name: "another"}) == records.identity(config)
        assert same == (name in ("seed", "device", "trainer", "chunk")), name
    assert records.identity(CONFIG) == records.identity(dict(reversed(CONFIG.items()))) == "d09a42cbe0"
    assert records.path("p", "ifca", CONFIG, Path("here")) == Path("here/p/ifca-d09a42cbe0-s7.json")


def test_a_label_can_name_a_file_and_stays_apart_from_others():
    assert places.label("tau=0.6, k/2 (a)") == "tau=0.6,_k_2_a_" and places.label("a+b-c_1.5") == "a+b-c_1.5"
    long, other = places.label(81 * "x"), places.label(82 * "x")
    assert long[:72] == 71 * "x" + "_" and len(long) == len(other) == 80 and long != other


def test_a_record_line_by_line(tmp_path):
    model = SimpleNamespace(device=SimpleNamespace(type="cpu"))
    run = SimpleNamespace(config=CONFIG, seed=7, model=model, trainer="auto", chunk=32, workers=1)
    run.accuracies = lambda history: {"accuracy": [0.12345678, math.nan]}
    run.method = SimpleNamespace(assignment=lambda server: None)
    rows = [{"round": 0, "accuracy": 0.12345678, "sizes": [2, 1]}, {"round": 1, "accuracy": math.inf, "x": -1.0}]
    file = records.write("p", "ifca", run, History(rows, [1.26, 2.0]), tmp_path / "not" / "there")
    assert file.read_text().splitlines()[:12] == [
        "{", ' "format": 2,', ' "protocol": "p",', ' "label": "ifca",',
        ' "config": {"method": {"name": "ifca", "k": 2}, "rounds": 3, "seed": 7, "model": "lenet"},', ' "seed": 7,',
        ' "final": {"round": 1, "accuracy": null, "x": -1.0},', ' "clients": {"accuracy": [0.1235, null]},',
        ' "rounds": [', '  {"round": 0, "accuracy": 0.123457, "sizes": [2, 1]},',
        '  {"round": 1, "accuracy": null, "x": -1.0}', " ],",
    ]  # fmt: skip
    told = json.loads(file.read_text())["provenance"]
    assert told["seconds"] == 3.3 and (told["device"], told["card"]) == ("cpu", None)
    assert (told["trainer"], told["chunk"], told["workers"]) == ("auto", 32, 1)


def test_uncommitted_changes_are_told(tmp_path, monkeypatch):
    def told():
        return records.provenance()["commit"], records.provenance()["changed"]

    answers = {"rev-parse": "abc", "status": ""}
    monkeypatch.setattr(records.subprocess, "run", lambda command, **_: SimpleNamespace(stdout=answers[command[3]]))
    assert told() == ("abc", False)
    answers["status"] = " M cflkit/rng.py\n"
    assert told() == ("abc", True)
    monkeypatch.undo()
    monkeypatch.setattr(places, "ROOT", tmp_path)  # no repository
    assert told() == (None, None) and records.PACKAGE.name == "cflkit"


def test_the_processor_has_a_name(tmp_path, monkeypatch):
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(records, "Path", lambda name: {"/proc/cpuinfo": info}[name])
    for text, processor, name in [("vendor_id : one\nmodel name\t: A CPU @ 2: GHz\n", "", "A CPU @ 2: GHz"),
                                  ("vendor_id : one\n", "x86", "x86"), (None, "", "x86_64")]:  # fmt: skip
        info.unlink(missing_ok=True) if text is None else info.write_text(text)
        monkeypatch.setattr(records.platform, "processor", lambda name=processor: name)
        monkeypatch.setattr(records.platform, "machine", lambda: "x86_64")
        assert records._processor() == name


def changed(text, place, value):
    """The text of a record with another value in one place; without it if that is `...`."""
    whole = json.loads(text)
    *path, last = place.split("/")
    inner = whole
    for name in path:
        inner = inner[int(name) if name.isdigit() else name]
    inner[last] = value
    if value is ...:
        del inner[last]
    return json.dumps(whole)


@pytest.mark.parametrize("damage, told", [
    (lambda text: text[:650], "Unterminated string|Expecting"),
    (lambda text: "", "Expecting value"),
    (lambda text: "{}", "part = 'format': must be there"),
    (lambda text: "[1, 2]", r"record = \[1, 2\]: must be a mapping"),
    (lambda text: changed(text, "clients", ...), "part = 'clients': must be there"),
    (lambda text: text.replace('"accuracy": 0', '"accuracy": NaN, "x": 0', 1), "value = 'NaN': must be"),
    (lambda text: changed(text, "format", 3), "format = 3: must be 2; another version wrote this"),
    (lambda text: changed(text, "rounds", []), "index out of range"),
    (lambda text: changed(text, "final", {}), "final = {}: must be the last of the rounds"),
    (lambda text: changed(text, "config/local/lr", 0.3), "must be the name that its configuration gives it"),
    (lambda text: changed(text, "protocol", "other"), "must be the name that its configuration gives it"),
    (lambda text: changed(text, "label", "other"), "must be the name that its configuration gives it"),
    (lambda text: '{"a":' * 100_000, "recursion"),
])  # fmt: skip
def test_a_damaged_record_is_named(damage, told, finished, tmp_path, fed):
    run, history = finished
    file = records.write("toy", "stocfl", run, history, tmp_path)
    file.write_text(damage(file.read_text()))
    with pytest.raises(ValueError, match=rf"^toy/{file.name}[: ].*({told})") as error:
        records.read(file)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("place, value, told", [
    ("rounds/0/accuracy", 12.5, "accuracy of round 0 = 12.5: must be"),
    ("rounds/0/own_accuracy_std", "0.5", "own_accuracy_std of round 0 = '0.5': must be"),
    ("rounds/0/ari", 12, "ari of round 0 = 12: must be"),
    ("rounds/0/nmi", [0.5], r"nmi of round 0 = \[0.5\]: must be"),
    ("rounds/0/clusters", -4, "clusters of round 0 = -4: must be an integer"),
    ("rounds/0/clusters", 2.5, "clusters of round 0 = 2.5: must be an integer"),
    ("rounds/0/down", "12", "down of round 0 = '12': must be an integer"),
    ("rounds/0/objective", "x", "objective of round 0 = 'x': must be"),
    ("rounds/0/sizes", "x", "sizes of round 0 = 'x': must be a sequence"),
    ("rounds/0/diverged", "no", "diverged of round 0 = 'no': must be True or False"),
    ("rounds/0/round", 1, r"rounds = \[1, 1, 2, 3\]: must be each once"),
    ("seed", 1, "seed = 1: must be the configuration's"),
    ("config/dtype", None, "config's dtype = None: must be one of float32, float64"),
    ("config/arrival", 3, "config's arrival = 3: must be a sequence"),
    ("provenance/commit", 5, "provenance's commit = 5: must be a text or None"),
    ("provenance/machine", {}, "processor = None: must be a text"),
    ("provenance/date", "yesterday", "date = 'yesterday': must be a day"),
    ("provenance/date", "2026-02-30", "day"),
    ("provenance/seconds", -5, "provenance's seconds = -5: must be"),
    ("final/accuracy", 0.123, "accuracy of the last round = 0.123: must be the mean of the clients'"),
    ("clients/accuracy", 12.5, "clients' accuracy = 12.5: must be a sequence"),
    ("clients/cluster", [0.5], r"clients' cluster = \[0.5\]: must be a sequence"),
    ("clients/cluster", [0], "clients = .*'cluster': 1.*: must be lists of one length"),
    ("clients", {}, "clients' accuracy = None: must be there, as the last round has it"),
])  # fmt: skip
def test_a_record_that_no_run_leaves_is_noticed(place, value, told, finished, tmp_path):
    run, history = finished
    text = records.write("toy", "stocfl", run, history, tmp_path).read_text()
    sound.check(json.loads(text))
    with pytest.raises(ValueError, match=told):
        sound.check(json.loads(changed(text, place, value)))


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
    assert list(measured.by_seed(measured.measured(p, "ifca", tmp_path))) == [1]  # neither is believed


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
    assert results.fits(whole | {"label": "mine.Mine"})  # the method of a file
    assert not results.fits(whole | {"label": "mine.Mine", "config": whole["config"] | {"rounds": 31}})


def test_a_label_may_have_its_own_rounds(tmp_path, fed):
    p = "fesem_femnist_60_r60"
    record(tmp_path, p, "fedavg-equal", 0, accuracy=0.94)
    assert measured.measured(p, "fedavg-equal", tmp_path)[0]["config"]["rounds"] == 61
    assert protocols.plan(p, "fedavg-equal").simulation(federation_=fed, model="mlp8").rounds == 61
    assert protocols.plan(p, "fedavg").simulation(federation_=fed, model="mlp8").rounds == 60


def test_a_protocol_sets_up_the_run_it_describes(fed):
    run = protocols.plan("stocfl_rotmnist_4800_r10", "ifca4", 3).simulation(federation_=fed, rounds=2, model="mlp8")
    assert (run.method, run.local.epochs, run.local.lr) == (methods.IFCA(k=4), 5, 0.1)
    assert (run.rounds, run.seed, run.config["dtype"], run.config["participation"]) == (2, 3, "float32", 0.1)
    oracle = protocols.plan("stocfl_rotmnist_4800_r10", "oracle").simulation(fed, rounds=2, model="mlp8")
    assert oracle.method.cluster == tuple(fed.cluster.tolist())
    assert oracle.config["method"] == {"name": "oracle"}  # the record of the federation says the rest
    personal = protocols.plan("lcfed_mnist_n3", "local").simulation(federation_=fed, rounds=2, model="mlp8")
    assert (personal.evaluate_every, personal.personal_every) == (50, 50)


def test_a_protocol_may_keep_a_share_of_the_clients_away(fed):
    settings = {"federation_": fed, "model": "mlp8"}
    one, two = (protocols.plan("stocfl_femnist_unseen", "fedavg", s).simulation(**settings) for s in (0, 1))
    away = round(0.3 * fed.clients)
    for run in (one, two):
        assert len(run.scoring.groups["unseen_"]) == away and len(run.scoring.groups[""]) == fed.clients - away
        assert not set(run.scoring.groups["unseen_"].tolist()) & set(torch.cat(run.schedule).tolist())
    assert one.scoring.groups["unseen_"].tolist() != two.scoring.groups["unseen_"].tolist()
    short = protocols.plan("stocfl_femnist_unseen", "fedavg").simulation(rounds=3, **settings)
    assert len(short.scoring.groups["unseen_"]) == away


@pytest.mark.parametrize("name, label", [("nothing", "fedavg"), ("stocfl_rotmnist_4800_r10", "nobody")])
def test_unknown_protocols_and_labels_are_named(name, label, fed):
    with pytest.raises(ValueError, match=r"^(protocol|label) = 'no.*': must be one of "):
        protocols.plan(name, label).simulation(federation_=fed)


def test_no_stored_record_is_damaged_or_older_than_its_protocol():
    """A record of an earlier day was made under settings that the protocol did not have yet."""
    assert results.problems() == []
    table, since = results.frame(), {name: str(one["since"]) for name, one in protocols.protocols().items()}
    older = table[table["date"] < table["protocol"].map(since)]
    assert older[["protocol", "label", "seed"]].drop_duplicates().to_numpy().tolist() == []


@pytest.mark.parametrize("share", [20, pytest.param(1, marks=pytest.mark.slow)])
def test_stored_records_are_sound(share):
    files = sorted(records.FOLDER.glob("*/*.json"))
    assert len(files) > 1400
    for file in files[::share]:
        sound.check(records.read(file))


def test_a_file_is_replaced_whole_or_not_at_all_and_what_killed_processes_left_goes_after_a_day(tmp_path):
    file, other = tmp_path / "a [1].png", tmp_path / "b.png"
    left, busy, apart = (each.with_name(f".{each.name}.{name}.part") for each, name in
                         [(file, "old"), (file, "host.more.2"), (other, "old")])  # fmt: skip
    for part in (left, busy, apart):
        part.touch()
    for part in (left, apart):
        os.utime(part, (0, 0))
    file.write_text("old")
    with pytest.raises(OSError, match="No space left"), places.atomic_write(file) as part:
        part.write_text("new, but cu")
        raise OSError(28, "No space left on device")
    assert not part.exists() and file.read_text() == "old"
    with places.atomic_write(file) as part, places.atomic_write(file) as second:
        part.write_text("new")
        second.write_text("newer")
    assert file.read_text() == "new" and not left.exists() and busy.exists() and apart.exists()
