"""Run records: one file a run, ``book/results/<protocol>/<label>-<hash>-s<seed>.json``.

The hash is over the resolved configuration alone. What a run measured (final and per-round metrics) stands apart
from how it came about (versions, commit, machine, seconds), which is never hashed and never compared.
"""

import hashlib
import inspect
import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import torch

from cflkit import __version__
from cflkit.checks import Checked, Natural, Some, Unit, Weight, declared, require
from cflkit.engine.simulation import History, Simulation
from cflkit.workbook import places
from cflkit.workbook.runs import scores

FOLDER = places.RESULTS
DIGITS = 6  # decimals kept of a measured number
FORMAT = 2  # of a record
CLIENTS = ("accuracy", "unseen_accuracy", "personal_accuracy")  # of which each client's is kept
ROUNDING = 6e-5  # of a mean of numbers with four digits, and of one with six
label = places.label
# where and how a run was computed changes its numbers at rounding level only: told, but not part of its identity
_NOT_IN_IDENTITY = ("seed", "device", "trainer", "chunk", "workers")


def identity(config: dict) -> str:
    """Short hash of a resolved configuration, the same on every machine.

    The seed itself is left out, but another seed deals other data, and a fingerprint of these is part of the
    configuration: runs that differ in the seed alone have different hashes.
    """
    kept = {name: value for name, value in config.items() if name not in _NOT_IN_IDENTITY}
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
        "format": FORMAT,
        "protocol": protocol,
        "label": label,
        "config": simulation.config,
        "seed": simulation.seed,
        "final": rounded(history.final),
        "clients": _each_client(simulation, history),
        "rounds": rounded(history.rounds),
        "provenance": provenance(of_method(simulation)) | {
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
    lines = ",\n".join(f" {json.dumps(name)}: {_lines(value)}" for name, value in record.items())
    with places.atomic_write(target) as part:
        part.write_text("{\n" + lines + "\n}\n", "utf-8")
    return target


def _each_client(simulation: Simulation, history: History) -> dict[str, list]:
    """Every client's accuracies and, of methods that group clients, its cluster in the end."""
    cluster = simulation.method.assignment(history.server)
    grouped = {} if cluster is None else {"cluster": cluster.tolist()}
    return rounded(simulation.accuracies(history), 4) | grouped


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
    format: int
    clients: Mapping | None  # None where a run did not keep each client's

    def __post_init__(self):
        require(self.format == FORMAT, "format", self.format, f"{FORMAT}; another version wrote this")
        super().__post_init__()
        self._config()
        self._provenance()
        require(self.seed == self.config["seed"], "seed", self.seed, f"the configuration's, {self.config['seed']}")
        rounds = [row.get("round") for row in self.rounds]
        require(rounds == list(range(self.config["rounds"] + 1)), "rounds", rounds,
                f"0 to {self.config['rounds']}, each once")  # fmt: skip
        require(self.final == self.rounds[-1], "final", self.final, "the last of the rounds")
        for row in self.rounds:
            for name, value in row.items():
                scores.check(name, value, row["round"])
        self._clients()

    def _config(self) -> None:
        for name, kind in (("method", Mapping), ("federation", Mapping), ("local", Mapping), ("model", str),
                           ("rounds", Natural), ("seed", Natural), ("dtype", Literal["float32", "float64"]),
                           ("arrival", Sequence[int] | None)):  # fmt: skip
            declared(f"config's {name}", self.config.get(name), kind)
        declared("config's method's name", self.config["method"].get("name"), str)

    def _provenance(self) -> None:
        for name in ("commit", "card"):
            require(name in self.provenance, "provenance's part", name, "there, if only as null")
        for name, kind in (("date", str), ("seconds", Weight), ("machine", Mapping), ("device", str),
                           ("commit", str | None), ("card", str | None), ("changed", bool | None)):  # fmt: skip
            declared(f"provenance's {name}", self.provenance.get(name), kind)
        declared("provenance's machine's processor", self.provenance["machine"].get("processor"), str)
        day = self.provenance["date"]
        require(bool(re.fullmatch(r"\d{4}-\d\d-\d\d", day)), "provenance's date", day, "a day, such as 2026-01-31")
        date.fromisoformat(day)

    def _clients(self) -> None:
        """Require that every accuracy is the mean of its clients', if they were kept."""
        if self.clients is None:
            return
        for name, each in self.clients.items():
            declared(f"clients' {name}", each, Some[int] if name == "cluster" else Some[Unit | None])
        lengths = {name: len(each) for name, each in self.clients.items()}
        require(len({*lengths.values()}) < 2, "clients", lengths, "lists of one length: one number a client")
        for name in CLIENTS:
            if (mean := self.final.get(name)) is not None:
                scored = [value for value in self.clients.get(name, []) if value is not None]
                require(bool(scored), f"clients' {name}", self.clients.get(name), "there, as the last round has it")
                off = abs(sum(scored) / len(scored) - mean)
                require(off <= ROUNDING, f"{name} of the last round", mean,
                        f"the mean of the clients', {sum(scored) / len(scored):.4f}")  # fmt: skip


def read(file: Path) -> dict:
    """Read a record.

    Raises
    ------
    ValueError
        If it is damaged, cannot be read, or its name is not that of its configuration; one line naming the file.
    """
    place = f"{file.parent.name}/{file.name}"
    try:
        record = json.loads(file.read_text("utf-8"), parse_constant=_no_number, parse_float=_finite,
                            object_pairs_hook=_once)  # fmt: skip
        require(isinstance(record, dict), "record", record, "a mapping")
        wanted = {f.name for f in fields(Record)}
        for f in fields(Record):
            require(f.name in record, "part", f.name, "there")
        Record(**{part: record[part] for part in record if part in wanted})
        named = name(record)
    except (ValueError, TypeError, OSError, RecursionError, OverflowError) as error:
        raise ValueError(f"{place}: {error}") from None
    right = record["protocol"] == file.parent.name and named == file.stem
    require(right, place, f"{record['protocol']}/{named}", "the name that its configuration gives it")
    return record


def _no_number(text: str) -> None:
    raise ValueError(f"{text} stands where a number should")


def _finite(text: str) -> float:
    """Read a number; one that is too large for a float would become infinite."""
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def _once(pairs: list[tuple[str, object]]) -> dict:
    """Make a mapping; of a key that stands twice the first value would be lost."""
    whole = dict(pairs)
    if len(whole) < len(pairs):
        keys = [key for key, _ in pairs]
        require(False, "key", next(key for key in keys if keys.count(key) > 1), "there once")
    return whole


def load(protocol: str | None = None, folder: Path = FOLDER) -> list[dict]:
    """All records, or those of one protocol, in the order of their paths.

    Raises
    ------
    ValueError
        For the first that is damaged (see :func:`read`); ``cflkit results --ledger`` names those.
    """
    return [read(file) for file in sorted(folder.glob(f"{protocol or '*'}/*.json"))]


def of_method(simulation: Simulation) -> Path:
    """The file that defines the method of a simulation."""
    return Path(inspect.getfile(type(simulation.method)))


@cache
def _library() -> bytes:
    """Digest of the package without the workbook, as it is when first asked for."""
    root = Path(__file__).resolve().parents[2]
    files = (file for file in sorted(root.rglob("*.py")) if "workbook" not in file.relative_to(root).parts)
    return hashlib.blake2b(b"".join(hashlib.blake2b(file.read_bytes()).digest() for file in files)).digest()


def code(*also: Path) -> str:
    """Short hash of the code that a number depends on: the library, and files of one's own."""
    own = (file for file in also if not file.resolve().is_relative_to(Path(__file__).resolve().parents[2]))
    return hashlib.blake2b(b"".join([_library(), *(file.read_bytes() for file in own)]), digest_size=6).hexdigest()


def provenance(*also: Path) -> dict:
    """Versions, commit (and whether code or protocols were changed since), machine and date of a run made now.

    `also` are files of code outside the package, see :func:`code`.
    """
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
        "code": code(*also),
        "versions": {"cflkit": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("torch", "numpy", "scikit-learn")},
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text("utf-8").splitlines() if "model name" in line] if info.exists() else []
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
