"""Models as points in R^P: an architecture, and vectors that hold its weights.

Clustered methods average, compare, project and cluster weights. With one flat vector a model they do so in a
line of linear algebra, and nothing here needs to know about layers except through named spans.
"""

import copy
import threading
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call

from cflkit.checks import require


class Model:
    """An architecture whose weights live in flat vectors of length ``size``.

    The vector holds the trainable parameters first (``module.named_parameters()`` order, ``trainable`` numbers),
    then the frozen ones (``requires_grad_(False)``), then the floating-point buffers (BatchNorm running
    statistics). What is frozen, and buffers, are carried, averaged and sent like weights, and never touched by the
    optimiser's terms (momentum, weight decay, proximal pulls). Integer buffers (BatchNorm's batch counter) are not
    kept: no default-momentum layer reads them.

    Parameters
    ----------
    make : callable
        Returns a freshly initialised ``nn.Module`` that maps images (n, C, H, W) to logits (n, classes).
    dtype : torch.dtype
        Precision of the vectors.
    device : str or torch.device
        Where vectors and forward passes live.
    quicken : callable, optional
        Changes a module in place so that it computes the same faster; used where no derivative is wanted, and by
        trainers that ask for it.
    look : callable, optional
        ``(model, shape of an image) -> function of a vector and images, or None``: finds what computes the logits
        faster than any module where no derivative by the vector is wanted.

    Attributes
    ----------
    size, trainable : int
        Length of a vector; how much of it is trained (P of the papers).
    parameters, carried : list of str
        Names of what is trained, and of what is only carried along.
    spans : dict of str to slice
        Where each parameter and buffer lies.

    Raises
    ------
    ValueError
        If nothing of the network is trained.
    """

    def __init__(
        self,
        make: Callable[[], nn.Module],
        dtype: torch.dtype = torch.float64,
        device: str | torch.device = "cpu",
        quicken: Callable[[nn.Module], nn.Module] | None = None,
        look: Callable | None = None,
    ):
        self.make, self.dtype, self.device, self.quicken = make, dtype, torch.device(device), quicken
        self._look = look
        self.module = self._build(0)
        self._quick = quicken(copy.deepcopy(self.module)) if quicken else self.module
        # structure without weights: cheap to copy
        self._skeletons = [copy.deepcopy(m).to("meta") for m in (self.module, self._quick)]
        self._threads = threading.local()
        tensors = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        self.parameters = [name for name, p in self.module.named_parameters() if p.requires_grad]
        require(bool(self.parameters), "model", type(self.module).__name__, "a network with something to train")
        self.carried = [n for n, t in tensors.items() if n not in self.parameters and t.is_floating_point()]
        self.shapes = {name: tensors[name].shape for name in self.parameters + self.carried}
        self.spans, end = {}, 0
        for name, shape in self.shapes.items():
            self.spans[name] = slice(end, end + shape.numel())
            end += shape.numel()
        self.size = end
        self.trainable = sum(self.shapes[name].numel() for name in self.parameters)
        self.has_dropout = any(isinstance(m, nn.modules.dropout._DropoutNd) for m in self.module.modules())

    def __reduce__(self):
        """Another process builds it anew; weights are no part of it."""
        return Model, (self.make, self.dtype, self.device, self.quicken, self._look)

    def like(self, make: Callable[[], nn.Module]) -> "Model":
        """Another architecture, in the same precision and place."""
        return Model(make, self.dtype, self.device, self.quicken, self._look)

    def _build(self, seed: int) -> nn.Module:
        """Build in float64 whatever the run's precision, so that float32 and float64 runs start alike."""
        previous = torch.get_default_dtype()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            torch.set_default_dtype(torch.float64)
            try:
                module = self.make()
            finally:
                torch.set_default_dtype(previous)
        return module.to(self.device, self.dtype)

    def init(self, seed: int) -> Tensor:
        """Draw an initial vector (size,) by the module's own initialisation."""
        module = self._build(seed)
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.shapes])

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """Name the parts of `vector` (size,) as views shaped like the module's tensors."""
        return {name: vector[self.spans[name]].view(shape) for name, shape in self.shapes.items()}

    def span(self, prefix: str) -> slice:
        """Where the trainable parameters whose names start with `prefix` lie; they must be neighbours.

        Raises
        ------
        ValueError
            If no parameter has that prefix, or they are not contiguous.
        """
        found = [self.spans[name] for name in self.parameters if name.startswith(prefix)]
        contiguous = all(a.stop == b.start for a, b in pairwise(found))
        if not found or not contiguous:
            raise ValueError(f"prefix = {prefix!r}: must name neighbouring parameters, among {self.parameters}")
        return slice(found[0].start, found[-1].stop)

    @property
    def head(self) -> slice:
        """The decision layer: weight and bias of the last parameterised submodule."""
        return self.span(self.parameters[-1].rpartition(".")[0] + ".")

    def forward(self, vector: Tensor, x: Tensor) -> Tensor:
        """Logits (n, classes) of images `x` (n, C, H, W) under `vector` (size,), in evaluation mode."""
        looking = not torch.is_grad_enabled()
        by_images = x.requires_grad and not vector.requires_grad
        faster = self._look(self, x.shape[1:]) if self._look and (looking or by_images) else None
        if faster is not None:
            return faster(vector.contiguous(), x.contiguous())
        return functional_call(self.lent(quick=looking).eval(), self.views(vector), (x,))

    def lent(self, quick: bool = False) -> nn.Module:
        """Return this thread's own module, for ``functional_call``, which exchanges its weights while it runs."""
        lent = self._threads.__dict__.setdefault("modules", {})
        if quick not in lent:
            lent[quick] = copy.deepcopy(self._quick if quick else self.module)
        return lent[quick]

    def skeleton(self, quick: bool = False) -> nn.Module:
        """A copy of the architecture without weights; quickened, if the model has a way to."""
        return copy.deepcopy(self._skeletons[quick])

    def bound(self, vector: Tensor, quick: bool = False) -> nn.Module:
        """Return a module whose parameters and buffers *are* `vector`: training it moves the vector in place."""
        module = self.skeleton(quick)
        for name, view in self.views(vector).items():
            path, _, attribute = name.rpartition(".")
            owner = module.get_submodule(path)
            if attribute in owner._parameters:
                owner._parameters[attribute] = nn.Parameter(view, requires_grad=name in self.parameters)
            else:
                owner._buffers[attribute] = view
        return module
