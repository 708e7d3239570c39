"""One rule: what runs say of a comparison, and comparisons of a claim; the page "ledger" tells the rule to readers.

A *finding* compares a with b at a boundary. It is **held** if the 95% interval of a - b lies on the claim's side,
**failed** if it lies beyond the boundary on the other side, and **open** otherwise, with a reason.

* Variances are pooled over the table that has both cells; a cell that varies far more than its table keeps its own.
  Where seeds move all methods of a table alike, they are taken out, and a - b is paired.
* Of several rivals all must be beaten, and one wins; either by Holm's correction. One that diverged is beaten.
* Counts of clusters and indices are told as "k of n seeds", and decided by the sign test, so from six seeds on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from cflkit.checks import require
from cflkit.workbook.claims import measured, papers, schema
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
TRAFFIC = {"down", "up", "server_flops", "client_flops"}
PRINTED, COUNTS = "print", "arithmetic"  # kinds of claims that no run decides
UNRUN = "not run"


@dataclass(frozen=True)
class Gap:
    """An estimate: `n` seeds, its `mean`, standard error and degrees of freedom; `paired`, seeds were taken out."""

    n: int
    mean: float
    error: float
    df: float
    paired: bool = False

    def ends(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Ends of the interval that misses with chance `alpha`; without an error, no interval."""
        half = float(stats.t.ppf(1 - alpha / 2, self.df)) * self.error if self.df > 0 else float("inf")
        return self.mean - half, self.mean + half


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
def cell(name: str) -> tuple[str, str, str]:
    """Protocol, label and metric of ``protocol/label/metric``."""
    protocol, label, metric = [*name.split("/"), "accuracy"][:3]
    return protocol, label, metric


@cache
def _tables(folder: Path) -> list[tuple[str, str, tuple[str, ...]]]:
    """Protocol, metric and cells of every table."""
    found = []
    for table in schema.tables().values():
        protocol, metric = table["protocol"], table["metric"]
        rows = [f"{row['model']}_{metric}" if "model" in row else metric for row in table["rows"].values()]
        labels = [row["label"] for row in table["rows"].values()]
        cells = dict.fromkeys(f"{protocol}/{label}/{m}" for label, m in zip(labels, rows, strict=True))
        found.append((protocol, metric, tuple(cells)))
    return found


def _pool(name: str, other: str, folder: Path) -> tuple[float, int, float, int]:
    """Variance and degrees of freedom of the table that has both cells: plain, and without seeds (0: not so).

    Without a table that has both, all of their protocol count.
    """
    (protocol, _, metric), wanted = cell(name), {"/".join(cell(n)) for n in (name, other or name)}
    mine = [cells for p, m, cells in _tables(folder) if p == protocol and m == results.base(metric)]
    every = tuple(dict.fromkeys(name for cells in mine for name in cells))
    table = next((cells for cells in mine if wanted <= set(cells)), every)
    return _pooled(table, folder, results.stamps(protocol, folder))


@cache
def _pooled(table: Sequence[str], folder: Path, stamps: tuple) -> tuple[float, int, float, int]:
    series = [_steady(name, folder) for name in table]
    series = sorted((s for s in series if len(s) > 1 and s.var() > 0), key=pd.Series.var)
    while len(series) > 2:  # the most variable cell leaves while it stands out
        rest = _together(series[:-1])
        if stats.f.sf(series[-1].var() / rest[0], len(series[-1]) - 1, rest[1]) >= APART:
            break
        series.pop()
    if not series:
        return 0.0, 0, 0.0, 0
    variance, df = _together(series)
    grid = pd.DataFrame(dict(enumerate(series))).dropna()  # seeds x cells, of the seeds that all have
    if min(grid.shape) < 2:
        return variance, df, 0.0, 0
    rest = grid - grid.mean() - grid.mean(axis=1).to_numpy()[:, None] + grid.to_numpy().mean()
    free = (grid.shape[0] - 1) * (grid.shape[1] - 1)
    left = float((rest**2).to_numpy().sum()) / free
    between = grid.shape[1] * float(grid.mean(axis=1).var())
    blocks = left > 0 and stats.f.sf(between / left, grid.shape[0] - 1, free) < ALPHA
    return (variance, df, left, free) if blocks else (variance, df, 0.0, 0)


def _together(series: Sequence[pd.Series]) -> tuple[float, int]:
    df = sum(len(s) - 1 for s in series)
    return sum(s.var() * (len(s) - 1) for s in series) / df, df


