"""Pictures in: every dataset becomes one :class:`Images` value, held as unsigned bytes.

Nothing here touches the network except :func:`fetch`, and nothing happens at import.
"""

import inspect
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cflkit.checks import Checked, Count, Positive, declared, known, plain, require
from cflkit.data import datasets, download
from cflkit.data.datasets import DATASETS


@dataclass(frozen=True, eq=False)
class Images(Checked):
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
    source : str, dict or list
        What :func:`load` takes to make the same again, where that is not the name: a path, or arguments by name;
        a list, where several datasets were joined.

    Raises
    ------
    ValueError
        If shapes, types or labels disagree with the above; one line naming the field.
    """

    name: str
    x: Tensor
    y: Tensor
    train: Tensor
    classes: Count
    scale: Positive = 255.0
    user: Tensor | None = None
    extra: dict[str, Tensor] = field(default_factory=dict)
    source: Any = None

    def __post_init__(self):
        super().__post_init__()

        def check(ok, column, value, allowed):
            require(ok, f"{self.name}: {column}", value, allowed)

        types = {"x": torch.uint8, "y": torch.int64, "train": torch.bool, "user": torch.int64}
        for column, kind in types.items():
            values = getattr(self, column)
            check(values is None or values.dtype == kind, f"{column}.dtype", getattr(values, "dtype", None), kind)
            check(values is None or values.is_cpu, f"{column}.device", str(getattr(values, "device", "")), "cpu")
        check(self.x.ndim == 4 and self.x.numel() > 0, "x.shape", tuple(self.x.shape), "(n, C, H, W) with n > 0")
        for column, values in {"y": self.y, "train": self.train, "user": self.user, **self.extra}.items():
            if values is not None:
                check(isinstance(values, Tensor), column, values, "a tensor")
                shape, flat = tuple(values.shape), column in types
                ok = shape[:1] == (len(self.x),) and (len(shape) == 1 or not flat)
                check(ok, f"{column}.shape", shape, f"({len(self.x)}{',' if flat else ', ...'})")
        wrong = self.y[(self.y < 0) | (self.y >= self.classes)]
        check(len(wrong) == 0, "y", wrong[:1].tolist(), f"labels in 0..{self.classes - 1}")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(C, H, W)`` of one picture."""
        return tuple(self.x.shape[1:])


def load(name: str | Path, root: str | Path | None = None, **options) -> Images:
    """Load a dataset that is already on this machine.

    Parameters
    ----------
    name : str
        One of :func:`names`; or the name of a ``.npz`` in the root; or a path ending in ``.npz``. Such a file
        holds `x` (``(n, H, W)`` or ``(n, H, W, 3)``), `y` and `train`. It may hold `user`, `cluster` (the true
        cluster of each picture's user, which :class:`~cflkit.data.builders.ByUser` passes on), `classes` and
        `scale`. Any further numeric array with n rows goes to `extra`, as `cluster` does.
    root : path, optional
        Where datasets lie. Default: ``$CFLKIT_DATA``, else ``~/.cache/cflkit``.
    **options
        ``split`` for emnist ("byclass", "bymerge", "balanced", "letters", "digits", "mnist"); for a ``.npz``
        ``classes`` and ``scale``, as for :func:`of` (default: its own).

    Raises
    ------
    FileNotFoundError
        If the dataset is absent; the line says how to fetch it and where it was looked for.
    ValueError
        If the name or an option is unknown, or a file is damaged; the line names it.
    """
    declared("name", name, str | Path)
    name, folder = str(name), _root(root)
    by_path = name.endswith(".npz")
    packed = Path(name).expanduser() if by_path else folder / f"{name}.npz"
    if name in DATASETS and (datasets.present(name, folder) or not (DATASETS[name].npz and packed.exists())):
        read, where = DATASETS[name].read, folder
    elif packed.exists():
        read, where = datasets.npz, packed
    elif by_path:
        raise FileNotFoundError(f"{name}: no such file")
    else:
        require(False, "name", name, f"one of {', '.join(names())}, or that of a .npz file in {folder}")
    for option in options:
        known(list(inspect.signature(read).parameters)[1:], option, f"option of {name}")
    columns = read(where, **options)
    elsewhere = by_path or (name not in DATASETS and folder != _root(None))
    source = str(packed.resolve()) if elsewhere else name
    return _images(packed.stem if by_path else name, columns, {"name": source, **options} if options else source)


