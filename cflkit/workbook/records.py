"""Run records: one file a run, ``book/results/<protocol>/<label>-<hash>-s<seed>.json``.

The hash is over the resolved configuration alone. What a run measured (final and per-round metrics) stands apart
from how it came about (versions, commit, machine, seconds), which is never hashed and never compared.
"""

import hashlib
import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

from cflkit import __version__
from cflkit.engine.simulation import History, Simulation
from cflkit.workbook import places

FOLDER = places.RESULTS
DIGITS = 6  # significant decimals kept of a measured number
# where and how a run was computed changes its numbers at rounding level only: told, but not part of its identity
_APART = ("seed", "device", "trainer", "chunk", "workers")


def identity(config: dict) -> str:
    """Short hash of a resolved configuration, the same for every seed and machine."""
    kept = {name: value for name, value in config.items() if name not in _APART}
    return hashlib.blake2b(json.dumps(kept, sort_keys=True).encode(), digest_size=5).hexdigest()


def path(protocol: str, label: str, config: dict, folder: Path = FOLDER) -> Path:
    """Where the record of a run belongs."""
    return folder / protocol / f"{name({'label': label, 'config': config, 'seed': config['seed']})}.json"


def name(record: dict) -> str:
    """A record's name: label, identity, seed."""
    return f"{record['label']}-{identity(record['config'])}-s{record['seed']}"


def write(protocol: str, label: str, simulation: Simulation, history: History, folder: Path = FOLDER) -> Path:
    """Write the record of a finished run, whole or not at all.

    Parameters
    ----------
    protocol : str
        The experiment of ``book/papers/protocols.yaml`` that was run.
    label : str
        The method's name within it.
    simulation : Simulation
        What was run.
    history : History
        What came of it.
    folder : Path
        Where records are kept.

    Returns
    -------
    Path
        The file written.
    """
    record = {
        "protocol": protocol,
        "label": label,
        "config": simulation.config,
        "seed": simulation.seed,
        "final": _rounded(history.final),
        "rounds": _rounded(history.rounds),
        "provenance": provenance() | {
            "seconds": round(sum(history.seconds), 1),
            "device": simulation.model.device.type,
            "card": torch.cuda.get_device_name() if simulation.model.device.type == "cuda" else None,
            "trainer": simulation.trainer,
            "chunk": simulation.chunk,
            "workers": simulation.workers,
        },
    }  # fmt: skip
    target = path(protocol, label, simulation.config, folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".part")
    lines = ",\n".join(f" {json.dumps(name)}: {_lines(value)}" for name, value in record.items())
    partial.write_text("{\n" + lines + "\n}\n")
    os.replace(partial, target)
    return target


def load(protocol: str | None = None, folder: Path = FOLDER) -> list[dict]:
    """All records, or those of one protocol, in the order of their paths."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob(f"{protocol or '*'}/*.json"))]


def provenance() -> dict:
    """Versions, commit, machine and date of a run made now."""
    root = places.ROOT
    try:
        git = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
        commit = subprocess.run(git, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        commit = None
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit,
        "versions": {"cflkit": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("torch", "numpy", "scikit-learn")},
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()


def _rounded(value):
    """Keep what matters of every float; not-a-number becomes null, since JSON has none."""
    if isinstance(value, float):
        return round(value, DIGITS) if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {name: _rounded(v) for name, v in value.items()}
    if isinstance(value, list):
        # a long list of cluster sizes says little beyond its head; their number is a column of its own
        return [_rounded(v) for v in (value if not value or not isinstance(value[0], int) else value[:20])]
    return value


def _lines(value) -> str:
    """One line a round, so that a diff of two records reads round by round."""
    if isinstance(value, list):
        return "[\n" + ",\n".join("  " + json.dumps(v) for v in value) + "\n ]"
    return json.dumps(value)
