"""The page of speed and memory: tables from files, gaps that say so."""

import json

import pages

MACHINE = {"card": None, "machine": {"processor": "a processor", "cores": 2, "threads": 1}, "date": "2026-01-02",
           "versions": {"python": "3.11", "torch": "2", "numpy": "1"}, "commit": "abc", "load": 2.0,
           "ceiling": 1e11}  # fmt: skip
ROW = {"workload": "A", "clients": 4, "ours_cpu": 0.02, "usual_cpu": 0.1, "ratio_cpu": 5.0, "ours_wall": 0.04,
       "usual_wall": 0.16, "ratio_wall": 4.0, "least": 3.0, "aim": None, "ours_ceiling": 0.5, "usual_ceiling": 0.1,
       "ours_mb": 12, "usual_mb": 1234, "difference": 0.0}  # fmt: skip


def page(folder):
    return pages.environment(folder, folder, folder).get_template("performance.md.jinja").render()


def test_without_results_everything_reads_not_yet_measured(tmp_path):
    text = page(tmp_path / "none")
    assert text.lower().count(pages.MISSING) == 7 and f"On a GPU: {pages.MISSING}" in text


def test_figures_stand_beside_their_machine(tmp_path):
    (tmp_path / "engine-a.json").write_text(json.dumps({"machine": MACHINE, "rows": [ROW]}))
    gpu = MACHINE | {"card": "a card", "vectors": "AVX512"}
    (tmp_path / "engine-b.json").write_text(json.dumps({"machine": gpu, "rows": [ROW | {"least": None}]}))
    (tmp_path / "memory-a.json").write_text(json.dumps({"machine": MACHINE | {"vectors": "AVX2"},
                                                       "rows": [{"work": "x", "mb": 2345}]}))  # fmt: skip
    text = page(tmp_path)
    assert "| A | 4 | 25 | 5 | 5 | 4 | 3 | 50% | 12 | 1,234 |" in text  # CPU time: a processor may be shared
    assert "| A | 4 | 40 | 10 | 4 | 4 | – | 50% | 12 | 1,234 |" in text  # wall time: a card's work is not the CPU's
    assert "100 GFLOP/s" in text and "a processor, 1 thread; python 3.11, torch 2; 2026-01-02, commit abc" in text
    assert "a card, 1 thread" in text and "a processor with AVX2, 1 thread" in text
    assert "| x | 2,345 |" in text and text.lower().count(pages.MISSING) == 4  # cores, lock-step, scaling, peers
