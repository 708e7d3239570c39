"""Many runs side by side, and looking at what came of them."""

import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

from cflkit.engine.checkpoint import BusyError
from cflkit.engine.history import History
from cflkit.workbook import (
    compare,
    console,
    console_runs,
    notebooks,
    parameters,
    places,
    records,
    rerun,
    runs,
    spread,
    sweep,
)


@pytest.fixture
def threads(monkeypatch):
    """Threads in place of processes, which take seconds to start."""
    monkeypatch.setattr(spread, "workers", lambda jobs: spread.executor("concurrent.futures.ThreadPoolExecutor", 1))


# ---------------------------------------------------------------------- the engine
def give(value, seconds):
    return value, seconds


def fail(error, seconds):
    raise error


def lock_of_bars(seconds):
    return type(tqdm.get_lock()).__module__


def die(seconds):
    os.kill(os.getpid(), 9)


@pytest.mark.parametrize("pool", [None, spread.Pool(lambda: ThreadPoolExecutor(2), 2)], ids=["here", "threads"])
def test_every_task_has_one_outcome(pool):
    tasks = [partial(give, 5), partial(fail, BusyError("b")), partial(fail, KeyError("k")), partial(give, 7)]
    begun = []
    found = {o.number: o for o in spread.spread(tasks, pool, begun=begun.append)}
    assert sorted(begun) == sorted(found) == [0, 1, 2, 3]
    assert found[0].value == (5, None) and found[3].value == (7, None) and isinstance(found[1].error, BusyError)
    assert str(found[2].error) == "KeyError: 'k'" and found[0].error is None


@pytest.mark.parametrize("pool", [None, spread.Pool(lambda: ThreadPoolExecutor(1), 1)], ids=["here", "threads"])
def test_nothing_begins_when_time_is_up(pool, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("cflkit.workbook.spread.time.monotonic", lambda: now[0])

    def work(seconds):
        now[0] += 4
        return seconds

    assert [o.value for o in spread.spread([work] * 9, pool, 10)] == [10, 6, 2]
    assert [o.value for o in spread.spread([work] * 2, pool)] == [None, None]


def test_a_dead_worker_sinks_nobody(capfd):
    tasks = [partial(give, 1), die, partial(give, 2), partial(give, 3), lock_of_bars]
    found = {o.number: o for o in spread.spread(tasks, spread.workers(2))}
    assert found[4].value == "_thread"  # no semaphore, which a killed worker would leave behind
    assert [found[n].value for n in (0, 2, 3)] == [(1, None), (2, None), (3, None)]
    assert str(found[1].error) == "the worker that was at work on it died"


def test_no_more_run_than_there_is_room_for():
    running, most, lock = [0], [0], threading.Lock()

    def work(seconds):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.01)
        with lock:
            running[0] -= 1

    assert len(list(spread.spread([work] * 12, spread.Pool(lambda: ThreadPoolExecutor(8), 3)))) == 12
    assert 1 <= most[0] <= 3


# ---------------------------------------------------------------------- what is typed
@given(st.lists(st.lists(st.integers()) | st.integers() | st.from_regex("[a-z]+", fullmatch=True), min_size=1))
def test_lists_of_values_are_read_back(values):
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    assert console_runs._parts(",".join(texts)) == texts


# ---------------------------------------------------------------------- sweeps
def test_every_combination_is_run_once(toy, threads, capsys):
    command = ["sweep", "simulate", "--protocol", "toy", "a", "-p", "lr=0.1,0.3", "-p", "rounds=1,2"]
    command += ["--seeds", "0,1"]
    assert console.main(command) == 0
    said = capsys.readouterr().out.splitlines()
    files = sorted((toy / "runs" / "toy").glob("a,*.json"))
    assert len(files) == 8 and said[7].startswith("8 of 8: ")
    assert said[8].split() == ["lr", "rounds", "seeds", "accuracy", "own_accuracy", "down", "up"]
    table = [line.split()[:3] for line in said[9:13]]
    assert table == [["0.1", "1", "2"], ["0.1", "2", "2"], ["0.3", "1", "2"], ["0.3", "2", "2"]]
    assert {file.suffix for file in (toy / "runs" / "toy").glob("sweep-*")} == {".csv", ".png"}
    stamps = [file.stat().st_mtime_ns for file in files]
    assert console.main(command) == 0 and capsys.readouterr().out.count("; was there\n") == 8
    assert [file.stat().st_mtime_ns for file in files] == stamps
    assert not list((toy / "runs" / "toy").glob("*.lock"))


