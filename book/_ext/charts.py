"""Figures of the book's pages of results, each with what it says in words; None where there is nothing to draw."""

from collections.abc import Mapping, Sequence
from itertools import cycle

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from cflkit.workbook.claims.ledger import Coverage, Row
from cflkit.workbook.claims.verdicts import Gap
from cflkit.workbook.show import plots

# How a paper's number looks beside measured ones.
PRINTED = {"marker": "D", "markersize": 8, "markerfacecolor": "none", "markeredgecolor": "#333333",
           "markeredgewidth": 1.3, "linestyle": "none"}  # fmt: skip
BEHIND = "#c4c4c4"  # the other curves of a figure, there only to compare with
DOSED = {"true groups": "--", "training alone": ":"}  # lines of the references in the benchmark's picture
BEYOND = 20  # points from print after which a histogram has one bin
Drawn = tuple[Figure, str] | None


def unseen(run: dict, row: int = -1) -> int:
    """Count the clients that no round up to this row had sampled."""
    return run["config"]["federation"]["clients"] - sum(run["rounds"][row]["sizes"])


def grid(frame: pd.DataFrame, **how) -> Figure:
    """Draw lines in a grid of panels, with one legend below (:func:`seaborn.relplot`)."""
    facets = {"sharey": "row", "margin_titles": True}
    with plt.rc_context({"figure.constrained_layout.use": False}):  # seaborn sets a grid out by itself
        drawn = sns.relplot(frame.reset_index(drop=True), kind="line", height=2.2, facet_kws=facets, **how)
    drawn.set_titles(col_template="{col_name}", row_template="")
    for name, row in zip(drawn.row_names, drawn.axes, strict=True):
        row[0].set_ylabel(name)
    sns.move_legend(drawn, "lower center", bbox_to_anchor=(0.5, 0), ncols=4, title=None)
    drawn.tight_layout(rect=(0, 0.3 / drawn.figure.get_figheight(), 1, 1))
    return drawn.figure


def counts(settings: Mapping[str, list[dict]]) -> Drawn:
    """Draw the number of clusters and the objective over the rounds of first seeds, a column for each setting."""
    lines = []
    for setting, run in ((setting, m[0]) for setting, m in settings.items()):
        for at, row in enumerate(run["rounds"][1:], 1):
            lines += [(setting, what, kind, row["round"], value) for what, kind, value in (
                ("clusters", "as the paper counts", row["clusters"] + unseen(run, at)),
                ("clusters", "among clients seen", row["clusters"]),
                ("objective (2)", "among clients seen", row["objective"]))]  # fmt: skip
    if not lines:
        return None
    frame = pd.DataFrame(lines, columns=["setting", "what", "kind", "round", "value"])
    figure = grid(frame, x="round", y="value", row="what", col="setting", hue="kind", style="kind")
    for axes in figure.axes[: len(settings)]:
        axes.set_yscale("log")
    ends = ", ".join(f"{m[0]['final']['clusters']} on {setting}" for setting, m in settings.items())
    return figure, ("Two rows of panels, a column a data set, over the rounds. Above, the number of clusters: the "
                    "paper's count falls from hundreds as clients are sampled; among the clients seen it ends at "
                    f"{ends}. Below, the clustering objective, flat after the first few rounds.")  # fmt: skip


def sweep(frame: pd.DataFrame, x: str, kind: str, kinds: Sequence[str], xlabel: str, scores: Mapping[str, str],
          apart: str) -> Drawn:  # fmt: skip
    """Draw scores against a parameter, a column of panels for each setting and a line for each kind.

    The first kind is meant where a run names none. A run at 0 counts for every kind, which differ in nothing
    there, but for the score `apart`.
    """
    if frame.empty:
        return None
    frame = frame[frame.metric.isin(scores)].assign(**{kind: frame.get(kind, pd.Series()).fillna(kinds[0])})
    every = frame[frame[x] == 0].drop(columns=kind).merge(pd.DataFrame({kind: kinds}), how="cross")
    shown = pd.concat([frame[frame[x] != 0], every[every.metric != apart]])
    shown = shown.assign(score=shown.metric.map(scores) + " [%]", at=shown[x].rank(method="dense") - 1)
    figure = grid(shown, x="at", y="value", row="score", row_order=[f"{name} [%]" for name in scores.values()],
                  col="setting", col_order=list(dict.fromkeys(frame.setting)), hue=kind, hue_order=kinds,
                  style=kind, style_order=kinds, markers=True, errorbar="sd", err_style="bars")  # fmt: skip
    ticks = dict(sorted(zip(shown["at"], shown[x], strict=True)))
    for axes in figure.axes:
        axes.set_xticks(list(ticks), [f"{value:g}" for value in ticks.values()])
        axes.set_xlabel(xlabel if axes.get_xlabel() else "")
    means = shown[shown.metric == next(iter(scores))].groupby(["setting", kind, x], sort=False).value.mean()
    tops = means.loc[means.groupby(["setting", kind], sort=False).idxmax()]
    best = (f"{name}, {of}: best at {at:g} with {mean:.1f}%" for (name, of, at), mean in tops.items())
    return figure, f"Accuracy against the {xlabel}, a column of panels for each setting. {'; '.join(best)}"


