"""One rule: what runs say of a comparison, and comparisons of a claim; the page "ledger" tells the rule to readers.

A *finding* compares a with b at a boundary. It is **held** if the 95% interval of a - b lies on the claim's side,
**failed** if it lies beyond the boundary on the other side, and **open** otherwise, with a reason.

* Variances are pooled over the table that has both cells; a cell that varies far more than its table keeps its own.
  Where seeds move all methods of a table alike, they are taken out, and a - b is paired.
* Of several rivals all must be beaten, and one wins; either by Holm's correction. One that diverged is beaten.
* Counts of clusters and indices are told as "k of n seeds", and decided by the sign test, so from six seeds on.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from math import ceil, inf, isfinite, nan, sqrt
from pathlib import Path
from statistics import fmean

import numpy as np
from scipy import special  # scipy.stats has the same functions, and takes a second to import

from cflkit.checks import known
from cflkit.workbook import places, strict
from cflkit.workbook.claims import papers, schema
from cflkit.workbook.claims.measured import cell, metric_of
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


@dataclass(frozen=True)
class Gap:
    """An estimate: `n` seeds, its `mean`, standard error and degrees of freedom."""

    n: int
    mean: float
    error: float
    df: float

    def ends(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Ends of the interval that misses with chance `alpha`; without an error, no interval."""
        half = float(special.stdtrit(self.df, 1 - alpha / 2)) * self.error if self.df > 0 else inf
        return self.mean - half, self.mean + half

    def above(self, boundary: float, sign: int = 1) -> float:
        """One-sided p-value of lying above a boundary, or below it if `sign` is -1."""
        if not isfinite(boundary):
            return 0.0 if sign * boundary < 0 else 1.0
        decides = self.n >= SEEDS and self.error > 0 and self.df > 0
        return float(special.stdtr(self.df, sign * (boundary - self.mean) / self.error)) if decides else 1.0


@dataclass(frozen=True)
class Finding:
    """What runs say of a comparison; counts have no interval."""

    what: str  # its name
    a: str = ""  # the cell that it is about
    b: str = ""  # the cell (of several, the one that decides) that it is compared with; "" if none
    boundary: float = 0.0  # of a - b, or of a
    n: int = 0  # seeds
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    word: str = OPEN  # "held", "failed" or "open"
    reason: str = ""  # for the word, if that is not the interval
    runs: tuple[dict, ...] = ()  # the records behind it


@dataclass(frozen=True)
class Verdict:
    """What became of a claim: its word, the finding that decides, the reason, and all findings."""

    word: str
    decides: Finding
    reason: str
    findings: tuple[Finding, ...]


# ---------------------------------------------------------------------- estimates
@dataclass(frozen=True)
class _Pool:
    """Variance of a table's cells and its degrees of freedom; and without what seeds share (0: not so)."""

    variance: float = 0.0
    df: int = 0
    left: float = 0.0
    free: int = 0

    def of(self, cell: Mapping) -> tuple[float, int, bool]:
        """Variance of a cell, its degrees of freedom, and whether they are its table's."""
        usual = self.df > 0 and not (len(cell) > 1 and _stands_out(cell, self.variance, self.df))
        return (self.variance, self.df, True) if usual else (*_variance(cell), False)


def _pool(folder: Path, *names: str) -> _Pool:
    """That of the first table that has these cells; without one, all tables of their protocol and metric count."""
    protocol, _, metric = split(names[0])
    tables = [[f"{protocol}/{row['label']}/{metric_of(table, row)}" for row in table["rows"].values()]
              for table in schema.tables().values()
              if (table["protocol"], table["metric"]) == (protocol, results.base(metric))]  # fmt: skip
    wanted = {"/".join(split(name)) for name in names}
    table = next((cells for cells in tables if wanted <= set(cells)), chain(*tables))
    return _pooled(tuple(dict.fromkeys(table)), folder, results.stamp(protocol, folder))


