"""FeSEM's released score beside that of each client's own centre, as the command stores them."""

import json

import made
import pages
import pytest

from cflkit import federation, images
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.methods import FeSEM

released = made.script("released")

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
    monkeypatch.setattr(released.protocols, "simulation", lambda *_, **settings: small(**settings))
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
