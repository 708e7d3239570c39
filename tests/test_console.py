"""The console program, as a user types it."""

import json
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from every import bits
from filelock import FileLock

from cflkit import __version__
from cflkit.engine.checkpoint import BusyError
from cflkit.methods import METHODS, Ditto, FedAvg
from cflkit.workbook import console
from cflkit.workbook.runs import plans, pool, protocols, records, results, run
from cflkit.workbook.show import plots

ROOT = Path(__file__).resolve().parents[1]
FREE = ["simulate", "fedavg", "--clients", "4", "-p", "model=mlp4", "-p", "rounds=1"]


# ---------------------------------------------------------------------- what is there
def test_version_and_lists(capsys):
    with pytest.raises(SystemExit) as ended:
        console.main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"cflkit {__version__}\n"
    assert console.main(["list"]) == console.main(["list", "builders"]) == console.main(["list", "protocols"]) == 0
    said = capsys.readouterr().out
    assert "chapters: baselines, " in said and "\nrotated " in said and "\ncommon_rot_r20 " in said
    assert console.main(["list", "methods"]) == 0
    listed = capsys.readouterr().out
    assert "stocfl " in listed and "tau = 0.5" in listed and "fedavg " in listed


@pytest.mark.parametrize("name", console.RENAMED)
def test_an_old_name_says_what_to_type(name, capsys):
    assert console.main([name, "anything", "--at=all"]) == 2
    assert capsys.readouterr().err == f"cflkit: {name} has another name now: {console.RENAMED[name]}\n"
    words = console.RENAMED[name].split()
    assert words[1] in ("run", "results", "data", "list") or (ROOT / words[1]).is_file()


def test_help_loads_nothing_that_takes_time():
    """A few modules of our own, and none from outside the standard library."""
    for command in ([], ["simulate"], ["run"]):
        code = f"import sys; from cflkit.workbook import console\ntry: console.main({[*command, '--help']})\n" \
               "except SystemExit: pass\nprint('LOADED', *sys.modules)"  # fmt: skip
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        loaded = done.stdout.split("LOADED")[-1].split()
        ours = {name for name in loaded if name.startswith("cflkit.")}
        assert len(ours) <= 10, sorted(ours)
        heavy = {"torch", "numpy", "pandas", "matplotlib", "scipy", "sklearn", "yaml", "joblib", "nbformat"}
        assert not heavy & set(loaded) and len(loaded) < 250


