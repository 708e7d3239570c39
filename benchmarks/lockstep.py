"""A step of many clients in lock-step on a GPU, recorded and plain: ``python -m benchmarks.lockstep``.

A recorded step is asked for once and replayed; a plain one is asked for piece by piece, every time. Both compute
the same bits.
"""

import sys
from unittest.mock import patch

import torch

from benchmarks import measure
from benchmarks.engine import Round, Workload
from cflkit.checks import require
from cflkit.engine.fast import stacked
from cflkit.engine.sgd import SGD

EPOCHS = 10
WORKLOADS = tuple(
    Workload(name, model, shape, classes, clients, images, SGD(0.05, epochs=EPOCHS, batch_size=batch))
    for name, model, shape, classes, clients, images, batch in (
        ("LeNet-5", "lenet", (1, 28, 28), 10, 100, 250, 50),
        ("LeNet-5, few clients", "lenet", (1, 28, 28), 10, 10, 250, 50),
        ("FeSEM's network for FEMNIST", "femnist_248", (1, 28, 28), 62, 60, 60, 10),
        ("LEAF's network for CelebA", "leaf_celeba", (3, 84, 84), 2, 100, 6, 10),
    )
)
RECORDED = {"recorded": 1, "plain": 10**9}  # steps from which a recording is made


def row(work: Workload, device: str) -> dict:
    """Milliseconds of a step of all clients, both ways, and how far apart the models end."""
    steps, found, models = work.local.count(work.images), {}, {}
    for way, steps_from in RECORDED.items():
        with patch.object(stacked, "REPLAYED", steps_from):
            round_ = Round(work, device=device, usual=False)
            models[way] = round_.ours()
            found[way] = 1e3 * min(measure.seconds(round_.ours, device)[1] for _ in range(2)) / steps
    difference = float((models["recorded"] - models["plain"]).abs().max())
    return {"workload": work.name, "clients": work.clients, "batch": min(work.local.batch_size, work.images),
            **found, "ratio": found["plain"] / found["recorded"], "difference": difference}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Measure, print the table, store it."""
    parser = measure.parser("lockstep", __doc__)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(argv)
    gpu = options.device != "cpu" and torch.cuda.is_available()
    require(gpu, "device", options.device, "a GPU that PyTorch sees")
    torch.set_num_threads(1)
    rows = []
    for work in WORKLOADS:
        rows.append(row(work, options.device))
        print(work.name, f"{rows[-1]['ratio']:.1f}", file=sys.stderr, flush=True)
    print(measure.show(rows))
    print(measure.write("lockstep", measure.machine(options.device), rows, options.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
