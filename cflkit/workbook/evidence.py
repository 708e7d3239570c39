"""Claims as the pages show them: what was found in words, each claim as a mark, and the runs behind it."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from cflkit.engine import metrics
from cflkit.workbook import ledger
from cflkit.workbook.ledger import Row, Verdict
from cflkit.workbook.verdicts import SEEMS

CHAPTERS = {"mdicfl": "MD-ICFL", "fesem": "FeSEM", "stocfl": "StoCFL", "lcfed": "LCFed", "fedcg": "FedCG"}
# A mark's class in book.css, and its sign: colour alone tells nothing.
SIGNS = {
    "holds": ("holds", "✓"), "holds in part": ("holds", "✓…"), "mixed": ("part", "±"),
    "fails": ("fails", "✗"), "fails in part": ("fails", "✗…"),
    "undecided": ("open", "?"), "not tested": ("none", "–"), "vacuous": ("none", "–"),
    "internally consistent": ("print", "="), "internally inconsistent": ("print", "≠"),
}  # fmt: skip


def sign(verdict: Verdict) -> str:
    """Write a verdict as its mark, for the eye alone: its word stands beside it."""
    kind, glyph = SIGNS[verdict.outcome]
    early = " cfl-early" if verdict.preliminary else ""
    return f'<span class="cfl-sign cfl-{kind}{early}" aria-hidden="true">{glyph}</span>'


def strip(paper: str, folder: Path) -> str:
    """List a paper's claims as marks, each a link to its evidence."""
    marks = []
    for claim, verdict in ledger.verdicts(paper, folder):
        told = escape(f"{plain(ledger.says(paper, claim))}: {verdict.word}")
        link = f'<a href="results_{paper}.html#claim-{claim["id"]}" title="{told}">'
        marks.append(f'<li>{link}{sign(verdict)}<span class="cfl-told">{told}</span></a></li>')
    return f'<ul class="cfl-strip" aria-label="Claims of {CHAPTERS[paper]}">{"".join(marks)}</ul>'


def plain(text: str) -> str:
    """Drop what Markdown adds to a line of words."""
    return text.replace("`", "").replace("*", "")


def claims(paper: str, folder: Path) -> list[dict[str, str]]:
    """List a paper's claims: with its printed numbers, the verdict, what was measured, and the runs behind it."""
    return [told(paper, claim, verdict) for claim, verdict in ledger.verdicts(paper, folder)]


def told(paper: str, claim: dict, verdict: Verdict) -> dict[str, str]:
    """Say a claim and what became of it."""
    decided = [part for part in verdict.parts if part.tested or part.printed]
    words = [SEEMS.get(part.outcome, part.outcome) if part.preliminary else part.outcome for part in decided]
    lines = [
        f"{part.name}: {part.value}{f', {word}' if len(decided) > 1 or part.printed else ''}"
        for part, word in zip(decided, words, strict=True)
    ]
    short = [*lines]
    if decided and len(decided) < len(verdict.parts):
        short.append(f"{len(verdict.parts) - len(decided)} of {len(verdict.parts)} parts not tested yet")
    short.append(verdict.caveats)
    rule = f"† Rule of {verdict.newer}." if verdict.newer else ""
    return {
        "id": claim["id"],
        "says": ledger.says(paper, claim)[:1].upper() + ledger.says(paper, claim)[1:],
        "verdict": f"{sign(verdict)} **{verdict.word}**{' †' * bool(verdict.newer)}",
        "measured": _lines(short) if decided else verdict.note,
        "parts": _lines([*lines, verdict.note, rule]),
        "kind": ledger.kind(claim, verdict),
        "behind": _behind([run for part in verdict.parts for run in part.runs]),
    }


def _lines(texts: Sequence[str]) -> str:
    """Set the texts that are not empty below each other in a cell; what wraps is indented."""
    return "".join(f'<span class="cfl-line">{text}</span>' for text in texts if text)


def newer(papers: Sequence[str], folder: Path) -> str:
    """Say what the sign † beside a verdict means; "" if no claim of these papers has it."""
    days = {verdict.newer for paper in papers for _, verdict in ledger.verdicts(paper, folder)} - {""}
    if not days:
        return ""
    return f"† The rule, of {' or '.join(sorted(days))}, is as new as some of the runs that it judges, or newer."


def apart(kind: str, folder: Path) -> Iterator[tuple[str, ...]]:
    """List the claims of a kind that counts in no mark."""
    for paper, title in CHAPTERS.items():
        for claim in claims(paper, folder):
            if claim["kind"] == kind:
                yield title, claim["says"], claim["verdict"], claim["measured"]


