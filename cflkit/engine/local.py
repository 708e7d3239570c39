"""What a client can do with its data: train, score models on it, take a gradient.

A method calls :class:`Local` and never learns which trainer runs. All trainers compute the same: the reference
(:class:`cflkit.engine.trainer.Trainer`), and those of :mod:`cflkit.engine.fast`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cflkit import rng
from cflkit.checks import declared, require
from cflkit.data.federation import Samples
from cflkit.engine.clients import IMAGES_AT_ONCE, Data, Pixels
from cflkit.engine.rows import Part, Pick, Rowwise
from cflkit.engine.sgd import SGD, Prox, cross_entropy
from cflkit.engine.trainer import Trainer, Work, covered
from cflkit.models.flat import Model


class Local:
    """The client's side of a round, for a chunk of m clients; every result has a leading axis m.

    Parameters
    ----------
    model : Model
        The architecture.
    optimiser : SGD
        The local training of the run.
    seed, round : int
        Keys of the batch order, which depends on (seed, round, client) alone: two passes in a round see the same
        batches, which the papers' identities need.
    trainers : sequence of Trainer
        The first that supports a piece of work does it.
    """

    def __init__(
        self, model: Model, optimiser: SGD, seed: int, round: int, trainers: Sequence[Trainer] = (Trainer(),)
    ):
        self.model, self.optimiser, self.seed, self.round, self.trainers = model, optimiser, seed, round, trainers

    def sgd(
        self,
        start: Rowwise,
        data: Data,
        prox: Sequence[Prox] = (),
        shift: Rowwise | None = None,
        objective: Callable[[nn.Module, Tensor, Tensor], Tensor] = cross_entropy,
        optimiser: SGD | None = None,
        model: Model | None = None,
        weights: Sequence[Tensor] | None = None,
    ) -> Part:
        """Train from `start` on each client's data.

        Parameters
        ----------
        start : Tensor (P,), Tensor (m, P) or Pick
            Where each client begins.
        data : Data
            The m clients' images.
        prox : sequence of Prox
            Proximal terms added to the loss.
        shift : Tensor (P,), Tensor (m, P) or Pick, optional
            A constant added to every gradient (SCAFFOLD's and FedDANE's corrections).
        objective : callable
            ``(module, x, y) -> scalar loss`` of a batch.
        optimiser : SGD, optional
            In place of the run's.
        model : Model, optional
            In place of the run's.
        weights : sequence of m Tensors (n_i,), optional
            Weight q of each image: a batch's loss is the mean of q times the cross-entropy (mixtures' M-step).

        Raises
        ------
        ValueError
            If vectors are not of the model's length, or neither one nor m; for weights of another objective.

        Returns
        -------
        Part (m, P)
            The trained vectors: ready to be uploaded, or ``.dense()`` to compute with.
        """
        declared("prox", prox, Sequence[Prox])
        declared("optimiser", optimiser, SGD | None)
        optimiser, model = optimiser or self.optimiser, model or self.model
        prox = [p for p in prox if p.weight != 0 and (p.span is None or p.span.start < p.span.stop)]
        _need_vectors("start", start, len(data), model)
        for term in prox:
            _need_vectors("anchor", term.anchor, len(data), model)
            covered(model, term.span)  # refuses a span that cuts a parameter, whichever trainer runs
        if shift is not None:
            _need_vectors("shift", shift, len(data), model)
        if weights is not None:
            require(objective is cross_entropy, "objective", objective, "the cross-entropy with weights")
            given = list(map(len, weights))
            require(given == data.sizes.tolist(), "len(weights)", given, f"{data.sizes.tolist()}, one an image")
        batches = [
            optimiser.batches(int(n), rng.generator(self.seed, self.round, client, "batches"))
            for n, client in zip(data.sizes, data.clients, strict=True)
        ]
        keys = (self.seed, self.round)
        work = Work(model, data, start, optimiser, batches, prox, shift, objective, keys, weights)
        return self._trainer(work).train(work)

    def steps(self, data: Data) -> Tensor:
        """Steps (m,) that each client takes in one :meth:`sgd` of the run's optimiser."""
        return torch.tensor([self.optimiser.count(int(n)) for n in data.sizes])

    def losses(self, models: Tensor, data: Data) -> Tensor:
        """Mean cross-entropy (m, K) of each of K models (K, P) on each client's training data."""
        work = Work(self.model, data, models, self.optimiser)
        return self._trainer(work).losses(work)

    def image_losses(self, models: Tensor, data: Data) -> list[Tensor]:
        """Cross-entropy (K, n_i) of each of K models (K, P) on every single training image, client by client."""
        with torch.no_grad():
            return [self._image_losses(models, *data[i]) for i in range(len(data))]

    def _image_losses(self, models: Tensor, x: Tensor, y: Tensor) -> Tensor:
        logits = [torch.cat([self.model.forward(w, part) for part in x.split(IMAGES_AT_ONCE)]) for w in models]
        return torch.stack([F.cross_entropy(z, y, reduction="none") for z in logits])

    def gradient(self, at: Rowwise, data: Data) -> Part:
        """Full-batch gradient (m, P) of each client's mean loss at `at`; zero on what is not trained."""
        _need_vectors("at", at, len(data), self.model)
        work = Work(self.model, data, at, self.optimiser, keys=(self.seed, self.round))
        return self._trainer(work).gradient(work)

    def _trainer(self, work: Work) -> Trainer:
        return next(trainer for trainer in self.trainers if trainer.supports(work))


def _need_vectors(name: str, given: Rowwise, m: int, model: Model) -> None:
    """Require one vector of the model's length and precision for all of `m` clients, or one of each."""
    require(isinstance(given, Rowwise), name, given, "a tensor or a Pick")
    dtype = given.table.dtype if isinstance(given, Pick) else given.dtype
    require(dtype == model.dtype, f"dtype of {name}", dtype, f"{model.dtype}, the run's")
    shape = (len(given), *given.table.shape[1:]) if isinstance(given, Pick) else tuple(given.shape)
    ok = shape in ((model.size,), (m, model.size))
    require(ok, f"shape of {name}", shape, f"({model.size},) or ({m}, {model.size}): one vector, or one a client")


@dataclass(frozen=True)
class Site:
    """What it takes to play any client of a run, in any round; fields as for :class:`Local` and :class:`Data`."""

    model: Model
    samples: Samples
    pixels: Pixels
    classes: int
    optimiser: SGD
    seed: int
    trainers: Sequence[Trainer]
    earlier: Sequence[Samples] = ()

    def local(self, round: int) -> Local:
        """What clients can do in `round`."""
        return Local(self.model, self.optimiser, self.seed, round, self.trainers)

    def data(self, clients: list[int]) -> Data:
        """What `clients` hold."""
        return Data(self.samples, clients, self.pixels, self.classes, self.earlier)
