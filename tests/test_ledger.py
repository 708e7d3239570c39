"""Printed numbers as the papers have them, verdicts that follow their data, gaps that say so."""

import json

import pytest
import yaml

from cflkit.workbook import ledger, pages, protocols, records, titles

FIRST = {"paper": "stocfl", "table": "Table 1", "n_clients": 4800, "participation": 0.1}


def record(folder, protocol, label, seed, device="cpu", **final):
    """Write a record of the protocol's configuration with those last-round numbers; earlier rounds are worse."""
    spec = protocols.protocols()[protocol]
    kept = {k: spec[k] for k in ("model", "rounds", "participation") if k in spec}
    config = kept | {"method": spec["methods"][label], "federation": spec["federation"], "local": spec["local"],
                     "dtype": "float32", "seed": seed}  # fmt: skip
    moved = {0: 5, 1: 2}
    rows = [{"round": t, "clusters": 2, "sizes": [2, 1], "objective": -0.5, "moved": moved.get(t, 0),
             **{k: v / (config["rounds"] + 1 - t) for k, v in final.items()}}
            for t in range(config["rounds"] + 1)]  # fmt: skip
    made = {"card": None, "machine": {"processor": "a processor"}, "commit": "abc", "seconds": 60,
            "date": "2000-01-01", "device": device}  # fmt: skip
    whole = {"protocol": protocol, "label": label, "config": config, "seed": seed, "final": rows[-1] | final,
             "rounds": rows, "provenance": made}  # fmt: skip
    path = folder / protocol / f"{records.name(whole)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole))
    return path


# ---------------------------------------------------------------------- printed
def test_every_printed_number_is_there():
    assert len(ledger.entries()) == 445
    assert ledger.printed(**FIRST, method="StoCFL") == [97.0]
    assert ledger.printed(**FIRST, method="IFCA", K_assumed=[4, 6]) == [91.74, 91.74]


def test_numbers_of_the_running_text():
    assert ledger.stated(paper="lcfed", what="low-rank dimension D") == 50
    assert ledger.stated(where="abstract of FedAC, arXiv:2403.16460") == [1.82, 12.67]
    with pytest.raises(ValueError, match=r"^where = .*: must be fields of exactly one"):
        ledger.stated(paper="lcfed", where="Sec. IV-C")


def test_an_unknown_number_is_refused():
    with pytest.raises(ValueError, match=r"where = .*Table 9"):
        ledger.printed(paper="stocfl", table="Table 9")


def test_differences_and_extremes_of_printed_numbers():
    ours = {"table": "Table 4", "method": ["MD-ICFL-1", "MD-ICFL-2"], "metric": "ARI"}
    assert ledger.printed_numbers("mdicfl", ours) == [0.94, 0.95, 0.93, 0.90]
    assert ledger.printed_numbers("mdicfl", {"max": ours, "by": "participation"}) == [0.94, 0.95]
    assert ledger.printed_numbers("mdicfl", {"min": ours}) == [0.90]
    theirs = ours | {"method": "IFCA"}
    gap = ledger.printed_numbers("mdicfl", [{"max": ours, "by": "participation"}, theirs])
    assert gap == pytest.approx([0.06, 0.19])


def test_every_row_finds_one_printed_number_and_every_claim_its_numbers(tmp_path):
    for name in ledger.tables():
        assert len(list(ledger.rows(name, tmp_path))) == len(ledger.tables()[name]["rows"])
    for paper, found in ledger.claims().items():
        for claim in found:
            assert "{" not in ledger.says(paper, claim)
            verdict = ledger.judge(paper, claim, tmp_path)
            on_paper = any("printed_more" in p or "printed_above" in p for p in claim.get("parts", {}).values())
            assert (verdict.word != ledger.UNTESTED) == on_paper
            assert verdict.note  # without records, why


# ---------------------------------------------------------------------- verdicts
P = "mdicfl_rotmnist_r100"


def verdict(folder, **parts):
    return ledger.judge("mdicfl", {"says": "", "parts": parts}, folder)


