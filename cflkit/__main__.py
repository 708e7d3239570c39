"""The console program: ``cflkit`` and ``python -m cflkit`` are the same."""

import argparse
import sys
from dataclasses import fields
from pathlib import Path

import torch

from cflkit import __version__, images, notebooks, protocols, records
from cflkit.checks import one_of
from cflkit.federation import build
from cflkit.methods import METHODS


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
    command.add_argument("--out", type=Path, default=records.FOLDER, help="where records go")
    command.add_argument("--checkpoints", type=Path, default=Path("runs"), help="where unfinished runs are kept")
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
    settings = {"device": options.device, "dtype": options.dtype}
    settings |= {} if options.rounds is None else {"rounds": options.rounds}
    for seed in options.seed:
        federation = build(protocol["federation"] | {"seed": seed})
        for label in options.label or protocol["methods"]:
            kept = options.checkpoints / options.protocol / f"{label}-s{seed}"
            simulation = protocols.simulation(
                options.protocol, label, seed=seed, federation_=federation, checkpoint=kept, **settings
            )
            target = records.path(options.protocol, label, simulation.config, options.out)
            if not target.exists():
                history = simulation.run()
                records.write(options.protocol, label, simulation, history, options.out)
            print(target)


def _chapter(options) -> int | None:
    return notebooks.run(options)


if __name__ == "__main__":
    sys.exit(main())
