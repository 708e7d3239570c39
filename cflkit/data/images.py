"""Pictures in: every dataset becomes one :class:`Images` value, held as unsigned bytes.

Nothing here touches the network except :func:`fetch`, and nothing happens at import. Files are looked for
under one root: the argument, else ``$CFLKIT_DATA``, else ``~/.cache/cflkit``. Checksums are verified once,
when a file is downloaded; loading reads any file in the true format and reports what is damaged.
"""

import bz2
import codecs
import gzip
import inspect
import json
import os
import pickle
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cflkit.checks import one_of, require
from cflkit.data import download
from cflkit.rng import generator


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled pictures of one size.

    Attributes
    ----------
    name : str
        The dataset.
    x : Tensor
        ``(n, C, H, W)`` uint8; `x` / `scale` lies in [0, 1].
    y : Tensor
        ``(n,)`` int64 labels in 0 .. `classes` - 1.
    train : Tensor
        ``(n,)`` bool, the dataset's own training split.
    classes : int
        Number of labels.
    scale : float
        The pixel value that means 1 (255; 16 for the bundled digits).
    user : Tensor or None
        ``(n,)`` int64, the writer or person behind each picture.
    extra : dict of str to Tensor
        Further columns whose rows align with `x`, such as CelebA's attributes.

    Raises
    ------
    ValueError
        If shapes, types or labels disagree with the above; one line naming the field.
    """

    name: str
    x: Tensor
    y: Tensor
    train: Tensor
    classes: int
    scale: float = 255.0
    user: Tensor | None = None
    extra: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self):
        def check(ok, column, value, allowed):
            require(ok, f"{self.name}: {column}", value, allowed)

        check(self.x.dtype == torch.uint8, "x.dtype", self.x.dtype, "torch.uint8")
        check(self.x.ndim == 4 and len(self.x) > 0, "x.shape", tuple(self.x.shape), "(n, C, H, W) with n > 0")
        check(self.y.dtype == torch.int64, "y.dtype", self.y.dtype, "torch.int64")
        check(self.train.dtype == torch.bool, "train.dtype", self.train.dtype, "torch.bool")
        columns = {"y": self.y, "train": self.train, "user": self.user, **self.extra}
        for column, values in columns.items():
            if values is not None:
                check(len(values) == len(self.x), f"len({column})", len(values), f"len(x) = {len(self.x)}")
        wrong = self.y[(self.y < 0) | (self.y >= self.classes)]
        check(len(wrong) == 0, "y", wrong[:1].tolist(), f"labels in 0..{self.classes - 1}")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(C, H, W)`` of one picture."""
        return tuple(self.x.shape[1:])


def load(name: str, root: str | Path | None = None, **options) -> Images:
    """Load a dataset that is already on this machine.

    Parameters
    ----------
    name : str
        One of :func:`names`; or the name of a ``.npz`` in the root; or a path ending in ``.npz``. Such a file
        holds `x` (``(n, H, W)`` or ``(n, H, W, 3)``), `y`, `train`, perhaps `user` and `classes`; any further
        numeric array with n rows goes to `extra`.
    root : path, optional
        Where datasets lie. Default: ``$CFLKIT_DATA``, else ``~/.cache/cflkit``.
    **options
        ``split`` for emnist ("byclass", "bymerge", "balanced", "letters", "digits", "mnist"); ``classes`` for
        a ``.npz`` (default: its own `classes`, else the largest label + 1).

    Returns
    -------
    Images

    Raises
    ------
    FileNotFoundError
        If the dataset is absent; the line says how to fetch it and where it was looked for.
    ValueError
        If the name or an option is unknown, or a file is damaged; the line names it.
    """
    folder = _root(root)
    packed = Path(name).expanduser() if name.endswith(".npz") else folder / f"{name}.npz"
    if name in _READERS and (_complete(name, folder) or not (_READERS[name].npz and packed.exists())):
        read, where = _READERS[name].read, folder
    elif packed.exists():
        read, where = _npz, packed
    elif name.endswith(".npz"):
        raise FileNotFoundError(f"{name}: no such file")
    else:
        require(False, "name", name, f"one of {', '.join(names())}, or that of a .npz file in {folder}")
    allowed = list(inspect.signature(read).parameters)[1:]
    for option in options:
        require(option in allowed, f"option of {name}", option, f"one of {allowed}")
    return read(where, **options)


def names() -> list[str]:
    """Return the datasets known by name (any ``.npz`` in the root can be loaded besides)."""
    return list(_READERS)