def _steady(name: str, folder: Path) -> pd.Series:
    """A cell's values by seed, without the runs that diverged."""
    values, runs = measured.cell(name, folder)
    gone = {run["seed"] for run in runs if results.diverged(run)}
    return pd.Series({seed: value for seed, value in values.items() if seed not in gone}, dtype=float)


def compare(a: str, b: str = "", folder: Path = records.FOLDER) -> Gap:
    """Estimate a - b, or a; both are cells, ``protocol/label/metric``.

    Raises
    ------
    ValueError
        For a cell that no protocol has.
    """
    sides = [_steady(name, folder) for name in (a, b) if name]
    if not all(len(side) for side in sides):
        return Gap(0, float("nan"), 0.0, 0)
    same = not b or cell(a)[0] == cell(b)[0]
    pools = [_pool(a, b if same else "", folder), _pool(b or a, a if same else "", folder)]
    own = [_variance(side, pool) for side, pool in zip(sides, pools, strict=False)]
    common = sides[0].index.intersection(sides[-1].index)
    if b and same and len(common) > 1 and pools[0][3] and all(kind for *_, kind in own):
        _, _, left, free = pools[0]
        gaps = (sides[0] - sides[1]).dropna()
        return Gap(len(gaps), float(gaps.mean()), float(np.sqrt(2 * left / len(gaps))), free, True)
    shares = [variance / len(side) for (variance, _, _), side in zip(own, sides, strict=True)]
    total, dfs = sum(shares), [df for _, df, _ in own]
    if b and same and all(kind for *_, kind in own):
        df = float(dfs[0])
    else:  # Welch and Satterthwaite
        df = total**2 / sum(s**2 / d for s, d in zip(shares, dfs, strict=True) if d) if total and min(dfs) else 0.0
    mean = float(sides[0].mean() - (sides[1].mean() if b else 0))
    return Gap(min(map(len, sides)), mean, float(np.sqrt(total)), df)


def _variance(side: pd.Series, pool: tuple[float, int, float, int]) -> tuple[float, int, bool]:
    """Variance of a cell, its degrees of freedom, and whether they are its table's."""
    own, df = (float(side.var()), len(side) - 1) if len(side) > 1 else (0.0, 0)
    if pool[1] and (df == 0 or stats.f.sf(own / pool[0], df, pool[1]) >= APART):
        return pool[0], pool[1], True
    return own, df, False


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
    miss = abs(mean - entry["value"])
    rising = [one for one in [name, *cells] if cell(one)[0] == protocol and rise(one, folder) > RISING]
    if miss <= max(MISS, DEVIATIONS * (entry["std"] or 0)) or not rising:
        return ""
    curve = "its curve" if rising[0] == name else f"`{cell(rising[0])[1]}`"
    return (f"set-up not reproduced: the baseline `{label}` has {mean:.2f} where {entry['value']:.2f} is printed, "
            f"and {curve} still rises")  # fmt: skip


def rise(name: str, folder: Path = records.FOLDER) -> float:
    """What a cell's mean gained from the last score within two thirds of the rounds to the end [points]."""
    _, _, metric = cell(name)
    gains = []
    for run in measured.cell(name, folder)[1]:
        known = [(row["round"], row[metric]) for row in run["rounds"] if isinstance(row.get(metric), float)]
        early = [score for at, score in known if 3 * at <= 2 * run["config"]["rounds"]]
        if early:
            gains.append(100 * (known[-1][1] - early[-1]))
    return sum(gains) / len(gains) if gains else 0.0


def switched_off(name: str, folder: Path = records.FOLDER) -> str:
    """Say so if what a method's claims rest on did not happen in its runs, such as more than one domain."""
    protocol, label, _ = cell(name)
    gate = schema.gates().get(protocol, "")
    rule = {} if isinstance(gate, str) else gate.get("mechanism", {})
    if not rule or not label.startswith(rule["label"]):
        return ""
    values = measured.cell(f"{protocol}/{label}/{rule['metric']}", folder)[0].values()
    mean = sum(values) / len(values) if values else None
    off = mean is not None and (mean >= rule["below"] if "below" in rule else mean < rule["least"])
    return f"the mechanism is off: {rule['why']}" if off else ""


def too_early(protocol: str, folder: Path = records.FOLDER) -> str:
    """Say so if the baseline of a protocol that has run misses its print; "" otherwise."""
    gate = schema.gates().get(protocol, "")
    ran = not isinstance(gate, str) and bool(measured.cell(f"{protocol}/{gate['baseline']}", folder)[0])
    return set_up(protocol, folder) if ran else ""


