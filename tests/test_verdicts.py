"""Verdicts follow their data, by rules that were there before it."""

import json
import os
from datetime import date
from pathlib import Path

import pages
import pytest
import torch
import yaml
from made import record

from cflkit.workbook import ledger, marks, papers, protocols, records, schema, titles, verdicts

ROOT = Path(__file__).resolve().parents[1]
P = "mdicfl_rotmnist_r100"
MORE = {"more": [f"{P}/mdicfl-1", f"{P}/ifca"]}


def verdict(folder, **parts):
    return ledger.judge("mdicfl", {"says": "", "parts": parts}, folder)


@pytest.fixture
def learnt(tmp_path):
    """A folder in which the baseline has learnt."""
    for seed in range(10):
        record(tmp_path, P, "fedavg", seed, accuracy=0.9)
    return tmp_path


def seeds(folder, label, *values, **more):
    for seed, value in enumerate(values):
        record(folder, P, label, seed, accuracy=value, **more)


BESIDE_PRINT = {  # claims in a paper's words, where its own table is on the other side, by hundredths
    ("mdicfl-init", "mdicfl_rotmnist_r50/mdicfl-1-distinct", "mdicfl_rotmnist_r50/ifca"),
    ("mdicfl-init", "mdicfl_rotmnist_r50/mdicfl-2-distinct", "mdicfl_rotmnist_r50/ifca"),
    ("lcfed-ifca", "lcfed_mnist_n4_cal/ifca", "lcfed_mnist_n4_cal/fedgroup"),
    ("lcfed-ifca", "lcfed_mnist_n4_all/ifca", "lcfed_mnist_n4_all/fedgroup"),
    ("lcfed-few", "lcfed_mnist_n3_cal/ifca", "lcfed_mnist_dir01_cal/ifca"),
    ("lcfed-few", "lcfed_mnist_n3_all/ifca", "lcfed_mnist_dir01_all/ifca"),
}


def test_a_claim_asks_for_the_side_that_is_printed():
    printed = {(table["protocol"], row.label, row.metric): row.printed for name, table in ledger.tables().items()
               for row in ledger.rows(name) if row.printed is not None}  # fmt: skip
    found, asked = set(), 0
    for claim in (claim for paper in schema.CHAPTERS for claim in schema.claims()[paper] if not claim.get("ours")):
        for ours, theirs in (part["more"] for part in claim.get("parts", {}).values() if "more" in part):
            for cells in ((ours, other) for other in (theirs if isinstance(theirs, list) else [theirs])):
                numbers = [printed.get(tuple([*cell.split("/"), "accuracy"][:3])) for cell in cells]
                asked += None not in numbers
                if None not in numbers and numbers[0] <= numbers[1]:
                    found.add((claim["id"], *cells))
    assert found == BESIDE_PRINT and asked > 200


CONSTANT = {name: spec["constant"] for name, spec in protocols.protocols().items() if "constant" in spec}


def test_writers_have_a_most_frequent_class():
    assert {*CONSTANT} == {name for name in protocols.protocols() if "femnist" in name}


@pytest.mark.skipif(
    not Path(os.environ.get("CFLKIT_DATA", ""), "femnist.npz").is_file(), reason="needs CFLKIT_DATA with FEMNIST"
)
@pytest.mark.parametrize("name", ["fesem_femnist_60_r60", "stocfl_femnist_unseen_cal", "fedcg_femnist_150"])
def test_a_constant_answer_scores_the_share_of_the_most_frequent_class(name):
    shares = []
    for seed in range(3):
        classes = torch.bincount(protocols.simulation(name, "fedavg", seed=seed, progress=False).federation.test.y)
        shares.append(100 * float(classes.max() / classes.sum()))
    assert max(shares) == pytest.approx(CONSTANT[name], abs=0.05)


# ---------------------------------------------------------------------- what seeds decide
@pytest.mark.parametrize(
    "margins, word",
    [
        # three values with standard deviation 1: half of the 95% interval is 4.302653 / sqrt(3) = 2.484138
        ([[1.49, 2.49, 3.49]], "holds"),
        ([[1.48, 2.48, 3.48]], "undecided"),
        ([[-3.48, -2.48, -1.48]], "undecided"),
        ([[-3.49, -2.49, -1.49]], "fails"),
        ([[0, 0, 0]], "holds"),
        ([[1.49, 2.49, 3.49], [1.48, 2.48, 3.48]], "undecided"),  # all conditions must hold
        ([[1.49, 2.49, 3.49], [-3.49, -2.49, -1.49]], "fails"),  # and one that fails is enough
        ([[0.1]], "holds"), ([[-0.1]], "fails"), ([[-9, 10]], "holds"),  # too few: where the mean lies
        ([[1.49, 2.49, 3.49], [1.0]], "holds"), ([[1.49, 2.49, 3.49], [-1.0]], "fails"),
    ],
)  # fmt: skip
def test_the_interval_decides(margins, word):
    assert verdicts.outcome(margins) == word


