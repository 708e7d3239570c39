"""Running a method over a federation, round by round, into a history.

A simulation can be killed at any moment and started again with the same checkpoint folder: it goes on from the
last whole round to the same history, bit for bit. Timings are kept apart from what is measured.

On a GPU this holds up to rounding: cuDNN may choose other kernels, and without a given ``chunk`` as many clients
train together as there is room for.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import KW_ONLY, asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook
from tqdm import tqdm

from cflkit import rng
from cflkit.checks import Checked, Count, Fraction, Natural, Some, declared, enough_memory, plain, require
from cflkit.data.federation import Federation, Samples
from cflkit.engine import fast, metrics, trial
from cflkit.engine.checkpoint import Checkpoint, checksum, fingerprint
from cflkit.engine.clients import Pixels
from cflkit.engine.courier import Courier
from cflkit.engine.evaluation import Scorer, Scoring, Served, serve
from cflkit.engine.history import History
from cflkit.engine.local import Site
from cflkit.engine.memory import Memory
from cflkit.engine.network import Network, Task
from cflkit.engine.rows import Mixed, Pick
from cflkit.engine.sgd import SGD
from cflkit.models import Model, build

DTYPES = {"float32": torch.float32, "float64": torch.float64}
MOST_ROUNDS = 1_000_000  # all of them are drawn before the first
WHOLE = (torch.int64, torch.int32, torch.uint8)  # numbers of clusters
CPU_CHUNK = 32  # clients trained and held together on a CPU


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
    declared("participation", participation, Fraction)
    require(rounds <= MOST_ROUNDS, "rounds", rounds, f"at most {MOST_ROUNDS}")
    if arrival is not None:
        whole = arrival.dim() == 1 and not (arrival.is_floating_point() or arrival.dtype == torch.bool)
        require(whole, "arrival", f"{arrival.dtype} of shape {tuple(arrival.shape)}", "integers (N,), one a client")
        require(len(arrival) == clients, "len(arrival)", len(arrival), f"the number of clients, {clients}")
        require(int(arrival.min()) == 1, "min(arrival)", int(arrival.min()), "1, so that round 1 has a client")
    drawn = []
    for t in range(1, rounds + 1):
        available = torch.arange(clients) if arrival is None else torch.nonzero(arrival <= t).flatten()
        m = max(1, round(participation * len(available)))
        chosen = rng.generator(seed, t, "sampling").choice(len(available), size=m, replace=False)
        drawn.append(available[torch.from_numpy(chosen).sort().values])
    return drawn


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Record derivatives and cast nothing, whatever PyTorch does for the code that calls."""
    plainly = [torch.autocast(device, enabled=False) for device in ("cpu", "cuda")]
    with torch.inference_mode(False), torch.enable_grad(), plainly[0], plainly[1]:
        yield


