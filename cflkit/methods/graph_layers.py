"""FedCG's network: layers with domain-specific residuals that exchange information over a graph of domains.

The network of the run stays as it is; a :class:`GraphLayer` hangs on each chosen layer as a forward hook and adds
the residual of Eq. (4) to what the layer returns. Domains are per image: hard ones, an integer an image, while
training, or soft ones, a row of weights an image, at test.
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cflkit.checks import require

IMAGES_TOGETHER = 256  # images that are classified, or given kernels of their own, at a time; bounds memory
WIDTHS = 32, 64  # filters of the two layers of a domain classifier
CACHED = 2**22  # activations of a layer that a cache holds: with more, a classifier takes up to twice as long


class DomainClassifier(nn.Module):
    """Tells D domains apart: convolutions 3 x 3, 32 and 64, average pooling, linear (Section 4.1).

    The paper does not say over what it pools: 2 x 2 pixels ("local"), which keeps where things are, or the whole
    image ("global"), where most untrained classifiers put nearly every image in one domain. Images, of that
    `shape` (C, H, W), come :func:`standardised`.
    """

    def __init__(self, shape: tuple[int, int, int], domains: int, pool: str):
        super().__init__()
        channels, height, width = shape
        self.pool = pool
        narrow, wide = WIDTHS
        self.conv1 = nn.Conv2d(channels, narrow, 3, padding=1)
        self.conv2 = nn.Conv2d(narrow, wide, 3, padding=1)
        places = 1 if pool == "global" else (height // 2) * (width // 2)
        self.decision = nn.Linear(wide * places, domains)

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(n, D)`` of images ``(n, C, H, W)``."""
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = x.mean((2, 3)) if self.pool == "global" else pooled(x).flatten(1)
        return self.decision(x)

    def layers(self) -> list[nn.Module]:
        """The same network as a list of modules, one after the other."""
        pooling = nn.AdaptiveAvgPool2d(1) if self.pool == "global" else nn.AvgPool2d(2)
        return [self.conv1, nn.ReLU(), self.conv2, nn.ReLU(), pooling, nn.Flatten(), self.decision]


def standardised(x: Tensor) -> Tensor:
    """Give each of the images (n, C, H, W) mean 0 and variance 1."""
    return F.layer_norm(x, x.shape[1:])


def pooled(x: Tensor) -> Tensor:
    """Means (n, C, H // 2, W // 2) over 2 x 2 pixels of `x` (n, C, H, W); faster on a CPU than ``avg_pool2d``."""
    height, width = (size - size % 2 for size in x.shape[2:])
    rows = x[:, :, 0:height:2] + x[:, :, 1:height:2]
    return (rows[..., 0:width:2] + rows[..., 1:width:2]) / 4


