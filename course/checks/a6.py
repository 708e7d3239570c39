"""Hidden tests of assignment 6."""

import random

import torch

from cflkit.rng import generator
from course.checking import check, demand, hunts, measured, normal, same


@check("adjacency", 1, "Rows add up to 1, and the diagonal is beta.")
def rows(student, reference, draw):
    """For several betas."""
    for beta in (0.1, 0.5, 0.9):
        got = student.adjacency(normal(draw, 5, 4), beta)
        same(got.sum(1), torch.ones(5))
        same(got.diagonal(), torch.full((5,), beta))


@check("adjacency", 1, "Near domains weigh more than far ones, by the inverse of the distance.")
def inverse(student, reference, draw):
    """Random domains; neither squares nor columns give the same."""
    V = normal(draw, 6, 3)
    same(student.adjacency(V, 0.4), reference.adjacency(V, 0.4), 1e-6)


@check("adjacency", 1, "Equal domains give no infinite number.")
def equal(student, reference, draw):
    """Two equal ones, and all equal."""
    V = normal(draw, 4, 3)
    V[1] = V[0]
    same(student.adjacency(V, 0.5), reference.adjacency(V, 0.5), 1e-6)
    same(student.adjacency(V[:1].expand(3, 3), 0.4), torch.full((3, 3), 0.3) + 0.1 * torch.eye(3), 1e-6)


@check("adjacency", 1, "A single domain listens to itself alone.")
def single(student, reference, draw):
    """Beta does not matter."""
    same(student.adjacency(normal(draw, 1, 5), 0.3), [[1.0]])


def layer(draw, n=6, classes=4, d=5, domains=3):
    """Pictures, common weights, domains' weights, a graph, and domains of pictures."""
    graph = normal(draw, domains, domains).softmax(1)
    return normal(draw, n, d), normal(draw, classes, d), normal(draw, domains, classes, d), graph, \
        normal(draw, n, domains).softmax(1)  # fmt: skip


@check("logits", 1, "With lambda 0 the layer is the common one, and with one domain it is a sum of weights.")
def common(student, reference, draw):
    """Twice by hand."""
    x, body, V, A, w = layer(draw)
    same(student.logits(x, body, V, A, w, 0.0), x @ body.T)
    same(student.logits(x, body, V[:1], torch.ones(1, 1), torch.ones(6, 1), 2.0), x @ (body + 2 * V[0].relu()).T)


@check("logits", 1, "Hard domains pick each picture's own weights.")
def hard(student, reference, draw):
    """The graph is the identity and all weights are positive, so that only the choice matters."""
    x, body, V, _, _ = layer(draw)
    w = torch.eye(3)[torch.tensor([0, 2, 1, 1, 0, 2])]
    got = student.logits(x, body, V.abs(), torch.eye(3), w, 0.7)
    same(got, reference.logits(x, body, V.abs(), torch.eye(3), w, 0.7))


@check("logits", 2, "The graph mixes first, then relu, then the pictures' weights.")
def order(student, reference, draw):
    """A graph that is not symmetric, and weights of both signs."""
    given = (*layer(draw), 1.3)
    same(student.logits(*given), reference.logits(*given))


def pair(draw, domains=3, d=5, n=12):
    """A student, a teacher and pictures."""
    return normal(draw, domains, d), normal(draw, domains, d), normal(draw, n, d)


@check("follow", 1, "The student goes where the teacher points.")
def direction(student, reference, draw):
    """Whatever the length of its step."""
    pupil, teacher, x = pair(draw)
    got, mine = student.follow(pupil, teacher, x, 0.1) - pupil, reference.follow(pupil, teacher, x, 0.1) - pupil
    same(got / got.norm(), mine / mine.norm())


@check("follow", 1, "It is one step on the mean over pictures.")
def length(student, reference, draw):
    """For different numbers of pictures."""
    for n in (1, 20):
        pupil, teacher, x = pair(draw, n=n)
        same(student.follow(pupil, teacher, x, 0.3), reference.follow(pupil, teacher, x, 0.3))


@check("follow", 1, "The teacher's domains are hard, and nobody's weights are changed.")
def frozen(student, reference, draw):
    """Ten times the teacher gives the same step."""
    pupil, teacher, x = pair(draw)
    same(student.follow(pupil, 10 * teacher, x, 0.3), student.follow(pupil, teacher, x, 0.3))
    demand(student.keeps("follow", pupil, teacher, x, 0.3), "an argument was changed")
    demand(float((student.follow(pupil, teacher, x, 0.3) - pupil).abs().max()) > 0, "the student did not move")


def right(seed, round, clients, m):
    """Draw as it should be."""
    return generator(seed, round, "who").permutation(clients)[:m].tolist()


def plain(seed, round, clients, m):
    """The same from another source, in another order."""
    return sorted(random.Random(f"{seed}/{round}").sample(range(clients), m))


@check("hunt", 2, "The test must notice that the seed is not used.")
def seedless(student, reference, draw):
    """The released mistake."""
    hunts(student, "hunt", [right, plain], lambda s, t, n, m: right(0, t, n, m))


@check("hunt", 1, "The test must notice that every round has the same clients.")
def roundless(student, reference, draw):
    """Drawn once for all rounds."""
    hunts(student, "hunt", [right, plain], lambda s, t, n, m: right(s, 0, n, m))


@check("hunt", 1, "The test must notice a client drawn twice, and one that is never drawn.")
def twice(student, reference, draw):
    """With replacement; and without the last client."""
    hunts(student, "hunt", [right, plain], lambda s, t, n, m: generator(s, t).integers(0, n, m).tolist())
    hunts(student, "hunt", [right, plain], lambda s, t, n, m: right(s, t, n - 1, m))


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
