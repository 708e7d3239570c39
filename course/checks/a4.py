"""Hidden tests of assignment 4."""

import torch

from course.checking import check, demand, hunted, measured, pure, same


@check("distance", 1, "Equal models have distance 0, and opposite ones have 2.", M=(1, 7), C=(2, 4), K=(1, 3))
def ends(student, reference, draw):
    """The L1 distance of probabilities is at most 2, however many samples there are."""
    first, second = torch.eye(draw.C)[0], torch.eye(draw.C)[1]
    own = torch.stack([first, second]).view(2, 1, 1, 1, draw.C).expand(2, draw.K, draw.C, draw.M, draw.C)
    got = student.distance(own, first.expand(draw.K, draw.C, draw.M, draw.C))
    same(got, torch.tensor([0.0, 2.0]).view(2, 1, 1).expand(2, draw.K, draw.C))


@check(
    "distance",
    2,
    "It is the mean over samples of the L1 distance, for each cluster and class.",
    m=(1, 5),
    K=(1, 6),
    C=(2, 5),
    M=(1, 6),
)
def random(student, reference, draw):
    """Random outputs, where a squared or an averaged difference is another number."""
    own = draw.normal(draw.m, draw.K, draw.C, draw.M, draw.C).softmax(4)
    theirs = draw.normal(draw.K, draw.C, draw.M, draw.C).softmax(3)
    same(student.distance(own, theirs), reference.distance(own, theirs))
    pure(student, "distance", (own, theirs), (own.flip(0, 4), theirs))


@check("assign", 2, "Classes are weighed by the client's own label shares.", K=(3, 8), C=(3, 7))
def weighed(student, reference, draw):
    """Random shares and distances; the plain sum chooses otherwise."""
    labels, distances = draw.normal(40, draw.C).mul(2).softmax(1), draw.normal(40, draw.K, draw.C).abs()
    current = draw.whole(0, draw.K, 40)
    same(student.assign(labels, distances, current), reference.assign(labels, distances, current))


@check("assign", 1, "The closest cluster is taken, whatever the current one is.", K=(3, 4))
def closest(student, reference, draw):
    """One class only; clear differences, another winner for each client, who is elsewhere."""
    order = draw.order(draw.K)
    distances = torch.stack([0.1 + 0.2 * order.roll(k) for k in range(draw.K)]).unsqueeze(2)
    best = distances.squeeze(2).argmin(1)
    current = (best + draw.whole(1, draw.K, draw.K)) % draw.K
    same(student.assign(torch.ones(draw.K, 1), distances, current), best)


@check("assign", 1, "A client stays where nothing is strictly closer.")
def stays(student, reference, draw):
    """Ties of two and of three, and one client who does move, to the lowest of two."""
    distances = torch.tensor([[[1.0], [1.0], [1.0]], [[0.5], [0.2], [0.2]], [[0.5], [0.2], [0.2]]])
    labels, current = torch.ones(3, 1), torch.tensor([2, 2, 0])
    same(student.assign(labels, distances, current), [2, 2, 1])
    order = draw.order(3)
    same(student.assign(labels, distances[order], current[order]), torch.tensor([2, 2, 1])[order])
    pure(student, "assign", (labels, distances, current), (labels[:2], distances[1:], current[1:]))


def problem(draw):
    """A model, wanted classes and starts."""
    return draw.normal(draw.C, draw.d), draw.whole(0, draw.C, draw.n), draw.normal(draw.n, draw.d)


@check(
    "search",
    2,
    "Without a prior, pictures go down the cross-entropy of their class.",
    n=(2, 8),
    C=(2, 5),
    d=(1, 8),
    steps=(2, 12),
)
def descends(student, reference, draw):
    """Several steps, each picture by itself."""
    given = (*problem(draw), 0.3, draw.steps, 0.0, 0.0)
    same(student.search(*given), reference.search(*given))


@check("search", 1, "The prior pulls each picture towards mu by a norm that is not squared.", n=(2, 6), d=(2, 8))
def prior(student, reference, draw):
    """With a model that knows nothing every step has the same length, lr lambda / 2."""
    start = 3 * draw.normal(draw.n, draw.d)
    start = 0.5 + (start - 0.5) * (1 + 1 / (start - 0.5).norm(dim=1, keepdim=True))  # none nearer to mu than 1
    got = student.search(torch.zeros(3, draw.d), draw.whole(0, 3, draw.n), start, 0.1, 5, 0.5, 0.4)
    same(got, start - 5 * 0.1 * 0.2 * (start - 0.5) / (start - 0.5).norm(dim=1, keepdim=True), 1e-6)


@check(
    "search",
    1,
    "A picture does not depend on the others, and one at mu has no infinite gradient.",
    n=(2, 6),
    C=(2, 5),
    d=(2, 8),
)
def alone(student, reference, draw):
    """The first of several, and the first by itself, which starts at mu."""
    weights, y, start = problem(draw)
    start[0] = 0.5
    got = student.search(weights, y, start, 0.2, 4, 0.5, 0.3)
    same(got, reference.search(weights, y, start, 0.2, 4, 0.5, 0.3))
    same(student.search(weights, y[:1], start[:1], 0.2, 4, 0.5, 0.3), got[:1])


@check("search", 1, "The model is frozen: neither it nor the start is changed.", n=(2, 6), C=(2, 5), d=(2, 8))
def frozen(student, reference, draw):
    """After several steps with both parts of the energy, and twice the same result."""
    weights, y, start = problem(draw)
    pure(student, "search", (weights, y, start, 0.3, 8, 0.5, 0.1), (2 * weights, y, start + 1, 0.2, 3, 0.0, 0.1))
    first = student.search(weights, y, start, 0.3, 8, 0.5, 0.1)
    demand(float((first - start).abs().max()) > 0, "the pictures did not move")


def right(assign, cluster, moves):
    """Split as it should be."""
    members = torch.nonzero(assign == cluster).flatten()
    fresh = assign.clone()
    fresh[members[moves]] = int(assign.max()) + 1
    return fresh


def loop(assign, cluster, moves):
    """Split as it should be, in plain Python."""
    flags, free = iter(moves.tolist()), int(assign.max()) + 1
    return torch.tensor([free if c == cluster and next(flags) else c for c in assign.tolist()])


def locally(assign, cluster, moves):
    """Take positions within the cluster for numbers of clients."""
    fresh = assign.clone()
    fresh[torch.nonzero(moves).flatten()] = int(assign.max()) + 1
    return fresh


def taken(assign, cluster, moves):
    """Use a number that another cluster may have."""
    members, fresh = torch.nonzero(assign == cluster).flatten(), assign.clone()
    fresh[members[moves]] = cluster + 1
    return fresh


RIGHT = [right, loop]

positions = hunted(
    2, "The test must notice that positions within the cluster are taken for clients.", RIGHT, [locally]
)
other_half = hunted(
    1, "The test must notice that the wrong half moves.", RIGHT, [lambda a, c, moves: right(a, c, ~moves)]
)
not_free = hunted(1, "The test must notice that the new number is not free.", RIGHT, [taken])


@check("measure", 2, "The correlation with your own digit.")
def own(student, reference, draw):
    """To five decimals."""
    measured(student, reference, "own", 1e-5)


@check("measure", 2, "The largest correlation with another digit.")
def others(student, reference, draw):
    """Likewise."""
    measured(student, reference, "others", 1e-5)
