"""Hidden tests of assignment 7."""

import torch

from course.checking import check, demand, hunted, measured, pure, same

SIZES = {"n": (4, 14), "C": (2, 6), "d": (1, 6)}


def client(draw):
    """Pictures, and labels of which class 0 is frequent."""
    y = draw.whole(0, draw.C, draw.n) * draw.whole(0, 2, draw.n)
    y[:3] = torch.tensor([0, 0, 1])
    return draw.normal(draw.n, draw.d), y


@check(
    "at_zero", 1, "A class that the client lacks has the mean picture, divided by the number of classes.", **SIZES
)
def lacking(student, reference, draw):
    """The row of a class above all others; then all rows together, which add up to 0."""
    x, y = client(draw)
    got = student.at_zero(x, y, draw.C + 2)
    same(got[-1], x.mean(0) / (draw.C + 2))
    demand(float(got[0].abs().max()) > 0, "a row of zeros for a class that occurs")


@check("at_zero", 2, "Each row is the mean picture over C, less the class's share times its mean picture.", **SIZES)
def rows(student, reference, draw):
    """Random clients."""
    x, y = client(draw)
    same(student.at_zero(x, y, draw.C), reference.at_zero(x, y, draw.C))


@check("at_zero", 1, "The rows add up to 0, and arguments stay as they are.", **SIZES)
def together(student, reference, draw):
    """What the classes gain and lose is the same."""
    x, y = client(draw)
    got = student.at_zero(x, y, draw.C)
    same(got, torch.zeros(draw.C, draw.d), tolerance=1e9)  # its shape
    same(got.sum(0), torch.zeros(draw.d))
    pure(student, "at_zero", (x, y, draw.C), (2 * x + 1, y, draw.C))


@check("balanced", 1, "Where all classes have as many pictures, nothing changes.", more=(1, 4), C=(2, 6), d=(1, 6))
def even(student, reference, draw):
    """Labels in turn."""
    x, y = draw.normal(draw.C * draw.more, draw.d), torch.arange(draw.C).repeat(draw.more)
    same(student.balanced(x, y, draw.C), reference.at_zero(x, y, draw.C))


@check("balanced", 2, "Every class that occurs weighs the same; one that does not has no weight.", **SIZES)
def skewed(student, reference, draw):
    """Some classes are missing."""
    x, y = client(draw)
    same(student.balanced(x, y, draw.C + 1), reference.balanced(x, y, draw.C + 1))


@check(
    "balanced",
    1,
    "A class whose pictures are handed in twice weighs no more, and arguments stay as they are.",
    **SIZES,
)
def twice(student, reference, draw):
    """Class 0 is doubled, then trebled; the result does depend on the pictures."""
    x, y = client(draw)
    got = student.balanced(x, y, draw.C)
    for times in (1, 2):
        more = [torch.nonzero(y == 0).flatten()] * times
        rows = torch.cat([torch.arange(draw.n), *more])
        same(student.balanced(x[rows], y[rows], draw.C), got)
    pure(student, "balanced", (x, y, draw.C), (2 * x + 1, y, draw.C))


def pair(draw):
    """Two gradients that are not quite independent."""
    one = draw.normal(draw.C, draw.d)
    return one, one + 2 * draw.normal(draw.C, draw.d)


@check("agreement", 1, "With all classes in common it is the cosine of the whole gradients.", C=(2, 6), d=(1, 6))
def whole(student, reference, draw):
    """Whatever the counts are; then a gradient and its double, and its opposite."""
    one, two = pair(draw)
    counts = draw.whole(1, 50, 2, draw.C)
    same(student.agreement(one, two, *counts), torch.cosine_similarity(one.flatten(), two.flatten(), 0))
    same(student.agreement(one, -2 * one, *counts), -1.0)


@check("agreement", 2, "Only the rows of classes that both hold count.", C=(3, 8), d=(1, 6))
def common(student, reference, draw):
    """One class is missing here, another there."""
    one, two = pair(draw)
    first, second = draw.whole(1, 50, 2, draw.C)
    first[int(draw.whole(0, draw.C))] = 0
    second[int(draw.whole(0, draw.C))] = 0
    same(student.agreement(one, two, first, second), reference.agreement(one, two, first, second))
    pure(student, "agreement", (one, two, first, second), (one, -two, first, second))


@check(
    "agreement",
    1,
    "Without a common class, or with a gradient of length 0, it is 0 and no NaN.",
    C=(2, 6),
    d=(1, 6),
)
def nothing(student, reference, draw):
    """Half of the classes here, half there; then zeros. Equal gradients do agree."""
    one, two = pair(draw)
    here = torch.arange(draw.C) % 2
    same(student.agreement(one, two, here, 1 - here), 0.0)
    same(student.agreement(one, 0 * two, here + 1, here + 1), 0.0)
    demand(float(student.agreement(one, one, here + 1, here + 1)) > 0, "0 for equal gradients")


def right(y, classes):
    """Weigh as it should be."""
    counts = y.bincount(minlength=classes)
    return 1 / (counts[y] * (counts > 0).sum()).double()


def loop(y, classes):
    """Weigh as it should be, in plain Python."""
    labels = y.tolist()
    return torch.tensor([1 / (len(set(labels)) * labels.count(label)) for label in labels])


def absent(y, classes):
    """Count the classes that do not occur."""
    return 1 / (classes * y.bincount(minlength=classes)[y].double())


RIGHT = [right, loop]

missing = hunted(2, "The test must notice that classes which do not occur are counted.", RIGHT, [absent])
unweighed = hunted(
    1, "The test must notice equal weights.", RIGHT, [lambda y, classes: torch.full((len(y),), 1 / len(y))]
)
whatever = hunted(
    1,
    "The test must notice weights that do not add up to 1, and weights that grow with the class.",
    RIGHT,
    [lambda y, classes: 1 / y.bincount()[y].double(), lambda y, classes: (c := y.bincount()[y].double()) / c.sum()],
)


@check("measure", 1, "The mean cosine over pairs of one group of labels.")
def labels(student, reference, draw):
    """To rounding."""
    measured(student, reference, "labels", 1e-5)


@check("measure", 1, "The mean cosine over pairs of one rotation.")
def rotation(student, reference, draw):
    """To rounding."""
    measured(student, reference, "rotation", 1e-5)


@check("measure", 1, "The mean agreement over pairs of one group of labels.")
def fair_labels(student, reference, draw):
    """To rounding."""
    measured(student, reference, "fair_labels", 1e-5)


@check("measure", 1, "The mean agreement over pairs of one rotation.")
def fair_rotation(student, reference, draw):
    """To rounding."""
    measured(student, reference, "fair_rotation", 1e-5)
