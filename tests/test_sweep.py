"""Many runs side by side, and looking at what came of them."""

import json
import os
import shutil
from functools import partial
from math import inf
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joblib.externals.loky.process_executor import TerminatedWorkerError
from tqdm import tqdm

from cflkit.engine.checkpoint import BusyError
from cflkit.engine.history import History
from cflkit.workbook import console, places
from cflkit.workbook.chapters import compare, notebooks, parameters, rerun, sweep
from cflkit.workbook.runs import pool, records, typed


@pytest.fixture
def here(monkeypatch):
    """One after the other in this process: others take seconds to start."""
    monkeypatch.setattr(pool, "cores", lambda: 1)


# ---------------------------------------------------------------------- the engine
def give(value, seconds):
    return value, seconds


def fail(error, *_, **__):
    raise error


def lock_of_bars(seconds):
    return type(tqdm.get_lock()).__module__


def die(seconds):
    os.kill(os.getpid(), 9)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_task_has_one_outcome_and_a_dead_worker_is_told(jobs, monkeypatch):
    """What had ended is not lost, nothing is passed over in silence, and the next call works."""
    tasks = [partial(give, 5), partial(fail, BusyError("b")), partial(fail, KeyError("k")), partial(give, 7)]
    tasks += [lock_of_bars]
    with pool.place(jobs):
        found = {number: (value, error) for number, value, error in pool.run(tasks)}
        with monkeypatch.context() as patch:
            if jobs == 1:  # it would be this process
                patch.setattr("joblib.Parallel.__call__", partial(fail, TerminatedWorkerError()))
            with pytest.raises(pool.WorkerDied, match="the same command goes on"):
                list(pool.run([partial(give, 1), die, partial(give, 2), partial(give, 3)]))
        assert sorted(number for number, *_ in pool.run([partial(give, 1)] * 3)) == [0, 1, 2]
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert found[0] == ((5, inf), None) and found[3] == ((7, inf), None) and isinstance(found[1][1], BusyError)
    assert str(found[2][1]) == "KeyError: 'k'"
    assert jobs == 1 or found[4][0] == "_thread"  # no semaphore, which a killed worker would leave behind


def test_what_has_ended_is_told_with_the_time_that_is_left(monkeypatch, capsys):
    """Estimates are of minutes; what was there took none, and says nothing of the rest."""
    now = [0.0]
    monkeypatch.setattr("cflkit.workbook.runs.pool.monotonic", lambda: now[0])

    def work(took, was, seconds):
        now[0] += took
        return Path(f"f{took}"), was

    tasks = {"a": partial(work, 0, "; was there"), "b": partial(work, 120, ""), "c": partial(fail, BusyError("b")),
             "d": partial(fail, OSError("bad")), "e": partial(work, 60, "")}  # fmt: skip
    with pool.place(1):
        files, failed = pool.report(tasks, inf, [5, 2, 1, 1, 3])
        assert list(files) == ["a", "b", "e"] and failed == 1
        said = capsys.readouterr()
        assert said.err == "cflkit: d failed: bad\n" and said.out.splitlines() == [
            "5 to run, about 12 min on one core", "1 of 5: a: f0; was there", "2 of 5: b: f120; about 5 min left",
            "c: another process is at work on it", "5 of 5: e: f60"]  # fmt: skip
        for more, seconds in (({}, 100), ({"f": partial(fail, pool.TimeIsUp())}, inf)):
            with pytest.raises(pool.TimeIsUp):
                pool.report(tasks | more, seconds)
        assert [value for _, value, _ in pool.run([lambda seconds: (seconds, work(4, "", 0))] * 9, 10)] == [
            (10, (Path("f4"), "")), (6, (Path("f4"), "")), (2, (Path("f4"), ""))]  # fmt: skip


# ---------------------------------------------------------------------- what is typed
@given(st.lists(st.lists(st.integers()) | st.integers() | st.from_regex("[a-z]+", fullmatch=True), min_size=1))
def test_lists_of_values_are_read_back(values):
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    assert typed.parts(",".join(texts)) == texts


# ---------------------------------------------------------------------- sweeps
def test_every_combination_is_run_once(toy, here, capsys):
    command = ["simulate", "--protocol", "toy", "a", "-p", "lr=0.1,0.3", "-p", "rounds=1,2", "--seeds", "0,1"]
    assert console.main(command) == 0
    said = capsys.readouterr().out.splitlines()
    files = sorted((toy / "runs" / "toy").glob("a,*.json"))
    assert len(files) == 8 and said[7].startswith("8 of 8: ")
    assert said[8].split() == ["run", "seeds", "accuracy", "own_accuracy", "down", "up"]
    table = [line.split()[:3] for line in said[9:13]]
    assert table == [[f"lr={lr},", f"rounds={rounds}", "2"] for lr in ("0.1", "0.3") for rounds in (1, 2)]
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


