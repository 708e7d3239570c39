"""The ledger in lines for the console: kept in the folder ``build`` until what it depends on changes."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cflkit.checks import known
from cflkit.workbook import places


def of_table(name: str, out: Path, form: str) -> Iterator[str]:
    """A table of the papers, row by row, and what it lacks."""
    import pandas as pd

    from cflkit.workbook.chapters import compare
    from cflkit.workbook.claims import ledger

    known(ledger.tables(), name, "table")
    rows = [{"row": row.name, "printed": row.printed,
             "measured": ledger.number(row.measured.percent(row.metric)) if row.measured else None}
            for row in ledger.rows(name, out)]  # fmt: skip
    yield compare.written(pd.DataFrame(rows), form)
    for m in ledger.missing(name, folder=out) if form == "text" else ():
        cost = f"{m.minutes:.0f} min of a CPU core, {m.gpu_minutes:.1f} of an H200"
        yield f"missing: {m.label}, seed {m.seed}: {cost}"


def of_ledger(out: Path) -> list[str]:
    """What all tables lack, every claim with its verdict, and how many numbers are measured.

    The lines are kept until a record, a file of the papers, or the package's code changes.
    """
    code = Path(__file__).resolve().parents[2].rglob("*.py")
    files = sorted([*out.resolve().glob("*/*.json"), *places.PAPERS.glob("*.yaml"), *code])
    state = places.digest(f"{file} {file.lstat().st_mtime_ns} {file.lstat().st_size}" for file in files)
    kept = places.ROOT / "build" / "ledger.json"
    with suppress(OSError, ValueError):
        there = json.loads(kept.read_text("utf-8"))
        if there["state"] == state:
            return there["lines"]
    lines = [*_of_ledger(out)]
    with suppress(OSError):  # of a clone that cannot be written to
        kept.parent.mkdir(exist_ok=True)
        with places.atomic_write(kept) as part:
            part.write_text(json.dumps({"state": state, "lines": lines}), "utf-8")
    return lines


def _of_ledger(out: Path) -> Iterator[str]:
    from cflkit.workbook.claims import ledger

    for name in ledger.tables():
        lacking = ledger.missing(name, folder=out)
        hours, gpu = sum(m.minutes for m in lacking) / 60, sum(m.gpu_minutes for m in lacking)
        yield f"{name:28} {len(lacking):3} runs missing: {hours:5.1f} h of a CPU core, {gpu:4.0f} min of an H200"
    for paper, words in ledger.tally(out).items():
        yield f"{paper}: " + ", ".join(f"{count} {word}" for word, count in words.items())
        for claim, verdict in ledger.verdicts(paper, out):
            yield f"  {claim['id']:26} {verdict.word:7} {verdict.reason}"
    total = ledger.totals(out)
    firm = f"{total['firm']} with three seeds and a baseline near print"
    rest = f"{total['runnable']} can be run, {total['left out']} not here"
    yield f"printed numbers: {total['printed']}, of which {total['measured']} measured ({firm}), {rest}"
    cost = f"{total['hours']:.0f} h of a CPU core, {total['gpu_hours']:.0f} h of an H200"
    yield f"missing in all tables: {total['runs']} runs: {cost}"
    yield from (f"left out: {line}" for line in ledger.problems(out))
