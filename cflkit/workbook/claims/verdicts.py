"""One rule: what runs say of a comparison, and comparisons of a claim; the page "ledger" tells the rule to readers.

A *finding* compares a with b at a boundary. It is **held** if the 95% interval of a - b lies on the claim's side,
**failed** if it lies beyond the boundary on the other side, and **open** otherwise, with a reason.

* Variances are pooled over the table that has both cells; a cell that varies far more than its table keeps its own.
  Where seeds move all methods of a table alike, they are taken out, and a - b is paired.
* Of several rivals all must be beaten, and one wins; either by Holm's correction. One that diverged is beaten.
* Counts of clusters and indices are told as "k of n seeds", and decided by the sign test, so from six seeds on.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf, isfinite, nan
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from cflkit.checks import require
from cflkit.workbook import places
from cflkit.workbook.claims import measured, papers, schema
from cflkit.workbook.claims.schema import split
from cflkit.workbook.runs import records, results

HELD, FAILED, OPEN = WORDS = "held", "failed", "open"
SEEDS = 3  # fewer decide nothing
ALPHA = 0.05
APART = 0.01  # level at which a cell varies more than its table
MISS, DEVIATIONS = 3.0, 2.0  # a baseline this far from print [points, printed deviations] misses it
RISING = 1.0  # points gained in the last third of the rounds: a curve that still rises
RATIO = 0.005  # a ratio is what the paper says to a hundredth
MOST = 100  # seeds, more than which nobody would run
COUNTED = {"ari", "nmi", "clusters", "main_clusters", "settled", "largest_share"}
UNRUN = "not run"


@dataclass(frozen=True)
class Gap:
    """An estimate: `n` seeds, its `mean`, standard error and degrees of freedom."""

    n: int
    mean: float
    error: float
    df: float

    def ends(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Ends of the interval that misses with chance `alpha`; without an error, no interval."""
        half = float(stats.t.ppf(1 - alpha / 2, self.df)) * self.error if self.df > 0 else inf
        return self.mean - half, self.mean + half

    def above(self, boundary: float, sign: int = 1) -> float:
        """One-sided p-value of lying above a boundary, or below it if `sign` is -1."""
        if not isfinite(boundary):
            return 0.0 if sign * boundary < 0 else 1.0
        decides = self.n >= SEEDS and self.error > 0 and self.df > 0
        return float(stats.t.sf(sign * (self.mean - boundary) / self.error, self.df)) if decides else 1.0


