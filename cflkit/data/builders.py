"""Builders: ways to divide images between clients.

A builder is a dataclass of options. Its name in small letters takes the images first and options by name; the
federation keeps the options in ``Federation.config``, from which :func:`build` makes the same one again::

    fed = rotated(images.load("mnist"), clients=4800)  # four rotations, 1200 clients of 50 images each
    same = build(fed.config)

All builders have the options of :class:`~cflkit.data.base.Builder`; those whose clients belong to true
clusters have those of :class:`~cflkit.data.base.Clustered` besides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from cflkit.checks import Count, Natural, Some, Unit, declared, distinct, known, require
from cflkit.data import images as pictures
from cflkit.data.base import Alpha, Builder, Clustered, deal_domains
from cflkit.data.domains import Atlas, Domain, join, shift
from cflkit.data.federation import Federation, expand
from cflkit.data.images import Images
from cflkit.data.partition import Ids, deal, divide, few_labels, hold_out_each, laws
from cflkit.rng import generator


@dataclass(frozen=True, kw_only=True)
class Rotated(Clustered):
    """Feature skew: each cluster sees all images, rotated anticlockwise by one of `degrees`.

    With `groups` of labels, angles and groups are crossed: cluster ``angle * len(groups) + group`` holds one
    group at one angle (StoCFL, Figure 8).
    """

    name = "rotated"
    degrees: Some[float] = (0, 90, 180, 270)
    groups: Some[Some[Natural]] | None = None

    def domains(self, images):
        distinct("degrees", self.degrees, [d % 360 for d in self.degrees])
        distinct("groups", self.groups, [frozenset(group) for group in self.groups or []])
        return images, [Domain(d, labels=group) for d in self.degrees for group in self.groups or [None]]


@dataclass(frozen=True, kw_only=True)
class Shifted(Clustered):
    """Concept skew: cluster k reads label y as (y + shifts[k]) mod C, over the same pixels (Sattler's)."""

    name = "shifted"
    shifts: Some[int] = (0, 3, 6, 9)

    def domains(self, images):
        distinct("shifts", self.shifts, [by % images.classes for by in self.shifts])
        return images, [shift(images, by) for by in self.shifts]


@dataclass(frozen=True, kw_only=True)
class Swapped(Clustered):
    """Rotated, and cluster k exchanges the labels ``pairs[k]``: two clusters disagree on four (MD-ICFL)."""

    name = "swapped"
    degrees: Some[float] = (0, 90, 180, 270)
    pairs: Some[Some[Natural]] = ((1, 2), (3, 4), (5, 6), (7, 8))

    def domains(self, images):
        many, pairs, labels = len(self.degrees), self.pairs, range(images.classes)
        require(len(pairs) == many, "pairs", pairs, f"one for each of {many} degrees")
        two = all(len(pair) == len(set(pair)) == 2 and set(pair) <= set(labels) for pair in pairs)
        require(two, "pairs", pairs, f"two labels each, in 0..{images.classes - 1}")
        distinct("pairs", pairs, [(d % 360, frozenset(pair)) for d, pair in zip(self.degrees, pairs, strict=True)])
        swaps = [tuple({a: b, b: a}.get(y, y) for y in labels) for a, b in pairs]
        return images, [Domain(d, swap) for d, swap in zip(self.degrees, swaps, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Pathological(Clustered):
    """Label skew: cluster k holds, and is tested on, the labels ``groups[k]`` only (StoCFL, Section 4.1)."""

    name = "pathological"
    groups: Some[Some[Natural]] = ((0, 1, 2), (3, 4), (5, 6), (7, 8, 9))

    def domains(self, images):
        distinct("groups", self.groups, [frozenset(group) for group in self.groups])
        return images, [Domain(labels=group) for group in self.groups]


@dataclass(frozen=True, kw_only=True)
class Hybrid(Clustered):
    """Feature concept skew: each cluster holds one dataset, as MNIST and Fashion-MNIST (StoCFL)."""

    name, joins = "hybrid", True

    def domains(self, images):
        return join(images, images[0].shape)


@dataclass(frozen=True, kw_only=True)
class MultiSource(Clustered):
    """As :class:`Hybrid`, with every image brought to `shape`, (C, H, W): resized, and grey where C is 1.

    MD-ICFL's digits (MNIST, USPS, SVHN, SIGN) need ``overlap=True``: 12 clients draw 1,000 each from SIGN.
    """

    name, joins = "multi_source", True
    shape: Some[Count] = (1, 28, 28)

    def domains(self, images):
        require(len(self.shape) == 3 and self.shape[0] in (1, 3), "shape", self.shape, "(C, H, W) with C 1 or 3")
        return join(images, self.shape)


@dataclass(frozen=True, kw_only=True)
class Graded(Builder):
    """Ten clients, each a cluster of its own, that drift apart step by step (StoCFL, Figure 2).

    Attributes
    ----------
    skew : str
        What client s = 0, ..., 9 sees. "label_overlap": labels s, ..., s + 4 (mod 10), so that clients d steps
        apart on the ring share 5 - d labels (our reading; the paper does not say which are shared).
        "rotation": images turned by 36 s degrees. "label_shift": label (y + s) mod 10. "domain", for two
        datasets: the first for s < 5, the second from 5 on.
    samples_per_client : int or None
        Images of one client. Clients draw independently, so two may hold one image in two guises.
    """

    name = "graded"
    test: Literal["cluster"] = "cluster"
    skew: Literal["label_overlap", "rotation", "label_shift", "domain"]
    samples_per_client: Count | None = 6000

    @property
    def joins(self) -> bool:
        """Whether it takes several datasets."""
        return self.skew == "domain"

    def make(self, images):
        if self.joins:
            require(len(images) == 2, "images", [one.name for one in images], "two datasets")
            images, domains = join(images, images[0].shape, each=5)
        elif self.skew == "rotation":
            domains = [Domain(36 * s) for s in range(10)]
        else:
            require(images.classes == 10, "images", images.name, "a dataset of ten classes")
            overlap = [Domain(labels=tuple((s + j) % 10 for j in range(5))) for s in range(10)]
            domains = overlap if self.skew == "label_overlap" else [shift(images, s) for s in range(10)]
        return deal_domains(self, Atlas(images, domains), [1] * 10, self.samples_per_client)


@dataclass(frozen=True, kw_only=True)
class Mixed(Builder):
    """Several domains on every client (FedCG's setting): rotations in shares from Dir(alpha, ..., alpha).

    The ``tag`` of each training and test image is its rotation; clients have no true cluster.
    """

    name = "mixed"
    test: Literal["all"] = "all"
    clients: Count
    samples_per_client: Count
    degrees: Some[float] = (0, 90, 180, 270)
    alpha: Alpha = 1.0

    def make(self, images):
        distinct("degrees", self.degrees, [d % 360 for d in self.degrees])
        atlas, rows = Atlas(images, [Domain(d) for d in self.degrees]), self.rows(images)
        strata = [atlas.stock(d, rows) for d in range(len(self.degrees))]
        law = laws(self.alpha, "per_class", len(strata), self.clients, self.seed)
        return self.unclustered(atlas, deal(strata, law, self.samples_per_client, False, self.seed))


@dataclass(frozen=True, kw_only=True)
class PathologicalN(Builder):
    """Label skew: `labels_per_client` labels on each client (LCFed), by :func:`~cflkit.data.partition.few_labels`.

    LCFed's split is ``clients=100, pooled=True, test="own", test_fraction=0.25``.
    """

    name = "pathological_n"
    test: Literal["all", "own"] = "all"
    clients: Count
    labels_per_client: Count

    def make(self, images):
        atlas = Atlas(images)
        strata, each = atlas.by_label(0, self.rows(images)), self.labels_per_client
        require(each <= len(strata), "labels_per_client", each, f"in 1..{len(strata)}")
        ok = self.clients * each >= len(strata)
        allowed = f"at least {len(strata)} / labels_per_client, for each label to have a holder"
        require(ok, "clients", self.clients, allowed)
        return self.unclustered(atlas, few_labels(strata, self.clients, each, self.seed))


@dataclass(frozen=True, kw_only=True)
class Dirichlet(Builder):
    """Label skew without clusters, by a Dirichlet law.

    LCFed's split is ``clients=100, alpha=0.1, pooled=True, test="own", test_fraction=0.25``.

    Attributes
    ----------
    clients : int
        Between how many to divide.
    alpha : float
        Concentration: small is skewed.
    convention : str
        What `alpha` counts. "per_client": every label's images, all of them, are divided between the clients
        in shares from Dir(alpha, ..., alpha); sizes are ragged (the usual split). "total", "per_class": each
        client has a label law and `samples_per_client` images from it, as in :class:`Clustered`.
    samples_per_client : int or None
        For "total" and "per_class"; clients hold disjoint images.
    min_samples : int
        For "per_client": all shares are drawn anew until every client has this many, 1,000 times at most.
    """

    name = "dirichlet"
    test: Literal["all", "own"] = "all"
    clients: Count
    alpha: Alpha
    convention: Literal["per_client", "total", "per_class"] = "per_client"
    samples_per_client: Count | None = None
    min_samples: Count = 10

    def __post_init__(self):
        super().__post_init__()
        ok = (self.convention == "per_client") == (self.samples_per_client is None)
        require(ok, "samples_per_client", self.samples_per_client, "given, unless convention is 'per_client'")

    def make(self, images):
        atlas, size = Atlas(images), self.samples_per_client
        strata = atlas.by_label(0, self.rows(images))
        if size is None:
            return self.unclustered(atlas, divide(strata, self.clients, self.alpha, self.min_samples, self.seed))
        law = laws(self.alpha, self.convention, len(strata), self.clients, self.seed)
        return self.unclustered(atlas, deal(strata, law, size, False, self.seed))


GROUPS, SKEWED = 4, 0.1  # groups of clients; Dirichlet's alpha of label shares at full strength
CORRUPTIONS = "noise", "blur", "contrast"  # of groups 1 to 3


@dataclass(frozen=True, kw_only=True)
class Dosed(Builder):
    """One shift at a strength between none and full; clients come in four groups, group by group.

    Attributes
    ----------
    shift : str
        What differs. "rotation": group g = 0, ..., 3 sees images turned by ``60 g strength`` degrees. "renamed":
        groups 1 to 3 exchange labels in pairs, each in pairs of its own, ``strength`` saying which share of the
        classes. "concept": group g sees that share of the classes, the first ones, turned by 90 g degrees.
        "corruption": groups 1 to 3 see noise, blur and less contrast (:func:`~cflkit.data.domains.corrupt`).
        "shares": no groups; a client's label law is ``strength`` parts of Dir(0.1, ..., 0.1), the rest uniform.
    strength : float
        How much: at 0 all clients draw from one distribution, which is then the only true cluster.
    """

    name = "dosed"
    test: Literal["cluster", "all"] = "cluster"
    shift: Literal["rotation", "renamed", "concept", "corruption", "shares"]
    strength: Unit
    clients: Count
    samples_per_client: Count

    def make(self, images):
        size = self.samples_per_client
        if self.shift == "shares":
            atlas = Atlas(images)
            strata = atlas.by_label(0, self.rows(images))
            drawn = laws(SKEWED, "per_class", len(strata), self.clients, self.seed)
            mixed = [self.strength * law + (1 - self.strength) / len(strata) for law in drawn]
            return self.unclustered(atlas, deal(strata, mixed, size, False, self.seed))
        ok = self.clients % GROUPS == 0
        require(ok, "clients", self.clients, f"a multiple of the {GROUPS} groups")
        shown = [self.domain(images.classes, g) for g in range(GROUPS)]
        made = deal_domains(self, Atlas(images, shown), [self.clients // GROUPS] * GROUPS, size)
        _, same = np.unique([shown.index(domain) for domain in shown], return_inverse=True)
        return replace(made, cluster=torch.from_numpy(same)[made.cluster])

    def domain(self, classes: int, g: int) -> Domain:
        """Return what group `g` sees."""
        if self.shift == "rotation":
            return Domain(60 * g * self.strength)
        if self.shift == "corruption":
            return Domain(corruption=(CORRUPTIONS[g - 1], self.strength) if g and self.strength else None)
        if self.shift == "concept":
            turned = tuple(range(round(self.strength * classes)))
            return Domain(90 * g, turned=turned) if turned else Domain()
        # y and 2 g - 1 - y are a pair; another odd number on the left makes pairs that are all others
        pairs = [(y, (2 * g - 1 - y) % classes) for y in range(classes) if y < (2 * g - 1 - y) % classes]
        swapped = dict(pairs[: round(self.strength * len(pairs))]) if g else {}
        swapped |= {b: a for a, b in swapped.items()}
        return Domain(relabel=tuple(swapped.get(y, y) for y in range(classes)))


@dataclass(frozen=True, kw_only=True)
class ByUser(Builder):
    """One client per writer or person, of images that know their `user`.

    Clients' true clusters are known where the images have a column ``extra["cluster"]``: that of each one's user.

    Attributes
    ----------
    test : str
        Clients are tested on their user's own test images ("given"), on `test_fraction` of their user's images
        ("own"), or all on the images of other users ("users").
    users : int, sequence of int, or None
        Which; or how many, drawn and ordered at random, so that ``fed.subset(range(m))`` is a random part of
        them; or all, in ascending order.
    min_samples : int
        Users with fewer images are left out from the start.
    test_users : int
        For "users": how many, drawn at random; they are no clients.
    attributes : sequence of int
        Columns of ``images.extra["attributes"]``, read as one binary number, the first column highest: the
        ``tag`` of every image (FedCG's oracle domains).
    """

    name = "by_user"
    test: Literal["given", "own", "users"] = "given"
    users: Count | Some[int] | None = None
    min_samples: Count = 1
    test_users: Natural = 0
    attributes: Sequence[Natural] = ()

    def __post_init__(self):
        super().__post_init__()
        ok = (self.test_users > 0) == (self.test == "users")
        require(ok, "test_users", self.test_users, "above 0 if test is 'users', else 0")
        for name in ("users", "attributes"):
            value = getattr(self, name)
            listed = value if isinstance(value, tuple) else ()
            require(len(set(listed)) == len(listed), name, value, "different from each other")

    def make(self, images):
        require(images.user is not None, "images", images.name, "a dataset that knows the user of each image")
        user, train = images.user.numpy(), images.train.numpy()
        chosen, others = self.choose(images)
        atlas, sets = Atlas(images, tag=self.tag(images)), [np.flatnonzero(user == one) for one in chosen]
        cluster = self.clusters(images, sets)
        if self.test == "own":
            sets, tests = hold_out_each(sets, self.test_fraction, self.seed, "test")
        elif self.test == "users":
            tests = [np.flatnonzero(np.isin(user, others))]
            return self.federation(atlas, sets, tests, np.zeros(len(sets), int), cluster)
        else:
            for one, rows in zip(chosen, sets, strict=True):
                ok = 0 < train[rows].sum() < len(rows)
                require(ok, "test", "given", f"'own' or 'users', as user {one} lacks training or test images")
            sets, tests = [rows[train[rows]] for rows in sets], [rows[~train[rows]] for rows in sets]
        return self.federation(atlas, sets, tests, np.arange(len(sets)), cluster)

    def choose(self, images: Images) -> tuple[np.ndarray, np.ndarray]:
        """Return the users that are clients, and those that are tested on."""
        people, sizes = np.unique(images.user.numpy(), return_counts=True)
        least, most = self.min_samples, int(max(sizes))
        require(least <= most, "min_samples", least, f"at most {most}, or no user is left")
        people = people[sizes >= least]
        named = np.array(self.users if isinstance(self.users, tuple) else [], int)
        wrong = np.setdiff1d(named, people)[:1].tolist()
        require(not wrong, "users", wrong, f"users of {images.name} with {least} images or more")
        order = generator(self.seed, "users").permutation(np.setdiff1d(people, named))
        others, rest = order[: self.test_users], order[self.test_users :]
        room = len(order) - (named.size == 0)
        require(self.test_users <= room, "test_users", self.test_users, f"at most {room} of {len(people)} users")
        if named.size:
            return named, others
        require((self.users or 1) <= len(rest), "users", self.users, f"in 1..{len(rest)}")
        return np.sort(rest) if self.users is None else rest[: self.users], others

    def tag(self, images: Images) -> np.ndarray | None:
        """Return the number that the attributes of each image make."""
        if not self.attributes:
            return None
        table = images.extra.get("attributes")
        ok = table is not None and table.ndim == 2
        require(ok, "images", images.name, "a dataset with attributes")
        ok = max(self.attributes) < table.shape[1] and len(self.attributes) < 63
        require(ok, "attributes", self.attributes, f"at most 62 columns in 0..{table.shape[1] - 1}")
        bits = table.numpy()[:, list(self.attributes)] > 0
        return bits @ (1 << np.arange(len(self.attributes))[::-1])

    def clusters(self, images: Images, sets: Sequence[Ids]) -> Ids | None:
        """Return the true cluster of each client, given the rows of its user."""
        if "cluster" not in images.extra:
            return None
        column = images.extra["cluster"].numpy()
        for rows in sets:
            same = column.ndim == 1 and column.dtype.kind in "iu" and len(np.unique(column[rows])) == 1
            require(same, "cluster", np.unique(column[rows])[:9].tolist(), "one integer for all images of a user")
        return np.array([column[rows[0]] for rows in sets], np.int64)


BUILDERS: dict[str, type[Builder]] = {
    builder.name: builder
    for builder in (Rotated, Shifted, Swapped, Pathological, Hybrid, MultiSource, Graded, Mixed, PathologicalN,
                    Dirichlet, Dosed, ByUser)
}  # fmt: skip
rotated, shifted, swapped, pathological = Rotated.of, Shifted.of, Swapped.of, Pathological.of
hybrid, multi_source, graded, mixed = Hybrid.of, MultiSource.of, Graded.of, Mixed.of
pathological_n, dirichlet, dosed, by_user = PathologicalN.of, Dirichlet.of, Dosed.of, ByUser.of


def build(config: dict) -> Federation:
    """Build the federation that `config` describes, loading its images by name.

    Parameters
    ----------
    config : dict
        ``builder`` and ``images`` (what :func:`~cflkit.data.images.load` takes, or a list of such), the builder's
        options, perhaps ``subset`` and ``validating``.

    Raises
    ------
    ValueError
        If the builder or an option is unknown, or a value is not allowed; one line naming it.
    """
    declared("config", config, dict)
    options = dict(config)
    for key in ("builder", "images"):
        require(key in options, "config", sorted(map(str, options)), f"a dict with {key!r}")
    name, images, subset = options.pop("builder"), options.pop("images"), options.pop("subset", None)
    validating = options.pop("validating", False)
    known(BUILDERS, name, "builder")
    loaded = [_load(image) for image in images] if isinstance(images, list | tuple) else _load(images)
    made = BUILDERS[name].of(loaded, **options)
    made = made.validating() if validating else made
    return made if subset is None else made.subset(expand(subset))


def _load(image: str | dict) -> Images:
    return pictures.load(**image) if isinstance(image, dict) and "name" in image else pictures.load(image)
