"""The playground's script beside the package, in double precision: the same models, groups and scores."""

import html
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from urllib.parse import parse_qsl

import made
import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
import playground as directive  # noqa: E402

exporter = made.script("playground_export")
NODE = shutil.which("node")
SAME = 1e-9
ROUNDS = 10
SECONDS = 300  # of a processor, that Node may take
QUICK = (0.3, 0.5)  # skewed labels, some clients: every branch is taken
SKEWS = [(None, 1.0), (1.0, 1.0), (0.1, 0.25)]  # of labels, and who takes part
FULL = [(method, domains, *skew) for method, domains, skew in product(exporter.METHODS, exporter.BUILDERS, SKEWS)]
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


def node(given, folder, scripts=exporter.STATIC):
    """What the script makes of an export, or of situations."""
    file = folder / "export.json"
    file.write_text(json.dumps(given))
    call = [NODE, "--use_strict", ROOT / "tests" / "playground.js", file]
    where = os.environ | {"PLAYGROUND": str(scripts)}
    cpu = lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))  # noqa: E731 -- no clock: others work, too
    done = subprocess.run(call, capture_output=True, text=True, preexec_fn=cpu, env=where)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compare(case, folder, scripts=exporter.STATIC):
    method, domains, alpha, share = case
    given = exporter.export(method, domains, alpha, share, ROUNDS)
    expected = given.pop("expected")
    for t, (ours, theirs) in enumerate(zip(node(given, folder, scripts), expected, strict=True)):
        assert ours["assign"] == theirs["assign"], f"round {t}"
        assert np.abs(np.array(ours["models"]) - np.array(theirs["models"])).max() <= SAME, f"round {t}"
        for score in ("balanced", "own", "ari"):
            assert ours[score] == pytest.approx(theirs[score], abs=SAME), f"{score} of round {t}"


def test_the_digits_are_the_packages():
    assert (exporter.STATIC / "digits.js").read_text("utf-8") == exporter.script()


@needs_node
@pytest.mark.parametrize("method", exporter.METHODS)
def test_ten_rounds_are_the_packages(method, tmp_path):
    compare((method, "rotated", *QUICK), tmp_path)


@needs_node
@pytest.mark.browser
@pytest.mark.parametrize("case", FULL, ids=str)
def test_ten_rounds_are_the_packages_whatever_the_skew(case, tmp_path):
    compare(case, tmp_path)


@needs_node
@pytest.mark.parametrize(("method", "line", "broken"), [
    ("ifca", "(model) => net.loss(i, model)", "(model) => -net.loss(i, model)"),
    ("fesem moving", "V.meanBy(trained, nearest, centres)", "V.meanBy(trained, at(assign, clients), centres)"),
    ("stocfl", "if (!(most > tau))", "if (!(most > tau + 0.1))"),
])  # fmt: skip
def test_a_wrong_method_is_noticed(method, line, broken, tmp_path):
    scripts = shutil.copytree(exporter.STATIC, tmp_path / "scripts")
    source = (scripts / "methods.js").read_text("utf-8")
    assert source.count(line) == 1
    (scripts / "methods.js").write_text(source.replace(line, broken), "utf-8")
    with pytest.raises(AssertionError, match="round"):
        compare((method, "rotated", *QUICK), tmp_path, scripts)


@needs_node
def test_digits_are_unpacked_and_turned_and_kmeans_is_as_good(tmp_path):
    digits, rng = exporter.pool(), np.random.default_rng(0)
    points = np.concatenate([rng.normal(k, 0.5, (10, 5)) for k in range(4)])
    made = node({"points": points.tolist(), "k": 4}, tmp_path)
    x = digits.x.double() / digits.scale
    assert made["x"] == x.flatten().tolist()
    assert made["turned"] == [torch.rot90(x[0, 0], times).flatten().tolist() for times in (1, 2, 3)]
    group = np.array(made["group"])
    spread = sum(((points[group == k] - points[group == k].mean(0)) ** 2).sum() for k in range(4))
    assert spread <= KMeans(4, n_init=20, random_state=0).fit(points).inertia_ * (1 + SAME)


