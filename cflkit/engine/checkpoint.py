"""Checkpoints: a run that is killed at any moment goes on from its last whole round, bit for bit."""

import contextlib
import hashlib
import json
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from cflkit.checks import require, writing
from cflkit.engine.history import History
from cflkit.engine.memory import Memory
from cflkit.models.flat import Model


class BusyError(ValueError):
    """Another process is at work on the run."""


class Checkpoint:
    """A folder that holds the last whole round of one run.

    Parameters
    ----------
    folder : Path
        The run's own.
    config : dict
        What the run is, JSON-able. A checkpoint of another configuration is refused, but for ``rounds``: a finished
        run goes on where more are wanted. Its then last round keeps its scores, due or not. Rounds that change
        which clients count as unseen are refused.
    network : dict
        What :func:`fingerprint` says of the network. A checkpoint of another one is refused, whatever the
        configuration calls it.
    device : torch.device
        Where the server's tensors go.
    """

    def __init__(self, folder: Path, config: dict, network: dict, device: torch.device):
        self.folder, self.network, self.device = folder, network, device
        self.config = json.loads(json.dumps(config, sort_keys=True))

    @contextlib.contextmanager
    def lock(self):
        """Hold the run while it is worked on; the lock of a process that died is free.

        Raises
        ------
        BusyError
            If another process holds it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.folder / "lock", timeout=0):
                yield
        except Timeout:
            line = f"checkpoint = {str(self.folder)!r}: must be free; another process is at work on this run"
            raise BusyError(line) from None

    def memory(self) -> Memory:
        """The clients' memory, on disk; its rows are marked as this run's, however many rounds that has."""
        run = json.dumps(self.config | {"rounds": None}, sort_keys=True)
        return Memory(self.folder / "memory", hashlib.sha256(run.encode()).hexdigest()[:16])

    def save(self, history: History) -> None:
        """Keep the whole rounds of `history`, in place of what was kept before."""
        state = {
            "config": json.dumps(self.config),
            "network": self.network,
            "rounds": json.dumps(history.rounds),
            "seconds": history.seconds,
            "groups": history.groups,
            "server": history.server,
            "memory": history.memory.state(),
        }
        state["checksum"] = checksum(state)
        partial = self.folder / "state.pt.part"
        with writing(partial), open(partial, "wb") as file:
            torch.save(state, file)
        os.replace(partial, self.folder / "state.pt")
        history.memory.sweep()

    def load(self) -> History | None:
        """What was kept, on this run's device; None if nothing was.

        Raises
        ------
        ValueError
            If the checkpoint is damaged, or of another run.
        """
        file = self.folder / "state.pt"
        if not file.exists():
            return None
        state = self._read(file)
        theirs = state["config"]
        changed = sorted(_changed(theirs, self.config), key=lambda change: change[0] != "method.name")
        for name, was, now in changed:  # of another method every parameter differs, which says less than its name
            line = f"of this configuration; {name} was {was} and is now {now}"
            require(name == "rounds", "checkpoint", str(file), line)
        done, wanted = len(state["rounds"]) - 1, self.config["rounds"]
        require(wanted >= done, "rounds", wanted, f"at least the {done} that the checkpoint {file} holds")
        ends = [max(rounds, 1) for rounds in (theirs["rounds"], wanted)]
        moved = any(min(ends) < first <= max(ends) for first in self.config.get("arrival") or [])
        line = f"{theirs['rounds']}, as in the checkpoint {file}: who arrives later counts as unseen in its scores"
        require(not moved, "rounds", wanted, line)
        same = alike(state["network"], self.network)
        require(same, "checkpoint", str(file), "of this network; it was trained with another one")
        memory = self.memory()
        memory.restore(state["memory"])
        return History(state["rounds"], state["seconds"], state["groups"], state["server"], memory)

    def _read(self, file: Path) -> dict:
        def home(storage, where: str):  # what was on a GPU goes to this run's; what was not stays
            return storage if where == "cpu" else storage.to(device=self.device)

        state, damage = {}, (OSError, EOFError, RuntimeError, ValueError, LookupError, TypeError, AttributeError)
        with contextlib.suppress(*damage, pickle.UnpicklingError, zipfile.BadZipFile):
            with zipfile.ZipFile(file) as archive:
                whole = archive.testzip() is None  # torch.load does not look at the checksums
            kept = torch.load(file, map_location=home, weights_only=True) if whole else {}
            if kept.pop("checksum", "") == checksum(kept):  # the archive's own do not see what PyTorch wrote anew
                state = kept | {name: json.loads(kept[name]) for name in ("config", "rounds")}
        each = dict.fromkeys(("rounds", "seconds", "groups"), list)
        parts = {"config": dict, "network": dict, "server": dict, "memory": dict} | each
        ok = all(isinstance(state.get(name), kind) for name, kind in parts.items())
        whole = ok and state["rounds"] and len({len(state[name]) for name in each}) == 1
        require(whole, "checkpoint", str(file), "a whole checkpoint; delete this one to start anew")  # fmt: skip
        return state


def checksum(state: object) -> str:
    """Hash of all that a checkpoint holds: names, numbers, and the kind, shape and bytes of every tensor.

    Raises
    ------
    ValueError
        For what a checkpoint could not give back alike: arrays, sets, objects, tensors that are not dense.
    """
    total = hashlib.blake2b(digest_size=16)

    def add(value: object) -> None:
        if type(value) in (Tensor, nn.Parameter) and value.layout == torch.strided and not value.is_meta:
            total.update(f"{value.dtype}{list(value.shape)}".encode())
            total.update(value.detach().cpu().resolve_conj().contiguous().reshape(-1).view(torch.uint8).numpy())
        elif type(value) in (dict, OrderedDict, list, tuple):
            total.update(f"{type(value).__name__}{len(value)}".encode())
            for part in value.items() if isinstance(value, dict) else value:
                add(part)
        else:
            plain = value is None or type(value) in (bool, int, float, complex, str, bytes)
            require(plain, "server", value, "of dense tensors, and of Python's own numbers, texts, lists and dicts")
            total.update(f"{value!r};".encode())

    add(state)
    return total.hexdigest()


def _changed(old: dict, new: dict, within: str = "") -> Iterator[tuple[str, object, object]]:
    """Give what differs between two configurations, entry by entry of those that hold entries of their own."""
    for name in dict.fromkeys((*old, *new)):
        was, now = old.get(name), new.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            yield from _changed(was, now, f"{within}{name}.")
        elif was != now:
            yield f"{within}{name}", was, now


def fingerprint(model: Model, images: Tensor) -> dict[str, str | Tensor]:
    """What tells two networks apart.

    Their layers, what lies where in a vector and is trained, and what a fixed vector makes of fixed `images`.
    """
    with torch.no_grad():
        logits = model.forward(model.init(0), images.to(model.device, model.dtype))
    vector = [[name, list(shape), name in model.parameters] for name, shape in model.shapes.items()]
    return {"layers": repr(model.module), "vector": json.dumps(vector), "logits": logits.double().cpu()}


def alike(one: dict, other: dict) -> bool:
    """Whether two fingerprints are of one network; logits are compared loosely, as processors round differently."""
    a, b = one["logits"], other["logits"]
    same = all(one.get(name) == other.get(name) for name in ("layers", "vector"))
    return same and a.shape == b.shape and torch.allclose(a, b, rtol=1e-3, atol=1e-5)
