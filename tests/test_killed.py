"""Killed at random moments, alone or with another process at work beside it: the records of a whole run."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import made
import pytest

ROOT = Path(__file__).resolve().parents[1]
KILLS = 20
DRIVER = """
import sys
from pathlib import Path
from cflkit.workbook import console, papers
papers.PAPERS = Path(sys.argv[1])
sys.exit(console.main(sys.argv[2:]))
"""
COMMANDS = {
    "reproduce": ["reproduce", "t", "--out", "out"],
    "reproduce on two workers": ["reproduce", "t", "--out", "out", "--jobs", "2"],
    "simulate": ["simulate", "--protocol", "toy", "--seeds", "0-1", "--out", "out"],
    "sweep": ["sweep", "simulate", "--protocol", "toy", "--seeds", "0-1", "--out", "out", "--jobs", "2"],
}


def start(folder, command):
    settings = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    return subprocess.Popen([sys.executable, "-c", DRIVER, str(folder), *command], cwd=folder, env=settings,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip


def newest(folder):
    """When the latest checkpoint or record was written."""
    times = [0]
    for file in [*folder.rglob("state.pt"), *folder.glob("out/toy/*.json")]:
        try:
            times.append(file.stat().st_mtime_ns)
        except FileNotFoundError:  # replaced meanwhile
            continue
    return max(times)


def written(folder):
    """All records, timings aside."""
    texts = {file.name: file.read_text() for file in folder.glob("out/toy/*.json")}
    return {name: re.sub(r'"seconds": [\d.]+', "", text) for name, text in texts.items()}


def left_over(folder):
    """Whatever lies about that is no record."""
    names = {path.name for root in ("runs/toy", "out/toy") for path in folder.glob(f"{root}/*")}
    return {name for name in names if not re.fullmatch(r"[abc]-\w+-s\d\.json|sweep-\w+\.(csv|png)", name)}


@pytest.fixture
def toy(tmp_path):
    made.experiment(tmp_path, rounds=60, a={"name": "fedavg"}, b={"name": "ditto"}, c={"name": "stocfl"})
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("beside", [1, 2], ids=["alone", "two processes"])
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_random_moments(name, beside, toy):
    draw, command = random.Random(f"{name} {beside}"), COMMANDS[name]
    assert start(toy, command).wait() == 0
    whole = written(toy)
    assert len(whole) == 6 and not left_over(toy)
    kills, running = 0, []
    _clear(toy)
    while kills < KILLS:
        running = [process for process in running if process.poll() is None]
        if not running and len(written(toy)) == 6:
            assert written(toy) == whole
            _clear(toy)
        while len(running) < beside:
            running.append(start(toy, command))
        began, one = time.time_ns(), draw.choice(running)
        while one.poll() is None and newest(toy) < began:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.3))
        if one.poll() is None:
            one.send_signal(signal.SIGKILL)
            one.wait()
            kills += 1
    for process in running:
        process.wait()
    assert start(toy, command).wait() == 0
    assert written(toy) == whole and not left_over(toy)
    stamps = {file: file.stat().st_mtime_ns for file in toy.glob("out/toy/*.json")}
    assert start(toy, command).wait() == 0
    assert {file: file.stat().st_mtime_ns for file in toy.glob("out/toy/*.json")} == stamps


def _clear(folder):
    for file in folder.glob("out/toy/*"):
        if file.is_file():
            file.unlink()
