"""How often a round of each method makes the CPU and a GPU wait for each other: ``python tests/transfers.py``.

Given names of methods, it prints the lines of the library that do so as well.
"""

import sys
from collections import Counter
from pathlib import Path

import torch
from every import ALL, make, model

from cflkit import federation, images
from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.testing.pretend import gpu

CLIENTS = 4, 8


def counted(variant: str, fed, clients: int, folder: Path | None = None, epochs: int = 2) -> dict[str, Counter]:
    """What crosses, by line, in the second round with so many clients in one chunk, and in looking at the models.

    With a folder, clients keep their rows there.
    """
    taking_part, crossed = torch.arange(clients), {}
    with gpu() as device:
        run = Simulation(
            make(variant, fed), fed, model=model(variant), local=SGD(0.1, epochs=epochs, batch_size=10), rounds=2,
            device="cuda", progress=False,
        )  # fmt: skip
        memory = Memory(folder)
        server = run.method.start(run.network(0, memory))
        server = run.method.round(server, taking_part, run.network(1, memory))
        for phase in ("round", "serve", "personal"):
            device.transfers.clear()
            found = getattr(run.method, phase)(server, taking_part, run.network(2, memory))
            server = found if phase == "round" else server
            crossed[phase] = Counter(device.transfers)
    return crossed


def main(names: list[str]) -> None:
    """Print the table."""
    fed = federation.rotated(images.load("digits"), clients=12, samples_per_client=24)
    print(f"{'clients':22}", *(f"{n:5}" for n in CLIENTS))
    for variant in (v for v in ALL if not names or v.partition(" ")[0] in names):
        found = [counted(variant, fed, n)["round"] for n in CLIENTS]
        print(f"{variant:22}", *(f"{c.total():5}" for c in found))
        for line in sorted(found[0] | found[-1]) if names else ():
            print(f"  {line:20}", *(f"{c[line]:5}" for c in found))


if __name__ == "__main__":
    main(sys.argv[1:])
