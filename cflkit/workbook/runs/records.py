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
import sys
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from cflkit import __version__
from cflkit.checks import require
from cflkit.workbook import places, strict

if TYPE_CHECKING:
    from cflkit.engine.simulation import History, Simulation

FOLDER = places.RESULTS
PACKAGE = Path(__file__).resolve().parents[2]
DIGITS = 6  # decimals kept of a measured number
FORMAT = 2  # of a record, and of a chapter's run.json
PARTS = ("format", "protocol", "label", "config", "seed", "final", "clients", "rounds", "provenance")
OF_CHAPTER = ("format", "chapter", "parameters", "metrics", "provenance", "failed")  # parts of a chapter's run.json
# where and how a run was computed changes its numbers at rounding level only: told, but not part of its identity
NOT_IN_IDENTITY = ("seed", "device", "trainer", "chunk", "workers")


def identity(config: dict) -> str:
    """Short hash of a resolved configuration, a fingerprint of its data included; the same on every machine."""
    kept = {name: value for name, value in config.items() if name not in NOT_IN_IDENTITY}
    return hashlib.blake2b(json.dumps(kept, sort_keys=True).encode(), digest_size=5).hexdigest()


def name(record: dict) -> str:
    """A record's name: label, identity, seed."""
    return f"{record['label']}-{identity(record['config'])}-s{record['seed']}"


def path(protocol: str, label: str, config: dict, folder: Path = FOLDER) -> Path:
    """Where the record of a run belongs."""
    return folder / protocol / f"{name({'label': label, 'config': config, 'seed': config['seed']})}.json"


def write(protocol: str, label: str, simulation: "Simulation", history: "History", folder: Path = FOLDER) -> Path:
    """Write the record of a finished run of a protocol, whole or not at all; returns the file."""
    from torch import cuda

    cluster, device = simulation.method.assignment(history.server), simulation.model.device.type
    grouped = {} if cluster is None else {"cluster": cluster.tolist()}
    how = {"device": device, "card": cuda.get_device_name() if device == "cuda" else None}
    how |= {name: getattr(simulation, name) for name in ("trainer", "chunk", "workers")}
    record = {
        "format": FORMAT, "protocol": protocol, "label": label,
        "config": simulation.config, "seed": simulation.seed, "final": rounded(history.final),
        "clients": rounded(simulation.accuracies(history), 4) | grouped, "rounds": rounded(history.rounds),
        "provenance": provenance(simulation.method) | {"seconds": round(sum(history.seconds), 1)} | how,
    }  # fmt: skip
    target = path(protocol, label, simulation.config, folder)
    texts = {name: json.dumps(value) for name, value in record.items()}
    texts["rounds"] = "[\n  " + ",\n  ".join(map(json.dumps, record["rounds"])) + "\n ]"  # diffs go round by round
    places.write(target, "{\n" + ",\n".join(f' "{name}": {text}' for name, text in texts.items()) + "\n}\n")
    return target


def keep_models(record: Path, history: "History") -> None:
    """Write beside a record what serves its clients, or what they keep where nothing does, for ``torch.load``.

    `models` are state dicts of K networks; `client` (N,) says which of them is whose, or (N, K) the shares in a
    mixture. `confusions` (N, C, C) have true labels as rows, and `groups` (T + 1, N) the cluster of each client
    after each round, from round 0; -1 is none.
    """
    import torch

    from cflkit.engine.rows import Mixed

    own = "accuracy" not in history.final  # as with training alone
    found, run, none = history.run.table(history, personal=own), history.run, torch.tensor(-1)
    if isinstance(found, Mixed):
        used, client = range(len(found.table)), found.shares
    else:
        used, client = found.index.unique(return_inverse=True)
    groups = torch.stack([none.expand(len(found)) if now is None else now for now in history.groups])
    models = [run.model.bound(found.table[k].clone()).state_dict() for k in used]
    confusions = torch.from_numpy(history.confusions(personal=own))
    with places.atomic_write(record.with_suffix(".pt")) as part:
        torch.save({"models": models, "client": client, "confusions": confusions, "groups": groups}, part)


def read(file: Path) -> dict:
    """Read a record, or a chapter's ``run.json``; one that is damaged, lacks a part or is misnamed is refused."""
    chapter, place = file.name == "run.json", f"{file.parent.name}/{file.name}"
    with strict.at(file if chapter else place):
        finite = partial(require, False, "value", allowed="a number")
        record = json.loads(file.read_text("utf-8"), parse_constant=finite)
        require(isinstance(record, dict), "record", record, "a mapping")
        for part in OF_CHAPTER if chapter else PARTS:
            require(part in record, "part", part, "there")
        require(record["format"] == FORMAT, "format", record["format"], f"{FORMAT}; another version wrote this")
        if not chapter:
            require(record["final"] == record["rounds"][-1], "final", record["final"], "the last of the rounds")
            named = f"{record['protocol']}/{name(record)}"
            require(f"{named}.json" == place, place, named, "the name that its configuration gives it")
    return record


# ---------------------------------------------------------------------- how a run came about
@cache
def _library() -> bytes:
    """Digest of the package without the workbook, as it is when first asked for."""
    files = (file for file in sorted(PACKAGE.rglob("*.py")) if "workbook" not in file.relative_to(PACKAGE).parts)
    return hashlib.blake2b(b"".join(hashlib.blake2b(file.read_bytes()).digest() for file in files)).digest()


def code(method: object = None) -> str:
    """Short hash of the code that a number depends on: the library, and the file of a method of one's own."""
    file = Path(inspect.getfile(type(method))).resolve() if method else PACKAGE
    own = b"" if file.is_relative_to(PACKAGE) else file.read_bytes()
    return hashlib.blake2b(_library() + own, digest_size=6).hexdigest()


def provenance(method: object = None) -> dict:
    """Versions, commit (and whether code or protocols were changed since), machine and date of what is made now."""
    torch = sys.modules.get("torch")  # takes seconds to import; what was made without it has no threads

    def git(*what: str) -> str:
        command = ["git", "-C", str(places.ROOT), *what]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        changed = bool(git("status", "--porcelain", "--", "cflkit", "book/papers"))  # new files count, too
    except (OSError, subprocess.SubprocessError):
        commit, changed = None, None
    versions = {name: version(name) for name in ("torch", "numpy", "scikit-learn")}
    threads = torch.get_num_threads() if torch else None
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"), "commit": commit, "changed": changed, "code": code(method),
        "versions": {"cflkit": __version__, "python": platform.python_version(), **versions},
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "threads": threads},
    }  # fmt: skip


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    name = re.search(r"model name\s*:\s*(.+)", info.read_text("utf-8")) if info.exists() else None
    return name[1] if name else platform.processor() or platform.machine()


def rounded(value, digits: int = DIGITS):
    """Keep what matters of every float; not-a-number becomes null, since JSON has none."""
    if isinstance(value, float):
        return round(value, digits) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: rounded(v, digits) for name, v in value.items()}
    if isinstance(value, list):
        return [rounded(v, digits) for v in value]
    return value
