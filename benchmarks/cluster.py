"""What a round costs where chunks are trained, and each client at each method: ``python -m benchmarks.cluster``.

First the same rounds of FedAvg in one thread, in two, in two processes, and on four Dask workers of this machine:
seconds a round, and bytes sent. A round of digits is all overhead; a large one is Rotated MNIST with a perceptron
of 200 units (needs the real MNIST). All histories must be the same to the last bit. Then, for every method,
what one more client costs: numbers of the server's state, numbers that a client keeps, receives and sends, seconds
of its training. Wall times: whatever else the machine does counts.
"""

import math
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context

import torch
from torch import nn

from benchmarks import measure
from cflkit import federation, images, methods
from cflkit.data.federation import Federation
from cflkit.data.images import Images
from cflkit.engine.courier import dask
from cflkit.engine.history import History
from cflkit.engine.memory import Memory
from cflkit.engine.network import Network
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.testing.promises import bits

WHERE = ("1 thread", "2 threads", "2 processes", "4 Dask workers")
ROUNDS = 5
SIZES = (12, 24, 48)  # clients
SMALLER = {"mdicfl": {"samples": 5}, "fedgroup": {"pretrain": 8}, "lcfed": {"rank": 3}}


def executors(where: str, stack: ExitStack) -> dict:
    """What a simulation is told, so that its chunks are trained there."""
    count, kind = where.split(maxsplit=1)
    settings = {"workers": int(count)}
    if kind == "processes":
        settings["executor"] = stack.enter_context(ProcessPoolExecutor(int(count), get_context("spawn")))
    elif kind.startswith("Dask"):
        settings["executor"] = stack.enter_context(dask(int(count)))
    return settings


def places(works: dict[str, tuple[Federation, dict]], everywhere: Sequence[str]) -> list[dict]:
    """Train the same rounds in every place: a row for each piece of work and place."""
    usual = {"local": SGD(0.1, 5), "rounds": ROUNDS, "dtype": "float32", "evaluate_every": 10**6,
             "personal_clients": 0, "progress": False}  # fmt: skip
    rows: list[dict] = []
    for where in everywhere:
        with ExitStack() as stack:
            there = executors(where, stack)
            for work, (fed, settings) in works.items():
                run = Simulation(methods.FedAvg(), fed, **usual, **settings, **there)
                history = run.run()
                rows.append(row(work, where, run, history, next((r for r in rows if r["work"] == work), None)))
    for one in rows:
        one.pop("history")
    return rows


def row(work: str, where: str, run: Simulation, history: History, first: dict | None) -> dict:
    """What a place costs beside the first one, whose bits it must have."""
    same = first is None or bits(first["history"].server) == bits(history.server)
    assert same, f"{where}: not the bits of one thread"
    seconds = statistics.median(history.seconds[2:-1])  # round 1 has data to send, the last one has scores
    clients, wire = len(run.schedule[0]), run.courier.wire if run.courier else {}
    times = wire["site"] / len(run.courier.packed) if run.courier else 0
    chunks, alone = -(-clients // run.chunk), first["seconds"] if first else seconds
    each = {name: wire.get(name, 0) / ROUNDS for name in ("shared", "tasks", "answers")}
    return {"work": work, "where": where, "chunks": chunks, "clients": clients, "seconds": seconds,
            "more": (seconds - alone) / chunks, "site": wire.get("site", 0), "times": times, **each,
            "history": history}  # fmt: skip


class Convolution(nn.Sequential):
    """A small network for FedCG, whose graph layers stand beside a convolution."""

    def __init__(self):
        super().__init__(nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))


def law(servers: dict[int, dict]) -> list[int]:
    """Bytes of a server's state as a polynomial in the number of clients, from runs with that many clients each.

    A side of a tensor that is as long as there are clients, in all runs, grows with them; what else differs between
    runs, such as the number of clusters that were found, is taken from the largest one.
    """
    found, last = [0, 0, 0], servers[max(servers)]
    for name, tensor in last.items():
        if isinstance(tensor, torch.Tensor):
            shapes = {clients: list(server[name].shape) for clients, server in servers.items()}
            sides = range(tensor.dim())
            grows = [all(shape[side] == clients for clients, shape in shapes.items()) for side in sides]
            rest = math.prod(tensor.shape[side] for side in sides if not grows[side])
            found[sum(grows)] += tensor.itemsize * rest
    return found


def second_round(run: Simulation) -> tuple[dict, Memory, Network, float]:
    """Server, what clients keep, what was sent, and seconds of the processor, of a run's second round."""
    memory = Memory()
    server = run.method.start(run.network(0, memory))
    for t in (1, 2):
        net, began = run.network(t, memory), time.process_time()
        server = run.method.round(server, run.schedule[t - 1], net)
        seconds = time.process_time() - began
    return server, memory, net, seconds


def costs(name: str, digits: Images) -> dict:
    """What one more client costs with a method: a row."""
    servers, model = {}, Convolution if name == "fedcg" else "mlp200"
    for clients in SIZES:
        fed = federation.rotated(digits, clients=clients, samples_per_client=20)
        kind = methods.METHODS[name]
        method = kind.of(fed) if name == "oracle" else kind(**SMALLER.get(name, {}))
        run = Simulation(method, fed, model=model, local=SGD(0.1, 5, 10), rounds=2, participation=0.5,
                         dtype="float32", progress=False)  # fmt: skip
        server, memory, net, seconds = second_round(run)
        servers[clients] = server
    sampled, keepers = len(run.schedule[1]), set().union(*memory.rows.values())
    kept = sum(row.numel() * row.itemsize for rows in memory.rows.values() for row in rows.values())
    return {"method": name, "numbers": run.model.size, "down": net.down / sampled,
            "up": net.up / sampled, "kept": kept / max(1, len(keepers)), "seconds": seconds / sampled,
            "state": law(servers)}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Measure, print the tables, store them."""
    options = measure.parser("cluster", __doc__, "digits only, threads only").parse_args(argv)
    torch.set_num_threads(1)
    digits = images.load("digits")
    small = federation.rotated(digits, clients=24, samples_per_client=20)
    works = {"digits": (small, {"model": "mlp16", "chunk": 2})}
    if not options.quick:
        large = federation.rotated(images.load("mnist"), clients=480, samples_per_client=50)
        works["Rotated MNIST"] = large, {"model": "mlp200", "chunk": 15, "participation": 0.25}
    rows = places(works, WHERE[:2] if options.quick else WHERE)
    each = [costs(name, digits) for name in (list(methods.METHODS)[:2] if options.quick else methods.METHODS)]
    print(measure.show(rows), measure.show(each), sep="\n\n")
    if not options.quick:
        print(measure.write("cluster", measure.machine(), rows + each, options.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
