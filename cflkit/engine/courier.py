"""Chunks of clients as tasks of an executor whose workers share no memory: processes, or a cluster.

What many tasks have in common is sent as *parcels*: the site (architecture, training data of all clients,
trainers), the code of an exchange, its models. A parcel is named by the hash of its bytes, and a worker keeps what
it has received. A Dask cluster gives a new parcel to every worker. Elsewhere the first tasks that need it take it
along, as many of them as there are workers; the others only name it. A worker that lacks one says so (it is new, it
did not get one of the first tasks, or it made room), and its task is sent again with it. So data travels once to
each worker, a model once a round and worker.

Clients' memory travels: a task takes along the rows that its clients keep, and what they keep anew comes back with
their uploads. A worker holds nothing that cannot be sent again, so it may die at any moment. A cluster gives its
tasks to others. Where an executor breaks with its worker, as a pool of processes does, they are done here.
"""

import contextlib
import hashlib
import io
import logging
import pickle
import threading
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from functools import cache, partial

import cloudpickle
import torch
from torch import Tensor

from cflkit.checks import Count, declared
from cflkit.engine.local import Site
from cflkit.engine.memory import ChunkMemory, Memory
from cflkit.engine.rows import Part

HELD_BYTES = 2**30  # of parcels that a worker keeps; beyond, those go that were used longest ago

Uploaded = dict[str, Part | Tensor]


# ---------------------------------------------------------------------- bytes
class _Packer(cloudpickle.Pickler):
    """Writes names in place of what the reader has, and of a tensor what it shows, not all it is a view of."""

    def __init__(self, file: io.BytesIO, names: dict[int, str]):
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._names = names

    def persistent_id(self, value):
        return self._names.get(id(value))

    def reducer_override(self, value):
        if type(value) is Tensor and value.device.type == "cpu":
            return torch.tensor, (value.detach().numpy(),)
        return super().reducer_override(value)


class _Unpacker(pickle.Unpickler):
    def __init__(self, data: bytes, known: dict[str, object]):
        super().__init__(io.BytesIO(data))
        self.persistent_load = known.__getitem__


def _packed(value: object, names: dict[int, str]) -> bytes:
    """`value` as bytes; `names` has, by identity, what is named instead of written."""
    file = io.BytesIO()
    _Packer(file, names).dump(value)
    return file.getvalue()


# ---------------------------------------------------------------------- on a worker
class Store:
    """The parcels that a worker has received, opened."""

    def __init__(self):
        self._held: OrderedDict[str, tuple[object, int]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, names: Sequence[str], along: dict[str, bytes]) -> dict[str, object] | list[str]:
        """Everything under `names`, of which some came `along`; the names of what is lacking, if anything is."""
        with self._lock:
            for name, data in along.items():
                self._held[name] = _Unpacker(data, {}).load(), len(data)
            lacking = [name for name in names if name not in self._held]
            if lacking:
                return lacking
            for name in names:
                self._held.move_to_end(name)
            while len(self._held) > len(names) and sum(size for _, size in self._held.values()) > HELD_BYTES:
                self._held.popitem(last=False)
            return {name: self._held[name][0] for name in names}


store = Store()


def perform(task: bytes, names: Sequence[str], along: dict[str, bytes]) -> bytes | list[str]:
    """On a worker: let a chunk of clients work, and give back their uploads and what they keep anew."""
    torch.set_num_threads(1)
    known = store.take(names, along)
    if isinstance(known, list):
        return known
    site, round, clients, work, received, rows = _Unpacker(task, known).load()
    memory = Memory()
    memory.restore(rows)
    own = ChunkMemory(memory, clients, round, site.model.device)
    uploads = work(received, own, site.data(clients), site.local(round))
    anew = {
        name: {client: row for client, row in kept.items() if row is not rows.get(name, {}).get(client)}
        for name, kept in memory.rows.items()
    }
    return _packed((uploads, anew), {id(value): name for name, value in known.items()} | {id(site.model): "model"})


# ---------------------------------------------------------------------- at home
class Courier:
    """Takes chunks of clients to the workers of an executor, and brings back what they return.

    Parameters
    ----------
    executor : Executor
        Where tasks go.
    workers : int
        How many tasks its workers do at once.
    site : Site
        What every worker needs.

    Attributes
    ----------
    packed : bytes
        The site, as it travels.
    wire : Counter
        Bytes so far: of the ``site``; of what tasks ``shared`` (models, code); of the ``tasks`` themselves (what
        each client receives for itself, and its memory); of the ``answers`` (uploads, and memory).
    """

    def __init__(self, executor: Executor, workers: int, site: Site):
        self._executor, self._workers, self.site = executor, workers, site
        self.wire: Counter[str] = Counter()
        self._sent: Counter[str] = Counter()  # how often each parcel was
        self.packed = _packed(site, {})

    def submit(self, task: bytes, parcels: dict[str, bytes], lacking: Sequence[str] = ()) -> Future:
        """Send a task, with the parcels that are `lacking` or that not every worker can have yet."""
        new = {n: data for n, data in parcels.items() if not self._sent[n]}
        if new and isinstance(self._executor, OnDask):  # every worker of a cluster gets them
            workers = self._executor.give(new)
            self._sent.update(dict.fromkeys(new, max(workers, self._workers)))
            self._count(new, workers)
        along = {n: data for n, data in parcels.items() if n in lacking or self._sent[n] < self._workers}
        self._sent.update(along.keys())
        self.wire["tasks"] += len(task)
        self._count(along, 1)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # Dask's advice is to do what parcels do
            return self._executor.submit(perform, task, tuple(parcels), along)

    def _count(self, parcels: dict[str, bytes], times: int) -> None:
        for data in parcels.values():
            self.wire["site" if data is self.packed else "shared"] += times * len(data)


