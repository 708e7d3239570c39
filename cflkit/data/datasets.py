"""The readers: files of a dataset in, the columns of :class:`~cflkit.data.images.Images` out.

Where torchvision reads a format, it does so here. Written here are the readers of LEAF's JSON, of ``.npz``, of
CelebA's tables, and of the digits that come with scikit-learn. Files lie under the root as torchvision lays them.
"""

import json
import pickle
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from cflkit.checks import Positive, declared, plain, require
from cflkit.data.download import reading, within_limit
from cflkit.rng import generator

Columns = dict[str, Any]  # x, y, train, classes; perhaps scale, user and extra


def _read(name: str, root: Path, file: str, parse: Callable[[Path], Any]) -> Any:
    """Parse one file of a dataset; one line says that it is absent, or damaged."""
    path = root / file
    if not path.exists():
        raise FileNotFoundError(f"{name}: no {file} in {root}; run `cflkit data {name}`")
    with reading(path, f"fetch it again (`cflkit data {name}`)"):
        return parse(path)


def _joined(name: str, splits: Sequence[tuple], classes: int) -> Columns:
    """Put the training split, ``(pixels, labels)``, before the test split."""
    splits = [tuple(map(torch.as_tensor, split)) for split in splits]
    for x, y in splits:
        require(len(x) == len(y) > 0, f"{name}: number of labels", len(y), f"that of pictures, {len(x)}, and not 0")
    (x, y), (x_test, y_test) = splits
    train = torch.arange(len(x) + len(x_test)) < len(x)
    return {"x": torch.cat([x, x_test]), "y": torch.cat([y, y_test]), "train": train, "classes": classes}


