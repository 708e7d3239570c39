"""Grade a folder: ``python -m course.grade SUBMISSIONS`` writes marks and feedback to ``build/course``.

The folder has a folder for each student, named so, with notebooks named as they were released: ``ada/a1.ipynb``.
Every submission is run in a process of its own (:mod:`course.judge`); nbgrader then books the points and writes the
feedback.
"""

import csv
import re
import shutil
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path

import nbformat
from nbgrader.apps import NbGraderAPI
from nbgrader.preprocessors import AssignLatePenalties, LimitOutput, OverwriteCells, SaveAutoGrades

from course import sandbox
from course.build import AUTOMATIC, HOME, WRITTEN, config
from course.judge import Result, judge
from course.source import names

OUTSIDE = re.compile(r'<script[^>]*\bsrc="(?:https?:)?//[^>]*>\s*</script>|<link[^>]*\bhref="(?:https?:)?//[^>]*>')
COLUMNS = ["student", "assignment", "automatic", "of", "written", "written of", "notes"]


def collect(folder: Path) -> list[tuple[str, str, Path]]:
    """Return (student, assignment, path) of every submission; what has another name is reported."""
    found, known = [], names()
    for path in sorted(folder.glob("*/*.ipynb")):
        if path.stem in known:
            found.append((path.parent.name, path.stem, path))
        else:
            print(f"{path}: left out, its name must be one of {', '.join(known)} and .ipynb")
    for path in sorted(folder.glob("*.ipynb")):
        print(f"{path}: left out, it must lie in a folder named as its student")
    return found


def book(result: Result, api: NbGraderAPI) -> None:
    """Let nbgrader book the points and write the feedback."""
    student, name = result.student, result.assignment
    folder = HOME / "submitted" / student / name
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(result.notebook, folder / f"{name}.ipynb")
    for step in (lambda: api.autograde(name, student, force=True, create=True),
                 lambda: api.generate_feedback(name, student, force=True)):  # fmt: skip
        done = step()
        if not done["success"]:
            result.notes.append("nbgrader could not write the feedback; the points count")
            print(f"{student} {name}: nbgrader says\n{done['log']}")
            return
    page = HOME / "feedback" / student / name / f"{name}.html"
    page.write_text(with_notes(OUTSIDE.sub("", page.read_text()), result.notes))


def with_notes(page: str, notes: list[str]) -> str:
    """Return a feedback page that begins with the notes."""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return re.sub(r"(<body[^>]*>)", lambda found: f"{found[1]}<ul>{items}</ul>", page, count=1) if notes else page


def write_marks(results: list[Result]) -> None:
    """Write the table of marks; what a marker typed into the column ``written`` is kept."""
    path, kept = HOME / "marks.csv", {}
    if path.exists():
        with path.open(newline="") as file:
            kept = {(row["student"], row["assignment"]): row for row in csv.DictReader(file)}
    for r in results:
        old = kept.get((r.student, r.assignment), {})
        kept[r.student, r.assignment] = dict(zip(COLUMNS, (
            r.student, r.assignment, r.total, AUTOMATIC, old.get("written", ""), WRITTEN, "; ".join(r.notes)
        ), strict=True))  # fmt: skip
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(kept[key] for key in sorted(kept))
    with (HOME / "tests.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["student", "assignment", "task", "points", "report"])
        for r in results:
            writer.writerows((r.student, r.assignment, task, points, line)
                             for task, points in r.points.items() for line in r.report(task) or ["all passed"])


def main(folder: Path, jobs: int) -> None:
    """Grade every submission in `folder`."""
    if not (HOME / "release").is_dir():
        sys.exit(f"{HOME}/release is missing: run `make course` first")
    submissions = collect(folder.resolve())  # nbgrader changes the working folder while others are graded
    if not submissions:
        sys.exit(f"SUBMISSIONS={folder}: no submission, such as {folder}/ada/a1.ipynb")
    for name, there in sandbox.layers().items():
        print(f"isolation by {name}: {'yes' if there else 'NOT HERE'}")
    shutil.rmtree(HOME / "submitted", ignore_errors=True)
    release = {name: nbformat.read(HOME / "release" / name / f"{name}.ipynb", 4) for name in names()}
    settings = config()
    settings.Autograde.sanitize_preprocessors = [OverwriteCells]
    settings.Autograde.autograde_preprocessors = [LimitOutput, SaveAutoGrades, AssignLatePenalties]
    api = NbGraderAPI(config=settings)
    warnings.filterwarnings("ignore", module="nbgrader")  # of its data base, about itself
    results = []
    with ThreadPoolExecutor(jobs) as pool:
        for result in pool.map(lambda s: judge(s[2], s[0], s[1], release[s[1]]), submissions):
            book(result, api)
            results.append(result)
            print(f"{result.student} {result.assignment}: {result.total} of {AUTOMATIC}")
            print(*(f"    {note}\n" for note in result.notes), sep="", end="", flush=True)
    write_marks(results)
    print(f"marks: {HOME}/marks.csv, by test: {HOME}/tests.csv, feedback: {HOME}/feedback")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