def test_a_sweep_says_what_failed_and_ends_with_the_rest(toy, threads, capsys):
    assert console.main(["sweep", "simulate", "ifca", "--clients", "4", "-p", "k=2,9", "-p", "rounds=1"]) == 1
    said = capsys.readouterr()
    assert said.err == "cflkit: k=9, seed 0 failed: k = 9: must be at most the number of clients, 4\n"
    assert len(list((toy / "runs").glob("*/*.json"))) == 1


def test_damaged_and_foreign_records_are_named_and_sink_nobody(toy, threads, capsys):
    command = ["sweep", "simulate", "fedavg", "--clients", "4", "-p", "rounds=2", "-p", "lr=0.1,0.2,0.3"]
    assert console.main(command) == 0
    folder = toy / "runs" / "rotated-digits"
    cut, foreign, good = sorted(folder.glob("fedavg,*.json"))
    cut.write_text(cut.read_text()[:-9])
    record = json.loads(foreign.read_text())
    foreign.write_text(json.dumps(record | {"format": 99}))
    (folder / "stranger.json").write_text("{}")  # nobody's business
    stamp = good.stat().st_mtime_ns
    capsys.readouterr()
    assert console.main(command) == 1
    said = capsys.readouterr()
    first, second = said.err.splitlines()
    assert first.startswith("cflkit: lr=0.1, seed 0 failed: rotated-digits/fedavg,")
    assert first.endswith(f"; delete {cut.relative_to(toy)} to run it again")
    assert "lr=0.2, seed 0 failed: " in second and "format = 99: must be 1 or" in second
    table = [line.split()[:2] for line in said.out.splitlines()]
    assert ["0.3", "1"] in table and ["0.1", "1"] not in table
    cut.unlink()
    foreign.unlink()
    assert console.main(command) == 0 and good.stat().st_mtime_ns == stamp


def test_a_damaged_checkpoint_fails_one_run_and_is_left_alone(toy, threads, capsys):
    command = ["sweep", "simulate", "fedavg", "--clients", "4", "-p", "rounds=2", "-p", "lr=0.1,0.2"]
    assert console.main(command) == 0
    (record,) = (toy / "runs" / "rotated-digits").glob("fedavg,*lr=0.1*.json")
    kept = record.with_name(runs.read(record).name.split("/")[1] + "-s0")
    record.unlink()
    kept.mkdir()
    (kept / "state.pt").write_bytes(b"cut")
    assert console.main(command) == 1
    said = capsys.readouterr().err
    assert said.startswith("cflkit: lr=0.1, seed 0 failed: ") and "state.pt" in said and said.count("\n") == 1
    assert (kept / "state.pt").read_bytes() == b"cut" and not kept.with_name(f"{kept.name}.lock").exists()


@pytest.mark.slow
def test_a_dask_cluster_is_used_by_address(toy, tmp_path_factory, capsys, monkeypatch):
    """A scheduler and two workers, started in another folder; they leave nothing there."""
    distributed = pytest.importorskip("distributed")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    command = ["sweep", "simulate", "ifca", "--clients", "4", "-p", "k=2,9", "-p", "rounds=1", "--seeds", "0,1"]
    local = {"host": "127.0.0.1", "dashboard_address": None, "threads_per_worker": 1, "silence_logs": 40}
    with distributed.LocalCluster(n_workers=2, local_directory=str(elsewhere / "dask"), **local) as cluster:
        monkeypatch.chdir(toy)
        assert console.main([*command, "--dask", cluster.scheduler_address]) == 1
        said = capsys.readouterr()
        failed = sorted(line.partition(" failed: ")[0] for line in said.err.splitlines())
        assert failed == ["cflkit: k=9, seed 0", "cflkit: k=9, seed 1"]
        files = sorted((toy / "runs" / "rotated-digits").glob("ifca,*.json"))
        assert len(files) == 2 and said.out.count(str(files[0].relative_to(toy))) == 1
        chapter = ["sweep", "run", "c.ipynb", "-p", "tau=0.25,0.75", "--dask", cluster.scheduler_address]
        _chapter(toy / "c.ipynb")
        assert console.main(chapter) == 0
    here = {file.name: _measured(file) for file in files}
    for file in files:
        file.unlink()
    assert console.main([*command, "--jobs", "1"]) == 1
    assert {file.name: _measured(file) for file in files} == here
    assert not [path for path in elsewhere.iterdir() if path.name != "dask"]
    line = "must be the address of a scheduler that answers"
    assert console.main([*command, "--dask", "tcp://127.0.0.1:9"]) == 2 and line in capsys.readouterr().err