def _digits(root: Path) -> Columns:
    """Scikit-learn's 1,797 digits, 8 x 8; one fixed fifth of every class is the test split."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    train = np.ones(len(y), bool)
    for label in range(10):
        rows = np.flatnonzero(y == label)
        train[generator(0, "digits", label).permutation(rows)[: round(len(rows) / 5)]] = False
    return {"x": x.astype(np.uint8).reshape(-1, 8, 8), "y": y, "train": train, "classes": 10, "scale": 16.0}


def _idx_files(folder: str, train: str = "train", test: str = "t10k") -> tuple[str, ...]:
    kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
    return tuple(f"{folder}/raw/{part}-{kind}" for part in (train, test) for kind in kinds)


def _idx(name: str, files: Sequence[str], classes: int, root: Path) -> Columns:
    """MNIST and its like: files of training pictures, training labels, test pictures, test labels."""
    from torchvision.datasets.mnist import read_image_file, read_label_file

    kinds = (read_image_file, read_label_file) * 2
    x, y, x_test, y_test = (_read(name, root, file, kind) for file, kind in zip(files, kinds, strict=True))
    return _joined(name, [(x, y), (x_test, y_test)], classes)


def _emnist(root: Path, split: str = "byclass") -> Columns:
    """EMNIST, upright (its files hold every picture transposed); the labels of "letters" start at 0 here."""
    classes = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}
    declared("split", split, Literal[*classes])
    files = _idx_files("EMNIST", f"emnist-{split}-train", f"emnist-{split}-test")
    columns = _idx("emnist", files, classes[split], root)
    return columns | {"x": columns["x"].transpose(1, 2), "y": columns["y"] - int(split == "letters")}


def _mnist_writers(root: Path) -> Columns:
    """MNIST with the NIST writer of each digit, as QMNIST (Yadav & Bottou 2019) recovered them."""
    from torchvision.datasets.mnist import read_sn3_pascalvincent_tensor

    name, packed = "mnist_writers", "mnist_writers.npz"
    columns = _idx(name, _MNIST, 10, root)
    y = columns["y"].split([int(columns["train"].sum()), int((~columns["train"]).sum())])
    if (root / packed).exists() and not all((root / file).exists() for file in _WRITERS):
        arrays = _read(name, root, packed, lambda path: dict(np.load(path)))
        writers = [torch.from_numpy(arrays[part]) for part in ("train", "test")]
    else:
        writers = []
        for file, labels in zip(_WRITERS, y, strict=True):
            table = _read(name, root, file, read_sn3_pascalvincent_tensor)[: len(labels)]  # MNIST's rows come first
            same = table.ndim == 2 and torch.equal(table[:, 0].long(), labels)  # digit, NIST series, writer, ...
            require(same, f"labels in {root / file}", "others", "those of MNIST, in MNIST's order")
            writers.append(table[:, 2])
    return columns | {"user": torch.cat(writers)}


def _usps(root: Path) -> Columns:
    from torchvision.datasets import USPS

    def split(path):
        data = USPS(path.parent, train=path.name == "usps.bz2")
        return data.data, data.targets

    return _joined("usps", [_read("usps", root, file, split) for file in DATASETS["usps"].files], 10)


def _svhn(root: Path) -> Columns:
    from torchvision.datasets import SVHN

    def split(path):
        data = SVHN(path.parent, split=path.name.partition("_")[0])
        return data.data, data.labels

    return _joined("svhn", [_read("svhn", root, file, split) for file in DATASETS["svhn"].files], 10)


def _cifar(name: str, kind: str, classes: int, root: Path) -> Columns:
    """CIFAR. Its files are pickles, which could run code, so that only the published ones are opened."""
    from torchvision import datasets
    from torchvision.datasets.utils import check_integrity

    source = getattr(datasets, kind)

    def verify(path):
        require(check_integrity(path, sums[path.name]), "its checksum", "another", sums[path.name])

    sums = dict((*source.train_list, *source.test_list, (source.meta["filename"], source.meta["md5"])))
    for file in DATASETS[name].files:
        _read(name, root, file, verify)
    splits = [source(root, train=train) for train in (True, False)]
    return _joined(name, [(split.data.transpose(0, 3, 1, 2), split.targets) for split in splits], classes)


def _cifar100(root: Path) -> Columns:
    """CIFAR-100 with its 100 fine labels; the 20 coarse ones are in ``extra["coarse"]``."""
    columns = _cifar("cifar100", "CIFAR100", 100, root)
    parts = [pickle.loads((root / file).read_bytes(), encoding="latin1") for file in DATASETS["cifar100"].files[:2]]
    return columns | {"extra": {"coarse": np.concatenate([part["coarse_labels"] for part in parts])}}


def _faces(name: str, folder: Path, files: Sequence[str]) -> Tensor:
    """Read aligned CelebA pictures, resized to 84 x 84 as in LEAF: ``(n, 3, 84, 84)``."""
    from PIL import Image
    from tqdm import tqdm

    def face(path):
        with Image.open(path) as picture:
            small = picture.convert("RGB").resize((84, 84), Image.Resampling.BILINEAR)
            return np.asarray(small).transpose(2, 0, 1)

    x = np.empty((len(files), 3, 84, 84), np.uint8)
    for i, file in enumerate(tqdm(files, desc=name, unit="face", delay=5)):
        x[i] = _read(name, folder, file, face)
    return torch.from_numpy(x)


def _celeba(root: Path) -> Columns:
    """CelebA's 202,599 faces (4.3 GB): label = smiling, user = identity; 40 attributes (0/1) in `extra`.

    torchvision's reader wants two more tables, of boxes and landmarks, and gives one picture at a time.
    """
    import pandas as pd

    def table(path, **header):
        rows = pd.read_csv(path, sep=r"\s+", index_col=0, **header).astype(np.int64)
        if not rows.index.equals(index if len(index) else rows.index):
            raise ValueError("rows are missing or incomplete")
        return rows

    index, (listed, *others) = (), DATASETS["celeba"].files[1:]
    attributes = _read("celeba", root, listed, lambda path: table(path, skiprows=1))  # a count comes first
    index = attributes.index
    person, part = (_read("celeba", root, file, lambda path: table(path, header=None)[1]) for file in others)
    return {"x": _faces("celeba", root, [f"celeba/img_align_celeba/{file}" for file in index]),
            "y": attributes["Smiling"].to_numpy() > 0, "train": part.to_numpy() == 0, "classes": 2,
            "user": person.to_numpy(copy=True),
            "extra": {"attributes": (attributes.to_numpy() > 0).astype(np.uint8)}}  # fmt: skip


def _leaf(name: str, root: Path, classes: int, decode: Callable[[list], np.ndarray]) -> Columns:
    """LEAF's JSON: one or more files under train/ and under test/, the samples of each user together."""
    x, y, train, users = [], [], [], []

    def add(path):
        data = json.loads(path.read_text())
        for user, n in zip(data["users"], data["num_samples"], strict=True):
            own = data["user_data"][user]
            if not len(own["x"]) == len(own["y"]) == n:
                raise ValueError(f"user {user} should have {n} samples")
            x.append(decode(own["x"]))
            y.extend(map(int, own["y"]))
            train.extend([path.parent.name == "train"] * n)
            users.extend([user] * n)

    for part in ("train", "test"):
        files = sorted((root / name / part).glob("*.json"))
        if not files:
            raise FileNotFoundError(f"{name}: no {part}/*.json in {root / name}; run `cflkit data {name}`")
        for path in files:
            _read(name, root, str(path.relative_to(root)), add)
    _, number = np.unique(users, return_inverse=True)
    return {"x": np.concatenate(x), "y": y, "train": train, "classes": classes, "user": number}


