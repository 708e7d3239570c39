"""Killed at random moments, alone or with another process at work beside it: the records of a whole run."""

import contextlib
import os
import random
import re
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context

import made
import psutil
import pytest

from cflkit.workbook import console, places
from cflkit.workbook.runs import pool, run

KILLS = 20
COMMANDS = {
    "reproduce": ["reproduce", "t", "--out", "out"],
    "reproduce on two workers": ["reproduce", "t", "--out", "out", "--jobs", "2"],
    "simulate": ["simulate", "--protocol", "toy", "--seeds", "0-1", "--out", "out", "--jobs", "1"],
    "sweep": ["simulate", "--protocol", "toy", "--seeds", "0-1", "--out", "out", "--jobs", "2"],
}


def start(folder, command):
    """Begin the command in a process that need not import PyTorch again."""
    process = get_context("fork").Process(target=_main, args=(folder, command))
    process.start()
    return process


def _main(folder, command):
    pool.place = _forked
    os.chdir(folder)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    places.PAPERS = folder
    os._exit(console.main(command))


@contextlib.contextmanager
def _forked(jobs, dask=None):
    """Workers as the program has them, which need not import PyTorch again either."""
    settings = {"initializer": pool._begin, "initargs": (os.getpid(),)} if jobs > 1 else {}
    with ProcessPoolExecutor(jobs, get_context("fork"), **settings) as executor:
        if jobs > 1:
            pool.run = partial(_side_by_side, executor)
        yield


def _side_by_side(executor, tasks, seconds):
    calls = [executor.submit(pool.attempt, number, task, seconds) for number, task in enumerate(tasks)]
    yield from (future.result() for future in as_completed(calls))


def status(folder, command):
    """Run the command alone, to its end."""
    while any(process.info["cwd"] == str(folder) for process in psutil.process_iter(["cwd"])):
        time.sleep(0.05)  # until the workers of what was killed have ended, too
    process = start(folder, command)
    process.join()
    return process.exitcode


def newest(folder):
    """When the latest checkpoint or record was written."""
    times = [0]
    for place, _, names in os.walk(folder):  # which passes over what vanishes meanwhile
        for name in names:
            if name == "state.pt" or name.endswith(".json"):
                with contextlib.suppress(FileNotFoundError):
                    times.append(os.stat(os.path.join(place, name)).st_mtime_ns)
    return max(times)


def written(folder):
    """All records, but for timings, and for date and commit, which may change while a long test runs."""
    texts = {file.name: file.read_text() for file in folder.glob("out/toy/*.json")}
    return {name: re.sub(r'"(date|seconds|commit|changed)": [^,}]+', "", text) for name, text in texts.items()}


def differing(ours, theirs):
    """Names of records that are not the same in both; to show where takes minutes."""
    return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))


def left_over(folder):
    """Whatever lies about that is no record."""
    names = {path.name for root in ("runs/toy", "out/toy") for path in folder.glob(f"{root}/*")}
    kept = re.compile(r"[abc]-\w+-s\d\.(json|csv|png)|sweep-\w+\.(csv|tex|png)")
    return {name for name in names if not kept.fullmatch(name)}


@pytest.fixture
def toy(tmp_path):
    made.experiment(tmp_path, rounds=30, a={"name": "fedavg"}, b={"name": "ditto"}, c={"name": "stocfl"})
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("beside", [1, 2], ids=["alone", "two processes"])
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_random_moments(name, beside, toy):
    draw, command = random.Random(f"{name} {beside}"), COMMANDS[name]
    assert status(toy, command) == 0
    whole = written(toy)
    assert len(whole) == 6
    assert not left_over(toy)
    _clear(toy)
    running = []
    try:
        _kill(toy, command, beside, draw, whole, running)
    finally:
        for process in running:  # those that are left finish, or a failure would wait for them without end
            process.join(120)
            process.kill()
    assert status(toy, command) == 0
    assert differing(written(toy), whole) == [] and not left_over(toy)
    stamps = {file: file.stat().st_mtime_ns for file in toy.glob("out/toy/*.json")}
    assert status(toy, command) == 0
    assert {file: file.stat().st_mtime_ns for file in toy.glob("out/toy/*.json")} == stamps


def test_what_a_kill_after_the_record_has_left_is_removed_by_the_next_call(tmp_path, monkeypatch):
    made.experiment(tmp_path)
    monkeypatch.chdir(toy := tmp_path)
    monkeypatch.setattr(places, "PAPERS", toy)
    assert console.main(COMMANDS["reproduce"]) == 0
    done, busy, other = (toy / "runs" / "toy" / name for name in ("a-s0", "a-s1", "a-s7"))
    for kept in (done, busy, other):
        (kept / "memory").mkdir(parents=True)
        kept.with_name(f"{kept.name}.lock").touch()
    with run.alone(busy):
        assert console.main(COMMANDS["reproduce"]) == 0
        assert busy.exists() and other.exists() and not done.exists()
    assert {path.name for path in done.parent.iterdir()} == {busy.name, other.name, f"{other.name}.lock"}


def _kill(toy, command, beside, draw, whole, running):
    """Start the command over and over, and kill it, until it was killed often enough."""
    kills = 0
    while kills < KILLS:
        running[:] = [process for process in running if process.is_alive()]
        if not running and len(written(toy)) == 6:
            assert differing(written(toy), whole) == []
            _clear(toy)
        while len(running) < beside:
            running.append(start(toy, command))
        began, one = time.time_ns(), draw.choice(running)
        while one.is_alive() and newest(toy) < began:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.3))
        if one.is_alive():
            one.kill()
            one.join()
            kills += 1


def _clear(folder):
    for file in folder.glob("out/toy/*"):
        if file.is_file():
            file.unlink()
