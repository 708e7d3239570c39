"""The benchmark of shifts: how far each method is ahead of fine-tuned FedAvg."""

from pathlib import Path

from cflkit.workbook.claims import ledger, verdicts
from cflkit.workbook.runs import records

SHIFTS = {"rotation": "images turned", "renamed": "labels renamed", "concept": "some classes turned",
          "shares": "uneven labels", "corruption": "images corrupted"}  # fmt: skip
DATA = {"MNIST": "dose", "Fashion-MNIST": "dose-fashion"}  # how the names of their tables begin
LATER = ("FLUX", "Ditto", "FedSoft", "FeSEM", "FedEM", "FedRC")  # rows of the second part, drawn apart
STRENGTHS = (0.2, 0.4, 0.6, 0.8, 1.0)
TUNED = "FedAvg + fine-tuning"  # the row that all others are compared with


def doses(data: str, shift: str) -> dict[float, str]:
    """Names of the tables that hold a shift's strengths on a data set of `DATA`; none if it has no cells there."""
    names = {strength: f"{DATA[data]}-{shift}-{round(10 * strength):02d}" for strength in STRENGTHS}
    return {strength: name for strength, name in names.items() if name in ledger.tables()}


def leads(data: str, shift: str, folder: Path = records.FOLDER) -> dict[str, dict[float, verdicts.Gap]]:
    """Points ahead of it by row and strength of the tables, where all seeds have run."""
    found: dict[str, dict[float, verdicts.Gap]] = {}
    for strength, name in doses(data, shift).items():
        protocol, seeds = ledger.tables()[name]["protocol"], ledger.tables()[name]["seeds"]
        cells = {row.name: f"{protocol}/{row.label}/{row.metric}" for row in ledger.rows(name, folder)}
        for row, cell in cells.items():
            if row != TUNED and (gap := verdicts.compare(cell, cells[TUNED], folder)).n >= seeds:
                found.setdefault(row, {})[strength] = gap
    return found