def _femnist_leaf(root: Path) -> Columns:
    """FEMNIST as LEAF writes it: 784 floats in [0, 1] a picture, the white background 1."""
    return _leaf("femnist_leaf", root, 62,
                 lambda x: to_bytes(np.array(x, np.float32).reshape(-1, 28, 28), "femnist_leaf", 1)[0])


def _celeba_leaf(root: Path) -> Columns:
    """CelebA as LEAF writes it: file names, relative to ``raw/img_align_celeba`` in the same folder."""
    columns = _leaf("celeba_leaf", root, 2, lambda x: np.array(x, str))
    files = [f"celeba_leaf/raw/img_align_celeba/{file}" for file in columns["x"]]
    return columns | {"x": _faces("celeba_leaf", root, files)}


def to_bytes(values: np.ndarray, name: str, scale: float | None = None) -> tuple[np.ndarray, float]:
    """Return pixels as uint8, and which of them means 1.

    Integers stay as they are if `scale` is at most 255, and other values are brought to 0..255 and rounded.

    Parameters
    ----------
    values : array
        Integers or floats from 0 to `scale`.
    name : str
        Whose they are.
    scale : float, optional
        The value that means 1; 255 for integers and 1 for floats if None, unless all pixels stay far below that.

    Raises
    ------
    ValueError
        If a pixel is out of range, or what it means would be a guess.
    """
    declared(f"{name}: scale", scale, Positive | None)
    require(values.dtype.kind in "iuf", f"{name}: x.dtype", str(values.dtype), "uint8, an integer or a float")
    whole = values.dtype.kind != "f"
    top = scale or (255 if whole else 1)
    wrong = values[~((values >= 0) & (values <= top))]  # also catches NaN
    allowed = f"in [0, {top:g}] for {values.dtype} pixels" + ", or scale the value that means 1" * (scale is None)
    require(wrong.size == 0, f"{name}: x", wrong[:1].tolist(), allowed)
    largest = values.max(initial=0)
    allowed = f"given, as no pixel is above {largest:.4g}: the value that means 1, such as {largest:.4g}, or {top}"
    require(scale is not None or largest == 0 or largest > top / 2, f"{name}: scale", scale, allowed)
    if whole and top <= 255:
        return values.astype(np.uint8, copy=False), float(top)
    return np.rint(values * np.float32(255 / top)).astype(np.uint8), 255.0


def count_labels(y: np.ndarray, name: str) -> int:
    """Return how many labels there are, one more than the largest; each must have a picture, or they are ids.

    Raises
    ------
    ValueError
        Naming the first label without a picture.
    """
    there = np.unique(y)
    dense = len(there) == 0 or there[0] < 0 or there[-1] == len(there) - 1
    missing = 0 if dense else int(np.flatnonzero(there != np.arange(len(there)))[0])
    allowed = (f"0..{len(there) - 1}, as there are {len(there)} of them and label {missing} has no picture "
               "(np.unique(y, return_inverse=True)[1] numbers them), or classes given")  # fmt: skip
    require(dense, f"{name}: y", [*there[:3].tolist(), "..."], allowed)
    return int(there.max(initial=0)) + 1


def check_columns(arrays: Mapping[str, np.ndarray], n: int, name: str) -> None:
    """Require of the columns that are there that each has `n` values of its kind: none is rounded in silence."""
    for key in ("y", "train", "user", "cluster"):
        if key in arrays:
            kinds, what = ("b", "booleans") if key == "train" else ("iu", "integers below 2**63")
            values = arrays[key]
            ok = values.shape == (n,) and values.dtype.kind in kinds and int(values.max(initial=0)) < 2**63
            require(ok, f"{name}: {key}", f"{values.dtype}{list(values.shape)}", f"{n} {what}")


