"""Hidden tests of assignment 1."""

import torch

from course.checking import check, demand, hunted, measured, pure, same


def counted(draw):
    """Label counts of ragged clients, one of them large."""
    counts = draw.whole(0, 30, draw.m, draw.C)
    counts[0] *= 20
    return counts + 1


@check("skew", 1, "A client's counts must become shares.", m=(1, 9), C=(2, 6))
def shares(student, reference, draw):
    """Scaling all counts by ten changes no share; equal mixes have skew 0, others have not."""
    counts = counted(draw)
    same(student.skew(10 * counts), student.skew(counts))
    demand(float(student.skew(counts).max()) <= 2, "a distance above 2, which no shares have")
    alike = draw.whole(1, 9, draw.m, 1) * draw.whole(1, 9, 1, draw.C)
    same(student.skew(alike), torch.zeros(draw.m))
    demand(float(student.skew(torch.tensor([[0, 0, 7], [3, 4, 0]])).min()) > 0.1, "clients without a common label")


@check("skew", 1, "The common mix is that of all pictures, not the mean of the clients' mixes.", m=(3, 9), C=(3, 6))
def pooled(student, reference, draw):
    """A large client dominates the mix; with the plain mean all would be different."""
    counts = counted(draw)
    got, mine = student.skew(counts), reference.skew(counts)
    same(got / got.sum(), mine / mine.sum())


@check("skew", 1, "The distance has the factor one half.", m=(2, 7), C=(2, 6))
def half(student, reference, draw):
    """Clients of equal size: two without a common label, and some with the same counts in another order."""
    same(student.skew(torch.tensor([[0, 0, 7], [3, 4, 0]])), [0.5, 0.5])
    row = torch.arange(draw.C) * int(draw.whole(1, 5)) + 1
    counts = torch.stack([row[draw.order(draw.C)] for _ in range(draw.m)])
    same(student.skew(counts), reference.skew(counts))
    pure(student, "skew", (counts,), (torch.tensor([[1, 0], [3, 4]]),))


def problem(draw):
    """Weights, pictures and labels, the first of them wrong by the weights: no gradient is near 0."""
    w, x, y = draw.normal(draw.C, draw.d), draw.normal(draw.n, draw.d), draw.whole(0, draw.C, draw.n)
    y[0] = (w @ x[0]).argmin()
    return w, x, y


@check("train", 1, "One step on all pictures is a step down the gradient.", n=(1, 12), C=(2, 5), d=(1, 6))
def descends(student, reference, draw):
    """The direction is that of the gradient, whatever its length."""
    w, x, y = problem(draw)
    step = student.train(w, x, y, 1.0, [torch.arange(draw.n)]) - w
    mine = reference.train(w, x, y, 1.0, [torch.arange(draw.n)]) - w
    same(step / step.norm(), mine / mine.norm())


@check(
    "train",
    2,
    "Batches are taken as they come, and the loss is the mean over each, also over a short one.",
    more=(2, 9),
    C=(2, 5),
    d=(1, 6),
)
def means(student, reference, draw):
    """Unequal lengths tell a mean from a sum, or from a division by the first; short ones come first or last."""
    draw.n = 8 + draw.more
    w, x, y = problem(draw)
    rows = draw.order(draw.n)
    step, mine = (one.train(w, x, y, 0.3, [rows]) - w for one in (student, reference))
    demand(not step.allclose(draw.n * mine), "gradients of a batch are summed, not averaged")
    for batches in (rows.split([4, 4, draw.more]), rows.split([1, 4, draw.n - 5]), rows.split([draw.n - 3, 2, 1])):
        same(student.train(w, x, y, 0.3, list(batches)), reference.train(w, x, y, 0.3, list(batches)))


@check(
    "train",
    1,
    "Each step starts where the one before it ended, and the tensor handed in stays as it is.",
    n=(2, 9),
    C=(2, 5),
    d=(1, 5),
)
def goes_on(student, reference, draw):
    """Four steps in one call are four calls of one step, down the gradient; calling twice gives the same."""
    w, x, y = problem(draw)
    batches = [torch.arange(draw.n)] * 4
    step, mine = (one.train(w, x, y, 0.5, batches[:1]) - w for one in (student, reference))
    same(step / step.norm(), mine / mine.norm())
    alone = w
    for rows in batches:
        alone = student.train(alone, x, y, 0.5, [rows])
    same(student.train(w, x, y, 0.5, batches), alone)
    pure(student, "train", (w, x, y, 0.5, batches), (2 * w, x, y, 0.3, batches[:2]))


@check("average", 1, "Clients of equal size have equal weight.", m=(1, 7), P=(1, 9))
def equal(student, reference, draw):
    """The plain mean."""
    models = draw.normal(draw.m, draw.P)
    same(student.average(models, torch.full((draw.m,), int(draw.whole(1, 60)))), models.mean(0))


@check("average", 2, "A client weighs as many pictures as it has.", m=(2, 9), P=(1, 9))
def ragged(student, reference, draw):
    """Two clients, one three times as large; then random ones."""
    same(student.average(torch.tensor([[0.0, 8.0], [4.0, 0.0]]), torch.tensor([3, 1])), [1.0, 6.0])
    models, sizes = draw.normal(draw.m, draw.P), draw.whole(1, 900, draw.m)
    same(student.average(models, sizes), reference.average(models, sizes))


@check(
    "average",
    1,
    "Arguments stay as they are, nothing is remembered, and sizes may be whole numbers or not.",
    m=(2, 5),
    P=(1, 5),
)
def types(student, reference, draw):
    """Sizes come as int64, int32 and float64."""
    models, sizes = draw.normal(draw.m, draw.P), draw.whole(1, 9, draw.m)
    sizes[0] = 10
    for kind in (torch.int64, torch.int32, torch.float64):
        same(student.average(models, sizes.to(kind)), reference.average(models, sizes))
    pure(student, "average", (models, sizes), (2 * models[1:], sizes[1:]))


def right(models, sizes, sampled):
    """Average as it should be."""
    weights = sizes[sampled].double()
    return weights @ models[sampled] / weights.sum()


def backwards(models, sizes, sampled):
    """Average in another order of the clients, which changes the rounding."""
    total = torch.zeros_like(models[0])
    for i in reversed(list(sampled)):
        total = total + models[i] * float(sizes[i])
    return total / float(sizes[sampled].sum())


RIGHT = [right, backwards]

loses = hunted(
    2,
    "The test must notice that client 0 is lost.",
    RIGHT,
    [lambda m, n, s: right(m, n, [i for i in s if i] or [0])],
)
misweighs = hunted(
    1,
    "The test must notice weights that are not the sampled clients' sizes.",
    RIGHT,
    [lambda m, n, s: n[: len(s)].double() @ m[s] / n[: len(s)].sum(), lambda m, n, s: m[s].mean(0)],
)
too_many = hunted(
    1,
    "The test must notice clients that take part without being sampled.",
    RIGHT,
    [lambda m, n, s: right(m, n, list(range(len(m))))],
)


@check("measure", 2, "The mean skew of your own federation.")
def own_skew(student, reference, draw):
    """To rounding."""
    measured(student, reference, "skew", 1e-6)


@check("measure", 3, "The accuracy of your own run, after the last round.")
def own_accuracy(student, reference, draw):
    """To one picture of the test set."""
    measured(student, reference, "accuracy", 0.003)