def _behind(runs: Sequence[dict]) -> str:
    """Name the records behind a verdict, by protocol, with dates and commits."""
    lines = []
    for protocol in sorted({r["protocol"] for r in runs}):
        mine = [r for r in runs if r["protocol"] == protocol]
        files = ", ".join(sorted({f"{r['label']}-s{r['seed']}" for r in mine}))
        made = ", ".join(sorted({f"{r['provenance']['date']} {commit(r)}" for r in mine}))
        lines.append(f"{protocol}: {files} ({made})")
    return "<br>".join(lines) or "–"


def commit(run: dict) -> str:
    """Name the commit of a run, and say so if the code was changed since."""
    return (run["provenance"]["commit"] or "unknown") + (" (changed)" if run["provenance"].get("changed") else "")


# ---------------------------------------------------------------------- what was found, in words
def counted(paper: str, folder: Path) -> str:
    """Count a paper's own claims by their verdicts, in words."""
    words: dict[str, int] = {}
    for claim, verdict in ledger.verdicts(paper, folder):
        if ledger.kind(claim, verdict) == "of the papers":
            words[verdict.word] = words.get(verdict.word, 0) + 1
    first = sorted(words, key=lambda word: word == ledger.UNTESTED)
    return ", ".join(several(words[word], word) for word in first)


def several(count: int, word: str) -> str:
    """Count claims with a verdict: one *holds*, three *hold*."""
    verb, *rest = word.split(" ")
    return " ".join([str(count), verb.removesuffix("s") if count > 1 else verb, *rest])


def ran(paper: str, folder: Path) -> str:
    """Say how many of a paper's printed numbers stand beside a run, and how many with the seeds to decide."""
    mine = [number for number in ledger.coverage(folder) if number.entry["paper"] == paper]
    done = [number for number in mine if number.state == ledger.MEASURED]
    firm = sum(number.seeds >= ledger.SEEDS and not number.early for number in done)
    return f"{len(done)} of {len(mine)} printed numbers, {firm} with three seeds"


def ready(names: Sequence[str], folder: Path) -> str:
    """Give the first of several tables that may be judged: its baseline has learnt, and it has runs; "" if none."""
    for name in names:
        measured = [row for row in ledger.rows(name, folder) if row.measured]
        if measured and not ledger.too_early(ledger.tables()[name]["protocol"], folder):
            return name
    return ""


def few(table: str, *names: str, folder: Path) -> str:
    """Say so if no row of a table has the seeds to decide anything or, of the rows that are named, one has not."""
    rows = [row for row in ledger.rows(table, folder) if not names or row.name in names]
    seeds = (min if names else max)(len(row.measured.runs) if row.measured else 0 for row in rows)
    return "" if seeds >= ledger.SEEDS else f" So far with {seeds} seed{'s' * (seeds > 1)}."


def score(table: str, name: str, folder: Path) -> str:
    """Give the mean of a row, "" if it was not run."""
    row = _row(table, name, folder)
    values = row.measured.percent(row.metric) if row.measured else []
    return f"{sum(values) / len(values):.2f}" if values else ""


def gap(table: str, name: str, other: str, folder: Path) -> str:
    """Say how far one row lies above another, or that its seeds do not tell; "" without a seed that both have."""
    ours, theirs = (_row(table, n, folder) for n in (name, other))
    sides = [row.measured.values(row.metric) if row.measured else {} for row in (ours, theirs)]
    seeds = sorted(set(sides[0]) & set(sides[1]))
    if not seeds:
        return ""
    found = metrics.paired_difference(*([side[seed] for seed in seeds] for side in sides))
    if len(seeds) >= ledger.SEEDS and found["low"] <= 0 <= found["high"]:
        return "not to be told apart from"
    return f"{abs(found['mean']):.2f} points {'above' if found['mean'] > 0 else 'below'}"


def agreeing(folder: Path) -> dict[str, int]:
    """Count the rows with three seeds that agree with their printed number, differ from it, or may do either."""
    found = {"agrees": 0, "differs": 0, "undecided": 0}
    for name, table in ledger.tables().items():
        if ledger.too_early(table["protocol"], folder):
            continue
        for row in ledger.rows(name, folder):
            values = row.measured.percent(row.metric) if row.measured else []
            if row.printed is not None and len(values) >= ledger.SEEDS:
                found[ledger.agreement(values, row.printed, table["tolerance"])] += 1
    return found


def _row(table: str, name: str, folder: Path) -> Row:
    return next(row for row in ledger.rows(table, folder) if row.name == name)