def test_a_tie_is_no_lead():
    assert (
        verdicts.outcome([[0, 0, 0]], strict=True) == "undecided"
        and verdicts.outcome([[0]], strict=True) == "fails"
    )
    assert verdicts.outcome([[0.01] * 3], strict=True) == "holds"


def test_more_is_paired_over_seeds_and_wants_its_margin(learnt):
    claim = MORE | {"by": 3}
    assert verdict(learnt, a=claim).word == "not tested"
    record(learnt, P, "mdicfl-1", 0, accuracy=0.96)
    told = "not tested. Not yet measured, as the runs of `ifca` are missing."
    assert str(verdict(learnt, a=claim)) == told
    several = verdict(learnt, b={"more": [f"{P}/mdicfl-1", [f"{P}/fedavg", f"{P}/ifca", f"{P}/oracle"]]}, c=claim)
    told = "Not yet measured for b, as the runs of `ifca`, `oracle` are missing."
    assert str(several) == f"not tested. {told} Not yet measured for c, as the runs of `ifca` are missing."
    record(learnt, P, "ifca", 1, accuracy=0.90)
    assert str(verdict(learnt, a=claim)) == "not tested. Not yet measured, as no seed has all of its runs."
    record(learnt, P, "ifca", 0, accuracy=0.90)
    assert str(verdict(learnt, a=claim)) == "seems to hold. 1 seed."
    assert verdict(learnt, a=claim | {"by": 7}).word == "seems to fail"
    seeds(learnt, "mdicfl-1", 0.96, 0.90, 0.80)
    seeds(learnt, "ifca", 0.90, 0.85)
    assert str(verdict(learnt, a=claim)) == "seems to hold. 2 seeds."
    seeds(learnt, "ifca", 0.90, 0.85, 0.73)
    found = verdict(learnt, a=claim)
    assert str(found) == "holds. 3 seeds." and len(found.parts[0].runs) == 6
    assert found.parts[0].value == "+6.00 ± 1.00 (95%: +3.52 to +8.48; asked: 3 or more)"
    assert verdict(learnt, a=MORE | {"by": 4}).word == "undecided"
    assert verdict(learnt, a=MORE | {"by": 9}).word == "fails"
    record(learnt, P, "ifca", 0, accuracy=0.99)  # a verdict changes if its data changes
    assert verdict(learnt, a=claim).word == "undecided"


def test_the_last_round_counts_and_not_the_best(learnt):
    seeds(learnt, "ifca", 0.90, 0.90, 0.90)
    seeds(learnt, "mdicfl-1", 0.85, 0.86, 0.84, early=1.15)
    assert verdict(learnt, a=MORE).word == "fails"
    assert ledger.measured(P, "mdicfl-1", learnt).percent() == pytest.approx([85, 86, 84])


def test_each_of_several_baselines_is_to_be_beaten(learnt):
    seeds(learnt, "mdicfl-1", 0.95, 0.95, 0.95)
    seeds(learnt, "ifca", 0.94, 0.94, 0.94)
    both = {"more": [f"{P}/mdicfl-1", [f"{P}/ifca", f"{P}/fedavg"]]}
    seeds(learnt, "fedavg", 0.96, 0.96, 0.96)
    assert verdict(learnt, a=both).word == "fails" and verdict(learnt, a=MORE).word == "holds"
    assert verdict(learnt, a=both).parts[0].value == "-1.00 ± 0.00 (95%: -1.00 to -1.00) against `fedavg`"
    seeds(learnt, "fedavg", 0.90, 0.90, 0.90)
    assert verdict(learnt, a=both).word == "holds"
    seeds(learnt, "fedavg", 0.99, 0.90, 0.81)
    assert verdict(learnt, a=both).word == "undecided"
    assert verdict(learnt, a=both).parts[0].value.endswith("against `fedavg`")  # less sure, though not stronger
    seeds(learnt, "ifca", 0.96, 0.96, 0.96)
    assert verdict(learnt, a=both).word == "fails"
    assert verdict(learnt, a=both).parts[0].value.endswith("against `ifca`")  # which wins for sure
    seeds(learnt, "local", 0.1, 0.1, 0.1, personal_accuracy=0.97)
    own = {"more": [f"{P}/mdicfl-1", [f"{P}/ifca", f"{P}/local/personal_accuracy"]]}
    assert verdict(learnt, a=own).parts[0].value.endswith("against `local/personal_accuracy`")
    few = {"more": [f"{P}/mdicfl-1", [f"{P}/cfl", f"{P}/ifca"]]}
    record(learnt, P, "cfl", 0, accuracy=0.5)
    found = verdict(learnt, a=few)
    assert found.word == "seems to fail" and found.parts[0].seeds == 1
    assert found.parts[0].value == "-1.00 ± 0.00 against `ifca`, of 3 seeds; others have 1"
    absent = {"more": [f"{P}/mdicfl-1", [f"{P}/ifca", f"{P}/oracle"]]}
    assert verdict(learnt, a=absent).word == "not tested"  # a missing baseline blocks


