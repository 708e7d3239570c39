"""Verdicts: whether a paper's claim holds, by rules written down before; the book's page "ledger" tells them.

A part of a claim compares measured numbers, paired over seeds. It **holds** when the 95% interval of the difference
lies on the claim's side of the boundary, margin included, **fails** when it lies on the other side, and is
**undecided** when it contains the boundary. With fewer than three seeds there is no interval worth the name: the
part is *preliminary*, and *seems* to hold or fail, by its mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cflkit.engine import metrics
from cflkit.workbook import measured, protocols, records, schema
from cflkit.workbook.measured import number
from cflkit.workbook.papers import printed_numbers

SEEDS = 3  # fewer decide nothing
HOLDS, FAILS, UNDECIDED, UNTESTED = "holds", "fails", "undecided", "not tested"
MIXED, PARTLY, PARTLY_FAILS = "mixed", "holds in part", "fails in part"
CONSISTENT, INCONSISTENT = "internally consistent", "internally inconsistent"
VACUOUS, MISSING, BLOCKED = "vacuous", "not yet measured", "blocked"
UNRUN = "none of the runs that it rests on has been made yet"
TRAFFIC = {"down", "up", "server_flops", "client_flops"}  # counted, whether or not anything is learnt
HALFWAY = 0.5  # of the way from chance to its printed number: what a baseline must have learnt
RATIO = 0.005  # a ratio is what the paper says to a hundredth
SLACK = 1e-9  # of floating-point sums at a boundary
SEEMS = {HOLDS: "seems to hold", FAILS: "seems to fail", MIXED: "seems mixed",
         PARTLY: "seems to hold in part", PARTLY_FAILS: "seems to fail in part"}  # what is said with fewer seeds


@dataclass(frozen=True)
class Part:
    """One test of a claim.

    Attributes
    ----------
    name : str
        What it tests.
    outcome : str
        "holds", "fails" or "undecided"; "vacuous", "blocked" or "not yet measured" if nothing was tested;
        "internally consistent" or "internally inconsistent" of printed numbers.
    value : str
        What was found, in words.
    seeds : int
        Over how many seeds.
    runs : tuple of dict
        The records behind it.
    """

    name: str
    outcome: str
    value: str
    seeds: int = 0
    runs: tuple[dict, ...] = ()

    @property
    def printed(self) -> bool:
        """Whether printed numbers alone decide it."""
        return self.outcome in (CONSISTENT, INCONSISTENT)

    @property
    def tested(self) -> bool:
        """Whether runs were compared."""
        return self.outcome in (HOLDS, FAILS, UNDECIDED)

    @property
    def preliminary(self) -> bool:
        """Whether there are too few seeds to decide it."""
        return self.tested and self.seeds < SEEDS


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes
    ----------
    outcome : str
        What all its parts together say; "holds" and "fails" only if every part was decided, and so.
    preliminary : bool
        Whether no part has the seeds to be decided: then the outcome is where they point to.
    note : str
        Which parts say what, what is missing, and what weakens it, in sentences.
    parts : list of Part
    caveats : str
        Of the note, what weakens it.
    newer : str
        The day of the rule, unless all the runs that it judges are of later days; then "".
    """

    outcome: str
    preliminary: bool
    note: str
    parts: list[Part]
    caveats: str = ""
    newer: str = ""

    @property
    def word(self) -> str:
        """The verdict in words."""
        return SEEMS[self.outcome] if self.preliminary else self.outcome

    def __str__(self) -> str:
        return f"{self.word}. {self.note}".strip()


# ---------------------------------------------------------------------- one part
def outcome(margins: Sequence[Sequence[float]], strict: bool = False, most: int = SEEDS) -> str:
    """What margins over seeds say: each is how far the claim's side lies beyond its boundary.

    Parameters
    ----------
    margins : sequence of sequence of float
        For each condition that the claim needs, a value a seed; all of them must hold.
    strict : bool
        Whether a margin of exactly nothing is too little.
    most : int
        As how many seeds they count at most: as many as the baseline has, on which they lean.

    Returns
    -------
    str
        By the 95% t interval over seeds; by the mean where fewer than three count.
    """
    least = SLACK if strict else -SLACK
    few = min(most, *map(len, margins)) < SEEDS
    gaps = [metrics.paired_difference(margin, [0.0] * len(margin)) for margin in margins]
    if all((gap["mean"] if few else gap["low"]) > least for gap in gaps):
        return HOLDS
    return FAILS if few or any(gap["high"] < -SLACK for gap in gaps) else UNDECIDED


