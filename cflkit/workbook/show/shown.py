"""Outputs of a chapter: what a reader sees is rounded, what a check compares is exact.

A page shows a table or a figure. The same output carries, as plain text, every number with six decimals or a digest
of what is drawn. nbval compares that text, and no page shows it.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from numbers import Real

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from cflkit.checks import require
from cflkit.workbook.show import canvas

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

    def __init__(
        self,
        rows: Mapping[str, Mapping],
        decimals: int | Mapping[str, int] = 2,
        *,
        corner: str = "case",
        signed: Sequence[str] = (),
    ):
        ok = isinstance(rows, Mapping) and len(rows) > 0
        require(ok, "rows", rows, 'a mapping with a row or more; of a DataFrame, `frame.to_dict("index")`')
        self.rows = {str(name): dict(row) for name, row in rows.items()}
        self.columns = list(dict.fromkeys(column for row in self.rows.values() for column in row))
        self.decimals, self.corner, self.signed = decimals, corner, set(signed)

    def _seen(self, column: str, value: object) -> str:
        """Write a value as a page shows it."""
        places = self.decimals if isinstance(self.decimals, int) else self.decimals.get(column, 2)
        return _written(value, places, "+" if column in self.signed else "")

    def _repr_markdown_(self) -> str:
        figures = [all(_is_number(row.get(c)) for row in self.rows.values()) for c in self.columns]
        lines = [[self.corner, *map(str, self.columns)], ["---", *("---:" if f else "---" for f in figures)]]
        lines += [[name, *(self._seen(c, row.get(c)) for c in self.columns)] for name, row in self.rows.items()]
        escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)  # a bare one would end the cell
        return "\n".join(f"| {' | '.join(line)} |" for line in escaped)

    def __repr__(self) -> str:
        lines = [[self.corner, *map(str, self.columns)]]
        lines += [[name, *(_written(row.get(c), EXACT) for c in self.columns)] for name, row in self.rows.items()]
        return "\n".join(" | ".join(line) for line in lines)


class Picture:
    """A figure whose plain text is a digest of what it shows.

    Parameters
    ----------
    figure : Figure
        The figure.
    drawn : array_like or sequence of array_like
        The numbers behind it.
    decimals : int
        Decimals that matter.
    """

    def __init__(self, figure: Figure, drawn: ArrayLike | Sequence[ArrayLike], decimals: int = EXACT):
        flat = [np.ravel(part) for part in drawn]
        self.figure, self.digest = figure, canvas.digest(np.concatenate(flat), decimals)

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.figure.savefig(buffer, format="png", bbox_inches="tight", metadata={"Software": None})
        return buffer.getvalue()

    def __repr__(self) -> str:
        return self.digest


def _is_number(value: object) -> bool:
    """Tell whether a cell holds a number or nothing."""
    return _is_missing(value) or (isinstance(value, Real) and not isinstance(value, bool | np.bool_))


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, Real) and bool(np.isnan(value)))


def _written(value: object, decimals: int, sign: str = "") -> str:
    """Write a cell: truth values as words, floats with `decimals`, and a real minus sign."""
    if _is_missing(value):
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " → ".join(_written(part, decimals, sign) for part in value)
    if not isinstance(value, Real):
        return str(value)
    if isinstance(value, int | np.integer):
        text = f"{int(value):{sign},}"
    else:
        text = f"{round(float(value), decimals) + 0.0:{sign},.{decimals}f}"  # -0.0 + 0.0 is 0.0
    return text.replace("-", "−")
