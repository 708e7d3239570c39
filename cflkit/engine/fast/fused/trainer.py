"""When the kernels run, and what they are given."""

import importlib.util
import os
from functools import cache

import numpy as np
import torch
from torch import Tensor

from cflkit.engine.fast.plan import plan_for
from cflkit.engine.rows import Dense, Pick, Rowwise
from cflkit.engine.trainer import Trainer, Work
from cflkit.models.flat import Model


@cache
def runs_on(device: str) -> bool:
    """Whether Triton is there for a kind of device: for a GPU, or for a CPU where it is interpreted."""
    there = importlib.util.find_spec("triton") is not None
    return there and (device == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


class Fused(Trainer):
    """All local steps of a client in one program of a GPU, for networks that have a plan."""

    def supports(self, work: Work) -> bool:
        """Training with the plain loss in single or double precision, where every client has images."""
        model = work.model
        if not (runs_on(model.device.type) and work.plain_loss and work.steps):
            return False
        usual = model.dtype in (torch.float32, torch.float64) and int(work.data.sizes.min()) > 0
        return usual and plan_for(model, tuple(work.data.shape)) is not None

    def train(self, work: Work) -> Dense:
        """Train every client: vectors (m, P)."""
        from cflkit.engine.fast.fused import programs

        model, optimiser, m = work.model, work.optimiser, len(work.data)
        vectors = _rows(work.start).expand(m, -1).clone()
        images, labels = (torch.cat(part) for part in zip(*(work.data[i] for i in range(m)), strict=True))
        rows, counts, ends = (each.to(model.device) for each in _batches(work))
        net = programs.network(plan_for(model, tuple(work.data.shape)), rows.shape[2])
        pulled = bool(work.prox or optimiser.weight_decay or work.shift is not None)
        pull, anchors = _pulls(work) if pulled else (vectors, vectors)
        kept = torch.zeros_like(vectors) if optimiser.momentum else vectors
        tiles = programs.Tiles()
        programs.train[(m,)](
            vectors, kept, pull, anchors, images, labels, rows, counts, ends, vectors.new_empty(m, 2, net.room),
            vectors.new_empty(m, net.room, dtype=torch.int8), optimiser.lr, optimiser.momentum, rows.shape[1],
            len(anchors), N=net, T=tiles,
            R=programs.Rule(optimiser.momentum > 0, optimiser.nesterov, pulled), num_warps=tiles.warps,
            num_stages=tiles.stages,
        )  # fmt: skip
        return Dense(vectors)


def _rows(value: Rowwise) -> Tensor:
    """Something shared (1, P), or a row a client (m, P)."""
    value = value.dense() if isinstance(value, Pick) else value
    return value if value.dim() == 2 else value[None]


def _batches(work: Work) -> tuple[Tensor, Tensor, Tensor]:
    """Positions (m, steps, width) of batches in all clients' images, sizes (m, steps), each client's steps."""
    ends = [len(batches) for batches in work.batches]
    begins = np.concatenate([[0], np.cumsum(work.data.sizes)])
    counts = np.zeros((len(ends), work.steps), dtype=np.int32)
    for i, batches in enumerate(work.batches):
        counts[i, : ends[i]] = [len(batch) for batch in batches]
    rows = np.zeros((*counts.shape, counts.max()), dtype=np.int64)
    for i, batches in enumerate(work.batches):
        for step, batch in enumerate(batches):
            rows[i, step, : len(batch)] = begins[i] + batch
    return torch.from_numpy(rows), torch.from_numpy(counts), torch.tensor(ends, dtype=torch.int32)


def _pulls(work: Work) -> tuple[Tensor, Tensor]:
    """Strength of all terms at each weight (P,), and their anchors times it less the shift, (1, P) or (m, P)."""
    model: Model = work.model
    pull = torch.full((model.size,), work.optimiser.weight_decay, dtype=model.dtype, device=model.device)
    anchors = torch.zeros(1, model.size, dtype=model.dtype, device=model.device)
    for term in work.prox:
        strength = torch.zeros_like(pull)
        strength[term.span or slice(None)] = term.weight
        pull, anchors = pull + strength, anchors + strength * _rows(term.anchor)
    return pull, (anchors if work.shift is None else anchors - _rows(work.shift)).contiguous()
