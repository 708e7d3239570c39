"""Scores of a handful of images by hand, and which rounds are scored on whom."""

import math
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch

from cflkit.data import images
from cflkit.data.builders import rotated
from cflkit.data.federation import Samples
from cflkit.engine import evaluation
from cflkit.engine.evaluation import Scorer, Scoring
from cflkit.engine.rows import Pick, Rows
from cflkit.methods import FedAvg

f64 = torch.float64
# three classes, two pixels: an image goes to its brighter pixel's class, and to class 2 if both are dark
BRIGHTER = torch.tensor([1, 0, 0, 1, 0, 0, 0, 0, 3], dtype=f64)
DARKER = torch.tensor([0, 1, 1, 0, 0, 0, 0, 0, -9], dtype=f64)  # the other pixel's, and class 2 never

#: pixels and labels of three clients of 1, 3 and 2 images
CLIENTS = [
    (np.array([[9, 1]]), np.array([0])),
    (np.array([[8, 1], [1, 8], [1, 9]]), np.array([0, 1, 0])),
    (np.array([[2, 1], [6, 7]]), np.array([2, 2])),
]
#: of all six images under BRIGHTER, rows true and columns predicted: only the fourth and the last are wrong
WHOLE = [[2, 1, 0], [0, 1, 0], [0, 1, 1]]


def scorer(private=False, predict=None):
    """All clients tested on all images; or each on its own, as its training images."""
    fed = tiny.federation(*CLIENTS, classes=3)
    if private:
        fed = replace(fed, test=fed.train, test_of=torch.arange(3))
    run = tiny.simulation(FedAvg(), fed)
    return Scorer(fed, run.model, predict or FedAvg().predict)


@pytest.mark.parametrize(("test", "private"), [("own", True), ("cluster", False), ("all", False)])
def test_a_cluster_of_one_client_has_its_test_set_to_itself_but_not_its_label_mix(test, private):
    options = {"clients": 4, "samples_per_client": 40, "alpha": 0.5, "validation_fraction": 0.2}
    fed = rotated(images.load("digits"), **options, test=test)
    run = tiny.simulation(FedAvg(), fed)
    assert Scorer(fed, run.model, FedAvg().predict).private_tests is private
    assert Scorer(fed.subset([0]), run.model, FedAvg().predict).private_tests is private
    assert Scorer(fed.validating(), run.model, FedAvg().predict).private_tests


def tagged(train, test):
    """All clients tested on all images, whose domains a model is told; it says of an image the domain's number."""
    plain = scorer()
    fed = plain.federation
    fed = replace(fed, train=replace(fed.train, tag=train), test=replace(fed.test, tag=test))
    return Scorer(fed, plain.model, lambda model, vector, x, domain: torch.eye(3)[domain], told=True)


# ---------------------------------------------------------------------- confusions
@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_a_told_model_gets_every_image_with_its_own_domain(at_once, monkeypatch):
    monkeypatch.setattr(evaluation, "IMAGES_AT_ONCE", at_once)
    tag = torch.tensor([0, 0, 1, 0, 2, 2])
    told = tagged(tag, tag)
    y = told.federation.test.rows(0)[1]
    counted = [[int(((y == a) & (tag == b)).sum()) for b in range(3)] for a in range(3)]
    assert told.confusion(BRIGHTER, 0).tolist() == counted


def test_domains_that_are_told_must_be_known_and_trained():
    tag = torch.tensor([0, 0, 1, 0, 1, 1])
    tagged(tag + 1, tag)  # not every domain need be tested
    for train, test in [(None, tag), (tag, None), (None, None)]:
        with pytest.raises(ValueError, match=r"^told = True: must be False unless all images have a true domain$"):
            tagged(train, test)
    with pytest.raises(ValueError, match=r"^domains of test images = 3: must be at most 2, as of training images$"):
        tagged(tag, tag + 1)


@pytest.mark.parametrize("at_once", [1, 2, 4, 100])
def test_a_confusion_by_hand_however_many_images_pass_at_once(at_once, monkeypatch):
    monkeypatch.setattr(evaluation, "IMAGES_AT_ONCE", at_once)
    assert scorer().confusion(BRIGHTER, 0).tolist() == WHOLE
    assert scorer().confusion(DARKER, 0).tolist() == [[1, 2, 0], [1, 0, 0], [1, 1, 0]]  # class 2 never, but counted
    assert scorer(private=True).confusion(BRIGHTER, 1).tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]


