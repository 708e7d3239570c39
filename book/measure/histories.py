"""What the book's step-throughs show: small real runs, kept in ``book/histories``, one file a chapter.

``make steps`` makes them again, to the last digit. They hold numbers only; ``book/_ext/pictures.py``
draws them and finds the words. All are on the 8 x 8 digits, in double precision and one thread.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cflkit import federation, images, rng
from cflkit.engine import metrics
from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation, simulate
from cflkit.methods import MDICFL, FedAvg, FedCG, FeSEM, LCFed, LocalOnly, OracleClusters, StoCFL
from cflkit.methods.mdicfl import probabilities
from cflkit.workbook import places

FOLDER = places.BOOK / "histories"
ROUNDS = 20
ALPHAS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
SEARCH = (0, 1, 2, 5, 10, 20, 40, 70, 100)  # steps of Adam
PULLS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
TAUS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9)


def save(name: str, folder: Path = FOLDER) -> None:
    """Run what a chapter's step-through shows, and write it down."""
    made = json.dumps(MADE[name](), separators=(",", ":"))
    with places.atomic_write(folder / f"{name}.json") as part:
        part.write_text(made + "\n", "utf-8")


def rounded(values, decimals: int = 4):
    """Plain numbers, with as many decimals as a picture can show."""
    return (np.round(np.asarray(values, dtype=float), decimals) + 0.0).tolist()


def view(points: np.ndarray) -> list:
    """Look at points (n, P) along their three principal axes, a little from the side, so that none hides (n, 2)."""
    points = points - points.mean(0)
    flat = points @ np.linalg.svd(points, full_matrices=False)[2][:3].T
    flat = flat * np.sign(np.take_along_axis(flat, np.abs(flat).argmax(0)[None], 0))  # axes have no sign
    return rounded(flat[:, :2] + flat[:, 2:] * [0.5, 0.35])


# ---------------------------------------------------------------------- chapters
def stocfl() -> dict:
    """Run StoCFL over thresholds, with the global model updated as listed and as released."""
    fed = federation.rotated(images.load("digits"), clients=40, seed=0)
    setting = {"model": "mlp32", "local": SGD(lr=0.1, epochs=5), "rounds": ROUNDS, "participation": 0.25,
               "seed": 0, "progress": False}  # fmt: skip
    once = Simulation(StoCFL(), fed, **setting)
    anchor, everybody = {"psi": once.task.init()[0]}, torch.arange(fed.clients)
    prints = once.network(1, Memory()).call(everybody, once.method.extract, known=anchor)["psi"]
    frames = []
    for tau in TAUS:
        frame: dict = {"tau": tau}
        for update in ("parallel", "chained"):
            history = Simulation(StoCFL(tau=tau, global_update=update), fed, **setting).run()
            frame["assign"] = history.server["assign"].tolist()  # alike for both: it depends on the anchor alone
            frame[update] = {name: rounded([row[name] for row in history.rounds])
                             for name in ("accuracy", "global_accuracy")}  # fmt: skip
        frames.append(frame)
    return {"points": view(prints.dense().numpy()), "truth": fed.cluster.tolist(), "frames": frames}


def foundations() -> dict:
    """Run one model for all, and everybody alone, over the skew of the labels."""
    frames = []
    for alpha in ALPHAS:
        fed = federation.dirichlet(images.load("digits"), clients=16, alpha=alpha, convention="per_class",
                                   samples_per_client=40, test="all", seed=0)  # fmt: skip
        setting = {"model": "mlp32", "local": SGD(lr=0.5, epochs=5, batch_size=20), "rounds": ROUNDS, "seed": 0,
                   "evaluate_every": ROUNDS, "personal_clients": fed.clients, "progress": False}  # fmt: skip
        one, alone = (simulate(method, fed, **setting).final for method in (FedAvg(), LocalOnly()))
        scores = {"one": rounded(one["own_accuracy"]), "alone": rounded(alone["personal_own_accuracy"])}
        frames.append({"alpha": alpha, "counts": fed.label_counts().tolist()} | scores)
    return {"frames": frames}


