"""What the tests share: one thread, so that runs can be compared bit by bit, and a small real federation."""

import os
import shutil

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, and for the processes that tests start
os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is: a GPU's kernels run on a processor then

import made
import pytest
import torch
from hypothesis import Phase, settings

from cflkit import federation, images
from cflkit.data.federation import Federation, Samples
from cflkit.engine.sgd import SGD
from cflkit.workbook import places

torch.set_num_threads(1)
settings.register_profile("cflkit", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("cflkit")
settings.register_profile("unshrunk", settings.get_profile("cflkit"), phases=[Phase.explicit, Phase.generate])


@pytest.fixture(scope="module")
def chromium():
    """A headless Chromium."""
    play = pytest.importorskip("playwright.sync_api", reason="requirements-browser.txt")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium: install it, or name it in CHROMIUM")
    with play.sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Open a file of this disk. What its scripts complain of, and what it asks the network for, fails the test."""
    contexts = []

    def open_(address, width=1280, height=800, script="", **more):
        contexts.append(chromium.new_context(viewport={"width": width, "height": height}, **more))
        contexts[-1].add_init_script(script)
        page = contexts[-1].new_page()
        page.wrong, page.asked = [], []
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.on("console", lambda said: page.wrong.append(said.text) if said.type == "error" else None)
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(f"file://{address}")
        return page

    yield open_
    for page in [page for context in contexts for page in context.pages]:
        assert page.wrong == []
        assert [url for url in page.asked if not url.startswith(("file:", "data:", "blob:"))] == []
    for context in contexts:
        context.close()


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
    monkeypatch.setattr(places, "PAPERS", tmp_path)
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


@pytest.fixture
def uneven(ragged):
    """Four clients of 2, 5, 13 and 22 real digits."""
    return ragged(2, 5, 13, 22)


@pytest.fixture(scope="session")
def pictures():
    """Ten clients of two 28 x 28 pictures each."""
    pool = torch.randint(0, 256, (20, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    rows = torch.arange(20)
    train = Samples(pool, rows, rows // 2, torch.arange(0, 21, 2))
    test = Samples(pool, rows[:1], rows[:1], torch.tensor([0, 1]))
    return Federation("pictures", train, test, 0 * rows[:10], None, 10, 255.0, 0.0, 1.0, None, {})
