"""All methods in the same federations: the scores that the comparison shows, read from the records."""

from pathlib import Path

from cflkit.workbook.claims import ledger, verdicts
from cflkit.workbook.runs import records

SITUATIONS = {"rot": "turned images", "shift": "labels renamed", "rot-skew": "turned, uneven labels"}
TAKING_PART = {"fifth": "r20", "all": "r100"}  # how many clients are in a round, and the ending of the table's name

SHIFTS = {"rotation": "images turned", "renamed": "labels renamed", "concept": "some classes turned",
          "shares": "uneven labels", "corruption": "images corrupted"}  # fmt: skip
DATA = {"MNIST": "dose", "Fashion-MNIST": "dose-fashion"}  # how the names of their tables begin
LATER = ("FLUX", "Ditto", "FedSoft", "FeSEM", "FedEM", "FedRC")  # rows of the second part, drawn apart
STRENGTHS = (0.2, 0.4, 0.6, 0.8, 1.0)
TUNED = "FedAvg + fine-tuning"  # the row that all others are compared with


def table(situation: str, share: str) -> str:
    """Name the table of a situation in which this share of the clients takes part in each round."""
    return f"comparison-{situation}-{TAKING_PART[share]}"


def scores(name: str, own: bool = False) -> dict[str, dict[int, float]]:
    """Accuracy of every row of a table by seed [%]; on each client's `own` labels, or on all labels alike."""
    found = {}
    for row in (row for row in ledger.rows(name) if row.measured):
        found[row.name] = row.measured.values(row.metric.replace("accuracy", "own_accuracy") if own else row.metric)
    return {method: values for method, values in found.items() if values}


def gained(ours: dict[int, float], one: dict[int, float], true: dict[int, float]) -> float:
    """Which share of the way a method has come, mean over seeds: 0 is one model for all, 1 the true groups."""
    seeds = ours.keys() & one.keys() & true.keys()
    return sum(ours[s] - one[s] for s in seeds) / sum(true[s] - one[s] for s in seeds)


def doses(data: str, shift: str) -> dict[float, str]:
    """Names of the tables that hold a shift's strengths on a data set of `DATA`; none if it has no cells there."""
    names = {strength: f"{DATA[data]}-{shift}-{round(10 * strength):02d}" for strength in STRENGTHS}
    return {strength: name for strength, name in names.items() if name in ledger.tables()}


def leads(data: str, shift: str, folder: Path = records.FOLDER) -> dict[str, dict[float, verdicts.Gap]]:
    """Lead of every method over fine-tuned FedAvg, in points, where all seeds have run.

    Parameters
    ----------
    data, shift : str
        Of `DATA` and of `SHIFTS`.
    folder : Path
        Where the run records are.

    Returns
    -------
    dict of str to dict of float to Gap
        By row of the tables, then by strength.
    """
    found: dict[str, dict[float, verdicts.Gap]] = {}
    for strength, name in doses(data, shift).items():
        protocol, seeds = ledger.tables()[name]["protocol"], ledger.tables()[name]["seeds"]
        cells = {row.name: f"{protocol}/{row.label}/{row.metric}" for row in ledger.rows(name, folder)}
        for row, cell in cells.items():
            if row != TUNED and (gap := verdicts.compare(cell, cells[TUNED], folder)).n >= seeds:
                found.setdefault(row, {})[strength] = gap
    return found
