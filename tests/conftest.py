"""What the tests share: one thread, so that runs can be compared bit by bit, and a small real federation."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, and for the processes that tests start
os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is: a GPU's kernels run on a processor then

import made
import pytest
import torch
from hypothesis import Phase, settings

from cflkit import federation, images
from cflkit.data.federation import Federation, Samples
from cflkit.engine.sgd import SGD
from cflkit.workbook.claims import papers

torch.set_num_threads(1)
settings.register_profile("cflkit", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("cflkit")
settings.register_profile("unshrunk", settings.get_profile("cflkit"), phases=[Phase.explicit, Phase.generate])


@pytest.fixture(scope="session")
def digits():
    return images.load("digits")


@pytest.fixture(scope="session")
def fed(digits):
    """Twelve clients in four rotations, 24 real digits each."""
    return federation.rotated(digits, clients=12, samples_per_client=24)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A protocol on the bundled digits, in place of the real ones; its folder is the present one."""
    made.experiment(tmp_path)
    monkeypatch.setattr(papers, "PAPERS", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def settings_of_a_run():
    """What :func:`cflkit.engine.simulation.simulate` needs besides a method and a federation."""
    return {"model": "mlp16", "local": SGD(0.1, epochs=2, batch_size=10), "rounds": 3, "participation": 0.5,
            "progress": False}  # fmt: skip


def _ragged(digits, sizes=(1, 5, 13, 22), seed=0) -> Federation:
    """Clients of the given sizes over the first digits, each tested on the last fifty."""
    total = sum(sizes)
    train = Samples(digits.x, torch.arange(total), digits.y[:total], torch.tensor([0, *sizes]).cumsum(0))
    last = torch.arange(len(digits.x) - 50, len(digits.x))
    test = Samples(digits.x, last, digits.y[last], torch.tensor([0, 50]))
    zero = torch.zeros(len(sizes), dtype=torch.int64)
    return Federation("ragged", train, test, zero, None, digits.classes, digits.scale, 0.0, 1.0, None, {})


@pytest.fixture(scope="session")
def ragged(digits):
    """Make a federation of clients with the given numbers of images."""
    return lambda *sizes: _ragged(digits, sizes)
