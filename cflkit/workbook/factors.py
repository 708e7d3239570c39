"""What differed and why: methods of the comparison with one factor changed at a time, on the same federations."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from cflkit.engine import metrics
from cflkit.workbook import protocols, records
from cflkit.workbook.comparison import METHODS, SETTLING, Row, hundredths, interval, look_of, short
from cflkit.workbook.measured import measured

ROTATIONS, SKEWED = "common_rot_r20", "common_rot_skew_r20"
CHANGED = {ROTATIONS: "common_rot_why", SKEWED: "common_rot_skew_why"}  # where a federation's changed methods stand
LONG, HANDED = "sixteen times the rounds", "the model goes from client to client"
REDRAWN = "first models drawn until each has a tenth of the clients"


@dataclass(frozen=True)
class Factor:
    """A row of the table of factors.

    Attributes
    ----------
    label : str
        In the protocols.
    base : str
        Label of the row that it differs from by one factor.
    change : str
        What differs.
    federation : str
        The protocol of the comparison in which it was changed.
    """

    label: str
    base: str
    change: str
    federation: str = ROTATIONS


FACTORS = (
    Factor("fesem-random", "fesem", "first clusters drawn at random"),
    Factor("fesem-personal", "fesem", "clients go on from their own models"),
    Factor("fesem-random-personal", "fesem-random", "random first clusters, clients go on from their own models"),
    Factor("fesem-pull", "fesem", "a pull to the centre, λ = 0.005"),
    Factor("ifca-common", "ifca", "all first models equal"),
    Factor("ifca-redrawn", "ifca", REDRAWN),
    Factor("mdicfl-1-distinct", "mdicfl-1", "first models differ"),
    Factor("mdicfl-1-warmup", "mdicfl-1", "ten rounds of FedAvg first"),
    Factor("mdicfl-1-prior", "mdicfl-1", "the prior has the mean of the images, and ten times the weight"),
    Factor("mdicfl-2-prior", "mdicfl-2", "the prior has the mean of the images"),
    Factor("lcfed-weak", "lcfed", "weaker pulls, µ = λ = 0.01"),
    Factor("lcfed-weak-centre", "lcfed-weak", "weaker pulls, and clients start from their centre"),
    Factor("lcfed-weak-sampled", "lcfed-weak", "weaker pulls, and a centre is the mean of those who took part"),
    Factor("lcfed-centre", "lcfed-weak-centre", "weaker pulls, clients start from the mean of those who took part"),
    Factor("lcfed-rank", "lcfed", "fifty dimensions, as printed, in place of 16"),
    Factor("lcfed-centre-rank", "lcfed-centre", "fifty dimensions, as printed, in place of 16"),
    Factor("fedcg-kmeans", "fedcg", "domains are k-means clusters of clients' models"),
    Factor("fedcg-one", "fedcg-kmeans", "k-means domains, and only one of them"),
    Factor("fedcg-still", "fedcg", "the student never learns"),
    Factor("fedcg-period", "fedcg", "the teacher is updated after every round"),
    Factor("fedavg-long", "fedavg", LONG),
    Factor("fedavg-chained", "fedavg", HANDED),
    Factor("oracle-long", "oracle", LONG),
    Factor("stocfl-strong", "stocfl", "a stronger pull, λ = 0.05", SKEWED),
    Factor("stocfl-chained-weak", "stocfl", "the global model is chained", SKEWED),
    Factor("stocfl-chained", "stocfl-strong", "a stronger pull, and the global model is chained", SKEWED),
    Factor("fedavg-long", "fedavg", LONG, SKEWED),
    Factor("fedavg-chained", "fedavg", HANDED, SKEWED),
    Factor("ifca-long", "ifca", LONG, SKEWED),
    Factor("ifca-redrawn", "ifca", REDRAWN, SKEWED),
    Factor("oracle-long", "oracle", LONG, SKEWED),
)


def row_of(label: str, federation: str = ROTATIONS, folder: Path = records.FOLDER) -> Row | None:
    """A row of the comparison, or of what was changed in it; None if it has not been run."""
    known = {method.label: method for method in METHODS}
    if label not in protocols.protocols()[CHANGED[federation]]["methods"]:
        found = measured(federation, known[label].runs, folder)
        return found and Row(known[label], found)
    family = known[max((k for k in known if label.startswith(k)), key=len)]
    found = measured(CHANGED[federation], label, folder)
    return found and Row(replace(family, label=label), found)


def changes(federation: str = ROTATIONS, folder: Path = records.FOLDER) -> Iterator[tuple[Row, Row, Factor]]:
    """Each factor that was run there: the row it belongs to, the changed row, and what was changed."""
    for factor in FACTORS:
        if factor.federation == federation:
            base, row = (row_of(label, federation, folder) for label in (factor.base, factor.label))
            if base and row:
                yield base, row, factor


def longer(titles: dict[str, str], folder: Path = records.FOLDER) -> Figure | None:
    """Accuracy over all rounds of the rows with more of them, mean over seeds; None without such rows.

    A panel for each federation, a point wherever the comparison's rounds are over once more; a vertical line is
    where the comparison ends.

    Parameters
    ----------
    titles : dict of str to str
        The federations, and what each is called.
    folder : Path
        Of the records.
    """
    shown = {where: [(base, row) for base, row, factor in changes(where, folder) if factor.change == LONG]
             for where in CHANGED if where in titles}  # fmt: skip
    shown = {where: rows for where, rows in shown.items() if rows}
    if not shown:
        return None
    figure, axes = plt.subplots(1, len(shown), figsize=(3.4 * len(shown) + 1, 3.6), sharey=True, squeeze=False)
    plt.close(figure)
    for ax, (where, rows) in zip(axes[0], shown.items(), strict=True):
        for base, row in rows:
            rounds = range(base.measured.rounds, row.measured.rounds + 1, base.measured.rounds)
            each = [[100 * run["rounds"][t]["accuracy"] for t in rounds] for run in row.measured.runs]
            ax.plot(rounds, np.mean(each, axis=0), label=base.method.name, markersize=4, **look_of(base.method))
        ax.axvline(base.measured.rounds, color="0.5", linestyle=":", linewidth=1)
        ax.set(title=titles[where], xlabel="round", ylim=(85, 100))
    axes[0, 0].set_ylabel("accuracy (%)")
    names = {label: handle for ax in axes[0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(names.values(), names.keys(), loc="outside lower center", ncols=3)
    return figure


def cells(found: list[tuple[Row, Row, Factor]]) -> list[list[str]]:
    """The table, a list of cells for each row; a method's own row comes before those that change it."""
    lines, shown = [], set()
    named: dict[str, str] = {}  # what a row is called where another is set against it
    for base, row, factor in found:
        if base.method.label not in shown:
            lines.append([base.method.name, "–", *_measured(base), "–", "–"])
            named[base.method.label] = "as compared"
        shown |= {base.method.label, factor.label}
        own = next((method.name for method in METHODS if method.label == factor.label), "")
        named[factor.label] = f"{own}, as compared" if own else factor.change
        against = named[factor.base]
        lines.append([row.method.name, factor.change, *_measured(row), against, _difference(row, base)])
    return lines


def _measured(row: Row) -> list[str]:
    accuracy, n = short(row.values("accuracy").values()), str(len(row.measured.runs))
    last, late = row.grouped("ari"), row.late()
    if not last or late is None:
        return [accuracy, "–", "–", "–", n]
    early = [t.get("ari") for run in row.measured.runs for t in run["rounds"] if t["round"] == SETTLING]
    # without clusters there is no index
    first = "–" if None in early else hundredths(metrics.spread(early)["mean"])
    last, late = (metrics.spread(values)["mean"] for values in (last, late))
    return [accuracy, first, hundredths(last), f"{late:.0f}", n]


def _difference(row: Row, base: Row) -> str:
    a, b = row.values("accuracy"), base.values("accuracy")
    seeds = sorted(a.keys() & b.keys())
    return interval(metrics.paired_difference([a[s] for s in seeds], [b[s] for s in seeds]))
