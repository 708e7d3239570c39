"""What the book's step-throughs show: small real runs, kept in ``book/histories``, one file a chapter.

``make steps`` makes them again, to the last digit. They hold numbers only; ``cflkit.workbook.pictures`` draws them
and finds the words. All are on the 8 x 8 digits, in double precision and one thread.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from cflkit import federation, images
from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.methods import StoCFL
from cflkit.workbook import places

FOLDER = places.BOOK / "histories"
ROUNDS = 20
TAUS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9)


def load(name: str) -> dict:
    """Load a chapter's history."""
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


def save(name: str, folder: Path = FOLDER) -> None:
    """Run what a chapter's step-through shows, and write it down."""
    path = folder / f"{name}.json"
    partial = path.with_suffix(".part")
    with places.writing(partial):
        partial.write_text(json.dumps(MADE[name](), separators=(",", ":")) + "\n", "utf-8")
        os.replace(partial, path)


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


MADE: dict[str, Callable[[], dict]] = {"stocfl": stocfl}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for chapter in MADE:
        save(chapter)
