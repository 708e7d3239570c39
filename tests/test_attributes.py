"""What FedCG's attributes tell of the label, on people worked out by hand."""


import made
import torch

from cflkit.data.images import Images

attributes = made.script("attributes")


def people(count=6):
    """Each with four pictures of labels 1, 1, 0, 0; the first three are in one domain, the last in another."""
    table = torch.zeros(4 * count, 40, dtype=torch.int64)
    for column in attributes.ATTRIBUTES.values():
        table[:, column] = torch.tensor([1, 1, 1, 0]).repeat(count)
    return Images(
        "faces", torch.zeros(4 * count, 1, 2, 2, dtype=torch.uint8), torch.tensor([1, 1, 0, 0]).repeat(count),
        torch.ones(4 * count, dtype=torch.bool), 2, user=torch.arange(count).repeat_interleave(4),
        extra={"attributes": table},
    )  # fmt: skip


def test_each_domain_answers_its_more_frequent_label():
    measured = attributes.tell(people(), tested=2)
    assert (measured["pictures"], measured["tested"], measured["accuracy"]) == (24, 8, 0.75)  # three of each four
    assert measured["correlation"] == dict.fromkeys(attributes.ATTRIBUTES, 0.57735)  # 1/8 over sqrt(1/4 x 3/16)
    assert measured["federation"]["test_users"] == 2 and measured["federation"]["builder"] == "by_user"


def test_the_people_who_are_tested_do_not_vote():
    faces = people(3)
    turned = [attributes.tell(faces, seed, tested=2)["accuracy"] for seed in range(3)]
    assert turned == [0.75] * 3
    for person in range(3):  # one person has the labels the other way round
        odd = faces.y.clone()
        odd[4 * person : 4 * person + 4] = torch.tensor([0, 0, 1, 1])
        of_odd = Images("faces", faces.x, odd, faces.train, 2, user=faces.user, extra=faces.extra)
        # alone in training it answers 0 and 1: a quarter of the others' pictures; else a half of all tested
        assert {attributes.tell(of_odd, seed, tested=2)["accuracy"] for seed in range(8)} == {0.25, 0.5}