def test_damaged_records_and_checkpoints_are_named_and_sink_nobody(toy, here, capsys):
    command = ["simulate", "fedavg", "--clients", "4", "-p", "rounds=1", "-p", "lr=0.1,0.2,0.3,0.4"]
    assert console.main(command) == 0
    folder = toy / "runs" / "rotated-digits"
    cut, foreign, gone, good = sorted(folder.glob("fedavg,*.json"))
    cut.write_text(cut.read_text()[:-9])
    foreign.write_text(json.dumps(json.loads(foreign.read_text()) | {"format": 99}))
    gone.unlink()
    kept = folder / (compare.name(gone).split("/")[1] + "-s0")
    kept.mkdir()
    (kept / "state.pt").write_bytes(b"cut")
    stamp = good.stat().st_mtime_ns
    capsys.readouterr()
    assert console.main(command) == 1
    said = capsys.readouterr()
    first, second, third = sorted(said.err.splitlines())
    assert first.startswith("cflkit: lr=0.1, seed 0 failed: rotated-digits/fedavg,")
    assert "lr=0.2, seed 0 failed: " in second and "format = 99: must be" in second
    assert "lr=0.3, seed 0 failed: " in third and "state.pt" in third
    assert console.main(["results", "rotated-digits/*"]) == 0 and "left out: " in capsys.readouterr().err
    assert (kept / "state.pt").read_bytes() == b"cut" and not kept.with_name(f"{kept.name}.lock").exists()
    table = [line.split()[:2] for line in said.out.splitlines()]
    assert ["lr=0.4", "1"] in table and ["lr=0.1", "1"] not in table
    for path in (cut, foreign, kept / "state.pt"):
        path.unlink()
    assert console.main(command) == 0 and good.stat().st_mtime_ns == stamp


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
    assert said[7].split()[:6] == ["tau=0.25", "one", "3", "0.3250", "±", "0.1000"] and len(said) == 14
    assert console.main(["results"]) == 0
    listed = [line.split()[:3] for line in capsys.readouterr().out.splitlines()][::3]
    folder = listed[0][0].partition("/")[0]
    assert listed == [[f"{folder}/tau=0.25", "seed", "1"], [f"{folder}/tau=0.75", "seed", "1"]]
    assert console.main(["results", "c-*"]) == 0
    said = capsys.readouterr().out
    assert "tau: A 0.25, B 0.75\n" in said
    assert said.splitlines()[-4].split() == ["B", "one", "accuracy", "3", "0.25", "0.25", "0.25"]


def test_a_sweep_never_gives_another_notebooks_numbers_or_those_of_old_code(toy, capsys, monkeypatch):
    """A result is named after the code up to the comparison, the defaults, the folder, and the package's code."""
    def swept(path="c.ipynb"):
        assert console.main(["run", str(path), "-p", "tau=0.25,0.75", "--jobs", "1"]) == 0
        out = capsys.readouterr().out
        rows = map(str.split, out.splitlines())
        return out.count("; was there"), [row[3] for row in rows if row[1:2] == ["one"]]

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


@pytest.mark.slow
@pytest.mark.parametrize("chapter", [path.stem for path in notebooks.chapters() if rerun.bound(path)])
def test_a_chapter_has_something_to_sweep(chapter, tmp_path):
    path = notebooks.chapter(chapter).resolve()
    schema = parameters.of(path)
    least = get_args(schema.parameters["rounds"].hint)[1].low
    file, _ = rerun.demonstrate(path, schema.read({"rounds": str(int(least))}), tmp_path / "c" / "p" / "run.json")
    scores = [rows[-1] for of_seeds in records.read(file)["metrics"].values() for rows in of_seeds]
    assert len(scores) >= 3 and all({"accuracy", "personal_accuracy"} & row.keys() for row in scores)


def test_a_parameter_that_changes_nothing_is_said_to_and_a_cell_without_a_comparison_fails(toy, capsys):
    def swept(old, new):
        (toy / "c.ipynb").write_text((toy / "c.ipynb").read_text().replace(old, new))
        status = console.main(["run", "c.ipynb", "-p", "tau=0.25,0.75", "--jobs", "1"])
        return status, *capsys.readouterr()

    _chapter(toy / "c.ipynb")
    nothing = "\ntau: has no effect on what is compared here\n"
    assert nothing not in swept("", "")[1] and nothing in swept("tau / 2", "0.5")[1]
    assert nothing not in swept("('one', 'two')", "(f'one {tau}', 'two')")[1]  # which tells the value by its label
    status, _, said = swept("(f'one {tau}', 'two')", "('one',)")
    line = "tau=0.25, seed 0 failed: c.ipynb: methods that its cell `comparison` compares = 0: must be two or more"
    assert status == 1 and line in said


