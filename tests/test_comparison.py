"""The comparison's tables and figures say what its records say."""

import json
import shutil
from pathlib import Path

import made
import pages
import pytest

from cflkit.workbook import comparison, factors, ledger, protocols, records
from cflkit.workbook.comparison import METHODS, Row
from cflkit.workbook.measured import Measured


def run(seed, accuracy, sent=100, moved=(0, 0), ari=1.0, clients=None, **final):
    """A record of two rounds, with one move in round 1 and `moved` in the rounds after the first ones."""
    rounds = [{"round": 0, "down": 0, "up": 0}, {"round": 1, "down": sent, "up": sent, "moved": 7, "ari": 0.5}]
    rounds += [{"round": t, "down": sent, "up": sent, "moved": m, "ari": ari} for t, m in enumerate(moved, 6)]
    last = {"accuracy": accuracy, "own_accuracy": accuracy, "ari": ari} | final
    clients = clients or [accuracy] * 8
    each = {"accuracy": clients, "personal_accuracy": clients}
    return {"seed": seed, "final": last, "rounds": rounds, "clients": each}


def row(label, *runs):
    return Row(next(method for method in METHODS if method.label == label), Measured(list(runs)))


def test_a_lead_that_seeds_do_not_tell_is_no_lead(tmp_path):
    apart = pages.environment(tmp_path, tmp_path).get_template("apart.jinja").module.apart

    def told(low, high, n=3):
        return apart({"mean": (low + high) / 2, "low": low, "high": high, "n": n}).strip()

    assert told(-1, 2) == "not to be told apart from" and told(1, 2) == "1.50 points above"
    assert told(-2, -1) == "1.50 points below" and told(-1, 2, n=2) == "0.50 points above"


def test_numbers_of_a_row_by_hand():
    found = row("ifca", run(0, 0.9, clients=[1, 1, 1, 1, 1, 1, 0.5, 0.7]), run(1, 0.8, moved=(2, 3)))
    assert found.values("accuracy") == {0: 90, 1: 80} and found.accuracy == 85
    assert found.worst() == pytest.approx([60, 80])
    assert found.late() == [0, 5]  # what moves in the first rounds does not count
    assert found.megabytes() == pytest.approx(6 * 100 * 4 / 1e6)
    assert comparison.standing_cells([found]) == [
        ["IFCA", "85.0 ± 7.1", "–", "1.00", "70.0 ± 14.1", "2", "85.0 ± 7.1", "0", "2"],
    ]


def test_an_agreement_of_nothing_has_no_minus():
    cells = comparison.standing_cells([row("ifca", run(0, 0.9, ari=-0.004), run(1, 0.9, ari=-0.002))])
    assert cells[0][3] == "0.00"


def test_a_personal_method_is_judged_by_its_own_models():
    found = row("local", run(0, 0.2, personal_accuracy=0.7))
    assert found.values("accuracy") == {0: 70}


def test_clusters_are_counted_in_the_last_round():
    cells = comparison.standing_cells([row("ifca", run(0, 0.9, clusters=4), run(1, 0.9, clusters=3))])
    assert cells[0][2] == "3.5"


def test_one_chained_model_is_scored_in_stocfls_runs_and_has_no_clusters():
    chained = run(0, 0.9, global_accuracy=0.6, clusters=5)
    found = row("fedavg-chained", chained)
    assert found.values("accuracy") == {0: 60} and found.late() is None and found.worst() == []
    cells = comparison.standing_cells([found, row("stocfl-chained", chained)])
    assert cells[0] == ["FedAvg, chained", "60.0", *["–"] * 6, "1"]
    assert cells[1][:4] == ["StoCFL, chained", "90.0", "5.0", "1.00"]


def test_lcfed_is_scored_by_its_devices_and_by_its_centres():
    both = run(0, 0.9, personal_accuracy=0.7)
    assert row("lcfed", both).accuracy == 70 and row("lcfed-served", both).accuracy == 90


def test_a_run_stands_once_for_each_model_that_is_scored(tmp_path):
    made.record(tmp_path, "common_rot_r20", "stocfl-chained", 0, accuracy=0.9)
    assert [each.method.label for each in comparison.standings("common_rot_r20", tmp_path)] == ["stocfl-chained"]
    made.record(tmp_path, "common_rot_r20", "stocfl-chained", 0, accuracy=0.9, global_accuracy=0.95)
    found = comparison.standings("common_rot_r20", tmp_path)
    assert [each.method.label for each in found] == ["fedavg-chained", "stocfl-chained"]


