"""A step of many clients on a GPU, asked for in every way there is: ``python -m benchmarks.fused``.

*Recorded* is the package's lock-step. *vmap* is ``torch.func.vmap`` over PyTorch's own layers. *Streams* train a
client each, side by side. *Fused* is one program a client, measured with several sizes of tiles, of which the
fastest stands in the table.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import torch

from benchmarks import measure
from benchmarks.engine import Round, Workload
from benchmarks.lockstep import WORKLOADS
from cflkit.checks import require
from cflkit.engine.fast import stacked
from cflkit.engine.fast.fused.trainer import Fused, runs_on
from cflkit.engine.rows import Dense
from cflkit.engine.trainer import Trainer, Work

TILES = [
    size | {"precision": precision}
    for size in ({}, {"m": 128}, {"m": 32, "k": 64}, {"n": 32, "warps": 8}, {"stages": 1})
    for precision in ("ieee", "tf32x3")
]


class Streams(Trainer):
    """The reference, a client in each of sixteen streams."""

    def train(self, work: Work) -> Dense:
        """Train every client: vectors (m, P)."""
        streams = [torch.cuda.Stream(work.model.device) for _ in range(16)]
        out = torch.empty(len(work.data), work.model.size, dtype=work.model.dtype, device=work.model.device)
        torch.cuda.synchronize()
        for i in range(len(work.data)):
            with torch.cuda.stream(streams[i % len(streams)]):
                self.train_one(work, i, out[i])
        torch.cuda.synchronize()
        return Dense(out)


@contextmanager
def tiled(tiles: dict) -> Iterator[None]:
    """Let kernels have tiles of these sizes."""
    from cflkit.engine.fast.fused import programs

    with patch.object(programs, "Tiles", partial(programs.Tiles, **tiles)):
        yield


def row(work: Workload, device: str) -> dict:
    """Milliseconds of a step of all clients in each way, and how far fused models are from those of lock-step."""
    round_ = Round(work, device=device, usual=False)
    steps = work.local.count(work.images)
    vmap = partial(patch.object, stacked, "in_lock_step", lambda model: model.skeleton().train())
    ways = {"recorded": (stacked.Stacked(), partial(tiled, {})), "vmap": (stacked.Stacked(), vmap)}
    if device != "cpu":
        ways["streams"] = Streams(), partial(tiled, {})
    fused = {repr(tiles): (Fused(), partial(tiled, tiles)) for tiles in TILES} if runs_on(device) else {}
    found, models = {}, {}
    for name, (trainer, told) in (ways | fused).items():
        round_.simulation.trainers = [trainer, Trainer()]
        with told():
            models[name] = round_.ours()
            found[name] = 1e3 * min(measure.seconds(round_.ours, device)[1] for _ in range(2)) / steps
        print(f"{work.name}, {name}: {found[name]:.3f} ms", file=sys.stderr, flush=True)
    best = min(fused, key=found.get, default=None)
    told = {} if best is None else {"fused": found[best], "tiles": best}
    far = max((float((models[name] - models["recorded"]).abs().max()) for name in fused), default=0.0)
    return {"workload": work.name, "clients": work.clients, "batch": min(work.local.batch_size, work.images),
            **{name: found[name] for name in ways}, **told, "difference": far}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Measure, print the table, store it."""
    parser = measure.parser("fused", __doc__)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(argv)
    gpu = options.device != "cpu" and torch.cuda.is_available()
    require(gpu, "device", options.device, "a GPU that PyTorch sees")
    torch.set_num_threads(1)
    rows = []
    for work in WORKLOADS:
        rows.append(row(work, options.device))
        measure.write("fused", measure.machine(options.device), rows, options.json)  # what is there, if cut off
    print(measure.show(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
