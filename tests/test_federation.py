import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import refused

from cflkit import federation, images
from cflkit.data import partition
from cflkit.data.builders import build
from cflkit.data.domains import Atlas
from cflkit.data.federation import Federation, Samples
from cflkit.data.images import Images


def numbered(n=40, classes=4):
    """Images 2 x 2 whose brightest pixel tells their row; every fifth is a test image; labels cycle."""
    row = torch.arange(n)
    x = torch.stack([row + 10, row * 0 + 1, row * 0 + 2, row * 0 + 3], 1).to(torch.uint8).view(n, 1, 2, 2)
    return Images("numbered", x, row % classes, row % 5 != 4, classes)


def held(samples, i):
    """Rows of `numbered` in set i."""
    index, _ = samples.rows(i)
    return (samples.pool[index].flatten(1).max(1).values.long() - 10).tolist()


def same(a: Federation, b: Federation):
    for part in ("train", "test", "validation"):
        x, y = getattr(a, part), getattr(b, part)
        assert (x is None) == (y is None)
        for name in ("pool", "index", "y", "offset", "tag") if x is not None else ():
            u, v = getattr(x, name), getattr(y, name)
            assert (u is None) == (v is None) and (u is None or torch.equal(u, v)), (part, name)
    assert torch.equal(a.test_of, b.test_of)
    assert (a.cluster is None) == (b.cluster is None) and (a.cluster is None or torch.equal(a.cluster, b.cluster))
    assert (a.name, a.classes, a.scale, a.mean, a.std) == (b.name, b.classes, b.scale, b.mean, b.std)
    assert a.config == b.config


# Samples and Federation


def samples(index=(0, 1, 2), y=(0, 1, 0), offset=(0, 2, 3)):
    return Samples(torch.zeros(3, 1, 2, 2, dtype=torch.uint8), *map(torch.tensor, (index, y, offset)))


def test_samples_by_hand():
    s = samples(index=(2, 0, 2))
    assert len(s) == 2 and s.sizes.tolist() == [2, 1]
    assert [t.tolist() for t in s.rows(0)] == [[2, 0], [0, 1]]
    assert [t.tolist() for t in s.rows(-1)] == [[2], [0]] and s.take([-1]).index.tolist() == [2]
    back = s.take([1, 0, 1])
    assert back.index.tolist() == [2, 2, 0, 2] and back.offset.tolist() == [0, 1, 3, 4]
    assert back.y.tolist() == [0, 0, 1, 0] and back.pool is s.pool
    assert s.domains is None and replace(s, tag=torch.tensor([0, 2, 1])).domains == 3


def test_label_counts_and_label_range():
    fed = Federation("x", samples(), samples(), torch.tensor([0, 1]), None, 2, 1.0, 0.0, 1.0, None, {})
    assert fed.label_counts().tolist() == [[1, 1], [1, 0]]
    assert fed.clients == 2 and fed.shape == (1, 2, 2)
    alone = samples(y=(0, 0, 0))
    assert Federation("x", alone, alone, torch.tensor([0, 1]), None, 1, 1.0, 0.0, 1.0, None, {}).classes == 1


def test_subset_keeps_order_needed_tests_and_rebuilds(digits):
    fed = federation.rotated(digits, clients=8, samples_per_client=20, validation_fraction=0.1)
    part = fed.subset([7, 2, 3])
    for new, old in enumerate([7, 2, 3]):
        assert torch.equal(part.train.rows(new)[0], fed.train.rows(old)[0])
        assert torch.equal(part.validation.rows(new)[0], fed.validation.rows(old)[0])
    assert part.cluster.tolist() == [3, 1, 1] and part.test_of.tolist() == [1, 0, 0]
    assert torch.equal(part.test.rows(1)[0], fed.test.rows(3)[0])
    assert part.config["subset"] == [[7, 8], [2, 4]]
    again = part.subset([2, 0])
    assert again.config["subset"] == [[3, 4], [7, 8]]
    same(again, build(json.loads(json.dumps(again.config))))


# Every builder