@cache
def _pooled(table: Sequence[str], folder: Path, stamp: int) -> _Pool:
    every = [cell(name, folder).steady for name in table]
    cells = sorted((one for one in every if _variance(one)[0] > 0), key=_variance)
    while len(cells) > 2 and _stands_out(cells[-1], *_variance(*cells[:-1])):
        cells.pop()
    shared = sorted(set.intersection(*map(set, cells))) if cells else []
    grid = np.array([[one[seed] for one in cells] for seed in shared])  # seeds x cells
    if min(len(shared), len(cells)) > 1:
        rest = grid - grid.mean(0) - grid.mean(1, keepdims=True) + grid.mean()
        seeds, free = len(shared) - 1, (len(shared) - 1) * (len(cells) - 1)
        left, between = float((rest**2).sum()) / free, len(cells) * float(grid.mean(1).var(ddof=1))
        if left > 0 and special.fdtrc(seeds, free, between / left) < ALPHA:
            return _Pool(*_variance(*cells), left, free)
    return _Pool(*_variance(*cells))


def _variance(*cells: Mapping) -> tuple[float, int]:
    """Pooled variance of cells over their seeds, and its degrees of freedom; without any, 0."""
    df = sum(len(one) - 1 for one in cells)
    squares = sum(float(np.var([*one.values()])) * len(one) for one in cells if len(one) > 1)
    return squares / max(df, 1), df


def _stands_out(cell: Mapping, variance: float, df: int) -> bool:
    own, own_df = _variance(cell)
    return special.fdtrc(own_df, df, own / variance) < APART


def compare(a: str, b: str = "", folder: Path = records.FOLDER) -> Gap:
    """Estimate a - b, or a; both are cells, ``protocol/label/metric``. One that does not exist is refused."""
    names = [name for name in (a, b) if name]
    sides = [cell(name, folder).steady for name in names]
    if not all(sides):
        return Gap(0, nan, 0.0, 0)
    same = len({split(name)[0] for name in names}) == 1
    pools = [_pool(folder, *(names if same else [name])) for name in names]
    own = [pool.of(side) for pool, side in zip(pools, sides, strict=True)]
    usual = same and all(kind for *_, kind in own)
    gaps = [value - sides[1][seed] for seed, value in sides[0].items() if seed in sides[1]] if b else []
    if usual and len(gaps) > 1 and pools[0].free:
        return Gap(len(gaps), fmean(gaps), sqrt(2 * pools[0].left / len(gaps)), pools[0].free)
    shares = [(variance / len(side), df) for (variance, df, _), side in zip(own, sides, strict=True)]
    total, df = sum(share for share, _ in shares), float(own[0][1])
    if not usual:  # Welch and Satterthwaite
        df = total**2 / sum(s**2 / d for s, d in shares) if total and all(d for _, d in shares) else 0.0
    means = [fmean(side.values()) for side in sides]
    return Gap(min(map(len, sides)), means[0] - sum(means[1:]), sqrt(total), df)


# ---------------------------------------------------------------------- whether a set-up is the paper's
def set_up(protocol: str, folder: Path = records.FOLDER, cells: Sequence[str] = ()) -> str:
    """Say why a protocol's runs are not the paper's set-up; "" if they may be judged, or if none is.

    A baseline that misses print does so only while its curve, or that of one of the `cells` judged, still rises.
    """
    if not (gate := schema.gate(protocol)):
        return ""
    name = f"{protocol}/{gate['baseline']}"
    label, base = split(name)[1], cell(name, folder)
    if not base.values:
        return f"the baseline `{label}` has not run" if cells else ""
    if "unlike" in gate:
        return f"the set-up is not the paper's: {gate['unlike']}"
    if base.gone:
        return f"set-up not reproduced: the baseline `{label}` has diverged"
    entries = papers.found(paper=schema.protocols()[protocol]["paper"], **gate["printed"])
    printed, deviation = min((entry["value"], entry["std"] or 0) for entry in entries)
    mean = fmean(base.values.values())
    rising = (one for one in [name, *cells] if split(one)[0] == protocol and rise(one, folder) > RISING)
    if abs(mean - printed) <= max(MISS, DEVIATIONS * deviation) or not (curve := next(rising, "")):
        return ""
    curve = "its curve" if curve == name else f"`{split(curve)[1]}`"
    return (f"set-up not reproduced: the baseline `{label}` has {mean:.2f} where {printed:.2f} is printed, "
            f"and {curve} still rises")  # fmt: skip


