"""What may be changed in a chapter: its `parameters` cell, read and checked before a kernel starts.

The cell has lines with a help text that may end with what is allowed: an interval, closed ``[lo, hi]`` or open
``(lo, hi)`` at either end, or choices ``{a, b}``. A comment may require more of several parameters together ::

    tau: float = 0.5  # merge clusters above this cosine [-1, 1]
    rounds: int = 20  # communication rounds [1, inf)
    update: str = "parallel"  # how the global model is updated {parallel, chained}
    clients: int = 40  # clients [8, 160]
    # require: clients % 4 == 0
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cflkit.checks import Range, allowed, declared, known, require
from cflkit.workbook.chapters import notebooks
from cflkit.workbook.runs import typed

Value = int | float | bool | str

TYPES = {"int": int, "float": float, "bool": bool, "str": str}
NUMBER = r"\s*([-+]?(?:inf|\d[\d.]*(?:e[-+]?\d+)?))\s*"
INTERVAL = re.compile(rf"([\[(]){NUMBER},{NUMBER}([\])])$")
CHOICES = re.compile(r"\{([^{}]+)\}$")
LIMITS = re.compile(rf"\s*({INTERVAL.pattern}|{CHOICES.pattern})")
REQUIRED = re.compile(r"# require: (.+)")


@dataclass(frozen=True)
class Parameter:
    """One line of a `parameters` cell: `hint` is the type with its limits, as :mod:`cflkit.checks` has it."""

    hint: Any
    default: Value
    help: str


@dataclass(frozen=True)
class Schema:
    """All that a `parameters` cell says: its parameters by name, and conditions that they must fulfil together."""

    parameters: dict[str, Parameter]
    required: list[str]

    def read(self, given: Mapping[str, str]) -> dict[str, Value]:
        """Turn what was typed into values of all parameters, or refuse it; the rest have their defaults."""
        values = {name: parameter.default for name, parameter in self.parameters.items()}
        for name, text in given.items():
            known(self.parameters, name, "parameter")
            values[name] = typed.value(name, self.parameters[name].hint, text)
        for condition in self.required:
            if not eval(condition, {"__builtins__": {}}, dict(values)):  # the chapter's own code, run anyway
                named = (f"{name} = {v}" for name, v in values.items() if re.search(rf"\b{name}\b", condition))
                raise ValueError(f"{', '.join(named)}: must fulfil {condition}")
        return values

    def lines(self) -> list[str]:
        """A line for each parameter, and for each condition."""
        own = [line(name, p.default, p.hint, p.help) for name, p in self.parameters.items()]
        return [*own, *(f"  together: {condition}" for condition in self.required)]


def line(name: str, default: object, hint: Any, help: str = "") -> str:
    """Write a parameter for a list: its default, what is allowed, and what it means."""
    shown = "" if repr(default).startswith("<dataclasses") else f" = {default!r}"
    text = LIMITS.sub("", help)
    return f"  {name}{shown}  ({allowed(hint)})" + f": {text}" * bool(text)


def _hint(kind: type, help: str) -> Any:
    if interval := INTERVAL.search(help):
        require(kind in (int, float), "type", kind.__name__, "int or float, with an interval")
        left, low, high, right = interval.groups()
        require(float(low) < float(high), "interval", interval.group(), "one that has numbers in it")
        return Annotated[kind, Range(float(low), float(high), left == "(", right == ")" and high != "inf")]
    if choices := CHOICES.search(help):
        return Literal[tuple(typed.value("choice", kind, each.strip()) for each in choices.group(1).split(","))]
    require(not help.endswith(("]", "}")), "help", help, "ended by [lo, hi], by {a, b}, or by words")
    return kind


def read(source: str) -> Schema:
    """Read the source of a `parameters` cell; refuse what is no such line, and defaults that are not allowed."""
    found, shape = {}, "`name: type = literal  # help`"
    try:
        for node in ast.parse(source).body:
            text = source.splitlines()[node.lineno - 1]
            parts = re.fullmatch(r"(\w+): (\w+) = (.+?)  # (.+)", text)
            require(isinstance(node, ast.AnnAssign) and bool(parts), "parameter line", text, shape)
            name, kind, literal, help = parts.groups()
            known(TYPES, kind, f"type of {name}")
            require(name not in found, "parameter", name, "given once")
            value, hint = eval(literal, {"__builtins__": {}}), _hint(TYPES[kind], help.strip())
            value = float(value) if kind == "float" and type(value) is int else value
            declared(name, value, hint)
            found[name] = Parameter(hint, value, help.strip())
        require(bool(found), "parameters cell", source, f"at least one {shape}")
        schema = Schema(found, REQUIRED.findall(source))
        schema.read({})
    except (NameError, SyntaxError, TypeError) as error:
        raise ValueError(f"the parameters cell, or a `# require:` line of it: {error}") from None
    return schema


def of(path: Path) -> Schema:
    """Read the schema of the notebook at `path` from its one `parameters` cell."""
    tagged = [cell for cell in notebooks.load(path).cells if "parameters" in notebooks.tags(cell)]
    require(len(tagged) == 1, f"{path.name}: cells tagged parameters", len(tagged), "exactly 1")
    return read(tagged[0].source)