@dataclass(frozen=True)
class Finding:
    """What runs say of a comparison.

    Attributes
    ----------
    what, a, b : str
        Its name, the cell, and the cell (of several, the one that decides) that it is compared with; "" if none.
    boundary : float
        Of a - b, or of a.
    n : int
        Seeds.
    mean, low, high : float or None
        The estimate and its interval; counts have none.
    word, reason : str
        "held", "failed" or "open", and why, if that is not the interval.
    runs : tuple of dict
        The records behind it.
    """

    what: str
    a: str = ""
    b: str = ""
    boundary: float = 0.0
    n: int = 0
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    word: str = OPEN
    reason: str = ""
    runs: tuple[dict, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What became of a claim: its word, the finding that decides, the reason, and all findings."""

    word: str
    decides: Finding
    reason: str
    findings: tuple[Finding, ...]


# ---------------------------------------------------------------------- estimates
def _steady(name: str, folder: Path) -> pd.Series:
    """A cell's values by seed, without the runs that diverged."""
    values, runs = measured.cell(name, folder)
    gone = {run["seed"] for run in runs if results.diverged(run)}
    return pd.Series({seed: value for seed, value in values.items() if seed not in gone}, dtype=float)


def _pool(name: str, other: str, folder: Path) -> tuple[float, int, float, int]:
    """Variance and degrees of freedom of the table that has both cells: plain, and without seeds (0: not so).

    Without a table that has both, all of their protocol count.
    """
    protocol, _, metric = split(name)
    tables = _cells(places.PAPERS).get((protocol, results.base(metric)), [])
    wanted = {"/".join(split(n)) for n in (name, other or name)}
    every = tuple(dict.fromkeys(cell for cells in tables for cell in cells))
    table = next((cells for cells in tables if wanted <= set(cells)), every)
    return _pooled(table, folder, results.stamps(protocol, folder))


@cache
def _cells(papers_folder: Path) -> dict[tuple[str, str], list[tuple[str, ...]]]:
    """The cells of all tables, by protocol and metric."""
    found: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for table in schema.tables().values():
        protocol, metric = table["protocol"], table["metric"]
        cells = (f"{protocol}/{row['label']}/{measured.metric_of(table, row)}" for row in table["rows"].values())
        found.setdefault((protocol, metric), []).append(tuple(dict.fromkeys(cells)))
    return found


@cache
def _pooled(table: Sequence[str], folder: Path, stamps: tuple) -> tuple[float, int, float, int]:
    cells = [cell for name in table if len(cell := _steady(name, folder)) > 1 and cell.var() > 0]
    cells.sort(key=pd.Series.var)
    while len(cells) > 2:  # the most variable cell leaves while it stands out
        rest = _together(cells[:-1])
        if stats.f.sf(cells[-1].var() / rest[0], len(cells[-1]) - 1, rest[1]) >= APART:
            break
        cells.pop()
    if not cells:
        return 0.0, 0, 0.0, 0
    grid = pd.DataFrame(dict(enumerate(cells))).dropna().to_numpy()  # seeds x cells, of the seeds that all have
    n, m = grid.shape
    if min(n, m) > 1:
        rest = grid - grid.mean(0) - grid.mean(1, keepdims=True) + grid.mean()
        left, free = float((rest**2).sum()) / ((n - 1) * (m - 1)), (n - 1) * (m - 1)
        between = m * float(grid.mean(1).var(ddof=1))
        if left > 0 and stats.f.sf(between / left, n - 1, free) < ALPHA:
            return (*_together(cells), left, free)
    return (*_together(cells), 0.0, 0)


def _together(cells: Sequence[pd.Series]) -> tuple[float, int]:
    """Pooled variance, and its degrees of freedom."""
    df = sum(len(cell) - 1 for cell in cells)
    return sum(cell.var() * (len(cell) - 1) for cell in cells) / df, df


def _variance(side: pd.Series, pool: tuple[float, int, float, int]) -> tuple[float, int, bool]:
    """Variance of a cell, its degrees of freedom, and whether they are its table's."""
    own, df = (float(side.var()), len(side) - 1) if len(side) > 1 else (0.0, 0)
    if pool[1] and (df == 0 or stats.f.sf(own / pool[0], df, pool[1]) >= APART):
        return pool[0], pool[1], True
    return own, df, False


def compare(a: str, b: str = "", folder: Path = records.FOLDER) -> Gap:
    """Estimate a - b, or a; both are cells, ``protocol/label/metric``.

    Raises
    ------
    ValueError
        For a cell that no protocol has.
    """
    sides = [_steady(name, folder) for name in (a, b) if name]
    if not all(map(len, sides)):
        return Gap(0, nan, 0.0, 0)
    same = not b or split(a)[0] == split(b)[0]
    pools = [_pool(a, b if same else "", folder), _pool(b or a, a if same else "", folder)]
    own = [_variance(side, pool) for side, pool in zip(sides, pools, strict=False)]
    usual = same and all(kind for *_, kind in own)
    gaps = (sides[0] - sides[1]).dropna() if b else ()
    if usual and len(gaps) > 1 and pools[0][3]:
        return Gap(len(gaps), float(gaps.mean()), float(np.sqrt(2 * pools[0][2] / len(gaps))), pools[0][3])
    shares = [variance / len(side) for (variance, *_), side in zip(own, sides, strict=True)]
    total, dfs = sum(shares), [df for _, df, _ in own]
    if usual and b:
        df = float(dfs[0])
    else:  # Welch and Satterthwaite
        df = total**2 / sum(s**2 / d for s, d in zip(shares, dfs, strict=True) if d) if total and min(dfs) else 0.0
    mean = float(sides[0].mean() - (sides[1].mean() if b else 0))
    return Gap(min(map(len, sides)), mean, float(np.sqrt(total)), df)


# ---------------------------------------------------------------------- whether a set-up is the paper's
def set_up(protocol: str, folder: Path = records.FOLDER, cells: Sequence[str] = ()) -> str:
    """Say why a protocol's runs are not the paper's set-up; "" if they may be judged.

    A baseline that misses print does so only while its curve, or that of a cell that is judged, still rises.
    """
    gate = schema.gates().get(protocol, "")
    if isinstance(gate, str):
        return ""
    if "unlike" in gate:
        return f"the set-up is not the paper's: {gate['unlike']}"
    name, label = f"{protocol}/{gate['baseline']}", gate["baseline"].split("/")[0]
    values, runs = measured.cell(name, folder)
    if not values:
        return f"the baseline `{label}` has not run"
    if any(map(results.diverged, runs)):
        return f"set-up not reproduced: the baseline `{label}` has diverged"
    found = papers.found(paper=schema.protocols()[protocol]["paper"], **gate["printed"])
    entry = min(found, key=lambda e: e["value"])
    mean = sum(values.values()) / len(values)
    if abs(mean - entry["value"]) <= max(MISS, DEVIATIONS * (entry["std"] or 0)):
        return ""
    rising = [one for one in [name, *cells] if split(one)[0] == protocol and rise(one, folder) > RISING]
    if not rising:
        return ""
    curve = "its curve" if rising[0] == name else f"`{split(rising[0])[1]}`"
    return (f"set-up not reproduced: the baseline `{label}` has {mean:.2f} where {entry['value']:.2f} is printed, "
            f"and {curve} still rises")  # fmt: skip


def rise(name: str, folder: Path = records.FOLDER) -> float:
    """What a cell's mean gained from the last score within two thirds of the rounds to the end [points]."""
    metric, gains = split(name)[2], []
    for run in measured.cell(name, folder)[1]:
        known = [(row["round"], row[metric]) for row in run["rounds"] if isinstance(row.get(metric), float)]
        early = [score for at, score in known if 3 * at <= 2 * run["config"]["rounds"]]
        gains += [100 * (known[-1][1] - early[-1])] if early else []
    return sum(gains) / len(gains) if gains else 0.0


def switched_off(name: str, folder: Path = records.FOLDER) -> str:
    """Say so if what a method's claims rest on did not happen in its runs, such as more than one domain."""
    protocol, label, _ = split(name)
    gate = schema.gates().get(protocol, "")
    rule = {} if isinstance(gate, str) else gate.get("mechanism", {})
    if not rule or not label.startswith(rule["label"]):
        return ""
    values = list(measured.cell(f"{protocol}/{label}/{rule['metric']}", folder)[0].values())
    mean = sum(values) / len(values) if values else nan
    off = mean >= rule["below"] if "below" in rule else mean < rule["least"]
    return f"the mechanism is off: {rule['why']}" if off else ""


def too_early(protocol: str, folder: Path = records.FOLDER) -> str:
    """Say so if the baseline of a protocol that has run misses its print; "" otherwise."""
    gate = schema.gates().get(protocol, "")
    ran = not isinstance(gate, str) and bool(measured.cell(f"{protocol}/{gate['baseline']}", folder)[0])
    return set_up(protocol, folder) if ran else ""


# ---------------------------------------------------------------------- comparisons
def asked(part: dict, numbers: dict) -> tuple[str, list[str], float, float]:
    """A comparison: the cell a, its rivals b, and between which two numbers the claim wants a - b, or a."""
    kind = schema.kind_of(part)
    ours, theirs = part[kind]
    rivals = theirs if isinstance(theirs, list) else [theirs] if "/" in str(theirs) else []
    centre = 0.0 if rivals else float(numbers.get(theirs, [theirs])[0])
    within = part.get("within", 0)
    low, high = {
        "more": (centre + part.get("by", 0), inf),
        "less": (-inf, centre),
        "near": (centre - within, centre + within),
    }[kind]
    return ours, rivals, low, high


def decide(parts: dict[str, dict], numbers: dict[str, list[float]], folder: Path = records.FOLDER,
           lead: str | None = None, ours: bool = False) -> list[Finding]:  # fmt: skip
    """Decide the comparisons of a claim, with Holm's correction over all of them and all of their rivals.

    Parameters
    ----------
    parts : dict
        Comparisons by name, as ``claims.yaml`` has them.
    numbers : dict
        The claim's printed numbers, by name.
    folder : Path
        Where the run records are.
    lead : str, optional
        Which of `numbers` is the printed lead; a part may name its own.
    ours : bool
        Whether we ask it ourselves: then the set-up need not be the paper's.
    """
    found: dict[str, Finding] = {}
    tests: list[tuple[str, str, Gap, float, float]] = []
    for what, part in parts.items():
        mine, rivals, low, high = asked(part, numbers)
        runs = tuple(run for name in [mine, *rivals] for run in measured.cell(name, folder)[1])
        blank = Finding(what, mine, boundary=low if isfinite(low) else high, runs=runs)
        why = _unready([mine, *rivals], folder, ours)
        gone = [name for name in rivals if any(map(results.diverged, measured.cell(name, folder)[1]))]
        beaten = f"`{'`, `'.join(split(name)[1] for name in gone)}` diverged, so beaten" if gone else ""
        left = [name for name in rivals if name not in gone]
        gaps = {name: compare(mine, name, folder) for name in left or [""]}
        if why or (beaten and not left):
            found[what] = replace(blank, word=OPEN if why else HELD, reason=why or beaten, **_shown(mine, gaps))
        elif split(mine)[2] in COUNTED:
            found[what] = _counted(blank, left, low, high, folder)
        else:
            found[what] = replace(blank, reason=beaten)
            tests += [(what, name, gap, low, high) for name, gap in gaps.items()]
    good = _holm([max(gap.above(low), gap.above(high, -1)) for *_, gap, low, high in tests])
    bad = _holm([min(gap.above(low, -1), gap.above(high)) for *_, gap, low, high in tests])
    for what in dict.fromkeys(test[0] for test in tests):
        mine = [(test, g, b) for test, g, b in zip(tests, good, bad, strict=True) if test[0] == what]
        found[what] = _decided(found[what], mine, numbers.get(parts[what].get("lead", lead) or "", []))
    return list(found.values())


def _unready(names: Sequence[str], folder: Path, own: bool) -> str:
    """Why a comparison of cells, the claim's own first, cannot be judged; "" if it can."""
    cells = {name: measured.cell(name, folder) for name in names}
    lacking = dict.fromkeys(split(name)[1] for name, (values, _) in cells.items() if not values)
    if lacking:
        return f"{UNRUN}: `{'`, `'.join(lacking)}`" if len(lacking) < len(cells) else UNRUN
    if any(map(results.diverged, cells[names[0]][1])):
        return f"`{split(names[0])[1]}` diverged"
    if own:
        return ""
    why = [*(set_up(split(n)[0], folder, names) for n in names), *(switched_off(n, folder) for n in names)]
    return next(filter(None, why), "")


def _shown(ours: str, gaps: dict[str, Gap]) -> dict:
    """The estimate against the closest rival, which is shown although it decides nothing."""
    found = {name: gap for name, gap in gaps.items() if gap.n}
    if not found:
        return {}
    name, gap = min(found.items(), key=lambda one: one[1].mean)
    low, high = gap.ends()
    ends = {"low": low, "high": high} if isfinite(low) and split(ours)[2] not in COUNTED else {}
    return {"b": name, "n": gap.n, "mean": gap.mean, **ends}


def _counted(blank: Finding, rivals: Sequence[str], low: float, high: float, folder: Path) -> Finding:
    """Decide a count or an index by the number of seeds in which it is as claimed; the worst rival decides."""
    ours = measured.cell(blank.a, folder)[0]
    told = []
    for name in rivals or [""]:
        theirs = measured.cell(name, folder)[0] if name else dict.fromkeys(ours, 0.0)
        gaps = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
        good = sum(low < gap < high or (low == high == gap) or (gap == low and not name) for gap in gaps)
        told.append((name, good, len(gaps), sum(gaps) / max(len(gaps), 1)))
    name, k, n, mean = min(told, key=lambda one: one[1] / max(one[2], 1))
    sure = n > 0 and stats.binomtest(k, n).pvalue < ALPHA
    word = (HELD if 2 * k > n else FAILED) if sure else OPEN
    rest = ", and six alike would decide" if n < 6 else ", which may be chance"
    return replace(blank, b=name, n=n, mean=mean, word=word, reason=f"{k} of {n} seeds" + ("" if sure else rest))


def _holm(chances: Sequence[float]) -> list[tuple[bool, float]]:
    """For each p-value whether it is rejected, and the level at which its interval shows that."""
    order = sorted(range(len(chances)), key=chances.__getitem__)
    found, going, level = [(False, ALPHA)] * len(chances), True, ALPHA
    for step, at in enumerate(order):
        if going:
            level = ALPHA / (len(chances) - step)
            going = 2 * chances[at] < level
        found[at] = going, level
    return found


def _decided(finding: Finding, mine: Sequence[tuple], printed: Sequence[float]) -> Finding:
    """Tell a comparison by the rival that decides it: one that wins, else one that is open, else the closest."""
    words = [HELD if held else FAILED if failed else OPEN for _, (held, _), (failed, _) in mine]
    word = next((word for word in (FAILED, OPEN) if word in words), HELD)
    alike = [one for one, its in zip(mine, words, strict=True) if its == word]
    (_, name, gap, *ends), (_, up), (_, down) = min(alike, key=lambda one: one[0][2].mean)
    level = {HELD: up, FAILED: down, OPEN: min(up, down)}[word]
    low, high = gap.ends(level)
    reason = [finding.reason] if finding.reason else []
    if word == OPEN:
        reason += _why_open(gap, ends, level, printed)
    shown = {"low": low, "high": high} if isfinite(low) else {}
    return replace(finding, b=name, n=gap.n, mean=gap.mean, word=word, reason="; ".join(reason), **shown)


def _why_open(gap: Gap, ends: Sequence[float], level: float, printed: Sequence[float]) -> Iterator[str]:
    """Say what an open interval excludes all the same, and how many seeds would settle it."""
    if gap.n < SEEDS:
        yield f"{gap.n} seed{'s' * (gap.n != 1)}, and {SEEDS} are the least that decide"
        return
    yield "the seeds do not tell"
    low, high = gap.ends(level)
    if printed and not low <= min(printed) <= high:
        yield f"the interval excludes the printed {min(printed):+.2f}"
    margin = min(abs(gap.mean - end) for end in ends if isfinite(end))
    needed = (stats.t.ppf(1 - level / 2, max(gap.df, 1)) * gap.error) ** 2 * gap.n / margin**2 if margin else inf
    needed = max(needed, gap.n + 1)
    yield f"about {np.ceil(needed):.0f} seeds would" if needed <= MOST else f"more than {MOST} would be needed"


# ---------------------------------------------------------------------- claims
def judge(paper: str, claim: dict, folder: Path = records.FOLDER) -> Verdict:
    """Decide a claim by its comparisons; ``of`` says how many of them it needs: all, most or some.

    Parameters
    ----------
    paper : str
        Whose claim.
    claim : dict
        An item of ``claims.yaml``.
    folder : Path
        Where the run records are.
    """
    numbers = {k: papers.printed_numbers(paper, what) for k, what in claim.get("numbers", {}).items()}
    parts = claim.get("parts", {})
    if claim.get("kind") in ("print", "arithmetic"):
        return _apart(claim["kind"], parts, numbers, folder)
    if not parts:
        return Verdict(OPEN, Finding(claim["id"], reason=claim["untested"]), claim["untested"], ())
    found = decide(parts, numbers, folder, claim.get("lead"), claim.get("kind") == "ours")
    count = Counter(one.word for one in found)
    word = _word(claim.get("of", "all"), count)
    same = [one for one in found if one.word == word] or found
    shown = [one for one in same if one.mean is not None] or same
    decides = shown[0] if word == OPEN else min(shown, key=lambda one: (one.mean or 0) - one.boundary)
    told = ", ".join(f"{count[w]} {w}" for w in WORDS if count[w]) + f" of {len(found)}" if len(found) > 1 else ""
    reason = next((one.reason for one in same if one.reason), "")
    return Verdict(word, decides, "; ".join(filter(None, [told, reason])), tuple(found))


def _word(of: str, count: Counter) -> str:
    """The word for several comparisons."""
    n, held, failed = count.total(), count[HELD], count[FAILED]
    good = {"all": held == n, "most": 2 * held > n, "some": held > 0}[of]
    bad = {"all": failed > 0, "most": 2 * failed >= n, "some": failed == n}[of]
    return HELD if good else FAILED if bad else OPEN


def _apart(kind: str, parts: dict, numbers: dict, folder: Path) -> Verdict:
    """A claim that printed numbers, or counting, decides: it says in how many of its comparisons it is right."""
    found = []
    for what, part in parts.items():
        rule = schema.kind_of(part)
        ours, theirs = part[rule]
        if rule == "ratio":
            sides = pd.DataFrame([measured.cell(name, folder)[0] for name in (ours, theirs)]).T.dropna()
            value = sides[0].sum() / sides[1].sum() if len(sides) else nan
            right = abs(value - part["to"]) <= RATIO
        elif rule == "less":
            value = pd.Series(measured.cell(ours, folder)[0], dtype=float).mean()
            right = value <= theirs
        elif theirs in numbers:
            value = min(a - b for a, b in zip(numbers[ours], numbers[theirs], strict=True))
            right = value > -part.get("within", 0)
        else:
            value = min(numbers[ours])
            right = value > theirs
        found.append(Finding(what, mean=float(value), word="so" if right else "not so"))
    good = sum(one.word == "so" for one in found)
    worst = min(found, key=lambda one: one.word == "so")
    return Verdict(f"{good} of {len(found)}", worst, f"by {kind}", tuple(found))


def verdicts(paper: str, folder: Path = records.FOLDER) -> list[tuple[dict, Verdict]]:
    """A paper's claims, each with its verdict; judged once, until a record changes."""
    with results.unchanged():
        named = {cell.split("/")[0] for claim in schema.claims()[paper] for cell in schema.cells(claim)}
        stamps = tuple(results.stamps(protocol, folder) for protocol in sorted(named))
        return _verdicts(paper, folder, places.PAPERS, stamps)


@cache
def _verdicts(paper: str, folder: Path, papers_folder: Path, stamps: tuple) -> list[tuple[dict, Verdict]]:
    return [(claim, judge(paper, claim, folder)) for claim in schema.claims()[paper]]


def verdict(name: str, folder: Path = records.FOLDER) -> str:
    """The word of the claim with this id.

    Raises
    ------
    ValueError
        If there is none.
    """
    every = {claim["id"]: paper for paper, claims in schema.claims().items() for claim in claims}
    require(name in every, "claim", name, "the id of one in claims.yaml")
    return next(got.word for claim, got in verdicts(every[name], folder) if claim["id"] == name)


def tally(folder: Path = records.FOLDER) -> dict[str, dict[str, int]]:
    """How many of each paper's claims have which word, without those that print, counting or we ourselves ask."""
    words = {paper: Counter(got.word for claim, got in verdicts(paper, folder) if counts(claim))
             for paper in schema.claims()}  # fmt: skip
    return {paper: {word: count[word] for word in WORDS} for paper, count in words.items()}


def counts(claim: dict) -> bool:
    """Whether a claim is the paper's, and decided by runs."""
    return "kind" not in claim


def agreement(values: Sequence[float], printed: float, within: float) -> str:
    """Whether measured numbers agree with a printed one: their interval lies within the tolerance, or outside."""
    gaps, n = np.array(values) - printed, len(values)
    if n < SEEDS:
        return "seems to agree" if abs(gaps.mean()) <= within else "seems to differ"
    low, high = Gap(n, gaps.mean(), gaps.std(ddof=1) / np.sqrt(n), n - 1).ends()
    if -within <= low and high <= within:
        return "agrees"
    return "differs" if low > within or high < -within else "undecided"