def test_every_client_is_scored_with_its_model_on_its_own_test():
    mine, models = scorer(private=True), torch.stack([BRIGHTER, DARKER])
    picked = mine.confusions(Pick(models, torch.tensor([1, 0])), torch.tensor([2, 0]))
    assert picked.tolist() == [[[0, 0, 0], [0, 0, 0], [1, 1, 0]], [[1, 0, 0], [0, 0, 0], [0, 0, 0]]]
    for served in (models[[1, 0]], Rows([models[1:], models[:1]])):
        assert mine.confusions(served, torch.tensor([2, 0])).tolist() == picked.tolist()


# ---------------------------------------------------------------------- scores
def test_scores_by_hand():
    served = Pick(torch.stack([BRIGHTER, DARKER]), torch.tensor([0, 0, 1]))
    mine = scorer()
    found = mine.score(served, torch.arange(3))
    # BRIGHTER has recalls 2/3, 1 and 1/2, DARKER 1/3, 0, 0; clients of sizes 1, 3, 2 hold labels 0; 0, 1, 0; 2, 2
    each, own = [4 / 6, 4 / 6, 1 / 6], [2 / 3, (2 * 2 / 3 + 1) / 3, 0]
    assert mine.latest.tolist() == pytest.approx(each)
    # F1 of BRIGHTER: 4/5, 2/4, 2/3; of DARKER: 2/6, 0, 0
    f1 = [(4 / 5 + 2 / 4 + 2 / 3) / 3] * 2 + [2 / 6 / 3]
    assert found == pytest.approx({
        "accuracy": sum(each) / 3, "accuracy_std": np.std(each), "accuracy_worst10": 1 / 6,
        "accuracy_micro": (each[0] + 3 * each[1] + 2 * each[2]) / 6,
        "own_accuracy": sum(own) / 3, "own_accuracy_std": np.std(own), "own_accuracy_worst10": 0,
        "own_accuracy_micro": (own[0] + 3 * own[1] + 2 * own[2]) / 6,
        "f1": sum(f1) / 3, "f1_micro": (f1[0] + 3 * f1[1] + 2 * f1[2]) / 6,
    })  # fmt: skip
    few = mine.score(Pick(BRIGHTER[None], torch.tensor([0])), torch.tensor([2]))
    assert (few["accuracy"], few["own_accuracy"]) == pytest.approx((4 / 6, 1 / 2))


def test_a_test_of_ones_own_has_ones_own_mix_already():
    """Client 1 trains on labels 0, 1, 0 and is tested on 1, 2, 1 of its own, one right: these count as they are."""
    mine = scorer(private=True)
    fed = mine.federation
    y, index = torch.tensor([0, 1, 2, 1, 2, 2]), torch.tensor([0, 2, 3, 1, 4, 5])
    mine.federation = replace(fed, test=Samples(fed.test.pool, index, y, fed.test.offset))
    found = mine.score(BRIGHTER[None].expand(3, -1), torch.arange(3))
    assert found["own_accuracy"] == found["accuracy"] == pytest.approx((1 + 1 / 3 + 1 / 2) / 3)
    shared = scorer()  # two of three clients share a test set: then the mixes count
    halves = Samples(fed.test.pool, fed.test.index, fed.test.y, torch.tensor([0, 4, 6]))
    shared = Scorer(replace(fed, test=halves, test_of=torch.tensor([0, 0, 1])), shared.model, shared.predict)
    found = shared.score(BRIGHTER[None].expand(3, -1), torch.arange(3))
    assert found["accuracy"] == pytest.approx((3 / 4 + 3 / 4 + 1 / 2) / 3)
    assert found["own_accuracy"] == pytest.approx((2 / 3 + (2 * 2 / 3 + 1) / 3 + 1 / 2) / 3)


@pytest.mark.parametrize("bias", [10_001, -10_001, math.inf, math.nan])
def test_one_model_beyond_all_measure_is_remembered(bias):
    mine, wild = scorer(), torch.zeros(9, dtype=f64)
    mine.confusion(torch.tensor([0, 0, 0, 0, 0, 0, 0, -10_000, 10_000], dtype=f64), 0)
    assert mine.diverged is False
    wild[8] = bias
    mine.confusion(wild, 0)
    mine.confusion(BRIGHTER, 0)
    assert mine.diverged is True


