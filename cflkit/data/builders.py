"""Federations: who holds which images, under which true distribution, and what each client is tested on.

A federation is pure data. Every builder takes :class:`~cflkit.data.images.Images` first and options by name, and
keeps its resolved options in ``Federation.config``, from which :func:`build` makes the same one again::

    fed = rotated(images.load("mnist"), clients=4800)  # four rotations, 1200 clients of 50 images each
    same = build(fed.config)

All builders have the options of :class:`Common`; those whose clients belong to true clusters have those of
:class:`Share` besides. Inside, an image is one integer, ``domain * n + row``: the distribution that shows it,
and its row among the n images. Relabelling, dealing out and holding out are therefore arithmetic on integers,
and pixels are made once, at the end, for just those images that somebody holds.
"""

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps

import numpy as np
import torch
from torch import Tensor

from cflkit.checks import one_of, positive, require
from cflkit.data import images as pictures
from cflkit.data.federation import Federation, Samples, expand
from cflkit.data.images import Images
from cflkit.data.partition import Ids, cut, deal, divide, few_labels, hold_out, hold_out_each, laws
from cflkit.rng import generator


@dataclass(frozen=True, kw_only=True)
class Common:
    """Options of every builder.

    Attributes
    ----------
    seed : int
        Seed of every draw. Draws are keyed, so a client's do not depend on the other clients.
    test : str
        What clients are tested on. "cluster": all of the data set's own test split, as the client's true
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

    seed: int = 0
    test: str = "cluster"
    test_fraction: float = 0.2
    pooled: bool = False
    validation_fraction: float | None = None
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0

    def __post_init__(self):
        shares = {"test_fraction": self.test_fraction, "validation_fraction": self.validation_fraction}
        for name, share in shares.items():
            require(share is None or 0 < share < 1, name, share, "in (0, 1)")
        require(not self.pooled or self.test == "own", "test", self.test, "'own' when pooled")
        require(np.isfinite(self.mean).all(), "mean", self.mean, "finite")
        require(np.min(self.std) > 0 and np.isfinite(self.std).all(), "std", self.std, "finite and greater than 0")


@dataclass(frozen=True, kw_only=True)
class Share(Common):
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

    clients: int | Sequence[int]
    samples_per_client: int | None = None
    alpha: float | None = None
    convention: str = "total"
    overlap: bool = False

    def __post_init__(self):
        super().__post_init__()
        if self.alpha is not None:
            positive("alpha", self.alpha)
        one_of("convention", self.convention, ("total", "per_class"))
        size, drawn = self.samples_per_client, self.overlap or self.alpha is not None
        require(size is not None or not drawn, "samples_per_client", size, "given when alpha or overlap is")
        require(size is None or size >= 1, "samples_per_client", size, "at least 1")
        require(not (self.overlap and self.test == "own"), "test", self.test,
                "'cluster' or 'all' when clients overlap, or they would train on each other's test images")

    def per_cluster(self, k: int) -> list[int]:
        """Return how many clients each of the `k` clusters has."""
        if np.ndim(self.clients) == 0:
            ok = self.clients >= k and self.clients % k == 0
            require(ok, "clients", self.clients, f"a multiple of the {k} clusters, or a list of {k} counts")
            return [self.clients // k] * k
        counts = list(self.clients)
        require(len(counts) == k and min(counts) > 0, "clients", counts, f"{k} counts of at least 1")
        return counts


@dataclass(frozen=True)
class _Domain:
    """A true distribution: which images it holds, and what it does to pixels and labels."""

    degrees: float = 0
    relabel: tuple[int, ...] | None = None  # the new label of each old one
    labels: tuple[int, ...] | None = None  # the (old) labels it holds; None: all
    source: int | None = None  # the data set it holds, where several were joined


class _Atlas:
    """The images as each domain shows them; image ids are ``domain * n + row``."""

    def __init__(self, images: Images, domains: Sequence[_Domain], tag: np.ndarray | None = None):
        self.images, self.domains, self.tag = images, domains, tag
        self.n, self.y = len(images.y), images.y.numpy()
        self.relabel = np.array([d.relabel or range(images.classes) for d in domains])
        self.angles, self.copy = np.unique([d.degrees % 360 for d in domains], return_inverse=True)
        height, width = images.x.shape[2:]
        odd = [float(a) for a in self.angles if a % 180]
        fits = height == width or not odd
        require(fits, "degrees", odd, f"multiples of 180, as images are {height} x {width}")
        for domain in domains:
            wrong = sorted(set(domain.labels or ()) - set(range(images.classes)))
            require(not wrong, "labels", wrong, f"in 0..{images.classes - 1}")

    def stock(self, d: int, rows: np.ndarray) -> np.ndarray:
        """Return the ids of those of `rows` that domain `d` holds."""
        domain = self.domains[d]
        if domain.labels is not None:
            rows = rows[np.isin(self.y[rows], domain.labels)]
        if domain.source is not None:
            rows = rows[self.images.extra["source"].numpy()[rows] == domain.source]
        return d * self.n + rows

    def labels(self, ids: np.ndarray) -> np.ndarray:
        """Return the label of each image, as its domain sees it."""
        return self.relabel[ids // self.n, self.y[ids % self.n]]

    def by_label(self, d: int, rows: np.ndarray) -> list[np.ndarray]:
        """Return the ids of domain `d`, one array for each label it knows (empty where `rows` lack one)."""
        known, stock = self.labels(self.stock(d, np.arange(self.n))), self.stock(d, rows)
        return [stock[self.labels(stock) == label] for label in np.unique(known)]

    def samples(self, sets: Sequence[np.ndarray]) -> Samples:
        """Make pixels, once for each (rotation, image) that occurs."""
        ids = np.concatenate(sets)
        domain, row = np.divmod(ids, self.n)
        shown, index = np.unique(self.copy[domain] * self.n + row, return_inverse=True)
        pool = [_rotate(self.images.x[torch.from_numpy(shown[shown // self.n == c] % self.n)], float(angle))
                for c, angle in enumerate(self.angles)]
        tag = self.tag[row] if self.tag is not None else domain if len(self.domains) > 1 else None
        return Samples(
            torch.cat(pool),
            torch.from_numpy(index),
            torch.from_numpy(self.labels(ids)),
            torch.from_numpy(np.cumsum([0, *map(len, sets)])),
            None if tag is None else torch.from_numpy(tag),
        )


def _rotate(x: Tensor, degrees: float) -> Tensor:
    """Rotate ``(n, C, H, W)`` anticlockwise: right angles exactly, others bilinearly with black corners."""
    if degrees % 90 == 0:
        return torch.rot90(x, int(degrees // 90), (-2, -1))
    from torchvision.transforms import InterpolationMode, functional  # costs seconds, so only here

    return functional.rotate(x, degrees, InterpolationMode.BILINEAR) if len(x) else x


def _rows(images: Images, common: Common) -> Ids:
    """Return the rows to deal out."""
    return np.arange(len(images)) if common.pooled else np.flatnonzero(images.train.numpy())


def _federation(
    atlas: _Atlas, common: Common, train: list[Ids], test: list[Ids], test_of: Ids, cluster: Ids | None = None
) -> Federation:
    """Turn image ids into a federation."""
    images, validation, channels = atlas.images, None, atlas.images.shape[0]
    for name, value in (("mean", common.mean), ("std", common.std)):
        require(np.size(value) in (1, channels), name, value, f"one number, or {channels}, one per channel")
    if common.validation_fraction is not None:
        train, held = hold_out_each(train, common.validation_fraction, common.seed, "validation")
        validation = atlas.samples(held)
    return Federation(
        name=images.name,
        train=atlas.samples(train),
        test=atlas.samples(test),
        test_of=torch.from_numpy(test_of),
        cluster=None if cluster is None else torch.from_numpy(cluster),
        classes=images.classes,
        scale=images.scale,
        mean=tuple(common.mean) if np.ndim(common.mean) else common.mean,
        std=tuple(common.std) if np.ndim(common.std) else common.std,
        validation=validation,
        config={},
    )


def _given_tests(atlas: _Atlas, common: Common) -> list[Ids]:
    """Return the data set's own test split as each domain shows it, or the union of these ("all")."""
    rows = np.flatnonzero(~atlas.images.train.numpy())
    tests = [atlas.stock(d, rows) for d in range(len(atlas.domains))]
    for d, ids in enumerate(tests):
        require(ids.size > 0, "test", common.test, f"'own', as no test image belongs to cluster {d}")
    return [np.concatenate(tests)] if common.test == "all" else tests


