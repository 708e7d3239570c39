"""What the scripts of ``book/measure`` tell, worked out by hand, and how they store it."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import made
import pages
import pytest
import status
import tiny
import torch

from cflkit import federation
from cflkit.data import images
from cflkit.data.images import Images
from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.methods import IFCA, FedSoft, FeSEM, OracleClusters
from cflkit.workbook.runs import plans, protocols, run

attributes, groups, released, repeat = map(made.script, ("attributes", "groups", "released", "repeat"))
deviations = made.script("deviations")


def test_deviations_by_hand():
    fed = tiny.federation(*[([[3, 0], [0, 2], [1, 0]], [0, 1, 1])] * 2)
    ours, theirs = (tiny.run(kind(k=2), fed).server["models"] for kind in (IFCA, deviations.FedRCsIFCA))
    picked = theirs.any(1)
    assert picked.sum() == 1 and torch.equal(ours[picked], theirs[picked]) and ours.any(1).all()
    once, often = (tiny.run(deviations.FedZoosCFL(), fed, rounds=n).server["models"] for n in (1, 3))
    assert torch.equal(once, often)  # each round begins at the first model
    best, worst = (kind(k=2) for kind in (FedSoft, deviations.FedRCsFedSoft))
    models, both, net = (rig := tiny.simulation(best, fed)).task.init(2), torch.arange(2), rig.network(1, Memory())
    assert torch.equal(best.weigh(models, both, net), worst.weigh(models, both, net).flip(1))


def people(count=6):
    """Each with four pictures of labels 1, 1, 0, 0; the first three are in one domain, the last in another."""
    table = torch.zeros(4 * count, 40, dtype=torch.int64)
    for column in attributes.ATTRIBUTES.values():
        table[:, column] = torch.tensor([1, 1, 1, 0]).repeat(count)
    return Images(
        "faces", torch.zeros(4 * count, 1, 2, 2, dtype=torch.uint8), torch.tensor([1, 1, 0, 0]).repeat(count),
        torch.ones(4 * count, dtype=torch.bool), 2, user=torch.arange(count).repeat_interleave(4),
        extra={"attributes": table},
    )  # fmt: skip


def test_each_domain_answers_its_more_frequent_label():
    measured = attributes.tell(people(), tested=2)
    assert (measured["pictures"], measured["tested"], measured["accuracy"]) == (24, 8, 0.75)  # three of each four
    assert measured["correlation"] == dict.fromkeys(attributes.ATTRIBUTES, 0.57735)  # 1/8 over sqrt(1/4 x 3/16)
    assert measured["federation"]["test_users"] == 2 and measured["federation"]["builder"] == "by_user"


def test_the_people_who_are_tested_do_not_vote():
    faces = people(3)
    turned = [attributes.tell(faces, seed, tested=2)["accuracy"] for seed in range(3)]
    assert turned == [0.75] * 3
    for person in range(3):  # one person has the labels the other way round
        odd = faces.y.clone()
        odd[4 * person : 4 * person + 4] = torch.tensor([0, 0, 1, 1])
        of_odd = Images("faces", faces.x, odd, faces.train, 2, user=faces.user, extra=faces.extra)
        # alone in training it answers 0 and 1: a quarter of the others' pictures; else a half of all tested
        assert {attributes.tell(of_odd, seed, tested=2)["accuracy"] for seed in range(8)} == {0.25, 0.5}


class ByLabel(OracleClusters):
    """Says that clients are grouped by the label of which they have most images."""

    name = "by-label"

    def assignment(self, server):
        return turned().label_counts().argmax(1)


def turned(seed=0):
    return federation.rotated(images.load("digits"), clients=24, samples_per_client=20, alpha=0.5, seed=seed)


def grouped(kind):
    method = kind(cluster=turned().cluster.tolist())
    return Simulation(method, turned(), model="linear", local=SGD(0.1), rounds=1, progress=False)


def test_groups_that_follow_the_true_clusters_and_nothing_else():
    found = groups.first(grouped(OracleClusters))
    assert found["groups"] == 4 and found["with_clusters"] == 1 and abs(found["with_labels"]) < 0.3


def test_groups_that_follow_the_most_frequent_label():
    found = groups.first(grouped(ByLabel))
    assert found["with_labels"] == 1 and abs(found["with_clusters"]) < 0.3
    assert found["groups"] == len(set(turned().label_counts().argmax(1).tolist()))


def test_every_seed_is_stored_with_its_provenance(tmp_path, monkeypatch):
    monkeypatch.setattr(groups, "SEEDS", range(2))
    monkeypatch.setattr(groups, "GROUPED", (("stocfl", {"tau": 0.1}), ("stocfl", {"tau": 0.999})))
    asked = []

    def plan(protocol, label, seed):
        asked.append((protocol, label, seed))
        given = {"rounds": "3", "clients": "8", "tau": "0.2"}
        return replace(plans.free("stocfl"), seed=seed).changed(given | {"participation": "0.5"})

    monkeypatch.setattr(groups.protocols, "plan", plan)
    stored = json.loads(groups.write(tmp_path).read_text())
    assert [(row["protocol"], row["label"], row["seed"]) for row in stored["rows"]] == asked
    kinds = {(row["protocol"], row["label"], *row["changed"].values()) for row in stored["rows"]}
    assert len(asked) == 2 * 2 * 2 and len(kinds) == 4
    assert {row["groups"] for row in stored["rows"] if row["changed"]["tau"] == 0.999} == {8}  # everybody took part
    assert set(stored["provenance"]) >= {"date", "commit", "versions"}


LINE = {"seed": 0, "each": [0.5, 0.25], "micro": 0.5, "mean": 0.375, "macro": 0.125, "own_micro": 0.75,
        "own_macro": 0.625, "members": [9, 1]}  # fmt: skip


def small(seed=0, **change):
    fed = federation.dirichlet(images.load("digits"), clients=10, alpha=0.5, test="own", seed=seed)
    settings = {"model": "mlp8", "local": SGD(0.1, epochs=2), "rounds": 4, "progress": False}
    return Simulation(FeSEM(k=3), fed, seed=seed, **settings, **change)


def test_the_released_score_stands_beside_that_of_own_centres():
    sim = small()
    history = sim.run()
    assign = history.server["assign"].tolist()
    own = {"own_micro": history.final["accuracy_micro"], "own_macro": history.final["accuracy"]}
    assert own["own_micro"] != own["own_macro"]
    found = released.both_scores(sim, history)
    assert found == released.released_score(sim, history) | own | {"members": [assign.count(k) for k in range(3)]}


def test_a_centre_without_members_is_there():
    sim = small()
    history = sim.run()
    history.server["assign"][:] = 0
    assert released.both_scores(sim, history)["members"] == [10, 0, 0]


@pytest.fixture
def command(tmp_path, monkeypatch):
    """The command, of small runs, and the file of its record."""
    monkeypatch.setattr(released, "SEEDS", range(2))
    monkeypatch.setattr(released.protocols, "plan", lambda *at: SimpleNamespace(simulation=partial(small, at[2])))
    monkeypatch.setattr(released.places, "RUNS", tmp_path / "runs")
    out = tmp_path / "out"
    return lambda: released.write(out), out / released.FILE


def test_interrupted_it_goes_on_from_its_checkpoints(command, monkeypatch):
    run, file = command
    assert run() == file
    assert not (file.parent.parent / "runs" / "released").exists()  # so a second call trains again
    stored, load = json.loads(file.read_text()), released.both_scores
    assert [row["seed"] for row in stored["rows"]] == [0, 1] and stored["provenance"]["commit"]

    def interrupt(sim, history):
        if sim.seed == 1:
            raise KeyboardInterrupt
        return load(sim, history)

    file.unlink()
    monkeypatch.setattr(released, "both_scores", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert not file.exists()
    monkeypatch.setattr(released, "both_scores", load)
    monkeypatch.setattr(FeSEM, "round", pytest.fail)  # all rounds of both seeds are there
    assert json.loads(run().read_text())["rows"] == stored["rows"]


def test_the_table_by_hand():
    numbers = ["0", "75.00", "50.00", "37.50", "62.50", "12.50"]
    assert list(pages.released([LINE])) == [[*numbers, "50.0 (9), 25.0 (1)"]]


@pytest.fixture
def old(toy):
    """Records of both methods of the toy protocol, of another day; seconds tell which is quicker."""
    for label, seconds in (("a", 9.0), ("b", 4.0)):
        file, _ = run.run(protocols.plan("toy", label), out=Path("out"), progress=False)
        record = json.loads(file.read_text())
        record["provenance"] |= {"date": "2001-02-03", "seconds": seconds}
        file.write_text(json.dumps(record))
    return toy


def test_the_quickest_record_is_made_again_and_noted(old, capsys):
    repeat.main([], Path("out"))
    (record,), (note,) = Path("out/toy").glob("b-*.json"), json.loads(Path("out/repeats.json").read_text())
    assert note["record"] == f"toy/{record.stem}" and (note["rounds"], note["same"], note["apart"]) == (3, 3, {})
    assert f"toy/{record.stem}: the same up to round 3 of 3; " in capsys.readouterr().out
    assert not list(Path("out").rglob(".repeats/**/*.json"))
    repeat.main([], Path("out"))  # the protocol has its note
    assert next(status.repeated(Path("out")))[4:] == ("all 3", "0.00")
    (other,) = Path("out/toy").glob("a-*.json")  # named, it gives its next record; here one that differs
    changed = json.loads(other.read_text())
    for row in (changed["final"], changed["rounds"][-1]):
        row["moved"] = 7
    other.write_text(json.dumps(changed))
    repeat.main(["toy"], Path("out"))
    first, second = json.loads(Path("out/repeats.json").read_text())
    assert (first["record"], first["same"]) == (f"toy/{other.stem}", 2 if first["apart"] else 3) and second == note


def test_runs_of_today_or_of_another_setting_are_refused(old, monkeypatch):
    with pytest.raises(ValueError, match="protocol = 'nope': must be one of toy"):
        repeat.main(["nope"], Path("out"))
    monkeypatch.setattr(run, "run", None)  # nothing is run
    plan = protocols.plan("toy", "b").changed({"rounds": "2"})
    with monkeypatch.context() as patch:
        patch.setattr(protocols, "plan", lambda *_, **how: plan)
        with pytest.raises(ValueError, match="must be what its protocol still gives"):
            repeat.main(["toy"], Path("out"))
    for file in Path("out/toy").glob("*.json"):
        file.write_text(file.read_text().replace("2001-02-03", "2100-01-01"))
    with pytest.raises(ValueError, match="protocol = 'toy': must be one with a run of a day before"):
        repeat.main(["toy"], Path("out"))