@pytest.mark.parametrize(
    "part, word",
    [
        ({"near": [f"{P}/mdicfl-1", f"{P}/ifca"], "within": 1.1}, "holds"),
        ({"near": [f"{P}/mdicfl-1", f"{P}/ifca"], "within": 0.9}, "fails"),
        ({"near": [f"{P}/ifca", f"{P}/mdicfl-1"], "within": 0.9}, "fails"),
        ({"least": [f"{P}/ifca", f"{P}/mdicfl-1"], "within": 1.1}, "holds"),
        ({"least": [f"{P}/ifca", f"{P}/mdicfl-1"], "within": 0.9}, "fails"),
        ({"least": [f"{P}/mdicfl-1", f"{P}/ifca"], "within": 0.1}, "holds"),
        ({"above": f"{P}/ifca/ari", "than": 0.5}, "holds"),
        ({"above": f"{P}/ifca/ari", "than": 0.51}, "fails"),
        ({"below": f"{P}/ifca/settled", "than": 1}, "holds"),
        ({"below": f"{P}/ifca/settled", "than": 0.5}, "fails"),
        ({"equals": f"{P}/ifca/clusters", "to": 2}, "holds"),
        ({"equals": f"{P}/ifca/clusters", "to": 3}, "fails"),
        ({"equals": f"{P}/ifca/clusters", "to": 1}, "fails"),
        ({"ratio": [f"{P}/mdicfl-1/down", f"{P}/ifca/down"], "to": 0.25}, "holds"),
        ({"ratio": [f"{P}/mdicfl-1/down", f"{P}/ifca/down"], "to": 0.26}, "fails"),
        ({"ratio": [f"{P}/mdicfl-1/down", f"{P}/ifca/down"], "to": 0.24}, "fails"),
    ],
)
@pytest.mark.parametrize("n", [1, 3])
def test_each_rule(n, part, word, learnt):
    seeds(learnt, "mdicfl-1", *[0.95] * n, down=100)
    seeds(learnt, "ifca", *[0.94] * n, ari=0.5, down=400)
    found = verdict(learnt, a=part)
    assert found.outcome == word and found.preliminary == (n == 1)


def test_a_count_is_refuted_by_one_seed_that_differs(learnt):
    for seed, count in enumerate((2, 2, 3)):
        record(learnt, P, "ifca", seed, accuracy=0.9, clusters=count)
    assert verdict(learnt, a={"equals": f"{P}/ifca/clusters", "to": 2}).word == "fails"


def test_runs_that_are_the_same_test_nothing(learnt):
    near = {"near": [f"{P}/mdicfl-1", f"{P}/ifca"], "within": 1}
    seeds(learnt, "mdicfl-1", 0.9, 0.9, 0.9)
    seeds(learnt, "ifca", 0.9, 0.9, 0.9)
    assert str(verdict(learnt, a=near)) == "vacuous. The two runs are the same to the last digit."
    seeds(learnt, "ifca", 0.9, 0.9, 0.9, early=0.6)
    assert verdict(learnt, a=near).word == "holds"  # they came to the same by other ways
    seeds(learnt, "oracle", 0.9, 0.9)
    fewer = {"near": [f"{P}/mdicfl-1", f"{P}/oracle"], "within": 1}
    assert verdict(learnt, a=fewer).word == "vacuous"  # of the seeds that both have


