"""What every builder is: a dataclass of options that turns images into a federation."""

import json
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch

from cflkit.checks import (
    Checked,
    Count,
    Inside,
    Natural,
    Range,
    Some,
    declared,
    enough_memory,
    known,
    parameters,
    require,
)
from cflkit.data.domains import Atlas, Domain
from cflkit.data.federation import Federation
from cflkit.data.images import Images
from cflkit.data.partition import Ids, cut, deal, hold_out, hold_out_each, laws
from cflkit.rng import generator

Scale = Annotated[float, Range(1e-6)]  # smaller ones would take pixels beyond single precision
Alpha = Annotated[float, Range(1e-6, 1e6)]  # beyond these, a draw is a single label or all labels alike


@dataclass(frozen=True, kw_only=True)
class Builder(Checked):
    """Options of every builder.

    Attributes
    ----------
    seed : int
        Seed of every draw. Draws are keyed, so a client's do not depend on the other clients.
    test : str
        What clients are tested on. "cluster": all of the dataset's own test split, as the client's true
        cluster shows it. "all": one set for all, the union of those. "own": a share of each client's data.
    test_fraction : float
        That share, for "own": of a client's stated 12,000 images, 0.2 leaves 9,600 for training.
    pooled : bool
        Put training and test images together before dealing them out; needs ``test="own"``.
    validation_fraction : float or None
        Share of a client's distinct training images set apart for validation; nothing is unless asked. Where
        clients overlap, validation images of one may be training images of another.
    mean, std : float or sequence of float
        Normalisation, one value or one per channel. By default pixels stay in [0, 1].
    """

    name: ClassVar[str]
    joins: ClassVar[bool] = False  # whether it takes several datasets

    seed: Natural = 0
    test: Literal["cluster", "all", "own"] = "cluster"
    test_fraction: Inside = 0.2
    pooled: bool = False
    validation_fraction: Inside | None = None
    mean: float | Some[float] = 0.0
    std: Scale | Some[Scale] = 1.0

    def __post_init__(self):
        super().__post_init__()
        for field in fields(self):  # a list could be changed afterwards
            object.__setattr__(self, field.name, _frozen(getattr(self, field.name)))
        require(not self.pooled or self.test == "own", "test", self.test, "'own' when pooled")

    @classmethod
    def of(cls, images: Images | Sequence[Images], **options) -> Federation:
        """Divide `images` under options given by name; those without a default must be given."""
        taken = parameters(cls)
        for option in options:
            known(taken, option, "option")
        for option, (default, allowed) in taken.items():
            require(option in options or default is not MISSING, option, None, f"given: {allowed}")
        builder = cls(**options)
        declared("images", images, Some[Images] if builder.joins else Images)
        with enough_memory(f"{cls.name} federation"):
            return builder.make(images)

    def make(self, images: Images) -> Federation:
        """Divide images that are known to be such."""
        raise NotImplementedError

    def config(self, images: str | dict | list) -> dict:
        """Return what `build` needs, JSON-able; `images` is what `load` needs."""
        return json.loads(json.dumps({"builder": self.name, "images": images, **asdict(self)}))

    def rows(self, images: Images) -> Ids:
        """Return the rows to deal out."""
        return np.arange(len(images)) if self.pooled else np.flatnonzero(images.train.numpy())

    def federation(
        self, atlas: Atlas, train: list[Ids], test: list[Ids], test_of: Ids, cluster: Ids | None = None
    ) -> Federation:
        """Turn image ids into a federation."""
        images, validation, channels = atlas.images, None, atlas.images.shape[0]
        for name, value in (("mean", self.mean), ("std", self.std)):
            require(np.size(value) in (1, channels), name, value, f"one number, or {channels}, one per channel")
        if self.validation_fraction is not None:
            train, held = hold_out_each(train, self.validation_fraction, self.seed, "validation")
            validation = atlas.samples(held)
        return Federation(
            name=f"{self.name} {images.name}",
            train=atlas.samples(train),
            test=atlas.samples(test),
            test_of=torch.from_numpy(test_of),
            cluster=None if cluster is None else torch.from_numpy(cluster),
            classes=images.classes,
            scale=images.scale,
            mean=self.mean,
            std=self.std,
            validation=validation,
            config=self.config(images.source or images.name),
        )

    def given_tests(self, atlas: Atlas) -> list[Ids]:
        """Return the dataset's own test split as each domain shows it, or the union of these ("all")."""
        rows = np.flatnonzero(~atlas.images.train.numpy())
        tests = [atlas.stock(d, rows) for d in range(len(atlas.domains))]
        for d, ids in enumerate(tests):
            require(ids.size > 0, "test", self.test, f"'own', as no test image belongs to cluster {d}")
        return [np.concatenate(tests)] if self.test == "all" else tests

    def unclustered(self, atlas: Atlas, sets: list[Ids]) -> Federation:
        """Make clients without true clusters, tested on a share of their own or all on one set."""
        if self.test == "own":
            sets, test = hold_out_each(sets, self.test_fraction, self.seed, "test")
            return self.federation(atlas, sets, test, np.arange(len(sets)))
        return self.federation(atlas, sets, self.given_tests(atlas), np.zeros(len(sets), int))


