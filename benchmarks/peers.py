"""One round of FedAvg by cflkit, beside the same round by other libraries: ``python -m benchmarks.peers``.

The peers are FedLab, pfl (Apple's pfl-research) and FedJAX, each used as its own tutorials use it, and plain JAX,
whose ``vmap`` trains all clients in one compiled function. Flower has no row: its simulation imports Ray's backend
and no other (1.42.0, ``flwr/server/superlink/fleet/vce/vce_api.py:351``), and Ray starts servers of its own.

All begin from the same weights and see the same images in the same batches: each gets the images in the order in
which our engine draws them, and does not shuffle. So the first round must end with the same loss, or the peer is
left out. It is not timed, because FedJAX compiles and pfl evaluates in it; later rounds train on from there.

The book needs none of them; they have an environment of their own, with Python 3.11 and a torch that need not know
CUDA. FedLab asks that some torchvision can be imported: an old one can, beside any torch. FedJAX needs a JAX that
still has ``jax.tree_map``. ::

    python3.11 -m venv ../peers
    ../peers/bin/pip install torch==2.13.0 numpy==2.4.6 pandas==3.1.1 scipy==1.17.1 scikit-learn==1.9.1 \
        PyYAML==6.0.3 tqdm==4.70.1 pillow==13.0.0
    ../peers/bin/pip install --no-deps fedlab==1.3.0 pfl==0.6.0 fedjax==0.0.17 torchvision==0.15.2 \
        dp-accounting==0.5.0 prv-accountant==0.2.0
    ../peers/bin/pip install munch==4.0.0 pynvml==13.0.1 requests==2.34.2 multiprocess==0.70.19 packaging==25.0 \
        attrs==25.3.0 jax==0.5.3 jaxlib==0.5.3 dm-haiku==0.0.14 optax==0.2.4 msgpack==1.2.4 llvmlite==0.50.0
    ../peers/bin/python -m benchmarks.peers
"""

import copy
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import engine, measure
from benchmarks.engine import Round
from cflkit import rng
from cflkit.engine.sgd import SGD

NAMES = ("A, n = 50", "B, LeNet-5", "C, batch 10", "D, LeNet-5 in colour")
WORKLOADS = tuple(work for work in engine.WORKLOADS if work.name in NAMES)
TOLERANCE = 0.01  # of what the round takes off the loss

Clients = list[tuple[Tensor, Tensor]]  # images (n, C, H, W) and labels (n,)


class FedLab:
    """A server handler and a serial trainer in the standalone pipeline."""

    def __init__(self, module: nn.Module, clients: Clients, local: SGD):
        from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
        from fedlab.contrib.dataset.basic_dataset import BaseDataset, FedDataset
        from fedlab.core.standalone import StandalonePipeline
        from torch.utils.data import DataLoader

        class Images(FedDataset):
            def get_dataloader(self, id, batch_size, type="train"):
                return DataLoader(BaseDataset(*clients[id]), batch_size)

        class Pipeline(StandalonePipeline):
            def evaluate(self):
                """Nothing: only training is timed."""

        self.handler = FedAvgServerHandler(module, global_round=0, sample_ratio=1.0)
        self.logits = self.handler.model
        trainer = FedAvgSerialClientTrainer(module, len(clients))
        trainer.setup_dataset(Images())
        trainer.setup_optim(local.epochs, local.batch_size, local.lr)
        self.pipeline = Pipeline(self.handler, trainer)

    def round(self) -> None:
        """Train one round."""
        self.handler.global_round += 1
        self.pipeline.main()


class Pfl:
    """Federated averaging on the simulated backend, which is told to evaluate as seldom as it can."""

    def __init__(self, module: nn.Module, clients: Clients, local: SGD):
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.algorithm.base import NNAlgorithmParams
        from pfl.algorithm.federated_averaging import FederatedAveraging
        from pfl.data.federated_dataset import FederatedDataset
        from pfl.data.pytorch import PyTorchTensorDataset
        from pfl.data.sampling import get_user_sampler
        from pfl.hyperparam import NNTrainHyperParams
        from pfl.metrics import Weighted
        from pfl.model.pytorch import PyTorchModel

        class Learner(nn.Sequential):
            def loss(self, x, y):
                return F.cross_entropy(self(x), y)

            def metrics(self, x, y):
                return {"loss": Weighted(len(y) * self.loss(x, y).item(), len(y))}

        self.logits = learner = Learner(module)
        users = [PyTorchTensorDataset(pair) for pair in clients]
        data = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", range(len(users))))
        self.model = PyTorchModel(learner, torch.optim.SGD, torch.optim.SGD(learner.parameters(), lr=1.0))
        self.backend, self.algorithm = SimulatedBackend(training_data=data, val_data=None), FederatedAveraging()
        self.train = NNTrainHyperParams(
            local_num_epochs=local.epochs, local_learning_rate=local.lr, local_batch_size=local.batch_size
        )
        self.params = NNAlgorithmParams(
            central_num_iterations=0, evaluation_frequency=2**31, train_cohort_size=len(users), val_cohort_size=0
        )

    def round(self) -> None:
        """Train one round."""
        self.params = replace(self.params, central_num_iterations=self.params.central_num_iterations + 1)
        self.algorithm.run(self.params, self.backend, self.model, self.train, send_metrics_to_platform=False)


