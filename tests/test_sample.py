"""Pictures of a chapter: other ones in place of the digits, one for one."""

import nbformat
import numpy as np
import pytest
import torch

from cflkit import images
from cflkit.workbook import console
from cflkit.workbook.show import sample


@pytest.fixture
def strangers(tmp_path, digits):
    """As many pictures as there are digits, and some; their first two pixels say which they are."""
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(len(digits)), 2))
    x = np.zeros((len(rows), 16, 16), np.uint8)
    x[:, 0, 0], x[:, 0, 1] = np.divmod(np.arange(len(rows)), 256)
    x[:, 8:] = 40
    path = tmp_path / "strangers.npz"
    np.savez(path, x=x, y=digits.y[rows], train=digits.train[rows])
    return str(path)


def test_every_digit_is_replaced_by_another_picture_of_its_label_and_split(strangers, digits):
    found, given = sample.pictures(strangers), images.load(strangers)
    number = (256 * found.x[:, 0, 0, 0].long() + found.x[:, 0, 0, 1]).tolist()
    assert len(set(number)) == len(digits) and found.shape == (1, 16, 16) and found.scale == 255
    assert torch.equal(given.y[number], digits.y) and torch.equal(given.train[number], digits.train)
    assert torch.equal(found.y, digits.y) and torch.equal(found.train, digits.train)
    of_three = torch.tensor(number)[(digits.y == 3) & digits.train]
    there = torch.nonzero((given.y == 3) & given.train).flatten()
    assert torch.equal(of_three, there[: len(of_three)])  # the first ones, in their order


def test_the_digits_are_the_digits(digits):
    found = sample.pictures("digits")
    assert torch.equal(found.x, digits.x) and torch.equal(found.y, digits.y) and found.scale == digits.scale


def test_too_few_pictures_of_a_label_are_refused(tmp_path, digits):
    np.savez(tmp_path / "few.npz", x=np.zeros((10, 8, 8), np.uint8), y=np.arange(10), train=np.ones(10, bool))
    with pytest.raises(ValueError, match=r"pictures of label 0 = 0: must be at least \d+ pictures of label 0"):
        sample.pictures(str(tmp_path / "few.npz"))


@pytest.mark.parametrize("command", ["run c.ipynb -p images=mnist", "run c.ipynb -p images=digits,mnist"])
def test_pictures_that_are_not_here_are_refused_before_a_kernel_starts(command, tmp_path, monkeypatch, capsys):
    line = 'images: str = "digits"  # pictures {digits, mnist}'
    cell = nbformat.v4.new_code_cell(line, metadata={"tags": ["parameters"]})
    compared = nbformat.v4.new_code_cell("", metadata={"tags": ["comparison"]})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell, compared]), tmp_path / "c.ipynb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("papermill.execute_notebook", None)  # calling it would raise
    monkeypatch.setenv("CFLKIT_DATA", str(tmp_path / "empty"))
    assert console.main([*command.split(), "--out", str(tmp_path / "out")]) == 2
    line = capsys.readouterr().err
    assert line.startswith("cflkit: mnist: no ") and line.endswith("; run `cflkit data mnist`\n")
    assert line.count("\n") == 1 and not (tmp_path / "out").exists()
