"""Every page of the built book in Chromium, light and dark, wide and narrow: ``make test-browser``."""

from pathlib import Path

import evidence
import pytest
from check_pages import LEAST, POINTS, html

BOOK = Path(__file__).resolve().parents[1] / "_build" / "html"
PAGES = [page for page in html(BOOK) if "_modules" not in page.parts]  # none where the book is not built
STEPS = [str(page.relative_to(BOOK)) for page in PAGES if 'class="cfl-steps' in page.read_text("utf-8")]
PAGES = [str(page.relative_to(BOOK)) for page in PAGES]
WIDTHS, THEMES = (1280, 390), ("light", "dark")
LIGHT = 2.5e6  # bytes that a page may load
CHAPTERS = ["foundations", *evidence.CHAPTERS, "baselines"]
SCREENS = 19  # of 800 pixels, that a chapter may have at 1280, exercises and folded parts aside
NOTEBOOK_DPI, PAGE_DPI = 110, 150  # of the pictures in notebooks and on pages
SETTLED = 300  # milliseconds, until colours that fade have arrived
SPOKEN = 800  # milliseconds, until a step is read out: nothing is said while a slider is dragged
# Style sheets are not fetched again, and what passes is not listed: that takes most of the time.
AXE = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], "preload": False,
       "resultTypes": ["violations"]}  # fmt: skip

# What sticks out of the page, and what is cut: a box that scrolls shows that it does, one that hides cuts.
WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
CUT = """() => [...document.querySelectorAll('.bd-article .cell_output, .bd-article .highlight, .bd-article img,'
    + '.bd-article table, .bd-article pre, .bd-article svg')].filter(e => {
  const box = e.getBoundingClientRect()
  if (!box.width || e.closest('.cfl-told, details:not([open]), .toggle-hidden')) return false
  for (let up = e; up && up !== document.body; up = up.parentElement) {
    const look = getComputedStyle(up).overflowX
    if (look === 'auto' || look === 'scroll') return false
    if (look === 'hidden' && up.scrollWidth > up.clientWidth + 2) return true
  }
  return box.right > document.documentElement.clientWidth + 1
}).map(e => e.outerHTML.slice(0, 120))"""

# Formulas in a line of text that run out of it, where a phone would cut them.
LONG = """() => {
  document.querySelectorAll('.bd-article details').forEach(e => { e.open = true })
  return [...document.querySelectorAll('.bd-article mjx-container:not([display])')].filter(e => {
    const text = e.closest('p, li, dd, figcaption')
    return text && e.getBoundingClientRect().right > text.getBoundingClientRect().right + 2
  }).map(e => e.closest('p, li, dd, figcaption').textContent.slice(0, 80))
}"""
# Letters of pictures that have fewer pixels than they need: of PNGs by the resolution that notebooks and pages save
# them with, of drawings as they are drawn.
SMALL = f"""async () => {{
  const pictures = [...document.querySelectorAll('.bd-article img')].filter(i => i.src.endsWith('.png'))
  pictures.forEach(i => {{ i.loading = 'eager' }})
  await Promise.all(pictures.map(i => i.decode()))
  await new Promise(done => setTimeout(done, 200))
  const inches = i => i.naturalWidth / (i.closest('.cell') ? {NOTEBOOK_DPI} : {PAGE_DPI})
  const tall = t => parseFloat(getComputedStyle(t).fontSize) * Math.hypot(t.getScreenCTM().a, t.getScreenCTM().b)
  const words = [...document.querySelectorAll('.bd-article svg text')].filter(t => t.getBoundingClientRect().width)
  return [
    ...pictures.filter(i => i.clientWidth && i.clientWidth / inches(i) * {POINTS} / 72 < {LEAST - 0.05})
      .map(i => i.src.split('/').pop()),
    ...words.filter(t => tall(t) < {LEAST}).map(t => t.textContent)
  ]
}}"""
# How far the page moves under its reader while pictures come in: 0.1 is good.
MOVES = """window.moved = 0
new PerformanceObserver(list => list.getEntries().forEach(e => { if (!e.hadRecentInput) window.moved += e.value }))
  .observe({ type: 'layout-shift', buffered: true })"""
SCROLL = """async () => {
  for (let at = 0; at < document.body.scrollHeight; at += 600) {
    scrollTo(0, at); await new Promise(done => setTimeout(done, 40))
  }
  return window.moved
}"""
# Boxes that scroll sideways and do not show it.
HIDDEN = """() => [...document.querySelectorAll('.bd-article :is(.pst-scrollable-table-container, .cell_output,'
  + ' pre, mjx-container[display], .cfl-wide)')].filter(e => !e.closest('details:not([open])')
  && getComputedStyle(e).overflowX !== 'visible' && e.scrollWidth - e.clientWidth > 8
  && !e.classList.contains('cfl-more')).map(e => e.outerHTML.slice(0, 120))"""