def status(root: str | Path | None = None) -> dict[str, str]:
    """Return "bundled", "present" or "absent" for each known dataset and each ``.npz`` found in the root."""
    folder = _root(root)
    packed = {p.stem for p in folder.glob("[!.]*.npz")} if folder.is_dir() else set()

    def state(name):
        if name == "digits":
            return "bundled"
        if name not in _READERS or _complete(name, folder) or (_READERS[name].npz and name in packed):
            return "present"
        return "absent"

    return {name: state(name) for name in [*names(), *sorted(packed - _READERS.keys())]}


def fetch(name: str, root: str | Path | None = None) -> None:
    """Download a dataset, unless it already loads; an interrupted download goes on where it stopped.

    Parameters
    ----------
    name : str
        One of :func:`names`.
    root : path, optional
        As for :func:`load`.

    Raises
    ------
    ValueError
        If there is nothing to download under that name, or a checksum is wrong.
    ConnectionError
        If no server can be reached or the connection breaks; run again to resume.
    """
    one_of("name", name, names())
    folder = _root(root)
    if name != "celeba":  # decoding 202,599 faces to learn whether they are there takes minutes
        try:
            load(name, folder)
            return
        except (FileNotFoundError, ValueError):
            pass  # absent or damaged: both are mended below
    original = _LEAF.get(name)
    require(original is None, "name", name, f"made with LEAF: run its data/{original}/preprocess.sh -s niid "
            f"--sf 1.0 -k 0 -t sample, then copy data/{original}/data to {folder / name}")
    for file in download.files(name):
        download.download(file.urls, folder / file.path, file.md5)
        download.unpack(folder / file.path)


def _root(root: str | Path | None) -> Path:
    return Path(root or os.environ.get("CFLKIT_DATA") or "~/.cache/cflkit").expanduser()


def _exists(path: Path) -> Path | None:
    """Return the file, gzipped or plain; gzipped first, for it is the one whose checksum was verified."""
    return next((p for p in (path.with_name(path.name + ".gz"), path) if p.exists()), None)


def _complete(name: str, folder: Path) -> bool:
    files = _READERS[name].files
    if name == "mnist_writers" and (folder / "mnist_writers.npz").exists():
        files = _READERS["mnist"].files
    return all(_exists(folder / file) for file in files)


def _need(name: str, folder: Path, file: str) -> Path:
    found = _exists(folder / file)
    if found is None:
        raise FileNotFoundError(f"{name}: no {file} in {folder}; run `cflkit fetch {name}`")
    return found


@contextmanager
def _reading(path: Path, name: str) -> Iterator[None]:
    """Turn whatever a damaged file makes its parser raise into one line."""
    try:
        yield
    except (FileNotFoundError, PermissionError, MemoryError):
        raise
    except Exception as error:  # the parsers raise a dozen types between them, some of their own
        how = f" (`cflkit fetch {name}`)" if name in _READERS else ""
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{path} is damaged or cut short [{what}]: fetch it again{how}") from error


def _bytes(values: np.ndarray, name: str) -> np.ndarray:
    """Return pixels as uint8: bytes and integers in 0..255 as they are, floats in [0, 1] times 255."""
    if values.dtype == np.uint8:
        return values
    require(values.dtype.kind in "iuf", f"{name}: x.dtype", str(values.dtype), "uint8, an integer or a float")
    top = 1 if values.dtype.kind == "f" else 255
    wrong = values[~((values >= 0) & (values <= top))]  # also catches NaN
    require(wrong.size == 0, f"{name}: x", wrong[:1].tolist(), f"in [0, {top}] for {values.dtype} pixels")
    return np.rint(values * np.float32(255 / top)).astype(np.uint8)


def _images(name: str, x: np.ndarray, y: np.ndarray, train: np.ndarray, classes: int, **more) -> Images:
    """Wrap arrays: grey ``(n, H, W)`` becomes ``(n, 1, H, W)``, 64-bit labels, no copy of the pixels."""
    columns = {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in more.pop("extra", {}).items()}
    user = more.pop("user", None)
    return Images(
        name, torch.from_numpy(np.ascontiguousarray(x[:, None] if x.ndim == 3 else x)),
        torch.from_numpy(np.asarray(y, np.int64)), torch.from_numpy(np.asarray(train, bool)), classes,
        user=None if user is None else torch.from_numpy(np.asarray(user, np.int64)), extra=columns, **more,
    )


