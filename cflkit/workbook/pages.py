"""The book's pages of results, written from data whenever the book is built.

``python -m cflkit.workbook.pages`` writes what chapters include (``book/_generated``): for each paper its claims
with their verdicts and its tables, measured beside printed; the ledger of everything; and how fast the engine is.
What has no record yet reads "not yet measured".
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cflkit.data import builders as federation
from cflkit.data import images
from cflkit.engine import metrics
from cflkit.workbook import ledger, performance, places, plots, protocols, records
from cflkit.workbook.ledger import Measured, Row, measured, number, printed

OUT = places.BOOK / "_generated"
MISSING = "not yet measured"
CHAPTERS = {"mdicfl": "MD-ICFL", "fesem": "FeSEM", "stocfl": "StoCFL", "lcfed": "LCFed", "fedcg": "FedCG"}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def save(figure: Figure, name: str, alt: str, out: Path) -> str:
    """Save a figure and return the Markdown that shows it."""
    figure.savefig(out / f"{name}.png", dpi=150, metadata={"Software": None})
    return f"![{alt}](_generated/{name}.png)\n"


def machines(runs: Sequence[dict]) -> str:
    """On what, for how long and from which commit runs were made."""
    where = sorted({r["provenance"]["card"] or r["provenance"]["machine"]["processor"] for r in runs})
    made = sorted({r["provenance"]["commit"] or "unknown" for r in runs})
    minutes = sum(r["provenance"]["seconds"] for r in runs) / 60
    kind = ", ".join(sorted({r["config"]["dtype"] for r in runs}))
    return (f"{len(runs)} run{'s' * (len(runs) > 1)} on {', '.join(where)}, {kind}, {minutes:.0f} minutes in all; "
            f"commit {', '.join(made)}.")  # fmt: skip


# ---------------------------------------------------------------------- claims
def claims(paper: str, folder: Path) -> str:
    """A paper's claims, each with its printed numbers, its verdict and what was measured."""
    lines = []
    for claim in ledger.claims()[paper]:
        verdict = ledger.judge(paper, claim, folder)
        values: dict[str, list[str]] = {}
        for part in verdict.parts:
            if part.passed is not None:
                values.setdefault(part.name, []).append(part.value)
        known = "; ".join(f"{name} {_from_to(found)}" for name, found in values.items())
        why = ". ".join(filter(None, (known, verdict.note)))
        lines.append((ledger.says(paper, claim), f"**{verdict.word}**", why))
    return table(["claim, with the paper's numbers", "verdict", "measured"], lines)


def _from_to(values: Sequence[str]) -> str:
    """The one value, or the least and the greatest of several printed ones."""
    return values[0] if len(values) == 1 else f"{min(values, key=float)} to {max(values, key=float)}"


# ---------------------------------------------------------------------- tables
def results(paper: str, folder: Path, out: Path) -> str:
    """All tables of a paper, measured beside printed."""
    return "\n".join(_table(name, folder, out) for name, t in ledger.tables().items() if t["paper"] == paper)


def _table(name: str, folder: Path, out: Path) -> str:
    spec, rows = ledger.tables()[name], list(ledger.rows(name, folder))
    skewed = any(_own(row) for row in rows)
    also = spec.get("also", [])
    extra = [*(["own label mix"] if skewed else []), *(name.replace("ari", "ARI") for name in also)]
    header = ["method", "printed", "measured", *extra, "difference", "seeds", "rounds", ""]
    lines = [_line(row, spec["tolerance"], skewed, also) for row in rows]
    runs = list({(r["label"], r["seed"]): r for row in rows if row.measured for r in row.measured.runs}.values())
    few = any(len(row.measured.runs) < spec["seeds"] for row in rows if row.measured)
    early = f"**Preliminary**: fewer seeds than the {spec['seeds']} that the table wants." if few else ""
    made = machines(runs) if runs else f"All of it is {MISSING}."
    again = f"Run what is missing by `cflkit reproduce {name}`." if ledger.missing(name, folder=folder) else ""
    text = [f"(table-{name})=\n### {spec['title']}\n", f"{early} {spec['note']}".strip() + "\n",
            table(header, lines), f"{made} {again}".strip() + "\n"]  # fmt: skip
    text += [_trace(spec["protocol"], rows)] if runs else []
    text += [_curves(name, rows, out)] if len(runs) > 1 and spec["metric"] == "accuracy" else []
    return "\n".join(text)