def _clustered(images: Images, domains: Sequence[_Domain], share: Share) -> Federation:
    """Make clients of every domain; the domains are their true clusters."""
    atlas, counts = _Atlas(images, domains), share.per_cluster(len(domains))

    def allocate(rows: Ids, size: int | None, purpose: str) -> list[Ids]:
        sets = []
        for d, m in enumerate(counts):
            key = (share.seed, purpose, d)
            if share.alpha is None and not share.overlap:
                sets += cut(atlas.stock(d, rows), m, size, *key)
                continue
            strata, law = [atlas.stock(d, rows)], [np.ones(1)] * m
            if share.alpha is not None:  # a client has one law, for training and for test
                strata = atlas.by_label(d, rows)
                law = laws(share.alpha, share.convention, len(strata), m, share.seed, d)
            sets += deal(strata, law, size, share.overlap, *key)
        return sets

    rows, size = _rows(images, share), share.samples_per_client
    cluster = np.repeat(np.arange(len(domains)), counts)
    if share.test == "own":  # held out before dealing, so that no cluster trains on what another is tested on
        rows, held = hold_out(rows, share.test_fraction, generator(share.seed, "test"))
        tested = None if size is None else round(size * share.test_fraction)
        size = None if size is None else size - tested
        test, test_of = allocate(held, tested, "test"), np.arange(len(cluster))
    else:
        test, test_of = _given_tests(atlas, share), cluster if share.test == "cluster" else 0 * cluster
    return _federation(atlas, share, allocate(rows, size, "train"), test, test_of, cluster)


