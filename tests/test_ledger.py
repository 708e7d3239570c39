"""The tables of results: printed numbers as the papers have them, gaps that say so, differences that add up."""

import json

import pytest

from cflkit import ledger


def test_every_printed_number_is_there():
    assert len(ledger.entries()) == 445
    assert ledger.printed(**ledger.CELL, method="StoCFL") == [97.0]
    assert ledger.printed(**ledger.CELL, method="IFCA", K_assumed=4) == [91.74]


def test_an_unknown_number_is_refused():
    with pytest.raises(ValueError, match=r"where = .*Table 9"):
        ledger.printed(paper="stocfl", table="Table 9")


def test_without_records_everything_reads_not_yet_measured(tmp_path):
    assert ledger.main(tmp_path / "none", tmp_path) == 0
    results, claims = ((tmp_path / f"stocfl_{name}.md").read_text() for name in ("results", "claims"))
    assert results.count(f"| {ledger.MISSING} |") == len(ledger.ROWS) + len(ledger.FIGURE3)
    assert "preliminary:" not in claims
    assert not list(tmp_path.glob("*.png"))


def record(folder, protocol, label, seed, rounds, **final):
    config = {"rounds": rounds, "dtype": "float32", "federation": {"clients": 4}}
    rows = [{"round": t, "clusters": 2, "sizes": [2, 1], "objective": -0.5, **final} for t in range(rounds + 1)]
    kept = {"label": label, "seed": seed, "config": config, "rounds": rows, "final": rows[-1], "provenance":
            {"card": None, "machine": {"processor": "a processor"}, "commit": "abc", "seconds": 60}}  # fmt: skip
    path = folder / protocol / f"{label}-{rounds}-s{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept))


def test_measured_stands_beside_printed(tmp_path):
    for seed, (ours, theirs) in enumerate([(0.90, 0.80), (0.92, 0.83)]):
        record(tmp_path, ledger.TABLE1, "stocfl", seed, 3, accuracy=ours, global_accuracy=0.5)
        record(tmp_path, ledger.TABLE1, "ifca4", seed, 3, accuracy=theirs)
    record(tmp_path, ledger.TABLE1, "stocfl", 0, 2, accuracy=0.1)  # an earlier, shorter run does not count
    record(tmp_path, "stocfl_fcc_hybrid", "stocfl", 0, 3, accuracy=0.1, ari=1.0)
    ledger.main(tmp_path, tmp_path)
    results, claims = ((tmp_path / f"stocfl_{name}.md").read_text() for name in ("results", "claims"))
    assert "| StoCFL, parallel | 97.00 | 91.00 ± 1.41 | -6.00 ± 1.41 | 2 | 3 |" in results
    assert "| Hybrid | 2 | 2 | 1.00 | 1 | 3 |" in results
    assert "parallel +9.50 ± 0.71" in claims  # paired: 10 and 9
    assert {file.stem for file in tmp_path.glob("*.png")} == {"stocfl_curves", "stocfl_counts"}
