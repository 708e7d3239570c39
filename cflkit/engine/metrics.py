"""What is measured: accuracy on both axes, spread over clients and seeds, and agreement of clusterings.

Every test set is scored once, as a confusion matrix of counts (rows the true class, columns the predicted
one); accuracy on the balanced test of the true cluster, accuracy under a client's own label mix and macro-F1
all follow from it. Scalars come back as plain Python numbers, so that they print and serialise alike
everywhere.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from cflkit.checks import require


def accuracy(confusion: ArrayLike) -> float | np.ndarray:
    r"""Share of images predicted right, :math:`\sum_c n_{cc} / \sum_{ab} n_{ab}`.

    Parameters
    ----------
    confusion : array_like, shape (..., C, C)
        Counts; rows are true classes, columns predictions.

    Returns
    -------
    float or ndarray, shape (...)
        In [0, 1]; NaN for an empty test set. It is also the micro-F1.
    """
    n = _confusion(confusion)
    return _ratio(np.trace(n, axis1=-2, axis2=-1), n.sum((-2, -1)))


def accuracy_under(confusion: ArrayLike, label_mix: ArrayLike) -> float | np.ndarray:
    r"""Accuracy the model would have on images labelled as the client's own are.

    The recalls of a (balanced) test set, weighed by the client's label mix:
    :math:`\sum_c p(c)\, n_{cc}/n_{c\cdot} \,/\, \sum_c p(c)`, both sums over the classes the test set holds.
    The second evaluation axis beside the plain :func:`accuracy`: conclusions can flip between the two.

    Parameters
    ----------
    confusion : array_like, shape (..., C, C)
        Counts; rows are true classes, columns predictions.
    label_mix : array_like, shape (..., C)
        Label counts or shares of each client; the leading axes broadcast against those of `confusion`.

    Returns
    -------
    float or ndarray, shape (...)
        In [0, 1]; NaN where no class of the mix occurs in the test set.
    """
    n, p = _confusion(confusion), np.asarray(label_mix, dtype=float)
    require(p.ndim > 0 and p.shape[-1] == n.shape[-1], "label_mix.shape", p.shape, f"(..., {n.shape[-1]})")
    require(bool((p >= 0).all()), "label_mix", label_mix, "counts or shares, none below 0")
    tested = n.sum(-1)
    recall = np.nan_to_num(_ratio(np.diagonal(n, axis1=-2, axis2=-1), tested))
    p = p * (tested > 0)
    return _ratio((p * recall).sum(-1), p.sum(-1))


def macro_f1(confusion: ArrayLike) -> float | np.ndarray:
    r"""Mean over classes of :math:`F_1 = 2 n_{cc} / (n_{c\cdot} + n_{\cdot c})` (FeSEM's F1).

    The mean runs over the classes that occur among the labels or the predictions; a class in neither has no
    :math:`F_1`.

    Parameters
    ----------
    confusion : array_like, shape (..., C, C)
        Counts; rows are true classes, columns predictions.

    Returns
    -------
    float or ndarray, shape (...)
        In [0, 1]; NaN for an empty test set.
    """
    n = _confusion(confusion)
    seen = n.sum(-1) + n.sum(-2)
    f1 = np.nan_to_num(_ratio(2 * np.diagonal(n, axis1=-2, axis2=-1), seen))
    return _ratio(f1.sum(-1), (seen > 0).sum(-1))


def summary(per_client: ArrayLike, weights: ArrayLike | None = None) -> dict[str, float]:
    """Mean, spread and worst tenth of a score over clients.

    Parameters
    ----------
    per_client : array_like, shape (N,)
        One score per client; clients without one (NaN: no test images) are left out.
    weights : array_like, shape (N,), optional
        Sizes of the clients.

    Returns
    -------
    dict
        ``mean`` (FeSEM's macro); ``std`` with ddof 0, for these clients are all that there are (over seeds see
        :func:`spread`); ``worst10``, the mean of the lowest tenth, rounded up to whole clients; and, if `weights`
        are given, ``micro``, the mean weighed by them. All NaN if no client has a score.
    """
    scores = np.asarray(per_client, dtype=float)
    require(scores.ndim == 1, "per_client.shape", scores.shape, "(N,)")
    known = ~np.isnan(scores)
    values = np.sort(scores[known]) if known.any() else np.array([math.nan])
    worst = values[: math.ceil(len(values) / 10)]
    result = {"mean": float(values.mean()), "std": float(values.std()), "worst10": float(worst.mean())}
    if weights is not None:
        w = np.asarray(weights, dtype=float)
        require(w.shape == scores.shape, "weights.shape", w.shape, f"{scores.shape}, one per client")
        require(bool((w >= 0).all()), "weights", weights, "sizes, none below 0")
        result["micro"] = _ratio(w[known] @ scores[known], w[known].sum())
    return result


def ari(assign: ArrayLike, truth: ArrayLike) -> float:
    r"""Adjusted Rand index of the found clusters against the true ones.

    .. math::

       \mathrm{ARI} = \frac{\sum_{ab}\binom{n_{ab}}2 - E}
                           {\frac12\bigl(\sum_a\binom{n_a}2 + \sum_b\binom{n_b}2\bigr) - E},
       \qquad E = \sum_a\binom{n_a}2 \sum_b\binom{n_b}2 \Big/ \binom N2 .

    1 for the same partition under any names, about 0 for a random one, and exactly 0 for a single non-empty
    cluster against several true ones.

    Parameters
    ----------
    assign, truth : array_like of int, shape (N,)
        Cluster of each client; -1 where it is not known yet. Only clients known in both count.

    Returns
    -------
    float
        In [-0.5, 1]; NaN if fewer than two clients are known.
    """
    a, b = _known(assign, truth)
    from sklearn.metrics import adjusted_rand_score  # takes as long to import as PyTorch

    return float(adjusted_rand_score(b, a)) if len(a) > 1 else math.nan


def nmi(assign: ArrayLike, truth: ArrayLike) -> float:
    r"""Normalised mutual information :math:`2 I(a; b) / (H(a) + H(b))` of two clusterings.

    Parameters
    ----------
    assign, truth : array_like of int, shape (N,)
        Cluster of each client; -1 where it is not known yet. Only clients known in both count.

    Returns
    -------
    float
        In [0, 1]; NaN if fewer than two clients are known. Unlike :func:`ari` it is not corrected for chance:
        many small clusters score well above 0.
    """
    a, b = _known(assign, truth)
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(b, a)) if len(a) > 1 else math.nan


def moved(before: ArrayLike, after: ArrayLike) -> int:
    """Number of clients whose cluster changed, whatever the clusters are called.

    Old and new clusters are first matched one to one so that as many clients as possible stay, so renaming
    moves nobody; when two clusters merge, the members of the smaller one have moved.

    Parameters
    ----------
    before, after : array_like of int, shape (N,)
        Cluster of each client, -1 where it has none; only clients assigned in both count.

    Returns
    -------
    int
        Between 0 (the same partition) and N.
    """
    a, b = _known(before, after)
    if not len(a):
        return 0
    from scipy.optimize import linear_sum_assignment  # half a second, too
    from sklearn.metrics.cluster import contingency_matrix

    shared = contingency_matrix(a, b)
    return int(len(a) - shared[linear_sum_assignment(shared, maximize=True)].sum())


def cluster_sizes(assign: ArrayLike) -> list[int]:
    """Sizes of the non-empty clusters, largest first.

    Parameters
    ----------
    assign : array_like of int, shape (N,)
        Cluster of each client; clients at -1 are in none.
    """
    a = np.asarray(assign)
    return sorted(np.unique(a[a >= 0], return_counts=True)[1].tolist(), reverse=True)


def entropy(counts: ArrayLike) -> float:
    r"""Entropy :math:`-\sum_d p_d \ln p_d` of a split into domains or clusters, in nats.

    Its exponential is the effective number of domains in use: 1 where everything falls into one, as with
    FedCG's collapsed teacher, and D where all D are used alike.

    Parameters
    ----------
    counts : array_like, shape (D,)
        Images or clients in each part; empty parts add nothing. NaN if all are empty.
    """
    p = _shares(counts)
    p = p[p != 0]
    return float(-(p * np.log(p)).sum() + 0.0)


def largest_share(counts: ArrayLike) -> float:
    """Share of the largest part, ``max(counts) / sum(counts)``: near 1 is a collapse.

    Parameters
    ----------
    counts : array_like, shape (D,)
        Images or clients in each part. NaN if all are empty.
    """
    return float(_shares(counts).max())


def spread(values: ArrayLike) -> dict[str, float]:
    """Mean and sample standard deviation (ddof 1) over seeds.

    Parameters
    ----------
    values : array_like, shape (S,)
        One value per seed.

    Returns
    -------
    dict
        ``mean``, ``std`` (NaN with a single seed, whose spread nobody knows) and ``n``.
    """
    v = np.asarray(values, dtype=float)
    require(v.ndim == 1 and len(v) > 0, "values.shape", v.shape, "(S,) with at least one seed")
    return {"mean": float(v.mean()), "std": float(v.std(ddof=1)) if len(v) > 1 else math.nan, "n": len(v)}


def paired_difference(a: ArrayLike, b: ArrayLike) -> dict[str, float]:
    r"""Mean of `a - b` paired over seeds, with its 95% interval.

    With differences :math:`\delta_s`, mean :math:`\bar\delta` and standard deviation :math:`\sigma` (ddof 1):
    :math:`\bar\delta \pm t_{0.975,\,S-1}\, \sigma/\sqrt S`. Two methods of one seed see the same federation
    and the same sampled clients, so their common noise cancels.

    Parameters
    ----------
    a, b : array_like, shape (S,)
        One value per seed, in the same order of seeds.

    Returns
    -------
    dict
        ``mean``, ``low``, ``high`` (both NaN with a single seed) and ``n``.
    """
    x, y = np.asarray(a, dtype=float), np.asarray(b)
    require(x.shape == y.shape, "b.shape", y.shape, f"{x.shape}, the same seeds as a")
    over = spread(x - y)
    half = float(special.stdtrit(over["n"] - 1, 0.975)) * over["std"] / math.sqrt(over["n"])
    return {"mean": over["mean"], "low": over["mean"] - half, "high": over["mean"] + half, "n": over["n"]}


def _confusion(confusion: ArrayLike) -> np.ndarray:
    """Check counts of shape (..., C, C) and return them as floats."""
    n = np.asarray(confusion, dtype=float)
    require(n.ndim >= 2 and n.shape[-1] == n.shape[-2], "confusion.shape", n.shape, "(..., C, C)")
    require(bool((n >= 0).all()), "confusion", confusion, "counts, none below 0")
    return n


def _known(a: ArrayLike, b: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return two assignments over the clients that both of them know."""
    a, b = np.asarray(a), np.asarray(b)
    require(a.ndim == 1 and a.shape == b.shape, "shapes", (a.shape, b.shape), "(N,) for both")
    both = (a >= 0) & (b >= 0)
    return a[both], b[both]


def _shares(counts: ArrayLike) -> np.ndarray:
    """Return counts (D,) as shares that sum to 1, NaN if all are 0."""
    n = np.asarray(counts, dtype=float)
    require(n.ndim == 1 and len(n) > 0, "counts.shape", n.shape, "(D,) with at least one part")
    require(bool((n >= 0).all()), "counts", counts, "counts, none below 0")
    return _ratio(n, n.sum())


@np.errstate(invalid="ignore")
def _ratio(top: ArrayLike, bottom: ArrayLike) -> float | np.ndarray:
    """Divide, with a silent NaN for 0 / 0; of two numbers as a Python float."""
    ratio = np.divide(top, bottom)
    return float(ratio) if ratio.ndim == 0 else ratio
