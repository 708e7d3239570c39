"""Bad input gets one clear line: the argument, its value, and what is allowed."""

import math
import re
import shutil
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from cflkit import checks, federation, images, methods, models
from cflkit.data.federation import Samples
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation, schedule, simulate
from cflkit.methods import IFCA, Ditto, FedAvg, OracleClusters, StoCFL


def refused(line, work, *args, **kwargs):
    """`work` raises a ValueError whose whole message is `line` (a regular expression, on one line)."""
    with pytest.raises(ValueError) as caught:
        work(*args, **kwargs)
    assert re.fullmatch(line, str(caught.value)), str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------------- names
def test_unknown_names_are_answered_with_the_known_ones(digits, fed, settings_of_a_run):
    line = refused(r"name = 'mnits': must be one of .*, or that of a \.npz file in .*", images.load, "mnits")
    assert "mnist" in line and "digits" in line
    line = refused("name = 'mlp': must be one of .*, or mlp<width>", models.build, "mlp", (1, 8, 8), 10)
    assert "lenet" in line
    line = refused("method = 'fedavgg': must be one of .*", methods.get, "fedavgg")
    assert all(name in line for name in methods.METHODS)
    refused("stocfl's parameter = 'taau': must be one of tau, lam, .*", methods.get, "stocfl", taau=1)
    refused(r"local's parameter = 'mu': must be one of \(none\)", methods.get, "local", mu=1)
    refused("option = 'client': must be one of .*clients.*", federation.rotated, digits, client=3)
    refused("builder = 'bent': must be one of .*rotated.*", federation.build, {"builder": "bent", "images": "usps"})
    refused(r"config = \['builder'\]: must be a dict with 'images'", federation.build, {"builder": "rotated"})
    no_model = "model = 3: must be a text or a function"
    for model, line in (("lenett", "name = 'lenett': must be one of .*"), (3, no_model)):
        refused(line, Simulation, FedAvg(), fed, **settings_of_a_run | {"model": model})


# ---------------------------------------------------------------------- numbers
@pytest.mark.parametrize("lr", [0, -0.1, math.nan, math.inf, "0.1", None])
def test_learning_rates(lr):
    refused(f"lr = {lr!r}: must be a finite number, greater than 0", SGD, lr)


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("batch_size = 0: must be an integer, 1 or more or None", {"batch_size": 0}),
        ("batch_size = -5: must be an integer, 1 or more or None", {"batch_size": -5}),
        ("steps = 0: must be an integer, 1 or more or None", {"steps": 0}),
        ("epochs = -1: must be an integer, 0 or more", {"epochs": -1}),
        (r"momentum = 1.0: must be a finite number, in \[0, 1\)", {"momentum": 1.0}),
        ("weight_decay = -0.1: must be a finite number, 0 or more", {"weight_decay": -0.1}),
        ("nesterov = True: must be False without momentum", {"nesterov": True}),
    ],
)
def test_local_training(line, settings):
    refused(line, SGD, 0.1, **settings)


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        (r"participation = 0: must be a finite number, in \(0, 1\]", {"participation": 0}),
        (r"participation = 1.2: must be a finite number, in \(0, 1\]", {"participation": 1.2}),
        (r"participation = -0.5: must be a finite number, in \(0, 1\]", {"participation": -0.5}),
        (r"participation = nan: must be a finite number, in \(0, 1\]", {"participation": math.nan}),
        (r"participation = '10%': must be a finite number, in \(0, 1\]", {"participation": "10%"}),
        ("rounds = -1: must be an integer, 0 or more", {"rounds": -1}),
        ("personal_clients = -1: must be an integer, 0 or more", {"personal_clients": -1}),
        ("personal_every = 0: must be an integer, 1 or more or None", {"personal_every": 0}),
        ("evaluate_every = 0: must be an integer, 1 or more", {"evaluate_every": 0}),
        ("checkpoint_every = -2: must be an integer, 1 or more", {"checkpoint_every": -2}),
        ("chunk = 0: must be an integer, 1 or more or None", {"chunk": 0}),
        ("dtype = 'float16': must be one of float32, float64", {"dtype": "float16"}),
        ("dtype = torch.float64: must be one of float32, float64", {"dtype": torch.float64}),
        ("trainer = 'fast': must be one of auto, lean, stacked, .*", {"trainer": "fast"}),
        ("device = 'gpu': must be cpu, or cuda .*", {"device": "gpu"}),
        ("device = 'cuda:99': must be cpu, or cuda .*", {"device": "cuda:99"}),
        (r"device = 'cuda:x': must be cpu, or cuda .*", {"device": "cuda:x"}),
        (r"len\(arrival\) = 3: must be the number of clients, 12", {"arrival": torch.ones(3, dtype=torch.int64)}),
        (r"min\(arrival\) = 2: must be 1, so that .*", {"arrival": torch.full((12,), 2)}),
    ],
)
def test_simulations(line, settings, fed, settings_of_a_run):
    refused(line, Simulation, FedAvg(), fed, **settings_of_a_run | settings)


