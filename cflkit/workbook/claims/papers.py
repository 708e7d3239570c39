"""What the papers print, as the files under ``book/papers`` have it; every file is read once and kept."""

from functools import cache
from pathlib import Path

import yaml

from cflkit.checks import require
from cflkit.workbook import places

PAPERS = places.PAPERS


class _Strict(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML in which a key that stands twice is an error and not the last one."""

    def construct_mapping(self, node, deep=False):
        """Build a mapping of keys that differ; merged ones may be overridden."""
        own = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        for key in own:
            if own.count(key) > 1 and not getattr(node, "flat", False):
                told = f"the key {key!r} stands twice"
                raise yaml.constructor.ConstructorError(None, None, told, node.start_mark)
        node.flat = True  # merged keys are in it from now on
        return super().construct_mapping(node, deep)


@cache
def read(file: Path) -> dict:
    """Read a YAML file.

    Raises
    ------
    ValueError
        If it is not YAML, or not a mapping; one line with its name and the place.
    """
    try:
        data = yaml.load(file.read_text("utf-8"), _Strict)
    except yaml.YAMLError as error:
        raise ValueError(f"{file.name}: {' '.join(str(error).split())}") from None
    require(isinstance(data, dict), file.name, data, "a mapping")
    return data


def entries() -> list[dict]:
    """All printed numbers, as ``book/papers/results.yaml`` lists them."""
    return [entry for entry, _ in _flat(PAPERS)]


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
    values = [e["value"] for e in read(PAPERS / "results.yaml")["in_text"] if where.items() <= e.items()]
    require(len(values) == 1, "where", where, "fields of exactly one number of the running texts")
    return values[0]


@cache
def _flat(folder: Path) -> list[tuple[dict, dict]]:
    """Every entry, and it with its setting's fields among its own."""
    return [(entry, entry | entry["setting"]) for entry in read(folder / "results.yaml")["entries"]]


def matching(**where) -> list[dict]:
    """Entries that match, as for :func:`found`; perhaps none, and those printed as a dash too."""
    paper = where.get("paper")
    some = _by_paper(PAPERS).get(paper, []) if isinstance(paper, str) else _flat(PAPERS)
    return [entry for entry, flat in some if _matches(flat, where)]


@cache
def _by_paper(folder: Path) -> dict[str, list[tuple[dict, dict]]]:
    found: dict[str, list[tuple[dict, dict]]] = {}
    for entry, flat in _flat(folder):
        found.setdefault(entry["paper"], []).append((entry, flat))
    return found


def _matches(flat: dict, where: dict) -> bool:
    return all(flat.get(k) in v if isinstance(v, list) else flat.get(k) == v for k, v in where.items())


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
    extreme = next((name for name in ("max", "min") if name in what), None)
    if extreme is None:
        return printed(paper=paper, **what)
    groups: dict = {}
    for entry in found(paper=paper, **what[extreme]):
        groups.setdefault((entry | entry["setting"]).get(what.get("by")), []).append(entry["value"])
    return [{"max": max, "min": min}[extreme](values) for values in groups.values()]
