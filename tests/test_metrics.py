import math
import warnings
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cflkit import metrics

CONFUSION = np.array([[8, 2, 0], [1, 3, 0], [0, 0, 0]])  # class 2 neither occurs nor is predicted

confusions = arrays(np.int64, st.tuples(st.just(4), st.just(4)), elements=st.integers(0, 20))
assignments = st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 4)), min_size=1, max_size=40)


def test_accuracy_by_hand():
    assert metrics.accuracy(CONFUSION) == 11 / 14
    np.testing.assert_array_equal(metrics.accuracy([CONFUSION, np.eye(3)]), [11 / 14, 1.0])


def test_accuracy_under_weighs_recall_by_the_clients_labels():
    # recalls 0.8 and 0.75
    assert metrics.accuracy_under(CONFUSION, [1, 3, 0]) == pytest.approx((0.8 + 3 * 0.75) / 4)
    # the untested class 2 is renormalised away, whatever its share
    assert metrics.accuracy_under(CONFUSION, [1, 3, 6]) == pytest.approx((0.8 + 3 * 0.75) / 4)
    assert math.isnan(metrics.accuracy_under(CONFUSION, [0, 0, 1]))
    assert metrics.accuracy_under([[1, 0], [1, 3]], [1, 1]) == (1 + 0.75) / 2  # one image is a test


def test_leading_axes_are_kept_apart():
    """Two methods, five clients, three classes: every score is that of its own matrix and mix."""
    n = np.random.default_rng(0).integers(0, 9, (2, 5, 3, 3))
    mix = np.random.default_rng(1).integers(1, 9, (5, 3))
    n[0, 1, 2] = 0  # a class without test images
    for score in (metrics.accuracy, metrics.macro_f1):
        np.testing.assert_array_equal(score(n), [[score(one) for one in half] for half in n])
    alone = [[metrics.accuracy_under(one, p) for one, p in zip(half, mix, strict=True)] for half in n]
    np.testing.assert_allclose(metrics.accuracy_under(n, mix), alone, rtol=1e-15)


def test_the_type_of_the_numbers_does_not_matter():
    """Small integers neither wrap around nor overflow; single precision is not summed as such."""
    byte, single = np.uint8, np.float32
    assert metrics.macro_f1(np.array([[200, 0], [0, 200]], byte)) == 1
    assert metrics.paired_difference(np.array([1], byte), np.array([2], byte))["mean"] == -1
    rough = np.array([0.1, 0.3, 0.7, 0.2], single)
    exact = rough.astype(float)
    for score in (
        metrics.spread, metrics.summary, metrics.entropy, metrics.largest_share,
        lambda x: metrics.summary(exact, x), lambda x: metrics.accuracy_under(np.eye(4) + 1, x),
    ):  # fmt: skip
        assert score(rough) == score(exact)


