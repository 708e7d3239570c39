"""The networks of the five papers.

`build` makes any of them for images of any sensible shape. All of them map images ``(n, C, H, W)`` to logits
``(n, classes)``, and the decision layer, an ``nn.Linear``, is the last submodule with parameters, so that "last
layer" can be read off the parameter order. The parameter counts below are for the papers' images and classes.

============================  =================================================  ==========
name                          used by                                            parameters
============================  =================================================  ==========
``linear``                    StoCFL, Figure 2 (28 x 28)                              7,850
``mlp2048``                   StoCFL, MNIST                                       1,628,170
``mlp200``                    IFCA, MNIST                                           159,010
``mlp<width>``                any width; ``mlp32`` on 8 x 8 digits                    2,410
``lenet``                     MD-ICFL and LCFed, MNIST (28 x 28)                     61,706
``lenet``                     LCFed and StoCFL as released, CIFAR-10                 62,006
``lenet``                     LCFed, CIFAR-100                                       69,656
``lenet_unpadded``            the same on 28 x 28 without padding                    44,426
``cnn_femnist_stocfl``        StoCFL, FEMNIST                                     1,206,590
``leaf_femnist``              FeSEM as printed, FedCG                             6,603,710
``femnist_248``               FeSEM as released                                     845,510
``leaf_celeba``               FeSEM, FedCG (84 x 84)                                 31,202
``leaf_celeba_running``       the same, normalised by running statistics             31,202
``resnet18``                  MD-ICFL, CIFAR stem                                11,173,962
``resnet18_tv``               MD-ICFL, torchvision's stem                        11,181,642
``mobilenetv2``               MD-ICFL, CIFAR strides                              2,296,922
``mobilenetv2_tv``            MD-ICFL, torchvision's strides                      2,236,682
============================  =================================================  ==========
"""

import math
import re
from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from cflkit.checks import require

Shape = tuple[int, int, int]


class MLP(nn.Module):
    """One hidden layer of `width` ReLU units: StoCFL's 784-2048-10, IFCA's 784-200-10."""

    def __init__(self, shape: Shape, classes: int, width: int):
        super().__init__()
        self.hidden = nn.Linear(math.prod(shape), width)
        self.decision = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of images (n, C, H, W)."""
        return self.decision(F.relu(self.hidden(x.flatten(1))))

    def layers(self) -> list[nn.Module]:
        """The same network as a list of modules, one after the other."""
        return [nn.Flatten(), self.hidden, nn.ReLU(), self.decision]


class LeNet(nn.Module):
    """LeNet-5 (LeCun et al. 1998) with ReLU and max-pooling: MD-ICFL, LCFed, StoCFL as released.

    LeNet-5 was drawn for 32 x 32 pixels. With `pad` the first convolution pads every side with zeros to a
    multiple of 16: 28 to 32, as is usual for MNIST, and 8 to 16, the least that fits; 32 is left alone.
    """

    def __init__(self, shape: Shape, classes: int, pad: bool):
        super().__init__()
        channels, *sides = shape
        padding = tuple((-side % 16 + 1) // 2 if pad else 0 for side in sides)
        rows, columns = (((s + 2 * p - 4) // 2 - 4) // 2 for s, p in zip(sides, padding, strict=True))
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=padding)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * rows * columns, 120)
        self.fc2 = nn.Linear(120, 84)
        self.decision = nn.Linear(84, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of images (n, C, H, W)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.decision(F.relu(self.fc2(F.relu(self.fc1(x)))))

    def layers(self) -> list[nn.Module]:
        """The same network as a list of modules, one after the other."""
        pairs = [(conv, nn.ReLU(), nn.MaxPool2d(2)) for conv in (self.conv1, self.conv2)]
        return [*pairs[0], *pairs[1], nn.Flatten(), self.fc1, nn.ReLU(), self.fc2, nn.ReLU(), self.decision]


class StoCFLFemnist(nn.Module):
    """StoCFL's FEMNIST network: two 3 x 3 convolutions, max-pooling, dropout 0.5, two dense layers, Xavier.

    Layer widths are those of the released code; where it differs from the text (dropout 0.25 here and 0.5
    before the decision layer) this is the text.
    """

    def __init__(self, shape: Shape, classes: int):
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128)
        self.decision = nn.Linear(128, classes)
        for layer in (self.conv1, self.conv2, self.fc, self.decision):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of images (n, C, H, W)."""
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.decision(F.relu(self.fc(self.dropout(x).flatten(1))))


