"""Hidden tests of assignment 6."""

import random

import torch

from cflkit.rng import generator
from course.checking import check, demand, hunted, measured, pure, same


@check("adjacency", 1, "Rows add up to 1, and the diagonal is beta.", D=(2, 6), q=(1, 5))
def rows(student, reference, draw):
    """For several betas; nobody is left out, and domains count."""
    for beta in (0.1, 0.5, 0.9):
        V = draw.normal(draw.D, draw.q)
        got = student.adjacency(V, beta)
        same(got.sum(1), torch.ones(draw.D))
        same(got.diagonal(), torch.full((draw.D,), beta))
    pure(student, "adjacency", (V, 0.4), (V, 0.7))


@check("adjacency", 1, "Near domains weigh more than far ones, by the inverse of the distance.", D=(4, 9), q=(2, 5))
def inverse(student, reference, draw):
    """Random domains; neither squares nor columns give the same."""
    V = draw.normal(draw.D, draw.q)
    same(student.adjacency(V, 0.4), reference.adjacency(V, 0.4))


@check("adjacency", 1, "Equal domains give no infinite number.", D=(4, 6), q=(2, 5))
def equal(student, reference, draw):
    """Two equal ones, which listen to nobody else, and all equal."""
    V = draw.normal(draw.D, draw.q)
    V[1] = V[0]
    got = student.adjacency(V, 0.5)
    same(got, torch.zeros(draw.D, draw.D), tolerance=1e6)  # its shape, and that it is finite
    same(got[:2, :2], torch.full((2, 2), 0.5), tolerance=1e-5)
    same(student.adjacency(V[:1].expand(3, draw.q), 0.4), torch.full((3, 3), 0.3) + 0.1 * torch.eye(3))


@check("adjacency", 1, "A single domain listens to itself alone.", q=(1, 5))
def single(student, reference, draw):
    """Beta does not matter; two domains do not listen to themselves alone."""
    same(student.adjacency(draw.normal(1, draw.q), 0.3), [[1.0]])
    demand(len(student.adjacency(draw.normal(2, draw.q), 0.3)) == 2, "two domains, one row")


def layer(draw):
    """Pictures, common weights, domains' weights, a graph, and domains of pictures."""
    graph = draw.normal(draw.D, draw.D).softmax(1)
    return (
        draw.normal(draw.n, draw.d),
        draw.normal(draw.C, draw.d),
        draw.normal(draw.D, draw.C, draw.d),
        graph,
        draw.normal(draw.n, draw.D).softmax(1),
    )


SIZES = {"n": (2, 7), "C": (2, 5), "d": (2, 6)}


@check(
    "logits",
    1,
    "With lambda 0 the layer is the common one, and with one domain it is a sum of weights.",
    D=(2, 4),
    **SIZES,
)
def common(student, reference, draw):
    """Twice by hand."""
    x, body, V, A, w = layer(draw)
    same(student.logits(x, body, V, A, w, 0.0), x @ body.T)
    got = student.logits(x, body, V[:1], torch.ones(1, 1), torch.ones(draw.n, 1), 2.0)
    same(got, x @ (body + 2 * V[0].relu()).T)


@check("logits", 1, "Hard domains pick each picture's own weights.", D=(2, 4), **SIZES)
def hard(student, reference, draw):
    """The graph is the identity and all weights are positive, so that only the choice matters."""
    x, body, V, _, _ = layer(draw)
    given = (x, body, V.abs(), torch.eye(draw.D), torch.eye(draw.D)[torch.arange(draw.n) % draw.D], 0.7)
    same(student.logits(*given), reference.logits(*given))
    pure(student, "logits", given, (2 * x, *given[1:]))


@check("logits", 2, "The graph mixes first, then relu, then the pictures' weights.", D=(2, 7), **SIZES)
def order(student, reference, draw):
    """A graph that is not symmetric, and weights of both signs."""
    given = (*layer(draw), 1.3)
    same(student.logits(*given), reference.logits(*given))


def pair(draw):
    """A student, a teacher and pictures."""
    return draw.normal(draw.D, draw.d), draw.normal(draw.D, draw.d), draw.normal(draw.n, draw.d)


@check("follow", 1, "The student goes where the teacher points.", D=(2, 5), d=(2, 6), n=(3, 12))
def direction(student, reference, draw):
    """Whatever the length of its step."""
    pupil, teacher, x = pair(draw)
    teacher[:] = teacher - 2 * pupil  # they disagree, so that no gradient is near 0
    got, mine = student.follow(pupil, teacher, x, 1.0) - pupil, reference.follow(pupil, teacher, x, 1.0) - pupil
    same(got / got.norm(), mine / mine.norm())


@check(
    "follow",
    1,
    "It is one step on the mean over pictures, and equal outputs of the teacher go to the lowest domain.",
    D=(3, 7),
    d=(1, 6),
    n=(2, 20),
)
def length(student, reference, draw):
    """For different numbers of pictures; then with a teacher of which two domains are equal, and the largest."""
    for n in (1, draw.n):
        pupil, teacher, x = pair(draw)
        same(student.follow(pupil, teacher, x[:n], 0.3), reference.follow(pupil, teacher, x[:n], 0.3))
    teacher = torch.full((draw.D, 1), -1.0)
    teacher[draw.order(draw.D - 1)[:2] + 1] = 2.0
    given = (draw.normal(draw.D, 1), teacher, torch.ones(2, 1), 0.3)
    same(student.follow(*given), reference.follow(*given))


@check(
    "follow", 1, "The teacher's domains are hard, and nobody's weights are changed.", D=(2, 5), d=(2, 6), n=(2, 12)
)
def frozen(student, reference, draw):
    """Ten times the teacher gives the same step; another teacher gives another."""
    pupil, teacher, x = pair(draw)
    got = student.follow(pupil, teacher, x, 0.3)
    same(student.follow(pupil, 10 * teacher, x, 0.3), got)
    pure(student, "follow", (pupil, teacher, x, 0.3), (pupil, -teacher, x, 0.3))
    same(got, pupil, tolerance=100.0)  # its shape
    demand(float((got - pupil).abs().max()) > 0, "the student did not move")


def right(seed, round, clients, m):
    """Draw as it should be."""
    return generator(seed, round, "who").permutation(clients)[:m].tolist()


def plain(seed, round, clients, m):
    """The same from another source, in another order."""
    return sorted(random.Random(f"{seed}/{round}").sample(range(clients), m))


RIGHT = [right, plain]

seedless = hunted(
    2, "The test must notice that the seed is not used.", RIGHT, [lambda s, t, n, m: right(0, t, n, m)]
)
roundless = hunted(
    1, "The test must notice that every round has the same clients.", RIGHT, [lambda s, t, n, m: right(s, 0, n, m)]
)
twice = hunted(
    1,
    "The test must notice a client drawn twice, and one that is never drawn.",
    RIGHT,
    [lambda s, t, n, m: generator(s, t).integers(0, n, m).tolist(), lambda s, t, n, m: right(s, t, n - 1, m)],
)


@check("measure", 1, "What the most frequent label alone reaches.")
def majority(student, reference, draw):
    """To rounding."""
    measured(student, reference, "majority", 1e-6)


@check("measure", 3, "What your attributes alone reach.")
def attributes(student, reference, draw):
    """To rounding."""
    measured(student, reference, "attributes", 1e-6)


@check("measure", 1, "How strongly your attributes are tied to the label.")
def tied(student, reference, draw):
    """To rounding."""
    measured(student, reference, "tied", 1e-6)
