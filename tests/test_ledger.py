"""Printed numbers as the papers have them, verdicts that follow their data, gaps that say so."""

import json
import re

import pages
import pytest
import yaml
from made import record
from matplotlib.text import Text

from cflkit.workbook import console, evidence, figures, ledger, places, protocols, records

FIRST = {"paper": "stocfl", "table": "Table 1", "n_clients": 4800, "participation": 0.1}


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
            assert ledger.judge(paper, claim, tmp_path).note  # without records, why


P = "mdicfl_rotmnist_r100"


# ---------------------------------------------------------------------- tables
def test_what_is_missing_comes_cheapest_first_with_what_it_takes(tmp_path):
    before = ledger.missing("mdicfl-table4-r50", [0, 1], tmp_path)
    assert [(m.label, m.seed) for m in before[:2]] == [("cfl", 0), ("cfl", 1)] and len(before) == 16
    assert [m.minutes for m in before] == sorted(m.minutes for m in before)
    record(tmp_path, "mdicfl_rotmnist_r50", "mdicfl-2", 0, accuracy=0.9)  # took a minute: the other seed will, too
    after = ledger.missing("mdicfl-table4-r50", [0, 1], tmp_path)
    assert [(m.seed, m.minutes) for m in after if m.label == "mdicfl-2"] == [(1, 1)] and len(after) == 15
    assert [m.minutes for m in after] == sorted(m.minutes for m in after)


def test_without_records_everything_reads_not_yet_measured(tmp_path):
    assert pages.write(tmp_path / "none", tmp_path) is None
    results = (tmp_path / "stocfl_tables.md").read_text()
    names = [name for name, t in ledger.tables().items() if t["paper"] == "stocfl"]
    for name in names:  # an empty table is one line
        rows = len(ledger.tables()[name]["rows"])
        assert f"*: {rows} rows, {pages.MISSING}. `.venv/bin/cflkit reproduce {name}`\n" in results
    assert results.count(f"| {pages.MISSING} |") == 4  # of Figure 3
    assert "are not finished" in (tmp_path / "stocfl_finding.md").read_text()
    assert "seems" not in (tmp_path / "stocfl_claims.md").read_text()
    assert not list(tmp_path.glob("*.png"))


def test_measured_stands_beside_printed(tmp_path):
    for seed, (ours, theirs) in enumerate([(0.90, 0.80), (0.92, 0.83)]):
        p, made = "stocfl_rotmnist_4800_r10", "2000-01-01"
        record(tmp_path, p, "stocfl", seed, accuracy=ours, own_accuracy=0.75, date=made)
        record(tmp_path, p, "ifca4", seed, accuracy=theirs, date=made)
        record(tmp_path, p, "fedavg", seed, accuracy=0.9)
    record(tmp_path, "stocfl_fcc_hybrid", "stocfl", 0, accuracy=0.1, ari=1.0)
    pages.write(tmp_path, tmp_path)
    results, claims = ((tmp_path / f"stocfl_{name}.md").read_text() for name in ("tables", "claims"))
    line = "| StoCFL, parallel | 97.00 | 91.00 ± 1.41 | seems to differ | −6.00 ± 1.41 | 75.00 ± 0.00 | 2 | 100 |"
    assert line in results.replace("\u00a0", " ")
    assert "parallel: +9.50\u00a0±\u00a00.71" in claims  # paired: 10 and 9
    assert "stocfl_rotmnist_4800_r10: ifca4-s0, ifca4-s1, stocfl-s0, stocfl-s1 (2000-01-01 abc)" in results
    assert {file.stem for file in tmp_path.glob("*.png")} >= {"stocfl-table1-4800-r10", "stocfl_counts"}
    protocol = "stocfl_rotmnist_4800_r10"
    files = {r["seed"]: records.name(r) for r in records.load(protocol, tmp_path) if r["label"] == "stocfl"}
    links = [f"{seed}: {{download}}`{value} <results/{protocol}/{files[seed]}.json>`"
             for seed, value in enumerate(("90.00", "92.00"))]  # fmt: skip
    assert f"| StoCFL, parallel | `stocfl`, `accuracy` | {', '.join(links)} |" in results
    assert f"`.venv/bin/cflkit simulate --protocol {protocol} LABEL --seed SEED --out again`" in results
    hybrid = results[results.index("(table-stocfl-tau-hybrid)=") :]
    assert "| method | measured | ARI | seeds | rounds |" in hybrid
    assert "| τ = 0.5 | 2.00 | 1.00 |" in hybrid