class FedJax:
    """Federated averaging of a Haiku model with the same layers; Haiku has channels and a kernel's outputs last."""

    def __init__(self, module: nn.Module, clients: Clients, local: SGD):
        import fedjax
        import haiku as hk
        import jax
        from fedjax.algorithms import fed_avg

        layers = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]

        def forward(batch):
            x = batch["x"]
            for k, layer in enumerate(layers):
                if isinstance(layer, nn.Conv2d):
                    pad = [(p, p) for p in layer.padding]
                    x = hk.Conv2D(layer.out_channels, layer.kernel_size, padding=pad, name=f"layer{k}")(x)
                    x = hk.max_pool(jax.nn.relu(x), (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
                else:
                    x = hk.Linear(layer.out_features, name=f"layer{k}")(hk.Flatten()(x))
                    x = x if layer is layers[-1] else jax.nn.relu(x)
            return x

        def losses(batch, logits):
            return fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits)

        weights, channels = {}, clients[0][0].shape[1]
        for k, layer in enumerate(layers):
            kernel, outputs = layer.weight.detach(), len(layer.weight)
            if isinstance(layer, nn.Conv2d):
                kernel, channels = kernel.permute(2, 3, 1, 0), outputs
            else:
                kernel, channels = kernel.view(outputs, channels, -1).permute(2, 1, 0).reshape(-1, outputs), 1
            weights[f"layer{k}"] = {"w": kernel, "b": layer.bias.detach()}
        data = [{"x": self.last(x), "y": y.numpy()} for x, y in clients]
        self.model = fedjax.create_model_from_haiku(hk.transform(forward), data[0], losses)
        batches = fedjax.ShuffleRepeatBatchHParams(local.batch_size, num_epochs=local.epochs, skip_shuffle=True)
        client, server = fedjax.optimizers.sgd(local.lr), fedjax.optimizers.sgd(1.0)
        self.algorithm = fed_avg.federated_averaging(fedjax.model_grad(self.model), client, server, batches)
        self.state = self.algorithm.init(jax.tree_util.tree_map(jax.numpy.array, weights))
        keys = jax.random.split(jax.random.PRNGKey(0), len(data))
        self.clients = [(k, fedjax.ClientDataset(images), keys[k]) for k, images in enumerate(data)]
        self.wait = jax.block_until_ready

    def round(self) -> None:
        """Train one round, and wait until it has finished."""
        self.state, _ = self.algorithm.apply(self.state, self.clients)
        self.wait(self.state.params)

    def logits(self, x: Tensor) -> Tensor:
        """Logits by the server's model."""
        return torch.tensor(np.asarray(self.model.apply_for_eval(self.state.params, {"x": self.last(x)})))

    @staticmethod
    def last(x: Tensor) -> np.ndarray:
        """Images with their channels last."""
        return x.permute(0, 2, 3, 1).numpy().copy()


class Vmap:
    """Plain JAX: ``scan`` takes a client's steps, ``vmap`` does so for all clients, ``jit`` compiles the round."""

    def __init__(self, module: nn.Module, clients: Clients, local: SGD):
        import jax
        from jax import lax
        from jax import nn as jnn
        from jax import numpy as jnp

        layers = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]

        def logits(weights, x):
            for layer, (kernel, bias) in zip(layers, weights, strict=True):
                if isinstance(layer, nn.Conv2d):
                    x = lax.conv_general_dilated(x, kernel, (1, 1), [(p, p) for p in layer.padding])
                    x = jnn.relu(x + bias[:, None, None])
                    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
                else:
                    x = x.reshape(len(x), -1) @ kernel.T + bias
                    x = x if layer is layers[-1] else jnn.relu(x)
            return x

        def loss(weights, x, y):
            return -jnp.take_along_axis(jnn.log_softmax(logits(weights, x)), y[:, None], 1).mean()

        def step(weights, batch):
            slope = jax.grad(loss)(weights, *batch)
            return jax.tree_util.tree_map(lambda w, g: w - local.lr * g, weights, slope), None

        def client(weights, *batches):
            return lax.scan(lambda w, _: (lax.scan(step, w, batches)[0], None), weights, length=local.epochs)[0]

        def server(weights, *batches):
            models = jax.vmap(client, (None, 0, 0))(weights, *batches)
            return jax.tree_util.tree_map(lambda w: w.mean(0), models)  # every client has as many images

        each = len(clients[0][1]) // local.batch_size
        assert each * local.batch_size == len(clients[0][1]), "scan wants batches of one size"
        self.batches = [
            jnp.array(torch.stack(part).numpy()).reshape(len(clients), each, local.batch_size, *part[0].shape[1:])
            for part in zip(*clients, strict=True)
        ]
        self.weights = [(jnp.array(a.weight.detach().numpy()), jnp.array(a.bias.detach().numpy())) for a in layers]
        self.server, self.wait = jax.jit(server), jax.block_until_ready
        self.logits = lambda x: torch.tensor(np.asarray(logits(self.weights, jnp.array(x.numpy()))))

    def round(self) -> None:
        """Train one round, and wait until it has finished."""
        self.weights = self.wait(self.server(self.weights, *self.batches))


