"""Printed numbers as the papers have them, tables that follow their data, gaps that say so."""

import csv
import io
import json
import re
from functools import partial

import charts
import evidence
import pages
import pytest
from made import record

from cflkit.workbook import places
from cflkit.workbook.claims import findings, ledger, papers, schema

FIRST = {"paper": "stocfl", "table": "Table 1", "n_clients": 4800, "participation": 0.1}
P = "mdicfl_rotmnist_r100"


# ---------------------------------------------------------------------- printed
def test_numbers_of_tables_and_of_the_running_text():
    assert papers.printed(**FIRST, method="IFCA", K_assumed=[4, 6]) == [91.74, 91.74]
    assert papers.stated(paper="lcfed", what="low-rank dimension D") == 50
    assert papers.stated(where="abstract of FedAC, arXiv:2403.16460") == [1.82, 12.67]
    with pytest.raises(ValueError, match=r"^where = .*: must be fields of exactly one"):
        papers.stated(paper="lcfed", where="Sec. IV-C")
    with pytest.raises(ValueError, match=r"where = .*Table 9"):
        papers.printed(paper="stocfl", table="Table 9")


def test_differences_and_extremes_of_printed_numbers():
    ours = {"table": "Table 4", "method": ["MD-ICFL-1", "MD-ICFL-2"], "metric": "ARI"}
    assert papers.printed_numbers("mdicfl", ours) == [0.94, 0.95, 0.93, 0.90]
    assert papers.printed_numbers("mdicfl", {"max": ours, "by": "participation"}) == [0.94, 0.95]
    assert papers.printed_numbers("mdicfl", {"min": ours}) == [0.90]
    theirs = ours | {"method": "IFCA"}
    gap = papers.printed_numbers("mdicfl", [{"max": ours, "by": "participation"}, theirs])
    assert gap == pytest.approx([0.06, 0.19])


def test_a_reading_that_was_chosen_names_a_number_that_is_printed():
    for name, protocol in schema.protocols().items():
        for why in (tried["chosen"] for tried in protocol.get("search", []) if tried.get("chosen")):
            if number := re.search(r"FedAvg's printed (\d+\.\d+)", why):
                assert float(number[1]) in papers.printed(paper=protocol["paper"], method="FedAvg"), name


# ---------------------------------------------------------------------- every printed number, and the tables' runs
def test_every_printed_number_is_measured_runnable_or_has_its_reason():
    every, total = ledger.coverage(), ledger.totals()
    for one in every:
        assert bool(one.values) == (one.state == ledger.MEASURED), one.entry
        assert bool(one.because) == (one.state == ledger.NOT_RUN) == (not one.tables), one.entry
        assert not (one.firm and one.early)
    states = [one.state for one in every]
    assert (total["printed"], total["measured"]) == (445, states.count(ledger.MEASURED))
    assert total["printed"] == total["measured"] + total["runnable"] + total["left out"]
    lacking = {(m.protocol, m.label, m.seed) for name in schema.tables() for m in ledger.missing(name)}
    assert total["runs"] == len(lacking) and (total["hours"] > 0) == bool(lacking)


def test_the_file_to_download_has_a_line_for_every_printed_number():
    every = ledger.coverage()
    lines = list(csv.DictReader(io.StringIO(evidence.numbers_csv(every))))
    assert [float(line["printed"]) if line["printed"] else None for line in lines] == [
        one.entry["value"] for one in every]  # fmt: skip
    of = [line for line in lines if line["in"].startswith("stocfl-table1-4800-r10")]
    line = next(line for line in of if line["method"] == "StoCFL")
    cell = "stocfl_rotmnist_4800_r10/stocfl"
    told = f"{findings.mean(cell):.2f}", str(len(findings.values(cell))), "measured"
    assert (line["measured"], line["seeds"], line["state"]) == told


def test_the_histogram_counts_every_number_that_was_measured():
    entry = {"paper": "stocfl", "value": 50.0, "metric": "accuracy_percent"}
    made = [ledger.Coverage(entry, (50.0 + off,)) for off in (-90, -3.1, 0, 1, 2.9, 7)]
    made += [ledger.Coverage(entry), ledger.Coverage(entry | {"metric": "ARI"}, (0.5,))]  # neither counts
    figure, said = charts.apart(made, evidence.CHAPTERS)
    assert sum(bar.get_height() for bar in figure.axes[0].patches) == 6
    assert said == "3 of 6 measured accuracies lie within 3 points of print, 2 further below, 1 further above."
    assert charts.apart([], evidence.CHAPTERS) is None


