"""Which stored notebooks and pages may be trusted: executed, comparable, and without a result typed by hand."""

import ast
import contextlib
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from cflkit.workbook import places
from cflkit.workbook.chapters import notebooks, parameters

WIDGET = "application/vnd.jupyter.widget"
UNCOMPARED = {"nbval-skip", "nbval-ignore-output"}

# What is no prose: blocks, code, formulas, link targets, roles, directives and their options.
NOT_PROSE = re.compile(
    r"^(`{3,}).*?^\1|\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|\]\([^)]*\)|https?://\S+|arXiv:\S+|^:::+\{.*?$|^:[\w-]+:.*?$",
    re.DOTALL | re.MULTILINE,
)
# Percentages, alone or as a range, and "11 of 12".
COUNTED = re.compile(
    r"(?<![\w.,-])(?:\d[\d,]*\s(?:to|and)\s)?\d[\d,]*\s?%|(?<![\w.,-])\d+ of \d{1,3}(?![\w,.]*\d|\w)"
)
# Round ones tell of a set-up: a tenth of the clients, a 95% interval.
SHARE = re.compile(r"(?:5|10|20|25|50|95|99|100)\s?%")
# Other integers above twelve are results, but for years, numbers of the notebook's own code, and sizes of a set-up,
# which are known by what stands before or after them.
INTEGER = re.compile(r"(?<![\w.,/–-])\d[\d,]*(?![\w,.]*\d|\w|\s?%)")
SMALL = 12
YEAR = re.compile(r"(?:19|20)\d\d")
SET_UP = (
    re.compile(r"(?i:rounds?|lines?|seeds?|batch of|best of|clusters of|tables?|figures?|web|×)\s$"),
    re.compile(r"[\s-]?(?:°|×|–\d|(?:\w+ )?(?:units|iterations|operations|k-means|images)|pixels|bits|minutes?"
               r"|rounds|epochs|steps|writers|clients of|multiplications|sums)"),
)  # fmt: skip
DECIMAL = re.compile(r"(?<![\w.])(?<!Python )(?<!Section )(?<!Sec\. )[-+−]?\d+\.\d+")


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
    """Say why the notebook at `path` may not be trusted.

    Parameters
    ----------
    path : Path
        A notebook.

    Returns
    -------
    list of str
        One line for each problem.
    int
        How many code cells have outputs that nbval compares.
    """
    notebook = parameters.load(path)
    lines = [f"notebook: {problem}" for problem in _stray(notebook)]
    try:
        parameters.of(path)
    except ValueError as error:
        lines.append("notebook: " + str(error).removeprefix(f"{path.name}: "))
    own = set().union(*map(_integers, filter(lambda cell: cell["cell_type"] == "code", notebook["cells"])))
    turn = compared = 0
    for number, cell in enumerate(notebook["cells"], 1):
        turn += cell["cell_type"] == "code"
        look = _code(cell, turn) if cell["cell_type"] == "code" else _prose(cell, own)
        lines += [f"cell {number}: {problem}" for problem in [*_stray(cell), *look]]
        compared += cell["cell_type"] == "code" and _is_compared(cell)
    if not compared:
        lines.append("notebook: has no output that can be compared")
    return [f"{path.name}, {line}" for line in lines], compared


def typed(text: str, own: Collection[int] = ()) -> list[str]:
    """Find results typed in the prose of a Markdown text; they must be computed.

    Parameters
    ----------
    text : str
        The Markdown.
    own : collection of int
        Integers that stand in the code beside it: they are no results.

    Returns
    -------
    list of str
        Decimals, percentages, shares, and integers above twelve that neither count time nor size a set-up.
    """
    prose = NOT_PROSE.sub("", text)
    whole = DECIMAL.sub("", prose)
    counted = [number for number in COUNTED.findall(whole) if not SHARE.fullmatch(number)]
    return DECIMAL.findall(prose) + counted + [*_whole(COUNTED.sub("", whole), own)]


def _whole(prose: str, own: Collection[int]) -> Iterator[str]:
    """Find integers that may be results."""
    before, after = SET_UP
    for match in INTEGER.finditer(prose):
        number, start = match.group().rstrip(","), match.start()
        value = int(number.replace(",", ""))
        sized = before.search(prose, max(0, start - 20), start) or after.match(prose, start + len(number))
        if value > SMALL and value not in own and not (sized or YEAR.fullmatch(number)):
            yield number


def _integers(cell: dict) -> set[int]:
    """Give the integers that stand in the code of a cell."""
    with contextlib.suppress(SyntaxError):
        numbers = [n.value for n in ast.walk(ast.parse(parameters.code(cell))) if isinstance(n, ast.Constant)]
        return {n for n in numbers if isinstance(n, int) and not isinstance(n, bool)}
    return set()


def _stray(part: dict) -> list[str]:
    """Find metadata of a notebook or a cell that tells of one run."""
    return [f"holds {key} metadata" for key in sorted(set(notebooks.STRAY) & set(part["metadata"]))]


def _prose(cell: dict, own: Collection[int]) -> list[str]:
    return [f"has the number {result} typed in its prose" for result in typed(parameters.code(cell), own)]


def _code(cell: dict, turn: int) -> Iterator[str]:
    """Say what is wrong with the code cell that should have been executed as number `turn`."""
    source = parameters.code(cell)
    if "injected-parameters" in parameters.tags(cell):
        yield "holds parameters injected by a rerun"
    for result in _typed_results(source):
        yield f"has the number {result} typed in its code"
    if not source.strip():
        yield "is empty"
    if cell["execution_count"] != turn:
        yield f"has execution count {cell['execution_count']} where an executed notebook has {turn}"
    for output in cell["outputs"]:
        mimes = list(output.get("data", {}))
        if output["output_type"] == "error":
            yield f"holds an error ({output['ename']})"
        if output["output_type"] == "stream" and output["name"] == "stderr":
            yield "holds output on stderr"
        if any(mime.startswith(WIDGET) for mime in mimes):
            yield "holds a widget"
        if any(mime.startswith("image/") for mime in mimes):
            yield from _picture(cell)


def _picture(cell: dict) -> Iterator[str]:
    """Say what a cell that shows a picture lacks."""
    image = cell["metadata"].get("mystnb", {}).get("image", {})
    if not str(image.get("alt") or "").strip():
        yield "shows a picture without alt text (cell metadata mystnb.image.alt)"
    if not any(map(_prints, cell["outputs"])):
        yield "shows a picture but prints neither the plotted numbers nor a digest of them"


def _typed_results(source: str) -> list[float]:
    """Find numbers with two decimals or more, and ten or above, typed in code: a table prints such."""
    with contextlib.suppress(SyntaxError):
        numbers = [n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant)]
        return [n for n in numbers if isinstance(n, float) and n >= 10 and round(n, 1) != n]
    return []


def _is_compared(cell: dict) -> bool:
    """Tell whether nbval compares anything of a code cell."""
    skipped = re.search(r"#\s*NBVAL_(SKIP|IGNORE_OUTPUT)", parameters.code(cell))
    return not (UNCOMPARED & set(parameters.tags(cell)) or skipped) and any(map(_prints, cell["outputs"]))


def _prints(output: dict) -> bool:
    """Tell whether nbval compares anything of an output; it passes over pictures and names of figure objects."""
    if output["output_type"] == "stream":
        return True
    data = output.get("data", {})
    text = "".join(data.get("text/plain", ""))
    return bool(set(data) - {"text/plain", "image/png", "image/jpeg"}) or bool(
        text and not re.fullmatch(r"<Figure size .*>", text)
    )