def test_more_is_paired_over_seeds_and_wants_its_margin(tmp_path):
    claim = {"more": [f"{P}/mdicfl-1", f"{P}/ifca"], "by": 5}
    assert verdict(tmp_path, a=claim).word == "not tested"
    record(tmp_path, P, "mdicfl-1", 0, accuracy=0.96)
    assert verdict(tmp_path, a=claim).word == "not tested"  # the other side is missing
    record(tmp_path, P, "ifca", 0, accuracy=0.90)
    assert str(verdict(tmp_path, a=claim)) == "holds (preliminary: 1 seed)"
    assert verdict(tmp_path, a=claim | {"by": 7}).word == "fails"
    for seed, (ours, theirs) in enumerate([(0.96, 0.90), (0.90, 0.85), (0.80, 0.73)]):
        record(tmp_path, P, "mdicfl-1", seed, accuracy=ours)
        record(tmp_path, P, "ifca", seed, accuracy=theirs)
    found = verdict(tmp_path, a=claim)
    assert str(found) == "holds" and found.parts[0].value == "+6.00 ± 1.00" and len(found.parts[0].runs) == 6
    record(tmp_path, P, "ifca", 0, accuracy=0.99)  # a verdict changes if its data changes
    assert verdict(tmp_path, a=claim).word == "fails"


def test_a_lead_that_its_seeds_do_not_agree_on_is_none(tmp_path):
    for seed, ours in enumerate([0.99, 0.80, 0.94]):
        record(tmp_path, P, "mdicfl-1", seed, accuracy=ours)
        record(tmp_path, P, "ifca", seed, accuracy=0.90)
    assert verdict(tmp_path, a={"more": [f"{P}/mdicfl-1", f"{P}/ifca"]}).word == "fails"


def test_the_best_of_several_is_to_be_beaten(tmp_path):
    for label, value in (("mdicfl-1", 0.95), ("ifca", 0.94), ("fedavg", 0.96)):
        record(tmp_path, P, label, 0, accuracy=value)
    assert verdict(tmp_path, a={"more": [f"{P}/mdicfl-1", [f"{P}/ifca", f"{P}/fedavg"]]}).word == "fails"
    assert verdict(tmp_path, a={"more": [f"{P}/mdicfl-1", [f"{P}/ifca"]]}).word == "holds"


@pytest.mark.parametrize(
    "part, word",
    [
        ({"near": [f"{P}/mdicfl-1", f"{P}/ifca"], "within": 1.1}, "holds"),
        ({"near": [f"{P}/mdicfl-1", f"{P}/ifca"], "within": 0.9}, "fails"),
        ({"least": [f"{P}/ifca", f"{P}/mdicfl-1"], "within": 1.1}, "holds"),
        ({"least": [f"{P}/ifca", f"{P}/mdicfl-1"], "within": 0.9}, "fails"),
        ({"least": [f"{P}/mdicfl-1", f"{P}/ifca"], "within": 0.1}, "holds"),
        ({"above": f"{P}/ifca/ari", "than": 0.5}, "holds"),
        ({"above": f"{P}/ifca/ari", "than": 0.51}, "fails"),
        ({"below": f"{P}/ifca/settled", "than": 1}, "holds"),
        ({"below": f"{P}/ifca/settled", "than": 0.5}, "fails"),
        ({"equals": f"{P}/ifca/clusters", "to": 2}, "holds"),
        ({"equals": f"{P}/ifca/clusters", "to": 3}, "fails"),
        ({"ratio": [f"{P}/mdicfl-1/down", f"{P}/ifca/down"], "is": 0.25}, "holds"),
        ({"ratio": [f"{P}/mdicfl-1/down", f"{P}/ifca/down"], "is": 0.26}, "fails"),
    ],
)
def test_each_rule(part, word, tmp_path):
    record(tmp_path, P, "mdicfl-1", 0, accuracy=0.95, down=100)
    record(tmp_path, P, "ifca", 0, accuracy=0.94, ari=0.5, down=400)
    assert verdict(tmp_path, a=part).word == word


def test_some_parts_make_it_hold_in_part_and_missing_ones_are_told(tmp_path):
    record(tmp_path, P, "ifca", 0, accuracy=0.94, ari=0.5)
    good, bad = {"above": f"{P}/ifca", "than": 90}, {"above": f"{P}/ifca", "than": 95}
    absent = {"above": f"{P}/fedavg", "than": 90}
    assert verdict(tmp_path, a=good, b=bad).word == "holds in part"
    assert str(verdict(tmp_path, a=good, b=absent)) == "holds (1 of 2 parts; preliminary: 1 seed)"


