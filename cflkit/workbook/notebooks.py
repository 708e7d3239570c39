"""Notebooks that prove themselves: refuse the unproved, refresh reproducibly, rerun with other values.

``python -m cflkit.workbook.notebooks check`` refuses notebooks whose stored outputs prove nothing, ``refresh``
executes and stores them so that doing it twice gives the same bytes, and ``run`` executes one chapter with
other parameters. A chapter's `parameters` cell is the one schema of what may be changed. It holds lines of
the form ::

    tau: float = 0.5  # merge clusters above this cosine [-1, 1]
    rounds: int = 20  # communication rounds [1, inf)
    update: str = "parallel"  # how the global model is updated {parallel, chained}

that is ``name: type = literal  # help``, with a type among int, float, bool and str. The help may end with
what is allowed: an interval, closed ``[lo, hi]`` or open ``(lo, hi)`` at either end, or choices ``{a, b}``.
"""

import argparse
import ast
import contextlib
import difflib
import hashlib
import json
import os
import re
import sys
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cflkit.checks import require
from cflkit.workbook import places

BOOK = places.BOOK

# What a kernel runs under, so that printed numbers do not depend on who runs it.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", "PYTHONHASHSEED": "0"}

STRAY = ("papermill", "execution", "widgets")  # metadata that tells of one run, not of the notebook
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "pygments_lexer": "ipython3"}
WIDGET = "application/vnd.jupyter.widget"
UNCOMPARED = {"nbval-skip", "nbval-ignore-output"}

# What is no prose: blocks, code, formulas, link targets and roles; a result in prose would have a decimal point.
APART = re.compile(
    r"^(`{3,}).*?^\1|\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|\]\([^)]*\)|https?://\S+|arXiv:\S+", re.DOTALL | re.MULTILINE
)
DECIMAL = re.compile(r"(?<![\w.])(?<!Python )(?<!Section )(?<!Sec\. )[-+−]?\d+\.\d+")

TYPES = {"int": int, "float": float, "bool": bool, "str": str}
LINE = re.compile(r"(?P<name>[A-Za-z_]\w*): (?P<type>\w+) = (?P<default>.+?)  # (?P<help>.*)")
NUMBER = r"\s*([-+]?(?:inf|\d[\d.]*(?:e[-+]?\d+)?))\s*"
INTERVAL = re.compile(rf"([\[(]){NUMBER},{NUMBER}([\])])$")
CHOICES = re.compile(r"\{([^{}]+)\}$")


@dataclass(frozen=True)
class Parameter:
    """One line of a `parameters` cell.

    Attributes
    ----------
    name, help : str
        The parameter and what it means.
    type : type
        int, float, bool or str.
    default : int, float, bool or str
        The value that the chapter was executed with.
    interval : tuple of (str, float, float, str) or None
        Opening bracket, lower end, upper end, closing bracket.
    choices : tuple
        The only values allowed; empty where everything of the type is.
    """

    name: str
    type: type
    default: int | float | bool | str
    help: str
    interval: tuple[str, float, float, str] | None = None
    choices: tuple = ()

    @property
    def allowed(self) -> str:
        """What a value must be, as the end of the sentence "must be ..."."""
        kind = {int: "an int", float: "a float", bool: "true or false", str: "a str"}[self.type]
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        if self.interval:
            left, low, high, right = self.interval
            return f"{kind} in {left}{low:g}, {high:g}{right}"
        return kind

    def accept(self, value: int | float | bool | str) -> bool:
        """Whether a value of the right type is allowed."""
        if self.choices and value not in self.choices:
            return False
        if self.interval:
            left, low, high, right = self.interval
            return (low < value or (left == "[" and low == value)) and (
                value < high or (right == "]" and value == high)
            )
        return value == value  # a NaN is never meant

    def read(self, text: str) -> int | float | bool | str:
        """Turn what was typed into a value, or raise one clear line.

        Parameters
        ----------
        text : str
            The value as typed at the command line.

        Raises
        ------
        ValueError
            Wrong type, outside the interval, or not among the choices.
        """
        try:
            value = _convert(self.type, text)
        except ValueError:
            value = None
        require(value is not None and self.accept(value), self.name, text, self.allowed)
        return value


def _convert(kind: type, text: str) -> int | float | bool | str:
    """Read `text` as exactly `kind`; ``bool("false")`` would be true, ``int("1_0")`` ten."""
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if kind is not str and "_" in text:
        raise ValueError(text)
    return kind(text)


