"""Readers on small files in the true format, damaged files, downloads over loopback, and the real data."""

import bz2
import gzip
import hashlib
import io
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from cflkit import images
from cflkit.data import datasets, download

rng = np.random.default_rng(0)


def idx(path, array, kind=8, packed=False):
    """Write the IDX format byte by byte, gzipped as it is downloaded if `packed`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape)
    raw += array.astype({8: ">u1", 12: ">i4"}[kind]).tobytes()
    path.write_bytes(gzip.compress(raw) if packed else raw)


def mnist(root, folder="MNIST", n=6, test=3, packed=False, parts=("train", "t10k"), top=10):
    suffix = ".gz" if packed else ""
    x, y = rng.integers(0, 256, (n + test, 28, 28)), rng.integers(0, top, n + test)
    for part, rows in zip(parts, (slice(0, n), slice(n, None)), strict=True):
        idx(root / folder / "raw" / f"{part}-images-idx3-ubyte{suffix}", x[rows], packed=packed)
        idx(root / folder / "raw" / f"{part}-labels-idx1-ubyte{suffix}", y[rows], packed=packed)
    return x, y


def emnist(root, packed=False):
    return mnist(root, "EMNIST", packed=packed, parts=("emnist-byclass-train", "emnist-byclass-test"), top=62)


def npz(path, n=5, **change):
    x = rng.integers(0, 256, (n, 4, 6), dtype=np.uint8)
    arrays = {"x": x, "y": np.arange(n), "train": np.arange(n) < 3} | change
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
    return arrays


def refused(call, *parts, kind=ValueError):
    """The call ends in one line that has these parts."""
    with pytest.raises(kind) as error:
        call()
    assert "\n" not in str(error.value) and all(str(part) in str(error.value) for part in parts), str(error.value)


def test_digits():
    data = images.load("digits")
    assert data.x.shape == (1797, 1, 8, 8) and data.x.dtype == torch.uint8
    assert data.x.max() == data.scale == 16
    assert data.y[:10].tolist() == list(range(10)) and data.classes == 10 and data.shape == (1, 8, 8)
    held_out = torch.bincount(data.y[~data.train])  # a fifth of the 174 to 183 digits of each class
    assert held_out.tolist() == [round(n / 5) for n in torch.bincount(data.y).tolist()]
    assert torch.equal(data.train, images.load("digits").train)
    assert torch.nonzero(~data.train)[:5, 0].tolist() == [5, 7, 12, 21, 22]  # the split never changes


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_idx_pictures(tmp_path, name, folder):
    x, y = mnist(tmp_path, folder)
    data = images.load(name, tmp_path)
    assert np.array_equal(data.x[:, 0], x) and np.array_equal(data.y, y)
    assert data.train.tolist() == [True] * 6 + [False] * 3
    assert data.x.untyped_storage().nbytes() == 9 * 28 * 28  # bytes, not floats


def test_emnist_is_turned_upright_and_letters_start_at_zero(tmp_path):
    x, y = emnist(tmp_path)
    data = images.load("emnist", tmp_path)
    assert data.classes == 62 and np.array_equal(data.y, y)
    assert data.x[1, 0, 2, 5] == x[1, 5, 2] and np.array_equal(data.x[:, 0], x.transpose(0, 2, 1))
    mnist(tmp_path, "EMNIST", parts=("emnist-letters-train", "emnist-letters-test"))
    for part, labels in (("train", [1, 26, 2, 3, 4, 5]), ("test", [1, 1, 26])):
        idx(tmp_path / f"EMNIST/raw/emnist-letters-{part}-labels-idx1-ubyte", np.array(labels))
    letters = images.load("emnist", tmp_path, split="letters")
    assert letters.y.tolist() == [0, 25, 1, 2, 3, 4, 0, 0, 25] and letters.classes == 26
    refused(lambda: images.load("emnist", tmp_path, split="words"), "split = 'words'", "balanced")
    refused(lambda: images.load("emnist", tmp_path, split="digits"),
            "cflkit data emnist", tmp_path, kind=FileNotFoundError)  # fmt: skip


def test_mnist_writers_from_qmnist_and_from_npz(tmp_path):
    _, y = mnist(tmp_path)
    assert images.status(tmp_path)["mnist_writers"] == "absent"
    for part, labels, spare in (("train", y[:6], 0), ("test", y[6:], 4)):  # QMNIST has more test digits
        table = np.zeros((len(labels) + spare, 8), int)
        table[: len(labels), 0] = labels
        table[:, 2] = 1000 + np.arange(len(table))
        idx(tmp_path / f"QMNIST/raw/qmnist-{part}-labels-idx2-int", table, kind=12)
    assert images.status(tmp_path)["mnist_writers"] == "present"
    data = images.load("mnist_writers", tmp_path)
    assert data.user.tolist() == [*range(1000, 1006), *range(1000, 1003)] and np.array_equal(data.y, y)
    table[0, 0] = (table[0, 0] + 1) % 10
    idx(tmp_path / "QMNIST/raw/qmnist-test-labels-idx2-int", table, kind=12)
    refused(lambda: images.load("mnist_writers", tmp_path), "qmnist-test-labels-idx2-int", "MNIST's order")
    (tmp_path / "QMNIST/raw/qmnist-test-labels-idx2-int").unlink()
    np.savez(tmp_path / "mnist_writers.npz", train=np.arange(6), test=np.arange(3))
    assert images.load("mnist_writers", tmp_path).user.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2]


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


def cifar(root, kind, patch, arrays, **labels):
    """Write CIFAR's batches, and let torchvision take their checksums for the published ones."""
    (root / kind.base_folder).mkdir(parents=True, exist_ok=True)
    table = {}
    for i, (file, _) in enumerate(kind.train_list + kind.test_list):
        batch = {"data": arrays[i].reshape(len(arrays[i]), -1), "batch_label": "b"}
        batch |= {name: values[i] for name, values in labels.items()}
        table[file] = root / kind.base_folder / file
        table[file].write_bytes(pickle.dumps(batch, protocol=2))
    meta = root / kind.base_folder / kind.meta["filename"]
    meta.write_bytes(pickle.dumps({kind.meta["key"]: ["a"]}))
    patch.setattr(kind, "meta", kind.meta | {"md5": md5(meta)})
    for part in ("train_list", "test_list"):
        patch.setattr(kind, part, [[file, md5(table[file])] for file, _ in getattr(kind, part)])