# ---------------------------------------------------------------------- comparisons
def region(kind: str, part: dict, numbers: dict) -> tuple[float, float]:
    """Where the claim wants a - b, or a, to lie."""
    inf = float("inf")
    if kind in ("near", "as_printed"):
        centre = numbers[part["number"]][0] if kind == "as_printed" else 0.0
        return centre - part["within"], centre + part["within"]
    if kind == "equals":
        return part["to"], part["to"]
    if kind == "below":
        return -inf, part["than"]
    return {"more": part.get("by", 0.0), "least": -part.get("within", 0.0), "above": part.get("than")}[kind], inf


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
        kind = schema.kind_of(part)
        mine, rivals = _cells(kind, part)
        runs = tuple(run for name in [mine, *rivals] for run in measured.cell(name, folder)[1])
        low, high = region(kind, part, numbers)
        blank = Finding(what, mine, boundary=low if np.isfinite(low) else high, runs=runs)
        why, rivals, beaten = _ready(mine, rivals, folder, ours)
        if why or (beaten and not rivals):
            word = OPEN if why else HELD
            found[what] = replace(blank, word=word, reason=why or beaten, **_shown(mine, rivals, folder))
        elif cell(mine)[2] in COUNTED:
            found[what] = _counted(blank, rivals, low, high, folder)
        else:
            found[what] = replace(blank, reason=beaten)
            gaps = [(name, compare(mine, name, folder)) for name in rivals or [""]]
            tests += [(what, name, gap, low, high) for name, gap in gaps]
    for what, mine in _tested(tests).items():
        printed = numbers.get(parts[what].get("lead", lead) or "", [])
        ends = region(schema.kind_of(parts[what]), parts[what], numbers)
        found[what] = _decided(found[what], mine, printed, ends)
    return list(found.values())


def _cells(kind: str, part: dict) -> tuple[str, list[str]]:
    if schema.RULES[kind].operands == 1:
        return part[kind], []
    ours, theirs = part[kind]
    return ours, theirs if isinstance(theirs, list) else [theirs]


def _ready(ours: str, rivals: Sequence[str], folder: Path, own: bool) -> tuple[str, list[str], str]:
    """Why a comparison cannot be judged, or "", the rivals that ran whole, and who is beaten, having diverged."""
    cells = {name: measured.cell(name, folder) for name in [ours, *rivals]}
    lacking = dict.fromkeys(cell(name)[1] for name, (values, _) in cells.items() if not values)
    gone = [name for name in rivals if any(map(results.diverged, cells[name][1]))]
    beaten = f"`{'`, `'.join(cell(name)[1] for name in gone)}` diverged, so beaten" if gone else ""
    left = [name for name in rivals if name not in gone]
    if lacking:
        return f"{UNRUN}: `{'`, `'.join(lacking)}`" if len(lacking) < len(cells) else UNRUN, left, beaten
    why: list[str] = []
    if not own:
        why = [set_up(cell(name)[0], folder, list(cells)) for name in cells]
        why += [switched_off(name, folder) for name in cells]
    if any(map(results.diverged, cells[ours][1])):
        why = [f"`{cell(ours)[1]}` diverged"]
    return next(filter(None, why), ""), left, beaten


def _shown(ours: str, rivals: Sequence[str], folder: Path) -> dict:
    """The estimate against the closest rival, which is shown although it decides nothing."""
    gaps = [(gap, name) for name in rivals or [""] if (gap := compare(ours, name, folder)).n]
    if not gaps:
        return {}
    gap, name = min(gaps, key=lambda one: one[0].mean)
    low, high = gap.ends()
    shown = np.isfinite(low) and cell(ours)[2] not in COUNTED
    return {"b": name, "n": gap.n, "mean": gap.mean, "low": low if shown else None, "high": high if shown else None}


def _counted(blank: Finding, rivals: Sequence[str], low: float, high: float, folder: Path) -> Finding:
    """Decide a count or an index by the number of seeds in which it is as claimed; the worst rival decides."""
    ours, worst = measured.cell(blank.a, folder)[0], None
    for name in rivals or [""]:
        theirs = measured.cell(name, folder)[0] if name else dict.fromkeys(ours, 0.0)
        gaps = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
        good = sum(low < gap < high or (low == high == gap) or (gap == low and not name) for gap in gaps)
        if worst is None or good / max(len(gaps), 1) < worst[1] / max(worst[2], 1):
            worst = name, good, len(gaps), sum(gaps) / max(len(gaps), 1)
    name, k, n, mean = worst
    sure = n > 0 and stats.binomtest(k, n).pvalue < ALPHA
    word = (HELD if 2 * k > n else FAILED) if sure else OPEN
    rest = ", and six alike would decide" if n < 6 else ", which may be chance"
    told = f"{k} of {n} seeds" + ("" if sure else rest)
    return replace(blank, b=name, n=n, mean=mean, word=word, reason=told)