def every(digits):
    common = {"seed": 3}
    yield federation.rotated(digits, clients=8, samples_per_client=20, **common)
    yield federation.rotated(digits, clients=8, samples_per_client=20, alpha=3, overlap=True, std=0.5, **common)
    yield federation.rotated(digits, clients=[1, 2], degrees=(0, 30), test="own", validation_fraction=0.3)
    yield federation.shifted(digits, clients=8, test="all", **common)
    yield federation.swapped(digits, clients=8, samples_per_client=50, alpha=1, convention="per_class")
    yield federation.pathological(digits, clients=12, mean=(0.5,), **common)
    yield federation.hybrid([digits, digits], clients=4, **common)
    yield federation.multi_source([digits, digits], clients=4, samples_per_client=900, overlap=True)
    yield federation.mixed(digits, clients=5, samples_per_client=100, **common)
    yield federation.pathological_n(digits, clients=10, labels_per_client=3, pooled=True, test="own", **common)
    yield federation.dirichlet(digits, clients=10, alpha=0.5, **common)
    yield federation.dirichlet(digits, clients=10, alpha=3, convention="total", samples_per_client=40)
    yield federation.graded(digits, skew="rotation", samples_per_client=30, **common)
    yield federation.dosed(digits, shift="concept", strength=0.5, clients=8, samples_per_client=30, **common)


def test_config_rebuilds_every_federation(digits):
    feds = list(every(digits))
    assert {f.config["builder"] for f in feds} == set(federation.BUILDERS) - {"by_user"}
    for fed in feds:
        same(fed, build(json.loads(json.dumps(fed.config))))


def test_stored_records_describe_what_the_builders_would_say():
    """The hash of a record is over this configuration: an option more or less would orphan every record."""
    described = []
    for file in sorted((Path(__file__).parents[1] / "book/results").glob("*/*.json")):
        stored = json.loads(file.read_text()).get("config", {}).get("federation")
        if stored and stored not in described:
            described.append(stored)
    assert len(described) > 10
    for stored in described:
        # what is held out of a made federation is none of the builder's options
        stored = {name: value for name, value in stored.items() if name not in ("digest", "validating")}
        options = {name: value for name, value in stored.items() if name not in ("builder", "images")}
        builder = federation.BUILDERS[stored["builder"]](**options)
        assert builder.config(stored["images"]) == stored


def test_seed_changes_every_federation(digits):
    for fed in every(digits):
        other = build(fed.config | {"seed": 99})
        a, b = (f.train.pool[f.train.index].flatten() for f in (fed, other))
        assert len(a) != len(b) or not torch.equal(a, b), fed.config["builder"]


def test_no_test_or_validation_pixel_is_a_training_pixel():
    plain = numbered(100)
    for fed in (
        federation.shifted(plain, clients=8, test="own", validation_fraction=0.2),
        federation.rotated(plain, clients=8, test="own", alpha=3, samples_per_client=8, validation_fraction=0.2),
        federation.dirichlet(plain, clients=4, alpha=1, test="own", pooled=True, min_samples=5),
        federation.pathological(plain, groups=((0, 1), (2, 3)), clients=4, test="cluster"),
        federation.mixed(plain, clients=4, samples_per_client=20),
    ):
        pixels = {name: {row for i in range(len(s)) for row in held(s, i)}
                  for name in ("train", "test") if (s := getattr(fed, name)) is not None}
        assert not pixels["train"] & pixels["test"], fed.name
        if fed.validation is not None:
            mine = [set(held(fed.train, i)) & set(held(fed.validation, i)) for i in range(fed.clients)]
            assert not any(mine)
        assert fed.train.pool.data_ptr() != fed.test.pool.data_ptr()


# Clusters: hand-computed


def test_rotation_by_hand():
    x = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).view(1, 1, 2, 2).repeat(2, 1, 1, 1)
    one = Images("one", x, torch.zeros(2, dtype=torch.int64), torch.tensor([True, False]), 1)
    fed = federation.rotated(one, clients=4)
    seen = [fed.train.pool[fed.train.rows(i)[0]].flatten().tolist() for i in range(4)]
    assert seen == [[1, 2, 3, 4], [2, 4, 1, 3], [4, 3, 2, 1], [3, 1, 4, 2]]  # anticlockwise
    tested = [fed.test.pool[fed.test.rows(i)[0]].flatten().tolist() for i in range(4)]
    assert tested == seen
    flat = Images("flat", x[:, :, :1], one.y, one.train, 1)
    assert federation.rotated(flat, clients=2, degrees=(0, 180)).shape == (1, 1, 2)
    refused(".*degrees.*", federation.rotated, flat, clients=2, degrees=(0, 90))