def test_pulls_and_thresholds_are_drawn_from_the_runs_that_exist(tmp_path):
    pages.write(tmp_path, tmp_path)
    results = (tmp_path / "stocfl_tables.md").read_text()
    for title in ("What the pull is worth", "How many clusters a threshold gives"):
        assert f"## {title}\n\nNot yet measured.\n" in results
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
    results = (tmp_path / "stocfl_tables.md").read_text()
    best = [f"Pathological, {update}: best at 0.05 with {value}%" for update, value in
            (("parallel", "30.0"), ("chained", "40.0"))]  # fmt: skip
    assert "; ".join(best) in results
    assert ":alt: Clusters found: Shifted: 7 at 0.9\n" in results
    assert {file.stem for file in tmp_path.glob("*.png")} >= {"stocfl_pulls", "stocfl_taus"}


def test_deleting_a_record_brings_the_gap_back(tmp_path):
    path = record(tmp_path, P, "ifca", 0, accuracy=0.9717)
    pages.write(tmp_path, tmp_path)
    assert "| IFCA | 97.17 | 97.17 |" in (tmp_path / "mdicfl_tables.md").read_text()
    record(tmp_path, P, "fedavg", 0, accuracy=0.9)
    path.unlink()
    pages.write(tmp_path, tmp_path)
    assert f"| IFCA | 97.17 | {pages.MISSING} |" in (tmp_path / "mdicfl_tables.md").read_text()


def test_the_data_files_name_what_exists():
    known = protocols.protocols()
    for name, table in ledger.tables().items():
        assert {row["label"] for row in table["rows"].values()} <= set(known[table["protocol"]]["methods"]), name
    ids = [claim["id"] for found in ledger.claims().values() for claim in found]
    assert len(ids) == len(set(ids))
    assert yaml.safe_load((ledger.PAPERS / "tables.yaml").read_text())["tables"] == ledger.tables()


def test_printed_numbers_of_one_name_are_told_as_a_range(tmp_path):
    found = str(evidence.claims("lcfed", tmp_path))
    between = '</span><span class="cfl-line">printed, '
    told = f"against FeSEM: +0.32 to +9.53, internally consistent{between}against FedGroup: -0.11 to"
    assert f"printed, {told}" in found


@pytest.mark.parametrize(("shifted", "word"), [(4, "hold"), (9, "fail")])
def test_a_claim_shows_the_numbers_of_its_parts(tmp_path, shifted, word):
    for name, clusters in {"pathological": 4, "rotated": 4, "shifted": shifted, "hybrid": 2}.items():
        record(tmp_path, f"stocfl_fcc_{name}", "stocfl", 0, accuracy=0.1, clusters=clusters)
    (found,) = [claim for claim in evidence.claims("stocfl", tmp_path) if claim["id"] == "stocfl-count"]
    assert f"Shifted: {shifted}.00 (asked: 4 in each seed), seems to {word}</span>" in found["measured"]
    ends = 'Hybrid: 2.00 (asked: 2 in each seed), seems to hold</span><span class="cfl-line">1 seed.</span>'
    assert found["measured"].endswith(ends)


def test_a_table_of_cards_says_so_to_the_style_sheet():
    assert pages.cards(["a"], [["b"]]) == "::::{div} cfl-cards\n\n| a |\n| --- |\n| b |\n\n::::\n"


def results(paper, folder):
    return pages.environment(folder, folder).get_template("tables.md.jinja").render(paper=paper)


def test_a_search_for_open_settings_stands_in_its_chapter_and_under_its_tables(tmp_path):
    for paper in pages.CHAPTERS:
        chapter = (places.BOOK / f"{paper}.ipynb").read_text("utf-8")
        assert bool(pages.searches(paper)) == (f"_generated/{paper}_search.md" in chapter)
    (resting,) = pages.searches("fesem")  # one search, two protocols
    assert [*resting] == ["fesem_femnist_60_r60", "fesem_femnist_300_r60"]
    assert len({each["since"] for each in resting.values()}) == 2
    line = "| **learning rate 0.05** | `fedavg` | 2 | 36.40 at 20, 62.00 at 40, 68.40 at 60, 75.70 at 80, 77.00"
    why = "\n\nThe reading in bold was chosen without a printed number: of the rates that were tried, it is the"
    template = pages.environment(tmp_path, tmp_path).get_template("search.md.jinja")
    found = template.render(paper="stocfl")
    assert found.count(line) == 1 and found.count(why) == 1
    dated = "; ".join(f"`{name}`, frozen on {each['since']}" for name, each in resting.items())
    assert f" ({dated}):\n" in template.render(paper="fesem")
    assert template.render(paper="mdicfl").strip() == ""
    record(tmp_path, "stocfl_femnist_unseen_cal", "fedavg", 0, accuracy=0.8)
    assert line in results("stocfl", tmp_path)


