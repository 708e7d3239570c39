"""Grade a folder: ``python -m course.grade SUBMISSIONS`` writes marks and feedback to ``build/course``.

Every submission is graded in a process of its own, which runs it in another one (:mod:`course.judge`) and then lets
nbgrader book the points and write the feedback. Whatever happens there costs that submission alone: the process
that you start only waits, with a clock, and writes the marks after each.
"""

import argparse
import csv
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
from collections.abc import Callable, Iterable
from html import escape
from multiprocessing import connection
from pathlib import Path

import nbformat
from jinja2 import pass_context
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from nbgrader.preprocessors import AssignLatePenalties, LimitOutput, OverwriteCells, SaveAutoGrades

from course import export, judge, sandbox
from course.build import AUTOMATIC, HOME, WRITTEN, config
from course.checking import checks_of
from course.collect import Roster, Submission, collect
from course.judge import Result, clean, kill_family
from course.source import names

OUTSIDE = re.compile(r'<script[^>]*\bsrc="(?:https?:)?//[^>]*>\s*</script>|<link[^>]*\bhref="(?:https?:)?//[^>]*>')
POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
    "style-src 'unsafe-inline'; font-src data:\">"
)
ELSEWHERE = re.compile(r'<img\b(?![^>]*\bsrc="data:)[^>]*>', re.IGNORECASE)
COLUMNS = ["student", "assignment", "automatic", "of", "written", "written of", "late", "total", "notes"]
FEEDBACK_SECONDS = 60
BACK = "the feedback could not be written; the points count"


@pass_context
def shown(context, source: str) -> str:
    """Render a Markdown cell: a student's HTML is shown as text, and no picture is asked of the network."""
    attachments = context.get("cell", {}).get("attachments", {})
    renderer = IPythonRenderer(escape=True, allow_harmful_protocols=False, attachments=attachments)
    return ELSEWHERE.sub(
        "(a picture that is not in the notebook)", MarkdownWithMath(renderer=renderer).render(source)
    )


def settings():
    """Return nbgrader's settings for booking and feedback."""
    found = config()
    found.Autograde.sanitize_preprocessors = [OverwriteCells]
    found.Autograde.autograde_preprocessors = [LimitOutput, SaveAutoGrades, AssignLatePenalties]
    found.HTMLExporter.filters = {"markdown2html": "course.grade.shown"}
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
    finish(student, name, result.notes)


def finish(student: str, name: str, notes: list[str]) -> None:
    """Take from a feedback page what would ask the network, and let it begin with the notes."""
    page = HOME / "feedback" / student / name / f"{name}.html"
    text = OUTSIDE.sub("", page.read_text("utf-8")).replace("<head>", f"<head>{POLICY}", 1)
    replaced(page, with_notes(text, notes))


def by_hand(student: str, name: str, written: str) -> None:
    """Book the points of the written answer, as they stand in the table of marks."""
    if written:
        with Gradebook(f"sqlite:///{HOME.resolve()}/gradebook.db") as gradebook:
            grade = gradebook.find_grade("written", name, name, student)
            grade.manual_score, grade.needs_manual_grade = float(written), False
            gradebook.db.commit()


def with_notes(page: str, notes: list[str]) -> str:
    """Return a feedback page that begins with the notes."""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return re.sub(r"(<body[^>]*>)", lambda found: f"{found[1]}<ul>{items}</ul>", page, count=1) if notes else page


