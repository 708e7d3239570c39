"""Claims as the pages show them: a bar a paper, a line a claim, and the runs behind it."""

import csv
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path

from cflkit.workbook.claims import ledger, verdicts
from cflkit.workbook.claims.ledger import Verdict
from cflkit.workbook.claims.verdicts import FAILED, HELD, OPEN, WORDS, Finding, counts

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


def told(paper: str, claim: dict, verdict: Verdict) -> dict[str, str]:
    """Say a claim: its words and their place, the verdict, the number that decides, and what opens on click."""
    place = f'<br><small><q>{escape(claim["quote"])}</q> {claim["place"]}</small>' if "quote" in claim else ""
    main = "<strong>Main claim.</strong> " if claim.get("main") else ""
    lines = [verdict.reason, *(part(finding) for finding in verdict.findings)]
    runs = [run for finding in verdict.findings for run in finding.runs]
    shown = "".join(f'<span class="cfl-line">{line}</span>' for line in [*filter(None, lines), _behind(runs)])
    return {
        "id": claim["id"],
        "says": claim["says"],
        "quote": main + claim["says"] + place,
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
    fields = ["paper", "table", "dataset", "method", "metric"]
    table.writerow([*fields, "setting", "printed", "state", "measured", "seeds", "in"])
    beside = {}
    for name in ledger.tables():
        for row in ledger.rows(name, folder):
            if row.printed is not None and row.measured and (values := row.measured.percent(row.metric)):
                beside.setdefault((name, row.printed), sum(values) / len(values))
    for number in ledger.coverage(folder):
        entry, setting = number.entry, "; ".join(f"{k}={v}" for k, v in number.entry["setting"].items())
        mean = next((beside[t, entry["value"]] for t in number.tables if (t, entry["value"]) in beside), None)
        told = [setting, entry["value"], number.state, "" if mean is None else f"{mean:.2f}", number.seeds]
        table.writerow([*(entry[field] for field in fields), *told, " ".join(number.tables)])
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


def gap(table: str, name: str, other: str, folder: Path) -> str:
    """Say how far one row lies above another in points, "–" if the seeds do not tell; "" without a seed of both."""
    spec = ledger.tables()[table]
    rows = [next(row for row in ledger.rows(table, folder) if row.name == n) for n in (name, other)]
    found = verdicts.compare(*(f"{spec['protocol']}/{row.label}/{row.metric}" for row in rows), folder)
    low, high = found.ends()
    if not found.n:
        return ""
    return "–" if low <= 0 <= high else f"{abs(found.mean):.2f} {'above' if found.mean > 0 else 'below'}"
