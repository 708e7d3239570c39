"""The commands that run something: chapters, simulations, sweeps of these, tables; and what was run."""

import argparse
import os
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from cflkit.checks import allowed, known, require
from cflkit.data.builders import BUILDERS
from cflkit.methods import METHODS
from cflkit.workbook import (
    compare,
    ledger,
    notebooks,
    parameters,
    places,
    protocols,
    records,
    repeats,
    reproduce,
    rerun,
    runs,
    spread,
    sweep,
)

GOES_ON = "; the same command goes on from the last checkpoint"
AGAIN = "; the same command runs what is missing"
MANY_SEEDS = 10_000
RULE = """VALUE is a number, a word, true, false, null, or a list such as [0,90]."""


def add_commands(add) -> None:
    """Add all of these commands."""
    command = add("run", _run, "run a chapter with other parameters", more=_of_chapter)
    _add_chapter(command)
    command = add("simulate", _simulate, "run one method, on data of your choice or as an experiment has it",
                  interrupted=GOES_ON, more=_of_simulation)  # fmt: skip
    _add_simulation(command)
    command.add_argument("--device", default="cpu", help="cpu, cuda, or cuda:1 and so on (default: cpu); another "
                         "one changes last digits")  # fmt: skip
    command.add_argument("--workers", type=int, default=1, help="threads, one for each core to use (default: 1); "
                         "their number changes no result")  # fmt: skip
    command.add_argument("--checkpoint", type=Path, metavar="FOLDER",
                         help="keep the run here, also when it has ended, to go on with more rounds")
    command = add("sweep", None, "run every combination of several values and seeds, side by side")
    kinds = command.add_subparsers(required=True, metavar="run|simulate")
    for name, do, also, more in (("run", _sweep_chapter, _add_chapter, _of_swept),
                                 ("simulate", _sweep_plans, _add_simulation, _of_simulation)):  # fmt: skip
        what = f"`cflkit {name}` with several values: -p NAME=VALUE,VALUE"
        kind = kinds.add_parser(name, help=what, description=f"{what}.")
        kind.set_defaults(do=do, parser=kind, of_the_book=False, interrupted=AGAIN, more=more)
        also(kind)
        _add_pool(kind, f"side by side (default: one for each core, {_cores()} here)")
        kind.add_argument("--budget", type=_minutes, help="stop after this time, such as 20m or 1.5h")
    command = add("compare", _compare, "set runs beside each other: parameters, metrics, curves")
    command.add_argument("name", nargs="+", help="a name from `cflkit runs`, or a pattern such as 'stocfl/*'; "
                         "runs of the book's experiments too")  # fmt: skip
    command.add_argument("--metric", default="accuracy", help="what the figure shows (default: accuracy)")
    command.add_argument("--out", type=Path, default=rerun.RUNS, help="folder of the runs (default: runs)")
    command = add("runs", _runs, "list what was run here, find it, or delete it")
    command.add_argument("name", nargs="*", help="a name, or a pattern such as 'stocfl/*'; all runs by default")
    command.add_argument("--delete", action="store_true", help="delete the runs of these names")
    command.add_argument("--out", type=Path, default=rerun.RUNS, help="folder of the runs (default: runs)")
    command = add("reproduce", _reproduce, "run what a table lacks, cheapest first", of_the_book=True,
                  interrupted=GOES_ON)  # fmt: skip
    command.add_argument("table", help="a name from `cflkit ledger`")
    command.add_argument("--seeds", type=_seeds, help="such as 0-4 or 0,2; by default as many as the table wants")
    command.add_argument("--budget", type=_minutes, help="stop after this time, such as 20m or 1.5h; a round that "
                         "has begun is finished")  # fmt: skip
    command.add_argument("--background", action="store_true", help="run in a process of its own that writes a log")
    _add_pool(command, "side by side (default: 1)")
    command.add_argument("--device", default="cpu", help="cpu, cuda, or cuda:1 and so on (default: cpu)")
    command.add_argument("--out", type=Path, default=records.FOLDER, help="folder for run records")
    _add_checkpoints(command)
    command = add("repeat", _repeat, "make one run of each experiment again, and say whether its numbers come out",
                  of_the_book=True, interrupted=GOES_ON)  # fmt: skip
    command.add_argument("protocol", nargs="*", help="a name from `cflkit protocols`; by default all that have "
                         "records, and of which no run was repeated yet")  # fmt: skip
    command.add_argument("--budget", type=_minutes, help="stop after this time, such as 20m or 1.5h")
    command.add_argument("--out", type=Path, default=records.FOLDER, help="folder of the run records")
    _add_checkpoints(command)


