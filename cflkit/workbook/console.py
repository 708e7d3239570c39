"""The console program: its parser, its errors, and the commands that list, check and write."""

import argparse
import sys
import tarfile
import zipfile
from functools import partial
from pathlib import Path

import torch
import yaml

from cflkit import __version__
from cflkit.checks import known, require
from cflkit.data import images
from cflkit.methods import METHODS
from cflkit.workbook import attributes, groups, ledger, notebooks, places, proof, protocols, records, released
from cflkit.workbook import console_runs as runs
from cflkit.workbook.spread import TimeIsUp

BAD_INPUT = (ValueError, OSError, ModuleNotFoundError, yaml.YAMLError, zipfile.BadZipFile, tarfile.TarError)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and whose help may depend on what was typed before ``--help``."""

    def __init__(self, **settings):
        super().__init__(**settings, add_help=False)
        self.add_argument("-h", "--help", action=_Help, nargs=0, help="show this help and stop")

    def error(self, message: str):
        """End the program."""
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help says more\n")


class _Help(argparse.Action):
    def __call__(self, parser, options, *_):
        more = parser.get_default("more")
        listed = f"\n{more(options)}\n" if more else ""  # first, as it may refuse what was typed
        parser.print_help()
        print(listed, end="")
        parser.exit()


def main(argv: list[str] | None = None) -> int:
    """Run the program.

    Parameters
    ----------
    argv : list of str or None
        Arguments; those of the process by default.

    Returns
    -------
    int
        0 if all is well, also when a budget has run out; 1 if a notebook fails or is refused; 2 for bad input,
        after one line on standard error; 130 when interrupted.
    """
    argv = sys.argv[1:] if argv is None else argv
    options = argparse.Namespace(interrupted="")
    torch.set_num_threads(1)  # two intra-op threads on busy cores are many times slower
    try:
        options, strange = parser().parse_known_args(argv)
        if strange:
            hint = "; a parameter is written -p NAME=VALUE" * hasattr(options, "given")
            options.parser.error(f"unrecognized arguments: {' '.join(strange)}{hint}")
        options.argv = argv
        if options.of_the_book:
            places.need_book()
        return options.do(options) or 0
    except BrokenPipeError:  # the reader of a pipe has seen enough
        return 0
    except notebooks.CellFailed as error:
        print(f"cflkit: {_line(error)}", file=sys.stderr)
        return 1
    except BAD_INPUT as error:
        print(f"cflkit: {_line(error)}", file=sys.stderr)
        return 2
    except TimeIsUp as end:
        print(f"{end}{runs.GOES_ON}")
        return 0
    except KeyboardInterrupt:
        print(f"cflkit: interrupted{options.interrupted}", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    """Make the parser of the whole program."""
    top = Parser(prog="cflkit", description="Clustered federated learning: five papers, one interface.")
    top.add_argument("--version", action="version", version=f"cflkit {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, do, help: str, *, of_the_book: bool = False, interrupted: str = "", more=None) -> Parser:
        command = commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        command.set_defaults(do=do, parser=command, of_the_book=of_the_book, interrupted=interrupted, more=more)
        return command

    runs.add_commands(add)

    command = add("fetch", _fetch, "download data sets and verify them")
    command.add_argument("name", nargs="+", help="a name from `cflkit datasets`")
    command.add_argument("--root", type=Path, help="folder for data; by default $CFLKIT_DATA, or ~/.cache/cflkit")
    command = add("datasets", _datasets, "list the data sets and say which are on this disk")
    command.add_argument("--root", help="folder for data; by default $CFLKIT_DATA, or ~/.cache/cflkit")
    add("methods", _methods, "list the methods and their parameters")
    _add_experiments(add)
    _add_measurements(add)
    _add_notebooks(add)
    return top


def _add_experiments(add) -> None:
    """Add the commands that say what the papers' experiments are, and what is measured."""
    add("protocols", _protocols, "list the experiments, the papers' and the comparison's, and their methods",
        of_the_book=True)  # fmt: skip
    command = add("ledger", _ledger, "say what is measured, what is missing, and what that costs",
                  of_the_book=True)  # fmt: skip
    command.add_argument("table", nargs="?", help="show this table, run by run")
    command.add_argument("--out", type=Path, default=records.FOLDER, help="folder of the run records")


def _add_measurements(add) -> None:
    """Add the measurements that are no runs of an experiment."""
    for name, measure, what in (
        ("attributes", attributes, "measure how well CelebA's attributes tell the label (FedCG, Table 3)"),
        ("groups", groups, "measure whether first groups follow true clusters or labels (the comparison)"),
        ("released", released, "score FeSEM on FEMNIST as its authors' code does, and by each writer's own centre"),
    ):
        goes_on = runs.GOES_ON if measure is released else ""
        command = add(name, partial(_measure, measure.write), what, of_the_book=True, interrupted=goes_on)
        command.add_argument("--out", type=Path, default=records.FOLDER, help="folder for the record")


