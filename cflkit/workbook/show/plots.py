"""The book's figures, in one packaged style; :class:`.shown.Picture` prints a digest beside each.

Every function takes plain arrays or frames and returns the figure, closed in pyplot, so that a notebook shows
it once, as the value of its cell. Hue alone tells nothing: lines carry their names, clusters their markers,
and heat maps run from dark to light. Drawn twice, a figure saves to the same bytes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from cflkit.checks import require
from cflkit.workbook.show import canvas


def use_style() -> None:
    """Use the book's style (``cflkit/workbook/show/cflkit.mplstyle``) for every figure from here on."""
    plt.style.use(["default", "cflkit.workbook.show.cflkit"])


def learning_curves(frames: Mapping, y: str = "accuracy", *, ylabel: str = "") -> Figure:
    """Draw one curve per method over the rounds, in the method's colour, named at its right end.

    Parameters
    ----------
    frames : mapping of label to DataFrame or tuple
        A frame has the column `y`, and ``round`` as a column or as its index; a tuple is ``(x, y)``. Where a round
        has several rows (one per seed), the band is one standard deviation (ddof 1) to either side of their mean.
    y, ylabel : str
        The column to draw, and its name on the axis (`y` itself if empty).
    """
    canvas.named("frames", frames)
    curves = {label: curve(f"frames[{label!r}]", frame, y) for label, frame in frames.items()}
    figure, axes = canvas.subplots()
    drawn = Counter()
    for label, frame in curves.items():
        style = {"errorbar": "sd" if frame["round"].duplicated().any() else None}
        if own := canvas.look(label):
            every = -(-frame["round"].nunique() // 8)
            style |= {"color": own[0], "marker": own[1], "markevery": every, "markersize": 4,
                      "linestyle": canvas.DASHES[drawn[own] % len(canvas.DASHES)]}  # fmt: skip
        drawn[own] += 1
        sns.lineplot(frame, x="round", y=y, err_kws={"linewidth": 0}, legend=False, ax=axes, **style)
        axes.lines[-1].set_label(label)
    axes.set(xlabel="round", ylabel=ylabel or y)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    canvas.name_ends(axes)
    return figure


def curve(name: str, frame: object, y: str) -> pd.DataFrame:
    """Read what :func:`learning_curves` takes for a curve: its rounds that were scored."""
    if not isinstance(frame, pd.DataFrame):
        ok = isinstance(frame, tuple | list) and len(frame) == 2
        require(ok, name, frame, "a frame, or (x, y)")
        x = canvas.numbers(f"{name}[0]", frame[0], "n")
        return pd.DataFrame({"round": x, y: canvas.numbers(f"{name}[1]", frame[1], len(x))})
    frame = frame.reset_index() if frame.index.name == "round" else frame
    for column in ("round", y):
        require(column in frame.columns, "column", column, "one of " + ", ".join(map(str, frame.columns)))
    known = frame[["round", y]].dropna()
    require(len(known) > 0, "column", y, "scored in at least one round")
    return known


def embedding(points: Mapping[str, ArrayLike], clusters: Mapping[str, ArrayLike], truth: ArrayLike) -> Figure:
    """Scatter clients in the plane, a panel for each title, by found cluster and by true one (FeSEM, Figure 4).

    Parameters
    ----------
    points : mapping of title to array_like, shape (N, 2)
        The clients after PCA or t-SNE.
    clusters : mapping of title to array_like of int, shape (N,)
        Cluster of each client, shown by the colour, in the order of their first clients; from the eighth on grey.
    truth : array_like of int, shape (N,)
        True cluster of each client, shown by the marker.
    """
    canvas.named("clusters", clusters)
    require(list(points) == list(clusters), "points", list(points), f"sets for the panels {list(clusters)}")
    kinds = np.unique(truth).tolist()
    markers = dict(zip(kinds, canvas.MARKERS, strict=False))
    figure, grid = canvas.panels(len(clusters), 2.9)
    for axes, (name, given) in zip(grid, clusters.items(), strict=True):
        place = canvas.numbers("points", points[name], "n", 2)
        found = pd.factorize(canvas.numbers("clusters", given, len(place)))[0]
        own, wanted = canvas.palette(), canvas.numbers("truth", truth, len(place)).astype(int)
        colours = {number: own[number] if number < len(own) else canvas.OTHER for number in set(found)}
        sns.scatterplot(x=place[:, 0], y=place[:, 1], hue=found, style=wanted, palette=colours, markers=markers,
                        s=canvas.AREA, alpha=0.9, linewidth=0, legend=False, ax=axes)  # fmt: skip
        axes.set(title=f"{name}: {len(colours)} clusters", xticks=[], yticks=[])
    canvas.label_outer(grid, "first component", "second component")
    handles = [canvas.dot(f"true {kind}", "#333333", marker) for kind, marker in markers.items()]
    figure.legend(handles=handles, loc="outside right upper", title="colour: found cluster")
    return figure


def cosine_matrices(panels: Mapping[str, ArrayLike]) -> Figure:
    """Draw matrices (n, m) of cosines between clients side by side, under one scale (StoCFL, Figure 2)."""
    canvas.named("panels", panels)
    tables = {name: canvas.numbers(f"panels[{name!r}]", table, "n", "m") for name, table in panels.items()}
    figure, grid = canvas.panels(len(panels), 2.6)
    _heat(tables, grid, "cosine similarity", square=True)
    canvas.label_outer(grid, "client", "client")
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
    counts = canvas.numbers("label_counts", label_counts, "n", "m")
    order = np.zeros(len(counts)) if clusters is None else canvas.numbers("clusters", clusters, len(counts))
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    figure, (axes,) = canvas.panels(1, 3.4)
    _heat({"": share[np.argsort(order, kind="stable")]}, [axes], "share of the client's images")
    borders = np.flatnonzero(np.diff(np.sort(order))) + 1
    axes.hlines(borders, 0, counts.shape[1], color="white", linewidth=1.5)
    axes.set(xlabel="class", ylabel="client" if clusters is None else "client, by cluster")
    if clusters is not None:
        axes.set_yticks([])
    return figure


def _heat(tables: Mapping[str, np.ndarray], grid: Sequence[Axes], label: str, **options) -> None:
    """Draw tables by title, under one scale, with one bar beside them."""
    ends = {"vmin": min(map(np.nanmin, tables.values())), "vmax": max(map(np.nanmax, tables.values()))}
    for axes, (title, table) in zip(grid, tables.items(), strict=True):
        rows, columns = (-(-length // 6) for length in table.shape)  # six numbers or fewer on each axis
        sns.heatmap(table, cmap="cividis", cbar=False, xticklabels=columns, yticklabels=rows, ax=axes,
                    **ends, **options)  # fmt: skip
        axes.set_title(title)
        axes.tick_params(rotation=0)
        axes.grid(False)
    bar = grid[0].figure.colorbar(grid[0].collections[0], ax=grid, label=label, shrink=0.9)
    bar.outline.set_visible(False)


def image_grid(images: ArrayLike, titles: Sequence[str] = (), *, rows: Sequence[str]) -> Figure:
    """Show grey images in rows of ten.

    Parameters
    ----------
    images : array_like, shape (n, H, W) or (n, 1, H, W)
        Pictures. All share one scale from the darkest to the brightest value among them.
    titles, rows : sequence of str
        One short line above each image, and the name of each row, for instance the cluster.
    """
    pictures = canvas.numbers("images", images)
    shaped = pictures.size and (pictures.ndim == 3 or (pictures.ndim == 4 and pictures.shape[1] == 1))
    require(shaped, "images.shape", pictures.shape, "(n, H, W) or (n, 1, H, W)")
    pictures = pictures.reshape(-1, *pictures.shape[-2:])
    height = -(-len(pictures) // 10)
    figure, grid = canvas.subplots(height, 10, figsize=(6.9, (0.9 if len(titles) else 0.7) * height))
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.grid(False)
    for axes, picture in zip(grid.flat, pictures, strict=False):
        axes.imshow(picture, cmap="gray", vmin=pictures.min(), vmax=pictures.max(), interpolation="nearest")
    for axes, title in zip(grid.flat, titles, strict=False):
        axes.set_title(title, fontsize="small", loc="center")
    for axes, name in zip(grid[:, 0], rows, strict=False):
        axes.set_ylabel(name, rotation=0, ha="right", va="center")
    return figure
