"""Hidden tests of assignment 5."""

import torch

from course.checking import check, hunted, measured, pure, same


@check("e_step", 1, "Each model goes to the nearest centre.", K=(2, 9), P=(2, 7))
def nearest(student, reference, draw):
    """Random models and centres."""
    models, centres = draw.normal(40, draw.P), draw.normal(draw.K, draw.P)
    same(student.e_step(models, centres), reference.e_step(models, centres))


@check("e_step", 1, "Distances are Euclidean, no cosines, and ties go to the lowest index.", K=(3, 4))
def euclid(student, reference, draw):
    """The nearer centre points elsewhere; two centres are equal, none of them the first."""
    centres = torch.tensor([[0.0, 50.0], [1.0, 0.5], [1.0, 0.5], [90.0, 90.0]])[: draw.K]
    models = torch.tensor([[0.1, 2.0], [0.0, 40.0]])
    same(student.e_step(models, centres), [1, 0])
    pure(student, "e_step", (models, centres), (models.flip(0), centres))


@check("m_step", 1, "Each centre is the plain mean of its own clients.", K=(1, 9), more=(2, 6), P=(1, 6))
def members(student, reference, draw):
    """Clusters of different size, none of them empty."""
    m = draw.K + draw.more
    chosen = torch.cat([torch.arange(draw.K), draw.whole(0, draw.K, draw.more)])[draw.order(m)]
    models, centres = draw.normal(m, draw.P), draw.normal(draw.K, draw.P)
    same(student.m_step(models, chosen, centres), reference.m_step(models, chosen, centres))


@check("m_step", 1, "An empty cluster keeps its centre, and the old centres are not changed.", P=(1, 6))
def empty(student, reference, draw):
    """Two of three clusters are empty."""
    models, centres = draw.normal(2, draw.P), draw.normal(3, draw.P)
    chosen = torch.full((2,), int(draw.whole(0, 3)))
    same(student.m_step(models, chosen, centres), reference.m_step(models, chosen, centres))
    pure(student, "m_step", (models, chosen, centres), (2 * models, chosen, centres + 1))


@check(
    "basis", 1, "The columns have length 1 and are at right angles, and there are D of them.", D=(1, 4), P=(6, 9)
)
def orthonormal(student, reference, draw):
    """More parameters than models."""
    sample = draw.normal(5, draw.P)
    got = student.basis(sample, draw.D)
    same(got, torch.zeros(draw.P, draw.D), tolerance=1.001)  # its shape
    same(got.T @ got, torch.eye(draw.D))
    pure(student, "basis", (sample, draw.D), (sample.roll(1, 1), draw.D))


@check(
    "basis",
    1,
    "They span the directions with the largest singular values, from the models as they are.",
    D=(1, 3),
    P=(8, 10),
)
def spans(student, reference, draw):
    """The mean is far from 0, so that taking it off gives other directions."""
    sample = draw.normal(8, draw.P) + 3
    got, mine = student.basis(sample, draw.D), reference.basis(sample, draw.D)
    same(got @ got.T, mine @ mine.T, 1e-4 if got.dtype == torch.float32 else 0)


@check("basis", 1, "With all dimensions, a sampled model is seen without loss.", s=(1, 4), P=(5, 9))
def whole(student, reference, draw):
    """Projected and back."""
    sample = draw.normal(draw.s, draw.P)
    got = student.basis(sample, draw.s)
    same(sample.to(got.dtype) @ got @ got.T, sample)


@check(
    "closest",
    1,
    "The largest cosine wins, whatever the lengths; equal ones go to the lowest index.",
    K=(4, 9),
    P=(3, 6),
)
def cosine(student, reference, draw):
    """Centres of very different lengths; everything is seen. Then two that point the same way, exactly."""
    lengths = torch.logspace(-2, 2, draw.K)[draw.order(draw.K)].unsqueeze(1)
    models, centres, eye = draw.normal(30, draw.P), draw.normal(draw.K, draw.P) * lengths, torch.eye(draw.P)
    same(student.closest(models, centres, eye), reference.closest(models, centres, eye))
    axes = eye[[0, 1, 2, 1]] * torch.tensor([[1.0], [1.0], [4.0], [2.0]])
    same(student.closest(eye[[1, 2]] + 0.25 * eye[[0, 1]], axes, eye), [1, 2])


