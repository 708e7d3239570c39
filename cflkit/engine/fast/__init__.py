"""The same training, faster: exact algebra and kernels that a method never learns about."""

from collections.abc import Sequence

from cflkit.engine.fast.compiled import Compiled, look
from cflkit.engine.fast.convolution import DenseFactors, quick
from cflkit.engine.fast.fused.trainer import Fused
from cflkit.engine.fast.shared_linear import Shared
from cflkit.engine.fast.stacked import Stacked, passing
from cflkit.engine.trainer import Trainer

__all__ = ["look", "passing", "quick", "trainers"]


def trainers(name: str, debug: bool = False) -> Sequence[Trainer]:
    """Trainers in the order of preference; the last one, the reference, does all that is left.

    Parameters
    ----------
    name : {"auto", "lean", "stacked", "fused", "shared", "compiled"}
        What is preferred: what is fastest on a CPU, the reference, lock-step (for a GPU), a program a client (for a
        GPU with Triton), the shared layer, or kernels in every precision.
    debug : bool
        Use the reference alone, and name client, round and batch in any exception.
    """
    if debug:
        return [Trainer(debug=True)]
    return {
        "auto": [Shared(), DenseFactors(quick=True), Compiled(), Trainer(quick=True)],
        "lean": [Trainer()],
        "stacked": [Stacked(), Trainer()],
        "fused": [Fused(), Stacked(), Trainer()],
        "shared": [Shared(always=True), Trainer()],
        "compiled": [Compiled(always=True), Trainer()],
    }[name]
