"""A network that is not the package's own is tried before any work: the trainers must do with it what PyTorch does.

A module can be more than the weights that it names: it may count batches, share weights, draw random numbers, mix
the images of a batch, have two outputs while it trains. So two clients train on a few of the run's images for two
rounds, once by plain PyTorch and once by every trainer that would take the work. Whatever fails, or leaves other
weights, is refused in one line that quotes its cause.
"""

import contextlib
import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cflkit import rng
from cflkit.checks import require
from cflkit.data.federation import Samples
from cflkit.engine.clients import Data, Pixels
from cflkit.engine.sgd import SGD
from cflkit.engine.trainer import Trainer, Work, drawing
from cflkit.models.flat import Model, privately

SIZES = (5, 3)  # images of the two clients: ragged, so that padding shows
ROUNDS = 2  # the second shows what is kept from the first
RATE = 0.1  # at most: larger steps would blow up differences of rounding
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}  # absolute and relative


@contextlib.contextmanager
def quoting(name: str, value: object, allowed: str) -> Iterator[None]:
    """Turn whatever a network raises into the line of :func:`cflkit.checks.require`, which quotes the cause.

    Raises
    ------
    ValueError
        From the error, unless nothing was raised.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        cause = f"{type(error).__name__}: {' '.join(str(error).partition(chr(10))[0].split())}"
        line = f"{allowed}; {cause if len(cause) <= 300 else cause[:297] + '...'}"
        try:
            require(False, name, value, line)
        except ValueError as told:
            raise told from error


def built(make: Callable[[], nn.Module], model_of: Callable[[Callable], Model]) -> Model:
    """The architecture that `model_of` finds in what a user's function makes.

    Raises
    ------
    ValueError
        If it makes no network, always the same one, or one whose first weights do not follow from a seed.
    """
    function = callable(make) and not isinstance(make, nn.Module)
    require(function, "model", make, "a name, or a function that makes a network")
    with quoting("model", make, "a function that makes a network"), privately(0):
        one, other = make(), make()
    require(isinstance(one, nn.Module), "model", make, "a name, or a function that makes a network")
    require(one is not other, "model", make, "a function that makes a new network whenever it is called")
    tensors = (*one.named_parameters(), *one.named_buffers())
    lazy = [name for name, t in tensors if nn.parameter.is_lazy(t) or t.is_meta]
    require(not lazy, "model", make, f"a network of known sizes and numbers, as is not {lazy[:1]}")
    unreal = [name for name, p in one.named_parameters() if not p.is_floating_point()]
    require(not unreal, "model", make, f"a network of real floating-point numbers, as is not {unreal[:1]}")
    with quoting("model", make, "a network that can be copied (torch.nn.utils.parametrizations can)"):
        copy.deepcopy(one).to("meta")
    model = model_of(make)
    same = torch.equal(model.init(1), model.init(1))
    require(same, "model", make, "a network whose first weights are drawn by PyTorch alone: one seed gave two")
    return model


def fits(model: Model, x: Tensor, classes: int) -> None:
    """See that logits come out in training and in evaluation, and find out whether training draws random numbers.

    Parameters
    ----------
    model : Model
        The network; its ``draws`` is set.
    x : Tensor (n, C, H, W)
        A few images.
    classes : int
        Number of logits.

    Raises
    ------
    ValueError
        If anything else comes out, images are changed in place, or weights in evaluation, or random numbers come
        from elsewhere than PyTorch or are drawn in evaluation.
    """
    make, allowed = model.make, f"a network that maps images {tuple(x.shape[1:])} to {classes} logits"
    for mode in ("training", "evaluation"):
        with quoting("model", make, f"{allowed}, in {mode} too"):
            others = random.getstate(), np.random.get_state()[2:]
            out, drew, images, weights = _outputs(model, x, mode == "training")
            again = _outputs(model, x, mode == "training")[0]
            ours = others == (random.getstate(), np.random.get_state()[2:])
        what = f"{out.dtype}{list(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        ok = isinstance(out, Tensor) and out.shape == (len(x), classes) and out.dtype == model.dtype
        require(ok, "model", make, f"{allowed}; in {mode} it gives {what}, not {model.dtype}{[len(x), classes]}")
        require(images, "model", make, "a network that leaves the images it is given as they are")
        kept = weights or mode == "training"
        require(kept, "model", make, "a network that leaves its weights as they are in evaluation")
        same = ours and torch.allclose(out, again, equal_nan=True)
        require(same, "model", make, f"a network that draws by PyTorch alone, one result a seed, in {mode} too")
        if mode == "training":
            model.draws = drew
        else:
            line = "a network that draws nothing in evaluation; F.dropout, for one, wants training=self.training"
            require(not drew, "model", make, line)


def _outputs(model: Model, x: Tensor, training: bool) -> tuple[object, bool, bool, bool]:
    """What comes out for images; whether random numbers were drawn; whether images, and weights, stayed alike."""
    vector, given, device = model.init(0), x.clone(), model.device
    module = model.bound(vector).train(training)
    with drawing(device, 0), torch.no_grad():
        before = _state(device)
        out = module(given)
        drew, weights = not torch.equal(before, _state(device)), torch.equal(vector, model.init(0))
        return out, drew, torch.equal(given, x), weights


def _state(device: torch.device) -> Tensor:
    here = torch.get_rng_state()
    return torch.cat([here, torch.cuda.get_rng_state(device).cpu()]) if device.type == "cuda" else here


def trains(model: Model, samples: Samples, pixels: Pixels, classes: int, optimiser: SGD,
           trainers: Sequence[Trainer], chosen: str) -> None:  # fmt: skip
    """See that trainers do what PyTorch does.

    Parameters
    ----------
    model : Model
        The network.
    samples : Samples
        Training images, a few of which are used.
    pixels : Pixels
        What a model sees of them.
    classes : int
        Number of labels.
    optimiser : SGD
        How the run trains.
    trainers : sequence of Trainer
        Who trains in the run.
    chosen : str
        What they are called together.

    Raises
    ------
    ValueError
        If one of them fails, or leaves other weights than PyTorch; if PyTorch fails, or trains without effect.
    """
    make, total = model.make, sum(SIZES)
    rows, offset = torch.arange(total) % len(samples.index), torch.tensor([0, SIZES[0], total])
    data = Data(Samples(samples.pool, samples.index[rows], samples.y[rows], offset), [0, 1], pixels, classes)
    tried = replace(optimiser, lr=min(optimiser.lr, RATE), epochs=2, batch_size=None, steps=None)
    with quoting("model", make, "a network that PyTorch trains"):
        made, unused = zip(*(_plainly(model, *data[i], tried, i) for i in range(len(SIZES))), strict=True)
        with torch.no_grad():
            logits = model.fresh(0).eval()(data[0][0])
            found = torch.stack([model.forward(model.init(0), data[0][0]) for _ in range(2)])
    line = f"a network whose loss depends on all that is trained, as it does not on {unused[0][:3]}"
    require(not unused[0], "model", make, line)
    _need_alike(logits.expand_as(found), found, "model", make, "a network always evaluated alike: logits are")
    batches = [[np.arange(n)] * tried.epochs for n in SIZES]
    for trainer in reversed(trainers):  # the reference first: what it cannot do is no other one's fault
        name, value, line = "model", make, "a network that keeps nothing but weights between batches: training"
        if type(trainer) is not Trainer:
            line = f"another one for this network, such as 'lean': {type(trainer).__name__}"
            name, value = "trainer", chosen
        vectors = model.init(0).expand(len(SIZES), -1)
        with quoting(name, value, f"{line} fails"):
            for round in range(ROUNDS):
                work = Work(model, data, vectors, tried, batches, keys=(0, round))
                vectors = trainer.train(work).dense().clone() if trainer.supports(work) else None
                if vectors is None:
                    break
        if vectors is not None:
            for part, span in model.spans.items():
                wanted = torch.stack(made)[:, span]
                _need_alike(wanted, vectors[:, span], name, value, f"{line} leaves {part}")


def _plainly(model: Model, x: Tensor, y: Tensor, optimiser: SGD, client: int) -> tuple[Tensor, list[str]]:
    """The vector (size,) after `ROUNDS` rounds of PyTorch's own; and what of it no loss depends on."""
    module = model.fresh(0).train()
    named = dict(module.named_parameters())
    trained = [named[name] for name in model.parameters]
    settings = {name: getattr(optimiser, name) for name in ("lr", "momentum", "weight_decay", "nesterov")}
    for round in range(ROUNDS):
        rule = torch.optim.SGD(trained, **settings)
        with drawing(model.device, rng.torch_seed(0, round, client, "dropout")):
            for _ in range(optimiser.epochs):
                rule.zero_grad()
                F.cross_entropy(module(x), y).backward()
                rule.step()
    tensors = named | dict(module.named_buffers())
    vector = torch.cat([tensors[name].detach().reshape(-1) for name in model.shapes])
    return vector, [name for name in model.parameters if named[name].grad is None]


