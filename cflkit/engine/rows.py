"""One row a client: what goes down to many clients without copies, and what comes up from them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cflkit.checks import require
from cflkit.engine.gemm import linear

BLOCK = (96, 8192)  # rows and columns multiplied at a time
SLAB_BLOCKS = 8  # blocks of columns that are built at a time


# ---------------------------------------------------------------------- down
@dataclass(frozen=True)
class Pick:
    """Client i has row ``index[i]`` of a short table: many clients, few distinct models, none of them copied.

    Parameters
    ----------
    table : Tensor (K, ...)
        The distinct rows.
    index : Tensor (m,) of int64
        Which row each client has.

    Raises
    ------
    ValueError
        If a client has a row that there is not: -1, which stands for an unknown cluster, is no row.
    """

    table: Tensor
    index: Tensor

    def __post_init__(self):
        if self.index.device.type == "cpu":  # of a GPU's, to look would be to wait
            _need_inside("index", self.index, len(self.table))

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i) -> Tensor:
        return self.table[self.index[i]]

    def take(self, positions) -> "Pick":
        """The same for some of the clients."""
        return Pick(self.table, self.index[positions])

    def dense(self) -> Tensor:
        """One row a client (m, ...), copied."""
        return self.table[self.index]


def _need_inside(name: str, numbers: Tensor, k: int) -> None:
    whole = isinstance(numbers, Tensor) and not numbers.is_floating_point() and numbers.dtype != torch.bool
    require(whole, name, numbers, "a tensor of integers")
    if numbers.numel():
        within = int(numbers.min()) >= 0 and int(numbers.max()) < k
        require(within, name, numbers.tolist(), f"in 0..{k - 1}")


@dataclass(frozen=True)
class Mixed:
    """Client i is served a mixture of all rows of a short table: the mean of what they predict.

    Parameters
    ----------
    table : Tensor (K, P)
        The models.
    shares : Tensor (m, K)
        Share of each client's mixture that each of them has; these sum to 1.
    """

    table: Tensor
    shares: Tensor

    def __post_init__(self):
        ok = self.shares.shape[1:] == self.table.shape[:1] and not bool((self.shares < 0).any())
        ok = ok and not bool(((self.shares.sum(1) - 1).abs() > 1e-3).any())  # of diverged models they may be NaN
        require(ok, "shares", self.shares, "(m, K), at least 0, and of sum 1 for each client")

    def __len__(self) -> int:
        return len(self.shares)


Rowwise = Tensor | Pick  # (P,) shared by all clients, (m, P), or a Pick


def row(value: Rowwise, i: int) -> Tensor:
    """Client `i`'s vector (P,) of something shared, stacked or picked."""
    return value if isinstance(value, Tensor) and value.dim() == 1 else value[i]


def pick(value: Rowwise, m: int) -> Pick:
    """The rows of `m` clients as a Pick, whichever way they are given; nothing is copied."""
    if isinstance(value, Pick):
        return value
    shared = value.dim() == 1
    return Pick(value[None], torch.zeros(m, dtype=torch.int64)) if shared else Pick(value, torch.arange(m))


# ---------------------------------------------------------------------- up
class Part(ABC):
    """What one chunk of clients uploads under one name, a row each; stored densely, or as factors.

    Attributes
    ----------
    shape : tuple of int
        (m, ...), as of a tensor with these rows.
    dtype : torch.dtype
        Kind of number.
    device : torch.device
        Where the rows lie.
    """

    shape: Sequence[int]
    dtype: torch.dtype
    device: torch.device

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self):
        return (self.row(i) for i in range(len(self)))

    @property
    def floats(self) -> int:
        """Numbers in the message; an integer counts as one, like a float."""
        return int(np.prod(self.shape))

    def zeros(self, k: int) -> Tensor:
        """`k` rows of zeros of the same kind (k, ...)."""
        return torch.zeros(k, *self.shape[1:], dtype=self.dtype, device=self.device)

    @abstractmethod
    def row(self, i: int) -> Tensor:
        """Client `i`'s row (...); not to be written into."""

    @abstractmethod
    def columns(self, span: slice) -> Tensor:
        """Some neighbouring entries (m, width) of every row."""

    @abstractmethod
    def add_to(self, total: Tensor, groups: list[int], weights: list[float]) -> None:
        """Add every row, times its weight, to its group's row of `total` (k, ...)."""

    @abstractmethod
    def unit(self) -> "Part":
        """Scale every row to length 1, in place, and return self; zero where a row has no direction."""

    @abstractmethod
    def dense(self) -> Tensor:
        """All rows (m, ...)."""


class Dense(Part):
    """Rows that lie in a tensor (m, ...)."""

    def __init__(self, rows: Tensor):
        self.rows, self.shape, self.dtype, self.device = rows, rows.shape, rows.dtype, rows.device

    def row(self, i):
        """A view."""
        return self.rows[i]

    def columns(self, span):
        """A view."""
        return self.rows[:, span]

    def add_to(self, total, groups, weights):
        """One row after the other, so that no result depends on the chunk."""
        for vector, group, weight in zip(self.rows, groups, weights, strict=True):
            if weight != 0:
                total[group].add_(vector, alpha=weight)

    def unit(self):
        """Divide by the Euclidean norm."""
        scale(self.rows, self.rows.norm(dim=1, keepdim=True))
        return self

    def dense(self):
        """The tensor itself."""
        return self.rows


