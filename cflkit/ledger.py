"""Measured beside printed: the book's tables of results, made from run records whenever the book is built.

``python -m cflkit.ledger`` writes the pages and pictures that chapters include (``book/_generated``). Measured
numbers come from the records under ``book/results``, printed ones from ``book/papers/results.yaml``; neither is
ever typed. What has no record yet reads "not yet measured".
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import torch
import yaml
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cflkit import federation, images, metrics, plots, records
from cflkit.checks import require

BOOK = Path(__file__).resolve().parent.parent / "book"
MISSING = "not yet measured"


# ---------------------------------------------------------------------- what the papers print
@cache
def entries() -> list[dict]:
    """All printed numbers, as ``book/papers/results.yaml`` lists them."""
    return yaml.safe_load((BOOK / "papers" / "results.yaml").read_text())["entries"]


def printed(**where) -> list[float]:
    """Printed values of the entries that match.

    Parameters
    ----------
    **where
        Fields of an entry, or of its setting: ``paper="stocfl", table="Table 1", participation=0.1``.

    Returns
    -------
    list of float
        In the order of the file; accuracies in percent.

    Raises
    ------
    ValueError
        If nothing matches.
    """
    found = [e["value"] for e in entries() if where.items() <= _plain(e).items()]
    require(bool(found), "where", where, "fields of at least one entry of results.yaml")
    return found


def _plain(entry: dict) -> dict:
    return {k: v for k, v in (entry | entry["setting"]).items() if not isinstance(v, dict)}


# ---------------------------------------------------------------------- what was measured
@dataclass(frozen=True)
class Measured:
    """The runs of one method of a protocol: those with the most rounds, one per seed.

    Attributes
    ----------
    runs : list of dict
        Their records.
    """

    runs: list[dict]

    @property
    def rounds(self) -> int:
        """Communication rounds of the runs."""
        return self.runs[0]["config"]["rounds"]

    def percent(self, metric: str = "accuracy") -> list[float]:
        """The final value of a metric in percent, one per seed."""
        return [100 * run["final"][metric] for run in self.runs]


def measured(protocol: str, label: str, folder: Path = records.FOLDER) -> Measured | None:
    """The records of a method in a protocol, or None if there are none."""
    runs = [r for r in records.load(protocol, folder) if r["label"] == label]
    most = max((r["config"]["rounds"] for r in runs), default=0)
    return Measured([r for r in runs if r["config"]["rounds"] == most]) if runs else None


# ---------------------------------------------------------------------- writing
def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def number(values: float | Sequence[float], sign: bool = False) -> str:
    """Two decimals, with the standard deviation over seeds where there are several."""
    spread = metrics.spread([values] if isinstance(values, float) else values)
    text = f"{spread['mean']:{'+' if sign else ''}.2f}"
    return text if spread["n"] == 1 else f"{text} ± {spread['std']:.2f}"


def difference(a: Measured | None, b: Measured | None, metric: str = "accuracy") -> str | None:
    """`a` minus `b` in percentage points, paired over their common seeds; None if either is missing."""
    if a is None or b is None:
        return None
    ours, theirs = ({r["seed"]: v for r, v in zip(m.runs, m.percent(metric), strict=True)} for m in (a, b))
    return number([ours[s] - theirs[s] for s in ours if s in theirs], sign=True)


def machines(runs: Sequence[dict]) -> str:
    """On what, for how long and from which commit the runs were made."""
    where = sorted({r["provenance"]["card"] or r["provenance"]["machine"]["processor"] for r in runs})
    made = sorted({r["provenance"]["commit"] or "unknown" for r in runs})
    minutes = sum(r["provenance"]["seconds"] for r in runs) / 60
    kind = ", ".join(sorted({r["config"]["dtype"] for r in runs}))
    return (f"{len(runs)} runs on {', '.join(where)}, {kind}, {minutes:.0f} minutes in all; "
            f"commit {', '.join(made)}.")  # fmt: skip


def save(figure: Figure, name: str, alt: str, out: Path) -> str:
    """Save a figure and return the Markdown that shows it."""
    figure.savefig(out / f"{name}.png", dpi=150, metadata={"Software": None})
    return f"![{alt}](_generated/{name}.png)\n"


# ---------------------------------------------------------------------- StoCFL
TABLE1 = "stocfl_rotmnist_4800_r10"
FIGURE3 = {"Pathological": 4, "Rotated": 4, "Shifted": 4, "Hybrid": 2}  # setting -> true clusters, Section 4.1
# row, its column in the printed table, label of our run, metric: what we set beside each printed number
ROWS = [
    ("FedAvg", {"method": "FedAvg"}, "fedavg", "accuracy"),
    ("FedAvg, chained", {"method": "FedAvg"}, "stocfl-chained", "global_accuracy"),
    ("FedProx", {"method": "FedProx"}, "fedprox", "accuracy"),
    ("Ditto", {"method": "Ditto"}, "ditto", "personal_accuracy"),
    *((f"IFCA, K = {k}", {"method": "IFCA", "K_assumed": k}, f"ifca{k}", "accuracy") for k in (2, 4, 6)),
    ("StoCFL, parallel", {"method": "StoCFL"}, "stocfl", "accuracy"),
    ("StoCFL, chained", {"method": "StoCFL"}, "stocfl-chained", "accuracy"),
    ("oracle clusters", None, "oracle", "accuracy"),
]
CELL = {"paper": "stocfl", "table": "Table 1", "n_clients": 4800, "participation": 0.1}


def stocfl_claims(folder: Path) -> str:
    """The claims that the StoCFL chapter tests, each with its printed numbers and where it stands."""
    rotated, tab3 = {"paper": "stocfl", "dataset": "Rotated MNIST"}, {"paper": "stocfl", "table": "Table 3"}
    parallel, chained, ifca, fedavg = (
        measured(TABLE1, label, folder) for label in ("stocfl", "stocfl-chained", "ifca4", "fedavg")
    )

    def preliminary(*parts: tuple[str, str | None]) -> str:
        found = [f"{name} {value}" for name, value in parts if value is not None]
        return "preliminary: " + "; ".join(found) if found else "not tested yet"

    def gap(a: dict, b: dict, **where) -> list[float]:
        return [x - y for x, y in zip(printed(**where, **a), printed(**where, **b), strict=True)]

    stocfl, ifca4 = {"method": "StoCFL"}, {"method": "IFCA", "K_assumed": 4}
    first = gap(stocfl, ifca4, **CELL)[0]
    over = gap({"method": "FedAvg"}, ifca4, table="Table 1", **rotated)
    pull = [gap({"lambda": 0.05}, {"lambda": 0}, **tab3, method="StoCFL", dataset=f"{name} MNIST")[0]
            for name in ("Rotated", "Shifted")]  # fmt: skip
    columns = len(printed(table="Table 1", paper="stocfl", method="StoCFL"))
    counts = [(name, k, measured(f"stocfl_fcc_{name.lower()}", "stocfl", folder)) for name, k in FIGURE3.items()]
    seen, unseen = (printed(paper="stocfl", table="Table 4", method="StoCFL",
                            metric=f"test_accuracy_percent, {who} clients")[0]
                    for who in ("participating", "unparticipating"))  # fmt: skip
    taus = printed(paper="stocfl", table="Table 2", method="StoCFL")
    shifted = printed(paper="stocfl", dataset="Shifted MNIST", table="Table 6 (captioned Figure 6)",
                      method="FedAvg")[0]  # fmt: skip
    rows = [
        (f"StoCFL beats IFCA with the right K by {first:.2f} points (Rotated MNIST, 4800 clients, 10%)",
         preliminary(("parallel", difference(parallel, ifca)), ("chained", difference(chained, ifca)))),
        (f"StoCFL is best in all {columns} columns of Table 1", "not tested yet"),
        (f"one global model beats IFCA by {min(over):.2f} to {max(over):.2f} points on Rotated MNIST",
         preliminary(("FedAvg", difference(fedavg, ifca)))),
        (f"λ = 0.05 beats λ = 0 by {pull[0]:.2f} (Rotated) and {pull[1]:.2f} (Shifted)", "not tested yet"),
        ("the number of clusters is found: " + ", ".join(f"{k} {name}" for name, k in FIGURE3.items()),
         preliminary(*((name, None if m is None else str(m.runs[0]["final"]["clusters"]))
                       for name, _, m in counts))),
        (f"unseen writers are served as well as seen ones ({unseen:.2f} against {seen:.2f})", "not tested yet"),
        (f"on FEMNIST τ hardly matters ({min(taus):.2f} to {max(taus):.2f})", "not tested yet"),
        (f"no single model exceeds 25% on Shifted MNIST ({shifted:.2f})", "not tested yet"),
        ("low τ groups by label, high τ by label and rotation (Figure 8)", "not tested yet"),
    ]  # fmt: skip
    return table(["claim, with the paper's numbers [%]", "verdict"], rows)


def stocfl_results(folder: Path, out: Path) -> str:
    """Table 1's first column and Figure 3's counts on the real data, measured beside printed."""
    rows, runs, curves = [], [], {}
    for name, where, label, metric in ROWS:
        target = printed(**CELL, **where)[0] if where else None
        beside = "–" if target is None else number(target)
        found = measured(TABLE1, label, folder)
        if found is None:
            rows.append((name, beside, MISSING, "–", "–", "–"))
            continue
        values = found.percent(metric)
        gap = "–" if target is None else number([v - target for v in values], sign=True)
        rows.append((name, beside, number(values), gap, str(len(values)), str(found.rounds)))
        runs += [r for r in found.runs if r not in runs]
        series = [pd.DataFrame(r["rounds"]) for r in found.runs]
        if metric in series[0] and series[0][metric].notna().sum() > 1:
            curves[name] = pd.concat([s.assign(**{"accuracy [%]": 100 * s[metric]}) for s in series])
    rounds = printed_rounds(**CELL)
    text = [
        "### Table 1, first column: Rotated MNIST, 4800 clients of 50 images, 10% a round\n",
        f"**Preliminary.** The printed numbers are after {rounds} rounds and means of five seeds; ours are after "
        "the rounds and seeds stated. They show who leads whom, and decide no claim. Accuracy [%] on the "
        "class-balanced test set of each client's true cluster, mean over all clients.\n",
        table(["method", "printed", "measured", "difference", "seeds", "rounds"], rows),
        "“FedAvg, chained” is the global model ω of the chained run: FedAvg whose clients hand the model on.\n",
        (machines(runs) if runs else f"All of it is {MISSING}.") + "\n",
    ]
    if curves:
        figure = plots.learning_curves(curves, "accuracy [%]")
        text.append(save(figure, "stocfl_curves", "Accuracy over the rounds on Rotated MNIST with 4800 clients: "
                         + ", ".join(f"{n} ends at {c['accuracy [%]'].dropna().iloc[-1]:.1f}%"
                                     for n, c in curves.items()), out))  # fmt: skip
    return "\n".join(text) + "\n" + _counts(folder, out)


def printed_rounds(**where) -> int:
    """The number of rounds after which the matching numbers were printed."""
    return next(e["setting"]["rounds"] for e in entries() if where.items() <= _plain(e).items())


def _counts(folder: Path, out: Path) -> str:
    """Figure 3 on the real data: how many clusters, round by round, without any training."""
    found = {name: measured(f"stocfl_fcc_{name.lower()}", "stocfl", folder) for name in FIGURE3}
    rows = []
    for name, truth in FIGURE3.items():
        if found[name] is None:
            rows.append((name, str(truth), MISSING, "–", "–", "–"))
            continue
        run = found[name].runs[0]
        final, unseen = run["final"], _unseen(run, -1)
        rows.append((name, str(truth), str(final["clusters"]), f"{final['ari']:.2f}", str(unseen),
                     str(found[name].rounds)))  # fmt: skip
    text = [
        "### Figure 3: clusters found on the real data\n",
        "Clustering alone, nobody trains; 10% of the clients a round, τ = 0.5 (the paper does not print the τ of "
        "this figure). The paper counts a client that was never sampled as a cluster of its own; we count the "
        "clusters among fingerprinted clients, and the others apart. **Preliminary**: one seed.\n",
        table(["MNIST", "true", "clusters", "ARI", "never sampled", "rounds"], rows),
    ]
    found = {name: m for name, m in found.items() if m is not None}
    if found:
        runs = [m.runs[0] for m in found.values()]
        text += [machines(runs) + "\n", save(_count_figure(found), "stocfl_counts", _count_alt(found), out)]
    return "\n".join(text)


def _unseen(run: dict, row: int) -> int:
    return run["config"]["federation"]["clients"] - sum(run["rounds"][row]["sizes"])


def _count_figure(found: dict[str, Measured]) -> Figure:
    figure, grid = plt.subplots(2, len(found), figsize=(2.4 * len(found), 4.2), sharex=True, squeeze=False)
    plt.close(figure)
    for column, (name, m) in zip(grid.T, found.items(), strict=True):
        run = m.runs[0]
        rounds = [row["round"] for row in run["rounds"][1:]]
        clusters = [row["clusters"] for row in run["rounds"][1:]]
        printed_way = [k + _unseen(run, t) for t, k in zip(rounds, clusters, strict=True)]
        column[0].plot(rounds, printed_way, "--", color="C1", label="as the paper counts")
        column[0].plot(rounds, clusters, color="C0", label="among clients seen")
        column[0].set(yscale="log", title=name)
        column[1].plot(rounds, [row["objective"] for row in run["rounds"][1:]], color="C2")
        column[1].set(xlabel="round")
        column[1].xaxis.set_major_locator(MaxNLocator(4, integer=True))
    grid[0, 0].set_ylabel("clusters")
    grid[1, 0].set_ylabel("objective (2)")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _count_alt(found: dict[str, Measured]) -> str:
    ends = ", ".join(f"{m.runs[0]['final']['clusters']} on {name}" for name, m in found.items())
    return ("Two rows of panels, one column per data set, over the rounds. Above, the number of clusters: the "
            f"paper's count falls from hundreds as clients are sampled; among the clients seen it ends at {ends}. "
            "Below, the clustering objective, flat after the first few rounds.")  # fmt: skip


# ---------------------------------------------------------------------- FedCG
CELEBA = "fedcg_celeba_sample"
# columns of CelebA's attributes (in alphabetical order) whose combinations are the domains of Table 3
ATTRIBUTES = {"attractive": 2, "heavy makeup": 18, "high cheekbones": 19, "mouth slightly open": 21,
              "wavy hair": 33}  # fmt: skip
# row, which printed number stands beside it, label of our run
FEDCG_ROWS = [
    ("FedAvg", "FedAvg", "fedavg"),
    ("FedCG, D = 4", "FedCG", "fedcg"),
    ("FedCG, D = 1", None, "fedcg-one"),
]


def fedcg_claims(folder: Path) -> str:
    """The claims that the FedCG chapter tests, each with its printed numbers and where it stands."""

    def table4(**where) -> list[float]:
        return printed(paper="fedcg", table="Table 4", **where)

    def gap(a: list[float], b: list[float]) -> list[float]:
        return [x - y for x, y in zip(a, b, strict=True)]

    def signed(values: list[float]) -> str:
        return ", ".join(f"{v:+.2f}" for v in values)

    best = {name: [printed(paper="fedcg", table="Table 5", dataset=name, method=m)[0] for m in ("FedCG", "FedAvg")]
            for name in ("CelebA", "FEMNIST")}  # fmt: skip
    leaf = printed(paper="fedcg", table="Table 2", dataset="CelebA", framework="TensorFlow (LEAF)")[0]
    every = {"fedcg_layers": "all", "clusters": "Clf"}
    hard, drawn, soft = (table4(**every, A_init=a, soft_domains=s)
                         for a, s in (("eye", False), ("rand", False), ("eye", True)))  # fmt: skip
    last = table4(fedcg_layers="last")[: len(soft)]
    kmeans = table4(clusters="K-means")
    table3 = {m: max(printed(paper="fedcg", table="Table 3", method=m)) for m in ("FedCG", "GCN")}
    ours = difference(measured(CELEBA, "fedcg", folder), measured(CELEBA, "fedavg", folder))
    control = difference(measured(CELEBA, "fedcg", folder), measured(CELEBA, "fedcg-one", folder))
    found = measured(CELEBA, "fedcg", folder)
    lam = None if found is None else f"{found.runs[0]['final']['lam'][-1]:.2f}"

    def preliminary(*parts: tuple[str, str | None]) -> str:
        known = [f"{name} {value}" for name, value in parts if value is not None]
        return "preliminary: " + "; ".join(known) if known else "not tested yet"

    rows = [
        (f"FedCG beats FedAvg by {best['CelebA'][0] - best['CelebA'][1]:.2f} points on CelebA "
         f"({best['CelebA'][0]:.2f}) and {best['FEMNIST'][0] - best['FEMNIST'][1]:.2f} on FEMNIST "
         f"({best['FEMNIST'][0]:.2f})", preliminary(("sample of CelebA", ours), ("against D = 1", control))),
        (f"…but LEAF's own FedAvg, which the paper prints too, has {leaf:.2f} on CelebA, above FedCG",
         "printed numbers alone"),
        (f"domains by classifier minus domains by k-means, D = 2, 3, 4: {signed(gap(hard, kmeans))}",
         "not tested on faces"),
        (f"the start of A does not matter (random minus identity, D = 2, 3, 4: {signed(gap(drawn, hard))})",
         "not tested on faces"),
        (f"soft domains do as well as hard ones (D = 2, 3, 4: {signed(gap(soft, hard))})",
         "not tested on faces"),
        (f"the last layer suffices (last minus all, D = 2, 3, 4: {signed(gap(last, soft))})",
         "not tested on faces"),
        (f"domain-specific weights work best as residuals ({table3['FedCG']:.2f} against {table3['GCN']:.2f})",
         "not tested on faces"),
        ("λ grows with heterogeneity: 0.3 in the end on CelebA, 2.1 on FEMNIST",
         preliminary(("sample of CelebA", lam))),
    ]  # fmt: skip
    return table(["claim, with the paper's numbers [%]", "verdict"], rows)


def fedcg_results(folder: Path, out: Path) -> str:
    """Table 5's CelebA rows on the sample of faces, measured beside printed, with what was sent."""
    rows, runs, curves, basis = [], [], {}, None
    for name, method, label in FEDCG_ROWS:
        target = None if method is None else printed(paper="fedcg", table="Table 5", dataset="CelebA",
                                                     method=method)[0]  # fmt: skip
        beside = "–" if target is None else number(target)
        found = measured(CELEBA, label, folder)
        if found is None:
            rows.append((name, beside, MISSING, "–", "–", "–", "–", "–"))
            continue
        run = found.runs[0]
        final, values = run["final"], found.percent()
        sent = run["rounds"][1]["down"] + run["rounds"][1]["up"]
        basis = sent if label == "fedavg" else basis
        times = "–" if basis is None else f"{sent / basis:.1f}"
        share = f"{100 * final['largest_share']:.1f}" if "largest_share" in final else "–"
        lam = f"{final['lam'][-1]:.2f}" if "lam" in final else "–"
        gap = "–" if target is None else number([v - target for v in values], sign=True)
        rows.append((name, beside, number(values), gap, share, lam, times, str(found.rounds)))
        runs += found.runs
        series = [pd.DataFrame(r["rounds"]) for r in found.runs]
        curves[name] = pd.concat([s.assign(**{"accuracy [%]": 100 * s["accuracy"]}) for s in series])
    text = [
        "### Table 5, CelebA, on a sample of 1,171 people\n",
        "**Preliminary.** As many people train as in the paper, but with 3.5 pictures on average instead of 21, a "
        "larger learning rate, and a W that is shared by the filters. Accuracy [%] on the pictures of a fifth of "
        "the people, none of whom trains; one seed. *Largest*: the largest domain's share of the last round's "
        "training images [%]. *Sent*: traffic of round 1, both ways, in units of FedAvg's.\n",
        table(["method", "printed", "measured", "difference", "largest", "λ", "sent", "rounds"], rows),
        (machines(runs) if runs else f"All of it is {MISSING}.") + "\n",
    ]
    if curves:
        figure = plots.learning_curves(curves, "accuracy [%]")
        text.append(save(figure, "fedcg_curves", "Accuracy over the rounds on the sample of CelebA: "
                         + ", ".join(f"{n} ends at {c['accuracy [%]'].dropna().iloc[-1]:.1f}%"
                                     for n, c in curves.items()), out))  # fmt: skip
    return "\n".join(text) + "\n" + _leak(folder)


