"""What stands between a server and its clients: messages go down, work is done, uploads come back.

In process the network is the simulator; over machines it would be a send and a receive. It is the one place
where floats are counted, so traffic is measured from the messages and not from a formula.
"""

import math
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cflkit import rng
from cflkit.checks import require, writing
from cflkit.engine.clients import Data
from cflkit.engine.courier import Courier, Exchange
from cflkit.engine.local import Local
from cflkit.engine.memory import ChunkMemory, Memory
from cflkit.engine.rows import Dense, Part, Pick, Rows, part
from cflkit.engine.sgd import SGD
from cflkit.models.flat import Model

SPILL_BYTES = 2**30  # of one upload name kept in memory; what exceeds it goes to a temporary file


@dataclass(frozen=True)
class Task:
    """What a method may know before any exchange.

    Attributes
    ----------
    model : Model
        The architecture.
    clients : int
        How many there are (N).
    sizes : Tensor (N,) of int64
        Training images of each client (n_i).
    classes : int
        Number of labels.
    shape : tuple of int
        Shape (C, H, W) of an image.
    seed : int
        The run's seed.
    optimiser : SGD
        How clients train in this run.
    domains : int or None
        True domains of the images; None where they are not known. For oracles only.
    """

    model: Model
    clients: int
    sizes: Tensor
    classes: int
    shape: tuple[int, int, int]
    seed: int
    optimiser: SGD
    domains: int | None

    def init(self, k: int = 1, first: int = 0) -> Tensor:
        """Draw `k` different initial models (k, P), from number `first` on; number 0 is every method's first."""
        draws = range(first, first + k)
        return torch.stack([self.model.init(rng.torch_seed(self.seed, "init", j)) for j in draws])


class Uploads(dict[str, Rows]):
    """What came back from one exchange, by name: ``up["model"]`` has a row of each client.

    Attributes
    ----------
    clients : Tensor (m,) of int64
        Who answered.
    sizes : Tensor (m,) of int64
        How many training images each of them holds (n_i).
    """

    def __init__(self, rows: dict[str, Rows], clients: Tensor, sizes: Tensor):
        super().__init__(rows)
        self.clients, self.sizes = clients, sizes