def scale(rows: Tensor, norm: Tensor) -> None:
    """Divide rows (m, P) by their norms (m, 1), in place; a row whose norm is 0 or not finite becomes 0."""
    rows /= norm
    rows[~(norm.isfinite() & (norm > 0)).flatten()] = 0


def within(number: float, dtype: torch.dtype) -> float:
    """A number as this precision has it: infinite beyond its range, where PyTorch would refuse it as a factor."""
    return math.copysign(math.inf, number) if abs(number) > torch.finfo(dtype).max else number


def add_times(to: Tensor, vector: Tensor, number: float) -> None:
    """Add a vector times a number, in place; the product may fit the precision where the number does not."""
    if abs(number) > torch.finfo(to.dtype).max:
        to.add_(vector.double().mul_(number).to(to.dtype))
    else:
        to.add_(vector, alpha=number)


def part(rows: Part | Tensor) -> Part:
    """Rows of a chunk, wrapped if they come as a tensor."""
    return Dense(rows.detach()) if isinstance(rows, Tensor) else rows


class Rows:
    """One upload of every sampled client, in the order of the clients: ``len(rows)`` is m.

    Rows arrive in chunks and are reduced one after the other in that order, so no result depends on the chunk, to
    the last bit. Chunks may lie on disk; none of the reductions holds more than one row besides its result. Chunks
    of factors are reduced without being built, and then results depend on the chunk by rounding, as do those of
    clients that train in lock-step.

    Parameters
    ----------
    parts : sequence of Part or Tensor (m_j, ...)
        The chunks.
    """

    def __init__(self, parts: Sequence[Part | Tensor]):
        self.parts = [part(p) for p in parts]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self):
        for chunk in self.parts:
            yield from chunk

    def __getitem__(self, positions) -> Tensor:
        """Some rows (k, ...), copied; `positions` as for a tensor's first axis."""
        wanted = torch.arange(len(self))[positions]
        starts = np.cumsum([0] + [len(chunk) for chunk in self.parts])
        if wanted.dim() == 0:
            at = int(np.searchsorted(starts, int(wanted), side="right")) - 1
            return self.parts[at].row(int(wanted) - starts[at])
        return torch.stack([self[int(i)] for i in wanted]) if len(wanted) else self.dense()[:0]

    def gram(self) -> Tensor:
        """Inner products (m, m) of all pairs, in float64 on the CPU.

        Made from blocks of BLOCK rows and columns that fit the processor's cache, whatever the chunks were.
        """
        m, rows, columns = len(self), *BLOCK
        gram = torch.zeros(m, m, dtype=torch.float64)
        spans = [slice(i, min(i + rows, m)) for i in range(0, m, rows)]
        for _, slab in self._slabs():
            for block in (columns_of.contiguous() for columns_of in slab.split(columns, dim=1)):
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
        size, width = self.parts[0].shape[1], SLAB_BLOCKS * BLOCK[1]
        for begin in range(0, size, width):
            span = slice(begin, min(begin + width, size))
            yield span, torch.cat([chunk.columns(span) for chunk in self.parts])

    def dense(self) -> Tensor:
        """All rows (m, ...)."""
        rows = [chunk.dense() for chunk in self.parts]
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    def mean(self, weights: Tensor | None = None) -> Tensor:
        """Weighted mean over the clients (...), not all of weight 0; plain without weights."""
        heavy = weights is None or bool(weights.sum() > 0)
        require(heavy, "weights", weights, "above 0 for a client or more")
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

        Raises
        ------
        ValueError
            If groups or weights are not one a client, groups not in 0..k-1, or weights negative or not finite.
        """
        weights = [1.0] * len(self) if weights is None else weights.tolist()
        right = all(0 <= weight < math.inf for weight in weights)
        require(right, "weights", weights, "finite and at least 0")
        _need_inside("groups", groups, k)
        total = self._sums(groups.tolist(), k, weights)
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
        _need_inside("groups", groups, k)
        return self._sums(groups.tolist(), k, [1.0] * len(self))

    def _sums(self, groups: list[int], k: int, weights: list[float]) -> Tensor:
        require(len(groups) == len(self), "groups", len(groups), f"{len(self)} long, one a row")
        require(len(weights) == len(self), "weights", len(weights), f"{len(self)} long, one a row")
        dtype = self.parts[0].dtype
        require(dtype.is_floating_point, "rows", dtype, "floats, of which there are sums and means")
        total, begin = self.parts[0].zeros(k), 0
        for chunk in self.parts:
            here = slice(begin, begin := begin + len(chunk))
            chunk.add_to(total, groups[here], weights[here])
        return total
