"""The book's figures, in one packaged style; :class:`.shown.Picture` prints a digest beside each.

Every function takes plain arrays or frames and returns the figure. Hue alone tells nothing: lines carry their names
and markers. Drawn twice, a figure saves to the same bytes.
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
from scipy.optimize import isotonic_regression

from cflkit.checks import require
from cflkit.workbook import strict

MARKERS = "os^DvPXh<>"
OTHER = "#767676"  # what has no colour of its own: 4.5:1 on white
DASHES = ["-", "--", ":", "-."]  # of several curves of one method
# A method's colour and marker in the whole book, by the start of its label. Any two are far apart, in
# every kind of sight. Each has 3:1 on white, and on the dark page after the dark theme's filter (book.css,
# which has the same colours for drawings). What has none is grey, with its name at the line.
LOOKS = {
    "StoCFL": ("#0072B2", "o"), "IFCA": ("#E74712", "s"), "FeSEM": ("#35A265", "^"), "MD-ICFL": ("#772D64", "D"),
    "LCFed": ("#6D5024", "v"), "FedCG": ("#6B0FB6", "P"), "FedAvg": ("#000000", "X"), "global": ("#000000", "X"),
    "FedAvg + fine-tuning": ("#000000", "*"), "FedAvg, fine-tuned": ("#000000", "*"),
    "PACFL": ("#9E953F", "D"), "FLUX": ("#B50698", "h"), "FedDrift": ("#1E5D4A", "p"), "FedSoft": ("#8083F8", "<"),
    "FedRC": ("#620603", ">"), "FedEM": ("#BF7BAA", "d"),
    "CFL": (OTHER, "h"), "Sattler's CFL": (OTHER, "h"), "ClusteredFL": (OTHER, "h"), "local": (OTHER, "<"),
    "NoFed": (OTHER, "<"), "training alone": (OTHER, "<"), "oracle": (OTHER, ">"), "true groups": (OTHER, ">"),
    "FedProx": (OTHER, "p"), "Ditto": (OTHER, "*"), "FedPer": (OTHER, "H"), "FedFomo": (OTHER, "d"),
    "FedGroup": (OTHER, "X"), "CGPFL": (OTHER, "D"), "FedSGD": (OTHER, "v"), "FedDist": (OTHER, "^"),
    "FedDane": (OTHER, "s"), "FedCluster": (OTHER, "P"), "Robust": (OTHER, "h"), "SCAFFOLD": (OTHER, "o"),
}  # fmt: skip


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
    require(len(frames) > 0, "frames", frames, "at least one curve")
    figure, drawn = Figure(), Counter()
    axes = figure.subplots()
    for label, given in frames.items():
        with strict.at("frames", label):
            frame = curve(given, y)
        style = {"errorbar": "sd" if frame["round"].duplicated().any() else None}
        if own := look(label):
            every = -(-frame["round"].nunique() // 8)
            style |= {"color": own[0], "marker": own[1], "markevery": every, "markersize": 4,
                      "linestyle": DASHES[drawn[own] % len(DASHES)]}  # fmt: skip
        drawn[own] += 1
        sns.lineplot(frame, x="round", y=y, err_kws={"linewidth": 0}, legend=False, ax=axes, **style)
        axes.lines[-1].set_label(label)
    axes.set(xlabel="round", ylabel=ylabel or y)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    name_ends(axes)
    return figure


def curve(frame: object, y: str) -> pd.DataFrame:
    """Read what :func:`learning_curves` takes for a curve: its rounds that were scored."""
    if not isinstance(frame, pd.DataFrame):
        x, values = frame
        frame = pd.DataFrame({"round": x, y: values}, dtype=float)
    frame = frame.reset_index() if frame.index.name == "round" else frame
    known = frame[["round", y]].dropna()
    require(len(known) > 0, y, None, "scored in at least one round")
    return known


def image_grid(images: ArrayLike, titles: Sequence[str] = (), *, rows: Sequence[str]) -> Figure:
    """Show grey images in rows of ten.

    Parameters
    ----------
    images : array_like, shape (n, H, W) or (n, 1, H, W)
        Pictures. All share one scale from the darkest to the brightest value among them.
    titles, rows : sequence of str
        One short line above each image, and the name of each row, for instance the cluster.
    """
    pictures = np.asarray(images, dtype=float).reshape(-1, *images.shape[-2:])
    height = -(-len(pictures) // 10)
    figure = Figure(figsize=(6.9, (0.9 if len(titles) else 0.7) * height))
    grid = figure.subplots(height, 10, squeeze=False)
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


def name_ends(axes: Axes) -> None:
    """Write each line's label to the right of its last point, moved apart where labels would touch."""
    low, high = axes.get_ylim()
    height = axes.figure.get_figheight() * 72 * 0.8  # points, less what the axis below takes
    lines = sorted(axes.lines, key=lambda line: line.get_ydata()[-1])
    ends = [(line.get_ydata()[-1] - low) / (high - low) for line in lines]
    places = apart(ends, 1.25 * plt.rcParams["font.size"] / height)
    above = max(0, places[-1] - 1.15)  # higher ones would leave the figure
    for at, line in zip(places, lines, strict=True):
        arrow = {"arrowstyle": "-", "color": line.get_color(), "linestyle": line.get_linestyle(), "shrinkA": 1,
                 "shrinkB": 0, "relpos": (0, 0.5)}  # fmt: skip
        axes.annotate(line.get_label(), line.get_xydata()[-1], (1.06, at - above), textcoords="axes fraction",
                      va="center", annotation_clip=False, arrowprops=arrow)  # fmt: skip


def apart(ends: Sequence[float], gap: float) -> np.ndarray:
    """Move sorted places the least needed, in the sum of squares, until neighbours are `gap` apart."""
    steps = gap * np.arange(len(ends))
    return isotonic_regression(ends - steps).x + steps


def palette() -> list[str]:
    """List the style's colours, each once."""
    return list(dict.fromkeys(plt.rcParams["axes.prop_cycle"].by_key()["color"]))


def look(label: str) -> tuple[str, str] | None:
    """Give the colour and the marker of the longest method that a label starts with, None if there is none."""
    return LOOKS.get(max((name for name in LOOKS if label.startswith(name)), key=len, default=""))
