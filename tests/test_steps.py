"""The step-throughs: frames are well formed and told in words, histories are made again to the last digit.

A reader can step by keyboard, without JavaScript, and with a screen reader.
"""

import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pictures
import pytest
import steps
import torch
from made import script
from steps import Panel

from cflkit.workbook import places

histories = script("histories")
NAMES = list(pictures.PICTURES)
STATIC = places.BOOK / "_static"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def made():
    """Every step-through of the book."""
    return {name: picture() for name, picture in pictures.PICTURES.items()}


@pytest.mark.parametrize("name", NAMES)
def test_every_value_has_a_frame_that_is_told_in_words_and_a_row_with_all_columns(name, made):
    spec, steps_, root = steps.described(name), made[name], ET.fromstring(steps.html(name, made[name]))
    last, several = len(steps_.labels) - 1, len(spec["variants"]) > 1
    frames = [frame for frame in root.iter("div") if frame.get("data-step")]
    wanted = [(v, s) for v in range(len(spec["variants"])) for s in range(last + 1)]
    assert [(int(f.get("data-variant")), int(f.get("data-step"))) for f in frames] == wanted
    keys = [int(f.get("data-step")) for f in frames if "key" in f.get("class").split()]
    assert keys == [0, (last + 1) // 2, last] * len(spec["variants"])
    (now,) = [f for f in frames if "now" in f.get("class").split()]
    assert int(now.get("data-step")) == range(last + 1)[spec["start"]] == int(root.get("data-start"))
    ids = []
    for chart in root.iter(f"{SVG}svg"):
        title, desc = chart.find(f"{SVG}title"), chart.find(f"{SVG}desc")
        assert chart.get("role") == "img" and title.text and len(desc.text) > 40
        assert chart.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
        ids += [title.get("id"), desc.get("id")]
        for text in chart.iter(f"{SVG}text"):  # which stays within the chart
            kind, x = text.get("class").split(), float(text.get("x"))
            long = 0.6 * (14 if "who" in kind else 12) * len(text.text or "")
            left = x - long * (1 if "end" in kind else 0.5 if "middle" in kind else 0)
            assert left >= -6 and left + long <= float(chart.get("viewBox").split()[2]) + 6, text.text
    assert ids and len(ids) == len(set(ids))
    rows = [[cell.text for cell in row] for row in root.find(".//tbody")]
    assert len(rows) == len(wanted)
    assert all(len(row) == 1 + several + len(spec["header"]) and all(row) for row in rows)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_a_history_is_made_again_to_the_last_digit(name, tmp_path):
    histories.save(name, tmp_path)
    assert (tmp_path / f"{name}.json").read_bytes() == (histories.FOLDER / f"{name}.json").read_bytes()


def test_a_chart_puts_points_where_its_axes_say():
    panel = Panel("a", (0, 10), (0, 1), 150, 126, yticks=[(0, "0"), (1, "1")])
    assert panel.at(0, 0) == (34, 120) and panel.at(10, 1) == (140, 26)
    assert panel.at(5, 0.5) == (87, 73)


def test_a_model_between_two_centres_stands_where_its_distances_say():
    centres = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0]])
    models = torch.tensor([[1.5, 1.0], [0.5, 1.0]])
    rival, place = histories.bisected(models, centres, torch.tensor([0, 1]))
    assert rival.tolist() == [1, 0]
    assert place.tolist() == [[0.75, 0.5], [0.75, 0.5]]  # beyond one half: the rival is closer
    _, place = histories.bisected(models, centres, torch.tensor([0, 1]), torch.tensor([2, 0]))
    assert place[0].tolist() == [0.25, 0.375]


def test_the_component_by_itself():
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    script = Path(__file__).parent / "steps.test.js"
    done = subprocess.run(["node", "--test", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


# ---------------------------------------------------------------------- in a browser
@pytest.fixture
def step(visit, made, tmp_path):
    """Open a page that holds nothing but a step-through."""

    def open_(name, width=800, scripts=True):
        style, script = ((STATIC / file).read_text("utf-8") for file in ("drawings.css", "steps.js"))
        head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{style}</style>'
        body = f"{steps.html(name, made[name])}<script>{script}</script>"
        page = tmp_path / "page.html"
        page.write_text(f'<!doctype html><html lang="en">{head}<body>{body}', "utf-8")
        return visit(page, width, java_script_enabled=scripts)

    return open_


def shown(page):
    """Frames in sight, as (variant, step)."""
    frames = [frame for frame in page.locator(".cfl-frame").all() if frame.is_visible()]
    return [(int(f.get_attribute("data-variant")), int(f.get_attribute("data-step"))) for f in frames]


@pytest.mark.parametrize("name", NAMES)
def test_by_keyboard(name, made, step):
    spec, page, labels = steps.described(name), step(name), made[name].labels
    last = len(labels) - 1
    focused = page.locator(":focus")
    assert shown(page) == [(0, range(last + 1)[spec["start"]])]
    for _ in range(1 + (len(spec["variants"]) > 1)):  # past the switch, to the first button
        page.keyboard.press("Tab")
    assert focused.get_attribute("aria-label") == "Back"
    for key, step in (("End", last), ("ArrowLeft", last - 1), ("Enter", last - 2), ("ArrowRight", last - 1)):
        page.keyboard.press(key)
        assert shown(page) == [(0, step)]
    page.keyboard.press("Tab")
    assert focused.get_attribute("type") == "range"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert shown(page) == [(0, 1)]
    assert focused.get_attribute("aria-valuetext") == labels[1]
    assert focused.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    begins = f"{spec['axis']} {labels[1]}"
    live = page.locator(".cfl-live")
    page.wait_for_function("([e, begins]) => e.textContent.startsWith(begins)", arg=[live.element_handle(), begins])
    assert live.text_content().endswith(made[name].frames[0][1].says)
    if len(spec["variants"]) > 1:
        page.locator("input[type=radio]").first.focus()
        page.keyboard.press("ArrowRight")
        assert shown(page) == [(1, 1)]


@pytest.mark.parametrize("medium", ["no scripts", "print"])
@pytest.mark.parametrize("name", NAMES)
def test_without_scripts_and_in_print_there_are_three_frames_and_no_buttons(name, medium, made, step):
    page, last = step(name, scripts=medium == "print"), len(made[name].labels) - 1
    page.emulate_media(media="print" if medium == "print" else "screen")
    assert shown(page) == [(v, s) for v in range(len(made[name].frames)) for s in (0, (last + 1) // 2, last)]
    assert not page.locator("button").first.is_visible()


@pytest.mark.parametrize("name", NAMES)
def test_on_a_phone_nothing_is_wider_than_the_page(name, step):
    assert step(name, width=390).evaluate("document.documentElement.scrollWidth") <= 390
