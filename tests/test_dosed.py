"""A shift at a strength: at its ends today's builders, between them more and more."""

import numpy as np
import pytest
import torch

from cflkit import federation, images
from cflkit.data.builders import Dosed
from cflkit.data.domains import rotate

MANY = {"clients": 12, "samples_per_client": 24}
STRENGTHS = (0, 0.25, 0.5, 0.75, 1)


def made(digits, shift, strength):
    return federation.dosed(digits, shift=shift, strength=strength, **MANY)


def held(samples, i):
    """Images and labels of a set."""
    index, y = samples.rows(i)
    return samples.pool[index], y


def same(one, other, clients=range(12), ours=0):
    """Require that clients hold the same as those `ours` later, and are tested on the same."""
    for i in clients:
        for part, a, b in (("train", i, i + ours), ("test", one.test_of[i], other.test_of[i + ours])):
            for x, y in zip(held(getattr(one, part), int(a)), held(getattr(other, part), int(b)), strict=True):
                assert torch.equal(x, y)


@pytest.mark.parametrize("shift", ["rotation", "renamed", "concept", "corruption"])
def test_without_strength_all_groups_draw_from_the_images_as_they_are(digits, shift):
    plain = federation.rotated(digits, degrees=(0,), clients=3, samples_per_client=24)
    found = made(digits, shift, 0)
    same(found, plain, range(3))
    assert found.cluster.tolist() == [0] * 12
    for group in range(1, 4):
        assert all(torch.equal(a, b) for a, b in zip(held(found.test, group), held(plain.test, 0), strict=True))
        same(found, made(digits, "rotation", 0))


def test_at_full_strength_it_is_what_other_builders_make(digits):
    turned = federation.rotated(digits, degrees=(0, 60, 120, 180), **MANY)
    same(made(digits, "rotation", 1), turned)
    assert torch.equal(made(digits, "rotation", 1).cluster, turned.cluster)
    same(made(digits, "concept", 1), federation.rotated(digits, **MANY))
    law = {"alpha": 0.1, "convention": "per_class"}
    same(made(digits, "shares", 1), federation.dirichlet(digits, **law, **MANY))
    assert made(digits, "shares", 1).cluster is None


def test_a_share_of_classes_is_swapped_or_turned_and_it_grows(digits):
    for strength, many, first in zip(STRENGTHS, (0, 2, 4, 8, 10), (0, 2, 5, 8, 10), strict=True):
        dose = Dosed(shift="renamed", strength=strength, **MANY)
        assert all(sum(y != z for y, z in enumerate(dose.domain(10, g).relabel)) == many for g in (1, 2, 3))
        found, plain = made(digits, "concept", strength), held(made(digits, "concept", 0).test, 0)
        x, y = held(found.test, 1)
        assert torch.equal(y, plain[1])
        assert torch.equal(x[y >= first], plain[0][y >= first])
        assert torch.equal(x[y < first], rotate(plain[0][y < first], 90))
        assert found.cluster.tolist() == ([0] * 12 if not first else [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3)


def test_images_are_noisy_blurred_or_pale_by_group_the_more_the_stronger():
    """A thin line on 28 x 28 pixels has known noise, spread and contrast at full strength."""
    x = torch.full((40, 1, 28, 28), 128, dtype=torch.uint8)
    x[:, :, 14] = 168
    lined = images.of(x, torch.arange(40) % 10, train=torch.arange(40) < 20)
    plain, *half = (held(federation.dosed(lined, shift="corruption", strength=0.5, clients=4,
                                          samples_per_client=4).test, g)[0].float() for g in range(4))  # fmt: skip
    same, *full = (held(federation.dosed(lined, shift="corruption", strength=1, clients=4,
                                         samples_per_client=4).test, g)[0].float() for g in range(4))  # fmt: skip
    assert torch.equal(plain, same) and torch.equal(plain, x[20:].float())
    for one, most in zip(half, full, strict=True):
        assert (plain - one).abs().mean() < (plain - most).abs().mean() - 0.5
    noise, blur, contrast = full
    assert (half[0] - plain).std() == pytest.approx(0.2 * 255, rel=0.03)
    assert not torch.equal(noise[0] - plain[0], noise[1] - plain[1])
    # the middle of exp(-i^2 / 8), i = -6, ..., 6, that sums to one, times the line's 40 levels
    assert blur[0, 0, 14, 14] == pytest.approx(128 + 40 * 0.1997, abs=1)
    assert contrast[0, 0, 14, 14] - contrast[0, 0, 0, 0] == pytest.approx(0.15 * 40, abs=1)


def test_label_shares_go_from_even_to_skewed(digits):
    """The mean distance of a client's shares from even ones."""
    off = [(made(digits, "shares", s).label_counts() / 24 - 0.1).abs().sum(1).mean() for s in STRENGTHS]
    assert np.all(np.diff(off) > 0) and off[0] < 0.6 and off[-1] > 1.2


def test_it_is_made_again_from_its_configuration_and_bad_options_get_one_line(digits):
    for shift in ("rotation", "renamed", "concept", "corruption", "shares"):
        found = made(digits, shift, 0.5)
        same(found, federation.build(found.config))
    for options, line in [
        ({"clients": 10}, "clients = 10: must be a multiple of the 4 groups"),
        ({"strength": 1.5}, r"strength = 1.5: must be a finite number, in \[0, 1\]"),
        ({"shift": "fog"}, "shift = 'fog': must be one of rotation, renamed, concept, corruption, shares"),
    ]:
        with pytest.raises(ValueError, match=f"^{line}$"):
            federation.dosed(digits, **{"shift": "rotation", "strength": 1, **MANY} | options)
