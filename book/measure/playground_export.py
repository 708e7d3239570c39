"""What the playground has from cflkit: its digits, and whole runs for the test that compares the two.

``make playground`` writes the digits to ``book/_static/playground/digits.js`` and the rounds that pages show
before their scripts run, which Node draws.
"""

import json
import subprocess
from pathlib import Path

import torch

from cflkit import federation, images
from cflkit.engine import metrics
from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.methods import IFCA, FedAvg, FeSEM, LCFed, LocalOnly, OracleClusters, StoCFL
from cflkit.rng import generator
from cflkit.workbook import places

STATIC = Path(__file__).resolve().parents[1] / "_static" / "playground"
TRAIN, TEST, SHADES = 40, 10, 8  # digits of each label to train and to test on; shades of grey, of originally 17
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
CLIENTS, IMAGES, LOCAL = 40, 60, SGD(lr=0.5, epochs=1, batch_size=5)  # as in federation.js and run.js
OPTIONS = {"tau": 0.5, "lam": 0.05, "mu": 0.1}
BUILDERS = {
    "rotated": federation.rotated,
    "shifted": federation.shifted,
    "same": lambda digits, **options: federation.rotated(digits, degrees=(0,), **options),
}
METHODS = {
    "fedavg": lambda fed: FedAvg(),
    "local": lambda fed: LocalOnly(),
    "oracle": OracleClusters.of,
    "ifca": lambda fed: IFCA(k=4),
    "fesem": lambda fed: FeSEM(k=4),
    "fesem moving": lambda fed: FeSEM(k=4, init="random"),  # from k-means nobody moves, and half of it is idle
    "stocfl": lambda fed: StoCFL(tau=OPTIONS["tau"], lam=OPTIONS["lam"]),
    "lcfed": lambda fed: LCFed(k=4, mu=OPTIONS["mu"], lam=OPTIONS["lam"], rank=None, split=None),
}


def pool() -> images.Images:
    """Return the digits that the page carries: 40 of each label to train on and 10 to test on, in eight shades."""
    whole, rows = images.load("digits"), []
    for train, each in ((True, TRAIN), (False, TEST)):
        for label in range(whole.classes):
            own = torch.nonzero((whole.train == train) & (whole.y == label)).flatten()
            order = generator(0, "playground", int(train), label).permutation(len(own))
            rows.append(own[torch.from_numpy(order[:each])])
    rows = torch.cat(rows)
    shades = (whole.x[rows].long() * SHADES // 17).to(torch.uint8)
    return images.Images("playground", shades, whole.y[rows], whole.train[rows], whole.classes, SHADES - 1.0)


def script() -> str:
    """Return what ``digits.js`` holds: two pixels a letter, a label a digit, and how many are to train on."""
    digits = pool()
    pairs = digits.x.reshape(-1, 2).tolist()
    packed = {"alphabet": ALPHABET, "pixels": "".join(ALPHABET[SHADES * a + b] for a, b in pairs),
              "labels": "".join(map(str, digits.y.tolist())), "train": int(digits.train.sum())}  # fmt: skip
    return f"/* Made by book/measure/playground_export.py. */\nplayground.digits = {json.dumps(packed)};\n"


def export(method: str, domains: str, alpha: float | None, share: float, rounds: int, seed: int = 0) -> dict:
    """Run a method of the package in double precision, and note all that was drawn and all that came out.

    Parameters
    ----------
    method, domains : str
        Keys of `METHODS` and `BUILDERS`. Their first words are what ``methods.js`` and ``federation.js`` call them.
    alpha : float or None
        Skew of the label laws, Dir(alpha, ..., alpha); None for no skew.
    share : float
        Share of the clients that takes part in a round.
    rounds : int
        How many.
    seed : int
        Of the federation and of the run.

    Returns
    -------
    dict
        JSON-able: pixels, who holds what, first models, batches, schedule, first groups; and of every round from 0
        on the model of each client, the groups, both accuracies and the Rand index.
    """
    fed = BUILDERS[domains](pool(), clients=CLIENTS, samples_per_client=IMAGES, alpha=alpha, convention="per_class",
                            overlap=True, seed=seed)  # fmt: skip
    run, name = METHODS[method](fed), method.split()[0]
    sim = Simulation(run, fed, model="linear", local=LOCAL, rounds=rounds, participation=share, seed=seed,
                     progress=False)  # fmt: skip
    memory, everybody, expected = Memory(), torch.arange(fed.clients), []
    server = run.start(sim.network(0, memory))
    first = run.assignment(server)
    for t in range(rounds + 1):
        if t:
            server = run.round(server, sim.schedule[t - 1], sim.network(t, memory))
        net, assign = sim.network(t, memory), run.assignment(server)
        looked_at = run.personal if name in ("local", "lcfed") else run.serve
        models = looked_at(server, everybody, net)
        scores = sim.scorer.score(models, everybody)
        expected.append({
            "models": models.dense().tolist(), "assign": None if assign is None else assign.tolist(),
            "balanced": scores["accuracy"], "own": scores["own_accuracy"],
            "ari": None if assign is None or sum(assign >= 0) < 2 else metrics.ari(assign, fed.cluster),
        })  # fmt: skip
    held, shown = len(fed.train.pool), torch.cat([fed.train.pool, fed.test.pool])
    sets = [fed.train.rows(i) for i in range(fed.clients)]
    batches = [[[b.tolist() for b in LOCAL.batches(IMAGES, generator(seed, t, i, "batches"))]
                for i in range(fed.clients)] for t in range(rounds + 1)]  # fmt: skip
    return {
        "method": name, "options": OPTIONS, "scale": fed.scale, "pool": shown.flatten().tolist(),
        "clients": [{"rows": rows.tolist(), "y": y.tolist(), "truth": k, "label": int(y.bincount().argmax())}
                    for (rows, y), k in zip(sets, fed.cluster.tolist(), strict=True)],
        "tests": [{"rows": (rows + held).tolist(), "y": y.tolist()}
                  for rows, y in (fed.test.rows(k) for k in range(len(fed.test)))],
        "init": sim.task.init(4).tolist(), "batches": batches, "schedule": [s.tolist() for s in sim.schedule],
        "first": None if first is None else first.tolist(), "expected": expected,
    }  # fmt: skip


def main() -> None:
    """Write the digits, and let Node draw the rounds."""
    with places.atomic_write(STATIC / "digits.js") as part:
        part.write_text(script(), "utf-8")
    subprocess.run(["node", Path(__file__).with_name("playground_still.js")], check=True)


if __name__ == "__main__":
    main()
