"""Resumable, verified downloads: bytes go to ``NAME.part``, and only a right checksum makes them the file."""

import hashlib
import os
import tarfile
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from tqdm import tqdm


@dataclass(frozen=True)
class File:
    """One file to download: mirrors in order of preference, MD5, and where it goes under the root."""

    urls: tuple[str, ...]
    md5: str
    path: str


def files(name: str) -> list[File]:
    """Return what to download for a dataset; addresses and checksums are torchvision's."""
    from torchvision import datasets as tv

    def idx(dataset, folder):
        return [File(tuple(mirror + file for mirror in dataset.mirrors), md5, f"{folder}/raw/{file}")
                for file, md5 in dataset.resources]

    def archive(dataset, folder=""):
        md5 = getattr(dataset, "tgz_md5", None) or dataset.md5
        return [File((dataset.url,), md5, folder + dataset.url.rsplit("/", 1)[1])]

    def pair(dataset, folder):
        return [File((url,), md5, f"{folder}/{file}")
                for url, file, md5 in (dataset.split_list[part] for part in ("train", "test"))]

    def writers():  # of QMNIST, only the labels: its pictures are MNIST's
        labels = (tv.QMNIST.resources[part][1] for part in ("train", "test"))
        return [File((url,), md5, "QMNIST/raw/" + url.rsplit("/", 1)[1]) for url, md5 in labels]

    def drive(folder, wanted):
        base = "https://drive.usercontent.google.com/download?export=download&confirm=t&id="
        return [File((base + key,), md5, f"{folder}/{file}")
                for key, md5, file in tv.CelebA.file_list if file in wanted]

    known = {
        "digits": list,
        "mnist": lambda: idx(tv.MNIST, "MNIST"),
        "mnist_writers": lambda: idx(tv.MNIST, "MNIST") + writers(),
        "fashion_mnist": lambda: idx(tv.FashionMNIST, "FashionMNIST"),
        "emnist": lambda: archive(tv.EMNIST, "EMNIST/raw/"),
        "usps": lambda: pair(tv.USPS, "USPS"),
        "svhn": lambda: pair(tv.SVHN, "SVHN"),
        "cifar10": lambda: archive(tv.CIFAR10),
        "cifar100": lambda: archive(tv.CIFAR100),
        "celeba": lambda: drive("celeba", ("img_align_celeba.zip", "list_attr_celeba.txt",
                                           "identity_CelebA.txt", "list_eval_partition.txt")),
    }
    return known[name]()


def download(urls: tuple[str, ...], path: Path, md5: str) -> None:
    """Bring one file to `path`, resuming what an earlier, interrupted call left in ``PATH.part``.

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
    if path.exists() and _md5(path) == md5:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    failure = None
    for url in urls:
        for resumed in (part.exists(), False):
            try:
                _receive(url, part)
            except (OSError, HTTPException) as error:
                what = " ".join(str(error).split())
                failure = ConnectionError(f"{path.name}: cannot download {url} [{what}]; run again to resume")
                break
            found = _md5(part)
            if found == md5:
                os.replace(part, path)
                return
            part.unlink()
            failure = ValueError(f"checksum of {url} = {found}: must be {md5}; it was not kept")
            if not resumed:  # else the fault may lie in the old beginning: once more, from the start
                break
    raise failure


def unpack(path: Path) -> None:
    """Unpack a ``.tar.gz`` or ``.zip`` where it lies; other files, ``.gz`` included, are read as they are."""
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            archive.extractall(path.parent, filter="data")
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            archive.extractall(path.parent)
        for file in (path.parent / "gzip").glob("*.gz"):  # EMNIST's files sit one folder too deep
            os.replace(file, path.parent / file.name)


def _md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _receive(url: str, part: Path) -> None:
    """Append to `part` what is still missing, or start over if the server ignores ``Range``."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "cflkit"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to send: the checksum will tell
            return
        raise
    with response:
        have = have if response.status == 206 else 0
        total = None if response.length is None else have + response.length
        with open(part, "ab" if have else "wb") as out, tqdm(
            total=total, initial=have, unit="B", unit_scale=True, desc=part.stem
        ) as bar:
            while chunk := response.read(1 << 16):
                out.write(chunk)
                bar.update(len(chunk))
    size = part.stat().st_size
    if total is not None and size < total:
        raise ConnectionError(f"the connection broke after {size:,} of {total:,} bytes")