def _measured(file):
    """All of a record but when and how fast it was made."""
    record = json.loads(file.read_text())
    return {name: part for name, part in record.items() if name != "provenance"}


def _chapter(path):
    """Write a chapter with two methods, which fails after its comparison."""
    import nbformat

    cell = nbformat.v4.new_code_cell("tau: float = 0.5  # a threshold [0, 1]\nseed: int = 0  # of all [0, 9]",
                                     metadata={"tags": ["parameters"]})  # fmt: skip
    work = "found = {n: {'round': 1, 'down': 1, 'accuracy': tau / 2 + seed / 10} for n in ('one', 'two')}"
    compared = nbformat.v4.new_code_cell(work, metadata={"tags": ["comparison"]})
    cells = [cell, compared, nbformat.v4.new_code_cell("1 / 0  # never reached")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


def test_a_chapter_is_swept_as_a_function(toy, capsys):
    _chapter(toy / "c.ipynb")
    assert console.main(["sweep", "run", "c.ipynb", "-p", "tau=0.25,0.75", "--seeds", "1-3", "--jobs", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[7].split() == ["0.25", "one", "3", "0.3250", "±", "0.1000"] and len(said) == 13
    assert console.main(["runs"]) == 0
    assert [line.split()[:3] for line in capsys.readouterr().out.splitlines()][::3] == [
        ["c-demonstration/tau=0.25", "seed", "1"], ["c-demonstration/tau=0.75", "seed", "1"]]  # fmt: skip
    assert console.main(["compare", "c-demonstration/*"]) == 0
    said = capsys.readouterr().out
    assert "tau: A 0.25, B 0.75\n" in said
    assert "B - A: +0.2500 over 3 seeds, 95% interval +0.2500 to +0.2500" in said


def test_the_chapters_that_a_sweep_takes(capsys):
    """Those that compare methods; `own` and `scale` are left out."""
    assert sweep.chapters() == ["baselines", "fedcg", "fesem", "foundations", "lcfed", "mdicfl", "stocfl"]
    with pytest.raises(SystemExit):
        console.main(["sweep", "run", "--help"])
    assert f"\nchapters: {', '.join(sweep.chapters())}\n" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("chapter", sweep.chapters())
def test_a_chapter_has_something_to_sweep(chapter, tmp_path):
    path = notebooks.chapter(chapter).resolve()
    schema = parameters.of(path)
    least = get_args(schema.parameters["rounds"].hint)[1].low
    file = rerun.demonstrate(path, schema.values({"rounds": int(least)}), tmp_path / "c" / "p" / "run.json")
    scores = [run["final"] for of_seeds in rerun.read(file)["metrics"].values() for run in of_seeds]
    assert len(scores) >= 3 and all({"accuracy", "personal_accuracy"} & row.keys() for row in scores)


def test_a_tagged_cell_without_a_comparison_fails_in_one_line(toy, capsys):
    _chapter(toy / "c.ipynb")
    (toy / "c.ipynb").write_text((toy / "c.ipynb").read_text().replace("('one', 'two')", "('one',)"))
    assert console.main(["sweep", "run", "c.ipynb", "--jobs", "1"]) == 2
    line = "seed 0 failed: c.ipynb: methods that its cell `comparison` compares = 0: must be two or more"
    assert line in capsys.readouterr().err


def test_a_parameter_that_changes_nothing_is_said_to(toy, capsys):
    """A chapter may use it after its comparison only."""
    def swept():
        assert console.main(["sweep", "run", "c.ipynb", "-p", "tau=0.25,0.75", "--jobs", "1"]) == 0
        return "\ntau: changes nothing that is compared here\n" in capsys.readouterr().out

    _chapter(toy / "c.ipynb")
    assert not swept()
    (toy / "c.ipynb").write_text((toy / "c.ipynb").read_text().replace("tau / 2", "0.5"))
    assert not swept()  # what is there is not run again
    assert console.main(["runs", "c-demonstration/*", "--delete"]) == 0
    assert swept()


def test_a_method_without_a_metric_is_not_in_its_figure(tmp_path):
    """Clients that train alone have no accuracy on their cluster's test, only their own."""
    points, files = [], {}
    for tau in ("0.25", "0.75"):
        files[len(points)] = tmp_path / f"tau={tau}" / "run.json"
        points.append(sweep.Point({"tau": tau}, 0, None, tau))
        rows = {"one": {"accuracy": 0.5, "personal_accuracy": 0.5}, "local": {"personal_accuracy": 0.25}}
        metrics = {label: [{"final": row, "rounds": [row]}] for label, row in rows.items()}
        rerun.write(files[len(points) - 1], "c", {"tau": float(tau)}, metrics, 1.0)
    (written,) = [file for file in sweep.store(points, files, tmp_path) if file.suffix == ".png"]
    assert written.stat().st_size > 0
    frame, figure = sweep.report(points, files)
    assert "–" in (said := sweep.lines(frame)) and "nan" not in said
    assert len(frame) == 4 and [text.get_text() for text in figure.axes[0].texts] == ["one"]


def test_reruns_without_metrics_are_listed_and_have_nothing_to_compare(toy, capsys):
    rerun.write(Path("runs/own/default/run.json"), "own", {"rounds": 2}, {}, 1.0)
    rerun.write(Path("runs/own/rounds=3/run.json"), "own", {"rounds": 3}, {}, 1.0, "own.ipynb: ValueError: three")
    alone = {"local": [{"final": {"personal_accuracy": 0.25}, "rounds": [{"personal_accuracy": 0.25}]}]}
    rerun.write(Path("runs/own/rounds=4/run.json"), "own", {"rounds": 4}, alone, 1.0)
    assert console.main(["runs"]) == 0
    none, failed, personal = capsys.readouterr().out.splitlines()
    assert "no metrics" in none and "failed" not in none
    assert failed.endswith("  failed") and "personal 0.2500" in personal
    assert console.main(["compare", "own/default", "own/rounds=3"]) == 2
    said = capsys.readouterr()
    line = "cflkit: run = 'own/default, own/rounds=3': must be one that has metrics; a chapter that compares"
    assert said.err.startswith(line) and said.err.count("\n") == 1 and not said.out
    assert console.main(["compare", "own/*"]) == 0 and "rounds: A 2, B 3, C 4\n" in capsys.readouterr().out


def test_another_sweep_leaves_the_files_of_an_earlier_one(toy, threads, capsys):
    """Though both vary the same, in the same folder; what each was given once tells them apart."""
    def swept(*more):
        assert console.main(["sweep", "simulate", *more, "--clients", "4", "-p", "rounds=1,2"]) == 0
        return {file.name for file in map(Path, capsys.readouterr().out.splitlines()[-2:])}

    folder = toy / "runs" / "rotated-digits"
    first = swept("fedavg")
    kept = {name: (folder / name).stat().st_ino for name in first}
    others = [swept("ifca", "-p", "k=2"), swept("ifca", "-p", "k=3"), swept("fedavg", "-p", "lr=0.2")]
    assert len(set().union(first, *others)) == 8 == len(list(folder.glob("sweep-*")))
    assert {name: (folder / name).stat().st_ino for name in first} == kept
    assert swept("fedavg") == first and not list(folder.glob(".*.part"))  # the same one renews its own


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("old")
    with pytest.raises(OSError, match="No space left"), places.whole(file) as part:
        part.write_text("new, but cu")
        raise OSError(28, "No space left on device")
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"] and file.read_text() == "old"
    with places.whole(file) as part:
        part.write_text("new")
        assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"] and file.read_text() == "new"


def test_runs_are_listed_found_and_deleted(toy, capsys):
    assert console.main(["runs"]) == 0 and capsys.readouterr().out == "nothing was run in runs\n"
    for seed in "01":
        assert console.main(["simulate", "fedavg", "--clients", "4", "-p", "rounds=1", "--seed", seed]) == 0
    capsys.readouterr()
    (toy / "runs" / "rotated-digits" / "fedavg-0-s7.json").write_text("{}")
    assert console.main(["runs", "*/fedavg,*"]) == 0
    said = capsys.readouterr().out.splitlines()
    name = "rotated-digits/fedavg,clients=4,rounds=1"
    assert [line.split()[:3] for line in said[:2]] == [[name, "seed", "0"], [name, "seed", "1"]]
    assert said[2].startswith("left out: rotated-digits/fedavg-0-s7.json: ") and len(said) == 3
    assert console.main(["runs", "rotated-digits/fedavg,clients=4,rounds=1", "--delete"]) == 0
    assert capsys.readouterr().out.count("deleted: ") == 2
    assert [file.name for file in (toy / "runs" / "rotated-digits").iterdir()] == ["fedavg-0-s7.json"]


# ---------------------------------------------------------------------- comparing
def one(name, seed, accuracy, **parameters):
    row = {"round": 1, "accuracy": accuracy, "clusters": 2}
    return runs.Run(name, seed, parameters, {"m": [row]}, {"m": [[row | {"round": 0}, row]]}, "", 1.0, None)


def test_differences_are_paired_where_seeds_agree():
    groups = {"x": [one("x", s, 0.5 + s / 10, tau=1, k=2) for s in (0, 1, 2)],
              "y": [one("y", s, 0.6 + s / 10, tau=2, k=2) for s in (1, 2, 3)]}  # fmt: skip
    assert compare.differing(groups) == {"tau": [1, 2]}
    assert compare.scores(groups["x"])["accuracy"] == {0: 0.5, 1: 0.6, 2: 0.7}
    lines = compare.table(groups)
    assert lines[:3] == ["A: x (seeds 0, 1, 2)", "B: y (seeds 1, 2, 3)", "tau: A 1, B 2"]
    assert lines[4].split() == ["accuracy", "0.6000", "±", "0.1000", "0.8000", "±", "0.1000"]
    assert lines[5].strip() == "B - A: +0.1000 over 2 seeds, 95% interval +0.1000 to +0.1000"
    assert [axes.get_xlabel() for axes in compare.figure(groups).axes] == ["round"]


def test_all_numbers_that_runs_share_are_compared():
    def with_row(name, **final):
        return [replace(one(name, s, 0.5), metrics={"m": [{"round": 1, "accuracy": 0.5, **final}]}) for s in (0, 1)]

    groups = {"x": with_row("x", global_accuracy=0.25, f1=0.75, lam=[1], diverged=True),
              "y": with_row("y", global_accuracy=0.5, f1=0.5, lam=[2], nmi=1.0)}  # fmt: skip
    lines = compare.table(groups)
    assert [line.split()[0] for line in lines if line[0] not in " AB"] == ["accuracy", "global_accuracy", "f1"]
    assert lines[-1].strip() == "B - A: -0.2500 over 2 seeds, 95% interval -0.2500 to -0.2500"


def test_runs_without_a_curve_have_no_figure(tmp_path, capsys, monkeypatch):
    short = {"x": [replace(one("x", 0, 0.5), rounds={"m": [[{"round": 1, "accuracy": 0.5}]]})]}
    monkeypatch.setattr(runs, "find", lambda *_: short)
    assert console.main(["compare", "x", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.endswith("no figure: no run has several rounds with a number 'accuracy'\n")


def test_a_name_in_two_folders_is_two_sides_of_a_comparison(toy, capsys, monkeypatch):
    monkeypatch.setattr(records, "FOLDER", toy / "book")
    simulate = ["simulate", "--protocol", "toy", "a"]
    assert console.main([*simulate, "--out", "book"]) == console.main([*simulate, "--out", "again"]) == 0
    assert console.main([*simulate, "-p", "lr=0.2", "--out", "again"]) == 0
    capsys.readouterr()
    compared = ["compare", "--out", "again", "toy/*", "toy/a"]
    assert console.main(compared) == 0
    said = capsys.readouterr().out.splitlines()
    sides = ["A: toy/a (again) (seeds 0)", "B: toy/a,lr=0.2 (seeds 0)", "C: toy/a (book) (seeds 0)"]
    assert said[:3] == sides and "local.lr: A 0.1, B 0.2, C 0.1" in said[3:]
    first = Path(said[-1])
    assert console.main([*compared[:3], "toy/a"]) == console.main([*compared, "--metric", "own_accuracy"]) == 0
    assert len(list((toy / "again").glob("compare-*.png"))) == 3  # an earlier picture stays
    stamp = first.stat().st_mtime_ns
    assert console.main(compared) == 0 and first.stat().st_mtime_ns > stamp
    capsys.readouterr()
    assert console.main([*compared, "--metric", "acuracy"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("cflkit: metric = 'acuracy': must be one of accuracy, ")


def test_only_records_of_the_names_given_are_read(toy, monkeypatch):
    for beside in ([], ["-p", "lr=0.2"]):
        assert console.main(["simulate", "--protocol", "toy", "a", *beside, "--out", "again"]) == 0
    seen = []
    monkeypatch.setattr(records, "read", lambda file, read=records.read: seen.append(file.name) or read(file))
    (name,) = runs.find(["toy/a"], [toy / "again"])
    assert name == "toy/a" and len(seen) == 1 and seen[0].startswith("a-")
    (toy / "again" / "toy" / seen[0]).write_text("{")
    assert set(runs.find(["toy/*"], [toy / "again"])) == {"toy/a,lr=0.2"}
    with pytest.raises(ValueError, match=re.escape(f"toy/{seen[0]}")):
        runs.find(["toy/a"], [toy / "again"])
    with pytest.raises(ValueError, match=r"run = 'toy/b': must be one of toy/a, toy/a,lr=0\.2 "):
        runs.find(["toy/b"], [toy / "again"])


def test_a_metric_of_earlier_rounds_may_be_asked_for():
    """A method's own log may leave a number out of the last round."""
    end, early = {"accuracy": 0.5, "name": "no number"}, {"drift": 0.1}
    run = runs.Run("a/b", 0, {}, {"b": [end]}, {"b": [[early, end]]}, "", 0.0, Path())
    assert compare.numbers({"a/b": [run]}) == ["accuracy", "drift"]


def test_a_run_that_has_diverged_is_marked_wherever_it_is_shown(toy, threads, capsys):
    command = ["sweep", "simulate", "--protocol", "toy", "a", "-p", "lr=0.1,1e5", "--seeds", "0"]
    with pytest.warns(RuntimeWarning, match="has diverged"):
        assert console.main(command) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.endswith("; diverged") for line in said[:2]] == [False, True]
    (table,) = toy.glob("runs/*/sweep-*.csv")
    assert pd.read_csv(table)["diverged"].tolist() == [0, 1]
    console.main(["runs"])
    listed = capsys.readouterr().out.splitlines()
    assert [line.endswith("  diverged") for line in listed] == ["lr=1e5" in line for line in listed]
    console.main(["compare", "toy/*"])
    assert "lr=1e5 (seeds 0), diverged: seed 0\n" in capsys.readouterr().out


def test_a_chapter_keeps_the_mark_of_what_has_diverged(tmp_path):
    rows = [{"round": 0, "down": 0, "sizes": [2], "flag": True}, {"round": 1, "down": 3, "diverged": True}]
    found = rerun.compared({"h": {"a": rows[0], "b": History(rows, [])}})
    kept = [{"round": 0, "down": 0}, {"round": 1, "down": 3, "diverged": True}]
    assert found["b"] == [{"final": kept[1], "rounds": kept}] and found["a"][0]["final"] == kept[0]
    several = runs.Run("c/x", 4, {}, {"a": [kept[0]], "b": [kept[1]]}, {"a": [kept[:1]], "b": [kept]}, "", 1, None)
    assert several.diverged == ["b"] and compare.table({"x": [several]})[0] == "A: x (seeds 4), diverged: b, seed 4"


def test_points_vary_in_what_was_given_several_values(toy):
    made_of = sweep.of_plans({"a": partial(console_runs._of_protocol, "toy", "a", {})},
                             {"lr": ["0.1", "0.2"], "rounds": ["2"]}, [0, 1], toy)  # fmt: skip
    assert [(point.values, point.seed) for point in made_of] == [
        ({"lr": "0.1"}, 0), ({"lr": "0.1"}, 1), ({"lr": "0.2"}, 0), ({"lr": "0.2"}, 1)]  # fmt: skip
