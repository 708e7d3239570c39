"""Marks as Canvas, Moodle and Gradescope import them, and what late days cost: ``build/course/export``."""

import csv
import io
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from course.checking import checks_of, tasks_of
from course.judge import Result

DAY = 24 * 60 * 60


@dataclass(frozen=True)
class Late:
    """When assignments are due, how many late days a student has in all, and what each further one costs."""

    due: dict[str, datetime] = field(default_factory=dict)
    free: int = 0
    percent: float = 10.0

    def days(self, assignment: str, when: datetime | None) -> str:
        """Return how many days late a submission came, begun days as whole ones; "" if none is known or due."""
        if when is None or assignment not in self.due:
            return ""
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
            points = float(row["automatic"]) + float(row.get("written") or 0)
            row["total"] = f"{max(0.0, points * (1 - (late - used) * self.percent / 100)):g}"


def due(path: Path) -> dict[str, datetime]:
    """Read a table with the columns ``assignment`` and ``due``, such as ``a1,2026-10-12T23:59+02:00``."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    try:
        found = {row["assignment"]: datetime.fromisoformat(row["due"]) for row in rows}
    except (KeyError, ValueError, TypeError) as error:
        raise SystemExit(
            f"{path}: needs the columns assignment and due, such as a1,2026-10-12T23:59+02:00 ({error})"
        ) from None
    return {name: when if when.tzinfo else when.astimezone(UTC) for name, when in found.items()}


def tables(rows: dict[tuple[str, str], dict[str, str]], people: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the tables that Canvas and Moodle import, by file name; `people` are a roster's rows.

    Canvas knows students by the columns ``canvas``, ``sis`` and ``login``, Moodle by user name or ``email``.
    """
    graded = sorted({name for student, name in rows if student and name})
    students = sorted({student for student, name in rows if student and name})

    def points(student: str) -> list[str]:
        return [rows.get((student, name), {}).get("total", "") for name in graded]

    def about(student: str, *columns: str) -> list[str]:
        return [people.get(student, {}).get(column) or "" for column in columns]

    most = [str(sum(tasks_of(name).values()) + 5) for name in graded]
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
    return {"canvas.csv": lines(canvas), "moodle.csv": lines(moodle)}


def lines(rows: Iterable[Iterable[str]]) -> str:
    """Return rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def results(result: Result) -> str:
    """Return a submission's points as Gradescope's ``results.json``: each hidden test with its reason."""
    tests = [
        {
            "name": f"{check.task}: {check.says}",
            "max_score": check.points,
            "score": 0 if check in result.lost else check.points,
            "output": result.lost.get(check, "passed"),
        }
        for check in checks_of(result.assignment)
    ]
    return json.dumps({"score": result.total, "output": "\n".join(result.notes), "tests": tests}, indent=1)
