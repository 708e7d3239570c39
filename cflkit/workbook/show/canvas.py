"""What the book's figures share: one packaged style, colours, panels, legends, and a digest of plotted numbers."""

import hashlib
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from cflkit.checks import require

MARKERS = "os^DvPXh<>"
COLUMNS = 4  # panels side by side, at most
AREA = 24  # of a client in a scatter plot, in square points
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


def digest(array: ArrayLike, decimals: int = 6) -> str:
    """One short line that changes when the plotted numbers do, at the `decimals` that matter.

    Checks of notebooks compare it in place of pictures: ``(2, 3) mean 0.500000 sha256 0f1e2d3c4b5a``, rounded.
    """
    values = np.round(numbers("array", array).astype("<f8"), decimals) + 0.0  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = np.nan  # one bit pattern for all of them
    known = values[~np.isnan(values)]
    mean = round(float(known.mean()), decimals) + 0.0 if known.size else np.nan
    code = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:12]
    return f"{values.shape} mean {mean:.{decimals}f} sha256 {code}"


def numbers(name: str, value: object, *shape: int | str) -> np.ndarray:
    """Read an array of floats, of this shape if one is given: a letter stands for any length but nothing."""
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return require(False, name, value, "numbers")
    fits = len(shape) == array.ndim and all(has == wanted if isinstance(wanted, int) else has
                                            for has, wanted in zip(array.shape, shape, strict=True))  # fmt: skip
    require(fits or not shape, f"{name}.shape", array.shape, str(shape).replace("'", ""))
    return array


def named(name: str, value: object) -> None:
    """Require a mapping with at least one entry."""
    some = isinstance(value, Mapping) and len(value) > 0
    require(some, name, value, "a mapping from labels, with at least one entry")


def subplots(*shape: int, **options) -> tuple[Figure, Axes | np.ndarray]:
    """Open a figure and close it in pyplot, which would show it a second time at the end of the cell."""
    figure, axes = plt.subplots(*shape, squeeze=not shape, **options)
    plt.close(figure)
    return figure, axes


def panels(count: int, side: float) -> tuple[Figure, list[Axes]]:
    """Open `count` panels, ``COLUMNS`` to a row at most, and drop the places left over."""
    columns = min(count, COLUMNS)
    rows, side = -(-count // columns), min(side, 9.6 / columns)
    figure, grid = subplots(rows, columns, figsize=(side * columns + 0.9, side * rows + 0.3))
    for spare in grid.flat[count:]:
        spare.remove()
    return figure, list(grid.flat[:count])


def label_outer(grid: list[Axes], xlabel: str, ylabel: str) -> None:
    """Label the panels that have none below them, or none to their left."""
    for i, axes in enumerate(grid):
        below, left = i + COLUMNS < len(grid), i % COLUMNS > 0
        axes.set(xlabel="" if below else xlabel, ylabel="" if left else ylabel)
        axes.tick_params(labelbottom=not below, labelleft=not left)


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


def dot(label: str, colour: str, marker: str, area: float = AREA) -> Line2D:
    """Entry of a legend that looks like one client in a scatter plot."""
    return Line2D([], [], color=colour, marker=marker, markersize=area**0.5, linestyle="none", label=label)
