"""Outputs of the chapters: readers see them rounded, checks see every digit."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from cflkit.workbook.show import shown


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


@pytest.mark.parametrize(
    ("value", "seen"),
    [(None, "–"), (float("nan"), "–"), (True, "yes"), (np.False_, "no"), (-0.0001, "0.00"), (-1.5, "−1.50"),
     (np.float64(2000), "2,000.00"), (np.int64(-3), "−3"), ("3, 4", "3, 4"),
     ((-0.125, 1.0), "−0.12 → 1.00")],
)  # fmt: skip
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
