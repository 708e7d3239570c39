"""The comparison of all methods on equal terms: what its page shows, from the records of the common protocols."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from cflkit.engine import metrics
from cflkit.methods import METHODS as BY_NAME
from cflkit.workbook import canvas, protocols, records
from cflkit.workbook.measured import Measured, measured, whole

TUNED = "common_rot_tune"
TUNED_LATE = {  # what ran before its settings were tried, and the row of common_rot_why that has the best of them
    "fesem": "fesem-pull", "mdicfl-1": "mdicfl-1-prior", "mdicfl-2": "mdicfl-2-prior", "fedcg": "fedcg-period",
}  # fmt: skip
CLUSTERS = 4
BYTES = 4  # of a number that is sent
SETTLING = 5  # rounds after which a client that moves is said to move late
REFERENCES = ("fedavg", "local", "oracle")  # what every method is set against, seed by seed


@dataclass(frozen=True)
class Method:
    """A row of the comparison.

    Attributes
    ----------
    label, name : str
        In the protocols, and on the page.
    looks_at, when, serves : str
        What the server groups clients by, when it does so, and what a client is served with.
    model : {"", "personal", "global"}
        What the names of that model's scores begin with; a cluster's model has plain names.
    kind : {"reference", "one model", "personal", "clusters"}
        What family it is of.
    of : str
        For a row that scores another model of a method's runs: that method's label in the protocols.
    """

    label: str
    name: str
    looks_at: str
    when: str
    serves: str
    model: str = ""
    kind: str = "clusters"
    of: str = ""

    @property
    def runs(self) -> str:
        """Label of its runs in the protocols."""
        return self.of or self.label

    def score(self, metric: str) -> str:
        """Name that a metric of its model has in a record."""
        return f"{self.model}_{metric}" if self.model else metric


METHODS = (
    Method("oracle", "oracle clusters", "the true clusters", "given", "its cluster's model", kind="reference"),
    Method("local", "local", "nothing", "never", "its own model", "personal", "reference"),
    Method("fedavg", "FedAvg", "nothing", "never", "the global model", kind="one model"),
    Method("fedavg-chained", "FedAvg, chained", "nothing", "never", "the global model, handed from one to the next",
           "global", "one model", of="stocfl-chained"),
    Method("fedprox", "FedProx", "nothing", "never", "the global model", kind="one model"),
    Method("ditto", "Ditto", "nothing", "never", "its own model, pulled to the global one", "personal", "personal"),
    Method("fedper", "FedPer", "nothing", "never", "shared layers, its own last layer", "personal", "personal"),
    Method("ifca", "IFCA", "the loss of each cluster model", "every round, at the client", "its cluster's model"),
    Method("cfl", "Sattler's CFL", "cosines of updates", "when training stalls", "its cluster's model"),
    Method("fedgroup", "FedGroup", "cosines of first updates", "once, before training", "its cluster's model"),
    Method("mdicfl-1", "MD-ICFL, back-search", "outputs on made-up images", "every round", "its cluster's model"),
    Method("mdicfl-2", "MD-ICFL, generator", "outputs on made-up images", "every round", "its cluster's model"),
    Method("fesem", "FeSEM", "distance of weights", "every round", "its cluster's model"),
    Method("stocfl", "StoCFL, parallel", "one gradient at a fixed model", "when a client first comes",
           "its cluster's model"),
    Method("stocfl-chained", "StoCFL, chained", "one gradient at a fixed model", "when a client first comes",
           "its cluster's model"),
    Method("lcfed", "LCFed, listing", "weights, projected", "every round", "its own model", "personal"),
    Method("lcfed-served", "LCFed, listing, centres", "weights, projected", "every round", "its cluster's model",
           of="lcfed"),
    Method("lcfed-centre", "LCFed, from the centre", "weights, projected", "every round", "its own model",
           "personal"),
    Method("fedcg", "FedCG", "images, by a learnt domain", "every image", "a model mixed for each image",
           kind="one model"),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A method in one federation.

    Attributes
    ----------
    method : Method
        Which.
    measured : Measured
        Its runs.
    """

    method: Method
    measured: Measured

    def values(self, metric: str) -> dict[int, float]:
        """A metric of the model that the method is for, by seed, in percent."""
        return self.measured.values(self.method.score(metric))

    @property
    def accuracy(self) -> float:
        """Mean over seeds, on the balanced test images of a client's true cluster."""
        return _mean(self.values("accuracy").values())

    def worst(self) -> list[float]:
        """Mean accuracy (%) in the cluster that fares worst, for each seed; clients lie cluster by cluster.

        Nothing where records do not have each client's accuracy under this model.
        """
        name = self.method.score("accuracy")
        has = [run["clients"][name] for run in self.measured.runs if name in run["clients"]]
        return [100 * float(np.array(each, float).reshape(CLUSTERS, -1).mean(1).min()) for each in has]

    def megabytes(self) -> float:
        """Traffic of a whole run, down and up, in 10^6 bytes; mean over seeds."""
        return _mean([sum(t["down"] + t["up"] for t in run["rounds"]) * BYTES / 1e6 for run in self.measured.runs])

    def late(self) -> list[int] | None:
        """Moves of clients between clusters after the first rounds, for each seed; None without clusters."""
        runs = [run["rounds"] for run in self.measured.runs]
        if "moved" not in runs[0][-1] or self.method.model == "global":
            return None
        return [sum(t["moved"] for t in rounds if t["round"] > SETTLING) for rounds in runs]

    def grouped(self, metric: str) -> list[float]:
        """What the last round says of the clusters, for each seed; nothing where its model has none."""
        return [] if self.method.model == "global" else self.measured.percent(metric)