def rise(name: str, folder: Path = records.FOLDER) -> float:
    """What a cell's mean gained from the last score within two thirds of the rounds to the end [points]."""
    metric, gains = split(name)[2], []
    for run in cell(name, folder).runs:
        scored = [(row["round"], row[metric]) for row in run["rounds"] if isinstance(row.get(metric), float)]
        early = [score for at, score in scored if 3 * at <= 2 * run["config"]["rounds"]]
        gains += [100 * (scored[-1][1] - early[-1])] if early else []
    return fmean(gains) if gains else 0.0


def switched_off(name: str, folder: Path = records.FOLDER) -> str:
    """Say so if what a method's claims rest on did not happen in its runs, such as more than one domain."""
    protocol, label, _ = split(name)
    rule = schema.gate(protocol).get("mechanism")
    if not rule or not label.startswith(rule["label"]):
        return ""
    values = cell(f"{protocol}/{label}/{rule['metric']}", folder).values
    mean = fmean(values.values()) if values else nan
    off = mean < rule.get("least", -inf) or mean >= rule.get("below", inf)
    return f"the mechanism is off: {rule['why']}" if off else ""


# ---------------------------------------------------------------------- comparisons
def asked(part: Mapping, numbers: Mapping) -> tuple[str, list[str], float, float]:
    """A comparison: the cell a, its rivals b, and between which two numbers the claim wants a - b, or a."""
    kind, (ours, *rivals) = schema.sides(part)
    centre, within = 0.0, part.get("within", 0)
    if "/" not in str(rivals[0]):  # a number, or the name of a printed one
        centre, rivals = numbers[rivals[0]][0] if isinstance(rivals[0], str) else rivals[0], []
    low, high = {"more": (centre + part.get("by", 0), inf), "less": (-inf, centre),
                 "near": (centre - within, centre + within)}[kind]  # fmt: skip
    return ours, rivals, low, high


def decide(parts: Mapping[str, Mapping], numbers: Mapping[str, list[float]], folder: Path = records.FOLDER,
           lead: str | None = None, ours: bool = False) -> list[Finding]:  # fmt: skip
    """Decide the comparisons of a claim, with Holm's correction over all of them and all of their rivals.

    `parts` and printed `numbers` by name; `lead` names the printed lead, unless a part names its own. If the claim
    is `ours`, the set-up need not be the paper's.
    """
    found: dict[str, Finding] = {}
    tests: list[tuple[str, str, Gap, float, float]] = []  # comparison, rival, estimate, wanted between
    for what, part in parts.items():
        a, rivals, low, high = asked(part, numbers)
        with strict.at(what):
            cells = {name: cell(name, folder) for name in [a, *rivals]}
        blank = Finding(what, a, boundary=low if isfinite(low) else high,
                        runs=tuple(run for name in [a, *rivals] for run in cells[name].runs))  # fmt: skip
        why, gone = _unready(cells, folder, ours), [name for name in rivals if cells[name].gone]
        beaten = f"`{'`, `'.join(split(name)[1] for name in gone)}` diverged, so beaten" if gone else ""
        left = [name for name in rivals if name not in gone] or [""]
        gaps = {name: compare(a, name, folder) for name in left}
        if why or (beaten and left == [""]):
            told = replace(blank, word=OPEN if why else HELD, reason=why or beaten)
            closest = min(gaps, key=lambda name: (not gaps[name].n, gaps[name].mean))
            found[what] = _against(told, closest, gaps[closest])  # is shown although it decides nothing
        elif split(a)[2] in COUNTED:
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


