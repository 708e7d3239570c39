"""The console program, as a user types it."""

import json
import os
import subprocess
import sys

import pytest
import torch
from every import bits
from filelock import FileLock

from cflkit import __version__
from cflkit.engine.checkpoint import BusyError
from cflkit.methods import Ditto, FedAvg
from cflkit.workbook import console as console
from cflkit.workbook import measured, papers, plots, protocols, records, reproduce, spread


def test_version_and_methods(capsys):
    with pytest.raises(SystemExit) as ended:
        console.main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"cflkit {__version__}\n"
    assert console.main(["methods"]) == 0
    listed = capsys.readouterr().out
    assert "stocfl " in listed and "tau = 0.5" in listed and "fedavg " in listed


def test_datasets_are_listed_with_their_state(capsys, tmp_path):
    assert console.main(["datasets", "--root", str(tmp_path)]) == 0
    state = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert state["digits"] == "bundled" and state["mnist"] == "absent"
    assert console.main(["fetch", "digits", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == ["digits", "bundled"]


def test_run_writes_a_record_a_method_and_seed_and_computes_none_twice(toy, capsys):
    assert console.main(["simulate", "--protocol", "toy", "--seed", "0-1", "--out", "out"]) == 0
    files = sorted((toy / "out").glob("toy/*.json"), key=lambda f: f.name[0] + f.name[-8:])
    assert [f.name[0] + f.name[-8:] for f in files] == ["a-s0.json", "a-s1.json", "b-s0.json", "b-s1.json"]
    before = [f.stat().st_mtime_ns for f in files]
    assert console.main(["simulate", "--protocol", "toy", "a", "--out", "out"]) == 0
    assert [f.stat().st_mtime_ns for f in files] == before
    assert json.loads(files[0].read_text())["config"]["dtype"] == "float32"
    assert capsys.readouterr().out.count(".json") == 5


def test_a_table_is_filled_cheapest_first_and_nothing_twice(toy, capsys):
    assert console.main(["ledger", "t", "--out", "out"]) == 2
    assert "out = 'out': must be a folder that exists" in capsys.readouterr().err
    (toy / "out").mkdir()
    assert console.main(["ledger", "t", "--out", "out"]) == 0
    assert "A                               0.95  not yet measured" in capsys.readouterr().out
    assert console.main(["reproduce", "t", "--seeds", "0-1", "--budget", "5m", "--out", "out"]) == 0
    said = capsys.readouterr().out
    about = ["1 min", "less than a minute", "less than a minute", "less than a minute"]  # as was measured meanwhile
    runs = ["a, seed 0", "a, seed 1", "b, seed 0", "b, seed 1"]
    order = [f"{n} of 4: {run}, about" for n, run in enumerate(runs, 1)]
    assert [line for line in said.splitlines() if "about" in line and " of 4: " in line] == [
        f"{run} {long}" for run, long in zip(order, about, strict=True)]  # fmt: skip
    assert said.count(".json") == 4 and not list((toy / "runs" / "toy").iterdir())  # no checkpoint is left
    assert console.main(["reproduce", "t", "--out", "out"]) == 0
    assert capsys.readouterr().out == "t lacks no run\n"
    assert console.main(["ledger", "--out", "out"]) == 0
    said = capsys.readouterr().out
    assert "0 runs missing" in said and "seems to hold. 2 seeds." in said


def test_what_another_process_works_on_is_passed_over(toy, capsys):
    busy = toy / "runs" / "toy" / "a-s0"
    busy.mkdir(parents=True)
    with FileLock(busy / "lock"):
        assert console.main(["reproduce", "t", "--seeds", "0", "--out", "out"]) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[:2] == ["1 of 2: a, seed 0, about 1 min", "a, seed 0: another process is at work on it"]
        assert [file.name[0] for file in (toy / "out").glob("toy/*.json")] == ["b"]
        assert console.main(["simulate", "--protocol", "toy", "a", "--out", "out"]) == 2
        assert "must be free; another process is at work on this run" in capsys.readouterr().err
    assert console.main(["reproduce", "t", "--seeds", "0", "--out", "out"]) == 0
    assert len(list((toy / "out").glob("toy/*.json"))) == 2


def test_a_finished_run_goes_on_when_more_rounds_are_asked_for(toy, capsys, monkeypatch):
    command = ["simulate", "ditto", "--clients", "4", "-p", "evaluate_every=3"]

    def record(rounds, out):
        assert console.main([*command, "-p", f"rounds={rounds}", "--out", out, "--checkpoint", f"{out}/kept"]) == 0
        return records.read(next((toy / out).glob(f"*/*rounds={rounds}*.json")))

    def learnt(out):
        folder = toy / out / "kept"
        rows = {file.name: file.read_bytes() for file in (folder / "memory").iterdir()}
        return bits(torch.load(folder / "state.pt")["server"]), rows

    whole, _ = record(5, "whole"), record(2, "more")
    with monkeypatch.context() as patch:
        done, of_ditto = [], Ditto.round
        patch.setattr(Ditto, "round", lambda *given: done.append(given[3].round) or of_ditto(*given))
        more = record(5, "more")
    assert done == [3, 4, 5]
    for part in ("config", "final", "clients"):
        assert more[part] == whole[part]
    ((once, due),) = [both for both in zip(more["rounds"], whole["rounds"], strict=True) if both[0] != both[1]]
    assert once["round"] == 2 and due.items() <= once.items()  # it was the last one
    assert learnt("more") == learnt("whole")
    capsys.readouterr()
    for refused, line in [(["-p", "rounds=4"], "rounds = 4: must be at least the 5 that the checkpoint more/kept"),
                          (["-p", "rounds=9", "-p", "lr=0.2"], "configuration; local.lr was 0.1 and is now 0.2"),
                          (["--seeds", "0-1"], "checkpoint = 'more/kept': must be given for one run; these are 2")]:
        assert console.main([*command, *refused, "--checkpoint", "more/kept"]) == 2
        said = capsys.readouterr().err
        assert line in said and said.count("\n") == 1


def test_an_interrupted_run_goes_on_from_its_last_round(toy, capsys, monkeypatch):
    whole = reproduce.run(protocols.plan("toy", "a"), out=toy / "whole", progress=False)
    spent = iter([None, None])  # two rounds, then Ctrl-C

    def interrupt(*_):
        if next(spent, 1):
            raise KeyboardInterrupt

    monkeypatch.setattr("cflkit.engine.simulation.tqdm.update", interrupt)
    assert console.main(["reproduce", "t", "--seeds", "0", "--out", "out"]) == 130
    line = "cflkit: interrupted; the same command goes on from the last checkpoint\n"
    assert capsys.readouterr().err.endswith(line)
    monkeypatch.undo()
    monkeypatch.setattr(papers, "PAPERS", toy)
    monkeypatch.chdir(toy)
    assert (toy / "runs" / "toy" / "a-s0" / "state.pt").exists()
    again = reproduce.run(protocols.plan("toy", "a"), out=toy / "out", progress=False)
    assert _measured(again) == _measured(whole)


def _measured(file):
    """All of a record but its timings."""
    record = json.loads(file.read_text())
    record["provenance"].pop("seconds")
    return record


def test_a_budget_ends_at_a_whole_round_and_the_next_call_goes_on(toy, capsys, monkeypatch):
    whole = reproduce.run(protocols.plan("toy", "a"), out=toy / "whole", progress=False)
    looks = iter([False, False])  # before the run, after round 1
    monkeypatch.setattr(spread.Clock, "over", property(lambda clock: clock.end is not None and next(looks, True)))
    assert console.main(["reproduce", "t", "--seeds", "0", "--budget", "6m", "--out", "out"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("time is up after 6 min; the same command goes on from the last checkpoint\n")
    assert (toy / "runs" / "toy" / "a-s0" / "state.pt").exists() and not list(toy.glob("out/toy/*"))
    assert len(torch.load(toy / "runs" / "toy" / "a-s0" / "state.pt")["seconds"]) == 3  # the start and two rounds
    assert console.main(["reproduce", "t", "--seeds", "0", "--out", "out"]) == 0
    assert _measured(next(toy.glob("out/toy/a-*.json"))) == _measured(whole)


def test_a_run_is_locked_until_its_record_is_there(toy, monkeypatch):
    """Another process that comes while the record is written neither runs it again nor deletes anything."""
    write, met = records.write, []

    def meet(*args):
        with pytest.raises(BusyError, match="another process is at work on this run"):
            reproduce.run(protocols.plan("toy", "a"), out=toy / "out", progress=False)
        met.append(True)
        return write(*args)

    monkeypatch.setattr(records, "write", meet)
    reproduce.run(protocols.plan("toy", "a"), out=toy / "out", progress=False)
    assert met and len(list((toy / "out" / "toy").iterdir())) == 1 and not list((toy / "runs" / "toy").iterdir())


def test_a_failing_run_is_reported_and_sinks_nobody(toy, capsys, monkeypatch):
    run = protocols.Plan.simulation

    def broken(plan, *args, **settings):
        if plan.label == "a":
            raise RuntimeError("broken")
        return run(plan, *args, **settings)

    monkeypatch.setattr(protocols.Plan, "simulation", broken)
    assert console.main(["reproduce", "t", "--seeds", "0", "--out", "out"]) == 1
    assert "cflkit: a, seed 0 failed: RuntimeError: broken\n" in capsys.readouterr().err
    assert [file.name[0] for file in (toy / "out").glob("toy/*.json")] == ["b"]


def test_estimates_follow_what_this_machine_has_measured():
    cost = reproduce.Cost([1.0, 2.0, 4.0])
    assert (cost.of(1), cost.left) == (2.0, 7.0)
    cost.took(0, 3.0)
    assert (cost.of(1), cost.left) == (6.0, 18.0)
    cost.took(1, 3.0)
    assert (cost.of(2), cost.left) == (8.0, 8.0)


def test_changed_runs_stand_apart_from_the_protocols_own(toy, capsys):
    assert console.main(["simulate", "--protocol", "toy", "a", "-p", "weights=uniform", "-p", "rounds=1"]) == 0
    (record,) = (toy / "runs" / "toy").glob("*.json")
    assert record.name.startswith("a,weights=uniform,rounds=1-")
    assert not measured.fits(json.loads(record.read_text()))
    assert {file.suffix for file in (toy / "runs" / "toy").iterdir()} == {".json", ".csv", ".png"}
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_checkpoint_is_kept_where_the_record_is_there_already(toy, monkeypatch):
    simulate = ["simulate", "--protocol", "toy", "a", "--out", "out"]
    assert console.main(simulate) == 0
    (record,) = (toy / "out" / "toy").glob("*.json")
    before = record.read_bytes()
    assert console.main([*simulate, "--checkpoint", "kept"]) == 0
    assert (toy / "kept" / "state.pt").exists() and record.read_bytes() == before
    monkeypatch.setattr(FedAvg, "round", lambda *_: pytest.fail("it is run again"))
    assert console.main([*simulate, "--checkpoint", "kept"]) == 0


def test_the_curve_of_a_changed_run_bears_the_methods_name_alone(toy, monkeypatch):
    drawn, draw = [], plots.learning_curves
    monkeypatch.setattr(plots, "learning_curves", lambda scores, y: drawn.extend(scores) or draw(scores, y))
    assert console.main(["simulate", "--protocol", "toy", "a", "-p", "weights=uniform", "-p", "rounds=1"]) == 0
    assert drawn == ["a"]


def test_a_table_is_filled_in_the_background(toy, capsys, monkeypatch):
    started = []
    monkeypatch.setattr(reproduce, "in_background", lambda arguments, log: started.append((arguments, log)) or 7)
    monkeypatch.setattr(sys, "argv", ["cflkit", "reproduce", "t", "--background", "--budget", "1h"])
    assert console.main(sys.argv[1:]) == 0
    (arguments, log) = started[0]
    assert arguments == ["reproduce", "t", "--budget", "1h"] and str(log) in capsys.readouterr().out


def test_the_background_process_outlives_its_parent_and_writes_a_log(tmp_path):
    log = tmp_path / "logs" / "said.log"
    os.waitpid(reproduce.in_background(["--version"], log), 0)
    assert f"cflkit {__version__}" in log.read_text()


@pytest.mark.parametrize("given", [["--seeds", "4-"], ["--budget", "20"], ["--budget", "0m"], ["--seeds", "0-4,x"]])
def test_seeds_and_budgets_are_read_strictly(given, toy, capsys):
    with pytest.raises(SystemExit) as ended:
        console.main(["reproduce", "t", *given])
    assert ended.value.code == 2 and "must look like" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given, line",
    [
        (["simulate", "--protocol", "nope"], "protocol = 'nope': must be one of toy"),
        (["simulate", "--protocol", "toy", "c"], "label = 'c': must be one of a, b"),
        (["simulate", "--protocol", "toy", "a", "-p", "dtype=half"], "dtype = 'half': must be one of float32"),
        (["fetch", "nope"], "'nope'"),
        (["reproduce", "nope"], "table = 'nope': must be one of t"),
    ],
)
def test_bad_input_is_one_line_and_status_2(given, line, toy, capsys):
    assert console.main(given) == 2
    error = capsys.readouterr().err
    assert error.startswith("cflkit: ") and line in error and error.count("\n") == 1


def test_the_module_is_the_same_program():
    done = subprocess.run([sys.executable, "-m", "cflkit", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"cflkit {__version__}\n"