def _limits(help: str, kind: type) -> dict:
    """Read the interval or the choices at the end of a help text."""
    if interval := INTERVAL.search(help):
        if kind not in (int, float):
            raise ValueError(f"an interval needs an int or a float, not a {kind.__name__}")
        left, low, high, right = interval.groups()
        if float(low) >= float(high):
            raise ValueError(f"the interval {interval.group()} is empty")
        return {"interval": (left, float(low), float(high), right)}
    if choices := CHOICES.search(help):
        return {"choices": tuple(_convert(kind, choice.strip()) for choice in choices.group(1).split(","))}
    if help.endswith(("]", "}")):
        raise ValueError(f"{help!r} ends with neither [lo, hi] nor {{a, b}}")
    return {}


def schema(source: str) -> dict[str, Parameter]:
    """Read the source of a `parameters` cell.

    Parameters
    ----------
    source : str
        The cell: parameter lines, blank lines and comments.

    Returns
    -------
    dict of str to Parameter
        In the order of the cell.

    Raises
    ------
    ValueError
        A line that is not ``name: type = literal  # help``, a default of another type or outside its own
        limits, a name given twice, or no parameter at all.
    """
    parameters: dict[str, Parameter] = {}
    for line in map(str.rstrip, source.splitlines()):
        if not line or line.startswith("#"):
            continue
        found = LINE.fullmatch(line)
        require(bool(found), "parameter line", line, "`name: type = literal  # help`")
        name, help = found["name"], found["help"].strip()
        require(found["type"] in TYPES, f"type of {name}", found["type"], "one of " + ", ".join(TYPES))
        kind = TYPES[found["type"]]
        try:
            default = ast.literal_eval(found["default"])
            limits = _limits(help, kind)
        except (ValueError, SyntaxError) as error:
            raise ValueError(f"parameter {name}: {error}") from None
        if kind is float and type(default) is int:
            default = float(default)
        parameter = Parameter(name, kind, default, help, **limits)
        require(type(default) is kind and parameter.accept(default), name, default, parameter.allowed)
        require(name not in parameters, "parameter", name, "given once")
        parameters[name] = parameter
    require(bool(parameters), "parameters cell", source, "at least one `name: type = literal  # help`")
    return parameters


def _tags(cell: dict) -> list[str]:
    return cell["metadata"].get("tags", [])


def _source(cell: dict) -> str:
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def parameters(path: Path) -> dict[str, Parameter]:
    """Read the schema of the notebook at `path` from its one `parameters` cell.

    Raises
    ------
    ValueError
        No such cell, several of them, or one that :func:`schema` refuses.
    """
    cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if "parameters" in _tags(cell)]
    require(len(cells) == 1, f"{path.name}: cells tagged parameters", len(cells), "exactly 1")
    return schema(_source(cells[0]))


def _prints(output: dict) -> bool:
    """Whether nbval compares anything of an output; pictures and the names of figure objects are not."""
    if output["output_type"] == "stream":
        return True
    data = output.get("data", {})
    text = "".join(data.get("text/plain", ""))
    return bool(set(data) - {"text/plain", "image/png", "image/jpeg"}) or bool(
        text and not re.fullmatch(r"<Figure size .*>", text)
    )


