from pathlib import Path

import pytest
from check_pages import problems
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]

PAGE = """<html><head><link rel="stylesheet" href="style.css">
<link rel="canonical" href="https://example.org">
<script src="code.js"></script><script>let home = "https://example.org"</script></head>
<body id="top"><a href="https://example.org">out</a>
<a href="#top">up</a> <a href="two.html#b">b</a>%s</body></html>"""


def site(folder, extra="", style=""):
    (folder / "one.html").write_text(PAGE % extra)
    (folder / "two.html").write_text('<p id="b">b</p>')
    (folder / "code.js").touch()
    (folder / "style.css").write_text(style)
    return problems(folder)


def test_links_may_leave_the_book_but_nothing_is_fetched(tmp_path):
    assert site(tmp_path) == []


@pytest.mark.parametrize("extra", [
    '<script src="https://cdn.example.org/x.js"></script>',
    '<script src="//cdn.example.org/x.js"></script>',
    '<link rel="stylesheet" href="https://cdn.example.org/x.css">',
    '<link rel="preconnect" href="https://cdn.example.org">',
    '<img src="http://cdn.example.org/x.png">',
    '<style>@font-face { src: url("https://cdn.example.org/x.woff") }</style>',
    '<p style="background: url(https://cdn.example.org/x.png)">x</p>',
    '<script type="module">import x from "https://cdn.example.org/x.js"</script>',
    '<script>s.src = "https://cdn.example.org/x.js"</script>',
])  # fmt: skip
def test_each_outside_request_is_found(tmp_path, extra):
    (line,) = site(tmp_path, extra)
    assert line.startswith("one.html: asks the network for ") and "//cdn.example.org" in line


def test_outside_requests_of_style_sheets_are_found(tmp_path):
    assert site(tmp_path, style="@import 'https://cdn.example.org/x.css';") == [
        "style.css: asks the network for https://cdn.example.org/x.css"
    ]


def test_dead_links_are_found(tmp_path):
    assert site(tmp_path, '<a href="three.html">3</a><a href="two.html#c">c</a><img src="x.png">') == [
        "one.html: leads to x.png, which is not there",
        "one.html: leads to three.html, which is not there",
        "one.html: leads to two.html#c, which has no such anchor",
    ]


def test_letters_too_fine_are_found(tmp_path):
    for name, dpi in (("fine", 60), ("good", 110)):  # 20 inches in a column of 752 pixels, and 11
        Image.new("1", (1170, 10)).save(tmp_path / f"{name}.png", dpi=(dpi, dpi))
    (line,) = site(tmp_path, '<img src="fine.png" width="1170"><img src="good.png" style="width: 800px">')
    assert line == "one.html: fine.png has letters of 4.9 pixels, fewer than 9"


def test_the_package_page_lists_every_module():
    modules = {path.relative_to(ROOT) for path in (ROOT / "cflkit").rglob("*.py")}
    named = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in modules}
    listed = set(" ".join(page.read_text() for page in (ROOT / "book").glob("api*.md")).split())
    packages = {name for name in named if (ROOT / name.replace(".", "/")).is_dir()}
    missing = named - listed - packages - {"cflkit.__main__"}
    assert not missing, f"no book/api_*.md has a section for {', '.join(sorted(missing))}: add an automodule each"
