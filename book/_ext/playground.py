"""The playground in a page, while Sphinx builds the book (an extension): the directive ``{playground} NAME``.

NAME is one of the presets in ``playground.json``; "full" has all knobs, the others a few. Without JavaScript a page
shows the picture that ``make playground`` has drawn of the preset.
"""

import json
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).resolve().parent
WORDS, STILLS = HERE / "playground.json", HERE / "playground_stills"
SCRIPTS = ("draws", "federation", "network", "vectors", "methods", "run", "draw", "digits", "page")  # in this order
PAGE = "book/playground"
BUTTONS = {"back": "◀ Back", "play": "▶ Play", "step": "Step ▶", "reset": "Reset",
           "messages": "Messages of a round"}  # fmt: skip


def select(name: str, knob: dict) -> str:
    """Write a knob: a question, and its answers to choose from."""
    mark = {True: " selected", False: ""}
    options = "".join(f'<option value="{value}"{mark[value == knob["first"]]}>{escape(words)}</option>'
                      for value, words in knob["values"].items())  # fmt: skip
    return f'<label data-knob="{name}">{escape(knob["says"])} <select name="{name}">{options}</select></label>'


def markup(name: str, words: dict, still: str, page: str) -> str:
    """Write a playground: the picture for pages without JavaScript, and what ``page.js`` brings to life.

    Parameters
    ----------
    name : str
        One of the presets.
    words : dict
        What ``playground.json`` holds.
    still : str
        The picture.
    page : str
        Where the full playground is, as seen from this page.
    """
    preset, small = words["presets"][name], name != "full"
    situation, more = escape(preset["situation"]), ""
    if small:
        more = f'<p class="pg-more"><a href="{page}?{situation}">All knobs, and six experiments</a></p>'
    knobs = "".join(select(*item) for item in words["knobs"].items())
    buttons = "".join(f'<button type="button" name="{key}">{label}</button>' for key, label in BUTTONS.items())
    return (
        f'<div class="pg" id="playground-{name}" data-situation="{situation}"{" data-small" * small}'
        f' data-methods="{escape(json.dumps(words["methods"]))}">\n'
        f'<p class="pg-hint">{escape(preset["says"])}</p>\n<div class="pg-still">{still}</div>\n'
        f'<div class="pg-live"><form class="pg-knobs">{knobs}</form><div class="pg-buttons">{buttons}</div>\n'
        '<p class="pg-says"></p><p class="cfl-live" aria-live="polite"></p>\n'
        '<div class="pg-scene"><div class="pg-server"></div><p class="pg-phase"></p><div class="pg-tiles"></div>'
        '<svg class="pg-messages" aria-hidden="true"></svg></div>\n'
        '<p class="pg-legend"></p><div class="pg-charts"></div>\n'
        '<details class="cfl-table"><summary>This round as a table</summary>'
        f'<div tabindex="0" role="region" aria-label="Table of the round"></div></details>{more}</div></div>'
    )


class Playground(SphinxDirective):
    """A federation to play with, set up as a preset says."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the place that ``page.js`` brings to life."""
        name, words = self.arguments[0], json.loads(WORDS.read_text("utf-8"))
        if name not in words["presets"]:
            raise self.error(f"playground = {name!r}: must be one of {', '.join(words['presets'])}")
        still = STILLS / f"{name}.html"
        for file in (WORDS, still):
            self.env.note_dependency(str(file))
        page = self.env.app.builder.get_relative_uri(self.env.docname, PAGE)
        html = markup(name, words, still.read_text("utf-8"), page)
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
