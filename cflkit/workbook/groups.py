"""What ``book/measure/groups.py`` has measured of the first groups, as a table."""

import itertools
from collections.abc import Iterator, Mapping

from cflkit.engine import metrics
from cflkit.workbook.comparison import METHODS, hundredths, short

FEDERATIONS = {"common_rot_r20": "four rotations", "common_rot_skew_r20": "rotations, skewed labels"}
# methods that take their first groups from one common model, with what is changed of the comparison's setting
GROUPED = (("fedgroup", {}), ("fesem", {}), *(("stocfl", {"tau": tau}) for tau in (0.1, 0.3, 0.5, 0.7, 0.9)))


def cells(measured: Mapping) -> Iterator[list[str]]:
    """Give the table of what was measured, a list of cells for each federation and method."""
    names = {method.label: method.name.partition(",")[0] for method in METHODS}
    for protocol, (label, changed) in itertools.product(FEDERATIONS, GROUPED):
        what = {"protocol": protocol, "label": label, "changed": changed}
        runs = [row for row in measured["rows"] if what.items() <= row.items()]
        if runs:
            name = ", ".join([names[label], *(f"τ = {tau:g}" for tau in changed.values())])
            agreement = [_spread([row[other] for row in runs]) for other in ("with_clusters", "with_labels")]
            groups = short(row["groups"] for row in runs)
            yield [FEDERATIONS[protocol], name, groups, *agreement, f"{len(runs)}"]


def _spread(values: list[float]) -> str:
    """Mean and standard deviation with two decimals."""
    found = metrics.spread(values)
    return f"{hundredths(found['mean'])} ± {hundredths(found['std'])}"