def problems(path: Path) -> tuple[list[str], int]:
    """Say why the notebook at `path` may not be trusted.

    Parameters
    ----------
    path : Path
        A notebook.

    Returns
    -------
    list of str
        One line per problem.
    int
        How many code cells have outputs that nbval compares.
    """
    notebook = json.loads(path.read_text("utf-8"))
    found: list[str] = []
    compared = 0

    def say(where: str, what: str) -> None:
        found.append(f"{path.name}, {where}: {what}")

    for key in sorted(set(STRAY) & set(notebook["metadata"])):
        say("notebook", f"holds {key} metadata")
    try:
        parameters(path)
    except ValueError as error:
        say("notebook", str(error).removeprefix(f"{path.name}: "))

    turn = 0
    for number, cell in enumerate(notebook["cells"], 1):
        where = f"cell {number}"
        for key in sorted(set(STRAY) & set(cell["metadata"])):
            say(where, f"holds {key} metadata")
        if "injected-parameters" in _tags(cell):
            say(where, "holds parameters injected by a rerun")
        if cell["cell_type"] != "code":
            for result in typed(_source(cell)):
                say(where, f"has the number {result} typed in its prose")
            continue
        for result in _typed_results(_source(cell)):
            say(where, f"has the number {result} typed in its code")
        turn += 1
        if not _source(cell).strip():
            say(where, "is empty")
        if cell["execution_count"] != turn:
            say(where, f"has execution count {cell['execution_count']} where an executed notebook has {turn}")
        for output in cell["outputs"]:
            mimes = list(output.get("data", {}))
            if output["output_type"] == "error":
                say(where, f"holds an error ({output['ename']})")
            if output["output_type"] == "stream" and output["name"] == "stderr":
                say(where, "holds output on stderr")
            if any(mime.startswith(WIDGET) for mime in mimes):
                say(where, "holds a widget")
            if any(mime.startswith("image/") for mime in mimes):
                image = cell["metadata"].get("mystnb", {}).get("image", {})
                if not str(image.get("alt") or "").strip():
                    say(where, "shows a picture without alt text (cell metadata mystnb.image.alt)")
                if not any(map(_prints, cell["outputs"])):
                    say(where, "shows a picture but prints neither the plotted numbers nor a digest of them")
        if UNCOMPARED & set(_tags(cell)) or re.search(r"#\s*NBVAL_(SKIP|IGNORE_OUTPUT)", _source(cell)):
            continue
        compared += any(map(_prints, cell["outputs"]))
    if not compared:
        say("notebook", "has no output that can be compared")
    return found, compared


def typed(text: str) -> list[str]:
    """Decimal numbers typed in the prose of a Markdown text: results must be computed, or included."""
    return DECIMAL.findall(APART.sub("", text))


def _typed_results(source: str) -> list[float]:
    """Numbers with two decimals or more, and ten or above, typed in code: what a table prints."""
    with contextlib.suppress(SyntaxError):
        numbers = [n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant)]
        return [n for n in numbers if isinstance(n, float) and n >= 10 and round(n, 1) != n]
    return []


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """Start kernels under `ENVIRONMENT`; a kernel inherits the environment of its parent."""
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def sockets() -> dict[str, str]:
    """Settings of a kernel's manager: talk through files, as the ports that two kernels pick may collide."""
    return {"transport": "ipc", "ip": f"{tempfile.gettempdir()}/kernel-{uuid.uuid4().hex[:12]}"}


def _write(path: Path, text: str) -> None:
    """Write all of `text`, or leave the file as it was."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, "utf-8")
    os.replace(part, path)


def refresh(path: Path) -> None:
    """Execute the notebook at `path` in its own folder and store what it prints.

    Timings, widget state and the traces of earlier runs are dropped, identifiers are kept or derived from the
    text of the cell: doing it twice gives the same bytes.

    Parameters
    ----------
    path : Path
        A notebook; left untouched when one of its cells fails.

    Raises
    ------
    RuntimeError
        A cell failed.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError
    from traitlets.config import Config

    notebook = nbformat.from_dict(json.loads(path.read_text("utf-8")))
    notebook = nbformat.convert(notebook, 4)
    notebook.nbformat_minor = 5
    seen: set[str] = set()
    for number, cell in enumerate(notebook.cells):
        cell.source = _source(cell)
        if cell.get("id", "") in seen | {""}:
            cell.id = hashlib.sha256(f"{number}/{cell.source}".encode()).hexdigest()[:8]
        seen.add(cell.id)
        for key in STRAY:
            cell.metadata.pop(key, None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        timeout=None,
        startup_timeout=300,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        config=Config(KernelManager=sockets()),
        resources={"metadata": {"path": str(path.resolve().parent)}},
    )
    try:
        with _environment():
            client.execute()
    except CellExecutionError as error:
        raise RuntimeError(f"{path.name}: {error.ename}: {error.evalue}") from None
    for key in STRAY:
        notebook.metadata.pop(key, None)
    notebook.metadata.update(kernelspec=KERNEL, language_info=LANGUAGE)
    nbformat.validate(notebook)
    _write(path, nbformat.writes(notebook) + "\n")


def chapter(name: str) -> Path:
    """Find a chapter by its name (``stocfl``) or by its path.

    Raises
    ------
    ValueError
        No such notebook; the line lists the chapters there are.
    """
    path = Path(name) if name.endswith(".ipynb") else BOOK / f"{name}.ipynb"
    known = ", ".join(sorted(notebook.stem for notebook in BOOK.glob("*.ipynb")))
    require(path.is_file(), "chapter", name, f"the path of a notebook or one of: {known or '(none found)'}")
    return path


