"""Hidden tests of assignment 3."""

import math

import torch

from course.checking import check, demand, hunted, measured, pure, same


def client(draw):
    """An anchor and one client's data, of which it has the first picture wrong: no gradient is near 0."""
    anchor, x, y = draw.normal(draw.C, draw.d), draw.normal(draw.n, draw.d), draw.whole(0, draw.C, draw.n)
    y[0] = (anchor @ x[0]).argmin()
    return anchor, x, y


def at(*degrees):
    """Unit vectors (n, 2) at these angles."""
    return torch.tensor([[math.cos(math.radians(a)), math.sin(math.radians(a))] for a in degrees])


@check(
    "fingerprint",
    1,
    "The direction is that of the loss's gradient over all pictures.",
    n=(1, 12),
    C=(2, 5),
    d=(1, 6),
)
def direction(student, reference, draw):
    """Whatever its length."""
    anchor, x, y = client(draw)
    got = student.fingerprint(anchor, x, y)
    same(got / got.norm(), reference.fingerprint(anchor, x, y))


@check(
    "fingerprint", 1, "The length is 1, by the Euclidean norm of the whole vector.", n=(2, 12), C=(3, 5), d=(2, 6)
)
def unit(student, reference, draw):
    """For gradients that are long and short."""
    for scale in (1e-3, 1e3):
        anchor, x, y = client(draw)
        same(student.fingerprint(anchor, scale * x, y).norm(), 1.0)
    pure(student, "fingerprint", (anchor, x, y), (anchor, 2 * x.flip(0) + 1, y))


@check("fingerprint", 1, "A gradient of length 0 gives zeros, and no NaN.", n=(1, 5), C=(2, 5), d=(1, 6))
def nothing(student, reference, draw):
    """Black pictures, and then others."""
    anchor, x, y = client(draw)
    same(student.fingerprint(anchor, 0 * x, y), torch.zeros(draw.C * draw.d))
    demand(float(student.fingerprint(anchor, x, y).abs().max()) > 0, "zeros for every client")


@check(
    "merge", 1, "Cosines at or below tau do not merge, and clusters are numbered by their lowest members.", n=(2, 6)
)
def strict(student, reference, draw):
    """Axes have cosine 0, exactly."""
    axes = torch.eye(draw.n)
    same(student.merge(axes, 0.0), list(range(draw.n)))
    same(student.merge(torch.eye(3)[[2, 0, 2, 0, 1]], 0.5), [0, 1, 0, 1, 2])
    pure(student, "merge", (axes[[1, 0, 1]], 0.5), (axes[[0, 0, 1, 1]], 0.3))


@check("merge", 2, "After a merger the cluster's mean is what is compared.")
def again(student, reference, draw):
    """At 0, 50 and 101 degrees, the mean of the first two is 76 from the third."""
    turn = draw.between(0, 360)
    same(student.merge(at(turn, turn + 50, turn + 101), 0.5), [0, 0, 1])
    same(student.merge(at(turn + 101, turn, turn + 50), 0.5), [0, 1, 1])


@check("merge", 1, "The pair with the largest cosine merges first.")
def closest(student, reference, draw):
    """In order of the list, 0 and 50 degrees would merge first."""
    turn = draw.between(0, 360)
    same(student.merge(at(turn, turn + 50, turn + 90), 0.6), [0, 1, 1])


@check(
    "merge",
    1,
    "A cluster's fingerprint is the mean over all its members, and equal cosines go to the first pair.",
    n=(1, 24),
    d=(3, 6),
)
def weighed(student, reference, draw):
    """Many random vectors; four, the first near the mean of two means alone; vectors between two others."""
    for tau in (0.2, 0.5):
        prints = draw.normal(draw.n, draw.d) + 1.5 * draw.normal(3, draw.d)[torch.arange(draw.n) % 3]
        prints = prints / prints.norm(dim=1, keepdim=True)
        same(student.merge(prints, tau), reference.merge(prints, tau))
    four = [[0.05, 0.3, 0, 0.95], [0.34, 0.94, 0, 0], [0.91, 0, -0.42, 0], [0.91, 0, 0.42, 0]]
    same(student.merge(torch.nn.functional.normalize(torch.tensor(four), dim=1), 0.19), [0, 1, 1, 1])
    sides = torch.tensor([[1.0, 0.0], [0.5**0.5, 0.5**0.5], [0.0, 1.0]])
    same(student.merge(sides, 0.6), [0, 0, 1])
    prints = torch.block_diag(sides, sides)[draw.order(6)]
    same(student.merge(prints, 0.6), reference.merge(prints, 0.6))


def problem(draw):
    """A least-squares problem, a start and a target of the pull."""
    return draw.normal(draw.P), draw.normal(draw.P), draw.normal(draw.n, draw.P), draw.normal(draw.n)


@check("pulled", 1, "Without a pull it is gradient descent on the mean loss.", n=(3, 9), P=(1, 5), steps=(2, 8))
def free(student, reference, draw):
    """Lambda 0, several steps."""
    given = (*problem(draw), 0.1, draw.steps, 0.0)
    same(student.pulled(*given), reference.pulled(*given))


@check(
    "pulled",
    2,
    "The pull is lambda times the distance, towards the global model.",
    n=(3, 9),
    P=(1, 5),
    steps=(2, 9),
)
def pull(student, reference, draw):
    """One step; then without any loss, where the distance shrinks by (1 - lr lambda) a step."""
    theta, omega, A, b = problem(draw)
    same(student.pulled(theta, omega, A, b, 0.1, 1, 0.7), reference.pulled(theta, omega, A, b, 0.1, 1, 0.7))
    got = student.pulled(theta, omega, 0 * A, 0 * b, 0.1, draw.steps, 2.0)
    same(got, omega + 0.8**draw.steps * (theta - omega))


@check(
    "pulled",
    1,
    "The global model stands still, and so does what was handed in.",
    n=(3, 9),
    P=(2, 5),
    steps=(25, 40),
)
def still(student, reference, draw):
    """Many steps with a strong pull."""
    given = (*problem(draw), 0.1, draw.steps, 3.0)
    same(student.pulled(*given), reference.pulled(*given))
    pure(student, "pulled", given, (*problem(draw), 0.1, 3, 1.0))


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


RIGHT = [parallel, stepwise]

chained = hunted(
    2, "The test must notice that each client starts where the one before it ended.", RIGHT, [chain(last=False)]
)
last = hunted(
    1,
    "The test must notice that only the last client's model is kept.",
    RIGHT,
    [chain(last=True), lambda w, c, lr, n: parallel(w, c[-1:], lr, n)],
)
one_step = hunted(
    1, "The test must notice a single step instead of several.", RIGHT, [lambda w, c, lr, n: parallel(w, c, lr, 1)]
)


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
