"""Six methods against rounds written from the papers in NumPy by someone who had not seen the code."""

from functools import partial
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from tiny import close, federation, gradient, loss, rounds, simulation, train, two_layer_gradient, two_layers

from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.methods import METHODS

LR, STEPS, LOCAL = 0.1, 3, SGD(0.1, epochs=3)


def images(seed, n, pixels=2, top=4, by=0):
    """Pixels of 0..top, moved, and labels 0 and 1, at least two of each."""
    g = np.random.default_rng(seed)
    y = np.array([0, 0, 1, 1, *g.integers(2, size=n - 4)])
    return g.integers(0, top + 1, (n, pixels)) + np.array(by), y


SIZES = np.array([4, 7, 5, 9])
FOUR = [images(i, n) for i, n in enumerate(SIZES)]  # and the clients that have these, as a server reaches them
FOUR_CLIENTS = simulation(METHODS["fedavg"](), federation(*FOUR), local=LOCAL)


same = partial(close, atol=1e-10)


def image_losses(w, x, y):
    return np.array([loss(w, x[[j]], y[[j]]) for j in range(len(y))])


def merged(far, of, limit=np.inf):
    """Merge the closest groups, with `of` their members' distances, up to a limit; and the distances of merges."""
    groups, heights = [[i] for i in range(len(far))], []
    while len(groups) > 1:
        pairs = combinations(range(len(groups)), 2)
        least, a, b = min((of(far[np.ix_(groups[a], groups[b])]), a, b) for a, b in pairs)
        if least > limit:
            break
        groups[a] = groups[a] + groups.pop(b)
        heights.append(least)
    groups = sorted(map(sorted, groups))
    return [next(k for k, g in enumerate(groups) if i in g) for i in range(len(far))], heights


def fedavg(models, assign, clients, lr=LR, steps=STEPS, slope=gradient):
    """One round of FedAvg in every cluster; one without members keeps its model."""
    trained, n, models = [], np.array([len(y) for _, y in clients]), list(models)
    for k, (x, y) in zip(assign, clients, strict=True):
        trained.append(models[k])
        for _ in range(steps):
            trained[-1] = trained[-1] - lr * slope(trained[-1], x, y)
    for k in set(assign):
        models[k] = np.average(trained, 0, n * (np.array(assign) == k))
    return models


# ------------------------------------------------------------------ PACFL (Vahidian et al. 2023, Algorithm 1)
SEVEN = [images(20 + i, n, pixels=5, top=9) for i, n in enumerate((4, 6, 8, 5, 9, 7, 6))]
SEVEN_CLIENTS = simulation(METHODS["pacfl"](), federation(*SEVEN))
KINDS = [("first", "client"), ("sum", "client"), ("entry", "client"), ("sum", "label"), ("entry", "label")]


def degrees(angle, subspace):
    """Equations 2 and 3, and the released code; reading: the sign of a singular vector means nothing."""
    parts = [[x] if subspace == "client" else [x[y == c] for c in (0, 1)] for x, y in SEVEN]
    bases = [np.hstack([np.linalg.svd(x.T.astype(float))[0][:, :2] for x in part]) for part in parts]
    cosines = {"first": lambda m: np.linalg.svd(m)[1].max(), "sum": np.diag, "entry": lambda m: np.abs(m).max()}
    return np.degrees([[np.arccos(abs(cosines[angle](u.T @ v)).clip(0, 1)).sum() for v in bases] for u in bases])


@pytest.mark.parametrize("link, of", [("average", np.mean), ("complete", np.max), ("single", np.min)])
@pytest.mark.parametrize("angle, subspace", KINDS)
def test_pacfl_clusters(angle, subspace, link, of):
    far = degrees(angle, subspace)  # the tree of clusters, cut between all of its merges
    heights = merged(far, of)[1]
    for beta in map(np.mean, pairwise([0, *heights, heights[-1] + 1])):
        method = METHODS["pacfl"](beta=beta, rank=2, angle=angle, subspace=subspace, link=link)
        assert method.start(SEVEN_CLIENTS.network(0, Memory()))["assign"].tolist() == merged(far, of, beta)[0]


