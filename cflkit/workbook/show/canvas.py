"""What the book's figures share: one packaged style, colours, panels, legends, and a digest of plotted numbers."""

import hashlib
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from cflkit.checks import require

MARKERS = "os^DvPXh<>"
COLUMNS = 4  # panels side by side, at most
AREA = {"seen": 24, "unseen": 7}  # of a client in a scatter plot, in square points
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


def digest(array: ArrayLike, decimals: int = 6) -> str:
    """One short line that changes when the plotted numbers do.

    Notebook checks do not compare pictures; they compare this line, printed beside each picture.

    Parameters
    ----------
    array : array_like
        What is plotted. Missing values are allowed, and -0.0 counts as 0.0.
    decimals : int
        Decimals that matter; the rest is rounded away first.

    Returns
    -------
    str
        Shape, mean of what is not missing, and the start of the SHA-256 of the rounded values, as in
        ``(2, 3) mean 0.500000 sha256 0f1e2d3c4b5a``.
    """
    values = np.round(numbers("array", array).astype("<f8"), decimals) + 0.0  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = np.nan  # one bit pattern for all of them
    known = values[~np.isnan(values)]
    mean = round(float(known.mean()), decimals) + 0.0 if known.size else float("nan")
    code = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:12]
    return f"{values.shape} mean {mean:.{decimals}f} sha256 {code}"


def contrast(first: str | tuple, second: str | tuple) -> float:
    """Contrast ratio of two opaque colours after WCAG 2.2: from 1 (the same) to 21 (black on white)."""

    def luminance(colour):
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in to_rgb(colour)]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    dark, light = sorted([luminance(first), luminance(second)])
    return (light + 0.05) / (dark + 0.05)


def numbers(name: str, value: object, *shape: int | None) -> np.ndarray:
    """Read an array of floats.

    Parameters
    ----------
    name : str
        The argument, for the error.
    value : object
        What was given.
    *shape : int or None
        The length that each dimension must have; None allows any but nothing. Without any, all shapes are allowed.

    Raises
    ------
    ValueError
        Not numbers, or of another shape.
    """
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        array = None
    require(array is not None, name, value, "numbers")
    fits = not shape or (len(shape) == array.ndim and all(
        has == (wanted or max(has, 1)) for wanted, has in zip(shape, array.shape, strict=True)
    ))
    letters = iter("nmk")
    wanted = ", ".join(str(length or next(letters)) for length in shape) + "," * (len(shape) == 1)
    require(fits, f"{name}.shape", array.shape, f"({wanted})")
    return array


def named(name: str, value: object) -> None:
    """Require a mapping with at least one entry."""
    ok = isinstance(value, Mapping) and len(value) > 0
    require(ok, name, value, "a mapping from labels, with at least one entry")


def subplots(*shape: int, **options) -> tuple[Figure, Axes | np.ndarray]:
    """Open a figure and close it in pyplot, which would show it a second time at the end of the cell."""
    figure, axes = plt.subplots(*shape, squeeze=not shape, **options)
    plt.close(figure)
    return figure, axes


def panels(count: int, side: float) -> tuple[Figure, list[Axes]]:
    """Open `count` panels, ``COLUMNS`` to a row at most, and drop the places left over."""
    columns = min(count, COLUMNS)
    rows = -(-count // columns)
    side = min(side, 9.6 / columns)
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
    gap = 1.25 * plt.rcParams["font.size"] / height
    lines = sorted(axes.lines, key=lambda line: line.get_ydata()[-1])
    place = apart([(line.get_ydata()[-1] - low) / (high - low) for line in lines], gap)
    above = max(0, place[-1] - 1.15) if place else 0  # higher ones would leave the figure
    place = [at - above for at in place]
    for at, line in zip(place, lines, strict=True):
        axes.annotate(
            line.get_label(),
            (line.get_xdata()[-1], line.get_ydata()[-1]),
            (1.06, at), textcoords="axes fraction", va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": line.get_color(), "shrinkA": 1, "shrinkB": 0,
                        "linestyle": line.get_linestyle(), "relpos": (0, 0.5)},
        )  # fmt: skip


def apart(ends: Sequence[float], gap: float) -> list[float]:
    """Move sorted places the least needed, in blocks around their means, until neighbours are `gap` apart."""
    blocks: list[list[float]] = []
    for end in ends:
        blocks.append([end])
        while len(blocks) > 1 and _start(blocks[-1], gap) - _start(blocks[-2], gap) < gap * len(blocks[-2]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [_start(block, gap) + gap * i for block in blocks for i in range(len(block))]


def _start(block: list[float], gap: float) -> float:
    """First place of a block that is centred on the mean of its ends."""
    return float(np.mean(block)) - gap * (len(block) - 1) / 2


def palette() -> list[str]:
    """List the style's colours, each once."""
    return list(dict.fromkeys(plt.rcParams["axes.prop_cycle"].by_key()["color"]))


def look(label: str) -> tuple[str, str] | None:
    """Give the colour and the marker of the longest method that a label starts with, None if there is none."""
    return LOOKS.get(max((name for name in LOOKS if label.startswith(name)), key=len, default=""))


def ink(ground: tuple) -> str:
    """Black or white, whichever reads better: at least 4.5:1 on any ground."""
    return max(("black", "white"), key=lambda colour: contrast(colour, ground))


def dot(label: str, colour: str, marker: str, area: float = AREA["seen"]) -> Line2D:
    """Entry of a legend that looks like one client in a scatter plot."""
    return Line2D([], [], color=colour, marker=marker, markersize=area**0.5, linestyle="none", label=label)


def legend(axes: Axes, **options) -> None:
    """Put the legend beside the data, never on it."""
    axes.figure.legend(loc="outside right upper", **options)