def _add_checkpoints(command) -> None:
    command.add_argument("--checkpoints", type=Path, default=reproduce.CHECKPOINTS,
                         help="folder for checkpoints of unfinished runs (default: runs)")  # fmt: skip


def _add_given(command, what: str, out: str) -> None:
    command.add_argument("-p", dest="given", type=_pair, metavar="NAME=VALUE", action="append", default=[],
                         help=f"a parameter and its value; may be repeated. {RULE}")  # fmt: skip
    command.add_argument("--seed", "--seeds", dest="seeds", type=_seeds, metavar="SEEDS",
                         help=f"such as 0, 0-4 or 0,2: {what} (default: 0)")  # fmt: skip
    command.add_argument("--out", type=Path, help=f"folder for what is written (default: {out})")


def _add_chapter(command) -> None:
    command.add_argument("chapter", help="a chapter, for example stocfl, or the path of a notebook; "
                         "`--help` after it lists its parameters")  # fmt: skip
    _add_given(command, "a run for each", "runs")


def _add_simulation(command) -> None:
    command.usage = (f"{command.prog} METHOD [--on BUILDER] [--images NAME] [--clients N] [-p NAME=VALUE] ...\n"
                     f"       {command.prog} --protocol PROTOCOL [LABEL ...] [-p NAME=VALUE] ...")  # fmt: skip
    command.add_argument("name", nargs="*", metavar="METHOD", help="a name from `cflkit methods`; `--help` after "
                         "it lists its parameters; with --protocol methods of it, or all")  # fmt: skip
    command.add_argument("--protocol", help="a name from `cflkit protocols`: run it as it is, or change it by -p")
    command.add_argument("--on", metavar="BUILDER",
                         help=f"how data is divided: {', '.join(BUILDERS)} (default: rotated)")  # fmt: skip
    command.add_argument("--images", metavar="NAME", help="a name from `cflkit datasets`, several with commas, or "
                         "an .npz (default: digits)")  # fmt: skip
    command.add_argument("--clients", metavar="N", help="between how many clients (default: 40)")
    _add_given(command, "a run for each", "runs, but book/results for a protocol as it is")


def _add_pool(command, jobs: str) -> None:
    command.add_argument("--jobs", type=int, help=f"how many runs {jobs}")
    command.add_argument("--dask", metavar="ADDRESS", help="run on a Dask cluster, such as tcp://127.0.0.1:8786")
    command.add_argument("--executor", metavar="NAME", help="run on this executor, such as "
                         "concurrent.futures.ThreadPoolExecutor, in place of processes")  # fmt: skip


# ---------------------------------------------------------------------- commands
def _run(options) -> None:
    given = _once(options.given)
    require(options.seeds is None or "seed" not in given, "parameter", "seed", "given once")
    out = options.out or rerun.RUNS
    many = [given] if options.seeds is None else [given | {"seed": str(seed)} for seed in options.seeds]
    for one in many:
        rerun.checked(notebooks.chapter(options.chapter), one)  # all of them, before the first runs
    for one in many:
        print(rerun.rerun(options.chapter, one, out), flush=True)


def _simulate(options) -> None:
    makers, given = _makers(options, {"device": options.device, "workers": options.workers}), _once(options.given)
    plans = [make(given, seed) for seed in options.seeds or [0] for make in makers.values()]
    alone = options.checkpoint is None or len(plans) == 1
    require(alone, "checkpoint", str(options.checkpoint), f"given for one run; these are {len(plans)}")
    own = bool(options.protocol) and not given
    out = options.out or (records.FOLDER if own else rerun.RUNS)
    reproduce.try_folders(out, reproduce.CHECKPOINTS if own else out)
    if options.checkpoint is not None:
        places.need_folder("checkpoint", options.checkpoint)
    for plan in plans:
        plan.need_images()
    for plan in plans:
        record = reproduce.run(plan, out=out, checkpoints=reproduce.CHECKPOINTS if own else out,
                               checkpoint=options.checkpoint)  # fmt: skip
        print(record)
        if out != records.FOLDER:
            print(*reproduce.show(record), sep="\n")


