"""How often the ledger's rules are wrong where nothing differs, by simulation."""

import numpy as np
from scipy.stats import t

from cflkit.workbook.verdicts import SEEDS

RIVALS, MORE, DRAWS = (1, 5, 9), 10, 20_000  # baselines to beat; seeds after an extension


def intervals(margins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the 95% intervals of margins (..., seeds), as ``metrics.paired_difference`` gives them one by one."""
    n = margins.shape[-1]
    half = t.ppf(0.975, n - 1) * margins.std(-1, ddof=1) / np.sqrt(n)
    return margins.mean(-1) - half, margins.mean(-1) + half


def decided(margins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether a claim to beat all baselines holds, and whether it fails, by margins (draws, baselines, seeds)."""
    low, high = intervals(margins)
    return (low > 0).all(-1), (high < 0).any(-1)


def chances(rivals: int, extended: bool, seed: int = 0) -> tuple[float, float]:
    """Shares of claims that *hold* and that *fail* though the method and all `rivals` are equally good.

    Scores are drawn from one normal distribution, for each method and seed. What is undecided after three seeds
    gets ten where tables are `extended`.
    """
    scores = np.random.default_rng(seed).normal(size=(DRAWS, rivals + 1, MORE))
    margins = scores[:, :1] - scores[:, 1:]
    holds, fails = decided(margins[..., :SEEDS])
    if extended:
        later, open_ = decided(margins), ~(holds | fails)
        holds, fails = holds | (open_ & later[0]), fails | (open_ & later[1])
    return float(holds.mean()), float(fails.mean())


def cells() -> list[list[str]]:
    """The table: how many baselines; wrongly holds and fails with three seeds; and with more where undecided."""
    rows = []
    for rivals in RIVALS:
        found = [share for extended in (False, True) for share in chances(rivals, extended)]
        rows.append([str(rivals), *(f"{100 * share:.1f}" for share in found)])
    return rows
