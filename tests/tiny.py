"""Federations small enough to compute by hand, and softmax regression in plain NumPy to compute them with."""

import re

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import nn

from cflkit.data.federation import Federation, Samples
from cflkit.engine.fast import trainers
from cflkit.engine.local import Local
from cflkit.engine.memory import Memory
from cflkit.engine.rows import Pick
from cflkit.engine.sgd import SGD, Prox
from cflkit.engine.simulation import History, Simulation
from cflkit.methods import FedAvg


def close(ours, theirs, atol=1e-12) -> None:
    """Equal but for rounding."""
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=0, atol=atol)


def refused(line, call, *args, **kwargs) -> str:
    """`call` raises a ValueError whose whole message is `line` (a regular expression, on one line)."""
    with pytest.raises(ValueError) as caught:
        call(*args, **kwargs)
    assert re.fullmatch(line, str(caught.value)), str(caught.value)
    return str(caught.value)


def federation(*clients, cluster=None, classes=2, mean=0.0, scale=1.0) -> Federation:
    """Make clients out of ``(pixels (n, d) of 0..255, labels (n,))``, all tested on everything."""
    pool = torch.tensor(np.concatenate([x for x, _ in clients]), dtype=torch.uint8)[:, None, None]
    y = torch.tensor(np.concatenate([y for _, y in clients]), dtype=torch.int64)
    rows, bounds = torch.arange(len(y)), torch.tensor([0] + [len(y) for _, y in clients]).cumsum(0)
    return Federation(
        name="tiny",
        train=Samples(pool, rows, y, bounds),
        test=Samples(pool, rows, y, torch.tensor([0, len(y)])),
        test_of=torch.zeros(len(clients), dtype=torch.int64),
        cluster=None if cluster is None else torch.tensor(cluster),
        classes=classes, scale=scale, mean=mean, std=1.0, validation=None, config={},
    )  # fmt: skip


def regression(inputs=2, classes=2):
    """Softmax regression: `inputs` weights and a bias a class."""
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))


def initial(seed=0) -> np.ndarray:
    """The first model (6,) of softmax regression on two pixels."""
    fed = federation(([[0, 0]], [0]), ([[0, 0]], [1]))
    return simulation(FedAvg(), fed, seed=seed).task.init()[0].numpy()


def average(rows, weights=None) -> np.ndarray:
    return np.average(np.asarray(rows), axis=0, weights=weights)


def two_layers() -> nn.Module:
    """z = W2 (W1 x + b1) + b2: twelve weights, of which the decision layer has the last six."""
    return nn.Sequential(nn.Flatten(), nn.Linear(2, 2), nn.Linear(2, 2))


def zeros() -> nn.Module:
    """Softmax regression on two inputs from zero weights, where every label has the same probability."""
    net = regression()()
    for p in net.parameters():
        nn.init.zeros_(p)
    return net


def simulation(method, fed, **settings) -> Simulation:
    """Float64, lean, one full-batch step a round, unless told otherwise; nothing is scored on the way."""
    pixels = int(np.prod(fed.shape))
    usual = {"model": regression(pixels, fed.classes), "local": SGD(0.1), "rounds": 1, "trainer": "lean",
             "evaluate_every": 1000, "personal_clients": 0, "progress": False}  # fmt: skip
    return Simulation(method, fed, **(usual | settings))


def run(method, fed, **settings) -> History:
    return simulation(method, fed, **settings).run()


def rounds(method, fed, **settings) -> tuple[list[dict], Memory]:
    """The server's state after every round, and the memory after the last."""
    rig, memory = simulation(method, fed, **settings), Memory()
    server, found = method.start(rig.network(0, memory)), []
    for t, clients in enumerate(rig.schedule, 1):
        server = method.round(server, clients, rig.network(t, memory))
        found.append(server)
    return found, memory


def network(method, fed, round=1, **settings):
    """The clients of a simulation as a server reaches them, to drive a method by hand."""
    return simulation(method, fed, **settings).network(round, Memory())


def local(model, optimiser, trainer="lean", seed=1, round=1, debug=False) -> Local:
    """What clients can do, trained in the way of that name."""
    return Local(model, optimiser, seed, round, trainers(trainer, debug))