def _makers(options, how: dict) -> dict[str, sweep.Make]:
    """What makes the plans that were asked for, by label."""
    if options.protocol is None:
        require(len(options.name) == 1, "method", " ".join(options.name), "one name from `cflkit methods`")
        clients = {} if options.clients is None else {"clients": options.clients}
        several = "," in (options.clients or "") and not options.clients.startswith("[")
        require(not several, "clients", options.clients, f"one number; a sweep takes -p clients={options.clients}")
        require(not clients or "clients" not in dict(options.given), "parameter", "clients", "given once")
        on = "rotated" if options.on is None else options.on
        pictures = "digits" if options.images is None else options.images
        method = options.name[0]
        return {method: lambda given, seed: protocols.free(method, on, pictures, clients | given, seed, **how)}
    for name in ("on", "images", "clients"):
        require(getattr(options, name) is None, name, getattr(options, name), "left out with --protocol; use -p")
    places.need_book()
    known(protocols.protocols(), options.protocol, "protocol")
    labels = options.name or list(protocols.protocols()[options.protocol]["methods"])
    for label in labels:
        known(protocols.protocols()[options.protocol]["methods"], label, "label")
    return {label: partial(_of_protocol, options.protocol, label, how) for label in labels}


def _of_protocol(protocol: str, label: str, how: dict, given, seed: int) -> protocols.Plan:
    return protocols.plan(protocol, label, seed, **how).changed(given)


def _sweep_chapter(options) -> int:
    out = options.out or rerun.RUNS
    ok = not (options.executor or "").endswith("ThreadPoolExecutor")
    require(ok, "executor", options.executor, "one of processes; a chapter has a process to itself")
    return _sweep(sweep.of_chapter(options.chapter, _lists(options.given), options.seeds, out), out, options)


def _sweep_plans(options) -> int:
    out = options.out or rerun.RUNS
    makers = _makers(options, {})
    return _sweep(sweep.of_plans(makers, _lists(options.given), options.seeds or [0], out), out, options)


def _sweep(points: list[sweep.Point], out: Path, options) -> int:
    places.need_folder("out", out)
    pool = _pool(options, _cores())
    files, failed = sweep.sweep(points, pool, None if options.budget is None else 60 * options.budget)
    written = sweep.store(points, files, out)
    frame, _ = sweep.report(points, files)
    print(sweep.lines(frame))
    if sweep.unmoved(frame, points):
        print(f"{', '.join(points[0].values)}: changes nothing that is compared here")
    print(*written, sep="\n")
    return int(bool(failed))


def _pool(options, jobs: int) -> spread.Pool:
    require(options.jobs is None or options.jobs > 0, "jobs", options.jobs, "1 or more")
    require(not (options.dask and options.executor), "dask", options.dask, "left out with --executor")
    if options.dask:
        return spread.dask(options.dask)
    jobs = options.jobs or jobs
    return spread.executor(options.executor, jobs) if options.executor else spread.workers(jobs)


def _compare(options) -> None:
    groups = runs.find(options.name, [options.out, records.FOLDER])
    measured = any(run.metrics for group in groups.values() for run in group)
    require(measured, "run", ", ".join(groups), "one that has metrics; a chapter that compares methods leaves some")
    known(["accuracy", *compare.numbers(groups)], options.metric, "metric")  # the default may have no curve
    places.need_folder("out", options.out)
    print(*compare.table(groups), sep="\n")
    figure = compare.figure(groups, options.metric)
    if figure is None:
        print(f"no figure: no run has several rounds with a number {options.metric!r}")
    else:
        file = options.out / f"compare-{places.digest([*groups, options.metric])}.png"
        with places.whole(file) as part:
            figure.savefig(part, format="png")
        print(file)


def _runs(options) -> None:
    require(options.out == rerun.RUNS or options.out.is_dir(), "out", str(options.out), "a folder that exists")
    everything, damaged = runs.load(options.out)
    found = runs.find(options.name, [options.out]) if options.name else {}
    chosen = [run for group in found.values() for run in group] if options.name else everything
    require(bool(options.name) or not options.delete, "name", "", "given, to delete anything")
    for run, line in zip(chosen, runs.lines(chosen), strict=True):
        if options.delete:
            runs.delete(run)
        print(f"deleted: {line}" if options.delete else line)
    for line in damaged:
        print(f"left out: {line}")
    if not (chosen or damaged):
        print(f"nothing was run in {options.out}")


def _reproduce(options) -> int:
    known(ledger.tables(), options.table, "table")
    folders = {"out": options.out, "checkpoints": options.checkpoints}
    reproduce.try_folders(**folders)
    alone = not (options.dask or options.executor) and options.jobs in (None, 1)
    pool = None if alone else _pool(options, 1)
    reproduce.lacking(options.table, options.seeds, options.out, device=options.device)
    if options.background:
        arguments = [argument for argument in options.argv if argument != "--background"]
        log = options.checkpoints / f"reproduce-{options.table}.log"
        print(f"process {reproduce.in_background(arguments, log)}, log {log}")
        return 0
    failed = reproduce.reproduce(options.table, options.seeds, options.budget, pool=pool, device=options.device,
                                 **folders)  # fmt: skip
    return int(bool(failed))