def test_what_was_found_is_told(learnt):
    seeds(learnt, "mdicfl-1", 0.95, 0.96, 0.97, down=100)
    seeds(learnt, "ifca", 0.94, 0.94, 0.94, down=400)
    share = {"ratio": [f"{P}/mdicfl-1/down", f"{P}/ifca/down"], "to": 0.25}
    parts = {"a": share, "b": {"above": f"{P}/mdicfl-1", "than": 90}, "c": MORE}
    told = ["0.250 (asked: 0.25)", "96.00 ± 1.00 (95%: 93.52 to 98.48; asked: 90 or more)",
            "+2.00 ± 1.00 (95%: -0.48 to +4.48)"]  # fmt: skip
    found = verdict(learnt, **parts)
    assert [part.value for part in found.parts] == told
    assert [part.seeds for part in found.parts] == [3, 3, 3]
    assert [len(part.runs) for part in found.parts] == [6, 3, 6]
    assert str(found) == "holds in part. Holds for a and b. Undecided for c. 3 seeds."
    record(learnt, P, "cfl", 0, accuracy=0.95)
    few = verdict(learnt, a={"more": [f"{P}/mdicfl-1", f"{P}/cfl"]}).parts[0]
    assert (few.value, few.seeds, {run["seed"] for run in few.runs}) == ("+0.00", 1, {0})
    ifca = {"table": "Table 4", "participation": 1.0, "method": "IFCA", "metric": "test_accuracy_percent"}
    asked = {
        "least": {"least": [f"{P}/mdicfl-1", f"{P}/ifca"], "within": 1.1},
        "near": {"near": [f"{P}/mdicfl-1", f"{P}/ifca"], "within": 1.1},
        "below": {"below": f"{P}/mdicfl-1", "than": 99},
        "equals": {"equals": f"{P}/mdicfl-1", "to": 96},
        "print": {"as_printed": f"{P}/mdicfl-1", "number": "n", "within": 1},
    }
    judged = ledger.judge("mdicfl", {"says": "", "numbers": {"n": ifca}, "parts": asked}, learnt)
    values = [part.value.partition("asked: ")[2] for part in judged.parts]
    assert values == ["-1.1 or more)", "at most 1.1 apart)", "99 or less)", "96 in each seed)",
                      "at most 1 from 97.17)"]  # fmt: skip


def test_the_mean_over_seeds_of_a_baseline_opens_the_gate(tmp_path):
    seeds(tmp_path, "ifca", 0.9, 0.9, 0.9)
    seeds(tmp_path, "fedavg", 0.40, 0.60)  # the mean lies just below half of the way, the larger one above
    assert verdicts.too_early(P, tmp_path) == "the baseline `fedavg` reached only 50.00 (printed: 91.18)"
    seeds(tmp_path, "fedavg", 0.45, 0.60)
    assert verdicts.too_early(P, tmp_path) == "" and verdicts.too_early("stocfl_tau", tmp_path) == ""
    assert verdicts.too_early("common_rot_r20", tmp_path) == ""


def test_of_several_printed_numbers_the_least_is_the_gate(tmp_path, monkeypatch):
    seeds(tmp_path, "fedavg", 0.40, 0.60)
    monkeypatch.setattr(verdicts, "printed_numbers", lambda paper, where: [95.0, 60.0])
    assert verdicts.too_early(P, tmp_path) == ""  # half of the way to 60 is 35; to 95 it would be 52.5


# ---------------------------------------------------------------------- several parts
def test_mixed_parts_are_told_and_missing_ones_too(learnt):
    seeds(learnt, "ifca", 0.94, 0.95, 0.94)
    good, bad = {"above": f"{P}/ifca", "than": 90}, {"above": f"{P}/ifca", "than": 97}
    open_, absent = {"above": f"{P}/ifca", "than": 94.5}, {"above": f"{P}/oracle", "than": 90}
    assert str(verdict(learnt, a=good, b=bad)) == "mixed. Holds for a. Fails for b. 3 seeds."
    told = "mixed. Holds for a. Fails for b. Undecided for c. 3 seeds."
    assert str(verdict(learnt, a=good, b=bad, c=open_)) == told
    assert verdict(learnt, a=good, b=open_).word == "holds in part"
    assert str(verdict(learnt, a=good, b=absent)) == "holds in part. Holds for a. Not yet measured for b. 3 seeds."
    told = "fails in part. Fails for a and c. Undecided for b. 3 seeds."
    assert str(verdict(learnt, a=bad, b=open_, c=bad)) == told
    assert verdict(learnt, a=open_, b=absent).word == "undecided"
    assert verdict(learnt, a=good, b=good).word == "holds" and verdict(learnt, a=bad, b=bad).word == "fails"


def test_parts_whose_names_begin_alike_are_named_once():
    names = ["Table 1, A", "Table 1, B", "4,800 clients, half, C", "alone"]
    assert verdicts._listing(names) == " for Table 1 (A; B), 4,800 clients (half, C) and alone"
    assert verdicts._listing(["from one model, A", "from one model, B"]) == " from one model (A; B)"
    assert verdicts._listing(["alone"]) == " for alone" and verdicts._listing([""]) == ""


def test_parts_without_the_seeds_do_not_count_beside_those_that_have_them(learnt):
    seeds(learnt, "ifca", 0.94, 0.95, 0.94)
    record(learnt, P, "oracle", 0, accuracy=0.94)
    firm, early = {"above": f"{P}/ifca", "than": 90}, {"above": f"{P}/oracle", "than": 95}
    assert str(verdict(learnt, a=firm, b=early)) == "holds in part. Holds for a. Seems to fail for b. 3 seeds."
    assert verdict(learnt, b=early).word == "seems to fail"
    fine = {"above": f"{P}/oracle", "than": 90}
    assert str(verdict(learnt, b=early, c=fine)) == "seems mixed. Seems to fail for b. Seems to hold for c. 1 seed."