def _need_alike(wanted: Tensor, found: Tensor, name: str, value: object, line: str) -> None:
    bound = TOLERANCE[wanted.dtype]
    alike = torch.allclose(found, wanted, rtol=bound, atol=bound, equal_nan=True)
    apart = (found - wanted).detach().abs().nan_to_num(torch.inf).max() if wanted.numel() else 0
    require(alike, name, value, f"{line} {float(apart):.2g} off PyTorch's")


def need_pairs(model: Model, x: Tensor, sizes: Tensor, optimiser: SGD) -> None:
    """See that no client has a batch of one image where the network cannot train on one: BatchNorm needs two.

    Parameters
    ----------
    model : Model
        The network.
    x : Tensor (1, C, H, W)
        An image.
    sizes : Tensor (N,) of int64
        Training images of each client.
    optimiser : SGD
        How clients train.

    Raises
    ------
    ValueError
        Naming a client and the cause.
    """
    alone = [i for i, n in enumerate(sizes.tolist()) if _meets_one(n, optimiser)]
    if alone:
        client = f"client {alone[0]}, one of {len(alone)}, with {int(sizes[alone[0]])} images"
        line = f"one that leaves no client a batch of one image, as it does {client}"
        with quoting("batch_size", optimiser.batch_size, line), drawing(model.device, 0), torch.no_grad():
            out = model.bound(model.init(0)).train()(x)
            if not out.isfinite().all():
                raise ValueError("its outputs are not finite")


def _meets_one(n: int, optimiser: SGD) -> bool:
    """Whether a client with `n` images meets a batch of one: the last of a pass."""
    size = optimiser.batch_size or n
    return (n % size if size > 1 else 1) == 1 and optimiser.count(n) >= -(-n // size)