def test_nothing_to_divide_by_is_nan_without_a_word():
    empty = np.zeros((2, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [
            metrics.accuracy(empty), metrics.accuracy_under(empty, [1, 1]), metrics.macro_f1(empty),
            metrics.summary([0.5], [0])["micro"], metrics.spread([4.0])["std"], metrics.entropy([0, 0]),
            metrics.largest_share([0, 0]),
        ]  # fmt: skip
    assert all(math.isnan(value) for value in found)


@given(confusions)
def test_accuracy_under_the_tests_own_mix_is_accuracy(n):
    np.testing.assert_allclose(metrics.accuracy_under(n, n.sum(1)), metrics.accuracy(n))


def test_macro_f1_by_hand():
    # class 0: 2*8/(10+9); class 1: 2*3/(4+5); class 2 left out
    assert metrics.macro_f1(CONFUSION) == pytest.approx((16 / 19 + 6 / 9) / 2)
    # a class that is only ever predicted counts, with F1 = 0
    assert metrics.macro_f1([[3, 1], [0, 0]]) == pytest.approx((6 / 7 + 0) / 2)


@given(confusions)
def test_macro_f1_equals_scikit_learns(n):
    from sklearn.metrics import f1_score

    assume(n.sum() > 0)
    true, predicted = np.indices(n.shape).reshape(2, -1)
    expected = f1_score(np.repeat(true, n.ravel()), np.repeat(predicted, n.ravel()), average="macro")
    assert metrics.macro_f1(n) == pytest.approx(expected)
    assert 0 <= metrics.macro_f1(n) <= 1


def test_summary_by_hand():
    assert metrics.summary([0.0, 1.0]) == {"mean": 0.5, "std": 0.5, "worst10": 0.0}
    got = metrics.summary([0.2, 0.8, math.nan], weights=[30, 10, 99])
    assert got == pytest.approx({"mean": 0.5, "std": 0.3, "worst10": 0.2, "micro": 0.35})
    assert metrics.summary([0.2, 0.8], weights=[0.25, 0])["micro"] == 0.2  # shares, and clients of no weight


@pytest.mark.parametrize(("clients", "worst"), [(1, 1), (10, 1), (11, 2), (30, 3), (48, 5)])
def test_worst_tenth_is_rounded_up(clients, worst):
    assert metrics.summary(np.arange(clients)[::-1])["worst10"] == (worst - 1) / 2


def ari_as_printed(a, b):
    """The formula, by counting pairs of clients."""
    pairs = list(combinations(range(len(a)), 2))
    together_a, together_b = ({p for p in pairs if x[p[0]] == x[p[1]]} for x in (a, b))
    chance = len(together_a) * len(together_b) / len(pairs)
    top = len(together_a & together_b) - chance
    bottom = (len(together_a) + len(together_b)) / 2 - chance
    return top / bottom if bottom else 1.0


def test_ari_by_hand():
    # n_ab = [[2, 1], [0, 3]]: sum C(n_ab,2) = 1+3 = 4, rows 3+3 = 6, columns 1+6 = 7, E = 42/15 = 2.8
    assert metrics.ari([0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]) == pytest.approx((4 - 2.8) / (6.5 - 2.8))
    assert metrics.ari([0, 0, 0, 0], [0, 0, 1, 1]) == 0  # one non-empty cluster
    assert metrics.ari([7, 7, 3, 3], [0, 0, 1, 1]) == 1
    # three clusters for four sources, as IFCA ends on the digits: ARI 0.70
    truth = np.repeat([0, 1, 2, 3], 12)
    assert round(metrics.ari(np.repeat([0, 0, 1, 2], 12), truth), 2) == 0.70


@pytest.mark.parametrize("score", [metrics.ari, metrics.nmi])
def test_unknown_clients_do_not_count(score):
    assert score([0, 0, 1, 1, -1, -1, 0], [5, 5, 6, 6, 5, 6, -1]) == 1
    assert math.isnan(score([0, -1, -1], [0, 0, 1]))
    assert math.isnan(score([], []))


@given(assignments)
def test_ari_equals_the_printed_formula(pairs):
    a, b = np.array(pairs).T
    known = (a >= 0) & (b >= 0)
    assume(known.sum() > 1)
    assert metrics.ari(a, b) == pytest.approx(ari_as_printed(a[known], b[known]))


def test_nmi_by_hand():
    assert metrics.nmi([0, 0, 1, 1], [1, 1, 0, 0]) == pytest.approx(1)
    assert metrics.nmi([0, 1, 0, 1], [0, 0, 1, 1]) == pytest.approx(0)
    # four singletons for two pairs: I = ln 2, H = 2 ln 2 and ln 2
    assert metrics.nmi([0, 1, 2, 3], [0, 0, 1, 1]) == pytest.approx(2 / 3)


@given(assignments, st.permutations(range(5)))
def test_names_of_clusters_do_not_matter(pairs, names):
    a, b = np.array(pairs).T
    renamed = np.append(names, -1)[a]
    assert metrics.moved(a, renamed) == 0
    assert metrics.moved(b, a) == metrics.moved(b, renamed)
    for score in (metrics.ari, metrics.nmi):
        assert score(a, b) == pytest.approx(score(renamed, b), nan_ok=True)
    assert metrics.cluster_sizes(a) == metrics.cluster_sizes(renamed)


def test_moved_by_hand():
    assert metrics.moved([0, 0, 1, 1, 2], [2, 2, 0, 1, 1]) == 1  # 0->2, 1->0, 2->1; the fourth client moved
    assert metrics.moved([0, 0, 0, 1, 1], [0, 0, 0, 0, 0]) == 2  # a merger moves the smaller cluster
    assert metrics.moved([0, 0, 0, 0], [0, 1, 2, 3]) == 3
    assert metrics.moved([-1, 0, 0, 1], [1, 0, 0, -1]) == 0
    assert metrics.moved([-1], [0]) == 0


def test_cluster_sizes():
    assert metrics.cluster_sizes([3, -1, 0, 3, 3, 0, 9]) == [3, 2, 1]
    assert metrics.cluster_sizes([-1, -1]) == []


def test_domains_in_use():
    assert metrics.entropy([5, 5, 5, 5]) == pytest.approx(math.log(4))
    assert metrics.entropy([9, 0, 0]) == 0 and math.copysign(1, metrics.entropy([9, 0, 0])) == 1
    assert metrics.largest_share([1, 99]) == 0.99 and metrics.entropy([5]) == 0


def test_spread_is_over_a_sample():
    assert metrics.spread([1.0, 3.0]) == {"mean": 2.0, "std": pytest.approx(math.sqrt(2)), "n": 2}


def test_paired_difference_by_hand():
    # differences 1, 2, 3: mean 2, std 1, t(0.975, 2) = 4.302653
    got = metrics.paired_difference([11, 22, 33], [10, 20, 30])
    half = 4.302652729911275 / math.sqrt(3)
    assert got == pytest.approx({"mean": 2, "low": 2 - half, "high": 2 + half, "n": 3})
    one = metrics.paired_difference([2.0], [1.5])
    assert one["mean"] == 0.5 and math.isnan(one["low"]) and math.isnan(one["high"])


@pytest.mark.parametrize(("call", "message"), [
    (lambda: metrics.accuracy([1, 2]), r"confusion.shape = \(2,\): must be \(\.\.\., C, C\)"),
    (lambda: metrics.accuracy([[1, 2]]), r"confusion.shape = \(1, 2\)"),
    (lambda: metrics.accuracy(np.ones((2, 3, 4))), r"confusion.shape = \(2, 3, 4\)"),
    (lambda: metrics.macro_f1([[1, -1], [0, 0]]), "confusion = .*none below 0"),
    (lambda: metrics.accuracy_under(CONFUSION, [1, 2]), r"label_mix.shape = \(2,\)"),
    (lambda: metrics.accuracy_under(CONFUSION, 3), r"label_mix.shape = \(\)"),
    (lambda: metrics.accuracy_under(CONFUSION, [1, -1, 3]), "label_mix = .*none below 0"),
    (lambda: metrics.summary([[1.0]]), r"per_client.shape"),
    (lambda: metrics.summary([1.0], [1, 2]), r"weights.shape"),
    (lambda: metrics.summary([1.0, 2.0], [1, -1]), "weights = .*none below 0"),
    (lambda: metrics.ari([0, 1], [0]), r"shapes"), (lambda: metrics.nmi([[0, 1]], [[0, 1]]), r"shapes"),
    (lambda: metrics.entropy([]), r"counts.shape = \(0,\)"),
    (lambda: metrics.largest_share([[1, 2]]), r"counts.shape = \(1, 2\)"),
    (lambda: metrics.entropy([1, -1]), "counts = .*none below 0"),
    (lambda: metrics.paired_difference([1, 2], [1]), r"b.shape"), (lambda: metrics.spread([]), r"values.shape"),
    (lambda: metrics.spread([[1.0, 2.0]]), r"values.shape"),
])  # fmt: skip
def test_bad_input_says_what_is_allowed(call, message):
    with pytest.raises(ValueError, match=message):
        call()
