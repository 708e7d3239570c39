"""Many runs side by side, and looking at what came of them."""

import json
import os
import re
import shutil
import time
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
from cflkit.workbook import console, places, typed
from cflkit.workbook.chapters import compare, notebooks, parameters, rerun, runs, sweep
from cflkit.workbook.runs import pool, records


@pytest.fixture
def here(monkeypatch):
    """One after the other in this process: others take seconds to start."""
    monkeypatch.setattr(pool, "cores", lambda: 1)


# ---------------------------------------------------------------------- the engine
def give(value, seconds):
    return value, seconds


def fail(error, seconds):
    raise error


def lock_of_bars(seconds):
    return type(tqdm.get_lock()).__module__


def die(seconds):
    os.kill(os.getpid(), 9)


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_task_has_one_outcome(jobs):
    tasks = [partial(give, 5), partial(fail, BusyError("b")), partial(fail, KeyError("k")), partial(give, 7)]
    tasks += [lock_of_bars]
    begun = []
    with pool.place(jobs):
        found = {number: (value, error) for number, value, error in pool.run(tasks, begun=begun.append)}
    assert sorted(begun) == sorted(found) == [0, 1, 2, 3, 4]
    assert found[0] == ((5, None), None) and found[3] == ((7, None), None) and isinstance(found[1][1], BusyError)
    assert str(found[2][1]) == "KeyError: 'k'"
    assert jobs == 1 or found[4][0] == "_thread"  # no semaphore, which a killed worker would leave behind


