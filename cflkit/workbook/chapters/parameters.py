"""What may be changed in a chapter: its `parameters` cell, read and checked before a kernel starts.

The cell has lines that papermill understands, with a help text that may end with what is allowed: an interval,
closed ``[lo, hi]`` or open ``(lo, hi)`` at either end, or choices ``{a, b}``. A comment may require more of
several parameters together ::

    tau: float = 0.5  # merge clusters above this cosine [-1, 1]
    rounds: int = 20  # communication rounds [1, inf)
    update: str = "parallel"  # how the global model is updated {parallel, chained}
    clients: int = 40  # clients [8, 160]
    # require: clients % 4 == 0

Types are int, float, bool and str.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from cflkit.checks import Range, accepts, allowed, declared, known, require

Value = int | float | bool | str

TYPES = {"int": int, "float": float, "bool": bool, "str": str}
SHAPE = "`name: type = literal  # help`"
NUMBER = r"\s*([-+]?(?:inf|\d[\d.]*(?:e[-+]?\d+)?))\s*"
INTERVAL = re.compile(rf"([\[(]){NUMBER},{NUMBER}([\])])$")
CHOICES = re.compile(r"\{([^{}]+)\}$")
LIMITS = re.compile(rf"\s*({INTERVAL.pattern}|{CHOICES.pattern})")
REQUIRED = re.compile(r"# require: (.+)")


@dataclass(frozen=True)
class Parameter:
    """One line of a `parameters` cell.

    Attributes
    ----------
    name, help : str
        The parameter and what it means.
    type : type
        int, float, bool or str.
    hint : annotation
        The type with its limits, as :mod:`cflkit.checks` understands it.
    default : int, float, bool or str
        The value that the chapter was executed with.
    """

    name: str
    type: type
    hint: Any
    default: Value
    help: str

    def __str__(self) -> str:
        return f"{self.name}: {self.type.__name__} = {self.default!r}  # {self.help}"

    def read(self, text: str) -> Value:
        """Turn what was typed into a value.

        Raises
        ------
        ValueError
            Wrong type, outside the interval, or not among the choices.
        """
        return typed(self.name, self.hint, text)


@dataclass(frozen=True)
class Schema:
    """All that a `parameters` cell says.

    Attributes
    ----------
    parameters : dict of str to Parameter
        In the order of the cell.
    required : list of str
        Conditions that the parameters must fulfil together.
    """

    parameters: dict[str, Parameter]
    required: list[str]

    def read(self, given: Mapping[str, str]) -> dict[str, Value]:
        """Turn what was typed into values, and check all of it.

        Raises
        ------
        ValueError
            An unknown name, a value that is not allowed, or values that are not allowed together.
        """
        for name in given:
            known(self.parameters, name, "parameter")
        values = {name: self.parameters[name].read(text) for name, text in given.items()}
        self.check(self.values(values))
        return values

    def values(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """Values of all parameters, the defaults where none is given."""
        return {name: p.default for name, p in self.parameters.items()} | dict(given)

    def lines(self) -> list[str]:
        """A line for each parameter, and for each condition."""
        own = [line(p.name, p.default, p.hint, p.help) for p in self.parameters.values()]
        return [*own, *(f"  together: {condition}" for condition in self.required)]

    def check(self, values: Mapping[str, Value]) -> None:
        """Require of all values together what the cell requires."""
        for condition in self.required:
            names = [name for name in values if re.search(rf"\b{name}\b", condition)]
            shown = ", ".join(f"{name} = {values[name]}" for name in names)
            if not eval(condition, {"__builtins__": {}}, dict(values)):  # the chapter's own code, run anyway
                raise ValueError(f"{shown}: must fulfil {condition}")


def line(name: str, default: object, hint: Any, help: str = "") -> str:
    """Write a parameter for a list: its default, what is allowed, and what it means."""
    shown = "" if repr(default).startswith("<dataclasses") else f" = {default!r}"
    text = LIMITS.sub("", help)
    return f"  {name}{shown}  ({allowed(hint)})" + f": {text}" * bool(text)


def typed(name: str, hint: Any, text: str) -> Any:
    """Read what was typed as the value that an annotation allows: a number, a word, ``true``, ``null``, ``[1, 2]``.

    Raises
    ------
    ValueError
        Nothing that the annotation allows is written so.
    """
    for value in _readings(hint, text):
        if accepts(hint, value):
            return value
    return require(False, name, text, allowed(hint))


def _readings(hint: Any, text: str) -> Iterator[Any]:
    """Give the values that `text` may mean."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        yield from _readings(args[0], text)
    elif origin in (Union, UnionType):
        for one in sorted(args, key=lambda one: one is not NoneType):  # a text may be anything, so null comes first
            yield from _readings(one, text)
    elif hint is NoneType:
        yield from [None] * (text.lower() in ("null", "none"))
    else:
        plain = hint if hint in TYPES.values() else None
        kinds = map(type, args) if origin is Literal else [plain]
        for kind in dict.fromkeys(kinds):
            with suppress(ValueError, RecursionError):  # of brackets without end
                yield json.loads(text) if kind is None else _convert(kind, text)


