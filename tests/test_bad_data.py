"""Bad data in: every call is refused in one line that names the argument, its value and what is allowed."""

import errno
import gzip
import io
import math
import re
import shutil
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import refused

from cflkit import federation, images
from cflkit.checks import parameters
from cflkit.data import download
from cflkit.data.federation import expand
from cflkit.data.images import Images

INF = math.inf


def pictures(**change):
    """Forty images 4 x 4 of ten classes and eight users; every fourth is a test image."""
    row = torch.arange(40)
    x = torch.stack([row + 10] * 16, 1).to(torch.uint8).view(40, 1, 4, 4)
    extra = {"attributes": torch.stack([row % 2, row // 20], 1)}
    columns = {"name": "small", "x": x, "y": row % 10, "train": row % 4 != 3, "classes": 10, "user": row // 5,
               "extra": extra}  # fmt: skip
    return Images(**columns | change)


SMALL = pictures()
FED = federation.rotated(SMALL, clients=4)
MORE = {
    "shifted": {"clients": 4}, "pathological": {"clients": 4}, "swapped": {"clients": 4}, "rotated": {"clients": 4},
    "hybrid": {"clients": 2, "images": [SMALL, SMALL]}, "multi_source": {"clients": 2, "images": [SMALL, SMALL]},
    "mixed": {"clients": 2, "samples_per_client": 10}, "pathological_n": {"clients": 5, "labels_per_client": 2},
    "dirichlet": {"clients": 2, "alpha": 5, "min_samples": 1},
    "graded": {"skew": "rotation", "samples_per_client": 4}, "by_user": {},
}  # fmt: skip

#: (builder, options, the line); what is not named is right, as `test_what_the_table_changes_is_right` shows
OPTIONS = [
    ("rotated", {"clients": 6}, "clients = 6: must be a multiple of the 4 clusters, .*"),
    ("rotated", {"clients": [2, 2]}, r"clients = \(2, 2\): must be 4 counts of at least 1"),
    ("rotated", {"clients": 400}, "clients = 100: must be at most 30, as 100 clients share 30 images"),
    ("rotated", {"samples_per_client": 31}, "samples_per_client = 31: must be at most 30, .*"),
    ("rotated", {"samples_per_client": 2, "test": "own"}, "samples_per_client = 2: must be enough .*"),
    ("rotated", {"groups": [[0, 10]], "clients": 4}, r"labels = \[10\]: must be in 0..9"),
    ("rotated", {"alpha": 0, "samples_per_client": 5}, r"alpha = 0: must be .*, in \[1e-06, 1e\+06\] .*"),
    ("rotated", {"alpha": 1}, "samples_per_client = None: must be given when alpha or overlap is"),
    ("rotated", {"overlap": True, "samples_per_client": 5, "test": "own"}, "test = 'own': must be .*"),
    ("rotated", {"degrees": (0, 90, 360)}, r"degrees = \(0, 90, 360\): must be all different, or two .*"),
    ("shifted", {"shifts": (0, 10)}, r"shifts = \(0, 10\): must be all different, or two .*"),
    ("pathological", {"groups": ((0, 1), (1, 0))}, r"groups = \(\(0, 1\), \(1, 0\)\): must be all different, .*"),
    ("rotated", {"groups": ((1,), (1,))}, r"groups = \(\(1,\), \(1,\)\): must be all different, .*"),
    ("swapped", {"degrees": (0, 360), "pairs": ((1, 2), (2, 1))}, r"pairs = .*: must be all different, .*"),
    ("rotated", {"degrees": (0, 10**400)}, r"degrees = .*: must be at most 1e\+30, so that single .*"),
    ("rotated", {"mean": (1e300,)}, r"mean = \(1e\+300,\): must be at most 1e\+30, so that single .*"),
    ("rotated", {"std": 1e-300}, "std = 1e-300: must be a finite number, 1e-06 or more or .*"),
    ("mixed", {"degrees": (0, 0)}, r"degrees = \(0, 0\): must be all different, or two true clusters would be one"),
    ("rotated", {"pooled": True}, "test = 'cluster': must be 'own' when pooled"),
    ("rotated", {"mean": (0.1, 0.2)}, r"mean = \(0.1, 0.2\): must be one number, or 1, one per channel"),
    ("rotated", {"client": 4}, r"option = 'client': must be one of .* \(the nearest is clients\)"),
    ("swapped", {"pairs": ((1, 2),)}, "pairs = .*: must be one for each of 4 degrees"),
    ("swapped", {"pairs": ((1, 1), (3, 4), (5, 6), (7, 8))}, "pairs = .*: must be two labels each, in 0..9"),
    ("hybrid", {"images": [SMALL, pictures(classes=11)]}, r"classes = \[10, 11\]: must be the same .*"),
    ("hybrid", {"images": [SMALL, pictures(scale=16.0)]}, r"scale = \[16.0, 255.0\]: must be the same .*"),
    ("multi_source", {"shape": (2, 28, 28)}, r"shape = \(2, 28, 28\): must be \(C, H, W\) with C 1 or 3"),
    ("mixed", {"clients": [1, 1]}, r"clients = \[1, 1\]: must be .*"),
    ("mixed", {"samples_per_client": 61}, "samples_per_client = 61: must be at most 60, .*"),
    ("pathological_n", {"labels_per_client": 11}, "labels_per_client = 11: must be in 1..10"),
    ("pathological_n", {"clients": 4}, "clients = 4: must be at least 10 / labels_per_client, .*"),
    ("dirichlet", {"min_samples": 40}, "min_samples = 40: must be less, or alpha above 5, or clients below 2: .*"),
    ("dirichlet", {"convention": "total"}, "samples_per_client = None: must be given, unless .*"),
    ("dirichlet", {"samples_per_client": 5}, "samples_per_client = 5: must be given, unless .*"),
    ("graded", {"skew": "domain", "images": [SMALL] * 3}, "images = .*: must be two datasets"),
    ("graded", {"skew": "label_shift", "images": pictures(classes=12)}, "images = .*: must be a dataset of ten .*"),
    ("graded", {"samples_per_client": 31}, "samples_per_client = 31: must be at most 30, .*"),
    ("by_user", {"users": [1, 1]}, r"users = \(1, 1\): must be different from each other"),
    ("by_user", {"users": [8]}, r"users = \[8\]: must be users of small with 1 images or more"),
    ("by_user", {"users": 9}, "users = 9: must be in 1..8"),
    ("by_user", {"min_samples": 6}, "min_samples = 6: must be at most 5, .*"),
    ("by_user", {"test_users": 1}, "test_users = 1: must be above 0 if test is 'users', else 0"),
    ("by_user", {"test": "users"}, "test_users = 0: must be above 0 if test is 'users', else 0"),
    ("by_user", {"test": "users", "test_users": 8}, "test_users = 8: must be at most 7 of 8 users"),
    ("by_user", {"attributes": [2]}, r"attributes = \(2,\): must be at most 62 columns in 0..1"),
    ("by_user", {"attributes": [0, 0]}, r"attributes = \(0, 0\): must be different from each other"),
    ("by_user", {"attributes": [0], "images": pictures(extra={})}, "images = .*: must be .* with attributes"),
    ("by_user", {"images": pictures(user=None)}, "images = .*: must be a dataset that knows .*"),
    ("by_user", {"images": pictures(extra={"cluster": torch.arange(40)})}, r"cluster = \[0.*: must be one .*"),
    ("by_user", {"images": pictures(extra={"cluster": torch.full((40,), -1)})}, "cluster = .*: must be .*"),
    ("by_user", {"images": pictures(train=torch.ones(40, dtype=torch.bool))}, "test = 'given': must be .*"),
]  # fmt: skip

part = FED.train
x, y, train = np.zeros((5, 4, 4), np.uint8), np.arange(5), np.arange(5) < 3

#: (what is called, the line)
CALLS = [
    (lambda: federation.rotated(SMALL), "clients = None: must be given: .*"),
    (lambda: federation.graded(SMALL), "skew = None: must be given: .*"),
    (lambda: federation.build({}), r"config = \[\]: must be a dict with 'builder'"),
    (lambda: federation.build({"builder": "rotated"}), r"config = \['builder'\]: must be a dict with 'images'"),
    (lambda: federation.build({"builder": "rotatd", "images": "digits"}), r"builder = .* nearest is rotated\)"),
    (lambda: federation.build(digits(subset="all")), "subset = 'all': must be .*"),
    (lambda: federation.build(digits(subset=[0, 1])), r"subset = \[0, 1\]: must be .*"),
    (lambda: federation.build(digits(subset=[[1, 1]])), r"subset = \[1, 1\]: must be runs .*"),
    (lambda: federation.build(digits(subset=[[0, 9]])), r"ids = \[8\]: must be clients, 0..7"),
    (lambda: federation.build(digits(sed=1)), r"option = 'sed': .* \(the nearest is seed\)"),
    (lambda: expand([[0, 2, 3]]), r"subset = \[0, 2, 3\]: must be runs .*"),
    (lambda: FED.subset([0, 0]), r"ids = \[0, 0\]: must be different from each other"),
    (lambda: FED.subset([4]), r"ids = \[4\]: must be clients, 0..3"),
    (lambda: FED.subset([1.5]), r"ids = \[1.5\]: must be .*"),
    (lambda: FED.subset(torch.tensor([True, False, False, True])), "ids = .*: must be .*"),
    (lambda: replace(FED, mean=INF), "mean = inf: must be .*"),
    (lambda: replace(FED, classes=9), "label = 9: must be below classes = 9"),
    (lambda: replace(FED, cluster=torch.tensor([0, 1, 2, -1])), "cluster = .*: must be a vector .* at least 0"),
    (lambda: replace(FED, cluster=torch.tensor([0.0, 1, 2, 3])), "cluster = .*: must be a vector .*"),
    (lambda: replace(FED, cluster=torch.arange(3)), r"len\(cluster\) = 3: must be the number of clients, 4"),
    (lambda: replace(FED, test_of=torch.full((4,), 4)), "test_of = .*: must be test sets 0..3"),
    (lambda: replace(FED, validation=part.take([0])), "sets of validation = 1: must be the number of clients, 4"),
    (lambda: replace(part, pool=part.pool.float()), "pool.dtype = torch.float32: must be torch.uint8"),
    (lambda: replace(part, pool=part.pool[:, 0]), r"pool.shape = \(120, 4, 4\): must be \(n, C, H, W\)"),
    (lambda: replace(part, y=part.y.float()), "y = .*: must be a vector of torch.int64 on the CPU"),
    (lambda: replace(part, y=part.y - 1), "y = -1: must be at least 0"),
    (lambda: replace(part, y=part.y[:, None]), "y = .*: must be a vector of torch.int64 on the CPU"),
    (lambda: replace(part, index=part.index + 1), r"index = \[120\]: must be rows of the pool, 0..119"),
    (lambda: replace(part, offset=part.offset[:1]), r"len\(offset\) = 1: must be at least 2: .*"),
    (lambda: replace(part, offset=part.offset[[0, 2, 1, 3, 4]]), "size of set 1 = -30: must be at least 1: .*"),
    (lambda: replace(part, offset=part.offset - 1), r"first and last offset = \[-1, 119\]: must be \[0, 120\]"),
    (lambda: replace(part, y=part.y[1:]), r"len\(y\) = 119: must be len\(index\) = 120"),
    (lambda: replace(part, tag=part.tag[1:]), r"len\(tag\) = 119: must be len\(index\) = 120"),
    (lambda: pictures(classes=9), r"small: y = \[9\]: must be labels in 0..8"),
    (lambda: pictures(x=SMALL.x.float()), "small: x.dtype = torch.float32: must be torch.uint8"),
    (lambda: pictures(x=SMALL.x[:, 0]), r"small: x.shape = .*: must be \(n, C, H, W\) with n > 0"),
    (lambda: pictures(y=SMALL.y[1:]), r"small: y.shape = \(39,\): must be \(40,\)"),
    (lambda: pictures(y=SMALL.y - 1), r"small: y = \[-1\]: must be labels in 0..9"),
    (lambda: pictures(train=SMALL.train.int()), "small: train.dtype = torch.int32: must be torch.bool"),
    (lambda: pictures(user=SMALL.user.float()), "small: user.dtype = torch.float32: must be torch.int64"),
    (lambda: pictures(extra={"age": torch.ones(3)}), r"small: age.shape = \(3,\): must be \(40, ...\)"),
    (lambda: pictures(extra={"age": [1]}), r"small: age = \[1\]: must be a tensor"),
    (lambda: images.of(x, None), "own: y = None: must be a tensor or an array of numbers"),
    (lambda: images.of(x, y, name="mnist"), "name = 'mnist': must be another one: .*"),
    (lambda: pictures(train=SMALL.train.to("meta")), "small: train.device = 'meta': must be cpu"),
    (lambda: replace(part, pool=part.pool.to("meta")), "pool.device = 'meta': must be cpu; .*"),
    (lambda: replace(part, y=part.y.to("meta")), "y = .*: must be a vector of torch.int64 on the CPU"),
    (lambda: images.load(None), "name = None: must be a text or of type Path"),
    (lambda: images.load("digits", root=5), "root = 5: must be a text or of type Path or None"),
    (lambda: images.load("digits", classes=10), r"option of digits = 'classes': must be one of \(none\)"),
]  # fmt: skip

#: (what an own file holds otherwise, arguments of `load`, the line after the file's path)
FILES = [
    ({}, {"classes": 4}, r"own: y = \[4\]: must be labels in 0..3"),
    ({}, {"clases": 5}, r"option of .* = 'clases': must be one of classes, scale \(the nearest is classes\)"),
    ({"classes": np.array("ten")}, {}, "classes = 'ten': must be an integer, 1 or more"),
    ({"x": None}, {}, r".*: arrays = \['train', 'y'\]: must be x, y, train.*; x is missing"),
    ({"x": x[:, 0]}, {}, r".*: x.shape = \(5, 4\): must be \(n, H, W\) or \(n, H, W, 3\)"),
    ({"x": x[:0], "y": y[:0], "train": train[:0]}, {}, "own: x.shape = .*: must be .* n > 0"),
    ({"train": y}, {}, r".*: train = 'int64\[5\]': must be 5 booleans"),
    ({"user": y[:3]}, {}, r".*: user = 'int64\[3\]': must be 5 integers below .*"),
    ({"user": np.full(5, 2**63, np.uint64)}, {}, r".*: user = 'uint64\[5\]': must be 5 integers below .*"),
    ({"cluster": y[:3]}, {}, r".*: cluster = 'int64\[3\]': must be 5 integers below .*"),
    ({"y": np.array([None] * 5)}, {}, ".*own.npz is damaged or cut short .*Object arrays.*: make it again"),
]  # fmt: skip


def digits(**more):
    return {"builder": "rotated", "images": "digits", "clients": 8} | more


@pytest.mark.parametrize("builder", MORE)
def test_what_the_table_changes_is_right(builder):
    options = {"images": SMALL} | MORE[builder]
    assert getattr(federation, builder)(options.pop("images"), **options).clients > 1


DECLARED = [(name, option) for name in MORE for option in parameters(federation.BUILDERS[name])]


@pytest.mark.parametrize(("builder", "option"), DECLARED)
def test_what_is_declared_is_asked_of_every_option(builder, option):
    _, allowed = parameters(federation.BUILDERS[builder])[option]
    test_options(builder, {option: {"no": 1}}, re.escape(f"{option} = {{'no': 1}}: must be {allowed}"))


@pytest.mark.parametrize(("builder", "change", "line"), OPTIONS)
def test_options(builder, change, line):
    options = {"images": SMALL} | MORE[builder] | change
    refused(line, getattr(federation, builder), options.pop("images"), **options)


@pytest.mark.parametrize(("call", "line"), CALLS)
def test_calls(call, line, tmp_path, monkeypatch):
    monkeypatch.setenv("CFLKIT_DATA", str(tmp_path))
    refused(line, call)


def own(folder, **change):
    arrays = {"x": x, "y": y, "train": train} | change
    np.savez(folder / "own.npz", **{name: values for name, values in arrays.items() if values is not None})
    return folder / "own.npz"


@pytest.mark.parametrize(("change", "options", "line"), FILES)
def test_own_files(change, options, line, tmp_path):
    refused(line, images.load, own(tmp_path, **change), **options)


# Archives: a limit of size, damage, and a full disk


def zipped(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def tarred(path, **members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def packed(path, **members):
    path.write_bytes(gzip.compress(b"".join(members.values())))


ARCHIVES = [("a.zip", zipped), ("a.tar.gz", tarred), ("a.gz", packed)]


@pytest.mark.parametrize(("name", "write"), ARCHIVES)
def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(name, write, tmp_path, monkeypatch):
    write(tmp_path / name, small=b"s", big=bytes(10**6))
    monkeypatch.setattr(download, "UNPACKED_BYTES", 10**6)
    line = rf"{tmp_path}/{name} is damaged .*unpacked bytes = \d+: must be at most 1000000\]: .*"
    refused(line, download.unpack, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    monkeypatch.setattr(download, "UNPACKED_BYTES", 2 * 10**6)
    download.unpack(tmp_path / name)
    assert len(list(tmp_path.iterdir())) > 1


def test_an_own_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "own.npz", x=np.zeros((5000, 28, 28), np.uint8))
    assert (tmp_path / "own.npz").stat().st_size < 10**5
    monkeypatch.setattr(download, "UNPACKED_BYTES", 10**6)
    refused(".*own.npz is damaged .*unpacked bytes = .*", images.load, tmp_path / "own.npz")


@pytest.mark.parametrize(("name", "write"), ARCHIVES)
@pytest.mark.parametrize("damage", ["cut", "text", "flipped"])
def test_damaged_archives(name, write, damage, tmp_path):
    path = tmp_path / name
    write(path, small=b"s", big=np.random.default_rng(0).bytes(9999))
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    path.write_bytes({"cut": whole[: len(whole) // 2], "text": b"<html>", "flipped": flipped}[damage])
    refused(f"{path} is damaged or cut short .*: fetch it again", download.unpack, path)


@pytest.mark.parametrize("member", ["../outside", "/outside"])
def test_an_archive_does_not_write_outside_its_folder(member, tmp_path):
    (tmp_path / "in").mkdir()
    tarred(tmp_path / "in/a.tar.gz", **{member: b"x"})
    zipped(tmp_path / "in/a.zip", **{member: b"x"})
    for name in ("a.tar.gz", "a.zip"):
        try:
            download.unpack(tmp_path / "in" / name)
        except ValueError as error:
            assert "outside" in str(error)
    assert [path.name for path in tmp_path.iterdir()] == ["in"] and not Path("/outside").exists()


@pytest.mark.parametrize(("name", "write"), ARCHIVES)
def test_a_full_disk_is_called_so(name, write, tmp_path, monkeypatch):
    write(tmp_path / name, big=bytes(10))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    monkeypatch.setattr(tarfile, "copyfileobj", full)
    with pytest.raises(OSError) as caught:
        download.unpack(tmp_path / name)
    assert str(caught.value) == f"[Errno 28] the disk is full: '{tmp_path / name}'"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"users": ["a"], "num_samples": [1], "user_data": {}}'])
def test_damaged_leaf_files(text, tmp_path):
    for part_ in ("train", "test"):
        (tmp_path / "femnist_leaf" / part_).mkdir(parents=True)
        (tmp_path / "femnist_leaf" / part_ / "a.json").write_text(text)
    line = ".*a.json is damaged .*: fetch it again .`cflkit data femnist_leaf`."
    refused(line, images.load, "femnist_leaf", tmp_path)
