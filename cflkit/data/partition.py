"""Dealing images out to clients: disjoint parts, independent draws, Dirichlet laws, held-out shares.

Images are integers here, and a *stratum* is those of one label (or of one domain) that may be dealt. Every
draw has a generator of its own, keyed by what it is for, so that one client's do not depend on another's.
"""

from collections.abc import Sequence

import numpy as np

from cflkit.checks import require
from cflkit.rng import generator

Ids = np.ndarray


def hold_out(ids: Ids, share: float, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """Split off a random `share` of the distinct `ids`, at least one, with their copies: (kept, held)."""
    distinct = np.unique(ids)
    held = np.isin(ids, rng.choice(distinct, max(1, round(share * len(distinct))), replace=False))
    return ids[~held], ids[held]


def hold_out_each(sets: Sequence[Ids], share: float, seed: int, purpose: str) -> tuple[list[Ids], list[Ids]]:
    """Return what every client keeps, and what is held out of it."""
    split = [hold_out(ids, share, generator(seed, purpose, i)) for i, ids in enumerate(sets)]
    for i, (kept, held) in enumerate(split):
        require(len(kept) > 0, f"images of client {i}", len(held), "2 or more: at least one is held out")
    return [kept for kept, _ in split], [held for _, held in split]


def cut(ids: Ids, m: int, size: int | None, seed: int, *key: int | str) -> list[Ids]:
    """Shuffle, then cut `m` disjoint parts: of `size` each, or (None) everything as evenly as possible."""
    _enough(len(ids), m, size)
    order = generator(seed, *key).permutation(ids)
    return np.array_split(order if size is None else order[: m * size], m)


def _enough(total: int, m: int, size: int | None) -> None:
    name, value, most = ("clients", m, total) if size is None else ("samples_per_client", size, total // m)
    require(value <= most, name, value, f"at most {most}, as {m} clients share {total} images")


def laws(alpha: float, convention: str, k: int, m: int, seed: int, *key: int | str) -> list[np.ndarray]:
    """Draw `m` laws over `k` strata, from Dir(alpha / k) ("total") or Dir(alpha) ("per_class")."""
    weights = np.full(k, alpha / k if convention == "total" else alpha)
    return [generator(seed, *key, "law", i).dirichlet(weights) for i in range(m)]


def deal(
    strata: Sequence[Ids], laws: Sequence[np.ndarray], size: int, overlap: bool, seed: int, *key: int | str
) -> list[Ids]:
    """Give each client `size` images, their numbers per stratum multinomial in its law.

    Parameters
    ----------
    strata : sequence of (n_s,) int arrays
        What there is.
    laws : sequence of (strata,) float arrays
        One per client.
    size : int
        Images per client.
    overlap : bool
        False: clients hold disjoint images, served in order; where a stratum runs out, the rest is drawn from
        the others by the same law. True: every client draws from everything, without replacement unless it
        wants more than a stratum has (then all of it, again and again).
    seed, *key
        Key of the draws.
    """
    stock = np.array([len(ids) for ids in strata])
    _enough(size if overlap and stock.any() else stock.sum(), 1 if overlap else len(laws), size)
    queues = [generator(seed, *key, "queue", s).permutation(ids) for s, ids in enumerate(strata)]
    used, sets = np.zeros_like(stock), []
    for i, law in enumerate(laws):
        rng = generator(seed, *key, "client", i)
        most = np.where(stock > 0, size, 0) if overlap else stock - used
        take = np.zeros_like(stock)
        while short := size - take.sum():  # more than one pass only where a stratum runs out
            wanted = np.where(most > take, law, 0.0)
            wanted = wanted if wanted.sum() > 0 else most - take
            take = np.minimum(take + rng.multinomial(short, wanted / wanted.sum()), most)
        if overlap:
            parts = [np.resize(rng.permutation(ids), t) for ids, t in zip(strata, take, strict=True) if t]
        else:
            parts = [queue[u : u + t] for queue, u, t in zip(queues, used, take, strict=True)]
            used += take
        sets.append(np.concatenate(parts))
    return sets


def divide(strata: Sequence[Ids], m: int, alpha: float, least: int, seed: int) -> list[Ids]:
    """Divide all strata between `m` clients in shares from Dir(alpha); each gets `least` images or more."""
    for attempt in range(1000):
        shares = generator(seed, "shares", attempt).dirichlet(np.full(m, alpha), len(strata))
        cuts = [(np.cumsum(p)[:-1] * len(ids)).astype(int) for p, ids in zip(shares, strata, strict=True)]
        sizes = [np.diff(c, prepend=0, append=len(ids)) for c, ids in zip(cuts, strata, strict=True)]
        if np.sum(sizes, 0).min() >= least:
            orders = [generator(seed, "order", s).permutation(ids) for s, ids in enumerate(strata)]
            parts = [np.split(order, c) for order, c in zip(orders, cuts, strict=True)]
            return [np.concatenate(client) for client in zip(*parts, strict=True)]
    raise ValueError(f"min_samples = {least!r}: must be less, or alpha above {alpha}, or clients below {m}: "
                     "none of 1,000 draws gave every client that many")


def few_labels(strata: Sequence[Ids], m: int, labels: int, seed: int) -> list[Ids]:
    """Give each of `m` clients `labels` strata, and cut every stratum evenly between those who have it.

    Client after client takes the strata with the fewest holders so far, ties broken at random, so that the
    numbers of holders differ by one at most.
    """
    holds = np.zeros((m, len(strata)), bool)
    for i in range(m):
        tie = generator(seed, "labels", i).random(len(strata))
        holds[i, np.lexsort((tie, holds.sum(0)))[:labels]] = True
    parts = [[] for _ in range(m)]
    for s, ids in enumerate(strata):
        holders = np.flatnonzero(holds[:, s])
        for i, part in zip(holders, cut(ids, len(holders), None, seed, "order", s), strict=True):
            parts[i].append(part)
    return [np.concatenate(part) for part in parts]
