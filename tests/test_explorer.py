"""The explorer: the numbers that it has are the records', and what it draws are these numbers."""

import json
import re

import explorer
import pytest

from cflkit.workbook import places
from cflkit.workbook.claims import ledger
from cflkit.workbook.runs import results
from cflkit.workbook.show import plots

BOOK = places.ROOT / "_build" / "html"


def test_every_tables_last_scores_are_the_frames():
    cells = {cell: dict(zip(part["seed"], part["value"], strict=True))
             for cell, part in results.frame().groupby(["protocol", "label", "metric"])}  # fmt: skip
    tables = explorer.tables()
    assert set(tables) == {name for name, spec in ledger.tables().items() if spec["metric"] not in results.PLAIN
                           and any(row.measured for row in ledger.rows(name))}  # fmt: skip
    for name, rows in tables.items():
        table = json.loads(json.dumps(explorer.data(name, rows)))
        for row, line in zip(rows, table["rows"], strict=True):
            cell = ledger.tables()[name]["protocol"], row.label
            last = {run["seed"]: run["score"][-1] for run in line["runs"]}
            assert last == pytest.approx(cells[*cell, row.metric], abs=1e-4) and line["printed"] == row.printed
            assert sorted(line["ari"]) == sorted(cells.get((*cell, "ari"), {}).values())
            for run, record in zip(line["runs"], row.measured, strict=True):
                sent = sum(r["down"] + r["up"] for r in record["rounds"])
                assert run["traffic"][-1] == pytest.approx(4e-6 * sent, abs=0.01)
                scored = [r["round"] for r in record["rounds"] if r.get(row.metric) is not None]
                assert run["rounds"] == scored and run["rounds"][-1] == record["config"]["rounds"]
        assert 0 < len(table["first"]) <= explorer.SHOWN


def test_a_row_has_the_colour_of_the_figures():
    css = (places.BOOK / "_static" / "book.css").read_text("utf-8")
    colours = dict(re.findall(r"--cfl-([a-z]+): (#[0-9a-f]{6})", css.partition("}")[0]))
    for rows in explorer.tables().values():
        for row in rows:
            look = plots.look(row.name) or (plots.OTHER, "")
            assert colours[explorer.colour_of(row.name)] == look[0].lower()


# ---------------------------------------------------------------------- in a browser
# The scales of the chart, from the ticks that a reader sees, and the points in their units.
DRAWN = """() => {
  const numbers = (kind, at) => [...document.querySelectorAll(`.ex-plot text.${kind}`)]
    .filter(e => /^[\\d,.]+$/.test(e.textContent))
    .map(e => [Number(e.textContent.replaceAll(',', '')), Number(e.getAttribute(at))])
  const scale = ([[a, p], ...more]) => z => a + (z - p) * (more.at(-1)[0] - a) / (more.at(-1)[1] - p)
  const x = scale(numbers('across', 'x')), y = scale(numbers('down', 'y')), of = z => y(Number(z) + 4)
  return [...document.querySelectorAll('.ex-row')].map(g => ({
    row: Number(g.dataset.row),
    seeds: [...g.querySelectorAll('polyline.seed')].map(e => [...e.points].map(p => [x(p.x), of(p.y)])),
    mean: [...g.querySelector('polyline.mean').points].map(p => [x(p.x), of(p.y)]),
    printed: [...g.querySelectorAll('.printed')].map(e => of(6 + Number(/ (\\S+?)l/.exec(e.getAttribute('d'))[1]))),
    says: g.querySelector('text.name').textContent,
  }))
}"""


@pytest.fixture
def explore(visit):
    def open_(state="", **more):
        if not (BOOK / "book" / "explorer.html").exists():
            pytest.skip("no book (make book)")
        return visit(f"{BOOK}/book/explorer.html{state}", **more)

    return open_


def points(run, across):
    return [pytest.approx(pair, rel=0.002, abs=0.1) for pair in zip(run[across], run["score"], strict=True)]


@pytest.mark.browser
@pytest.mark.parametrize("scale", ["whole", "zoom"])
@pytest.mark.parametrize("across", ["rounds", "traffic"])
@pytest.mark.parametrize("name", ["comparison-rot-skew-r20", "mdicfl-table4-r100", "lcfed-table1-n3-cal"])
def test_what_is_drawn_are_the_records(name, across, scale, explore):
    table = explorer.data(name, explorer.tables()[name])
    page = explore(f"#table={name}&across={across}&scale={scale}")
    page.wait_for_selector(".ex-row", state="attached")
    drawn = page.evaluate(DRAWN)
    assert sorted(one["row"] for one in drawn) == table["first"]
    for one in drawn:
        row = table["rows"][one["row"]]
        last = sum(run["score"][-1] for run in row["runs"]) / len(row["runs"])
        assert one["mean"][-1][1] == pytest.approx(last, abs=0.05) and one["says"].startswith(f"{last:.1f} ")
        for seed, run in zip(one["seeds"], row["runs"], strict=len(row["runs"]) > 1):
            assert seed == points(run, across)
        assert one["printed"] == pytest.approx([row["printed"]] if row["printed"] else [], abs=0.05)


@pytest.mark.browser
def test_a_reader_chooses_by_keys_and_sends_the_view(explore):
    page = explore()
    page.wait_for_selector(".ex-row", state="attached")
    page.locator("[name=table]").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("document.querySelector('.ex-link a').hash === '#table-comparison-rot-r100'")
    box = page.get_by_role("checkbox", name="FedAvg", exact=True)
    box.focus()
    assert page.locator(".ex-row:not(.ex-dim)").count() == 1
    page.keyboard.press("Space")
    page.select_option("[name=across]", "traffic")
    count, address = page.locator(".ex-row").count(), page.url
    said = page.locator(".ex-plot").get_attribute("aria-label")
    assert "table=comparison-rot-r100" in address and "across=traffic" in address and "FedAvg 9" not in said
    page.wait_for_function("document.querySelector('.cfl-live').textContent.length > 100")
    again = explore(address[address.index("#") :])
    again.wait_for_selector(".ex-row", state="attached")
    assert again.locator(".ex-plot").get_attribute("aria-label") == said
    assert again.locator(".ex-row").count() == count
    again.get_by_role("button", name="All rows").click()
    assert again.locator(".ex-row").count() == again.locator(".ex-rows tbody tr").count()


@pytest.mark.browser
def test_without_scripts_there_are_the_tables(explore):
    page = explore(java_script_enabled=False)
    assert page.locator(".ex-list a").count() == len(explorer.tables())
    assert page.locator(".ex-list a").first.is_visible() and not page.locator(".ex-knobs").is_visible()


@pytest.mark.browser
def test_a_phone_and_paper_have_all_of_it(explore):
    page = explore("#table=stocfl-table1-4800-r10&scale=zoom", width=390)
    page.wait_for_selector(".ex-row", state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    out = """() => [...document.querySelectorAll('.ex-plot text')].filter(e => e.getBoundingClientRect().right > 390
        || parseFloat(getComputedStyle(e).fontSize) < 10).map(e => e.textContent)"""
    assert page.evaluate(out) == []
    page.emulate_media(media="print")
    assert page.locator(".ex-plot").is_visible() and page.locator(".ex-rows table").is_visible()
    assert not page.locator(".ex-knobs").is_visible()