def labels_of(fed, k):
    """Map old to new label in cluster k, from rows and labels of `numbered` (whose old label is row mod 4)."""
    _, y = fed.test.rows(k)
    return dict(sorted({(row % 4, new) for row, new in zip(held(fed.test, k), y.tolist(), strict=True)}))


def test_label_maps():
    fed = federation.shifted(numbered(40), shifts=(0, 3), clients=2)
    assert labels_of(fed, 0) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert labels_of(fed, 1) == {0: 3, 1: 0, 2: 1, 3: 2}
    assert torch.equal(fed.test.index[fed.test.offset[0]:fed.test.offset[1]],
                       fed.test.index[fed.test.offset[1]:fed.test.offset[2]])  # one copy of the pixels
    fed = federation.swapped(numbered(40), degrees=(0, 180), pairs=((0, 1), (2, 3)), clients=2)
    assert labels_of(fed, 0) == {0: 1, 1: 0, 2: 2, 3: 3}
    assert labels_of(fed, 1) == {0: 0, 1: 1, 2: 3, 3: 2}


def test_pathological_groups_and_crossing(digits):
    groups = ((0, 1, 2), (3, 4), (5, 6), (7, 8, 9))
    fed = federation.pathological(digits, clients=[1, 2, 3, 4])
    assert fed.cluster.tolist() == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    for i, k in enumerate(fed.cluster.tolist()):
        assert set(fed.label_counts()[i].nonzero().flatten().tolist()) == set(groups[k])
        assert set(fed.test.rows(k)[1].tolist()) == set(groups[k])
    assert len(fed.train.index) == int(digits.train.sum()) and len(fed.test.index) == int((~digits.train).sum())
    crossed = federation.rotated(digits, degrees=(0, 180), groups=groups, clients=16)
    for i, k in enumerate(crossed.cluster.tolist()):
        assert set(crossed.label_counts()[i].nonzero().flatten().tolist()) == set(groups[k % 4])
    whole = federation.pathological(digits, clients=4, test="all")
    assert len(whole.test) == 1 and whole.test_of.tolist() == [0] * 4
    assert len(whole.test.index) == int((~digits.train).sum())


# Dealing


strata_and_more = st.tuples(
    st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(any), st.integers(1, 6), st.integers(0, 5)
)


@given(strata_and_more, st.sampled_from([0.01, 0.3, 3.0]), st.booleans(), st.data())
@settings(max_examples=100)
def test_deal(case, alpha, overlap, data):
    lengths, m, seed = case
    bounds = np.cumsum([0, *lengths])
    strata = [np.arange(a, b) for a, b in pairwise(bounds)]
    most = 60 if overlap else sum(lengths) // m
    size = data.draw(st.integers(1, max(1, most)))
    laws = partition.laws(alpha, "per_class", len(strata), m, seed)
    if most < size:
        refused(".*samples_per_client.*", partition.deal, strata, laws, size, overlap, seed)
        return
    dealt = partition.deal(strata, laws, size, overlap, seed)
    assert [len(part) for part in dealt] == [size] * m
    if not overlap:
        assert len(np.unique(np.concatenate(dealt))) == m * size
        return
    for part in dealt:  # an image comes twice only where its stratum is exhausted
        for ids in strata:
            times = np.bincount(part, minlength=bounds[-1])[ids]
            assert not len(ids) or times.max() - times.min() <= 1
    alone = partition.deal(strata, laws[:1], size, overlap, seed)
    assert np.array_equal(alone[0], dealt[0])  # a client's draws do not depend on the others


