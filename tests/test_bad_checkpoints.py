"""Damaged checkpoints and those of other runs: a line that names the file and what is wrong, and nothing is run."""

import errno
import operator
import shutil
import threading
import zipfile
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import refused
from torch import Tensor, nn

from cflkit import federation, images
from cflkit.checks import writing
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import simulate
from cflkit.methods import Ditto, FedAvg, StoCFL

SETTINGS = {"model": "mlp8", "local": SGD(0.1, batch_size=10), "rounds": 2, "participation": 0.5,
            "personal_clients": 0, "progress": False}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The checkpoint of a run, and its federation."""
    fed = federation.rotated(images.load("digits"), clients=12, samples_per_client=12)
    folder = tmp_path_factory.mktemp("whole")
    simulate(Ditto(), fed, checkpoint=folder, **SETTINGS)
    return folder, fed


def state(change):
    """Write another state than what was kept, as whole a file as before."""

    def damage(folder):
        kept = torch.load(folder / "state.pt", weights_only=True)
        change(kept)
        torch.save(kept, folder / "state.pt")

    return damage


def row(change):
    """Damage the file of the first client's row, or of the first two."""

    def damage(folder):
        change(*sorted((folder / "memory").iterdir())[:2])

    return damage


def swap(one, other):
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def flip(file, text):
    content = bytearray(file.read_bytes())
    content[content.index(text)] ^= 1
    file.write_bytes(content)


def cut(file, end):
    file.write_bytes(file.read_bytes()[:end])


def without_entry(folder):
    with zipfile.ZipFile(folder / "state.pt") as old, zipfile.ZipFile(folder / "new", "w") as new:
        for name in old.namelist()[:-4]:
            new.writestr(name, old.read(name))
    (folder / "new").replace(folder / "state.pt")


STATE = {
    "empty": lambda folder: cut(folder / "state.pt", 0), "cut short": lambda folder: cut(folder / "state.pt", -100),
    "a bit": lambda folder: flip(folder / "state.pt", b"personal"),
    "an entry of the archive is missing": without_entry,
    "another dictionary": lambda folder: torch.save({"weights": torch.zeros(3)}, folder / "state.pt"),
    "code": lambda folder: torch.save({"config": print}, folder / "state.pt"),
    "one number": state(lambda kept: kept["server"]["model"].view(-1)[3].add_(1e-9)),
    "another precision": state(lambda kept: kept["server"].update(model=kept["server"]["model"].float())),
    "no checksum": state(lambda kept: kept.pop("checksum")),
    "another checksum": state(lambda kept: kept.update(checksum="0" * 32)),
    "a server that is none": state(lambda kept: kept.update(server=None)),
}
ROWS = {
    "a row is missing": row(lambda one, _: one.unlink()), "a row is empty": row(lambda one, _: cut(one, 0)),
    "a row is cut short": row(lambda one, _: cut(one, -40)), "another client's": row(swap),
}


LINE = {True: r"checkpoint = '.*state\.pt': must be a whole checkpoint; delete .*",
        False: r"memory = '.*personal-\d+-\d\.npz': must be the whole row of its client; delete its checkpoint .*"}


@pytest.mark.parametrize("damage", [*STATE, *ROWS])
def test_a_damaged_state_or_row(damage, whole, tmp_path, monkeypatch):
    for part in ("start", "round"):
        monkeypatch.setattr(Ditto, part, lambda *_: pytest.fail("a damaged run was begun anew, or gone on with"))
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    (STATE | ROWS)[damage](tmp_path)
    line = LINE[damage in STATE]
    refused(line, simulate, Ditto(), whole[1], checkpoint=tmp_path, **SETTINGS | {"rounds": 3})


@pytest.fixture
def keep(whole, tmp_path, monkeypatch):
    """Keep something in the state of a server that starts, and go on from there without a round."""

    def run(held):
        monkeypatch.setattr(FedAvg, "start", lambda self, net: {"model": net.task.init()[0], "held": held})
        monkeypatch.setattr(FedAvg, "round", lambda *_: pytest.fail("clients work for a state that is lost"))
        return simulate(FedAvg(), whole[1], checkpoint=tmp_path, **SETTINGS | {"rounds": 0}).server["held"]

    return run


@pytest.mark.parametrize("held", [threading.Lock(), np.ones(1), np.float64(1), {1}, print, torch.eye(2).to_sparse(),
                                  torch.ones(1, device="meta"), [{"a": [b"", object()]}]])  # fmt: skip
def test_a_state_that_cannot_come_back_is_refused_before_the_first_round(held, keep):
    refused("server = .*: must be of dense tensors, .*", keep, held)