def test_cifar10_prefers_torchvision_layout_to_npz(tmp_path, monkeypatch):
    from torchvision.datasets import CIFAR10

    x = rng.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
    npz(tmp_path / "cifar10.npz", x=x.transpose(0, 2, 3, 1)[:5])
    assert len(images.load("cifar10", tmp_path)) == 5 and images.status(tmp_path)["cifar10"] == "present"
    cifar(tmp_path, CIFAR10, monkeypatch, np.split(x, 6), labels=[[i, 9] for i in range(6)])
    data = images.load("cifar10", tmp_path)
    assert np.array_equal(data.x, x) and data.y.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9, 5, 9]
    assert data.train.tolist() == [True] * 10 + [False] * 2 and data.classes == 10 and data.extra == {}


def cifar100(root, patch):
    from torchvision.datasets import CIFAR100

    x = rng.integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    labels = {"fine_labels": [[0, 99, 5], [1, 2]], "coarse_labels": [[4, 13, 0], [1, 19]]}
    cifar(root, CIFAR100, patch, (x[:3], x[3:]), **labels)
    return x


def test_cifar100_and_its_coarse_labels(tmp_path, monkeypatch):
    x = cifar100(tmp_path, monkeypatch)
    data = images.load("cifar100", tmp_path)
    assert np.array_equal(data.x, x) and data.classes == 100 and data.y.tolist() == [0, 99, 5, 1, 2]
    assert data.extra["coarse"].tolist() == [4, 13, 0, 1, 19]


def test_a_pickle_that_would_run_code_is_refused(tmp_path, monkeypatch):
    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    cifar100(tmp_path, monkeypatch)
    (tmp_path / "cifar-100-python/test").write_bytes(pickle.dumps({"data": Harm(), "fine_labels": []}))
    refused(lambda: images.load("cifar100", tmp_path),
            tmp_path / "cifar-100-python/test", "checksum", "cflkit data cifar100")  # fmt: skip
    assert not (tmp_path / "harm").exists()