# ---------------------------------------------------------------------- pages
def render(name, folder, paper="ours"):
    return pages.environment(folder, folder).get_template(name).render(paper=paper)


def of_table(name, folder):
    """What the page of results has of a table; its other tables and claims are left out, which takes seconds."""
    templates, spec = pages.environment(folder, folder), ledger.tables()[name]
    templates.globals |= {
        "tables": lambda paper: [pages._table(name, spec, [*ledger.rows(name, folder)], folder)],
        "explained": lambda paper: [], "bar": lambda paper: "", "made": lambda paper, begins: [],
        "stored": partial(pages.stored, folder=places.RESULTS)}  # fmt: skip
    return templates.get_template("tables.md.jinja").render(paper=spec["paper"])


def test_deleting_a_record_brings_the_gap_back(tmp_path):
    record(tmp_path, P, "fedavg", 0, accuracy=0.9)
    path = record(tmp_path, P, "ifca", 0, accuracy=0.9717)
    assert "| IFCA | 97.17 | 97.17 |" in of_table("mdicfl-table4-r100", tmp_path)
    path.unlink()
    assert f"| IFCA | 97.17 | {pages.MISSING} |" in of_table("mdicfl-table4-r100", tmp_path)
    record(tmp_path, "stocfl_fcc_hybrid", "stocfl", 0, accuracy=0.1, ari=1.0, diverged=True)
    assert ", diverged |" in of_table("stocfl-tau-hybrid", tmp_path)


def test_rows_far_from_print_have_a_reason_or_a_guess(tmp_path, monkeypatch):
    _ = [record(tmp_path, P, name, 0, accuracy=a) for name, a in (("cfl", 0.9), ("fedavg", 0.5), ("ifca", 0.9717))]
    record(tmp_path, "fesem_femnist_60_r60", "fedavg", 0, accuracy=0.1, accuracy_micro=0.1)  # in four tables
    ((title, rows, points, _), _) = [*evidence.far("guess", tmp_path), *evidence.far("why", tmp_path)]
    assert title.endswith("(table-mdicfl-table4-r100)") and (rows, points) == ("2 of 3 rows", "-41.2 to -2.5")
    monkeypatch.delitem(schema.tables()["mdicfl-table4-r100"], "guess")
    with pytest.raises(ValueError, match=r"^why or guess of mdicfl-table4-r100 = None: must be given"):
        [*evidence.far("guess", tmp_path)]


def test_other_numbers_of_a_row_are_of_the_model_it_scores(tmp_path):
    personal = {"personal_accuracy_micro": 0.5, "personal_accuracy": 0.4, "personal_f1_micro": 0.3}
    record(tmp_path, "fesem_femnist_60_lr03", "local", 0, **personal)
    record(tmp_path, "fesem_femnist_60_lr03", "fedavg", 0, accuracy_micro=0.6, accuracy=0.7, f1_micro=0.8, f1=0.9)
    found = of_table("fesem-table2-lr03", tmp_path).replace(" ", "")
    assert "|NoFed|79.00|50.00|-29.00|40.00|30.00|–|1|15|" in found
    assert "|FedAvg|84.90|60.00|-24.90|70.00|80.00|90.00|1|15|" in found


def test_rows_without_a_curve_are_named(tmp_path):
    record(tmp_path, "lcfed_mnist_n3", "fedavg", 0, accuracy=0.5)
    path = record(tmp_path, "lcfed_mnist_n3", "local", 0, personal_accuracy=0.5)
    whole = json.loads(path.read_text())
    for row in whole["rounds"][:-1]:
        del row["personal_accuracy"]
    path.write_text(json.dumps(whole))
    found = of_table("lcfed-table1-n3", tmp_path)
    assert ":alt: Accuracy over the rounds: FedAvg ends at 50.0%\n" in found
    assert "Scored after the last round alone, so not drawn: local only.\n" in found


def test_what_was_assumed_and_what_was_tried_stand_under_a_table(tmp_path):
    record(tmp_path, "lcfed_mnist_n3_cal", "fedavg", 0, accuracy=0.9)
    under, protocol = of_table("lcfed-table1-n3-cal", tmp_path), schema.protocols()["lcfed_mnist_n3_cal"]
    assert all(f"- {line}\n" in under for line in protocol["assumed"])
    tried = next(tried for tried in protocol["search"] if tried.get("chosen"))
    assert f"| **{tried['reading']}**, chosen {tried['chosen']} | `fedavg` | 0 | 88.50 at 20, " in under


