"""Find the submissions in a folder, as it was collected by hand or came from Canvas, Moodle or Gradescope.

=============  ===========================================================================================
by hand        ``ada/a1.ipynb``, where ``ada`` is the student's user name
Canvas         ``lovelaceada_1234_56789_a1.ipynb``, or with ``_LATE``; often in one zip
Moodle         ``Ada Lovelace_1234_assignsubmission_file_/a1.ipynb``; often in one zip
Gradescope     ``submission_1234/a1.ipynb`` beside ``submission_metadata.yml``, which has names and times
=============  ===========================================================================================

A roster says who these are: a table whose column ``student`` has user names, whose columns ``canvas`` and
``moodle`` have the numbers in names of files, and whose other columns have whatever else a student is called.
Without a roster, the name in the file is the student. Nothing is unpacked to the disk, no link is followed, and
whatever is left out is named.
"""

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

from course import tables
from course.judge import LARGEST_NOTEBOOK, plain
from course.source import names

MOST = 20  # files of one student for one assignment, and notes on those left out
DEEPEST = 6  # folders within folders
LONGEST, LONGEST_SAID = 100, 120  # letters of a user name, and of a path in a note
LARGEST_ZIP = 1 << 30  # bytes
PLATFORMS = ("canvas", "moodle")  # columns of a roster that hold numbers
SKIPPED = {"__MACOSX", ".ipynb_checkpoints", ".git"}
STEM = re.compile(r"(?P<name>a\d+)(?:-\d+| *\(\d+\)|[-_ ]*copy\d*)?", re.IGNORECASE)
MOODLE = re.compile(r"(?P<who>.+?)_(?P<id>\d+)_assignsubmission_\w+")
CANVAS = re.compile(r"(?P<who>[^_]+)(?P<late>_LATE)?_(?P<id>\d+)_\d+_(?P<rest>.+)")  # rest: the student's own name
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
    late: bool | None = None  # what the platform says, where it gives no time


class Roster:
    """Who the students are: user names, and whatever else they are called."""

    def __init__(self, path: Path | None = None):
        self.rows: dict[str, dict[str, str]] = {}
        self._known: dict[str, str] = {}
        self._number: dict[tuple[str, str], str] = {}
        for row in tables.read(path, "student") if path else ():
            student = folded(row["student"])
            if not student or student in self.rows:
                raise SystemExit(f"{path}: student {student!r}, allowed is a name that no other line has")
            self.rows[student] = row
            for column, value in row.items():
                if column in PLATFORMS:
                    if value and self._number.setdefault((column, value), student) != student:
                        raise SystemExit(f"{path}: {column} {value}, allowed is a number that no other line has")
                    continue
                for name in forms(value):
                    if self._known.setdefault(name, student) != student:
                        self._known[name] = ""  # two students of one name: only others tell them apart
        if path and not self.rows:
            raise SystemExit(f"{path}: no student stands below its first line")

    def student(self, *called: str, canvas: str = "", moodle: str = "") -> str:
        """Return the user name of who has the number `canvas` there, is `called` so, or has the number `moodle`.

        Canvas's numbers are its students'. Moodle's are new in every assignment, so that names are looked up first.
        Where nobody is found, or without a roster, it is the first name itself.
        """
        found = [self._number.get(("canvas", canvas))]
        found += [self._known.get(form) for name in called for form in forms(name)]
        found += [self._number.get(("moodle", moodle))]
        return next((student for student in found if student), folded(called[0]))


def folded(name: str) -> str:
    """Return a name with composed umlauts and single spaces, however its file system writes them."""
    return " ".join(unicodedata.normalize("NFC", name).split())


def forms(name: str) -> list[str]:
    """Return how platforms write a name: as it is, its letters in any order of words, and these without accents.

    Canvas, for example, makes "duboischloe" of Chloé Dubois.
    """
    letters = re.sub(r"[\W_]", "", folded(name).lower())
    bare = unicodedata.normalize("NFKD", letters.replace("ß", "ss").replace("ø", "o").replace("ł", "l"))
    bare = "".join(letter for letter in bare if not unicodedata.combining(letter))
    return [form for form in (folded(name), "".join(sorted(letters)), "".join(sorted(bare))) if form]


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
    if not parts and CANVAS.fullmatch(path.name):
        parts = (path.name,)
    most = LARGEST_NOTEBOOK if parts else LARGEST_ZIP
    try:
        if path.stat().st_size > most:
            raise ValueError(f"larger than {most >> 20} MB")
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except Exception as error:  # of a file that anybody made
        yield (*parts, path.name), when, f"no zip that can be read, {str(error)[:60]}"
        return
    for member in members:
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
            yield (*parts, *inside), packed, partial(unpacked, path, member)
        elif name.lower().endswith(".zip"):
            yield (*parts, *inside), packed, "a zip in a zip: unpack the outer one"


def unpacked(path: Path, member: zipfile.ZipInfo) -> bytes:
    """Read a file of a zip; ValueError if it is a link, too large, or cannot be read."""
    if stat.S_ISLNK(member.external_attr >> 16):
        raise ValueError("a link, not a file")
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
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

    def leave_out(student: str, name: str, said: str, problem: str, when: datetime) -> None:
        note = f"{said} is left out: {problem}"
        odd.setdefault(student, []).append(Submission(student, name, note=note, left_out=True, when=when))

    everything = []
    for parts, when, read in files(folder):
        canvas = CANVAS.fullmatch(parts[0])  # of a file, or of a zip, which stands here as a folder
        own = canvas["rest"] if canvas and len(parts) == 1 else parts[-1]
        stem = STEM.fullmatch(own.rpartition(".")[0])
        name = stem["name"].lower() if stem and stem["name"].lower() in known else ""
        everything.append((parts, when, read, canvas, name))
    here = sorted({name for *_, name in everything if name}) or known

    for parts, when, read, canvas, name in everything:
        said = "/".join(parts)
        said = said if len(said) <= LONGEST_SAID else f"{said[:LONGEST_SAID]}..."
        if canvas:
            student = roster.student(canvas["who"], canvas=canvas["id"])
        elif len(parts) == 1:
            student = ""
        elif moodle := MOODLE.fullmatch(parts[0]):
            student = roster.student(moodle["who"], moodle=moodle["id"])
        else:
            called, came = table.get(parts[0], ([parts[0]], None))
            student, when = roster.student(*called), came or when
        problem = "" if name else f"its name must be {' or '.join(f'{each}.ipynb' for each in here)}"
        if not USER.fullmatch(student) or len(os.fsencode(student)) > LONGEST:
            named = "the folder's name is no user name"
            problem, student = named if student else "it must lie in a folder named as its student", ""
        if isinstance(read, str):
            problem = read
        if problem:
            leave_out(student, name or (here[0] if student and len(here) == 1 else ""), said, problem, when)
            continue
        proper = (len(parts) == 2 and parts[1] == f"{name}.ipynb") or len(parts) == 1
        entry = Submission(student, name, note="" if proper else f"handed in as '{said}'", when=when)
        entry.late = bool(canvas["late"]) if canvas else None
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
            leave_out(student, name, said, problem, entry.when)
        taken += [first] if first else []
    for student, entries in odd.items():
        if len(entries) > MOST:
            more = f"{len(entries) - MOST} more files are left out"
            entries[MOST:] = [Submission(student, "", note=more, left_out=True)]
    return sorted(taken, key=lambda s: (s.student, s.assignment)) + [each for some in odd.values() for each in some]
