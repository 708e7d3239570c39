"""What stands between a server and its clients: messages go down, work is done, uploads come back.

In process the network is the simulator; over machines it would be a send and a receive. It is the one place
where floats are counted, so traffic is measured from the messages and not from a formula.
"""

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cflkit import rng
from cflkit.checks import require
from cflkit.gemm import linear
from cflkit.memory import ChunkMemory, Memory
from cflkit.shared_linear import Factored
from cflkit.training import SGD, Data, Local, Pick

SPILL = 2**30  # bytes of one upload key kept in memory; what exceeds it goes to a temporary file
BLOCK = (96, 8192)  # rows and columns multiplied at a time
SLAB = 8  # blocks of columns that are built at a time


class Rows:
    """One upload of every sampled client, in the order of the clients: ``len(rows)`` is m.

    Rows arrive in chunks and are reduced one after the other in that order, so no result depends on the chunk, to
    the last bit. Chunks may lie on disk; none of the reductions holds more than one row besides its result. Chunks
    of factors are reduced without being built, and then results depend on the chunk by rounding, as do those of
    clients that train in lock-step (:mod:`cflkit.convolution`).
    """

    def __init__(self, parts: Sequence[Tensor]):
        self.parts = list(parts)

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def __iter__(self):
        for part in self.parts:
            yield from (part.row(i) for i in range(len(part))) if isinstance(part, Factored) else part

    def __getitem__(self, positions) -> Tensor:
        """Some rows (k, ...), copied; `positions` as for a tensor's first axis."""
        wanted = torch.arange(len(self))[positions]
        starts = np.cumsum([0] + [len(part) for part in self.parts])
        if wanted.dim() == 0:
            part = int(np.searchsorted(starts, int(wanted), side="right")) - 1
            part, i = self.parts[part], int(wanted) - starts[part]
            return part.row(i) if isinstance(part, Factored) else part[i]
        return torch.stack([self[int(i)] for i in wanted]) if len(wanted) else self.dense()[:0]

    def gram(self) -> Tensor:
        """Inner products (m, m) of all pairs, in float64 on the CPU.

        Made from blocks of BLOCK rows and columns that fit the processor's cache, whatever the chunks were.
        """
        m, rows, columns = len(self), *BLOCK
        gram = torch.zeros(m, m, dtype=torch.float64)
        spans = [slice(i, min(i + rows, m)) for i in range(0, m, rows)]
        for _, slab in self._slabs():
            for block in (part.contiguous() for part in slab.split(columns, dim=1)):
                for i, a in enumerate(spans):
                    for b in spans[: i + 1]:
                        gram[a, b] += linear(block[a], block[b]).double().cpu()
        for i, a in enumerate(spans):
            for b in spans[:i]:
                gram[b, a] = gram[a, b].T
        return gram

    def products(self, others: Tensor) -> Tensor:
        """Inner products (m, k) with the rows of `others` (k, P)."""
        return sum(slab @ others[:, span].T for span, slab in self._slabs())

    def _slabs(self):
        """All rows, a few columns at a time, with where they lie: small enough to stay out of fresh memory."""
        size, width = self.parts[0].shape[1], SLAB * BLOCK[1]
        for begin in range(0, size, width):
            span = slice(begin, min(begin + width, size))
            yield span, torch.cat([p.columns(span) if isinstance(p, Factored) else p[:, span] for p in self.parts])

    def dense(self) -> Tensor:
        """All rows (m, ...)."""
        return self.parts[0] if len(self.parts) == 1 else torch.cat(self.parts)

    def mean(self, weights: Tensor | None = None) -> Tensor:
        """Weighted mean over the clients (...); plain without weights."""
        groups = torch.zeros(len(self), dtype=torch.int64)
        return self.mean_by(groups, 1, weights=weights)[0]

    def mean_by(self, groups: Tensor, k: int, keep: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
        """Weighted mean within each of `k` groups.

        Parameters
        ----------
        groups : Tensor (m,) of int64
            The group of each client, 0..k-1.
        k : int
            Number of groups.
        keep : Tensor (k, ...), optional
            What a group without members, or without weight, keeps; zeros if None.
        weights : Tensor (m,), optional
            Weight of each client; all 1 if None.

        Returns
        -------
        Tensor (k, ...)
        """
        total = _zeros(self.parts[0], k)
        weights = [1.0] * len(self) if weights is None else weights.tolist()
        self._add_to(total, groups.tolist(), weights)
        mass = [0.0] * k
        for group, weight in zip(groups.tolist(), weights, strict=True):
            mass[group] += weight
        for group in range(k):
            if mass[group] > 0:
                total[group].div_(mass[group])
            elif keep is not None:
                total[group] = keep[group]
        return total

    def sum_by(self, groups: Tensor, k: int) -> Tensor:
        """Sum within each of `k` groups (k, ...); `groups` (m,) says which is each client's."""
        total = _zeros(self.parts[0], k)
        self._add_to(total, groups.tolist(), [1.0] * len(self))
        return total

    def _add_to(self, total: Tensor, groups: list[int], weights: list[float]) -> None:
        require(len(groups) == len(weights) == len(self), "groups", len(groups), f"{len(self)} long, one a row")
        begin = 0
        for part in self.parts:
            here = slice(begin, begin := begin + len(part))
            _add(part, total, groups[here], weights[here])


def _zeros(part: Tensor, k: int) -> Tensor:
    return torch.zeros(k, *part.shape[1:], dtype=part.dtype, device=part.device)


def _add(part: Tensor, total: Tensor, groups: list[int], weights: list[float]) -> None:
    """Add every row of a chunk, times its weight, to its group's row of `total`."""
    if isinstance(part, Factored):
        part.add_to(total, groups, weights)
        return
    for row, group, weight in zip(part, groups, weights, strict=True):
        if weight != 0:
            total[group].add_(row, alpha=weight)


class Uploads(Mapping):
    """What came back from one exchange: ``up["model"]`` is the :class:`Rows` under that name.

    Attributes
    ----------
    clients : Tensor (m,) of int64
        Who answered.
    sizes : Tensor (m,) of int64
        How many training images each of them holds (n_i).
    """

    def __init__(self, rows: dict[str, Rows], clients: Tensor, sizes: Tensor):
        self._rows, self.clients, self.sizes = rows, clients, sizes

    def __getitem__(self, name: str) -> Rows:
        return self._rows[name]

    def __iter__(self):
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class Network:
    """The clients as the server reaches them in one round.

    Attributes
    ----------
    task : Task
        What is being learnt: architecture, number of clients, their sizes.
    round : int
        The current round; 0 while the method starts.
    down, up : int
        Floats sent to and received from clients so far in this round.
    """

    def __init__(
        self, task, memory: Memory, local: Local, chunk: int, data: Callable[[list[int]], Data], workers: int = 1
    ):
        self.task, self._memory, self._local, self._chunk, self._data = task, memory, local, chunk, data
        self._workers = workers
        self.round = local.round
        self.down = self.up = 0

    @property
    def optimiser(self) -> SGD:
        """How clients train in this run."""
        return self._local.optimiser

    def rng(self, *purpose: int | str) -> np.random.Generator:
        """The server's own randomness in this round."""
        return rng.generator(self.task.seed, self.round, "server", *purpose)

    def call(
        self,
        clients: Tensor,
        work: Callable,
        down: Mapping[str, Tensor] | None = None,
        per_client: Mapping[str, Tensor | Pick] | None = None,
        mean: Mapping[str, Tensor] | None = None,
    ) -> Uploads:
        """Send, let every client work, bring back.

        Parameters
        ----------
        clients : Tensor (m,) of int64
            Whom to reach.
        work : callable
            The client's part, ``work(down, memory, data, local) -> dict of tensors``. It runs on chunks of clients:
            values of `per_client` and everything it returns have a leading axis over the chunk.
        down : mapping, optional
            What every client receives alike.
        per_client : mapping, optional
            What each receives for itself: a tensor (m, ...) or a Pick, one row each.
        mean : mapping, optional
            Names of uploads of which only a weighted mean is wanted, and each client's weight (m,). They are added
            up as they arrive and never held; what is found under the name is the mean, as one row.

        Returns
        -------
        Uploads
        """
        down, per_client = down or {}, per_client or {}

        def done(here: slice) -> dict[str, Tensor]:
            own = {k: v.take(here) if isinstance(v, Pick) else v[here] for k, v in per_client.items()}
            return self._work(clients[here], work, {**down, **own})

        arriving = _Arriving(mean or {})
        chunks = [slice(i, i + self._chunk) for i in range(0, len(clients), self._chunk)]
        for here, found in zip(chunks, self._in_turn(done, chunks), strict=True):
            arriving.add(found, here)
        self.down += sum(_floats(v) for v in down.values()) * len(clients)
        self.down += sum(_floats(v[0]) for v in per_client.values()) * len(clients) if len(clients) else 0
        self.up += arriving.floats
        return Uploads(arriving.rows(), clients, self.task.sizes[clients])

    def chain(
        self,
        clients: Tensor,
        work: Callable,
        carry: str,
        start: Tensor,
        down: Mapping[str, Tensor] | None = None,
        mean: Mapping[str, Tensor] | None = None,
    ) -> Uploads:
        """Pass something through the clients one after another.

        Each client receives under the name `carry` what the one before it uploaded under that name; the first
        receives `start` (P,). Otherwise as :meth:`call`.
        """
        arriving = _Arriving(mean or {})
        current = start
        for i in range(len(clients)):
            here = slice(i, i + 1)
            found = self._work(clients[here], work, {**(down or {}), carry: current})
            current = found[carry][0]
            arriving.add(found, here)
        self.down += (_floats(start) + sum(_floats(v) for v in (down or {}).values())) * len(clients)
        self.up += arriving.floats
        return Uploads(arriving.rows(), clients, self.task.sizes[clients])

    def _in_turn(self, done: Callable, chunks: list[slice]) -> Iterator[dict[str, Tensor]]:
        """What every chunk returns, in order; with several workers, that many are under way and one more waits."""
        if self._workers == 1 or len(chunks) == 1:
            yield from map(done, chunks)
            return
        with ThreadPoolExecutor(self._workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            begun: deque = deque()
            for chunk in chunks:
                begun.append(pool.submit(done, chunk))
                if len(begun) > self._workers:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()

    def _work(self, clients: Tensor, work: Callable, received: dict) -> dict[str, Tensor]:
        ids = clients.tolist()
        memory = ChunkMemory(self._memory, ids, self.round, self.task.model.device)
        return work(received, memory, self._data(ids), self._local)


def _floats(value: Tensor) -> int:
    """Numbers in a message; an integer counts as one, like a float."""
    return value.numel()


class _Arriving:
    """Uploads as they come in, chunk by chunk: kept as rows, or added up where only their mean is wanted."""

    def __init__(self, mean: Mapping[str, Tensor]):
        self.floats = 0
        self._mean, self._total = mean, {}
        self._parts: dict[str, list[Tensor]] = {}
        self._spill = _Spill()

    def add(self, found: dict[str, Tensor], here: slice) -> None:
        """Take in what the clients `here`, by position, have uploaded."""
        for name, value in found.items():
            self.floats += _floats(value)
            if name in self._mean:
                weights = self._mean[name][here].tolist()
                total = self._total[name] if name in self._total else self._total.setdefault(name, _zeros(value, 1))
                _add(value, total, [0] * len(weights), weights)
            else:
                self._parts.setdefault(name, []).append(self._spill(name, value))

    def rows(self) -> dict[str, Rows]:
        """All that came in, by name."""
        for name, total in self._total.items():
            mass = sum(self._mean[name].tolist())
            self._parts[name] = [total.div_(mass) if mass > 0 else total]
        return {name: Rows(parts) for name, parts in self._parts.items()}


class _Spill:
    """Keep uploads in memory up to SPILL bytes a key; memory-map what comes after."""

    def __init__(self):
        self._held: dict[str, int] = {}
        self._folder: tempfile.TemporaryDirectory | None = None

    def __call__(self, name: str, value: Tensor) -> Tensor:
        self._held[name] = self._held.get(name, 0) + value.numel() * value.element_size()
        if self._held[name] <= SPILL or value.device.type != "cpu" or isinstance(value, Factored):
            return value
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="cflkit-uploads-")
        file = Path(self._folder.name) / f"{name}-{self._held[name]}.npy"
        np.save(file, value.numpy())
        mapped = torch.from_numpy(np.load(file, mmap_mode="c"))
        mapped._spill = self._folder  # the folder lives as long as its tensors do
        return mapped