def test_a_baseline_that_has_not_learnt_decides_nothing(tmp_path):
    first = {"table": "Table 4", "participation": 1.0, "method": "Global model", "metric": "test_accuracy_percent"}
    needs = {"halfway": f"{P}/fedavg", "classes": 10, "to": first}
    halfway = (10 + ledger.printed(paper="mdicfl", **first)[0]) / 200
    more = {"more": [f"{P}/ifca", f"{P}/fedavg"]}
    whole = {"says": "", "needs": needs, "parts": {"a": more}}
    one = {"says": "", "parts": {"a": {"needs": needs} | more}}
    two = {"says": "", "parts": one["parts"] | {"b": {"above": f"{P}/ifca", "than": 80}}}
    record(tmp_path, P, "ifca", 0, accuracy=0.9)
    assert ledger.judge("mdicfl", one, tmp_path).note == "not yet measured"
    record(tmp_path, P, "fedavg", 0, accuracy=halfway - 0.001)
    for claim in (whole, one):
        found = f"not tested (`fedavg` itself is at {100 * halfway - 0.1:.2f}: too early to compare)"
        assert str(ledger.judge("mdicfl", claim, tmp_path)) == found
    assert str(ledger.judge("mdicfl", two, tmp_path)) == "holds (1 of 2 parts; preliminary: 1 seed)"
    record(tmp_path, P, "fedavg", 0, accuracy=halfway + 0.001)
    assert ledger.judge("mdicfl", whole, tmp_path).word == ledger.judge("mdicfl", one, tmp_path).word == "holds"


def test_printed_numbers_of_one_name_are_told_as_a_range(tmp_path):
    found = str(pages.claims("lcfed", tmp_path))
    assert "printed, against FeSEM +0.32 to +9.53; printed, against FedGroup -0.11 to" in found


def results(paper, folder):
    return pages.environment(folder, folder).get_template("results.md.jinja").render(paper=paper)


def test_other_numbers_of_a_row_are_of_the_model_it_scores(tmp_path):
    personal = {"personal_accuracy_micro": 0.5, "personal_accuracy": 0.4, "personal_f1_micro": 0.3}
    record(tmp_path, "fesem_femnist_60_lr03", "local", 0, **personal)
    record(tmp_path, "fesem_femnist_60_lr03", "fedavg", 0, accuracy_micro=0.6, accuracy=0.7, f1_micro=0.8, f1=0.9)
    found = results("fesem", tmp_path).replace(" ", "")
    assert "|NoFed|79.00|50.00|" in found and "|40.00|30.00|–|-29.00|1|15|" in found
    assert "|FedAvg|84.90|60.00|" in found and "|70.00|80.00|90.00|-24.90|1|15|" in found


def test_rows_without_a_curve_are_named(tmp_path):
    record(tmp_path, "lcfed_mnist_n3", "fedavg", 0, accuracy=0.5)
    path = record(tmp_path, "lcfed_mnist_n3", "local", 0, personal_accuracy=0.5)
    whole = json.loads(path.read_text())
    for row in whole["rounds"][:-1]:
        del row["personal_accuracy"]
    path.write_text(json.dumps(whole))
    found = results("lcfed", tmp_path)
    assert "FedAvg ends at 50.0%](" in found
    assert "\nScored after the last round alone, so not drawn: local only.\n" in found


def test_a_sample_of_the_data_is_told(tmp_path):
    record(tmp_path, "fesem_femnist_60", "fesem2", 0, accuracy=0.5)
    assert "a sample of the data" in verdict(tmp_path, a={"above": "fesem_femnist_60/fesem2", "than": 1}).note


def test_printed_numbers_are_judged_too(tmp_path):
    numbers = {"a": {"table": "Table 4", "method": "MD-ICFL-1", "metric": "ARI"},
               "b": {"table": "Table 4", "method": "MD-ICFL-2", "metric": "ARI"}}  # fmt: skip
    claim = {"says": "{a}", "numbers": numbers, "parts": {"p": {"printed_more": ["a", "b"]}}}
    assert str(ledger.judge("mdicfl", claim, tmp_path)) == "holds (the printed numbers alone)"
    assert ledger.says("mdicfl", claim) == "0.94 to 0.95"
    claim["parts"]["q"] = {"printed_above": "a", "than": 0.94}
    assert ledger.judge("mdicfl", claim, tmp_path).word == "holds in part"