def test_the_fewest_and_the_most_seeds_are_told(learnt):
    seeds(learnt, "ifca", 0.94, 0.95, 0.94)
    seeds(learnt, "oracle", 0.94, 0.95, 0.94, 0.95)
    parts = {"a": {"above": f"{P}/ifca", "than": 90}, "b": {"above": f"{P}/oracle", "than": 90}}
    assert str(verdict(learnt, **parts)) == "holds. 3 seeds."  # the fourth was not stated beforehand
    record(learnt, P, "local", 0, accuracy=0.5)
    record(learnt, P, "cfl", 0, accuracy=0.5)
    record(learnt, P, "cfl", 1, accuracy=0.5)
    parts = {"a": {"above": f"{P}/local", "than": 40}, "b": {"above": f"{P}/cfl", "than": 40}}
    assert str(verdict(learnt, **parts)) == "seems to hold. 1 to 2 seeds."


def test_a_baseline_that_has_hardly_learnt_or_is_missing_decides_nothing(tmp_path):
    seeds(tmp_path, "mdicfl-1", 0.95, 0.95, 0.95, down=100)
    seeds(tmp_path, "ifca", 0.90, 0.90, 0.90, down=400)
    assert str(verdict(tmp_path, a=MORE)) == "not tested. Not judged, as the baseline `fedavg` has not run yet."
    halfway = (0.1 + 0.9118) / 2  # ten classes; the global model's printed 91.18
    seeds(tmp_path, "fedavg", *[halfway - 0.001] * 3)
    early = "Not judged, as the baseline `fedavg` reached only 50.49 (printed: 91.18)"
    assert str(verdict(tmp_path, a=MORE)) == f"not tested. {early}."
    share = {"ratio": [f"{P}/mdicfl-1/down", f"{P}/ifca/down"], "to": 0.25}
    told = f"{early.replace('judged', 'judged for a')}. Holds for b. 3 seeds."
    assert str(verdict(tmp_path, a=MORE, b=share)) == f"holds in part. {told}"
    seeds(tmp_path, "fedavg", *[halfway + 0.001] * 3)
    assert verdict(tmp_path, a=MORE).word == "holds"


def test_a_verdict_has_no_more_seeds_than_the_baseline_that_it_leans_on(tmp_path):
    seeds(tmp_path, "mdicfl-1", 0.95, 0.95, 0.95, down=100)
    seeds(tmp_path, "ifca", 0.90, 0.90, 0.90, down=400)
    seeds(tmp_path, "fedavg", 0.9, 0.9)
    assert str(verdict(tmp_path, a=MORE)) == "seems to hold. 2 seeds."
    share = {"ratio": [f"{P}/mdicfl-1/down", f"{P}/ifca/down"], "to": 0.25}
    assert str(verdict(tmp_path, a=share)) == "holds. 3 seeds."  # what is counted leans on nothing
    seeds(tmp_path, "cfl", 0.85, 0.99, 0.92)
    open_ = {"more": [f"{P}/mdicfl-1", f"{P}/cfl"]}
    assert str(verdict(tmp_path, a=open_)) == "seems to hold. 2 seeds."  # by the mean, as with two seeds of each
    record(tmp_path, P, "fedavg", 2, accuracy=0.9)
    assert str(verdict(tmp_path, a=MORE)) == "holds. 3 seeds."
    assert str(verdict(tmp_path, a=open_)) == "undecided. 3 seeds."


def test_a_claim_without_any_run_says_so_and_blames_no_baseline(tmp_path):
    told = "not tested. None of the runs that it rests on has been made yet."
    assert str(verdict(tmp_path, a=MORE)) == told
    assert str(verdict(tmp_path, a=MORE, b={"above": f"{P}/cfl", "than": 90})) == told
    seeds(tmp_path, "mdicfl-1", 0.95)
    gated = "Not judged for a, as the baseline `fedavg` has not run yet. Not yet measured for b."
    assert str(verdict(tmp_path, a=MORE, b={"above": f"{P}/cfl", "than": 90})) == f"not tested. {gated}"


def test_every_claim_of_a_protocol_leans_on_its_gate_or_says_why_on_none(tmp_path, monkeypatch):
    gates = dict(schema.gates())
    assert all(isinstance(gate, str) or set(gate) == {"baseline", "classes", "printed"} for gate in gates.values())
    del gates[P]
    monkeypatch.setattr(papers, "PAPERS", tmp_path)
    for name in ("protocols", "tables", "results"):
        (tmp_path / f"{name}.yaml").symlink_to(ROOT / "book" / "papers" / f"{name}.yaml")
    whole = yaml.safe_load((ROOT / "book" / "papers" / "claims.yaml").read_text()) | {"gates": gates}
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump(whole))
    with pytest.raises(
        ValueError, match=rf"^claims.yaml, mdicfl-par: parts, .*: gate of protocol = '{P}': must be"
    ):
        schema.claims()