def test_a_claim_shows_its_words_its_number_and_on_click_its_runs():
    lines = {line[0].partition("</span>")[0]: line for line in evidence.explained("stocfl", places.RESULTS)}
    (says, word, number, why) = next(line for key, line in lines.items() if "stocfl-gain" in key)
    assert says.count("<q>") == 1 and "**held**" in word and re.fullmatch(r"\+\d+\.\d\d \[\+.*\]", number)
    assert "<details>" in why and "stocfl_rotmnist_4800_r10: " in why and "rule of 20" in why


def test_pulls_and_thresholds_are_drawn_from_the_runs_that_exist(tmp_path):
    assert render("stocfl_more.jinja", tmp_path).count("\nNot yet measured.\n") == 3
    for label, accuracy in (("lam0", 0.2), ("lam005", 0.3), ("chained-lam005", 0.4), ("lam10", 0.25)):
        others = {"own_accuracy": 0.9, "global_accuracy": 0.5}
        record(tmp_path, "stocfl_lambda_pathological", label, 0, accuracy=accuracy, **others)
    record(tmp_path, "stocfl_fcc_shifted", "stocfl-tau90", 0, accuracy=0.1, clusters=7, ari=0.5)
    record(tmp_path, "stocfl_fcc_shifted", "stocfl-union", 0, accuracy=0.1, clusters=5, ari=0.5)
    found = render("stocfl_more.jinja", tmp_path)
    best = [f"Pathological, {update}: best at 0.05 with {value}%" for update, value in
            (("parallel", "30.0"), ("chained", "40.0"))]  # fmt: skip
    assert all(one in found for one in best) and ":alt: Clusters found: Shifted: 7 at 0.9\n" in found
    assert {file.stem for file in tmp_path.glob("*.png")} >= {"stocfl_pulls", "stocfl_taus"}


def test_a_chapter_opens_with_the_rows_that_decide_its_main_claim(tmp_path):
    for label in ("fedavg", "ifca", "mdicfl-1", "mdicfl-1-k5"):
        record(tmp_path, P, label, 0, accuracy=0.9, ari=0.5)
    _, rows = pages.deciding("mdicfl", tmp_path)
    assert [row.name for row in rows] and all(row.printed is not None for row in rows)
    figure, said = charts.dots("a title of many words " * 4, rows, "MD-ICFL")
    assert "IFCA: measured 90.00, printed 97.17" in said
    diamonds = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "none"]
    assert [line.get_xdata()[0] for line in diamonds] == [row.printed for row in rows]
    figure.canvas.draw()
    assert figure.axes[0]._left_title.get_window_extent().x1 <= figure.bbox.x1
    assert len(pages.deciding("fesem", places.RESULTS)[1]) <= 10


@pytest.mark.parametrize("parted, told", [((0,), "1"), ((3, 17), "18"), ((400,), "–")])
def test_the_table_of_domains_says_from_which_round_all_images_are_in_one(parted, told, tmp_path):
    for label, sent in (("fedavg", {"down": 10, "up": 20}), ("fedcg", {"down": 30, "up": 30})):
        path = record(tmp_path, "fedcg_celeba_400", label, 0, accuracy=0.8)
        whole = json.loads(path.read_text())
        for row in whole["rounds"][1:]:
            row |= sent | {"largest_share": 0.9 if row["round"] in parted else 1.0}
            row |= {"lam": [0.5]} if label == "fedcg" else {}
        whole["final"] |= whole["rounds"][-1]
        path.write_text(json.dumps(whole))
    (line,) = pages.domains("fedcg-table5-celeba-400", tmp_path)
    assert [*map(str, line)][1:] == ["0", "90.0" if told == "–" else "100.0", told, "0.50", "2.0"]


def test_signs_are_minus_signs_and_numbers_are_set_right():
    assert pages.typeset("-1.0 to -2, 2026-11-22, r10-s0, `-1`, 5-6") == "−1.0 to −2, 2026-11-22, r10-s0, `-1`, 5-6"
    table = pages.grid(["name", "value"], [("a", "-6.00 ± 1.41"), ("b", "–"), ("c", pages.MISSING)])
    assert table.splitlines()[1] == "| --- | ---: |"
    assert pages.cards(["a"], [["b"]]) == "::::{div} cfl-cards\n\n| a |\n| --- |\n| b |\n\n::::\n"