@pytest.mark.parametrize("held", [torch.ones(1).expand(5), (torch.ones(2) + 1j).conj(), torch.eye(2)[:, :1],
                                  torch.ones(()), nn.Parameter(torch.ones(2)), OrderedDict(a=1),
                                  (None, True, 1, 0.1, 3j, "x", b"y", {0: [{}]})])  # fmt: skip
def test_every_other_state_comes_back(held, keep):
    keep(held)
    found = keep(None)
    assert type(found) is type(held) and (torch.equal if isinstance(held, Tensor) else operator.eq)(found, held)


def test_a_full_disk_is_called_so_with_the_files_name_and_what_was_there_stays(whole, tmp_path):
    kept, fed = whole
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    (tmp_path / "state.pt.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*state\.pt\.part'$") as caught:
        simulate(Ditto(), fed, checkpoint=tmp_path, **SETTINGS | {"rounds": 3})
    assert caught.value.errno == errno.ENOSPC
    assert (tmp_path / "state.pt").read_bytes() == (kept / "state.pt").read_bytes()
    (tmp_path / "state.pt.part").unlink()
    assert len(simulate(Ditto(), fed, checkpoint=tmp_path, **SETTINGS | {"rounds": 3}).rounds) == 4


def test_what_hides_a_full_disk_is_looked_behind(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    shown = [(full, full.strerror), (OSError("9 requested and 5 written"), "9 requested and 5 written")]
    for error, line in shown:
        with pytest.raises(OSError, match=f"{line}: 'a.npz'"), writing(Path("a.npz")):
            raise error

    def hidden(cause):
        try:
            raise cause
        except OSError:
            raise RuntimeError("unexpected pos")  # noqa: B904  as PyTorch does

    with pytest.raises(OSError, match=r"No space left on device: 'a\.npz'$"), writing(Path("a.npz")):
        hidden(full)
    with pytest.raises(RuntimeError, match=r"^another$"), writing(Path("a.npz")):
        raise RuntimeError("another")
    with pytest.raises(FileNotFoundError, match=r"b'$"), writing(Path("a.npz")):
        open(tmp_path / "b").close()


# ---------------------------------------------------------------------- whole, and of another run
@pytest.mark.parametrize(("changed", "what"), [
    ({"method": Ditto(lam=0.1)}, "method"), ({"method": StoCFL()}, "method"), ({"model": "mlp4"}, "model"),
    ({"local": SGD(0.2, batch_size=10)}, "local"), ({"personal_clients": 5}, "personal"), ({"chunk": 7}, "chunk"),
    *[({name: value}, name) for name, value in {"participation": 0.6, "dtype": "float32", "trainer": "stacked",
      "evaluate_every": 2, "arrival": torch.ones(12, dtype=torch.int64)}.items()],
    ({"federation": lambda fed: fed.subset(range(11))}, "federation"),
    ({"federation": lambda fed: replace(fed, train=replace(fed.train, y=(fed.train.y + 1) % 10))}, "federation"),
    # the sum of all pixels stays
    ({"federation": lambda fed: replace(fed, train=replace(fed.train, pool=fed.train.pool.flip(3)))}, "images"),
    ({"federation": lambda fed: replace(fed, cluster=fed.cluster.flip(0))}, "images"),
])  # fmt: skip
def test_a_checkpoint_of_another_configuration(changed, what, whole):
    folder, fed = whole
    call = {"method": Ditto(), "federation": lambda fed: fed, **SETTINGS, **changed}
    line = rf"checkpoint = '.*state\.pt': must be of this configuration; {what}[\w.]* was .* and is now .*"
    refused(line, simulate, call.pop("method"), call.pop("federation")(fed), checkpoint=folder, **call)


def test_fewer_rounds_than_are_done(whole):
    folder, fed = whole
    refused(r"rounds = 1: must be at least the 2 that the checkpoint .*state\.pt holds",
            simulate, Ditto(), fed, checkpoint=folder, **SETTINGS | {"rounds": 1})  # fmt: skip


def test_more_rounds_may_not_change_who_is_unseen(whole, tmp_path):
    _, fed = whole
    arrival = torch.tensor([1] * 10 + [2, 4])
    simulate(Ditto(), fed, checkpoint=tmp_path, **SETTINGS, arrival=arrival)
    simulate(Ditto(), fed, checkpoint=tmp_path, **SETTINGS | {"rounds": 3}, arrival=arrival)  # the last still waits
    refused(r"rounds = 4: must be 3, as in the checkpoint .*state\.pt: who arrives later counts as unseen .*",
            simulate, Ditto(), fed, checkpoint=tmp_path, **SETTINGS | {"rounds": 4}, arrival=arrival)  # fmt: skip
