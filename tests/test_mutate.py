"""The mutator: what it breaks and what it leaves alone, and that a mutant which nothing notices is reported."""

import difflib
import os
import subprocess
import sys
from ast import parse, unparse
from pathlib import Path

import yaml
from mutate import mutants

SMALL = '''
@dataclass(frozen=True)
class Small:
    """Says 1 + 1."""

    rate: float = 0.5

    def step(self, w: Tensor[2], rows, n=1) -> list[3]:
        require(n >= 1, "n", n + 1, f"{1} or more")
        positive("rate", self.rate)
        w -= self.rate * rows.mean(weights=n, device=cpu)
        near = rows[:2].argmin() if self.near and not self.far else -max(w, 0.5)
        return {**near, "x": True}
'''


def changes(source):
    return [(m.number, m.change) for m in mutants(source)]


def test_every_mutant_of_a_small_source():
    negated = "self.near and (not self.far) -> not (self.near and (not self.far))"
    assert changes(SMALL) == [
        (8, "1 -> 0"),
        (9, "without require(n >= 1, 'n', n + 1, f'{1} or more')"),
        (9, "n >= 1 -> n < 1"),
        (9, "n >= 1 -> n > 1"),
        (9, "1 -> 0"),
        (10, "without positive('rate', self.rate)"),
        (11, "w -= self.rate * rows.mean(weights=n, device=cpu) -> "
             "w += self.rate * rows.mean(weights=n, device=cpu)"),
        (11, "without w -= self.rate * rows.mean(weights=n, device=cpu)"),
        (11, "self.rate * rows.mean(weights=n, device=cpu) -> self.rate / rows.mean(weights=n, device=cpu)"),
        (11, "without weights=n"),
        (11, "mean -> sum"),
        (12, negated),
        (12, "self.near and (not self.far) -> self.near or not self.far"),
        (12, "self.near and (not self.far) -> self.near"),
        (12, "self.near and (not self.far) -> not self.far"),
        (12, "not self.far -> self.far"),
        (12, "argmin -> argmax"),
        (12, ":2 -> :"),
        (12, "2 -> 3"),
        (12, "-max(w, 0.5) -> max(w, 0.5)"),
        (12, "max -> min"),
        (12, "0.5 -> 1.5"),
        (13, "True -> False"),
    ]  # fmt: skip


def test_terms_are_dropped_and_conditions_negated():
    assert changes("a = b - c") == [(1, "b - c -> b + c"), (1, "b - c -> b"), (1, "b - c -> c")]
    assert changes("a = 1 - b / c")[3:] == [(1, "1 -> 0"), (1, "b / c -> b * c")]
    assert changes("a = b == c") == [(1, "b == c -> b != c")]
    assert changes("while a:\n    b()") == [(1, "a -> not a"), (2, "without b()")]
    assert changes("a = f(b, **c)") == []
    assert changes("seed = int(a + 1)") == changes("a: 1 = zip(b, strict=True)") == []
    assert changes("a = f(b=1, c=1)") == [(1, "without b=1"), (1, "without c=1"), (1, "b=1 -> 0"), (1, "c=1 -> 0")]


def test_a_mutant_is_one_line_away_from_its_source():
    for source in (SMALL, Path("cflkit/methods/ifca.py").read_text()):
        plain = unparse(parse(source)).splitlines()
        for mutant in mutants(source):
            moved = [line for line in difflib.ndiff(plain, mutant.source.splitlines()) if line[0] in "+-"]
            assert [line[0] for line in moved] == ["-", "+"]


# ---------------------------------------------------------------------- runs
LINE = "def line(x):\n    return 3 * x + 5 - x / 7\n\n\ndef larger(a, b):\n    return a if a > b else b\n"
SHORT = "def larger(a, b):\n    return a if a > b else b\n"
EQUAL = {"line": "return a if a > b else b", "change": "a > b -> a >= b", "why": "Of equals, either will do."}
TESTS = "from {0} import *\n\ndef test_by_hand():\n    assert {1}\n"


def python(folder, *arguments):
    home = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=home, capture_output=True, text=True, check=False)


def report(folder, *arguments, **reasons):
    """Mutate two little files, of which `line` has a hole in its tests and `short` too few of them."""
    (folder / "line.py").write_text(LINE)
    (folder / "short.py").write_text(SHORT)
    (folder / "test_line.py").write_text(TESTS.format("line", "line(14) == 45 and larger(1, 2) == 2"))
    (folder / "test_short.py").write_text(TESTS.format("short", "larger(1, 2) == 2"))
    (folder / "conftest.py").write_text("from hypothesis import settings\nsettings.register_profile('unshrunk')\n")
    plan = {"package": "line", "warm": ["hypothesis"],
            "tests": {"line.py": "test_line.py", "short.py": "test_short.py"},
            "reasons": {f"{name}.py": reason for name, reason in reasons.items()}}  # fmt: skip
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan))
    return python(folder, str(Path(__file__).with_name("mutate.py").resolve()), "--plan", "plan.yaml", *arguments)


def test_survivors_and_files_below_the_share_are_reported(tmp_path):
    stale = EQUAL | {"change": "a > b -> a"}
    done = report(tmp_path, short=[EQUAL, stale])
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "short.py: fewer than 90% killed",
        "line.py:6: survives without a reason: a > b -> a >= b",
        "short.py: a reason for what is not there: return a if a > b else b: a > b -> a",
    ]
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["line.py", "13", "12", "92%"] in rows and ["short.py", "2", "1", "50%"] in rows
    assert "a > b -> a >= b\n    survives: Of equals, either will do." in done.stdout
    listing = (tmp_path / "build/mutants.txt").read_text()
    assert "line.py:2: 5 -> 6\n    test_line.py::test_by_hand\n" in listing
    assert "line.py:6: a > b -> a >= b\n    SURVIVED\n" in listing


def test_whatever_runs_for_ever_or_cannot_be_imported_is_noticed(tmp_path):
    report(tmp_path, "-n", "0")
    sources = {"while True:\n    pass": 1, "1 / 0": 60, LINE: 60}  # with the CPU seconds that each may take
    jobs = [("line.py", source, "test_line.py", seconds) for source, seconds in sources.items()]
    code = f"import mutate\nfor n, ok, noticed, _ in mutate.run({jobs!r}, 1): print(n, ok, noticed, sep='|')"
    lines = python(tmp_path, "-c", code).stdout.splitlines()
    assert lines == ["0|False|CPU time limit exceeded", "1|False|test_line.py", "2|True|status 0"]