class Network:
    """The clients as the server reaches them in one round.

    Attributes
    ----------
    task : Task
        What is being learnt: architecture, number of clients, their sizes.
    round : int
        The current round; 0 while the method starts.
    down : int
        Floats sent to clients so far in this round; an integer counts as one, like a float.
    up : int
        Floats received from them, likewise.
    present : Tensor of int64 or None
        Clients that have arrived by now, and may be reached; None for everybody.
    held : sequence of Tensor (N,) of int64
        Training images of each client in each time step so far, of which the last is now; nothing where another
        process ran the earlier ones.
    """

    def __init__(
        self,
        task: Task,
        memory: Memory,
        local: Local,
        chunk: int,
        data: Callable[[list[int]], Data],
        workers: int = 1,
        executor: Executor | Courier | None = None,
        present: Tensor | None = None,
        held: Sequence[Tensor] = (),
    ):
        self.task, self._memory, self._local, self._chunk, self._data = task, memory, local, chunk, data
        self._workers, self._executor = workers, executor
        self.round, self.present, self.held = local.round, present, held
        self.down = self.up = 0

    @property
    def everybody(self) -> Tensor:
        """All clients that have arrived by now (n,), in order."""
        return torch.arange(self.task.clients) if self.present is None else self.present

    def rng(self, *purpose: int | str) -> np.random.Generator:
        """The server's own randomness in this round."""
        return rng.generator(self.task.seed, self.round, "server", *purpose)

    def call(
        self,
        clients: Tensor,
        work: Callable,
        down: Mapping[str, Tensor] | None = None,
        per_client: Mapping[str, Tensor | Pick] | None = None,
        mean: Mapping[str, Tensor] | None = None,
        known: Mapping[str, Tensor] | None = None,
    ) -> Uploads:
        """Send, let every client work, bring back.

        Parameters
        ----------
        clients : Tensor (m,) of int64
            Whom to reach.
        work : callable
            The client's part, ``work(down, memory, data, local) -> dict of Part or Tensor``
            (:meth:`cflkit.methods.base.Method.client`). It runs on chunks of clients: values of `per_client` and
            everything it returns have a leading axis over the chunk.
        down : mapping, optional
            What every client receives alike.
        per_client : mapping, optional
            What each receives for itself: a tensor (m, ...) or a Pick, one row each.
        mean : mapping, optional
            Names of uploads of which only a weighted mean is wanted, and each client's weight (m,). They are added
            up as they arrive and never held; what is found under the name is the mean, as one row.
        known : mapping, optional
            What clients know already, from a shared seed or an earlier message. They find it among what they
            receive, but it is not sent, and not counted.

        Returns
        -------
        Uploads

        Raises
        ------
        ValueError
            If clients are not there, or have not arrived yet; if weights of a mean are negative or all 0; if a
            client's part does not return a dict with a row of each client under each name.
        """
        self._need_present(clients)
        down, per_client, known = down or {}, per_client or {}, known or {}
        for name, rows in per_client.items():
            require(len(rows) == len(clients), f"rows of {name}", len(rows), f"{len(clients)}, one of each client")

        def received(here: slice) -> dict:
            own = {k: v.take(here) if isinstance(v, Pick) else v[here] for k, v in per_client.items()}
            return {**known, **down, **own}

        tables = [v.table for v in per_client.values() if isinstance(v, Pick)]
        arriving = _Arriving(work, len(clients), mean or {})
        for here, uploads in self._in_turn(clients, work, received, [*known.values(), *down.values(), *tables]):
            arriving.add(uploads, here)
        if len(clients):
            own = (v[0] for v in per_client.values())
            self.down += sum(v.numel() for v in (*down.values(), *own)) * len(clients)
        self.up += arriving.floats
        return Uploads(arriving.rows(), clients, self.task.sizes[clients])

    def chain(
        self,
        clients: Tensor,
        work: Callable,
        carry: str,
        start: Tensor,
        down: Mapping[str, Tensor] | None = None,
        mean: Mapping[str, Tensor] | None = None,
    ) -> Uploads:
        """Pass something through the clients one after another.

        Each client receives under the name `carry` what the one before it uploaded under that name; the first
        receives `start` (P,). Otherwise as :meth:`call`.
        """
        self._need_present(clients)
        down, arriving = down or {}, _Arriving(work, len(clients), mean or {})
        current = start
        for i in range(len(clients)):
            here = slice(i, i + 1)
            uploads = arriving.checked(self._work(clients[here], work, {**down, carry: current}), 1)
            require(carry in uploads, arriving.who, list(uploads), f"a dict with {carry!r}, which is passed on")
            current = part(uploads[carry]).row(0)
            arriving.add({**uploads, carry: Dense(current[None])}, here)
        self.down += sum(v.numel() for v in (start, *down.values())) * len(clients)
        self.up += arriving.floats
        return Uploads(arriving.rows(), clients, self.task.sizes[clients])

    def _need_present(self, clients: Tensor) -> None:
        """Refuse to reach whom there is not, and clients before they arrive."""
        whole = isinstance(clients, Tensor) and clients.dim() == 1 and clients.dtype in (torch.int64, torch.int32)
        require(whole, "clients", clients, "a tensor (m,) of integers")
        n = len(self.task.sizes)
        wrong = clients[(clients < 0) | (clients >= n)].tolist()
        require(not wrong, "clients", wrong[:5], f"in 0..{n - 1}")
        require(len(clients.unique()) == len(clients), "clients", clients.tolist(), "different from each other")
        if self.present is not None:
            late = clients[~torch.isin(clients, self.present)].tolist()
            require(not late, "arrival", f"after round {self.round} for clients {late[:5]}",
                    "None for a method that reaches clients before they arrive")  # fmt: skip

    def _in_turn(
        self, clients: Tensor, work: Callable, received: Callable[[slice], dict], shared: list[Tensor]
    ) -> Iterator[tuple[slice, dict[str, Part | Tensor]]]:
        """What every chunk returns, in order; as many as there are workers are under way, and one more waits."""
        count = -(-len(clients) // self._chunk)
        ends = [i * len(clients) // count for i in range(count + 1)] if count else []
        chunks = [slice(*here) for here in pairwise(ends)]  # as equal as can be: workers end together

        def done(here: slice) -> dict[str, Part | Tensor]:
            return self._work(clients[here], work, received(here))

        if self._executor is None and (self._workers == 1 or len(chunks) == 1):
            yield from ((here, done(here)) for here in chunks)
            return
        with ExitStack() as stack:
            if isinstance(self._executor, Courier):
                exchange = Exchange(self._executor, work, shared, self._memory, self.round)

                def begin(here):
                    return exchange.send(clients[here].tolist(), received(here), partial(done, here))
            else:
                pool = self._executor or stack.enter_context(ThreadPoolExecutor(self._workers))

                def begin(here):
                    return pool.submit(_on_one_thread, done, here).result

            coming = ((here, begin(here)) for here in chunks)
            begun = deque(islice(coming, self._workers + 1))
            while begun:
                here, uploads = begun.popleft()
                yield here, uploads()
                begun.extend(islice(coming, 1))

    def _work(self, clients: Tensor, work: Callable, received: dict) -> dict[str, Part | Tensor]:
        ids = clients.tolist()
        memory = ChunkMemory(self._memory, ids, self.round, self.task.model.device)
        tensors = {name: v.table if isinstance(v, Pick) else v for name, v in received.items()}
        for name, v in tensors.items():
            require(isinstance(v, Tensor), f"{name}, which is sent", v, "a tensor or a Pick")
        before = {name: v._version for name, v in tensors.items()}
        uploads = work(received, memory, self._data(ids), self._local)
        changed = [name for name, v in tensors.items() if v._version != before[name]]
        who = getattr(work, "__qualname__", repr(work))
        require(not changed, who, changed, "received and left as it is: clients share it; clone first")
        return uploads


def _on_one_thread(done: Callable, here: slice) -> dict[str, Part | Tensor]:
    torch.set_num_threads(1)  # several on busy cores are many times slower
    return done(here)


class _Arriving:
    """Uploads as they come in, chunk by chunk: kept as rows, or added up where only their mean is wanted."""

    def __init__(self, work: Callable, clients: int, mean: Mapping[str, Tensor]):
        self.floats, self.who = 0, getattr(work, "__qualname__", repr(work))
        for name, weights in mean.items():
            require(isinstance(weights, Tensor), f"weights of {name}", weights, "a tensor, one of each client")
        self._mean, self._total = {name: weights.tolist() for name, weights in mean.items()}, {}
        for name, weights in self._mean.items():
            require(len(weights) == clients, f"weights of {name}", len(weights), f"{clients}, one of each client")
            ok = all(0 <= weight < math.inf for weight in weights) and (0 < sum(weights) < math.inf or not weights)
            require(ok, f"weights of {name}", weights[:9], "finite, at least 0, and not all 0")
        self._kinds: dict[str, tuple] = {}  # of the first chunk's rows
        self._parts: dict[str, list[Part]] = {}
        self._held: Counter[str] = Counter()  # bytes

    def checked(self, uploads: dict[str, Part | Tensor], m: int) -> dict[str, Part | Tensor]:
        """What a client's part has returned, if it is a dict with `m` rows under each name."""
        require(isinstance(uploads, Mapping), self.who, uploads, "a dict of what clients upload, by name")
        for name, rows in uploads.items():
            ok = isinstance(rows, Part | Tensor) and len(rows.shape) > 0
            require(ok, f"{self.who}: {name}", rows, "a tensor or a Part with a row of each client")
            require(len(rows) == m, f"{self.who}: rows of {name}", len(rows), f"{m}, one of each client")
        kinds = {name: (tuple(rows.shape[1:]), rows.dtype) for name, rows in uploads.items()}
        self._kinds = self._kinds or kinds
        require(kinds == self._kinds, self.who, kinds, f"as of the first clients, {self._kinds}")
        whole = [name for name in self._mean.keys() & kinds.keys() if not kinds[name][1].is_floating_point]
        require(not whole, self.who, whole, "floats, of which a mean is wanted")
        missing = sorted(self._mean.keys() - kinds.keys())
        require(not missing, self.who, list(kinds), f"a dict with {missing}, of which a mean is wanted")
        return uploads

    def add(self, uploads: dict[str, Part | Tensor], here: slice) -> None:
        """Take in what the clients `here`, by position, have uploaded."""
        for name, rows in self.checked(uploads, here.stop - here.start).items():
            rows = part(rows)
            self.floats += rows.floats
            if name in self._mean:
                weights = self._mean[name][here]
                if name not in self._total:
                    self._total[name] = rows.zeros(1)
                rows.add_to(self._total[name], [0] * len(weights), weights)
            else:
                self._held[name] += rows.floats * rows.dtype.itemsize
                spills = self._held[name] > SPILL_BYTES and rows.device.type == "cpu" and isinstance(rows, Dense)
                self._parts.setdefault(name, []).append(_mapped(rows) if spills else rows)

    def rows(self) -> dict[str, Rows]:
        """All that came in, by name."""
        for name, total in self._total.items():
            self._parts[name] = [Dense(total.div_(sum(self._mean[name])))]
        return {name: Rows(parts) for name, parts in self._parts.items()}


def _mapped(rows: Dense) -> Dense:
    """The same rows in a file that has no name, and is gone as soon as nobody holds them."""
    array = rows.dense().numpy()
    with writing(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
        array.tofile(file)
        return Dense(torch.from_numpy(np.memmap(file, array.dtype, mode="c", shape=array.shape)))