# ---------------------------------------------------------------------- what weakens a verdict
def test_a_sample_of_the_data_is_told_and_a_caution(tmp_path, monkeypatch):
    p = "fesem_femnist_60_r60"
    record(tmp_path, p, "fedavg", 0, accuracy=0.6, accuracy_micro=0.6)
    record(tmp_path, p, "fesem2", 0, accuracy=0.5)
    claim = {"parts": {"a": {"above": f"{p}/fesem2", "than": 1}}}
    assert "A sample of the data, not at the printed rate." in ledger.judge("fesem", claim, tmp_path).note
    whole = protocols.protocols()
    changed = whole | {p: whole[p] | {"caution": "take care"}}
    monkeypatch.setattr(protocols, "protocols", lambda: changed)
    assert "at the printed rate. Take care." in ledger.judge("fesem", claim, tmp_path).note


def test_a_rule_younger_than_its_runs_says_so(learnt):
    seeds(learnt, "ifca", 0.94, 0.95, 0.94, date="2099-12-30")
    part = {"parts": {"a": {"above": f"{P}/ifca", "than": 90}}}
    for since, told in ((date(2099, 12, 29), ""), (date(2099, 12, 30), "2099-12-30")):  # days have no hours
        assert ledger.judge("mdicfl", part | {"since": since}, learnt).newer == told
    seeds(learnt, "ifca", 0.94, 0.95, 0.94, date="2026-11-21")
    assert ledger.judge("mdicfl", part, learnt).newer == schema.rules_since().isoformat()


def test_a_verdict_says_that_a_run_has_diverged_and_a_diverged_baseline_decides_nothing(learnt):
    seeds(learnt, "mdicfl-1", 0.95, 0.95, 0.95)
    seeds(learnt, "ifca", 0.90, 0.90, 0.90)
    assert str(verdict(learnt, a=MORE)) == "holds. 3 seeds."
    record(learnt, P, "ifca", 1, accuracy=0.90, diverged=True)
    assert str(verdict(learnt, a=MORE)) == "holds. 3 seeds. A run has diverged: ifca, seed 1."
    record(learnt, P, "fedavg", 0, accuracy=0.9, diverged=True)
    told = "not tested. Not judged, as the baseline `fedavg` has diverged."
    assert str(verdict(learnt, a=MORE)) == told


def test_a_table_that_was_extended_says_so(learnt, monkeypatch):
    seeds(learnt, "ifca", 0.94, 0.95, 0.94, 0.95)
    table = {"t": {"protocol": P, "seeds": 3, "extended": 10, "rows": {"a": {"label": "ifca"}}}}
    monkeypatch.setattr(schema, "tables", lambda: table)
    part = {"above": f"{P}/ifca", "than": 90}
    assert str(verdict(learnt, a=part)) == "holds. 4 of 10 planned seeds. Extended once, from 3 seeds to 10."


def test_seeds_beyond_those_that_a_table_states_decide_nothing(learnt, monkeypatch):
    seeds(learnt, "ifca", 0.94, 0.94, 0.94, 0.1, 0.1)
    part = {"above": f"{P}/ifca", "than": 90}
    assert str(verdict(learnt, a=part)) == "holds. 3 seeds."
    rows = {"a": {"label": "ifca"}}
    tables = {name: {"protocol": P, "seeds": n, "rows": rows} for name, n in (("t", 3), ("u", 5))}
    monkeypatch.setattr(schema, "tables", lambda: tables)
    assert str(verdict(learnt, a=part)) == "undecided. 5 seeds."  # the larger of its tables
    tables["u"]["seeds"] = 10
    assert str(verdict(learnt, a=part)) == "undecided. 5 of 10 planned seeds."
    monkeypatch.setattr(schema, "tables", dict)
    assert str(verdict(learnt, a=part)) == "undecided. 5 seeds."  # of a method that stands in no table


