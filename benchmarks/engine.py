"""One federated round by cflkit, beside the same round by the usual loop: ``python -m benchmarks.engine``.

The usual loop is what most libraries do for each client: copy the model, wrap the images in a ``DataLoader``, take
steps of ``torch.optim.SGD``. Both begin from the same weights, see the same batches and end, up to rounding, with
the same averaged models; the largest difference is measured with the times.
"""

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import measure
from cflkit import rng
from cflkit.data.federation import Federation, Samples
from cflkit.engine.clients import IMAGES_AT_ONCE
from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.methods import FedAvg, StoCFL
from cflkit.methods.graph_layers import DomainClassifier

LAM = 0.05  # StoCFL's pull towards the global model
CLUSTERS = 4


@dataclass(frozen=True)
class Workload:
    """One round of one kind.

    Attributes
    ----------
    name : str
        As in the tables.
    model : str or callable
        Of :mod:`cflkit.models`, or what makes one.
    shape : tuple of int
        Of an image.
    classes : int
        Number of labels.
    clients, images : int
        Clients in the round, and images of each.
    local : SGD
        How each trains.
    round : {"fedavg", "stocfl", "chained", "evaluation"}
        One model for all; StoCFL's two passes (cluster model with a pull, global model) with four clusters; one
        model handed from client to client; or no training, only one model's logits for all images.
    least, aim : float
        The ratio that must hold on one core, and the one hoped for.
    repeats : int
        Pairs measured.
    """

    name: str
    model: str | Callable[[], nn.Module]
    shape: tuple[int, int, int]
    classes: int
    clients: int
    images: int
    local: SGD
    round: str = "fedavg"
    least: float | None = None
    aim: float | None = None
    repeats: int = 7


def classifier() -> nn.Module:
    """FedCG's domain classifier, which its student trains; its images are not standardised here."""
    return DomainClassifier((1, 28, 28), 4, "local")


_A = Workload("A, n = 50", "mlp2048", (1, 28, 28), 10, 32, 50, SGD(0.1, epochs=5), least=5.4, aim=7)
_B = Workload("B, LeNet-5", "lenet", (1, 28, 28), 10, 8, 250, SGD(0.1, batch_size=50), least=5.5, aim=6.5)
_C = Workload("C, batch 10", "leaf_femnist", (1, 28, 28), 62, 10, 40, SGD(0.01, batch_size=10), least=3, aim=3.5)
_D = Workload("D, LeNet-5 in colour", "lenet", (3, 32, 32), 10, 8, 160, SGD(0.1, batch_size=32), least=4.5, aim=5.2)
WORKLOADS = (
    _A,
    replace(_A, name="A, n = 100", images=100, least=3.5, aim=4.5),
    replace(_A, name="A, n = 200", images=200, least=2.6, aim=3.2, repeats=5),
    replace(_A, name="A, n = 600", clients=8, images=600, least=None, aim=None, repeats=5),
    replace(_A, name="A2, two passes", round="stocfl", least=6.5, aim=8),
    replace(_A, name="A, chained", clients=480, round="chained", least=3, aim=5, repeats=3),
    _B,
    replace(_B, name="B, batch 32", images=256, local=SGD(0.1, batch_size=32), least=8, aim=9.5),
    replace(_B, name="digits' LeNet", shape=(1, 8, 8), images=256, local=SGD(0.1, batch_size=32), least=14, aim=19),
    _C,
    replace(_C, name="C, batch 20", local=SGD(0.01, batch_size=20), least=2.2, aim=2.5),
    _D,
    replace(_D, name="D, batch 50", images=250, local=SGD(0.1, batch_size=50)),
    replace(_B, name="evaluation, LeNet-5", round="evaluation", least=6, aim=8),
    Workload("F, classifier", classifier, (1, 28, 28), 4, 2, 300, SGD(0.01, batch_size=50), least=2, repeats=5),
    Workload("E, ResNet18", "resnet18", (3, 32, 32), 10, 2, 50, SGD(0.01, batch_size=50), least=0.97, repeats=3),
)