@pytest.mark.parametrize("accuracy", [0.9809, 0.9625])  # printed: 97.17
@pytest.mark.parametrize("within, word", [(0.95, "holds"), (0.9, "fails")])
def test_a_measured_number_may_be_held_against_the_printed_one(accuracy, within, word, tmp_path):
    record(tmp_path, P, "ifca", 0, accuracy=accuracy)
    numbers = {"n": {"table": "Table 4", "method": "IFCA", "participation": 1.0, "metric": "test_accuracy_percent"}}
    part = {"as_printed": f"{P}/ifca", "number": "n", "within": within}
    assert ledger.judge("mdicfl", {"numbers": numbers, "parts": {"p": part}}, tmp_path).word == word


def test_an_unknown_cell_or_rule_is_refused(tmp_path):
    for part in ({"above": "nope/ifca", "than": 1}, {"above": f"{P}/nope", "than": 1}, {"nope": "x"}):
        with pytest.raises(ValueError, match="nope"):
            verdict(tmp_path, a=part)


def test_a_record_of_another_configuration_does_not_count(tmp_path):
    path = record(tmp_path, P, "ifca", 0, accuracy=0.94)
    assert ledger.measured(P, "ifca", tmp_path)
    other = json.loads(path.read_text())
    other["config"]["local"]["lr"] = 0.2
    path.write_text(json.dumps(other))
    assert ledger.measured(P, "ifca", tmp_path) is None


def test_a_chapter_bears_its_verdict_in_its_title(tmp_path, monkeypatch):
    good, bad = ({"id": "", "says": "", "parts": {"p": {"above": f"{P}/ifca", "than": than}}} for than in (90, 95))
    open_ = {"id": "", "says": "", "untested": "why"}
    found = []
    monkeypatch.setattr(ledger, "claims", lambda: {"mdicfl": found})
    for claims, mark in (
        ([open_], "[Re: open]"), ([good, open_], "[Re]"), ([good, bad], "[Re in part]"), ([bad], "[¬Re]"),
    ):  # fmt: skip
        record(tmp_path, P, "ifca", 0, accuracy=0.92)
        found[:] = claims
        assert ledger.mark("mdicfl", tmp_path) == mark
    page = ['{"source": ["# [Re] MD-ICFL"]}']
    monkeypatch.setattr(ledger, "mark", lambda paper: f"[{paper}]")
    titles.entitle(None, "book/mdicfl", page)
    assert page == ['{"source": ["# [mdicfl] MD-ICFL"]}']
    titles.entitle(None, "book/howto", page)
    assert page == ['{"source": ["# [mdicfl] MD-ICFL"]}']


# ---------------------------------------------------------------------- tables
def test_what_is_missing_comes_cheapest_first_with_what_it_takes(tmp_path):
    before = ledger.missing("mdicfl-table4-r50", [0, 1], tmp_path)
    assert [(m.label, m.seed) for m in before[:2]] == [("fedavg", 0), ("fedavg", 1)] and len(before) == 8
    assert [m.minutes for m in before] == sorted(m.minutes for m in before)
    record(tmp_path, "mdicfl_rotmnist_r50", "mdicfl-2", 0, accuracy=0.9)  # took a minute: the other seed will, too
    after = ledger.missing("mdicfl-table4-r50", [0, 1], tmp_path)
    assert (after[0].label, after[0].seed, after[0].minutes) == ("mdicfl-2", 1, 1) and len(after) == 7


def test_without_records_everything_reads_not_yet_measured(tmp_path):
    assert pages.write(tmp_path / "none", tmp_path) is None
    results = (tmp_path / "stocfl_results.md").read_text()
    rows = sum(len(t["rows"]) for t in ledger.tables().values() if t["paper"] == "stocfl")
    assert results.count(f"| {pages.MISSING} |") == rows + 4  # of Figure 3
    assert "preliminary:" not in (tmp_path / "stocfl_claims.md").read_text()
    assert not list(tmp_path.glob("*.png"))