# --------------------------------------------------------- FedEM (Marfoq et al. 2021), FedRC (Guo et al. 2024)
@pytest.mark.parametrize("name", ["fedem", "fedrc"])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_mixtures_of_all_images(name, participation):
    """E-step with the last round's shares, M-step for the shares, then descent on losses weighted by the E-step.

    FedRC divides exp(-loss) by C_{k,y}, the share of label y in what cluster k is responsible for, as all clients
    said it last; before round 1 no label is known to be more frequent than another (the authors' code).
    """
    k, how = 3, {"rounds": 3, "local": LOCAL, "participation": participation}
    models, shares, labels = FOUR_CLIENTS.task.init(k).numpy(), np.full((4, k), 1 / k), np.ones((k, 2))
    mass = np.zeros((4, 2, k))
    states, memory = rounds(METHODS[name](k=k), federation(*FOUR), **how)
    schedule = simulation(METHODS[name](k=k), federation(*FOUR), **how).schedule
    for state, sampled in zip(states, schedule, strict=True):
        trained = []
        for i in sampled.tolist():
            x, y = FOUR[i]
            q = shares[i] * np.exp(-np.stack([image_losses(m, x, y) for m in models], 1))
            q = q / labels[:, y].T if name == "fedrc" else q
            q = q / q.sum(1, keepdims=True)
            shares[i] = q.mean(0)
            mass[i] = [q[y == label].sum(0) for label in (0, 1)]
            mine = models
            for _ in range(STEPS):  # 1/n sum_j q_j grad loss_j
                each = [[gradient(m, x[[j]], y[[j]]) for j in range(len(y))] for m in mine]
                mine = mine - LR / len(y) * np.einsum("nk,knp->kp", q, each)
            trained.append(mine)
        labels = (mass.sum(0) / mass.sum((0, 1))).T
        models = np.average(trained, 0, SIZES[sampled])
        same(state["models"], models)
    for i in set(torch.cat(schedule).tolist()):
        same(memory.get("shares", i), shares[i])
        assert name == "fedem" or states[-1]["assign"][i] == shares[i].argmax()


# ------------------------------------------------------------------ FedSoft (Ruan & Joe-Wong 2022, Algorithm 1)
def importance(centres, sigma):
    """u_ks, the share of client k's images that centre s fits best, or sigma; reading: these sum to 1."""
    best = [np.stack([image_losses(c, x, y) for c in centres]).argmin(0) for x, y in FOUR]
    u = np.array([np.maximum(np.bincount(b, minlength=len(centres)) / len(b), sigma) for b in best])
    return u / u.sum(1, keepdims=True)


@pytest.mark.parametrize("participation", [1.0, 0.75])
def test_fedsoft(participation):
    """Descent on loss + lambda/2 sum_s u_ks |w - c_s|^2 from one's own model; centres are means of those drawn."""
    method, how = METHODS["fedsoft"](k=2, lam=0.7, sigma=0.2, every=2, draw=0.5), {"rounds": 4, "local": LOCAL}
    rig = simulation(method, federation(*FOUR), **how, participation=participation)
    states, memory = rounds(method, federation(*FOUR), **how, participation=participation)
    centres, personal = FOUR_CLIENTS.task.init(2).numpy(), np.tile(FOUR_CLIENTS.task.init(), (4, 1))
    u, asked = np.zeros((4, 2)), np.full(4, -2)
    for t, (state, sampled) in enumerate(zip(states, rig.schedule, strict=True)):
        old = [i for i in sampled.tolist() if t - asked[i] >= 2]
        u[old], asked[old] = importance(centres, 0.2)[old], t
        same(state["importance"], u)
        assert state["assign"].tolist() == np.where(asked < 0, -1, u.argmax(1)).tolist()
        trained, drawn = personal.copy(), set()
        for i in sampled.tolist():
            for _ in range(STEPS):
                trained[i] -= LR * (gradient(trained[i], *FOUR[i]) + 0.7 * u[i] @ (trained[i] - centres))
        centres = state["models"].numpy()
        for c in centres:  # whom it drew is random: the only pair with that mean
            pairs = combinations(sampled.tolist(), 2)
            (pair,) = (p for p in pairs if np.abs(trained[[*p]].mean(0) - c).max() < 1e-10)
            drawn |= {*pair}
        personal[[*drawn]] = trained[[*drawn]]
    net = rig.network(5, memory)
    same(method.personal(states[-1], torch.arange(4), net).dense(), personal)


