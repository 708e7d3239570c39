"""Numbered figures around drawings that stand in the page itself, while Sphinx builds the book (an extension)."""

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective


class Drawing(SphinxDirective):
    """A figure whose picture is the directive's content, HTML or SVG; its argument is the caption."""

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


def setup(app) -> dict:
    """Make the directive known."""
    app.add_directive("drawing", Drawing)
    return {"parallel_read_safe": True}
