"""Drawings that stand in the page itself, as HTML or SVG, while Sphinx builds the book (an extension).

A diagram shows one round of a method: who does what, and what travels. It is a list of steps (``diagrams.yaml``),
which ``drawings.css`` sets out: with room, in two lanes, server above, clients below, time to the right; on a phone
downwards. A test runs every method and compares what it sends with what its diagram names.
"""

from pathlib import Path

import jinja2
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from cflkit.workbook import places, strict

TEMPLATES = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).with_name("html")), autoescape=True,
                               trim_blocks=True, lstrip_blocks=True)  # fmt: skip


def icons() -> dict[str, dict[str, str]]:
    """Load small drawings as SVG: ``icons`` of what travels or is looked at, and ``marks`` of the four clusters."""
    return strict.read(places.BOOK / "icons.yaml")


def render(template: str, /, **values) -> str:
    """Fill the template ``book/_ext/html/NAME.html``."""
    return TEMPLATES.get_template(f"{template}.html").render(values)


def figure(caption: str, name: str, html: str) -> str:
    """Write the Markdown that shows a drawing as a numbered figure with its caption."""
    return f"```{{drawing}} {caption}\n:name: {name}\n\n{html}\n```\n"


def diagrams() -> dict[str, dict]:
    """Load what the diagrams show, by name."""
    return strict.read(places.BOOK / "diagrams.yaml")


def diagram(spec: dict) -> str:
    """Write a diagram; a card spreads over the next column where the other lane acts there, in the same part."""
    steps = spec["steps"]
    spread = [step["who"] != after["who"] and step.get("once") == after.get("once")
              for step, after in zip(steps, [*steps[1:], steps[-1]], strict=True)]  # fmt: skip
    return render("diagram", title=spec["title"], steps=steps, spread=spread, **icons())


class Drawing(SphinxDirective):
    """A numbered figure whose picture is the directive's content, HTML or SVG; its argument is the caption."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = {"name": directives.unchanged_required}  # noqa: RUF012 -- docutils reads it from the class

    def run(self) -> list[nodes.Node]:
        """Return the figure."""
        figure = nodes.figure("", nodes.raw("", "\n".join(self.content), format="html"), classes=["cfl-drawing"])
        text, problems = self.parse_inline(self.arguments[0])
        figure += nodes.caption(self.arguments[0], "", *text)
        self.set_source_info(figure)
        self.add_name(figure)
        return [figure, *problems]


def needs(page: SphinxDirective, style: str, *scripts: str, **attributes: str) -> None:
    """Load a style and scripts, from ``book/_static``, with the page of a directive, and with no other."""
    page.env.metadata[page.env.docname].setdefault("needs", []).append((style, scripts, attributes))


def load(app, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Load what the directives of a page need (event "html-page-context")."""
    for style, scripts, attributes in app.env.metadata.get(page, {}).get("needs", []):
        app.add_css_file(style)
        for script in scripts:
            app.add_js_file(script, loading_method="defer", **attributes)


def setup(app) -> dict:
    """Make the directive known."""
    app.add_directive("drawing", Drawing)
    app.connect("html-page-context", load)
    return {"parallel_read_safe": True}
