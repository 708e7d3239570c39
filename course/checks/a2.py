"""Hidden tests of assignment 2."""

import torch

from course.checking import check, demand, hunts, measured, normal, same


def clients(draw, m=9, k=4, classes=3, d=5):
    """Centres, and ragged clients with random labels."""
    sizes = [int(n) for n in draw.integers(2, 12, m)]
    xs = [normal(draw, n, d) for n in sizes]
    ys = [torch.from_numpy(draw.integers(0, classes, n)) for n in sizes]
    return 2 * normal(draw, k, classes, d), xs, ys


@check("choose", 2, "A client takes the centre with the least loss on its own pictures.")
def least(student, reference, draw):
    """Thirty clients with random data; the choice by accuracy or by the worst loss is another."""
    centres, xs, ys = clients(draw, m=30)
    same(student.choose(centres, xs, ys), reference.choose(centres, xs, ys))


@check("choose", 1, "The choice is by mean cross-entropy, not by accuracy, and ties go to the lowest index.")
def ties(student, reference, draw):
    """Centre 2 is surer of what both get right; centres 0 and 1 are equal."""
    centres = torch.tensor([[[1.0], [0.0]], [[1.0], [0.0]], [[3.0], [0.0]]])
    x, zero, one = torch.ones(4, 1), torch.zeros(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64)
    same(student.choose(centres, [x, x], [zero, one]), [2, 0])


@check("update", 2, "A centre is the plain mean of the models of its own clients.")
def members(student, reference, draw):
    """Every centre is chosen by a different number of clients."""
    centres, trained = normal(draw, 3, 6), normal(draw, 6, 6)
    chosen = torch.tensor([2, 0, 2, 1, 2, 0])
    same(student.update(centres, trained, chosen), reference.update(centres, trained, chosen))


@check("update", 1, "A centre that nobody chose stays as it is.")
def empty(student, reference, draw):
    """Centres 0 and 3 are empty."""
    centres, trained = normal(draw, 4, 5), normal(draw, 2, 5)
    got = student.update(centres, trained, torch.tensor([1, 2]))
    same(got[[0, 3]], centres[[0, 3]])
    demand(float((got[[1, 2]] - centres[[1, 2]]).abs().max()) > 0, "no centre moved")


@check("update", 1, "The tensors handed in stay as they are.")
def kept(student, reference, draw):
    """The result moves, the argument does not."""
    centres, trained, chosen = normal(draw, 2, 3), normal(draw, 4, 3), torch.tensor([0, 1, 1, 0])
    demand(student.keeps("update", centres, trained, chosen), "an argument was changed")
    same(student.update(centres, trained, chosen).mean(0), trained.view(4, 3).mean(0))


@check("ari", 1, "The index of a small example.")
def small(student, reference, draw):
    """S = 2, S_a = 6, S_b = 4 and E = 24/15 by hand."""
    got = student.ari(torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 2, 2]))
    same(got, (2 - 18 / 15) / ((6 + 3) / 2 - 18 / 15))


@check("ari", 1, "The names of clusters mean nothing.")
def renamed(student, reference, draw):
    """Other names, which need not be 0, 1, 2."""
    found, truth = (torch.from_numpy(draw.integers(0, 4, 30)) for _ in range(2))
    names = torch.tensor([7, 3, 20, 4])
    same(student.ari(names[found], truth), reference.ari(found, truth))


@check("ari", 1, "One cluster for everybody scores 0, and the same trivial clustering twice scores 1.")
def trivial(student, reference, draw):
    """With several true clusters, and with one."""
    nothing = torch.zeros(8, dtype=torch.int64)
    same(student.ari(nothing, torch.arange(8) % 2), 0.0)
    same(student.ari(nothing, nothing), 1.0)


@check("ari", 1, "The index of large random clusterings.")
def large(student, reference, draw):
    """Different numbers of clusters on the two sides."""
    for k in (2, 5, 9):
        found, truth = (torch.from_numpy(draw.integers(0, n, 60)) for n in (k, 4))
        found[:20] = truth[:20]
        same(student.ari(found, truth), reference.ari(found, truth))


def by(table):
    """Score with each client served by its least entry of `table(train, test, right)`."""
    return lambda a, b, c: float(c[torch.arange(len(c)), table(a, b, c).argmin(1)].mean())


def loop(train, test, right):
    """Score as it should be, in plain Python."""
    rows = zip(train.tolist(), right.tolist(), strict=True)
    return sum(shares[losses.index(min(losses))] for losses, shares in rows) / len(train)


RIGHT = [by(lambda train, test, right: train), loop]


@check("hunt", 2, "The test must notice that test data choose the centre.")
def peeks(student, reference, draw):
    """The released mistake."""
    hunts(student, "hunt", RIGHT, by(lambda train, test, right: test))


@check("hunt", 1, "The test must notice that the best accuracy chooses the centre.")
def best(student, reference, draw):
    """The mistake of another code."""
    hunts(student, "hunt", RIGHT, by(lambda train, test, right: -right))


@check("hunt", 1, "The test must notice the largest training loss, and a mean over all centres.")
def others(student, reference, draw):
    """Two mistakes of students."""
    hunts(student, "hunt", RIGHT, by(lambda train, test, right: -train))
    hunts(student, "hunt", RIGHT, lambda train, test, right: float(right.mean()))


@check("measure", 2, "The ARI of your own run.")
def own_ari(student, reference, draw):
    """To rounding."""
    measured(student, reference, "ari", 1e-6)


@check("measure", 2, "The accuracy of your own run, after the last round.")
def own_accuracy(student, reference, draw):
    """To one picture of the test set."""
    measured(student, reference, "accuracy", 0.0015)


@check("measure", 1, "The spread over clients in your own run, after the last round.")
def own_spread(student, reference, draw):
    """To the fourth decimal."""
    measured(student, reference, "spread", 2e-4)
