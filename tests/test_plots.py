import io
import math
import re
from itertools import combinations, pairwise

import charts
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgb
from matplotlib.text import Text

from cflkit.workbook import places
from cflkit.workbook.show import plots, shown


@pytest.fixture(autouse=True, scope="module")
def _style():
    with plt.rc_context():
        plots.use_style()
        yield


def png(figure, **options):
    file = io.BytesIO()
    figure.savefig(file, format="png", **options)
    return file.getvalue()


def texts(axes):
    return [t.get_text() for t in axes.texts]


def rng():
    return np.random.default_rng(5)


EVERY_FIGURE = {
    "learning_curves": lambda: plots.learning_curves({"FedAvg": ([1, 2], [0.1, 0.2])}),
    "image_grid": lambda: plots.image_grid(rng().random((15, 1, 4, 4)), list("abcdefghijklmno"), rows="rs"),
}  # fmt: skip


@pytest.mark.parametrize("name", EVERY_FIGURE)
def test_a_figure_is_shown_once_with_its_labels_and_saves_to_the_same_bytes_without_a_date(name):
    opened, figure = plt.get_fignums(), EVERY_FIGURE[name]()
    assert plt.get_fignums() == opened  # pyplot would show an open figure again
    assert figure.get_facecolor() == (1, 1, 1, 1)
    first = png(figure)  # lays the figure out
    assert first == png(EVERY_FIGURE[name]()) and b"tIME" not in first and b"Creation" not in first
    if name != "image_grid":
        assert figure.axes[0].get_ylabel()
        assert figure.axes[-1].get_xlabel() or figure.axes[-1].get_ylabel()
    data = [axes.get_window_extent() for axes in figure.axes]
    for legend in figure.legends:
        assert not any(legend.get_window_extent().overlaps(box) for box in data)


# The page of the book, white and dark, and what the dark theme does to a picture
PAGES = ["#ffffff", "#121212"]


def turned(colour):
    """What the dark theme's filter shows: invert(0.93) hue-rotate(180deg), as the CSS standard defines them."""
    light = np.array([0.2126, 0.7152, 0.0722])
    inverted = 0.93 - 0.86 * np.array(to_rgb(colour))
    return tuple(np.clip(2 * light @ inverted - inverted, 0, 1))


def contrast(first, second):
    """Contrast ratio of two opaque colours after WCAG 2.2: from 1 (the same) to 21 (black on white)."""
    light = [np.dot([0.2126, 0.7152, 0.0722], [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4
                                               for v in to_rgb(colour)]) for colour in (first, second)]  # fmt: skip
    return (max(light) + 0.05) / (min(light) + 0.05)


@pytest.mark.parametrize("seen", [to_rgb, turned], ids=["as drawn", "under the dark theme"])
def test_text_reads_on_its_ground(seen):
    keys = ["text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor", "ytick.labelcolor"]
    for ground in ("figure.facecolor", "axes.facecolor"):
        assert all(contrast(seen(plt.rcParams[key]), seen(plt.rcParams[ground])) >= 4.5 for key in keys)
    assert not plt.rcParams["savefig.transparent"]


def test_lines_stand_out_from_the_ground():
    assert len(plots.palette()) == 7
    for colour in [*plots.palette(), plots.OTHER, *(colour for colour, _ in plots.LOOKS.values())]:
        assert contrast(colour, "white") >= 3, colour
        assert contrast(turned(colour), turned("white")) >= 3, colour
    assert to_hex(turned("white")) == PAGES[1]  # a figure's ground is the page's own


def test_a_method_has_one_colour_in_figures_and_drawings():
    css = (places.BOOK / "_static" / "book.css").read_text()
    light = dict(re.findall(r"--cfl-([a-z]+): (#[0-9a-f]{6})", css.partition("}")[0]))
    for name in ("StoCFL", "IFCA", "FeSEM", "MD-ICFL", "LCFed", "FedCG", "FedAvg", "CFL", "local", "PACFL", "FLUX",
                 "FedDrift", "FedSoft", "FedRC", "FedEM"):  # fmt: skip
        colour, _ = plots.look(name)
        assert light[name.lower().replace("-", "")] == colour.lower()
    assert plots.look("IFCA, K = 4") == plots.look("IFCA") and plots.look("λ = 0.5") is None
    tuned, plain = plots.look("FedAvg + fine-tuning"), plots.look("FedAvg, K = 1")
    assert tuned[0] == plain[0] and tuned[1] != plain[1] and plots.look("FedDrift") != plots.look("FedD")
    lines = plots.learning_curves({name: ([1, 2], [0, 1]) for name in ("IFCA", "IFCA, K = 2", "x")}).axes[0].lines
    assert [line.get_color() for line in lines[:2]] == [plots.look("IFCA")[0]] * 2
    assert [line.get_linestyle() for line in lines] == ["-", "--", "-"]