def _repeat(options) -> None:
    for name in options.protocol:
        known(protocols.protocols(), name, "protocol")
    repeats.all_of(options.protocol, options.budget, out=options.out, checkpoints=options.checkpoints)


# ---------------------------------------------------------------------- what --help lists
def _of_chapter(options) -> str:
    """The parameters of a chapter, or the chapters."""
    if not getattr(options, "chapter", None):
        return _listed(path.stem for path in notebooks.chapters())
    schema = parameters.of(notebooks.chapter(options.chapter))
    lines = [_line(p.name, p.default, p.hint, p.help) for p in schema.parameters.values()]
    lines += [f"  together: {condition}" for condition in schema.required]
    return "\n".join([f"parameters of {options.chapter}; each changes what the chapter shows:", *lines])


def _of_swept(options) -> str:
    """The parameters of a chapter, or the chapters that compare methods."""
    if not getattr(options, "chapter", None):
        return _listed(sweep.chapters())
    sweep.chapter(options.chapter)
    return _of_chapter(options)


def _listed(chapters: Iterable[str]) -> str:
    return "chapters: " + ", ".join(chapters)


def _of_simulation(options) -> str:
    """The parameters of a method and of its data, or those of all methods."""
    builder = getattr(options, "on", None) or "rotated"
    typed = getattr(options, "name", None) or []
    if not getattr(options, "protocol", None):  # whose labels are its own
        for name in typed:
            known(METHODS, name, "method")
    named = [name for name in typed if name in METHODS]
    known(BUILDERS, builder, "builder")
    lines = []
    for name in named or METHODS:
        takes = [f"  {line}" for line in of_method(name)]
        lines += [f"parameters of {name}:" if takes else f"{name} has no parameters", *takes]
    titles = {"federation": f"of the data, {builder}", "setting": "of the run",
              "local": "of local training (without a protocol: lr = 0.1, epochs = 5)"}  # fmt: skip
    for part, title in titles.items():
        takes = protocols.accepted(named[0] if named else "fedavg", builder)
        lines.append(f"parameters {title}:")
        lines += [_line(name, default, hint) for name, (where, hint, default) in takes.items() if where == part]
    return "\n".join(lines)


def of_method(name: str) -> list[str]:
    """List the parameters of a method: default, and what is allowed."""
    takes = protocols.accepted(name, "rotated")
    return [_line(key, default, hint).strip() for key, (part, hint, default) in takes.items() if part == "method"]


def _line(name: str, default: object, hint: object, help: str = "") -> str:
    shown = "" if repr(default).startswith("<dataclasses") else f" = {default!r}"
    text = parameters.LIMITS.sub("", help)
    return f"  {name}{shown}  ({allowed(hint)})" + f": {text}" * bool(text)


# ---------------------------------------------------------------------- what was typed
def _pair(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text}: must look like NAME=VALUE")
    return name.strip(), value.strip()


def _once(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    pairs = list(pairs)
    names = [name for name, _ in pairs]
    for name in names:
        require(names.count(name) == 1, "parameter", name, "given once")
    return dict(pairs)


def _lists(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Read ``NAME=VALUE,VALUE``; a comma inside brackets parts nothing."""
    lists = {name: _parts(text) for name, text in _once(pairs).items()}
    for name, texts in lists.items():
        for text in texts:
            require(texts.count(text) == 1, name, text, "given once")
    return lists


def _parts(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _seeds(text: str) -> list[int]:
    """Read ``0-4`` or ``0,2,5-7``."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        raise argparse.ArgumentTypeError(f"{text}: must look like 0-4 or 0,2")
    ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    for end in ends:
        if end[0] > end[-1]:
            raise argparse.ArgumentTypeError(f"{text}: must go upwards, such as {end[-1]}-{end[0]}")
    if max(max(end) for end in ends) >= 2**32 or sum(end[-1] - end[0] for end in ends) >= MANY_SEEDS:
        raise argparse.ArgumentTypeError(f"{text}: must be at most {MANY_SEEDS} seeds, each below 2**32")
    seeds = sorted(seed for end in ends for seed in range(end[0], end[-1] + 1))
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"{text}: must name each seed once")
    return seeds


def _minutes(text: str) -> float:
    """Read ``20m`` or ``1.5h``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([mh])", text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text}: must look like 20m or 1.5h, and be more than nothing")
    return float(match[1]) * {"m": 1, "h": 60}[match[2]]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