def _images(name: str, columns: datasets.Columns, source: str | dict) -> Images:
    """Wrap columns: grey ``(n, H, W)`` becomes ``(n, 1, H, W)``, labels get 64 bits."""
    columns = dict(columns)
    x = torch.as_tensor(columns.pop("x"))
    for column, kind in {"y": torch.int64, "train": torch.bool, "user": torch.int64}.items():
        if column in columns:
            columns[column] = torch.as_tensor(columns[column]).to(kind)
    extra = {k: torch.as_tensor(v) for k, v in columns.pop("extra", {}).items()}
    return Images(name, (x[:, None] if x.ndim == 3 else x).contiguous(), extra=extra, source=source, **columns)


def of(
    x: Tensor | np.ndarray, y: Tensor | np.ndarray, user: Tensor | np.ndarray | None = None, *,
    train: Tensor | np.ndarray | None = None, cluster: Tensor | np.ndarray | None = None, name: str = "own",
    scale: float | None = None, classes: int | None = None,
) -> Images:
    """Make images of what is in memory already; a builder's configuration cannot load them again.

    :func:`describe` shows what was understood.

    Parameters
    ----------
    x : Tensor or array
        Grey ``(n, H, W)`` or ``(n, C, H, W)``: bytes, or integers or floats, which are rounded to 256 levels.
    y : Tensor or array
        ``(n,)`` labels, from 0 on.
    user : Tensor or array, optional
        ``(n,)`` integers: the client behind each picture, for :class:`~cflkit.data.builders.ByUser`.
    train : Tensor or array, optional
        ``(n,)`` booleans: the training split; all of them if None, and then builders want ``test="own"``.
    cluster : Tensor or array, optional
        ``(n,)`` integers: the true cluster of each picture's user.
    name : str
        What to call them.
    scale : float, optional
        The pixel value that means 1. If None, 255 for integers and 1 for floats; it must be given where no pixel is
        above half of that.
    classes : int, optional
        Number of labels; must be given where one of them has no picture.

    Raises
    ------
    ValueError
        If a pixel, a label, a shape or a kind of number is not allowed, or would have to be guessed; one line.
    """
    declared("classes", plain(classes), Count | None)
    require(name not in DATASETS, "name", name, "another one: a configuration of that name loads the dataset")
    arrays = {"x": x, "y": y, "user": user, "train": train, "cluster": cluster}
    arrays = {key: _array(f"{name}: {key}", v) for key, v in arrays.items() if v is not None or key in "xy"}
    _need_channels_first(name, arrays["x"])
    datasets.check_columns(arrays, len(arrays["x"]), name)
    extra = {"cluster": arrays.pop("cluster")} if "cluster" in arrays else {}
    arrays["x"], scale = datasets.to_bytes(arrays["x"], name, plain(scale))
    classes = datasets.count_labels(arrays["y"], name) if classes is None else plain(classes)
    columns = {"train": np.ones(len(arrays["y"]), bool)} | arrays
    return _images(name, columns | {"classes": classes, "scale": scale, "extra": extra}, name)


def _array(name: str, value: Tensor | np.ndarray) -> np.ndarray:
    """A tensor of any kind and place, or what NumPy takes for an array."""
    require(not np.ma.isMaskedArray(value), name, "a masked array", "whole: what is masked would be shown")
    try:
        if isinstance(value, Tensor):
            value = value.detach().to_dense().cpu()
            known = not value.is_floating_point() or value.dtype in (torch.float16, torch.float32, torch.float64)
            value = value.numpy() if known else value.float().numpy()
        value = np.require(value, requirements="CW")  # others PyTorch would refuse, or warn of: those of pandas
    except (ValueError, TypeError, RuntimeError) as error:
        line = f"{name} = {type(value).__name__}: must be a tensor or an array of numbers"
        raise ValueError(f"{line}; {str(error).partition(chr(10))[0]}") from error
    require(value.ndim > 0, name, value.tolist(), "a tensor or an array of numbers")
    return value


def _need_channels_first(name: str, x: np.ndarray) -> None:
    """Refuse channels behind rows and columns, and an alpha channel that says nothing."""
    if x.ndim == 4:
        what, colours = f"{name}: x.shape", (1, 3)
        last = (x.shape[1] not in colours and x.shape[3] in colours) or (x.shape[1] > 4 and x.shape[3] <= 4)
        require(not last, what, x.shape, "(n, H, W) or (n, C, H, W), channels before rows and columns")
        alpha = x.shape[1] in (2, 4) and x.size and np.ptp(x[:, -1]) == 0
        require(not alpha, what, x.shape, "without the last channel, which is the same everywhere (alpha)")


