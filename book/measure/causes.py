"""What a run's last digits depend on: short runs in single precision, each made again with one thing changed.

``.venv/bin/python book/measure/causes.py`` runs the first rounds of some runs of the protocols, plainly and once
for each cause, each in a process of its own. It writes ``book/results/causes.json``: for each run and cause the
first round after which a bit of the server's state is another one, and the first after which a score is.
"""

import json
import os
import subprocess
import sys

from cflkit.workbook import places

ROUNDS = 3
RUNS = {
    "mdicfl_rotmnist_r50": ["fedavg", "ifca", "mdicfl-1"],
    "stocfl_rotmnist_4800_r10": ["fedavg"],
    "stocfl_tau": ["tau80"],
    "lcfed_mnist_n3_cal": ["fedavg", "local"],
    "lcfed_cifar10_n4": ["fedavg"],
    "fedcg_femnist_150": ["fedavg"],
    "common_rot_skew_r20": ["fedavg", "fesem"],
    "dose_rotation_10": ["pacfl", "stocfl"],
}
# environment, settings of the simulation, and whether our kernels must do with the narrower vectors
CAUSES = {
    "nothing": ({}, {}, False),
    "two threads inside PyTorch": ({"OMP_NUM_THREADS": "2"}, {}, False),
    "two workers": ({}, {"workers": 2}, False),
    "chunks of 7 clients": ({}, {"chunk": 7}, False),
    "our kernels for AVX2": ({}, {}, True),
    "oneDNN's kernels for AVX2": ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, {}, False),
    "PyTorch's kernels for AVX2, and products by MKL": ({"ATEN_CPU_CAPABILITY": "avx2"}, {}, False),
    "PyTorch in place of our kernels": ({}, {"trainer": "lean"}, False),
}


def child(protocol: str, label: str, cause: str) -> None:
    """Run it here, and print the hash of each round's state, and each round's scores."""
    import torch

    from cflkit.engine.checkpoint import checksum
    from cflkit.engine.fast.compiled import library
    from cflkit.workbook.runs import protocols

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    _, settings, narrow = CAUSES[cause]
    if narrow:
        best, *others = library.machines()
        library.machines = lambda: tuple(others or [best])
    plan, states = protocols.plan(protocol, label, 0), []
    run = plan.simulation(rounds=ROUNDS, progress=False, evaluate_every=1, **settings)
    history = run.run(after=lambda so_far: states.append(checksum([so_far.server, so_far.memory.state()])))
    print(json.dumps([states, history.rounds[1:]]))


def made(protocol: str, label: str, cause: str) -> list[list]:
    """Run it in a process of its own, whose libraries have seen no other setting."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | CAUSES[cause][0]
    command = [sys.executable, __file__, protocol, label, cause]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def first(plain: list, other: list) -> int | None:
    """Count rounds from 1 to the first that is another one; None if all are the same."""
    return next((t for t, pair in enumerate(zip(plain, other, strict=True), 1) if pair[0] != pair[1]), None)


def main() -> None:
    """Run everything; minutes on a quiet machine."""
    notes = []
    for protocol, labels in RUNS.items():
        for label in labels:
            plain = made(protocol, label, "nothing")
            for cause in CAUSES:
                states, scores = map(first, plain, made(protocol, label, cause))
                note = {"protocol": protocol, "label": label, "cause": cause, "bits": states, "scores": scores}
                print(note, flush=True)
                notes.append(note)
    with places.atomic_write(places.RESULTS / "causes.json") as part:
        part.write_text("[\n" + ",\n".join(map(json.dumps, notes)) + "\n]\n", "utf-8")


if __name__ == "__main__":
    child(*sys.argv[1:]) if len(sys.argv) > 1 else main()