def test_a_gpu_that_is_not_there(fed, settings_of_a_run, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    refused(r"device = 'cuda': must be cpu, or cuda where PyTorch sees a GPU \(here 0\)",
            Simulation, FedAvg(), fed, **settings_of_a_run | {"device": "cuda"})  # fmt: skip


@pytest.mark.parametrize(
    ("line", "name", "parameters"),
    [
        ("weights = 'equal': must be one of n, uniform", "fedavg", {"weights": "equal"}),
        ("mu = -1: must be a finite number, 0 or more", "fedprox", {"mu": -1}),
        ("lam = -0.1: must be a finite number, 0 or more", "ditto", {"lam": -0.1}),
        ("k = 0: must be an integer, 1 or more", "ifca", {"k": 0}),
        ("average = 'mean': must be one of model, gradient", "ifca", {"average": "mean"}),
        ("share = True: must be False with average='gradient'", "ifca", {"share": True, "average": "gradient"}),
        (r"tau = 1.5: must be a finite number, in \[-1, 1\]", "stocfl", {"tau": 1.5}),
        (r"tau = nan: must be a finite number, in \[-1, 1\]", "stocfl", {"tau": math.nan}),
        ("lam = -1: must be a finite number, 0 or more", "stocfl", {"lam": -1}),
        ("members = 'some': must be one of all, sampled", "stocfl", {"members": "some"}),
    ],
)
def test_hyper_parameters(line, name, parameters):
    refused(line, methods.get, name, **parameters)


def test_more_clusters_than_clients(fed, settings_of_a_run):
    refused("k = 13: must be at most the number of clients, 12", Simulation, IFCA(k=13), fed, **settings_of_a_run)
    refused(r"len\(cluster\) = 2: must be the number of clients, 12", Simulation, OracleClusters((0, 1)), fed,
            **settings_of_a_run)  # fmt: skip
    refused("federation = 'rotated digits': must be one whose true clusters are known", OracleClusters.of,
            replace(fed, cluster=None))  # fmt: skip


@pytest.mark.parametrize("alpha", [0, -1.0, math.nan])
def test_concentrations(alpha, digits):
    line = f"alpha = {alpha!r}: must be a finite number, .*"
    refused(line, federation.rotated, digits, clients=8, samples_per_client=10, alpha=alpha)
    refused(line, federation.dirichlet, digits, clients=8, alpha=alpha)
    refused(line, federation.mixed, digits, clients=8, samples_per_client=10, alpha=alpha)


def test_client_counts_and_sizes(digits):
    refused("clients = .*: must be .*", federation.rotated, digits, clients=0)
    refused("clients = .*: must be .*", federation.rotated, digits, clients=-4)
    refused("clients = .*: must be .*", federation.rotated, digits, clients=1_000_000)
    refused("samples_per_client = .*: must be .*", federation.rotated, digits, clients=4, samples_per_client=0)
    refused("samples_per_client = .*: must be .*", federation.rotated, digits, clients=4, samples_per_client=10_000)
    refused("clients = 0: must be .*", federation.dirichlet, digits, clients=0, alpha=1.0)


@pytest.mark.parametrize("field", ["mean", "std"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_normalisation_must_be_finite(field, value, digits):
    refused(f"{field} = {value}: must be .*", federation.rotated, digits, clients=4, **{field: value})


# ---------------------------------------------------------------------- data
def samples(**changes):
    good = {"pool": torch.zeros(6, 1, 2, 2, dtype=torch.uint8), "index": torch.arange(6),
            "y": torch.tensor([0, 1, 2, 0, 1, 2]), "offset": torch.tensor([0, 2, 6])}  # fmt: skip
    return Samples(**good | changes)


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("size of set 1 = 0: must be at least 1: .*", {"offset": torch.tensor([0, 2, 2, 6])}),
        (r"first and last offset = \[0, 5\]: must be \[0, 6\]", {"offset": torch.tensor([0, 2, 5])}),
        (r"index = \[6\]: must be rows of the pool, 0\.\.5", {"index": torch.arange(1, 7)}),
        ("y = -1: must be at least 0", {"y": torch.tensor([0, 1, -1, 0, 1, 2])}),
        (r"len\(y\) = 5: must be len\(index\) = 6", {"y": torch.zeros(5, dtype=torch.int64)}),
        (r"len\(tag\) = 2: must be len\(index\) = 6", {"tag": torch.zeros(2, dtype=torch.int64)}),
        (r"pool.dtype = torch.float32: must be torch.uint8", {"pool": torch.full((6, 1, 2, 2), math.nan)}),
    ],
)
def test_clients_data(line, changes):
    refused(line, samples, **changes)


def test_labels_and_clusters_must_fit_the_federation(fed):
    y = fed.train.y.clone()
    y[3] = 10
    refused("label = 10: must be below classes = 10", replace, fed, train=replace(fed.train, y=y))
    refused(r"len\(cluster\) = 2: must be the number of clients, 12", replace, fed, cluster=torch.tensor([0, 1]))
    refused(r"len\(test_of\) = 1: must be the number of clients, 12", replace, fed, test_of=torch.tensor([0]))
    refused(r"test_of = \[4\]: must be test sets 0\.\.3", replace, fed, test_of=torch.full((12,), 4))
    refused(r"ids = \[12\]: must be clients, 0\.\.11", fed.subset, [0, 12])
    refused(r"ids = \[\]: must be a sequence, each an integer, not empty", fed.subset, [])


@pytest.mark.parametrize("damage", ["nan", "negative", "label", "split"])
def test_files_of_images(damage, tmp_path):
    x, y, train = np.zeros((5, 4, 4), np.float32), np.arange(5) % 2, np.array([1, 1, 1, 0, 0], bool)
    if damage == "nan":
        x[2, 1, 1] = np.nan
    elif damage == "negative":
        x[2, 1, 1] = -1
    elif damage == "label":
        y[3] = -1
    else:
        train = train[:3]
    np.savez(tmp_path / "own.npz", x=x, y=y, train=train)
    line = {"nan": r".*x = \[nan\]: must be in .*", "negative": r".*x = \[-1.0\]: must be in .*",
            "label": ".*y.*: must be .*", "split": ".*train.*: must be .*"}[damage]  # fmt: skip
    refused(line, images.load, "own", root=tmp_path)


# ---------------------------------------------------------------------- checkpoints
@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A finished run's checkpoint, to damage copies of."""
    fed = federation.rotated(images.load("digits"), clients=12, samples_per_client=24)
    folder = tmp_path_factory.mktemp("kept")
    settings = {"model": "mlp16", "local": SGD(0.1, batch_size=10), "rounds": 2, "participation": 0.5,
                "personal_clients": 0, "progress": False}  # fmt: skip
    simulate(Ditto(), fed, checkpoint=folder, **settings)
    return folder, settings, fed


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"method": Ditto(lam=0.1)}, "method"),
        ({"method": StoCFL()}, "method"),
        ({"local": SGD(0.2, batch_size=10)}, "local"),
        ({"model": "mlp8"}, "model"),
        ({"participation": 0.6}, "participation"),
        ({"seed": 1}, "seed"),
        ({"dtype": "float32"}, "dtype"),
        ({"trainer": "stacked"}, "trainer"),
        ({"chunk": 7}, "chunk"),
        ({"evaluate_every": 2}, "evaluate_every"),
        ({"personal_clients": 5}, "personal"),
        ({"arrival": torch.ones(12, dtype=torch.int64)}, "arrival"),
        ({"federation": "smaller"}, "federation"),
        ({"federation": "relabelled"}, "federation"),
        ({"federation": "mirrored"}, "images"),
        ({"federation": "regrouped"}, "images"),
    ],
)
def test_a_checkpoint_of_another_configuration(changed, what, kept):
    folder, settings, fed = kept
    call = {"method": Ditto(), "federation": fed, **settings, **changed}
    if changed.get("federation") == "smaller":
        call["federation"] = fed.subset(range(11))
    elif changed.get("federation") == "relabelled":
        call["federation"] = replace(fed, train=replace(fed.train, y=(fed.train.y + 1) % 10))
    elif changed.get("federation") == "mirrored":  # the sum of all pixels stays
        call["federation"] = replace(fed, train=replace(fed.train, pool=fed.train.pool.flip(3)))
    elif changed.get("federation") == "regrouped":
        call["federation"] = replace(fed, cluster=fed.cluster.flip(0))
    line = rf"checkpoint = '.*state\.pt': must be of this configuration; {what}[\w.]* was .* and is now .*"
    refused(line, simulate, call.pop("method"), call.pop("federation"), checkpoint=folder, **call)