def test_what_a_search_says_is_what_is_printed_and_what_was_run():
    for name, protocol in protocols.protocols().items():
        for why in (tried["chosen"] for tried in protocol.get("search", []) if tried.get("chosen")):
            if number := re.search(r"FedAvg's printed (\d+\.\d+)", why):
                assert float(number[1]) in ledger.printed(paper=protocol["paper"], method="FedAvg"), name
    for protocol, tried in zip(
        ("fesem_femnist_60", "fesem_femnist_60_lr03"),
        protocols.protocols()["fesem_femnist_60_r60"]["search"], strict=True,
    ):  # fmt: skip
        (run,) = ledger.measured(protocol, "fedavg").runs
        scored = {t["round"]: round(100 * t["accuracy_micro"], 2) for t in run["rounds"] if "accuracy_micro" in t}
        assert tried["found"] == {at: value for at, value in scored.items() if at}


def test_under_a_table_that_has_runs_stands_how_to_fill_it_and_how_to_run_it_again(tmp_path):
    record(tmp_path, P, "ifca", 0, accuracy=0.97)
    found = results("mdicfl", tmp_path)
    assert found.count("$ .venv/bin/cflkit reproduce mdicfl-table4-r100  # what is missing\n") == 1
    assert found.count("$ .venv/bin/cflkit reproduce mdicfl-table4-r100 --out again  # all of it\n") == 1
    assert "$ .venv/bin/cflkit reproduce mdicfl-table5" not in found  # without a run it has a line


def test_other_numbers_of_a_row_are_of_the_model_it_scores(tmp_path):
    personal = {"personal_accuracy_micro": 0.5, "personal_accuracy": 0.4, "personal_f1_micro": 0.3}
    record(tmp_path, "fesem_femnist_60_lr03", "local", 0, **personal)
    record(tmp_path, "fesem_femnist_60_lr03", "fedavg", 0, accuracy_micro=0.6, accuracy=0.7, f1_micro=0.8, f1=0.9)
    found = results("fesem", tmp_path).replace(" ", "")
    assert "|NoFed|79.00|50.00|seemstodiffer|-29.00|40.00|30.00|–|1|15|" in found
    assert "|FedAvg|84.90|60.00|seemstodiffer|-24.90|70.00|80.00|90.00|1|15|" in found


def test_runs_of_the_older_format_are_named_and_agreement_is_of_the_interval(tmp_path):
    for seed in (0, 1):
        record(tmp_path, P, "ifca", seed, accuracy=0.97)
    path = record(tmp_path, P, "cfl", 0, accuracy=0.5)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2, "clients": {"accuracy": [0.5, 0.5]}}))
    found = results("mdicfl", tmp_path)
    lacks = "no client's accuracy is kept, and lists end after twenty entries."
    assert f"Of the older record format are seeds `ifca` 0, 1: {lacks} To run" in found
    assert "A number *agrees* if its whole interval over the seeds lies within 1.1 of the printed one" in found
    assert pages.older([{"format": 2, "label": "a", "seed": 0}]) == ""


def test_rows_without_a_curve_are_named(tmp_path):
    record(tmp_path, "lcfed_mnist_n3", "fedavg", 0, accuracy=0.5)
    path = record(tmp_path, "lcfed_mnist_n3", "local", 0, personal_accuracy=0.5)
    whole = json.loads(path.read_text())
    for row in whole["rounds"][:-1]:
        del row["personal_accuracy"]
    path.write_text(json.dumps(whole))
    found = results("lcfed", tmp_path)
    assert ":alt: Accuracy over the rounds: FedAvg ends at 50.0%\n" in found
    assert "Scored after the last round alone, so not drawn: local only.\n" in found


