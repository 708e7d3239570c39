"""The book's figures, in one packaged style, and a digest to print beside each.

Every function takes plain arrays or frames and returns the figure, closed in pyplot, so that a notebook shows
it once, as the value of its cell. Hue alone tells nothing: lines carry their names, clusters their markers,
and heat maps run from dark to light. Drawn twice, a figure saves to the same bytes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from numpy.typing import ArrayLike

from cflkit.checks import Count, declared, require
from cflkit.workbook.show import canvas
from cflkit.workbook.show.canvas import contrast, digest, use_style

__all__ = [
    "bars", "cluster_counts", "contrast", "cosine_matrices", "digest", "embedding", "image_grid", "label_mix",
    "learning_curves", "sizes", "surface", "use_style",
]  # fmt: skip


def learning_curves(frames: Mapping, y: str = "accuracy", *, ylabel: str | None = None) -> Figure:
    """Draw one curve per method over the rounds, in the method's colour, named at its right end.

    Parameters
    ----------
    frames : mapping of label to DataFrame or tuple
        A frame has the column `y`, and ``round`` as a column or as its index. Rounds without a value are passed
        over; where a round has several rows (one per seed), the line is their mean and the band one standard
        deviation (ddof 1) to either side. A tuple is ``(x, y)`` or ``(x, y, low, high)``, arrays of one length.
    y : str
        The column to draw.
    ylabel : str, optional
        Its name on the axis, `y` itself by default.
    """
    canvas.named("frames", frames)
    curves = {label: curve(f"frames[{label!r}]", frame, y) for label, frame in frames.items()}
    figure, axes = canvas.subplots()
    drawn = Counter()
    for label, (x, middle, *band) in curves.items():
        style = {}
        if own := canvas.look(label):
            style = {"color": own[0], "marker": own[1], "markevery": -(-len(x) // 8), "markersize": 4,
                     "linestyle": canvas.DASHES[drawn[own] % len(canvas.DASHES)]}  # fmt: skip
        drawn[own] += 1
        (line,) = axes.plot(x, middle, label=label, **style)
        if band:
            axes.fill_between(x, *band, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xlabel="round", ylabel=ylabel or y)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    canvas.name_ends(axes)
    return figure


def cluster_counts(counts: Mapping[str, ArrayLike], truth: int | None = None) -> Figure:
    r"""Draw the number of clusters :math:`\tilde K` after each round (StoCFL, Figure 3b).

    Parameters
    ----------
    counts : mapping of label to array_like, shape (T,)
        Number of clusters after rounds 1 to T.
    truth : int, optional
        The true number, drawn as a dotted line.
    """
    canvas.named("counts", counts)
    curves = {label: canvas.numbers(f"counts[{label!r}]", curve, None) for label, curve in counts.items()}
    declared("truth", truth, int | None)
    figure, axes = canvas.subplots()
    for label, curve in curves.items():
        axes.plot(np.arange(1, len(curve) + 1), curve, label=label)
    axes.set(xlabel="round", ylabel="clusters")
    axes.set_ylim(bottom=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    canvas.name_ends(axes)
    if truth is not None:
        axes.axhline(truth, color=canvas.OTHER, linestyle=":", zorder=1)
        axes.annotate(f"true: {truth}", (1, truth), (0, 3), textcoords="offset points")
    return figure


def sizes(per_round: Sequence[Sequence[int]], rounds: Sequence[int] | None = None) -> Figure:
    """Stack the sizes of the clusters, largest at the bottom, round by round.

    Parameters
    ----------
    per_round : sequence of sequences of int
        What :func:`cflkit.engine.metrics.cluster_sizes` gave after each round. The seven largest have a colour
        each, the rest is one grey piece.
    rounds : sequence of int, optional
        The rounds these are, 1, 2, ... by default.
    """
    require(len(per_round) > 0, "per_round", per_round, "at least one round")
    per_round = [canvas.numbers(f"per_round[{i}]", row, None) for i, row in enumerate(per_round)]
    palette = canvas.palette()
    rounds = np.arange(1, len(per_round) + 1) if rounds is None else np.asarray(rounds)
    require(len(rounds) == len(per_round), "len(rounds)", len(rounds), f"{len(per_round)}, one per entry")
    table = np.zeros((len(per_round), len(palette) + 1))
    for row, ordered in zip(table, (sorted(s, reverse=True) for s in per_round), strict=True):
        large = ordered[: len(palette)]
        row[: len(large)], row[-1] = large, sum(ordered[len(large) :])
    figure, axes = canvas.subplots()
    width = 0.9 * (np.diff(rounds).min() if len(rounds) > 1 else 1)
    bottom = np.zeros(len(rounds))
    names = [*("largest", "2nd", "3rd"), *(f"{n}th" for n in range(4, len(palette) + 1)), "all smaller"]
    for name, column, colour in zip(names, table.T, [*palette, canvas.OTHER], strict=True):
        if column.any():
            axes.bar(rounds, column, width, bottom, color=colour, label=name)
            bottom += column
    axes.set(xlabel="round", ylabel="clients")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(False, axis="x")
    canvas.legend(axes, title="cluster", reverse=True)
    return figure


def embedding(
    points: ArrayLike | Mapping[str, ArrayLike],
    clusters: ArrayLike | Mapping[str, ArrayLike],
    truth: ArrayLike | None = None,
    title: str = "",
) -> Figure:
    """Scatter clients in the plane, coloured by cluster (StoCFL, Figures 3a and 8; FeSEM, Figure 4).

    Parameters
    ----------
    points : array_like, shape (N, 2), or mapping of title to such
        The clients after PCA or t-SNE; a mapping has one set for each panel of `clusters`.
    clusters : array_like of int, shape (N,), or mapping of title to such
        Cluster of each client, a small grey dot where it is -1; a mapping draws one panel per entry, for
        instance per round. The seven largest clusters have a colour, given by order of first client, the
        others are grey.
    truth : array_like of int, shape (N,), optional
        True cluster of each client, shown by the marker; without it the marker goes with the colour.
    title : str
        Title of the panel if `clusters` is a single array.
    """
    panels = clusters if isinstance(clusters, Mapping) else {title: clusters}
    canvas.named("clusters", panels)
    panels = {name: canvas.numbers("clusters", assign, None).astype(int) for name, assign in panels.items()}
    places = points if isinstance(points, Mapping) else dict.fromkeys(panels, points)
    require(list(places) == list(panels), "points", list(places), f"sets for the panels {list(panels)}")
    kinds = [] if truth is None else np.unique(truth).tolist()
    palette = [*canvas.palette(), canvas.OTHER]
    figure, grid = canvas.panels(len(panels), 2.9)
    clustered = [len(np.unique(assign[assign >= 0])) for assign in panels.values()]
    for axes, (name, assign), count in zip(grid, panels.items(), clustered, strict=True):
        points = canvas.numbers("points", places[name], None, 2)
        require(assign.shape == (len(points),), "clusters.shape", assign.shape, f"({len(points)},)")
        require(truth is None or np.shape(truth) == assign.shape, "truth.shape", np.shape(truth), f"{assign.shape}")
        area = np.where(assign < 0, canvas.AREA["unseen"], canvas.AREA["seen"])
        rank = _ranks(assign, len(palette) - 1)
        shape = rank if truth is None else np.searchsorted(kinds, truth)
        for pair in np.unique([rank, shape], axis=1).T:
            here = (rank == pair[0]) & (shape == pair[1])
            colour, marker = palette[pair[0]], canvas.MARKERS[pair[1] % len(canvas.MARKERS)]
            axes.scatter(*points[here].T, s=area[here], color=colour, marker=marker, linewidths=0, alpha=0.9)
        axes.set_title(f"{name}: {count} clusters" if name else f"{count} clusters")
        axes.set(xticks=[], yticks=[])
    canvas.label_outer(grid, "first component", "second component")
    markers = [canvas.MARKERS[i % len(canvas.MARKERS)] for i in range(len(kinds))]
    handles = [canvas.dot(f"true {kind}", "#333333", shape) for kind, shape in zip(kinds, markers, strict=True)]
    grey = "o" if kinds else canvas.MARKERS[len(palette) - 1]
    if max(clustered) >= len(palette):
        handles.append(canvas.dot("smaller clusters", canvas.OTHER, grey))
    if any((assign < 0).any() for assign in panels.values()):
        handles.append(canvas.dot("not seen yet", canvas.OTHER, grey, canvas.AREA["unseen"]))
    if handles:
        title = "colour: found cluster" if kinds else None
        figure.legend(handles=handles, loc="outside right upper", title=title)
    return figure


def cosine_matrices(
    panels: Mapping[str, ArrayLike],
    label: str = "cosine similarity",
    *,
    xlabel: str = "client",
    ylabel: str = "client",
) -> Figure:
    """Draw matrices side by side under one colour scale (StoCFL, Figure 2; MD-ICFL, Figures 5 and 6).

    Parameters
    ----------
    panels : mapping of title to array_like, shape (n, m)
        The matrices.
    label : str
        What the colours show.
    xlabel, ylabel : str
        What the columns and the rows are.
    """
    return _heat(panels, label, xlabel, ylabel)


def label_mix(label_counts: ArrayLike, clusters: ArrayLike | None = None) -> Figure:
    """Draw each client's share of every label, clients as rows.

    Parameters
    ----------
    label_counts : array_like, shape (N, C)
        Number of images per client and class.
    clusters : array_like of int, shape (N,), optional
        Sorts the clients by cluster and draws a line between clusters.
    """
    counts = canvas.numbers("label_counts", label_counts, None, None)
    if clusters is not None:
        canvas.numbers("clusters", clusters, len(counts))
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    order = np.arange(len(share)) if clusters is None else np.argsort(clusters, kind="stable")
    by = "" if clusters is None else ", by cluster"
    figure = _heat({"": share[order]}, "share of the client's images", "class", "client" + by, square=False)
    if clusters is not None:
        for border in np.flatnonzero(np.diff(np.asarray(clusters)[order])):
            figure.axes[0].axhline(border + 0.5, color="white", linewidth=1.5)
        figure.axes[0].set_yticks([])
    return figure


def surface(
    values: ArrayLike | Mapping[str, ArrayLike],
    x: Sequence,
    y: Sequence,
    *,
    xlabel: str = "$\\lambda$",
    ylabel: str = "$\\mu$",
    label: str = "accuracy",
    decimals: int = 1,
) -> Figure:
    """Draw a grid of results over two hyper-parameters, the best cell framed (LCFed, Figure 2).

    Parameters
    ----------
    values : array_like, shape (len(y), len(x)), or mapping of title to such
        The results; NaN where there is none. A mapping draws one panel per entry under one scale.
    x, y : sequence
        The values of the two hyper-parameters, of columns and rows.
    xlabel, ylabel, label : str
        Their names and that of the result.
    decimals : int
        Decimals written into the cells.
    """
    panels = values if isinstance(values, Mapping) else {"": values}
    canvas.named("values", panels)
    for table in panels.values():
        canvas.numbers("values", table, len(y), len(x))
    figure = _heat(panels, label, xlabel, ylabel, square=False, ticks=(x, y))
    for axes, table in zip(figure.axes, panels.values(), strict=False):  # the colour bar's axes come last
        image, best = axes.images[0], np.nanmax(table)
        for (row, column), value in np.ndenumerate(np.asarray(table, dtype=float)):
            if np.isnan(value):
                continue
            ink = canvas.ink(image.cmap(image.norm(value))[:3])
            weight = "bold" if value == best else "normal"
            axes.text(
                column, row, f"{value:.{decimals}f}", color=ink, ha="center", va="center", weight=weight
            )
            if value == best:
                frame = plt.Rectangle((column - 0.44, row - 0.44), 0.88, 0.88, fill=False, edgecolor=ink)
                axes.add_patch(frame)
    return figure


def image_grid(
    images: ArrayLike,
    titles: Sequence[str] | None = None,
    *,
    columns: int = 10,
    rows: Sequence[str] | None = None,
) -> Figure:
    """Show images in a grid, filled row by row.

    Parameters
    ----------
    images : array_like, shape (n, H, W), (n, 1, H, W) or (n, 3, H, W)
        Pictures. All share one scale from the darkest to the brightest value among them.
    titles : sequence of str, optional
        One short line above each image.
    columns : int
        Images per row.
    rows : sequence of str, optional
        The name of each row, for instance the cluster.
    """
    declared("columns", columns, Count)
    pictures = canvas.numbers("images", images)
    shaped = pictures.size and (pictures.ndim == 3 or (pictures.ndim == 4 and pictures.shape[1] in (1, 3)))
    require(shaped, "images.shape", pictures.shape, "(n, H, W), (n, 1, H, W) or (n, 3, H, W)")
    if pictures.ndim == 3:
        pictures = pictures[:, None]
    low, high = pictures.min(), pictures.max()
    pictures = np.moveaxis((pictures - low) / max(high - low, np.finfo(float).tiny), 1, -1)
    height = -(-len(pictures) // columns)
    tall = 0.7 if titles is None else 0.9
    figure, grid = canvas.subplots(height, columns, figsize=(0.66 * columns + 0.3, tall * height))
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    for axes, picture in zip(grid.flat, pictures, strict=False):
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.grid(False)
    for axes, title in zip(grid.flat, titles or (), strict=False):
        axes.set_title(title, fontsize="small", loc="center")
    for axes, name in zip(grid[:, 0], rows or (), strict=False):
        axes.set_ylabel(name, rotation=0, ha="right", va="center")
    return figure


def bars(
    measured: Mapping,
    printed: Mapping | None = None,
    *,
    xlabel: str = "accuracy [%]",
    decimals: int = 2,
    log: bool = False,
) -> Figure:
    """Draw measured values as bars and the paper's as hollow bars below them, values written out.

    Parameters
    ----------
    measured, printed : mapping of label to float or (float, float)
        A value, or a value and its standard deviation, drawn as an error bar. A label may be missing from
        either.
    xlabel : str
        What is measured, with its unit.
    decimals : int
        Decimals of the values written out.
    log : bool
        Logarithmic axis and values in thousands (k), millions (M), ..., for costs.
    """
    printed = printed or {}
    canvas.named("measured", {**measured, **printed})
    for label, value in [*measured.items(), *printed.items()]:
        ok = canvas.numbers(label, value).size in (1, 2)
        require(ok, label, value, "a number, or a number and its deviation")
    labels = list(dict.fromkeys([*measured, *printed]))
    figure, axes = canvas.subplots(figsize=(5.2, 0.7 + (0.52 if printed else 0.34) * len(labels)))
    height = 0.38 if printed else 0.7
    written = EngFormatter(sep=" ") if log else f"{{:.{decimals}f}}".format
    solid = {"color": [(canvas.look(k) or canvas.palette())[0] for k in labels if k in measured]}
    hollow = {"facecolor": "white", "edgecolor": "#333333", "linewidth": 1.1}
    for name, data, shift, look in [("measured", measured, -1, solid), ("printed", printed, 1, hollow)]:
        keys = [k for k in labels if k in data]
        if not keys:
            continue
        value, error = np.array([(*np.atleast_1d(data[k]), np.nan)[:2] for k in keys], dtype=float).T
        place = np.array([labels.index(k) for k in keys]) + (shift * height / 2 if printed else 0)
        axes.barh(place, value, height, label=name, **look)
        axes.errorbar(value, place, xerr=error, fmt="none", ecolor="#333333", elinewidth=1.2)
        for v, e, p in zip(value, np.nan_to_num(error), place, strict=True):
            text = f"{written(v)} ± {written(e)}" if e else written(v)
            axes.annotate(text, (v + e, p), (5, 0), textcoords="offset points", va="center", fontsize="small")
    if log:
        axes.set_xscale("log")
    axes.set(xlabel=xlabel, yticks=range(len(labels)), yticklabels=labels)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.margins(x=0.15)
    if printed:
        canvas.legend(axes)
    return figure


def _heat(
    panels: Mapping[str, ArrayLike], label: str, xlabel: str, ylabel: str, *, square: bool = True, ticks=None
) -> Figure:
    """Draw matrices as panels under one colour bar."""
    canvas.named("panels", panels)
    tables = [canvas.numbers(f"panels[{name!r}]", table, None, None) for name, table in panels.items()]
    figure, grid = canvas.panels(len(panels), 2.6 if square else 3.4)
    low, high = min(map(np.nanmin, tables)), max(map(np.nanmax, tables))
    for axes, name, table in zip(grid, panels, tables, strict=True):
        image = axes.imshow(
            table, vmin=low, vmax=high, aspect="equal" if square else "auto", interpolation="nearest"
        )
        axes.set_title(name)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        for axis, names in zip((axes.xaxis, axes.yaxis), ticks or (None, None), strict=True):
            if names is None:
                axis.set_major_locator(MaxNLocator(6, integer=True))
            else:
                axis.set_ticks(range(len(names)), list(map(str, names)))
    canvas.label_outer(grid, xlabel, ylabel)
    bar = figure.colorbar(image, ax=grid, label=label, shrink=0.9)
    bar.outline.set_visible(False)
    return figure


def curve(name: str, frame: object, y: str) -> tuple[np.ndarray, ...]:
    """Read what :func:`learning_curves` takes for a curve."""
    if isinstance(frame, pd.DataFrame):
        return _seeds(frame.reset_index() if frame.index.name == "round" else frame, y)
    ok = isinstance(frame, tuple | list) and len(frame) in (2, 4)
    require(ok, name, frame, "a frame, (x, y), or (x, y, low, high)")
    length = len(canvas.numbers(f"{name}[0]", frame[0], None))
    return tuple(canvas.numbers(f"{name}[{i}]", part, length) for i, part in enumerate(frame))


def _seeds(frame: pd.DataFrame, y: str) -> tuple:
    """Mean over the rows of a round, and a band of one standard deviation where there are several."""
    for column in ("round", y):
        require(column in frame.columns, "column", column, "one of " + ", ".join(map(str, frame.columns)))
    known = frame.dropna(subset=[y])
    require(len(known) > 0, "column", y, "scored in at least one round")
    rounds = known.groupby("round")[y]
    mean, std = rounds.mean(), rounds.std()
    x, middle = mean.index.to_numpy(), mean.to_numpy()
    return (x, middle) if std.isna().all() else (x, middle, (mean - std).to_numpy(), (mean + std).to_numpy())


def _ranks(assign: np.ndarray, count: int) -> np.ndarray:
    """Number the `count` largest clusters 0, 1, ... by order of first client; everybody else gets `count`."""
    names, first, size = np.unique(assign[assign >= 0], return_index=True, return_counts=True)
    large = np.argsort(-size, kind="stable")[:count]
    rank = {names[c]: i for i, c in enumerate(large[np.argsort(first[large])])}
    return np.array([rank.get(name, count) for name in assign])
