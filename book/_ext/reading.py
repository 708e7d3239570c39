"""How long a chapter takes: its words to read, section by section, and its notebook to run."""

import json
import re
from pathlib import Path

from cflkit.workbook.chapters import notebooks

SPEED = 100  # words a minute, with the formulas, tables and figures that stand between them
MARKUP = re.compile(
    r"^(:{3,}|`{3,})\{(?:include|literalinclude|math)[^}]*\}.*?^\1\s*?$|\$\$.*?\$\$|^:[a-z-]+:.*?$",
    re.DOTALL | re.MULTILINE,
)


def words(prose: str) -> int:
    """Count the words of a chapter's text, folded or not, exercises and what follows them aside."""
    return len(re.findall(r"[A-Za-z][\w'’-]*", MARKUP.sub("", prose.split("\n## Exercises")[0])))


def prose(path: Path) -> str:
    """Give the Markdown of a notebook."""
    cells = notebooks.load(path)["cells"]
    return "\n\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")


def sections(path: Path) -> dict[str, int]:
    """Give the minutes that each section of a notebook takes to read, exercises and what follows them aside."""
    parts = re.split(r"^## (.+)$", prose(path).split("\n## Exercises")[0], flags=re.MULTILINE)
    return {title: max(1, round(words(text) / SPEED)) for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def minutes(path: Path) -> int:
    """Give the minutes that a notebook takes to read, exercises aside."""
    return round(words(prose(path)) / SPEED)


def ran(path: Path) -> dict | None:
    """Give how long a notebook of the book ran when it was last refreshed, where and when, or None."""
    file = notebooks.TIMES / f"{path.stem}.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else None


def told(path: Path) -> str:
    """Say how long a notebook takes to read and to run."""
    parts = ", ".join(f"*{title}* {each}" for title, each in sections(path).items())
    lines = [f"Reading takes about {minutes(path)} minutes: {parts}."]
    if "\n## Exercises" in prose(path):
        lines.append("Exercises come on top.")
    if took := ran(path):
        how = f"{took['seconds']:.0f} seconds of one core of {took['processor']}"
        lines.append(f"The notebook took {how}, on {took['date']}.")
    return " ".join(lines) + "\n"