# ---------------------------------------------------------------------- every printed number
def test_every_printed_number_is_measured_can_be_run_or_has_a_reason(tmp_path):
    numbers = ledger.coverage(tmp_path)
    assert len(numbers) == 445 and {n.state for n in numbers} == {ledger.RUNNABLE, ledger.NOT_RUN}
    assert all(bool(n.because) == (n.state == ledger.NOT_RUN) == (not n.tables) for n in numbers)
    before = ledger.totals(tmp_path)
    assert before["printed"] == 445 == before["runnable"] + before["left out"] and before["measured"] == 0
    for seed in range(2):
        record(tmp_path, P, "ifca", seed, accuracy=0.9, ari=0.5)

    def beside():
        return [n for n in ledger.coverage(tmp_path) if n.state == ledger.MEASURED]

    assert [(n.entry["value"], n.seeds, n.early) for n in beside()] == [(97.17, 2, True), (0.76, 2, True)]
    record(tmp_path, P, "fedavg", 0, accuracy=0.9)
    assert [(n.seeds, n.early) for n in beside()] == [(1, False), (2, False), (2, False)]
    record(tmp_path, P, "ifca", 2, accuracy=0.9, ari=0.5)
    after = ledger.totals(tmp_path)
    assert (after["measured"], after["firm"], after["early"]) == (3, 2, 0)
    assert before["runs"] - after["runs"] == 4  # each run counts once, in however many tables it stands
    record(tmp_path, P, "fedavg", 0, accuracy=0.2)
    assert ledger.totals(tmp_path)["early"] == 3 and ledger.totals(tmp_path)["firm"] == 0


def test_a_number_with_neither_row_nor_reason_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "left_out", list)
    with pytest.raises(ValueError, match=r"^printed number = .*'Table 1'.*: must be in a row of tables.yaml"):
        ledger.coverage(tmp_path)


def test_the_console_the_front_page_and_the_titles_say_the_same(capsys):
    assert console.main(["ledger"]) == 0
    said = capsys.readouterr().out.splitlines()
    templates = pages.environment(records.FOLDER, records.FOLDER)
    front, whole = (templates.get_template(f"{name}.md.jinja").render() for name in ("front", "ledger"))
    for paper, title in pages.CHAPTERS.items():
        mark = ledger.mark(paper)
        assert f"{paper}: {mark}" in said
        assert f'<a href="{paper}.html">{title}</a><br><small>{mark}</small>' in front
        assert f"[{title}]({paper}.ipynb): {mark}\n" in whole
    newer = [verdict.newer for paper in pages.CHAPTERS for _, verdict in ledger.verdicts(paper) if verdict.newer]
    assert sum("†20" in line for line in said) == whole.count("** †</a>") + whole.count("** † |") == len(newer)
    assert evidence.newer(list(pages.CHAPTERS), records.FOLDER) in whole
    for kind, words in ledger.tally().items():
        counts = ", ".join(f"{count} {word}" for word, count in words.items())
        assert f"claims {kind}: {counts}" in said
        counts = ", ".join(evidence.several(count, word) for word, count in words.items())
        assert f"{sum(words.values())} claims {kind}: {counts}." in whole
    total = ledger.totals()
    assert f"{total['measured']} stand beside a run, {total['firm']} of them with three seeds" in front
    assert f"of which {total['measured']} measured ({total['firm']} with three seeds" in "\n".join(said)


def test_what_was_assumed_and_what_was_tried_stand_under_a_table(tmp_path):
    record(tmp_path, "lcfed_mnist_n3_cal", "fedavg", 0, accuracy=0.9)
    found = results("lcfed", tmp_path)
    under = found[found.index("(table-lcfed-table1-n3-cal)=") :]
    protocol = protocols.protocols()["lcfed_mnist_n3_cal"]
    for line in protocol["assumed"]:
        assert f"- {line}\n" in under
    assert f"\n\nThese settings have stood since {protocol['since']}; rows may have come later.\n" in under
    assert "\n\nThe reading in bold was chosen by FedAvg's printed 97.11 for three labels.\n" in under
    chosen = "| **5 epochs, a tenth of the devices, normalised** | `fedavg` | 0 | 88.50 at 20, "
    assert chosen in under and "| 5 steps, all devices, pixels in [0, 1] | `fedavg` | 0 | 40.10 at 200 |" in under


def test_a_table_says_what_is_too_early_and_what_diverged(tmp_path):
    record(tmp_path, P, "ifca", 0, accuracy=0.9)
    record(tmp_path, P, "fedavg", 0, accuracy=0.2)
    early = "**Too early**: the baseline `fedavg` reached only 20.00 (printed: 91.18). **Not complete**"
    assert early in results("mdicfl", tmp_path)
    record(tmp_path, P, "fedavg", 0, accuracy=0.2, diverged=True)
    found = results("mdicfl", tmp_path)
    assert early not in found and "**Too early**: the baseline `fedavg` has diverged. **Not complete**" in found
    assert "| global model (FedAvg) | 91.18 | 20.00 | diverged | -71.18 | 1 | 30 |" in found
    assert "| IFCA | 97.17 | 90.00 | seems to differ | -7.17 | 1 | 30 |" in found


