"""What every method promises, whoever wrote it: each promise is a function that raises where it is broken.

They run a method on twelve clients in four rotations, for a few seconds. The package's own tests call them for
every method that it has; ``cflkit check mymethod.py`` calls them for those of a file.
"""

import importlib.util
import inspect
import pickle
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import MISSING, replace
from itertools import cycle
from pathlib import Path
from unittest.mock import patch

import cloudpickle
import torch
from torch import Tensor

from cflkit.checks import parameters, require
from cflkit.data import builders, images
from cflkit.data.federation import Federation, Samples
from cflkit.engine import courier
from cflkit.engine.history import History
from cflkit.engine.memory import Memory
from cflkit.engine.network import Network
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation, simulate
from cflkit.methods.base import Method
from cflkit.testing import lines
from cflkit.testing.pretend import gpu

SETTINGS = {"model": "mlp16", "local": SGD(0.1, epochs=2, batch_size=10), "rounds": 3, "participation": 0.5,
            "progress": False}  # fmt: skip


# ---------------------------------------------------------------------- what is compared
def bits(value: object) -> object:
    """Everything in a tree of tensors and numbers, comparable with == to the last bit."""
    if isinstance(value, dict):
        return {name: bits(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [bits(part) for part in value]
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes()
    return repr(value)


def remembered(memory: Memory) -> dict:
    """What every client keeps, wherever it lies, comparable with ==."""
    return {name: {c: bits(memory.get(name, c)) for c in sorted(rows)} for name, rows in memory.state().items()}


def close(found: object, expected: object) -> bool:
    """Whether two trees are the same up to rounding, wherever their tensors lie."""
    if isinstance(expected, dict):
        return set(found) == set(expected) and all(close(found[name], expected[name]) for name in expected)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(close, found, expected))
    if isinstance(expected, Tensor):
        found = found.cpu()
        return found.dtype == expected.dtype and torch.allclose(found, expected, rtol=0, atol=1e-10)
    if isinstance(expected, float):
        return abs(found - expected) <= 1e-10 or found != found != expected != expected
    return found == expected


def _same(one: History, other: History, what: str) -> None:
    """Require the same history, to the last bit."""
    for part, a, b in [("server", bits(one.server), bits(other.server)),
                       ("memory", remembered(one.memory), remembered(other.memory)),
                       ("rounds", repr(one.rounds), repr(other.rounds))]:  # fmt: skip
        assert a == b, f"{what}: the {part} differ{'s' * (part != 'rounds')}"


# ---------------------------------------------------------------------- the promises
def leaves_the_old_state_alone(method: Method, fed: Federation, settings: dict) -> None:
    """A round returns a new server state and changes nothing of the one that it was given."""
    run = Simulation(method, fed, **settings)
    history = run.run()
    before = bits(history.server)
    method.round(history.server, torch.tensor([0, 3, 5, 11]), run.network(9, history.memory))
    assert bits(history.server) == before, "a round changed the state that it was given"


def sees_no_test_image(method: Method, fed: Federation, settings: dict) -> None:
    """Other test images and labels, and other validation data, change no bit of what is learnt."""
    test = fed.test
    wrong = Samples(255 - test.pool, test.index.flip(0), fed.classes - 1 - test.y, test.offset)
    poisoned = replace(fed, test=wrong, validation=fed.train)
    a, b = (simulate(method, f, **settings | {"evaluate_every": 3}) for f in (fed, poisoned))
    assert bits(a.server) == bits(b.server), "the server's state depends on test images"
    assert remembered(a.memory) == remembered(b.memory), "what clients keep depends on test images"
    assert a.rounds != b.rounds, "the scores do not depend on test images"


def is_moved_by_every_sampled_client(method: Method, fed: Federation, settings: dict) -> None:
    """Other labels of any client that takes part change what is learnt."""
    settings = settings | {"rounds": 1, "personal_clients": 0, "evaluate_every": 9}
    usual = Simulation(method, fed, **settings)
    before, sampled = usual.run(), usual.schedule[0].tolist()
    for client in (sampled[0], sampled[-1]):
        after = simulate(method, relabelled(fed, client), **settings)
        same = bits(after.server) == bits(before.server) and remembered(after.memory) == remembered(before.memory)
        assert not same, f"client {client} was sampled, and its data changed nothing"


def relabelled(fed: Federation, client: int) -> Federation:
    """The same federation, with other labels on one client."""
    y = fed.train.y.clone()
    mine = slice(fed.train.offset[client], fed.train.offset[client + 1])
    y[mine] = (y[mine] + 1) % fed.classes
    return replace(fed, train=replace(fed.train, y=y))


def chunks_and_trainers_change_rounding_only(method: Method, fed: Federation, settings: dict) -> None:
    """Clients in other chunks, one by one or in lock-step, give the same to 1e-10, and send as much."""
    settings = settings | {"rounds": 2, "evaluate_every": 9}
    usual = simulate(method, fed, **settings, trainer="lean")
    for trainer in ("lean", "stacked"):
        other = simulate(method, fed, **settings, trainer=trainer, chunk=5)
        for name, value in usual.server.items():
            assert close(other.server[name], value), f"{name!r} depends on the chunk or the trainer ({trainer})"
        assert close(other.rounds, usual.rounds), f"a row depends on the chunk or the trainer ({trainer})"


def workers_change_no_bit(method: Method, fed: Federation, settings: dict) -> None:
    """Two threads, or two workers that share no memory, give the bits of one thread."""
    settings = settings | {"rounds": 2, "chunk": 2}
    one = simulate(method, fed, **settings)
    _same(simulate(method, fed, **settings, workers=2), one, "two threads")
    _same(simulate(method, fed, **settings, workers=2, executor=Far()), one, "two processes")


class Far(Executor):
    """Workers in turn, each with a store of its own; whatever comes or goes is pickled, as between processes.

    Attributes
    ----------
    received : Counter
        How often each worker, by number, was sent the parcel of each name.
    asked : int
        How often a worker lacked one.
    """

    def __init__(self, workers: int = 2):
        self.stores = [courier.Store() for _ in range(workers)]
        self.received, self.asked, self._turn = Counter(), 0, cycle(range(workers))

    def submit(self, do, *task):
        """Do it at once."""
        number, future = next(self._turn), Future()
        self.received.update((number, name) for name in task[-1])
        with patch.object(courier, "store", self.stores[number]):
            try:
                do, task = pickle.loads(cloudpickle.dumps((do, task)))
                answer = pickle.loads(cloudpickle.dumps(do(*task)))
                self.asked += isinstance(answer, list)
                future.set_result(answer)
            except Exception as error:
                future.set_exception(error)
        return future


class _Killed(BaseException):
    """Stands for SIGKILL: nothing catches it, nothing is cleaned up."""


def survives_a_kill(method: Method, fed: Federation, settings: dict) -> None:
    """A run that is killed after an exchange of its second round goes on to the same end."""
    whole = simulate(method, fed, **settings)
    exchanges = {name: getattr(Network, name) for name in ("call", "chain")}

    def dying(name: str) -> Callable:
        def exchange(net, *args, **kwargs):
            found = exchanges[name](net, *args, **kwargs)
            if net.round == 2:
                raise _Killed
            return found

        return exchange

    with tempfile.TemporaryDirectory() as folder:
        try:
            with patch.multiple(Network, **{name: dying(name) for name in exchanges}):
                simulate(method, fed, **settings, checkpoint=folder)
        except _Killed:
            pass
        _same(simulate(method, fed, **settings, checkpoint=folder), whole, "killed and started again")


def runs_on_a_gpu(method: Method, fed: Federation, settings: dict) -> None:
    """On a GPU, which is pretended, nothing mixes with the CPU, and the numbers are the CPU's."""
    settings = settings | {"rounds": 2, "evaluate_every": 9, "chunk": 4}
    usual = simulate(method, fed, **settings, trainer="stacked")
    with gpu():
        found = simulate(method, fed, **settings, device="cuda")
        for part in ("server", "rounds"):
            assert close(getattr(found, part), getattr(usual, part)), f"the {part} differ from the CPU's"
        assert close(found.memory.state(), usual.memory.state()), "what clients keep differs from the CPU's"


PROMISES = (
    leaves_the_old_state_alone, sees_no_test_image, is_moved_by_every_sampled_client,
    chunks_and_trainers_change_rounding_only, workers_change_no_bit, survives_a_kill, runs_on_a_gpu,
)  # fmt: skip


# ---------------------------------------------------------------------- a stranger's file
def methods_of(file: Path) -> list[type[Method]]:
    """The methods that a file of somebody's project defines.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it cannot be imported, or defines no method.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    cloudpickle.register_pickle_by_value(module)  # workers need not find it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        line = f"{lines.where(error, spec.origin)}: {type(error).__name__}: {error}"
        require(False, "file", str(file), f"one that can be imported ({line})")
    own = [v for v in vars(module).values() if inspect.isclass(v) and v.__module__ == file.stem]
    found = [kind for kind in own if issubclass(kind, Method) and "name" in vars(kind)]
    require(bool(found), "file", str(file), "one that defines a method: a Method with a name")
    return found


def check(kind: type[Method]) -> Iterator[tuple[str, str]]:
    """Try every promise of a method; gives each one's sentence, and what broke it and at which line, or nothing.

    Raises
    ------
    ValueError
        If a parameter of it has no default.
    """
    for name, (default, _) in parameters(kind).items():
        require(default is not MISSING, name, None, "given a default, with which twelve clients can be trained")
    method, fed = kind(), builders.rotated(images.load("digits"), clients=12, samples_per_client=24)
    place = inspect.getfile(kind), inspect.getsourcelines(kind)[1]
    for promise in PROMISES:
        broken = ""
        try:
            promise(method, fed, SETTINGS)
        except Exception as error:
            what = f"{type(error).__name__}: " * (not isinstance(error, AssertionError))
            broken = f"{lines.where(error, *place)}: {what}{error}"
        yield promise.__doc__.strip(), " ".join(broken.split())
