"""Grade a folder: ``python -m course.grade SUBMISSIONS`` writes marks and feedback to ``build/course``.

Every submission is graded in a process of its own, which runs it in another one (:mod:`course.judge`) and then lets
nbgrader book the points and write the feedback. Whatever happens there costs that submission alone: the process
that you start only waits, with a clock, and writes the marks after each.
"""

import argparse
import contextlib
import fcntl
import json
import math
import multiprocessing
import os
import re
import secrets
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from html import escape
from multiprocessing import connection
from pathlib import Path
from xml.etree import ElementTree

import latex2mathml.converter
import nbformat
import nbgrader.converters
from jinja2 import pass_context
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from nbgrader.preprocessors import AssignLatePenalties, LimitOutput, OverwriteCells, SaveAutoGrades

from course import export, judge, sandbox, tables
from course.build import AUTOMATIC, HOME, WRITTEN, alone, config
from course.checking import checks_of
from course.collect import Roster, Submission, collect
from course.judge import Result, clean, kill_family
from course.source import names
from course.tables import replaced

OUTSIDE = re.compile(r'<script[^>]*\bsrc="(?:https?:)?//[^>]*>\s*</script>|<link[^>]*\bhref="(?:https?:)?//[^>]*>')
POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
    "style-src 'unsafe-inline'; font-src data:\">"
)
ELSEWHERE = re.compile(r'<img\b(?![^>]*\bsrc="data:)[^>]*>', re.IGNORECASE)
TESTS = ["student", "assignment", "task", "points", "report"]
COLUMNS = ["student", "assignment", "automatic", "of", "written", "written of", "late", "total", "notes"]
FEEDBACK_SECONDS = 60
ABSENT = "nothing was handed in"
HEADER = re.compile("<header>.*?</header>", re.DOTALL)
LONGEST, LONGEST_FORMULA = 20_000, 1000  # letters of a cell of the table of marks, and of a formula
MATHML = re.compile(
    r"\{http://www.w3.org/1998/Math/MathML\}(math|menclose|mfrac|m[ion]|mover|mpadded|mphantom|mroot|mrow|mspace|msqrt|"
    "mstyle|m(sub|sup|subsup)|m(table|tr|td|text)|munder|munderover)"
)
FOREIGN = {"href", "src", "style", "class", "id"}
BACK = "the feedback could not be written; the points count"


class Renderer(IPythonRenderer):
    """Writes formulas as MathML, which needs no script."""

    def block_math(self, body: str) -> str:
        """Return a formula in a line of its own."""
        return formula(body, "block")

    def inline_math(self, body: str) -> str:
        """Return a formula within a line."""
        return formula(body, "inline")


def formula(text: str, display: str) -> str:
    """Return a formula as MathML, or as it stands where it is none, is too long, or brings other HTML with it."""
    with contextlib.suppress(Exception):  # of whatever a student wrote
        found = latex2mathml.converter.convert(text[:LONGEST_FORMULA], display=display)
        parts = list(ElementTree.fromstring(found).iter())
        known = all(MATHML.fullmatch(part.tag) and not (FOREIGN & part.attrib.keys()) for part in parts)
        if len(text) <= LONGEST_FORMULA and known:
            return found
    return f"<code>{escape(text)}</code>"


@pass_context
def shown(context, source: str) -> str:
    """Render a Markdown cell: a student's HTML is shown as text, and no picture is asked of the network."""
    attachments = context.get("cell", {}).get("attachments", {})
    renderer = Renderer(escape=True, allow_harmful_protocols=False, attachments=attachments)
    try:
        found = MarkdownWithMath(renderer=renderer).render(source)
    except Exception:  # what names a picture that is not there, or trips over itself, is shown as it was written
        return f"<pre>{escape(source)}</pre>"
    return ELSEWHERE.sub("(a picture that is not in the notebook)", found)


