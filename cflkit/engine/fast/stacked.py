"""Local SGD of a chunk of clients in lock-step with ``vmap``: what makes a GPU fast."""

from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, vmap

from cflkit.engine.rows import Dense, stack
from cflkit.engine.sgd import Descent
from cflkit.engine.trainer import Trainer, Work


class Stacked(Trainer):
    """Every client of the chunk takes its step at once; the same arithmetic as the reference."""

    def supports(self, work: Work) -> bool:
        """Networks whose whole vector is trained, without dropout or batch statistics."""
        model = work.model
        plain = model.trainable == model.size and not (model.has_dropout or model.has_batchnorm)
        return plain and work.batches is not None and work.steps > 0 and work.plain_loss

    def train(self, work: Work) -> Dense:
        """Ragged clients are padded: a padded image has weight 0 in its batch's mean.

        A client that has no batch left goes on with the others, but its vector was put aside after its last one.
        """
        x, y = _images(work)
        position, weight = _batches(work)
        module, model = work.model.lent().train(), work.model

        def loss(vector, xb, yb, wb):
            logits = functional_call(module, model.views(vector), (xb,))
            return (F.cross_entropy(logits, yb, reduction="none") * wb).sum()

        gradient_of = vmap(grad(loss))
        begin, m = stack(work.start), len(work.data)
        vectors = (begin.expand(m, -1) if begin.dim() == 1 else begin).clone()
        spans, rule = _rule(work, vectors)
        clients = torch.arange(m, device=model.device)[:, None]
        ends = torch.tensor([len(b) for b in work.batches], device=model.device)[:, None]
        out = vectors.clone()
        for step in range(work.steps):
            at = position[step]
            gradient = gradient_of(vectors, x[clients, at], y[clients, at], weight[step])
            rule.step([gradient[:, span] for span in spans])
            out = torch.where(ends == step + 1, vectors, out)
        return Dense(out)


def _images(work: Work) -> tuple[Tensor, Tensor]:
    """All clients' images (m, n, C, H, W) and labels (m, n), padded with zeros to the longest."""
    pairs = [work.data[i] for i in range(len(work.data))]
    pad = torch.nn.utils.rnn.pad_sequence
    return tuple(pad(part, batch_first=True) for part in zip(*pairs, strict=True))


def _batches(work: Work) -> tuple[Tensor, Tensor]:
    """Of every step: positions of each client's batch (steps, m, width), and the weight of each in the mean."""
    m, width = len(work.batches), max((len(b) for bs in work.batches for b in bs), default=0)
    position = np.zeros((work.steps, m, width), dtype=np.int64)
    weight = np.zeros((work.steps, m, width))
    for i, batches in enumerate(work.batches):
        for step, batch in enumerate(batches):
            position[step, i, : len(batch)] = batch
            weight[step, i, : len(batch)] = 1 / len(batch)
    device, dtype = work.model.device, work.model.dtype
    return torch.from_numpy(position).to(device), torch.from_numpy(weight).to(device, dtype)


def _rule(work: Work, vectors: Tensor) -> tuple[list[slice], Descent]:
    """The update of all clients' vectors (m, P), and the spans that it treats alike, which the pulls cut."""
    whole = slice(0, work.model.trainable)
    pulled = [term.span or whole for term in work.prox]
    edges = sorted({edge for span in (whole, *pulled) for edge in (span.start, span.stop)})
    spans = [slice(a, b) for a, b in pairwise(edges)]
    pulls = []
    for term, span in zip(work.prox, pulled, strict=True):
        inside = [k for k, s in enumerate(spans) if span.start <= s.start and s.stop <= span.stop]
        anchor = stack(term.anchor)
        pulls.append((term.weight, inside, [anchor[..., spans[k]] for k in inside]))
    shift = None if work.shift is None else stack(work.shift)
    shifts = None if shift is None else [shift[..., s] for s in spans]
    return spans, Descent([vectors[:, s] for s in spans], pulls, shifts, work.optimiser)