def _split(name: str, parts: list[tuple[np.ndarray, np.ndarray]], classes: int, **more) -> Images:
    """Join a (pixels, labels) pair for training with one for test."""
    (x, y), (x_test, y_test) = parts
    for a, b in parts:
        require(len(a) == len(b), f"{name}: number of labels", len(b), f"that of pictures, {len(a)}")
    return _images(name, np.concatenate([x, x_test]), np.concatenate([y, y_test]),
                   np.arange(len(x) + len(x_test)) < len(x), classes, **more)


def _digits(root: Path) -> Images:
    """Scikit-learn's 1,797 digits, 8 x 8; one fixed fifth of every class is the test split."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    train = np.ones(len(y), bool)
    for label in range(10):
        rows = np.flatnonzero(y == label)
        train[generator(0, "digits", label).permutation(rows)[: round(len(rows) / 5)]] = False
    return _images("digits", x.astype(np.uint8).reshape(-1, 8, 8), y, train, 10, scale=16.0)


def _idx_file(path: Path) -> np.ndarray:
    """Read the IDX format: 0, 0, type, rank, big-endian sizes, values."""
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        raw = file.read()
    _, kind, rank = struct.unpack(">HBB", raw[:4])
    sizes = struct.unpack(f">{rank}I", raw[4 : 4 + 4 * rank])
    return np.frombuffer(raw, {8: ">u1", 12: ">i4"}[kind], offset=4 + 4 * rank).reshape(sizes)


def _idx(name: str, root: Path, files: tuple[str, ...], classes: int) -> Images:
    """Read training pictures, training labels, test pictures, test labels."""
    arrays = []
    for file in files:
        path = _need(name, root, file)
        with _reading(path, name):
            arrays.append(_idx_file(path))
    return _split(name, [tuple(arrays[:2]), tuple(arrays[2:])], classes)


def _idx_names(folder: str, train: str = "train", test: str = "t10k") -> tuple[str, ...]:
    kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
    return tuple(f"{folder}/raw/{part}-{kind}" for part in (train, test) for kind in kinds)


def _mnist(root: Path) -> Images:
    return _idx("mnist", root, _READERS["mnist"].files, 10)


def _fashion_mnist(root: Path) -> Images:
    return _idx("fashion_mnist", root, _READERS["fashion_mnist"].files, 10)


def _emnist(root: Path, split: str = "byclass") -> Images:
    """EMNIST, upright (its files hold every picture transposed); the labels of "letters" start at 0 here."""
    classes = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}
    one_of("split", split, classes)
    first = int(split == "letters")
    raw = _idx("emnist", root, _idx_names("EMNIST", f"emnist-{split}-train", f"emnist-{split}-test"),
               classes[split] + first)
    return Images("emnist", raw.x.transpose(2, 3).contiguous(), raw.y - first, raw.train, classes[split])


def _mnist_writers(root: Path) -> Images:
    """MNIST with the NIST writer of each digit, as QMNIST (Yadav & Bottou 2019) recovered them."""
    name = "mnist_writers"
    images = _idx(name, root, _READERS["mnist"].files, 10)
    sizes = (int(images.train.sum()), int((~images.train).sum()))
    packed = root / "mnist_writers.npz"
    if packed.exists() and not all(_exists(root / file) for file in _WRITERS):
        with _reading(packed, name), np.load(packed) as arrays:
            writers = [arrays["train"], arrays["test"]]
    else:
        writers = []
        for file, y in zip(_WRITERS, images.y.split(sizes), strict=True):
            path = _need(name, root, file)
            with _reading(path, name):
                table = _idx_file(path)[: len(y)]  # digit, NIST series, writer, ...; MNIST's rows come first
                same = np.array_equal(table[:, 0], y.numpy())
            require(same, f"labels in {path}", "others", "those of MNIST, in MNIST's order")
            writers.append(table[:, 2])
    user = np.concatenate(writers).astype(np.int64)
    return Images(name, images.x, images.y, images.train, 10, user=torch.from_numpy(user))


def _usps(root: Path) -> Images:
    """USPS in LIBSVM's text: label in 1..10, then 256 values in [-1, 1]; to bytes as torchvision does."""
    parts = []
    for file in _READERS["usps"].files:
        path = _need("usps", root, file)
        with _reading(path, "usps"):
            text = bz2.decompress(path.read_bytes()).decode().replace(":", " ")
            rows = np.fromstring(text, np.float32, sep=" ").reshape(-1, 513)  # label, 256 (pixel, value)
            if len(rows) == 0 or (rows[:, 1::2] != np.arange(1, 257)).any():
                raise ValueError("not 256 pixels to a line")
            x = ((rows[:, 2::2] + 1) / 2 * 255).astype(np.uint8)
            parts.append((x.reshape(-1, 16, 16), rows[:, 0].astype(np.int64) - 1))
    return _split("usps", parts, 10)


