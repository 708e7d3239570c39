"""The papers' experiments as data: ``book/papers/protocols.yaml`` names what can be run, and with what."""

import torch

from cflkit import methods, rng
from cflkit.checks import known
from cflkit.data import builders as federation
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import Simulation
from cflkit.methods import OracleClusters
from cflkit.workbook import schema
from cflkit.workbook.schema import protocols

__all__ = ["protocols", "simulation"]


def simulation(name: str, label: str, *, seed: int = 0, federation_=None, **overrides) -> Simulation:
    """Set up one run of a protocol.

    Parameters
    ----------
    name : str
        The protocol.
    label : str
        The method's label within it.
    seed : int
        Seeds data, initial models, sampling and batches alike.
    federation_ : Federation, optional
        The protocol's federation of that seed, if it is at hand already.
    **overrides
        Settings of :class:`~cflkit.engine.simulation.Simulation` in place of the protocol's (rounds, device, ...).

    Raises
    ------
    ValueError
        For an unknown protocol or label.
    """
    known(protocols(), name, "protocol")
    protocol = protocols()[name]
    known(protocol["methods"], label, "label")
    fed = federation_ or federation.build(protocol["federation"] | {"seed": seed})
    chosen = dict(protocol["methods"][label])
    settings = {"participation": 1.0, "dtype": "float32", "evaluate_every": 10}
    named = ("model", "rounds", "participation", "evaluate_every", "personal_every")
    settings |= {k: protocol[k] for k in named if k in protocol}
    settings |= {k: chosen.pop(k) for k in schema.OWN if k in chosen}
    if "unseen" in protocol:  # this share of the clients comes after the last round
        late = rng.generator(seed, "unseen").permutation(fed.clients)[: round(protocol["unseen"] * fed.clients)]
        settings["arrival"] = torch.ones(fed.clients, dtype=torch.int64)
        settings["arrival"][late] = max((settings | overrides)["rounds"], 1) + 1
    local = SGD(**protocol["local"])
    kind = chosen.pop("name")
    method = OracleClusters.of(fed) if kind == "oracle" else methods.get(kind, **chosen)
    return Simulation(method, fed, local=local, seed=seed, **(settings | overrides))
