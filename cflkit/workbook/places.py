"""Where the book lies: beside the package in a clone, and nowhere in an installed wheel."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
PAPERS = BOOK / "papers"
RESULTS = BOOK / "results"