def _unclustered(atlas: _Atlas, sets: list[Ids], common: Common) -> Federation:
    """Make clients without true clusters, tested on a share of their own or all on one set."""
    if common.test == "own":
        sets, test = hold_out_each(sets, common.test_fraction, common.seed, "test")
        return _federation(atlas, common, sets, test, np.arange(len(sets)))
    return _federation(atlas, common, sets, _given_tests(atlas, common), np.zeros(len(sets), int))


BUILDERS: dict[str, Callable[..., Federation]] = {}


def _builder(options: type[Common], *tests: str) -> Callable:
    """Give a builder its shared options (`tests`: allowed, default first), note its config, register it."""

    def register(make: Callable[..., Federation]) -> Callable[..., Federation]:
        first, _, *own = inspect.signature(make).parameters.values()
        shared = inspect.signature(options).parameters
        shared = shared | {"test": shared["test"].replace(default=tests[0])}
        signature = inspect.Signature([first, *own, *shared.values()])

        @wraps(make)
        def builder(images, **given) -> Federation:
            for name in given:
                one_of("option", name, list(signature.parameters)[1:])
            bound = signature.bind(images, **given)
            bound.apply_defaults()
            settings = {name: bound.arguments[name] for name in list(signature.parameters)[1:]}
            one_of("test", settings["test"], tests)
            common = options(**{name: settings[name] for name in shared})
            made = make(images, common, **{p.name: settings[p.name] for p in own})
            names = images.name if isinstance(images, Images) else [source.name for source in images]
            config = json.loads(json.dumps({"builder": make.__name__, "images": names, **settings}))
            return replace(made, name=f"{make.__name__} {made.name}", config=config)

        builder.__signature__ = signature
        BUILDERS[make.__name__] = builder
        return builder

    return register


def build(config: dict) -> Federation:
    """Build the federation that `config` describes, loading its images by name.

    Parameters
    ----------
    config : dict
        ``builder`` and ``images`` (a name, or a list of them), the builder's options, perhaps ``subset``.

    Raises
    ------
    ValueError
        If the builder or an option is unknown, or a value is not allowed; one line naming it.
    """
    options = dict(config)
    for key in ("builder", "images"):
        require(key in options, "config", sorted(options), f"a dict with {key!r}")
    name, images, subset = options.pop("builder"), options.pop("images"), options.pop("subset", None)
    one_of("builder", name, BUILDERS)
    loaded = pictures.load(images) if isinstance(images, str) else [pictures.load(image) for image in images]
    made = BUILDERS[name](loaded, **options)
    return made if subset is None else made.subset(expand(subset))


