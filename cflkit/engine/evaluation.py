"""Scoring models on test images: the only place that holds them.

Each distinct pair (model, test set) is passed through the network once, however many clients share it.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from cflkit.data.federation import Federation
from cflkit.engine import metrics
from cflkit.engine.clients import PIECE, Pixels
from cflkit.engine.rows import Pick, Rows
from cflkit.models.flat import Model

Predict = Callable[[Model, Tensor, Tensor], Tensor]


class Scorer:
    """Scores the models that serve clients, on each client's test set.

    Parameters
    ----------
    federation : Federation
        Whose test sets are used: one for each true cluster, or one for each client.
    model : Model
        The architecture.
    predict : callable
        ``(model, vector, images) -> logits``; a method's own, where an image decides which weights serve it.
    """

    def __init__(self, federation: Federation, model: Model, predict: Predict):
        self.federation, self.model, self.predict = federation, model, predict
        # a test set of one's own has one's own label mix already
        self.private_tests = len(federation.test_of.unique()) == federation.clients
        self.pixels = Pixels(federation, model)
        counts = federation.label_counts().double()
        self.label_mix = (counts / counts.sum(1, keepdim=True)).numpy()

    @torch.no_grad()
    def confusion(self, vector: Tensor, test_set: int) -> np.ndarray:
        """Confusion matrix (C, C), rows true and columns predicted, of one model on one test set."""
        test, classes = self.federation.test, self.federation.classes
        index, y = test.rows(test_set)
        pieces = (test.pool[i] for i in index.split(PIECE))
        logits = [self.predict(self.model, vector, self.pixels(piece)) for piece in pieces]
        guess = torch.cat(logits).argmax(1).cpu()
        return torch.bincount(y * classes + guess, minlength=classes**2).reshape(classes, classes).numpy()

    def confusions(self, served: Pick | Rows | Tensor, clients: Tensor) -> np.ndarray:
        """One confusion matrix a client (m, C, C) of the model that serves it, on its own test set."""
        sets = self.federation.test_of[clients].tolist()
        if not isinstance(served, Pick):
            return np.stack([self.confusion(v, s) for v, s in zip(served, sets, strict=True)])
        pairs = list(zip(served.index.tolist(), sets, strict=True))
        found = {(k, s): self.confusion(served.table[k], s) for k, s in sorted(set(pairs))}
        return np.stack([found[pair] for pair in pairs])

    def score(self, served: Pick | Rows | Tensor, clients: Tensor) -> dict[str, float]:
        """Score the clients on both axes.

        Returns
        -------
        dict
            ``accuracy`` on the class-balanced test of the true cluster with ``_std`` over clients, ``_worst10``
            (mean of the worst tenth) and ``_micro`` (weighted by n_i); ``own_accuracy`` under the client's own
            label mix, likewise; ``f1`` and ``f1_micro``, means over clients of the macro-F1 over classes. In a
            federation where every client has a test set of its own, both axes agree.
        """
        confusion = self.confusions(served, clients)
        sizes = self.federation.train.sizes[clients].numpy()
        plain = metrics.accuracy(confusion)
        own = plain
        if not self.private_tests:
            own = metrics.accuracy_under(confusion, self.label_mix[clients.numpy()])
        f1 = metrics.summary(metrics.macro_f1(confusion), sizes)
        found = {"f1": f1["mean"], "f1_micro": f1["micro"]}
        for name, values in (("accuracy", plain), ("own_accuracy", own)):
            summary = metrics.summary(values, sizes)
            found |= {name: summary["mean"], f"{name}_std": summary["std"]}
            found |= {f"{name}_worst10": summary["worst10"], f"{name}_micro": summary["micro"]}
        return found
