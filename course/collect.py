"""Find the submissions in a folder, as it was collected by hand or came from Canvas, Moodle or Gradescope.

=============  ===========================================================================================
by hand        ``ada/a1.ipynb``, where ``ada`` is the student's user name
Canvas         ``lovelaceada_1234_56789_a1.ipynb``, or with ``_LATE``; often in one zip
Moodle         ``Ada Lovelace_1234_assignsubmission_file_/a1.ipynb``; often in one zip
Gradescope     ``submission_1234/a1.ipynb`` beside ``submission_metadata.yml``, which has names and times
=============  ===========================================================================================

A roster says who these are: a table whose column ``student`` has user names, and whose other columns have whatever
else a student is called. Without a roster, the name in the file is the student. Nothing is unpacked to the disk, no
link is followed, and whatever is left out is named.
"""

import csv
import io
import os
import re
import stat
import unicodedata
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from course.judge import LARGEST_NOTEBOOK, plain
from course.source import names

MOST = 20_000  # files that are looked at
DEEPEST = 6  # folders within folders
LARGEST_ZIP = 1 << 30  # bytes
SKIPPED = {"__MACOSX", ".ipynb_checkpoints", ".git"}
STEM = re.compile(
    r"(?:(?P<who>.+?)(?:_LATE)?_\d+_\d+_)?(?P<name>a\d+)(?:-\d+| *\(\d+\)|[-_ ]*copy\d*)?", re.IGNORECASE
)
MOODLE = re.compile(r"(?P<who>.+?)_(?P<id>\d+)_assignsubmission_\w+")
GRADESCOPE = re.compile(r"submission_(?P<id>\d+)")
USER = re.compile(r"\w[\w.@,'-]*( [\w.@,'-]+)*")


@dataclass
class Submission:
    """A notebook that was handed in, or why there is none to grade; `assignment` is "" where it cannot be told."""

    student: str
    assignment: str
    data: bytes = b""
    note: str = ""
    left_out: bool = False
    when: datetime | None = None


class Roster:
    """Who the students are: user names, and whatever else they are called."""

    def __init__(self, path: Path | None = None):
        self.rows: dict[str, dict[str, str]] = {}
        self._known: dict[str, str] = {}
        if path:
            with path.open(newline="", encoding="utf-8-sig") as file:
                rows = list(csv.DictReader(file))
            if not rows or not rows[0].get("student"):
                raise SystemExit(f"{path}: its first line must name a column 'student', and a second one a student")
            for row in rows:
                self.rows[folded(row["student"])] = row
                for value in row.values():
                    for name in {folded(value or ""), squeezed(value or "")} - {""}:
                        if self._known.setdefault(name, folded(row["student"])) != folded(row["student"]):
                            self._known[name] = ""  # two students of one name: only others tell them apart

    def student(self, *called: str) -> str:
        """Return the user name of whoever is `called` so; without a roster, the first name itself."""
        found = (self._known.get(form) for name in called for form in (folded(name), squeezed(name)))
        return next((student for student in found if student), folded(called[0]))


def folded(name: str) -> str:
    """Return a name with composed umlauts and single spaces, however its file system writes them."""
    return " ".join(unicodedata.normalize("NFC", name).split())


def squeezed(name: str) -> str:
    """Return the letters of a name in any order of its words, as Canvas's "lovelaceada" has them."""
    words = re.findall(r"\w+", folded(name).lower())
    return "".join(sorted("".join(words)))


