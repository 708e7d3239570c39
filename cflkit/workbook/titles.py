"""Verdicts in the titles of chapters, put there while Sphinx builds the book (an extension in ``_config.yml``).

A notebook bears none: a title that nobody computes would soon claim what the runs do not show.
"""

import re
from pathlib import Path

from cflkit.workbook import ledger


def entitle(app, name: str, source: list[str]) -> None:
    """Put the verdict before a chapter's title, its notebook's first heading (Sphinx's event "source-read")."""
    if (paper := Path(name).name) in ledger.claims():
        source[0] = re.sub(r'(?<=")# ', f"# {ledger.mark(paper)} ", source[0], count=1)


def setup(app) -> dict:
    """Let Sphinx call :func:`entitle`."""
    app.connect("source-read", entitle)
    return {"parallel_read_safe": True}
