"""Scoring models on test images: the only place that holds them; and which rounds are scored.

Each distinct pair (model, test set) is passed through the network once, however many clients share it.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from cflkit.checks import require
from cflkit.data.federation import Federation
from cflkit.engine import metrics
from cflkit.engine.clients import IMAGES_AT_ONCE, Data, Pixels
from cflkit.engine.local import Local
from cflkit.engine.memory import ChunkMemory
from cflkit.engine.network import Network
from cflkit.engine.rows import Mixed, Part, Pick, Rows
from cflkit.models.flat import Model

Served = Pick | Mixed | Rows | Tensor  # one model a client
Predict = Callable[..., Tensor]  # with the domains as well, where a method is told them
SHARED_TESTS = ("cluster", "all", "users")  # kinds of test sets that are not made of the client's own images
LARGE = 1e4  # outputs of a network that learns stay far below; a softmax of larger ones is all or nothing


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
    told : bool
        Give `predict` the true domain of each image, too, as its last argument.
    """

    def __init__(self, federation: Federation, model: Model, predict: Predict, told: bool = False):
        self.federation, self.model, self.predict, self.told = federation, model, predict, told
        if told:
            known, asked = federation.train.domains, federation.test.domains
            require(None not in (known, asked), "told", told, "False unless all images have a true domain")
            require(asked <= known, "domains of test images", asked, f"at most {known}, as of training images")
        # a test set of one's own has one's own label mix already; that of a cluster of one client has the cluster's
        shared = federation.config.get("test") in SHARED_TESTS and not federation.config.get("validating")
        self.private_tests = not shared and len(federation.test_of.unique()) == federation.clients
        self.pixels = Pixels(federation, model)
        self.diverged = False  # whether a model has given values beyond LARGE, or not finite
        self.label_counts = federation.label_counts().numpy()

    def confusion(self, vector: Tensor, test_set: int) -> np.ndarray:
        """Confusion matrix (C, C), rows true and columns predicted, of one model on one test set."""
        return self._confusion(self.logits(vector, test_set), test_set)

    def _confusion(self, scores: Tensor, test_set: int) -> np.ndarray:
        """The same of what has been predicted (n, C)."""
        y, classes = self.federation.test.rows(test_set)[1], self.federation.classes
        guess = scores.argmax(1).cpu()
        return torch.bincount(y * classes + guess, minlength=classes**2).reshape(classes, classes).numpy()

    @torch.no_grad()
    def logits(self, vector: Tensor, test_set: int) -> Tensor:
        """What one model says (n, C) of one test set."""
        ok = isinstance(vector, Tensor) and vector.dim() == 1 and vector.dtype == self.model.dtype
        require(ok, "a model that is scored", vector, f"a vector of {self.model.dtype}, the run's")
        test = self.federation.test
        index = test.rows(test_set)[0]
        pieces = [index.split(IMAGES_AT_ONCE)]
        if self.told:
            pieces.append(test.take([test_set]).tag.to(self.pixels.device).split(IMAGES_AT_ONCE))
        logits = torch.cat([self.predict(self.model, vector, self.pixels(test.pool[i]), *domain)
                            for i, *domain in zip(*pieces, strict=True)])  # fmt: skip
        ok, shape = logits.is_floating_point(), (len(index), self.federation.classes)
        found = f"{logits.dtype}{tuple(logits.shape)}"
        require(ok and logits.shape == shape, "predicted", found, f"floats {shape}, logits of every image")
        self.diverged |= not bool((logits.abs() <= LARGE).all())  # which not-a-number is not, either
        return logits

    def confusions(self, served: Served, clients: Tensor) -> np.ndarray:
        """One confusion matrix a client (m, C, C) of the model that serves it, on its own test set."""
        ok = isinstance(served, Served) and len(served) == len(clients)
        require(ok, "models that are served", served, f"a tensor, Rows, Pick or Mixed, {len(clients)} long")
        sets = self.federation.test_of[clients].tolist()
        if isinstance(served, Mixed):
            return self._mixed(served, sets)
        if not isinstance(served, Pick):
            return np.stack([self.confusion(v, s) for v, s in zip(served, sets, strict=True)])
        pairs = list(zip(served.index.tolist(), sets, strict=True))
        once = {(k, s): self.confusion(served.table[k], s) for k, s in sorted(set(pairs))}
        return np.stack([once[pair] for pair in pairs])

    def _mixed(self, served: Mixed, sets: list[int]) -> np.ndarray:
        """The same of mixtures: each model looks at a test set once, and every client weighs what they say."""
        shares, found = served.shares.to(served.table), {}
        for s in sorted(set(sets)):
            said = torch.stack([self.logits(vector, s).softmax(1) for vector in served.table])
            for i in (i for i, mine in enumerate(sets) if mine == s):
                found[i] = self._confusion(torch.einsum("k,knc->nc", shares[i], said), s)
        return np.stack([found[i] for i in range(len(sets))])

    def score(self, served: Served, clients: Tensor) -> dict[str, float]:
        """Score the clients on both axes.

        Returns
        -------
        dict
            ``accuracy`` on the whole test split, as the true cluster shows it, with ``_std`` over clients,
            ``_worst10`` (mean of the worst tenth) and ``_micro`` (weighted by n_i); ``own_accuracy`` under the
            client's own label mix, likewise; ``f1`` and ``f1_micro``, means over clients of the macro-F1 over
            classes. In a federation where every client has a test set of its own, both axes agree. Each client's
            accuracy is kept as ``latest``.
        """
        confusion = self.confusions(served, clients)
        sizes = self.federation.train.sizes[clients].numpy()
        plain = self.latest = metrics.accuracy(confusion)
        own = plain
        if not self.private_tests:
            own = metrics.accuracy_under(confusion, self.label_counts[clients.numpy()])
        f1 = metrics.summary(metrics.macro_f1(confusion), sizes)
        scores = {"f1": f1["mean"], "f1_micro": f1["micro"]}
        for name, values in (("accuracy", plain), ("own_accuracy", own)):
            summary = metrics.summary(values, sizes)
            scores |= {name: summary["mean"], f"{name}_std": summary["std"]}
            scores |= {f"{name}_worst10": summary["worst10"], f"{name}_micro": summary["micro"]}
        return scores