def test_datasets_are_listed_with_their_state_and_fetched(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("CFLKIT_DATA", str(tmp_path))
    assert console.main(["data"]) == 0
    state = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert state["digits"] == "bundled" and state["mnist"] == "absent"
    assert console.main(["data", "digits"]) == 0
    assert capsys.readouterr().out.split() == ["digits", "bundled"]


# ---------------------------------------------------------------------- simulate
def test_a_record_that_was_there_says_which_code_made_it(toy, capsys, monkeypatch):
    """The configuration names a record; the code that made it may have changed since."""
    assert console.main(FREE) == 0
    (file,) = (toy / "runs").glob("*/*.json")
    commit = records.provenance()["commit"] or "unknown"
    before, _ = file.read_bytes(), capsys.readouterr()
    assert console.main(FREE) == 0 and f"; was there, made at commit {commit}\n" in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(records, "_library", lambda: b"other code")
        patch.setattr(FedAvg, "start", lambda self, net: {"model": 0 * net.task.model.init(1)})
        for jobs in ([], ["--seeds", "0-1", "--jobs", "1"]):
            assert console.main([*FREE, *jobs]) == 0
            assert f"; was there, made at commit {commit} (code has changed since)\n" in capsys.readouterr().out
        assert file.read_bytes() == before
        assert console.main([*FREE, "--again"]) == 0 and "was there" not in capsys.readouterr().out
        now = json.loads(file.read_text())
        assert now["final"] != json.loads(before)["final"] and now["provenance"]["code"] == records.code()
    assert console.main([*FREE, "--again"]) == 0
    assert json.loads(file.read_text())["final"] == json.loads(before)["final"]


MINE = """\
from dataclasses import dataclass
from cflkit.methods import FedAvg

@dataclass(frozen=True)
class Mine(FedAvg):
    name = "mine"
    factor: float = 1.0

    def round(self, server, clients, net):
        old, new = server["model"], super().round(server, clients, net)["model"]
        return {"model": old + self.factor * (new - old)}
"""


@pytest.mark.parametrize("method, networks", [("fedavg", 1), ("ifca", None), ("local", 4), ("fedrc", 3)])
def test_models_are_kept_beside_a_record(method, networks, toy, capsys):
    typed = ["simulate", method, *FREE[2:], "--keep-models"]
    assert console.main(typed) == console.main(typed) == 0
    assert capsys.readouterr().out.count("was there") == 1
    (file,) = (toy / "runs").rglob("*.pt")
    kept, record = torch.load(file), json.loads(file.with_suffix(".json").read_text())
    shares, groups = kept["client"], kept["groups"]
    assert len(kept["models"]) == (networks or len(set(record["clients"]["cluster"])))
    assert shares.sum(1).tolist() == pytest.approx([1] * 4) if shares.dim() == 2 else set(shares.tolist())
    hits = kept["confusions"].diagonal(0, 1, 2).sum(1) / kept["confusions"].sum((1, 2))
    score = "personal_accuracy" if method == "local" else "accuracy"
    assert hits.mean().item() == pytest.approx(record["final"][score], abs=1e-5)
    assert (groups[0] == -1).all() or method not in ("ifca", "fedrc")  # where nobody has chosen yet
    assert groups.shape == (2, 4) and groups[-1].tolist() == record["clients"].get("cluster", [-1] * 4)


def test_whom_a_protocol_leaves_unseen_comes_after_the_last_round():
    plan = replace(plans.free("fedavg"), unseen=0.25, setting={"rounds": 3, "model": "mlp4"})
    assert plan.simulation(progress=False).arrival.sort().values.tolist() == [1] * 30 + [4] * 10


def test_a_method_of_ones_own_is_named_by_its_file(toy, capsys):
    """Also in other processes; its code counts as the code that made a record."""
    (toy / "own.py").write_text(MINE)
    typed = ["simulate", "own.py:Mine", *FREE[2:]]
    with pytest.raises(SystemExit):
        console.main(["simulate", "own.py", "--help"])
    assert "factor = 1.0  (a finite number)" in capsys.readouterr().out
    assert console.main([*typed, "-p", "factor=0.0,1.0", "--jobs", "1"]) == console.main(FREE) == 0
    found = {file.name.partition("-")[0]: json.loads(file.read_text()) for file in toy.glob("runs/*/*.json")}
    still, ours = (found[f"own.Mine,clients=4,model=mlp4,rounds=1,factor={x}"] for x in ("0.0", "1.0"))
    theirs = found["fedavg,clients=4,model=mlp4,rounds=1"]["rounds"]
    assert ours["rounds"][-1] == theirs[-1] and still["rounds"][-1]["accuracy"] == theirs[0]["accuracy"]
    assert ours["provenance"]["code"] != records.code()
    assert console.main(["simulate", "--protocol", "toy", "own.py:Mine"]) == 0  # in a cell of an experiment
    (cell,) = toy.glob("runs/toy/own.Mine-*.json")
    assert json.loads(cell.read_text())["config"]["rounds"] == protocols.protocols()["toy"]["rounds"]
    plan = pickle.dumps(plans.free("own.py:Mine").changed({"clients": "4", "rounds": "1"}))
    METHODS.pop("own.Mine")  # another process does not know it
    assert pickle.loads(plan).simulation().method.factor == 1
    (toy / "own.py").write_text(MINE + "\n# changed\n")
    capsys.readouterr()
    assert console.main([*typed, "-p", "factor=0.0"]) == 0
    assert "(code has changed since)" in capsys.readouterr().out
    assert console.main(["simulate", "own.py:Nobody"]) == 2
    assert "method of own.py = 'Nobody': must be one of Mine" in capsys.readouterr().err
    METHODS.pop("own.Mine")


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
                          (["--again"], "checkpoint = 'more/kept': must be left out with --again"),
                          (["--seeds", "0-1"], "checkpoint = 'more/kept': must be given for one run; ")]:
        assert console.main([*command, *refused, "--checkpoint", "more/kept"]) == 2
        said = capsys.readouterr().err
        assert line in said and said.count("\n") == 1


def test_changed_runs_stand_apart_from_the_protocols_own(toy, capsys, monkeypatch):
    drawn, draw = [], plots.learning_curves
    monkeypatch.setattr(plots, "learning_curves", lambda scores, y: drawn.extend(scores) or draw(scores, y))
    assert console.main(["simulate", "--protocol", "toy", "a", "-p", "weights=uniform", "-p", "rounds=1"]) == 0
    (record,) = (toy / "runs" / "toy").glob("*.json")
    assert record.name.startswith("a,weights=uniform,rounds=1-") and drawn == ["a"]
    assert not results.fits(json.loads(record.read_text()))
    assert {file.suffix for file in (toy / "runs" / "toy").iterdir()} == {".json", ".csv", ".png"}
    assert len(capsys.readouterr().out.splitlines()) == 3


