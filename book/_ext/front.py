"""The two pictures of the front page, of which the README has the first.

The directive ``{leads}`` draws each paper's main lead over its rival, printed and measured, as ``book/leads.yaml``
names the numbers. The role {held}`PAPER` says in words what became of a lead.

The directive ``{sorting}`` draws clients that sort themselves: digits, which ``make specimens`` has drawn, as one
model for all has them, and one model a group. Two buttons choose; in print they stand in their groups.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import drawings
from docutils import nodes
from sphinx.util.docutils import SphinxDirective, SphinxRole

from cflkit import rng
from cflkit.checks import require
from cflkit.workbook import places, strict
from cflkit.workbook.claims import findings, papers, verdicts
from cflkit.workbook.claims.verdicts import Finding

FILE = places.BOOK / "leads.yaml"
FROM, TO = -7, 10  # points of accuracy that the picture spans
STYLE = places.BOOK / "_static" / "leads.css"  # of the book, and of the picture that stands alone

GROUPS, EACH = 4, 7  # four rotations, seven clients each
NAMES = ("upright", "a quarter turn", "upside down", "three quarters")
FOR_ALL, BY_GROUP = "common_rot_r20/fedavg", "common_rot_r20/oracle"


@dataclass(frozen=True)
class Lead:
    """A paper's main lead: over whom, the printed points, and the runs that measure it, named by what ran."""

    name: str
    over: str
    printed: float
    runs: list[Finding]
    missing: str

    @property
    def words(self) -> str:
        """What became of it."""
        words = dict.fromkeys(run.word for run in self.runs)
        if len(words) < 2:
            return next(iter(words), "not run")
        return "; ".join(f"{run.word} {run.what}" for run in self.runs)


@cache
def leads() -> dict[str, Lead]:
    """The main lead of each paper, in the order of ``book/leads.yaml``; as the ledger's finding, where it has one.

    A printed number or a record that is missing is refused.
    """
    found = {}
    for paper, entry in strict.read(FILE).items():
        ours, other = (papers.one(**where)["value"] for where in entry["printed"])
        (verdict,) = (verdict for claim, verdict in verdicts.verdicts(paper) if claim.get("main"))
        runs = [measured(verdict.findings, **run) for run in entry["runs"]]
        found[paper] = Lead(entry["name"], entry["over"], ours - other, runs, entry.get("missing", ""))
    return found


def measured(judged: Sequence[Finding], how: str, ours: str, other: str) -> Finding:
    """What a run says of a lead, as a claim's findings have it, or by the same rule."""
    mine = [one for one in judged if (one.a, one.b) == (ours, other)]
    (run, *_) = mine or verdicts.decide({how: {"more": [ours, other]}}, {})
    require(run.low is not None, f"lead of {ours}", other, "cells of runs that give an interval")
    return replace(run, what=how)


def drawing(found: dict[str, Lead], slim: bool = False) -> str:
    """Draw them: a hollow diamond is printed, a disc with its interval measured; on a phone, names stand above."""
    width, left, right, row, head = (350, 12, 338, 39, 22) if slim else (760, 206, 492, 27, 0)
    rows, top = [], 6.0
    for lead in found.values():
        lines = max(1, len(lead.runs))
        high = head + lines * row + 10 if slim else max(lines * row, 40) + 8
        first = top + head + 12 if slim else top + (high - lines * row) / 2 + row / 2
        centre = first if slim else first + (lines - 1) * row / 2  # clear of the words
        rows.append({"lead": lead, "top": top, "high": high, "first": first, "step": row, "centre": centre})
        top += high

    def at(points: float) -> float:
        return left + (points - FROM) * (right - left) / (TO - FROM)

    return drawings.render("leads", rows=rows, at=at, slim=slim, width=width, high=top + 22, left=left, right=right)


def tiles() -> list[tuple[int, int, int]]:
    """Each client's group, its place in the group, and its place among all."""
    stands = rng.generator(5, "front page").permutation(GROUPS * EACH)
    return [(*divmod(client, EACH), place) for client, place in enumerate(stands.tolist())]


class Picture(SphinxDirective):
    """A figure without a number; the directive's content is the caption."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the figure."""
        self.env.note_reread()  # whatever is drawn comes from records
        html = drawing(leads()) + drawing(leads(), slim=True) if self.name == "leads" else self.sorting()
        caption, problems = self.parse_inline(" ".join(self.content))
        return [nodes.raw("", f'<figure class="{self.name}">{html}<figcaption>', format="html"),
                nodes.paragraph("", "", *caption), nodes.raw("", "</figcaption></figure>", format="html"),
                *problems]  # fmt: skip

    def sorting(self) -> str:
        """Draw the clients, with the accuracy of one model for all and of one a group."""
        every, grouped = (f"{findings.mean(cell):.0f}%" for cell in (FOR_ALL, BY_GROUP))
        return drawings.render("sorting", every=every, grouped=grouped, names=NAMES, tiles=tiles())


class Held(SphinxRole):
    """What became of a paper's main lead."""

    def run(self) -> tuple[list[nodes.Node], list]:
        """Return the words."""
        return [nodes.strong("", leads()[self.text].words)], []


def setup(app) -> dict:
    """Make the directives and the role known."""
    app.add_directive("leads", Picture)
    app.add_directive("sorting", Picture)
    app.add_role("held", Held())
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    picture = drawing(leads()).replace("<rect", f"<style>{STYLE.read_text('utf-8')}</style><rect", 1)
    places.write(Path(sys.argv[1]), picture + "\n")
