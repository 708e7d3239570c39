"""What a simulation leaves behind."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from cflkit.engine.memory import Memory, writing


@dataclass
class History:
    """The rounds of a run, and where it ended.

    Attributes
    ----------
    rounds : list of dict
        One row a round, from round 0 (before training); scores only where the round was evaluated.
    seconds : list of float
        Wall time of each round, kept apart: it is never the same twice.
    server : dict
        The server's final state.
    memory : Memory
        What clients kept.
    """

    rounds: list[dict] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    server: dict = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

    @property
    def final(self) -> dict:
        """The last round's row, which is what gets reported."""
        return self.rounds[-1]

    def frame(self) -> pd.DataFrame:
        """The rounds as a table, indexed by round."""
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
