"""What there is to choose from, in lines for the console: methods, builders, chapters, protocols, parameters."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from cflkit.checks import known
from cflkit.data.builders import BUILDERS
from cflkit.methods import METHODS
from cflkit.workbook import places
from cflkit.workbook.chapters import compare, notebooks, parameters
from cflkit.workbook.claims import ledger
from cflkit.workbook.runs import protocols

PARTS = {"federation": "of the data, {}", "setting": "of the run",
         "local": "of local training (without a protocol: lr = 0.1, epochs = 5)"}  # fmt: skip


def everything() -> Iterator[str]:
    """A line for each kind of thing; of the book's only where it is there."""
    yield f"methods: {', '.join(sorted(METHODS))}"
    yield f"builders: {', '.join(sorted(BUILDERS))}"
    if places.PAPERS.is_dir():
        yield notebooks.listed()
        yield f"protocols: {', '.join(protocols.protocols())}"


def each(kind: str) -> Iterator[str]:
    """Every method with its parameters, every builder, chapter, or protocol with its methods."""
    if kind in ("methods", "builders"):
        for name, one in sorted({"methods": METHODS, "builders": BUILDERS}[kind].items()):
            yield f"{name:16} {(one.__doc__ or '').strip().splitlines()[0]}"
            yield from (f"{'':16}   {line}" for line in (of_method(name) if kind == "methods" else ()))
        return
    places.need_book()
    if kind == "chapters":
        yield notebooks.listed()
    for name, protocol in protocols.protocols().items() if kind == "protocols" else ():
        yield f"{name:28} {protocol['feeds']}\n{'':28}   {' '.join(protocol['methods'])}"


def of_simulation(method: str, builder: str) -> Iterator[str]:
    """The parameters of a method, of its data, and of its run."""
    name, _ = protocols.named(method)
    known(BUILDERS, builder, "builder")
    takes = protocols.accepted(name, builder)
    own = of_method(name)
    yield f"parameters of {name}:" if own else f"{name} has no parameters"
    yield from (f"  {line}" for line in own)
    for part, title in PARTS.items():
        yield f"parameters {title.format(builder)}:"
        lines = ((where, parameters.line(key, default, hint)) for key, (where, hint, default) in takes.items())
        yield from (line for where, line in lines if where == part)


def of_method(name: str) -> list[str]:
    """The parameters of a method: default, and what is allowed."""
    takes = {key: one for key, one in protocols.accepted(name, "rotated").items() if one[0] == "method"}
    return [parameters.line(key, default, hint).strip() for key, (_, hint, default) in takes.items()]


# ---------------------------------------------------------------------- the ledger
def of_table(name: str, out: Path, form: str) -> Iterator[str]:
    """A table of the papers, row by row, and what it lacks."""
    known(ledger.tables(), name, "table")
    rows = [{"row": row.name, "printed": row.printed,
             "measured": ledger.number(row.measured.percent(row.metric)) if row.measured else None}
            for row in ledger.rows(name, out)]  # fmt: skip
    yield compare.written(pd.DataFrame(rows), form)
    for m in ledger.missing(name, folder=out) if form == "text" else ():
        cost = f"{m.minutes:.0f} min of a CPU core, {m.gpu_minutes:.1f} of an H200"
        yield f"missing: {m.label}, seed {m.seed}: {cost}"


def of_ledger(out: Path) -> Iterator[str]:
    """What all tables lack, every claim with its verdict, and how many numbers are measured."""
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