# ---------------------------------------------------------------------- printed numbers alone
def test_printed_numbers_alone_are_internal_consistency(tmp_path):
    numbers = {"a": {"table": "Table 4", "method": "MD-ICFL-1", "metric": "ARI"},
               "b": {"table": "Table 4", "method": "MD-ICFL-2", "metric": "ARI"}}  # fmt: skip
    claim = {"says": "{a}", "numbers": numbers, "parts": {"p": {"printed_more": ["a", "b"]}}}
    assert str(ledger.judge("mdicfl", claim, tmp_path)) == "internally consistent. By the printed numbers alone."
    why = claim | {"untested": "no run yet"}
    assert str(ledger.judge("mdicfl", why, tmp_path)).endswith(". By the printed numbers alone. No run yet.")
    table6 = {"table": "Table 6", "K": [4, 5]}  # 97.28 and 97.25 against 97.20 and 97.27
    wide = {"a": table6 | {"method": "MD-ICFL-1"}, "b": table6 | {"method": "MD-ICFL-2"}}
    both = ledger.judge("mdicfl", {"numbers": wide, "parts": {"p": {"printed_more": ["a", "b"]}}}, tmp_path)
    assert (both.parts[0].value, both.word) == ("-0.02 to +0.08", "internally inconsistent")
    for within, word in ((0.01, "internally inconsistent"), (0.02, "internally consistent")):
        near = {"numbers": wide, "parts": {"p": {"printed_more": ["a", "b"], "within": within}}}
        assert ledger.judge("mdicfl", near, tmp_path).word == word
    assert ledger.says("mdicfl", claim) == "0.94 to 0.95"
    claim["parts"]["q"] = {"printed_above": "a", "than": 0.94}
    assert ledger.judge("mdicfl", claim, tmp_path).word == "internally inconsistent"
    claim["parts"]["q"]["rounded"] = 0.005  # 0.94 may be 0.944
    assert ledger.judge("mdicfl", claim, tmp_path).word == "internally consistent"
    claim["parts"]["r"] = {"above": f"{P}/ifca", "than": 90}
    note = ledger.judge("mdicfl", claim, tmp_path).note
    assert "In print, internally consistent for p and q." in note
    assert ledger.judge("mdicfl", claim, tmp_path).word == "not tested"


@pytest.mark.parametrize("accuracy", [0.9809, 0.9625])  # printed: 97.17
@pytest.mark.parametrize("within, word", [(0.95, "holds"), (0.9, "fails")])
def test_a_measured_number_may_be_held_against_the_printed_one(accuracy, within, word, learnt):
    seeds(learnt, "ifca", *[accuracy] * 3)
    numbers = {"n": {"table": "Table 4", "method": "IFCA", "participation": 1.0, "metric": "test_accuracy_percent"}}
    part = {"as_printed": f"{P}/ifca", "number": "n", "within": within}
    assert ledger.judge("mdicfl", {"numbers": numbers, "parts": {"p": part}}, learnt).word == word


def test_a_row_agrees_with_a_printed_number_by_its_interval():
    assert verdicts.agreement([97.0, 97.1, 97.2], 97.1, 1) == "agrees"
    assert verdicts.agreement([96.0, 97.1, 98.2], 97.1, 1) == "undecided"
    assert verdicts.agreement([90.0, 90.1, 90.2], 97.1, 1) == "differs"
    assert verdicts.agreement([97.0, 97.1], 97.1, 1) == "seems to agree"
    assert verdicts.agreement([95.0], 97.1, 1) == "seems to differ"


def test_an_unknown_cell_or_rule_is_refused(learnt):
    for part in ({"above": "nope/ifca", "than": 1}, {"above": f"{P}/nope", "than": 1}, {"nope": "x"}):
        with pytest.raises(ValueError, match="nope"):
            verdict(learnt, a=part)


# ---------------------------------------------------------------------- a paper, and all of them
def test_a_chapter_bears_its_verdict_in_its_title(learnt, monkeypatch):
    seeds(learnt, "ifca", 0.92, 0.92, 0.92)
    record(learnt, P, "oracle", 0, accuracy=0.92)

    def claim(label="ifca", than=90, **more):
        return {"id": "", "says": "", "parts": {"p": {"above": f"{P}/{label}", "than": than}}} | more

    good, bad, open_ = claim(), claim(than=95), claim("cfl")
    early, against = claim("oracle"), claim("oracle", than=95)
    both = good | {"parts": {"p": good["parts"]["p"], "q": bad["parts"]["p"]}}
    partly = good | {"parts": {"p": good["parts"]["p"], "q": open_["parts"]["p"]}}
    numbers = {"n": {"table": "Table 4", "method": "MD-ICFL-1", "metric": "ARI"}}
    printed = {"id": "", "says": "", "numbers": numbers, "parts": {"p": {"printed_above": "n", "than": 0}}}
    found = []
    monkeypatch.setattr(schema, "claims", lambda: {"mdicfl": found})
    for claims, mark in (
        ([open_], "[Re: open]"), ([good], "[Re]"), ([bad], "[¬Re]"), ([good, bad], "[Re: mixed]"),
        ([good, open_], "[Re in part]"), ([bad, open_], "[¬Re in part]"),  # what is open is not decided by the rest
        ([claim(ours=True)], "[Re: open]"), ([good, claim(ours=True, than=95)], "[Re]"),  # our own do not count
        ([printed], "[Re: open]"), ([bad, printed], "[¬Re]"),  # nor do printed numbers alone
        ([early], "[Re, preliminary]"), ([against], "[¬Re, preliminary]"),
        ([early, against], "[Re: mixed, preliminary]"),
        ([both], "[Re: mixed]"), ([both, good], "[Re: mixed]"),  # as its parts are
        ([partly], "[Re in part]"), ([partly, good], "[Re in part]"), ([partly, bad], "[Re: mixed]"),
        ([good, early], "[Re in part]"), ([bad, early], "[¬Re in part]"),  # nor what is preliminary, beside others
    ):  # fmt: skip
        found[:] = claims
        assert ledger.mark("mdicfl", learnt) == mark, claims
    seeds(learnt, "ifca", 0.92, 0.97, 0.93)
    found[:] = [claim(than=93)]
    assert ledger.mark("mdicfl", learnt) == "[Re: undecided]"


