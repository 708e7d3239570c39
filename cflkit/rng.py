"""Counter-based randomness: a generator is a function of what it is for, never of what ran before.

Every draw in a simulation is keyed by (seed, round, client or cluster, purpose). Results therefore do not
depend on the order of clients, on chunking, or on where a killed run was resumed.
"""

import hashlib

import numpy as np


def _entropy(seed: int, key: tuple[int | str, ...]) -> int:
    text = "/".join(f"{type(part).__name__[0]}{part}" for part in (seed, *key))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(seed: int, *key: int | str) -> np.random.Generator:
    """Return the NumPy generator that belongs to `seed` and `key`.

    Parameters
    ----------
    seed : int
        The run's seed.
    *key : int or str
        What the randomness is for, for example ``(round, client, "batches")``.
    """
    return np.random.Generator(np.random.Philox(key=_entropy(seed, key)))


def torch_seed(seed: int, *key: int | str) -> int:
    """Return a 63-bit seed for PyTorch that belongs to `seed` and `key`."""
    return _entropy(seed, key) & (2**63 - 1)