def _tested(tests: Sequence[tuple]) -> dict[str, list[tuple[str, Gap, str, float]]]:
    """Holm's correction on either side: for each comparison rival, gap, word, and the level of its interval."""
    good = [_beyond(*test[2:]) for test in tests]
    bad = [_against(*test[2:]) for test in tests]
    levels = [_holm(good), _holm(bad)]
    told: dict[str, list[tuple[str, Gap, str, float]]] = {}
    for at, (what, name, gap, *_) in enumerate(tests):
        (held, up), (failed, down) = levels[0][at], levels[1][at]
        word = HELD if held else FAILED if failed else OPEN
        told.setdefault(what, []).append((name, gap, word, up if held else down if failed else min(up, down)))
    return told


def _beyond(gap: Gap, low: float, high: float) -> float:
    """One-sided p-value of lying where the claim wants it; of two boundaries the worse."""
    return max(_above(gap, low), _above(replace(gap, mean=-gap.mean), -high))


def _against(gap: Gap, low: float, high: float) -> float:
    """One-sided p-value of lying beyond a boundary of the claim; of two the better."""
    return min(_above(replace(gap, mean=-gap.mean), -low), _above(gap, high))


def _above(gap: Gap, boundary: float) -> float:
    if np.isinf(boundary):
        return 0.0 if boundary < 0 else 1.0
    decides = gap.n >= SEEDS and gap.error > 0 and gap.df > 0
    return float(stats.t.sf((gap.mean - boundary) / gap.error, gap.df)) if decides else 1.0


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


def _decided(finding: Finding, mine: Sequence[tuple[str, Gap, str, float]], printed: Sequence[float],
             ends: tuple[float, float]) -> Finding:  # fmt: skip
    """Tell a comparison by the rival that decides it: one that wins, else one that is open, else the closest."""
    word = next((word for word in (FAILED, OPEN) if any(word == one[2] for one in mine)), HELD)
    name, gap, _, level = min((one for one in mine if one[2] == word), key=lambda one: one[1].mean)
    low, high = gap.ends(level)
    reason = [finding.reason] if finding.reason else []
    if word == OPEN:
        reason += _why_open(gap, ends, level, low, high, printed)
    finite = np.isfinite(low)
    return replace(finding, b=name, n=gap.n, mean=gap.mean, low=low if finite else None,
                   high=high if finite else None, word=word, reason="; ".join(reason))  # fmt: skip


def _why_open(gap: Gap, ends: tuple[float, float], level: float, low: float, high: float,
              printed: Sequence[float]) -> Iterator[str]:  # fmt: skip
    """Say what an open interval excludes all the same, and how many seeds would settle it."""
    if gap.n < SEEDS:
        yield f"{gap.n} seed{'s' * (gap.n != 1)}, and {SEEDS} are the least that decide"
        return
    yield "the seeds do not tell"
    if printed and not low <= min(printed) <= high:
        yield f"the interval excludes the printed {min(printed):+.2f}"
    margin = min(abs(gap.mean - end) for end in ends if np.isfinite(end))
    needed = (stats.t.ppf(1 - level / 2, max(gap.df, 1)) * gap.error) ** 2 * gap.n / margin**2 if margin else np.inf
    needed = max(needed, gap.n + 1)
    yield f"about {np.ceil(needed):.0f} seeds would" if needed <= MOST else f"more than {MOST} would be needed"


# ---------------------------------------------------------------------- a claim
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
    with results.unchanged():
        return _judge(paper, claim, folder)


def _judge(paper: str, claim: dict, folder: Path) -> Verdict:
    numbers = {k: papers.printed_numbers(paper, what) for k, what in claim.get("numbers", {}).items()}
    parts = claim.get("parts", {})
    if claim.get("kind") in (PRINTED, COUNTS):
        return _apart(claim["kind"], parts, numbers, folder)
    if not parts:
        return Verdict(OPEN, Finding(claim["id"], reason=claim["untested"]), claim["untested"], ())
    found = decide(parts, numbers, folder, claim.get("lead"), claim.get("kind") == "ours")
    count = {word: sum(one.word == word for one in found) for word in WORDS}
    word = _word(claim.get("of", "all"), count)
    same = [one for one in found if one.word == word] or found
    shown = [one for one in same if one.mean is not None] or same
    decides = shown[0] if word == OPEN else min(shown, key=lambda one: (one.mean or 0) - one.boundary)
    told = "" if len(found) == 1 else ", ".join(f"{count[w]} {w}" for w in WORDS if count[w]) + f" of {len(found)}"
    reasons = dict.fromkeys(one.reason for one in same if one.reason)
    reason = "; ".join([*filter(None, [told]), *list(reasons)[:1]])
    return Verdict(word, decides, reason, tuple(found))