def files(
    folder: Path, parts: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], bytes | ValueError, datetime]]:
    """Yield path, content and time of every file below `folder` and in its zips; an error in place of content."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        here, about = (*parts, entry.name), entry.stat(follow_symlinks=False)
        when = datetime.fromtimestamp(about.st_mtime, UTC)
        if entry.name in SKIPPED:
            continue
        if stat.S_ISDIR(about.st_mode) and not entry.name.endswith(".ipynb"):
            if len(here) > DEEPEST:
                yield here, ValueError(f"more than {DEEPEST} folders deep"), when
            else:
                yield from files(Path(entry.path), here)
        elif stat.S_ISREG(about.st_mode) and entry.name.lower().endswith(".zip"):
            yield from zipped(Path(entry.path), parts)
        elif entry.name.lower().endswith(".ipynb") or stat.S_ISLNK(about.st_mode):
            try:
                yield here, plain(Path(entry.path)), when
            except ValueError as error:
                yield here, error, when


def zipped(path: Path, parts: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bytes | ValueError, datetime]]:
    """Yield the notebooks of a zip, which stand for files beside it."""
    when = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    try:
        if path.stat().st_size > LARGEST_ZIP:
            raise ValueError(f"larger than {LARGEST_ZIP >> 20} MB")
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist()[:MOST]:
                name = member.filename
                if not member.flag_bits & 0x800:  # names without the mark of UTF-8 are read as if from 1981
                    name = name.encode("cp437", "replace").decode("utf-8", "replace")
                inside = tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", ".", ".."))
                if not inside or member.is_dir() or SKIPPED & set(inside) or not name.lower().endswith(".ipynb"):
                    continue
                try:
                    if stat.S_ISLNK(member.external_attr >> 16):
                        raise ValueError("a link, not a file")
                    with archive.open(member) as file:
                        data = file.read(LARGEST_NOTEBOOK + 1)
                    if len(data) > LARGEST_NOTEBOOK:
                        raise ValueError(f"larger than {LARGEST_NOTEBOOK >> 20} MB")
                    yield (*parts, *inside), data, datetime(*member.date_time).astimezone(UTC)
                except (
                    RuntimeError,
                    NotImplementedError,
                    ValueError,
                    zipfile.BadZipFile,
                    EOFError,
                    OSError,
                ) as error:
                    yield (*parts, *inside), ValueError(str(error)[:60]), when
    except (ValueError, zipfile.BadZipFile, OSError) as error:
        yield (*parts, path.name), ValueError(f"no zip that can be read, {str(error)[:60]}"), when


def gradescope(folder: Path) -> dict[str, tuple[list[str], datetime | None]]:
    """Return what Gradescope's table says of every folder: what its student is called, and when it came."""
    path = folder / "submission_metadata.yml"
    if not path.is_file() or path.is_symlink():
        return {}
    found = {}
    for name, row in yaml.load(io.BytesIO(plain(path)), RubyLoader).items():
        person = (row.get(":submitters") or [{}])[0]
        called = [str(person[key]) for key in (":sid", ":email", ":name") if person.get(key)]
        when = row.get(":created_at")
        found[str(name)] = called or [str(name)], when if isinstance(when, datetime) else None
    return found


class RubyLoader(yaml.SafeLoader):
    """Reads Gradescope's YAML, whose times have a tag of Ruby's."""


RubyLoader.add_multi_constructor("!ruby/", lambda loader, tag, node: loader.construct_mapping(node, deep=True))


def collect(folder: Path, roster: Roster) -> list[Submission]:
    """Return what was handed in, an entry for each student and assignment, and one for whatever is left out."""
    known, table = names(), gradescope(folder)
    found: dict[tuple[str, str], list[tuple[tuple, Submission]]] = {}
    odd: list[Submission] = []
    for count, (parts, content, when) in enumerate(files(folder)):
        if count >= MOST:
            raise SystemExit(f"{folder}: more than {MOST} files")
        said, problem = "/".join(parts), content if isinstance(content, ValueError) else None
        stem = STEM.fullmatch(parts[-1].rpartition(".")[0])
        name = stem["name"].lower() if stem and stem["name"].lower() in known else ""
        called, late = [parts[0]], when
        if len(parts) == 1:
            called = [stem["who"]] if stem and stem["who"] else [""]
        elif moodle := MOODLE.fullmatch(parts[0]):
            called = [moodle["who"], moodle["id"]]
        elif parts[0] in table:
            called, late = table[parts[0]][0], table[parts[0]][1] or when
        student = roster.student(*called)
        if problem is None and not USER.fullmatch(student):
            problem = ValueError(
                "it must lie in a folder named as its student"
                if not student
                else "the folder's name is no user name"
            )
        if problem is None and not name:
            problem = ValueError(f"its name must be one of {', '.join(known)} and .ipynb")
        if problem:
            usable = student if USER.fullmatch(student) else ""
            odd.append(Submission(usable, name, note=f"{said} is left out: {problem}", left_out=True, when=late))
            continue
        proper = (len(parts) == 2 and parts[1] == f"{name}.ipynb") or len(parts) == 1
        entry = Submission(student, name, content, "" if proper else f"handed in as '{said}'", when=late)
        found.setdefault((student, name), []).append(((len(parts), not proper, said), entry))
    taken = []
    for (student, name), entries in found.items():
        (_, first), *others = sorted(entries, key=lambda entry: entry[0])
        taken.append(first)
        odd += [
            Submission(
                student,
                name,
                note=f"{key[2]} is left out: another {name} of {student} counts",
                left_out=True,
                when=entry.when,
            )
            for key, entry in others
        ]
    return sorted(taken, key=lambda s: (s.student, s.assignment)) + odd
