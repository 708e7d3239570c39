"""Where the book lies (beside the package in a clone, nowhere in a wheel), and where files may be written."""

import contextlib
import glob
import hashlib
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import cache, wraps
from pathlib import Path

from cflkit.checks import require, writing

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
PAPERS = BOOK / "papers"
RESULTS = BOOK / "results"
RUNS = Path("runs")  # of the present folder: what was run at the console
LONGEST = 80  # letters of a label
DAY = 24 * 60 * 60  # seconds


def kept(read: Callable) -> Callable:
    """Keep what a function reads from ``book/papers``, as long as that is the folder."""
    once = cache(lambda folder, *args: read(*args))
    return wraps(read)(lambda *args: once(PAPERS, *args))


def need_book() -> None:
    """Require that the book is there: an installed wheel has none."""
    if not PAPERS.is_dir():
        raise ValueError(f"the book is not in {BOOK}: run this from a clone of the project, set up by `make env`")


def need_folder(name: str, folder: Path) -> None:
    """Require that files can be written to a folder, and make it if it is not there."""
    try:
        str(folder).encode()  # notebooks and records name it, in letters that the locale may not know
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, UnicodeError) as error:
        require(False, name, str(folder), f"a folder that can be written to ({getattr(error, 'strerror', error)})")


def near(path: Path) -> Path:
    """Write a path as seen from the present folder, if it lies there."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a temporary file to write to, which replaces `path` on success; else that stays. Makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with contextlib.suppress(FileNotFoundError):  # of a killed process, perhaps on another machine
            if time.time() - left.stat().st_mtime > DAY:
                left.unlink()
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")  # two processes may write the same file
    try:
        with writing(path):
            yield part
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write(path: Path, text: str) -> None:
    """Write a text to a file, whole or not at all."""
    with atomic_write(path) as part:
        part.write_text(text, "utf-8")


def label(text: str) -> str:
    """Make a label that can name a file; what is too long ends in a digest."""
    text = re.sub(r"[^\w,.=+\-]+", "_", text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 9]}_{digest([text])}"


def digest(names: Iterable[str]) -> str:
    """Make a few letters of many names, for the name of a file that belongs to all of them."""
    return hashlib.blake2b("\n".join(names).encode(), digest_size=4).hexdigest()