def serve(method, server: dict, clients: Tensor, net: Network, finetune: int = 0) -> Served | None:
    """The models that serve clients, each trained for `finetune` steps on its client's own images first.

    Nothing is kept: what comes back is scored and forgotten ("FTFA", Cheng, Chadha, Duchi 2021).
    """
    served = method.serve(server, clients, net)
    if served is None or not finetune:
        return served
    require(not isinstance(served, Mixed), "finetune", finetune, "0 for a method that serves mixtures of models")
    models = served if isinstance(served, Pick | Tensor) else served.dense()
    return net.call(clients, partial(_finetuned, finetune), per_client={"model": models})["model"]


def _finetuned(steps: int, down: dict, memory: ChunkMemory, data: Data, local: Local) -> dict[str, Part]:
    """The client's part: train what serves it."""
    return {"model": local.sgd(down["model"], data, optimiser=replace(local.optimiser, steps=steps))}


class Scoring:
    """Which rounds are scored, and on whom.

    Parameters
    ----------
    method : Method
        Whose models are scored.
    scorer : Scorer
        Scores them.
    groups : dict of str to Tensor of int64
        Clients whose served models are scored, by what their scores' names begin with.
    sample : Tensor of int64
        Clients whose personal models are scored.
    every : int
        Score every so many rounds, the first and the last.
    personal_every : int or None
        Score personal models every so many rounds; only after the last if None.
    last : int
        The last round.
    finetune : int
        Steps that each client trains the model that serves it before this is scored.
    """

    def __init__(self, method, scorer: Scorer, groups: dict[str, Tensor], sample: Tensor, every: int,
                 personal_every: int | None, last: int, finetune: int = 0):  # fmt: skip
        self.method, self.scorer, self.groups, self.sample = method, scorer, groups, sample
        self.every, self.personal_every, self.last, self.finetune = every, personal_every, last, finetune
        self.of_clients: dict[str, tuple[Tensor, np.ndarray]] = {}  # accuracies when last scored

    def __call__(self, t: int, server: dict, network: Callable[[int], Network]) -> dict:
        """Scores of round `t`, none if it is not due; ``diverged`` where a model's outputs are beyond all measure.

        The exchanges that scoring needs run in networks of their own, and are not booked.
        """
        row, final = {}, t == self.last
        if t % self.every == 0 or final:
            row |= self.served(server, network, self.groups)
        if len(self.sample) and (final or (self.personal_every and t % self.personal_every == 0)):
            personal = self.method.personal(server, self.sample, network(t))
            if personal is not None:
                row |= self._scores("personal_", personal, self.sample)
        if row and self.scorer.diverged:
            row["diverged"] = True
            line = f"{self.method.name} has diverged by round {t}: outputs are beyond {LARGE:g} or not finite"
            warnings.warn(line, RuntimeWarning, stacklevel=2)
        return row

    def served(self, server: dict, network: Callable[[int], Network], groups: dict[str, Tensor]) -> dict:
        """Scores of the models that serve each group of clients, and of the one for everybody."""
        row = {}
        never_run = self.last + 1  # what scoring draws, no round of training draws; every score draws the same
        for prefix, group in groups.items():
            if len(group):
                served = serve(self.method, server, group, network(never_run), self.finetune)
                if served is not None:
                    row |= self._scores(prefix, served, group)
        shared = self.method.shared(server)
        if shared is not None:
            tests = self.scorer.federation.test_of.unique().tolist()
            confusion = sum(self.scorer.confusion(shared, test) for test in tests)
            row["global_accuracy"] = float(metrics.accuracy(confusion))
        return row

    def _scores(self, prefix: str, models: Served, clients: Tensor) -> dict[str, float]:
        scores = self.scorer.score(models, clients)
        self.of_clients[f"{prefix}accuracy"] = clients, self.scorer.latest
        return {prefix + name: value for name, value in scores.items()}