def decide(name: str, part: dict, numbers: dict[str, list[float]], folder: Path = records.FOLDER) -> Part:
    """Decide one part of a claim; ``claims.yaml`` says what each kind of test means.

    Parameters
    ----------
    name : str
        Of the part.
    part : dict
        Its rule, as declared in :mod:`cflkit.workbook.schema`.
    numbers : dict
        The claim's printed numbers, by name.
    folder : Path
        Where the run records are.

    Raises
    ------
    ValueError
        For a test of an unknown kind, or a cell that no protocol has.
    """
    kind = schema.kind_of(part)
    if kind.startswith("printed"):
        return _of_print(name, kind, part, numbers)
    two = schema.RULES[kind].operands == 2
    names = [part[kind][0], *_listed(part[kind][1])] if two else [part[kind]]
    cells = [measured.cell(cell, folder) for cell in names]
    if not any(runs for _, runs in cells):
        return Part(name, MISSING, UNRUN)
    if why := next(filter(None, (_gate(cell, folder) for cell in names)), None):
        return Part(name, BLOCKED, why)
    (ours, runs), others = cells[0], cells[1:]
    pairs = [(sorted(set(ours) & set(theirs)), theirs) for theirs, _ in others] or [(sorted(ours), {})]
    if not all(seeds for seeds, _ in pairs):
        lacking = {cell.split("/")[1]: None for cell, (values, _) in zip(names, cells, strict=True) if not values}
        told = f"the runs of `{'`, `'.join(lacking)}` are missing" if lacking else "no seed has all of its runs"
        return Part(name, MISSING, told)
    series = [([ours[s] for s in seeds], [theirs[s] for s in seeds if theirs]) for seeds, theirs in pairs]
    margins, strict = _margins(kind, part, series, numbers)
    seeds = min([len(a) for a, _ in series] + [count for cell in names if (count := _leant_on(cell, folder))])
    used = {s for seeds_, _ in pairs for s in seeds_}
    kept = tuple(run for run in [*runs, *(run for _, more in others for run in more)] if run["seed"] in used)
    if kind == "near" and all(a == b for a, b in series) and _same(cells):
        return Part(name, VACUOUS, "the two runs are the same to the last digit", seeds, kept)
    word = outcome(margins, strict, seeds)
    if kind == "equals" and max(map(abs, margins[0])) > SLACK:  # in every seed: one other value refutes it
        word = FAILS
    rivals = [cell.partition("/")[2] for cell in names[1:]]
    end = "mean" if seeds < SEEDS else "high" if word == FAILS else "low"
    found = _told(kind, series, rivals, end, _asked(kind, part, numbers))
    return Part(name, word, found, seeds, kept)


def _listed(value) -> list:
    return value if isinstance(value, list) else [value]


def _same(cells: Sequence[tuple[dict, list[dict]]]) -> bool:
    """Whether two cells' runs scored alike in every round: then their methods did the same."""
    (_, a), (_, b) = cells
    ours, theirs = (
        {run["seed"]: [row.get("accuracy") for row in run["rounds"]] for run in runs} for runs in (a, b)
    )
    return all(ours[seed] == theirs[seed] for seed in set(ours) & set(theirs))


def _margins(kind: str, part: dict, series: list, numbers: dict) -> tuple[list[list[float]], bool]:
    """How far each series lies on the claim's side, and whether a tie is too little."""

    def around(values: list[float], centre: float, within: float) -> list[list[float]]:
        return [[within - (v - centre) for v in values], [within + (v - centre) for v in values]]

    gaps = [[a - b for a, b in zip(ours, theirs, strict=True)] for ours, theirs in series if theirs]
    (ours, theirs) = series[0]
    if kind == "more":
        return [[g - part.get("by", 0) for g in gap] for gap in gaps], not part.get("by", 0)
    if kind == "least":
        return [[g + part["within"] for g in gap] for gap in gaps], False
    if kind == "near":
        return around(gaps[0], 0, part["within"]), False
    if kind == "ratio":
        return around([a / b for a, b in zip(ours, theirs, strict=True)], part["to"], RATIO), False
    if kind == "equals":
        return around(ours, part["to"], 0), False
    if kind == "as_printed":
        return [m for n in numbers[part["number"]] for m in around(ours, n, part["within"])], False
    sign = {"above": 1, "below": -1}[kind]
    return [[sign * (v - part["than"]) for v in ours]], False


def _asked(kind: str, part: dict, numbers: dict) -> str:
    """The boundary that a rule draws, in words; "" if it is zero."""
    if kind == "more":
        return f"{part['by']:g} or more" if part.get("by") else ""
    if kind == "least":
        return f"{-part['within']:g} or more"
    if kind == "near":
        return f"at most {part['within']:g} apart"
    if kind == "as_printed":
        return f"at most {part['within']:g} from {' and '.join(f'{n:.2f}' for n in numbers[part['number']])}"
    if kind in ("above", "below"):
        return f"{part['than']:g} or {'more' if kind == 'above' else 'less'}"
    return f"{part['to']:g}{' in each seed' * (kind == 'equals')}"