def test_damaged_records_are_named_and_the_rest_is_judged(tmp_path, capsys):
    path = record(tmp_path, P, "ifca", 0, accuracy=0.9)
    record(tmp_path, P, "fedavg", 0, accuracy=0.9)
    path.write_text("{}")
    assert console.main(["ledger", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert said.err == f"cflkit: left out: {P}/{path.name}: part = 'protocol': must be there\n"
    assert "1 measured" in said.out
    whole = pages.environment(tmp_path, tmp_path).get_template("ledger.md.jinja").render()
    assert f"## Records that are left out\n\n- {P}/{path.name}: part = 'protocol'" in whole


# ---------------------------------------------------------------------- the front page and the figure of a chapter
def test_what_was_found_is_said_with_its_numbers(tmp_path):
    p, table = "stocfl_rotmnist_4800_r10", "stocfl-table1-4800-r10"
    record(tmp_path, p, "fedavg", 0, accuracy=0.9)
    for seed, (listed, released, ifca) in enumerate([(0.88, 0.95, 0.90), (0.89, 0.97, 0.90)]):
        for label, value in (("stocfl", listed), ("stocfl-chained", released), ("ifca4", ifca)):
            record(tmp_path, p, label, seed, accuracy=value, global_accuracy=released - 0.01)
    found = pages.environment(tmp_path, tmp_path).get_template("finding.md.jinja").render(paper="stocfl")
    assert "reaches 88.50%, 1.50 points below IFCA, which is told it." in " ".join(found.split())
    told = " ".join(found.split())
    assert "it reaches 96.00% (97.00% is printed)." in told
    assert "has 95.00%, and IFCA, whose clients do not wait, 90.00%. So far with 2 seeds." in told
    assert evidence.gap(table, "IFCA, K = 2", "IFCA, K = 4", tmp_path) == ""  # not run
    dots = pages.environment(tmp_path, tmp_path).get_template("dots.md.jinja").render(paper="stocfl")
    assert "Measured with 1 or 2 seeds, after 100 rounds." in dots
    for label, value in (("stocfl", 0.93), ("stocfl-chained", 0.96), ("ifca4", 0.90)):
        record(tmp_path, p, label, 2, accuracy=value)
    assert evidence.gap(table, "StoCFL, chained", "IFCA, K = 4", tmp_path) == "6.00 points above"
    told = evidence.gap(table, "StoCFL, parallel", "IFCA, K = 4", tmp_path)  # -2, -1 and 3 points
    assert told == "not to be told apart from"
    record(tmp_path, p, "stocfl", 2, accuracy=0.89)
    record(tmp_path, p, "ifca4", 2, accuracy=0.905)
    assert evidence.gap(table, "StoCFL, parallel", "IFCA, K = 4", tmp_path) == "1.50 points below"
    assert evidence.ready([table], tmp_path) == table
    record(tmp_path, p, "fedavg", 0, accuracy=0.2)
    assert evidence.ready([table], tmp_path) == "" and pages.beside("stocfl", tmp_path) == {}


def test_the_front_page_sets_each_split_beside_training_alone():
    front = pages.environment(records.FOLDER, records.FOLDER).get_template("front.md.jinja").render()
    three, four, shares = (f"lcfed-table1-{split}-cal" for split in ("n3", "n4", "dir01"))

    def gap(table, row):
        return evidence.gap(table, row, "local only", records.FOLDER)

    assert {gap(table, "LCFed, listing") for table in (four, shares)} == {"not to be told apart from"}
    found = gap(three, "FedAvg")
    assert found not in (gap(four, "FedAvg"), gap(shares, "FedAvg"))
    told = "LCFed as listed is not to be told apart from training alone. With three labels FedAvg is "
    assert told + found in front


def test_a_claim_that_print_alone_decides_says_how(tmp_path):
    (found,) = [claim for claim in evidence.claims("fedcg", tmp_path) if claim["id"] == "fedcg-residual"]
    assert "-0.96, internally inconsistent</span>" in found["measured"]


def test_what_diverged_is_said_where_nothing_is_printed(tmp_path):
    record(tmp_path, "stocfl_fcc_hybrid", "stocfl", 0, accuracy=0.1, ari=1.0, diverged=True)
    hybrid = results("stocfl", tmp_path).partition("(table-stocfl-tau-hybrid)=")[2]
    assert "| diverged |" in hybrid.partition("(table-")[0]


def test_a_long_title_stays_in_its_figure(tmp_path):
    record(tmp_path, P, "ifca", 0, accuracy=0.9)
    rows = [row for row in ledger.rows("mdicfl-table4-r100", tmp_path) if row.measured]
    figure = figures.dots({"a title of many words " * 4: rows}, "MD-ICFL")
    figure.canvas.draw()
    texts = [each for each in figure.axes[0].get_children() if isinstance(each, Text)]
    titles = [text for text in texts if "words" in text.get_text()]
    assert titles and all(text.get_window_extent().x1 <= figure.bbox.x1 for text in titles)


def test_what_lcfed_came_to_names_its_pulls_and_who_chose_them(tmp_path):
    values = {"fedavg": 0.97, "local": 0.9, "ifca": 0.95, "lcfed": 0.8, "lcfed-weak": 0.85, "lcfed-centre": 0.96}
    for label, value in values.items():
        model = {} if label in ("fedavg", "ifca") else {"personal_accuracy": value}
        record(tmp_path, "lcfed_mnist_n3_cal", label, 0, accuracy=value, **model)

    def found():
        template = pages.environment(tmp_path, tmp_path).get_template("finding.md.jinja")
        return " ".join(template.render(paper="lcfed").split())

    weak = "and 85.00% with pulls of 0.01"
    strong = "reaches 80.00% with pulls of 0.1 (the paper does not print their strength)"
    assert f"{strong}, 10.00 points below training alone" in found()
    assert f"{weak}, 5.00 points below training alone." in found()  # nothing was chosen yet
    for number, value in (("1", 0.9), ("2", 0.8)):
        record(tmp_path, "lcfed_mnist_n3_tune", f"lcfed-{number}", 0, accuracy=value, personal_accuracy=value)
    assert f"{weak}, best on held-out images, 5.00" in found()
    record(tmp_path, "lcfed_mnist_n3_tune", "lcfed-2", 0, accuracy=0.95, personal_accuracy=0.95)
    assert f"{weak}, 5.00" in found()
    for label, value in {"fedavg": 0.95, "local": 0.96, "lcfed": 0.98}.items():
        assert strong in found()  # all devices are told of once all three rows have run
        model = {} if label == "fedavg" else {"personal_accuracy": value}
        record(tmp_path, "lcfed_mnist_n3_all", label, 0, accuracy=value, **model)
    assert "all devices in every round, LCFed as listed reaches 98.00% with pulls of 0.1 (the paper does" in found()
    assert "98.53% is printed. It is 2.00 points above training alone and 3.00 points above FedAvg. So" in found()
    assert "With a tenth of the devices it reaches 80.00%, 10.00 points below training alone" in found()
    assert "reaches 96.00% there. So far with 1 seed." in found()
    record(tmp_path, "lcfed_mnist_n3_all", "fedper", 0, accuracy=0.99, personal_accuracy=0.99)
    assert "3.00 points above FedAvg, and 1.00 points below FedPer, which has no clusters." in found()


def test_lcfeds_page_sets_both_shares_of_devices_beside_print(tmp_path):
    template = pages.environment(tmp_path, tmp_path).get_template("lcfed_search.md.jinja")
    above = {"n3": (0.98, 0.96), "n4": (0.97, 0.95), "dir01": (0.99, 0.9)}
    for split, values in above.items():
        assert "nearer print" not in template.render(paper="lcfed")
        for who, value in zip(("cal", "all"), values, strict=True):
            record(tmp_path, f"lcfed_mnist_{split}_{who}", "fedavg", 0, accuracy=value)
    cells = []
    for split, values in above.items():
        rows = {row.name: row.printed for row in ledger.rows(f"lcfed-table1-{split}-cal", tmp_path)}
        cells += [f"{100 * value - rows['FedAvg']:+.2f}" for value in values]
    assert f"| FedAvg | {' | '.join(cells)} |" in template.render(paper="lcfed")


def test_fesem_stands_beside_baselines_with_as_many_passes(tmp_path):
    template = pages.environment(tmp_path, tmp_path).get_template("fesem_tables.md.jinja")
    assert "(fesem-beside)=" not in template.render(paper="fesem")
    for seed, wide in enumerate((0.1, 0.2, 0.3)):
        for label, by_image, by_writer in (("fesem4", 0.7, 0.7), ("fesem4-59", 0.75, 0.7), ("fedavg", 0.7, 0.73),
                                           ("robust", 0.65, 0.5 + wide), ("fedavg-equal", 0.1, 0.1)):  # fmt: skip
            record(tmp_path, "fesem_femnist_60_r60", label, seed, accuracy=by_writer, accuracy_micro=by_image,
                   f1=0.5, f1_micro=0.5)  # fmt: skip
    found = template.render(paper="fesem").partition("(fesem-beside)=")[2].partition("(fesem-served)=")[0]
    assert "| FedAvg | FeSEM(4), 59 rounds | 5.00 above | 3.00 below | – | – |" in found
    assert "| Robust(TKM) | FeSEM(4) | 5.00 above | – | – | – |" in found and "equal passes" not in found


def test_what_fesem_came_to_has_both_means_over_writers(tmp_path):
    for seed in range(3):
        for label, by_writer, by_image in (("fedavg", 0.6, 0.6), ("fesem4", 0.7, 0.75),
                                           ("fedavg-equal", 0.72, 0.7 + 0.05 * seed)):  # fmt: skip
            record(tmp_path, "fesem_femnist_60_r60", label, seed, accuracy=by_writer, accuracy_micro=by_image)
    template = pages.environment(tmp_path, tmp_path).get_template("finding.md.jinja")
    found = " ".join(template.render(paper="fesem").split())
    assert "gets 75.00% of all images right, not to be told apart from FedAvg with as many local passes;" in found
    assert "it reaches 70.00%, 2.00 points below FedAvg with as many local passes." in found
    assert "training alone" not in found
    record(tmp_path, "fesem_femnist_60_r60", "local-equal", 0, accuracy=0.5, personal_accuracy_micro=0.8)
    found = " ".join(template.render(paper="fesem").split())
    assert "passes, and 5.00 points below training alone (one seed); as" in found
    for seed in range(3):
        record(tmp_path, "fesem_femnist_60_r60", "fesem4-59", seed, accuracy=0.6, accuracy_micro=0.58)
    found = " ".join(template.render(paper="fesem").split())
    assert "local passes (with one round fewer for both, 2.00 points below FedAvg), and 5.00 points" in found
    for seed in range(3):
        record(tmp_path, "common_rot_r20", "fesem", seed, accuracy=0.9, ari=1.0, early=1.0)
        record(tmp_path, "common_rot_r20", "oracle", seed, accuracy=0.9)
        record(tmp_path, "common_rot_why", "fesem-random", seed, accuracy=0.8, ari=0.0)
    assert "differ in their labels" not in template.render(paper="fesem")
    for seed in range(3):
        record(tmp_path, "common_rot_skew_r20", "fesem", seed, accuracy=0.7, ari=0.04, early=0.5)
        record(tmp_path, "common_rot_skew_r20", "fedavg", seed, accuracy=0.8)
    found = " ".join(template.render(paper="fesem").split())
    assert "the index for the rotations is 0.02, and on images balanced over the labels" in found
    assert "FeSEM is 10.00 points below FedAvg." in found


def test_fesems_page_tells_who_is_served_by_which_centre(tmp_path):
    every = {"fesem4": {"accuracy": [0.5, 0.9], "cluster": [0, 1]}, "fedavg-equal": {"accuracy": [0.75, 0.75]},
             "fedavg": {"accuracy": [0.1, 0.3]}}  # fmt: skip
    for label, clients in every.items():
        mean = sum(clients["accuracy"]) / 2
        file = record(tmp_path, "fesem_femnist_60_r60", label, 0, accuracy=mean, accuracy_micro=mean)
        file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 2, "clients": clients}))
    template = pages.environment(tmp_path, tmp_path).get_template("fesem_tables.md.jinja")
    told = template.render(paper="fesem").partition("(fesem-served)=")[2]
    assert "| 0 | 1 | 50.0 | 75.0 | -12.50 |\n| 0 | 1 | 90.0 | 75.0 | +7.50 |" in told


