"""What a run's last digits depend on: short runs in single precision, each made again with one thing changed.

``.venv/bin/python book/measure/causes.py`` runs the first rounds of some runs of the protocols, plainly and once
for each cause, in a process for each environment of the libraries. It writes ``book/results/causes.json``: for each
run and cause the first round that ends with another bit in the server's state, and the first with another score.
"""

import json
import os
import subprocess
import sys
from functools import partial

from cflkit.workbook import places

ROUNDS = 2
RUNS = {
    "mdicfl_rotmnist_r50": ["ifca"],
    "stocfl_tau": ["tau80"],
    "lcfed_mnist_n3_cal": ["fedavg"],
    "lcfed_cifar10_n4": ["fedavg"],
    "fedcg_femnist_150": ["fedavg"],
    "common_rot_skew_r20": ["fesem"],
    "dose_rotation_10": ["pacfl"],
}
PLAIN = "nothing"
# by environment of the libraries: settings of a simulation, and whether our kernels must do with narrower vectors
CAUSES = {
    "": {
        PLAIN: ({}, False),
        "two workers": ({"workers": 2}, False),
        "chunks of 7 clients": ({"chunk": 7}, False),
        "our kernels for AVX2": ({}, True),
        "PyTorch in place of our kernels": ({"trainer": "lean"}, False),
    },
    "OMP_NUM_THREADS=1": {"nothing, in another process": ({}, False)},
    "OMP_NUM_THREADS=2": {"two threads inside PyTorch": ({}, False)},
    "ONEDNN_MAX_CPU_ISA=AVX2": {"oneDNN's kernels for AVX2": ({}, False)},
    "ATEN_CPU_CAPABILITY=avx2": {"PyTorch's kernels for AVX2, and products by MKL": ({}, False)},
}


def child(environment: str) -> None:
    """Run all here, and print for each run and cause the hash of each round's state, and each round's scores."""
    import torch

    from cflkit.engine.checkpoint import checksum
    from cflkit.engine.fast.compiled import library
    from cflkit.workbook.runs import protocols

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    best, *others = machines = library.machines()
    for protocol, label in ((protocol, label) for protocol, labels in RUNS.items() for label in labels):
        for cause, (settings, narrow) in CAUSES[environment].items():
            library._known.clear()
            library.machines = partial(tuple, (others or [best]) if narrow else machines)
            states: list[str] = []
            plan = protocols.plan(protocol, label, 0)
            run = plan.simulation(rounds=ROUNDS, progress=False, evaluate_every=1, **settings)
            look = partial(lambda to, now: to.append(checksum([now.server, now.memory.state()])), states)
            history = run.run(after=look)
            print(json.dumps([protocol, label, cause, states, history.rounds[1:]]), flush=True)


def made(environment: str) -> dict[tuple[str, str, str], tuple[list, list]]:
    """Run all in a process of its own, whose libraries have seen no other environment."""
    own = dict([environment.split("=")]) if environment else {}
    own, command = os.environ | {"OMP_NUM_THREADS": "1"} | own, [sys.executable, __file__, environment]
    done = subprocess.run(command, env=own, check=True, stdout=subprocess.PIPE)
    return {tuple(line[:3]): tuple(line[3:]) for line in map(json.loads, done.stdout.splitlines())}


def first(plain: list, other: list) -> int | None:
    """Count rounds from 1 to the first that is another one; None if all are the same."""
    return next((t for t, pair in enumerate(zip(plain, other, strict=True), 1) if pair[0] != pair[1]), None)


def main() -> None:
    """Run everything; minutes on a quiet machine."""
    found = {key: value for environment in CAUSES for key, value in made(environment).items()}
    notes = []
    for (protocol, label, cause), other in found.items():
        if cause != PLAIN:
            states, scores = map(first, found[protocol, label, PLAIN], other)
            notes.append({"protocol": protocol, "label": label, "cause": cause, "bits": states, "scores": scores})
    with places.atomic_write(places.RESULTS / "causes.json") as part:
        part.write_text("[\n" + ",\n".join(map(json.dumps, notes)) + "\n]\n", "utf-8")


if __name__ == "__main__":
    child(sys.argv[1]) if len(sys.argv) > 1 else main()
