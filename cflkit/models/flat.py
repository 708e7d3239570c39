"""Models as points in R^P: an architecture, and vectors that hold its weights.

Clustered methods average, compare, project and cluster weights. With one flat vector a model they do so in a
line of linear algebra, and nothing here needs to know about layers except through named spans.
"""

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator
from itertools import chain, pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from cflkit.checks import require

# what is of the default precision unless one is named, and what is only if it is told of floating-point numbers
_MADE = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.eye, torch.linspace, torch.logspace)
_READ = (torch.tensor, torch.as_tensor, torch.asarray, torch.full, torch.arange, torch.scalar_tensor, torch.normal)


class Drawing(TorchDispatchMode):
    """Random numbers of this thread from one `generator`, whatever asks PyTorch for them."""

    def __init__(self, generator: torch.Generator):
        super().__init__()
        self.generator = generator

    @classmethod
    def _should_skip_dynamo(cls):
        """Nothing here is compiled; to say so to PyTorch's compiler would import it, which takes seconds."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Hand the generator on to what draws and was given none."""
        kwargs = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None:
            if all(argument.name != "generator" for argument in func._schema.arguments):
                func = getattr(func.overloadpacket, "low_generator" if func._overloadname == "low" else "generator")
            kwargs["generator"] = self.generator
        return func(*args, **kwargs)


class Double(TorchFunctionMode):
    """Tensors that this thread makes without naming a precision are of double precision."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Name the precision where it is left open; what is read off integers or other tensors stays as it is."""
        kwargs = kwargs or {}
        if kwargs.get("dtype") is not None or func not in (*_MADE, *_READ):
            return func(*args, **kwargs)
        double = {**kwargs, "dtype": torch.float64}
        if func in _MADE:
            return func(*args, **double)
        typed = any(hasattr(value, "dtype") for value in (*args, *kwargs.values()))
        if func is torch.normal and not typed:
            return func(*args, **double)
        made = func(*args, **kwargs)
        return func(*args, **double) if made.is_floating_point() and not typed else made


@contextlib.contextmanager
def privately(seed: int) -> Iterator[None]:
    """Build networks in double precision from a generator of one's own.

    PyTorch's own generator and default precision belong to all threads, and stay as they are.
    """
    with Double(), Drawing(torch.Generator().manual_seed(seed)):
        yield


class Model:
    """An architecture whose weights live in flat vectors of length ``size``.

    The vector holds the trainable parameters first (``module.named_parameters()`` order, ``trainable`` numbers),
    then the frozen ones (``requires_grad_(False)``), then the floating-point buffers (BatchNorm running
    statistics). What is frozen, and buffers, are carried, averaged and sent like weights, and never touched by the
    optimiser's terms (momentum, weight decay, proximal pulls). What has several names (tied weights) is there once.
    Integer buffers are constants: one that counts (BatchNorm's batches) begins anew with every training.

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
    draws : bool
        Whether training draws random numbers: told by layers of dropout, or by whoever has tried it
        (:mod:`cflkit.engine.trial`).

    Raises
    ------
    ValueError
        If nothing of the network is trained, or weights share memory in another way than by being the same.
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
        raw = self._made(0)
        _need_own_memory(raw)
        self.module = raw.to(self.device, dtype)
        first: dict[int, str] = {}
        every = [(name, first.setdefault(id(tensor), name)) for name, tensor in _named(self.module)]
        self._others = [(name, other) for name, other in every if name != other]
        self._quick = quicken(copy.deepcopy(self.module)) if quicken else self.module
        self._skeletons = [self._skeleton(module) for module in (self.module, self._quick)]
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
        self.draws = any(isinstance(m, nn.modules.dropout._DropoutNd) for m in self.module.modules())

    def __reduce__(self):
        """Another process builds it anew; weights are no part of it."""
        return Model, (self.make, self.dtype, self.device, self.quicken, self._look), {"draws": self.draws}

    def like(self, make: Callable[[], nn.Module]) -> "Model":
        """Another architecture, in the same precision and place."""
        return Model(make, self.dtype, self.device, self.quicken, self._look)

    def _made(self, seed: int) -> nn.Module:
        """Build in double precision whatever the run's, so that all precisions start alike."""
        with privately(seed):
            return self.make()

    def fresh(self, seed: int) -> nn.Module:
        """The network as `make` makes it, with the weights of :meth:`init`, in the model's precision and place."""
        return self._made(seed).to(self.device, self.dtype)

    def _skeleton(self, module: nn.Module) -> nn.Module:
        """A copy without weights, cheap to copy again: what has several names keeps them, constants keep values."""
        bare = copy.deepcopy(module).to("meta")
        for name, other in self._others:
            _put(bare, name, _get(bare, other))
        for name, buffer in module.named_buffers(remove_duplicate=False):
            if not buffer.is_floating_point():
                _put(bare, name, buffer)
        return bare

    def init(self, seed: int) -> Tensor:
        """Draw an initial vector (size,) by the module's own initialisation."""
        module = self.fresh(seed)
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.shapes])

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """Name the parts of `vector` (size,) as views shaped like the module's tensors."""
        require(len(vector) == self.size, "len(vector)", len(vector), f"{self.size}, the numbers of this network")
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
                owner._buffers[attribute] = view.data  # layers write into it between a loss and its derivative
        for name, other in self._others:
            _put(module, name, _get(module, other))
        return module


def _named(module: nn.Module):
    """All names of parameters and buffers, and what they name; several names where a tensor has several."""
    return chain(module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))


def _get(module: nn.Module, name: str) -> Tensor:
    path, _, attribute = name.rpartition(".")
    return getattr(module.get_submodule(path), attribute)


def _put(module: nn.Module, name: str, value: Tensor) -> None:
    """Let a parameter or buffer that is there be `value`."""
    path, _, attribute = name.rpartition(".")
    owner = module.get_submodule(path)
    (owner._parameters if attribute in owner._parameters else owner._buffers)[attribute] = value


def _need_own_memory(module: nn.Module) -> None:
    """Refuse tensors that overlap without being one: in a vector each would have a place of its own."""
    names: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in _named(module):
        if not nn.parameter.is_lazy(tensor) and tensor.numel():
            other, known = names.setdefault(tensor.untyped_storage().data_ptr(), (name, tensor))
            line = f"a network in which {other} and {name} are one parameter, or have memory of their own"
            require(known is tensor, "model", type(module).__name__, line)