def fesem() -> dict:
    """Follow FeSEM's clients from a random partition, starting at the centre or at their own last model."""
    fed = federation.rotated(images.load("digits"), clients=40, seed=0)
    setting = {"model": "mlp32", "local": SGD(lr=0.1, epochs=5), "rounds": 8, "seed": 0, "progress": False}
    ways = {}
    for start in ("centre", "personal"):
        method, memory = FeSEM(k=4, init="random", start_from=start), Memory()
        sim = Simulation(method, fed, **setting)
        server, rounds = method.start(sim.network(0, memory)), []
        for t in range(1, sim.rounds + 1):
            centres, own = server["centres"], server["assign"]
            before = centres[own] if start == "centre" else _personal(memory, fed.clients)
            server = method.round(server, sim.schedule[t - 1], sim.network(t, memory))
            after = _personal(memory, fed.clients)
            rival, end = bisected(after, centres, own)
            begin = bisected(before, centres, own, rival)[1]
            rounds.append({"cluster": own.tolist(), "rival": rival.tolist(),
                           "begin": rounded(begin), "end": rounded(end),
                           "moved": (server["assign"] != own).tolist(),
                           "ari": rounded(metrics.ari(server["assign"], fed.cluster))})  # fmt: skip
        ways[start] = rounds
    return ways


def _personal(memory: Memory, clients: int) -> Tensor:
    """Every client's last model (N, P)."""
    return torch.stack([memory.get("personal", i) for i in range(clients)])


