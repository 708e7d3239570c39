"""Figures of the book's pages of results, drawn from run records; the templates say what of."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from cflkit.engine import metrics
from cflkit.workbook.claims.ledger import Measured, Row
from cflkit.workbook.show import canvas, plots

# How a paper's number looks beside measured ones.
PRINTED = {"marker": "D", "markersize": 8, "markerfacecolor": "none", "markeredgecolor": "#333333",
           "markeredgewidth": 1.3, "linestyle": "none"}  # fmt: skip

BEHIND = "#c4c4c4"  # the other curves of a figure, there only to compare with


def unseen(run: dict, row: int = -1) -> int:
    """Count the clients that no round up to this row had sampled."""
    return run["config"]["federation"]["clients"] - sum(run["rounds"][row]["sizes"])


def counts(settings: Mapping[str, Measured]) -> Figure:
    """Draw the number of clusters and the objective over the rounds, a column for each setting."""
    figure, grid = plt.subplots(2, len(settings), figsize=(2.4 * len(settings), 4.2), sharex=True, squeeze=False)
    plt.close(figure)
    for column, (name, m) in zip(grid.T, settings.items(), strict=True):
        run = m.runs[0]
        rounds = [row["round"] for row in run["rounds"][1:]]
        clusters = [row["clusters"] for row in run["rounds"][1:]]
        printed_way = [k + unseen(run, t) for t, k in zip(rounds, clusters, strict=True)]
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


def sweep(
    settings: Mapping[str, Mapping[tuple[str, float], Measured]],
    kinds: Sequence[str],
    xlabel: str,
    scores: Mapping[str, str],
    apart: str,
) -> Figure:
    """Draw scores against a parameter, a column of panels for each setting and a line for each kind.

    Parameters
    ----------
    settings : mapping of title to mapping of (kind, value) to Measured
        The runs.
    kinds : sequence of str
        The lines.
    xlabel : str
        The parameter.
    scores : mapping of str to str
        Metrics of the rows of panels, with their names.
    apart : str
        The metric that differs between kinds even at 0, where one run stands for all of them; left out there.
    """
    figure, grid = plt.subplots(
        len(scores), len(settings), figsize=(1.2 + 2.4 * len(settings), 6), sharex=True, squeeze=False
    )
    plt.close(figure)
    values = sorted({value for points in settings.values() for _, value in points})
    for column, (name, points) in zip(grid.T, settings.items(), strict=True):
        column[0].set_title(name)
        for axes, metric in zip(column, scores, strict=True):
            for number, kind in enumerate(kinds):
                known = {value: m.percent(metric) for (k, value), m in points.items() if k == kind}
                known = {value: metrics.spread(known[value]) for value in sorted(known) if known[value]}
                if metric == apart:
                    known.pop(0, None)
                where = [values.index(value) for value in known]
                axes.errorbar(where, [k["mean"] for k in known.values()], [k["std"] for k in known.values()],
                              marker=canvas.MARKERS[number], color=f"C{number}", capsize=2, label=kind)  # fmt: skip
        column[-1].set(xlabel=xlabel, xticks=range(len(values)), xticklabels=[f"{value:g}" for value in values])
    for axes, title in zip(grid[:, 0], scores.values(), strict=True):
        axes.set_ylabel(f"{title} [%]")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def best(settings: Mapping[str, Mapping[tuple[str, float], Measured]], kinds: Sequence[str]) -> list[str]:
    """Say for each setting and kind at which value the accuracy is best."""
    ends = []
    for name, points in settings.items():
        means = {key: float(np.mean(m.percent())) for key, m in points.items()}
        for kind in kinds:
            mine = {value: mean for (k, value), mean in means.items() if k == kind}
            if mine:
                top = max(mine, key=mine.get)
                ends.append(f"{name}, {kind}: best at {top:g} with {mine[top]:.1f}%")
    return ends


def lines(curves: Mapping[str, Mapping[float, float]], xlabel: str, ylabel: str) -> Figure:
    """Draw one line for each mapping of x to y, on a logarithmic axis."""
    figure, axes = plt.subplots(figsize=(5, 3))
    plt.close(figure)
    for (name, points), marker in zip(curves.items(), canvas.MARKERS, strict=False):
        where = sorted(points)
        axes.plot(where, [points[x] for x in where], marker=marker, label=name)
    axes.set(xlabel=xlabel, ylabel=ylabel, yscale="log")
    figure.legend(loc="outside right upper")
    return figure


def dots(panels: Mapping[str, Sequence[Row]], method: str) -> Figure:
    """Draw measured numbers beside printed ones: a dot for each seed, a hollow diamond for the paper's.

    Parameters
    ----------
    panels : mapping of title to sequence of Row
        The rows of a table; those without a measured number are left out.
    method : str
        Whose rows these are: what names no method, a setting for instance, is drawn in its colour.
    """
    shown = {title: [row for row in rows if row.measured] for title, rows in panels.items()}
    heights = [0.28 * len(rows) + 0.5 for rows in shown.values()]
    figure, grid = canvas.subplots(len(shown), 1, figsize=(5.2, sum(heights) + 0.9), height_ratios=heights)
    for axes, (title, rows) in zip(grid.flat, shown.items(), strict=True):
        for place, row in enumerate(rows):
            values = row.measured.percent(row.metric)
            colour, marker = canvas.look(row.name) or canvas.look(method)
            if row.printed is not None:
                ends = [np.mean(values), row.printed]
                axes.plot(ends, [place] * 2, "-", color=canvas.OTHER, linewidth=1, zorder=1)
                axes.plot(row.printed, place, **PRINTED)
            axes.plot(values, [place] * len(values), marker, color=colour, markersize=6, alpha=0.75)
        axes.set(yticks=range(len(rows)), yticklabels=[row.name for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_title(fill(title, 36))
    grid[-1, 0].set_xlabel("accuracy [%]")
    seed = canvas.dot("measured, each seed", *canvas.look(method), 36)
    figure.legend(handles=[Line2D([], [], label="printed", **PRINTED), seed], loc="outside lower center", ncols=2)
    return figure


def printed_beside(rows: Mapping[str, float], alone: float, name: str) -> Figure:
    """Draw printed accuracies (%) as hollow diamonds, with a line at what a predictor reaches alone."""
    figure, axes = canvas.subplots(figsize=(5.2, 0.28 * len(rows) + 1.1))
    axes.plot(list(rows.values()), range(len(rows)), label="printed", **PRINTED)
    axes.axvline(alone, color=canvas.look("FedCG")[0], linestyle="--", label=name)
    axes.set(yticks=range(len(rows)), yticklabels=list(rows), xlabel="accuracy [%]")
    axes.invert_yaxis()
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def families(curves: Mapping[str, pd.DataFrame], y: str) -> Figure:
    """Draw many learning curves as panels, one for each method, with all other curves in grey behind.

    The climb of the first quarter of the rounds is cut off, so that the ends come apart. Curves that share a panel
    share a colour, and have markers of their own.

    Parameters
    ----------
    curves : mapping of label to DataFrame
        As :func:`cflkit.workbook.show.plots.learning_curves` takes them. "A, b" and "A, c" share the panel "A".
    y : str
        The column to draw.
    """
    drawn = {label: plots.curve(f"curves[{label!r}]", frame, y)[:2] for label, frame in curves.items()}
    groups: dict[str, list[str]] = {}
    for label in curves:
        groups.setdefault(family(label, curves), []).append(label)
    figure, grid = canvas.panels(len(groups), 2.4)
    for axes, (name, own) in zip(grid, groups.items(), strict=True):
        for line in drawn.values():
            axes.plot(*line, "-", color=BEHIND, linewidth=1)
        colour, first = canvas.look(own[0]) or (canvas.palette()[0], "o")
        markers = [first, *canvas.MARKERS.replace(first, "")]
        for label, marker, dash in zip(own, cycle(markers), cycle(canvas.DASHES), strict=False):
            axes.plot(*drawn[label], linestyle=dash, color=colour, marker=marker, markersize=4,
                      label=label.rpartition(", ")[2])  # fmt: skip
        axes.set_title(name)
        if len(own) > 1:
            axes.legend(loc="lower right", fontsize="small", handlelength=2.6, ncols=1 + (len(own) > 4),
                        frameon=True, edgecolor="none")  # fmt: skip
    ends = [value for x, values in drawn.values() for value in values[x > max(x) / 4]]
    margin = 0.05 * (max(ends) - min(ends))
    for axes in grid:
        axes.set_ylim(min(ends) - margin, max(ends) + margin)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    canvas.label_outer(grid, "round", y)
    return figure


def family(label: str, labels: Iterable[str]) -> str:
    """Name the method of a curve: what stands before the last comma, unless other labels go on where it ends."""
    whole = any(other.startswith(f"{label}, ") for other in labels)
    return label if whole else label.rpartition(", ")[0] or label


def crowded(curves: Mapping[str, pd.DataFrame], y: str) -> bool:
    """Whether one picture cannot tell curves apart: eight or more end within a fifth of what all of them span."""
    values = pd.concat(curves.values())[y]
    ends = [frame.groupby("round")[y].mean().dropna().iloc[-1] for frame in curves.values()]
    return len(ends) > 7 and max(ends) - min(ends) < (values.max() - values.min()) / 5
