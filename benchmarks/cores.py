"""What a second core brings, and how long a whole experiment takes: ``python -m benchmarks.cores``.

One round of FedAvg with one worker thread and with two, in turn, for 480 clients with dense layers (workload A) and
for 100 clients with a LeNet (workload B). Then 100 rounds of StoCFL on Rotated MNIST with 4800 clients, a tenth of
them a round: clustering, training, averaging, and scoring every tenth round, from the built federation to the last
score (needs the real MNIST). Wall times: whatever else the machine does counts.
"""

import sys
import time
from dataclasses import replace

import torch

from benchmarks import measure
from benchmarks.engine import WORKLOADS, Round
from cflkit.workbook.runs import protocols

WORKERS = 2


def second_core(name: str, clients: int, repeats: int) -> list[dict]:
    """Time a round of the workload that begins with `name` with one worker and with several: a row for each."""
    work = next(work for work in WORKLOADS if work.name.startswith(name))
    round_ = Round(replace(work, clients=clients), usual=False)

    def with_workers(count: int) -> None:
        round_.simulation.workers = count
        round_.ours()

    found = measure.paired(lambda: with_workers(WORKERS), lambda: with_workers(1), repeats)
    name = f"a round of workload {name}, {clients} clients"
    return [
        {"work": name, "workers": 1, "wall": found["usual_wall"], "ratio": 1.0},
        {"work": name, "workers": WORKERS, "wall": found["ours_wall"], "ratio": found["ratio_wall"]},
    ]


def whole(simulation) -> dict:
    """Time a whole simulation: a row."""
    began = time.perf_counter()
    simulation.run()
    name = f"{simulation.rounds} rounds of StoCFL, Rotated MNIST, 4800 clients, 10% a round"
    return {"work": name, "workers": WORKERS, "wall": time.perf_counter() - began, "ratio": None}


def main(argv: list[str] | None = None) -> int:
    """Run both, print the table, store it."""
    options = measure.parser("cores", __doc__, "few clients, no whole experiment").parse_args(argv)
    torch.set_num_threads(1)
    if options.quick:
        print(measure.show([*second_core("A", 64, 2), *second_core("B", 8, 2)]))
        return 0
    everything = protocols.plan("stocfl_rotmnist_4800_r10", "stocfl").simulation(workers=WORKERS, progress=False)
    rows = [*second_core("A", 480, 7), *second_core("B", 100, 7), whole(everything)]
    print(measure.show(rows))
    print(measure.write("cores", measure.machine(), rows, options.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
