"""The playground in a page, while Sphinx builds the book (an extension): the directive ``{playground} NAME``.

NAME is one of ``playground.json``; "full" has all knobs, the others a few. Without JavaScript a page shows the
picture that ``make playground`` has drawn of the preset.
"""

import json
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).resolve().parent
PRESETS, STILLS = HERE / "playground.json", HERE / "playground_stills"
SCRIPTS = ("draws", "federation", "network", "vectors", "methods", "run", "draw", "digits", "page")  # in this order
PAGE = "book/playground"


class Playground(SphinxDirective):
    """A federation to play with, set up as a preset says."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the place that ``page.js`` brings to life."""
        name, presets = self.arguments[0], json.loads(PRESETS.read_text("utf-8"))
        if name not in presets:
            raise self.error(f"playground = {name!r}: must be one of {', '.join(presets)}")
        preset, still = presets[name], STILLS / f"{name}.html"
        self.env.note_dependency(PRESETS)
        self.env.note_dependency(still)
        uri = self.env.app.builder.get_relative_uri(self.env.docname, PAGE)
        small = "" if name == "full" else f' data-small data-page="{uri}?{escape(preset["situation"])}"'
        html = (f'<div class="pg" id="playground-{name}" data-situation="{escape(preset["situation"])}"{small}>\n'
                f'<p class="pg-try-it">{escape(preset["says"])}</p>\n{still.read_text("utf-8")}</div>')  # fmt: skip
        return [nodes.raw("", html, format="html", classes=["playground"])]


def load(app, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """Give script and style to the pages that have a playground, and to no others."""
    if doctree is not None and any("playground" in raw["classes"] for raw in doctree.findall(nodes.raw)):
        app.add_css_file("playground/playground.css")
        for name in SCRIPTS:
            app.add_js_file(f"playground/{name}.js", loading_method="defer")


def setup(app) -> dict:
    """Make the directive known."""
    app.add_directive("playground", Playground)
    app.connect("html-page-context", load)
    return {"parallel_read_safe": True}
