"""Hidden tests of assignment 4."""

import torch

from course.checking import check, demand, hunts, measured, normal, same


def outputs(draw, m=4, k=3, classes=5, samples=6):
    """Random probabilities of clients and of clusters."""
    own = normal(draw, m, k, classes, samples, classes).softmax(4)
    return own, normal(draw, k, classes, samples, classes).softmax(3)


@check("distance", 1, "Equal models have distance 0, and opposite ones have 2.")
def ends(student, reference, draw):
    """The L1 distance of probabilities is at most 2, however many samples there are."""
    first, second = torch.eye(3)[0], torch.eye(3)[1]
    for samples in (1, 7):
        own = torch.stack([first, second]).view(2, 1, 1, 1, 3).expand(2, 2, 3, samples, 3)
        got = student.distance(own, first.expand(2, 3, samples, 3))
        same(got, torch.tensor([0.0, 2.0]).view(2, 1, 1).expand(2, 2, 3))


@check("distance", 2, "It is the mean over samples of the L1 distance, for each cluster and class.")
def random(student, reference, draw):
    """Random outputs, where a squared or an averaged difference is another number."""
    own, theirs = outputs(draw)
    same(student.distance(own, theirs), reference.distance(own, theirs))


@check("assign", 2, "Classes are weighed by the client's own label shares.")
def weighed(student, reference, draw):
    """Random shares and distances; the plain sum chooses otherwise."""
    labels, distances = normal(draw, 40, 6).mul(2).softmax(1), normal(draw, 40, 3, 6).abs()
    current = torch.from_numpy(draw.integers(0, 3, 40))
    same(student.assign(labels, distances, current), reference.assign(labels, distances, current))


@check("assign", 1, "The closest cluster is taken, whatever the current one is.")
def closest(student, reference, draw):
    """One class only; clear differences."""
    distances = torch.tensor([[[0.9], [0.1], [0.5]]]).expand(3, 3, 1)
    same(student.assign(torch.ones(3, 1), distances, torch.tensor([0, 1, 2])), [1, 1, 1])


@check("assign", 1, "A client stays where nothing is strictly closer.")
def stays(student, reference, draw):
    """Ties of two and of three, and one client who does move."""
    distances = torch.tensor([[[1.0], [1.0], [1.0]], [[0.5], [0.2], [0.2]], [[0.5], [0.2], [0.2]]])
    same(student.assign(torch.ones(3, 1), distances, torch.tensor([2, 2, 0])), [2, 2, 1])


def problem(draw, n=5, classes=4, d=6):
    """A model, wanted classes and starts."""
    return normal(draw, classes, d), torch.from_numpy(draw.integers(0, classes, n)), normal(draw, n, d)


@check("search", 2, "Without a prior, pictures go down the cross-entropy of their class.")
def descends(student, reference, draw):
    """Several steps, each picture by itself."""
    weights, y, start = problem(draw)
    same(student.search(weights, y, start, 0.3, 8, 0.0, 0.0), reference.search(weights, y, start, 0.3, 8, 0.0, 0.0))


@check("search", 1, "The prior pulls each picture towards mu by a norm that is not squared.")
def prior(student, reference, draw):
    """With a model that knows nothing every step has the same length, lr lambda / 2."""
    start = 3 * normal(draw, 4, 6)
    got = student.search(torch.zeros(3, 6), torch.tensor([0, 1, 2, 0]), start, 0.1, 5, 0.5, 0.4)
    same(got, start - 5 * 0.1 * 0.2 * (start - 0.5) / (start - 0.5).norm(dim=1, keepdim=True), 1e-6)


@check("search", 1, "A picture does not depend on the others, and one at mu has no infinite gradient.")
def alone(student, reference, draw):
    """The first of five, and the first by itself, which starts at mu."""
    weights, y, start = problem(draw)
    start[0] = 0.5
    got = student.search(weights, y, start, 0.2, 4, 0.5, 0.3)
    same(got, reference.search(weights, y, start, 0.2, 4, 0.5, 0.3))
    same(student.search(weights, y[:1], start[:1], 0.2, 4, 0.5, 0.3), got[:1])


@check("search", 1, "The model is frozen: neither it nor the start is changed.")
def frozen(student, reference, draw):
    """After several steps with both parts of the energy, and twice the same result."""
    weights, y, start = problem(draw)
    demand(student.keeps("search", weights, y, start, 0.3, 8, 0.5, 0.1), "an argument was changed")
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


@check("hunt", 2, "The test must notice that positions within the cluster are taken for clients.")
def positions(student, reference, draw):
    """The released mistake, which shows from the second split on."""
    hunts(student, "hunt", [right, loop], locally)


@check("hunt", 1, "The test must notice that the wrong half moves.")
def other_half(student, reference, draw):
    """Those with a false one."""
    hunts(student, "hunt", [right, loop], lambda a, c, moves: right(a, c, ~moves))


@check("hunt", 1, "The test must notice that the new number is not free.")
def not_free(student, reference, draw):
    """The number after the cluster's own."""
    hunts(student, "hunt", [right, loop], taken)


@check("measure", 2, "The correlation with your own digit.")
def own(student, reference, draw):
    """To five decimals."""
    measured(student, reference, "own", 1e-5)


@check("measure", 2, "The largest correlation with another digit.")
def others(student, reference, draw):
    """Likewise."""
    measured(student, reference, "others", 1e-5)