@check("closest", 1, "Both sides are seen through the projection.", D=(2, 3), P=(6, 8))
def through(student, reference, draw):
    """A few of many dimensions."""
    models, centres, sample = draw.normal(30, draw.P), draw.normal(4, draw.P), draw.normal(6, draw.P)
    M = reference.basis(sample, draw.D)
    same(student.closest(models, centres, M), reference.closest(models, centres, M))
    pure(student, "closest", (models, centres, M), (models, -centres, M))


def problem(draw):
    """A start, a centre, an embedding and a least-squares problem."""
    P = draw.q + draw.more
    return draw.normal(P), draw.normal(P), draw.normal(draw.q), draw.normal(P + 2, P), draw.normal(P + 2)


SIZES = {"q": (1, 4), "more": (1, 5), "steps": (2, 9)}


@check("personal", 1, "Without pulls it is gradient descent from the client's own model.", **SIZES)
def free(student, reference, draw):
    """Centre and embedding do not matter."""
    given = (*problem(draw), 0.05, draw.steps, 0.0, 0.0)
    same(student.personal(*given), reference.personal(*given))
    pure(student, "personal", given, (*problem(draw), 0.02, 3, 0.0, 0.0))


@check("personal", 1, "The whole model is pulled towards the centre.", **SIZES)
def cluster(student, reference, draw):
    """With mu alone, several steps."""
    given = (*problem(draw), 0.05, draw.steps, 0.9, 0.0)
    same(student.personal(*given), reference.personal(*given))


@check("personal", 1, "The embedding, and nothing else, is pulled towards the global embedding.", **SIZES)
def embedding(student, reference, draw):
    """With lambda alone and without a loss; then with everything."""
    own, centre, phi, A, b = problem(draw)
    got = student.personal(own, centre, phi, 0 * A, 0 * b, 0.1, draw.steps, 0.0, 2.0)
    same(got, torch.cat([phi + 0.8**draw.steps * (own[: draw.q] - phi), own[draw.q :]]))
    given = (own, centre, phi, A, b, 0.05, draw.steps, 0.4, 0.7)
    same(student.personal(*given), reference.personal(*given))


def right(right, sizes, chosen):
    """Report as the paper says."""
    own = right[torch.arange(len(right)), chosen]
    return float((own * sizes).sum() / sizes.sum())


def loop(right, sizes, chosen):
    """The same, in plain Python."""
    rows = zip(right.tolist(), sizes.tolist(), chosen.tolist(), strict=True)
    return sum(n * row[k] for row, n, k in rows) / int(sizes.sum())


def all_models(pick):
    """Report what `pick` makes of the centres' accuracies on all clients together."""
    return lambda right, sizes, chosen: float(pick((sizes.double() / sizes.sum()) @ right))


RIGHT = [right, loop]

best = hunted(2, "The test must notice that the best of all centres is reported.", RIGHT, [all_models(torch.max)])
each = hunted(
    1,
    "The test must notice that each client takes the centre that suits its test data best.",
    RIGHT,
    [lambda r, n, c: float((r.max(1).values * n).sum() / n.sum()), all_models(torch.mean)],
)
unweighted = hunted(
    1,
    "The test must notice that sizes are ignored.",
    RIGHT,
    [lambda r, n, c: float(r[torch.arange(len(r)), c].mean())],
)


@check("measure", 1, "The moves in your own run of FeSEM.")
def fesem_moved(student, reference, draw):
    """A whole number."""
    measured(student, reference, "fesem_moved", 0)


@check("measure", 1, "The moves in your own run of LCFed.")
def lcfed_moved(student, reference, draw):
    """A whole number."""
    measured(student, reference, "lcfed_moved", 0)


@check("measure", 1, "The ARI of your own run of FeSEM, after the last round.")
def fesem_ari(student, reference, draw):
    """To rounding."""
    measured(student, reference, "fesem_ari", 1e-6)


@check("measure", 1, "The ARI of your own run of LCFed, after the last round.")
def lcfed_ari(student, reference, draw):
    """To rounding."""
    measured(student, reference, "lcfed_ari", 1e-6)
