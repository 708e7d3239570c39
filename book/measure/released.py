"""How FeSEM's authors score it, outside of their algorithm.

``.venv/bin/python book/measure/released.py [FOLDER]`` stores the score of their code on sixty writers of
FEMNIST, beside each writer's own centre; it needs FEMNIST.
"""

import json
import shutil
import sys
from pathlib import Path

import torch

from cflkit.engine.rows import Pick
from cflkit.engine.simulation import History, Simulation
from cflkit.workbook import places
from cflkit.workbook.runs import protocols, records

FILE = "fesem_released.json"
PROTOCOL, LABEL, SEEDS = "fesem_femnist_60_r60", "fesem4", range(3)


def released_score(simulation: Simulation, history: History) -> dict[str, float | list[float]]:
    """Score as the released code does: every centre on *all* clients, whoever belongs to it.

    Algorithm 1 says which centre serves a client; this score never asks. It reports the best centre's mean over
    clients for its micro figure, and the last centre's for its macro figure.

    Parameters
    ----------
    simulation : Simulation
        Of a :class:`FeSEM`; its test sets are used.
    history : History
        What it left behind.

    Returns
    -------
    dict
        ``each``: the micro accuracy of every centre (K,), weighted by n_i. ``micro``: the largest of them, which is
        reported; ``mean``: their mean. ``macro``: the plain mean over clients, of the last centre.
    """
    centres, everybody = history.server["centres"], torch.arange(simulation.task.clients)
    scores = [simulation.scorer.score(Pick(centres, torch.full_like(everybody, k)), everybody)
              for k in range(len(centres))]  # fmt: skip
    each = [row["accuracy_micro"] for row in scores]
    return {"each": each, "micro": max(each), "mean": sum(each) / len(each), "macro": scores[-1]["accuracy"]}


def both_scores(simulation: Simulation, history: History) -> dict[str, float | list]:
    """Give the released score of a run beside that of each client's own centre.

    Returns
    -------
    dict
        What :func:`released_score` gives; ``own_micro`` and ``own_macro``, the run's last scores; ``members``, the
        number of clients of every centre (K,).
    """
    final, found = history.final, released_score(simulation, history)
    members = history.server["assign"].bincount(minlength=len(found["each"])).tolist()
    return found | {"own_micro": final["accuracy_micro"], "own_macro": final["accuracy"], "members": members}


def write(folder: Path = records.FOLDER) -> Path:
    """Run FeSEM on sixty writers of FEMNIST again, and store both scores; stopped, it goes on where it was."""
    places.need_folder("out", folder)
    rows, kept = [], places.RUNS / "released"
    for seed in SEEDS:
        simulation = protocols.plan(PROTOCOL, LABEL, seed).simulation(checkpoint=kept / f"{LABEL}-s{seed}")
        rows.append({"seed": seed} | both_scores(simulation, simulation.run()))
    stored = {"protocol": PROTOCOL, "label": LABEL, "rows": rows, "provenance": records.provenance()}
    with places.atomic_write(folder / FILE) as part:
        part.write_text(json.dumps(stored, indent=1) + "\n", "utf-8")
    shutil.rmtree(kept)  # or the next call would train nothing, whatever the code has become
    return folder / FILE


if __name__ == "__main__":
    print(write(Path(*sys.argv[1:2] or [places.RESULTS])))