# What book/playground.md says of seeds 0 to 9: a situation, a number of its last round, and between what it lies.
TOLD = [
    ("images=shifted&method=fedavg&round=20", "balanced", 0.215, 0.245),
    ("images=shifted&method=local&round=20", "balanced", 0.825, 0.855),
    ("images=shifted&method=oracle&round=20", "balanced", 0.905, 0.945),
    ("method=fedavg&round=20", "balanced", 0.635, 0.71), ("method=oracle&round=20", "balanced", 0.91, 0.945),
    ("images=same&labels=0.1&method=local&round=20", "own", 0.955, 0.985),
    ("images=same&labels=0.1&method=local&round=20", "balanced", 0.285, 0.335),
    ("images=same&labels=0.1&method=fedavg&round=20", "balanced", 0.845, 1), ("method=fesem&round=0", "ari", 1, 1),
    ("method=fesem&round=10", "ari", 1, 1), ("method=stocfl&tau=0.1&round=1", "groups", 1, 1),
    ("method=stocfl&tau=0.5&round=1", "ari", 0.865, 1), ("method=stocfl&tau=0.8&round=1", "groups", 29, 40),
    ("labels=1&method=stocfl&round=1", "ari", 0.05, 0.315), ("labels=1&method=stocfl&round=1", "groups", 16, 24),
    ("labels=0.1&method=stocfl&round=1", "byLabel", 0.585, 0.885),
    ("labels=0.1&method=stocfl&round=1", "ari", -0.05, 0.085), ("labels=1&method=fesem&round=1", "ari", 1, 1),
    ("labels=0.1&method=fesem&round=1", "ari", -0.05, 0.5),
    ("method=lcfed&mu=0.1&lam=0&round=20", "balanced", 0.835, 0.925),
    ("method=lcfed&mu=0.1&lam=0.1&round=20", "balanced", 0.675, 0.735),
]  # fmt: skip


@needs_node
@pytest.mark.browser
@pytest.mark.timeout(0)  # Node has so many seconds of a processor, and no clock
def test_experiments_come_out_as_told(tmp_path):
    told = {f"{address}&seed={seed}": None for address, *_ in TOLD for seed in range(10)}
    ifca = [f"method=ifca&round=20&seed={seed}" for seed in range(10)]
    early = [address.replace("round=20", "round=5") for address in ifca]
    pulled, alone = "method=lcfed&mu=0&lam=0&round=20", "method=local&round=20"
    first = {name: knob["first"] for name, knob in WORDS["knobs"].items()}
    situations = [*told, *ifca, *early, pulled, alone]
    found = dict(zip(situations, node({"situations": situations, "first": first}, tmp_path), strict=True))
    for address, score, low, high in TOLD:
        values = [found[f"{address}&seed={seed}"][score] for seed in range(10)]
        assert low <= min(values) and max(values) <= high, (address, score, values)
    assert [seed for seed in range(10) if found[ifca[seed]]["groups"] < 4] == [0, 1, 9]
    assert [seed for seed in range(10) if found[ifca[seed]]["ari"] == 1] == [2, 3, 4, 5, 7, 8]
    for before, after in zip(early, ifca, strict=True):  # nobody changes after round 5
        assert all(found[before][score] == found[after][score] for score in ("ari", "byLabel", "groups"))
    assert found[pulled]["balanced"] == found[alone]["balanced"] and found[pulled]["own"] == found[alone]["own"]


# ---------------------------------------------------------------------- in a browser
WORDS = json.loads(directive.WORDS.read_text("utf-8"))
LIMITS = {"stocfl": 60, "lcfed": 60}  # milliseconds of a round on one core; 30 for the others


@pytest.mark.parametrize("name", WORDS["presets"])
def test_a_preset_has_its_picture_and_its_knobs(name):
    made = directive.markup(name, WORDS, "playground.html")
    assert made.count('<svg class="pg-tile ') == exporter.CLIENTS
    rows = re.findall(r"<tr>(<td>.*?)</tr>", made)
    assert len(rows) == exporter.CLIENTS and all(row.count("<td>") == made.count("<th ") for row in rows)
    for item in WORDS["presets"][name]["situation"].split("&"):
        knob, value = item.split("=")
        assert knob == "round" or value in WORDS["knobs"][knob]["values"]
    methods = {method.split()[0] for method in exporter.METHODS}
    assert set(WORDS["methods"]) == set(WORDS["knobs"]["method"]["values"]) == methods
    assert ("All knobs" in made) == (name != "full")


def test_addresses_in_assignments_and_pages_set_what_they_name():
    pages = [*ROOT.glob("course/sources/*.md"), ROOT / "book" / "playground.md"]
    where = re.compile(r"(?:playground\.html|href=\")\?([^#`\"]+)")
    found = {page: where.findall(page.read_text("utf-8")) for page in pages}
    assert sum(bool(found[path]) for path in found if path.parent.name == "sources") >= 2
    for address in (html.unescape(one) for these in found.values() for one in these):
        for knob, value in parse_qsl(address, strict_parsing=True):
            assert value.isdigit() if knob == "round" else value in WORDS["knobs"][knob]["values"], address


@pytest.fixture
def play(visit, tmp_path):
    """Open a page that holds nothing but a playground."""
    static = exporter.STATIC

    def open_(name="full", address="", width=1000, scripts=True, **more):
        styles = static.parent / "drawings.css", static / "playground.css"
        style = "".join(path.read_text("utf-8") for path in styles)
        script = "".join(f'<script src="{static / one}.js"></script>' for one in directive.SCRIPTS)
        file = tmp_path / "page.html"
        view = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        body = directive.markup(name, WORDS, "page.html")
        file.write_text(f'<!doctype html><html lang="en">{view}'
                        f"<title>Page</title><style>{style}</style>{body}{script}", "utf-8")  # fmt: skip
        return visit(f"{file}{address}", width, 900, java_script_enabled=scripts, **more)

    return open_


