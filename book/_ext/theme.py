"""What the theme gets wrong, mended while Sphinx builds the book (an extension in ``_config.yml``).

Scripts that nobody uses are left out: thebe, which the theme adds twice and which runs code from another site, a
megabyte and a half of icons that the style sheet has as a font, and the index of all words where nobody searches.
"""

import os
import re
from pathlib import Path

from docutils import nodes
from PIL import Image
from sphinx.util.docutils import ReferenceRole

# What every page has, and what it becomes.
MENDED = [
    (re.compile(r"<script defer src=\"[^\"]*scripts/fontawesome\.js[^>]*></script>"), ""),
    (re.compile(r"<script type=\"text/x-thebe-config\">.*?</script>", re.DOTALL), ""),
    (re.compile(r"<script>kernelName = '[^']*'</script>"), ""),
    (re.compile(r'<a class="headerlink"'), '<a class="headerlink" tabindex="-1"'),  # a stop fewer for each heading
    (re.compile(r'<summary>(?=<span class="toctree-toggle")'), '<summary aria-label="pages of this part">'),
    (re.compile(r'<div id="pst-primary-sidebar"'), '<div role="region" aria-label="book" id="pst-primary-sidebar"'),
    (re.compile(r'role="doc-biblioentry"'), 'role="listitem"'),  # what a list may hold
    (re.compile(r'<summary aria-label="Toggle hidden content">'), "<summary>"),  # its own words say what it hides
    (re.compile(r"<img (?!loading)"), '<img loading="lazy" '),  # a chapter's figures come as the reader comes
]
SEARCH = re.compile(r'<script src="[^"]*(?:searchtools|language_data|searchindex)\.js"></script>')
IMAGE = re.compile(r'<img (?![^>]*\bwidth=)(?P<tag>[^>]*\bsrc="(?P<file>[^":]+\.png)"[^>]*)>')


def scripts(app, page: str, template: str, context: dict, doctree) -> None:
    """Name each script once, and none of thebe's (Sphinx's event "html-page-context")."""
    kept = {}
    for script in context["script_files"]:
        body = getattr(script, "attributes", {}).get("body", "")
        if "thebe" not in f"{script.filename} {body}".lower():
            kept.setdefault((script.filename, body), script)
    context["script_files"] = list(kept.values())
    context["css_files"] = [style for style in context["css_files"] if "thebe" not in str(style.filename)]


def mend(html: str) -> str:
    """Mend a finished page."""
    for wrong, right in MENDED:
        html = wrong.sub(right, html)
    return html


def sized(html: str, folder: Path) -> str:
    """Write width and height into the tags of a page's pictures, so that nothing moves when they arrive."""

    def tag(match: re.Match) -> str:
        file = folder / match["file"]
        if not file.is_file():
            return match[0]
        width, height = Image.open(file).size
        return f'<img width="{width}" height="{height}" {match["tag"]}>'

    return IMAGE.sub(tag, html)


def launch(app, config) -> None:
    """Offer Binder, Colab and the source where ``BOOK_REPOSITORY`` names the repository (event "config-inited")."""
    if url := os.environ.get("BOOK_REPOSITORY"):
        hubs = {"binderhub_url": "https://mybinder.org", "colab_url": "https://colab.research.google.com"}
        more = {"repository_url": url, "repository_branch": "main", "use_repository_button": True}
        config.html_theme_options = config.html_theme_options | more | {"launch_buttons": hubs}


class Stored(ReferenceRole):
    """A file of the repository that is no page: a link where ``BOOK_REPOSITORY`` is set, its path elsewhere."""

    def run(self) -> tuple[list[nodes.Node], list]:
        """Return the link, or the words and the path."""
        if url := os.environ.get("BOOK_REPOSITORY"):
            return [nodes.reference("", self.title, refuri=f"{url}/blob/main/{self.target}")], []
        return [nodes.Text(f"{self.title} ("), nodes.literal("", self.target), nodes.Text(")")], []


def finish(app, error: Exception | None) -> None:
    """Mend all pages (Sphinx's event "build-finished")."""
    if error is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            if "_static" not in path.parts:
                html = path.read_text("utf-8")
                if path.name != "search.html":  # the index of all words is for the page that searches
                    html = SEARCH.sub("", html)
                path.write_text(sized(mend(html), path.parent), "utf-8")


def setup(app) -> dict:
    """Let Sphinx call the functions above, and make the role ``repository`` known."""
    app.add_role("repository", Stored())
    app.connect("config-inited", launch)
    app.connect("html-page-context", scripts, priority=900)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True}