def test_every_label_of_the_protocols_has_its_row():
    labels = {method.label for method in METHODS if method.runs == method.label}
    for name in comparison.federations():
        assert set(protocols.protocols()[name]["methods"]) <= labels
    assert {method.runs for method in METHODS} == labels
    assert len(comparison.federations()) == 6


def test_who_groups_clients():
    grouping = {method.label.partition("-")[0] for method in METHODS if method.kind == "clusters"}
    assert grouping == {"ifca", "cfl", "fedgroup", "mdicfl", "fesem", "stocfl", "lcfed"}  # FedCG groups images


def test_every_label_stands_in_a_table_of_the_ledger_with_the_score_of_the_page():
    tables = {table["protocol"]: table for table in ledger.tables().values() if table["paper"] == "ours"}
    assert sorted(tables) == sorted(comparison.federations())
    personal = {method.label for method in METHODS if method.model == "personal"}
    for name, table in tables.items():
        rows = table["rows"].values()
        assert {row["label"] for row in rows} == set(protocols.protocols()[name]["methods"])
        assert {row["label"] for row in rows if "model" in row} == personal
        assert table["seeds"] == (5 if name.endswith("r20") else 3)


def test_settings_that_were_taken_are_those_that_did_best():
    """The choice was made on held-out images, before the comparison was run, or is asked on test images apart."""
    chosen, again = list(comparison.tuning()), protocols.protocols()["common_rot_why"]["methods"]
    early = {"fedprox", "ditto", "cfl", "stocfl", "stocfl-chained", "lcfed", "lcfed-centre"}
    assert {len(rows) for _, rows in chosen} == {5}
    assert {method.label for method, _ in chosen} == early | comparison.TUNED_LATE.keys()
    for method, rows in chosen:
        settings, _, is_taken = max(rows, key=lambda tried: tried[1])
        assert len([taken for *_, taken in rows if taken]) == 1
        if not is_taken:
            assert settings.items() <= again[comparison.TUNED_LATE[method.label]].items(), method.label
    cells = comparison.tuning_cells(chosen)
    assert ["Ditto", "λ 0.5"] in [[line[0], line[2]] for line in cells]
    assert ["FeSEM", "λ 0"] in [[line[0], line[2]] for line in cells]  # which its runs leave out: it is the default


def test_the_page_tells_what_a_late_choice_would_have_gained_and_whether_it_was_run(tmp_path):
    def told():
        page = pages.environment(tmp_path, tmp_path).get_template("comparison.md.jinja").render()
        return " ".join(page.partition("## How the weights were chosen")[2].split())

    for number, value in ((1, 0.9), (2, 0.95), (3, 0.92)):
        made.record(tmp_path, "common_rot_tune", f"fesem-{number}", 100, accuracy=value)
    assert "the one that ran: FeSEM 5.00. On test images it has not run for FeSEM (row `fesem-pull` of" in told()
    for seed in range(3):
        assert "it has run, too" not in told()  # three seeds decide
        made.record(tmp_path, "common_rot_why", "fesem-pull", seed, accuracy=0.9)
    assert "fifth of the clients a round, it has run, too, for FeSEM: [three seeds each](comparison" in told()
    made.record(tmp_path, "common_rot_tune", "mdicfl-1-1", 100, accuracy=0.9)  # the printed prior, which ran
    assert "FeSEM 5.00" in told() and "MD-ICFL, back-search 0.00" in told() and "has not run" not in told()


def test_agreement_of_each_method_that_groups(monkeypatch):
    rows = [row("ifca", run(0, 0.9, ari=0.5), run(1, 0.8, ari=0.7)), row("fedavg", run(0, 0.8))]
    del rows[1].measured.runs[0]["final"]["ari"]
    monkeypatch.setattr(comparison, "standings", lambda protocol, folder: rows)
    assert comparison.agreements("common_rot_r20") == {"ifca": pytest.approx(0.6)}


def test_the_difference_is_paired_over_common_seeds(tmp_path, monkeypatch):
    rows = [row("ifca", run(0, 0.9), run(1, 0.8), run(2, 0.1)), row("fedavg", run(0, 0.8), run(1, 0.6))]
    monkeypatch.setattr(comparison, "standings", lambda protocol, folder: rows)
    found = comparison.ahead("common_rot_r20", "ifca", "fedavg", tmp_path)
    assert found["mean"] == pytest.approx(15) and found["n"] == 2
    assert comparison.ahead("common_rot_r20", "ifca", "oracle", tmp_path) is None


