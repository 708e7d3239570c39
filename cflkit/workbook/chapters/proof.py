"""Which stored notebooks and pages may be trusted: executed, comparable, and without a result typed by hand."""

import ast
import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cflkit.workbook import places
from cflkit.workbook.chapters import notebooks, parameters

WIDGET = "application/vnd.jupyter.widget"

# What is no prose: blocks, code, formulas, link targets, roles, directives and their options.
NOT_PROSE = re.compile(
    r"^(`{3,}).*?^\1|\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|\]\([^)]*\)|https?://\S+|arXiv:\S+|^:::+\{.*?$|^:[\w-]+:.*?$",
    re.DOTALL | re.MULTILINE,
)
# What a result looks like: a decimal; a percentage, unless a round one, which tells of a set-up; or "11 of 12".
RESULT = re.compile(
    r"(?<![\w.])(?<!Python )(?<!Section )(?<!Sec\. )[-+−]?\d+\.\d+"
    r"|(?<![\w.,-])(?!(?:5|10|20|25|50|95|99|100)\s?%)(?:\d[\d,]*\s(?:to|and)\s)?\d[\d,]*\s?%"
    r"|(?<![\w.,-])\d+ of \d{1,3}(?![\w,.]*\d|\w)"
)


def check(files: Sequence[Path]) -> int:
    """Try what methods of ``.py`` files promise, and hold notebooks to the rules; without files, the whole book.

    Returns
    -------
    int
        0 if all is well, else 1; every problem is a line on standard error.
    """
    if not files:
        places.need_book()
    broken = sum([_promises(path) for path in files if path.suffix == ".py"])
    paths = [path for path in files if path.suffix != ".py"] if files else notebooks.chapters()
    found, total = [], 0
    for path in paths:
        lines, compared = problems(path)
        found += lines
        total += compared
        print(f"{path.name}: {compared} cells compared")
    if paths:
        print(f"{total} cells compared in {len(paths)} notebooks")
    tested = places.BOOK / "playground.md"  # whose numbers tests/test_playground.py computes
    for page in [] if files else sorted({*places.BOOK.glob("*.md")} - {tested}):
        numbers = typed(page.read_text("utf-8"))
        found += [f"{page.name}: has the number {number} typed in its prose" for number in numbers]
    for line in found:
        print(line, file=sys.stderr)
    return int(bool(found or broken))


def _promises(path: Path) -> int:
    """Try every promise of the methods in a file, and say which hold; returns how many do not."""
    from cflkit.testing import lines, promises  # PyTorch's inner parts, which notebooks do without

    broken, kinds = 0, promises.methods_of(path)
    with lines.Lines(kinds[0]) as of_the_file:
        for kind in kinds:
            print(f"{path.name}: {kind.__name__}")
            for sentence, said in promises.check(kind):
                more = f"\n         {said}" * bool(said)
                print(f"  {'BROKEN' if said else 'ok':6} {sentence}{more}", flush=True)
                broken += bool(said)
    if missed := of_the_file.missed():
        print(f"{path.name}: lines {', '.join(missed)} never ran: give defaults, or a subclass, that reach them")
    return broken


def problems(path: Path) -> tuple[list[str], int]:
    """Say why the notebook at `path` may not be trusted, in lines; and of how many cells nbval compares outputs."""
    notebook = notebooks.load(path)
    lines = [f"notebook: {problem}" for problem in _stray(notebook)]
    try:
        parameters.of(path)
    except ValueError as error:
        lines.append("notebook: " + str(error).removeprefix(f"{path.name}: "))
    turn = compared = 0
    for number, cell in enumerate(notebook["cells"], 1):
        found = [*_stray(cell)]
        if cell["cell_type"] == "code":
            turn += 1
            compared += _is_compared(cell)
            found += _code(cell, turn)
        else:
            found += [f"has the number {result} typed in its prose" for result in typed(cell["source"])]
        lines += [f"cell {number}: {problem}" for problem in found]
    if not compared:
        lines.append("notebook: has no output that can be compared")
    return [f"{path.name}, {line}" for line in lines], compared


def typed(text: str) -> list[str]:
    """Find results typed in the prose of a Markdown text: decimals, percentages and shares must be computed."""
    return [match.group() for match in RESULT.finditer(NOT_PROSE.sub("", text))]


def _stray(part: dict) -> list[str]:
    """Find metadata of a notebook or a cell that tells of one run."""
    return [f"holds {key} metadata" for key in sorted(set(notebooks.STRAY) & set(part["metadata"]))]


def _code(cell: dict, turn: int) -> Iterator[str]:
    """Say what is wrong with the code cell that should have been executed as number `turn`."""
    outputs = cell["outputs"]
    mimes = [mime for output in outputs for mime in output.get("data", ())]
    if "injected-parameters" in notebooks.tags(cell):
        yield "holds parameters injected by a rerun"
    with contextlib.suppress(SyntaxError):
        numbers = [n.value for n in ast.walk(ast.parse(cell["source"])) if isinstance(n, ast.Constant)]
        for number in numbers:  # with two decimals or more, and ten or above: a table prints such
            if isinstance(number, float) and number >= 10 and round(number, 1) != number:
                yield f"has the number {number} typed in its code"
    if not cell["source"].strip():
        yield "is empty"
    if cell["execution_count"] != turn:
        yield f"has execution count {cell['execution_count']} where an executed notebook has {turn}"
    yield from (f"holds an error ({output['ename']})" for output in outputs if output["output_type"] == "error")
    if any(output.get("name") == "stderr" for output in outputs):
        yield "holds output on stderr"
    if any(mime.startswith(WIDGET) for mime in mimes):
        yield "holds a widget"
    if any(mime.startswith("image/") for mime in mimes):
        if not str(cell["metadata"].get("mystnb", {}).get("image", {}).get("alt") or "").strip():
            yield "shows a picture without alt text (cell metadata mystnb.image.alt)"
        if not any(map(_prints, outputs)):
            yield "shows a picture but prints neither the plotted numbers nor a digest of them"


def _is_compared(cell: dict) -> bool:
    """Tell whether nbval compares anything of a code cell."""
    skipped = re.search(r"#\s*NBVAL_(SKIP|IGNORE_OUTPUT)", cell["source"])
    skipped = skipped or {"nbval-skip", "nbval-ignore-output"} & {*notebooks.tags(cell)}
    return not skipped and any(map(_prints, cell["outputs"]))


def _prints(output: dict) -> bool:
    """Tell whether nbval compares anything of an output; it passes over pictures and names of figure objects."""
    data = output.get("data", {})
    text = "".join(data.get("text/plain", ""))
    more = set(data) - {"text/plain", "image/png", "image/jpeg"}
    return output["output_type"] == "stream" or bool(more or (text and not re.fullmatch(r"<Figure size .*>", text)))
