"""Every sentence of ``book/findings.yaml`` is carried by its records, and one that is not is named."""

import importlib
import re
from types import SimpleNamespace

import pytest
from sphinx.errors import ExtensionError

from cflkit.workbook import places
from cflkit.workbook.claims import findings


@pytest.mark.parametrize("name", findings.findings())
def test_a_finding_holds(name):
    assert findings.text(name)


def test_every_finding_stands_in_a_page_and_every_one_asked_for_is_there():
    pages = [*places.BOOK.glob("*.ipynb"), *places.BOOK.glob("*.md"), *places.BOOK.glob("_ext/*.py")]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    asked = set(re.findall(r"\{finding\}`([a-z0-9-]+)`", text))
    asked |= set(" ".join(re.findall(r"\{finding\} ([a-z0-9 -]+)", text)).split())
    assert asked == set(findings.findings())


BAD = {
    "inverted": {"says": "x", "holds": 'ahead("common_rot_r20/fedavg", "common_rot_r20/oracle")'},
    "gone": {"says": "x", "holds": 'seeds("stocfl_rotmnist_4800_r10/nothing") > 0'},
    "unknown word": {"says": "x", "holds": "open('secret')"},
    "not a truth": {"says": "x", "holds": "1"},
    "typed by hand": {"says": "It scores 91.2%.", "holds": "1 < 2"},
}


@pytest.mark.parametrize("name", BAD)
def test_one_that_does_not_hold_is_named(name, monkeypatch):
    monkeypatch.setattr(findings, "findings", lambda: BAD)
    with pytest.raises(ValueError, match=f"finding {name}"):
        findings.text(name)
    monkeypatch.syspath_prepend(places.BOOK / "_ext")
    with pytest.raises(ExtensionError, match=f"finding {name}"):  # a build ends there
        importlib.import_module("findings").compute(None)


def test_a_changed_sentence_reaches_every_page(monkeypatch):
    monkeypatch.syspath_prepend(places.BOOK / "_ext")
    extension, env = importlib.import_module("findings"), SimpleNamespace(found_docs={"a", "b"})
    for said, again in (({"x": "1"}, set()), ({"x": "1"}, set()), ({"x": "2"}, {"a", "b"}), ({"x": "2"}, set())):
        monkeypatch.setattr(extension, "SAID", said)
        assert extension.outdated(None, env) == again
