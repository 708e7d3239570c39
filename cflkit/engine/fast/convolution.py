r"""Local SGD of convolutional networks on a CPU: the same numbers, with less work around the arithmetic.

What :mod:`cflkit.engine.fast.compiled` has no kernels for, PyTorch trains; here are the things that help it.

**Images** have their channels last in memory, for which pooling is several times faster.

**The first dense layer** behind the convolutions holds nearly all weights W (o, d) of LEAF's network, and a step
on a few images (rows of h) only moves them through memory. As in :mod:`cflkit.engine.fast.shared_linear`, plain
SGD leaves W where it began but for outer products of what it has seen, h_s and the derivatives delta_s by the
outputs,

.. math:: W = \theta_0 W_0 + \sum_s \theta_s \delta_s^\top h_s, \qquad b = \theta_0 b_0 + \sum_s \theta_s \delta_s,

so that, H and Delta being the rows seen so far and Theta the diagonal of their theta_s,

.. math:: h W^\top + b = \theta_0 (h W_0^\top + b_0) + (h H^\top + 1)\, \Theta \Delta, \qquad
          \delta W = \theta_0\, \delta W_0 + (\delta \Delta^\top)\, \Theta H.

The derivative of the loss by theta is 1 at the rows of the batch and 0 elsewhere; weight decay, momentum,
Nesterov's step and a pull to W_0, which is theta = (1, 0, ..., 0), act on theta as they would on W. So theta
takes the place of (W, b) among the parameters. Clients that start from the same W_0 go in lock-step and share
the products with it. This pays while the rows seen are well below o and d. What clients upload are factors, too:
their mean is one product.

**Large products**, and dense layers with their derivatives, go through :mod:`cflkit.engine.gemm`.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cflkit.engine import gemm
from cflkit.engine.fast import compiled
from cflkit.engine.fast.compiled import Kernels
from cflkit.engine.fast.shared_linear import Net, same_rows
from cflkit.engine.gemm import add_product, linear
from cflkit.engine.rows import Dense, Part, Pick, add_times, pick, row
from cflkit.engine.sgd import Descent
from cflkit.engine.trainer import Trainer, Work
from cflkit.models import networks as models
from cflkit.models.flat import Model

LARGE = 2**20  # weights from which a dense layer is kept as factors
CLIENTS_TOGETHER = 10  # clients in lock-step
FACTOR_NUMBERS = 2**26  # that the factors of the clients in lock-step may take


def quick(module: nn.Module) -> nn.Module:
    """Change a network on the CPU in place so that it computes the same faster; returns it."""
    if any(p.is_cuda for p in module.parameters()):
        return module
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Linear:
                setattr(parent, name, gemm.Linear.over(child))
    # others may count on how their images lie in memory
    known = type(module).__module__.startswith(("cflkit.", "torchvision."))
    if known and any(isinstance(m, nn.Conv2d) for m in module.modules()):
        module.register_forward_pre_hook(_channels_last)
    return module


def _channels_last(module: nn.Module, args: tuple) -> tuple:
    x, *rest = args
    return channels_last(x), *rest


def channels_last(x: Tensor) -> Tensor:
    """Images (n, C, H, W) with the channels last in memory; not in double precision, where it would cost time."""
    return x.to(memory_format=torch.channels_last) if x.dtype == torch.float32 and x.dim() == 4 else x


# ---------------------------------------------------------------------- the first dense layer as factors
class Factors:
    """What one client's dense layer has become since its start (W_0, b_0): theta, H and Delta."""

    def __init__(self, rows: int, weight: Tensor):
        out, into = weight.shape
        self.theta = weight.new_zeros(rows + 1)
        self.theta[0] = 1
        self.start = self.theta.clone()  # W_0 in these coordinates
        self.h, self.delta = weight.new_empty(rows, into), weight.new_empty(rows, out)
        self.seen = 0

    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """theta_0, the other theta_s, H and Delta as far as they are filled."""
        return self.theta[0], self.theta[1 : self.seen + 1], self.h[: self.seen], self.delta[: self.seen]

    def gradient(self, size: int) -> Tensor:
        """Derivative of the loss by theta, the last `size` rows being the batch."""
        found = torch.zeros_like(self.theta)
        found[self.seen + 1 - size : self.seen + 1] = 1
        return found

    def write(self, weight: Tensor, bias: Tensor, to_weight: Tensor, to_bias: Tensor) -> None:
        """Build W and b."""
        first, theta, h, delta = self.parts()
        scaled = delta * theta[:, None]
        torch.mul(weight, first, out=to_weight).addmm_(scaled.T, h)
        torch.mul(bias, first, out=to_bias)
        to_bias.add_(scaled.sum(0))