def rerun(name: str, values: dict[str, str], out: Path) -> None:
    """Execute a chapter with other parameters; nothing starts before all of them are known to be allowed.

    Parameters
    ----------
    name : str
        A chapter, see :func:`chapter`.
    values : dict of str to str
        Parameters as typed.
    out : Path
        The executed notebook.

    Raises
    ------
    ValueError
        An unknown chapter or parameter, a value of the wrong type or outside its limits.
    RuntimeError
        A cell failed; `out` shows where.
    """
    path = chapter(name)
    known = parameters(path)
    for given in values:
        close = difflib.get_close_matches(given, known, 1, 0.5)
        hint = f" (closest: {close[0]})" if close else ""
        require(given in known, "parameter", given, "one of " + ", ".join(known) + hint)
    typed = {given: known[given].read(text) for given, text in values.items()}
    require(out.resolve() != path.resolve(), "out", str(out), "another file than the chapter itself")
    out.parent.mkdir(parents=True, exist_ok=True)

    import papermill
    from traitlets.config import Config

    try:
        with _environment():
            papermill.execute_notebook(
                path,
                out,
                typed,
                kernel_name="python3",
                cwd=path.resolve().parent,
                start_timeout=300,
                progress_bar=sys.stderr.isatty(),
                config=Config(KernelManager=sockets()),
            )
    except papermill.PapermillExecutionError as error:
        raise RuntimeError(f"{path.name}: {error.ename}: {error.evalue}; {out} shows where") from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a rerun to `parser`; :func:`run` takes what it parses."""
    parser.add_argument("chapter", help="a chapter, for example stocfl, or the path of a notebook")
    pair = {"nargs": 2, "metavar": ("NAME", "VALUE"), "action": "append", "default": []}
    parser.add_argument("-p", dest="parameters", help="a parameter and its value; may be repeated", **pair)
    parser.add_argument("-o", "--out", type=Path, help="the executed notebook (default: runs/CHAPTER.ipynb)")
    parser.add_argument("--list", action="store_true", help="list the chapter's parameters and stop")


def run(arguments: argparse.Namespace) -> int:
    """Carry out what the parser of :func:`add_arguments` understood, and return an exit status."""
    if arguments.list:
        for parameter in parameters(chapter(arguments.chapter)).values():
            print(f"{parameter.name}: {parameter.type.__name__} = {parameter.default!r}  # {parameter.help}")
        return 0
    names = [name for name, _ in arguments.parameters]
    for name in names:
        require(names.count(name) == 1, "parameter", name, "given once")
    out = arguments.out or Path("runs") / f"{Path(arguments.chapter).stem}.ipynb"
    try:
        rerun(arguments.chapter, dict(arguments.parameters), out)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"the executed chapter is {out}")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    total, failed = 0, []
    for path in arguments.notebooks:
        found, compared = problems(path)
        failed += found
        total += compared
        print(f"{path.name}: {compared} cells compared")
    print(f"{total} cells compared in {len(arguments.notebooks)} notebooks")
    for page in arguments.pages:
        failed += [f"{page.name}: has the number {n} typed in its prose" for n in typed(page.read_text("utf-8"))]
    for line in failed:
        print(line, file=sys.stderr)
    return int(bool(failed))


def _refresh(arguments: argparse.Namespace) -> int:
    for path in arguments.notebooks:
        refresh(path)
        print(f"{path.name}: refreshed")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the console program ``python -m cflkit.workbook.notebooks``.

    Parameters
    ----------
    argv : list of str or None
        Arguments; those of the process by default.

    Returns
    -------
    int
        0 if all is well, 1 if a notebook is refused or fails, 2 for bad input.
    """
    parser = argparse.ArgumentParser("python -m cflkit.workbook.notebooks", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="{check,refresh,run}")
    for name, help, do in [
        ("check", "refuse notebooks whose outputs prove nothing", _check),
        ("refresh", "execute notebooks and store what they print", _refresh),
    ]:
        command = commands.add_parser(name, help=help)
        command.add_argument("notebooks", nargs="*", type=Path, default=sorted(BOOK.glob("*.ipynb")))
        command.set_defaults(do=do, pages=sorted(BOOK.glob("*.md")))
    command = commands.add_parser("run", help="execute one chapter with other parameters")
    add_arguments(command)
    command.set_defaults(do=run)
    arguments = parser.parse_args(argv)
    try:
        return arguments.do(arguments)
    except (ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1


if __name__ == "__main__":
    sys.exit(main())