def test_nothing_begins_when_time_is_up(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("cflkit.workbook.runs.pool.time.monotonic", lambda: now[0])

    def work(seconds):
        now[0] += 4
        return seconds

    with pool.place(1):
        assert [value for _, value, _ in pool.run([work] * 9, 10)] == [10, 6, 2]
        assert [value for _, value, _ in pool.run([work] * 2)] == [None, None]


def test_a_dead_worker_is_told_and_the_next_call_works():
    """What had ended is not lost, and nothing is passed over in silence."""
    with pool.place(2):
        with pytest.raises(pool.WorkerDied, match="the same command goes on"):
            list(pool.run([partial(give, 1), die, partial(give, 2), partial(give, 3)]))
        assert sorted(number for number, *_ in pool.run([partial(give, 1)] * 3)) == [0, 1, 2]


# ---------------------------------------------------------------------- what is typed
@given(st.lists(st.lists(st.integers()) | st.integers() | st.from_regex("[a-z]+", fullmatch=True), min_size=1))
def test_lists_of_values_are_read_back(values):
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    assert typed.parts(",".join(texts)) == texts


# ---------------------------------------------------------------------- sweeps
def test_every_combination_is_run_once(toy, here, capsys):
    command = ["simulate", "--protocol", "toy", "a", "-p", "lr=0.1,0.3", "-p", "rounds=1,2"]
    command += ["--seeds", "0,1"]
    assert console.main(command) == 0
    said = capsys.readouterr().out.splitlines()
    files = sorted((toy / "runs" / "toy").glob("a,*.json"))
    assert len(files) == 8 and said[7].startswith("8 of 8: ")
    assert said[8].split() == ["lr", "rounds", "seeds", "accuracy", "own_accuracy", "down", "up"]
    table = [line.split()[:3] for line in said[9:13]]
    assert table == [["0.1", "1", "2"], ["0.1", "2", "2"], ["0.3", "1", "2"], ["0.3", "2", "2"]]
    assert {file.suffix for file in (toy / "runs" / "toy").glob("sweep-*")} == {".csv", ".tex", ".png"}
    stamps = [file.stat().st_mtime_ns for file in files]
    assert console.main(command) == 0 and capsys.readouterr().out.count("; was there, made at commit ") == 8
    assert [file.stat().st_mtime_ns for file in files] == stamps
    assert not list((toy / "runs" / "toy").glob("*.lock"))


def test_a_sweep_says_what_failed_and_ends_with_the_rest(toy, here, capsys):
    assert console.main(["simulate", "ifca", "--clients", "4", "-p", "k=2,9", "-p", "rounds=1"]) == 1
    said = capsys.readouterr()
    assert said.err == "cflkit: k=9, seed 0 failed: k = 9: must be at most the number of clients, 4\n"
    assert len(list((toy / "runs").glob("*/*.json"))) == 1


def test_damaged_and_foreign_records_are_named_and_sink_nobody(toy, here, capsys):
    command = ["simulate", "fedavg", "--clients", "4", "-p", "rounds=2", "-p", "lr=0.1,0.2,0.3"]
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
    first, second = sorted(said.err.splitlines())
    assert first.startswith("cflkit: lr=0.1, seed 0 failed: rotated-digits/fedavg,")
    assert first.endswith(f"; delete {cut.relative_to(toy)} to run it again")
    assert "lr=0.2, seed 0 failed: " in second and "format = 99: must be" in second
    table = [line.split()[:2] for line in said.out.splitlines()]
    assert ["0.3", "1"] in table and ["0.1", "1"] not in table
    cut.unlink()
    foreign.unlink()
    assert console.main(command) == 0 and good.stat().st_mtime_ns == stamp


def test_a_damaged_checkpoint_fails_one_run_and_is_left_alone(toy, here, capsys):
    command = ["simulate", "fedavg", "--clients", "4", "-p", "rounds=2", "-p", "lr=0.1,0.2"]
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
    command = ["simulate", "ifca", "--clients", "4", "-p", "k=2,9", "-p", "rounds=1", "--seeds", "0,1"]
    local = {"host": "127.0.0.1", "dashboard_address": None, "threads_per_worker": 1, "silence_logs": 40}
    with distributed.LocalCluster(n_workers=2, local_directory=str(elsewhere / "dask"), **local) as cluster:
        monkeypatch.chdir(toy)
        assert console.main([*command, "--dask", cluster.scheduler_address]) == 1
        said = capsys.readouterr()
        failed = sorted(line.partition(" failed: ")[0] for line in said.err.splitlines())
        assert failed == ["cflkit: k=9, seed 0", "cflkit: k=9, seed 1"]
        files = sorted((toy / "runs" / "rotated-digits").glob("ifca,*.json"))
        assert len(files) == 2 and said.out.count(str(files[0].relative_to(toy))) == 1
        chapter = ["run", "c.ipynb", "-p", "tau=0.25,0.75", "--dask", cluster.scheduler_address]
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
    assert console.main(["run", "c.ipynb", "-p", "tau=0.25,0.75", "--seeds", "1-3", "--jobs", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[7].split() == ["0.25", "one", "3", "0.3250", "±", "0.1000"] and len(said) == 14
    assert console.main(["results"]) == 0
    listed = [line.split()[:3] for line in capsys.readouterr().out.splitlines()][::3]
    folder = listed[0][0].partition("/")[0]
    assert listed == [[f"{folder}/tau=0.25", "seed", "1"], [f"{folder}/tau=0.75", "seed", "1"]]
    assert console.main(["results", "c-*"]) == 0
    said = capsys.readouterr().out
    assert "tau: A 0.25, B 0.75\n" in said
    assert "one: accuracy, B - A: +0.2500 over 3 seeds, 95% interval +0.2500 to +0.2500" in said


def test_a_sweep_never_gives_another_notebooks_numbers_or_those_of_old_code(toy, capsys, monkeypatch):
    """A result is named after the code up to the comparison, the defaults, the folder, and the package's code."""
    def swept(path="c.ipynb"):
        assert console.main(["run", str(path), "-p", "tau=0.25,0.75", "--jobs", "1"]) == 0
        out = capsys.readouterr().out
        rows = map(str.split, out.splitlines())
        return out.count("; was there"), [row[-1] for row in rows if row[1:2] == ["one"]]

    def edited(old, new):
        (toy / "c.ipynb").write_text((toy / "c.ipynb").read_text().replace(old, new))

    _chapter(toy / "c.ipynb")
    assert swept() == (0, ["0.1250", "0.3750"]) and swept() == (2, ["0.1250", "0.3750"])
    edited("1 / 0  # never", "2 / 0  # never")
    assert swept()[0] == 2  # what comes after the comparison changes nothing of it
    edited("tau / 2", "tau / 4")
    assert swept() == (0, ["0.0625", "0.1875"])
    edited("seed: int = 0", "seed: int = 5")
    assert swept() == (0, ["0.5625", "0.6875"])
    (toy / "b").mkdir()
    shutil.copy("c.ipynb", "b")
    assert swept("b/c.ipynb")[0] == 0 and swept()[0] == 2
    with monkeypatch.context() as patch:
        patch.setattr(records, "_library", lambda: b"other code")
        assert swept()[0] == 0
    file = next(file for file in toy.glob("runs/c-*/tau=0.25/run.json") if '"seed": 5' in file.read_text())
    for one in toy.glob("runs/c-*/tau=0.25/run.json"):
        one.write_text(one.read_text().replace('"tau": 0.25', '"tau": 0.5'))
    assert file.exists() and console.main(["run", "c.ipynb", "-p", "tau=0.25,0.75", "--jobs", "1"]) == 1
    assert "tau=0.25, seed 5 failed: parameters = {'tau': 0.5, 'seed': 5}: must be" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("chapter", [path.stem for path in notebooks.chapters() if rerun.bound(path)])
def test_a_chapter_has_something_to_sweep(chapter, tmp_path):
    path = notebooks.chapter(chapter).resolve()
    schema = parameters.of(path)
    least = get_args(schema.parameters["rounds"].hint)[1].low
    file, _ = rerun.demonstrate(path, schema.values({"rounds": int(least)}), tmp_path / "c" / "p" / "run.json")
    scores = [run["final"] for of_seeds in rerun.read(file)["metrics"].values() for run in of_seeds]
    assert len(scores) >= 3 and all({"accuracy", "personal_accuracy"} & row.keys() for row in scores)


def test_a_tagged_cell_without_a_comparison_fails_in_one_line(toy, capsys):
    _chapter(toy / "c.ipynb")
    (toy / "c.ipynb").write_text((toy / "c.ipynb").read_text().replace("('one', 'two')", "('one',)"))
    assert console.main(["run", "c.ipynb", "--jobs", "1", "--seeds", "0-1"]) == 1
    line = "seed 0 failed: c.ipynb: methods that its cell `comparison` compares = 0: must be two or more"
    assert line in capsys.readouterr().err


def test_a_parameter_that_changes_nothing_is_said_to(toy, capsys):
    """A chapter may use it after its comparison only."""
    def swept():
        assert console.main(["run", "c.ipynb", "-p", "tau=0.25,0.75", "--jobs", "1"]) == 0
        return "\ntau: has no effect on what is compared here\n" in capsys.readouterr().out

    _chapter(toy / "c.ipynb")
    assert not swept()
    (toy / "c.ipynb").write_text((toy / "c.ipynb").read_text().replace("tau / 2", "0.5"))
    assert swept()


def test_a_method_without_a_metric_is_not_in_its_figure(tmp_path):
    """Clients that train alone have no accuracy on their cluster's test, only their own."""
    points, found = [], {}
    for tau in ("0.25", "0.75"):
        file = tmp_path / f"tau={tau}" / "run.json"
        points.append(sweep.Point({"tau": tau}, 0, None, f"c/{tau}"))
        rows = {"one": {"accuracy": 0.5, "personal_accuracy": 0.5}, "local": {"personal_accuracy": 0.25}}
        metrics = {label: [{"final": row, "rounds": [row]}] for label, row in rows.items()}
        rerun.write(file, "c", {"tau": float(tau)}, metrics, 1.0)
        found[len(found)] = runs.read(file)
    frame, files = sweep.store(points, found, tmp_path)
    assert [file.suffix for file in files] == [".csv", ".tex", ".png"] and files[2].stat().st_size > 0
    assert "–" in (said := sweep.text(frame).to_string()) and "nan" not in said
    assert len(frame) == 4 and r"0.25 & local & 1 & – & 0.2500 \\" in files[1].read_text()
    figure = sweep.figure(frame, points, found)
    assert [text.get_text() for text in figure.axes[0].texts] == ["one"]


def test_reruns_without_metrics_are_listed_and_have_nothing_to_compare(toy, capsys):
    rerun.write(Path("runs/own/default/run.json"), "own", {"rounds": 2}, {}, 1.0)
    rerun.write(Path("runs/own/rounds=3/run.json"), "own", {"rounds": 3}, {}, 1.0, "own.ipynb: ValueError: three")
    alone = {"local": [{"final": {"personal_accuracy": 0.25}, "rounds": [{"personal_accuracy": 0.25}]}]}
    rerun.write(Path("runs/own/rounds=4/run.json"), "own", {"rounds": 4}, alone, 1.0)
    assert console.main(["results"]) == 0
    none, failed, personal = capsys.readouterr().out.splitlines()
    assert "no metrics" in none and "failed" not in none
    assert failed.endswith("  failed") and "personal 0.2500" in personal
    assert console.main(["results", "own/default", "own/rounds=3"]) == 2
    said = capsys.readouterr()
    line = "cflkit: run = 'own/default, own/rounds=3': must be one that has metrics; a chapter that compares"
    assert said.err.startswith(line) and said.err.count("\n") == 1 and not said.out
    assert console.main(["results", "own/*"]) == 0 and "rounds: A 2, B 3, C 4\n" in capsys.readouterr().out


def test_another_sweep_leaves_the_files_of_an_earlier_one(toy, here, capsys):
    """Though both vary the same, in the same folder; what each was given once tells them apart."""
    def swept(*more):
        assert console.main(["simulate", *more, "--clients", "4", "-p", "rounds=1,2"]) == 0
        return {file.name for file in map(Path, capsys.readouterr().out.splitlines()[-3:])}

    folder = toy / "runs" / "rotated-digits"
    first = swept("fedavg")
    kept = {name: (folder / name).stat().st_ino for name in first}
    others = [swept("ifca", "-p", "k=2"), swept("ifca", "-p", "k=3"), swept("fedavg", "-p", "lr=0.2")]
    assert len(set().union(first, *others)) == 12 == len(list(folder.glob("sweep-*")))
    assert {name: (folder / name).stat().st_ino for name in first} == kept
    assert swept("fedavg") == first and not list(folder.glob(".*.part"))  # the same one renews its own


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("old")
    ours, theirs, old = (tmp_path / f".table.csv.{name}.part" for name in ("host.1", "host.more.2", "3"))
    for left in (ours, theirs, old):
        left.touch()
    os.utime(old, (time.time() - 2 * places.DAY,) * 2)
    with pytest.raises(OSError, match="No space left"), places.atomic_write(file) as part:
        part.write_text("new, but cu")
        raise OSError(28, "No space left on device")
    assert not part.exists() and file.read_text() == "old"
    with places.atomic_write(file) as part, places.atomic_write(file) as other:
        part.write_text("new")
        other.write_text("newer")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"table.csv", ours.name, theirs.name}  # of somebody, alive


def test_runs_are_listed_found_and_deleted(toy, capsys):
    assert console.main(["results"]) == 0 and capsys.readouterr().out == "nothing was run in runs\n"
    for seed in "01":
        assert console.main(["simulate", "fedavg", "--clients", "4", "-p", "rounds=1", "--seed", seed]) == 0
    capsys.readouterr()
    (toy / "runs" / "rotated-digits" / "fedavg-0-s7.json").write_text("{}")
    assert console.main(["results"]) == 0
    said = capsys.readouterr().out.splitlines()
    name = "rotated-digits/fedavg,clients=4,rounds=1"
    assert [line.split()[:3] for line in said[:2]] == [[name, "seed", "0"], [name, "seed", "1"]]
    assert said[2].startswith("left out: rotated-digits/fedavg-0-s7.json: ") and len(said) == 3
    assert console.main(["results", "rotated-digits/fedavg,clients=4,rounds=1", "--delete"]) == 0
    assert capsys.readouterr().out.count("deleted: ") == 2
    assert [file.name for file in (toy / "runs" / "rotated-digits").iterdir()] == ["fedavg-0-s7.json"]
    assert console.main(["results", "rotated-digits/*"]) == 2  # a pattern that only a damaged file has
    assert capsys.readouterr().err.startswith("cflkit: rotated-digits/fedavg-0-s7.json: ")


# ---------------------------------------------------------------------- comparing
def one(name, seed, accuracy, **parameters):
    row = {"round": 1, "accuracy": accuracy, "clusters": 2}
    return runs.Run(name, seed, parameters, {"m": [row]}, {"m": [[row | {"round": 0}, row]]}, "", 1.0, None)


def test_differences_are_paired_where_seeds_agree():
    groups = {"x": [one("x", s, 0.5 + s / 10, tau=1, k=2) for s in (0, 1, 2)],
              "y": [one("y", s, 0.6 + s / 10, tau=2, k=2) for s in (1, 2, 3)]}  # fmt: skip
    assert compare.head(groups) == ["A: x (seeds 0, 1, 2)", "B: y (seeds 1, 2, 3)", "tau: A 1, B 2"]
    found = compare.summary(groups)
    ours, theirs = (found.query(f"letter == '{x}' and metric == 'accuracy'").iloc[0] for x in "AB")
    assert (ours["mean"], theirs["mean"], theirs["shared"]) == pytest.approx((0.6, 0.8, 2))
    assert (theirs["difference"], theirs["low"], theirs["high"]) == pytest.approx((0.1, 0.1, 0.1))
    assert compare.cells(found).iloc[0].tolist() == ["accuracy", "0.6000 ± 0.1000", "0.8000 ± 0.1000"]
    assert compare.differences(found)[0] == (
        "accuracy, B - A: +0.1000 over 2 seeds, 95% interval +0.1000 to +0.1000")  # fmt: skip
    assert r"accuracy & 0.6000 $\pm$ 0.1000 & 0.8000" in compare.written(compare.cells(found), "latex")
    assert compare.written(found, "csv").splitlines()[0].startswith("letter,run,method,metric,seeds,mean,std,")


def test_a_figure_names_its_curves_by_the_letters_of_the_table():
    """The names of runs are longer than a figure is wide."""
    long = "rotated-digits/stocfl,clients=80,tau=0.3,lam=0.05,rounds=50,model=mlp200,k="
    groups = {f"{long}{k}": [one(f"{long}{k}", 0, 0.5 + k / 10)] for k in range(3)}
    figure = compare.figure(groups, "accuracy", compare.letters(groups))
    figure.canvas.draw()
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["A", "B", "C"]
    assert axes.get_window_extent().width > 0.7 * figure.bbox.width


def test_all_numbers_that_runs_share_are_compared(capsys, tmp_path):
    def with_row(name, **final):
        return [replace(one(name, s, 0.5), metrics={"m": [{"round": 1, "accuracy": 0.5, **final}]}) for s in (0, 1)]

    groups = {"x": with_row("x", global_accuracy=0.25, f1=0.75, lam=[1], diverged=True),
              "y": with_row("y", global_accuracy=0.5, f1=0.5, lam=[2], nmi=1.0)}  # fmt: skip
    compare.show(groups, tmp_path, "accuracy", "csv")
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split(",")[3] for line in lines] == 2 * ["accuracy", "global_accuracy", "f1"]
    assert [float(x) for x in lines[-1].split(",")[-3:]] == [-0.25, -0.25, -0.25]


def test_runs_without_a_curve_have_no_figure(tmp_path, capsys, monkeypatch):
    short = {"x": [replace(one("x", 0, 0.5), rounds={"m": [[{"round": 1, "accuracy": 0.5}]]})]}
    monkeypatch.setattr(runs, "find", lambda *_: short)
    assert console.main(["results", "x", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.endswith("no figure: no run has several rounds with a number 'accuracy'\n")


def test_a_name_in_two_folders_is_two_sides_of_a_comparison(toy, capsys, monkeypatch):
    monkeypatch.setattr(places, "RESULTS", toy / "book")
    simulate = ["simulate", "--protocol", "toy", "a"]
    assert console.main([*simulate, "--out", "book"]) == console.main([*simulate, "--out", "again"]) == 0
    assert console.main([*simulate, "-p", "lr=0.2", "--out", "again"]) == 0
    capsys.readouterr()
    compared = ["results", "--out", "again", "toy/*", "toy/a"]
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


def test_a_run_that_has_diverged_is_marked_wherever_it_is_shown(toy, here, capsys):
    command = ["simulate", "--protocol", "toy", "a", "-p", "lr=0.1,1e5"]
    with pytest.warns(RuntimeWarning, match="has diverged"):
        assert console.main(command) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.endswith("; diverged") for line in said[:2]] == [False, True]
    (table,) = toy.glob("runs/*/sweep-*.csv")
    assert pd.read_csv(table)["diverged"].tolist() == [0, 1]
    console.main(["results"])
    listed = capsys.readouterr().out.splitlines()
    assert [line.endswith("  diverged") for line in listed] == ["lr=1e5" in line for line in listed]
    console.main(["results", "toy/*"])
    assert "lr=1e5 (seeds 0), diverged: seed 0\n" in capsys.readouterr().out


def test_a_chapter_keeps_the_mark_of_what_has_diverged(tmp_path):
    rows = [{"round": 0, "down": 0, "sizes": [2], "flag": True}, {"round": 1, "down": 3, "diverged": True}]
    found = rerun.compared({"h": {"a": rows[0], "b": History(rows, [])}})
    kept = [{"round": 0, "down": 0}, {"round": 1, "down": 3, "diverged": True}]
    assert found["b"] == [{"final": kept[1], "rounds": kept}] and found["a"][0]["final"] == kept[0]
    several = runs.Run("c/x", 4, {}, {"a": [kept[0]], "b": [kept[1]]}, {"a": [kept[:1]], "b": [kept]}, "", 1, None)
    assert several.diverged == ["b"] and compare.head({"x": [several]})[0] == "A: x (seeds 4), diverged: b, seed 4"


def test_points_vary_in_what_was_given_several_values(toy):
    made_of = sweep.of_plans({"a": partial(console._of_protocol, "toy", "a", {})},
                             {"lr": ["0.1", "0.2"], "rounds": ["2"]}, [0, 1])  # fmt: skip
    assert [(point.values, point.seed) for point in made_of] == [
        ({"lr": "0.1"}, 0), ({"lr": "0.1"}, 1), ({"lr": "0.2"}, 0), ({"lr": "0.2"}, 1)]  # fmt: skip