class Round:
    """A workload with its images and initial models: what both sides begin from; `usual` prepares that side too."""

    def __init__(self, work: Workload, dtype: str = "float32", device: str = "cpu", usual: bool = True):
        self.work = work
        n = work.clients * work.images
        g = torch.Generator().manual_seed(0)
        pool = torch.randint(256, (n, *work.shape), generator=g, dtype=torch.uint8)
        y = torch.randint(work.classes, (n,), generator=g)
        bounds = torch.arange(0, n + 1, work.images)
        test = Samples(pool[:1], torch.arange(1), y[:1], torch.tensor([0, 1]))
        fed = Federation(
            "random", Samples(pool, torch.arange(n), y, bounds), test, torch.zeros(work.clients, dtype=torch.int64),
            None, work.classes, 255.0, 0.0, 1.0, None, {},
        )  # fmt: skip
        chained = "chained" if work.round == "chained" else "parallel"
        two = work.round in ("stocfl", "chained")
        self.method = StoCFL(lam=LAM, global_update=chained) if two else FedAvg()
        self.simulation = Simulation(
            self.method, fed, model=work.model, local=work.local, rounds=1, dtype=dtype, device=device,
            progress=False,
        )  # fmt: skip
        self.model, self.clients = self.simulation.model, torch.arange(work.clients)
        inits = self.simulation.task.init(CLUSTERS if work.round == "stocfl" else 1)
        self.omega, self.theta = inits[0], inits
        self.group = self.clients % CLUSTERS
        if not usual:
            return
        self.modules = [self.model.bound(vector.clone()) for vector in inits]
        pixels = self.simulation.scorer.pixels
        self.sets = [TensorDataset(pixels(pool[a : a + work.images]).cpu(), y[a : a + work.images])
                     for a in bounds[:-1].tolist()]  # fmt: skip

    # ------------------------------------------------------------------ ours
    def ours(self) -> Tensor:
        """Train the round by the package; the new models, one a row."""
        if self.work.round == "evaluation":
            return self._evaluated()
        net = self.simulation.network(1, Memory())
        if self.work.round == "fedavg":
            return self.method.round({"model": self.omega}, self.clients, net)["model"][None]
        if self.work.round == "chained":
            mean = {"omega": self.simulation.task.sizes}
            up = net.chain(self.clients, self.method.client_omega, "omega", self.omega, mean=mean)
            return up["omega"].dense()
        trained = torch.zeros(len(self.clients), dtype=torch.bool)
        server = {"omega": self.omega, "theta": self.theta, "assign": self.group, "trained": trained}
        after = self.method.train(server, self.clients, net)
        return torch.cat([after["omega"][None], after["theta"]])

    @torch.no_grad()
    def _evaluated(self) -> Tensor:
        pool, pixels = self.simulation.federation.train.pool, self.simulation.scorer.pixels
        return torch.cat([self.model.forward(self.omega, pixels(piece)) for piece in pool.split(IMAGES_AT_ONCE)])

    # ------------------------------------------------------------------ the usual loop
    def usual(self) -> Tensor:
        """Train the round as libraries usually do; the new models, one a row."""
        if self.work.round == "evaluation":
            return self._evaluated_usually()
        omega, carried = self.modules[0], self.modules[0]
        pulled, sums = self.work.round == "stocfl", {}
        for client, group in enumerate(self.group.tolist()):
            if pulled:
                self._add(sums, 1 + group, self._train(self.modules[group], client, anchor=omega))
            trained = self._train(carried, client)
            self._add(sums, 0, trained)
            if self.work.round == "chained":
                carried = trained
        return torch.stack([torch.cat([(layers[name] / count).flatten() for name in self.model.shapes])
                            for _, (layers, count) in sorted(sums.items())])  # fmt: skip

    def _train(self, module: nn.Module, client: int, anchor: nn.Module | None = None) -> nn.Module:
        module, local = copy.deepcopy(module), self.work.local
        module.train()
        optimiser = torch.optim.SGD(module.parameters(), lr=local.lr)
        batches = local.batches(self.work.images, rng.generator(0, 1, client, "batches"))
        for x, y in DataLoader(self.sets[client], batch_sampler=batches):
            optimiser.zero_grad()
            loss = F.cross_entropy(module(x.to(self.model.device)), y.to(self.model.device))
            if anchor is not None:
                pairs = zip(module.parameters(), anchor.parameters(), strict=True)
                loss = loss + LAM / 2 * sum((w - a.detach()).square().sum() for w, a in pairs)
            loss.backward()
            optimiser.step()
        return module

    @torch.no_grad()
    def _evaluated_usually(self) -> Tensor:
        module = self.modules[0].eval()
        loader = DataLoader(ConcatDataset(self.sets), batch_size=self.work.local.batch_size)
        return torch.cat([module(x.to(self.model.device)) for x, _ in loader])

    @torch.no_grad()
    def _add(self, sums: dict, group: int, module: nn.Module) -> None:
        """Add a trained module to its group's sum, layer by layer as state dictionaries are averaged."""
        state = {name: t.detach() for name, t in (*module.named_parameters(), *module.named_buffers())}
        if group not in sums:
            sums[group] = ({name: t.clone() for name, t in state.items()}, 1)
            return
        layers, count = sums[group]
        for name, total in layers.items():
            total.add_(state[name])
        sums[group] = (layers, count + 1)

    def operations(self) -> int:
        """Floating-point operations of the usual loop's matrix products and convolutions in this round."""
        with FlopCounterMode(display=False) as counter:
            if self.work.round == "evaluation":
                self._evaluated_usually()
                return counter.get_total_flops()
            self._train(self.modules[0], 0)
        return counter.get_total_flops() * self.work.clients * (2 if self.work.round == "stocfl" else 1)