class Exchange:
    """Tasks in which clients do `work` in `round`: how they go out and come back.

    What they have in common is named, and not sent with each of them: the site, the work, and the tensors `shared`.
    """

    def __init__(self, courier: Courier, work: Callable, shared: Iterable[Tensor], memory: Memory, round: int):
        self._courier, self._work, self._memory, self._round = courier, work, memory, round
        self._parcels: dict[str, bytes] = {}
        self._known: dict[str, object] = {"model": courier.site.model}
        self._names: dict[int, str] = {}
        for value in {id(value): value for value in (courier.site, work, *shared)}.values():
            data = courier.packed if value is courier.site else _packed(value, {})
            digest = hashlib.blake2b(data, digest_size=16).hexdigest()
            # of two equal vectors each has a name: trainers tell vectors apart by where they lie
            name = f"{digest}-{sum(other.startswith(digest) for other in self._parcels)}"
            self._names[id(value)], self._known[name], self._parcels[name] = name, value, data

    def send(self, clients: list[int], received: dict, here: Callable[[], Uploaded]) -> Callable[[], Uploaded]:
        """Send a chunk, and give what waits for its uploads; `here` makes them in this process."""
        rows = {name: {client: self._memory.get(name, client) for client in clients if client in kept}
                for name, kept in self._memory.rows.items()}  # fmt: skip
        task = self._courier.site, self._round, clients, self._work, received, rows
        packed, future = _packed(task, self._names), None
        with contextlib.suppress(BrokenExecutor):
            future = self._courier.submit(packed, self._parcels)
        return partial(self._bring, packed, future, here)

    def _bring(self, task: bytes, future: Future | None, here: Callable[[], Uploaded]) -> Uploaded:
        answer = None
        with contextlib.suppress(BrokenExecutor):
            answer = future and future.result()
            while isinstance(answer, list):
                answer = self._courier.submit(task, self._parcels, answer).result()
        if not isinstance(answer, bytes):
            _say_broken()
            return here()
        self._courier.wire["answers"] += len(answer)
        uploads, anew = _Unpacker(answer, self._known).load()
        for kept, rows in anew.items():
            for client, row in rows.items():
                self._memory.put(kept, client, row, self._round)
        return uploads


@cache
def _say_broken() -> None:
    logging.getLogger("cflkit").warning("cflkit: a worker died, and its executor with it: going on in this process")


# ---------------------------------------------------------------------- Dask
class OnDask(Executor):
    """Tasks on the workers of a cluster, each of which can be given parcels.

    A cluster deals out tasks as it likes. If parcels travelled with the first tasks, one worker might get several,
    and others none.

    Parameters
    ----------
    client : distributed.Client
        Connected to the cluster.
    """

    def __init__(self, client):
        self._client, self._tasks = client, client.get_executor()

    def submit(self, work, /, *args, **named) -> Future:
        """Let a worker do `work`."""
        return self._tasks.submit(work, *args, **named)

    def give(self, parcels: dict[str, bytes]) -> int:
        """Let every worker receive `parcels`; returns how many have. One that comes later asks for them."""
        return len(self._client.run(_receive, parcels, on_error="ignore"))


def _receive(parcels: dict[str, bytes]) -> None:
    store.take([], parcels)


@contextlib.contextmanager
def dask(where: str | int) -> Iterator[Executor]:
    """An executor over Dask workers, for as long as a ``with`` block lasts.

    Parameters
    ----------
    where : str or int
        The address of a scheduler, such as "tcp://10.0.0.1:8786"; or how many processes to start on this machine,
        with a scheduler that only this machine can reach.

    Raises
    ------
    ModuleNotFoundError
        If Dask is not installed; one line.
    """
    declared("where", where, str | Count)
    try:
        from distributed import Client, LocalCluster
    except ModuleNotFoundError:
        line = "Dask is not installed: pip install 'cflkit[cluster]' installs it"
        raise ModuleNotFoundError(line) from None
    with contextlib.ExitStack() as stack:
        if not isinstance(where, str):
            # That a busy machine's worker ends late is no news. What its tasks raise comes back with their answers.
            silent = "import logging; logging.getLogger('distributed').setLevel('CRITICAL')"
            local = {"host": "127.0.0.1", "dashboard_address": None, "threads_per_worker": 1,
                     "silence_logs": logging.CRITICAL, "preload": [silent]}
            where = stack.enter_context(LocalCluster(n_workers=where, **local))
        yield OnDask(stack.enter_context(Client(where)))
