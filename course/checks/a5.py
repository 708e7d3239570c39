"""Hidden tests of assignment 5."""

import torch

from course.checking import check, demand, hunts, measured, normal, same


@check("e_step", 1, "Each model goes to the nearest centre.")
def nearest(student, reference, draw):
    """Random models and centres."""
    models, centres = normal(draw, 40, 6), normal(draw, 4, 6)
    same(student.e_step(models, centres), reference.e_step(models, centres))


@check("e_step", 1, "Distances are Euclidean, no cosines, and ties go to the lowest index.")
def euclid(student, reference, draw):
    """The nearer centre points elsewhere; two centres are equal."""
    centres = torch.tensor([[0.0, 50.0], [1.0, 0.5], [1.0, 0.5]])
    same(student.e_step(torch.tensor([[0.1, 2.0], [0.0, 40.0]]), centres), [1, 0])


@check("m_step", 1, "Each centre is the plain mean of its own clients.")
def members(student, reference, draw):
    """Clusters of different size."""
    models, centres, chosen = normal(draw, 7, 5), normal(draw, 3, 5), torch.tensor([0, 2, 2, 1, 2, 0, 2])
    same(student.m_step(models, chosen, centres), reference.m_step(models, chosen, centres))


@check("m_step", 1, "An empty cluster keeps its centre, and the old centres are not changed.")
def empty(student, reference, draw):
    """Clusters 0 and 2 are empty."""
    models, centres, chosen = normal(draw, 2, 5), normal(draw, 3, 5), torch.tensor([1, 1])
    same(student.m_step(models, chosen, centres), reference.m_step(models, chosen, centres))
    demand(student.keeps("m_step", models, chosen, centres), "an argument was changed")


@check("basis", 1, "The columns have length 1 and are at right angles, and there are D of them.")
def orthonormal(student, reference, draw):
    """More parameters than models."""
    for dimensions in (1, 3):
        got = student.basis(normal(draw, 6, 9), dimensions)
        demand(got.shape == (9, dimensions), f"shape {tuple(got.shape)}, not {(9, dimensions)}")
        same(got.T @ got, torch.eye(dimensions))


@check("basis", 1, "They span the directions with the largest singular values, from the models as they are.")
def spans(student, reference, draw):
    """The mean is far from 0, so that taking it off gives other directions."""
    sample = normal(draw, 8, 10) + 3
    got, mine = student.basis(sample, 3), reference.basis(sample, 3)
    same(got @ got.T, mine @ mine.T)


@check("basis", 1, "With all dimensions, a sampled model is seen without loss.")
def whole(student, reference, draw):
    """Projected and back."""
    sample = normal(draw, 4, 9)
    got = student.basis(sample, 4)
    same(sample @ got @ got.T, sample)


@check("closest", 1, "The largest cosine wins, whatever the lengths.")
def cosine(student, reference, draw):
    """Centres of very different lengths; everything is seen."""
    models, centres = normal(draw, 30, 5), normal(draw, 4, 5) * torch.tensor([[0.01], [1.0], [5.0], [100.0]])
    eye = torch.eye(5)
    same(student.closest(models, centres, eye), reference.closest(models, centres, eye))


@check("closest", 1, "Both sides are seen through the projection.")
def through(student, reference, draw):
    """Two of eight dimensions."""
    models, centres, sample = normal(draw, 30, 8), normal(draw, 4, 8), normal(draw, 6, 8)
    M = reference.basis(sample, 2)
    same(student.closest(models, centres, M), reference.closest(models, centres, M))


def problem(draw, q=3):
    """A start, a centre, an embedding and a least-squares problem."""
    return normal(draw, 7), normal(draw, 7), normal(draw, q), normal(draw, 9, 7), normal(draw, 9)


@check("personal", 1, "Without pulls it is gradient descent from the client's own model.")
def free(student, reference, draw):
    """Centre and embedding do not matter."""
    given = (*problem(draw), 0.05, 8, 0.0, 0.0)
    same(student.personal(*given), reference.personal(*given))


@check("personal", 1, "The whole model is pulled towards the centre.")
def cluster(student, reference, draw):
    """With mu alone, several steps."""
    given = (*problem(draw), 0.05, 8, 0.9, 0.0)
    same(student.personal(*given), reference.personal(*given))


@check("personal", 1, "The embedding, and nothing else, is pulled towards the global embedding.")
def embedding(student, reference, draw):
    """With lambda alone and without a loss; then with everything."""
    own, centre, phi, A, b = problem(draw)
    got = student.personal(own, centre, phi, 0 * A, 0 * b, 0.1, 3, 0.0, 2.0)
    same(got, torch.cat([phi + 0.8**3 * (own[:3] - phi), own[3:]]))
    given = (own, centre, phi, A, b, 0.05, 8, 0.4, 0.7)
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


@check("hunt", 2, "The test must notice that the best of all centres is reported.")
def best(student, reference, draw):
    """The released mistake: the maximum over centres, each on all clients."""
    hunts(student, "hunt", [right, loop], all_models(torch.max))


@check("hunt", 1, "The test must notice that each client takes the centre that suits its test data best.")
def each(student, reference, draw):
    """The maximum for each client; and the mean or the last of all centres."""
    hunts(student, "hunt", [right, loop], lambda r, n, c: float((r.max(1).values * n).sum() / n.sum()))
    hunts(student, "hunt", [right, loop], all_models(torch.mean))


@check("hunt", 1, "The test must notice that sizes are ignored.")
def unweighted(student, reference, draw):
    """The plain mean over clients."""
    hunts(student, "hunt", [right, loop], lambda r, n, c: float(r[torch.arange(len(r)), c].mean()))


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
