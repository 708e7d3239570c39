"""Hidden tests of assignment 1."""

import torch

from course.checking import check, demand, hunts, measured, normal, same


def counted(draw, clients=9, classes=6):
    """Label counts of ragged clients."""
    counts = torch.from_numpy(draw.integers(0, 30, (clients, classes)))
    counts[0] *= 20
    return counts + 1


@check("skew", 1, "A client's counts must become shares.")
def shares(student, reference, draw):
    """Scaling all counts by ten changes no share."""
    counts = counted(draw)
    same(student.skew(10 * counts), student.skew(counts))
    demand(float(student.skew(counts).max()) <= 1, "a distance above 1")


@check("skew", 1, "The common mix is that of all pictures, not the mean of the clients' mixes.")
def pooled(student, reference, draw):
    """A large client dominates the mix; with the plain mean all would be different."""
    counts = counted(draw)
    got, mine = student.skew(counts), reference.skew(counts)
    same(got / got.sum(), mine / mine.sum())


@check("skew", 1, "The distance has the factor one half.")
def half(student, reference, draw):
    """Two clients of equal size without a common label are half a unit from their mix."""
    same(student.skew(torch.tensor([[0, 0, 7], [3, 4, 0]])), [0.5, 0.5])


@check("train", 1, "One step on all pictures is a step down the gradient.")
def descends(student, reference, draw):
    """The direction is that of the gradient, whatever its length."""
    w, x, y = normal(draw, 3, 5), normal(draw, 12, 5), torch.arange(12) % 3
    step = student.train(w, x, y, 0.1, [torch.arange(12)]) - w
    mine = reference.train(w, x, y, 0.1, [torch.arange(12)]) - w
    same(step / step.norm(), mine / mine.norm())


@check("train", 2, "The loss is the mean over a batch, also over a short last one.")
def means(student, reference, draw):
    """Batches of unequal length tell a mean from a sum, and from a division by the first length."""
    w, x, y = normal(draw, 3, 5), normal(draw, 10, 5), torch.arange(10) % 3
    batches = [torch.tensor([0, 3, 5, 7]), torch.tensor([1, 2, 4, 6]), torch.tensor([8, 9])]
    same(student.train(w, x, y, 0.3, batches), reference.train(w, x, y, 0.3, batches))


@check("train", 1, "Each step starts where the one before it ended, and the tensor handed in stays as it is.")
def goes_on(student, reference, draw):
    """Ten steps on one batch are not ten times the first; calling twice gives the same."""
    w, x, y = normal(draw, 4, 3), normal(draw, 8, 3), torch.arange(8) % 4
    batches = [torch.arange(8)] * 10
    first = student.train(w, x, y, 0.5, batches)
    mine = reference.train(w, x, y, 0.5, batches) - w
    same((first - w) / (first - w).norm(), mine / mine.norm())
    demand(student.keeps("train", w, x, y, 0.5, batches), "an argument was changed")


@check("average", 1, "Clients of equal size have equal weight.")
def equal(student, reference, draw):
    """The plain mean."""
    models = normal(draw, 5, 7)
    same(student.average(models, torch.full((5,), 40)), models.mean(0))


@check("average", 2, "A client weighs as many pictures as it has.")
def ragged(student, reference, draw):
    """Two clients, one three times as large; then random ones."""
    same(student.average(torch.tensor([[0.0, 8.0], [4.0, 0.0]]), torch.tensor([3, 1])), [1.0, 6.0])
    models, sizes = normal(draw, 6, 4), torch.from_numpy(draw.integers(1, 90, 6))
    same(student.average(models, sizes), reference.average(models, sizes))


@check("average", 1, "Arguments stay as they are, and sizes may be whole numbers or not.")
def types(student, reference, draw):
    """Sizes come as int64, int32 and float64."""
    models, sizes = normal(draw, 3, 4), torch.tensor([5, 1, 3])
    for kind in (torch.int64, torch.int32, torch.float64):
        same(student.average(models, sizes.to(kind)), reference.average(models, sizes))
    demand(student.keeps("average", models, sizes), "an argument was changed")


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


@check("hunt", 2, "The test must notice that client 0 is lost.")
def loses(student, reference, draw):
    """The released mistake."""
    hunts(student, "hunt", [right, backwards], lambda m, n, s: right(m, n, [i for i in s if i] or [0]))


@check("hunt", 1, "The test must notice weights that are not the sampled clients' sizes.")
def misweighs(student, reference, draw):
    """The sizes of the first clients instead of the sampled ones, and no sizes at all."""
    hunts(student, "hunt", [right, backwards], lambda m, n, s: n[: len(s)].double() @ m[s] / n[: len(s)].sum())
    hunts(student, "hunt", [right, backwards], lambda m, n, s: m[s].mean(0))


@check("hunt", 1, "The test must notice clients that take part without being sampled.")
def too_many(student, reference, draw):
    """All clients instead of the sampled ones."""
    hunts(student, "hunt", [right, backwards], lambda m, n, s: right(m, n, list(range(len(m)))))


@check("measure", 2, "The mean skew of your own federation.")
def own_skew(student, reference, draw):
    """To rounding."""
    measured(student, reference, "skew", 1e-6)


@check("measure", 3, "The accuracy of your own run, after the last round.")
def own_accuracy(student, reference, draw):
    """To one picture of the test set."""
    measured(student, reference, "accuracy", 0.003)
