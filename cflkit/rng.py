"""Counter-based randomness: a generator is a function of what it is for, never of what ran before.

Every draw in a simulation is keyed by (seed, round, client or cluster, purpose). Results therefore do not
depend on the order of clients, on chunking, or on where a killed run was resumed.
"""

import hashlib
from numbers import Integral

import numpy as np


def _entropy(seed: int, key: tuple[int | str, ...]) -> int:
    text = "/".join(f"{type(part).__name__[0]}{part}" for part in map(_plain, (seed, *key)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def _plain(part: int | str) -> int | str:
    """Python's own number or text: another type of the same number must not draw other numbers."""
    if type(part) in (int, str):
        return part
    if isinstance(part, str):
        return str.__str__(part)
    time = getattr(getattr(part, "dtype", None), "kind", "") == "m"  # NumPy's calls itself an integer
    if not isinstance(part, Integral) or isinstance(part, bool) or time:
        raise ValueError(f"key = {part!r}: must be an integer or a text")
    return int(part)


def generator(seed: int, *key: int | str) -> np.random.Generator:
    """Return the NumPy generator that belongs to `seed` and `key`.

    Parameters
    ----------
    seed : int
        The run's seed.
    *key : int or str
        What the randomness is for, for example ``(round, client, "batches")``.

    Raises
    ------
    ValueError
        If the seed or a part of the key is something else; one line.
    """
    return np.random.Generator(np.random.Philox(key=_entropy(seed, key)))


def torch_seed(seed: int, *key: int | str) -> int:
    """Return a 63-bit seed for PyTorch that belongs to `seed` and `key`."""
    return _entropy(seed, key) & (2**63 - 1)