def federations() -> list[str]:
    """The protocols of the comparison."""
    return [name for name in protocols.protocols() if re.fullmatch(r"common_.*_r\d+", name)]


def standings(protocol: str, folder: Path = records.FOLDER) -> list[Row]:
    """The methods that were run in a federation, the most accurate first."""
    found = ((method, measured(protocol, method.runs, folder)) for method in METHODS)
    rows = [Row(method, m) for method, m in found if m]
    return sorted((row for row in rows if row.values("accuracy")), key=lambda row: -row.accuracy)


def row_of(protocol: str, label: str, folder: Path = records.FOLDER) -> Row | None:
    """One method in a federation, if it was run."""
    return next((row for row in standings(protocol, folder) if row.method.label == label), None)


def agreements(protocol: str, folder: Path = records.FOLDER) -> dict[str, float]:
    """Adjusted Rand index of the last round by label, mean over seeds, of the methods that group clients."""
    found = {row.method.label: row.grouped("ari") for row in standings(protocol, folder)}
    return {label: _mean(values) for label, values in found.items() if values}


def ahead(protocol: str, one: str, other: str, folder: Path = records.FOLDER) -> dict[str, float] | None:
    """By how many points one method is ahead of another, paired over the seeds that both have; None without such.

    The keys are those of :func:`cflkit.engine.metrics.paired_difference`.
    """
    rows = [row_of(protocol, label, folder) for label in (one, other)]
    if None in rows:
        return None
    a, b = (row.values("accuracy") for row in rows)
    seeds = sorted(a.keys() & b.keys())
    return metrics.paired_difference([a[s] for s in seeds], [b[s] for s in seeds]) if seeds else None


def tuning(folder: Path = records.FOLDER) -> Iterator[tuple[Method, list[tuple[dict, float, bool]]]]:
    """For each method with something to choose: its settings, their held-out accuracy, and which one was taken."""
    methods = protocols.protocols()[TUNED]["methods"]
    taken = protocols.protocols()[federations()[0]]["methods"]
    for method in METHODS:
        labels = [label for label in methods if re.fullmatch(rf"{re.escape(method.label)}-\d+", label)]
        found = [(label, measured(TUNED, label, folder)) for label in labels]
        rows = [(_settings(methods[label]), Row(method, m).accuracy, _same(methods[label], taken[method.label]))
                for label, m in found if m]  # fmt: skip
        if rows:
            yield method, rows


def _settings(method: dict) -> dict:
    shown = ("mu", "lam", "tau", "eps1", "eps2", "prior_mean", "prior_weight", "refresh")
    return {name: method[name] for name in shown if name in method}


