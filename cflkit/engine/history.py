"""What a simulation leaves behind."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from cflkit.checks import require, writing
from cflkit.engine.memory import Memory

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class History:
    """The rounds of a run, and where it ended.

    Attributes
    ----------
    rounds : list of dict
        One row a round, from round 0 (before training); scores only where the round was evaluated.
    seconds : list of float
        Wall time of each round, kept apart: it is never the same twice.
    groups : list of Tensor (N,) of int64, or None
        The cluster of each client after each round, -1 where unknown yet; None where the method has none.
    server : dict
        The server's final state.
    memory : Memory
        What clients kept.
    run : Simulation, optional
        Where it comes from, in the process that ran it: it knows the network, and who is served by which vector.
    """

    rounds: list[dict] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    groups: list[Tensor | None] = field(default_factory=list)
    server: dict = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    run: Any = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict:
        """Another process gets the numbers, not all that it took to make them."""
        return self.__dict__ | {"run": None}

    def models(self, clients: Tensor | None = None, personal: bool = False) -> list[nn.Module]:
        """The trained networks, one a client, ready to be evaluated; clients that share a model share its network.

        Parameters
        ----------
        clients : Tensor (m,) of int64, optional
            Whose; all clients' if None.
        personal : bool
            Those that clients keep for themselves, in place of those that serve them.

        Raises
        ------
        ValueError
            If the method has no such models, or predicts in another way than by one network; if the run was another
            process's.
        """
        return self._here().models(self, clients, personal)

    def confusions(self, clients: Tensor | None = None, personal: bool = False) -> np.ndarray:
        """Confusion matrices (m, C, C), rows true and columns predicted, of what serves each of `clients`.

        Parameters and errors are those of :meth:`models`.
        """
        return self._here().confusions(self, clients, personal)

    def _here(self):
        require(self.run is not None, "run", None, "that of this process, which knows the network")
        return self.run

    @property
    def final(self) -> dict:
        """The last round's row, which is what gets reported."""
        return self.rounds[-1]

    def frame(self) -> "pd.DataFrame":
        """The rounds as a table, indexed by round."""
        import pandas as pd  # which most runs do without

        return pd.DataFrame(self.rounds).set_index("round")

    def to_csv(self, path: str | Path) -> None:
        """Write the rounds as CSV; lists (cluster sizes) are joined by spaces."""
        frame = self.frame()
        for name in frame.columns[frame.map(lambda v: isinstance(v, list)).any()]:
            frame[name] = frame[name].map(lambda v: " ".join(map(str, v)) if isinstance(v, list) else v)
        partial = Path(f"{path}.part")
        with writing(partial):
            frame.to_csv(partial)
        os.replace(partial, path)
