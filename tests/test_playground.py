"""The playground's script beside the package, in double precision: the same models, groups and scores."""

import json
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
import playground_export as exporter  # noqa: E402

NODE = shutil.which("node")
SAME = 1e-9
ROUNDS = 10
QUICK = [(method, "rotated", 0.3, 0.5) for method in exporter.METHODS]  # some clients, skewed labels: every branch
FULL = list(product(exporter.METHODS, exporter.BUILDERS, (None, 1.0, 0.1), (1.0, 0.25)))
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


def node(given, folder):
    """What the script makes of an export."""
    file = folder / "export.json"
    file.write_text(json.dumps(given))
    script = ROOT / "tests" / "playground.js"
    done = subprocess.run([NODE, script, file], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compare(case, folder):
    method, domains, alpha, share = case
    given = exporter.export(method, domains, alpha, share, ROUNDS)
    expected = given.pop("expected")
    for t, (ours, theirs) in enumerate(zip(node(given, folder), expected, strict=True)):
        assert ours["assign"] == theirs["assign"], f"round {t}"
        assert np.abs(np.array(ours["models"]) - np.array(theirs["models"])).max() <= SAME, f"round {t}"
        for score in ("balanced", "own", "ari"):
            assert ours[score] == pytest.approx(theirs[score], abs=SAME), f"{score} of round {t}"


def test_the_digits_are_the_packages():
    assert (exporter.STATIC / "digits.js").read_text("utf-8") == exporter.script()


@needs_node
@pytest.mark.parametrize("case", QUICK, ids=lambda case: case[0])
def test_ten_rounds_are_the_packages(case, tmp_path):
    compare(case, tmp_path)


@needs_node
@pytest.mark.browser
@pytest.mark.parametrize("case", FULL, ids=str)
def test_ten_rounds_are_the_packages_whatever_the_skew(case, tmp_path):
    compare(case, tmp_path)


@needs_node
def test_digits_are_unpacked_and_turned_and_kmeans_is_as_good(tmp_path):
    digits, rng = exporter.pool(), np.random.default_rng(0)
    points = np.concatenate([rng.normal(k, 0.5, (10, 5)) for k in range(4)])
    made = node({"points": points.tolist(), "k": 4}, tmp_path)
    x = digits.x.double() / digits.scale
    assert made["x"] == x.flatten().tolist()
    assert made["turned"] == [torch.rot90(x[0, 0], times).flatten().tolist() for times in (1, 2, 3)]
    group = np.array(made["group"])
    spread = sum(((points[group == k] - points[group == k].mean(0)) ** 2).sum() for k in range(4))
    assert spread <= KMeans(4, n_init=20, random_state=0).fit(points).inertia_ * (1 + SAME)
