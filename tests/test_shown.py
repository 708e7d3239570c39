"""What chapters show: numbers that readers see rounded and checks in full, and other pictures than the digits."""

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
import torch

from cflkit import images
from cflkit.workbook import console
from cflkit.workbook.show import sample, shown


def test_a_page_shows_rounded_numbers_and_the_check_sees_six_decimals():
    table = shown.Table({"a": {"score": 0.1234567, "clusters": 1200}}, 2, corner="method")
    assert table._repr_markdown_().splitlines() == [
        "| method | score | clusters |",
        "| --- | ---: | ---: |",
        "| a | 0.12 | 1,200 |",
    ]
    assert repr(table) == "method | score | clusters\na | 0.123457 | 1,200"


def test_a_digit_that_no_reader_sees_changes_the_compared_text():
    one, other = shown.Table({"a": {"x": 0.5}}), shown.Table({"a": {"x": 0.500001}})
    assert one._repr_markdown_() == other._repr_markdown_()
    assert repr(one) != repr(other)


@pytest.mark.parametrize(("value", "seen"), [
    (None, "–"), (float("nan"), "–"), (True, "yes"), (np.False_, "no"), (-0.0001, "0.00"), (-1.5, "−1.50"),
    (np.float64(2000), "2,000.00"), (np.int64(-3), "−3"), ("3, 4", "3, 4"),
    ((-0.125, 1.0), "−0.12 → 1.00"),
])  # fmt: skip
def test_each_kind_of_value_is_written_plainly(value, seen):
    assert shown.Table({"a": {"x": value}})._repr_markdown_().splitlines()[-1] == f"| a | {seen} |"


def test_decimals_and_signs_are_set_by_column():
    table = shown.Table({"a": {"x": 1.25, "gap": 1.25}}, {"x": 1}, signed=["gap"])
    assert table._repr_markdown_().splitlines()[-1] == "| a | 1.2 | +1.25 |"


def test_what_a_row_lacks_is_a_dash_and_a_bar_ends_no_cell():
    table = shown.Table({"a": {"x": 1}, "b|c": {"y": "|z|"}})
    assert table._repr_markdown_().splitlines()[1:] == [
        "| --- | ---: | --- |", "| a | 1 | – |", r"| b\|c | – | \|z\| |"]  # fmt: skip


def test_a_frame_is_refused_whose_integers_would_become_floats_and_whose_rows_could_be_lost():
    with pytest.raises(ValueError, match=r'must be a mapping .* `frame.to_dict\("index"\)`'):
        shown.Table(pd.DataFrame({"clients": [40], "accuracy": [0.5]}, index=["a"]))


def test_a_table_without_rows_is_refused():
    with pytest.raises(ValueError, match="rows"):
        shown.Table({})


def test_a_picture_is_a_png_whose_text_is_the_digest_of_all_it_shows():
    figure, _ = plt.subplots()
    picture = shown.Picture(figure, [[0.25], [[0.5, 0.75]]])
    assert not plt.fignum_exists(figure.number)  # pyplot would show an open figure again
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert repr(picture) == shown.digest([0.25, 0.5, 0.75])
    assert picture._repr_png_() == picture._repr_png_()


# ---------------------------------------------------------------------- other pictures
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