@given(st.lists(st.integers(5, 60), min_size=2, max_size=5), st.integers(1, 6), st.integers(0, 9))
def test_divide_and_few_labels_lose_nothing(lengths, m, seed):
    bounds = np.cumsum([0, *lengths])
    strata = [np.arange(a, b) for a, b in pairwise(bounds)]
    divided = np.concatenate(partition.divide(strata, m, 1.0, 0, seed))
    assert np.array_equal(np.sort(divided), np.arange(bounds[-1]))
    k = min(len(strata), max(2, -(-len(strata) // m)))
    parts = partition.few_labels(strata, m, k, seed)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(bounds[-1]))
    holders = np.array([[np.isin(ids, part).any() for ids in strata] for part in parts])
    if min(lengths) >= m:
        assert (holders.sum(1) == k).all() and np.ptp(holders.sum(0)) <= 1


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.floats(0.01, 0.99), st.integers(0, 9))
def test_hold_out_keeps_copies_together(ids, share, seed):
    kept, out = partition.hold_out(np.array(ids), share, np.random.default_rng(seed))
    assert sorted([*kept, *out]) == sorted(ids) and not set(kept) & set(out)
    assert len(set(out)) == max(1, round(share * len(set(ids))))


def test_each_client_and_each_cluster_draws_by_itself():
    held = partition.hold_out_each([np.arange(40)] * 2, 0.5, 0, "test")[1]
    laws = [partition.laws(1.0, "total", 5, 2, 0, cluster) for cluster in (0, 1)]
    for one, other in (held, laws, laws[0]):
        assert not np.array_equal(one, other)


def test_a_label_without_rows_keeps_its_place():
    found = Atlas(numbered()).by_label(0, np.array([0, 2, 4]))
    assert [ids.tolist() for ids in found] == [[0, 4], [], [2], []]


def shares_of_five_percent(alpha, convention):
    drawn = np.array(partition.laws(alpha, convention, 10, 4000, 0))
    return (drawn >= 0.05).sum(1).mean()


def test_alpha_conventions():
    assert shares_of_five_percent(3, "total") == pytest.approx(4.2, abs=0.15)  # MD-ICFL's "three to five classes"
    assert shares_of_five_percent(3, "per_class") == pytest.approx(8.3, abs=0.15)
    assert shares_of_five_percent(30, "total") == shares_of_five_percent(3, "per_class")  # the same law


def test_shares_of_rotations_are_drawn_from_alpha_for_each(digits):
    fed = federation.mixed(digits, clients=20, samples_per_client=60, alpha=1.0)
    drawn = np.array([np.bincount(fed.train.take([i]).tag, minlength=4) / 60 for i in range(20)])
    assert abs(drawn - partition.laws(1.0, "per_class", 4, 20, 0)).max() < 0.25


def test_clients_do_not_depend_on_later_clusters(digits):
    four = federation.rotated(digits, clients=[2, 2, 2, 2], samples_per_client=30)
    more = federation.rotated(digits, degrees=(0, 90), clients=[2, 5], samples_per_client=30)
    for i in range(4):
        (a, y), (b, z) = four.train.rows(i), more.train.rows(i)
        assert torch.equal(four.train.pool[a], more.train.pool[b]) and torch.equal(y, z)


def test_dirichlet_is_ragged_and_complete(digits):
    fed = federation.dirichlet(digits, clients=20, alpha=0.1, pooled=True, test="own", test_fraction=0.25)
    assert fed.cluster is None and fed.test_of.tolist() == list(range(20))
    assert int(fed.train.sizes.sum() + fed.test.sizes.sum()) == 1797
    total = fed.train.sizes + fed.test.sizes
    assert total.min() >= 10 and total.max() > 3 * total.min()
    assert torch.equal(fed.test.sizes, torch.tensor([round(0.25 * int(n)) for n in total]))


def test_mixed_tags_and_joined_sources(digits):
    fed = federation.mixed(digits, clients=6, samples_per_client=200, alpha=0.3)
    assert fed.cluster is None and fed.test.tag.bincount().tolist() == [int((~digits.train).sum())] * 4
    upright = set(map(bytes, digits.x.flatten(1).numpy()))
    for i in range(6):
        part = slice(int(fed.train.offset[i]), int(fed.train.offset[i + 1]))
        pixels, tag = fed.train.pool[fed.train.index[part]], fed.train.tag[part]
        turned = pixels.clone()
        for quarter in range(4):
            turned[tag == quarter] = torch.rot90(pixels[tag == quarter], -quarter, (-2, -1))
        assert set(map(bytes, turned.flatten(1).numpy())) <= upright
    negative = Images("negative", 16 - digits.x, digits.y, digits.train, 10, scale=16.0)
    fed = federation.multi_source([digits, negative], clients=4, samples_per_client=50, shape=(3, 4, 4))
    assert fed.shape == (3, 4, 4) and fed.name == "multi_source digits+negative"
    dark = [fed.train.pool[fed.train.rows(i)[0]].float().mean() for i in range(4)]
    assert max(dark[:2]) < 8 < min(dark[2:])


def test_graded(digits):
    fed = federation.graded(digits, skew="label_overlap", samples_per_client=200)
    labels = [set(row.nonzero().flatten().tolist()) for row in fed.label_counts()]
    for s in range(10):
        for t in range(10):
            assert len(labels[s] & labels[t]) == max(0, 5 - min((s - t) % 10, (t - s) % 10))
    shift = federation.graded(digits, skew="label_shift", samples_per_client=None)
    for s in range(10):
        assert torch.equal(shift.label_counts()[s], shift.label_counts()[0].roll(s))
    fed = federation.graded([digits, digits], skew="domain", samples_per_client=50)
    assert fed.cluster.tolist() == list(range(10))


# Users


def people():
    user = torch.tensor([7] * 10 + [3] * 5 + [5] * 10 + [9] * 10)
    base = numbered(35)
    face = torch.tensor([[0, 1], [1, 1]]).repeat(18, 1)[:35]
    return Images("people", base.x, base.y, base.train, 4, user=user, extra={"attributes": face})


def test_by_user_given_split():
    fed = federation.by_user(people())
    assert fed.train.sizes.tolist() == [4, 8, 8, 8] and fed.test.sizes.tolist() == [1, 2, 2, 2]  # users 3, 5, 7, 9
    assert held(fed.train, 0) == [10, 11, 12, 13] and held(fed.test, 0) == [14]
    assert fed.test_of.tolist() == [0, 1, 2, 3] and fed.cluster is None and fed.train.tag is None
    fed = federation.by_user(people(), users=[9, 3], attributes=(0, 1))
    assert held(fed.train, 1) == [10, 11, 12, 13]
    assert fed.train.tag[-4:].tolist() == [1, 3, 1, 3]
    assert federation.by_user(people(), min_samples=6).clients == 3


def test_by_user_own_share_and_other_users():
    fed = federation.by_user(people(), test="own", test_fraction=0.2)
    assert fed.train.sizes.tolist() == [4, 8, 8, 8] and fed.test.sizes.tolist() == [1, 2, 2, 2]
    fed = federation.by_user(people(), users=2, test="users", test_users=1)
    assert len(fed.test) == 1 and fed.test_of.tolist() == [0, 0]
    trained = {row for i in range(2) for row in held(fed.train, i)}
    assert not trained & set(held(fed.test, 0)) and int(fed.test.sizes[0]) in (5, 10)
    drawn = federation.by_user(people(), users=4)
    assert sorted(drawn.train.sizes.tolist()) == [4, 8, 8, 8]
    seen, unseen = drawn.subset(range(3)), drawn.subset([3])
    assert seen.clients == 3 and unseen.clients == 1 and len(unseen.test) == 1


def test_by_user_knows_true_clusters_of_an_own_file(tmp_path, monkeypatch):
    """Users 3, 5, 7, 9 belong to clusters 2, 0, 0, 1; the file is loaded by its path, and found again by it."""
    source = people()
    cluster = np.select([source.user == 3, source.user == 9], [2, 1], 0)
    path = tmp_path / "own.npz"
    columns = {name: getattr(source, name).numpy() for name in ("y", "train", "user")}
    np.savez(path, x=source.x[:, 0].numpy(), cluster=cluster, scale=255, **columns)
    monkeypatch.setenv("CFLKIT_DATA", str(tmp_path / "elsewhere"))
    for images_ in (images.load(path), images.load("own", root=tmp_path)):
        fed = federation.by_user(images_)
        assert fed.cluster.tolist() == [2, 0, 0, 1] and fed.config["images"] == str(path)
        assert federation.by_user(images_, users=[9, 5]).cluster.tolist() == [1, 0]
        assert federation.by_user(images_, test="users", test_users=1, users=[3]).cluster.tolist() == [2]
        same(fed, build(json.loads(json.dumps(fed.config))))
    more = federation.rotated(images.load(path, classes=6), clients=4)
    assert more.config["images"] == {"name": str(path), "classes": 6}
    same(more, build(json.loads(json.dumps(more.config))))
    monkeypatch.setenv("CFLKIT_DATA", str(tmp_path))
    assert federation.by_user(images.load("own")).config["images"] == "own"


# Bad input: one line, before any work


def test_a_cluster_without_test_images(digits):
    untested = Images("x", digits.x, digits.y, torch.ones(1797, dtype=torch.bool), 10, scale=16.0)
    with pytest.raises(ValueError, match="test = 'cluster': must be 'own', as no test image belongs to cluster 1"):
        federation.hybrid([digits, untested], clients=2)
