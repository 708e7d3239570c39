"""What verdicts say together: of a paper, for its title, and of all claims that were counted."""

from pathlib import Path

from cflkit.workbook import records, schema
from cflkit.workbook.papers import printed_numbers
from cflkit.workbook.verdicts import (
    CONSISTENT,
    FAILS,
    HOLDS,
    INCONSISTENT,
    MIXED,
    PARTLY,
    PARTLY_FAILS,
    UNDECIDED,
    UNTESTED,
    VACUOUS,
    Verdict,
    judge,
)


def says(paper: str, claim: dict) -> str:
    """The claim in words, with the paper's numbers."""

    def shown(values: list[float]) -> str:
        low, high = f"{min(values):.2f}", f"{max(values):.2f}"
        return low if low == high else f"{low} to {high}"

    numbers = {k: shown(printed_numbers(paper, what)) for k, what in claim.get("numbers", {}).items()}
    return claim["says"].format(**numbers)


def verdicts(paper: str, folder: Path = records.FOLDER) -> list[tuple[dict, Verdict]]:
    """A paper's claims, each with its verdict."""
    return [(claim, judge(paper, claim, folder)) for claim in schema.claims()[paper]]


def mark(paper: str, folder: Path = records.FOLDER) -> str:
    """What a title says of the paper's own claims, in the way of ReScience.

    ``[Re]`` if all of them hold, ``[¬Re]`` if all fail; “in part” if others are open, “mixed” if some hold and some
    fail. Claims that printed numbers alone decide and questions of our own do not count. Without a claim that
    has the seeds: where the others point.
    """
    own = [verdict for claim, verdict in verdicts(paper, folder) if not claim.get("ours")]
    own = [verdict for verdict in own if verdict.outcome not in (CONSISTENT, INCONSISTENT, VACUOUS)]
    known = [verdict for verdict in own if verdict.outcome != UNTESTED]
    firm = [verdict for verdict in known if not verdict.preliminary]
    counted, early = firm or known, "" if firm else ", preliminary"
    words = {verdict.outcome for verdict in counted}
    if not counted:
        return "[Re: open]"
    if words == {UNDECIDED}:
        return f"[Re: undecided{early}]"
    if len(counted) == len(own) and words in ({HOLDS}, {FAILS}):
        return f"[Re{early}]" if words == {HOLDS} else f"[¬Re{early}]"
    good, bad = words & {HOLDS, PARTLY}, words & {FAILS, PARTLY_FAILS}
    if MIXED in words or (good and bad):
        return f"[Re: mixed{early}]"
    return f"[Re in part{early}]" if good else f"[¬Re in part{early}]"


def kind(claim: dict, verdict: Verdict) -> str:
    """Which claims it is counted among: the papers', those of printed numbers alone, or our own questions."""
    if claim.get("ours"):
        return "of our own"
    inside = verdict.outcome in (CONSISTENT, INCONSISTENT)
    return "of their printed numbers alone" if inside else "of the papers"


def tally(folder: Path = records.FOLDER) -> dict[str, dict[str, int]]:
    """How many claims have which verdict, for each kind of claim: the papers', internal consistency, our own."""
    found: dict[str, dict[str, int]] = {"of the papers": {}, "of their printed numbers alone": {}, "of our own": {}}
    for paper in schema.CHAPTERS:
        for claim, verdict in verdicts(paper, folder):
            counts = found[kind(claim, verdict)]
            counts[verdict.word] = counts.get(verdict.word, 0) + 1
    return found