@dataclass(eq=False, repr=False)
class Simulation(Checked):
    """A method, a federation and everything between them.

    Parameters
    ----------
    method : Method
        The algorithm with its hyper-parameters.
    federation : Federation
        The clients' data and the test sets.
    model : str or callable
        A name of :func:`cflkit.models.networks.names`, or a function that returns a new module at each call. Such a
        network is tried first (:mod:`cflkit.engine.trial`): what is not trained as PyTorch trains it is refused.
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
    trainer : {"auto", "lean", "stacked", "fused", "shared", "compiled"}
        How clients are trained (see :class:`cflkit.engine.local.Local`); all give the same up to rounding. On a GPU
        auto is stacked.
    chunk : int, optional
        Clients trained and held together. Bounds memory and changes no result. If None, 32, and on a GPU as many as
        fit (:func:`fitting`).
    workers : int, optional
        How many chunks are trained side by side; changes no bit of a result. Without an executor, as many threads
        are started, 1 if None; with one, say how many tasks it does at once. Networks that draw random numbers as
        they train (dropout) do so from PyTorch's one generator, and train in one thread whatever is asked for.
    executor : concurrent.futures.Executor, optional
        Whose workers train chunks: a pool of threads or processes, a Dask cluster's
        (:func:`cflkit.engine.courier.dask`). Each worker receives the training data once, and a model once a round.
        What clients keep travels with them, so that a worker may die. Scoring, and what passes through clients one
        after another (``net.chain``), stay in this process.
    evaluate_every : int
        Score every so many rounds (and the first and the last).
    personal_clients : int
        How many clients' personal models are scored, a fixed sample; 0 for none, and never more than there are.
    personal_every : int, optional
        Score those every so many rounds; only after the last round if None.
    finetune : int
        Steps that each client trains the model that serves it, on its own images, before it is scored; 0 for none.
        FedAvg with it is "FedAvg + fine-tuning". What is learnt does not change.
    arrival : Tensor (N,) of int64, optional
        First round in which each client exists; all from the start if None. Whoever comes after the last round
        never trains, and is scored apart (``unseen_accuracy`` and so on).
    start : History, optional
        Where another run of the method has ended, on data that were older: this one goes on from its server and
        what clients keep, and its data are known if this process ran it. `rounds` counts its rounds, too.
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
        For an argument that is not allowed, or a checkpoint of another run; one line, before any work.
    """

    method: Any
    federation: Federation
    _: KW_ONLY
    model: str | Callable
    local: SGD
    rounds: Natural
    participation: Fraction = 1.0
    seed: Natural = 0
    dtype: Literal["float32", "float64"] = "float64"
    device: str | torch.device = "cpu"
    trainer: Literal["auto", "lean", "stacked", "fused", "shared", "compiled"] = "auto"
    chunk: Count | None = None
    workers: Count | None = None
    executor: Executor | None = None
    evaluate_every: Count = 1
    personal_clients: Natural = 100
    personal_every: Count | None = None
    finetune: Natural = 0
    arrival: Tensor | None = None
    start: History | None = None
    checkpoint: str | Path | None = None
    checkpoint_every: Count = 1
    progress: bool = True
    debug: bool = False

    @_undisturbed()
    def __post_init__(self):
        super().__post_init__()
        method, federation = self.method, self.federation
        usual = str(torch.get_default_device())
        require(usual == "cpu", "torch's default device", usual, "cpu; device= says where models are trained")
        require(not _has_any_global_hook(), "hooks on every module", True, "none, as fast paths call no modules")
        if self.checkpoint is not None:
            line = "a folder, such as 'kept', or None"
            require(str(self.checkpoint) != "", "checkpoint", self.checkpoint, line)
            with trial.quoting("checkpoint", self.checkpoint, line), contextlib.suppress(FileNotFoundError):
                os.listdir(Path(self.checkpoint).expanduser())
        ready = callable(getattr(method, "round", None)) and isinstance(getattr(method, "name", None), str)
        ready = ready and not isinstance(method, type)
        require(ready, "method", method, "a method with its hyper-parameters, such as FedAvg()")
        told = self.executor is None or self.workers is not None
        require(told, "workers", None, "how many tasks the executor does at once")
        forked = isinstance(self.executor, ProcessPoolExecutor) and _starts_by_forking(self.executor)
        line = "cpu with an executor that forks: use one with multiprocessing.get_context('spawn')"
        require(not forked or str(self.device).startswith("cpu"), "device", str(self.device), line)
        shut = any(getattr(self.executor, flag, None) is True for flag in ("_shutdown", "_shutdown_thread"))
        require(not shut, "executor", self.executor, "open; this one was shut down")
        self.schedule = schedule(federation.clients, self.participation, self.rounds, self.seed, self.arrival)
        given, self.model = self.model, self._build()
        self._resolve()
        self._try(isinstance(given, str))
        waves = torch.arange(2 * math.prod(federation.shape), dtype=torch.float64).sin().view(2, *federation.shape)
        # a network of the user's may know pixels alone, as an embedding does
        self._network = fingerprint(self.model, waves if isinstance(given, str) else self._few(self.model, 2))
        self.task = Task(
            self.model, federation.clients, federation.train.sizes, federation.classes, federation.shape, self.seed,
            self.local, federation.train.domains,
        )  # fmt: skip
        method.check(self.task)
        done = len(self.start.rounds) - 1 if self.start else 0
        require(done <= self.rounds, "rounds", self.rounds, f"at least the {done} of the run that it goes on from")
        own = self.finetune and not self._plain
        require(not own, "finetune", self.finetune, f"0 for {method.name}, which predicts by more than a network")
        self.scorer, self.scoring = self._scoring()
        self.config = self._config(given)
        try:
            json.dumps(self.config, allow_nan=False, sort_keys=True)
        except (TypeError, ValueError) as error:
            line = f"what JSON can hold; {error}"
            require(False, f"{method.name}.config", self.config["method"], line)

    def _build(self) -> Model:
        """Make the architecture where the run is to be, and see that it fits images and labels."""
        check_device(self.device)
        if str(self.device).startswith("cuda"):  # single precision is to be single in convolutions, too
            torch.backends.cudnn.allow_tf32 = False
        shape, classes = self.federation.shape, self.federation.classes
        place = {"dtype": DTYPES[self.dtype], "device": str(self.device), "quicken": fast.quick, "look": fast.look}
        if isinstance(self.model, str):
            return Model(partial(build, self.model, shape, classes), **place)
        made = trial.built(self.model, partial(Model, **place))
        trial.fits(made, self._few(made, 2), classes)
        return made

    def _few(self, model: Model, n: int) -> Tensor:
        """The first `n` training images as a model sees them; the same again where there are fewer."""
        train = self.federation.train
        return Pixels(self.federation, model)(train.pool[train.index[torch.arange(n) % len(train.index)]])

    def _try(self, ours: bool) -> None:
        """See that the network is trained as PyTorch trains it; `ours` are known to be, but for batches of one."""
        data, model = self.federation.train, self.model
        if not ours:
            pixels = Pixels(self.federation, model)
            trial.trains(model, data, pixels, self.federation.classes, self.local, self.trainers, self.trainer)
        if not ours or any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.module.modules()):
            trial.need_pairs(model, self._few(model, 1), data.sizes, self.local)

    def _resolve(self) -> None:
        """Settle what is left to the machine: who trains, in chunks of how many, on how many threads."""
        gpu = self.model.device.type == "cuda"
        self.trainer = "stacked" if gpu and self.trainer == "auto" else self.trainer
        # free memory is never the same twice: a chunk that follows from it is no part of the configuration
        self._chunk_in_config = self.chunk or (None if gpu else CPU_CHUNK)
        self.chunk = self._chunk_in_config or self._fitting()
        threads = self.executor is None or isinstance(self.executor, ThreadPoolExecutor)
        if self.debug or (self.model.draws and threads):
            self.executor = self.workers = None
        self.workers = self.workers or 1
        self.trainers = fast.trainers(self.trainer, self.debug)

    def _fitting(self) -> int:
        """As many clients as the GPU has room for, the largest of them with its images and a batch at work."""
        steps = self.held or (self.federation.train,)  # a method may train on all so far
        largest = sum(int(samples.sizes.max()) for samples in steps)
        batch = min(self.local.batch_size or largest, largest)
        images = largest * math.prod(self.federation.shape)  # all are padded to as many
        return fitting(self.model, batch * fast.passing(self.model, self.federation.shape) + images)

    def _scoring(self) -> tuple[Scorer, Scoring]:
        """Who is scored: all that take part, those that come after the last round apart, and a fixed sample."""
        n, late = self.federation.clients, torch.zeros(self.federation.clients, dtype=torch.bool)
        if self.arrival is not None:
            late = self.arrival > max(self.rounds, 1)
        seen, unseen = torch.arange(n)[~late], torch.arange(n)[late]
        sample = rng.generator(self.seed, "personal").permutation(seen.numpy())[: self.personal_clients]
        scorer = Scorer(self.federation, self.model, self.method.predict, self.method.told)
        return scorer, Scoring(
            self.method, scorer, {"": seen, "unseen_": unseen}, torch.from_numpy(sample).sort().values,
            self.evaluate_every, self.personal_every, self.rounds, self.finetune,
        )  # fmt: skip

    def _config(self, model: str | Callable) -> dict:
        """What the run is, JSON-able: what a record and a checkpoint say of it."""
        named = isinstance(model, str)
        kind = model if hasattr(model, "__qualname__") else type(model)
        config = {
            "method": self.method.config(),
            "federation": {**self.federation.config, "digest": digest(self.federation)},
            "model": model if named else f"{kind.__module__}.{kind.__qualname__}",
            "local": asdict(self.local),
            "rounds": self.rounds,
            "participation": self.participation,
            "seed": self.seed,
            "dtype": self.dtype,
            "device": self.model.device.type,
            "trainer": self.trainer,
            "chunk": self._chunk_in_config,
            "evaluate_every": self.evaluate_every,
            "personal": [self.personal_clients, self.personal_every],
            "arrival": None if self.arrival is None else self.arrival.tolist(),
        }
        if self.start is not None:
            config["start"] = checksum([self.start.server, self.start.memory.state()])
        if self.finetune:  # what was hashed before there was such a thing keeps its name
            config["finetune"] = self.finetune
        return config if named else config | {"network": self._network["layers"]}

    # ------------------------------------------------------------------ the loop
    def run(self, after: Callable[[History], object] | None = None) -> History:
        """Run all rounds that are not in the checkpoint yet.

        Parameters
        ----------
        after : callable, optional
            Called after each round, once its checkpoint is written. What it raises ends the run, which goes on from
            there another time.

        Raises
        ------
        BusyError
            If another process is at work on the checkpoint.
        """
        with _undisturbed(), enough_memory(f"{self.method.name} with a chunk of {self.chunk}"):
            return self._resumed(after)

    def _resumed(self, after: Callable[[History], object] | None) -> History:
        if self.checkpoint is None:
            return self._run(None, after)
        config = self.config | {"images": contents(self.federation)}
        kept = Checkpoint(Path(self.checkpoint).expanduser(), config, self._network, self.model.device)
        with kept.lock():
            return self._run(kept, after)

    def _run(self, kept: Checkpoint | None, after: Callable[[History], object] | None) -> History:
        history = (kept and kept.load()) or (self._start(kept) if self.start is None else self._go_on(kept))
        history.run = self
        # once is for good, also for a run that goes on
        self.scorer.diverged = any(row.get("diverged") for row in history.rounds)
        done = len(history.rounds) - 1
        bar = tqdm(total=self.rounds, initial=done, desc=self.method.name, unit="round", disable=not self.progress)
        with bar:
            for t in range(done + 1, self.rounds + 1):
                began = time.perf_counter()
                net = self.network(t, history.memory, self._present(t))
                history.server = self._state("round", self.method.round(history.server, self.schedule[t - 1], net))
                history.rounds.append(self._row(t, net, history))
                history.seconds.append(time.perf_counter() - began)
                if kept and (t % self.checkpoint_every == 0 or t == self.rounds):
                    kept.save(history)
                bar.set_postfix({k: round(v, 4) for k, v in history.final.items() if k == "accuracy"})
                bar.update()
                if after:
                    after(history)
        return history

    def _start(self, kept: Checkpoint | None = None) -> History:
        began = time.perf_counter()
        history = History(memory=kept.memory() if kept else Memory())
        net = self.network(0, history.memory, self._present(1))  # who is there in round 1 was there before it
        history.server = self._state("start", self.method.start(net))
        history.rounds.append(self._row(0, net, history))
        history.seconds.append(time.perf_counter() - began)
        if kept:
            kept.save(history)
        return history

    def _go_on(self, kept: Checkpoint | None) -> History:
        """Take over where another run has ended, and leave it as it was."""
        before, memory = self.start, kept.memory() if kept else Memory()
        for name, rows in before.memory.state().items():
            for client in rows:
                memory.put(name, client, before.memory.get(name, client), len(before.rounds) - 1)
        rounds, seconds, groups = map(list, (before.rounds, before.seconds, before.groups))
        history = History(rounds, seconds, groups, before.server, memory)
        if kept:
            kept.save(history)
        return history

    def _present(self, round: int) -> Tensor | None:
        """Who may be reached in a round; None for everybody."""
        return None if self.arrival is None else torch.nonzero(self.arrival <= round).flatten()

    def network(self, round: int, memory: Memory, present: Tensor | None = None) -> Network:
        """The clients as the server reaches them in `round`; for joins and experiments after training too."""
        local, chunk = self.site.local(round), 1 if self.debug else self.chunk
        reach = self.site.data, self.workers, self.courier or self.executor
        held = [samples.sizes for samples in self.held]
        return Network(self.task, memory, local, chunk, *reach, present, held)

    def evaluate(self, server: dict, memory: Memory, clients: Tensor | None = None) -> dict[str, float]:
        """Score the models that serve `clients`; all that take part, and the others apart, if None."""
        groups = self.scoring.groups if clients is None else {"": clients}
        return self.scoring.served(server, lambda round: self.network(round, memory), groups)

    def accuracies(self, history: History) -> dict[str, list[float]]:
        """Accuracy of each client when it was last scored, by client; NaN for those that were not.

        As ``accuracy`` of the model that serves it (``unseen_accuracy`` where it never trains) and as
        ``personal_accuracy`` of the one that it keeps, where the method has such.
        """
        if not self.scoring.of_clients:  # all rounds came from a checkpoint
            self.scoring(self.rounds, history.server, lambda round: self.network(round, history.memory))
        each = {}
        for name, (clients, values) in self.scoring.of_clients.items():
            everybody = torch.full((self.federation.clients,), torch.nan, dtype=torch.float64)
            everybody[clients] = torch.from_numpy(values)
            each[name] = everybody.tolist()
        return each

    def models(self, history: History, clients: Tensor | None = None, personal: bool = False) -> list[nn.Module]:
        """What :meth:`.History.models` gives."""
        found = self.table(history, clients, personal)
        usual = self._plain and isinstance(found, Pick)
        require(usual, "method", self.method.name, "one that predicts by a network alone; this one does more")
        made = {k: self.model.bound(found.table[k].clone()).eval() for k in set(found.index.tolist())}
        return [made[k] for k in found.index.tolist()]

    def table(self, history: History, clients: Tensor | None = None, personal: bool = False) -> Pick | Mixed:
        """The vectors behind :meth:`models`, however the method predicts with them."""
        found = self._vectors(history, clients, personal)
        return found if isinstance(found, Pick | Mixed) else Pick(found[:], torch.arange(len(found)))

    @property
    def _plain(self) -> bool:
        """Whether a model is all that the method predicts with."""
        return type(self.method).predict.__qualname__ == "Method.predict"  # which is above this floor

    def confusions(self, history: History, clients: Tensor | None = None, personal: bool = False) -> np.ndarray:
        """What :meth:`.History.confusions` gives."""
        clients = torch.arange(self.federation.clients) if clients is None else clients
        return self.scorer.confusions(self._vectors(history, clients, personal), clients)

    def _vectors(self, history: History, clients: Tensor | None, personal: bool) -> Served:
        """The vectors that serve clients at the end, or that they keep."""
        clients = torch.arange(self.federation.clients) if clients is None else clients
        net = self.network(self.rounds + 1, history.memory)  # as for scores
        what = "personal models" if personal else "served models"
        if personal:
            found = self.method.personal(history.server, clients, net)
        else:
            found = serve(self.method, history.server, clients, net, self.finetune)
        require(found is not None, "method", self.method.name, f"one that has {what}")
        return found

    @cached_property
    def site(self) -> Site:
        """What it takes to play any client."""
        data = self.federation.train, Pixels(self.federation, self.model), self.federation.classes
        return Site(self.model, *data, self.local, self.seed, self.trainers, self.held[:-1])

    @property
    def held(self) -> tuple[Samples, ...]:
        """What clients hold in each time step so far; nothing where another process ran the earlier ones."""
        now = self.federation.train
        if self.start is None:
            return (now,)
        earlier = self.start.run.held if self.start.run else ()
        return earlier if not earlier or earlier[-1] is now else (*earlier, now)

    @cached_property
    def courier(self) -> Courier | None:
        """What takes chunks to workers that share no memory with this process, and counts the bytes; or None."""
        near = self.executor is None or isinstance(self.executor, ThreadPoolExecutor)
        return None if near else Courier(self.executor, self.workers, self.site)

    def _state(self, part: str, server: dict) -> dict:
        """What a part of the method has returned, if it can be the server's state."""
        require(isinstance(server, dict), f"{self.method.name}.{part}", server, "a dict, the server's new state")
        return server

    def _row(self, t: int, net: Network, history: History) -> dict:
        """Measure one round: traffic always, clusters where the method has any (kept, too), scores when due."""
        row = {"round": t, "down": net.down, "up": net.up}
        server, truth, n = history.server, self.federation.cluster, self.federation.clients
        after = self.method.assignment(server)
        if after is not None:
            ok = isinstance(after, Tensor) and after.shape == (n,) and after.dtype in WHOLE
            ok = ok and int(after.min()) >= -1
            require(ok, f"{self.method.name}.assignment", after, f"integers ({n},), the cluster of each client")
            row["sizes"] = metrics.cluster_sizes(after)
            row["clusters"] = len(row["sizes"])
            after = after.to(torch.int64, copy=True)  # a method may change its own in place
            before = history.groups[-1] if history.groups else None
            row["moved"] = 0 if before is None else metrics.moved(before, after)
            if truth is not None:
                row["ari"], row["nmi"] = metrics.ari(after, truth), metrics.nmi(after, truth)
        history.groups.append(after)
        own = self._own_numbers(server)
        scores = self.scoring(t, server, lambda round: self.network(round, history.memory))
        taken = sorted(own.keys() & (row | scores).keys())
        require(not taken, f"{self.method.name}.log", taken, "names of its own, not those of what is measured")
        return row | own | scores

    def _own_numbers(self, server: dict) -> dict:
        """What the method logs, as a history can keep it."""
        own, who = self.method.log(server), f"{self.method.name}.log"
        require(isinstance(own, dict), who, own, "a dict of numbers, by name")
        require(all(isinstance(name, str) for name in own), who, [*own], "a dict of numbers, by name")
        own = {name: plain(value) for name, value in own.items()}
        for name, value in own.items():
            every = value if isinstance(value, list) else [value]
            kept = all(isinstance(one, bool | int | float | str) for one in every)
            require(kept, f"{who}: {name}", value, "a number or a text, or a list of such")
        return own


