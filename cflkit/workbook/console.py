"""The console program: ``cflkit`` and ``python -m cflkit`` are the same."""

import argparse
import re
import sys
from dataclasses import fields
from pathlib import Path

import torch

from cflkit import __version__
from cflkit.checks import one_of
from cflkit.data import images
from cflkit.data.builders import build
from cflkit.methods import METHODS
from cflkit.workbook import ledger, notebooks, protocols, records, reproduce


def main(argv: list[str] | None = None) -> int:
    """Run the program; bad input ends in one line on standard error and exit status 2."""
    parser = argparse.ArgumentParser(prog="cflkit", description="Clustered federated learning, five papers.")
    parser.add_argument("--version", action="version", version=f"cflkit {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    command = commands.add_parser("fetch", help="download a dataset, verified")
    command.add_argument("name", nargs="+")
    command.add_argument("--root", help="folder; $CFLKIT_DATA or ~/.cache/cflkit if not given")
    command = commands.add_parser("datasets", help="list the datasets and where they stand")
    command.add_argument("--root")
    commands.add_parser("methods", help="list the methods and their hyper-parameters")
    commands.add_parser("protocols", help="list the papers' experiments and their methods")
    command = commands.add_parser("run", help="run methods of a protocol into run records")
    command.add_argument("protocol")
    command.add_argument("label", nargs="*", help="methods; all of the protocol's if none is named")
    command.add_argument("--seed", type=int, nargs="+", default=[0])
    command.add_argument("--rounds", type=int, help="instead of the protocol's")
    command.add_argument("--device", default="cpu")
    command.add_argument("--dtype", default="float32")
    command.add_argument("--workers", type=int, default=1, help="threads, one for each core to be used")
    command.add_argument("--out", type=Path, default=records.FOLDER, help="where records go")
    command.add_argument("--checkpoints", type=Path, default=reproduce.CHECKPOINTS, help="of unfinished runs")
    command = commands.add_parser("ledger", help="what is measured, what is missing, and what that costs")
    command.add_argument("table", nargs="?", help="run by run, for one table")
    command.add_argument("--out", type=Path, default=records.FOLDER, help="where records are")
    command = commands.add_parser("reproduce", help="run what a table lacks, cheapest first")
    command.add_argument("table", help="a name from `cflkit ledger`")
    command.add_argument("--seeds", type=_seeds, help="such as 0-4 or 0,2; as many as the table wants if not given")
    command.add_argument("--budget", type=_minutes, help="stop after so long, such as 20m or 1.5h")
    command.add_argument("--background", action="store_true", help="in a process of its own, with a log")
    command.add_argument("--device", default="cpu")
    command.add_argument("--out", type=Path, default=records.FOLDER, help="where records go")
    command.add_argument("--checkpoints", type=Path, default=reproduce.CHECKPOINTS, help="of unfinished runs")
    notebooks.add_arguments(commands.add_parser("chapter", help="rerun a chapter with other parameters"))

    options = parser.parse_args(argv)
    torch.set_num_threads(1)  # two intra-op threads on busy cores are many times slower
    try:
        return globals()[f"_{options.command}"](options) or 0
    except BrokenPipeError:  # the reader of a pipe has seen enough
        return 0
    except (ValueError, OSError) as error:
        print(f"cflkit: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("cflkit: interrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130


def _fetch(options) -> None:
    for name in options.name:
        images.fetch(name, options.root)


def _datasets(options) -> None:
    for name, state in images.status(options.root).items():
        print(f"{name:16} {state}")


def _methods(options) -> None:
    for name, method in sorted(METHODS.items()):
        print(f"{name:16} {method.__doc__.strip().splitlines()[0]}")
        for field in fields(method):
            print(f"{'':16}   {field.name} = {field.default!r}")


def _protocols(options) -> None:
    for name, protocol in protocols.protocols().items():
        print(f"{name:28} {protocol['feeds']}\n{'':28}   {' '.join(protocol['methods'])}")


def _run(options) -> None:
    one_of("protocol", options.protocol, protocols.protocols())
    protocol = protocols.protocols()[options.protocol]
    for label in options.label:
        one_of("label", label, protocol["methods"])
    settings = {"device": options.device, "dtype": options.dtype, "workers": options.workers}
    settings |= {} if options.rounds is None else {"rounds": options.rounds}
    for seed in options.seed:
        federation = build(protocol["federation"] | {"seed": seed})
        for label in options.label or protocol["methods"]:
            places = {"out": options.out, "checkpoints": options.checkpoints}
            print(reproduce.run(options.protocol, label, seed, federation=federation, **places, **settings))


def _ledger(options) -> None:
    if options.table:
        rows = list(ledger.rows(options.table, options.out))
        for row in rows:
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
    for paper, claims in ledger.claims().items():
        for claim in claims:
            print(f"{claim['id']:28} {ledger.judge(paper, claim, options.out)}")


def _reproduce(options) -> None:
    one_of("table", options.table, ledger.tables())
    if options.background:
        arguments = [argument for argument in sys.argv[1:] if argument != "--background"]
        log = options.checkpoints / f"reproduce-{options.table}.log"
        print(f"process {reproduce.in_background(arguments, log)}, log {log}")
        return
    places = {"out": options.out, "checkpoints": options.checkpoints, "device": options.device}
    for target in reproduce.reproduce(options.table, options.seeds, options.budget, **places):
        print(target)


def _seeds(text: str) -> list[int]:
    """Read ``0-4`` or ``0,2,5-7``."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        raise argparse.ArgumentTypeError(f"{text}: must look like 0-4 or 0,2")
    ends = [part.split("-") for part in text.split(",")]
    return [seed for end in ends for seed in range(int(end[0]), int(end[-1]) + 1)]


def _minutes(text: str) -> float:
    """Read ``20m`` or ``1.5h``."""
    if not (match := re.fullmatch(r"(\d+(?:\.\d+)?)([mh])", text)):
        raise argparse.ArgumentTypeError(f"{text}: must look like 20m or 1.5h")
    return float(match[1]) * {"m": 1, "h": 60}[match[2]]


def _chapter(options) -> int | None:
    return notebooks.run(options)


if __name__ == "__main__":
    sys.exit(main())
