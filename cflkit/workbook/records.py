"""Run records: one file a run, ``book/results/<protocol>/<label>-<hash>-s<seed>.json``.

The hash is over the resolved configuration alone. What a run measured (final and per-round metrics) stands apart
from how it came about (versions, commit, machine, seconds), which is never hashed and never compared.
"""

import hashlib
import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

from cflkit import __version__
from cflkit.checks import Checked, Natural, Unit, declared, require
from cflkit.engine.simulation import History, Simulation
from cflkit.workbook import places

FOLDER = places.RESULTS
DIGITS = 6  # decimals kept of a measured number
LONGEST = 80  # letters of a label
FORMAT = 2  # of a record; those without one have lists cut at twenty, and no client's accuracy
# where and how a run was computed changes its numbers at rounding level only: told, but not part of its identity
_APART = ("seed", "device", "trainer", "chunk", "workers")


def identity(config: dict) -> str:
    """Short hash of a resolved configuration, the same on every machine.

    The seed itself is left out, but another seed deals other data, and a fingerprint of these is part of the
    configuration: runs that differ in the seed alone have different hashes.
    """
    kept = {name: value for name, value in config.items() if name not in _APART}
    return hashlib.blake2b(json.dumps(kept, sort_keys=True).encode(), digest_size=5).hexdigest()


def path(protocol: str, label: str, config: dict, folder: Path = FOLDER) -> Path:
    """Where the record of a run belongs."""
    return folder / protocol / f"{name({'label': label, 'config': config, 'seed': config['seed']})}.json"


def label(text: str) -> str:
    """Make a label that can name a file; what is too long keeps its beginning and gets a digest."""
    text = re.sub(r"[^\w,.=+\-]+", "_", text)
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 9]}_{digest}"


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
        "format": FORMAT,
        "protocol": protocol,
        "label": label,
        "config": simulation.config,
        "seed": simulation.seed,
        "final": rounded(history.final),
        "clients": rounded(simulation.accuracies(history), 4),
        "rounds": rounded(history.rounds),
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


@dataclass(frozen=True)
class Record(Checked):
    """What a record must hold."""

    protocol: str
    label: str
    config: Mapping
    seed: Natural
    final: Mapping
    rounds: Sequence[Mapping]
    provenance: Mapping
    format: int = 1
    clients: Mapping | None = None

    def __post_init__(self):
        require(self.format in (1, FORMAT), "format", self.format, f"1 or {FORMAT}; another version wrote this")
        super().__post_init__()
        for name, kind in (("method", Mapping), ("federation", Mapping), ("local", Mapping), ("model", str),
                           ("rounds", Natural), ("seed", Natural)):  # fmt: skip
            declared(f"config's {name}", self.config.get(name), kind)
        for name, kind in (("date", str), ("seconds", float), ("machine", Mapping), ("device", str)):
            declared(f"provenance's {name}", self.provenance.get(name), kind)
        require(self.seed == self.config["seed"], "seed", self.seed, f"the configuration's, {self.config['seed']}")
        rounds = [row.get("round") for row in self.rounds]
        require(rounds == list(range(self.config["rounds"] + 1)), "rounds", rounds,
                f"0 to {self.config['rounds']}, each once")  # fmt: skip
        require(self.final == self.rounds[-1], "final", self.final, "the last of the rounds")
        for row in self.rounds:
            for name, value in row.items():
                if "accuracy" in name.split("_") or name.startswith("f1"):
                    declared(f"{name} of round {row['round']}", value, Unit | None)


def read(file: Path) -> dict:
    """Read a record.

    Raises
    ------
    ValueError
        If it is damaged, or its name is not that of its configuration; one line naming the file.
    """

    def no_number(text: str) -> None:
        raise ValueError(f"{text} stands where a number should")

    place = f"{file.parent.name}/{file.name}"
    try:
        record = json.loads(file.read_text(), parse_constant=no_number)
        require(isinstance(record, dict), "record", record, "a mapping")
        wanted = {f.name for f in fields(Record)}
        for f in fields(Record)[:7]:
            require(f.name in record, "part", f.name, "there")
        Record(**{part: record[part] for part in record if part in wanted})
    except (ValueError, TypeError, OSError) as error:
        raise ValueError(f"{place}: {error}") from None
    right = record["protocol"] == file.parent.name and name(record) == file.stem
    require(right, place, f"{record['protocol']}/{name(record)}", "the name that its configuration gives it")
    return record


def load(protocol: str | None = None, folder: Path = FOLDER) -> list[dict]:
    """All records, or those of one protocol, in the order of their paths.

    Raises
    ------
    ValueError
        For the first that is damaged (see :func:`read`); ``cflkit ledger`` leaves those out and names them.
    """
    return [read(file) for file in sorted(folder.glob(f"{protocol or '*'}/*.json"))]


def provenance() -> dict:
    """Versions, commit (and whether code or protocols were changed since), machine and date of a run made now."""
    root = places.ROOT

    def git(*what: str) -> str:
        command = ["git", "-C", str(root), *what]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        changed = bool(git("status", "--porcelain", "--", "cflkit", "book/papers"))  # new files count, too
    except (OSError, subprocess.SubprocessError):
        commit, changed = None, None
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit,
        "changed": changed,
        "versions": {"cflkit": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("torch", "numpy", "scikit-learn")},
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()


def rounded(value, digits: int = DIGITS):
    """Keep what matters of every float; not-a-number becomes null, since JSON has none."""
    if isinstance(value, float):
        return round(value, digits) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: rounded(v, digits) for name, v in value.items()}
    if isinstance(value, list):
        return [rounded(v, digits) for v in value]
    return value


def _lines(value) -> str:
    """One line a round, so that a diff of two records reads round by round."""
    if isinstance(value, list):
        return "[\n" + ",\n".join("  " + json.dumps(v) for v in value) + "\n ]"
    return json.dumps(value)