def test_measured_stands_beside_printed(tmp_path):
    for seed, (ours, theirs) in enumerate([(0.90, 0.80), (0.92, 0.83)]):
        record(tmp_path, "stocfl_rotmnist_4800_r10", "stocfl", seed, accuracy=ours, own_accuracy=0.75)
        record(tmp_path, "stocfl_rotmnist_4800_r10", "ifca4", seed, accuracy=theirs)
    record(tmp_path, "stocfl_fcc_hybrid", "stocfl", 0, accuracy=0.1, ari=1.0)
    pages.write(tmp_path, tmp_path)
    results, claims, whole = (
        (tmp_path / f"{name}.md").read_text() for name in ("stocfl_results", "stocfl_claims", "ledger")
    )
    line = "| StoCFL, parallel | 97.00 | 91.00 ± 1.41 | 75.00 ± 0.00 | -6.00 ± 1.41 | 2 | 100 | differs |"
    assert line in results
    assert "parallel +9.50 ± 0.71" in claims  # paired: 10 and 9
    assert "stocfl_rotmnist_4800_r10: ifca4-s0, ifca4-s1, stocfl-s0, stocfl-s1 (2000-01-01 abc)" in whole
    assert {file.stem for file in tmp_path.glob("*.png")} >= {"stocfl-table1-4800-r10", "stocfl_counts"}
    protocol = "stocfl_rotmnist_4800_r10"
    files = [records.name(r) for r in records.load(protocol, tmp_path) if r["label"] == "stocfl"]
    links = [f"{seed}: {{download}}`{value} <results/{protocol}/{files[seed]}.json>`"
             for seed, value in enumerate(("90.00", "92.00"))]  # fmt: skip
    assert f"| StoCFL, parallel | `stocfl` | {', '.join(links)} |" in results
    assert f"`cflkit run {protocol} LABEL --seed SEED --out again`" in results
    hybrid = results[results.index("(table-stocfl-tau-hybrid)=") :]
    assert "| method | printed | measured | ARI | difference |" in hybrid
    assert "| τ = 0.5 | – | 2.00 | 1.00 |" in hybrid


def test_pulls_and_thresholds_are_drawn_from_the_runs_that_exist(tmp_path):
    pages.write(tmp_path, tmp_path)
    results = (tmp_path / "stocfl_results.md").read_text()
    for title in ("What the pull is worth", "How many clusters a threshold gives"):
        assert f"### {title}\n\nNot yet measured.\n" in results
    for label, accuracy in (("lam0", 0.2), ("lam005", 0.3), ("chained-lam005", 0.4), ("lam10", 0.25)):
        others = {"own_accuracy": 0.9, "global_accuracy": 0.5}
        record(tmp_path, "stocfl_lambda_pathological", label, 0, accuracy=accuracy, **others)
    record(tmp_path, "stocfl_fcc_shifted", "stocfl-tau90", 0, accuracy=0.1, clusters=7, ari=0.5)
    record(tmp_path, "stocfl_fcc_shifted", "stocfl-union", 0, accuracy=0.1, clusters=5, ari=0.5)
    how = ("stocfl", "lam", "global_update", ["parallel", "chained"], tmp_path)
    points = pages.by_setting({"Pathological": "stocfl_lambda_pathological"}, *how)["Pathological"]
    assert {lam for update, lam in points if update == "chained"} == {0, 0.05}
    assert {lam for update, lam in points if update == "parallel"} == {0, 0.05, 10}
    assert points["chained", 0] == points["parallel", 0] and points["chained", 0.05].percent() == [40]
    pages.write(tmp_path, tmp_path)
    results = (tmp_path / "stocfl_results.md").read_text()
    best = [f"Pathological, {update}: best at 0.05 with {value}%" for update, value in
            (("parallel", "30.0"), ("chained", "40.0"))]  # fmt: skip
    assert "; ".join(best) in results
    assert "Clusters found: Shifted: 7 at 0.9]" in results
    assert {file.stem for file in tmp_path.glob("*.png")} >= {"stocfl_pulls", "stocfl_taus"}


def test_deleting_a_record_brings_the_gap_back(tmp_path):
    path = record(tmp_path, P, "ifca", 0, accuracy=0.9717)
    pages.write(tmp_path, tmp_path)
    assert "| IFCA | 97.17 | 97.17 |" in (tmp_path / "mdicfl_results.md").read_text()
    path.unlink()
    pages.write(tmp_path, tmp_path)
    assert f"| IFCA | 97.17 | {pages.MISSING} |" in (tmp_path / "mdicfl_results.md").read_text()


def test_the_data_files_name_what_exists():
    known = protocols.protocols()
    for name, table in ledger.tables().items():
        assert {row["label"] for row in table["rows"].values()} <= set(known[table["protocol"]]["methods"]), name
    ids = [claim["id"] for found in ledger.claims().values() for claim in found]
    assert len(ids) == len(set(ids))
    assert yaml.safe_load((ledger.PAPERS / "tables.yaml").read_text())["tables"] == ledger.tables()
