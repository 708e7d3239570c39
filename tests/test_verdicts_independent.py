"""The verdicts, computed again from the JSON records and the YAML files with scipy, and nothing of the package.

Only the last comparison asks the package, for what it says. Everything else here is written from the rule on the
page "ledger": pooled variances, seeds taken out, Holm, counts of seeds, baselines and mechanisms.
"""

import json
import math
from pathlib import Path

import pytest
import yaml
from scipy import stats

ROOT = Path(__file__).parents[1]
PAPERS = ROOT / "book" / "papers"


def load(name):
    return yaml.load((PAPERS / name).read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


PROTOCOLS, TABLES = load("protocols.yaml")["protocols"], load("tables.yaml")["tables"]
CLAIMS, PRINTED = load("claims.yaml"), load("results.yaml")["entries"]
GATES = CLAIMS["gates"]
RUNS: dict = {}
for file in sorted((ROOT / "book" / "results").glob("*/*.json")):
    record = json.loads(file.read_text())
    if record["label"] in PROTOCOLS.get(record["protocol"], {"methods": {}})["methods"]:
        RUNS.setdefault((record["protocol"], record["label"]), {})[record["seed"]] = record
INDICES = {"ari", "nmi", "clusters", "main_clusters", "settled", "largest_share"}
PLAIN = INDICES | {"lam", "entropy", "down", "up"}


def split(name):
    return tuple([*name.split("/"), "accuracy"][:3])


def runs(name):
    protocol, label, _ = split(name)
    wanted = [t.get("extended", t["seeds"]) for t in TABLES.values() if t["protocol"] == protocol
              and any(row["label"] == label for row in t["rows"].values())]  # fmt: skip
    return {s: r for s, r in sorted(RUNS.get((protocol, label), {}).items()) if s < max(wanted, default=99)}


def values(name):
    metric, found = split(name)[2], {}
    for seed, run in runs(name).items():
        if metric == "settled":
            found[seed] = max((row["round"] for row in run["rounds"] if row.get("moved")), default=0)
        elif metric == "lam":
            found.update({seed: run["final"]["lam"][-1]} if run["final"].get("lam") else {})
        elif isinstance(run["final"].get(metric), int | float):
            found[seed] = run["final"][metric] * (1 if metric in PLAIN else 100)
    return found


def gone(name):
    return {seed for seed, run in runs(name).items() if any(row.get("diverged") for row in run["rounds"])}


def steady(name):
    return {seed: value for seed, value in values(name).items() if seed not in gone(name)}


def variance(numbers):
    mean = sum(numbers) / len(numbers)
    return sum((x - mean) ** 2 for x in numbers) / (len(numbers) - 1)


def kin(metric):
    return metric.split("_", 1)[1] if metric.split("_")[0] in ("personal", "global", "unseen") else metric


def table(a, b):
    """Cells of the first table with both, else of all tables of the protocol with that metric."""
    protocol, _, metric = split(a)
    every, asked = [], {"/".join(split(a)), "/".join(split(b or a))}
    for t in TABLES.values():
        if t["protocol"] == protocol and t["metric"] == kin(metric):
            cells = [f"{protocol}/{row['label']}/{row['model'] + '_' if 'model' in row else ''}{t['metric']}"
                     for row in t["rows"].values()]  # fmt: skip
            if asked <= set(cells):
                return list(dict.fromkeys(cells))
            every += cells
    return list(dict.fromkeys(every))


def pool(a, b):
    """Variance and df of a table, then both without seeds, or None."""
    cells = [steady(name) for name in table(a, b)]
    cells = [c for c in cells if len(c) > 1 and variance(list(c.values())) > 0]
    cells = sorted(cells, key=lambda c: variance(list(c.values())))

    def together(some):
        df = sum(len(c) - 1 for c in some)
        return sum(variance(list(c.values())) * (len(c) - 1) for c in some) / df, df

    while len(cells) > 2:
        rest, df = together(cells[:-1])
        if stats.f.sf(variance(list(cells[-1].values())) / rest, len(cells[-1]) - 1, df) >= 0.01:
            break
        cells.pop()
    if not cells:
        return 0.0, 0, None
    common = sorted(set.intersection(*map(set, cells)))
    blocks, m, n = None, len(cells), len(common)
    if m > 1 and n > 1:
        grand = sum(c[s] for c in cells for s in common) / m / n
        rows = {s: sum(c[s] for c in cells) / m for s in common}
        left = sum((c[s] - sum(c[t] for t in common) / n - rows[s] + grand) ** 2 for c in cells for s in common)
        left /= (m - 1) * (n - 1)
        between = m * variance(list(rows.values()))
        if left > 0 and stats.f.sf(between / left, n - 1, (m - 1) * (n - 1)) < 0.05:
            blocks = left, (m - 1) * (n - 1)
    return (*together(cells), blocks)


def own(name, pooled):
    side = list(steady(name).values())
    mine, df = (variance(side), len(side) - 1) if len(side) > 1 else (0.0, 0)
    usual = pooled[1] > 0 and (df == 0 or stats.f.sf(mine / pooled[0], df, pooled[1]) >= 0.01)
    return (pooled[0], pooled[1], True) if usual else (mine, df, False)


def estimate(a, b=""):
    """Seeds, mean, standard error and df of a - b, or of a."""
    if not steady(a) or (b and not steady(b)):
        return 0, math.nan, 0.0, 0
    near = not b or split(a)[0] == split(b)[0]
    mine, theirs = pool(a, b if near else ""), pool(b or a, a if near and b else "")
    x, y = steady(a), steady(b) if b else {}
    u, v = own(a, mine), own(b, theirs) if b else (0.0, 0, True)
    common = sorted(set(x) & set(y))
    if b and near and len(common) > 1 and mine[2] and u[2] and v[2]:
        mean = sum(x[s] - y[s] for s in common) / len(common)
        return len(common), mean, math.sqrt(2 * mine[2][0] / len(common)), mine[2][1]
    mean = sum(x.values()) / len(x) - (sum(y.values()) / len(y) if b else 0)
    shares = [(u[0] / len(x), u[1])] + ([(v[0] / len(y), v[1])] if b else [])
    total = sum(share for share, _ in shares)
    if b and near and u[2] and v[2]:
        df = u[1]
    else:
        df = total**2 / sum(share**2 / d for share, d in shares) if total and all(d for _, d in shares) else 0
    return min(len(x), len(y) if b else len(x)), mean, math.sqrt(total), df


# ---------------------------------------------------------------------- gates
def flat(entry):
    return entry | entry["setting"]


def entries(paper, where):
    def fits(entry, key, wanted):
        return entry.get(key) in wanted if isinstance(wanted, list) else entry.get(key) == wanted

    return [e for e in PRINTED if e["paper"] == paper and e["value"] is not None
            and all(fits(flat(e), *item) for item in where.items())]  # fmt: skip


def rise(name):
    metric, gains = split(name)[2], []
    for run in runs(name).values():
        known = [(row["round"], row[metric]) for row in run["rounds"] if isinstance(row.get(metric), float)]
        early = [value for t, value in known if t <= 2 * run["config"]["rounds"] / 3]
        gains += [100 * (known[-1][1] - early[-1])] if early else []
    return sum(gains) / len(gains) if gains else 0


def barred(names):
    for name in names:
        protocol, label, _ = split(name)
        gate = GATES.get(protocol)
        if not isinstance(gate, dict):
            continue
        base = f"{protocol}/{gate['baseline']}"
        if "unlike" in gate or not values(base) or gone(base):
            return True
        entry = min(entries(PROTOCOLS[protocol]["paper"], gate["printed"]), key=lambda e: e["value"])
        miss = abs(sum(values(base).values()) / len(values(base)) - entry["value"])
        rising = any(rise(one) > 1 for one in [base, *names] if split(one)[0] == protocol)
        if miss > max(3, 2 * (entry["std"] or 0)) and rising:
            return True
        rule = gate.get("mechanism")
        if rule and label.startswith(rule["label"]):
            found = values(f"{protocol}/{label}/{rule['metric']}").values()
            mean = sum(found) / len(found) if found else None
            if mean is not None and (mean >= rule["below"] if "below" in rule else mean < rule["least"]):
                return True
    return False


# ---------------------------------------------------------------------- claims
def wanted(kind, part, claim, paper):
    """Rivals, and the interval in which the claim wants a - b; a number on the right moves it, and is no rival."""
    right, centre = part[kind][1], 0
    rivals = right if isinstance(right, list) else [right]
    if not isinstance(right, list) and "/" not in str(right):
        rivals = [""]
        (centre,) = [right] if not isinstance(right, str) else [
            e["value"] for e in entries(paper, claim["numbers"][right])]  # fmt: skip
    if kind == "more":
        return rivals, centre + part.get("by", 0), math.inf
    if kind == "less":
        return rivals, -math.inf, centre
    return rivals, centre - part.get("within", 0), centre + part.get("within", 0)


def holm(chances):
    rejected, order = [False] * len(chances), sorted(range(len(chances)), key=chances.__getitem__)
    for step, at in enumerate(order):
        if 2 * chances[at] >= 0.05 / (len(chances) - step):
            break
        rejected[at] = True
    return rejected


def above(found, boundary, sign=1):
    n, mean, error, df = found
    if math.isinf(boundary):
        return 0.0 if sign * boundary < 0 else 1.0
    return stats.t.sf(sign * (mean - boundary) / error, df) if n > 2 and error > 0 and df > 0 else 1.0


def judge(paper, claim):
    """The words of a claim's comparisons, by name, and of the claim."""
    words, tests = {}, []
    for what, part in claim.get("parts", {}).items():
        kind = next(k for k in ("more", "less", "near") if k in part)
        a, (rivals, low, high) = part[kind][0], wanted(kind, part, claim, paper)
        names = [a, *filter(None, rivals)]
        beaten = [name for name in rivals if name and gone(name)]
        if not all(map(values, names)) or gone(a) or (claim.get("kind") != "ours" and barred(names)):
            words[what] = "open"
        elif len(beaten) == len(rivals):
            words[what] = "held"
        elif split(a)[2] in INDICES:
            worst = []
            for name in rivals:
                theirs = values(name) if name else dict.fromkeys(values(a), 0)
                gaps = [value - theirs[s] for s, value in values(a).items() if s in theirs]
                good = sum(low < g < high or low == high == g or (g == low and not name) for g in gaps)
                worst.append((good / len(gaps), good, len(gaps)))
            _, k, n = min(worst)
            sure = stats.binomtest(k, n).pvalue < 0.05
            words[what] = ("held" if 2 * k > n else "failed") if sure else "open"
        else:
            tests += [(what, estimate(a, name), low, high) for name in rivals if name not in beaten]
    good = holm([max(above(f, low), above(f, high, -1)) for _, f, low, high in tests])
    bad = holm([min(above(f, low, -1), above(f, high)) for _, f, low, high in tests])
    for what in dict.fromkeys(test[0] for test in tests):
        mine = [i for i, test in enumerate(tests) if test[0] == what]
        right, wrong = all(good[i] for i in mine), any(bad[i] for i in mine)
        words[what] = "failed" if wrong else "held" if right else "open"
    n, held, failed = len(words), *(list(words.values()).count(word) for word in ("held", "failed"))
    rule = {"all": (held == n, failed > 0), "most": (2 * held > n, 2 * failed >= n),
            "some": (held > 0, failed == n)}  # fmt: skip
    right, wrong = rule[claim.get("of", "all")] if n else (False, False)
    return words, "held" if right else "failed" if wrong else "open"


EVERY = [(paper, claim) for paper in ("mdicfl", "fesem", "stocfl", "lcfed", "fedcg") for claim in CLAIMS[paper]
         if claim.get("kind") in (None, "ours")]  # fmt: skip


@pytest.mark.parametrize(("paper", "claim"), EVERY, ids=[claim["id"] for _, claim in EVERY])
def test_a_verdict_is_what_scipy_makes_of_the_records(paper, claim):
    from cflkit.workbook.claims import verdicts

    said = verdicts.judge(paper, claim)
    words, word = judge(paper, claim)
    assert ({finding.what: finding.word for finding in said.findings}, said.word) == (words, word)
    for finding in said.findings:
        if finding.mean is not None and split(finding.a)[2] not in INDICES:
            n, mean, error, df = estimate(finding.a, finding.b)
            assert (finding.n, finding.mean) == (n, pytest.approx(mean, abs=1e-9))
            if finding.low is not None:
                half = (finding.high - finding.low) / 2
                level = 2 * stats.t.sf(half / error, df)  # 5%, or less by Holm's correction
                assert finding.low + half == pytest.approx(mean, abs=1e-9)
                assert level <= 0.05 + 1e-9 and 0.05 / level == pytest.approx(round(0.05 / level), abs=1e-6)
                if finding.word == "held" and math.isinf(wanted_high(claim, finding.what)):
                    assert finding.low > finding.boundary


def wanted_high(claim, what):
    return math.inf if "more" in claim["parts"][what] else 0.0