def test_a_method_without_a_metric_is_not_in_its_figure(tmp_path, capsys):
    """Clients that train alone have no accuracy on their cluster's test, only their own."""
    points, files = [], {}
    for tau in ("0.25", "0.75"):
        points.append(sweep.Point(f"tau={tau}", 0, None))
        rows = {"one": {"accuracy": 0.5, "personal_accuracy": 0.5}, "local": {"personal_accuracy": 0.25}}
        files[str(points[-1])] = file = tmp_path / "c" / f"tau={tau}" / "run.json"
        rerun.write(file, "c", {"tau": float(tau)}, {label: [[row]] for label, row in rows.items()}, 1.0)
    made = sweep.store(points, files, tmp_path)
    assert [file.suffix for file in made] == [".csv", ".tex", ".png"] and made[2].stat().st_size > 0
    assert "–" in (said := capsys.readouterr().out) and "nan" not in said and "tau: has no effect on" in said
    assert len(pd.read_csv(made[0])) == 6 and r"tau=0.25 & local & 1 & – & 0.2500 \\" in made[1].read_text()
    groups = {point.varying: [compare.read(files[str(point)])] for point in points}
    (axes,) = compare.figure(groups, "accuracy").axes
    assert [text.get_text() for text in axes.texts] == ["one"] and axes.get_xlabel() == "tau"
    assert axes.lines[0].get_xydata().tolist() == [[0.25, 0.5], [0.75, 0.5]]


def test_reruns_without_metrics_are_listed_and_have_nothing_to_compare(toy, capsys):
    rerun.write(Path("runs/own/default/run.json"), "own", {"rounds": 2}, {}, 1.0)
    rerun.write(Path("runs/own/rounds=3/run.json"), "own", {"rounds": 3}, {}, 1.0, "own.ipynb: ValueError: three")
    alone = {"local": [[{"personal_accuracy": 0.25}]]}
    rerun.write(Path("runs/own/rounds=4/run.json"), "own", {"rounds": 4}, alone, 1.0)
    assert console.main(["results"]) == 0
    none, failed, personal = capsys.readouterr().out.splitlines()
    assert "no methods" in none and "failed" not in none
    assert "no methods" in failed and failed.endswith("failed") and "personal_accuracy 0.2500" in personal
    assert console.main(["results", "own/default", "own/rounds=3"]) == 2
    said = capsys.readouterr()
    line = "cflkit: run = 'own/default, own/rounds=3': must be one that has metrics; a chapter that compares"
    assert said.err.startswith(line) and said.err.count("\n") == 1 and not said.out
    assert console.main(["results", "own/*"]) == 0
    said = capsys.readouterr().out
    assert "rounds: A 2, B 3, C 4\n" in said and "no figure: no run has several rounds with a number" in said


def test_another_sweep_leaves_the_files_of_an_earlier_one(toy, here, capsys):
    """Though both vary the same, in the same folder; what each was given once tells them apart."""
    def swept(*more):
        assert console.main(["simulate", "fedavg", *more, "--clients", "4", "-p", "rounds=1,2"]) == 0
        return {file.name for file in map(Path, capsys.readouterr().out.splitlines()[-3:])}

    folder = toy / "runs" / "rotated-digits"
    first = swept()
    kept = {name: (folder / name).stat().st_ino for name in first}
    assert len(first | swept("-p", "lr=0.2")) == 6 == len(list(folder.glob("sweep-*")))
    assert {name: (folder / name).stat().st_ino for name in first} == kept
    assert swept() == first and not list(folder.glob(".*.part"))  # the same one renews its own


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
    assert capsys.readouterr().err.startswith("left out: rotated-digits/fedavg-0-s7.json: ")
    assert console.main(["results", "rotated-digits/fedavg", "--delete"]) == 0
    assert console.main(["results", "rotated-digits/fedavg"]) == 2
    assert capsys.readouterr().err.startswith("cflkit: run = 'rotated-digits/fedavg': must be one of ")


# ---------------------------------------------------------------------- comparing
def one(seed, accuracy, more=None, **parameters):
    row = {"round": 1, "accuracy": accuracy, "clusters": 2} | (more or {})
    return compare.Run(Path("f/x"), seed, parameters, {"": [[row | {"round": 0}, row]]}, {})