class Partly(Part):
    """Trained vectors whose large dense layer is kept as factors until somebody looks at it.

    Parameters
    ----------
    model : Model
        LEAF's network.
    start : Pick
        Where each client began.
    rows : Tensor (m, P)
        The vectors, without the dense layer of those clients that have factors.
    factors : list of Factors or None
        Of each client; None for one whose vector is whole.
    """

    def __init__(self, model: Model, start: Pick, rows: Tensor, factors: list[Factors | None]):
        self.model, self.start, self.rows, self.factors = model, start, rows, factors
        self.shape, self.dtype, self.device = rows.shape, rows.dtype, rows.device
        self.layer = layer_of(model)
        self._version = start.table._version

    def __setstate__(self, state: dict):
        """A copy that came from another process is counted anew."""
        self.__dict__ = state | {"_version": state["start"].table._version}

    def row(self, i: int) -> Tensor:
        """Build client `i`'s layer at the first call."""
        if self.factors[i] is not None:
            self._check()
            begin, views = self.model.views(self.start[i]), self.model.views(self.rows[i])
            here = (of["fc." + name] for of in (begin, views) for name in ("weight", "bias"))
            self.factors[i].write(*here)
            self.factors[i] = None
        return self.rows[i]

    def dense(self) -> Tensor:
        """Build all layers."""
        for i in range(len(self)):
            self.row(i)
        return self.rows

    def columns(self, span: slice) -> Tensor:
        """Build all layers, unless the span misses them."""
        outside = span.stop <= self.layer.start or span.start >= self.layer.stop
        return (self.rows if outside else self.dense())[:, span]

    def unit(self) -> Part:
        """Build all layers."""
        return Dense(self.dense()).unit()

    @torch.no_grad()
    def add_to(self, total: Tensor, groups: list[int], weights: list[float]) -> None:
        """One product for the layers of a group."""
        self._check()
        shares: dict[tuple[int, int], float] = {}  # of where clients began, in the groups' totals
        seen: dict[int, list[tuple[Tensor, Tensor]]] = {}
        for i, (group, weight) in enumerate(zip(groups, weights, strict=True)):
            whole = self.factors[i] is None
            for span in [slice(None)] if whole else [slice(0, self.layer.start), slice(self.layer.stop, None)]:
                total[group, span].add_(self.rows[i, span], alpha=weight)
            if not whole:
                first, theta, h, delta = self.factors[i].parts()
                key = group, int(self.start.index[i])
                shares[key] = shares.get(key, 0.0) + weight * float(first)
                seen.setdefault(group, []).append((h, delta * (theta[:, None] * weight)))
        for (group, r), share in shares.items():
            add_times(total[group, self.layer], self.start.table[r, self.layer], share)
        for group, parts in seen.items():
            views = self.model.views(total[group])
            h, delta = (torch.cat(each) for each in zip(*parts, strict=True))
            add_product(views["fc.weight"], delta.T, h)
            views["fc.bias"].add_(delta.sum(0))

    def _check(self) -> None:
        if self.start.table._version != self._version:
            raise RuntimeError("a vector that clients trained from was changed in place while still in use")


def layer_of(model: Model) -> slice:
    """Where the large dense layer lies in a vector."""
    return slice(model.spans["fc.weight"].start, model.spans["fc.bias"].stop)


