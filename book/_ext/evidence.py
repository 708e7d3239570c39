"""Claims as the pages show them: a bar a paper, a line a claim, and the runs behind it on demand."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from statistics import fmean

import drawings
import pandas as pd
import scores

from cflkit.checks import require
from cflkit.workbook.claims import ledger, schema, verdicts
from cflkit.workbook.claims.verdicts import FAILED, HELD, OPEN, Finding, Verdict

CHAPTERS = {"mdicfl": "MD-ICFL", "fesem": "FeSEM", "stocfl": "StoCFL", "lcfed": "LCFed", "fedcg": "FedCG"}
# A word's class in book.css, and its sign: colour alone tells nothing.
SIGNS = {HELD: ("holds", "✓"), FAILED: ("fails", "✗"), OPEN: ("open", "?")}
FAR = 2.0  # points between a run and a printed accuracy that ask for a reason
KINDS = {"print": "By the papers' own numbers", "arithmetic": "By counting", "ours": "Questions of our own"}


def bar(paper: str, folder: Path) -> str:
    """Draw a paper's claims as a stacked bar of words and numbers, with a title for those who hear it."""
    return drawings.render("bar", paper=CHAPTERS[paper], found=verdicts.tally(folder)[paper], signs=SIGNS)


def lines(papers: Sequence[str], folder: Path, kind: str | None = None) -> Iterator[list[str]]:
    """Give a line for each claim of a kind (None: the papers' own): words, verdict, number that decides, link."""
    for paper in papers:
        for claim, verdict in verdicts.verdicts(paper, folder):
            if claim.get("kind") == kind:
                own = [CHAPTERS[paper]] if len(papers) > 1 else []
                link = f'<a href="results_{paper}.html#claim-{claim["id"]}">runs</a>'
                yield [*own, quoted(claim), word(verdict.word), decided(claim, verdict), link]


def explained(paper: str, folder: Path) -> Iterator[list[str]]:
    """Give every claim of a paper with its comparisons, and the runs behind them, on click."""
    order, every = [None, *KINDS], verdicts.verdicts(paper, folder)
    for claim, verdict in sorted(every, key=lambda one: order.index(one[0].get("kind"))):
        runs = {(r["protocol"], f"{r['label']}-s{r['seed']}") for one in verdict.findings for r in one.runs}
        behind = [f"{of}: {', '.join(sorted(run for at, run in runs if at == of))}" for of in sorted(dict(runs))]
        since = f"rule of {claim['since']}"
        told = [verdict.reason, *(part(finding) for finding in verdict.findings), *behind, since]
        shown = "".join(f'<span class="cfl-line">{line}</span>' for line in told if line)
        says = f'<span id="claim-{claim["id"]}"></span>{quoted(claim)}'
        why = f"<details><summary>why</summary>{shown}</details>"
        yield [says, word(verdict.word), decided(claim, verdict), why]


def quoted(claim: dict) -> str:
    """Say a claim, with the paper's words and their place."""
    place = f"<br><small><q>{escape(claim['quote'])}</q> {claim['place']}</small>" if "quote" in claim else ""
    return ("<strong>Main claim.</strong> " if claim.get("main") else "") + claim["says"] + place


def word(verdict: str) -> str:
    """Write a verdict's word, with a sign for the eye alone."""
    kind, glyph = SIGNS.get(verdict, ("", ""))
    sign = f'<span class="cfl-sign cfl-{kind}" aria-hidden="true">{glyph}</span>' if glyph else ""
    return f"{sign}**{verdict}**"


def decided(claim: dict, verdict: Verdict) -> str:
    """Write the one number that decides a claim of runs."""
    return estimate(verdict.decides) if claim.get("kind", "ours") == "ours" else ""


def part(finding: Finding) -> str:
    """Say one comparison of a claim in a line."""
    _, label, metric = schema.split(finding.b)
    scored = f", {scores.words(metric)}" if metric != schema.split(finding.a)[2] else ""
    against = f"against `{label}`{scored}" if finding.b else ""
    bound = f"(boundary {finding.boundary:g})" if finding.boundary else ""
    said = " ".join(filter(None, [estimate(finding), against, bound, finding.word]))
    return ": ".join(filter(None, [finding.what, said, finding.reason]))


def estimate(finding: Finding) -> str:
    """Write an estimate with its interval; a count or an index has none."""
    if finding.mean is None:
        return ""
    sign = "+" if finding.b else ""
    interval = f" [{finding.low:{sign}.2f}, {finding.high:{sign}.2f}]" if finding.low is not None else ""
    return f"{finding.mean:{sign}.2f}{interval}"


def newer(folder: Path) -> tuple[int, int]:
    """Count claims whose rule is no older than a run that it judges, and all claims that runs judge."""
    every = [(claim["since"].isoformat(), [run for finding in verdict.findings for run in finding.runs])
             for paper in CHAPTERS for claim, verdict in verdicts.verdicts(paper, folder)]  # fmt: skip
    dates = [min(run["provenance"]["date"] for run in runs) <= since for since, runs in every if runs]
    return sum(dates), len(dates)


def far(key: str, folder: Path) -> Iterator[list[str]]:
    """Say how many rows of a table lie more than two points from print, how far, and why (or a guess)."""
    said = set()
    for name, spec in schema.tables().items():
        gaps = [fmean(row.values.values()) - row.printed for row in ledger.rows(name, folder)
                if row.values and row.entry and "percent" in row.entry["metric"]]  # fmt: skip
        apart = [gap for gap in gaps if abs(gap) > FAR]
        require(not apart or {"why", "guess"} & spec.keys(), f"why or guess of {name}", None, "given: rows are off")
        if apart and spec.get(key) and (spec["protocol"], spec[key]) not in said:
            said |= {(spec["protocol"], spec[key])}
            span = " to ".join(map("{:+.1f}".format, sorted({min(apart), max(apart)})))
            table = f"{CHAPTERS[spec['paper']]}: [{spec['title']}](table-{name})"
            yield [table, f"{len(apart)} of {len(gaps)} rows", span, spec[key]]


def numbers_csv(numbers: Sequence[ledger.Coverage]) -> str:
    """Write every printed number, and what stands beside it, as comma-separated values."""
    lines = [{
        **{field: one.entry[field] for field in ("paper", "table", "dataset", "method", "metric")},
        "setting": "; ".join(f"{key}={value}" for key, value in one.entry["setting"].items()),
        "printed": one.entry["value"], "state": one.state,
        "measured": f"{sum(one.values) / len(one.values):.2f}" if one.values else "",
        "seeds": len(one.values), "in": " ".join(one.tables),
    } for one in numbers]  # fmt: skip
    return pd.DataFrame(lines).to_csv(index=False, lineterminator="\n")