# The height of a chapter, when all its figures and formulas are there.
HEIGHT = """async () => {
  document.querySelectorAll('img').forEach(i => { i.loading = 'eager' })
  await Promise.all([...document.images].map(i => i.decode().catch(() => {})))
  await window.MathJax?.startup?.promise
  const page = document.querySelector('.bd-article'), tall = e => e.getBoundingClientRect().height
  const left = 'section[id^="exercises"], details:not([open])'
  const out = [...page.querySelectorAll(left)].filter(e => !e.parentElement.closest(left))
  return tall(page) - out.map(tall).reduce((a, b) => a + b, 0)
}"""

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not BOOK.is_dir(), reason="the book is not built: make book")]


@pytest.fixture(scope="module")
def axe():
    return pytest.importorskip("axe_playwright_python.sync_playwright", reason="requirements-browser.txt").Axe()


@pytest.fixture
def read(visit):
    """Open a page of the book, and wait until it is there."""

    def open_(name, width=1280, script=""):
        page = visit(BOOK / name, width, script=script)
        page.wait_for_load_state("networkidle")
        return page

    return open_


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_sound(name, width, read, axe):
    """In one visit: the reader turns the theme over, and nothing is loaded twice."""
    page = read(name, width)
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        page.wait_for_function(f"document.documentElement.dataset.theme === '{theme}'")
        page.wait_for_timeout(SETTLED)
        assert page.evaluate(WIDE) <= 0, "the page scrolls sideways"
        assert page.evaluate(CUT) == []
        found = axe.run(page, options=AXE).response["violations"]
        bad = [hit for hit in found if hit["impact"] in ("serious", "critical")]
        assert [f"{theme}, {hit['id']}: {hit['nodes'][0]['html'][:200]}" for hit in bad] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_light(name, read):
    page = read(name)
    page.evaluate("document.querySelectorAll('img').forEach(i => { i.loading = 'eager' })")  # all of it is read
    page.wait_for_load_state("networkidle")
    files = {Path(url.removeprefix("file://").partition("?")[0]) for url in page.asked if url.startswith("file:")}
    sizes = {file.name: file.stat().st_size for file in files if file.is_file()}
    assert sum(sizes.values()) <= LIGHT, sorted(sizes.items(), key=lambda item: -item[1])[:6]


@pytest.mark.parametrize("name", [page for page in PAGES if page.startswith("book/")])
def test_a_page_stands_still_and_is_legible(name, read):
    page = read(name, script=MOVES)
    assert page.evaluate(SCROLL) < 0.1, "moves while it loads"
    assert page.evaluate(SMALL) == [], "letters too small to read"
    page.set_viewport_size({"width": 2560, "height": 1300})
    assert page.evaluate(WIDE) <= 0, "the page scrolls sideways"


@pytest.mark.parametrize("name", [page for page in PAGES if page.startswith("book/")])
def test_a_phone_cuts_and_hides_nothing(name, read):
    page = read(name, 390, script=MOVES)
    assert page.evaluate(SCROLL) < 0.1, "moves while it loads"
    assert page.evaluate(SMALL) == [], "letters too small to read"
    assert page.evaluate(HIDDEN) == [], "goes on to the right, unseen"
    page.evaluate("window.MathJax?.startup?.promise")
    assert page.evaluate(LONG) == [], "formulas longer than their line"


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_is_not_endless(name, read):
    assert read(f"book/{name}.html").evaluate(HEIGHT) <= SCREENS * 800


def test_the_keyboard_reaches_the_text_and_the_search(read):
    page = read("book/intro.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#main-content"
    page.keyboard.press("Control+k")
    assert page.evaluate("document.activeElement.type") == "search"


@pytest.mark.parametrize("name", STEPS)
def test_steps_go_on_and_back_by_keyboard(name, read):
    page = read(name)
    steps = page.locator(".cfl-steps").first
    said = steps.locator(".cfl-frame.now .cfl-says")
    steps.locator("input[type=range]").first.focus()
    page.keyboard.press("Home")
    first = said.text_content()
    page.keyboard.press("ArrowRight")
    second = said.text_content()
    page.wait_for_timeout(SPOKEN)
    assert steps.locator("[aria-live]").text_content() == second != first
    page.keyboard.press("ArrowLeft")
    assert said.text_content() == first


@pytest.mark.parametrize("name", [page for page in PAGES if page.startswith("book/")])
def test_a_printed_page_hides_and_cuts_nothing(name, read):
    page = read(name, 800)
    page.emulate_media(media="print")
    assert page.evaluate("() => [...document.querySelectorAll('.bd-article pre')].filter("
                         "e => e.offsetWidth && e.scrollWidth > e.clientWidth + 1).length") == 0  # fmt: skip
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("() => [...document.querySelectorAll('.bd-article details:not([open]),"
                         ".bd-article .toggle-hidden')].length") == 0  # fmt: skip
