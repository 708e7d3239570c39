"""Claims as the pages show them: a bar a paper, a line a claim, and the runs behind it."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from cflkit.engine import metrics
from cflkit.workbook import ledger
from cflkit.workbook.ledger import Row, Verdict
from cflkit.workbook.verdicts import FAILED, HELD, OPEN, WORDS, Finding, counts

CHAPTERS = {"mdicfl": "MD-ICFL", "fesem": "FeSEM", "stocfl": "StoCFL", "lcfed": "LCFed", "fedcg": "FedCG"}
# A word's class in book.css, and its sign: colour alone tells nothing.
SIGNS = {HELD: ("holds", "✓"), FAILED: ("fails", "✗"), OPEN: ("open", "?")}
KINDS = {"print": "By the papers' own numbers", "arithmetic": "By counting", "ours": "Questions of our own"}


def bar(paper: str, folder: Path) -> str:
    """Draw a paper's claims as a stacked bar of words and numbers, with a title for those who hear it."""
    found = ledger.tally(folder)[paper]
    told = ", ".join(f"{found[word]} {word}" for word in WORDS)
    pieces = "".join(
        f'<span class="cfl-piece cfl-{SIGNS[word][0]}" style="flex-grow: {found[word]}">{found[word]} {word}</span>'
        for word in WORDS if found[word]
    )  # fmt: skip
    return f'<div class="cfl-bar" role="img" aria-label="Claims of {CHAPTERS[paper]}: {told}">{pieces}</div>'


def claims(paper: str, folder: Path, kind: str | None = None) -> list[dict[str, str]]:
    """List a paper's claims of one kind (None: the paper's own), each as :func:`told` says it."""
    judged = ledger.verdicts(paper, folder)
    return [told(paper, claim, verdict) for claim, verdict in judged if claim.get("kind") == kind]


def main_claim(paper: str, folder: Path) -> dict[str, str]:
    """A paper's main claim, as :func:`told` says it."""
    (claim,) = [claim for claim in ledger.claims()[paper] if claim.get("main")]
    return told(paper, claim, ledger.judge(paper, claim, folder))


def told(paper: str, claim: dict, verdict: Verdict) -> dict[str, str]:
    """Say a claim: its words and their place, the verdict, the number that decides, and what opens on click."""
    quote = f'<q>{claim["quote"]}</q> <small>{claim["place"]}</small>' if "quote" in claim else claim["says"]
    main = "<strong>Main claim.</strong> " if claim.get("main") else ""
    lines = [f"{claim['says']}", verdict.reason, *(part(finding) for finding in verdict.findings)]
    runs = [run for finding in verdict.findings for run in finding.runs]
    shown = "".join(f'<span class="cfl-line">{line}</span>' for line in [*filter(None, lines), _behind(runs)])
    return {
        "id": claim["id"],
        "says": claim["says"],
        "quote": main + quote,
        "word": f"{sign(verdict.word)}**{verdict.word}**",
        "number": _number(verdict.decides) if counts(claim) or claim.get("kind") == "ours" else "",
        "parts": f"<details><summary>why</summary>{shown}</details>",
        "link": f'<a href="results_{paper}.html#claim-{claim["id"]}">runs</a>',
    }


def sign(word: str) -> str:
    """Write a word's sign, for the eye alone: the word stands beside it."""
    kind, glyph = SIGNS.get(word, ("print", ""))
    return f'<span class="cfl-sign cfl-{kind}" aria-hidden="true">{glyph}</span>' if glyph else ""


def part(finding: Finding) -> str:
    """Say one comparison of a claim in a line."""
    against = f" against `{finding.b.partition('/')[2]}`" if finding.b else ""
    return ": ".join(filter(None, [finding.what, " ".join(filter(None, [_number(finding) + against, finding.word])),
                                   finding.reason]))  # fmt: skip


def _number(finding: Finding) -> str:
    """The estimate with its interval; a count or an index has none."""
    if finding.mean is None:
        return ""
    sign = "+" if finding.b else ""
    interval = f" [{finding.low:{sign}.2f}, {finding.high:{sign}.2f}]" if finding.low is not None else ""
    return f"{finding.mean:{sign}.2f}{interval}"


def newer(folder: Path) -> tuple[int, int]:
    """Count claims whose rule is no older than a run that it judges, and all claims that runs judge."""
    dates = []
    for paper in CHAPTERS:
        for claim, verdict in ledger.verdicts(paper, folder):
            since = (claim.get("since") or ledger.rules_since()).isoformat()
            runs = [run["provenance"]["date"] for finding in verdict.findings for run in finding.runs]
            dates += [min(runs) <= since] if runs else []
    return sum(dates), len(dates)


def numbers_csv(folder: Path) -> str:
    """Every printed number, and what stands beside it, as comma-separated values."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["paper", "table", "dataset", "method", "metric", "setting", "printed", "state", "measured", "seeds", "in"])
    beside = {}
    for name in ledger.tables():
        for row in ledger.rows(name, folder):
            if row.printed is not None and row.measured and (values := row.measured.percent(row.metric)):
                beside.setdefault((name, row.printed), sum(values) / len(values))
    for number in ledger.coverage(folder):
        entry, setting = number.entry, "; ".join(f"{k}={v}" for k, v in number.entry["setting"].items())
        mean = next((beside[t, entry["value"]] for t in number.tables if (t, entry["value"]) in beside), None)
        table.writerow([*(entry[k] for k in ("paper", "table", "dataset", "method", "metric")), setting, entry["value"],
                        number.state, "" if mean is None else f"{mean:.2f}", number.seeds, " ".join(number.tables)])
    return text.getvalue()


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