def settings():
    """Return nbgrader's settings for booking and feedback."""
    found = config()
    found.Autograde.sanitize_preprocessors = [OverwriteCells]
    found.Autograde.autograde_preprocessors = [LimitOutput, SaveAutoGrades, AssignLatePenalties]
    found.HTMLExporter.filters = {"markdown2html": "course.grade.shown"}
    theirs = Path(nbgrader.converters.__file__).parents[1] / "server_extensions/formgrader/templates"
    found.HTMLExporter.template_file = "marks.html.j2"  # of the template `feedback`, which the API insists on
    found.HTMLExporter.extra_template_basedirs = [str(Path(__file__).with_name("templates")), str(theirs)]
    return found


def book(result: Result, written: str) -> None:
    """Let nbgrader book the points and write the feedback; one submission at a time, for there is one data base."""
    student, name, api = result.student, result.assignment, NbGraderAPI(config=settings())
    folder = HOME / "submitted" / student / name
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(result.notebook, folder / f"{name}.ipynb")
    for step in (
        lambda: api.autograde(name, student, force=True, create=True),
        lambda: by_hand(student, name, written),
        lambda: api.generate_feedback(name, student, force=True),
    ):
        done = step()
        if done and not done["success"]:
            raise RuntimeError(f"nbgrader says\n{done['log']}")
    page = HOME / "feedback" / student / name / f"{name}.html"  # it shall ask nothing of the network
    replaced(page, OUTSIDE.sub("", page.read_text("utf-8")).replace("<head>", f"<head>{POLICY}", 1))


def by_hand(student: str, name: str, written: str) -> None:
    """Book the points of the written answer, as they stand in the table of marks; "" takes them back."""
    with Gradebook(f"sqlite:///{HOME.resolve()}/gradebook.db") as gradebook:
        grade = gradebook.find_grade("written", name, name, student)
        grade.manual_score, grade.needs_manual_grade = float(written) if written else None, not written
        gradebook.db.commit()


def put_on_top(rows: dict[tuple[str, str], dict[str, str]]) -> None:
    """Let feedback and Gradescope's files say what these rows of the table of marks say."""
    for (student, name), row in rows.items():
        page = HOME / "feedback" / student / name / f"{name}.html"
        results = HOME / "export/gradescope" / student / f"{name}.json"
        items = "".join(f"<p>{escape(line)}</p>" for line in export.summary(row))
        try:
            if name and page.is_file():
                head = f"<header><h3>{escape(student)}, {name}</h3>{items}</header>"
                replaced(page, HEADER.sub(lambda _, head=head: head, page.read_text("utf-8"), count=1))
            if name and results.is_file():
                replaced(results, export.with_row(json.loads(results.read_text("utf-8")), row))
        except (OSError, ValueError) as error:  # of this student alone
            print(f"{student} {name}: {BACK} ({error})")


def kept() -> dict[tuple[str, str], dict[str, str]]:
    """Return the rows of the table of marks, with what a marker typed into it; SystemExit if that is wrong."""
    path = HOME / "marks.csv"
    found = {}
    for row in tables.read(path, *COLUMNS) if path.exists() else ():
        key = row["student"], row["assignment"]
        for column, most in (("automatic", AUTOMATIC), ("written", WRITTEN), ("late", 999)):
            value = tables.number(row[column])
            if row[column] and (value is None or not 0 <= value <= most or (column != "written" and value % 1)):
                what = f"{path}: {' '.join(key)} has {row[column]!r} in the column {column}"
                raise SystemExit(f"{what}, allowed are numbers from 0 to {most}, or nothing")
            row[column] = f"{value:g}" if row[column] else ""
        if key[1] not in ("", *names()):
            raise SystemExit(f"{path}: assignment {key[1]!r}, allowed are {', '.join(names())}")
        found[key] = row
    return found


