"""Sets findings of ``book/findings.yaml`` in a page: as a role inside a sentence's paragraph, or as a block.

{finding}`NAME` stands for the sentence; the directive ``{finding} NAME NAME`` for a paragraph of several. A finding
that its records do not carry is an error of the build.
"""

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from cflkit.workbook.claims import findings

log = logging.getLogger(__name__)
WRONG = "[not so: "
SAID: dict[str, str] = {}  # each sentence, or why it does not stand


def compute(app) -> None:
    """Compute all sentences before a page is read (event "builder-inited"): autodoc will rewrite annotations."""
    for name in findings.findings():
        try:
            SAID[name] = findings.text(name)
        except ValueError as error:
            SAID[name] = f"{WRONG}{error}]"


def _sentence(name: str, where) -> str:
    said = SAID.get(name, f"{WRONG}finding {name} is not in findings.yaml]")
    if said.startswith(WRONG):
        log.warning("%s", said, location=where)  # `make pages` turns warnings into errors
    return said


class Sentence(SphinxRole):
    """One finding inside a paragraph."""

    def run(self) -> tuple[list[nodes.Node], list]:
        """Return its words, which hold no markup."""
        return [nodes.Text(_sentence(self.text, self.get_location()))], []


class Finding(SphinxDirective):
    """A paragraph of findings, set apart."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the paragraph."""
        text = " ".join(_sentence(name, self.get_location()) for name in self.arguments[0].split())
        words, problems = self.parse_inline(text)
        return [nodes.paragraph(text, "", *words, classes=["cfl-finding"]), *problems]


def setup(app) -> dict:
    """Make the role and the directive known."""
    app.connect("builder-inited", compute)
    app.add_role("finding", Sentence())
    app.add_directive("finding", Finding)
    return {"parallel_read_safe": True}
