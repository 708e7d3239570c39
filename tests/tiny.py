"""Federations small enough to compute by hand, and softmax regression in plain NumPy to compute them with."""

import numpy as np
import torch
from torch import nn

from cflkit.data.federation import Federation, Samples
from cflkit.engine.fast import trainers
from cflkit.engine.local import Local
from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import History, Simulation


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
        classes=classes,
        scale=scale,
        mean=mean,
        std=1.0,
        validation=None,
        config={},
    )


def regression(inputs=2, classes=2):
    """Softmax regression: `inputs` weights and a bias a class."""
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))


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


def network(method, fed, round=1, **settings):
    """The clients of a simulation as a server reaches them, to drive a method by hand."""
    return simulation(method, fed, **settings).network(round, Memory())


def local(model, optimiser, trainer="lean", seed=1, round=1, debug=False) -> Local:
    """What clients can do, trained in the way of that name."""
    return Local(model, optimiser, seed, round, trainers(trainer, debug))


class Tensors(Local):
    """What clients can do, with tensors for results, so that numbers can be compared with numbers."""

    def sgd(self, *args, **kwargs):
        return super().sgd(*args, **kwargs).dense()

    def gradient(self, *args, **kwargs):
        return super().gradient(*args, **kwargs).dense()


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
