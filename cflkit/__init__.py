"""Clustered federated learning, five papers under one interface.

A federation is data, a method is an algorithm, a simulation joins the two and leaves a history::

    from cflkit import IFCA, SGD, federation, images, simulate

    rotated = federation.rotated(images.load("digits"), clients=40)
    history = simulate(IFCA(k=4), rotated, model="mlp200", local=SGD(lr=0.1, epochs=5), rounds=20)
    print(history.frame()[["accuracy", "ari"]])
"""

__version__ = "0.1.0"

from cflkit import methods, models
from cflkit.data import builders as federation
from cflkit.data import images
from cflkit.data.federation import Federation
from cflkit.engine import metrics
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import History, Simulation, simulate
from cflkit.methods import *  # noqa: F403

__all__ = [
    "SGD", "Federation", "History", "Simulation", "federation", "images", "methods", "metrics", "models",
    "simulate", *methods.__all__,
]  # fmt: skip
