"""What hosting needs, as far as it can be checked without a network."""

import json
import re
from pathlib import Path
from typing import ClassVar

import pytest
import theme
import yaml
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)) | {"test-course"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_names_what_exists(path):
    flow = yaml.safe_load(path.read_text())
    assert set(flow) <= {"name", True, "permissions", "concurrency", "jobs"}  # YAML reads "on" as true
    assert flow["name"] == path.stem and flow["permissions"]["contents"] == "read"
    for job in flow["jobs"].values():
        assert job["runs-on"] and 0 < job["timeout-minutes"] <= 360
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])
            elif step["run"].startswith("make "):
                assert step["run"].split()[1] in TARGETS
            elif not step["run"].startswith("git "):
                assert (ROOT / step["run"]).exists()


def test_the_archive_says_what_the_citation_says():
    zenodo = json.loads((ROOT / ".zenodo.json").read_text())
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert all(zenodo[name] == cited[name] for name in ("title", "version", "license", "keywords"))
    assert zenodo["creators"] == [{"name": who["name"]} for who in cited["authors"]]
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{cited["version"]}"' in pyproject and f'license = "{cited["license"]}"' in pyproject


def test_binder_installs_what_the_book_needs():
    folder = ROOT / ".binder"
    (line,) = (folder / "requirements.txt").read_text().split("\n")[:-1]
    assert line.startswith("-r ") and (folder / line[3:]).resolve() == ROOT / "requirements.txt"
    assert (folder / "postBuild").stat().st_mode & 0o100


def test_one_variable_brings_the_buttons(monkeypatch):
    class Config:
        html_theme_options: ClassVar = {"navbar_persistent": []}

    monkeypatch.delenv("BOOK_REPOSITORY", raising=False)
    theme.launch(None, Config)
    assert Config.html_theme_options == {"navbar_persistent": []}
    monkeypatch.setenv("BOOK_REPOSITORY", "https://example.org/owner/book")
    theme.launch(None, Config)
    assert Config.html_theme_options["repository_url"] == "https://example.org/owner/book"
    assert set(Config.html_theme_options["launch_buttons"]) >= {"binderhub_url", "colab_url"}


def test_a_list_of_references_holds_items():
    page = '<div role="list" class="citation-list"><div class="citation" role="doc-biblioentry">'
    assert theme.mend(page) == page.replace("doc-biblioentry", "listitem")


def test_a_page_is_mended_once():
    page = '<script defer src="../_static/scripts/fontawesome.js?digest=1"></script><img alt="a" src="b"><p>c</p>'
    folded = '<summary><span class="toctree-toggle"></span></summary>'
    mended = theme.mend(page + folded)
    named = folded.replace("<summary>", '<summary aria-label="pages of this part">')
    assert mended == '<img loading="lazy" alt="a" src="b"><p>c</p>' + named and theme.mend(mended) == mended


def test_a_file_of_the_repository_is_a_link_where_one_is_named(monkeypatch):
    role = theme.Stored()
    role.title, role.target = "the guide", "course/README.md"
    monkeypatch.delenv("BOOK_REPOSITORY", raising=False)
    words, _ = role.run()
    assert "".join(node.astext() for node in words) == "the guide (course/README.md)"
    monkeypatch.setenv("BOOK_REPOSITORY", "https://example.org/owner/book")
    (link,), _ = role.run()
    assert link["refuri"] == "https://example.org/owner/book/blob/main/course/README.md"
    assert link.astext() == "the guide"


def test_a_picture_keeps_its_place(tmp_path):
    Image.new("L", (640, 480)).save(tmp_path / "a.png")
    html = '<img loading="lazy" alt="A" src="a.png"> <img src="gone.png"> <img width="3" src="a.png">'
    told = theme.sized(html, tmp_path)
    sized = '<img width="640" height="480" loading="lazy" alt="A" src="a.png">'
    assert told == sized + html[html.index("> ") + 1 :]
