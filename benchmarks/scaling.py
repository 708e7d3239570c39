"""Time and memory of a round against its sizes: ``python -m benchmarks.scaling``.

One thing changes at a time, from a federation of 1,000 clients with 50 images each, a tenth of whom train
StoCFL's network for five steps a round. One round of FedAvg is measured, without scoring.
"""

import sys
from typing import Literal

import torch

from benchmarks import measure
from benchmarks.engine import Round, Workload
from cflkit.checks import declared
from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD

BASE = {"clients": 1000, "images": 50, "width": 2048, "participation": 0.1}
AXES = {
    "clients": (100, 300, 1000, 3000, 10_000),
    "images": (10, 50, 100, 200, 500),
    "width": (64, 256, 1024, 2048, 4096),
    "participation": (0.01, 0.1, 0.3, 1.0),
}


def point(setting: dict, repeats: int, device: str = "cpu") -> dict:
    """Measure one setting: a row of the table."""
    model, local = f"mlp{setting['width']}", SGD(0.1, epochs=5)
    work = Workload("", model, (1, 28, 28), 10, setting["clients"], setting["images"], local)
    round_ = Round(work, device=device, usual=False)
    sampled = torch.arange(round(setting["participation"] * setting["clients"]))

    def once():
        net = round_.simulation.network(1, Memory())
        round_.method.round({"model": round_.omega}, sampled, net)

    memory = measure.peak(once, device)
    times = [measure.seconds(once, device) for _ in range(repeats)]
    cpu, wall = (sorted(clock)[repeats // 2] for clock in zip(*times, strict=True))
    return {**setting, "parameters": round_.model.size, "sampled": len(sampled), "cpu": cpu, "wall": wall,
            "cpu_ms_a_client": 1e3 * cpu / len(sampled), "mb": round(memory)}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Measure every axis, print the table, store it."""
    parser = measure.parser("scaling", __doc__, "the smallest of each axis, once")
    parser.add_argument("only", nargs="*", help="axes; all if none is given")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = []
    for axis in options.only or AXES:
        declared("axis", axis, Literal[*AXES])
        for value in AXES[axis][: 1 if options.quick else None]:
            row = point({**BASE, axis: value}, 1 if options.quick else 3, options.device)
            rows.append({"axis": axis, **row})
            print(axis, value, f"{row['cpu']:.2f} s", file=sys.stderr, flush=True)
    print(measure.show(rows))
    if not options.quick and not options.only:
        print(measure.write("scaling", measure.machine(options.device), rows, options.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