def test_a_gap_says_what_its_interval_decides():
    assert comparison.interval({"mean": 1.0, "low": float("nan"), "high": float("nan"), "n": 1}) == "+1.00 (n = 1)"
    assert comparison.interval({"mean": 1.0, "low": -2.0, "high": 4.0, "n": 2}) == "+1.00 (n = 2)"
    assert comparison.interval({"mean": 1.0, "low": 0.5, "high": 1.5, "n": 3}) == "+1.00 [+0.50, +1.50] ahead"
    assert comparison.interval({"mean": -1.0, "low": -1.5, "high": -0.5, "n": 3}) == "-1.00 [-1.50, -0.50] behind"
    assert comparison.interval({"mean": 1.0, "low": -0.5, "high": 2.5, "n": 3}) == "+1.00 [-0.50, +2.50] undecided"


def test_a_gap_of_nothing_has_no_minus():
    none = {"mean": -0.001, "low": -0.002, "high": 0.0, "n": 5}
    assert comparison.interval(none) == "+0.00 [+0.00, +0.00] undecided"


def test_gaps_to_the_references_by_hand(tmp_path, monkeypatch):
    rows = [row("ifca", run(0, 0.9)), row("fedavg", run(0, 0.8))]
    monkeypatch.setattr(comparison, "standings", lambda protocol, folder: rows)
    cells = comparison.gap_cells("common_rot_r20", tmp_path)
    assert cells == [["IFCA", "+10.00 (n = 1)", "–", "–"], ["FedAvg", "–", "–", "–"]]


def test_the_servers_work_in_milliseconds():
    rows = [{"label": "fedavg", "before": 0, "round": 2e-4}, {"label": "fesem", "before": 1.3194, "round": 0.0049}]
    assert comparison.work_cells({"rows": rows}) == [["FeSEM", "1,319", "4.9"], ["FedAvg", "0", "0.2"]]


def test_a_factor_is_set_against_the_row_that_it_changes(monkeypatch):
    base = row("fesem", run(0, 0.9, moved=(4,)), run(1, 0.7), run(2, 0.8))
    changed = Row(base.method, Measured([run(1, 0.6, ari=0.2), run(0, 0.5, ari=0.4), run(2, 0.4, ari=0.3)]))
    last = Row(changed.method, Measured([run(0, 0.5)]))
    for found in (base, changed, last):
        for record in found.measured.runs:
            record["rounds"][1]["round"] = comparison.SETTLING
    del last.measured.runs[0]["rounds"][1]["ari"]
    stored = {"fesem": base, "fesem-random": changed, "fesem-random-personal": last}
    monkeypatch.setattr(factors, "row_of", lambda label, federation, folder: stored.get(label))
    found = list(factors.changes())
    assert [(a.method.label, f.label) for a, _, f in found][1] == ("fesem", "fesem-random-personal")
    lines = factors.cells(found)
    assert [line[1] for line in lines] == ["–", "first clusters drawn at random", factors.FACTORS[2].change]
    assert lines[0][2:] == ["80.0 ± 10.0", "0.50", "1.00", "1", "3", "–", "–"]
    assert lines[1][2:-1] == ["50.0 ± 10.0", "0.50", "0.30", "0", "3", "as compared"]
    assert lines[2][-2] == "first clusters drawn at random"
    assert lines[1][-1] == "-30.00 [-73.03, +13.03] undecided"  # -40, -10, -40: seeds meet whatever their order
    assert lines[2][3] == "–"  # no index without clusters
    model = row("fedavg", run(0, 0.9))
    del model.measured.runs[0]["final"]["ari"]
    longer = factors.Factor("fedavg-long", "fedavg", "more rounds")
    assert factors.cells([(model, model, longer)])[0][2:6] == ["90.0", "–", "–", "–"]