def test_every_claim_is_a_mark_that_leads_to_its_evidence(tmp_path):
    for paper in evidence.CHAPTERS:
        templates = pages.environment(tmp_path, tmp_path)
        strip, whole = (templates.get_template(f"{n}.md.jinja").render(paper=paper) for n in ("marks", "tables"))
        for claim in ledger.claims()[paper]:
            assert f'href="results_{paper}.html#claim-{claim["id"]}"' in strip
            assert f'<span id="claim-{claim["id"]}"></span>' in whole
        assert strip.count('aria-hidden="true"') == strip.count('class="cfl-told"') == len(ledger.claims()[paper])


def test_dots_stand_beside_the_printed_number(tmp_path):
    for seed, value in enumerate((0.90, 0.92)):
        record(tmp_path, P, "ifca", seed, accuracy=value)
    record(tmp_path, P, "fedavg", 0, accuracy=0.9)
    (rows,) = (shown := pages.beside("mdicfl", tmp_path)).values()
    assert [row.name for row in rows] == ["global model (FedAvg)", "IFCA"]
    (axes,) = figures.dots(shown, "MD-ICFL").axes
    assert [line.get_xdata().tolist() for line in axes.lines if line.get_marker() == "s"] == [[90, 92]]
    assert [line.get_xdata() for line in axes.lines if line.get_marker() == "D"] == [[91.18], [97.17]]
    text = pages.environment(tmp_path, tmp_path).get_template("dots.md.jinja").render(paper="mdicfl")
    assert "IFCA: measured 91.00, printed 97.17" in text and ":name: fig-mdicfl-dots" in text