PEERS = {"fedlab": FedLab, "pfl": Pfl, "fedjax": FedJax, "jax": Vmap}


def compare(both: Round, make: Callable) -> dict:
    """Hold a peer's first round against ours, then time both: CPU seconds, their ratio, the difference of losses.

    Parameters
    ----------
    both : Round
        The work, with the side of the usual loop, whose module and images the peer is given.
    make : callable
        ``(module, clients, local)`` to an object with ``round()`` and ``logits(images)``.

    Raises
    ------
    ValueError
        If the losses differ by more than a small part of what the round takes off.
    """
    local, n, clients = both.work.local, both.work.images, []
    for client, images in enumerate(both.sets):
        drawn = local.batches(n, rng.generator(0, 1, client, "batches"))
        clients.append(images[np.concatenate(drawn)[:n]])
    peer = make(copy.deepcopy(both.modules[0]), clients, replace(local, batch_size=local.batch_size or n))
    peer.round()
    before, ours = (loss(partial(both.model.forward, vector), clients) for vector in (both.omega, both.ours()[0]))
    theirs = loss(peer.logits, clients)
    if not abs(theirs - ours) <= TOLERANCE * abs(before - ours):
        raise ValueError(f"{both.work.name}: from {before:.6f} the loss falls to {theirs:.6f}, ours to {ours:.6f}")
    found = measure.paired(both.ours, peer.round, both.work.repeats)
    return {"cpu": found["usual_cpu"], "ours": found["ours_cpu"], "ratio": found["ratio_cpu"],
            "difference": abs(theirs - ours)}  # fmt: skip


@torch.no_grad()
def loss(logits: Callable[[Tensor], Tensor], clients: Clients) -> float:
    """Mean loss over the images of all clients."""
    return float(torch.stack([F.cross_entropy(logits(x).double(), y) for x, y in clients]).mean())


def main(argv: list[str] | None = None) -> int:
    """Measure the peers that are installed, print the table, store it."""
    parser = measure.parser("peers", __doc__, "few clients, two pairs")
    parser.add_argument("only", nargs="*", help="workloads whose names start so; all if none is given")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    os.environ |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}
    rows, refused, missing = [], False, [name for name in PEERS if not find_spec(name)]
    for name in missing:
        print(f"{name}: not installed; see benchmarks/peers.py", file=sys.stderr)
    for work in WORKLOADS:
        if options.only and not work.name.startswith(tuple(options.only)):
            continue
        both = Round(engine.shrunk(work, 4, 2) if options.quick else work)
        for name in (name for name in PEERS if name not in missing):
            try:
                row = {"workload": work.name, "library": f"{name} {version(name)}"} | compare(both, PEERS[name])
            except ValueError as error:
                refused = True
                print(f"{name}, {error}", file=sys.stderr)
                continue
            rows.append(row)
            print(work.name, name, f"{row['ratio']:.2f}", file=sys.stderr, flush=True)
    if rows:
        print(measure.show(rows))
        if not options.quick and not options.only:
            print(measure.write("peers", measure.machine(), rows, options.json))
    return int(refused)


if __name__ == "__main__":
    sys.exit(main())