def npz(path: Path, classes: int | None = None, scale: float | None = None) -> Columns:
    """Read a ``.npz``; :func:`cflkit.data.images.load` says what it holds."""
    with reading(path, "make it again"):
        with zipfile.ZipFile(path) as archive:
            within_limit(member.file_size for member in archive.infolist())
        arrays = dict(np.load(path))
    for key in ("x", "y", "train"):
        require(key in arrays, f"{path}: arrays", sorted(arrays), f"x, y, train[, user, cluster]; {key} is missing")
    x = arrays.pop("x")
    colour = x.ndim == 4
    require(x.ndim == 3 or (colour and x.shape[3] == 3), f"{path}: x.shape", x.shape, "(n, H, W) or (n, H, W, 3)")
    n = len(x)
    check_columns(arrays, n, str(path))
    columns = {key: arrays.pop(key) for key in ("y", "train", "user") if key in arrays}
    stored, means_one = arrays.pop("classes", None), plain(arrays.pop("scale", None))
    if classes is None:
        classes = count_labels(columns["y"], str(path)) if stored is None else stored.tolist()
    extra = {k: v for k, v in arrays.items() if v.shape[:1] == (n,) and v.dtype.kind in "biuf"}
    x, scale = to_bytes(x, str(path), means_one if scale is None else scale)
    x = x.transpose(0, 3, 1, 2) if colour else x
    return columns | {"x": x, "classes": classes, "scale": scale, "extra": extra}


@dataclass(frozen=True)
class Dataset:
    """How a known dataset is read.

    Attributes
    ----------
    read : callable
        From the root, and options by name, to columns.
    files : tuple of str
        What must lie in the root.
    npz : bool
        Whether NAME.npz may stand in for them.
    """

    read: Callable[..., Columns]
    files: tuple[str, ...] = ()
    npz: bool = True


_MNIST, _FASHION = _idx_files("MNIST"), _idx_files("FashionMNIST")
_WRITERS = ("QMNIST/raw/qmnist-train-labels-idx2-int", "QMNIST/raw/qmnist-test-labels-idx2-int")
LEAF = {"femnist_leaf": "femnist", "celeba_leaf": "celeba"}
DATASETS = {
    "digits": Dataset(_digits),
    "mnist": Dataset(partial(_idx, "mnist", _MNIST, 10), _MNIST),
    "mnist_writers": Dataset(_mnist_writers, (*_MNIST, *_WRITERS), npz=False),
    "fashion_mnist": Dataset(partial(_idx, "fashion_mnist", _FASHION, 10), _FASHION),
    "emnist": Dataset(_emnist, _idx_files("EMNIST", "emnist-byclass-train", "emnist-byclass-test")),
    "usps": Dataset(_usps, ("USPS/usps.bz2", "USPS/usps.t.bz2")),
    "svhn": Dataset(_svhn, ("SVHN/train_32x32.mat", "SVHN/test_32x32.mat")),
    "cifar10": Dataset(partial(_cifar, "cifar10", "CIFAR10", 10), (
        *(f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)),
        "cifar-10-batches-py/test_batch", "cifar-10-batches-py/batches.meta")),
    "cifar100": Dataset(_cifar100, tuple(f"cifar-100-python/{file}" for file in ("train", "test", "meta"))),
    "celeba": Dataset(_celeba, ("celeba/img_align_celeba", "celeba/list_attr_celeba.txt",
                                "celeba/identity_CelebA.txt", "celeba/list_eval_partition.txt")),
    "femnist_leaf": Dataset(_femnist_leaf, ("femnist_leaf/train", "femnist_leaf/test"), npz=False),
    "celeba_leaf": Dataset(_celeba_leaf, ("celeba_leaf/train", "celeba_leaf/test"), npz=False),
}  # fmt: skip


def present(name: str, root: Path) -> bool:
    """Tell whether all files of a known dataset lie in the root."""
    files = DATASETS[name].files
    if name == "mnist_writers" and (root / "mnist_writers.npz").exists():
        files = _MNIST
    return all((root / file).exists() for file in files)