def _convert(kind: type, text: str) -> Value:
    """Read `text` as exactly `kind`; ``bool("false")`` would be true, ``int("1_0")`` ten."""
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if kind is not str and "_" in text:
        raise ValueError(text)
    return kind(text)


def _hint(kind: type, help: str) -> Any:
    """Read the limits at the end of a help text."""
    if interval := INTERVAL.search(help):
        if kind not in (int, float):
            raise ValueError(f"an interval needs an int or a float, not a {kind.__name__}")
        left, low, high, right = interval.groups()
        if float(low) >= float(high):
            raise ValueError(f"the interval {interval.group()} is empty")
        return Annotated[kind, Range(float(low), float(high), left == "(", right == ")" and high != "inf")]
    if choices := CHOICES.search(help):
        return Literal[tuple(_convert(kind, choice.strip()) for choice in choices.group(1).split(","))]
    if help.endswith(("]", "}")):
        raise ValueError(f"{help!r} ends with neither [lo, hi] nor {{a, b}}")
    return kind


def _parameter(line: str) -> Parameter:
    """Read one line, as papermill reads it."""
    from papermill.translators import PythonTranslator

    inspected = PythonTranslator.inspect({"source": line}) if line.count("=") == 1 else []
    require(len(inspected) == 1 and bool(inspected[0].help), "parameter line", line, SHAPE)
    name, kind, default, help = inspected[0]
    require(kind in TYPES, f"type of {name}", kind, "one of " + ", ".join(TYPES))
    try:
        value, hint = ast.literal_eval(default), _hint(TYPES[kind], help)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"parameter {name}: {error}") from None
    value = float(value) if kind == "float" and type(value) is int else value
    require(type(value) is TYPES[kind], name, value, allowed(hint))
    declared(name, value, hint)
    return Parameter(name, TYPES[kind], hint, value, help)


def read(source: str) -> Schema:
    """Read the source of a `parameters` cell.

    Parameters
    ----------
    source : str
        The cell: parameter lines, blank lines and comments.

    Raises
    ------
    ValueError
        A line that is not ``name: type = literal  # help``, a default of another type or outside its own
        limits, a name given twice, no parameter at all, or a condition that the defaults do not fulfil.
    """
    parameters: dict[str, Parameter] = {}
    required = []
    for line in map(str.rstrip, source.splitlines()):
        if line.startswith("#"):
            required += REQUIRED.findall(line)
        elif line:
            parameter = _parameter(line)
            require(parameter.name not in parameters, "parameter", parameter.name, "given once")
            parameters[parameter.name] = parameter
    require(bool(parameters), "parameters cell", source, f"at least one {SHAPE}")
    schema = Schema(parameters, required)
    try:
        schema.read({})
    except (NameError, SyntaxError, TypeError) as error:
        raise ValueError(f"a `# require:` line: {error}") from None
    return schema


def of(path: Path) -> Schema:
    """Read the schema of the notebook at `path` from its one `parameters` cell.

    Raises
    ------
    ValueError
        The file is no notebook, has no such cell or several, or :func:`read` refuses the cell.
    """
    tagged = [cell for cell in load(path)["cells"] if "parameters" in tags(cell)]
    require(len(tagged) == 1, f"{path.name}: cells tagged parameters", len(tagged), "exactly 1")
    return read(code(tagged[0]))


def load(path: Path) -> dict:
    """Read a notebook as plain data.

    Raises
    ------
    ValueError
        The file is no notebook of the fourth format.
    """
    try:
        notebook = json.loads(path.read_text("utf-8"))
        ok = all(cell["cell_type"] and "source" in cell and "metadata" in cell for cell in notebook["cells"])
    except (ValueError, KeyError, TypeError):
        ok = False
    require(ok and isinstance(notebook.get("metadata"), dict), "notebook", str(path), "a Jupyter notebook")
    return notebook


def tags(cell: dict) -> list[str]:
    """Tags of a cell."""
    return cell["metadata"].get("tags", [])


def code(cell: dict) -> str:
    """Source of a cell, which may be stored line by line."""
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