def _word(of: str, count: dict[str, int]) -> str:
    """The word for several comparisons."""
    n, held, failed = sum(count.values()), count[HELD], count[FAILED]
    good = {"all": held == n, "most": 2 * held > n, "some": held > 0}[of]
    bad = {"all": failed > 0, "most": 2 * failed >= n, "some": failed == n}[of]
    return HELD if good else FAILED if bad else OPEN


def _apart(kind: str, parts: dict, numbers: dict, folder: Path) -> Verdict:
    """A claim that printed numbers, or counting, decides: it says in how many of its comparisons it is right."""
    found = []
    for what, part in parts.items():
        rule = schema.kind_of(part)
        if rule == "ratio":
            ours, theirs = (measured.cell(name, folder)[0] for name in part[rule])
            both = set(ours) & set(theirs)
            value = sum(ours[s] for s in both) / sum(theirs[s] for s in both) if both else float("nan")
            right = abs(value - part["to"]) <= RATIO
        elif rule == "below":
            values = measured.cell(part[rule], folder)[0].values()
            value = sum(values) / len(values) if values else float("nan")
            right = value <= part["than"]
        elif rule == "printed_above":
            value = min(numbers[part[rule]])
            right = value > part["than"]
        else:
            value = min(a - b for a, b in zip(*(numbers[side] for side in part[rule]), strict=True))
            right = value > -part["within"] if "within" in part else value > 0
        found.append(Finding(what, mean=value, word="so" if right else "not so"))
    good = sum(one.word == "so" for one in found)
    worst = min(found, key=lambda one: one.word == "so")
    return Verdict(f"{good} of {len(found)}", worst, f"by {kind}", tuple(found))


# ---------------------------------------------------------------------- all of them
def verdicts(paper: str, folder: Path = records.FOLDER) -> list[tuple[dict, Verdict]]:
    """A paper's claims, each with its verdict."""
    with results.unchanged():
        return [(claim, judge(paper, claim, folder)) for claim in schema.claims()[paper]]


def verdict(name: str, folder: Path = records.FOLDER) -> str:
    """The word of the claim with this id.

    Raises
    ------
    ValueError
        If there is none.
    """
    every = {claim["id"]: (paper, claim) for paper, claims in schema.claims().items() for claim in claims}
    require(name in every, "claim", name, "the id of one in claims.yaml")
    return judge(*every[name], folder).word


def main_claims(folder: Path = records.FOLDER) -> list[dict]:
    """The main claim of each paper: words, printed lead, estimate with interval, word and reason."""
    found = []
    for paper, claims in schema.claims().items():
        (claim,) = [claim for claim in claims if claim.get("main")]
        got = judge(paper, claim, folder)
        lead = papers.printed_numbers(paper, claim["numbers"][claim["lead"]]) if "lead" in claim else []
        found.append({
            "paper": paper, **{key: claim[key] for key in ("id", "says", "quote", "place")},
            "printed": lead, "n": got.decides.n, "mean": got.decides.mean, "low": got.decides.low,
            "high": got.decides.high, "word": got.word, "reason": got.reason,
        })  # fmt: skip
    return found


def tally(folder: Path = records.FOLDER) -> dict[str, dict[str, int]]:
    """How many of each paper's claims have which word, without those that print, counting or we ourselves ask."""
    found = {}
    for paper in schema.claims():
        words = [got.word for claim, got in verdicts(paper, folder) if counts(claim)]
        found[paper] = {word: words.count(word) for word in WORDS}
    return found


def counts(claim: dict) -> bool:
    """Whether a claim is the paper's, and decided by runs."""
    return "kind" not in claim


def agreement(values: Sequence[float], printed: float, within: float) -> str:
    """Whether measured numbers agree with a printed one: their interval lies within the tolerance, or outside."""
    gaps, n = np.array(values) - printed, len(values)
    if n < SEEDS:
        return "seems to agree" if abs(gaps.mean()) <= within else "seems to differ"
    half = stats.t.ppf(1 - ALPHA / 2, n - 1) * gaps.std(ddof=1) / np.sqrt(n)
    low, high = gaps.mean() - half, gaps.mean() + half
    if -within <= low and high <= within:
        return "agrees"
    return "differs" if low > within or high < -within else "undecided"
