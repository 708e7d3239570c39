"""What every run record must hold: parts of the right kind, and numbers that a run can have measured."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Literal

from cflkit.checks import Natural, Range, Some, Unit, Weight, declared, require
from cflkit.workbook.runs.results import METRICS, PLAIN

ROW = dict.fromkeys(METRICS, Unit | None) | dict.fromkeys(PLAIN, Natural) | {
    "ari": Annotated[float, Range(-1, 1)] | None, "nmi": Unit | None, "largest_share": Unit | None,
    "entropy": Weight | None, "objective": float | None, "images": Sequence[Weight], "lam": Sequence[float | None],
    "sizes": Sequence[Natural], "largest_sizes": Sequence[Natural], "diverged": bool}  # fmt: skip
CONFIG = {"method": Mapping, "federation": Mapping, "local": Mapping, "model": str, "rounds": Natural,
          "seed": Natural, "dtype": Literal["float32", "float64"], "arrival": Sequence[int] | None}  # fmt: skip
MADE = {"date": str, "seconds": Weight, "machine": Mapping, "device": str, "commit": str | None, "card": str | None,
        "changed": bool | None}  # fmt: skip
CLIENTS = ("accuracy", "unseen_accuracy", "personal_accuracy")  # of which each client's is kept
ROUNDING = 6e-5  # of a mean of numbers with four digits, and of one with six


def check(record: dict) -> None:
    """Refuse a record with a part that no run leaves, in one line."""
    for kinds, part in ((CONFIG, "config"), (MADE, "provenance")):
        for name, kind in kinds.items():
            declared(f"{part}'s {name}", record[part].get(name), kind)
    require(record["seed"] == record["config"]["seed"], "seed", record["seed"], "the configuration's")
    rounds = [row["round"] for row in record["rounds"]]
    require(rounds == list(range(record["config"]["rounds"] + 1)), "rounds", rounds, "each once")
    day, processor = record["provenance"]["date"], record["provenance"]["machine"].get("processor")
    declared("processor", processor, str)
    require(bool(re.fullmatch(r"\d{4}-\d\d-\d\d", day)) and bool(date.fromisoformat(day)), "date", day, "a day")
    for row in record["rounds"]:
        for name, value in row.items():
            hint = ROW.get(name, Unit | None if "accuracy" in name.split("_") else Any)
            declared(f"{name} of round {row['round']}", value, hint)
    clients = record["clients"]
    if clients is None:  # of the oldest
        return
    for name, each in clients.items():
        declared(f"clients' {name}", each, Some[int] if name == "cluster" else Some[Unit | None])
    lengths = {name: len(each) for name, each in clients.items()}
    require(len({*lengths.values()}) < 2, "clients", lengths, "lists of one length: one number a client")
    for name in CLIENTS:
        if (mean := record["final"].get(name)) is not None:
            scored = [value for value in clients.get(name, []) if value is not None]
            require(bool(scored), f"clients' {name}", clients.get(name), "there, as the last round has it")
            off = abs(sum(scored) / len(scored) - mean)
            require(off <= ROUNDING, f"{name} of the last round", mean, "the mean of the clients'")