def _same(one: dict, other: dict) -> bool:
    """Whether two settings of a method are one, where what they leave out has its default."""
    kind = BY_NAME[one["name"]]
    return whole(kind, one) == whole(kind, other)


# ---------------------------------------------------------------------- figures
def look_of(method: Method) -> dict:
    """How a method is drawn, as matplotlib's arguments; the second of two variants is hollow and dashed."""
    others = [each for each in METHODS if canvas.look(each.name) is None]
    colour, marker = canvas.look(method.name) or (canvas.OTHER, canvas.MARKERS[others.index(method)])
    same = [each for each in METHODS if canvas.look(each.name) == (colour, marker)]
    second = method in same[1:]
    return {"color": colour, "marker": marker, "linestyle": "--" if second else "-",
            "markerfacecolor": "none" if second else colour}  # fmt: skip


def everywhere(settings: dict[str, Sequence[Row]]) -> Figure:
    """Accuracy of every seed as a dot, a panel for each federation, the methods in one order.

    Parameters
    ----------
    settings : dict of str to sequence of Row
        Title and rows of each panel.
    """
    shown = {row.method for rows in settings.values() for row in rows}
    order = [method for method in METHODS if method in shown]
    size = (3 + 2.1 * len(settings), 0.3 * len(order) + 1)
    figure, axes = plt.subplots(1, len(settings), figsize=size, sharey=True, squeeze=False)
    plt.close(figure)
    for ax, (title, rows) in zip(axes[0], settings.items(), strict=True):
        for row in rows:
            values, y = list(row.values("accuracy").values()), order.index(row.method)
            ax.plot(values, [y] * len(values), markersize=4, **look_of(row.method) | {"linestyle": "none"})
        ax.set(title=_lines(title), xlabel="accuracy (%)")
        ax.grid(axis="x", alpha=0.3)
    axes[0, 0].set_yticks(range(len(order)), [method.name for method in order])
    axes[0, 0].invert_yaxis()
    return figure