def bisected(models: Tensor, centres: Tensor, own: Tensor, rival: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Place models (N, P) between their own centre, at 0, and a rival, at 1; beyond 1/2 the rival is closer.

    The rival is the other centre that a model is closest to crossing over to, unless it is given. Besides the place
    along the line between the centres, (N, 2) holds the distance from this line, in the same unit.
    """
    at = torch.arange(len(models))
    apart, step = centres[None] - centres[own][:, None], models - centres[own]
    along = torch.einsum("ip,ikp->ik", step, apart) / apart.square().sum(2)
    if rival is None:
        rival = along.masked_fill(F.one_hot(own, len(centres)).bool(), -torch.inf).argmax(1)
    along, apart = along[at, rival], apart[at, rival]
    off = (step - along[:, None] * apart).norm(dim=1) / apart.norm(dim=1)
    return rival, torch.stack([along, off], 1)


def lcfed() -> dict:
    """Run LCFed over both pulls, and score personal models and centres on the way."""
    fed = federation.pathological_n(images.load("digits"), clients=40, labels_per_client=3, pooled=True,
                                    test="own", test_fraction=0.5, seed=0)  # fmt: skip
    setting = {"model": "mlp32", "local": SGD(lr=0.2, steps=5, batch_size=32), "rounds": ROUNDS, "seed": 0,
               "evaluate_every": 4, "personal_every": 4, "personal_clients": fed.clients,
               "progress": False}  # fmt: skip
    found = [[simulate(LCFed(k=4, mu=mu, lam=lam, rank=10), fed, **setting).rounds for lam in PULLS]
             for mu in PULLS]  # fmt: skip
    scored = [row["round"] for row in found[0][0] if row.get("personal_accuracy") is not None and row["round"]]
    scores = {name: [[[rounded(run[t][name]) for run in row] for row in found] for t in scored]
              for name in ("personal_accuracy", "accuracy")}  # fmt: skip
    return {"pulls": PULLS, "rounds": scored} | scores


def _small(classes: int = 10) -> nn.Module:
    """Two convolutions, for 8 x 8 pixels."""
    return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(6, 10, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(40, classes))  # fmt: skip


def fedcg() -> dict:
    """Ask FedCG's teachers, round by round, in which domain they put images of the four rotations."""
    fed = federation.mixed(images.load("digits"), clients=16, samples_per_client=64, alpha=0.5, seed=0)
    setting = {"model": _small, "local": SGD(lr=0.3, epochs=2, batch_size=16), "rounds": 24, "participation": 0.25,
               "seed": 0, "personal_clients": 0, "progress": False}  # fmt: skip
    ways = {}
    for name, rate in (("printed", 1e-4), ("learning", 0.1)):
        method, memory = FedCG(domains=4, refresh=4, lr_student=rate), Memory()
        sim = Simulation(method, fed, **setting)
        x, tag = sim.scorer.pixels(fed.train.pool[fed.train.index]), fed.train.tag
        server, rounds = method.start(sim.network(0, memory)), []
        for t in range(sim.rounds + 1):
            if t:
                server = method.round(server, sim.schedule[t - 1], sim.network(t, memory))
            with torch.no_grad():
                domain = method.tell(server["teacher"], x, sim.model).argmax(1)
            rounds.append(torch.bincount(4 * tag + domain, minlength=16).view(4, 4).tolist())
        ways[name] = rounds
    return ways | {"refresh": 4}


def mdicfl() -> dict:
    """Turn noise into samples of four cluster models, and keep what the models say of them on the way."""
    fed = federation.rotated(images.load("digits"), alpha=100, clients=24, samples_per_client=150, overlap=True,
                             mean=0.5, std=0.5, seed=0)  # fmt: skip
    setting = {"model": "mlp32", "local": SGD(lr=0.1, epochs=10, batch_size=20), "rounds": 5, "trainer": "shared",
               "seed": 0, "personal_clients": 0, "progress": False}  # fmt: skip
    sim = Simulation(OracleClusters.of(fed), fed, **setting)
    theta, task = sim.run().server["models"], sim.task
    true = MDICFL.of(fed, samples=200).real.mean(2)
    frames = []
    for step in SEARCH:
        made = MDICFL(search_steps=max(1, step), search_lr=0.1 if step else 1e-12)  # which leaves noise alone
        x = torch.stack([made.back_search(w, task, rng.torch_seed(0, 6, "pseudo", j)) for j, w in enumerate(theta)])
        frames.append(_frame(x, x[:, :, 0], theta, task.model, true) | {"step": step})
    return {"frames": frames, "means": [_pixels(x.mean(2)), _pixels(true)]}


def _frame(x: Tensor, shown: Tensor, theta: Tensor, model, true: Tensor) -> dict:
    """Say what is drawn of samples (4, C, M, 1, 8, 8), and how sure the own and other models are of their class."""
    classes = torch.arange(x.shape[1])
    sure = torch.stack([torch.stack([probabilities(model, w, D.flatten(0, 1)).view(*D.shape[:2], -1).mean(1)
                                     [classes, classes].mean() for D in x]) for w in theta])  # fmt: skip
    flat = [(m.flatten(2) - m.flatten(2).mean(1, keepdim=True)).flatten(1) for m in (x.mean(2), true)]
    like = F.normalize(flat[0]) @ F.normalize(flat[1]).T
    others = len(theta) * (len(theta) - 1)
    return {"pixels": _pixels(shown), "own": rounded(sure.trace() / len(theta)),
            "other": rounded((sure.sum() - sure.trace()) / others), "like": rounded(like.trace() / len(theta)),
            "unlike": rounded((like.sum() - like.trace()) / others)}  # fmt: skip


def _pixels(x: Tensor) -> list[str]:
    """Write images (4, C, 1, 8, 8) in [-1, 1] as a hexadecimal digit a pixel, a line for each cluster."""
    grey = ((x.clamp(-1, 1) + 1) / 2 * 15).round().int()
    return ["".join(f"{value:x}" for value in row.flatten().tolist()) for row in grey]


MADE: dict[str, Callable[[], dict]] = {
    made.__name__: made for made in (foundations, mdicfl, fesem, stocfl, lcfed, fedcg)
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for chapter in MADE:
        save(chapter)