class Chunk:
    """Random images of a few clients, in place of a federation's."""

    def __init__(self, sizes, shape, classes, dtype=torch.float64):
        g = torch.Generator().manual_seed(0)
        self.pairs = [(torch.randn(n, *shape, generator=g, dtype=torch.float64).to(dtype),
                       torch.randint(classes, (n,), generator=g)) for n in sizes]  # fmt: skip
        self.clients, self.sizes = list(range(len(sizes))), torch.tensor(sizes)
        self.typical, self.shape, self.kept = sum(sizes) / len(sizes), shape, {}

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


class Tensors(Local):
    """What clients can do, with tensors for results, so that numbers can be compared with numbers."""

    def sgd(self, *args, **kwargs):
        return super().sgd(*args, **kwargs).dense()

    def gradient(self, *args, **kwargs):
        return super().gradient(*args, **kwargs).dense()


# ------------------------------------------------------------------ what clients may be told to do, for Hypothesis
optimisers = st.builds(
    lambda lr, span, size, momentum, decay: SGD(lr, batch_size=size, weight_decay=decay, **momentum, **span),
    st.sampled_from([0.03, 0.2]),
    st.sampled_from([{"epochs": 0}, {"epochs": 1}, {"epochs": 3}, {"steps": 1}, {"steps": 7}]),
    st.sampled_from([None, 1, 3, 10, 100]),
    st.sampled_from([{}, {"momentum": 0.9}, {"momentum": 0.5, "nesterov": True}]),
    st.sampled_from([0.0, 0.01]),
)
sizes = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@st.composite
def told(draw, model, m, *layers):
    """Where `m` clients start, what pulls them, and what shifts them.

    Starts and anchors are one vector for all, one of each client or picked from a table, and an anchor may be the
    start; pulls are on everything or on these layers.
    """

    def vectors(seed):
        table = torch.stack([model.init(seed + i) for i in range(m)])
        return draw(st.sampled_from([table[0], table, Pick(table, torch.arange(m).flip(0) // 2)]))

    start = vectors(0)
    pulls = draw(st.lists(st.tuples(st.booleans(), st.sampled_from([None, *layers])), max_size=2))
    prox = [Prox(0.3 + k, start if same else vectors(10 * k + 10), span) for k, (same, span) in enumerate(pulls)]
    return start, prox, draw(st.sampled_from([None, 0.01 * torch.stack([model.init(50 + i) for i in range(m)])]))


# ------------------------------------------------------------------ softmax regression by hand
def gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray, classes=2) -> np.ndarray:
    """Gradient (C d + C,) of the mean cross-entropy at w = (weights row by row, biases)."""
    x = np.asarray(x, float)
    n, d = x.shape
    z = x @ w[: classes * d].reshape(classes, d).T + w[classes * d :]
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    p[np.arange(n), y] -= 1
    return np.concatenate([(p.T @ x / n).ravel(), p.mean(0)])


def loss(w: np.ndarray, x: np.ndarray, y: np.ndarray, classes=2) -> float:
    x = np.asarray(x, float)
    z = x @ w[: classes * x.shape[1]].reshape(classes, -1).T + w[classes * x.shape[1] :]
    return float(np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y]))


def train(w, x, y, lr=0.1, steps=1, pull=0.0, centre=0.0) -> np.ndarray:
    """Full-batch descent on loss + pull/2 ||w - centre||^2."""
    for _ in range(steps):
        w = w - lr * (gradient(w, x, y) + pull * (w - centre))
    return w


def one_layer(w: np.ndarray) -> np.ndarray:
    """The softmax regression that :func:`two_layers` computes."""
    W1, b1, W2, b2 = w[:4].reshape(2, 2), w[4:6], w[6:10].reshape(2, 2), w[10:]
    return np.concatenate([(W2 @ W1).ravel(), W2 @ b1 + b2])


def two_layer_gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """That of softmax regression with W2 W1 and W2 b1 + b2, by the chain rule."""
    W1, b1, W2 = w[:4].reshape(2, 2), w[4:6], w[6:10].reshape(2, 2)
    g = gradient(one_layer(w), x, y)
    A, c = g[:4].reshape(2, 2), g[4:]
    return np.concatenate([(W2.T @ A).ravel(), W2.T @ c, (A @ W1.T + np.outer(c, b1)).ravel(), c])