@_builder(Share, "cluster", "all", "own")
def rotated(
    images: Images,
    share: Share,
    *,
    degrees: Sequence[float] = (0, 90, 180, 270),
    groups: Sequence[Sequence[int]] | None = None,
) -> Federation:
    """Feature skew: each cluster sees all images, rotated anticlockwise by one of `degrees`.

    With `groups` of labels, angles and groups are crossed: cluster ``angle * len(groups) + group`` holds one
    group at one angle (StoCFL, Figure 8).
    """
    labels = [None] if groups is None else [tuple(group) for group in groups]
    return _clustered(images, [_Domain(d, labels=group) for d in degrees for group in labels], share)


@_builder(Share, "cluster", "all", "own")
def shifted(images: Images, share: Share, *, shifts: Sequence[int] = (0, 3, 6, 9)) -> Federation:
    """Concept skew: cluster k reads label y as (y + shifts[k]) mod C, over the same pixels (Sattler's)."""
    return _clustered(images, [_shift(images, s) for s in shifts], share)


def _shift(images: Images, by: int) -> _Domain:
    return _Domain(relabel=tuple((y + by) % images.classes for y in range(images.classes)))


@_builder(Share, "cluster", "all", "own")
def swapped(
    images: Images,
    share: Share,
    *,
    degrees: Sequence[float] = (0, 90, 180, 270),
    pairs: Sequence[Sequence[int]] = ((1, 2), (3, 4), (5, 6), (7, 8)),
) -> Federation:
    """Rotated, and cluster k exchanges the labels ``pairs[k]``: two clusters disagree on four (MD-ICFL)."""
    require(len(pairs) == len(degrees), "pairs", pairs, f"one for each of {len(degrees)} degrees")
    known = all(len(set(pair)) == 2 and set(pair) <= set(range(images.classes)) for pair in pairs)
    require(known, "pairs", pairs, f"two labels each, in 0..{images.classes - 1}")
    swaps = [tuple({a: b, b: a}.get(y, y) for y in range(images.classes)) for a, b in pairs]
    return _clustered(images, [_Domain(d, swap) for d, swap in zip(degrees, swaps, strict=True)], share)


@_builder(Share, "cluster", "all", "own")
def pathological(
    images: Images, share: Share, *, groups: Sequence[Sequence[int]] = ((0, 1, 2), (3, 4), (5, 6), (7, 8, 9))
) -> Federation:
    """Label skew: cluster k holds, and is tested on, the labels ``groups[k]`` only (StoCFL, Section 4.1)."""
    return _clustered(images, [_Domain(labels=tuple(group)) for group in groups], share)


@_builder(Share, "cluster", "all", "own")
def hybrid(images: Sequence[Images], share: Share) -> Federation:
    """Feature concept skew: each cluster holds one data set, as MNIST and Fashion-MNIST (StoCFL)."""
    return _clustered(*_join(images, images[0].shape), share)


@_builder(Share, "cluster", "all", "own")
def multi_source(
    images: Sequence[Images], share: Share, *, shape: Sequence[int] = (1, 28, 28)
) -> Federation:
    """As :func:`hybrid`, with every image brought to `shape`, (C, H, W): resized, and grey where C is 1.

    MD-ICFL's digits (MNIST, USPS, SVHN, SIGN) need ``overlap=True``: 12 clients draw 1,000 each from SIGN.
    """
    return _clustered(*_join(images, shape), share)


