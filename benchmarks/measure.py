"""What the benchmarks share: paired timing, peak memory, the machine, and where results go."""

import argparse
import contextlib
import ctypes
import gc
import json
import os
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from cflkit.engine.gemm import linear
from cflkit.workbook.runs.records import provenance

RESULTS = Path(__file__).resolve().parent / "results"


def parser(name: str, about: str, quick: str | None = None) -> argparse.ArgumentParser:
    """Make the parser of a benchmark from its name, its docstring, and what a quick run does, if there is one."""
    made = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about.splitlines()[0])
    if quick:
        made.add_argument("--quick", action="store_true", help=f"{quick}; nothing is stored")
    made.add_argument("--json", type=Path, default=RESULTS, help="folder for the results")
    return made


def seconds(work: Callable, device: str = "cpu") -> tuple[float, float]:
    """CPU and wall seconds of one call; on a GPU, whose work is not waited for, until it has finished."""

    def finished():
        if device != "cpu":
            torch.cuda.synchronize()

    finished()
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    finished()
    return time.process_time() - cpu, time.perf_counter() - wall


def paired(ours: Callable, usual: Callable, repeats: int, device: str = "cpu") -> dict:
    """Time two pieces of work in turn, changing who begins, so that both meet the same busy and quiet moments.

    Returns
    -------
    dict
        Median seconds of both, and the median over pairs of their ratio: ``cpu`` times do not count what other
        programs take from a busy machine, ``wall`` times do.
    """
    found = {"ours": [], "usual": []}
    for repeat in range(repeats):
        for name, work in (("ours", ours), ("usual", usual))[:: 1 if repeat % 2 else -1]:
            found[name].append(seconds(work, device))
    row = {}
    for k, clock in enumerate(("cpu", "wall")):
        for name, times in found.items():
            row[f"{name}_{clock}"] = statistics.median(t[k] for t in times)
        ratios = [u[k] / o[k] for o, u in zip(found["ours"], found["usual"], strict=True)]
        row[f"ratio_{clock}"] = statistics.median(ratios)
    return row


def peak(work: Callable, device: str = "cpu") -> float:
    """Memory in MB that doing `work` once adds at its peak to what the process holds (libraries, data).

    Resident memory, of a child process, so that nothing done before is counted; on a GPU what is allocated there.
    """
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    import resource  # not on every system

    gc.collect()
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)  # memory that is free, but not given back, would hide what is used
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            work()
            os.write(write, str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return float(said) * 1024 / 1e6


def resident() -> float:
    """What this process holds in memory now, in MB."""
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def ceiling(dtype: torch.dtype, device: str = "cpu", size: int = 1024) -> float:
    """Floating-point operations per second of a square matrix product, the faster of two libraries' ways."""
    size = size if device == "cpu" else 8 * size
    a = torch.randn(size, size, dtype=dtype, device=device)
    clock = 0 if device == "cpu" else 1
    times = [seconds(way, device)[clock] for way in (lambda: a @ a, lambda: linear(a, a)) for _ in range(10)]
    return 2 * size**3 / min(times)


def machine(device: str = "cpu") -> dict:
    """Versions, processor and its vectors or card, load and date."""
    card = torch.cuda.get_device_name() if device != "cpu" else None
    vectors = torch.backends.cpu.get_cpu_capability()  # some processors of one name have AVX-512, some AVX2
    return provenance() | {"card": card, "vectors": vectors, "load": round(os.getloadavg()[0], 1)}


def write(kind: str, where: dict, rows: list[dict], folder: Path = RESULTS) -> Path:
    """Store results under the machine's name, in place of older ones of that machine."""
    place = where["card"] or f"{where['machine']['processor']} {where['vectors']}"
    name = re.sub(r"[^a-z0-9]+", "-", place.lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{kind}-{name}.json"
    lines = ",\n".join("  " + json.dumps(row) for row in _short(rows))
    file.write_text(f'{{\n "machine": {json.dumps(_short(where))},\n "rows": [\n{lines}\n ]\n}}\n')
    return file


def show(rows: list[dict]) -> str:
    """Lay rows out as a table for the terminal; the first row names the columns."""
    cells = [list(rows[0])] + [["" if v is None else str(v) for v in row.values()] for row in _short(rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells)


def _short(value):
    """Four significant digits of every float."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    return [_short(v) for v in value] if isinstance(value, list) else value
