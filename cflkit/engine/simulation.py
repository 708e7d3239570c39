"""Running a method over a federation, round by round, into a history.

A simulation can be killed at any moment and started again with the same checkpoint folder: it goes on from the
last whole round to the same history, bit for bit. Timings are kept apart from what is measured.
"""

import contextlib
import hashlib
import json
import os
import pickle
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

from cflkit import rng
from cflkit.checks import fraction, one_of, positive, require
from cflkit.data.federation import Federation
from cflkit.engine import metrics
from cflkit.engine.clients import Data
from cflkit.engine.evaluation import Scorer
from cflkit.engine.local import Local
from cflkit.engine.memory import Memory
from cflkit.engine.network import Network, Task
from cflkit.engine.sgd import SGD
from cflkit.models import networks as models
from cflkit.models.flat import Model

DTYPES = {"float32": torch.float32, "float64": torch.float64}




def schedule(
    clients: int, participation: float, rounds: int, seed: int, arrival: Tensor | None = None
) -> list[Tensor]:
    """Draw who takes part in each round: max(1, round(R * available)) clients, ascending, without replacement.

    Parameters
    ----------
    clients : int
        How many there are (N).
    participation : float
        Share of the available clients that is sampled (R), in (0, 1].
    rounds : int
        How many rounds to draw (T).
    seed : int
        All methods run with it see the same clients in the same rounds.
    arrival : Tensor (N,) of int64, optional
        First round, from 1, in which each client exists.

    Returns
    -------
    list of Tensor (m,) of int64
        One for each of the rounds 1..T.
    """
    fraction("participation", participation)
    if arrival is not None:
        require(len(arrival) == clients, "len(arrival)", len(arrival), f"the number of clients, {clients}")
        require(int(arrival.min()) <= 1, "min(arrival)", int(arrival.min()), "1, so that round 1 has a client")
    found = []
    for t in range(1, rounds + 1):
        available = torch.arange(clients) if arrival is None else torch.nonzero(arrival <= t).flatten()
        m = max(1, round(participation * len(available)))
        drawn = rng.generator(seed, t, "sampling").choice(len(available), size=m, replace=False)
        found.append(available[torch.from_numpy(drawn).sort().values])
    return found


@dataclass
class History:
    """What a simulation leaves behind.

    Attributes
    ----------
    rounds : list of dict
        One row a round, from round 0 (before training); scores only where the round was evaluated.
    seconds : list of float
        Wall time of each round, kept apart: it is never the same twice.
    server : dict
        The server's final state.
    memory : Memory
        What clients kept.
    """

    rounds: list[dict] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    server: dict = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

    @property
    def final(self) -> dict:
        """The last round's row, which is what gets reported."""
        return self.rounds[-1]

    def frame(self) -> pd.DataFrame:
        """The rounds as a table, indexed by round."""
        return pd.DataFrame(self.rounds).set_index("round")

    def to_csv(self, path: str | Path) -> None:
        """Write the rounds as CSV; lists (cluster sizes) are joined by spaces."""
        frame = self.frame()
        for name in frame.columns[frame.map(lambda v: isinstance(v, list)).any()]:
            frame[name] = frame[name].map(lambda v: " ".join(map(str, v)) if isinstance(v, list) else v)
        partial = Path(f"{path}.part")
        frame.to_csv(partial)
        os.replace(partial, path)