def _starts_by_forking(executor: ProcessPoolExecutor) -> bool:
    """Whether its workers are copies of this process, in which a GPU that was in use here cannot be used."""
    return executor._mp_context.get_start_method() == "fork"


def simulate(method, federation: Federation | Sequence[Federation], *, rounds: int, **settings) -> History:
    """Run a method over a federation, or over one that changes.

    Parameters
    ----------
    method : Method or callable
        The algorithm; for a federation that changes, also what makes it of each time step's federation
        (``OracleClusters.of``).
    federation : Federation or sequence of Federation
        The data; or those of each time step (:func:`cflkit.data.changes.time_steps`), for the same clients.
        Server and clients keep from one time step to the next what the method lets them keep.
    rounds : int
        Communication rounds; of each time step, where there are several.
    **settings
        As for :class:`Simulation`. Each time step has its own folder in ``checkpoint``.

    Returns
    -------
    History
        Of all rounds; scores of a round are those on the data of its time step.
    """
    if isinstance(federation, Federation):
        return Simulation(method, federation, rounds=rounds, **settings).run()
    declared("federation", federation, Some[Federation])
    sizes = [(step.clients, step.classes, step.shape) for step in federation]
    require(len(set(sizes)) == 1, "clients, classes and shape of each time step", sizes, "the same")
    declared("rounds", rounds := plain(rounds), Natural)
    history, folder = None, settings.pop("checkpoint", None)
    declared("checkpoint", folder, str | Path | None)
    for t, now in enumerate(federation, 1):
        own = {"rounds": t * rounds, "start": history, "checkpoint": folder and Path(folder) / str(t)}
        history = Simulation(method if hasattr(method, "round") else method(now), now, **settings, **own).run()
    return history