def test_a_factor_of_a_row_that_is_itself_compared_names_it(monkeypatch):
    rows = {label: row(label, run(0, 0.9, personal_accuracy=0.9)) for label in ("lcfed", "lcfed-centre")}
    for each in rows.values():
        each.measured.runs[0]["rounds"][1]["round"] = comparison.SETTLING
    stored = rows | {"lcfed-weak-centre": rows["lcfed"], "lcfed-centre-rank": rows["lcfed-centre"]}
    monkeypatch.setattr(factors, "row_of", lambda label, federation, folder: stored.get(label))
    found = [factor for factor in factors.changes() if factor[2].label in ("lcfed-centre", "lcfed-centre-rank")]
    named = [(rows["lcfed"], rows["lcfed"], factors.Factor("lcfed-weak-centre", "lcfed", "a change"))]
    lines = factors.cells(named + found)
    assert [line[-2] for line in lines] == ["–", "as compared", "a change", "LCFed, from the centre, as compared"]


def test_more_rounds_are_drawn_as_often_as_the_comparison_fits_into_them(tmp_path):
    titles = {factors.SKEWED: "skewed"}
    assert factors.longer(titles, tmp_path) is None
    for seed in (0, 1):
        made.record(tmp_path, factors.SKEWED, "oracle", seed, accuracy=0.5)
        made.record(tmp_path, factors.CHANGED[factors.SKEWED], "oracle-long", seed, accuracy=0.8 + 0.1 * seed)
        made.record(tmp_path, factors.SKEWED, "stocfl", seed, accuracy=0.5)
        made.record(tmp_path, factors.CHANGED[factors.SKEWED], "stocfl-strong", seed, accuracy=0.6)
    (panel,) = factors.longer(titles, tmp_path).axes
    curve, ends = panel.lines
    assert [*curve.get_xdata()] == [*range(60, 961, 60)] and [*ends.get_xdata()] == [60, 60]
    assert curve.get_ydata()[[0, -1]] == pytest.approx([42.5, 85])  # the mean of two seeds; early ones are halved


def test_a_factor_may_be_another_model_of_a_row(tmp_path):
    made.record(tmp_path, factors.SKEWED, "stocfl-chained", 0, accuracy=0.5, global_accuracy=0.7)
    assert factors.row_of("fedavg-chained", factors.SKEWED, tmp_path).accuracy == pytest.approx(70)
    assert factors.row_of("fedavg-chained", factors.ROTATIONS, tmp_path) is None


def test_every_factor_is_in_the_protocol_and_belongs_to_a_row():
    known = {method.label for method in METHODS}
    for federation, changed in factors.CHANGED.items():
        there = [factor for factor in factors.FACTORS if factor.federation == federation]
        labels = {factor.label for factor in there}
        assert labels - known == set(protocols.protocols()[changed]["methods"])
        assert {factor.base for factor in there} <= labels | known
    assert {factor.federation for factor in factors.FACTORS} == set(factors.CHANGED)


def test_the_status_links_to_tables_that_are_on_a_page(tmp_path):
    """The comparison shows a federation from its first record on; a paper's tables stand there from the start."""
    def linked():
        return {name.strip("`"): title.startswith("[") for title, *_, name in pages.states(tmp_path)}

    papers = {name for name, table in ledger.tables().items() if table["paper"] != "ours"}
    assert {name for name, link in linked().items() if link} == papers
    made.record(tmp_path, "common_shift_r20", "ifca", 0, accuracy=0.9)
    assert {name for name, link in linked().items() if link} == papers | {"comparison-shift-r20"}


def test_every_number_of_the_comparison_leads_to_its_record(tmp_path):
    """Of rows, of another model of a row, and of factors; and the commands make them anew."""
    stored = [("common_rot_r20", "ifca"), ("common_rot_r20", "stocfl-chained"), ("common_rot_why", "ifca-common")]
    for protocol, label in stored:
        for file in (records.FOLDER / protocol).glob(f"{label}-??????????-s[01].json"):
            (tmp_path / protocol).mkdir(exist_ok=True)
            shutil.copy(file, tmp_path / protocol)
    page = pages.environment(tmp_path, tmp_path).get_template("comparison.md.jinja").render()

    def linked(name, protocol, label, score):
        found = {r["seed"]: r for r in records.load(protocol, tmp_path) if r["label"] == label}
        files = {seed: f"results/{protocol}/{records.name(r)}.json" for seed, r in found.items()}
        values = {seed: f"{100 * r['final'][score]:.2f}" for seed, r in found.items()}
        links = [f"{seed}: {{download}}`{values[seed]} <{files[seed]}>`" for seed in (0, 1)]
        return f"| {name} | `{label}`, `{score}` | {', '.join(links)} |"

    for name, (protocol, label), score in (
        ("IFCA", stored[0], "accuracy"), ("StoCFL, chained", stored[1], "accuracy"),
        ("FedAvg, chained", stored[1], "global_accuracy"), ("IFCA", stored[2], "accuracy"),
    ):  # fmt: skip
        assert page.count(linked(name, protocol, label, score)) == 1
    assert "simulate --protocol common_rot_r20 LABEL --seed 0-1 --out again\n" in page
    assert "simulate --protocol common_rot_why LABEL --seed 0-2 --out again\n" in page