class _Arrays(pickle.Unpickler):
    """Reads pickled NumPy arrays and plain containers, and refuses anything that could run code."""

    def find_class(self, module, name):
        reconstruct = np.empty(0).__reduce__()[0]
        known = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("numpy.core.multiarray", "_reconstruct"): reconstruct,
            ("numpy._core.multiarray", "_reconstruct"): reconstruct,
            ("_codecs", "encode"): codecs.encode,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a dataset")
        return known[module, name]


def _cifar(name: str, root: Path, label: str, classes: int) -> Images:
    """CIFAR's pickled batches, the last of which is the test split."""
    batches = []
    for file in _READERS[name].files:
        path = _need(name, root, file)
        with _reading(path, name), open(path, "rb") as stream:
            batch = _Arrays(stream, encoding="latin1").load()
            batches.append((batch["data"].reshape(-1, 3, 32, 32), batch[label], batch.get("coarse_labels")))
    x, y, coarse = zip(*batches, strict=True)
    more = {} if coarse[0] is None else {"extra": {"coarse": np.concatenate(coarse)}}
    return _split(name, [(np.concatenate(x[:-1]), np.concatenate(y[:-1])), (x[-1], y[-1])], classes, **more)


def _cifar10(root: Path) -> Images:
    return _cifar("cifar10", root, "labels", 10)


def _cifar100(root: Path) -> Images:
    """CIFAR-100 with its 100 fine labels; the 20 coarse ones are in ``extra["coarse"]``."""
    return _cifar("cifar100", root, "fine_labels", 100)


def _svhn(root: Path) -> Images:
    """SVHN's cropped digits; its label 10 is the digit 0."""
    from scipy.io import loadmat

    parts = []
    for file in _READERS["svhn"].files:
        path = _need("svhn", root, file)
        with _reading(path, "svhn"):
            data = loadmat(path)
            parts.append((data["X"].transpose(3, 2, 0, 1), data["y"].reshape(-1).astype(np.int64) % 10))
    return _split("svhn", parts, 10)


def _faces(name: str, folder: Path, files: list[str]) -> np.ndarray:
    """Read aligned CelebA pictures, resized to 84 x 84 as in LEAF: ``(n, 3, 84, 84)``."""
    from PIL import Image
    from tqdm import tqdm

    size, smooth = (84, 84), Image.Resampling.BILINEAR
    x = np.empty((len(files), 3, *size), np.uint8)
    for i, file in enumerate(tqdm(files, desc=name, unit="face", delay=5)):
        path = _need(name, folder, file)
        with _reading(path, name), Image.open(path) as picture:
            x[i] = np.asarray(picture.convert("RGB").resize(size, smooth)).transpose(2, 0, 1)
    return x


def _celeba(root: Path) -> Images:
    """CelebA's 202,599 faces (4.3 GB): label = smiling, user = identity; 40 attributes (0/1) in `extra`."""
    tables = []
    for file in _READERS["celeba"].files[1:]:
        path = _need("celeba", root, file)
        with _reading(path, "celeba"):
            lines = [line.split() for line in path.read_text().splitlines()]
            if not tables:  # the attributes: a count and a header come before the rows
                (count,), header, *lines = lines
                width = 1 + len(header)
            if len(lines) != int(count) or any(len(line) != width for line in lines):
                raise ValueError("rows are missing or incomplete")
            tables.append(np.array([line[1:] for line in lines], np.int64))
            width = 2
            faces = [line[0] for line in lines]
    attributes, person, part = tables
    attributes = (attributes > 0).astype(np.uint8)
    return _images("celeba", _faces("celeba", root, [f"celeba/img_align_celeba/{face}" for face in faces]),
                   attributes[:, header.index("Smiling")], part[:, 0] == 0, 2, user=person[:, 0],
                   extra={"attributes": attributes})