def write_marks(
    results: list[Result],
    left_out: list[Submission],
    late: export.Late,
    when: dict[tuple[str, str], str],
    people: dict[str, dict[str, str]],
) -> dict[tuple[str, str], dict[str, str]]:
    """Write the tables of marks and of tests, and what other systems import; return the rows of marks.

    The column ``written`` is kept, and so is whatever was graded before and not now.
    """
    rows = kept()

    def row(student: str, name: str, automatic: int | str, notes: list[str]) -> dict[str, str]:
        old, known = rows.get((student, name), {}), bool(name)
        values = [
            student,
            name,
            automatic,
            AUTOMATIC if known else "",
            old.get("written", ""),
            WRITTEN if known else "",
        ]
        values += [when.get((student, name), old.get("late", "")), "", "; ".join(notes)]
        return dict(zip(COLUMNS, map(str, values), strict=True))

    fresh = {(r.student, r.assignment): row(r.student, r.assignment, r.total, r.notes) for r in results}
    for each in left_out:
        key = (each.student, each.assignment)
        if key not in fresh:  # an earlier mark stays
            old = rows.get(key, {"automatic": "0" if all(key) else "", "notes": ""})
            fresh[key] = row(*key, old["automatic"], [old["notes"]] if old["notes"] != ABSENT else [])
        if clean(each.note) not in fresh[key]["notes"]:
            fresh[key]["notes"] = "; ".join(filter(None, (fresh[key]["notes"], each.note)))
    rows |= fresh
    late.totals(rows)
    listed = [[clean(rows[key].get(column, ""))[:LONGEST].strip() for column in COLUMNS] for key in sorted(rows)]
    replaced(HOME / "marks.csv", tables.text([COLUMNS, *listed]))
    for name, text in export.gradebooks(rows, people).items():
        replaced(HOME / "export" / name, text)
    if results:
        path = HOME / "tests.csv"
        now = {(r.student, r.assignment) for r in results}
        before = tables.read(path, *TESTS) if path.exists() else []
        lines = [[row[c] for c in TESTS] for row in before if (row["student"], row["assignment"]) not in now]
        lines += (
            [r.student, r.assignment, task, str(points), clean(line)]
            for r in results
            for task, points in r.points.items()
            for line in r.report(task) or ["all passed"]
        )
        replaced(path, tables.text([TESTS, *sorted(lines, key=lambda line: line[:2])]))
    return rows


def written_again(late: export.Late, people: dict[str, dict[str, str]]) -> None:
    """Bring what a marker typed into the table of marks to the feedback, the totals and the exports."""
    rows = write_marks([], [], late, {}, people)
    if not rows:
        sys.exit(f"{HOME}/marks.csv is missing: name a folder to grade, SUBMISSIONS=FOLDER")
    for (student, name), row in rows.items():
        if name and (HOME / "feedback" / student / name).is_dir():
            by_hand(student, name, row["written"])
            print(f"{student} {name}: {export.summary(row)[0]}")
    put_on_top(rows)


def secret() -> str:
    """Return the course's own random text, from which hidden tests are drawn: made once, kept with the build."""
    path = HOME / "secret"
    if not path.exists():
        replaced(path, secrets.token_hex(16))
        path.chmod(0o600)
    return path.read_text()


def work(handed: Submission, release, hidden: str, written: str, out: connection.Connection) -> None:
    """Grade one submission, in a process of its own; send the result, then what came of the feedback."""
    os.setpgid(0, 0)
    judge.limit_here()
    warnings.filterwarnings("ignore", module="nbgrader")  # of its data base, about itself
    try:
        result = judge.judge(handed.data, handed.student, handed.assignment, release, hidden)
    except judge.CannotStart as error:
        out.send_bytes(json.dumps({"cannot": str(error)}).encode())
        return
    result.notes[:0] = filter(None, [handed.note])
    numbers = {check: number for number, check in enumerate(checks_of(handed.assignment))}
    lost = [[numbers[check], why] for check, why in result.lost.items()]
    out.send_bytes(json.dumps({"lost": lost, "notes": result.notes}).encode())
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        out.send_bytes(json.dumps({"booking": True}).encode())
        try:
            book(result, written)
            said = ""
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
    out.send_bytes(json.dumps({"booked": said}).encode())