def svhn(root, patch):
    from torchvision.datasets import SVHN

    (root / "SVHN").mkdir()
    x = rng.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    for part, labels in (("train", [10, 1, 9, 2]), ("test", [3, 10, 10, 4])):
        savemat(root / f"SVHN/{part}_32x32.mat", {"X": x, "y": np.array(labels, np.uint8)[:, None]})
    rows = list(SVHN.split_list.items())[:2]
    files = {part: [url, file, md5(root / "SVHN" / file)] for part, (url, file, _) in rows}
    patch.setattr(SVHN, "split_list", files)
    return x


def test_svhn_label_ten_is_zero(tmp_path, monkeypatch):
    x = svhn(tmp_path, monkeypatch)
    data = images.load("svhn", tmp_path)
    assert data.y.tolist() == [0, 1, 9, 2, 3, 0, 0, 4] and data.x.shape == (8, 3, 32, 32)
    assert data.x[1, 2, 7, 8] == x[7, 8, 2, 1]


def usps(root):
    (root / "USPS").mkdir()
    for file, labels in (("usps.bz2", (1, 10, 3)), ("usps.t.bz2", (7,))):
        pixels = rng.uniform(-1, 1, (len(labels), 256))
        lines = (f"{label} " + " ".join(f"{i}:{v:.3f}" for i, v in enumerate(row, start=1)) + " \n"
                 for label, row in zip(labels, pixels, strict=True))
        (root / "USPS" / file).write_bytes(bz2.compress("".join(lines).encode()))


def test_usps_equals_torchvision(tmp_path):
    from torchvision.datasets import USPS

    usps(tmp_path)
    data = images.load("usps", tmp_path)
    assert data.y.tolist() == [0, 9, 2, 6] and data.train.tolist() == [True] * 3 + [False]
    for part in (True, False):
        assert np.array_equal(data.x[data.train == part][:, 0], USPS(tmp_path / "USPS", train=part).data)


def jpeg(path, value):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((218, 178, 3), value, np.uint8)).save(path, quality=95)


def celeba(root):
    folder, files = root / "celeba", ["000001.jpg", "000002.jpg", "000003.jpg"]
    for i, file in enumerate(files):
        jpeg(folder / "img_align_celeba" / file, 50 * i)
    rows = ["-1  1 -1", " 1 -1 -1", " 1  1 -1"]
    (folder / "list_attr_celeba.txt").write_text(
        "3\nMale Smiling Young \n" + "".join(f"{f} {r}\n" for f, r in zip(files, rows, strict=True)))
    for file, values in (("identity_CelebA.txt", (2880, 7, 2880)), ("list_eval_partition.txt", (0, 1, 2))):
        (folder / file).write_text("".join(f"{f} {v}\n" for f, v in zip(files, values, strict=True)))
    return folder


def test_celeba(tmp_path):
    folder = celeba(tmp_path)
    data = images.load("celeba", tmp_path)
    assert data.shape == (3, 84, 84) and data.classes == 2 and data.x[:, 1, 40, 40].tolist() == [0, 50, 100]
    assert data.y.tolist() == [1, 0, 1] and data.user.tolist() == [2880, 7, 2880]
    assert data.train.tolist() == [True, False, False]
    assert data.extra["attributes"].tolist() == [[0, 1, 0], [1, 0, 0], [1, 1, 0]]
    (folder / "identity_CelebA.txt").write_text("000001.jpg 2880\n")
    refused(lambda: images.load("celeba", tmp_path),
            folder / "identity_CelebA.txt", "incomplete", "cflkit data celeba")  # fmt: skip


def leaf(path, samples):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"users": list(samples), "num_samples": [len(y) for _, y in samples.values()],
            "user_data": {user: {"x": x, "y": y} for user, (x, y) in samples.items()}}
    path.write_text(json.dumps(data))


