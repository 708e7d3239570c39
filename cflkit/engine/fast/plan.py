"""What a network is made of, as far as kernels can be written for it.

A plan is a short list of layers with fixed sizes: convolutions (with or without ReLU and 2 x 2 pooling behind them)
and dense layers (with or without ReLU). It says where the parameters of each lie in the model's flat vector. Two
networks with equal plans share their kernels. :func:`plan_of` reads it off a module, or finds that there is none;
then PyTorch trains.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal
from weakref import WeakKeyDictionary

from torch import nn

from cflkit.models.flat import Model

Shape = tuple[int, int, int]
FILTERS = 16  # numbers in the widest vector
POOLS: dict[type, Literal["max", "mean"]] = {nn.MaxPool2d: "max", nn.AvgPool2d: "mean"}
TILES = {3: 4, 5: 4}  # how many outputs in a row share their products with a kernel of so many columns

_plans: "WeakKeyDictionary[Model, dict[Shape, Plan | None]]" = WeakKeyDictionary()


@dataclass(frozen=True)
class Conv:
    """A convolution with stride 1, and what is done to its outputs.

    Attributes
    ----------
    shape : tuple of int
        Channels, height and width of an input.
    filters : int
        Channels of an output.
    kernel, padding : tuple of int
        Height and width of the kernel; zeros added on every side, above and below, left and right.
    weight, bias : int
        Where weights (filters, channels, height, width) and biases (filters,) begin in the model's vector.
    relu : bool
        Whether ReLU follows.
    pool : {"", "max", "mean"}
        Which 2 x 2 pooling follows, if any; ReLU comes before a mean.
    tile : int
        How many outputs in a row are computed together, with fewer products
        (:mod:`cflkit.engine.fast.compiled.winograd`); 1 for each by itself.
    """

    shape: Shape
    filters: int
    kernel: tuple[int, int]
    padding: tuple[int, int]
    weight: int
    bias: int
    relu: bool = False
    pool: Literal["", "max", "mean"] = ""
    tile: int = 1

    @cached_property
    def full(self) -> Shape:
        """Shape of the convolution's outputs, before pooling."""
        sides = zip(self.shape[1:], self.kernel, self.padding, strict=True)
        return self.filters, *(side + 2 * pad - kernel + 1 for side, kernel, pad in sides)

    @cached_property
    def out(self) -> Shape:
        """Shape of what the layer hands on."""
        k, height, width = self.full
        return (k, height // 2, width // 2) if self.pool else self.full


@dataclass(frozen=True)
class Dense:
    """A dense layer: weights (outputs, inputs) and biases (outputs,), `relu` if ReLU follows."""

    inputs: int
    outputs: int
    weight: int
    bias: int
    relu: bool = False
    padding = (0, 0)

    @property
    def out(self) -> Shape:
        """Shape of what the layer hands on."""
        return self.outputs, 1, 1


@dataclass(frozen=True)
class Plan:
    """A network: the shape of an image (C, H, W), the layers, and how many parameters they have."""

    shape: Shape
    layers: tuple[Conv | Dense, ...]
    size: int

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # plans are looked up for every client
        return hash((self.shape, self.layers, self.size))

    @property
    def outputs(self) -> int:
        """Numbers that come out for one image."""
        c, height, width = self.layers[-1].out
        return c * height * width

    @property
    def convolutions(self) -> tuple[Conv, ...]:
        """The layers before the dense ones."""
        return tuple(layer for layer in self.layers if isinstance(layer, Conv))

    def front(self) -> "Plan":
        """The convolutions alone, without the dense layers behind them."""
        layers = self.convolutions
        return Plan(self.shape, layers, self.layers[len(layers)].weight)

    @cached_property
    def is_plain(self) -> bool:
        """Whether no layer has Winograd's products."""
        return all(layer.tile == 1 for layer in self.convolutions)

    def plain(self) -> "Plan":
        """The same without Winograd's products."""
        layers = (replace(layer, tile=1) if isinstance(layer, Conv) else layer for layer in self.layers)
        return replace(self, layers=tuple(layers))

    def rest(self) -> "Plan":
        """The dense layers alone, without the convolutions before them."""
        layers = self.convolutions
        return replace(self, shape=layers[-1].out, layers=self.layers[len(layers) :])

    @property
    def near(self) -> bool:
        """Whether there are convolutions, and every output of theirs meets a pixel."""
        layers = self.convolutions
        return bool(layers) and all(p < k for c in layers for p, k in zip(c.padding, c.kernel, strict=True))

    @property
    def wide(self) -> bool:
        """Whether channels go into the lanes for all images: their filters fill whole vectors."""
        return self.near and all(layer.filters % FILTERS == 0 for layer in self.convolutions)


def plan_for(model: Model, shape: Shape) -> Plan | None:
    """The plan of a model for images of `shape`, read once."""
    found = _plans.setdefault(model, {})
    if shape not in found:
        found[shape] = plan_of(model.module, shape)
    return found[shape]


def plan_of(module: nn.Module, shape: Shape) -> Plan | None:
    """Read the plan off a network for images of `shape`; None if it is not made of what kernels exist for.

    Parameters
    ----------
    module : nn.Module
        An ``nn.Sequential``, or a module whose class defines, beside ``forward``, a method ``layers`` that returns
        the same network as a list of modules.
    shape : tuple of int
        Channels, height and width of an image.
    """
    own = vars(type(module))
    if type(module) is nn.Sequential:
        parts: Sequence[nn.Module] = list(module)
    elif "layers" in own and "forward" in own:
        parts = module.layers()
    else:
        return None
    begins, end = {}, 0
    for parameter in module.parameters():
        begins[parameter], end = end, end + parameter.numel()
    found = read(parts, shape, begins)
    used = [p for part in parts for p in part.parameters()]
    # each parameter once, nothing besides, and nobody who listens
    whole = len(used) == len(begins) and not list(module.buffers())
    # a vector has what is trained first: with frozen parameters they would lie elsewhere
    whole = whole and all(p.requires_grad for p in begins)
    watched = any(m._forward_hooks or m._forward_pre_hooks for m in [module, *parts])
    if found is None or not whole or watched or not isinstance(found[-1], Dense):
        return None
    return Plan(tuple(shape), found, end)


def read(parts: Sequence[nn.Module], shape: Shape, begins: dict) -> tuple[Conv | Dense, ...] | None:
    """Turn modules into layers, if all are of a known kind; `begins` says where each parameter lies."""
    layers: list[Conv | Dense] = []
    flat = False  # whether images have become rows of numbers
    for part in parts:
        here = layers[-1].out if layers else tuple(shape)
        if type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1):
            flat = True
        elif type(part) is nn.ReLU and layers and not (isinstance(layers[-1], Conv) and layers[-1].pool == "mean"):
            layers[-1] = replace(layers[-1], relu=True)
        elif type(part) is nn.Linear and flat and part.bias is not None:
            if part.in_features != here[0] * here[1] * here[2]:
                return None
            layers.append(Dense(part.in_features, part.out_features, begins[part.weight], begins[part.bias]))
        elif type(part) in POOLS and not flat and layers and _halves(part) and not layers[-1].pool:
            layers[-1] = replace(layers[-1], pool=POOLS[type(part)])
            if min(layers[-1].out) < 1:
                return None
        elif type(part) is nn.Conv2d and not flat and _plain(part) and part.in_channels == here[0]:
            conv = Conv(here, part.out_channels, part.kernel_size, part.padding, begins[part.weight],
                        begins[part.bias])  # fmt: skip
            layers.append(replace(conv, tile=TILES[conv.kernel[1]]) if saves(conv) else conv)
            if min(layers[-1].out) < 1:
                return None
        else:
            return None
    return tuple(layers) or None


