"""The ledger in lines for the console."""

from collections.abc import Iterator
from pathlib import Path

from cflkit.workbook.claims import ledger, measured, verdicts
from cflkit.workbook.runs import results


def of_table(name: str, out: Path, form: str) -> Iterator[str]:
    """A table of the papers, row by row, and what it lacks."""
    import pandas as pd

    from cflkit.workbook.chapters import compare

    rows = [{"row": row.name, "printed": row.printed,
             "measured": measured.number([*row.values.values()]) if row.measured else None}
            for row in ledger.rows(name, out)]  # fmt: skip
    yield compare.written(pd.DataFrame(rows), form)
    for m in ledger.missing(name, folder=out) if form == "text" else ():
        yield f"missing: {m.label}, seed {m.seed}: {m.minutes:.0f} min of a CPU core"


def of_all(out: Path) -> Iterator[str]:
    """The whole ledger: what every table lacks, every claim with its verdict, and the printed numbers."""
    for name in ledger.tables():
        lacking = ledger.missing(name, folder=out)
        hours = sum(m.minutes for m in lacking) / 60
        yield f"{name:28} {len(lacking):3} runs missing: {hours:5.1f} h of a CPU core"
    for paper, words in verdicts.tally(out).items():
        yield f"{paper}: " + ", ".join(f"{count} {word}" for word, count in words.items())
        for claim, verdict in verdicts.verdicts(paper, out):
            yield f"  {claim['id']:26} {verdict.word:7} {verdict.reason}"
            for part in (part for part in verdict.findings if part.n):
                number = f"{part.mean:+.2f} [{part.low:+.2f}, {part.high:+.2f}]" if part.low is not None else ""
                yield f"    {part.word:6} {part.n} seeds {number} {part.what}"
    total = ledger.totals(out)
    firm = f"{total['firm']} with three seeds and a baseline near print"
    rest = f"{total['runnable']} can be run, {total['left out']} not here"
    yield f"printed numbers: {total['printed']}, of which {total['measured']} measured ({firm}), {rest}"
    yield f"missing in all tables: {total['runs']} runs: {total['hours']:.0f} h of a CPU core"
    yield from (f"left out: {line}" for line in results.problems(out))
