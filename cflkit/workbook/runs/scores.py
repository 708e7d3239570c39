"""What a run is scored by: the names of the metrics, and the values that each may have."""

from collections.abc import Sequence
from typing import Annotated, Any

from cflkit.checks import Natural, Range, Unit, Weight

MODELS = ("personal", "global", "unseen")  # whose score a row shows, if not that of the model which serves a client
_SHARES = [f"{axis}{end}" for axis in ("accuracy", "own_accuracy") for end in ("", "_std", "_worst10", "_micro")]
_SHARES += ["f1", "f1_micro"]
_COUNTS = ("clusters", "main_clusters", "moved", "settled", "down", "up", "server_flops", "client_flops")
RANGES: dict[str, Any] = {
    **dict.fromkeys([*_SHARES, *(f"{model}_{share}" for model in MODELS for share in _SHARES)], Unit | None),
    "ari": Annotated[float, Range(-1, 1)] | None,
    "nmi": Unit | None,
    **dict.fromkeys(_COUNTS, Natural),
    "largest_share": Unit | None,
    "entropy": Weight | None,
    "objective": float | None,
    "images": Sequence[Weight],
    "lam": Sequence[float | None],
}
METRICS = tuple(RANGES)
