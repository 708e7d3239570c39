"""FedCG (Caldarola et al. 2021): domains per image, domain-specific residuals, and a graph between them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from cflkit import rng
from cflkit.checks import Count, Unit, Weight, require
from cflkit.engine import metrics
from cflkit.engine.clients import Data
from cflkit.engine.local import Local
from cflkit.engine.rows import Part
from cflkit.methods.base import Method, kmeans, one_for_all
from cflkit.methods.graph_layers import (
    DomainClassifier,
    GraphNetwork,
    adjacency,
    euclidean,
    hamming,
    pieces,
    replaced,
    standardised,
)
from cflkit.models.flat import Model


@dataclass(frozen=True)
class FedCG(Method):
    """Cluster-driven graph federated learning (Caldarola et al. 2021).

    The network of the run keeps its weights theta_a; some layers get D domain-specific versions as residuals
    (Eq. 4), mixed by a graph convolution sigma(A V W) (Eq. 5) whose adjacency A is made from the distances
    between domains (Eq. 6). A *teacher* puts every training image in a domain, a *student* learns to do the same
    (Eq. 3) and does it at test. All that is trained is averaged, weighted by n_k (Eq. 2).

    What the paper leaves open is settled so: A stays what it was at the start until the teacher is first
    refreshed, and follows Eq. (6) after every round from then on; there is one A, from the parameters of all graph
    layers together, and no gradient goes through it; W starts at the identity and every lambda at 1; scales and
    offsets of a normalisation start a little above 1 and 0, each domain's at its own; the student sees the batches
    of the network. Normalisation by batch or by running statistics is the model's choice
    (``leaf_celeba`` or ``leaf_celeba_running``).

    Parameters
    ----------
    domains : int
        D.
    layers : {"last", "all", "batchnorm"}
        Layers with domain-specific versions: the last convolution, every convolution and batch normalisation, or
        only the scales and offsets of the latter.
    gcn : {"full", "bottleneck", "per_filter", "none"}
        W of Eq. (5): q x q, through q/16 dimensions, shared by the filters of a layer, or absent.
    activation : {"relu", "identity"}
        sigma of Eq. (5).
    beta : float
        Weight of a domain's own parameters in A.
    refresh : int
        Rounds between copies of the student into the teacher (T).
    adjacency : {"eye", "random", "uniform", "hamming"}
        The first two are where A starts; the last two stay (Table 3: U, H).
    clusters : {"classifier", "kmeans", "oracle"}
        Where the domains of training images come from: the teacher; k-means on a model trained by every client
        for one round, all of a client's images in its cluster (Table 4); or their true tags (Table 3). The latter
        two have neither teacher nor student, and weigh all domains alike at test unless told.
    told : bool
        Tell the true domain of every test image, as Table 3 does; for "oracle" alone.
    soft : bool
        At test, mix domains by the student's probabilities; otherwise take its first choice.
    residual : bool
        Add to the layers' own output; otherwise the graph layers stand in for them (Table 3: "GCN").
    pool : {"local", "global"}
        Average pooling of the domain classifiers: 2 x 2 pixels, or everything. Pooled globally, most untrained
        teachers put nearly all images in one domain.
    lam : float
        Weight lambda of the residuals at the start.
    learn_lam : bool
        Train it.
    lr_student : float
        The student's learning rate, plain SGD.
    """

    domains: Count = 4
    layers: Literal["last", "all", "batchnorm"] = "last"
    gcn: Literal["full", "bottleneck", "per_filter", "none"] = "full"
    activation: Literal["relu", "identity"] = "relu"
    beta: Unit = 0.5
    refresh: Count = 10
    adjacency: Literal["eye", "random", "uniform", "hamming"] = "eye"
    clusters: Literal["classifier", "kmeans", "oracle"] = "classifier"
    told: bool = False
    soft: bool = True
    residual: bool = True
    pool: Literal["local", "global"] = "local"
    lam: float = 1.0
    learn_lam: bool = True
    lr_student: Weight = 1e-4
    name = "fedcg"

    def check(self, task):
        replaced(task.model.module, self.layers)
        if self.clusters == "oracle":
            true = task.domains
            require(true is not None, "clusters", "oracle", "another where images have no true domain")
            require(self.domains >= true, "domains", self.domains, f"{true} or more, the true domains")
        else:
            require(not self.told, "told", self.told, "False unless clusters is 'oracle'")
        enough = self.clusters != "kmeans" or self.domains <= task.clients
        require(enough, "domains", self.domains, f"at most the number of clients, {task.clients}, for k-means")

    # what a cache holds outlives its method: few networks, since a full W is large
    @lru_cache(maxsize=4)  # noqa: B019
    def network(self, base: Model, shape: tuple[int, int, int], student: bool = True) -> Model:
        """The graph network around `base`, for images of that shape (C, H, W), with or without its student."""
        pool = self.pool if self.clusters == "classifier" and student else None
        options = {name: getattr(self, name) for name in
                   ("domains", "layers", "soft", "gcn", "activation", "lam", "learn_lam", "residual")}  # fmt: skip
        return base.like(lambda: GraphNetwork(base.make(), shape, pool=pool, **options))

    @lru_cache(maxsize=8)  # noqa: B019
    def classifier(self, base: Model, shape: tuple[int, int, int]) -> Model:
        """The domain classifier; the teacher is one of its vectors."""
        return base.like(lambda: DomainClassifier(shape, self.domains, self.pool))

    # ------------------------------------------------------------------ server
    def start(self, net):
        task = net.task
        graph = self.network(task.model, task.shape)
        model = graph.init(rng.torch_seed(task.seed, "init", 0))  # begins with what FedAvg begins with
        model[graph.spans["A"]] = self.first_adjacency(net).to(model).flatten()
        server = {"model": model}
        if self.clusters == "classifier":
            seed = rng.torch_seed(task.seed, "teacher")
            server["teacher"] = self.classifier(task.model, task.shape).init(seed)
            server["refreshed"] = 0
            server["held"] = torch.full((task.clients,), -1)  # which teacher each client has
        if self.clusters == "kmeans":
            known = {"initial": task.init()[0]}  # the common start comes from a shared seed
            models = net.call(torch.arange(task.clients), self.client_alone, known=known)["model"].dense()
            server["assign"] = kmeans(models[:, : task.model.trainable], self.domains, net, 10)
        return server

    def round(self, server, clients, net):
        graph, server = self.network(net.task.model, net.task.shape), dict(server)
        own = {}
        if self.clusters == "classifier":  # the teacher travels to those who do not have the current one
            held = server["held"].clone()
            late = clients[held[clients] != server["refreshed"]]
            net.call(late, lambda *_: {}, down={"teacher": server["teacher"]})
            held[late], server["held"] = server["refreshed"], held
        if self.clusters == "kmeans":
            own = {"cluster": server["assign"][clients]}
        parts = self.parts(graph)
        down = {name: server["model"][span] for name, span in parts.items()}
        known = {"teacher": server["teacher"]} if "teacher" in server else {}
        up = net.call(clients, self.client, down=down, per_client=own, known=known)

        means = {name: down[name] if name == "A" else up[name].mean(up.sizes) for name in parts}  # Eq. 2
        model = torch.cat(list(means.values()))
        if self.adjacency in ("eye", "random") and net.round >= self.refresh:
            V = torch.cat([v for name, v in graph.views(model).items() if name.endswith(".V")], 1)
            model[graph.spans["A"]] = adjacency(euclidean(V), self.beta).flatten()  # Eq. 6
        if self.clusters == "classifier" and net.round % self.refresh == 0:
            server["teacher"], server["refreshed"] = means["student"], server["refreshed"] + 1
        lam = [float(v) for name, v in graph.views(model).items() if name.endswith(".lam")]
        return {**server, "model": model, "images": up["images"].dense().sum(0).cpu(), "lam": lam}

    def first_adjacency(self, net) -> Tensor:
        """A (D, D) before any refresh."""
        d = self.domains
        if self.adjacency == "uniform":
            return torch.full((d, d), 1 / d, dtype=torch.float64)
        if self.adjacency == "hamming":
            return adjacency(hamming(d).double(), self.beta)
        drawn = torch.from_numpy(net.rng("A").random((d, d)))
        return drawn / drawn.sum(1, keepdim=True) if self.adjacency == "random" else torch.eye(d)

    def parts(self, graph: Model) -> dict[str, slice]:
        """What a message consists of, in the order of the vector."""
        size, A = graph.size, graph.spans["A"]
        names = {name.partition(".")[0]: None for name in graph.parameters}
        spans = {name: graph.span(f"{name}.") for name in names}
        if graph.trainable < A.start:
            spans["frozen"] = slice(graph.trainable, A.start)  # carried along, as everywhere
        spans["A"] = A
        return spans if A.stop == size else spans | {"running": slice(A.stop, size)}

    # ------------------------------------------------------------------ client
    def client_alone(self, down, memory, data, local):
        """One round alone, for k-means."""
        return {"model": local.sgd(down["initial"], data)}

    def client(self, down, memory, data, local):
        graph = self.network(local.model, data.shape)
        parts = self.parts(graph)
        domain = self.label(down, data, local.model)
        # a label carries the image's domain too
        tagged = data.relabelled(lambda i, y: y + data.classes * domain[i])
        network = self.network(local.model, data.shape, student=False) if "student" in parts else graph
        begin = torch.cat([down[name] for name in parts if name != "student"])
        trained = local.sgd(begin, tagged, objective=partial(self.objective, data.classes), model=network).dense()
        up = {name: trained[:, span] for name, span in self.parts(network).items() if name != "A"}
        if "student" in parts:
            up["student"] = self.learn(down["student"], data.relabelled(lambda i, y: domain[i]), local)
        counts = torch.stack([F.one_hot(d, self.domains).sum(0) for d in domain])
        return up | {"images": counts}

    def learn(self, student: Tensor, labelled: Data, local: Local) -> Part | Tensor:
        """Eq. (3): the student on the network's batches. They share no parameter, so each is trained by itself."""
        if self.lr_student == 0:
            return student.expand(len(labelled), -1)
        slowly = replace(local.optimiser, lr=self.lr_student, momentum=0.0, weight_decay=0.0, nesterov=False)
        classifier = self.classifier(local.model, labelled.shape)
        return local.sgd(student, labelled.changed(standardised), optimiser=slowly, model=classifier)

    def label(self, down, data, base: Model) -> Sequence[Tensor]:
        """The domain of every image (n_i,) of each client; none of them changes during a round."""
        if self.clusters == "oracle":
            tags = [data.tags(i) for i in range(len(data))]
            return torch.cat(tags).to(base.device).split(data.sizes.tolist())
        if self.clusters == "kmeans":
            return down["cluster"].repeat_interleave(data.sizes).to(base.device).split(data.sizes.tolist())
        with torch.no_grad():
            return [self.tell(down["teacher"], data[i][0], base).argmax(1) for i in range(len(data))]

    def tell(self, vector: Tensor, x: Tensor, base: Model) -> Tensor:
        """Logits (n, D) of a domain classifier on images `x`, by itself: compiled kernels take no graph network."""
        classifier = self.classifier(base, x.shape[1:])
        return torch.cat([classifier.forward(vector, standardised(piece)) for piece in pieces(x)])

    def objective(self, classes: int, module: GraphNetwork, x: Tensor, tagged: Tensor) -> Tensor:
        """Loss of a batch, each image in its domain."""
        return F.cross_entropy(module(x, tagged // classes), tagged % classes)

    # ------------------------------------------------------------------ looking
    def serve(self, server, clients, net):
        return one_for_all(server["model"], clients)

    def predict(self, model: Model, vector: Tensor, x: Tensor, domain: Tensor | None = None) -> Tensor:
        """Logits (n, classes) on images `x`, in the student's domains or in the given ones, (n,) or (n, D)."""
        graph = self.network(model, x.shape[1:])
        if domain is None and self.clusters == "classifier":
            domain = graph.module.chosen(self.tell(vector[graph.span("student.")], x, model))
        return functional_call(graph.lent().eval(), graph.views(vector), (x, domain))

    def log(self, server):
        """The round's training images by domain, as clients counted them, and lambda of every graph layer."""
        if "lam" not in server:  # before round 1
            return {}
        counts = server["images"]
        shares = {"largest_share": metrics.largest_share(counts), "entropy": metrics.entropy(counts)}
        return {"images": counts.tolist(), **shares, "lam": server["lam"]}