def _unready(cells: Mapping, folder: Path, own: bool) -> str:
    """Why a comparison of cells, the claim's own first, cannot be judged; "" if it can."""
    lacking = dict.fromkeys(split(name)[1] for name, one in cells.items() if not one.values)
    if lacking:
        return f"not run: `{'`, `'.join(lacking)}`" if len(lacking) < len(cells) else "not run"
    name, first = next(iter(cells.items()))
    if first.gone:
        return f"`{split(name)[1]}` diverged"
    if own:
        return ""
    why = [*(set_up(split(n)[0], folder, [*cells]) for n in cells), *(switched_off(n, folder) for n in cells)]
    return next(filter(None, why), "")


def _against(finding: Finding, b: str, gap: Gap, level: float = ALPHA) -> Finding:
    """A finding with the estimate against a rival, if there is one."""
    low, high = gap.ends(level)
    none = split(finding.a)[2] in COUNTED or not isfinite(low)
    ends = {} if none else {"low": low, "high": high}
    return replace(finding, b=b, n=gap.n, mean=gap.mean, **ends) if gap.n else finding


def _counted(blank: Finding, rivals: Sequence[str], low: float, high: float, folder: Path) -> Finding:
    """Decide a count or an index by the number of seeds in which it is as claimed; the worst rival decides."""
    ours, told = cell(blank.a, folder).values, []
    for name in rivals:
        theirs = cell(name, folder).values if name else dict.fromkeys(ours, 0.0)
        gaps = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
        good = sum(low < gap < high or (low == high == gap) or (gap == low and not name) for gap in gaps)
        told.append((name, good, len(gaps), sum(gaps) / max(len(gaps), 1)))
    name, k, n, mean = min(told, key=lambda one: one[1] / max(one[2], 1))
    sure = n > 0 and 2 * special.bdtr(min(k, n - k), n, 0.5) < ALPHA
    word = (HELD if 2 * k > n else FAILED) if sure else OPEN
    rest = "" if sure else ", and six alike would decide" if n < 6 else ", which may be chance"
    return replace(blank, b=name, n=n, mean=mean, word=word, reason=f"{k} of {n} seeds{rest}")


def _holm(chances: Sequence[float]) -> list[tuple[bool, float]]:
    """For each p-value whether it is rejected, and the level at which its interval shows that."""
    n, order = len(chances), sorted(range(len(chances)), key=chances.__getitem__)
    stop = next((step for step, at in enumerate(order) if 2 * chances[at] >= ALPHA / (n - step)), n)
    return [(order.index(at) < stop, ALPHA / (n - min(order.index(at), stop))) for at in range(n)]


def _decided(finding: Finding, mine: Sequence[tuple], printed: Sequence[float]) -> Finding:
    """Tell a comparison by the rival that decides it: one that wins, else one that is open, else the closest."""
    words = [HELD if held else FAILED if failed else OPEN for _, (held, _), (failed, _) in mine]
    word = next((word for word in (FAILED, OPEN) if word in words), HELD)
    alike = [one for one, its in zip(mine, words, strict=True) if its == word]
    (_, name, gap, *ends), (_, up), (_, down) = min(alike, key=lambda one: one[0][2].mean)
    level = {HELD: up, FAILED: down, OPEN: min(up, down)}[word]
    why = _why_open(gap, ends, level, printed) if word == OPEN else ()
    reason = "; ".join(filter(None, [finding.reason, *why]))
    return _against(replace(finding, word=word, reason=reason), name, gap, level)


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
    half = float(special.stdtrit(max(gap.df, 1), 1 - level / 2)) * gap.error
    needed = max(half**2 * gap.n / margin**2 if margin else inf, gap.n + 1)
    yield f"about {ceil(needed)} seeds would" if needed <= MOST else f"more than {MOST} would be needed"


