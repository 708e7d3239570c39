"""Peak memory of whole rounds at the papers' scale: ``python -m benchmarks.memory``.

Two rounds of methods of StoCFL's Table 1 (Rotated MNIST, 4,800 clients, a tenth of them a round; needs the real
MNIST), and one round of FedAvg over 500 clients that hold a ResNet18. Nothing is scored.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

import torch

from benchmarks import measure
from benchmarks.engine import Round, Workload
from cflkit.checks import declared
from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.workbook.runs import protocols

PROTOCOL = "stocfl_rotmnist_4800_r10"
LABELS = ("fedavg", "ifca4", "stocfl", "stocfl-chained", "ditto")
RESNET = "500 x ResNet18"


def rounds(simulation, count: int = 2) -> None:
    """Train the first rounds, with what clients keep on disk."""
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(Path(folder))
        server = simulation.method.start(simulation.network(0, memory))
        for t in range(1, count + 1):
            server = simulation.method.round(server, simulation.schedule[t - 1], simulation.network(t, memory))


def main(argv: list[str] | None = None) -> int:
    """Measure what is asked for, print the table, store it."""
    parser = measure.parser("memory", __doc__)
    parser.add_argument("only", nargs="*", help=f"of {', '.join((*LABELS, RESNET))}; all if none is given")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows, federation = [], None
    for name in options.only or (*LABELS, RESNET):
        declared("name", name, Literal[*LABELS, RESNET])
        if name == RESNET:
            federation = None
            work = Workload("", "resnet18", (3, 8, 8), 10, 500, 2, SGD(0.01))
            simulation, count = Round(work, usual=False).simulation, 1
        else:
            simulation = protocols.plan(PROTOCOL, name).simulation(rounds=2, federation_=federation, progress=False)
            federation, count = simulation.federation, 2
        if not rows:  # making the data may need more than training on it
            rows.append({"work": "the data", "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024})
        began = time.perf_counter()
        added, held = measure.peak(lambda s=simulation, c=count: rounds(s, c)), measure.resident()
        rows.append({"work": name, "mb": round(added + held)})
        print(f"{name}: {added + held:.0f} MB, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    print(measure.show(rows))
    if not options.only:
        print(measure.write("memory", measure.machine(), rows, options.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
