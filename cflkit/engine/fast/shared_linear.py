r"""Local SGD without ever building a client's first layer.

All clients of a cluster start from the same first layer, and a client's images X (n, d) are the same in every
step. Write W (h, d) for its weights and b (h,) for its bias, delta (n, h) for the derivatives of the loss by the
layer's outputs z, and 1 for a vector of n ones. The gradient

.. math:: \nabla_W = \delta^\top X, \qquad \nabla_b = \delta^\top 1

lies in the span of the images, weight decay adds a multiple of (W, b), and a proximal term a multiple of (W, b)
minus one of an anchor's (Omega_k, omega_k). So plain SGD, from (W_0, b_0), never leaves the set

.. math:: W = p W_0 + \sum_k q_k \Omega_k + A^\top X, \qquad b = p b_0 + \sum_k q_k \omega_k + A^\top 1,

with numbers p and q_k and a matrix A (n, h), which begin at 1, 0 and 0. Outputs need no W either:

.. math:: z = p (X W_0^\top + b_0) + \sum_k q_k (X \Omega_k^\top + \omega_k) + (X X^\top + 1 1^\top) A.

The bracketed products are made once, one multiplication for all clients of a chunk that share a row, and serve
every step and every pass over the same data. A step with learning rate eta, weight decay gamma, proximal weights
mu_k and s = gamma + sum_k mu_k has, in these coordinates, the gradient

.. math:: g_p = s p, \qquad g_{q_k} = s q_k - \mu_k, \qquad g_A = s A + \delta,

delta being zero outside the batch. Momentum and Nesterov's step are linear in the gradient, so they act on
(p, q, A) as they would on (W, b). (Adam is not linear, and leaves the set.) The layers above the first are small
and trained directly.

A step costs n h numbers in place of h d: this pays for n well below d and more than one step. What comes out are
factors, too: the mean of all clients' first layers is one product, (stacked w_i A_i)^T (stacked X_i).
"""

import math
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cflkit.engine.gemm import add_product, linear
from cflkit.engine.rows import Dense, Part, Pick, add_times, pick, scale, within
from cflkit.engine.trainer import Trainer, Work
from cflkit.models.networks import MLP

KEPT_BYTES = 2**28  # of products that a chunk keeps for later passes; beyond, it starts anew


