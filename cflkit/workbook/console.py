"""The console program: nine commands, each importing what it needs, so help comes at once; errors are a line."""

import argparse
import os
import sys
from math import inf
from pathlib import Path
from tarfile import TarError
from zipfile import BadZipFile

from cflkit import __version__
from cflkit.checks import known, require
from cflkit.workbook import places
from cflkit.workbook.chapters import notebooks
from cflkit.workbook.runs import pool, typed

BAD = (ValueError, OSError, MemoryError, ModuleNotFoundError, BadZipFile, TarError)  # what was given, in one line
GOES_ON = "; the same command goes on from the last checkpoint"
VALUES = "VALUE is a number, a word, true, false, null, or a list such as [0,90]; several with commas between them"
DEVICE = {"default": "cpu", "help": "cpu, cuda, or cuda:1 and so on (default: cpu); others change last digits"}
RENAMED = {
    "sweep": "cflkit run CHAPTER or cflkit simulate METHOD, with -p NAME=VALUE,VALUE",
    "compare": "cflkit results NAME ...", "runs": "cflkit results", "ledger": "cflkit results --ledger [TABLE]",
    "fetch": "cflkit data NAME ...", "datasets": "cflkit data", "methods": "cflkit list methods",
    "protocols": "cflkit list protocols", "repeat": "python book/measure/repeat.py PROTOCOL",
    **{name: f"python book/measure/{name}.py" for name in ("attributes", "groups", "released")},
}  # fmt: skip


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
    """Run the program on these arguments, or on those of the process.

    Returns 0 if all is well, also when a budget has run out; 1 if a notebook or one of several runs fails; 2 for
    bad input, after one line on standard error; 130 when interrupted.
    """
    argv = sys.argv[1:] if argv is None else argv
    options = argparse.Namespace(interrupted="")
    os.environ["OMP_NUM_THREADS"] = "1"  # two intra-op threads on busy cores are many times slower
    try:
        if argv and argv[0] in RENAMED:
            raise ValueError(f"{argv[0]} has another name now: {RENAMED[argv[0]]}")
        options, strange = parser().parse_known_args(argv)
        if strange:
            hint = "; a parameter is written -p NAME=VALUE" * hasattr(options, "given")
            options.parser.error(f"unrecognized arguments: {' '.join(strange)}{hint}")
        return options.do(options) or 0
    except BrokenPipeError:  # the reader of a pipe has seen enough
        return 0
    except pool.TimeIsUp as end:
        print(f"{end}{GOES_ON}")
        return 0
    except KeyboardInterrupt:
        print(f"cflkit: interrupted{options.interrupted}", file=sys.stderr)
        return 130
    except (notebooks.CellFailed, pool.WorkerDied, *BAD) as error:  # all others are mistakes of ours
        line = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, OSError) and error.strerror:
            line = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        print(f"cflkit: {line}", file=sys.stderr)
        return 2 if isinstance(error, BAD) else 1