def attributes_alone(folder: Path = records.FOLDER) -> Path:
    """Measure how well Table 3's domains tell a smile without a pixel, and store it for the chapter.

    A domain's answer is its more frequent label among the people who train; it is scored on other people.
    """
    faces = images.load("celeba")
    fed = federation.by_user(faces, test="users", test_users=234, attributes=list(ATTRIBUTES.values()))
    votes = torch.bincount(2 * fed.train.tag + fed.train.y, minlength=64).view(32, 2)
    right = votes.argmax(1)[fed.test.tag] == fed.test.y
    both = {name: torch.stack([faces.extra["attributes"][:, k].double(), faces.y.double()])
            for name, k in ATTRIBUTES.items()}  # fmt: skip
    found = {
        "pictures": len(faces),
        "tested": len(right),
        "accuracy": round(float(right.double().mean()), 6),
        "correlation": {name: round(float(torch.corrcoef(pair)[0, 1]), 6) for name, pair in both.items()},
    }
    target = folder / "fedcg_attributes.json"
    target.write_text(json.dumps(found, indent=1) + "\n")
    return target


def _leak(folder: Path) -> str:
    """What Table 3's domains say about the label."""
    file = folder / "fedcg_attributes.json"
    text = ["### Table 3's domains and the label\n"]
    if not file.exists():
        return "\n".join([*text, f"How well the domains alone predict the label is {MISSING}.\n"])
    found = json.loads(file.read_text())
    best = max(printed(paper="fedcg", table="Table 3"))
    text += [
        "Correlation with *smiling* of the five attributes whose combinations are the paper's domains, chosen for "
        f"\"a low correlation with the target feature\", on our {found['pictures']} pictures:\n",
        table(list(found["correlation"]), [[f"{v:+.2f}" for v in found["correlation"].values()]]),
        "A table with one answer for each of the 32 domains, made from the people who train, is right on "
        f"{100 * found['accuracy']:.1f}% of {found['tested']} pictures of other people, without a pixel. The best "
        f"row of Table 3, told the domain at test, has {best:.2f}%.\n",
    ]
    return "\n".join(text)


def main(folder: Path = records.FOLDER, out: Path = BOOK / "_generated") -> int:
    """Write everything that chapters include."""
    plots.use_style()
    out.mkdir(parents=True, exist_ok=True)
    (out / "stocfl_claims.md").write_text(stocfl_claims(folder))
    (out / "stocfl_results.md").write_text(stocfl_results(folder, out))
    (out / "fedcg_claims.md").write_text(fedcg_claims(folder))
    (out / "fedcg_results.md").write_text(fedcg_results(folder, out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