def layers(module: nn.Module) -> list[str] | None:
    """Names of a network's linear layers, if it is flatten, linear, ReLU, linear, ..., linear; else None."""
    if type(module) is MLP:
        return ["hidden", "decision"]
    if type(module) is not nn.Sequential or len(module) < 2 or len(module) % 2:
        return None
    kinds = [nn.Flatten] + [nn.Linear, nn.ReLU] * (len(module) // 2 - 1) + [nn.Linear]
    right = all(type(child) is kind for child, kind in zip(module, kinds, strict=True))
    right = right and module[0].start_dim == 1 and all(m.bias is not None for m in module[1::2])
    distinct = len(set(module[1::2])) == len(module) // 2
    return [str(i) for i in range(1, len(module), 2)] if right and distinct else None


def supports(model, prox=()) -> bool:
    """Whether this algebra holds for the architecture, and each proximal term has all or nothing of layer one."""
    names = layers(model.module)
    if names is None or model.trainable < model.size or len(model.parameters) != 2 * len(names):  # some are tied
        return False
    end = Net(model).first
    return all(p.span is None or p.span.start >= end or (p.span.start == 0 and p.span.stop >= end) for p in prox)


class Net:
    """Where the layers of a supported architecture lie in a vector: the first one, then the tail."""

    def __init__(self, model):
        names = layers(model.module)
        self.h, self.d = model.shapes[f"{names[0]}.weight"]
        self.first = self.h * (self.d + 1)
        self._shapes = [model.shapes[f"{name}.weight"] for name in names[1:]]
        self.classes = self._shapes[-1][0] if self._shapes else self.h

    def weight(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """Weights (h, d) and bias (h,) of the first layer, as views of a vector."""
        return vector[: self.h * self.d].view(self.h, self.d), vector[self.h * self.d : self.first]

    def tail(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Weights and biases of the layers above, as views of the rest of a vector."""
        found, at = [], 0
        for out, into in self._shapes:
            end = at + out * into
            found.append((flat[at:end].view(out, into), flat[end : end + out]))
            at = end + out
        return found

    @staticmethod
    def forward(z: Tensor, tail: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """Inputs of the layers above and, last, the logits; `z` (n, h) is overwritten."""
        through = [z]
        for weight, bias in tail:
            through.append(linear(through[-1].relu_(), weight, bias))
        return through

    @staticmethod
    def backward(through, target, tail, gradient) -> Tensor:
        """Derivative (n, h) of the mean cross-entropy by the first layer's outputs; `gradient` gets the tail's.

        `target` (n, classes) is one-hot.
        """
        delta = through[-1].softmax(1).sub_(target).div_(len(target))
        for inputs, (weight, _), (g_weight, g_bias) in zip(
            through[-2::-1], reversed(tail), reversed(gradient), strict=True
        ):
            g_weight.copy_(linear(delta.T, inputs.T))
            torch.sum(delta, 0, out=g_bias)
            delta = linear(delta, weight.T)
            torch.ops.aten.threshold_backward.grad_input(delta, inputs, 0, grad_input=delta)
        return delta


class Products:
    """The images of a chunk as one matrix, and what they have been multiplied with so far.

    Lives as long as the chunk's data, so that several passes over the data share it.
    """

    def __init__(self, data):
        pairs = [data[i] for i in range(len(data))]
        self.x = torch.cat([x.flatten(1) for x, _ in pairs])
        self.y = torch.cat([y for _, y in pairs])
        ends = torch.tensor([0] + [len(y) for _, y in pairs]).cumsum(0).tolist()
        self.spans = [slice(a, b) for a, b in pairwise(ends)]
        self._made: dict[tuple, tuple[Tensor, dict[int, Tensor]]] = {}

    @classmethod
    def of(cls, data) -> "Products":
        """Those of `data`, made at the first call."""
        if "products" not in data.kept:
            data.kept["products"] = cls(data)
        return data.kept["products"]

    @cached_property
    def grams(self) -> list[Tensor]:
        """X X^T + 1 (n_i, n_i) of every client; the 1 carries the bias."""
        return [linear(x, x).add_(1) for x in (self.x[span] for span in self.spans)]

    def targets(self, classes: int) -> Tensor:
        """One-hot labels (n, classes) of the whole chunk."""
        return nn.functional.one_hot(self.y, classes).to(self.x.dtype)

    def outputs(self, net: Net, table: Tensor, index: list[int]) -> list[Tensor]:
        """X W^T + b (n_i, h) of client i under ``table[index[i]]``; one product for all clients of a row.

        Rows are told apart by where they lie; a change in place makes them new.
        """
        if sum(z.nbytes for _, made in self._made.values() for z in made.values()) > KEPT_BYTES:
            self._made.clear()
        found: list[Tensor] = [self.x] * len(index)
        for r in set(index):
            vector = table[r]
            _, made = self._made.setdefault((vector.data_ptr(), vector._version), (vector, {}))
            members = [i for i in range(len(index)) if index[i] == r]
            missing = [i for i in members if i not in made]
            if missing:
                x = self.x if len(missing) == len(index) else torch.cat([self.x[self.spans[i]] for i in missing])
                weight, bias = net.weight(vector)
                sizes = [self.spans[i].stop - self.spans[i].start for i in missing]
                made.update(zip(missing, linear(x, weight, bias).split(sizes), strict=True))
            for i in members:
                found[i] = made[i]
        return found


class Factored(Part):
    """The trained vectors (m, P) of a chunk of clients, kept as factors.

    Parameters
    ----------
    net : Net
        Where the first layer lies.
    bases : list of (Pick, list of m floats)
        W_0 and the anchors, and each client's p and q_k.
    a : Tensor (n, h)
        The matrices A of all clients, one below the other.
    products : Products
        The images, likewise.
    tails : Tensor (m, P - h (d + 1))
        The layers above the first.
    """

    def __init__(self, net: Net, bases, a: Tensor, products: "Products", tails: Tensor):
        self.net, self.bases, self.a, self.tails = net, bases, a, tails
        self.x, self.spans = products.x, products.spans
        self.shape, self.dtype, self.device = (len(tails), net.first + tails.shape[1]), a.dtype, a.device
        self._versions = [base.table._version for base, _ in bases]

    def __setstate__(self, state: dict):
        """Copies that came from another process are counted anew."""
        self.__dict__ = state | {"_versions": [base.table._version for base, _ in state["bases"]]}

    def dense(self) -> Tensor:
        """Build all vectors (m, P)."""
        built = self.tails.new_empty(self.shape)
        for i in range(len(built)):
            self._build(i, built[i])
        return built

    def row(self, i: int) -> Tensor:
        """Build client `i`'s vector (P,)."""
        return self._build(i, self.tails.new_empty(self.shape[1]))

    @torch.no_grad()
    def _build(self, i: int, out: Tensor) -> Tensor:
        self._check()
        first = out[: self.net.first]
        terms = [(base[i][: self.net.first], factor[i]) for base, factor in self.bases if factor[i] != 0]
        if terms:
            torch.mul(*terms[0], out=first)
        else:
            first.zero_()
        for vector, factor in terms[1:]:
            first.add_(vector, alpha=factor)
        weight, bias = self.net.weight(out)
        add_product(weight, self.a[self.spans[i]].T, self.x[self.spans[i]])
        bias.add_(self.a[self.spans[i]].sum(0))
        out[self.net.first :] = self.tails[i]
        return out

    @torch.no_grad()
    def add_to(self, total: Tensor, groups: list[int], weights: list[float]) -> None:
        """One product for a group."""
        self._check()
        first = self.net.first
        for base, factor in self.bases:
            share: dict[tuple[int, int], float] = {}
            for group, weight, r, c in zip(groups, weights, base.index.tolist(), factor, strict=True):
                share[group, r] = share.get((group, r), 0.0) + weight * c
            for (group, r), c in share.items():
                if c != 0:
                    add_times(total[group, :first], base.table[r][:first], c)
        sizes = torch.tensor([span.stop - span.start for span in self.spans], device=self.a.device)
        by_image = self.a.new_tensor(weights).repeat_interleave(sizes)
        for group in dict.fromkeys(groups):
            members = [i for i, g in enumerate(groups) if g == group]
            a, x, w = self.a, self.x, by_image
            if len(members) < len(groups):
                a, x, w = (torch.cat([whole[self.spans[i]] for i in members]) for whole in (a, x, w))
            weight, bias = self.net.weight(total[group])
            add_product(weight, a.T, x * w[:, None])
            bias.addmv_(a.T, w)
            total[group, first:].addmv_(self.tails[members].T, self.tails.new_tensor([weights[i] for i in members]))

    def columns(self, span: slice) -> Tensor:
        """Made from as little of the factors as they need."""
        self._check()
        out = self.tails.new_zeros(len(self.tails), span.stop - span.start)
        (h, d), first = (self.net.h, self.net.d), self.net.first
        for base, factor in self.bases:
            for i, c in enumerate(factor):
                if c != 0:
                    piece = base[i][:first][span]
                    out[i, : len(piece)].add_(piece, alpha=c)
        begin, end = min(span.start, h * d), min(span.stop, h * d)
        units = slice(begin // d, -(-end // d))  # hidden units whose weights lie in the span
        for i, rows in enumerate(self.spans):
            if begin < end:
                built = linear(self.a[rows, units].T, self.x[rows].T)
                out[i, : end - begin].add_(built.view(-1)[begin - units.start * d : end - units.start * d])
            low, high = max(span.start, h * d), min(span.stop, first)
            if low < high:
                out[i, low - span.start : high - span.start].add_(self.a[rows, low - h * d : high - h * d].sum(0))
        low = max(span.start, first)
        if low < span.stop:
            out[:, low - span.start :] = self.tails[:, low - first : span.stop - first]
        return out

    def unit(self) -> Part:
        """From the factors, if there are no bases, as in gradients; otherwise the vectors are built."""
        if self.bases:
            return Dense(self.dense()).unit()
        square = self.tails.square().sum(1)
        for i, (a, x) in enumerate((self.a[span], self.x[span]) for span in self.spans):
            square[i] += (linear(a, a) * linear(x, x).add_(1)).sum()  # |A^T X|^2 + |A^T 1|^2
        norm = square.clamp_(min=0).sqrt_()[:, None]
        sizes = torch.tensor([span.stop - span.start for span in self.spans], device=norm.device)
        scale(self.a, norm.repeat_interleave(sizes, 0))
        scale(self.tails, norm)
        return self

    def _check(self) -> None:
        for (base, _), version in zip(self.bases, self._versions, strict=True):
            if base.table._version != version:
                raise RuntimeError("a vector that clients trained from was changed in place while still in use")


class Shared(Trainer):
    """The trainer of this algebra.

    Parameters
    ----------
    always : bool
        Take all work that is supported; otherwise only where it pays. It pays where training takes several steps,
        and clients hold, on average, at most half as many images as an image has numbers; from four passes over
        the images on, as many as an image has numbers.
    """

    def __init__(self, always: bool = False):
        super().__init__()
        self.always = always

    def supports(self, work: Work) -> bool:
        """The cross-entropy of a multilayer perceptron, each pull on all or nothing of its first layer."""
        passes = 0 if work.batches is None or work.optimiser.steps is not None else work.optimiser.epochs
        most = math.prod(work.data.shape) / (1 if passes >= 4 else 2)
        pays = work.data.typical <= most and (work.batches is None or work.steps > 1)
        return (self.always or pays) and work.plain_loss and work.shift is None and supports(work.model, work.prox)

    @torch.no_grad()
    def train(self, work: Work) -> Factored:
        """Train the clients one after another."""
        model, m = work.model, len(work.data)
        net, products = Net(model), Products.of(work.data)
        start, prox = pick(work.start, m), [replace(term, anchor=pick(term.anchor, m)) for term in work.prox]
        bases, pulls = _bases(start, prox)
        outputs = [products.outputs(net, base.table, base.index.tolist()) for base in bases]
        tails = torch.empty(m, model.size - net.first, dtype=model.dtype, device=model.device)
        a = torch.zeros(len(products.x), net.h, dtype=model.dtype, device=model.device)
        targets = products.targets(net.classes)
        factors: list[list[float]] = [[] for _ in bases]
        for i, span in enumerate(products.spans):
            tails[i] = start[i][net.first :]
            terms = []
            for term in prox:
                whole = term.span or slice(0, model.size)
                inside = slice(max(whole.start - net.first, 0), max(whole.stop - net.first, 0))
                terms.append((term.weight, inside, term.anchor[i][net.first :][inside]))
            coordinates = _client(
                net, [z[i] for z in outputs], pulls, products.grams[i], a[span], tails[i], targets[span],
                work.positions[i], terms, work.optimiser,
            )  # fmt: skip
            for column, value in zip(factors, coordinates, strict=True):
                column.append(value)
        return Factored(net, list(zip(bases, factors, strict=True)), a, products, tails)

    @torch.no_grad()
    def losses(self, work: Work) -> Tensor:
        """Mean cross-entropy (m, K): one product a model for all clients."""
        net, products, models = Net(work.model), Products.of(work.data), work.start
        out = torch.empty(len(work.data), len(models), dtype=work.model.dtype, device=work.model.device)
        for k, vector in enumerate(models):
            upper = net.tail(vector[net.first :])
            for i, z in enumerate(products.outputs(net, vector[None], [0] * len(work.data))):
                logits = net.forward(z.clone() if upper else z, upper)[-1]
                out[i, k] = cross_entropy(logits, products.y[products.spans[i]])
        return out

    @torch.no_grad()
    def gradient(self, work: Work) -> Factored:
        """Full-batch gradient (m, P): A = delta, without W_0."""
        model, at = work.model, pick(work.start, len(work.data))
        net, products = Net(model), Products.of(work.data)
        tails = torch.empty(len(work.data), model.size - net.first, dtype=model.dtype, device=model.device)
        a = torch.empty(len(products.x), net.h, dtype=model.dtype, device=model.device)
        targets = products.targets(net.classes)
        for i, z in enumerate(products.outputs(net, at.table, at.index.tolist())):
            span = products.spans[i]
            upper, g_upper = net.tail(at[i][net.first :]), net.tail(tails[i])
            a[span] = net.backward(net.forward(z.clone(), upper), targets[span], upper, g_upper)
        return Factored(net, [], a, products, tails)


def _bases(start: Pick, prox: list) -> tuple[list[Pick], list[float]]:
    """W_0 and the anchors, and how strongly each pulls at the first layer."""
    bases, pulls = [start], [0.0]
    for term in prox:
        if term.span is None or term.span.start == 0:
            same = [k for k, base in enumerate(bases) if same_rows(base, term.anchor)]
            if same:
                pulls[same[0]] += term.weight
            else:
                bases, pulls = [*bases, term.anchor], [*pulls, term.weight]
    return bases, pulls


def same_rows(one, other) -> bool:
    """Whether two Picks hold the very same vectors."""
    return one.table.data_ptr() == other.table.data_ptr() and torch.equal(one.index, other.index)


def _client(net, outputs, pulls, gram, a, tail, target, batches, terms, optimiser) -> list[float]:
    """Train one client: `a` and `tail` in place; its p and q_k are returned."""
    lr, momentum, decay = optimiser.lr, optimiser.momentum, optimiser.weight_decay
    shrink = decay + sum(pulls)
    factor, speed = [1.0] + [0.0] * (len(pulls) - 1), [0.0] * len(pulls)
    gradient = torch.empty_like(tail)
    upper, g_upper = net.tail(tail), net.tail(gradient)
    a_speed = torch.zeros_like(a) if momentum else None
    tail_speed = torch.zeros_like(tail) if momentum else None
    room = a.new_empty(max((len(b) for b in batches), default=0), net.h)
    for step, batch in enumerate(batches):
        whole = optimiser.batch_size is None
        rows = (lambda t: t) if whole else (lambda t, batch=batch: t[batch])
        # forward: z = p (X W0^T + b0) + sum q (X Omega^T + omega) + (X X^T + 1) A
        z = room[: len(batch)]
        if step:
            torch.add(linear(rows(gram), a.T), rows(outputs[0]), alpha=factor[0], out=z)
        else:
            z.copy_(rows(outputs[0]))
        for q, output in zip(factor[1:], outputs[1:], strict=True):
            if q != 0:
                z.add_(rows(output), alpha=q)
        through = net.forward(z, upper)
        delta = net.backward(through, rows(target), upper, g_upper)
        # the layers above, directly
        if decay:
            gradient.add_(tail, alpha=decay)
        for weight, inside, anchor in terms:
            gradient[inside].add_(tail[inside] - anchor, alpha=weight)
        if momentum:
            tail_speed.mul_(momentum).add_(gradient)
            tail.add_(gradient.add_(tail_speed, alpha=momentum) if optimiser.nesterov else tail_speed, alpha=-lr)
        else:
            tail.add_(gradient, alpha=-lr)
        # the first layer, in its coordinates
        slope = [shrink * f - pull for f, pull in zip(factor, pulls, strict=True)]
        if momentum:
            speed = [momentum * s + g for s, g in zip(speed, slope, strict=True)]
            a_speed.mul_(momentum)
            if shrink:
                a_speed.add_(a, alpha=shrink)
            _add(a_speed, delta, None if whole else batch, 1.0)
        if momentum and not optimiser.nesterov:
            slope = speed
            a.add_(a_speed, alpha=-lr)
        else:
            if shrink:
                a.mul_(1 - lr * shrink)
            _add(a, delta, None if whole else batch, -lr)
            if momentum:
                slope = [g + momentum * s for g, s in zip(slope, speed, strict=True)]
                a.add_(a_speed, alpha=-lr * momentum)
        factor = [within(f - lr * g, a.dtype) for f, g in zip(factor, slope, strict=True)]
    return factor


def _add(to: Tensor, delta: Tensor, batch: Tensor | None, alpha: float) -> None:
    """Add the batch's rows times `alpha`."""
    if batch is None:
        to.add_(delta, alpha=alpha)
    else:
        to.index_add_(0, batch, delta, alpha=alpha)