def _trace(protocol: str, rows: Sequence[Row]) -> str:
    """Every seed's number with its run record, and how to run it again."""
    lines = []
    for row in rows:
        if row.measured is None:
            continue
        files = {r["seed"]: f"results/{protocol}/{records.name(r)}.json" for r in row.measured.runs}
        values = row.measured.values(row.metric)
        links = [f"{seed}: {{download}}`{value:.2f} <{files[seed]}>`" for seed, value in values.items()]
        lines += [(row.name, f"`{row.label}`", ", ".join(links))] if links else []
    return "\n".join([
        ":::{admonition} Every seed, with its run\n:class: dropdown\n",
        table(["method", "label", "seed: number, and the record behind it"], lines),
        f"To run one again, from nothing: `cflkit run {protocol} LABEL --seed SEED --out again`.\n:::\n",
    ])  # fmt: skip


def _own(row: Row) -> dict[int, float]:
    """The score on clients' own label mix, where it was taken besides the class-balanced one."""
    if row.measured is None or not row.metric.endswith("accuracy"):
        return {}
    return row.measured.values(row.metric.replace("accuracy", "own_accuracy"))


def _line(row: Row, tolerance: float, skewed: bool, also: Sequence[str]) -> list[str]:
    beside = "–" if row.printed is None else f"{row.printed:.2f}"
    values = list(row.measured.values(row.metric).values()) if row.measured else []
    if not values:
        return [row.name, beside, MISSING, *(["–"] * (skewed + len(also))), "–", "–", "–", ""]
    own = list(_own(row).values())
    model = "personal_" if row.metric.startswith("personal_") else ""  # of whichever model the row scores
    found = [row.measured.percent(model + metric) for metric in also]
    others = [number(percent) if percent else "–" for percent in found]
    gap = None if row.printed is None else [v - row.printed for v in values]
    word = "" if gap is None else "agrees" if abs(sum(gap)) / len(gap) <= tolerance else "differs"
    mix, off = number(own) if own else "–", "–" if gap is None else number(gap, sign=True)
    size = str(len(values)), str(row.measured.rounds)
    return [row.name, beside, number(values), *([mix] * skewed), *others, off, *size, word]


def _curves(name: str, rows: Sequence[Row], out: Path) -> str:
    """Learning curves of a table's rows, where there are several points."""
    curves = {}
    for row in rows:
        series = [pd.DataFrame(r["rounds"]) for r in row.measured.runs] if row.measured else []
        if series and row.metric in series[0] and series[0][row.metric].notna().sum() > 1:
            curves[row.name] = pd.concat([s.assign(**{"accuracy [%]": 100 * s[row.metric]}) for s in series])
    if not curves:
        return ""
    ends = ", ".join(f"{n} ends at {c['accuracy [%]'].dropna().iloc[-1]:.1f}%" for n, c in curves.items())
    figure = plots.learning_curves(curves, "accuracy [%]")
    drawn = save(figure, name, f"Accuracy over the rounds: {ends}", out)
    rest = [row.name for row in rows if row.measured and row.name not in curves]
    return drawn + (f"\nScored after the last round alone, so not drawn: {', '.join(rest)}.\n" if rest else "")