# ---------------------------------------------------------------------- reproduce
def test_a_table_is_filled_cheapest_first_and_nothing_twice(toy, capsys):
    ledger = ["results", "--ledger", "t", "--out", "out"]
    assert console.main(ledger) == 2
    assert "out = 'out': must be a folder that exists" in capsys.readouterr().err
    (toy / "out").mkdir()
    assert console.main(ledger) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["A", "0.95", "–"]
    assert console.main(["results", "--ledger", "--out", "out"]) == 0
    assert "  4 runs missing" in capsys.readouterr().out
    assert console.main(["reproduce", "t", "--seeds", "0-1", "--budget", "5m", "--out", "out"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("4 to run, about 6 min on one core\n1 of 4: a, seed 0: out/toy/a-")
    assert [line[8:17] for line in said.splitlines()[1:]] == ["a, seed 0", "a, seed 1", "b, seed 0", "b, seed 1"]
    assert said.count(".json") == 4 and not list((toy / "runs" / "toy").iterdir())  # no checkpoint is left
    assert console.main(["reproduce", "t", "--out", "out"]) == 0
    assert capsys.readouterr().out == "t lacks no run\n"
    assert console.main(["results", "--ledger", "--out", "out"]) == 0
    assert "0 runs missing" in capsys.readouterr().out
    assert console.main([*ledger, "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "row,printed,measured" and lines[1].startswith("A,0.95,")
    assert console.main([*ledger, "--format", "latex"]) == 0
    assert r"row & printed & measured \\" in capsys.readouterr().out


def test_what_another_process_works_on_is_passed_over(toy, capsys):
    busy = toy / "runs" / "toy" / "a-s0"
    busy.mkdir(parents=True)
    with FileLock(busy / "lock"):
        assert console.main(["reproduce", "t", "--seeds", "0", "--out", "out"]) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[1] == "a, seed 0: another process is at work on it"
        assert [file.name[0] for file in (toy / "out").glob("toy/*.json")] == ["b"]
        assert console.main(["simulate", "--protocol", "toy", "a", "--out", "out"]) == 2
        assert "must be free; another process is at work on this run" in capsys.readouterr().err
    assert console.main(["reproduce", "t", "--seeds", "0", "--out", "out"]) == 0
    assert len(list((toy / "out").glob("toy/*.json"))) == 2


def _measured(file):
    """All of a record but its timings."""
    record = json.loads(file.read_text())
    record["provenance"].pop("seconds")
    return record


@pytest.mark.parametrize("why", ["interrupted", "time is up"])
@pytest.mark.parametrize("command", [["reproduce", "t", "--seeds", "0"], ["simulate", "--protocol", "toy", "a"]])
def test_a_run_that_was_stopped_goes_on_from_its_last_round(why, command, toy, capsys, monkeypatch):
    whole, _ = run.run(protocols.plan("toy", "a"), out=toy / "whole", progress=False)
    command = [*command, "--out", "out"] + ["-p", "rounds=3"] * (command[0] == "simulate")
    begun = {"reproduce": 5, "simulate": 2}[command[0]] if why == "time is up" else 1  # looks at the clock
    looks = iter([False] * begun)

    def interrupt(*_):
        if next(looks, True):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if why == "interrupted":
            patch.setattr("cflkit.engine.simulation.tqdm.update", interrupt)
        else:
            for module in (pool, run):
                patch.setattr(module, "monotonic", lambda: 1e9 * next(looks, True))
        status = console.main([*command, *["--budget", "6m"] * (why == "time is up")])
    assert f"{why}; the same command goes on from the last checkpoint\n" in "".join(capsys.readouterr())
    assert status == {"interrupted": 130, "time is up": 0}[why] and not list(toy.glob("out/toy/*.json"))
    (state,) = toy.rglob("state.pt")
    assert 1 < len(torch.load(state)["seconds"]) < 4  # the start, and one round or two
    assert console.main(command) == 0
    assert _measured(next(toy.glob("out/toy/a*.json"))) | {"label": "a"} == _measured(whole)


def test_a_run_is_locked_until_its_record_is_there(toy, monkeypatch):
    """Another process that comes while the record is written neither runs it again nor deletes anything."""
    write, met = records.write, []

    def meet(*args):
        with pytest.raises(BusyError, match="another process is at work on this run"):
            run.run(protocols.plan("toy", "a"), out=toy / "out", progress=False)
        met.append(True)
        return write(*args)

    monkeypatch.setattr(records, "write", meet)
    run.run(protocols.plan("toy", "a"), out=toy / "out", progress=False)
    assert met and len(list((toy / "out" / "toy").iterdir())) == 1 and not list((toy / "runs" / "toy").iterdir())
