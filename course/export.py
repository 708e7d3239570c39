"""Marks as Canvas, Moodle and Gradescope import them, and what late days cost: ``build/course/export``."""

import json
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from course import tables
from course.build import AUTOMATIC, WRITTEN
from course.checking import checks_of
from course.judge import Result
from course.source import names

MOST, ANSWER = AUTOMATIC + WRITTEN, "written answer"
DAY = 24 * 60 * 60


@dataclass(frozen=True)
class Late:
    """When assignments are due, how many late days a student has in all, and what each further one costs."""

    due: dict[str, datetime] = field(default_factory=dict)
    free: int = 0
    percent: float = 10.0

    def days(self, assignment: str, when: datetime | None, said: bool | None = None, typed: str = "") -> str:
        """Return how many days late a submission came, begun days as whole ones; "" if none is known or due.

        Where a platform has `said` whether it was late, times of files are those of the download: it was one day
        late then, or as many as somebody has `typed`.
        """
        if when is None or assignment not in self.due:
            return ""
        if said is not None:
            return str(max(1, int(typed or 0))) if said else "0"
        return str(max(0, math.ceil((when - self.due[assignment]).total_seconds() / DAY)))

    def totals(self, rows: dict[tuple[str, str], dict[str, str]]) -> None:
        """Write the column ``total`` of all rows: automatic and written points, less what late days cost."""
        left: dict[str, int] = {}
        for (student, _), row in sorted(rows.items()):
            if row["automatic"] == "":
                row["total"] = ""
                continue
            late = int(row.get("late") or 0)
            used = min(late, left.get(student, self.free))
            left[student] = left.get(student, self.free) - used
            points = earned(row)
            row["total"] = f"{max(0.0, points * (1 - (late - used) * self.percent / 100)):g}"


def due(path: Path) -> dict[str, datetime]:
    """Read a table with the columns ``assignment`` and ``due``, such as ``a1,2026-10-12T23:59+02:00``."""
    found = {}
    for row in tables.read(path, "assignment", "due"):
        try:
            when = datetime.fromisoformat(row["due"])
        except ValueError:
            such = "allowed are times such as 2026-10-12T23:59+02:00"
            raise SystemExit(f"{path}: due {row['due']!r}, {such}") from None
        if row["assignment"] not in names():
            raise SystemExit(f"{path}: assignment {row['assignment']!r}, allowed are {', '.join(names())}")
        found[row["assignment"]] = when if when.tzinfo else when.astimezone(UTC)
    return found


def gradebooks(rows: dict[tuple[str, str], dict[str, str]], people: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the tables that Canvas and Moodle import, by file name; `people` are a roster's rows.

    Canvas knows students by the columns ``canvas``, ``sis`` and ``login``, Moodle by user name or ``email``.
    """
    graded = sorted({name for student, name in rows if student and name})
    students = sorted({student for student, name in rows if student and name})

    def points(student: str) -> list[str]:
        return [rows.get((student, name), {}).get("total", "") for name in graded]

    def about(student: str, *columns: str) -> list[str]:
        return [people.get(student, {}).get(column) or "" for column in columns]

    most = [str(MOST) for _ in graded]
    canvas = [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *graded],
        ["Points Possible", "", "", "", "", *most],
    ]
    canvas += [
        [
            about(s, "name")[0] or s,
            *about(s, "canvas", "sis"),
            about(s, "login")[0] or s,
            *about(s, "section"),
            *points(s),
        ]
        for s in students
    ]
    moodle = [["username", "email", *graded], *([s, *about(s, "email"), *points(s)] for s in students)]
    return {"canvas.csv": tables.text(canvas), "moodle.csv": tables.text(moodle)}


def earned(row: dict[str, str]) -> float:
    """Return the automatic and written points of a row of marks."""
    return float(row["automatic"]) + float(row.get("written") or 0)


def summary(row: dict[str, str]) -> list[str]:
    """Return what a row of marks says to its student: the points, what late days took, and each note."""
    written = f"{row['written']} of {WRITTEN}" if row["written"] else "not marked yet"
    found = f"{row['total']} of {MOST} points: automatic {row['automatic']} of {AUTOMATIC}, written {written}"
    if late := int(row["late"] or 0):
        came, less = f"it came {late} day{'s' * (late > 1)} late", earned(row) - float(row["total"])
        found += f", less {less:g} because {came}" if less else f"; {came}, which costs nothing"
    return [found, *filter(None, row["notes"].split("; "))]


def results(result: Result) -> str:
    """Return a submission's hidden tests as Gradescope's ``results.json``, each with its reason."""
    tests = [
        {
            "name": f"{check.task}: {check.says}",
            "max_score": check.points,
            "score": 0 if check in result.lost else check.points,
            "output": result.lost.get(check, "passed"),
        }
        for check in checks_of(result.assignment)
    ]
    return json.dumps({"tests": tests})


def with_row(found: dict, row: dict[str, str]) -> str:
    """Return a ``results.json`` with the score, the written points and the notes of a row of marks."""
    tests = [test for test in found["tests"] if test["name"] != ANSWER]
    if row["written"]:
        tests.append({"name": ANSWER, "max_score": WRITTEN, "score": float(row["written"]), "output": ""})
    whole = {"score": float(row["total"]), "output": "\n".join(summary(row)), "tests": tests}
    return json.dumps(whole, indent=1)