def _told(kind: str, series: list, rivals: Sequence[str], end: str, asked: str) -> str:
    """What was found, in words, and what was asked; of several baselines the one whose `end` is least decides."""
    if kind == "ratio":
        ours, theirs = series[0]
        return f"{sum(ours) / sum(theirs):.3f} (asked: {asked})"
    found = [[a - b for a, b in zip(a_, b_, strict=True)] if b_ else a_ for a_, b_ in series]
    gaps = [metrics.paired_difference(values, [0.0] * len(values)) for values in found]
    at = min(range(len(found)), key=lambda i: gaps[i][end])
    sign = "+" if series[0][1] else ""
    brackets = [] if end == "mean" else [f"95%: {gaps[at]['low']:{sign}.2f} to {gaps[at]['high']:{sign}.2f}"]
    brackets += [f"asked: {asked}"] if asked else []
    text = number(found[at], sign=bool(sign)) + (f" ({'; '.join(brackets)})" if brackets else "")
    if len(found) == 1:
        return text
    fewest = min(map(len, found))
    of = f", of {len(found[at])} seeds; others have {fewest}" if len(found[at]) > fewest else ""
    return f"{text} against `{rivals[at]}`{of}"


def _of_print(name: str, kind: str, part: dict, numbers: dict) -> Part:
    """A part that the paper's own tables decide."""
    if kind == "printed_above":  # a printed number may be a little more than it says
        least = min(numbers[part[kind]])
        right, told = least + part.get("rounded", 0) > part["than"], f"least {least:.2f}"
    else:
        gaps = [a - b for a, b in zip(*(numbers[side] for side in part[kind]), strict=True)]
        ends = sorted({f"{min(gaps):+.2f}", f"{max(gaps):+.2f}"}, key=float)
        right = min(gaps) >= -part["within"] - SLACK if "within" in part else min(gaps) > 0
        told = " to ".join(ends)
    return Part(name, CONSISTENT if right else INCONSISTENT, told)


def _gate(name: str, folder: Path) -> str:
    """Say so if what a cell leans on is missing or has hardly learnt; counted traffic leans on nothing."""
    protocol, _, metric = (*name.split("/"), "accuracy")[:3]
    return "" if metric in TRAFFIC else too_early(protocol, folder)


def _leant_on(name: str, folder: Path) -> int:
    """Count the seeds of the baseline that a cell leans on; 0 if it leans on none."""
    protocol, _, metric = (*name.split("/"), "accuracy")[:3]
    gate = schema.gates().get(protocol, "")
    if metric in TRAFFIC or isinstance(gate, str):
        return 0
    return len(measured.cell(f"{protocol}/{gate['baseline']}", folder)[0])


def too_early(protocol: str, folder: Path = records.FOLDER) -> str:
    """Say so if a protocol leans on a baseline that is missing, or not half of the way to its printed number."""
    gate = schema.gates().get(protocol, "")
    if isinstance(gate, str):
        return ""
    values, runs = measured.cell(f"{protocol}/{gate['baseline']}", folder)
    label = gate["baseline"].split("/")[0]
    if any(map(measured.diverged, runs)):
        return f"the baseline `{label}` has diverged"
    if not values:
        return f"the baseline `{label}` has not run yet"
    paper = protocols.protocols()[protocol]["paper"]
    target = min(printed_numbers(paper, gate["printed"]))
    mean = metrics.spread(list(values.values()))["mean"]
    chance = 100 / gate["classes"]
    if mean >= chance + HALFWAY * (target - chance):
        return ""
    return f"the baseline `{label}` reached only {mean:.2f} (printed: {target:.2f})"


# ---------------------------------------------------------------------- a claim
def judge(paper: str, claim: dict, folder: Path = records.FOLDER) -> Verdict:
    """Decide a claim by its parts.

    Parts that lack seeds count only if no part has enough. Parts that printed numbers decide count only in a claim
    that has no others.

    Parameters
    ----------
    paper : str
        Whose claim.
    claim : dict
        An item of ``claims.yaml``.
    folder : Path
        Where the run records are.
    """
    numbers = {k: printed_numbers(paper, what) for k, what in claim.get("numbers", {}).items()}
    parts = [decide(name, part, numbers, folder) for name, part in claim.get("parts", {}).items()]
    runs = [part for part in parts if not part.printed]
    tested = [part for part in runs if part.tested]
    firm = [part for part in tested if not part.preliminary]
    counted = firm or tested
    if parts and not runs:
        right = all(part.outcome == CONSISTENT for part in parts)
        why = ["by the printed numbers alone", claim.get("untested")]
        return Verdict(CONSISTENT if right else INCONSISTENT, False, _sentences([*filter(None, why)]), parts)
    notes = _notes(parts, counted)
    if not counted:
        vacuous = bool(runs) and all(part.outcome == VACUOUS for part in runs)
        word, why = (VACUOUS, runs[0].value) if vacuous else (UNTESTED, claim.get("untested", MISSING))
        return Verdict(word, False, _sentences(notes if runs and not vacuous else [why]), parts)
    weak = _sentences(_weak(counted))
    note = f"{_sentences(notes)} {weak}".strip()
    return Verdict(_together(counted, len(runs)), not firm, note, parts, weak, _newer(claim, counted))