def describe(images: Images) -> tuple[dict[str, Any], np.ndarray]:
    """Return what was understood of images: facts, and nine pictures to look at.

    Returns
    -------
    facts : dict
        ``name``; ``pictures``, and how many of them ``train``; ``shape`` (C, H, W); ``scale``, and the ``darkest``
        and ``brightest`` pixel as a model sees them; ``labels``, the number of pictures of each; ``users``, how
        many or None; ``copies``, pictures that are those of an earlier row to the last pixel, and
        ``copies_in_test``, test pictures that are also trained on; ``rows`` and ``shown``, rows and labels of the
        nine.
    mosaic : array (3 H, 3 W) or (3 H, 3 W, 3) of float
        The nine, row by row, as a model sees them: 0 is dark and 1 is light. They are evenly spaced when all are
        ordered by label; black where there are fewer. Of other than 1 or 3 channels the first is shown.
    """
    declared("images", images, Images)
    n, (channels, height, width) = len(images), images.shape
    pictures = [row.tobytes() for row in images.x.numpy()]
    train = images.train.tolist()
    trained = {picture for picture, used in zip(pictures, train, strict=True) if used}
    order = np.argsort(images.y.numpy(), kind="stable")
    rows = order[np.linspace(0, n - 1, min(n, 9)).round().astype(int)]
    facts = {
        "name": images.name,
        "pictures": n,
        "train": sum(train),
        "shape": images.shape,
        "scale": images.scale,
        "darkest": int(images.x.min()) / images.scale,
        "brightest": int(images.x.max()) / images.scale,
        "labels": torch.bincount(images.y, minlength=images.classes).tolist(),
        "users": None if images.user is None else len(images.user.unique()),
        "copies": n - len(set(pictures)),
        "copies_in_test": sum(not used and p in trained for p, used in zip(pictures, train, strict=True)),
        "rows": rows.tolist(),
        "shown": images.y[rows].tolist(),
    }
    shown = np.zeros((9, height, width, 3 if channels == 3 else 1))
    shown[: len(rows)] = images.x[rows][:, : shown.shape[3]].permute(0, 2, 3, 1).numpy() / images.scale
    mosaic = shown.reshape(3, 3, height, width, -1).swapaxes(1, 2).reshape(3 * height, 3 * width, -1)
    return facts, mosaic if channels == 3 else mosaic[..., 0]


def names() -> list[str]:
    """Return the datasets known by name (any ``.npz`` in the root can be loaded besides)."""
    return list(DATASETS)


def status(root: str | Path | None = None) -> dict[str, str]:
    """Return "bundled", "present" or "absent" for each known dataset and each ``.npz`` in the root."""
    folder = _root(root)
    packed = {p.stem for p in folder.glob("[!.]*.npz")} if folder.is_dir() else set()

    def state(name):
        if name == "digits":
            return "bundled"
        here = name not in DATASETS or datasets.present(name, folder) or (DATASETS[name].npz and name in packed)
        return "present" if here else "absent"

    return {name: state(name) for name in [*names(), *sorted(packed - DATASETS.keys())]}


def need(name: str) -> None:
    """Require that a dataset is on this machine, without reading it.

    Parameters
    ----------
    name : str
        As for :func:`load`.

    Raises
    ------
    FileNotFoundError
        If it is absent; the line says how to fetch it and where it was looked for.
    """
    by_path = name.endswith(".npz") and Path(name).expanduser().is_file()
    if not by_path and status().get(name, "absent") == "absent":
        load(name)


def fetch(name: str, root: str | Path | None = None) -> None:
    """Download a dataset, unless it already loads. Files that are complete are kept; others start anew.

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
        If no server can be reached or the connection breaks.
    """
    known(names(), name, "name")
    folder = _root(root)
    if name != "celeba":  # decoding 202,599 faces to learn whether they are there takes minutes
        try:
            load(name, folder)
            return
        except (FileNotFoundError, ValueError):
            pass  # absent or damaged: both are mended below
    original = datasets.LEAF.get(name)
    require(original is None, "name", name, f"made with LEAF: run its data/{original}/preprocess.sh -s niid "
            f"--sf 1.0 -k 0 -t sample, then copy data/{original}/data to {folder / name}")
    for file in download.files(name):
        download.download(file.urls, folder / file.path, file.md5)
        download.unpack(folder / file.path)


def _root(root: str | Path | None) -> Path:
    declared("root", root, str | Path | None)
    return Path(root or os.environ.get("CFLKIT_DATA") or "~/.cache/cflkit").expanduser()