# ---------------------------------------------------------------------- the ledger
def everything(folder: Path) -> str:
    """Every claim with its verdict and the runs behind it; every table with what it lacks."""
    words, sections = [], []
    for paper, title in CHAPTERS.items():
        lines = []
        for claim in ledger.claims()[paper]:
            verdict = ledger.judge(paper, claim, folder)
            words.append(verdict.word)
            reason = f"**{verdict.word}**" + (f"<br>{verdict.note}" if verdict.note else "")
            runs = [run for part in verdict.parts for run in part.runs]
            lines.append((ledger.says(paper, claim), reason, _behind(runs)))
        sections += [f"### [{title}]({paper}.ipynb)\n", table(["claim", "verdict", "runs behind it"], lines)]
    counts = pd.Series(words).value_counts()
    states = []
    for name, spec in ledger.tables().items():
        lacking = ledger.missing(name, folder=folder)
        labels = {row["label"] for row in spec["rows"].values()}
        states.append((f"[{spec['title']}](table-{name})", f"{len(labels) * spec['seeds'] - len(lacking)} of "
                       f"{len(labels) * spec['seeds']}", f"{sum(m.minutes for m in lacking) / 60:.1f}",
                       f"{sum(m.gpu_minutes for m in lacking):.0f}", f"`cflkit reproduce {name}`"))  # fmt: skip
    return "\n".join([
        "## Claims\n",
        f"{len(words)} claims: " + ", ".join(f"{counts.get(w, 0)} {w}" for w in
                                             (ledger.HOLDS, ledger.PARTLY, ledger.FAILS, ledger.UNTESTED)) + ".\n",
        *sections,
        "## Tables\n",
        table(["table", "runs", "missing: hours of a CPU core", "minutes of an H200", "to run it"], states),
    ])  # fmt: skip


def _behind(runs: Sequence[dict]) -> str:
    """The records behind a verdict, by protocol, with dates and commits."""
    lines = []
    for protocol in sorted({r["protocol"] for r in runs}):
        mine = [r for r in runs if r["protocol"] == protocol]
        files = ", ".join(sorted({f"{r['label']}-s{r['seed']}" for r in mine}))
        made = ", ".join(sorted({f"{r['provenance']['date']} {r['provenance']['commit']}" for r in mine}))
        lines.append(f"{protocol}: {files} ({made})")
    return "<br>".join(lines) or "–"


# ---------------------------------------------------------------------- StoCFL, Figure 3
FIGURE3 = {"Pathological": 4, "Rotated": 4, "Shifted": 4, "Hybrid": 2}  # setting -> true clusters, Section 4.1


def cluster_counts(folder: Path, out: Path) -> str:
    """Figure 3 on the real data: how many clusters, round by round, without any training."""
    found = {name: measured(f"stocfl_fcc_{name.lower()}", "stocfl", folder) for name in FIGURE3}
    rows = []
    for name, truth in FIGURE3.items():
        if found[name] is None:
            rows.append((name, str(truth), MISSING, "–", "–", "–", "–"))
            continue
        run = found[name].runs[0]
        counts = ", ".join(str(r["final"]["clusters"]) for r in found[name].runs)
        rows.append((name, str(truth), counts, f"{run['final']['ari']:.2f}", str(_unseen(run, -1)),
                     str(len(found[name].runs)), str(found[name].rounds)))  # fmt: skip
    text = [
        "### Figure 3: clusters found on the real data\n",
        "Clustering alone, nobody trains; 10% of the clients a round, τ = 0.5 (the paper does not print the τ of "
        "this figure). The paper counts a client that was never sampled as a cluster of its own; we count the "
        "clusters among fingerprinted clients, and the others apart. Curves and Rand index: the first seed.\n",
        table(["MNIST", "true", "clusters", "ARI", "never sampled", "seeds", "rounds"], rows),
    ]
    found = {name: m for name, m in found.items() if m is not None}
    if found:
        runs = [run for m in found.values() for run in m.runs]
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


# ---------------------------------------------------------------------- StoCFL, what decides its numbers
PULLS = {"Pathological": "stocfl_lambda_pathological", "Rotated": "stocfl_lambda_rotated",
         "Shifted": "stocfl_lambda_shifted", "Hybrid": "stocfl_lambda_hybrid",
         "Rotated, 4800 clients": "stocfl_rotmnist_4800_r10"}  # fmt: skip
UPDATES = {"parallel": ("o", "C0"), "chained": ("s", "C1")}  # how the global model is trained -> marker, colour
AXES = {"accuracy": "class-balanced", "own_accuracy": "own label mix", "global_accuracy": "global model"}


