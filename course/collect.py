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
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import yaml

from course.judge import LARGEST_NOTEBOOK, plain
from course.source import names

MOST = 20  # files of one student for one assignment, and notes on those left out
DEEPEST = 6  # folders within folders
LARGEST_ZIP = 1 << 30  # bytes
SKIPPED = {"__MACOSX", ".ipynb_checkpoints", ".git"}
STEM = re.compile(
    r"(?:(?P<who>.+?)(?:_LATE)?_\d+_\d+_)?(?P<name>a\d+)(?:-\d+| *\(\d+\)|[-_ ]*copy\d*)?", re.IGNORECASE
)
MOODLE = re.compile(r"(?P<who>.+?)_(?P<id>\d+)_assignsubmission_\w+")
CANVAS = re.compile(r"(?P<who>.+?)(?:_LATE)?_\d+_\d{3,}_.+")  # of a zip, which may hold anything
GRADESCOPE = re.compile(r"submission_(?P<id>\d+)")
USER = re.compile(r"\w[\w.@,'-]*( [\w.@,'-]+)*")


Found = tuple[tuple[str, ...], datetime, Callable[[], bytes] | str]  # path, time, content or why there is none


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


def files(folder: Path, parts: tuple[str, ...] = ()) -> Iterator[Found]:
    """Yield path, time and a function that reads, or why not, for every file below `folder` and in its zips."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        here, about, path = (*parts, entry.name), entry.stat(follow_symlinks=False), Path(entry.path)
        when = datetime.fromtimestamp(about.st_mtime, UTC)
        if entry.name in SKIPPED:
            continue
        if stat.S_ISDIR(about.st_mode) and not entry.name.endswith(".ipynb"):
            if len(here) > DEEPEST:
                yield here, when, f"more than {DEEPEST} folders deep"
                continue
            try:
                yield from files(path, here)
            except OSError as error:
                yield here, when, f"unreadable, {error.strerror}"
        elif stat.S_ISREG(about.st_mode) and entry.name.lower().endswith(".zip"):
            yield from zipped(path, parts, when)
        elif stat.S_ISLNK(about.st_mode):
            yield here, when, "a link, not a file"
        elif entry.name.lower().endswith(".ipynb"):
            yield here, when, partial(plain, path)


def zipped(path: Path, parts: tuple[str, ...], when: datetime) -> Iterator[Found]:
    """Yield the notebooks of a zip, which stand for files beside it.

    A zip in a student's folder, or with a name that Canvas gave it, is that student's: whatever names and times it
    holds, all of it was handed in by that student, when the zip was.
    """
    stem = path.name.rpartition(".")[0]
    if not parts and CANVAS.fullmatch(stem):
        parts = (stem,)
    most = LARGEST_NOTEBOOK if parts else LARGEST_ZIP
    try:
        if path.stat().st_size > most:
            raise ValueError(f"larger than {most >> 20} MB")
        archive = zipfile.ZipFile(path)
    except Exception as error:  # of a file that anybody made
        yield (*parts, path.name), when, f"no zip that can be read, {str(error)[:60]}"
        return
    for member in archive.infolist():
        name = member.filename
        if not member.flag_bits & 0x800:  # names without the mark of UTF-8 are read as if from 1981
            name = name.encode("cp437", "replace").decode("utf-8", "replace")
        inside = tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", ".", ".."))
        if not inside or member.is_dir() or SKIPPED & set(inside):
            continue
        packed = when
        with suppress(ValueError):  # a month 0 is written by some programs
            packed = when if parts else datetime(*member.date_time).astimezone(UTC)
        if name.lower().endswith(".ipynb"):
            yield (*parts, *inside), packed, partial(unpacked, archive, member)
        elif name.lower().endswith(".zip"):
            yield (*parts, *inside), packed, "a zip in a zip: unpack the outer one"


def unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Read a file of a zip; ValueError if it is a link, too large, or cannot be read."""
    if stat.S_ISLNK(member.external_attr >> 16):
        raise ValueError("a link, not a file")
    try:
        with archive.open(member) as file:
            data = file.read(LARGEST_NOTEBOOK + 1)
    except Exception as error:  # each way of packing has its own
        raise ValueError(f"it cannot be unpacked, {str(error)[:60]}") from None
    if len(data) > LARGEST_NOTEBOOK:
        raise ValueError(f"larger than {LARGEST_NOTEBOOK >> 20} MB")
    return data


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
    found: dict[tuple[str, str], list[tuple[tuple, Submission, Callable[[], bytes]]]] = {}
    odd: dict[str, list[Submission]] = {}

    def leave_out(student: str, name: str, note: str, when: datetime) -> None:
        odd.setdefault(student, []).append(Submission(student, name, note=note, left_out=True, when=when))

    for parts, when, read in files(folder):
        said = "/".join(parts)
        stem = STEM.fullmatch(parts[-1].rpartition(".")[0])
        name = stem["name"].lower() if stem and stem["name"].lower() in known else ""
        called = [parts[0]]
        if len(parts) == 1:
            called = [stem["who"]] if stem and stem["who"] else [""]
        elif moodle := MOODLE.fullmatch(parts[0]):
            called = [moodle["who"], moodle["id"]]
        elif canvas := CANVAS.fullmatch(parts[0]):
            called = [canvas["who"]]
        elif parts[0] in table:
            called, when = table[parts[0]][0], table[parts[0]][1] or when
        student = roster.student(*called)
        problem = "" if name else f"its name must be one of {', '.join(known)} and .ipynb"
        if not USER.fullmatch(student):
            named = "the folder's name is no user name"
            problem, student = named if student else "it must lie in a folder named as its student", ""
        if isinstance(read, str):
            problem = read
        if problem:
            leave_out(student, name, f"{said} is left out: {problem}", when)
            continue
        proper = (len(parts) == 2 and parts[1] == f"{name}.ipynb") or len(parts) == 1
        entry = Submission(student, name, note="" if proper else f"handed in as '{said}'", when=when)
        found.setdefault((student, name), []).append(((len(parts), not proper, said), entry, read))
    taken = []
    for (student, name), entries in found.items():
        entries.sort(key=lambda each: each[0])
        first = None
        for number, ((*_, said), entry, read) in enumerate(entries):
            problem = f"another {name} of {student} counts"
            if not first and number < MOST:
                try:
                    entry.data, first = read(), entry
                    continue
                except ValueError as error:
                    problem = error
            leave_out(student, name, f"{said} is left out: {problem}", entry.when)
        taken += [first] if first else []
    for student, entries in odd.items():
        if len(entries) > MOST:
            more = f"{len(entries) - MOST} more files are left out"
            entries[MOST:] = [Submission(student, "", note=more, left_out=True)]
    return sorted(taken, key=lambda s: (s.student, s.assignment)) + [each for some in odd.values() for each in some]
