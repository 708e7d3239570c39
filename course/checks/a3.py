"""Hidden tests of assignment 3."""

import math

import torch

from course.checking import check, demand, hunts, measured, normal, same


def client(draw, n=11, classes=3, d=4):
    """An anchor and one client's data."""
    return normal(draw, classes, d), normal(draw, n, d), torch.from_numpy(draw.integers(0, classes, n))


def at(*degrees):
    """Unit vectors (n, 2) at these angles."""
    return torch.tensor([[math.cos(math.radians(a)), math.sin(math.radians(a))] for a in degrees])


@check("fingerprint", 1, "The direction is that of the loss's gradient over all pictures.")
def direction(student, reference, draw):
    """Whatever its length."""
    anchor, x, y = client(draw)
    got = student.fingerprint(anchor, x, y)
    same(got / got.norm(), reference.fingerprint(anchor, x, y))


@check("fingerprint", 1, "The length is 1, by the Euclidean norm of the whole vector.")
def unit(student, reference, draw):
    """For gradients that are long and short."""
    for scale in (1e-3, 1e3):
        anchor, x, y = client(draw)
        same(student.fingerprint(anchor, scale * x, y).norm(), 1.0)


@check("fingerprint", 1, "A gradient of length 0 gives zeros, and no NaN.")
def nothing(student, reference, draw):
    """Black pictures."""
    anchor, x, y = client(draw)
    same(student.fingerprint(anchor, 0 * x, y), torch.zeros(12))


@check("merge", 1, "Cosines at or below tau do not merge, and clusters are numbered by their lowest members.")
def strict(student, reference, draw):
    """Axes have cosine 0, exactly."""
    axes = torch.eye(3)
    same(student.merge(axes, 0.0), [0, 1, 2])
    same(student.merge(axes[[2, 0, 2, 0, 1]], 0.5), [0, 1, 0, 1, 2])


@check("merge", 2, "After a merger the cluster's mean is what is compared.")
def again(student, reference, draw):
    """At 0, 50 and 101 degrees, the mean of the first two is 76 from the third."""
    same(student.merge(at(0, 50, 101), 0.5), [0, 0, 1])
    same(student.merge(at(101, 0, 50), 0.5), [0, 1, 1])


@check("merge", 1, "The pair with the largest cosine merges first.")
def closest(student, reference, draw):
    """In order of the list, 0 and 50 degrees would merge first."""
    same(student.merge(at(0, 50, 90), 0.6), [0, 1, 1])


@check("merge", 1, "A cluster's fingerprint is the mean over all its members.")
def weighed(student, reference, draw):
    """Many random vectors, where a mean of two means is another."""
    for tau in (0.2, 0.5):
        prints = normal(draw, 24, 5) + 1.5 * normal(draw, 3, 5)[torch.arange(24) % 3]
        prints = prints / prints.norm(dim=1, keepdim=True)
        same(student.merge(prints, tau), reference.merge(prints, tau))


def problem(draw):
    """A least-squares problem, a start and a target of the pull."""
    return normal(draw, 5), normal(draw, 5), normal(draw, 9, 5), normal(draw, 9)


@check("pulled", 1, "Without a pull it is gradient descent on the mean loss.")
def free(student, reference, draw):
    """Lambda 0, several steps."""
    theta, omega, A, b = problem(draw)
    same(student.pulled(theta, omega, A, b, 0.1, 6, 0.0), reference.pulled(theta, omega, A, b, 0.1, 6, 0.0))


@check("pulled", 2, "The pull is lambda times the distance, towards the global model.")
def pull(student, reference, draw):
    """One step; then without any loss, where the distance shrinks by (1 - lr lambda) a step."""
    theta, omega, A, b = problem(draw)
    same(student.pulled(theta, omega, A, b, 0.1, 1, 0.7), reference.pulled(theta, omega, A, b, 0.1, 1, 0.7))
    same(student.pulled(theta, omega, 0 * A, 0 * b, 0.1, 4, 2.0), omega + 0.8**4 * (theta - omega))


@check("pulled", 1, "The global model stands still, and so does what was handed in.")
def still(student, reference, draw):
    """Many steps with a strong pull."""
    theta, omega, A, b = problem(draw)
    same(student.pulled(theta, omega, A, b, 0.1, 25, 3.0), reference.pulled(theta, omega, A, b, 0.1, 25, 3.0))
    demand(student.keeps("pulled", theta, omega, A, b, 0.1, 25, 3.0), "an argument was changed")


def parallel(omega, centres, lr, steps):
    """A round as listed."""
    return (centres + (1 - lr) ** steps * (omega - centres)).mean(0)


def stepwise(omega, centres, lr, steps):
    """The same, step by step."""
    models = omega.expand_as(centres).clone()
    for _ in range(steps):
        models = models - lr * (models - centres)
    return models.sum(0) / len(centres)


def chain(last):
    """A round handed from client to client: the mean of all models on the way, or only the last."""

    def round(omega, centres, lr, steps):
        models = []
        for c in centres:
            omega = c + (1 - lr) ** steps * (omega - c)
            models.append(omega)
        return models[-1] if last else torch.stack(models).mean(0)

    return round


@check("hunt", 2, "The test must notice that each client starts where the one before it ended.")
def chained(student, reference, draw):
    """The released code."""
    hunts(student, "hunt", [parallel, stepwise], chain(last=False))


@check("hunt", 1, "The test must notice that only the last client's model is kept.")
def last(student, reference, draw):
    """A chain without a mean, and a loop that overwrites its result."""
    hunts(student, "hunt", [parallel, stepwise], chain(last=True))
    hunts(student, "hunt", [parallel, stepwise], lambda w, c, lr, n: parallel(w, c[-1:], lr, n))


@check("hunt", 1, "The test must notice a single step instead of several.")
def one_step(student, reference, draw):
    """FedSGD."""
    hunts(student, "hunt", [parallel, stepwise], lambda w, c, lr, n: parallel(w, c, lr, 1))


@check("measure", 2, "The accuracy of your own parallel run, after the last round.")
def own_parallel(student, reference, draw):
    """To two pictures of the test set."""
    measured(student, reference, "parallel", 0.0015)


@check("measure", 1, "The accuracy of your own chained run, after the last round.")
def own_chained(student, reference, draw):
    """Likewise."""
    measured(student, reference, "chained", 0.0015)


@check("measure", 1, "The accuracy of your own chained run's global model, after the last round.")
def own_global(student, reference, draw):
    """Likewise."""
    measured(student, reference, "global", 0.0015)