def run(work: Workload, ceiling: float, dtype: str = "float32", device: str = "cpu") -> dict:
    """Measure one workload: a row of the table."""
    both = Round(work, dtype, device)
    memory = {name: measure.peak(getattr(both, name), device) for name in ("ours", "usual")}
    difference = float((both.ours() - both.usual()).abs().max())
    found = measure.paired(both.ours, both.usual, work.repeats, device)
    clock = "cpu" if device == "cpu" else "wall"
    operations = both.operations()
    return {
        "workload": work.name, "clients": work.clients, **found,
        "least": work.least if device == "cpu" else None, "aim": work.aim if device == "cpu" else None,
        **{f"{name}_ceiling": operations / found[f"{name}_{clock}"] / ceiling for name in ("ours", "usual")},
        **{f"{name}_mb": round(value) for name, value in memory.items()},
        "difference": difference,
    }  # fmt: skip


def shrunk(work: Workload, clients: int, repeats: int) -> Workload:
    """The same with fewer clients and pairs."""
    return replace(work, clients=min(work.clients, clients), repeats=min(work.repeats, repeats))


def main(argv: list[str] | None = None) -> int:
    """Run what is asked for, print the table, store it."""
    parser = measure.parser("engine", __doc__, "few clients, two pairs")
    parser.add_argument("only", nargs="*", help="workloads whose names start so; all if none is given")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    ceiling = measure.ceiling(getattr(torch, options.dtype), options.device)
    chosen = [w for w in WORKLOADS if not options.only or w.name.startswith(tuple(options.only))]
    if options.quick:
        chosen = [shrunk(w, 4, 2) for w in chosen]
    rows = []
    for work in chosen:
        rows.append(run(work, ceiling, options.dtype, options.device))
        print(work.name, f"{rows[-1]['ratio_cpu']:.2f}", file=sys.stderr, flush=True)
    where = measure.machine(options.device) | {"dtype": options.dtype, "ceiling": ceiling}
    print(measure.show(rows))
    print(f"matrix products: {ceiling / 1e9:.0f} GFLOP/s; load {where['load']}")
    if not options.quick and not options.only:
        print(measure.write("engine", where, rows, options.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