def _sentences(notes: list[str]) -> str:
    return " ".join(f"{note[0].upper()}{note[1:]}." for note in notes)


def _together(counted: list[Part], of: int) -> str:
    """The word for several parts: of some that hold and some that fail *mixed*; of some that are open *in part*."""
    words = {part.outcome for part in counted}
    whole = len(words) == 1 and len(counted) == of
    if words == {UNDECIDED}:
        return UNDECIDED
    if {HOLDS, FAILS} <= words:
        return MIXED
    if HOLDS in words:
        return HOLDS if whole else PARTLY
    return FAILS if whole else PARTLY_FAILS


def _notes(parts: list[Part], counted: list[Part]) -> list[str]:
    """Which parts say what, where not all of them say the same."""
    said: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        word, why, name = part.outcome, "", part.name
        if part.preliminary:
            word = SEEMS.get(word, word)
        elif part.printed:
            word, name = f"in print, {word}", name.removeprefix("printed").removeprefix(", ")
        elif part.outcome == BLOCKED:
            word, why = "not judged", f", as {part.value}"
        elif part.outcome == MISSING and part.value != UNRUN:
            why = f", as {part.value}"
        said.setdefault((word, why), []).append(name)
    if len(said) == 1:
        same = {part.value for part in parts} == {UNRUN}
        return [] if counted else [UNRUN if same else "".join(next(iter(said)))]
    return [f"{word}{_listing(names)}{why}" for (word, why), names in said.items()]


def _listing(names: Sequence[str]) -> str:
    """List parts after a verb: those whose names begin alike once, with the rest of their names in brackets."""
    rests: dict[str, list[str]] = {}
    for name in filter(None, names):
        head, _, rest = name.partition(", ")
        rests.setdefault(head, []).append(rest)
    heads = [f"{head} ({'; '.join(filter(None, more))})" if any(more) else head for head, more in rests.items()]
    verb = " " if next(iter(rests), "").startswith(("from ", "against ")) else " for "
    return verb * bool(heads) + " and ".join(filter(None, [", ".join(heads[:-1]), *heads[-1:]]))


def _weak(counted: list[Part]) -> list[str]:
    """What weakens a verdict: few seeds, a run that has diverged, an extended table, a sample, a caution."""
    runs = [run for part in counted for run in part.runs]
    fewest, most = min(part.seeds for part in counted), max(part.seeds for part in counted)
    seeds = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    wanted = [n for run in runs if (n := schema.planned(run["protocol"], run["label"]))]
    early = f" of {max(wanted)} planned" if wanted and SEEDS <= most < max(wanted) else ""
    notes = [f"{seeds}{early} seed{'s' * (most > 1)}"]
    gone = sorted({f"{run['label']}, seed {run['seed']}" for run in runs if measured.diverged(run)})
    if gone:
        notes.append(f"a run has diverged: {'; '.join(gone)}")
    names = {run["protocol"] for run in runs}
    for table in schema.tables().values():
        if table["protocol"] in names and "extended" in table and most > table["seeds"]:
            notes.append(f"extended once, from {table['seeds']} seeds to {table['extended']}")
    for said in ("sample", "caution"):
        notes += sorted({protocols.protocols()[name].get(said) or "" for name in names} - {""})
    return list(dict.fromkeys(notes))


def _newer(claim: dict, counted: list[Part]) -> str:
    """Give the day of a claim's rule, if a run that it judges may be older (days have no hours), else nothing."""
    since = max(filter(None, (claim.get("since"), schema.rules_since()))).isoformat()
    return since if any(run["provenance"]["date"] <= since for part in counted for run in part.runs) else ""


def agreement(values: Sequence[float], printed: float, within: float) -> str:
    """Whether measured numbers agree with a printed one: their interval lies within the tolerance, or outside."""
    found = outcome([[within - (v - printed) for v in values], [within + (v - printed) for v in values]])
    word = {HOLDS: "agrees", FAILS: "differs", UNDECIDED: UNDECIDED}[found]
    return word if len(values) >= SEEDS else {"agrees": "seems to agree", "differs": "seems to differ"}[word]