# What is seen without one kind of cone, in linear RGB (Machado, Oliveira and Fernandes 2009, severity 1)
CONES = [np.eye(3), [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
         [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
         [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]]  # fmt: skip
XYZ = np.array([[0.4339, 0.3762, 0.1899], [0.2127, 0.7152, 0.0722], [0.0178, 0.1095, 0.8728]])  # white is 1, 1, 1


def lab(colour, cones):
    """A colour in CIELAB, as somebody sees it with these cones."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in to_rgb(colour)]
    seen = XYZ @ np.clip(cones @ np.array(linear), 0, 1)
    x, y, z = (np.cbrt(t) if t > 0.008856 else 7.787 * t + 16 / 116 for t in seen)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_colours_of_methods_come_apart_in_every_kind_of_sight():
    for a, b in combinations({colour for colour, _ in plots.LOOKS.values()}, 2):
        assert min(np.linalg.norm(lab(a, c) - lab(b, c)) for c in map(np.array, CONES)) >= 15, (a, b)


def test_curve_is_the_mean_over_seeds_with_a_band_of_one_std():
    frame = pd.DataFrame({"round": [1, 1, 2, 2, 3, 3], "accuracy": [0.1, 0.3, 0.4, 0.6, None, None]})
    axes = plots.learning_curves({"IFCA": frame}, ylabel="accuracy of the clusters").axes[0]
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_xdata(), [1, 2])  # round 3 was not evaluated
    np.testing.assert_allclose(line.get_ydata(), [0.2, 0.5])
    band = axes.collections[0].get_paths()[0].vertices
    half = math.sqrt(0.02)
    assert band[:, 1].min() == pytest.approx(0.2 - half) and band[:, 1].max() == pytest.approx(0.5 + half)
    assert axes.get_ylabel() == "accuracy of the clusters"
    assert texts(axes) == ["IFCA"]


def test_one_seed_has_no_band_and_the_frame_of_a_history_is_a_curve():
    frame = pd.DataFrame({"round": [1, 2], "loss": [3.0, 2.0]})
    axes = plots.learning_curves({"a": frame, "b": ([1, 2], [1, 1])}, y="loss").axes[0]
    assert not axes.collections
    assert [line.get_ydata().tolist() for line in axes.lines] == [[3, 2], [1, 1]]
    rows = [{"round": 0, "accuracy": 0.1}, {"round": 1}, {"round": 2, "accuracy": 0.5}]
    (line,) = plots.learning_curves({"a": pd.DataFrame(rows).set_index("round")}).axes[0].lines
    assert line.get_xdata().tolist() == [0, 2] and line.get_ydata().tolist() == [0.1, 0.5]


def test_names_of_close_curves_do_not_touch_keep_their_order_and_stay_within_the_figure():
    figure = plots.learning_curves({f"method {i}": ([1, 2], [0, 1 - i / 500]) for i in range(9)})
    png(figure)
    names = figure.axes[0].texts
    assert [t.get_text() for t in names] == [f"method {i}" for i in range(8, -1, -1)]
    boxes = [Text.get_window_extent(t) for t in names]  # without the leader lines
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))
    figure = plots.learning_curves({f"method {i}": ([1, 2], [0, 1]) for i in range(13)})
    figure.draw_without_rendering()
    assert max(Text.get_window_extent(t).y1 for t in figure.axes[0].texts) <= figure.bbox.y1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.2))
def test_labels_move_apart_but_no_further_than_needed(ends, gap):
    ends = sorted(ends)
    places = plots.apart(ends, gap)
    assert all(b - a >= gap - 1e-9 for a, b in pairwise(places))
    assert np.mean(places) == pytest.approx(np.mean(ends))
    if all(b - a >= gap for a, b in pairwise(ends)):
        assert places == pytest.approx(ends)


def test_image_grid_keeps_one_scale_for_all_images():
    images = np.stack([np.zeros((2, 2)), np.full((2, 2), 4.0), np.full((2, 2), 16.0)])
    figure = plots.image_grid(np.tile(images, (4, 1, 1)), rows=["first", "second"])
    shown = [axes.images[0] for axes in figure.axes if axes.images]
    assert [one.get_array().max() for one in shown] == [0, 4, 16] * 4
    assert {one.get_clim() for one in shown} == {(0, 16)}
    assert [axes.get_ylabel() for axes in figure.axes[::10]] == ["first", "second"]


def test_a_digest_sees_what_matters_and_nothing_else():
    assert shown.digest([0.0]) == "(1,) mean 0.000000 sha256 af5570f5a181"  # SHA-256 of the eight bytes of 0.0
    assert shown.digest([[1, 2], [3, 4]], decimals=2).startswith("(2, 2) mean 2.50 sha256 ")
    values = rng().normal(size=(3, 4))
    same = shown.digest(values)
    for alike in (values + 1e-13, pd.DataFrame(values), np.asfortranarray(values)):
        assert shown.digest(alike) == same
    for other in (values.T, values[::-1], values.reshape(4, 3), values + 1e-6):
        assert shown.digest(other) != same
    assert shown.digest([-0.0, -1e-9]) == shown.digest([0.0, 0.0]) == shown.digest(np.zeros(2, dtype=np.int8))
    assert shown.digest([1, np.nan]) == shown.digest([1, -np.nan]) and "mean 1.0" in shown.digest([1, np.nan])
    assert "mean nan" in shown.digest([np.nan])
    assert values[0, 0] == rng().normal(size=(3, 4))[0, 0]  # left as it was


@pytest.mark.parametrize("draw, line", [
    (lambda: plots.learning_curves({}), "frames = {}: must be at least one curve"),
    (lambda: plots.learning_curves({"a": 5}), "frames, a: cannot unpack"),
    (lambda: plots.learning_curves({"a": ([1], [2], [3])}), "frames, a: too many values"),
    (lambda: plots.learning_curves({"a": ([1, 2], [1])}), "frames, a: All arrays must be of the same length"),
    (lambda: plots.learning_curves({"a": ([], [])}), "frames, a: accuracy = None: must be scored"),
    (lambda: plots.learning_curves({"a": (["x"], [1])}), "frames, a: could not convert string to float"),
    (lambda: plots.learning_curves({"a": pd.DataFrame({"round": [1]})}), "frames, a: \"['accuracy'] not"),
])  # fmt: skip
def test_bad_input_is_one_line_that_names_the_argument(draw, line):
    with pytest.raises(ValueError) as refusal:
        draw()
    assert str(refusal.value).startswith(line) and "\n" not in str(refusal.value)


def test_curves_that_end_close_together_get_a_panel_for_each_method_and_an_axis_without_the_climb():
    labels = ["IFCA", "FedAvg", "LCFed, listing", "LCFed, listing, weak", "λ, chained", "λ, parallel", "a", "b"]
    rounds = [0, 1, 2, 3, 4]
    ends = {label: [0, 50, 80 + i, 85 + i, 90 + i] for i, label in enumerate(labels)}
    curves = {label: pd.DataFrame({"round": rounds, "score": values}) for label, values in ends.items()}
    far = curves | {"a": pd.DataFrame({"round": rounds, "score": [0, 10, 20, 30, 40]})}
    for few in ({label: curves[label] for label in labels[:7]}, far):  # which can be told apart
        assert len(charts.learning(few, "score")[0].axes) == 1
    figure, said = charts.learning(curves, "score")
    assert "IFCA ends at 90.0%, FedAvg ends at 91.0%" in said
    axes = figure.axes
    titles = ["IFCA", "FedAvg", "LCFed, listing", "λ", "a", "b"]
    assert [panel.get_title(loc="left") for panel in axes] == titles
    assert [t.get_text() for t in axes[2].get_legend().get_texts()] == ["listing", "weak"]
    assert axes[0].lines[-1].get_color() == plots.look("IFCA")[0] and len(axes[0].lines) == 9
    assert 70 < axes[0].get_ylim()[0] < 80 and 97 < axes[0].get_ylim()[1] < 100


def test_a_panel_holds_more_curves_than_there_are_kinds_of_lines():
    frame = pd.DataFrame({"round": [0, 1, 2], "score": [0.0, 50, 90]})
    count = len(plots.DASHES) + 2
    panel, *_ = charts.families({f"MD-ICFL-2, K = {k}": frame for k in range(1, count + 1)}, "score").axes
    assert [t.get_text() for t in panel.get_legend().get_texts()] == [f"K = {k}" for k in range(1, count + 1)]
    colour, marker = plots.look("MD-ICFL-2")
    own = panel.lines[count:]  # in front of all curves in grey
    assert {line.get_color() for line in own} == {colour} and own[0].get_marker() == marker
    assert len({line.get_marker() for line in own}) == count
