"""The step-throughs: frames are well formed and told in words, histories are made again to the last digit.

A reader can step by keyboard, without JavaScript, and with a screen reader.
"""

import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import icons
import pictures
import pytest
import steps
import torch
from made import script
from panel import Panel

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
def test_there_is_a_frame_for_every_value_and_variant(name, made):
    spec, root = made[name], ET.fromstring(steps.html(name, made[name]))
    places_of = [(f.get("data-variant"), f.get("data-step")) for f in root.iter("div") if f.get("data-step")]
    wanted = [(str(v), str(s)) for v in range(len(spec.variants)) for s in range(len(spec.labels))]
    assert places_of == wanted
    assert 0 <= spec.start < len(spec.labels)


@pytest.mark.parametrize("name", NAMES)
def test_every_chart_is_told_in_words_and_every_row_has_all_columns(name, made):
    spec, root = made[name], ET.fromstring(steps.html(name, made[name]))
    names = []
    for chart in root.iter(f"{SVG}svg"):
        title, desc = chart.find(f"{SVG}title"), chart.find(f"{SVG}desc")
        assert chart.get("role") == "img" and title.text and len(desc.text) > 40
        assert chart.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
        names += [title.get("id"), desc.get("id")]
    assert names and len(names) == len(set(names))
    columns = 1 + (len(spec.variants) > 1) + len(spec.header)
    rows = [[cell.text for cell in row] for row in root.find(".//tbody")]
    assert len(rows) == len(spec.variants) * len(spec.labels)
    assert all(len(row) == columns and all(row) for row in rows)


@pytest.mark.parametrize("name", NAMES)
def test_without_scripts_first_middle_and_last_are_shown_and_nothing_to_press(name, made):
    root = ET.fromstring(steps.html(name, made[name]))
    last = len(made[name].labels) - 1
    keys = [int(f.get("data-step")) for f in root.iter("div") if "key" in (f.get("class") or "").split()]
    assert keys == [0, (last + 1) // 2, last] * len(made[name].variants)
    assert next(d for d in root.iter("div") if d.get("class") == "cfl-controls").get("hidden")


@pytest.mark.parametrize("name", NAMES)
def test_drawn_twice_it_is_the_same(name, made):
    assert steps.drawing(name, pictures.PICTURES[name]()) == steps.drawing(name, made[name])


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


@pytest.mark.parametrize("name", NAMES)
def test_no_text_of_a_chart_leaves_it(name, made):
    for chart in ET.fromstring(steps.html(name, made[name])).iter(f"{SVG}svg"):
        across = float(chart.get("viewBox").split()[2])
        for text in chart.iter(f"{SVG}text"):
            kind = text.get("class").split()
            size, x = 14 if "who" in kind else 12, float(text.get("x"))
            long = icons.width(text.text or "", size)
            left = x - long * (1 if "end" in kind else 0.5 if "middle" in kind else 0)
            assert left >= -6 and left + long <= across + 6, text.text


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
@pytest.fixture(scope="module")
def chromium():
    """A headless Chromium."""
    play = pytest.importorskip("playwright.sync_api", reason="requirements-browser.txt")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium: install it, or name it in CHROMIUM")
    with play.sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, made):
    """Open a page that holds nothing but a step-through."""
    contexts = []

    def open_(name, width=800, scripts=True):
        style, script = ((STATIC / file).read_text("utf-8") for file in ("drawings.css", "steps.js"))
        size = {"width": width, "height": 800}
        contexts.append(chromium.new_context(viewport=size, java_script_enabled=scripts))
        page = contexts[-1].new_page()
        head = f'<meta name="viewport" content="width=device-width"><style>{style}</style>'
        body = f"{steps.html(name, made[name])}<script>{script}</script>"
        page.set_content(f'<!doctype html><html lang="en">{head}<body>{body}')
        return page

    yield open_
    for context in contexts:
        context.close()


def shown(page):
    """Frames in sight, as (variant, step)."""
    frames = [frame for frame in page.locator(".cfl-frame").all() if frame.is_visible()]
    return [(int(f.get_attribute("data-variant")), int(f.get_attribute("data-step"))) for f in frames]


@pytest.mark.parametrize("name", NAMES)
def test_by_keyboard(name, made, visit):
    spec, page = made[name], visit(name)
    last = len(spec.labels) - 1
    focused = page.locator(":focus")
    assert shown(page) == [(0, spec.start)]
    for _ in range(1 + (len(spec.variants) > 1)):  # past the switch, to the first button
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
    assert focused.get_attribute("aria-valuetext") == spec.labels[1]
    assert focused.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    begins = f"{spec.axis} {spec.labels[1]}"
    live = page.locator(".cfl-live")
    page.wait_for_function("([e, begins]) => e.textContent.startsWith(begins)", arg=[live.element_handle(), begins])
    assert live.text_content().endswith(spec.frames[0][1].says)
    if len(spec.variants) > 1:
        page.locator("input[type=radio]").first.focus()
        page.keyboard.press("ArrowRight")
        assert shown(page) == [(1, 1)]


@pytest.mark.parametrize("name", NAMES)
def test_without_scripts_there_are_three_frames_and_no_buttons(name, made, visit):
    page, last = visit(name, scripts=False), len(made[name].labels) - 1
    assert shown(page) == [(v, s) for v in range(len(made[name].variants)) for s in (0, (last + 1) // 2, last)]
    assert not page.locator("button").first.is_visible()


@pytest.mark.parametrize("name", NAMES)
def test_in_print_there_are_three_frames_and_no_buttons(name, made, visit):
    page, last = visit(name), len(made[name].labels) - 1
    page.emulate_media(media="print")
    assert shown(page) == [(v, s) for v in range(len(made[name].variants)) for s in (0, (last + 1) // 2, last)]
    assert not page.locator("button").first.is_visible()


@pytest.mark.parametrize("name", NAMES)
def test_on_a_phone_nothing_is_wider_than_the_page(name, visit):
    assert visit(name, width=390).evaluate("document.documentElement.scrollWidth") <= 390