# ---------------------------------------------------------------------- which rounds, and whom
class Served:
    """A method and a scorer that only tell what they were asked for."""

    name = "made up"

    def __init__(self, serves=True, keeps=True, shares=False, diverged=False):
        self.serves, self.keeps, self.shares, self.diverged = serves, keeps, shares, diverged
        self.federation = SimpleNamespace(test_of=torch.tensor([1, 0, 1]))
        self.asked = []

    def serve(self, server, clients, net):
        self.asked.append(("serve", clients.tolist(), net))
        return "models" if self.serves else None

    def personal(self, server, clients, net):
        self.asked.append(("personal", clients.tolist(), net))
        return "own models" if self.keeps else None

    def shared(self, server):
        return "global model" if self.shares else None

    def score(self, models, clients):
        self.latest = np.full(len(clients), float(len(clients)))
        return {"accuracy": models}

    def confusion(self, vector, test):
        return np.array([[test, 1], [0, 2]])


def scoring(made, groups=None, sample=(4, 5), every=2, personal_every=3, last=5):
    groups = {"": torch.tensor([0, 1]), "unseen_": torch.tensor([2])} if groups is None else groups
    return Scoring(made, made, groups, torch.tensor(sample), every, personal_every, last)


def columns(call, rounds=range(6)):
    return [sorted(call(t, {}, lambda t: t)) for t in rounds]


def test_rounds_that_are_due():
    served, both = ["accuracy", "unseen_accuracy"], ["accuracy", "personal_accuracy", "unseen_accuracy"]
    personal = ["personal_accuracy"]
    assert columns(scoring(Served())) == [both, [], served, personal, served, both]
    assert columns(scoring(Served(), personal_every=None)) == [served, [], served, [], served, both]
    assert columns(scoring(Served(), sample=())) == [served, [], served, [], served, served]
    assert columns(scoring(Served(), every=9, personal_every=9)) == [both, [], [], [], [], both]
    assert columns(scoring(Served(), every=1, personal_every=1)) == [both] * 6
    assert columns(scoring(Served(keeps=False))) == [served, [], served, [], served, served]
    assert columns(scoring(Served(serves=False))) == [personal, [], [], personal, [], personal]
    nobody = {"": torch.tensor([3]), "unseen_": torch.tensor([])}
    assert columns(scoring(Served(), groups=nobody))[2] == ["accuracy"]


def test_who_is_asked_and_in_which_round():
    made = Served()
    call = scoring(made)
    row = call(3, {}, lambda t: f"round {t}")
    assert made.asked == [("personal", [4, 5], "round 3")] and row == {"personal_accuracy": "own models"}
    made.asked.clear()
    call(2, {}, lambda t: f"round {t}")  # served as after training, in a round after the last
    assert made.asked == [("serve", [0, 1], "round 6"), ("serve", [2], "round 6")]
    kept = {name: (clients.tolist(), values.tolist()) for name, (clients, values) in call.of_clients.items()}
    several = {"personal_accuracy": ([4, 5], [2, 2]), "accuracy": ([0, 1], [2, 2])}
    assert kept == several | {"unseen_accuracy": ([2], [1])}
    made.asked.clear()
    assert call.served({}, lambda t: t, {"others_": torch.tensor([7])}) == {"others_accuracy": "models"}
    assert made.asked == [("serve", [7], 6)]


def test_the_global_model_is_scored_on_every_test_set_once():
    row = scoring(Served(shares=True))(2, {}, lambda t: t)
    assert row["global_accuracy"] == (0 + 1 + 2 + 2) / (0 + 1 + 2 * (1 + 2))  # traces and sums of tests 0 and 1


def test_divergence_is_said_in_the_rows_that_are_scored():
    call = scoring(Served(diverged=True))
    with pytest.warns(RuntimeWarning, match=r"^made up has diverged by round 2: .* beyond 10000 or not finite$"):
        assert call(2, {}, lambda t: t)["diverged"] is True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert call(1, {}, lambda t: t) == {} and "diverged" not in scoring(Served())(2, {}, lambda t: t)
