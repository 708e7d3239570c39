"""Which stored notebooks and pages may be trusted: executed, comparable, and without a result typed by hand."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cflkit.workbook import places
from cflkit.workbook.chapters import notebooks, parameters
from cflkit.workbook.runs import protocols

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

    Returns 0 if all is well, else 1; every problem is a line on standard error.
    """
    broken, found, counts = 0, [], []
    if not files:
        places.need_book()
        protocols.check()
        tested = places.BOOK / "playground.md"  # whose numbers tests/test_playground.py computes
        found = [f"{page.name}: has the number {number} typed in its prose"
                 for page in sorted({*places.BOOK.glob("*.md")} - {tested})
                 for number in typed(page.read_text("utf-8"))]  # fmt: skip
    for path in files or notebooks.chapters():
        if path.suffix == ".py":
            broken += _promises(path)
        else:
            lines, compared = problems(path)
            found, counts = [*found, *lines], [*counts, compared]
            print(f"{path.name}: {compared} cells compared")
    if counts:
        print(f"{sum(counts)} cells compared in {len(counts)} notebooks")
    print(*found, sep="\n", end="\n" * bool(found), file=sys.stderr)
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
    notebook, lines, turn, total = notebooks.load(path), [], 0, 0
    try:
        parameters.of(path)
    except ValueError as error:
        lines.append("notebook: " + str(error).removeprefix(f"{path.name}: "))
    for number, cell in enumerate([notebook, *notebook.cells]):
        found = [f"holds {key} metadata" for key in sorted({*notebooks.STRAY} & {*cell.metadata})]
        if cell.get("cell_type") == "code":
            turn += 1
            total += _compared(cell)
            found += [problem for problem, wrong in _code(cell, turn) if wrong]
        elif number:
            found += [f"has the number {result} typed in its prose" for result in typed(cell.source)]
        lines += [f"{f'cell {number}' if number else 'notebook'}: {problem}" for problem in found]
    if not total:
        lines.append("notebook: has no output that can be compared")
    return [f"{path.name}, {line}" for line in lines], total


def typed(text: str) -> list[str]:
    """Find results typed in the prose of a Markdown text: decimals, percentages and shares must be computed."""
    return [match.group() for match in RESULT.finditer(NOT_PROSE.sub("", text))]


def _code(cell: dict, turn: int) -> Iterator[tuple[str, bool]]:
    """What may be wrong with the code cell that should have been executed as number `turn`, and whether it is."""
    outputs, count = cell.outputs, cell.execution_count
    picture = any(mime.startswith("image/") for output in outputs for mime in output.get("data", ()))
    alt = str(cell.metadata.get("mystnb", {}).get("image", {}).get("alt") or "").strip()
    yield "holds parameters injected by a rerun", "injected-parameters" in notebooks.tags(cell)
    for number in re.findall(r"(?<![\w.])\d{2,}\.\d{2,}\b", cell.source):  # as a table prints them
        yield f"has the number {number} typed in its code", True
    yield f"has execution count {count} where an executed notebook has {turn}", count != turn
    yield "holds output on stderr", any(output.get("name") == "stderr" for output in outputs)
    yield "shows a picture without alt text (cell metadata mystnb.image.alt)", picture and not alt
    both = "shows a picture but prints neither the plotted numbers nor a digest of them"
    yield both, picture and not any(map(_prints, outputs))


def _compared(cell: dict) -> bool:
    """Tell whether nbval compares anything of a code cell."""
    skipped = re.search(r"#\s*NBVAL_(SKIP|IGNORE_OUTPUT)", cell.source)
    skipped = skipped or {"nbval-skip", "nbval-ignore-output"} & {*notebooks.tags(cell)}
    return not skipped and any(map(_prints, cell.outputs))


def _prints(output: dict) -> bool:
    """Tell whether nbval compares anything of an output; it passes over pictures and names of figure objects."""
    data = output.get("data", {})
    text = "".join(data.get("text/plain", ""))
    more = set(data) - {"text/plain", "image/png", "image/jpeg"}
    return output.output_type == "stream" or bool(more or (text and not re.fullmatch(r"<Figure size .*>", text)))