# ---------------------------------------------------------------------- claims
def judge(paper: str, claim: Mapping, folder: Path = records.FOLDER) -> Verdict:
    """Decide a claim of a paper by its comparisons; ``of`` says how many of them it needs: all, most or some."""
    numbers, kind, parts = {}, claim.get("kind"), claim.get("parts", {})
    for name, what in claim.get("numbers", {}).items():
        with strict.at("numbers", name):
            numbers[name] = papers.printed_numbers(paper, what)
    if kind in ("print", "arithmetic"):
        found = [_settled(what, part, numbers, folder) for what, part in parts.items()]
        good = sum(one.word == "so" for one in found)
        worst = min(found, key=lambda one: one.word == "so")
        return Verdict(f"{good} of {len(found)}", worst, f"by {kind}", tuple(found))
    if not parts:
        return Verdict(OPEN, Finding(claim["id"], reason=claim["untested"]), claim["untested"], ())
    found = decide(parts, numbers, folder, claim.get("lead"), kind == "ours")
    count = Counter(one.word for one in found)
    word = _word(claim.get("of", "all"), count)
    same = [one for one in found if one.word == word] or found
    shown = [one for one in same if one.mean is not None] or same
    decides = shown[0] if word == OPEN else min(shown, key=lambda one: (one.mean or 0) - one.boundary)
    told = ", ".join(f"{count[w]} {w}" for w in WORDS if count[w]) + f" of {len(found)}" if len(found) > 1 else ""
    reason = next((one.reason for one in same if one.reason), "")
    return Verdict(word, decides, "; ".join(filter(None, [told, reason])), tuple(found))


def _word(of: str, count: Counter) -> str:
    n, held, failed = count.total(), count[HELD], count[FAILED]
    good = {"all": held == n, "most": 2 * held > n, "some": held > 0}[of]
    bad = {"all": failed > 0, "most": 2 * failed >= n, "some": failed == n}[of]
    return HELD if good else FAILED if bad else OPEN


def _settled(what: str, part: Mapping, numbers: Mapping, folder: Path) -> Finding:
    """Say whether a comparison is right that printed numbers, or counting, decides."""
    rule, (ours, theirs) = schema.sides(part)
    if rule == "printed_more":
        other = numbers.get(theirs, [0.0] * len(numbers[ours]))
        value = min(a - b for a, b in zip(numbers[ours], other, strict=True))
        right = value > (-part.get("within", 0) if theirs in numbers else theirs)
    else:
        a = cell(ours, folder).values
        b = cell(theirs, folder).values if rule == "ratio" else dict.fromkeys(a, 1)
        shared = [seed for seed in a if seed in b]
        value = sum(a[seed] for seed in shared) / sum(b[seed] for seed in shared) if shared else nan
        right = abs(value - part["to"]) <= RATIO if rule == "ratio" else value <= theirs
    return Finding(what, mean=float(value), word="so" if right else "not so")


def verdicts(paper: str, folder: Path = records.FOLDER) -> list[tuple[dict, Verdict]]:
    """A paper's claims, each with its verdict; judged once, until a record changes."""
    stamps = tuple(results.stamp(protocol, folder) for protocol in schema.protocols())
    return _verdicts(paper, folder, places.PAPERS, stamps)


@cache
def _verdicts(paper: str, folder: Path, papers_folder: Path, stamps: tuple) -> list[tuple[dict, Verdict]]:
    found = []
    for claim in schema.claims()[paper]:
        with strict.at("claims.yaml", claim["id"]):
            found.append((claim, judge(paper, claim, folder)))
    return found


def verdict(name: str, folder: Path = records.FOLDER) -> str:
    """The word of the claim with this id; one that ``claims.yaml`` does not have is refused."""
    every = {claim["id"]: got.word for paper in schema.claims() for claim, got in verdicts(paper, folder)}
    known(every, name, "claim")
    return every[name]


def tally(folder: Path = records.FOLDER) -> dict[str, dict[str, int]]:
    """How many of each paper's claims have which word, without those that print, counting or we ourselves ask."""
    words = {paper: [got.word for claim, got in verdicts(paper, folder) if "kind" not in claim]
             for paper in schema.claims()}  # fmt: skip
    return {paper: {word: found.count(word) for word in WORDS} for paper, found in words.items()}