def thresholds(frame: pd.DataFrame) -> Drawn:
    """Draw how many clusters each threshold gives, a line for each setting, mean over the seeds."""
    shown = frame[frame.metric == "clusters"]
    if shown.empty:
        return None
    figure, axes = plt.subplots(figsize=(5, 3))
    sns.lineplot(shown, x="tau", y="value", hue="setting", style="setting", markers=True, dashes=False,
                 errorbar=None, legend="brief", ax=axes)  # fmt: skip
    axes.set(xlabel="threshold τ", ylabel="clusters", yscale="log")
    axes.get_legend().remove()
    figure.legend(loc="outside right upper")
    means = shown.groupby(["setting", "tau"]).value.mean().groupby("setting", sort=False)
    said = (f"{name}: " + ", ".join(f"{clusters:g} at {tau:g}" for (_, tau), clusters in of.items())
            for name, of in means)  # fmt: skip
    return figure, f"Clusters found: {'; '.join(said)}"


def dots(title: str, rows: Sequence[Row], method: str) -> Drawn:
    """Draw measured numbers beside printed ones: a dot for each seed, a hollow diamond for the paper's.

    A row that names no method, but a setting for instance, has the colour of `method`.
    """
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(5.2, 0.28 * len(rows) + 1.1))
    said = []
    for place, row in enumerate(rows):
        values = list(row.values.values())
        colour, marker = plots.look(row.name) or plots.look(method)
        said.append(f"{row.name}: measured {np.mean(values):.2f}")
        if row.printed is not None:
            said[-1] += f", printed {row.printed:.2f}"
            axes.plot([np.mean(values), row.printed], [place] * 2, "-", color=plots.OTHER, linewidth=1, zorder=1)
            axes.plot(row.printed, place, **PRINTED)
        axes.plot(values, [place] * len(values), marker, color=colour, markersize=6, alpha=0.75)
    axes.set(yticks=range(len(rows)), yticklabels=[row.name for row in rows], xlabel="accuracy [%]")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    colour, marker = plots.look(method)
    seed = Line2D([], [], color=colour, marker=marker, markersize=6, linestyle="none", label="measured, each seed")
    figure.legend(handles=[Line2D([], [], label="printed", **PRINTED), seed], loc="outside lower center", ncols=2)
    return figure, f"{title}. {'; '.join(said)}."


def doses(leads: Mapping[str, Mapping[str, Mapping[str, Mapping[float, Gap]]]]) -> Drawn:
    """Draw leads over fine-tuned FedAvg by strength, with 95% intervals: a column of panels for each shift.

    `leads` are by row of panels, shift, method and strength. A row has a legend of its own.
    """
    if not leads:
        return None
    shifts = list(dict.fromkeys(shift for row in leads.values() for shift in row))
    figure = plt.figure(figsize=(9.6, 3.1 * len(leads)))
    said, cells = [], (gaps for row in leads.values() for shift in row.values() for gaps in shift.values())
    top = 1.1 * max(5, *(gap.ends()[1] for gaps in cells for gap in gaps.values()))
    for part, (title, row) in zip(np.atleast_1d(figure.subfigures(len(leads))), leads.items(), strict=True):
        ((*axes,),) = part.subplots(1, len(shifts), squeeze=False, sharey=True)
        known: dict[str, object] = {}
        for ax, shift in zip(axes, shifts, strict=True):
            if shift not in row:
                ax.remove()
                continue
            ax.axhline(0, color="#333333", linewidth=1)
            for number, (method, gaps) in enumerate(row[shift].items()):
                colour, marker = plots.look(method)
                beside = 0.02 * (number - len(row[shift]) / 2)
                ends = np.array([gap.ends() for gap in gaps.values()])
                mean = [gap.mean for gap in gaps.values()]
                known[method] = ax.errorbar([strength + beside for strength in gaps], mean, np.abs(ends.T - mean),
                                            color=colour, marker=marker, linestyle=DOSED.get(method, "-"),
                                            label=method, linewidth=1.3, markersize=4.5, elinewidth=1)  # fmt: skip
                each = (f"{gap.mean:+.1f} at {strength:g}" for strength, gap in gaps.items())
                said.append(f"{title}, {shift}, {method}: {', '.join(each)}")
            ax.set_title(shift, fontsize="medium")
            ax.set(xlabel="strength", xlim=(0.1, 1.1), xticks=[0.2, 0.6, 1], xticklabels=["0.2", "0.6", "1"])
            ax.set_yscale("symlog", linthresh=5)  # small leads stay visible beside large losses
            ax.set_yticks(ticks := [-50, -20, -10, -5, 0, 5, 10], [f"{tick:+d}" if tick else "0" for tick in ticks])
            ax.set_ylim(-100, top)  # no lead is lower
        axes[0].set_ylabel(f"{title}\npoints ahead")
        part.legend(handles=[*known.values()], loc="outside lower center", ncols=len(known))
    return figure, f"Points ahead of fine-tuned FedAvg. {'; '.join(said)}."