def test_femnist_from_leaf(tmp_path):
    white, grey = [1.0] * 784, [0.5] * 784
    folder = tmp_path / "femnist_leaf"
    leaf(folder / "train/all_data_0.json", {"f2": ([white, grey], [61, 0]), "f1": ([grey], [3])})
    leaf(folder / "train/all_data_1.json", {"f0": ([white], [4])})
    leaf(folder / "test/all_data_0.json", {"f2": ([[0.0, *white[1:]]], [10])})
    data = images.load("femnist_leaf", tmp_path)
    assert data.x.shape == (5, 1, 28, 28) and data.x[:, 0, 0, 0].tolist() == [255, 128, 128, 255, 0]
    assert data.y.tolist() == [61, 0, 3, 4, 10] and data.classes == 62
    assert data.user.tolist() == [2, 2, 1, 0, 2]
    assert data.train.tolist() == [True] * 4 + [False]
    path = folder / "test/all_data_0.json"
    leaf(path, {"f2": ([[float("nan"), *white[1:]]], [10])})
    refused(lambda: images.load("femnist_leaf", tmp_path), path, "nan")
    path.write_text(path.read_text()[:99])
    refused(lambda: images.load("femnist_leaf", tmp_path), path, "fetch it again")
    refused(lambda: images.fetch("femnist_leaf", tmp_path), "data/femnist/preprocess.sh", folder)


def test_npz_grey_by_name_and_by_path(tmp_path):
    more = {"height": np.arange(5.0), "names": np.array(["a"] * 5), "legend": np.arange(3)}
    arrays = npz(tmp_path / "mine.npz", user=np.array([7, 7, 8, 9, 9]), **more)
    for data in (images.load("mine", tmp_path), images.load(str(tmp_path / "mine.npz"))):
        assert data.name == "mine" and data.x.shape == (5, 1, 4, 6)
        assert np.array_equal(data.x[:, 0], arrays["x"])
        assert data.user.tolist() == [7, 7, 8, 9, 9] and data.classes == 5 and data.scale == 255
        assert list(data.extra) == ["height"]  # text and arrays of another length stay behind
    assert images.load("mine", tmp_path, classes=8).classes == 8
    assert images.status(tmp_path)["mine"] == "present"


def test_npz_colour_goes_channels_first(tmp_path):
    x = rng.integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)
    npz(tmp_path / "mine.npz", x=x, classes=np.array(12))
    data = images.load("mine", tmp_path)
    assert data.x.shape == (5, 3, 4, 6) and data.x.is_contiguous() and data.x[1, 2, 3, 5] == x[1, 3, 5, 2]
    assert data.classes == 12 and data.x.untyped_storage().nbytes() == x.size


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 255), min_size=1, max_size=20))
def test_float_pixels_come_back_as_the_bytes_they_were(values):
    pixels = np.array(values, np.uint8)
    for kind in (np.float32, np.float64):
        assert np.array_equal(datasets.to_bytes(pixels.astype(kind) / kind(255), "test", 1)[0], pixels)


def test_absent_datasets_say_how_to_fetch_them_and_where_they_were_sought(tmp_path, monkeypatch):
    monkeypatch.setenv("CFLKIT_DATA", str(tmp_path / "nowhere"))
    for name in set(images.names()) - {"digits"}:
        refused(partial(images.load, name), f"cflkit data {name}", tmp_path / "nowhere", kind=FileNotFoundError)
    assert images.status() == {name: "bundled" if name == "digits" else "absent" for name in images.names()}
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(FileNotFoundError, match="no such file"):
        images.load(str(tmp_path / "absent.npz"))
    for call, more in ((images.load, ", or that of a .npz file in "), (images.fetch, "mnist, ")):
        refused(partial(call, "mnits"), "name = 'mnits'", "mnist, ", more)


def cut(path, keep):
    path.write_bytes(path.read_bytes()[:keep])


@pytest.mark.parametrize("keep", [0, 3, 40, -1])
def test_files_cut_short_are_named(tmp_path, keep, monkeypatch):
    npz(tmp_path / "mine.npz")
    mnist(tmp_path)
    mnist(tmp_path, "FashionMNIST")
    celeba(tmp_path)
    cifar100(tmp_path, monkeypatch)
    svhn(tmp_path, monkeypatch)
    usps(tmp_path)
    for name, file in [("mine", "mine.npz"), ("mnist", "MNIST/raw/train-images-idx3-ubyte"),
                       ("fashion_mnist", "FashionMNIST/raw/t10k-images-idx3-ubyte"),
                       ("cifar100", "cifar-100-python/test"), ("svhn", "SVHN/test_32x32.mat"),
                       ("usps", "USPS/usps.bz2"), ("celeba", "celeba/img_align_celeba/000002.jpg")]:
        cut(tmp_path / file, keep if name != "celeba" else min(keep, 40))
        advice = "make it again" if name == "mine" else f"fetch it again (`cflkit data {name}`)"
        refused(partial(images.load, name, tmp_path), tmp_path / file, "damaged or cut short", advice)