class Simulation:
    """A method, a federation and everything between them.

    Parameters
    ----------
    method : Method
        The algorithm with its hyper-parameters.
    federation : Federation
        The clients' data and the test sets.
    model : str or callable
        A name of :func:`cflkit.models.networks.names`, or a function that returns a module.
    local : SGD
        How clients train.
    rounds : int
        Communication rounds (T).
    participation : float
        Share of clients sampled in each round (R), in (0, 1].
    seed : int
        Of everything random.
    dtype : {"float64", "float32"}
        Precision of weights and images.
    device : str
        A PyTorch device.
    trainer : {"auto", "lean", "stacked", "shared"}
        How clients are trained (see :class:`cflkit.engine.local.Local`); all give the same up to rounding. On a GPU
        auto is stacked.
    chunk : int, optional
        Clients trained and held together. Bounds memory and changes no result. If None, 32, and on a GPU as many as
        fit (:func:`fitting`).
    workers : int
        Threads, one for each core to be used, that train chunks side by side; changes no bit of a result. Networks
        with dropout draw from one generator, and train in one thread whatever is asked for.
    evaluate_every : int
        Score every so many rounds (and the first and the last).
    personal_clients : int
        How many clients' personal models are scored, a fixed sample; 0 for none, and never more than there are.
    personal_every : int, optional
        Score those every so many rounds; only after the last round if None.
    arrival : Tensor (N,) of int64, optional
        First round in which each client exists; all from the start if None. Whoever comes after the last round
        never trains, and is scored apart (``unseen_accuracy`` and so on).
    checkpoint : path, optional
        Folder to resume from if it holds a checkpoint, and to keep one in.
    checkpoint_every : int
        Rounds between checkpoints.
    progress : bool
        Show a progress bar.
    debug : bool
        Train client by client, and name client, round and batch in any exception.

    Raises
    ------
    ValueError
        For an argument out of range, or a checkpoint of another configuration; one line, before any work.
    """

    def __init__(
        self,
        method,
        federation: Federation,
        *,
        model: str | Callable[[], nn.Module],
        local: SGD,
        rounds: int,
        participation: float = 1.0,
        seed: int = 0,
        dtype: str = "float64",
        device: str = "cpu",
        trainer: str = "auto",
        chunk: int | None = None,
        workers: int = 1,
        evaluate_every: int = 1,
        personal_clients: int = 100,
        personal_every: int | None = None,
        arrival: Tensor | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 1,
        progress: bool = True,
        debug: bool = False,
    ):
        one_of("dtype", dtype, DTYPES)
        one_of("trainer", trainer, ("auto", "lean", "stacked", "shared"))
        require(callable(model) or isinstance(model, str), "model", model, "a name, or a function that makes one")
        kind, _, number = str(device).partition(":")
        gpus = torch.cuda.device_count()
        ok = kind == "cpu" or (kind == "cuda" and (number or "0").isdigit() and int(number or 0) < gpus)
        require(ok, "device", str(device), f"cpu, or cuda where PyTorch sees a GPU (here {gpus})")
        require(rounds >= 0, "rounds", rounds, "0 or more")
        require(personal_clients >= 0, "personal_clients", personal_clients, "0 or more")
        for name in ("chunk", "workers", "personal_every", "evaluate_every", "checkpoint_every"):
            if (value := locals()[name]) is not None:
                positive(name, value)
        self.method, self.federation, self.local_sgd = method, federation, local
        self.rounds, self.seed, self.debug, self.progress = rounds, seed, debug, progress
        self.evaluate_every, self.personal_every = evaluate_every, personal_every
        self.schedule = schedule(federation.clients, participation, rounds, seed, arrival)

        def make() -> nn.Module:
            return model() if callable(model) else models.build(model, federation.shape, federation.classes)

        self.model = Model(make, DTYPES[dtype], device)
        on_gpu = self.model.device.type == "cuda"
        self.trainer = "stacked" if on_gpu and trainer == "auto" else trainer
        self.chunk = chunk or (fitting(self.model) if on_gpu else 32)
        self.workers = 1 if self.model.has_dropout or debug else workers
        self.task = Task(
            self.model, federation.clients, federation.train.sizes, federation.classes, federation.shape, seed
        )
        if hasattr(method, "check"):
            method.check(self.task)
        self.scorer = Scorer(federation, self.model, method.predict)
        late = torch.zeros(federation.clients, dtype=torch.bool) if arrival is None else arrival > max(rounds, 1)
        self.seen, self.unseen = torch.nonzero(~late).flatten(), torch.nonzero(late).flatten()
        sample = rng.generator(seed, "personal").permutation(self.seen.numpy())[:personal_clients]
        self.personal_sample = torch.from_numpy(sample).sort().values
        self.folder = None if checkpoint is None else Path(checkpoint)
        self.checkpoint_every = checkpoint_every
        self.config = {
            "method": method.config(),
            "federation": {**federation.config, "digest": digest(federation)},
            "model": model if isinstance(model, str) else f"{model.__module__}.{model.__qualname__}",
            "local": asdict(local),
            "rounds": rounds,
            "participation": participation,
            "seed": seed,
            "dtype": dtype,
            "device": self.model.device.type,
            "trainer": self.trainer,
            "chunk": None if on_gpu and chunk is None else self.chunk,  # free memory is never the same twice
            "evaluate_every": evaluate_every,
            "personal": [personal_clients, personal_every],
            "arrival": None if arrival is None else arrival.tolist(),
        }

    # ------------------------------------------------------------------ the loop
    def run(self) -> History:
        """Run all rounds that are not in the checkpoint yet."""
        history = self._resume() or self._start()
        done = len(history.rounds) - 1
        bar = tqdm(total=self.rounds, initial=done, desc=self.method.name, unit="round", disable=not self.progress)
        with bar:
            for t in range(done + 1, self.rounds + 1):
                began = time.perf_counter()
                net = self.network(t, history.memory)
                before = self.method.assignment(history.server)
                history.server = self.method.round(history.server, self.schedule[t - 1], net)
                history.rounds.append(self._row(t, net, before, history))
                history.seconds.append(time.perf_counter() - began)
                if self.folder is not None and (t % self.checkpoint_every == 0 or t == self.rounds):
                    self._save(history)
                bar.set_postfix({k: round(v, 4) for k, v in history.final.items() if k == "accuracy"})
                bar.update()
        return history

    def network(self, round: int, memory: Memory) -> Network:
        """The clients as the server reaches them in `round`; for joins and experiments after training too."""
        local = Local(self.model, self.local_sgd, self.seed, round, self.trainer, self.debug)
        return Network(self.task, memory, local, 1 if self.debug else self.chunk, self._data, self.workers)

    def _data(self, clients: list[int]) -> Data:
        return Data(self.federation.train, clients, self.scorer.pixels, self.federation.classes)

    def _start(self) -> History:
        began = time.perf_counter()
        history = History(memory=Memory(None if self.folder is None else self.folder / "memory"))
        net = self.network(0, history.memory)
        history.server = self.method.start(net)
        history.rounds.append(self._row(0, net, None, history))
        history.seconds.append(time.perf_counter() - began)
        if self.folder is not None:
            self._save(history)
        return history

    def _row(self, t: int, net: Network, before: Tensor | None, history: History) -> dict:
        """Measure one round: traffic always, clusters where the method has any, scores when due."""
        row = {"round": t, "down": net.down, "up": net.up}
        server, truth = history.server, self.federation.cluster
        after = self.method.assignment(server)
        if after is not None:
            row["sizes"] = metrics.cluster_sizes(after)
            row["clusters"] = len(row["sizes"])
            row["moved"] = 0 if before is None else metrics.moved(before, after)
            if truth is not None:
                row["ari"], row["nmi"] = metrics.ari(after, truth), metrics.nmi(after, truth)
        row |= self.method.log(server)
        last = t == self.rounds
        if t % self.evaluate_every == 0 or last:
            row |= self.evaluate(server, history.memory)
        if len(self.personal_sample) and (last or (self.personal_every and t % self.personal_every == 0)):
            quiet = self.network(t, history.memory)
            personal = self.method.personal(server, self.personal_sample, quiet)
            if personal is not None:
                found = self.scorer.score(personal, self.personal_sample)
                row |= {f"personal_{name}": value for name, value in found.items()}
        return row

    def evaluate(self, server: dict, memory: Memory, clients: Tensor | None = None) -> dict[str, float]:
        """Score the models that serve `clients`; their exchanges are not counted as traffic.

        If None: all clients, those that never train apart from the others.
        """
        row = {}
        groups = {"": self.seen, "unseen_": self.unseen} if clients is None else {"": clients}
        for prefix, group in groups.items():
            served = self.method.serve(server, group, self.network(self.rounds + 1, memory)) if len(group) else None
            if served is not None:
                row |= {prefix + name: value for name, value in self.scorer.score(served, group).items()}
        shared = self.method.shared(server)
        if shared is not None:
            confusion = [self.scorer.confusion(shared, s) for s in self.federation.test_of.unique().tolist()]
            row["global_accuracy"] = float(metrics.accuracy(sum(confusion)))
        return row

    # ------------------------------------------------------------------ checkpoints
    def _save(self, history: History) -> None:
        state = {
            "config": json.dumps(self.config, sort_keys=True),
            "rounds": json.dumps(history.rounds),
            "seconds": history.seconds,
            "server": history.server,
            "memory": history.memory.state(),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / "state.pt.part"
        torch.save(state, partial)
        os.replace(partial, self.folder / "state.pt")
        history.memory.sweep()

    def _resume(self) -> History | None:
        if self.folder is None or not (file := self.folder / "state.pt").exists():
            return None

        def home(storage, where: str):  # what was on a GPU goes to this run's; what was not stays
            return storage if where == "cpu" else storage.to(device=self.model.device)

        state, damage = None, (OSError, EOFError, RuntimeError, ValueError, LookupError)
        with contextlib.suppress(*damage, pickle.UnpicklingError, zipfile.BadZipFile):
            with zipfile.ZipFile(file) as archive:
                whole = archive.testzip() is None  # torch.load does not look at the checksums
            if whole:
                state = torch.load(file, map_location=home, weights_only=True)
        require(isinstance(state, dict) and "config" in state, "checkpoint", str(file),
                "a whole checkpoint; delete this one to start anew")  # fmt: skip
        theirs = json.loads(state["config"])
        ours = json.loads(json.dumps(self.config, sort_keys=True))
        for name in ours:
            require(theirs.get(name) == ours[name], "checkpoint", str(file),
                    f"of this configuration; {name} was {theirs.get(name)} and is now {ours[name]}")  # fmt: skip
        memory = Memory(self.folder / "memory")
        memory.restore(state["memory"])
        return History(json.loads(state["rounds"]), state["seconds"], state["server"], memory)


def simulate(method, federation: Federation, **settings) -> History:
    """Run `method` over `federation`; settings as for :class:`Simulation`."""
    return Simulation(method, federation, **settings).run()


def fitting(model: Model) -> int:
    """Clients to train side by side on a GPU, a power of two up to 1024.

    Half of the free memory is theirs. Each takes its weights, gradient, momentum, an anchor and a result, and about
    as much again for what passes through the network.
    """
    free, _ = torch.cuda.mem_get_info(model.device)
    most = free // (2 * 10 * model.size * model.dtype.itemsize)
    return 2 ** min(10, max(0, most.bit_length() - 1))


def digest(federation: Federation) -> str:
    """Short fingerprint of who holds what: a checkpoint of other data is refused."""
    total = hashlib.blake2b(digest_size=8)
    for part in (federation.train, federation.test):
        for tensor in (part.index, part.y, part.offset, part.pool.sum(dtype=torch.int64)):
            total.update(tensor.numpy().tobytes())
    return total.hexdigest()