def with_clients(file):
    file.write_text(json.dumps(json.loads(file.read_text()) | {"clients": {}}))


def test_what_was_found_names_all_that_seeds_do_not_tell_from_the_highest_mean(tmp_path):
    for seed, scores in enumerate([(0.95, 0.90, 0.96), (0.96, 0.90, 0.93), (0.97, 0.91, 0.94)]):
        for label, value in zip(("ifca", "fedgroup", "cfl"), scores, strict=True):
            with_clients(made.record(tmp_path, "common_rot_r20", label, seed, accuracy=value, down=1, up=1))
    page = pages.environment(tmp_path, tmp_path).get_template("comparison.md.jinja").render()
    assert "IFCA has the highest mean of the methods that group clients, 96.00 ± 1.00% over 3 seeds." in page
    assert "seeds. Not to be told apart from IFCA: Sattler's CFL (94.33 ± 1.53%).\n" in page and "Next" not in page
    for seed in range(3):
        with_clients(made.record(tmp_path, "common_rot_r20", "cfl", seed, accuracy=0.5, down=1, up=1))
    page = pages.environment(tmp_path, tmp_path).get_template("comparison.md.jinja").render()
    assert "Next on the mean comes FedGroup, 5.67 points below IFCA." in page and "Not to be told" not in page


def test_a_factor_changes_one_parameter_of_its_base():
    """Two for the pulls, which are one factor, and for the prior."""
    methods, runs = protocols.protocols(), {method.label: method.runs for method in METHODS}
    for factor in factors.FACTORS:
        every = methods[factor.federation]["methods"] | methods[factors.CHANGED[factor.federation]]["methods"]
        if runs.get(factor.label, factor.label) != factor.label:
            continue  # another model of the runs of a row
        one, other = every[factor.label], every[factor.base]
        differs = {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
        assert len(differs) == 1 or differs in ({"mu", "lam"}, {"prior_mean", "prior_weight"}), factor.label


def test_figures_have_a_mark_for_every_seed_and_method():
    rows = [row("ifca", run(0, 0.9), run(1, 0.8)), row("stocfl", run(0, 0.95)), row("stocfl-chained", run(0, 0.96))]
    figure = comparison.everywhere({"rotations": rows, "shifts, all take part": rows[:1]})
    titles = [ax.get_title("left") or ax.get_title("center") for ax in figure.axes]  # a theme moves them
    assert titles == ["rotations", "shifts,\nall take part"]
    assert [[len(line.get_xdata()) for line in ax.lines] for ax in figure.axes] == [[2, 1, 1], [2]]
    fills = [line.get_markerfacecolor() for line in figure.axes[0].lines]
    assert fills[2] == "none" != fills[1]  # the chained variant is hollow
    curves = comparison.agreement({"rotations": [*rows, row("fedavg", run(0, 0.5))]}).axes[0].lines
    assert len(curves) == 3 and curves[0].get_ydata()[-1] == 1
    both = [row("lcfed", run(0, 0.9, personal_accuracy=0.7)), row("lcfed-served", run(0, 0.9))]
    assert len(comparison.agreement({"rotations": both}).axes[0].lines) == 1
    assert len(comparison.traffic(both).axes[0].lines) == 1
    assert len(comparison.everywhere({"rotations": both}).axes[0].lines) == 2
    sent = comparison.traffic(rows)
    assert len(sent.axes[0].lines) == 3 and len(sent.legends[0].get_texts()) == 3
    assert "IFCA 85.0, StoCFL, parallel 95.0" in comparison.spoken({"rotations": rows})


def test_stored_runs_of_the_comparison_are_whole():
    for name in comparison.federations():
        for found in comparison.standings(name):
            one_model = found.method.model == "global"  # which is scored as a whole, not client by client
            assert len(found.worst()) == (0 if one_model else len(found.measured.runs))
            for file in Path(f"book/results/{name}").glob("*.json"):
                assert json.loads(file.read_text())["config"]["rounds"] == 60