def test_a_title_is_written_when_the_book_is_built(monkeypatch):
    page = ['{"source": ["# MD-ICFL", "# not a title"]}']
    monkeypatch.setattr(ledger, "mark", lambda paper: f"[{paper}]")
    titles.entitle(None, "book/mdicfl", page)
    assert page == ['{"source": ["# [mdicfl] MD-ICFL", "# not a title"]}']
    titles.entitle(None, "book/howto", page)
    assert page == ['{"source": ["# [mdicfl] MD-ICFL", "# not a title"]}']


def test_no_notebook_bears_a_mark_that_nobody_computes():
    for paper in schema.CHAPTERS:
        titles_of = [line for line in Path(f"book/{paper}.ipynb").read_text().splitlines() if '"# ' in line]
        assert "Re]" not in titles_of[0] and "[Re" not in titles_of[0], paper


def test_claims_are_counted_by_kind(learnt, monkeypatch):
    seeds(learnt, "ifca", 0.92, 0.92, 0.92)
    seeds(learnt, "cfl", 0.9)
    numbers = {"n": {"table": "Table 4", "method": "MD-ICFL-1", "metric": "ARI"}}
    printed = {"id": "", "says": "", "numbers": numbers, "parts": {"p": {"printed_above": "n", "than": 0}}}
    good = {"id": "", "says": "", "parts": {"p": {"above": f"{P}/ifca", "than": 90}}}
    early = {"id": "", "says": "", "parts": {"p": {"above": f"{P}/cfl", "than": 95}}}
    claims = {paper: [] for paper in schema.CHAPTERS} | {"mdicfl": [printed, good, early, good | {"ours": True}]}
    monkeypatch.setattr(schema, "claims", lambda: claims)
    assert ledger.tally(learnt) == {
        "of the papers": {"holds": 1, "seems to fail": 1},
        "of their printed numbers alone": {"internally consistent": 1},
        "of our own": {"holds": 1},
    }


def test_stored_verdicts_claim_no_more_than_three_seeds_allow():
    for paper in schema.CHAPTERS:
        for claim, found in marks.verdicts(paper):
            decided = [part for part in found.parts if part.tested and not part.preliminary]
            inside = found.outcome in (verdicts.CONSISTENT, verdicts.INCONSISTENT, verdicts.VACUOUS)
            firm = not found.preliminary and found.outcome != verdicts.UNTESTED and not inside
            assert firm == bool(decided), claim["id"]
            for part in decided:
                assert len({run["seed"] for run in part.runs}) >= 3, (claim["id"], part.name)
    assert json.dumps(records.load("mdicfl_rotmnist_r100")[0])  # there are stored runs at all


def test_titles_claim_no_more_than_three_seeds_allow():
    """Counted from the runs: what no three seeds decide is preliminary or open in the chapter's mark."""
    for paper in schema.CHAPTERS:
        theirs = [found for claim, found in marks.verdicts(paper) if not claim.get("ours")]
        runs = [part.runs for found in theirs for part in found.parts if part.tested and not part.printed]
        most = max((len({run["seed"] for run in few}) for few in runs), default=0)
        mark = ledger.mark(paper)
        assert most >= 3 or mark == "[Re: open]" or mark.endswith(", preliminary]"), (paper, mark, most)
        assert most > 0 or mark == "[Re: open]", (paper, mark)


def test_a_finding_says_that_the_main_claim_is_not_tested_as_long_as_it_is_not(tmp_path):
    finding = pages.environment(records.FOLDER, tmp_path).get_template("finding.md.jinja").render(paper="mdicfl")
    (main,) = [verdict for claim, verdict in ledger.verdicts("mdicfl") if claim["id"] == "mdicfl-cifar"]
    assert ("The paper's main claim, a lead on CIFAR-10" in finding) == (main.word == ledger.UNTESTED)
