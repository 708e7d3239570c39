"""Hidden tests of assignment 2."""

import torch

from course.checking import check, demand, hunted, measured, pure, same


@check(
    "choose", 2, "A client takes the centre with the least loss on its own pictures.", K=(2, 6), C=(2, 4), d=(3, 6)
)
def least(student, reference, draw):
    """Thirty ragged clients with random data; the choice by accuracy or by the worst loss is another."""
    sizes = [int(n) for n in draw.whole(1, 12, 30)]
    xs, ys = [draw.normal(n, draw.d) for n in sizes], [draw.whole(0, draw.C, n) for n in sizes]
    centres = 2 * draw.normal(draw.K, draw.C, draw.d)
    same(student.choose(centres, xs, ys), reference.choose(centres, xs, ys))
    pure(student, "choose", (centres, xs, ys), (centres.flip(0), xs[:20], ys[:20]))


@check(
    "choose", 1, "The choice is by mean cross-entropy, not by accuracy, and ties go to the lowest index.", K=(5, 8)
)
def ties(student, reference, draw):
    """All centres are sure of label 0; two are equally the surest, two the least sure, none of them the first."""
    sure = torch.arange(draw.K).double() + 2
    top, least = draw.order(draw.K - 1)[:4].add(1).split(2)
    sure[top], sure[least] = float(draw.K + 3), 1.0
    centres = torch.stack([sure, 0 * sure], 1).unsqueeze(2)
    x, zero, one = torch.ones(4, 1), torch.zeros(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64)
    same(student.choose(centres, [x, x], [zero, one]), [int(top.min()), int(least.min())])


def taken(draw, K, m):
    """A choice by which no centre is left alone, and centres have different numbers of clients."""
    return torch.cat([torch.arange(K), draw.whole(0, K, m - K)])[draw.order(m)]


@check("update", 2, "A centre is the plain mean of the models of its own clients.", K=(1, 9), more=(2, 6), P=(1, 6))
def members(student, reference, draw):
    """Any number of centres, each chosen by at least one client."""
    m = draw.K + draw.more
    centres, trained, chosen = draw.normal(draw.K, draw.P), draw.normal(m, draw.P), taken(draw, draw.K, m)
    same(student.update(centres, trained, chosen), reference.update(centres, trained, chosen))


@check("update", 1, "A centre that nobody chose stays as it is.", P=(1, 6))
def empty(student, reference, draw):
    """Two of four centres are empty."""
    centres, trained, who = draw.normal(4, draw.P), draw.normal(2, draw.P), draw.order(4)
    got = student.update(centres, trained, who[:2])
    same(got[who[2:]], centres[who[2:]])
    demand(float((got[who[:2]] - centres[who[:2]]).abs().max()) > 0, "no centre moved")


@check("update", 1, "The tensors handed in stay as they are, and nothing is remembered.", P=(1, 6))
def kept(student, reference, draw):
    """The result moves, the argument does not."""
    centres, trained, chosen = draw.normal(2, draw.P), draw.normal(4, draw.P), torch.tensor([0, 1, 1, 0])
    pure(student, "update", (centres, trained, chosen), (centres + 1, 2 * trained, chosen))
    got = student.update(centres, trained, chosen)
    demand(got.shape == centres.shape, "the result has another shape than the centres")  # unlike `trained` itself
    same(got.mean(0), trained.mean(0))


@check("ari", 1, "The index of a small example.")
def small(student, reference, draw):
    """S = 2, S_a = 6, S_b = 4 and E = 24/15 by hand."""
    got = student.ari(torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 2, 2]))
    same(got, (2 - 18 / 15) / ((6 + 3) / 2 - 18 / 15))


@check("ari", 1, "The names of clusters mean nothing.", N=(6, 30))
def renamed(student, reference, draw):
    """Other names, which need not be 0, 1, 2, nor below the number of clients, nor positive."""
    found, truth = draw.whole(0, 4, draw.N), draw.whole(0, 4, draw.N)
    found[:3], truth[:3] = torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1])
    one, two = draw.order(900)[:4] + 40, 40 - draw.order(900)[:4]
    same(student.ari(one[found], truth), reference.ari(found, truth))
    same(student.ari(found, two[truth]), reference.ari(found, truth))


@check("ari", 1, "One cluster for everybody scores 0, and the same trivial clustering twice scores 1.", N=(4, 12))
def trivial(student, reference, draw):
    """With several true clusters, with one, and with a single client."""
    nothing = torch.zeros(draw.N, dtype=torch.int64)
    same(student.ari(nothing, torch.arange(draw.N) % 2), 0.0)
    same(student.ari(nothing, nothing), 1.0)
    same(student.ari(nothing[:1], nothing[:1]), 1.0)
    pure(student, "ari", (nothing, torch.arange(draw.N) % 2), (nothing, nothing))


@check("ari", 1, "The index of large random clusterings.", k=(2, 9), N=(30, 60))
def large(student, reference, draw):
    """Different numbers of clusters on the two sides."""
    found, truth = draw.whole(0, draw.k, draw.N), draw.whole(0, 4, draw.N)
    found[:12] = truth[:12] = torch.arange(12) % min(draw.k, 4)
    same(student.ari(found, truth), reference.ari(found, truth))


def by(table):
    """Score with each client served by its least entry of `table(train, test, right)`."""
    return lambda a, b, c: float(c[torch.arange(len(c)), table(a, b, c).argmin(1)].mean())


def loop(train, test, right):
    """Score as it should be, in plain Python."""
    rows = zip(train.tolist(), right.tolist(), strict=True)
    return sum(shares[losses.index(min(losses))] for losses, shares in rows) / len(train)


RIGHT = [by(lambda train, test, right: train), loop]


peeks = hunted(
    2, "The test must notice that test data choose the centre.", RIGHT, [by(lambda train, test, right: test)]
)
best = hunted(
    1,
    "The test must notice that the best accuracy chooses the centre.",
    RIGHT,
    [by(lambda train, test, right: -right)],
)
others = hunted(
    1,
    "The test must notice the largest training loss, and a mean over all centres.",
    RIGHT,
    [by(lambda train, test, right: -train), lambda train, test, right: float(right.mean())],
)


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
