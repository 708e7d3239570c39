"""Downloads: pooch brings a file and verifies it, and archives are unpacked up to a limit.

A file counts only when its checksum is right, and files that are complete are kept. Pooch does not resume: a file
whose download was interrupted is fetched from its beginning.
"""

import errno
import gzip
import os
import shutil
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cflkit.checks import require

UNPACKED_BYTES = 4 * 2**30  # the most that an archive may unpack to; EMNIST's, the largest known one, needs half


@dataclass(frozen=True)
class File:
    """One file to download: mirrors in order of preference, MD5, and where it goes under the root."""

    urls: tuple[str, ...]
    md5: str
    path: str


def files(name: str) -> list[File]:
    """Return what to download for a dataset; addresses and checksums are torchvision's."""
    from torchvision import datasets as tv

    def mirrored(kind, folder):
        return [File(tuple(mirror + file for mirror in kind.mirrors), md5, f"{folder}/raw/{file}")
                for file, md5 in kind.resources]

    def listed(folder, *rows):
        return [File((url,), md5, folder + url.rsplit("/", 1)[1]) for url, md5 in rows]

    def split(kind, folder):
        return listed(folder, *((url, md5) for url, _, md5 in (kind.split_list[p] for p in ("train", "test"))))

    def faces():
        base = "https://drive.usercontent.google.com/download?export=download&confirm=t&id="
        return [File((base + key,), md5, f"celeba/{file}") for key, md5, file in tv.CelebA.file_list
                if "bbox" not in file and "landmarks" not in file]

    def writers():  # of QMNIST, only the labels: its pictures are MNIST's
        return listed("QMNIST/raw/", *(tv.QMNIST.resources[part][1] for part in ("train", "test")))

    known = {
        "digits": list,
        "mnist": lambda: mirrored(tv.MNIST, "MNIST"),
        "mnist_writers": lambda: mirrored(tv.MNIST, "MNIST") + writers(),
        "fashion_mnist": lambda: mirrored(tv.FashionMNIST, "FashionMNIST"),
        "emnist": lambda: listed("EMNIST/raw/", (tv.EMNIST.url, tv.EMNIST.md5)),
        "usps": lambda: split(tv.USPS, "USPS/"),
        "svhn": lambda: split(tv.SVHN, "SVHN/"),
        "cifar10": lambda: listed("", (tv.CIFAR10.url, tv.CIFAR10.tgz_md5)),
        "cifar100": lambda: listed("", (tv.CIFAR100.url, tv.CIFAR100.tgz_md5)),
        "celeba": faces,
    }
    return known[name]()


def download(urls: tuple[str, ...], path: Path, md5: str) -> None:
    """Bring one file to `path`.

    Parameters
    ----------
    urls : tuple of str
        Mirrors, tried in order.
    path : Path
        Where the file goes. A file already there with the right checksum is kept; any other is replaced, but
        only once the new one is complete and verified.
    md5 : str
        Its checksum.

    Raises
    ------
    ConnectionError
        If no mirror delivers the whole file.
    ValueError
        If what was delivered has another checksum.
    """
    import pooch
    from requests import RequestException

    pooch.get_logger().setLevel("WARNING")
    headers = {"User-Agent": "cflkit", "Accept-Encoding": "identity"}  # else a server may pack it once more
    receive = pooch.HTTPDownloader(progressbar=True, headers=headers)
    for url in urls:
        try:
            with naming(path):
                pooch.retrieve(url, f"md5:{md5}", path.name, path.parent, downloader=receive)
            return
        except RequestException as error:
            what = " ".join(str(error).split())
            failure = ConnectionError(f"{path.name}: cannot download {url} [{what}]; run again")
        except ValueError:
            failure = ValueError(f"checksum of {url}: must be {md5}; what came was not kept")
    raise failure


def unpack(path: Path) -> None:
    """Unpack a ``.tar.gz``, ``.zip`` or ``.gz`` where it lies; other files are read as they are.

    Raises
    ------
    ValueError
        If the archive is damaged, or if it unpacks to more than ``UNPACKED_BYTES``, before anything is written.
    """
    with reading(path):
        if path.name.endswith(".tar.gz"):
            _measure(path)
            with tarfile.open(path) as archive:
                archive.extractall(path.parent, filter="data")
        elif path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                within_limit(member.file_size for member in archive.infolist())
                archive.extractall(path.parent)
            for file in sorted((path.parent / "gzip").glob("*.gz")):  # EMNIST's files sit one folder too deep
                _gunzip(file, path.parent / file.stem)
        elif path.suffix == ".gz":
            _gunzip(path, path.with_suffix(""))


def within_limit(sizes: Iterable[int]) -> None:
    """Refuse an archive whose members, of these sizes in bytes, unpack to too much; stops at the first too many."""
    total = 0
    for size in sizes:
        total += size
        require(total <= UNPACKED_BYTES, "unpacked bytes", total, f"at most {UNPACKED_BYTES}")


def _measure(path: Path) -> None:
    """Read a gzipped file to its end, where its checksum stands; only that tells how much it unpacks to."""
    with gzip.open(path) as packed:
        within_limit(len(piece) for piece in iter(lambda: packed.read(1 << 20), b""))


def _gunzip(path: Path, plain: Path) -> None:
    _measure(path)
    with gzip.open(path) as packed, open(plain, "wb") as out:
        shutil.copyfileobj(packed, out)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the system (a full disk, no permission) name its file."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk is full" if full else error.strerror or os.strerror(error.errno)
        raise OSError(error.errno, what, str(error.filename or path)) from error


@contextmanager
def reading(path: Path, advice: str = "fetch it again") -> Iterator[None]:
    """Turn whatever a damaged file makes its parser raise into one line that names the file."""
    try:
        with naming(path):
            yield
    except MemoryError:
        raise
    except Exception as error:  # the parsers raise a dozen types between them, some of their own
        if isinstance(error, OSError) and error.errno is not None:
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{path} is damaged or cut short [{what}]: {advice}") from error