def test_fewer_rounds_than_are_done(kept):
    folder, settings, fed = kept
    refused(r"rounds = 1: must be at least the 2 that the checkpoint .*state\.pt holds",
            simulate, Ditto(), fed, checkpoint=folder, **settings | {"rounds": 1})  # fmt: skip


def test_more_rounds_may_not_change_who_is_unseen(kept, tmp_path):
    _, settings, fed = kept
    arrival = torch.tensor([1] * 10 + [2, 4])
    simulate(Ditto(), fed, checkpoint=tmp_path, **settings, arrival=arrival)
    simulate(Ditto(), fed, checkpoint=tmp_path, **settings | {"rounds": 3}, arrival=arrival)  # the last still waits
    refused(r"rounds = 4: must be 3, as in the checkpoint .*state\.pt: who arrives later counts as unseen .*",
            simulate, Ditto(), fed, checkpoint=tmp_path, **settings | {"rounds": 4}, arrival=arrival)  # fmt: skip


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.3, 0.7, 0.99, 0.999])
def test_a_truncated_checkpoint(keep, kept, tmp_path):
    folder, settings, fed = kept
    whole = (folder / "state.pt").read_bytes()
    (tmp_path / "state.pt").write_bytes(whole[: int(keep * len(whole))])
    refused(r"checkpoint = '.*state\.pt': must be a whole checkpoint; delete this one to start anew",
            simulate, Ditto(), fed, checkpoint=tmp_path, **settings)  # fmt: skip