def test_differences_are_paired_where_seeds_agree():
    groups = {"A": [one(s, 0.5 + s / 10, tau=1, k=2) for s in (0, 1, 2)],
              "B": [one(s, 0.6 + s / 10, tau=2, k=2) for s in (1, 2, 3)]}  # fmt: skip
    assert compare.head(groups, ["x", "y"]) == ["A: x (seeds 0, 1, 2)", "B: y (seeds 1, 2, 3)", "tau: A 1, B 2"]
    found = compare.summary(groups)
    ours, theirs = (found.query(f"run == '{x}' and metric == 'accuracy'").iloc[0] for x in "AB")
    assert (ours["mean"], theirs["mean"], theirs["shared"]) == pytest.approx((0.6, 0.8, 2))
    assert (theirs["difference"], theirs["low"], theirs["high"]) == pytest.approx((0.1, 0.1, 0.1))
    assert compare.cells(found).to_numpy().tolist() == [["A", 3, "0.6000 ± 0.1000", "2.0000 ± 0.0000"],
                                                        ["B", 3, "0.8000 ± 0.1000", "2.0000 ± 0.0000"]]
    assert compare.differences(found)[1].splitlines()[1].split() == ["B", "accuracy", "2", "0.1", "0.1", "0.1"]
    assert r"A & 3 & 0.6000 $\pm$ 0.1000 & 2.0000" in compare.written(compare.cells(found), "latex")
    (axes,) = compare.figure(groups, "accuracy").axes  # the names of runs may be longer than a figure is wide
    assert [text.get_text() for text in axes.texts] == ["A", "B"]


def test_all_numbers_are_in_the_csv_and_those_of_earlier_rounds_may_be_asked_for(capsys, tmp_path):
    groups = {"x": [one(s, 0.5, {"f1": 0.75, "lam": [1], "diverged": True}) for s in (0, 1)],
              "y": [one(s, 0.5, {"f1": 0.5, "name": "no number"}) for s in (0, 1)]}  # fmt: skip
    groups["y"][0].rounds[""][0][0]["drift"] = 0.1  # a method's own log may leave a number out of the last round
    compare.show(groups, tmp_path, "drift", "csv")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "run,method,metric,seeds,mean,std,shared,difference,low,high"
    assert [line.split(",")[2] for line in lines[1:]] == 2 * ["accuracy", "clusters", "f1"]
    assert [float(x) for x in lines[-1].split(",")[-3:]] == [-0.25, -0.25, -0.25]
    with pytest.raises(ValueError, match="metric = 'acuracy': must be one of accuracy, clusters, drift,"):
        compare.show(groups, tmp_path, "acuracy", "csv")


def test_a_name_in_two_folders_is_two_sides_of_a_comparison(toy, capsys, monkeypatch):
    monkeypatch.setattr(places, "RESULTS", toy / "book")
    for more in (["--out", "book"], ["--out", "again"], ["-p", "lr=0.2", "--out", "again"]):
        assert console.main(["simulate", "--protocol", "toy", "a", "-p", "rounds=1", *more]) == 0
    capsys.readouterr()
    compared = ["results", "--out", "again", "toy/*", "toy/a,rounds=1"]
    assert console.main(compared) == console.main([*compared, "--metric", "own_accuracy"]) == 0
    said = capsys.readouterr().out.splitlines()
    sides = ["A: toy/a,rounds=1 (seeds 0)", "B: toy/a,rounds=1,lr=0.2 (seeds 0)"]
    assert said[:3] == [*sides, "C: toy/a,rounds=1 (book) (seeds 0)"] and "local.lr: A 0.1, B 0.2, C 0.1" in said
    assert len(list((toy / "again").glob("compare-*.png"))) == 2  # an earlier picture stays
    assert console.main([*compared, "--metric", "acuracy"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("cflkit: metric = 'acuracy': must be one of accuracy, ")


def test_a_run_that_has_diverged_is_marked_wherever_it_is_shown(toy, here, capsys):
    with pytest.warns(RuntimeWarning, match="has diverged"):
        assert console.main(["simulate", "--protocol", "toy", "a", "-p", "lr=0.1,1e5"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("diverged: "))
    assert "lr=1e5" in line
    console.main(["results"])
    listed = capsys.readouterr().out.splitlines()
    assert [line.endswith("  diverged") for line in listed] == ["lr=1e5" in line for line in listed]
    console.main(["results", "toy/*"])
    assert "lr=1e5 (seeds 0), diverged: seed 0\n" in capsys.readouterr().out


def test_a_chapter_keeps_the_mark_of_what_has_diverged():
    rows = [{"round": 0, "down": 0, "sizes": [2], "flag": True}, {"round": 1, "down": 3, "diverged": True}]
    found = rerun.compared({"h": {"a": rows[0], "b": History(rows, [])}}, ["h"])
    kept = [{"round": 0, "down": 0}, {"round": 1, "down": 3, "diverged": True}]
    assert found == {"a": [kept[:1]], "b": [kept]}
    several = compare.Run(Path(), 4, {}, found, {})
    assert several.diverged == ["b"] and compare.head({"A": [several]}, ["x"]) == [
        "A: x (seeds 4), diverged: b, seed 4"]  # fmt: skip