def apart(numbers: Sequence[Coverage], chapters: Mapping[str, str]) -> Drawn:
    """Draw how far measured accuracies lie from printed ones, a bar for each two points, in each paper's colour."""
    found = [(chapters[one.entry["paper"]], np.mean(one.values) - one.entry["value"])
             for one in numbers if one.values and "percent" in one.entry["metric"]]  # fmt: skip
    if not found:
        return None
    frame = pd.DataFrame(found, columns=["paper", "points"])
    near = f"{(frame.points.abs() <= 3).sum()} of {len(frame)} measured accuracies lie within 3 points of print"
    frame["points"] = frame.points.clip(-BEYOND, BEYOND)
    figure, axes = plt.subplots(figsize=(7.2, 3))
    names = [name for name in chapters.values() if name in set(frame.paper)]
    sns.histplot(frame, x="points", hue="paper", hue_order=names, multiple="stack", ax=axes, alpha=1,
                 binrange=(-BEYOND, BEYOND), binwidth=2, linewidth=0.5, edgecolor="white",
                 palette=[plots.look(name)[0] for name in names])  # fmt: skip
    axes.axvline(0, color="#333333", linestyle=":", linewidth=1)
    axes.set(xlabel="measured minus printed [points]", ylabel="printed numbers")
    ends = f"−{BEYOND} and below", "−10", "0", "10", f"{BEYOND} and above"
    axes.set_xticks([-BEYOND, -10, 0, 10, BEYOND], ends)
    sns.move_legend(axes, "upper left", bbox_to_anchor=(1, 1), title=None)
    return figure, f"{near}, {(frame.points < -3).sum()} further below, {(frame.points > 3).sum()} further above."


def families(curves: Mapping[str, pd.DataFrame], y: str) -> Figure:
    """Draw many learning curves as panels, one for each method, with all other curves in grey behind.

    The climb of the first quarter of the rounds is cut off, so that the ends come apart. Curves that share a panel
    share a colour, and have markers of their own: "A, b" and "A, c" share the panel "A".
    """
    means = {label: frame.groupby("round")[y].mean().dropna() for label, frame in curves.items()}
    groups: dict[str, list[str]] = {}
    for label in curves:  # is named by what stands before the last comma, unless others go on where it ends
        whole = any(other.startswith(f"{label}, ") for other in curves)
        groups.setdefault(label if whole else label.rpartition(", ")[0] or label, []).append(label)
    frame = pd.DataFrame({"method": groups.keys()})
    with plt.rc_context({"figure.constrained_layout.use": False}):  # seaborn sets a grid out by itself
        panels = sns.FacetGrid(frame, col="method", col_wrap=min(len(groups), 4), height=2.4)
    for axes, (name, own) in zip(panels.axes, groups.items(), strict=True):
        for line in means.values():
            axes.plot(line, "-", color=BEHIND, linewidth=1)
        colour, first = plots.look(own[0]) or (plots.palette()[0], "o")
        markers = [first, *plots.MARKERS.replace(first, "")]
        for label, marker, dash in zip(own, cycle(markers), cycle(plots.DASHES), strict=False):
            axes.plot(means[label], linestyle=dash, color=colour, marker=marker, markersize=4,
                      label=label.rpartition(", ")[2])  # fmt: skip
        axes.set_title(name)
        if len(own) > 1:
            axes.legend(loc="lower right", fontsize="small", handlelength=2.6, ncols=1 + (len(own) > 4),
                        frameon=True, edgecolor="none")  # fmt: skip
    ends = pd.concat(line[line.index > line.index.max() / 4] for line in means.values())
    margin = 0.05 * (ends.max() - ends.min())
    panels.set(ylim=(ends.min() - margin, ends.max() + margin))
    panels.axes[0].xaxis.set_major_locator(MaxNLocator(4, integer=True))  # all share it
    panels.set_axis_labels("round", y).tight_layout()
    return panels.figure


def learning(curves: Mapping[str, pd.DataFrame], y: str) -> Drawn:
    """Draw learning curves in one picture, or as families if eight or more end within a fifth of what all span."""
    if not curves:
        return None
    values = pd.concat(curves.values())[y]
    ends = {name: frame.groupby("round")[y].mean().dropna().iloc[-1] for name, frame in curves.items()}
    crowded = len(ends) > 7 and max(ends.values()) - min(ends.values()) < (values.max() - values.min()) / 5
    said = ", ".join(f"{name} ends at {end:.1f}%" for name, end in ends.items())
    return (families if crowded else plots.learning_curves)(curves, y), f"Accuracy over the rounds: {said}"
