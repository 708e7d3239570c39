"""The playground in a page, while Sphinx builds the book (an extension): the directive ``{playground} NAME``.

NAME is one of the presets in ``playground.json``; "full" has all knobs, the others a few. Until its scripts run, or
without JavaScript, a page shows the round of the preset that ``make playground`` has drawn.
"""

import json
from pathlib import Path

import drawings
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).resolve().parent
WORDS, STILLS = HERE / "playground.json", HERE / "playground_stills"
SCRIPTS = ("vectors", "draws", "federation", "network", "methods", "run", "draw", "digits", "page")  # in this order
PAGE = "book/playground"


def markup(name: str, words: dict, page: str) -> str:
    """Write a preset as ``make playground`` has drawn it, which ``page.js`` brings to life.

    `words` are those of ``playground.json``, `page` the way to the full playground.
    """
    still = json.loads((STILLS / f"{name}.json").read_text("utf-8"))
    return drawings.render("playground", name=name, preset=words["presets"][name], still=still, page=page, **words)


class Playground(SphinxDirective):
    """A federation to play with, set up as a preset says."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the place of the preset, and have the page load the scripts."""
        name, words = self.arguments[0], json.loads(WORDS.read_text("utf-8"))
        if name not in words["presets"]:
            raise self.error(f"playground = {name!r}: must be one of {', '.join(words['presets'])}")
        for file in (WORDS, STILLS / f"{name}.json"):
            self.env.note_dependency(str(file))
        html = markup(name, words, self.env.app.builder.get_relative_uri(self.env.docname, PAGE))
        drawings.needs(self, "playground/playground.css", *(f"playground/{script}.js" for script in SCRIPTS))
        return [nodes.raw("", html, format="html")]


def setup(app) -> dict:
    """Make the directive known."""
    app.add_directive("playground", Playground)
    return {"parallel_read_safe": True}