def parser() -> argparse.ArgumentParser:
    """Make the parser of the whole program."""
    top = Parser(prog="cflkit", description="Clustered federated learning: five papers, one interface.")
    top.add_argument("--version", action="version", version=f"cflkit {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, do, help: str, usage: str | None = None, **more):
        command = commands.add_parser(name, help=help, usage=usage, description=f"{help[0].upper()}{help[1:]}.")
        usual = {"interrupted": "", "device": "cpu", "workers": 1}
        command.set_defaults(do=do, parser=command, **usual | more)
        return command.add_argument

    arg = add("run", _run, "run a chapter with other parameters", more=_of_chapter)
    arg("chapter", help="a chapter, such as stocfl, or a notebook's path; `--help` after it lists its parameters")
    _add_values(arg, "runs")
    arg = add("simulate", _simulate, "run methods, on data of your choice or as an experiment has it",
              "%(prog)s METHOD [--on BUILDER] [--images NAME] [--clients N] [-p NAME=VALUE] ...\n"
              "       %(prog)s --protocol PROTOCOL [LABEL ...] [-p NAME=VALUE] ...",
              interrupted=GOES_ON, more=_of_simulation)  # fmt: skip
    arg("name", nargs="*", metavar="METHOD", help="a name from `cflkit list methods`, or a method of your own, as "
        "FILE.py:CLASS; `--help` after it lists its parameters; with --protocol methods of it, or all")  # fmt: skip
    arg("--protocol", help="a name from `cflkit list protocols`: run it, or change it by -p")
    arg("--on", metavar="BUILDER", help="how data is divided (default: rotated)")
    arg("--images", metavar="NAME", help="from `cflkit data`, several with commas, or an .npz (default: digits)")
    arg("--clients", metavar="N", help="between how many clients (default: 40)")
    _add_values(arg, "runs, but book/results for a protocol as it is")
    arg("--device", **DEVICE)
    arg("--workers", type=typed.count, default=1, help="threads of a run (default: 1); they change no result")
    arg("--checkpoint", type=Path, metavar="FOLDER", help="keep the run here for good, to go on with more rounds")
    arg("--again", action="store_true", help="run again what has a record, and overwrite it")
    arg("--keep-models", action="store_true", help="write networks, confusion matrices and groups "
        "over rounds beside it, as .pt")  # fmt: skip
    arg = add("reproduce", _reproduce, "run what a table lacks, cheapest first", interrupted=GOES_ON)
    arg("table", help="a name from `cflkit results --ledger`")
    arg("--seeds", type=typed.seeds, help="such as 0-4 or 0,2; by default what the table wants")
    arg("--out", type=Path, default=places.RESULTS, help="folder for run records")
    arg("--device", **DEVICE)
    _add_pool(arg, "1")
    arg = add("results", _results, "list what was run, compare it, or set it beside the papers")
    arg("name", nargs="*", help="compare these, the book's too, or all of 'stocfl/*'; without one, runs are listed")
    arg("--ledger", nargs="?", const="", metavar="TABLE", help="claims and what is measured; or one table, by rows")
    arg("--metric", default="accuracy", help="what the figure shows (default: accuracy)")
    arg("--format", choices=("text", "csv", "latex"), default="text", help="of a table")
    arg("--delete", action="store_true", help="delete the runs of these names")
    arg("--out", type=Path, help="folder of the runs (default: runs; book/results for --ledger)")
    arg = add("data", _data, "list data sets, or download (to $CFLKIT_DATA, or ~/.cache/cflkit) and verify")
    arg("name", nargs="*", help="download these; without one, all are listed with their state")
    arg = add("list", _list, "list methods, ways to divide data, chapters, and experiments")
    arg("what", nargs="?", choices=("methods", "builders", "chapters", "protocols"), help="with more of each")
    arg = add("check", _check, "try what a file's methods promise, or hold notebooks to the book's rules")
    arg("file", nargs="*", type=Path, help="a .py with methods, or a .ipynb (default: the book's notebooks, pages)")
    arg = add("refresh", _refresh, "run notebooks again and store what they print")
    arg("notebook", nargs="+", type=Path, help="the path of a notebook")
    add("pages", _pages, "write the book's tables and verdicts from the run records")
    return top


def _add_values(arg, out: str) -> None:
    arg("-p", dest="given", type=typed.pair, metavar="NAME=VALUE", action="append", default=[],
        help=f"a parameter; may be repeated. {VALUES}: every combination is run")  # fmt: skip
    arg("--seed", "--seeds", dest="seeds", type=typed.seeds, metavar="SEEDS", help="such as 0, 0-4 or 0,2: a run "
        "for each (default: 0)")  # fmt: skip
    arg("--out", type=Path, help=f"folder for what is written (default: {out})")
    _add_pool(arg, f"one for each core, {pool.cores()} here; 1 with --device or --workers")


def _add_pool(arg, default: str) -> None:
    arg("--jobs", type=typed.count, help=f"how many runs side by side (default: {default})")
    arg("--dask", metavar="ADDRESS", help="run on a Dask cluster, such as tcp://127.0.0.1:8786")
    arg("--budget", type=typed.seconds, default=inf, help="stop after such as 20m or 1.5h, and finish the round")


# ---------------------------------------------------------------------- commands
def _run(options) -> int:
    from cflkit.workbook.chapters import rerun

    seeds = [("seed", ",".join(map(str, options.seeds)))] if options.seeds else []
    given, out = typed.lists([*options.given, *seeds]), options.out or places.RUNS
    if all(len(texts) == 1 for texts in given.values()):
        print(rerun.rerun(options.chapter, {name: text for name, (text,) in given.items()}, out))
        return 0
    from cflkit.workbook.chapters import sweep

    options.interrupted = GOES_ON
    return _sweep(sweep.of_chapter(options.chapter, given, out), out, options)


def _simulate(options) -> int:
    from cflkit.workbook.chapters import compare, sweep

    bases, given, seeds = _bases(options), typed.lists(options.given), options.seeds or [0]
    own = bool(options.protocol) and not given and not any(base.source for base in bases)
    out = options.out or (places.RESULTS if own else places.RUNS)
    alone = len(bases) == len(seeds) == 1 and all(len(texts) == 1 for texts in given.values())
    if options.checkpoint:
        kept = str(options.checkpoint)
        require(alone, "checkpoint", kept, "given for one run; these are several")
        require(not options.again, "checkpoint", kept, "left out with --again")
        places.need_folder("checkpoint", options.checkpoint)
    folders = {"out": out, "checkpoints": places.RUNS if own else out}
    points = sweep.of_plans(bases, given, seeds, folders, checkpoint=options.checkpoint, again=options.again,
                            keep_models=options.keep_models, progress=alone)  # fmt: skip
    if not alone:
        return _sweep(points, options.out or places.RUNS, options)
    record, was = points[0].task(options.budget)
    print(f"{places.near(record)}{was}")
    if out != places.RESULTS:
        print(*map(places.near, compare.show_one(record)), sep="\n")
    return 0


def _bases(options) -> list:
    from cflkit.engine.simulation import check_device
    from cflkit.workbook.runs import plans, protocols

    check_device(options.device)
    how, name = {"device": options.device, "workers": options.workers}, options.protocol
    chosen = {"on": options.on, "images": options.images, "clients": options.clients}
    chosen = {name: given for name, given in chosen.items() if given is not None}
    if name is None:
        require(len(options.name) == 1, "method", " ".join(options.name), "one name from `cflkit list methods`")
        options.given[:0] = [("clients", chosen.pop("clients"))] if "clients" in chosen else []
        return [plans.free(options.name[0], **chosen, **how)]
    for key, given in chosen.items():
        require(False, key, given, "left out with --protocol; use -p")
    places.need_book()
    known(protocols.protocols(), name, "protocol")
    return [protocols.plan(name, label, **how) for label in options.name or protocols.protocols()[name]["methods"]]


def _sweep(points: list, out: Path, options) -> int:
    from cflkit.workbook.chapters import sweep

    places.need_folder("out", out)
    plain = options.device == "cpu" and options.workers == 1
    with pool.place(options.jobs or (pool.cores() if plain else 1), options.dask):
        files, failed = pool.report({str(point): point.task for point in points}, options.budget)
    if files:
        print(*map(places.near, sweep.store(points, files, out)), sep="\n")
    return int(bool(failed) or not files)  # every run that failed has been named


def _reproduce(options) -> int:
    places.need_book()
    from cflkit.workbook.chapters import sweep

    for name, folder in {"out": options.out, "checkpoints": places.RUNS}.items():
        places.need_folder(name, folder)
    alone = options.jobs in (None, 1) and not options.dask
    points, minutes = sweep.of_table(options.table, options.seeds, options.out, options.device, progress=alone)
    if not points:
        print(f"{options.table} lacks no run")
    with pool.place(options.jobs or 1, options.dask):
        return int(pool.report({str(point): point.task for point in points}, options.budget, minutes)[1] > 0)


def _results(options) -> None:
    ledger = options.ledger is not None
    if ledger:
        places.need_book()
    out = options.out or (places.RESULTS if ledger else places.RUNS)
    require(out == places.RUNS or out.is_dir(), "out", str(out), "a folder that exists")
    if ledger:
        from cflkit.workbook.chapters import accounts

        require(not options.name, "name", " ".join(options.name), "left out with --ledger")
        table = options.ledger
        return print(*(accounts.of_table(table, out, options.format) if table else accounts.of_all(out)), sep="\n")
    from cflkit.workbook.chapters import compare

    require(bool(options.name) or not options.delete, "name", "", "given, to delete anything")
    beside = options.name and not options.delete
    found = compare.find(options.name or ["*"], [out, places.RESULTS] if beside else [out])
    if options.delete:
        for file in (file for files in found.values() for file in files):
            compare.delete(file)
            print(f"deleted: {places.near(file)}")
        return None
    groups, bad = compare.load(found)
    if beside:
        print(*bad, sep="\n", end="\n" * bool(bad), file=sys.stderr)
        return compare.show(groups, out, options.metric, options.format)
    lines = [str(run) for runs in groups.values() for run in runs]
    return print(*(lines + bad or [f"nothing was run in {out}"]), sep="\n")


def _data(options) -> None:
    from cflkit.data import images

    for name in options.name:
        known(images.names(), name, "name")
    for name in options.name:
        images.fetch(name)
    state = images.status()
    for name in options.name or state:
        print(f"{name:16} {state[name]}")


def _list(options) -> None:
    from cflkit.workbook.chapters import catalogue

    print(*catalogue.lines(options.what), sep="\n")


def _check(options) -> int:
    from cflkit.workbook.chapters import proof

    return proof.check(options.file)


def _refresh(options) -> None:
    for path in options.notebook:
        notebooks.refresh(path)
        print(f"{path.name}: refreshed")


def _pages(options) -> None:
    places.need_book()
    sys.path.insert(0, str(places.BOOK / "_ext"))  # where all that only the book needs lies
    import pages

    pages.write()


# ---------------------------------------------------------------------- what --help lists
def _of_chapter(options) -> str:
    from cflkit.workbook.chapters import parameters

    if not (name := getattr(options, "chapter", None)):
        return notebooks.listed()
    lines = parameters.of(notebooks.chapter(name)).lines()
    return "\n".join([f"parameters of {name}; each changes what the chapter shows:", *lines])


def _of_simulation(options) -> str:
    names = getattr(options, "name", None) or []
    if not names or getattr(options, "protocol", None):
        return "parameters: cflkit simulate METHOD [--on BUILDER] --help lists them"
    from cflkit.workbook.chapters import catalogue

    return "\n".join(catalogue.of_simulation(names[0], getattr(options, "on", None) or "rotated"))