class Worker:
    """The process that grades one submission, seen from the one that waits."""

    def __init__(self, handed: Submission, release, hidden: str, written: str):
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe(duplex=False)
        self.handed, self.booked, self.until = (
            handed,
            BACK,
            time.monotonic() + judge.BUSY * (judge.ALL_SECONDS + judge.START_SECONDS),
        )
        self.result = Result(
            handed.student,
            handed.assignment,
            dict.fromkeys(checks_of(handed.assignment), "not run"),
            [*filter(None, [handed.note]), "the grader could not finish this submission: look at it"],
        )
        self.process = context.Process(target=work, args=(handed, release, hidden, written, theirs))
        self.process.start()
        theirs.close()

    def hear(self) -> bool:
        """Take what the process has to say; return whether it has ended."""
        try:
            said = json.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            return True
        if "cannot" in said:
            self.result.notes[-1], self.booked = f"not graded: {said['cannot']}", BACK
        elif "lost" in said:
            checks = checks_of(self.handed.assignment)
            self.result.lost = {checks[number]: why for number, why in said["lost"]}
            self.result.notes = said["notes"]
            self.until = math.inf  # whoever books before has a limit
        elif "booking" in said:
            self.until = time.monotonic() + judge.BUSY * FEEDBACK_SECONDS
        else:
            self.booked = said["booked"]
        return False

    def end(self) -> Result:
        """Stop whatever is left of the process, and return the result."""
        kill_family(self.process.pid)
        self.process.kill()
        self.process.join()
        self.pipe.close()
        if self.booked:
            print(f"{self.result.student} {self.result.assignment}: {self.booked}")
            self.result.notes.append(BACK)
            shutil.rmtree(HOME / "feedback" / self.result.student / self.result.assignment, ignore_errors=True)
        return self.result


def grade_all(submissions: list[Submission], jobs: int, rows: dict, done: Callable[[Result], None]) -> None:
    """Grade submissions, `jobs` at a time, each in its own process, and hand on every result as it comes.

    `rows` is the table of marks, from which written points are booked again.
    """
    release = {name: nbformat.read(HOME / "release" / name / f"{name}.ipynb", 4) for name in names()}
    hidden, waiting, running = secret(), submissions[::-1], []
    for name in {each.assignment for each in submissions}:
        judge.reference(name)  # once here, not in each process
    judge.fonts()
    while waiting or running:
        while waiting and len(running) < jobs:
            each = waiting.pop()
            written = rows.get((each.student, each.assignment), {}).get("written", "")
            running.append(Worker(each, release[each.assignment], hidden, written))
        for ready in connection.wait([each.pipe for each in running], timeout=1):
            worker = next(each for each in running if each.pipe is ready)
            if worker.hear():
                running.remove(worker)
                done(worker.end())
        for worker in [each for each in running if time.monotonic() > each.until]:
            running.remove(worker)
            done(worker.end())


def protected(anyway: bool) -> None:
    """Say which layers keep submissions apart; end the program where one is missing, unless told to go on."""
    missing = [name for name, there in sandbox.layers().items() if not there]
    for name, there in sandbox.layers().items():
        print(f"isolation by {name}: {'yes' if there else 'NOT HERE'}")
    if missing and not anyway:
        sys.exit(
            f"not graded: without {' and '.join(missing)} a submission can {sandbox.RISK[missing[0]]}. Grade "
            "on another machine or in the container of course/README.md; `--unprotected` grades all the same."
        )