def pieces(x: Tensor) -> tuple[Tensor, ...]:
    """Images ``(n, C, H, W)`` in pieces that a classifier takes fast: the wider of its layers stays in a cache."""
    height, width = x.shape[2:]
    return x.split(max(1, min(IMAGES_TOGETHER, CACHED // (max(WIDTHS) * height * width))))


class GraphLayer(nn.Module):
    """The D domain-specific versions of one layer, joined by a graph convolution (Eqs. 4 and 5).

    With q the number of weights and biases of the layer, V is (D, q), one row a domain, and what is used in its
    place is sigma(A V W); the paper's ReLU makes all of it non-negative. W starts at the identity, so that training
    starts at plain residual adapters. Each row of V is a draw by the layer's own initialisation, which for a
    normalisation is a constant: see :meth:`scatter`. Parameters not listed are those of
    :class:`~cflkit.methods.fedcg.FedCG`.

    Parameters
    ----------
    layer : nn.Conv2d or nn.BatchNorm2d
        The layer that it is added to. Of a normalisation only scale and offset are per domain; all domains share
        the statistics.
    gcn : {"full", "bottleneck", "per_filter", "none"}
        W is q x q; I + W1 W2 through q/16 dimensions, q^2/8 entries; one matrix for all output channels, which
        mixes the inputs of a filter and leaves biases alone; or absent.
    """

    def __init__(self, layer, domains, gcn="full", activation="relu", lam=1.0, learn_lam=True, residual=True):
        super().__init__()
        self.gcn, self.activation, self.residual = gcn, activation, residual
        geometry = ("stride", "padding", "dilation", "groups")
        conv = isinstance(layer, nn.Conv2d)
        self.place = {name: getattr(layer, name) for name in geometry} if conv else None
        self.shapes = [tuple(p.shape) for p in layer.parameters()]  # of the weight and, if there is one, the bias
        self.V = nn.Parameter(torch.stack([_redrawn(layer) for _ in range(domains)]))
        q, fan_in = self.V.shape[1], self.kernel // self.shapes[0][0]
        if gcn == "bottleneck":
            self.W1 = nn.Parameter(1e-3 * torch.randn(q, max(1, q // 16)))
            self.W2 = nn.Parameter(1e-3 * torch.randn(max(1, q // 16), q))
        elif gcn != "none":
            self.W = nn.Parameter(torch.eye(q if gcn == "full" else fan_in))
        if residual:
            self.lam = nn.Parameter(torch.tensor(float(lam))) if learn_lam else lam
        self.given: tuple[Tensor, Tensor] | None = None  # adjacency and domains of the images at hand

    def scatter(self) -> None:
        """Add independent draws from [0, 0.1) to V, for a normalisation, all of whose domains start alike.

        A normalisation usually starts at constants, scales 1 and offsets 0. The paper does not say how its domains
        start; that they are drawn is our assumption. The sign matters: the ReLU passes no gradient to what is not
        positive, so that offsets of 0, and their columns of W, would never move.
        """
        with torch.no_grad():
            self.V += 0.1 * torch.rand_like(self.V)

    @property
    def kernel(self) -> int:
        """Numbers in the layer's weight; those that follow in a row of V are biases."""
        return torch.Size(self.shapes[0]).numel()

    def mixed(self, A: Tensor) -> Tensor:
        """Eq. (5): what the domains use (D, q), given the adjacency (D, D)."""
        V = A @ self.V
        if self.gcn == "full":
            V = V @ self.W
        elif self.gcn == "bottleneck":
            V = V + V @ self.W1 @ self.W2
        elif self.gcn == "per_filter":
            filters = V[:, : self.kernel].reshape(-1, len(self.W)) @ self.W
            V = torch.cat([filters.reshape(len(V), -1), V[:, self.kernel :]], 1)
        return F.relu(V) if self.activation == "relu" else V

    def forward(self, layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        """Eq. (4), as a hook: the layer's output and, lambda times, that of the images' domains."""
        (A, domain), (x,) = self.given, inputs
        if self.place is None:
            found = self._normalised(layer, x, self.mixed(A), domain)
        else:
            found = self._convolved(x, self.mixed(A), domain)
        return output + self.lam * found if self.residual else found

    def _convolved(self, x: Tensor, theta: Tensor, domain: Tensor) -> Tensor:
        """Convolve every image with the kernel of its domain, or with its mixture of kernels."""
        if domain.dim() == 1:  # one pass for each domain that occurs
            order = domain.argsort(stable=True)
            counts = torch.bincount(domain, minlength=len(theta)).tolist()
            passes = []
            for row, images in zip(theta, order.split(counts), strict=True):
                if len(images):
                    weight, *bias = self._parts(row[None])
                    passes.append(F.conv2d(x[images], weight[0], *(b[0] for b in bias), **self.place))
            return torch.cat(passes)[order.argsort()]
        mixtures = []
        for piece, w in zip(x.split(IMAGES_TOGETHER), domain.split(IMAGES_TOGETHER), strict=True):
            # a convolution is linear in its kernel: sum_d w_d conv(x; V_d) = conv(x; sum_d w_d V_d)
            weight, *bias = self._parts(w @ theta)
            n, groups = len(piece), len(piece) * self.place["groups"]
            side_by_side = piece.flatten(0, 1)[None], weight.flatten(0, 1)
            found = F.conv2d(*side_by_side, **(self.place | {"groups": groups})).unflatten(1, (n, -1))[0]
            mixtures.append(found + bias[0][:, :, None, None] if bias else found)
        return torch.cat(mixtures)

    def _normalised(self, layer: nn.Module, x: Tensor, theta: Tensor, domain: Tensor) -> Tensor:
        """Scale and offset, per domain, what the layer has normalised with the statistics of all."""
        running = layer.track_running_stats and not layer.training
        statistics = (layer.running_mean, layer.running_var) if running else (None, None)
        x = F.batch_norm(x, *statistics, training=not running, eps=layer.eps)
        scale, offset = self._parts(theta[domain] if domain.dim() == 1 else domain @ theta)
        return x * scale[:, :, None, None] + offset[:, :, None, None]

    def _parts(self, rows: Tensor) -> list[Tensor]:
        """Cut rows (n, q) into weights (n, ...) and, if the layer has them, biases (n, outputs)."""
        sizes = [torch.Size(shape).numel() for shape in self.shapes]
        return [part.unflatten(1, shape) for part, shape in zip(rows.split(sizes, 1), self.shapes, strict=True)]


class GraphNetwork(nn.Module):
    """A network with graph layers, and the student that tells them an image's domain.

    Parameters are those of `base` first, under ``agnostic``, then V, W and lambda of each layer under ``graph``,
    then the ``student``; the adjacency A is a buffer, since no gradient passes into it. Parameters not listed are
    those of :class:`~cflkit.methods.fedcg.FedCG`.

    Parameters
    ----------
    base : nn.Module
        The network, for images of that `shape` (C, H, W); changed in place.
    pool : {"local", "global"} or None
        The student's pooling; None for no student.
    **graph
        Arguments of :class:`GraphLayer`.
    """

    def __init__(self, base, shape, domains, layers="last", pool="local", soft=True, **graph):
        super().__init__()
        self.agnostic, self.domains, self.soft = base, domains, soft
        chosen = replaced(base, layers)
        self.graph = nn.ModuleList(GraphLayer(layer, domains, **graph) for layer in chosen.values())
        for (name, layer), twin in zip(chosen.items(), self.graph, strict=True):
            if not twin.residual:
                layer = _emptied(base, name, layer)
            layer.register_forward_hook(twin)
        self.student = None if pool is None else DomainClassifier(shape, domains, pool)
        for twin in self.graph:  # last, so that all else is drawn as it would be without
            if twin.place is None:
                twin.scatter()
        self.register_buffer("A", torch.eye(domains))

    def forward(self, x: Tensor, domain: Tensor | None = None) -> Tensor:
        """Logits ``(n, classes)`` of images ``(n, C, H, W)``.

        Parameters
        ----------
        x : Tensor (n, C, H, W)
            The images.
        domain : Tensor (n,) of int64 or (n, D), optional
            Their domains, or the weights w of Eq. (4); the student's if None.
        """
        domain = self.assign(x) if domain is None else domain
        for layer in self.graph:
            layer.given = self.A, domain
        logits = self.agnostic(x)
        for layer in self.graph:
            layer.given = None
        return logits

    def assign(self, x: Tensor) -> Tensor:
        """Domains of test images: the student's weights (n, D), or its choices (n,); all alike without one."""
        if self.student is None:
            return x.new_full((len(x), self.domains), 1 / self.domains)
        return self.chosen(torch.cat([self.student(standardised(piece)) for piece in pieces(x)]))

    def chosen(self, logits: Tensor) -> Tensor:
        """The weights of domains, or the choices, that a student's logits (n, D) stand for."""
        return logits.softmax(1) if self.soft else logits.argmax(1)


def replaced(base: nn.Module, layers: str) -> dict[str, nn.Module]:
    """The layers of `base` that get domain-specific parameters, by name, in order; `layers` is FedCG's."""
    kinds = {"last": nn.Conv2d, "all": (nn.Conv2d, nn.BatchNorm2d), "batchnorm": nn.BatchNorm2d}
    found = {name: module for name, module in base.named_modules()
             if isinstance(module, kinds[layers]) and [*module.parameters()]}  # fmt: skip
    require(bool(found), "layers", layers, f"found in the model; {type(base).__name__} has no such layer")
    plain = all(getattr(module, "padding_mode", "zeros") == "zeros" for module in found.values())
    require(plain, "layers", layers, "of convolutions that are padded with zeros")
    return dict([list(found.items())[-1]]) if layers == "last" else found


def adjacency(distance: Tensor, beta: float) -> Tensor:
    """Eq. (6) and below it: A (D, D) with beta on the diagonal, elsewhere by inverse `distance` (D, D) of domains.

    Rows sum to 1. A distance of 0 counts as 1e-8, or (1 - beta) times infinity would spoil even beta = 1. One
    domain alone is its own neighbour, [[1]].
    """
    if len(distance) == 1:
        return torch.ones_like(distance)
    eye = torch.eye(len(distance), dtype=distance.dtype, device=distance.device)
    h = (1 - eye) / (distance + 1e-8)
    return beta * eye + (1 - beta) * h / h.sum(1, keepdim=True)


def euclidean(V: Tensor) -> Tensor:
    """Distances (D, D) between the rows of V (D, q)."""
    return torch.cdist(V, V, compute_mode="donot_use_mm_for_euclid_dist")


def hamming(domains: int) -> Tensor:
    """Distances (D, D) between the binary codes of the numbers 0..D-1 (Table 3: domains are attribute codes)."""
    return torch.tensor([[float((i ^ j).bit_count()) for j in range(domains)] for i in range(domains)])


def _redrawn(layer: nn.Module) -> Tensor:
    """A fresh draw (q,) of the layer's parameters by its own initialisation."""
    drawn = copy.deepcopy(layer)
    drawn.reset_parameters()
    return torch.cat([p.detach().flatten() for p in drawn.parameters()])


def _emptied(base: nn.Module, name: str, layer: nn.Module) -> nn.Module:
    """Take a layer's own parameters away; what is left hands its input on, or normalises it."""
    if isinstance(layer, nn.BatchNorm2d):
        layer.weight = layer.bias = None
        return layer
    parent, _, attribute = name.rpartition(".")
    identity = nn.Identity()
    setattr(base.get_submodule(parent), attribute, identity)
    return identity
