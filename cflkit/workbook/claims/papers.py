"""What the papers print, as ``book/papers/results.yaml`` has it."""

from cflkit.checks import known, require
from cflkit.workbook import places, strict


@places.kept
def entries() -> list[dict]:
    """All printed numbers of ``book/papers/results.yaml``, with the fields of their settings among their own."""
    return [entry | entry["setting"] for entry in strict.read(places.PAPERS / "results.yaml")["entries"]]


def stated(**where) -> float | list[float]:
    """The number, or numbers, that a paper's running text states: of the one entry with these fields.

    For example ``paper="lcfed", what="low-rank dimension D"``.
    """
    every = strict.read(places.PAPERS / "results.yaml")["in_text"]
    values = [entry["value"] for entry in every if where.items() <= entry.items()]
    require(len(values) == 1, "where", where, "fields of exactly one number of the running texts")
    return values[0]


def matching(**where) -> list[dict]:
    """Entries that match, as for :func:`found`; perhaps none, and those printed as a dash too."""
    some = entries()
    for field, wanted in where.items():
        if not any(field in entry for entry in entries()):
            known({name for entry in entries() for name in entry}, field, "field")
        allowed = wanted if isinstance(wanted, list) else [wanted]
        some = [entry for entry in some if entry.get(field) in allowed]
    return some


def found(**where) -> list[dict]:
    """Printed entries with these fields, their own or of their setting; none, or an unknown field, is refused.

    For example ``paper="stocfl", table="Table 1", participation=0.1``. A list allows each of its values.
    """
    numbers = [entry for entry in matching(**where) if entry["value"] is not None]
    require(bool(numbers), "where", where, "fields of at least one entry of results.yaml")
    return numbers


def one(**where) -> dict:
    """The single entry with these fields, as for :func:`found`; several are refused."""
    numbers = found(**where)
    require(len(numbers) == 1, "printed", where, "fields of exactly one printed number")
    return numbers[0]


def printed(**where) -> list[float]:
    """Printed values of the entries that match (see :func:`found`), in the file's order; accuracies in percent."""
    return [entry["value"] for entry in found(**where)]


def printed_numbers(paper: str, what: dict | list) -> list[float]:
    """Printed numbers of a paper as claims ask for them.

    By fields of the entries; or by ``{"max": fields}``, ``{"min": fields}``, the extreme one, for each value of the
    field ``"by"`` if given; or by a pair of such, their differences.
    """
    if isinstance(what, list):
        ours, theirs = (printed_numbers(paper, side) for side in what)
        as_many = f"as many on both sides, not {len(ours)} and {len(theirs)}"
        require(len(ours) == len(theirs), "numbers", what, as_many)
        return [a - b for a, b in zip(ours, theirs, strict=True)]
    for extreme in (word for word in (max, min) if word.__name__ in what):
        groups: dict = {}
        for entry in found(paper=paper, **what[extreme.__name__]):
            groups.setdefault(entry.get(what.get("by")), []).append(entry["value"])
        return [extreme(values) for values in groups.values()]
    return printed(paper=paper, **what)
