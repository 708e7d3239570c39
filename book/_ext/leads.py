"""Each paper's main lead over its rival, printed and measured: the picture that the book and the README open with.

``book/leads.yaml`` names the numbers. The directive ``{leads}`` draws them, and the role {held}`PAPER` says what
became of a paper's lead, in words. ``python book/_ext/leads.py FILE`` writes the README's picture.
"""

import sys
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective, SphinxRole

from cflkit.workbook import places, strict
from cflkit.workbook.claims import findings, schema, verdicts

FILE = places.BOOK / "leads.yaml"
FROM, TO = -7, 10  # points of accuracy that the picture spans
STYLE = places.BOOK / "_static" / "leads.css"  # of the book, and of the picture that stands alone


@dataclass(frozen=True)
class Run:
    """A measured lead in points: what ran, the mean, the ends of its 95% interval, and held, failed or open."""

    how: str
    mean: float
    low: float
    high: float
    word: str


@dataclass(frozen=True)
class Lead:
    """A paper's main lead: over whom, the printed points, and the runs that measure it."""

    name: str
    over: str
    printed: float
    runs: list[Run]
    missing: str

    @property
    def words(self) -> str:
        """What became of it."""
        words = dict.fromkeys(run.word for run in self.runs)
        if len(words) < 2:
            return next(iter(words), "not run")
        return "; ".join(f"{run.word} {run.how}" for run in self.runs)


@cache
def leads() -> dict[str, Lead]:
    """The main lead of each paper, in the order of ``book/leads.yaml``; the ledger's word, where it judges the run.

    Raises
    ------
    ValueError
        If a printed number or a record is missing.
    """
    found = {}
    for paper, entry in strict.read(FILE).items():
        ours, other = (findings.printed(**where) for where in entry["printed"])
        (verdict,) = (verdict for claim, verdict in verdicts.verdicts(paper) if claim.get("main"))
        judged = {(part.a, part.b): part for part in verdict.findings if part.mean is not None}
        runs = [measured(run["how"], run["ours"], run["other"], judged) for run in entry["runs"]]
        found[paper] = Lead(entry["name"], entry["over"], ours - other, runs, entry.get("missing", ""))
    return found


def measured(how: str, ours: str, other: str, judged: dict) -> Run:
    """A run as the ledger judges it; in a set-up like the paper's others hold or fail by their interval."""
    if part := judged.get((ours, other)):
        return Run(how, part.mean, part.low, part.high, part.word)
    gap, unlike = findings.gap(ours, other), schema.gate(ours.partition("/")[0]).get("unlike")
    word = "open" if unlike else "held" if gap["low"] > 0 else "failed" if gap["high"] < 0 else "open"
    return Run(how, gap["mean"], gap["low"], gap["high"], word)


def spoken(found: dict[str, Lead]) -> str:
    """The picture in words."""
    said = []
    for lead in found.values():
        runs = [f"{r.mean:+.2f}, {r.low:+.2f} to {r.high:+.2f}, {r.word} {r.how}" for r in lead.runs]
        told = f"measured {'; '.join(runs)}" if runs else "not run"
        said.append(f"{lead.name} {lead.over}: printed {lead.printed:+.2f}; {told}.")
    return " ".join(said)


def drawing(found: dict[str, Lead], slim: bool = False) -> str:
    """Draw the leads: a hollow diamond is printed, a disc with its interval measured.

    Parameters
    ----------
    found : dict of str to Lead
        As :func:`leads` gives them.
    slim : bool
        For a phone: names stand above their rows.
    """
    width, left, right, row, head = (350, 12, 338, 24, 22) if slim else (760, 206, 492, 27, 0)

    def at(points: float) -> float:
        return left + (points - FROM) * (right - left) / (TO - FROM)

    def text(kind: str, x: float, y: float, words: str, end: bool = False) -> str:
        anchor = ' text-anchor="end"' if end else ""
        return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}"{anchor}>{escape(words)}</text>'

    bands, marks, y = [], [], 6.0
    for number, lead in enumerate(found.values()):
        lines, step = max(1, len(lead.runs)), row + 15 if slim else row
        high = head + lines * step + 10 if slim else max(lines * row, 40) + 8
        first = y + head + 12 if slim else y + (high - lines * row) / 2 + row / 2
        if number % 2 == 0:
            bands.append(f'<rect class="band" x="0" y="{y:.0f}" width="{width}" height="{high:.0f}"/>')
        if slim:
            marks += [text("name", left, y + 17, lead.name), text("quiet", left + 72, y + 17, lead.over)]
        else:
            at_end, middle = left - 14, y + high / 2
            marks.append(text("name", at_end, middle - 3, lead.name, True))
            marks.append(text("quiet", at_end, middle + 14, lead.over, True))
        for n, run in enumerate(lead.runs):
            line = first + n * step
            ends = f'x1="{at(run.low):.1f}" x2="{at(run.high):.1f}" y1="{line:.1f}" y2="{line:.1f}"'
            disc = f'<circle cx="{at(run.mean):.1f}" cy="{line:.1f}" r="5"/>'
            marks.append(f'<g class="{run.word}"><line {ends}/>{disc}</g>')
            beside = (left, line + 19) if slim else (right + 14, line + 5)
            marks.append(text(run.word, *beside, f"{run.word}: {run.how}"))
        if not lead.runs:
            beside = (left, first + 5) if slim else (right + 14, first + 5)
            marks.append(text("quiet", *beside, f"not run: {lead.missing}"))
        x, centre = at(lead.printed), first if slim else first + (lines - 1) * step / 2  # clear of the words
        marks.append(f'<path class="printed" d="M{x - 7:.1f} {centre:.1f}l7 -7 7 7 -7 7z"/>')
        y += high
    axis = []
    for tick in range(-6, TO + 1, 4 if slim else 2):
        kind, x = "axis" if tick == 0 else "tick", at(tick)
        axis.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="{y:.0f}"/>')
        words = f"{tick:+d}".replace("-", "−") if tick else "0"
        axis.append(f'<text class="quiet" x="{x:.1f}" y="{y + 16:.0f}" text-anchor="middle">{words}</text>')
    kind, high = "slim" if slim else "wide", y + 22
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="leads leads-{kind}" viewBox="0 0 {width} {high:.0f}" '
            f'width="{width}" height="{high:.0f}" role="img" aria-label="{escape(spoken(found))}">'
            f'{"".join(bands + axis + marks)}</svg>')  # fmt: skip


class Leads(SphinxDirective):
    """The picture, with its content as the caption."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the figure."""
        found = leads()
        caption, problems = self.parse_inline(" ".join(self.content))
        html = f'<figure class="leads">{drawing(found)}{drawing(found, slim=True)}<figcaption>'
        return [nodes.raw("", html, format="html"), nodes.paragraph("", "", *caption),
                nodes.raw("", "</figcaption></figure>", format="html"), *problems]  # fmt: skip


class Held(SphinxRole):
    """What became of a paper's main lead."""

    def run(self) -> tuple[list[nodes.Node], list]:
        """Return the words."""
        return [nodes.strong("", leads()[self.text].words)], []


def setup(app) -> dict:
    """Make the directive and the role known."""
    app.add_directive("leads", Leads)
    app.add_role("held", Held())
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    picture = drawing(leads()).replace("<rect", f"<style>{STYLE.read_text('utf-8')}</style><rect", 1)
    with places.atomic_write(Path(sys.argv[1])) as part:
        part.write_text(picture + "\n", "utf-8")
