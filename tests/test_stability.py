"""Gradient descent with pulls of summed strength p is stable exactly while lr (L + p) < 2, on least squares."""

from functools import partialmethod

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny import federation, simulation

from cflkit.engine.local import Local
from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.methods import FedProx, FeSEM, LCFed

X, Y = np.array([[3, 0], [0, 3], [2, 1], [1, 4]]), np.array([0, 1, 0, 1])
H = np.c_[X, np.ones(4)].T @ np.c_[X, np.ones(4)] / 4  # Hessian of each class's three parameters
L = np.linalg.eigvalsh(H)[-1]
START, A, B = np.random.default_rng(0).normal(size=(3, 6))  # where training begins, and two targets

PULLED = {  # a client's work, what it receives, the strength of all its pulls, and their common target
    "fedprox": (FedProx(mu=3.0).client, {"model": START}, 3.0, START),
    "fesem": (FeSEM(k=1, lam=1.5).client, {"centre": A}, 3.0, A),
    "lcfed": (LCFed(k=1, mu=1.0, lam=2.0, rank=None, split=None).client,
              {"centre": A, "phi": B, "initial": START}, 3.0, (A + 2 * B) / 3),
}  # fmt: skip


def least_squares(module, x, y):
    return (module(x) - F.one_hot(y, 2)).square().sum(1).mean() / 2


def weights(vector):
    """Weights and bias of each class, as columns (3, 2)."""
    return np.c_[vector[:4].reshape(2, 2), vector[4:]].T


@pytest.mark.parametrize("name", PULLED)
def test_training_is_stable_up_to_two_over_curvature_and_pulls(name, monkeypatch):
    work, down, strength, target = PULLED[name]
    monkeypatch.setattr(Local, "sgd", partialmethod(Local.sgd, objective=least_squares))
    right = np.c_[X, np.ones(4)].T @ np.eye(2)[Y] / 4 + strength * weights(target)
    goal = np.linalg.solve(H + strength * np.eye(3), right)
    off = {}
    for size in (1.9, 2.1):
        rig = simulation(FedProx(), federation((X, Y)), local=SGD(size / (L + strength), steps=200))
        sent = {key: torch.tensor(value) for key, value in down.items()}
        found = rig.network(1, Memory()).call(torch.arange(1), work, down=sent)["model"].dense()[0].numpy()
        off[size] = np.abs(weights(found) - goal).max()
    assert off[1.9] < 1e-7 and off[2.1] > 1e5  # 0.9 and 1.1 to the power of 200
