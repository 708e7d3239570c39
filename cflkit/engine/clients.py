"""What clients hold: their images, as a model sees them."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from cflkit import rng
from cflkit.checks import require
from cflkit.data.federation import Federation, Samples
from cflkit.models.flat import Model

IMAGES_AT_ONCE = 2048  # in one forward pass of an evaluation or a full gradient; bounds the activations' memory


class Pixels:
    """From raw pixels to what a model sees: (pixel / scale - mean) / std, in the run's precision and place.

    Parameters
    ----------
    federation : Federation
        Whose scale, mean and standard deviation are used.
    model : Model
        Whose precision and device are used.
    """

    def __init__(self, federation: Federation, model: Model):
        def shaped(value):
            return torch.as_tensor(value, dtype=model.dtype, device=model.device).reshape(-1, 1, 1)

        self.dtype, self.device, self.scale = model.dtype, model.device, federation.scale
        self.mean, self.std = shaped(federation.mean), shaped(federation.std)
        self._plain = bool((self.mean == 0).all() and (self.std == 1).all())

    def __call__(self, raw: Tensor) -> Tensor:
        """Normalise pool rows (n, C, H, W)."""
        x = raw.to(self.device).to(self.dtype).div_(self.scale)
        return x if self._plain else x.sub_(self.mean).div_(self.std)


@dataclass(frozen=True)
class Changed:
    """Pixels as a model sees them, changed once more."""

    pixels: Callable[[Tensor], Tensor]
    change: Callable[[Tensor], Tensor]

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.pixels.device

    def __call__(self, raw: Tensor) -> Tensor:
        """Normalise and change pool rows (n, C, H, W)."""
        return self.change(self.pixels(raw))


class Data:
    """The training images of a chunk of clients, and nothing else.

    Parameters
    ----------
    samples : Samples
        The clients' training sets.
    clients : sequence of int
        Which of them this chunk holds (m).
    pixels : Pixels or Changed
        Turns raw pool rows into what a model sees.
    classes : int
        Number of labels.
    earlier : sequence of Samples
        Their training sets in the time steps before.
    """

    def __init__(self, samples: Samples, clients: Sequence[int], pixels: Pixels | Changed, classes: int,
                 earlier: Sequence[Samples] = ()):  # fmt: skip
        self.clients, self.classes = list(clients), classes
        self._samples, self._sets, self._pixels, self._earlier = samples, self.clients, pixels, earlier
        self._positions: list[Tensor] | None = None  # which of each client's images, if only some are meant
        self.sizes = samples.sizes[self.clients]
        self.typical = len(samples.index) / len(samples)  # images of a client, on average over the federation
        self.shape = samples.pool.shape[1:]
        self.kept: dict = {}  # what a trainer has made of these images, for further passes over them

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        """Images (n_i, C, H, W) and labels (n_i,) of the chunk's client `i`."""
        raw, y = self._moved[i]
        return self._pixels(raw), y

    @cached_property
    def _moved(self) -> list[tuple[Tensor, Tensor]]:
        """Pixels and labels of each client where the model is, moved in two transfers for the whole chunk."""
        where = torch.cat([self._where(i) for i in range(len(self))])
        raw, y = self._samples.pool.index_select(0, self._samples.index[where]), self._samples.y[where]
        parts = (whole.to(self._pixels.device).split(self.sizes.tolist()) for whole in (raw, y))
        return list(zip(*parts, strict=True))

    def tags(self, i: int) -> Tensor | None:
        """The true domain (n_i,) of each of client `i`'s images, where known; for oracles only."""
        return None if self._samples.tag is None else self._samples.tag[self._where(i)]

    def label_counts(self) -> Tensor:
        """How many images of each class every client holds (m, classes)."""
        labels = (self._samples.y[self._where(i)] for i in range(len(self)))
        return torch.stack([torch.bincount(y, minlength=self.classes) for y in labels])

    def take(self, i: int) -> "Data":
        """Only the chunk's client `i`."""
        only, positions = slice(i, i + 1), self._positions
        return self._but(clients=self.clients[only], sizes=self.sizes[only], _sets=self._sets[only],
                         _positions=positions and positions[only], _moved=self._moved[only])  # fmt: skip

    def relabelled(self, label: Callable[[int, Tensor], Tensor]) -> "Data":
        """The same images, with ``label(i, y)`` (n_i,) in place of the labels y of the chunk's client i."""
        return self._but(_moved=[(raw, label(i, y)) for i, (raw, y) in enumerate(self._moved)])

    def changed(self, change: Callable[[Tensor], Tensor]) -> "Data":
        """The same clients and labels, with ``change(x)`` (n, C, H, W) in place of images x."""
        part = copy.copy(self)
        part._pixels, part.kept = Changed(self._pixels, change), {}
        return part

    def split(self, share: float, seed: int) -> tuple["Data", "Data"]:
        """Hold out a `share` of every client's images, at least one and never all; returns (held out, rest).

        The split depends on `seed` and the client alone, so it is the same in every round.
        """
        held, rest = [], []
        for client, n in zip(self.clients, self.sizes.tolist(), strict=True):
            require(n >= 2, f"size of client {client}", n, "at least 2 to hold some out")
            order = torch.from_numpy(rng.generator(seed, client, "holdout").permutation(n))
            cut = max(1, min(n - 1, round(share * n)))
            held.append(order[:cut])
            rest.append(order[cut:])
        return tuple(self._but(_positions=part, sizes=torch.tensor(list(map(len, part)))) for part in (held, rest))

    def during(self, steps: Tensor) -> "Data":
        """The same clients, with all images that each of them held in some time steps, which may be over.

        Parameters
        ----------
        steps : Tensor (m, T) of bool
            Whether each client's images of each time step are meant, the oldest first; the last time step is now.

        Raises
        ------
        ValueError
            If there were not so many time steps, or of a client none is meant.
        """
        every = (*self._earlier, self._samples)
        ok = tuple(steps.shape) == (len(self), len(every)) and bool(steps.any(1).all())
        require(ok, "steps", steps, f"({len(self)}, {len(every)}), clients and time steps, one or more of each")
        there, wanted = torch.tensor(self.clients), [torch.nonzero(own).flatten() for own in steps.T]
        taken = [(samples.take(there[own]), own) for samples, own in zip(every, wanted, strict=True) if len(own)]
        owner = torch.cat([own.repeat_interleave(samples.sizes) for samples, own in taken])
        order = owner.argsort(stable=True)  # client by client, the oldest images first
        pool, y = (torch.cat(parts) for parts in zip(*((s.pool[s.index], s.y) for s, _ in taken), strict=True))
        offset = F.pad(torch.bincount(owner, minlength=len(self)).cumsum(0), (1, 0))
        gathered = Samples(pool, order, y[order], offset)  # each time step may have a pool of its own
        return self._but(_samples=gathered, _sets=range(len(self)), _positions=None, sizes=gathered.sizes)

    def _but(self, **changes) -> "Data":
        """The same, but for some attributes."""
        part = copy.copy(self)
        part.__dict__.pop("_moved", None)
        part.__dict__.update(changes, kept={})
        return part

    def _where(self, i: int) -> Tensor:
        """Which rows (n_i,) of the samples are client `i`'s."""
        begin, end = self._samples.offset[self._sets[i] :][:2].tolist()
        return torch.arange(begin, end) if self._positions is None else begin + self._positions[i]