def test_signs_are_minus_signs_and_numbers_are_set_right():
    told = pages.MINUS.sub("−", "-1.0 to -2, 2026-11-22, r10-s0, `-1`, 5-6")
    assert told == "−1.0 to −2, 2026-11-22, r10-s0, `-1`, 5-6"
    table = pages.grid(["name", "value"], [("a", "-6.00 ± 1.41"), ("b", "–"), ("c", pages.MISSING)])
    assert table.splitlines()[1] == "| --- | ---: |"


def test_what_fedcg_came_to_says_how_many_seeds_its_rows_have(tmp_path):
    for label, values in {"fedavg": (0.8, 0.9, 0.85), "fedcg": (0.83,), "fedcg-one": (0.82,)}.items():
        for seed, value in enumerate(values):
            record(tmp_path, "fedcg_celeba_400", label, seed, accuracy=value)

    def found():
        template = pages.environment(tmp_path, tmp_path).get_template("finding.md.jinja")
        return " ".join(template.render(paper="fedcg").split())

    assert "reaches 83.00%: 3.00 points above FedAvg, and 1.00 points above itself with a single domain." in found()
    assert "single domain. So far with 1 seed." in found()
    for label, values in {"fedcg": (0.93, 0.88), "fedcg-one": (0.92, 0.87)}.items():
        for seed, value in enumerate(values, start=1):
            record(tmp_path, "fedcg_celeba_400", label, seed, accuracy=value)
    assert "88.00%: 3.00 points above FedAvg, and 1.00 points above itself" in found() and "So far" not in found()
    for seed, parted in enumerate((3, 17, 10)):
        path = record(tmp_path, "fedcg_celeba_400", "fedcg", seed, accuracy=0.9)
        whole = json.loads(path.read_text())
        for row in whole["rounds"][1:]:
            row["largest_share"] = 0.5 if row["round"] <= parted else 0.95
        whole["final"]["largest_share"] = 0.95
        path.write_text(json.dumps(whole))
    assert "From round 18 of 400 on, in every seed, at least nine of ten training images are in one" in found()
    whole["rounds"][-1]["largest_share"] = whole["final"]["largest_share"] = 0.5
    path.write_text(json.dumps(whole))
    assert "nine of ten training images" not in found()


@pytest.mark.parametrize("parted, told", [((0,), "1"), ((3, 17), "18"), ((400,), "–")])
def test_the_table_of_domains_says_from_which_round_all_images_are_in_one(parted, told, tmp_path):
    record(tmp_path, "fedcg_celeba_400", "fedavg", 0, accuracy=0.8)
    path = record(tmp_path, "fedcg_celeba_400", "fedcg", 0, accuracy=0.8)
    whole = json.loads(path.read_text())
    for row in whole["rounds"][1:]:
        row |= {"largest_share": 0.9 if row["round"] in parted else 1.0, "lam": [0.5], "down": 30, "up": 30}
    whole["final"] |= whole["rounds"][-1]
    path.write_text(json.dumps(whole))
    other = next((tmp_path / "fedcg_celeba_400").glob("fedavg-*"))
    whole = json.loads(other.read_text())
    whole["rounds"][1] |= {"down": 10, "up": 20}
    other.write_text(json.dumps(whole))
    found = pages.environment(tmp_path, tmp_path).get_template("fedcg_tables.md.jinja").render(paper="fedcg")
    share = "90.0" if told == "–" else "100.0"
    assert f"| FedCG, D = 4, W per filter | 0 | {share} | {told} | 0.50 | 2.0 |" in found
