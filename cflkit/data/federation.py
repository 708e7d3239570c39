"""A federation as pure data: who holds which images, under which true distribution, tested on what.

What makes federations is in :mod:`cflkit.data.builders`, which users know as ``cflkit.federation``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cflkit.checks import Checked, Count, Positive, Some, declared, require


@dataclass(frozen=True, eq=False)
class Samples(Checked):
    """Sets of labelled images over one pool of pixels: set i is ``offset[i]:offset[i + 1]``.

    Attributes
    ----------
    pool : Tensor
        ``(n, C, H, W)`` uint8 pixels, each image once.
    index : Tensor
        ``(total,)`` int64 rows of `pool`.
    y : Tensor
        ``(total,)`` int64 labels; they belong to the set, since two sets may label one image differently.
    offset : Tensor
        ``(sets + 1,)`` int64 bounds of the sets.
    tag : Tensor or None
        ``(total,)`` int64 true domain of each image, where known.

    Raises
    ------
    ValueError
        If pixels are not bytes, the bounds do not rise from 0 to `total`, a set is empty, or an index or label is
        out of range.
    """

    pool: Tensor
    index: Tensor
    y: Tensor
    offset: Tensor
    tag: Tensor | None = None

    def __post_init__(self):
        super().__post_init__()
        require(self.pool.dtype == torch.uint8, "pool.dtype", self.pool.dtype, "torch.uint8")
        require(self.pool.is_cpu, "pool.device", str(self.pool.device), "cpu; a run moves what it trains on")
        require(self.pool.ndim == 4, "pool.shape", tuple(self.pool.shape), "(n, C, H, W)")
        for name in ("index", "y", "offset", "tag"):
            values = getattr(self, name)
            ok = values is None or (values.dtype == torch.int64 and values.ndim == 1 and values.is_cpu)
            require(ok, name, values, "a vector of torch.int64 on the CPU")
        total = len(self.index)
        require(len(self.offset) > 1, "len(offset)", len(self.offset), "at least 2: there must be a set")
        ends = [int(end) for end in self.offset[[0, -1]]]
        require(ends == [0, total], "first and last offset", ends, f"[0, {total}]")
        for i in torch.nonzero(self.sizes < 1).flatten().tolist():
            require(False, f"size of set {i}", int(self.sizes[i]), "at least 1: no client or test may be empty")
        for name, values in (("y", self.y), ("tag", self.tag)):
            length = total if values is None else len(values)
            require(length == total, f"len({name})", length, f"len(index) = {total}")
        wrong = self.index[(self.index < 0) | (self.index >= len(self.pool))]
        require(len(wrong) == 0, "index", wrong[:1].tolist(), f"rows of the pool, 0..{len(self.pool) - 1}")
        require(bool((self.y >= 0).all()), "y", int(self.y.min()), "at least 0")

    def __len__(self) -> int:
        return len(self.offset) - 1

    @property
    def sizes(self) -> Tensor:
        """``(sets,)`` number of images in each set."""
        return self.offset.diff()

    @property
    def domains(self) -> int | None:
        """How many true domains the images have, one more than the largest tag; None where there are no tags."""
        return None if self.tag is None else int(self.tag.max()) + 1

    def rows(self, i: int) -> tuple[Tensor, Tensor]:
        """Return ``(index, y)`` of set `i`."""
        i = range(len(self))[i]  # which -1 is the last of
        part = slice(int(self.offset[i]), int(self.offset[i + 1]))
        return self.index[part], self.y[part]

    def take(self, sets: Sequence[int]) -> "Samples":
        """Return those sets, in that order, over the same pool."""
        sets = torch.arange(len(self))[torch.as_tensor(sets)]
        sizes = self.sizes[sets]
        offset = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
        rows = torch.arange(int(offset[-1])) + (self.offset[sets] - offset[:-1]).repeat_interleave(sizes)
        tag = None if self.tag is None else self.tag[rows]
        return Samples(self.pool, self.index[rows], self.y[rows], offset, tag)


@dataclass(frozen=True, eq=False)
class Federation(Checked):
    """Clients with their data, and the distributions they are tested on.

    Attributes
    ----------
    name : str
        The builder and its images.
    train : Samples
        One set per client.
    test : Samples
        One set per test distribution, over rows no client holds; :meth:`copies` counts equal pixels in other rows.
    test_of : Tensor
        ``(N,)`` int64, the test set that has each client's true distribution.
    cluster : Tensor or None
        ``(N,)`` int64 true clusters, where there are any.
    classes : int
        Number of labels.
    scale, mean, std : float or tuple of float
        A model sees ``(pixel / scale - mean) / std``.
    validation : Samples or None
        One set per client, taken out of its training data when asked.
    config : dict
        Everything :func:`~cflkit.data.builders.build` needs, JSON-able.
    """

    name: str
    train: Samples
    test: Samples
    test_of: Tensor
    cluster: Tensor | None
    classes: Count
    scale: Positive
    mean: float | Some[float]
    std: Positive | Some[Positive]
    validation: Samples | None
    config: dict

    def __post_init__(self):
        super().__post_init__()
        for part in (self.train, self.test, self.validation):
            top = -1 if part is None else int(part.y.max())
            require(top < self.classes, "label", top, f"below classes = {self.classes}")
        held = self.clients if self.validation is None else len(self.validation)
        require(held == self.clients, "sets of validation", held, f"the number of clients, {self.clients}")
        for name, values in (("test_of", self.test_of), ("cluster", self.cluster)):
            length = self.clients if values is None else len(values)
            require(length == self.clients, f"len({name})", length, f"the number of clients, {self.clients}")
            ok = values is None or (values.dtype == torch.int64 and values.ndim == 1 and int(values.min()) >= 0)
            require(ok, name, values, "a vector of torch.int64, each at least 0")
        ok = bool((self.test_of < len(self.test)).all())
        require(ok, "test_of", self.test_of.unique().tolist(), f"test sets 0..{len(self.test) - 1}")

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.train)

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(C, H, W)`` of one image."""
        return tuple(self.train.pool.shape[1:])

    def label_counts(self) -> Tensor:
        """``(N, classes)`` int64: each client's label mix, as numbers of training images."""
        client = torch.arange(self.clients).repeat_interleave(self.train.sizes)
        cells = torch.bincount(client * self.classes + self.train.y, minlength=self.clients * self.classes)
        return cells.view(self.clients, self.classes)

    def copies(self) -> int:
        """Count the test pictures, each once, that are to the last pixel one that a client trains on.

        Clients hold no row that they are tested on, but a dataset may have one picture in several rows.
        """
        def held(part: Samples) -> set[bytes]:
            return {picture.tobytes() for picture in part.pool[part.index.unique()].numpy()}

        return len(held(self.test) & held(self.train))

    def validating(self) -> "Federation":
        """Return the federation whose clients are tested on their validation data, to choose parameters on.

        Raises
        ------
        ValueError
            If nothing was set apart for validation.
        """
        there = self.validation is not None
        require(there, "validation", None, "set apart: give the builder a validation_fraction, such as 0.2")
        ids = expand(self.config["subset"]) if "subset" in self.config else np.arange(self.clients)
        order = torch.from_numpy(ids.argsort())  # as if the part had been taken afterwards
        held, config = self.validation.take(order), self.config | {"validating": True}
        return replace(self, test=held, test_of=order.argsort(), validation=None, config=config)

    def subset(self, ids: Sequence[int]) -> "Federation":
        """Return the federation of those clients, in that order, and of the test sets they need.

        Splits clients into those that train and those that join later or are never seen:
        ``fed.subset(range(2518))`` and ``fed.subset(range(2518, 3597))``.
        """
        ids = ids.tolist() if hasattr(ids, "tolist") else ids
        declared("ids", ids, Some[int])
        ids = np.array(ids)
        require(len(np.unique(ids)) == len(ids), "ids", ids.tolist(), "different from each other")
        wrong = ids[(ids < 0) | (ids >= self.clients)]
        require(wrong.size == 0, "ids", wrong[:1].tolist(), f"clients, 0..{self.clients - 1}")
        tests, test_of = self.test_of[ids].unique(return_inverse=True)
        chosen = expand(self.config["subset"])[ids] if "subset" in self.config else ids
        return replace(
            self,
            train=self.train.take(ids),
            test=self.test.take(tests),
            test_of=test_of,
            cluster=None if self.cluster is None else self.cluster[ids],
            validation=None if self.validation is None else self.validation.take(ids),
            config=self.config | {"subset": runs(chosen)},
        )


def runs(ids: np.ndarray) -> list[list[int]]:
    """Write ids as ``[start, stop)`` runs, so that 2,518 clients in a row cost a record two numbers."""
    parts = np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1)
    return [[int(part[0]), int(part[-1]) + 1] for part in parts]


def expand(runs: list[list[int]]) -> np.ndarray:
    """Write the ids of ``[start, stop)`` runs out again."""
    declared("subset", runs, Some[Some[int]])
    for run in runs:
        require(len(run) == 2 and run[0] < run[1], "subset", run, "runs [start, stop) with start < stop")
    return np.concatenate([np.arange(*run) for run in runs])
