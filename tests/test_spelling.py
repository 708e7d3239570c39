"""What is read has no common misspelling: book, data and package; ``words.txt`` has the words of the field."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXTS = [
    "*.md", "book/*.md", "book/*.yaml", "book/papers/*.yaml", "book/templates/*",
    "course/**/*.md", "cflkit/**/*.py",
]  # fmt: skip


def prose():
    """Every line with its place; of notebooks the text cells alone."""
    for pattern in TEXTS:
        for path in sorted(ROOT.glob(pattern)):
            yield path, path.read_text("utf-8")
    for path in sorted(ROOT.glob("book/*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        yield path, "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def test_nothing_is_misspelt():
    lines = [(path, line) for path, text in prose() for line in text.splitlines()]
    words = ROOT / "tests" / "words.txt"
    call = [sys.executable, "-m", "codespell_lib", "--ignore-words", str(words), "-"]
    text = "\n".join(line for _, line in lines)
    found = subprocess.run(call, input=text, capture_output=True, text=True).stdout.splitlines()
    where = [lines[int(line.partition(":")[0]) - 1][0].relative_to(ROOT) for line in found[::2]]  # then the word
    assert not found, "\n".join(f"{path}: {word.strip()}" for path, word in zip(where, found[1::2], strict=True))