class LeafFemnist(nn.Module):
    """LEAF's FEMNIST network: two 5 x 5 convolutions that keep the size, ReLU and 2 x 2 max-pooling.

    Then `width` dense units: 2048 in LEAF, FeSEM's text and FedCG, 248 in FeSEM's released code.
    """

    def __init__(self, shape: Shape, classes: int, width: int):
        super().__init__()
        channels, height, across = shape
        self.conv1 = nn.Conv2d(channels, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.fc = nn.Linear(64 * (height // 2 // 2) * (across // 2 // 2), width)
        self.decision = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of images (n, C, H, W)."""
        return self.classify(self.fc(self.features(x)))

    def features(self, x: Tensor) -> Tensor:
        """Inputs ``(n, d)`` of the dense layer."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        return F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)

    def classify(self, z: Tensor) -> Tensor:
        """Logits ``(n, classes)`` from the dense layer's outputs."""
        return self.decision(F.relu(z))

    def layers(self) -> list[nn.Module]:
        """The same network as a list of modules, one after the other."""
        pairs = [(conv, nn.ReLU(), nn.MaxPool2d(2)) for conv in (self.conv1, self.conv2)]
        return [*pairs[0], *pairs[1], nn.Flatten(), self.fc, nn.ReLU(), self.decision]


class LeafCelebA(nn.Module):
    """LEAF's CelebA network (FeSEM, FedCG): four blocks of 3 x 3 convolution, BatchNorm, max-pooling, ReLU.

    Pooling keeps a half-filled 2 x 2 window at the border, as LEAF's "same" pooling does (84, 42, 21, 11, 6):
    31,202 parameters. A PyTorch port that pads the pooling ends at 7 x 7 pixels and 32,034 parameters.
    LEAF and FeSEM normalise by the batch's own statistics in training *and* in testing, so a prediction
    depends on its batch; with `running`, averaged statistics serve in testing, as in that port.
    """

    def __init__(self, shape: Shape, classes: int, running: bool):
        super().__init__()
        channels, height, width = shape
        self.blocks = nn.ModuleList()
        for incoming in (channels, 32, 32, 32):
            norm = nn.BatchNorm2d(32, track_running_stats=running)
            self.blocks.append(nn.ModuleDict({"conv": nn.Conv2d(incoming, 32, 3, padding=1), "norm": norm}))
        self.decision = nn.Linear(32 * -(-height // 16) * -(-width // 16), classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of images (n, C, H, W)."""
        for block in self.blocks:
            x = F.relu(F.max_pool2d(block["norm"](block["conv"](x)), 2, ceil_mode=True))
        return self.decision(x.flatten(1))


def _conv(incoming: int, outgoing: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Make a convolution initialised as torchvision initialises its own (He et al. 2015, fan-out)."""
    conv = nn.Conv2d(incoming, outgoing, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def _resnet18(shape: Shape, classes: int, cifar: bool) -> nn.Module:
    """ResNet18 (MD-ICFL), torchvision's or with the 3 x 3 stride-1 stem usual for CIFAR."""
    from torchvision.models import resnet18  # here, because importing it takes seconds

    net = resnet18(weights=None, num_classes=classes)
    net.conv1 = _conv(shape[0], 64, *((3, 1) if cifar else (7, 2)))
    if cifar:
        net.maxpool = nn.Identity()
    return net


class _Projected(nn.Module):
    """A residual block around `body` whose shortcut projects onto another number of channels."""

    def __init__(self, body: nn.Module, incoming: int, outgoing: int):
        super().__init__()
        self.body = body
        self.shortcut = nn.Sequential(_conv(incoming, outgoing, 1), nn.BatchNorm2d(outgoing))

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, C', H', W') of features (n, C, H, W)."""
        return self.shortcut(x) + self.body(x)


def _mobilenetv2(shape: Shape, classes: int, cifar: bool) -> nn.Module:
    """MobileNetV2 (MD-ICFL), torchvision's or in its usual CIFAR form.

    For CIFAR the stem and the second stage have stride 1, the first block expands too (by a factor of one),
    and blocks that only change the channels have a projecting shortcut. Both forms keep torchvision's
    dropout of 0.2 before the decision layer.
    """
    from torchvision.models import MobileNetV2  # here, because importing it takes seconds

    # expansion, channels, blocks and first stride of each stage (Sandler et al. 2018, Table 2)
    stages = [[1, 16, 1, 1], [6, 24, 2, 1 if cifar else 2], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1],
              [6, 160, 3, 2], [6, 320, 1, 1]]  # fmt: skip
    net = MobileNetV2(num_classes=classes, inverted_residual_setting=stages)
    net.features[0][0] = _conv(shape[0], 32, 3, 1 if cifar else 2)
    if cifar:
        net.features[1].conv.insert(0, nn.Sequential(_conv(32, 32, 1), nn.BatchNorm2d(32), nn.ReLU6()))
        for place, block in list(enumerate(net.features))[1:-1]:
            if block.stride == 1 and not block.use_res_connect:
                incoming = block.conv[0][0].in_channels
                net.features[place] = _Projected(block, incoming, block.out_channels)
    return net


# name: (smallest side for which every kernel fits and no layer has to halve a single pixel, constructor)
_NETS: dict[str, tuple[int, Callable[[Shape, int], nn.Module]]] = {
    "linear": (1, lambda shape, classes: nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))),
    "mlp200": (1, partial(MLP, width=200)),
    "mlp2048": (1, partial(MLP, width=2048)),
    "lenet": (5, partial(LeNet, pad=True)),
    "lenet_unpadded": (16, partial(LeNet, pad=False)),
    "cnn_femnist_stocfl": (6, StoCFLFemnist),
    "leaf_femnist": (4, partial(LeafFemnist, width=2048)),
    "femnist_248": (4, partial(LeafFemnist, width=248)),
    "leaf_celeba": (9, partial(LeafCelebA, running=False)),
    "leaf_celeba_running": (9, partial(LeafCelebA, running=True)),
    "resnet18": (5, partial(_resnet18, cifar=True)),
    "resnet18_tv": (17, partial(_resnet18, cifar=False)),
    "mobilenetv2": (5, partial(_mobilenetv2, cifar=True)),
    "mobilenetv2_tv": (17, partial(_mobilenetv2, cifar=False)),
}


def names() -> list[str]:
    """Names that `build` knows; ``mlp<width>`` works for any other width as well."""
    return list(_NETS)


def build(name: str, shape: Shape = (1, 28, 28), classes: int = 10) -> nn.Module:
    """Build one of the papers' networks, with fresh weights from torch's global generator.

    Parameters
    ----------
    name : str
        One of `names`, or ``mlp<width>``.
    shape : tuple of int
        Channels, height and width of an image, in pixels.
    classes : int
        Number of logits.

    Raises
    ------
    ValueError
        If the name is unknown, the images are too small for the network, or there are fewer than two classes.
    """
    wide = re.fullmatch(r"mlp([1-9]\d*)", name)
    require(bool(wide) or name in _NETS, "name", name, f"one of {', '.join(_NETS)}, or mlp<width>")
    require(not wide or len(wide[1]) < 6, "name", name, "at most mlp99999")
    least, make = (1, partial(MLP, width=int(wide[1]))) if wide else _NETS[name]
    allowed = f"(channels, height, width) with at least {least} x {least} pixels for {name}"
    require(len(shape) == 3 and shape[0] >= 1 and min(shape[1:]) >= least, "shape", tuple(shape), allowed)
    require(classes >= 2, "classes", classes, "at least 2")
    net = make(tuple(shape), classes)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.num_batches_tracked = None  # nobody reads it, and counting in place stops torch.func.grad
    return net
