"""All methods in the same federations: the scores that the comparison shows, read from the records."""

from cflkit.workbook.claims import ledger

SITUATIONS = {"rot": "turned images", "shift": "labels renamed", "rot-skew": "turned, uneven labels"}
TAKING_PART = {"fifth": "r20", "all": "r100"}  # how many clients are in a round, and the ending of the table's name


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
