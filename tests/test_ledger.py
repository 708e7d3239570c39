"""Printed numbers as the papers have them, verdicts that follow their data, gaps that say so."""

import json
import re

import pages
import pytest
import yaml
from made import record
from matplotlib.text import Text

from cflkit.workbook.claims import figures, ledger
from cflkit.workbook.runs import protocols

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


def test_a_table_of_cards_says_so_to_the_style_sheet():
    assert pages.cards(["a"], [["b"]]) == "::::{div} cfl-cards\n\n| a |\n| --- |\n| b |\n\n::::\n"


def results(paper, folder):
    return pages.environment(folder, folder).get_template("tables.md.jinja").render(paper=paper)


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


def test_a_number_with_neither_row_nor_reason_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "left_out", list)
    with pytest.raises(ValueError, match=r"^printed number = .*'Table 1'.*: must be in a row of tables.yaml"):
        ledger.coverage(tmp_path)


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


# ---------------------------------------------------------------------- the front page and the figure of a chapter


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
