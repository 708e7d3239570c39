"""The benchmark of shifts: how far each method is ahead of fine-tuned FedAvg."""

from pathlib import Path

from cflkit.workbook.claims import ledger, verdicts
from cflkit.workbook.runs import records

SHIFTS = {"rotation": "images turned", "renamed": "labels renamed", "concept": "some classes turned",
          "shares": "uneven labels"}  # fmt: skip
STRENGTHS = (0.2, 0.4, 0.6, 0.8, 1.0)
TUNED = "FedAvg + fine-tuning"  # the row that all others are compared with


def leads(shift: str, folder: Path = records.FOLDER) -> dict[str, dict[float, verdicts.Gap]]:
    """Points ahead of it by row and strength of the tables ``dose-SHIFT-STRENGTH``, where enough seeds have run."""
    found: dict[str, dict[float, verdicts.Gap]] = {}
    for strength in STRENGTHS:
        name = f"dose-{shift}-{round(10 * strength):02d}"
        protocol = ledger.tables()[name]["protocol"]
        cells = {row.name: f"{protocol}/{row.label}/{row.metric}" for row in ledger.rows(name, folder)}
        for row, cell in cells.items():
            if row != TUNED and (gap := verdicts.compare(cell, cells[TUNED], folder)).n >= verdicts.SEEDS:
                found.setdefault(row, {})[strength] = gap
    return found