def saves(conv: Conv) -> bool:
    """Whether Winograd's products and the changes before and after them are clearly fewer than plain products."""
    (channels, height, _), (filters, below, width) = conv.shape, conv.full
    if conv.kernel[1] not in TILES or width < 1:
        return False
    numbers = width + -(-width // TILES[conv.kernel[1]]) * (conv.kernel[1] - 1)  # each tile meets so many inputs
    a_row = channels * filters * below * conv.kernel[0]
    changes = 3 * (channels * height + filters * below)
    return numbers * (a_row + changes) < 0.8 * width * conv.kernel[1] * a_row


def _plain(conv: nn.Conv2d) -> bool:
    plain = conv.stride == (1, 1) and conv.dilation == (1, 1) and conv.groups == 1
    return plain and conv.bias is not None and conv.padding_mode == "zeros" and not isinstance(conv.padding, str)


def _halves(pool: nn.MaxPool2d | nn.AvgPool2d) -> bool:
    sides = pool.kernel_size in (2, (2, 2)) and pool.stride in (2, (2, 2))
    whole = sides and pool.padding in (0, (0, 0)) and not pool.ceil_mode
    if isinstance(pool, nn.AvgPool2d):
        return whole and pool.divisor_override is None
    return whole and pool.dilation in (1, (1, 1)) and not pool.return_indices