def _frozen(value):
    """Return a checked value with tuples in place of all sequences."""
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    return tuple(map(_frozen, value)) if listed else value


@dataclass(frozen=True, kw_only=True)
class Clustered(Builder):
    """Options of the builders whose clients belong to true clusters; clients are numbered cluster by cluster.

    Attributes
    ----------
    clients : int or sequence of int
        How many in all, evenly over the clusters, or how many in each.
    samples_per_client : int or None
        Images of one client. None: each cluster's images are dealt out whole, as evenly as possible.
    alpha : float or None
        Skew of the clients' label laws. None: no skew.
    convention : str
        What `alpha` counts. "total": laws are drawn from Dir(alpha * p), p uniform over the C labels, so each
        label weighs alpha / C (MD-ICFL). "per_class": Dir(alpha, ..., alpha).
    overlap : bool
        False: clients of a cluster hold disjoint images; where a label runs out, a client takes more of the
        others. True: clients draw independently, each without replacement unless it needs more images of a
        label than there are.
    """

    clients: Count | Some[Count]
    samples_per_client: Count | None = None
    alpha: Alpha | None = None
    convention: Literal["total", "per_class"] = "total"
    overlap: bool = False

    def __post_init__(self):
        super().__post_init__()
        size, drawn = self.samples_per_client, self.overlap or self.alpha is not None
        require(size is not None or not drawn, "samples_per_client", size, "given when alpha or overlap is")
        require(not (self.overlap and self.test == "own"), "test", self.test,
                "'cluster' or 'all' when clients overlap, or they would train on each other's test images")

    def domains(self, images: Images) -> tuple[Images, list[Domain]]:
        """Return the images, joined if there are several datasets, and the domains: the true clusters."""
        raise NotImplementedError

    def make(self, images: Images) -> Federation:
        """Make clients of every domain."""
        images, domains = self.domains(images)
        k, counts = len(domains), self.clients
        if isinstance(counts, int):
            ok = counts % k == 0
            require(ok, "clients", counts, f"a multiple of the {k} clusters, or a list of {k} counts")
            counts = [counts // k] * k
        require(len(counts) == k, "clients", counts, f"{k} counts of at least 1")
        options = {"alpha": self.alpha, "convention": self.convention, "overlap": self.overlap}
        return deal_domains(self, Atlas(images, domains), counts, self.samples_per_client, **options)


def deal_domains(
    builder: Builder, atlas: Atlas, counts: Sequence[int], size: int | None, *, alpha: float | None = None,
    convention: str = "total", overlap: bool = False,
) -> Federation:  # fmt: skip
    """Give each domain's images to ``counts[d]`` clients, `size` to each; see :class:`Clustered`."""
    seed = builder.seed

    def allocate(rows: Ids, size: int | None, purpose: str) -> list[Ids]:
        sets = []
        for d, m in enumerate(counts):
            key = (seed, purpose, d)
            stock = atlas.stock(d, rows)
            held = f"one of its labels, {atlas.domains[d].labels}".replace(", None", "")
            require(len(stock) > 0, f"images of cluster {d}", 0, f"1 or more; no image has {held}")
            if alpha is None and not overlap:
                sets += cut(stock, m, size, *key)
                continue
            strata, law = [stock], [np.ones(1)] * m
            if alpha is not None:  # a client has one law, for training and for test
                strata = atlas.by_label(d, rows)
                law = laws(alpha, convention, len(strata), m, seed, d)
            sets += deal(strata, law, size, overlap, *key)
        return sets

    rows, cluster = builder.rows(atlas.images), np.repeat(np.arange(len(counts)), counts)
    if builder.test == "own":  # held out before dealing, so that no cluster trains on what another is tested on
        rows, held = hold_out(rows, builder.test_fraction, generator(seed, "test"))
        tested = None if size is None else round(size * builder.test_fraction)
        ok = size is None or 0 < tested < size
        allowed = f"enough to test on {builder.test_fraction} of it and to train on the rest"
        require(ok, "samples_per_client", size, allowed)
        size = None if size is None else size - tested
        test, test_of = allocate(held, tested, "test"), np.arange(len(cluster))
    else:
        test, test_of = builder.given_tests(atlas), cluster if builder.test == "cluster" else 0 * cluster
    return builder.federation(atlas, allocate(rows, size, "train"), test, test_of, cluster)
