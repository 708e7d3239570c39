"""Domains: the true distributions of a federation, and the images as each of them shows these.

An image is one integer, ``domain * n + row``: the distribution that shows it, and its row among the n images.
Relabelling, dealing out and holding out are therefore arithmetic on integers. Pixels are made once, at the end, for
just those images that somebody holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cflkit.checks import require
from cflkit.data.federation import Samples
from cflkit.data.images import Images
from cflkit.data.partition import Ids
from cflkit.rng import generator


@dataclass(frozen=True)
class Domain:
    """A true distribution: which images it holds, and what it does to pixels and labels."""

    degrees: float = 0
    relabel: tuple[int, ...] | None = None  # the new label of each old one
    labels: tuple[int, ...] | None = None  # the (old) labels it holds; None: all
    source: int | None = None  # the dataset it holds, where several were joined
    turned: tuple[int, ...] | None = None  # the (old) labels whose images are turned; None: all
    corruption: tuple[str, float] | None = None  # what it does to them besides, of `corrupt`, and its strength


def shift(images: Images, by: int) -> Domain:
    """Return the domain that reads label y as (y + by) mod C."""
    return Domain(relabel=tuple((y + by) % images.classes for y in range(images.classes)))


class Atlas:
    """The images as each domain shows them; image ids are ``domain * n + row``."""

    def __init__(self, images: Images, domains: Sequence[Domain] = (Domain(),), tag: np.ndarray | None = None):
        self.images, self.domains, self.tag = images, domains, tag
        self.n, self.y = len(images.y), images.y.numpy()
        self.relabel = np.array([d.relabel or range(images.classes) for d in domains])
        turns = [[d.degrees % 360 if d.turned is None or y in d.turned else 0 for y in range(images.classes)]
                 for d in domains]  # fmt: skip
        views = [[(float(turn), *(d.corruption or ("", 0.0))) for turn in row]
                 for d, row in zip(domains, turns, strict=True)]  # fmt: skip
        self.views = sorted({view for row in views for view in row})
        self.copy = np.array([[self.views.index(view) for view in row] for row in views])  # by domain and label
        height, width = images.x.shape[2:]
        odd = sorted({turn for turn, *_ in self.views if turn % 180})
        fits = height == width or not odd
        require(fits, "degrees", odd, f"multiples of 180, as images are {height} x {width}")
        for domain in domains:
            wrong = sorted(set(domain.labels or ()) - set(range(images.classes)))
            require(not wrong, "labels", wrong, f"in 0..{images.classes - 1}")

    def stock(self, d: int, rows: np.ndarray) -> Ids:
        """Return the ids of those of `rows` that domain `d` holds."""
        domain = self.domains[d]
        if domain.labels is not None:
            rows = rows[np.isin(self.y[rows], domain.labels)]
        if domain.source is not None:
            rows = rows[self.images.extra["source"].numpy()[rows] == domain.source]
        return d * self.n + rows

    def labels(self, ids: Ids) -> np.ndarray:
        """Return the label of each image, as its domain sees it."""
        return self.relabel[ids // self.n, self.y[ids % self.n]]

    def by_label(self, d: int, rows: np.ndarray) -> list[Ids]:
        """Return the ids of domain `d`, one array for each label it knows (empty where `rows` lack one)."""
        known, stock = self.labels(self.stock(d, np.arange(self.n))), self.stock(d, rows)
        return [stock[self.labels(stock) == label] for label in np.unique(known)]

    def samples(self, sets: Sequence[Ids]) -> Samples:
        """Make pixels, once for each (view, image) that occurs."""
        ids = np.concatenate(sets)
        domain, row = np.divmod(ids, self.n)
        shown, index = np.unique(self.copy[domain, self.y[row]] * self.n + row, return_inverse=True)
        pool = [self.seen(shown[shown // self.n == c] % self.n, *view) for c, view in enumerate(self.views)]
        tag = self.tag[row] if self.tag is not None else domain if len(self.domains) > 1 else None
        return Samples(
            torch.cat(pool),
            torch.from_numpy(index),
            torch.from_numpy(self.labels(ids)),
            torch.from_numpy(np.cumsum([0, *map(len, sets)])),
            None if tag is None else torch.from_numpy(tag),
        )

    def seen(self, rows: np.ndarray, degrees: float, kind: str, strength: float) -> Tensor:
        """Return images of the dataset, turned and corrupted."""
        x = rotate(self.images.x[torch.from_numpy(rows)], degrees)
        return corrupt(x, self.images.scale, kind, strength, rows) if kind and len(x) else x


def rotate(x: Tensor, degrees: float) -> Tensor:
    """Rotate ``(n, C, H, W)`` anticlockwise: right angles exactly, others bilinearly with black corners."""
    if degrees % 90 == 0:
        return torch.rot90(x, int(degrees // 90), (-2, -1))
    from torchvision.transforms import InterpolationMode, functional  # costs seconds, so only here

    return functional.rotate(x, degrees, InterpolationMode.BILINEAR) if len(x) else x


def corrupt(x: Tensor, scale: float, kind: str, strength: float, rows: np.ndarray) -> Tensor:
    """Corrupt ``(n, C, H, W)`` at a strength in (0, 1] (Hendrycks and Dietterich 2019: noise, blur and contrast).

    "noise" is Gaussian, its standard deviation 0.4 `strength` of the range; an image has the same wherever it is
    dealt to, by its row. "blur" is Gaussian, of 2 `strength` pixels. "contrast" falls by 85% `strength`.
    """
    from torchvision.transforms import functional  # costs seconds, so only here

    if kind == "blur":
        return functional.gaussian_blur(x, [13, 13], [2 * strength] * 2)
    if kind == "contrast":
        return functional.adjust_contrast(x, 1 - 0.85 * strength)
    drawn = np.stack([generator(0, int(row), "noise").standard_normal(x.shape[1:], np.float32) for row in rows])
    noisy = x + torch.from_numpy(drawn) * (0.4 * strength * scale)
    return noisy.round().clamp(0, scale).to(x.dtype)


def join(sets: Sequence[Images], shape: Sequence[int], each: int = 1) -> tuple[Images, list[Domain]]:
    """Put datasets of one shape one after another; return them with their domains, `each` times."""
    for name in ("classes", "scale"):
        values = {getattr(images, name) for images in sets}
        require(len(values) == 1, name, sorted(values), "the same in all datasets that are joined")
    column = {name: torch.cat([getattr(images, name) for images in sets]) for name in ("y", "train")}
    source = torch.arange(len(sets)).repeat_interleave(torch.tensor([len(images) for images in sets]))
    joined = Images(
        name="+".join(images.name for images in sets),
        x=torch.cat([_fit(images.x, tuple(shape)) for images in sets]),
        **column,
        classes=sets[0].classes,
        scale=sets[0].scale,
        extra={"source": source},
        source=[images.source or images.name for images in sets],
    )
    return joined, [Domain(source=s) for s in range(len(sets)) for _ in range(each)]


def _fit(x: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Bring ``(n, C, H, W)`` to ``(n, *shape)``: resized, colours made grey, grey repeated."""
    if x.shape[1:] == shape:
        return x
    from torchvision.transforms.functional import resize, rgb_to_grayscale  # costs seconds, so only here

    grey = rgb_to_grayscale(x) if shape[0] < x.shape[1] else x
    return resize(grey, list(shape[1:])).expand(-1, shape[0], -1, -1)
