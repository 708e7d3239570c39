"""Tables as people write them, in any spreadsheet of any country, and as the course writes them."""

import csv
import io
import os
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable
from pathlib import Path


def read(path: Path, *columns: str) -> list[dict[str, str]]:
    """Return the rows of a table by column; all of `columns` must be there.

    Commas, semicolons and tabs part cells, as the first line has them. A spreadsheet's UTF-8, UTF-16 or, from
    Windows, Latin letters are read.

    Raises
    ------
    SystemExit
        with one line that names the file, if it is missing, no text, or without a column.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}") from None
    try:
        text = data.decode("utf-16" if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace")
    first = text.partition("\n")[0]
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count))
        names = [name.strip().lower() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        rows = [{key: (row[key] or "").strip() for key in names} for row in reader]
    except csv.Error as error:
        raise SystemExit(f"{path}: no table that can be read ({error})") from None
    if missing := [column for column in columns if column not in names]:
        raise SystemExit(f"{path}: its first line is {first.strip()[:80]!r}, and has no column {missing[0]!r}")
    return [row for row in rows if any(row.values())]


def number(text: str) -> float | None:
    """Return the number that a text is, with a decimal point or comma; None if it is none."""
    return float(text.replace(",", ".")) if re.fullmatch(r"-?\d+([.,]\d*)?", text) else None


def text(rows: Iterable[Iterable[str]]) -> str:
    """Return rows as CSV; a cell that a spreadsheet would take for a formula gets a space before it."""
    found = io.StringIO()
    csv.writer(found, lineterminator="\n").writerows(
        [f" {cell}" if cell[:1] in ("=", "+", "-", "@") and number(cell) is None else cell for cell in row]
        for row in rows
    )
    return found.getvalue()


def replaced(path: Path, text: str) -> None:
    """Write a file under another name first, so that nobody meets half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, "utf-8", newline="")
    draft.replace(path)
