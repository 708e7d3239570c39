"""Sets findings of ``book/findings.yaml`` in a page: as a role inside a sentence's paragraph, or as a block.

{finding}`NAME` stands for the sentence; the directive ``{finding} NAME NAME`` for a paragraph of several. A finding
that its records do not carry ends the build.
"""

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective, SphinxRole

from cflkit.workbook.claims import findings

SAID: dict[str, str] = {}  # each sentence


def compute(app) -> None:
    """Compute all sentences before a page is read (event "builder-inited"): autodoc will rewrite annotations."""
    wrong = []
    for name in findings.findings():
        try:
            SAID[name] = findings.text(name)
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        raise ExtensionError("\n".join(wrong))


def outdated(app, env, *_) -> set[str]:
    """Read every page again once a sentence has changed (event "env-get-outdated")."""
    before, env.said = getattr(env, "said", SAID), dict(SAID)
    return env.found_docs if before != SAID else set()


class Sentence(SphinxRole):
    """One finding inside a paragraph."""

    def run(self) -> tuple[list[nodes.Node], list]:
        """Return its words, which hold no markup."""
        return [nodes.Text(SAID[self.text])], []


class Finding(SphinxDirective):
    """A paragraph of findings, set apart."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the paragraph."""
        text = " ".join(SAID[name] for name in self.arguments[0].split())
        words, problems = self.parse_inline(text)
        return [nodes.paragraph(text, "", *words, classes=["cfl-finding"]), *problems]


def setup(app) -> dict:
    """Make the role and the directive known."""
    app.connect("builder-inited", compute)
    app.connect("env-get-outdated", outdated)
    app.add_role("finding", Sentence())
    app.add_directive("finding", Finding)
    return {"parallel_read_safe": True}