def _join(sets: Sequence[Images], shape: Sequence[int], each: int = 1) -> tuple[Images, list[_Domain]]:
    """Put data sets of one shape one after another; return them with their domains, `each` times."""
    for name in ("classes", "scale"):
        values = {getattr(images, name) for images in sets}
        require(len(values) == 1, name, sorted(values), "the same in all data sets that are joined")
    column = {name: torch.cat([getattr(images, name) for images in sets]) for name in ("y", "train")}
    source = torch.arange(len(sets)).repeat_interleave(torch.tensor([len(images) for images in sets]))
    name = "+".join(images.name for images in sets)
    x = torch.cat([_fit(images.x, tuple(shape)) for images in sets])
    joined = Images(name, x, **column, classes=sets[0].classes, scale=sets[0].scale, extra={"source": source})
    return joined, [_Domain(source=s) for s in range(len(sets)) for _ in range(each)]


def _fit(x: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Bring ``(n, C, H, W)`` to ``(n, *shape)``: resized, colours made grey, grey repeated."""
    if x.shape[1:] == shape:
        return x
    from torchvision.transforms.functional import resize, rgb_to_grayscale  # costs seconds, so only here

    grey = rgb_to_grayscale(x) if shape[0] < x.shape[1] else x
    return resize(grey, list(shape[1:])).expand(-1, shape[0], -1, -1)


@_builder(Common, "cluster")
def graded(
    images: Images | Sequence[Images], common: Common, *, skew: str, samples_per_client: int | None = 6000
) -> Federation:
    """Ten clients, each a cluster of its own, that drift apart step by step (StoCFL, Figure 2).

    Parameters
    ----------
    images : Images or sequence of Images
        Ten classes; for "domain", two data sets.
    skew : str
        What client s = 0, ..., 9 sees. "label_overlap": labels s, ..., s + 4 (mod 10), so that clients d steps
        apart on the ring share 5 - d labels (our reading; the paper does not say which are shared).
        "rotation": images turned by 36 s degrees. "label_shift": label (y + s) mod 10. "domain": the first
        data set for s < 5, the second from 5 on.
    samples_per_client : int or None
        Images of one client. Clients draw independently, so two may hold one image in two guises.
    """
    one_of("skew", skew, ("label_overlap", "rotation", "label_shift", "domain"))
    if skew == "domain":
        images, domains = _join(images, images[0].shape, each=5)
    elif skew == "label_overlap":
        domains = [_Domain(labels=tuple((s + j) % 10 for j in range(5))) for s in range(10)]
    else:
        domains = [_Domain(36 * s) if skew == "rotation" else _shift(images, s) for s in range(10)]
    share = Share(clients=10, samples_per_client=samples_per_client, **vars(common))
    return _clustered(images, domains, share)


@_builder(Common, "all")
def mixed(
    images: Images,
    common: Common,
    *,
    clients: int,
    samples_per_client: int,
    degrees: Sequence[float] = (0, 90, 180, 270),
    alpha: float = 1.0,
) -> Federation:
    """Several domains on every client (FedCG's setting): rotations in shares from Dir(alpha, ..., alpha).

    The ``tag`` of each training and test image is its rotation; clients have no true cluster.
    """
    positive("alpha", alpha)
    positive("clients", clients)
    atlas, rows = _Atlas(images, [_Domain(d) for d in degrees]), _rows(images, common)
    strata = [atlas.stock(d, rows) for d in range(len(degrees))]
    law = laws(alpha, "per_class", len(degrees), clients, common.seed)
    return _unclustered(atlas, deal(strata, law, samples_per_client, False, common.seed), common)


@_builder(Common, "all", "own")
def pathological_n(images: Images, common: Common, *, clients: int, labels_per_client: int) -> Federation:
    """Label skew: `labels_per_client` labels on each client (LCFed), by :func:`~cflkit.data.partition.few_labels`.

    LCFed's split is ``clients=100, pooled=True, test="own", test_fraction=0.25``.
    """
    labels, ok = images.classes, 1 <= labels_per_client <= images.classes
    require(ok, "labels_per_client", labels_per_client, f"in 1..{labels}")
    ok = clients * labels_per_client >= labels
    require(ok, "clients", clients, f"at least {labels} / labels_per_client, for each label to have a holder")
    atlas = _Atlas(images, [_Domain()])
    strata = atlas.by_label(0, _rows(images, common))
    return _unclustered(atlas, few_labels(strata, clients, labels_per_client, common.seed), common)


@_builder(Common, "all", "own")
def dirichlet(
    images: Images,
    common: Common,
    *,
    clients: int,
    alpha: float,
    convention: str = "per_client",
    samples_per_client: int | None = None,
    min_samples: int = 10,
) -> Federation:
    """Label skew without clusters, by a Dirichlet law.

    LCFed's split is ``clients=100, alpha=0.1, pooled=True, test="own", test_fraction=0.25``.

    Parameters
    ----------
    images : Images
        What to divide.
    clients : int
        Between how many.
    alpha : float
        Concentration: small is skewed.
    convention : str
        What `alpha` counts. "per_client": every label's images, all of them, are divided between the clients
        in shares from Dir(alpha, ..., alpha); sizes are ragged (the usual split). "total", "per_class": each
        client has a label law and `samples_per_client` images from it, as in :class:`Share`.
    samples_per_client : int, optional
        For "total" and "per_class"; clients hold disjoint images.
    min_samples : int
        For "per_client": all shares are drawn anew until every client has this many, 1,000 times at most.
    """
    positive("alpha", alpha)
    positive("clients", clients)
    one_of("convention", convention, ("per_client", "total", "per_class"))
    whole, size = convention == "per_client", samples_per_client
    require(whole == (size is None), "samples_per_client", size, "given, unless convention is 'per_client'")
    atlas = _Atlas(images, [_Domain()])
    strata = atlas.by_label(0, _rows(images, common))
    if whole:
        return _unclustered(atlas, divide(strata, clients, alpha, min_samples, common.seed), common)
    law = laws(alpha, convention, len(strata), clients, common.seed)
    return _unclustered(atlas, deal(strata, law, size, False, common.seed), common)


@_builder(Common, "given", "own", "users")
def by_user(
    images: Images,
    common: Common,
    *,
    users: int | Sequence[int] | None = None,
    min_samples: int = 1,
    test_users: int = 0,
    attributes: Sequence[int] = (),
) -> Federation:
    """One client per writer or person.

    Parameters
    ----------
    images : Images
        With `user`. Clients are tested on their user's own test images ("given"), on `test_fraction` of their
        user's images ("own"), or all on the images of other users ("users").
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
    require(images.user is not None, "images", images.name, "a data set that knows the user of each image")
    ok = (test_users > 0) == (common.test == "users")
    require(ok, "test_users", test_users, "above 0 if test is 'users', else 0")
    user, train = images.user.numpy(), images.train.numpy()
    known, sizes = np.unique(user, return_counts=True)
    known, named = known[sizes >= min_samples], np.array(users if np.ndim(users) else [], int)
    wrong = np.setdiff1d(named, known)[:1].tolist()
    require(not wrong, "users", wrong, f"users of {images.name} with {min_samples} images or more")
    order = generator(common.seed, "users").permutation(np.setdiff1d(known, named))
    others, rest = order[:test_users], order[test_users:]
    room = len(order) - (named.size == 0)
    require(test_users <= room, "test_users", test_users, f"at most {room} of {len(known)} users")
    if users is None:
        chosen = np.sort(rest)
    elif named.size:
        chosen = named
    else:
        require(0 < users <= len(rest), "users", users, f"in 1..{len(rest)}")
        chosen = rest[:users]
    tag = None
    if len(attributes):
        require("attributes" in images.extra, "images", images.name, "a data set with attributes")
        bits = images.extra["attributes"].numpy()[:, list(attributes)] > 0
        tag = bits @ (1 << np.arange(len(attributes))[::-1])
    atlas, sets = _Atlas(images, [_Domain()], tag), [np.flatnonzero(user == one) for one in chosen]
    if common.test == "own":
        return _unclustered(atlas, sets, common)
    if common.test == "users":
        tests = [np.flatnonzero(np.isin(user, others))]
        return _federation(atlas, common, sets, tests, np.zeros(len(sets), int))
    for one, rows in zip(chosen, sets, strict=True):
        ok = 0 < train[rows].sum() < len(rows)
        require(ok, "test", "given", f"'own' or 'users', as user {one} lacks training or test images")
    tests = [rows[~train[rows]] for rows in sets]
    return _federation(atlas, common, [rows[train[rows]] for rows in sets], tests, np.arange(len(sets)))