def pulls(folder: Path, out: Path) -> str:
    """What the pull does, by how the global model is trained, on every score."""
    found = {name: points for name, p in PULLS.items() if (points := _by_pull(p, folder))}
    text = ["### What the pull is worth\n"]
    if not found:
        return "\n".join([*text, f"{MISSING.capitalize()}.\n"])
    text += [
        "All of the tables above in which only the pull λ and the global update differ: means over seeds "
        "with their standard deviation. With no pull the cluster models do not see the global one, so both updates "
        "start from one point; the global model does not feel the pull at all.\n",
        save(_pull_figure(found), "stocfl_pulls", _pull_alt(found), out),
    ]
    return "\n".join(text)


def _by_pull(protocol: str, folder: Path) -> dict[tuple[str, float], Measured]:
    """The runs of a protocol by global update and pull."""
    found = {}
    for label, method in protocols.protocols()[protocol]["methods"].items():
        runs = measured(protocol, label, folder) if method["name"] == "stocfl" else None
        if runs is not None:
            own = method.get("global_update", "parallel")
            for update in UPDATES if method["lam"] == 0 else [own]:
                found[update, method["lam"]] = runs
    return found


def _pull_figure(found: dict[str, dict]) -> Figure:
    figure, grid = plt.subplots(
        len(AXES), len(found), figsize=(1.2 + 2.4 * len(found), 6), sharex=True, squeeze=False
    )
    plt.close(figure)
    strengths = sorted({lam for points in found.values() for _, lam in points})
    for column, (name, points) in zip(grid.T, found.items(), strict=True):
        column[0].set_title(name)
        for axes, metric in zip(column, AXES, strict=True):
            for update, (marker, colour) in UPDATES.items():
                known = {lam: m.percent(metric) for (u, lam), m in points.items() if u == update}
                known = {lam: metrics.spread(known[lam]) for lam in sorted(known) if known[lam]}
                if metric == "global_accuracy":
                    known.pop(0, None)  # one run stands for both updates there, but its global model is parallel
                where = [strengths.index(lam) for lam in known]
                axes.errorbar(where, [k["mean"] for k in known.values()], [k["std"] for k in known.values()],
                              marker=marker, color=colour, capsize=2, label=update)  # fmt: skip
        column[-1].set(xlabel="pull λ", xticks=range(len(strengths)), xticklabels=[f"{lam:g}" for lam in strengths])
    for axes, title in zip(grid[:, 0], AXES.values(), strict=True):
        axes.set_ylabel(f"{title} [%]")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _pull_alt(found: dict[str, dict]) -> str:
    ends = []
    for name, points in found.items():
        means = {key: float(np.mean(m.percent())) for key, m in points.items()}
        for update in UPDATES:
            mine = {lam: mean for (u, lam), mean in means.items() if u == update}
            if mine:
                best = max(mine, key=mine.get)
                ends.append(f"{name}, {update}: best at {best:g} with {mine[best]:.1f}%")
    return "Accuracy against the pull, a column of panels for each setting. " + "; ".join(ends)


def thresholds(folder: Path, out: Path) -> str:
    """How many clusters each threshold gives, without training."""
    found = {}
    for name in FIGURE3:
        protocol = f"stocfl_fcc_{name.lower()}"
        for label, method in protocols.protocols()[protocol]["methods"].items():
            runs = measured(protocol, label, folder) if set(method) == {"name", "tau"} else None
            if runs is not None:
                found.setdefault(name, {})[method["tau"]] = float(np.mean(list(runs.values("clusters").values())))
    if not found:
        return f"### How many clusters a threshold gives\n\n{MISSING.capitalize()}.\n"
    figure, axes = plt.subplots(figsize=(5, 3))
    plt.close(figure)
    for (name, points), marker in zip(found.items(), plots.MARKERS, strict=False):
        taus = sorted(points)
        axes.plot(taus, [points[t] for t in taus], marker=marker, label=f"{name} (true: {FIGURE3[name]})")
    axes.set(xlabel="threshold τ", ylabel="clusters", yscale="log")
    figure.legend(loc="outside right upper")
    said = "; ".join(f"{name}: " + ", ".join(f"{k:g} at {t:g}" for t, k in sorted(points.items()))
                     for name, points in found.items())  # fmt: skip
    return "\n".join(
        ["### How many clusters a threshold gives\n", save(figure, "stocfl_taus", f"Clusters found: {said}", out)]
    )