@contextmanager
def server(contents, cut_after=None):
    """Serve `contents` on loopback; yield the address and the list of paths asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            if self.path not in contents:
                return self.send_error(404)
            body = contents[self.path]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:cut_after])

        def log_message(self, *_):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}", asked
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("TQDM_DISABLE", "1")


BODY = rng.bytes(300_000)
MD5 = hashlib.md5(BODY).hexdigest()


def test_download_and_nothing_to_do_the_second_time(tmp_path):
    with server({"/f": BODY}) as (base, asked):
        for _ in range(2):
            download.download((f"{base}/f",), tmp_path / "a/f", MD5)
    assert asked == ["/f"] and (tmp_path / "a/f").read_bytes() == BODY
    assert os.listdir(tmp_path / "a") == ["f"]


def test_an_interrupted_download_leaves_nothing_and_the_next_mirror_is_tried(tmp_path):
    path = tmp_path / "f"
    with server({"/f": BODY}, cut_after=100_000) as (bad, _), server({"/f": BODY}) as (good, asked):
        refused(lambda: download.download((f"{bad}/f",), path, MD5), f"{bad}/f", "run again", kind=ConnectionError)
        assert os.listdir(tmp_path) == []
        download.download((f"{bad}/f", f"{bad}/missing", f"{good}/f"), path, MD5)
    assert asked == ["/f"] and path.read_bytes() == BODY and os.listdir(tmp_path) == ["f"]


def test_wrong_checksum_keeps_what_was_there(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old but readable")
    with server({"/f": BODY[:-1] + b"?"}) as (base, asked):
        refused(lambda: download.download((f"{base}/f",), path, MD5), f"{base}/f", MD5)
    assert path.read_bytes() == b"old but readable" and os.listdir(tmp_path) == ["f"] and len(asked) == 1


def served(monkeypatch, base, files):
    """Point the list of downloads at the loopback server."""
    listed = [download.File((f"{base}/{p}",), hashlib.md5(body).hexdigest(), p) for p, body in files.items()]
    monkeypatch.setattr(download, "files", lambda name: listed)


def test_fetch_mends_a_damaged_dataset_and_leaves_a_good_one_alone(tmp_path, monkeypatch):
    source = tmp_path / "source"
    mnist(source, packed=True)
    files = {str(p.relative_to(source)): p.read_bytes() for p in sorted(source.rglob("*.gz"))}
    root = tmp_path / "root"
    with server({f"/{path}": body for path, body in files.items()}) as (base, asked):
        served(monkeypatch, base, files)
        images.fetch("mnist", root)
        assert len(asked) == 4 and len(images.load("mnist", root)) == 9
        images.fetch("mnist", root)
        assert len(asked) == 4
        for file in ("train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"):
            cut(root / "MNIST/raw" / file, 50)
        with pytest.raises(ValueError, match="cflkit data mnist"):
            images.load("mnist", root)
        images.fetch("mnist", root)
        assert len(asked) == 5 and len(images.load("mnist", root)) == 9
        images.fetch("digits", root)
        assert len(asked) == 5


def test_fetch_unpacks_archives(tmp_path, monkeypatch):
    source, root = tmp_path / "source", tmp_path / "root"
    cifar100(source, monkeypatch)
    emnist(source, packed=True)
    tar, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as archive:
        archive.add(source / "cifar-100-python", "cifar-100-python")
    with zipfile.ZipFile(zipped, "w") as archive:
        for path in (source / "EMNIST/raw").iterdir():
            archive.write(path, f"gzip/{path.name}")
    archives = {"cifar100": ("cifar-100-python.tar.gz", tar), "emnist": ("EMNIST/raw/gzip.zip", zipped)}
    for name, (file, stream) in archives.items():
        body = stream.getvalue()
        with server({f"/{file}": body}) as (base, asked):
            served(monkeypatch, base, {file: body})
            images.fetch(name, root)
            data = images.load(name, root)
            for path in (source / "EMNIST/raw").glob("*.gz"):
                download.unpack(path)
            assert torch.equal(data.x, images.load(name, source).x)
            cut(root / datasets.DATASETS[name].files[0], 20)
            images.fetch(name, root)  # unpacks the verified archive again
            assert torch.equal(images.load(name, root).x, data.x) and len(asked) == 1


@pytest.mark.parametrize("name", sorted(set(images.names()) - set(datasets.LEAF)))
def test_addresses_and_checksums_lead_to_what_is_read(name):
    listed = download.files(name)
    assert all(re.fullmatch("[0-9a-f]{32}", f.md5) and f.urls[0].startswith("http") for f in listed)
    for file in datasets.DATASETS[name].files:  # fetched as it is, or out of an archive beside it
        folder = {"cifar-10-batches-py": "cifar-10-python"}.get(Path(file).parts[0], Path(file).parts[0])
        paths = [f.path for f in listed if f.path.startswith(folder)]
        assert any(p.removesuffix(".gz") == file or p.endswith((".zip", ".tar.gz")) for p in paths), file


def test_import_is_silent():
    """Importing opens no file but what packages bring, no process and no socket; figures and YAML stay away."""
    program = """