def said(page):
    return page.locator(".pg-says").text_content()


@pytest.mark.browser
def test_a_reader_steps_by_keys_and_turns_knobs(play):
    page = play(address="?method=ifca&seed=1&round=3&tau=17&images=never")
    assert said(page).startswith("IFCA, round 3 of 40:")
    page.locator("[name=step]").focus()
    for key, round in (("ArrowRight", 4), ("Enter", 5), ("ArrowLeft", 4)):
        page.keyboard.press(key)
        assert said(page).startswith(f"IFCA, round {round} of 40:")
    before = said(page)
    page.select_option("[name=labels]", "0.1")
    assert said(page).startswith("IFCA, round 4 of 40:") and said(page) != before
    page.select_option("[name=labels]", "even")
    assert said(page) == before and "labels=even" in page.url and "round=4" in page.url
    page.wait_for_function("words => document.querySelector('.cfl-live').textContent === words", arg=before)
    page.locator("summary").click()
    assert page.locator(".pg-rows tr").last.is_visible() and page.locator(".pg-rows tr").count() == exporter.CLIENTS
    page.locator("[name=play]").focus()
    page.keyboard.press("Home")
    assert said(page).startswith("IFCA, round 0 of 40:")
    page.locator("[name=play]").click()
    page.wait_for_function("document.querySelector('.pg-says').textContent.startsWith('IFCA, round 40 of 40:')")
    page.wait_for_function("document.querySelector('[name=play]').textContent.includes('Play')")


@pytest.mark.browser
def test_the_messages_of_a_round_can_be_stopped(play):
    page = play(address="?method=stocfl&round=2")
    page.locator("[name=messages]").click()
    page.wait_for_selector(".pg-messages path", state="attached")
    page.locator("[name=messages]").click()
    place = "getComputedStyle(document.querySelector('.pg-messages path')).strokeDashoffset"
    first = page.evaluate(place)
    page.wait_for_timeout(200)
    assert page.evaluate(place) == first
    page.locator("[name=messages]").click()
    page.wait_for_function("document.querySelector('.pg-says').textContent.startsWith('StoCFL, round 3 of 40:')")


@pytest.mark.browser
def test_without_motion_messages_are_three_pictures(play):
    page = play(address="?method=fesem&round=2", reduced_motion="reduce")
    for begins in ("Down", "At the clients", "Up"):
        page.locator("[name=messages]").click()
        page.wait_for_timeout(200)
        assert page.locator(".pg-phase").text_content().startswith(begins)
        assert page.evaluate("document.getAnimations().length") == 0
    assert page.locator(".pg-messages path").count() == exporter.CLIENTS
    page.locator("[name=messages]").click()
    assert said(page).startswith("FeSEM, round 3 of 40:")


@pytest.mark.browser
def test_without_scripts_there_is_a_picture_and_nothing_to_press(play):
    page = play(scripts=False)
    assert page.locator(".pg-tile").first.is_visible() and said(page).startswith("IFCA, round 10 of 40:")
    assert not page.locator("[name=play]").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".pg-rows tr").last.is_visible()


@pytest.mark.browser
@pytest.mark.parametrize("name", ["full", "fesem"])
def test_a_phone_and_paper_have_all_of_it(name, play):
    page = play(name, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    small = """() => [...document.querySelectorAll('.pg svg text, .pg p, .pg select')].filter(e => {
        const box = e.ownerSVGElement, by = box ? box.getBoundingClientRect().width / box.viewBox.baseVal.width : 1
        return e.textContent && parseFloat(getComputedStyle(e).fontSize) * by < 9 }).map(e => e.textContent)"""
    assert page.evaluate(small) == []
    page.emulate_media(media="print")
    assert page.locator(".pg-tile").first.is_visible() and page.locator(".pg-rows tr").last.is_visible()
    assert not page.locator("[name=play]").is_visible()


@pytest.mark.browser
@pytest.mark.parametrize("labels", ["even", "0.1"])
@pytest.mark.parametrize("method", WORDS["methods"])
def test_a_round_is_quick(method, labels, play):
    first, page = {name: knob["first"] for name, knob in WORDS["knobs"].items()}, play()
    situation = first | {"method": method, "labels": labels}
    page.evaluate("situation => { window.run = playground.run.begin(situation) }", situation)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})  # of the processor, whoever else uses it

    def milliseconds():
        metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        return 1000 * metrics["TaskDuration"]

    times = []
    for _ in range(50):
        before = milliseconds()
        page.evaluate("() => { run.upTo(run.history.length) }")
        times.append(milliseconds() - before)
    print(f"{method}, labels {labels}: median {np.median(times):.1f} ms")
    assert 0 < np.median(times) <= LIMITS.get(method, 30)
