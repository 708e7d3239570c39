"""How far a rerun is: its kernel says so in a file, and the terminal shows cell, round and time left."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

EVERY = 0.2  # seconds between two looks
LINE = "{desc}: {n_fmt} of {total_fmt} cells done{postfix} [{elapsed} so far, about {remaining} left]"
BEGIN = "__import__('cflkit.workbook.progress', fromlist=['tell']).tell({file!r})"  # the kernel's first line


def tell(file: str) -> None:
    """In a kernel: write how many cells are done, and the round of a simulation, to `file` from now on."""
    from IPython import get_ipython

    from cflkit.engine import simulation

    plain, cell, written = simulation.tqdm, [-1], [0.0]

    def write(*rounds: int) -> None:
        part = Path(f"{file}.part")
        part.write_text(" ".join(map(str, (cell[0], *rounds))))
        part.replace(file)

    def begin(_) -> None:
        cell[0] += 1
        write()

    def counting(*args, **settings):
        bar, done = plain(*args, **settings), [settings["initial"]]
        update = bar.update

        def told(count: int = 1):
            done[0] += count
            if time.monotonic() - written[0] > EVERY:
                written[0] = time.monotonic()
                write(done[0], settings["total"])
            return update(count)

        bar.update = told
        return bar

    simulation.tqdm = counting
    get_ipython().events.register("pre_run_cell", begin)


@contextlib.contextmanager
def shown(name: str, cells: int, file: Path) -> Iterator[None]:
    """Show on the terminal what a kernel tells in `file` while a ``with`` block lasts, then clear the line.

    Parameters
    ----------
    name : str
        What is run.
    cells : int
        How many cells of code it has.
    file : Path
        Where the kernel tells; it is deleted in the end.
    """
    ended = threading.Event()

    def look() -> None:
        with tqdm(total=cells, desc=name, bar_format=LINE, leave=False, smoothing=0) as bar:
            while not ended.wait(EVERY):
                with contextlib.suppress(FileNotFoundError):
                    cell, *rounds = map(int, file.read_text().split())
                    bar.n = min(cell, cells)
                    bar.set_postfix_str("round {} of {}".format(*rounds) if rounds else "", refresh=False)
                bar.refresh()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for left in (file, Path(f"{file}.part")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(left)