def _outputs(h: Tensor, weight: Tensor, bias: Tensor, sizes: list[int], clients: list[Factors]) -> Tensor:
    """Outputs of several clients' layers, whose inputs `h` are one below the other."""
    z = linear(h, weight, bias)
    for client, inputs, outputs in zip(clients, h.split(sizes), z.split(sizes), strict=True):
        first, theta, seen, delta = client.parts()
        outputs.mul_(first).addmm_((inputs @ seen.T).add_(1).mul_(theta), delta)
    return z


def _inputs(h: Tensor, delta: Tensor, weight: Tensor, sizes: list[int], clients: list[Factors]) -> Tensor:
    """Derivatives by the inputs; inputs and derivatives by the outputs join the clients' factors."""
    g = linear(delta, weight.T)
    split = (t.split(sizes) for t in (h, delta, g))
    for client, inputs, slopes, found in zip(clients, *split, strict=True):
        first, theta, seen, deltas = client.parts()
        found.mul_(first).addmm_((slopes @ deltas.T).mul_(theta), seen)
        new = slice(client.seen, client.seen + len(inputs))
        client.h[new], client.delta[new] = inputs, slopes
        client.seen += len(inputs)
    return g


class DenseFactors(Trainer):
    """The trainer that keeps the large dense layer of LEAF's network as factors; the rest is the reference's."""

    def supports(self, work: Work) -> bool:
        """LEAF's network on a CPU; each pull has all of its dense layer, to where it starts, or none of it."""
        model = work.model
        if type(model.module) is not models.LeafFemnist or model.device.type != "cpu" or work.batches is None:
            return False
        fc = layer_of(model)
        if fc.stop - fc.start < LARGE or not work.plain_loss or work.shift is not None:
            return False
        if model.trainable < model.size:
            return False
        start = pick(work.start, len(work.data))
        for term in work.prox:
            span = term.span or slice(0, model.size)
            outside = span.stop <= fc.start or span.start >= fc.stop
            inside = span.start <= fc.start and span.stop >= fc.stop
            if not (outside or (inside and same_rows(pick(term.anchor, len(work.data)), start))):
                return False
        return True

    def train(self, work: Work) -> Partly:
        """Train in lock-step the clients for whom it pays, and the others one by one."""
        model, start = work.model, pick(work.start, len(work.data))
        out = torch.empty(len(work.data), model.size, dtype=model.dtype)
        o, d = model.shapes["fc.weight"]
        factors: list[Factors | None] = [None] * len(out)
        rows = [sum(map(len, batches)) for batches in work.batches]
        groups: dict[int, list[int]] = {}
        for i, r in enumerate(start.index.tolist()):
            if 0 < 2 * rows[i] <= min(o, d):
                groups.setdefault(r, []).append(i)
            else:
                self.train_one(work, i, out[i])
        for r, members in groups.items():
            together = max(1, min(CLIENTS_TOGETHER, FACTOR_NUMBERS // (max(rows[i] for i in members) * (o + d))))
            for at in range(0, len(members), together):
                chosen = members[at : at + together]
                for i, made in zip(chosen, _lockstep(out, start.table[r], chosen, work, rows), strict=True):
                    factors[i] = made
        return Partly(model, start, out, factors)


class _Convolutions:
    """A client's convolutions by PyTorch: from batches to the inputs of the dense layer, and back."""

    def __init__(self, module: nn.Module, x: Tensor):
        self._module, self._x = module, x
        self.parameters = [p for layer in (module.conv1, module.conv2) for p in layer.parameters()]

    @torch.enable_grad()
    def ahead(self, batch: np.ndarray) -> Tensor:
        """Inputs (n, d) of the dense layer."""
        self._h = self._module.features(self._x[batch])
        return self._h.detach()

    def back(self, slopes: Tensor) -> list[Tensor]:
        """Derivatives by the parameters, `slopes` (n, d) being those by the inputs of the last batch."""
        return list(torch.autograd.grad(self._h, self.parameters, slopes))


class _CompiledConvolutions(_Convolutions):
    """The same by compiled kernels, the client's parameters lying in the vector `w` (P,)."""

    def __init__(self, module: nn.Module, x: Tensor, code: Kernels, w: Tensor, widest: int):
        super().__init__(module, x)
        self._code, self._w, self._room = code, w, code.room(widest)
        self._gradient = torch.zeros(code.plan.size, dtype=w.dtype)
        parts = self._gradient.split([p.numel() for p in self.parameters])
        self._views = [part.view(p.shape) for part, p in zip(parts, self.parameters, strict=True)]

    def ahead(self, batch: np.ndarray) -> Tensor:
        """Inputs (n, d) of the dense layer."""
        return self._code.look(self._w, self._x, batch, self._room)

    def back(self, slopes: Tensor) -> list[Tensor]:
        """Derivatives by the parameters."""
        self._code.back(self._w, self._room, slopes, self._gradient.zero_())
        return self._views


class _Client(NamedTuple):
    batches: list[np.ndarray]
    factors: Factors
    rule: Descent
    convolutions: _Convolutions
    tail: tuple[Tensor, Tensor]  # weight and bias of the decision layer
    target: Tensor  # (n, classes), one-hot


@torch.no_grad()
def _lockstep(out: Tensor, vector: Tensor, chosen: list[int], work: Work, rows: list[int]) -> list[Factors]:
    """Train clients that all begin at `vector` (P,), and take that many `rows` in all.

    Their vectors lie in `out`, but for the large layer, whose factors are returned.
    """
    model, begin = work.model, work.model.views(vector)
    weight, bias = begin["fc.weight"], begin["fc.bias"]
    small = [name for name in model.parameters if not name.startswith("fc.")]
    code = compiled.front_for(model, work.data.shape)
    clients = []
    for i in chosen:
        for name in small:
            out[i, model.spans[name]] = vector[model.spans[name]]
        module = model.bound(out[i], quick=True).train()
        factors = Factors(rows[i], weight)
        pulls = []
        for term in work.prox:
            span, anchor = term.span or slice(0, model.size), model.views(row(term.anchor, i))
            where = [k for k, name in enumerate(small)
                     if span.start <= model.spans[name].start and model.spans[name].stop <= span.stop]  # fmt: skip
            to = [anchor[small[k]] for k in where]
            if span.start <= model.spans["fc.weight"].start < span.stop:
                where, to = [*where, len(small)], [*to, factors.start]
            pulls.append((term.weight, where, to))
        x, y = work.data[i]
        if code:
            convolutions = _CompiledConvolutions(module, x, code, out[i], max(map(len, work.batches[i])))
        else:
            convolutions = _Convolutions(module, channels_last(x))
        tail = module.decision.weight, module.decision.bias
        rule = Descent([*convolutions.parameters, *tail, factors.theta], pulls, None, work.optimiser)
        target = F.one_hot(y, len(module.decision.bias)).to(x.dtype)
        clients.append(_Client(work.batches[i], factors, rule, convolutions, tail, target))
    for step in range(max(len(c.batches) for c in clients)):
        active = [c for c in clients if step < len(c.batches)]
        sizes, dense = [len(c.batches[step]) for c in active], [c.factors for c in active]
        h = torch.cat([c.convolutions.ahead(c.batches[step]) for c in active])
        z = _outputs(h, weight, bias, sizes, dense).split(sizes)
        deltas, tails = [], []
        for c, mine in zip(active, z, strict=True):
            through = Net.forward(mine, [c.tail])
            tails.append(tuple(map(torch.empty_like, c.tail)))
            deltas.append(Net.backward(through, c.target[c.batches[step]], [c.tail], tails[-1:]))
        slopes = _inputs(h, torch.cat(deltas), weight, sizes, dense).split(sizes)
        # all go back before any moves: PyTorch counts changes of `out`, in which all of them lie
        below = [c.convolutions.back(mine) for c, mine in zip(active, slopes, strict=True)]
        for c, size, first, last in zip(active, sizes, below, tails, strict=True):
            c.rule.step([*first, *last, c.factors.gradient(size)])
    return [c.factors for c in clients]
