"""Half an hour of a GPU, spent on what is worth most first: ``make gpu``.

Every step stores what it finds before the next one begins, so the whole may be cut off anywhere; what was done is
done again when it is started again, but for data runs, which go on.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import torch

from cflkit.checks import require

LOGS = Path("build/card")
# name, minutes at most, what is run
STEPS = (
    ("every method and trainer beside the processor", 3, ["-m", "pytest", "-q", "tests/test_gpu.py"]),
    ("a step in every way", 4, ["-m", "benchmarks.fused"]),
    ("a step recorded and plain", 2, ["-m", "benchmarks.lockstep"]),
    ("rounds beside the usual loop", 3, ["-m", "benchmarks.engine", "--device", "cuda"]),
    ("StoCFL, Table 1, 4,800 clients, all in every round", 4,
     ["-m", "cflkit", "reproduce", "stocfl-table1-4800-r100", "--device", "cuda", "--seeds", "0"]),
    ("MD-ICFL, Table 1, CIFAR-10", 14,
     ["-m", "cflkit", "reproduce", "mdicfl-table1-lenet", "--device", "cuda", "--seeds", "0-2"]),
)  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Go through the steps; 1 if one of them failed, but all are tried."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.card", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30, help="for all steps together (default: 30)")
    options = parser.parse_args(argv)
    require(torch.cuda.is_available(), "device", "cuda", "a GPU that PyTorch sees")
    LOGS.mkdir(parents=True, exist_ok=True)
    began, failed = time.monotonic(), []
    for number, (name, minutes, command) in enumerate(STEPS):
        left = options.minutes - (time.monotonic() - began) / 60
        if left <= 0:
            print(f"{name}: no time left")
            continue
        print(f"{name}, {min(minutes, left):.0f} minutes at most: ", end="", flush=True)
        start, log = time.monotonic(), LOGS / f"{number}.log"
        with log.open("w", encoding="utf-8") as out:
            try:
                code = subprocess.run([sys.executable, *command], stdout=out, stderr=out, check=False,
                                      timeout=60 * min(minutes, left)).returncode  # fmt: skip
                told = "done" if code == 0 else f"failed, see {log}"
            except subprocess.TimeoutExpired:
                code, told = 0, "cut off"
        failed += [name] * (code != 0)
        print(f"{told} after {(time.monotonic() - start) / 60:.1f} minutes", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
