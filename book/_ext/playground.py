"""The playground in a page, while Sphinx builds the book (an extension): the directive ``{playground} NAME``.

NAME is one of the presets in ``playground.json``; "full" has all knobs, the others a few. Without JavaScript a page
shows the picture that ``make playground`` has drawn of the preset.
"""

import json
from pathlib import Path

import drawings
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).resolve().parent
WORDS, STILLS = HERE / "playground.json", HERE / "playground_stills"
SCRIPTS = ("draws", "federation", "network", "vectors", "methods", "run", "draw", "digits", "page")  # in this order
PAGE = "book/playground"


def markup(name: str, words: dict, still: str, page: str) -> str:
    """Write a preset: its `still` for pages without JavaScript, and what ``page.js`` brings to life on others.

    `words` are those of ``playground.json``, `page` the way to the full playground.
    """
    return drawings.render("playground", name=name, preset=words["presets"][name], still=still, page=page, **words)


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
        drawings.needs(self, "playground/playground.css", *(f"playground/{script}.js" for script in SCRIPTS))
        return [nodes.raw("", html, format="html")]


def setup(app) -> dict:
    """Make the directive known."""
    app.add_directive("playground", Playground)
    return {"parallel_read_safe": True}