def replaced(path: Path, text: str) -> None:
    """Write a file under another name first, so that nobody meets half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, "utf-8", newline="")
    draft.replace(path)


def table(rows: Iterable[Iterable], columns: list[str]) -> str:
    """Return a table as CSV; a cell that a spreadsheet would take for a formula gets a space before it."""
    lines = []

    class Lines:
        write = staticmethod(lines.append)

    writer = csv.writer(Lines, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(
            f" {cell}" if str(cell)[:1] in ("=", "+", "-", "@") and not number(cell) else cell
            for cell in map(clean, map(str, row))
        )
    return "".join(lines)


def number(text: str) -> bool:
    """Say whether a text is a number."""
    return bool(re.fullmatch(r"-?\d+(\.\d*)?", text))


def kept() -> dict[tuple[str, str], dict[str, str]]:
    """Return the rows of the table of marks as it is, with what a marker typed into it."""
    path = HOME / "marks.csv"
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        return {(row["student"], row["assignment"]): row for row in csv.DictReader(file)}


def write_marks(
    results: list[Result],
    left_out: list[Submission],
    late: export.Late,
    when: dict[tuple[str, str], str],
    people: dict[str, dict[str, str]],
) -> None:
    """Write the tables of marks and of tests, and what other systems import; the column ``written`` is kept."""
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
        found = fresh.setdefault(key, row(*key, 0 if all(key) else "", []))
        found["notes"] = "; ".join(filter(None, (found["notes"], each.note)))
    rows |= fresh
    late.totals(rows)
    replaced(
        HOME / "marks.csv",
        table(([rows[key].get(column, "") for column in COLUMNS] for key in sorted(rows)), COLUMNS),
    )
    for name, text in export.tables(rows, people).items():
        replaced(HOME / "export" / name, text)
    if results:
        lines = (
            (r.student, r.assignment, task, points, line)
            for r in sorted(results, key=lambda r: (r.student, r.assignment))
            for task, points in r.points.items()
            for line in r.report(task) or ["all passed"]
        )
        replaced(HOME / "tests.csv", table(lines, ["student", "assignment", "task", "points", "report"]))


def written_again(late: export.Late, people: dict[str, dict[str, str]]) -> None:
    """Bring the points that a marker typed into the table of marks to the feedback, the totals and the exports."""
    if not kept():
        sys.exit(f"{HOME}/marks.csv is missing: name a folder to grade, SUBMISSIONS=FOLDER")
    api = NbGraderAPI(config=settings())
    for (student, name), row in kept().items():
        if number(row["written"]) and (HOME / "feedback" / student / name).is_dir() and name:
            by_hand(student, name, row["written"])
            if not api.generate_feedback(name, student, force=True)["success"]:
                print(f"{student} {name}: {BACK}")
                continue
            finish(student, name, [row["notes"]] if row["notes"] else [])
            print(f"{student} {name}: {row['automatic']} and {row['written']} points")
    write_marks([], [], late, {}, people)


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
        return self.result


def grade_all(submissions: list[Submission], jobs: int, done: Callable[[Result], None]) -> None:
    """Grade submissions, `jobs` at a time, each in its own process, and hand on every result as it comes."""
    release = {name: nbformat.read(HOME / "release" / name / f"{name}.ipynb", 4) for name in names()}
    hidden, rows, waiting, running = secret(), kept(), submissions[::-1], []
    for name in {each.assignment for each in submissions}:
        judge.reference(name)  # once here, not in each process
    judge.fonts()
    while waiting or running:
        while waiting and len(running) < jobs:
            each = waiting.pop()
            written = rows.get((each.student, each.assignment), {}).get("written", "")
            running.append(Worker(each, release[each.assignment], hidden, written if number(written) else ""))
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
    here = {(s.student, s.assignment) for s in found}
    for name in sorted({s.assignment for s in submissions}):
        left_out += [
            Submission(student, name, note="nothing was handed in", left_out=True)
            for student in people.rows
            if (student, name) not in here
        ]
    for each in left_out:
        print(f"{each.student or '?'} {each.assignment or '?'}: {clean(each.note)}")
    for student in sorted({s.student for s in submissions} - people.rows.keys() if people.rows else []):
        print(f"{student}: is not in the roster")
    shutil.rmtree(HOME / "submitted", ignore_errors=True)
    when = {(s.student, s.assignment): late.days(s.assignment, s.when) for s in submissions}
    results: list[Result] = []

    def done(result: Result) -> None:
        results.append(result)
        write_marks(results, left_out, late, when, people.rows)
        replaced(HOME / "export/gradescope" / result.student / f"{result.assignment}.json", export.results(result))
        print(f"{result.student} {result.assignment}: {result.total} of {AUTOMATIC}")
        print(*(f"    {clean(note)}\n" for note in result.notes), sep="", end="", flush=True)

    write_marks(results, left_out, late, when, people.rows)
    grade_all(submissions, jobs, done)
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
    main(**options(sys.argv[1:]))