def check_device(device: str | torch.device) -> None:
    """Require that a device is here.

    Parameters
    ----------
    device : str or torch.device
        The CPU, or a GPU by its number.

    Raises
    ------
    ValueError
        PyTorch sees no such device.
    """
    gpus, name = torch.cuda.device_count(), re.fullmatch(r"(cpu|cuda)(?::([0-9]{1,3}))?", str(device))
    ok = name is not None and int(name[2] or 0) < (1 if name[1] == "cpu" else gpus)
    require(ok, "device", str(device), f"cpu, or cuda where PyTorch sees a GPU (here {gpus})")


def fitting(model: Model, passing: int) -> int:
    """Clients to train side by side on a GPU, a power of two up to 1024.

    Half of the free memory is theirs; what PyTorch holds in reserve is free. Each takes its weights, gradient,
    momentum, an anchor and a result, twice to be safe; and three times the numbers (`passing`) that its images have
    and its batch needs in the network.
    """
    free, _ = torch.cuda.mem_get_info(model.device)
    free += torch.cuda.memory_reserved(model.device) - torch.cuda.memory_allocated(model.device)
    most = free // (2 * (10 * model.size + 3 * passing) * model.dtype.itemsize)
    return 2 ** min(10, max(0, most.bit_length() - 1))


def digest(federation: Federation) -> str:
    """Short fingerprint of who holds what, for records; :func:`contents` looks at each pixel."""
    total = hashlib.blake2b(digest_size=8)
    for part in (federation.train, federation.test):
        for tensor in (part.index, part.y, part.offset, part.pool.sum()):
            total.update(tensor.numpy().tobytes())
    return total.hexdigest()


def contents(federation: Federation) -> str:
    """Fingerprint of all that clients hold and are tested on: a checkpoint of other data is refused."""
    total = hashlib.blake2b(digest_size=8)
    parts = [federation.train, federation.test]
    tensors = [tensor for part in parts for tensor in (part.index, part.y, part.offset, part.tag, part.pool)]
    for tensor in (*tensors, federation.test_of, federation.cluster):
        total.update(b"none" if tensor is None else tensor.contiguous().numpy())
    return total.hexdigest()