def test_a_flipped_bit_is_noticed_or_harmless(kept, tmp_path):
    """torch.load alone would take three flips in four for good."""
    folder, settings, fed = kept
    shutil.copytree(folder / "memory", tmp_path / "memory")
    whole, rng, noticed = (folder / "state.pt").read_bytes(), np.random.default_rng(0), 0
    expected = simulate(Ditto(), fed, checkpoint=folder, **settings)
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        (tmp_path / "state.pt").write_bytes(damaged)
        try:
            found = simulate(Ditto(), fed, checkpoint=tmp_path, **settings)
        except ValueError as error:
            assert re.fullmatch("checkpoint = '.*': must be a whole checkpoint; .*", str(error))
            noticed += 1
        else:  # a flip in a name's length or a date: what was read is whole
            assert found.rounds == expected.rounds and torch.equal(found.server["model"], expected.server["model"])
    assert noticed > 45


@pytest.mark.parametrize("content", [b"\n", b"not a checkpoint", b"\x80\x02."])
def test_a_file_that_is_no_checkpoint(content, kept, tmp_path):
    _, settings, fed = kept
    (tmp_path / "state.pt").write_bytes(content)
    refused(r"checkpoint = '.*': must be a whole checkpoint; .*",
            simulate, Ditto(), fed, checkpoint=tmp_path, **settings)  # fmt: skip
    torch.save({"weights": torch.zeros(3)}, tmp_path / "state.pt")
    refused(r"checkpoint = '.*': must be a whole checkpoint; .*",
            simulate, Ditto(), fed, checkpoint=tmp_path, **settings)  # fmt: skip


def test_a_checkpoint_whose_client_memory_is_damaged(kept, tmp_path):
    folder, settings, fed = kept
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    row = sorted((tmp_path / "memory").iterdir())[0]
    row.write_bytes(row.read_bytes()[:-40])
    refused(rf"memory = '.*{row.name}': must be the whole row of its client; delete its checkpoint to start anew",
            simulate, Ditto(), fed, checkpoint=tmp_path, **settings)  # fmt: skip


# ---------------------------------------------------------------------- the checks themselves
def test_the_line_names_argument_value_and_what_is_allowed():
    refused("tau = 3: must be below 1", checks.require, False, "tau", 3, "below 1")
    checks.require(True, "tau", 0, "below 1")
    refused("a = 'c': must be one of x, y", checks.declared, "a", "c", Literal["x", "y"])


def test_a_schedule_without_a_first_client():
    refused(r"min\(arrival\) = 3: must be 1, .*", schedule, 2, 1.0, 3, 0, torch.tensor([3, 4]))
