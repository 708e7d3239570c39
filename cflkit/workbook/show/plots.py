"""The book's figures, in one packaged style, and a digest to print beside each.

Every function takes plain arrays or frames and returns the figure, closed in pyplot, so that a notebook shows
it once, as the value of its cell. Hue alone tells nothing: lines carry their names, clusters their markers,
and heat maps run from dark to light. Drawn twice, a figure saves to the same bytes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from cflkit.checks import Count, declared, require
from cflkit.workbook.show import canvas
from cflkit.workbook.show.canvas import digest, use_style

__all__ = ["cosine_matrices", "digest", "embedding", "image_grid", "label_mix", "learning_curves", "use_style"]


def learning_curves(frames: Mapping, y: str = "accuracy", *, ylabel: str | None = None) -> Figure:
    """Draw one curve per method over the rounds, in the method's colour, named at its right end.

    Parameters
    ----------
    frames : mapping of label to DataFrame or tuple
        A frame has the column `y`, and ``round`` as a column or as its index. Rounds without a value are passed
        over; where a round has several rows (one per seed), the line is their mean and the band one standard
        deviation (ddof 1) to either side. A tuple is ``(x, y)`` or ``(x, y, low, high)``.
    y : str
        The column to draw.
    ylabel : str, optional
        Its name on the axis, `y` itself by default.
    """
    canvas.named("frames", frames)
    curves = {label: curve(f"frames[{label!r}]", frame, y) for label, frame in frames.items()}
    figure, axes = canvas.subplots()
    drawn = Counter()
    for label, frame in curves.items():
        style = {}
        if own := canvas.look(label):
            every = -(-frame["round"].nunique() // 8)
            style = {"color": own[0], "marker": own[1], "markevery": every, "markersize": 4,
                     "linestyle": canvas.DASHES[drawn[own] % len(canvas.DASHES)]}  # fmt: skip
        drawn[own] += 1
        style["errorbar"] = "sd" if frame["round"].duplicated().any() else None
        sns.lineplot(frame, x="round", y=y, err_kws={"linewidth": 0}, legend=False, ax=axes, **style)
        axes.lines[-1].set_label(label)
        if "low" in frame:
            band = {"color": axes.lines[-1].get_color(), "alpha": 0.2, "linewidth": 0}
            axes.fill_between("round", "low", "high", data=frame, **band)
    axes.set(xlabel="round", ylabel=ylabel or y)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    canvas.name_ends(axes)
    return figure


def curve(name: str, frame: object, y: str) -> pd.DataFrame:
    """Read what :func:`learning_curves` takes for a curve: its rounds that were scored."""
    if not isinstance(frame, pd.DataFrame):
        ok = isinstance(frame, tuple | list) and len(frame) in (2, 4)
        require(ok, name, frame, "a frame, (x, y), or (x, y, low, high)")
        length = len(canvas.numbers(f"{name}[0]", frame[0], None))
        parts = [canvas.numbers(f"{name}[{i}]", part, length) for i, part in enumerate(frame)]
        return pd.DataFrame(dict(zip(("round", y, "low", "high"), parts, strict=False)))
    frame = frame.reset_index() if frame.index.name == "round" else frame
    for column in ("round", y):
        require(column in frame.columns, "column", column, "one of " + ", ".join(map(str, frame.columns)))
    known = frame[["round", y]].dropna()
    require(len(known) > 0, "column", y, "scored in at least one round")
    return known


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


def _ranks(assign: np.ndarray, count: int) -> np.ndarray:
    """Number the `count` largest clusters 0, 1, ... by order of first client; everybody else gets `count`."""
    names, first, size = np.unique(assign[assign >= 0], return_index=True, return_counts=True)
    large = np.argsort(-size, kind="stable")[:count]
    rank = {names[c]: i for i, c in enumerate(large[np.argsort(first[large])])}
    return np.array([rank.get(name, count) for name in assign])


def cosine_matrices(panels: Mapping[str, ArrayLike]) -> Figure:
    """Draw cosines between clients side by side, under one scale of colours (StoCFL, Figure 2).

    Parameters
    ----------
    panels : mapping of title to array_like, shape (n, m)
        The matrices.
    """
    canvas.named("panels", panels)
    tables = {name: canvas.numbers(f"panels[{name!r}]", table, None, None) for name, table in panels.items()}
    figure, grid = canvas.panels(len(panels), 2.6)
    ends = {"vmin": min(map(np.nanmin, tables.values())), "vmax": max(map(np.nanmax, tables.values()))}
    for axes, (name, table) in zip(grid, tables.items(), strict=True):
        _heat(table, axes, square=True, **ends)
        axes.set_title(name)
    canvas.label_outer(grid, "client", "client")
    _bar(grid, "cosine similarity")
    return figure


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
    order = np.zeros(len(counts)) if clusters is None else canvas.numbers("clusters", clusters, len(counts))
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    figure, (axes,) = canvas.panels(1, 3.4)
    _heat(share[np.argsort(order, kind="stable")], axes)
    borders = np.flatnonzero(np.diff(np.sort(order))) + 1
    axes.hlines(borders, 0, counts.shape[1], color="white", linewidth=1.5)
    axes.set(xlabel="class", ylabel="client" if clusters is None else "client, by cluster")
    if clusters is not None:
        axes.set_yticks([])
    _bar([axes], "share of the client's images")
    return figure


def _heat(table: np.ndarray, axes, **options) -> None:
    """Draw a matrix with six numbers or fewer on each axis."""
    steps = (-(-length // 6) for length in table.shape[::-1])
    sns.heatmap(table, cmap="cividis", cbar=False, ax=axes, **options,
                **dict(zip(("xticklabels", "yticklabels"), steps, strict=True)))  # fmt: skip
    axes.tick_params(rotation=0)
    axes.grid(False)


def _bar(grid: list, label: str) -> None:
    """Draw the colour bar of all panels."""
    bar = grid[0].figure.colorbar(grid[0].collections[0], ax=grid, label=label, shrink=0.9)
    bar.outline.set_visible(False)


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
