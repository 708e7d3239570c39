"""What the papers print, as ``book/papers/results.yaml`` has it."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from cflkit.checks import known, require
from cflkit.workbook import places, strict


def entries() -> list[dict]:
    """All printed numbers, as ``book/papers/results.yaml`` lists them."""
    return strict.read(places.PAPERS / "results.yaml")["entries"]


@cache
def _flat(folder: Path) -> dict[str | None, list[tuple[dict, dict]]]:
    """Every entry, and it with its setting's fields among its own, by paper; None: of all papers."""
    found: dict[str | None, list[tuple[dict, dict]]] = {None: []}
    for entry in strict.read(folder / "results.yaml")["entries"]:
        for paper in (None, entry["paper"]):
            found.setdefault(paper, []).append((entry, entry | entry["setting"]))
    return found


def check_fields(fields: Iterable[str]) -> None:
    """Refuse fields that no printed number has."""
    for field in fields:
        known(_fields(places.PAPERS), field, "field")


@cache
def _fields(folder: Path) -> set[str]:
    return {key for _, flat in _flat(folder)[None] for key in flat}


def stated(**where) -> float | list[float]:
    """The number, or numbers, that a paper's running text states.

    Parameters
    ----------
    **where
        Fields of one entry, such as ``paper="lcfed", what="low-rank dimension D"``.

    Raises
    ------
    ValueError
        Unless exactly one entry matches.
    """
    every = strict.read(places.PAPERS / "results.yaml")["in_text"]
    values = [entry["value"] for entry in every if where.items() <= entry.items()]
    require(len(values) == 1, "where", where, "fields of exactly one number of the running texts")
    return values[0]


def matching(**where) -> list[dict]:
    """Entries that match, as for :func:`found`; perhaps none, and those printed as a dash too."""
    paper = where.get("paper")
    some = _flat(places.PAPERS).get(paper if isinstance(paper, str) else None, [])
    for key, wanted in where.items():
        allowed = wanted if isinstance(wanted, list) else [wanted]
        some = [(entry, flat) for entry, flat in some if flat.get(key) in allowed]
    return [entry for entry, _ in some]


def found(**where) -> list[dict]:
    """Printed entries that match.

    Parameters
    ----------
    **where
        Fields of an entry, or of its setting: ``paper="stocfl", table="Table 1", participation=0.1``. A list
        allows each of its values.

    Raises
    ------
    ValueError
        If nothing matches.
    """
    numbers = [entry for entry in matching(**where) if entry["value"] is not None]
    require(bool(numbers), "where", where, "fields of at least one entry of results.yaml")
    return numbers


def printed(**where) -> list[float]:
    """Printed values of the entries that match (see :func:`found`), in the file's order; accuracies in percent."""
    return [entry["value"] for entry in found(**where)]


def printed_numbers(paper: str, what: dict | list) -> list[float]:
    """Printed numbers as claims ask for them.

    Parameters
    ----------
    paper : str
        Whose.
    what : dict or list
        Fields of the entries; or ``{"max": fields}``, ``{"min": fields}``, the extreme one, for each value of
        the field ``"by"`` if given; or a pair of such, their differences.
    """
    if isinstance(what, list):
        ours, theirs = (printed_numbers(paper, side) for side in what)
        as_many = f"as many on both sides, not {len(ours)} and {len(theirs)}"
        require(len(ours) == len(theirs), "numbers", what, as_many)
        return [a - b for a, b in zip(ours, theirs, strict=True)]
    extreme = next((choose for choose in (max, min) if choose.__name__ in what), None)
    if extreme is None:
        return printed(paper=paper, **what)
    groups: dict = {}
    for entry in found(paper=paper, **what[extreme.__name__]):
        groups.setdefault((entry | entry["setting"]).get(what.get("by")), []).append(entry["value"])
    return [extreme(values) for values in groups.values()]
