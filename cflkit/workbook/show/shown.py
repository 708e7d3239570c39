"""Outputs of a chapter: what a reader sees is rounded, what a check compares is exact.

A page shows a table or a figure. The same output carries, as plain text, every number with six decimals or a digest
of what is drawn. nbval compares that text, and no page shows it.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from numbers import Real

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from cflkit.checks import require

EXACT = 6  # decimals that are compared


class Table:
    """A table that pages show rounded.

    Parameters
    ----------
    rows : mapping of row to mapping of column to value
        Numbers, texts, truth values, and tuples for what goes from one to the next; what is missing is None or NaN,
        or left out.
    decimals : int or mapping of column to int
        Decimals of the floats that are shown; a column that is not named has two.
    corner : str
        The heading of the first column.
    signed : sequence of str
        Columns whose numbers show a plus sign.
    """

    def __init__(self, rows: Mapping[str, Mapping], decimals: int | Mapping[str, int] = 2, *, corner: str = "case",
                 signed: Sequence[str] = ()):  # fmt: skip
        ok = isinstance(rows, Mapping) and len(rows) > 0
        require(ok, "rows", rows, 'a mapping with a row or more; of a DataFrame, `frame.to_dict("index")`')
        self.rows = {str(name): dict(row) for name, row in rows.items()}
        self.columns = list(dict.fromkeys(column for row in self.rows.values() for column in row))
        self.corner, self.signed = corner, set(signed)
        self.decimals = dict.fromkeys(self.columns, decimals) if isinstance(decimals, int) else decimals

    def _lines(self, exact: bool) -> Iterator[list[str]]:
        yield [self.corner, *map(str, self.columns)]
        for name, row in self.rows.items():
            yield [name, *(_written(row.get(c), EXACT) if exact else
                           _written(row.get(c), self.decimals.get(c, 2), "+" * (c in self.signed))
                           for c in self.columns)]  # fmt: skip

    def _repr_markdown_(self) -> str:
        columns = [[row.get(c) for row in self.rows.values()] for c in self.columns]
        figures = [all(v is None or (isinstance(v, Real) and not isinstance(v, bool)) for v in column)
                   for column in columns]  # fmt: skip
        head, *rows = self._lines(exact=False)
        lines = [head, ["---", *("---:" if f else "---" for f in figures)], *rows]
        escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)  # a bare one would end the cell
        return "\n".join(f"| {' | '.join(line)} |" for line in escaped)

    def __repr__(self) -> str:
        return "\n".join(map(" | ".join, self._lines(exact=True)))


class Picture:
    """A figure whose plain text is a digest of `drawn`, the numbers behind it, at the `decimals` that matter."""

    def __init__(self, figure: Figure, drawn: ArrayLike | Sequence[ArrayLike], decimals: int = EXACT):
        flat = np.concatenate([np.ravel(part) for part in drawn])
        self.figure, self.digest = figure, digest(flat, decimals)
        plt.close(figure)  # which pyplot would show a second time at the end of the cell

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.figure.savefig(buffer, format="png", bbox_inches="tight", metadata={"Software": None})
        return buffer.getvalue()

    def __repr__(self) -> str:
        return self.digest


def digest(array: ArrayLike, decimals: int = 6) -> str:
    """One short line that changes when the plotted numbers do, at the `decimals` that matter.

    Checks of notebooks compare it in place of pictures: ``(2, 3) mean 0.500000 sha256 0f1e2d3c4b5a``, rounded.
    """
    values = np.round(np.asarray(array, "<f8"), decimals) + 0.0  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = np.nan  # one bit pattern for all of them
    known = values[~np.isnan(values)]
    mean = round(float(known.mean()), decimals) + 0.0 if known.size else np.nan
    code = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:12]
    return f"{values.shape} mean {mean:.{decimals}f} sha256 {code}"


def _written(value: object, decimals: int, sign: str = "") -> str:
    """Write a cell: truth values as words, floats with `decimals`, and a real minus sign."""
    if value is None or value != value:  # NaN
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " → ".join(_written(part, decimals, sign) for part in value)
    if not isinstance(value, Real):
        return str(value)
    if isinstance(value, int | np.integer):
        return f"{int(value):{sign},}".replace("-", "−")
    return f"{round(float(value), decimals) + 0.0:{sign},.{decimals}f}".replace("-", "−")  # -0.0 + 0.0 is 0.0
