"""What there is to choose from, in lines for the console: methods, builders, chapters, protocols, parameters."""

from collections.abc import Iterator

from cflkit.checks import known
from cflkit.data.builders import BUILDERS
from cflkit.methods import METHODS
from cflkit.workbook import places
from cflkit.workbook.chapters import notebooks, parameters
from cflkit.workbook.runs import plans, protocols

PARTS = {"method": "of {0}", "federation": "of the data, {1}", "setting": "of the run",
         "local": "of local training (without a protocol: lr = 0.1, epochs = 5)"}  # fmt: skip


def lines(kind: str | None) -> Iterator[str]:
    """Every method with its parameters, every builder, chapter, or protocol with its methods; or all in brief."""
    if kind in ("chapters", "protocols"):
        places.need_book()
    if kind is None:
        yield f"methods: {', '.join(sorted(METHODS))}"
        yield f"builders: {', '.join(sorted(BUILDERS))}"
    if kind == "chapters" or (kind is None and places.PAPERS.is_dir()):
        yield notebooks.listed()
    if kind is None and places.PAPERS.is_dir():
        yield f"protocols: {', '.join(protocols.protocols())}"
    for name, protocol in protocols.protocols().items() if kind == "protocols" else ():
        yield f"{name:28} {protocol['feeds']}\n{'':28}   {' '.join(protocol['methods'])}"
    for name, one in sorted({"methods": METHODS, "builders": BUILDERS}.get(kind, {}).items()):
        yield f"{name:16} {(one.__doc__ or '').strip().splitlines()[0]}"
        yield from (f"{'':16} {line}" for line in (_of(name, "rotated", "method") if kind == "methods" else ()))


def of_simulation(method: str, builder: str) -> Iterator[str]:
    """The parameters of a method, of its data, and of its run."""
    name, _ = plans.named(method)
    known(BUILDERS, builder, "builder")
    for part, title in PARTS.items():
        lines = _of(name, builder, part)
        yield f"parameters {title.format(name, builder)}:" if lines else f"{name} has no parameters"
        yield from lines


def _of(method: str, builder: str, part: str) -> list[str]:
    takes = plans.accepted(method, builder).items()
    return [parameters.line(key, default, hint) for key, (where, hint, default) in takes if where == part]