import sys, numpy, torch, tqdm
seen = []
def watch(event, args):
    if event.split(".")[0] in ("socket", "urllib", "ftplib", "subprocess"):
        seen.append(event)
    if event == "open" and not str(args[0]).startswith((sys.prefix, sys.base_prefix, "/proc", "/usr/share")):
        seen.extend([str(args[0])] * (not str(args[0]).endswith((".py", ".pyc"))))
sys.addaudithook(watch)
import cflkit
print(seen, [m for m in ("torchvision", "PIL", "matplotlib", "yaml") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True, check=True,
                          cwd=Path(images.__file__).parents[1])
    assert done.stdout.strip() == "[] []"


DATA = Path(os.environ.get("CFLKIT_DATA", "/nonexistent"))


def by_split(data):
    return data.y[data.train], data.y[~data.train]


REAL = {  # the file, and what is true of what is read
    "mnist": ("MNIST", lambda d: d.x.shape == (70000, 1, 28, 28) and d.train.sum() == 60000 and (
        [y[:5].tolist() for y in by_split(d)] == [[5, 0, 4, 1, 9], [7, 2, 1, 0, 4]])),
    "mnist_writers": ("mnist_writers.npz", lambda d: [
        len(d.user[rows].unique()) for rows in (d.train, ~d.train, d.train | True)] == [539, 297, 836]),
    "fashion_mnist": ("FashionMNIST", lambda d: torch.bincount(by_split(d)[0]).tolist() == [6000] * 10
                      and d.y[:5].tolist() == [9, 0, 0, 3, 0]),
    "usps": ("USPS", lambda d: d.shape == (1, 16, 16) and [len(y) for y in by_split(d)] == [7291, 2007]),
    "cifar10": ("cifar10.npz", lambda d: d.x.shape == (60000, 3, 32, 32)
                and torch.bincount(by_split(d)[1]).tolist() == [1000] * 10),
    "femnist": ("femnist.npz", lambda d: d.x.shape == (46258, 1, 28, 28) and d.classes == 62
                and len(d.user.unique()) == 300 and d.x[:, 0, 0, 0].median() == 255),  # white, as LEAF has it
    "celeba": ("celeba.npz", lambda d: d.x.shape == (4059, 3, 84, 84) and len(d.user.unique()) == 1171
               and torch.equal(d.extra["attributes"][:, 31], d.y.byte())),  # "Smiling"
    "svhn_sample": ("svhn_sample.npz", lambda d: d.x.shape == (288, 3, 32, 32)),
    "sign": ("sign.npz", lambda d: d.x.shape == (2062, 3, 32, 32)),
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_real_data(name):
    file, true = REAL[name]
    if not (DATA / file).exists():
        pytest.skip(f"no {file} in CFLKIT_DATA")
    assert true(images.load(name))