def test_fedsoft_draws_by_importance_and_size():
    """Client k is drawn for centre s with probability u_ks n_k / sum_i u_is n_i."""
    method, found = METHODS["fedsoft"](k=2, draw=0.25, lam=0.0), np.zeros((4, 2))
    server = method.start(FOUR_CLIENTS.network(0, Memory()))
    alone = np.array([train(server["models"][0].numpy(), *c, steps=STEPS) for c in FOUR])
    for t in range(1, 251):
        state = method.round(server, torch.arange(4), FOUR_CLIENTS.network(t, Memory()))
        for s, centre in enumerate(state["models"]):
            found[np.abs(alone - centre.numpy()).max(1) < 1e-10, s] += 1
    weight = importance(server["models"].numpy(), method.sigma) * SIZES[:, None]
    close(found / 250, weight / weight.sum(0), atol=0.08)


# ------------------------------------------------------------------ FedDrift (Jothimurugesan et al. 2023)
def concepts(seed):
    """Five clients at four times, whose label is x_0 > x_1, or the opposite in group 1."""
    sizes = ((6, 5, 7, 8, 6), (5, 9, 6, 7, 4), (8, 6, 5, 4, 7), (8, 6, 5, 9, 5))
    for t, groups in enumerate(((0, 0, 0, 0, 0), (0, 1, 0, 1, 0), (1, 1, 0, 1, 0), (0, 1, 0, 1, 1))):
        pixels = [images(10 * (seed + t) + i, n, top=3)[0] for i, n in enumerate(sizes[t])]
        yield [(x, (x[:, 0] > x[:, 1]).astype(int) ^ g) for x, g in zip(pixels, groups, strict=True)]


def further(models, members):
    """max(L_ij - L_ii, L_ji - L_jj, 0), with L_ij the loss of model i on cluster j's images; inf without any."""
    far = np.full((len(models), len(models)), np.inf)
    for i, j in combinations([k for k, clients in enumerate(members) if clients], 2):
        (x, y), (v, z) = (map(np.concatenate, zip(*members[k], strict=True)) for k in (i, j))
        a, b = models[i], models[j]
        far[i, j] = far[j, i] = max(loss(a, v, z) - loss(a, x, y), loss(b, x, y) - loss(b, v, z), 0)
    return far


@pytest.mark.parametrize("how, seed, delta", [("one", 48, 0.15), ("each", 648, 0.3), ("each", 67, 0.3)])
@pytest.mark.parametrize("keep", [True, False])
def test_feddrift(keep, how, seed, delta):
    """At each time step clients choose, some drift into clusters of their own, clusters merge, and FedAvg follows.

    Data stay in the cluster in which their client was when they were new. This trains and is measured on all of
    them, or else on the newest. Readings: merges follow choices; a new cluster starts at the best model; a loss is
    of models as its step began; a merge weighs clusters by client time steps (all four: the authors' code).
    """
    method, run, old = METHODS["feddrift"](delta=delta, every=2, first=how, keep=keep), None, []
    models = [FOUR_CLIENTS.task.init()[0].numpy()] * (5 if how == "each" else 1)
    before, spent = np.inf, np.zeros(len(models))
    for t, clients in enumerate(concepts(seed)):
        table = np.array([[loss(m, *c) for m in models] for c in clients])
        chosen, best = table.argmin(1) if t else np.arange(5) % len(models), table.min(1)
        drifts = best > before + delta
        spent, before = spent + np.bincount(chosen[~drifts], minlength=len(models)), best
        there = old + [(i, chosen[i], *clients[i]) for i in range(5) if not drifts[i]]
        members = [[data for _, of, *data in there if of == k] for k in range(len(models))]
        group = np.array(merged(further(models, members), np.max, delta)[0] if t else range(len(models)))
        parts = [np.flatnonzero(group == g) for g in range(max(group) + 1)]
        alone = [models[k] for k in chosen[drifts]]
        models = [np.average(np.array(models)[p], 0, spent[p] if len(p) > 1 else None) for p in parts] + alone
        spent = np.array([spent[p].sum() for p in parts] + [1] * len(alone))
        chosen = group[chosen]
        chosen[drifts] = len(parts) + np.arange(len(alone))
        old = [(i, group[of], *data) for i, of, *data in old]
        held = old + [(i, chosen[i], *clients[i]) for i in range(5)]
        pairs = sorted({(of, i) for i, of, *_ in held})  # each client's data of each cluster
        data = [zip(*(d for i, of, *d in held if (of, i) == p), strict=True) for p in pairs]
        data = [tuple(map(np.concatenate, of)) for of in data]
        run = simulation(method, federation(*clients), local=SGD(0.5, epochs=10), rounds=2 * t + 2, start=run)
        states = []
        run = run.run(lambda history, states=states: states.append(history.server))
        for state in states:
            models = fedavg(models, [k for k, _ in pairs], data, 0.5, 10)
            same(state["models"], models)
            assert state["assign"].tolist() == chosen.tolist()
        old = held if keep else []