# ---------------------------------------------------------------------- FedCG, what its domains cost and give away
# columns of CelebA's attributes (in alphabetical order) whose combinations are the domains of Table 3
ATTRIBUTES = {"attractive": 2, "heavy makeup": 18, "high cheekbones": 19, "mouth slightly open": 21,
              "wavy hair": 33}  # fmt: skip


def domains(folder: Path) -> str:
    """The largest domain's share, the residuals' weight and the traffic of the CelebA runs."""
    lines, basis = [], measured("fedcg_celeba_sample", "fedavg", folder)
    for row in ledger.rows("fedcg-table5-celeba", folder):
        if row.measured is None or row.label == "fedavg":
            continue
        run = row.measured.runs[0]
        times = f"{_sent(run) / _sent(basis.runs[0]):.1f}" if basis else "–"
        largest, lam = run["final"]["largest_share"], run["final"]["lam"][-1]
        lines.append((row.name, f"{100 * largest:.1f}", f"{lam:.2f}", times))
    if not lines:
        return ""
    return "\n".join([
        "*Largest*: the largest domain's share of the last round's training images [%]; λ: the weight of the "
        "residuals in the end; *sent*: traffic of round 1, both ways, in units of FedAvg's.\n",
        table(["method", "largest", "λ", "sent"], lines),
    ])  # fmt: skip


def _sent(run: dict) -> int:
    """Floats of round 1, both ways."""
    return run["rounds"][1]["down"] + run["rounds"][1]["up"]


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


def leak(folder: Path) -> str:
    """What Table 3's domains say about the label."""
    file = folder / "fedcg_attributes.json"
    text = ["### Table 3's domains and the label\n"]
    if not file.exists():
        return "\n".join([*text, f"How well the domains alone predict the label is {MISSING}.\n"])
    found = json.loads(file.read_text())
    best = max(printed(paper="fedcg", table="Table 3"))
    text += [
        "Correlation with *smiling* of the five attributes whose combinations are the paper's domains, chosen for "
        f'"a low correlation with the target feature", on our {found["pictures"]} pictures:\n',
        table(list(found["correlation"]), [[f"{v:+.2f}" for v in found["correlation"].values()]]),
        "A table with one answer for each of the 32 domains, made from the people who train, is right on "
        f"{100 * found['accuracy']:.1f}% of {found['tested']} pictures of other people, without a pixel. The best "
        f"row of Table 3, told the domain at test, has {best:.2f}%.\n",
    ]
    return "\n".join(text)


# ---------------------------------------------------------------------- while the book is built
def entitle(app, name: str, source: list[str]) -> None:
    """Put the verdict into a chapter's title, which starts with ``[Re]`` (Sphinx's event "source-read")."""
    if (paper := Path(name).name) in CHAPTERS:
        source[0] = source[0].replace("# [Re] ", f"# {ledger.mark(paper)} ", 1)


def setup(app) -> dict:
    """Let Sphinx call :func:`entitle`."""
    app.connect("source-read", entitle)
    return {"parallel_read_safe": True}


def main(folder: Path = records.FOLDER, out: Path = OUT) -> int:
    """Write everything that chapters include."""
    plots.use_style()
    out.mkdir(parents=True, exist_ok=True)
    for paper in CHAPTERS:
        (out / f"{paper}_claims.md").write_text(claims(paper, folder))
        text = results(paper, folder, out)
        if paper == "stocfl":
            text += "\n" + "\n".join(part(folder, out) for part in (pulls, cluster_counts, thresholds))
        text += "\n" + domains(folder) + "\n" + leak(folder) if paper == "fedcg" else ""
        (out / f"{paper}_results.md").write_text(text)
    (out / "ledger.md").write_text(everything(folder))
    performance.write(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