def main(
    folder: Path | None,
    jobs: int = 1,
    roster: Path | None = None,
    late: export.Late | None = None,
    unprotected: bool = False,
) -> None:
    """Grade every submission in `folder`; without one, take over the written points."""
    people, late = Roster(roster), late or export.Late()
    before = kept()
    exported = HOME / "export/canvas.csv"
    if not people.rows and exported.exists() and any(row["id"] for row in tables.read(exported, "id")):
        print("without --roster, names and numbers vanish from the exports, and nobody is missed")
    if folder is None:
        written_again(late, people.rows)
        return
    if not (HOME / "release").is_dir():
        sys.exit(f"{HOME}/release is missing: run `make course` first")
    if not folder.is_dir():
        sys.exit(f"SUBMISSIONS={folder}: no such folder")
    protected(unprotected)
    found = collect(folder, people)
    submissions, left_out = [s for s in found if not s.left_out], [s for s in found if s.left_out]
    if not found:
        sys.exit(f"SUBMISSIONS={folder}: no submission, such as {folder}/ada/a1.ipynb")
    here = {(s.student, s.assignment) for s in found} | before.keys()
    for name in sorted({s.assignment for s in submissions}):
        left_out += [
            Submission(student, name, note=ABSENT, left_out=True)
            for student in people.rows
            if (student, name) not in here
        ]
    for each in left_out:
        print(f"{each.student or '?'} {each.assignment or '?'}: {clean(each.note)}")
    for student in sorted({s.student for s in submissions} - people.rows.keys() if people.rows else []):
        print(f"{student}: is not in the roster")
    shutil.rmtree(HOME / "submitted", ignore_errors=True)
    when = {}
    for each in submissions:
        key = each.student, each.assignment
        when[key] = late.days(each.assignment, each.when, each.late, before.get(key, {}).get("late", ""))
        if each.late:
            how = "and not how many days" if when[key] else "which costs nothing, as no due date is known here"
            each.note = "; ".join(filter(None, (each.note, f"Canvas says that it came late, {how}")))
    results: list[Result] = []

    def done(result: Result) -> None:
        results.append(result)
        replaced(HOME / "export/gradescope" / result.student / f"{result.assignment}.json", export.results(result))
        try:
            rows = write_marks(results, left_out, late, when, people.rows)
            put_on_top({key: row for key, row in rows.items() if key[0] == result.student})
        except SystemExit as wrong:  # typed in the meantime: it may be mended before the last one is graded
            print(wrong)
        print(f"{result.student} {result.assignment}: {result.total} of {AUTOMATIC}")
        print(*(f"    {clean(note)}\n" for note in result.notes), sep="", end="", flush=True)

    write_marks(results, left_out, late, when, people.rows)
    grade_all(submissions, jobs, before, done)
    write_marks(results, left_out, late, when, people.rows)
    print(f"marks: {HOME}/marks.csv, by test: {HOME}/tests.csv, feedback: {HOME}/feedback, others: {HOME}/export")


def options(arguments: list[str]) -> dict:
    """Read the command line."""
    parser = argparse.ArgumentParser("python -m course.grade", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="the submissions; without: take over written points")
    parser.add_argument("--jobs", type=int, default=1, help="submissions graded at a time")
    parser.add_argument("--roster", type=Path, help="a table of students: see course/collect.py")
    parser.add_argument("--due", type=Path, help="a table of assignments and when they are due")
    parser.add_argument(
        "--free-days", type=int, default=0, help="late days that a student has, over all assignments"
    )
    parser.add_argument("--percent", type=float, default=10, help="what each further day costs, of the points")
    parser.add_argument("--unprotected", action="store_true", help="grade even where the system cannot confine")
    found = parser.parse_args(arguments)
    late = export.Late(export.due(found.due) if found.due else {}, found.free_days, found.percent)
    return {
        "folder": found.folder,
        "jobs": found.jobs,
        "roster": found.roster,
        "late": late,
        "unprotected": found.unprotected,
    }


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")
    with alone():
        main(**options(sys.argv[1:]))
