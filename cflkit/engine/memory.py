"""What clients keep between rounds: personal models, control variates, heads.

It lives apart from the server's state, because a real server never sees it. In memory it is a dictionary of rows.
With a folder every row is a file of its own, named after the round that wrote it, so that a checkpoint is a list
of names: a killed round leaves files that no checkpoint names, and these are swept away. A file says of which run
and whose row it holds, and carries a checksum.
"""

import contextlib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cflkit.checks import require, writing
from cflkit.engine.rows import Dense, Part, Rowwise, part, row


class Memory:
    """Rows by name and client.

    Parameters
    ----------
    folder : path, optional
        Keep rows on disk instead of in memory.
    run : str
        What tells the run from others: rows of another one are refused.
    """

    def __init__(self, folder: Path | None = None, run: str = ""):
        self.folder, self.run = folder, run
        self.rows: dict[str, dict[int, Tensor | int]] = {}  # on disk: the round that wrote the row
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str, client: int) -> Tensor | None:
        """The row that `client` keeps under `name`, or None before the first one."""
        kept = self.rows.get(name, {}).get(client)
        if kept is None or self.folder is None:
            return kept
        with self._opened(self._file(name, client, kept)) as arrays:
            return torch.from_numpy(arrays["row"])

    def put(self, name: str, client: int, value: Tensor, round: int) -> None:
        """Keep `value` for `client`, in place of what it kept before."""
        if self.folder is not None:
            file = self._file(name, client, round)
            with writing(file):
                np.savez(file, row=value.detach().cpu().numpy(), owner=self._owner(file))
        self.rows.setdefault(name, {})[client] = value.detach().clone() if self.folder is None else round

    def state(self) -> dict:
        """What a checkpoint must hold."""
        return {name: dict(rows) for name, rows in self.rows.items()}

    def restore(self, state: dict) -> None:
        """Go back to what a checkpoint held.

        Raises
        ------
        ValueError
            If a row is missing, cut short, another client's or another run's. Its numbers are checked when they are
            read.
        """
        self.rows = {name: dict(rows) for name, rows in state.items()}
        for file in sorted(self._files()):
            with self._opened(file):
                pass
        self.sweep()

    def sweep(self) -> None:
        """Delete files that hold no current row: superseded ones, and those of a killed round."""
        if self.folder is not None:
            for file in set(self.folder.glob("*.npz")) - self._files():
                file.unlink()

    def _owner(self, file: Path) -> str:
        return f"{self.run} {file.stem}".strip()

    @contextlib.contextmanager
    def _opened(self, file: Path) -> Iterator[Mapping[str, np.ndarray]]:
        """What a file holds, read as it is asked for; whatever shows that it is damaged becomes one line."""
        try:
            with np.load(file) as arrays:
                require(str(arrays["owner"]) == self._owner(file), "owner", str(arrays["owner"]), self._owner(file))
                yield arrays
        except (OSError, ValueError, EOFError, LookupError, zipfile.BadZipFile) as error:
            allowed = "the whole row of its client; delete its checkpoint to start anew"
            raise ValueError(f"memory = {str(file)!r}: must be {allowed}") from error

    def _files(self) -> set[Path]:
        """Every current row's file."""
        if self.folder is None:
            return set()
        return {self._file(name, c, r) for name, rows in self.rows.items() for c, r in rows.items()}

    def _file(self, name: str, client: int, round: int) -> Path:
        return self.folder / f"{name}-{client}-{round}.npz"


class ChunkMemory:
    """The view a chunk of clients has of its own rows.

    ``memory["head"] = rows`` keeps one row a client; ``memory.get("head", default)`` gives them back, with
    `default` for clients that have kept nothing yet.
    """

    def __init__(self, memory: Memory, clients: list[int], round: int, device: torch.device):
        self._memory, self._clients, self._round, self._device = memory, clients, round, device

    def get(self, name: str, default: Rowwise) -> Tensor:
        """Rows (m, P) under `name`; `default` is shared (P,), or one a client."""
        require(isinstance(default, Rowwise), f"default of {name}", default, "a tensor or a Pick")
        kept = {i: self._memory.get(name, client) for i, client in enumerate(self._clients)}
        kept = {i: value for i, value in kept.items() if value is not None}
        rows = torch.stack(list(kept.values())).to(self._device) if kept else None  # all in one transfer
        if len(kept) == len(self._clients):
            return rows
        found = torch.stack([row(default, i) for i in range(len(self._clients))])
        if kept:
            found[list(kept)] = rows
        return found

    def __setitem__(self, name: str, rows: Part | Tensor) -> None:
        ok = isinstance(rows, Tensor | Part) and tuple(rows.shape[:1]) == (len(self._clients),)
        require(ok, f"what clients keep as {name}", rows, f"a tensor or a Part with {len(self._clients)} rows")
        require(name.isidentifier(), "name of what clients keep", name, "letters, digits and _")
        rows = part(rows)
        if self._memory.folder is not None and self._device.type != "cpu":
            rows = Dense(rows.dense().cpu())  # all in one transfer
        for client, value in zip(self._clients, rows, strict=True):
            self._memory.put(name, client, value, self._round)
