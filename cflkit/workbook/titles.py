"""Verdicts in the titles of chapters, put there while Sphinx builds the book (an extension in ``_config.yml``)."""

from pathlib import Path

from cflkit.workbook import ledger


def entitle(app, name: str, source: list[str]) -> None:
    """Put the verdict into a chapter's title, which starts with ``[Re]`` (Sphinx's event "source-read")."""
    if (paper := Path(name).name) in ledger.claims():
        source[0] = source[0].replace("# [Re] ", f"# {ledger.mark(paper)} ", 1)


def setup(app) -> dict:
    """Let Sphinx call :func:`entitle`."""
    app.connect("source-read", entitle)
    return {"parallel_read_safe": True}
