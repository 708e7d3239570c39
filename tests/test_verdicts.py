"""The one rule, on made-up records: intervals, Holm, counts, gates, mechanisms; and planted changes are noticed."""

import json
import shutil
from collections import Counter

import numpy as np
import pytest
import sound
import yaml
from hypothesis import given
from hypothesis import strategies as st
from made import experiment, record

from cflkit.workbook import places
from cflkit.workbook.claims import findings, measured, papers, schema, verdicts
from cflkit.workbook.runs import records, results

METHODS = {"a": {"name": "fedavg"}, "b": {"name": "oracle"}, "c": {"name": "ifca", "k": 2}}


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Make records of a toy protocol, `scores` by label, and decide parts of a claim about them."""
    (tmp_path / "papers").mkdir()
    experiment(tmp_path / "papers", **METHODS)
    monkeypatch.setattr(places, "PAPERS", tmp_path / "papers")
    tables = yaml.safe_load((tmp_path / "papers" / "tables.yaml").read_text())
    tables["tables"]["t"]["seeds"] = 10
    (tmp_path / "papers" / "tables.yaml").write_text(yaml.safe_dump(tables))
    out = tmp_path / "results"

    def decide(gate=None, metric="accuracy", early=0.5, **scores):
        shutil.rmtree(out, ignore_errors=True)
        monkeypatch.setattr(schema, "gate", lambda protocol: gate or {})
        for label, values in scores.items():
            for seed, value in enumerate(values):
                record(out, "toy", label, seed, early=early, **{"accuracy": 0.5, metric: value})
        return lambda parts, **how: verdicts.decide(parts, {"n": [50.0], "lead": [9.0]}, out, **how)

    return decide


A, B, C = (0.60, 0.61, 0.62), (0.50, 0.51, 0.52), (0.55, 0.56, 0.57)


def test_the_interval_is_of_the_pooled_variance_by_hand(toy):
    (found,) = toy(a=A, b=B[::-1], c=C)({"p": {"more": ["toy/a", "toy/b"]}})  # each variance is 1
    half = 2.446912 * (2 / 3) ** 0.5  # t with 6 degrees of freedom
    assert (found.n, found.word) == (3, "held")
    assert (found.mean, found.low, found.high) == pytest.approx((10, 10 - half, 10 + half), abs=1e-4)


def test_seeds_that_move_all_methods_alike_are_taken_out(toy):
    wobble = np.array([0.0, 0.0001, -0.0001])
    (found,) = toy(a=A, b=list(B + wobble), c=C)({"p": {"more": ["toy/a", "toy/b"]}})
    assert found.word == "held" and found.high - found.low < 0.1  # plain, it would be 4


def test_a_cell_that_varies_more_than_its_table_keeps_its_own_variance(toy):
    wild = (0.2, 0.5, 0.8)
    decide = toy(a=A, b=B[::-1], c=wild)
    (tame,), (other,) = (decide({"p": {"more": ["toy/a", rival]}}) for rival in ("toy/b", "toy/c"))
    assert tame.word == "held" and tame.high - tame.low < 6  # the wild one is not in the pool
    assert other.word == "open" and other.high - other.low > 100


@pytest.mark.parametrize(("part", "word"), [
    ({"more": ["toy/a", "toy/b"]}, "held"), ({"more": ["toy/b", "toy/a"]}, "failed"),
    ({"more": ["toy/a", "toy/b"], "by": 9.5}, "open"), ({"more": ["toy/a", "toy/b"], "by": 15}, "failed"),
    ({"more": ["toy/b", "toy/a"], "by": -13}, "held"), ({"more": ["toy/b", "toy/a"], "by": -1}, "failed"),
    ({"near": ["toy/a", "toy/b"], "within": 13}, "held"), ({"near": ["toy/a", "toy/b"], "within": 1}, "failed"),
    ({"near": ["toy/a", "toy/b"], "within": 10}, "open"), ({"more": ["toy/a", 50]}, "held"),
    ({"less": ["toy/a", 50]}, "failed"), ({"near": ["toy/b", "n"], "within": 4}, "held"),
    ({"more": ["toy/a", ["toy/b", "toy/c"]]}, "held"), ({"more": ["toy/c", ["toy/b", "toy/a"]]}, "failed"),
])  # fmt: skip
def test_each_rule(part, word, toy):
    (found,) = toy(a=A, b=B[::-1], c=C)({"p": part})
    assert found.word == word
    if word == "failed" and "more" in part and isinstance(part["more"][1], list):
        assert found.b == "toy/a"  # the one that wins is named


def test_what_an_open_interval_excludes_and_how_many_seeds_would_do_is_told(toy):
    (found,) = toy(a=(0.51, 0.52, 0.54), b=B[::-1], c=C)({"p": {"more": ["toy/a", "toy/b"]}}, lead="lead")
    assert found.word == "open" and "excludes the printed +9.00" in found.reason and "seeds would" in found.reason


def test_too_few_seeds_decide_nothing_and_what_did_not_run_is_named(toy):
    two, gone, none = toy(a=A[:2], b=B[:2])({
        "two": {"more": ["toy/a", "toy/b"]}, "gone": {"more": ["toy/a", ["toy/b", "toy/c"]]},
        "none": {"more": ["toy/c", "toy/c"]},
    })  # fmt: skip
    assert {two.word, gone.word, none.word} == {"open"}
    assert (gone.reason, none.reason) == ("not run: `c`", "not run") and two.reason.startswith("2 seeds")


@pytest.mark.parametrize(("seeds", "word"), [(3, "open"), (5, "open"), (6, "held")])
def test_an_index_is_told_by_seeds_and_six_decide(seeds, word, toy):
    (found,) = toy(metric="ari", a=[1.0] * seeds, b=[0.5] * seeds)({"p": {"more": ["toy/a/ari", "toy/b/ari"]}})
    assert found.word == word and found.reason.startswith(f"{seeds} of {seeds} seeds") and found.low is None


def test_a_count_is_compared_with_its_rival_seed_by_seed(toy):
    (found,) = toy(metric="ari", a=[0.5] * 6, b=[0.9] * 6)({"p": {"more": ["toy/a/ari", "toy/b/ari"]}})
    assert (found.word, found.mean) == ("failed", pytest.approx(-0.4))


def test_little_noise_and_one_degree_of_freedom_decide_and_the_smallest_margin_is_told(toy, tmp_path):
    assert 0 < verdicts.Gap(verdicts.SEEDS, 1.0, 0.5, 1).above(0) < 0.5
    toy(a=A, b=A, c=[value - 0.135 for value in A])
    parts = {"p": {"more": ["toy/a", "toy/b"], "by": -13}, "q": {"more": ["toy/a", "toy/c"]}}  # by 13 and 13.5
    found = verdicts.judge("mdicfl", {"id": "x", "kind": "ours", "parts": parts}, tmp_path / "results")
    assert (found.word, found.decides.what) == ("held", "p")


def test_a_rise_is_from_the_last_score_within_two_thirds_of_the_rounds(toy, tmp_path):
    toy(a=[0.6])
    (file,) = (tmp_path / "results" / "toy").glob("a-*.json")
    whole = json.loads(file.read_text())
    whole["rounds"][0]["accuracy"] = 0.1
    places.write(file, json.dumps(whole))
    assert verdicts.rise("toy/a", tmp_path / "results") == pytest.approx(30)  # 0.6 less 0.3 of round 2


def test_a_rival_that_diverged_is_beaten_and_named_and_ours_decides_nothing(toy, tmp_path):
    decide = toy(a=A, b=B[::-1], c=C)
    file = next((tmp_path / "results" / "toy").glob("c-*-s1.json"))
    whole = json.loads(file.read_text())
    whole["rounds"][-1]["diverged"] = whole["final"]["diverged"] = True
    file.write_text(json.dumps(whole))
    (found,) = decide({"p": {"more": ["toy/a", ["toy/b", "toy/c"]]}})
    assert (found.word, found.b, found.reason) == ("held", "toy/b", "`c` diverged, so beaten")
    assert decide({"p": {"more": ["toy/c", "toy/b"]}})[0].word == "open"


GATE = {"baseline": "b", "classes": 10,
        "printed": {"table": "Table 4", "participation": 1.0, "method": "MD-ICFL-1",
                    "metric": "test_accuracy_percent"}}  # fmt: skip


@pytest.fixture
def of_mdicfl(monkeypatch):
    """Let the toy protocol be of a paper with printed numbers: 97.35 in that cell."""
    real = schema.protocols
    monkeypatch.setattr(schema, "protocols", lambda: {k: v | {"paper": "mdicfl"} for k, v in real().items()})
    monkeypatch.setattr(papers, "found", lambda **where: [{"value": 80.0, "std": None}])


@pytest.mark.parametrize(("base", "early", "ours", "word"), [
    (0.79, 0.5, False, "held"),  # within 3 points of 80
    (0.70, 0.5, False, "open"), (0.70, 0.999, False, "held"),  # it misses print, and rises or is flat
    (0.70, 0.5, True, "held"),  # a question of our own leans on no print
])  # fmt: skip
def test_a_baseline_that_misses_print_while_curves_rise_is_another_set_up(base, early, ours, word, toy, of_mdicfl):
    b = [base, base + 0.01, base - 0.01]
    decide = toy(gate=GATE, early=early, a=[x + 0.1 for x in b[::-1]], b=b)
    (found,) = decide({"p": {"more": ["toy/a", "toy/b"]}}, ours=ours)
    assert found.word == word and (word == "held" or "set-up not reproduced" in found.reason)
    assert found.mean == pytest.approx(10)  # what was measured is shown all the same


@pytest.mark.parametrize(("share", "word"), [(1.0, "open"), (0.5, "held")])
def test_a_mechanism_that_is_off_decides_nothing(share, word, toy, of_mdicfl, monkeypatch):
    rule = {"label": "a", "metric": "largest_share", "below": 0.9, "why": "one domain is left"}
    decide = toy(gate=GATE | {"mechanism": rule}, a=[0.9, 0.91, 0.92], b=[0.80, 0.79, 0.80])
    asked, real = measured.Cell([], dict.fromkeys(range(3), share), set(), {}), measured.cell
    monkeypatch.setattr(verdicts, "cell", lambda n, folder: asked if "largest" in n else real(n, folder))
    (found,) = decide({"p": {"more": ["toy/a", "toy/b"]}})
    assert found.word == word and ("one domain" in found.reason) == (word == "open")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_no_more_than_each_alone_and_no_less_than_bonferroni(chances):
    found = verdicts._holm(chances)
    for p, (rejected, level) in zip(chances, found, strict=True):
        assert (not rejected or 2 * p < 0.05) and (rejected or 2 * p * len(chances) >= 0.05)
        assert 0.05 / len(chances) <= level * (1 + 1e-12) and level <= 0.05 and rejected == (2 * p < level)


@pytest.mark.parametrize(("of", "count", "word"), [
    ("all", (2, 0, 0), "held"), ("all", (1, 1, 1), "failed"), ("all", (1, 0, 1), "open"),
    ("most", (2, 0, 1), "held"),
    ("most", (1, 2, 1), "failed"), ("most", (1, 0, 1), "open"), ("some", (1, 2, 0), "held"),
    ("some", (0, 2, 0), "failed"),
])  # fmt: skip
def test_several_comparisons_make_a_word(of, count, word):
    assert verdicts._word(of, Counter(dict(zip(verdicts.WORDS, count, strict=True)))) == word


# ---------------------------------------------------------------------- the book's own
def test_every_record_of_the_book_can_be_read():
    assert results.problems() == [] and len(results.frame().groupby(["protocol", "label", "seed"])) > 1400


def test_the_table_of_results_has_a_row_a_run_and_metric():
    table = results.frame()
    run = table[(table.protocol == "stocfl_rotmnist_4800_r10") & (table.label == "stocfl") & (table.seed == 0)]
    row = run[run.metric == "accuracy"]
    assert row.value.tolist() == [90.3278] and row.rounds.tolist() == [100] and not row.diverged.any()
    assert not table.duplicated(["protocol", "label", "seed", "metric"]).any()


def test_findings_and_verdicts_compare_alike():
    a, b = "stocfl_rotmnist_4800_r10/ifca4", "stocfl_rotmnist_4800_r10/stocfl"
    (found,) = verdicts.decide({"p": {"more": [a, b]}}, {})
    assert findings.gap(a, b) == {"mean": found.mean, "low": found.low, "high": found.high, "n": found.n}
    ahead = [findings.WORDS["ahead"](a, b, by) for by in (found.low - 0.1, found.low, found.mean - 1e-6)]
    assert ahead == [True, False, False]
    assert findings.WORDS["verdict"]("stocfl-gain") == verdicts.verdict("stocfl-gain")


def test_each_paper_has_one_main_claim_and_corrections_end_where_the_rule_does():
    assert all(sum(claim.get("main", False) for claim in found) == 1 for found in schema.claims().values())
    for one in schema.corrections():
        assert verdicts.verdict(one["claim"]) == one["now"], one["claim"]


# ---------------------------------------------------------------------- planted changes
@pytest.fixture
def copied(tmp_path):
    shutil.copytree(places.RESULTS / "stocfl_rotmnist_4800_r10", tmp_path / "stocfl_rotmnist_4800_r10")
    shutil.copytree(places.RESULTS / "stocfl_rotmnist_1200_r10", tmp_path / "stocfl_rotmnist_1200_r10")
    return tmp_path


CELL = ["stocfl_rotmnist_4800_r10/stocfl-chained", "stocfl_rotmnist_4800_r10/ifca4"]


def test_a_record_removed_is_noticed_by_name(copied):
    for file in (copied / "stocfl_rotmnist_4800_r10").glob("ifca4-*.json"):
        file.unlink()
    (found,) = verdicts.decide({"p": {"more": CELL}}, {}, copied)
    assert (found.word, found.reason) == ("open", "not run: `ifca4`")


def test_a_record_altered_by_two_points_is_noticed_by_name(copied):
    file = next((copied / "stocfl_rotmnist_4800_r10").glob("stocfl-chained-*-s0.json"))
    whole = json.loads(file.read_text())
    for row in (whole["final"], whole["rounds"][-1]):
        row["accuracy"] += 0.02
    whole["clients"] = whole["clients"] or {"accuracy": [whole["final"]["accuracy"] - 0.02]}
    file.write_text(json.dumps(whole))
    parts = {"p": {"more": [CELL[0], "stocfl_rotmnist_4800_r10/oracle"]}}  # which has the same seeds
    before, after = (verdicts.decide(parts, {}, folder)[0] for folder in (places.RESULTS, copied))
    assert after.mean == pytest.approx(before.mean + 2 / 5) and after.high - after.low > before.high - before.low
    with pytest.raises(ValueError, match="accuracy of the last round"):
        sound.check(records.read(file))


def test_a_rule_inverted_is_noticed(copied):
    (right,), (wrong,) = (verdicts.decide({"p": {"more": pair}}, {}, copied) for pair in (CELL, CELL[::-1]))
    assert (right.word, wrong.word) == ("held", "failed")