def agreement(settings: dict[str, Sequence[Row]]) -> Figure:
    """Adjusted Rand index over the rounds, mean over seeds; a panel for each federation (as :func:`everywhere`).

    Each run has one curve, whichever of its models are scored.
    """
    size = (max(5.2, 2.6 * len(settings) + 1), 5)
    figure, axes = plt.subplots(1, len(settings), figsize=size, sharey=True, squeeze=False)
    plt.close(figure)
    for ax, (title, rows) in zip(axes[0], settings.items(), strict=True):
        for row in rows:
            runs = [[t.get("ari") for t in run["rounds"]] for run in row.measured.runs]
            if row.method.kind != "clusters" or row.method.of or runs[0][-1] is None:
                continue
            mean = np.mean(np.array(runs, float), axis=0)  # without clusters, as before round 1, it is not a number
            ax.plot(mean, markevery=15, markersize=4, linewidth=1.2, label=row.method.name, **look_of(row.method))
        ax.set(title=_lines(title), xlabel="round", ylim=(-0.05, 1.05))
    axes[0, 0].set_ylabel("adjusted Rand index")
    names = {label: handle for ax in axes[0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(names.values(), names.keys(), loc="outside lower center", ncols=2)
    return figure


def traffic(rows: Sequence[Row]) -> Figure:
    """Accuracy against what was sent in a whole run, a point for each method (see :func:`everywhere`).

    Each run has one point, for the model that its method is for.
    """
    figure, ax = plt.subplots(figsize=(5.2, 5))
    plt.close(figure)
    for row in rows:
        sent = row.megabytes()
        if not sent or row.method.of:
            continue  # who trains alone sends nothing
        ax.plot(sent, row.accuracy, label=row.method.name, **look_of(row.method) | {"linestyle": "none"})
    ax.set(xscale="log", xlabel="sent in a whole run, down and up (MB)", ylabel="accuracy (%)")
    for axis in (ax.xaxis.set_major_formatter, ax.xaxis.set_minor_formatter):
        axis(ScalarFormatter())
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _lines(title: str) -> str:
    """A federation's title, one condition a line: six panels are narrow."""
    return title.replace(", ", ",\n")


def _mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


# ---------------------------------------------------------------------- tables
def standing_cells(rows: Sequence[Row]) -> list[list[str]]:
    """The table of one federation, a list of cells for each method."""
    found = []
    for row in rows:
        clusters, ari, late, worst = row.grouped("clusters"), row.grouped("ari"), row.late(), row.worst()
        own = row.values("own_accuracy").values()
        found.append([
            row.method.name, short(row.values("accuracy").values()), f"{_mean(clusters):.1f}" if clusters else "–",
            hundredths(_mean(ari)) if ari else "–", short(worst) if worst else "–",
            "–" if late is None else f"{_mean(late):.0f}", short(own) if own else "–",
            "–" if row.method.model == "global" else f"{row.megabytes():,.0f}", str(len(row.measured.runs)),
        ])  # fmt: skip
    return found


def tuning_cells(chosen: Sequence[tuple[Method, list[tuple[dict, float, bool]]]]) -> list[list[str]]:
    """The table of settings that were tried, a list of cells for each method."""
    found = []
    for method, rows in chosen:
        tried = "; ".join(f"{_words(setting)}: {value:.2f}" for setting, value, _ in rows)
        taken = ", ".join(_words(setting) for setting, _, taken in rows if taken)
        found.append([method.name, tried, taken or "–"])
    return found


def ideas() -> list[list[str]]:
    """The table of what each method looks at, when, and what it serves."""
    return [[method.name, method.looks_at, method.when, method.serves] for method in METHODS]


def gap_cells(protocol: str, folder: Path = records.FOLDER) -> list[list[str]]:
    """By how many points each method is ahead of one model, of training alone and of the true clusters."""
    found = []
    for row in standings(protocol, folder):
        gaps = [ahead(protocol, row.method.label, other, folder) for other in REFERENCES]
        cells = [interval(gap) if gap else "–" for gap in gaps]
        own = REFERENCES.index(row.method.label) if row.method.label in REFERENCES else None
        found.append([row.method.name, *("–" if i == own else cell for i, cell in enumerate(cells))])
    return found


def work_cells(measured: dict) -> list[list[str]]:
    """Milliseconds of one core that the server works, from a file of ``benchmarks/results``, most work first."""
    names = {method.label: method.name for method in METHODS}
    rows = sorted(measured["rows"], key=lambda row: -row["round"])
    return [[names[row["label"]], f"{1000 * row['before']:,.0f}", f"{1000 * row['round']:,.1f}"] for row in rows]


def interval(gap: dict[str, float]) -> str:
    """A paired difference in words: its mean, its 95% interval, and whether that decides."""
    mean, low, high = (f"{round(gap[name], 2) + 0.0:+.2f}" for name in ("mean", "low", "high"))  # no minus at zero
    if gap["n"] < 3:
        return f"{mean} (n = {gap['n']})"
    side = "ahead" if gap["low"] > 0 else "behind" if gap["high"] < 0 else "undecided"
    return f"{mean} [{low}, {high}] {side}"


def hundredths(value: float) -> str:
    """Two decimals; no minus at zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def short(values) -> str:
    """Mean with one decimal, and the standard deviation over seeds where there are several."""
    spread = metrics.spread(list(values))
    return f"{spread['mean']:.1f}" + (f" ± {spread['std']:.1f}" if spread["n"] > 1 else "")


def spoken(settings: dict[str, Sequence[Row]]) -> str:
    """What :func:`everywhere` shows, for those who cannot see it."""
    return "; ".join(f"{title}: " + ", ".join(f"{row.method.name} {row.accuracy:.1f}" for row in rows)
                     for title, rows in settings.items())  # fmt: skip


def _words(setting: dict) -> str:
    words = {"mu": "µ", "lam": "λ", "tau": "τ", "eps1": "ε₁", "eps2": "ε₂", "prior_mean": "mean",
             "prior_weight": "weight", "refresh": "period"}  # fmt: skip
    return " ".join(f"{words[name]} {value:g}".replace("-", "−") for name, value in setting.items())