def _leaf(name: str, root: Path, classes: int, decode: Callable[[list], np.ndarray]) -> Images:
    """LEAF's JSON: one or more files under train/ and under test/, the samples of each user together."""
    x, y, train, users = [], [], [], []
    for part in ("train", "test"):
        files = sorted((root / name / part).glob("*.json"))
        if not files:
            raise FileNotFoundError(f"{name}: no {part}/*.json in {root / name}; run `cflkit fetch {name}`")
        for path in files:
            with _reading(path, name):
                data = json.loads(path.read_text())
                for user, n in zip(data["users"], data["num_samples"], strict=True):
                    own = data["user_data"][user]
                    if not len(own["x"]) == len(own["y"]) == n:
                        raise ValueError(f"user {user} should have {n} samples")
                    x.append(decode(own["x"]))
                    y.extend(map(int, own["y"]))
                    train.extend([part == "train"] * n)
                    users.extend([user] * n)
    _, number = np.unique(users, return_inverse=True)
    pixels = np.concatenate(x)
    if pixels.dtype.kind == "U":
        pixels = _faces(name, root, [f"{name}/raw/img_align_celeba/{file}" for file in pixels])
    return _images(name, pixels, y, train, classes, user=number)


def _femnist_leaf(root: Path) -> Images:
    """FEMNIST as LEAF writes it: 784 floats in [0, 1] a picture, the white background 1."""
    return _leaf("femnist_leaf", root, 62,
                 lambda x: _bytes(np.array(x, np.float32).reshape(-1, 28, 28), "femnist_leaf"))


def _celeba_leaf(root: Path) -> Images:
    """CelebA as LEAF writes it: file names, relative to ``raw/img_align_celeba`` in the same folder."""
    return _leaf("celeba_leaf", root, 2, lambda x: np.array(x, str))


def _npz(path: Path, classes: int | None = None) -> Images:
    """Read a ``.npz``; see :func:`load`."""
    with _reading(path, path.stem), np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    for key in ("x", "y", "train"):
        require(key in arrays, f"{path}: arrays", sorted(arrays), f"x, y, train[, user]; {key} is missing")
    x, y, train = (arrays.pop(key) for key in ("x", "y", "train"))
    user, stored = arrays.pop("user", None), arrays.pop("classes", None)
    colour = x.ndim == 4
    require(x.ndim == 3 or (colour and x.shape[3] == 3), f"{path}: x.shape", x.shape,
            "(n, H, W) or (n, H, W, 3)")
    for key, values in (("y", y), ("train", train), ("user", y if user is None else user)):
        kinds, what = ("b", "booleans") if key == "train" else ("iu", "integers")
        require(values.shape == (len(x),) and values.dtype.kind in kinds, f"{path}: {key}",
                f"{values.dtype}{list(values.shape)}", f"{len(x)} {what}")
    if classes is None:
        classes = int(y.max(initial=0)) + 1 if stored is None else int(stored)
    x = _bytes(x, str(path))
    extra = {k: v for k, v in arrays.items() if v.shape[:1] == (len(x),) and v.dtype.kind in "biuf"}
    x = x.transpose(0, 3, 1, 2) if colour else x
    return _images(path.stem, x, y, train, classes, user=user, extra=extra)


@dataclass(frozen=True)
class _Reader:
    read: Callable[..., Images]
    files: tuple[str, ...] = ()  # what must lie in the root (torchvision's layout)
    npz: bool = True  # whether NAME.npz may stand in for them


_WRITERS = ("QMNIST/raw/qmnist-train-labels-idx2-int", "QMNIST/raw/qmnist-test-labels-idx2-int")
_LEAF = {"femnist_leaf": "femnist", "celeba_leaf": "celeba"}
_READERS = {
    "digits": _Reader(_digits),
    "mnist": _Reader(_mnist, _idx_names("MNIST")),
    "mnist_writers": _Reader(_mnist_writers, (*_idx_names("MNIST"), *_WRITERS), npz=False),
    "fashion_mnist": _Reader(_fashion_mnist, _idx_names("FashionMNIST")),
    "emnist": _Reader(_emnist, _idx_names("EMNIST", "emnist-byclass-train", "emnist-byclass-test")),
    "usps": _Reader(_usps, ("USPS/usps.bz2", "USPS/usps.t.bz2")),
    "svhn": _Reader(_svhn, ("SVHN/train_32x32.mat", "SVHN/test_32x32.mat")),
    "cifar10": _Reader(_cifar10, (*(f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)),
                                  "cifar-10-batches-py/test_batch")),
    "cifar100": _Reader(_cifar100, ("cifar-100-python/train", "cifar-100-python/test")),
    "celeba": _Reader(_celeba, ("celeba/img_align_celeba", "celeba/list_attr_celeba.txt",
                                "celeba/identity_CelebA.txt", "celeba/list_eval_partition.txt")),
    "femnist_leaf": _Reader(_femnist_leaf, ("femnist_leaf/train", "femnist_leaf/test"), npz=False),
    "celeba_leaf": _Reader(_celeba_leaf, ("celeba_leaf/train", "celeba_leaf/test"), npz=False),
}