def _add_notebooks(add) -> None:
    """Add the commands that make the book from its notebooks."""
    command = add("check", _check, "try what a file's methods promise, or hold notebooks to the book's rules")
    command.add_argument("file", nargs="*", type=Path, help="a .py with methods, whose promises are tried, or a "
                         ".ipynb (default: every notebook and page of the book)")  # fmt: skip
    command = add("refresh", _refresh, "run notebooks again and store what they print")
    command.add_argument("notebook", nargs="+", type=Path, help="the path of a notebook")
    add("pages", _pages, "write the book's tables and verdicts from the run records", of_the_book=True)


# ---------------------------------------------------------------------- commands
def _fetch(options) -> None:
    for name in options.name:
        known(images.names(), name, "name")
    if options.root is not None:
        places.need_folder("root", options.root)
    for name in options.name:
        images.fetch(name, options.root)
        print(f"{name:16} {images.status(options.root)[name]}")


def _datasets(options) -> None:
    if options.root is not None:
        require(Path(options.root).is_dir(), "root", options.root, "a folder that exists")
    for name, state in images.status(options.root).items():
        print(f"{name:16} {state}")


def _methods(options) -> None:
    for name, method in sorted(METHODS.items()):
        print(f"{name:16} {method.__doc__.strip().splitlines()[0]}")
        for line in runs.of_method(name):
            print(f"{'':16}   {line}")


def _protocols(options) -> None:
    for name, protocol in protocols.protocols().items():
        print(f"{name:28} {protocol['feeds']}\n{'':28}   {' '.join(protocol['methods'])}")


def _ledger(options) -> None:
    require(options.out == records.FOLDER or options.out.is_dir(), "out", str(options.out), "a folder that exists")
    if options.table:
        known(ledger.tables(), options.table, "table")
        for row in ledger.rows(options.table, options.out):
            values = row.measured.percent(row.metric) if row.measured else []
            printed = "–" if row.printed is None else f"{row.printed:.2f}"
            print(f"{row.name:28} {printed:>7}  {ledger.number(values) if values else 'not yet measured'}")
        for m in ledger.missing(options.table, folder=options.out):
            cost = f"{m.minutes:.0f} min of a CPU core, {m.gpu_minutes:.1f} of an H200"
            print(f"missing: {m.label}, seed {m.seed}: {cost}")
        return
    for name in ledger.tables():
        lacking = ledger.missing(name, folder=options.out)
        hours, gpu = sum(m.minutes for m in lacking) / 60, sum(m.gpu_minutes for m in lacking)
        print(f"{name:28} {len(lacking):3} runs missing: {hours:5.1f} h of a CPU core, {gpu:4.0f} min of an H200")
    for paper, words in ledger.tally(options.out).items():
        print(f"{paper}: " + ", ".join(f"{count} {word}" for word, count in words.items()))
        for claim, verdict in ledger.verdicts(paper, options.out):
            print(f"  {claim['id']:26} {verdict.word:7} {verdict.reason}")
    total = ledger.totals(options.out)
    early = f"{total['early']} with a row or a baseline that has diverged or hardly learnt"
    firm = f"{total['firm']} with three seeds, {early}"
    print(f"printed numbers: {total['printed']}, of which {total['measured']} measured ({firm}), "
          f"{total['runnable']} can be run, {total['left out']} not here")  # fmt: skip
    cost = f"{total['hours']:.0f} h of a CPU core, {total['gpu_hours']:.0f} h of an H200"
    print(f"missing in all tables: {total['runs']} runs: {cost}")
    for line in ledger.problems(options.out):
        print(f"cflkit: left out: {line}", file=sys.stderr)


def _measure(write, options) -> None:
    print(write(options.out))


def _check(options) -> int:
    methods = [path for path in options.file if path.suffix == ".py"]
    broken = sum([_promises(path) for path in methods])
    if methods and len(methods) == len(options.file):
        return int(broken > 0)
    if not options.file:
        places.need_book()
    paths = [path for path in options.file if path not in methods] or notebooks.chapters()
    pages = [] if options.file else places.BOOK.glob("*.md")
    problems, total = [], 0
    for path in paths:
        lines, compared = proof.problems(path)
        problems += lines
        total += compared
        print(f"{path.name}: {compared} cells compared")
    print(f"{total} cells compared in {len(paths)} notebooks")
    for page in sorted(pages):
        typed = proof.typed(page.read_text("utf-8"))
        problems += [f"{page.name}: has the number {number} typed in its prose" for number in typed]
    for line in problems:
        print(line, file=sys.stderr)
    return int(bool(problems or broken))


def _promises(path: Path) -> int:
    """Try every promise of the methods in a file, and say which hold; returns how many do not."""
    from cflkit.testing import lines, promises  # PyTorch's inner parts, which other commands do without

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


def _refresh(options) -> None:
    for path in options.notebook:
        notebooks.refresh(path)
        print(f"{path.name}: refreshed")


def _pages(options) -> None:
    sys.path.insert(0, str(places.BOOK / "_ext"))  # where all that only the book needs lies
    import pages

    pages.write()


def _line(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