# ------------------------------------------------------------------ FLUX (Fenoglio et al. 2025)
MOVED = [(0, 0), (0, 0), (9, 3), (9, 3), (9, 3), (3, 14), (8, 3), (1, 0), (3, 12)]
NINE = [images(i, n, by=by) for i, (n, by) in enumerate(zip((9, 8, 10, 8, 12, 7, 9, 9, 8), MOVED, strict=True))]


def descriptor(w, directions, x, y=None):
    """Mean and deviation of the latent vectors' coordinates, of all images and then of each class (., l)."""
    z = (x @ w[:4].reshape(2, 2).T + w[4:6]) @ directions
    parts = [z] if y is None else [z, z[y == 0], z[y == 1]]
    return np.array([moment for part in parts for moment in (part.mean(0), part.std(0))])


def test_flux():
    """FedAvg; descriptors, scaled part by part; DBSCAN at the knee of the nearest distances; FedAvg in clusters.

    The last three clients come later and get the cluster nearest in the moments of all images. Readings: a fixed
    number of warm-up rounds, the server's directions, deviations for covariances, noise is clusters of one.
    """
    first, method, memory = torch.arange(6), METHODS["flux"](warmup=1, latent=2), Memory()
    rig = simulation(method, federation(*NINE), model=two_layers, local=SGD(0.01, epochs=2))
    server, models, assign = method.start(rig.network(0, memory, first)), [rig.task.init()[0].numpy()], [0] * 6
    for t in (1, 2, 3):
        server = method.round(server, first, rig.network(t, memory, first))
        if t == 2:
            encoder, directions = models[0], server["directions"].numpy()
            same(directions.T @ directions, np.eye(2))
            raw = np.array([descriptor(encoder, directions, *c) for c in NINE[:6]])
            low, high = (end((0, 2), keepdims=True)[0] for end in (raw.min, raw.max))
            scaled = (raw - low) / (high - low)
            far = np.linalg.norm((scaled[:, None] - scaled).reshape(6, 6, -1), axis=2)
            nearest = np.sort((far + np.diag([np.inf] * 6)).min(1))
            knee = nearest[(np.linspace(nearest[0], nearest[-1], 6) - nearest).argmax()]
            assign = merged(far, np.min, knee)[0]
            assert assign == [0, 0, 1, 2, 1, 3]
            models *= 4
        models = fedavg(models, assign, NINE[:6], 0.01, 2, two_layer_gradient)
        same(server["models"], models)
    centroids = np.array([scaled[np.array(assign) == k].mean(0) for k in range(4)])
    same(server["centroids"], centroids.reshape(4, -1))
    for x, _ in NINE[6:]:
        mine = (descriptor(encoder, directions, x) - low[:2]) / (high - low)[:2]
        assign.append(int(((centroids[:, :2] - mine) ** 2).sum((1, 2)).argmin()))
    assert method.serve(server, torch.arange(9), rig.network(4, memory)).index.tolist() == assign
