"""YAML files of the book, read strictly: a misspelt key is refused, in a line that names file and entry."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cflkit.checks import accepts, declared, known, require


class _Strict(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML in which a key that stands twice is an error and not the last one; merged ones may be overridden."""

    def construct_mapping(self, node, deep=False):
        own = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        for key in own if not getattr(node, "flat", False) else ():
            if own.count(key) > 1:
                told = f"the key {key!r} stands twice"
                raise yaml.constructor.ConstructorError(None, None, told, node.start_mark)
        node.flat = True  # merged keys are in it from now on
        return super().construct_mapping(node, deep)


@cache
def read(file: Path) -> dict:
    """Read a YAML file, once; what is no YAML, or no mapping, is refused in a line with its name and the place."""
    try:
        data = yaml.load(file.read_text("utf-8"), _Strict)
    except yaml.YAMLError as error:
        raise ValueError(f"{file.name}: {' '.join(str(error).split())}") from None
    require(isinstance(data, dict), file.name, data, "a mapping")
    return data


def keys(file: Path, hints: Mapping[str, Any]) -> dict:
    """Read a file with these outermost keys, as :func:`entry` has them."""
    data = read(file)
    with at(file.name):
        entry(hints, data)
    return data


def entry(hints: Mapping[str, Any], given: Any) -> None:
    """Refuse what is no mapping of these keys, each with a value that its hint allows, or left out if None is."""
    require(isinstance(given, Mapping), "entry", given, "a mapping")
    for key in given:
        known(hints, key, "key")
    for key, hint in hints.items():
        require(key in given or accepts(hint, None), key, None, "given")
        declared(key, given.get(key), hint)


@contextmanager
def at(*where: object) -> Iterator[None]:
    """Put the place before what is refused inside, in one line."""
    try:
        yield
    except (ValueError, TypeError, LookupError, OSError, RecursionError) as error:
        raise ValueError(f"{', '.join(map(str, where))}: {error}") from None
