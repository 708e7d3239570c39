"""Folders as learning platforms deliver them, rosters, late days, and marks as platforms import them."""

import csv
import json
import resource
import zipfile
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("nbgrader", reason="the course needs requirements-course.txt")

from course import build, export, grade, judge, tables
from course.checking import checks_of
from course.collect import Roster, Submission, collect

pytestmark = pytest.mark.course
UMLAUT, APART = "M\u00fcller Anna", "Mu\u0308ller Anna"  # as one letter, and as a letter and two dots


@pytest.fixture
def roster(tmp_path):
    path = tmp_path / "roster.csv"
    path.write_text(
        f"student,name,email,canvas,moodle\nanna,{UMLAUT},anna@x.org,31,77\nbob,Bob Ray,b@x.org,32,78\n"
    )
    return Roster(path)


def lay(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def taken(found):
    return {(s.student, s.assignment): s.data.decode() for s in found if not s.left_out}


SHAPES = {
    "by hand": ["anna/a1.ipynb", "bob/a2.ipynb"],
    "Canvas": ["m\u00fclleranna_31_900_a1.ipynb", "raybob_LATE_32_901_a2-1.ipynb"],
    "Moodle": [f"{UMLAUT}_77_assignsubmission_file_/a1.ipynb", "Bob Ray_78_assignsubmission_file/a2 (2).ipynb"],
    "Moodle on a Mac": [f"{APART}_77_assignsubmission_file_/a1.ipynb", "Bob Ray_9_assignsubmission_file_/A2.ipynb"],
    "Canvas's number decides": ["raybob_31_900_a1.ipynb", "x_LATE_32_1_a2 (1).ipynb"],
    "no accents": ["mulleranna_5_900_a1.ipynb", "b_32_1_A2-3.ipynb"],
    "by number": ["x_77_assignsubmission_file_/a1.ipynb", "y_78_assignsubmission_file_/deep/er/a2.ipynb"],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("packed", [False, True])
def test_shapes_of_folders(shape, packed, tmp_path, roster):
    folder = lay(tmp_path / "in", *SHAPES[shape])
    if packed:
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            for name in SHAPES[shape]:
                archive.write(folder / name, name)
        folder = tmp_path / "zips"
        folder.mkdir()
        (tmp_path / "all.zip").rename(folder / "all.zip")
    assert taken(collect(folder, roster)) == {("anna", "a1"): SHAPES[shape][0], ("bob", "a2"): SHAPES[shape][1]}


def test_gradescope(tmp_path, roster):
    folder = lay(tmp_path / "in", "submission_5/a1.ipynb", "submission_6/a1.ipynb")
    people = "\n".join(
        f"submission_{k}:\n  :submitters:\n  - :name: {name}\n    :email: {mail}\n"
        f"  :created_at: 2026-10-0{k} 10:00:00.5 Z\n"
        for k, name, mail in ((5, "Someone Else", "anna@x.org"), (6, "Bob Ray", "none@x.org"))
    )
    (folder / "submission_metadata.yml").write_text(people)
    found = collect(folder, roster)
    assert {s.student: s.when.day for s in found} == {"anna": 5, "bob": 6}


def test_what_is_left_out_is_named(tmp_path, roster):
    folder = lay(tmp_path / "in", "anna/a1.ipynb", "anna/a1 (1).ipynb", "anna/b9.ipynb", "a2.ipynb",
                 "bob/sub/a1.ipynb", "__MACOSX/anna/a1.ipynb",
                 "anna/.ipynb_checkpoints/a1.ipynb", "../x/-rf/a1.ipynb")  # fmt: skip
    (folder / "bob" / "a3.ipynb").mkdir()
    (folder / "bad.zip").write_bytes(b"PK nothing")
    (folder / "eve").mkdir()
    with zipfile.ZipFile(folder / "eve" / "0.zip", "w") as archive:
        archive.writestr("x.ipynb", "x")
    for k in range(1, 200):  # more than files that may be open at a time
        (folder / "eve" / f"{k}.zip").hardlink_to(folder / "eve" / "0.zip")
    with zipfile.ZipFile(folder / "up.zip", "w") as archive:
        archive.writestr("../../anna/a4.ipynb", "x")
        archive.writestr("漢" * 200 + "/a1.ipynb", "x")
        link = zipfile.ZipInfo("bob/a4.ipynb")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (150, allowed[1]))
    found = collect(folder, roster)
    resource.setrlimit(resource.RLIMIT_NOFILE, allowed)
    assert set(taken(found)) == {("anna", "a1"), ("bob", "a1"), ("anna", "a4")}
    notes = " | ".join(s.note for s in found)
    for part in (
        "anna/a1 (1).ipynb is left out: another a1", "anna/b9.ipynb is left out: its name", "a2.ipynb is left out",
        "handed in as 'bob/sub/a1.ipynb'", "bob/a3.ipynb is left out: not a plain file",
        "bad.zip is left out: no zip", "漢... is left out: the folder's name", "more files are left out",
        "bob/a4.ipynb is left out: a link",
    ):  # fmt: skip
        assert part in notes, (part, notes)
    assert "MACOSX" not in notes and not (tmp_path / "anna").exists()


def test_names_in_canvas_decide_nothing_behind_their_number(tmp_path, roster):
    folder = lay(tmp_path / "in", "raybob_32_901_mulleranna_31_900_a1.ipynb", "mulleranna_31_900_one final.ipynb",
                 "raybob_LATE_32_902_a1.ipynb")  # fmt: skip
    bob, *left_out = collect(folder, roster)
    assert (bob.student, bob.assignment, bob.late) == ("bob", "a1", True)
    assert [(s.student, s.assignment) for s in left_out] == [("anna", "a1"), ("bob", "a1")]
    assert all("its name must be a1.ipynb" in s.note for s in left_out)


def test_a_name_of_two_students_is_nobodys(tmp_path):
    (tmp_path / "r.csv").write_text("student,name,id\nada1,Ada Low,1\nada2,Ada Low,2\n")
    people = Roster(tmp_path / "r.csv")
    assert people.student("Ada Low", "2") == "ada2"
    assert people.student("Ada Low") == "Ada Low"


ZIPS = {  # zips that a student hands in: what is taken, and what is noted
    ("anna/z.zip", "a1.ipynb", bytes(judge.LARGEST_NOTEBOOK + 1)): ((), "larger than 20 MB"),
    ("m\u00fclleranna_31_900_z.zip", "bob/a1.ipynb", b"mine"): (("anna", "a1"), "bob/a1.ipynb"),  # not for others
    ("anna/z.zip", zipfile.ZipInfo("a1.ipynb", (1999, 1, 1, 0, 0, 0)), b"x"): (("anna", "a1"), ""),
    ("all.zip", zipfile.ZipInfo("anna/a1.ipynb", (1980, 0, 0, 0, 0, 0)), b"x"): (("anna", "a1"), ""),
    ("all.zip", "anna/z.zip", b"PK"): ((), "a zip in a zip"),
    ("anna/z.zip", "broken/a1.ipynb", bytes(range(256))): ((), "it cannot be unpacked"),
    ("anna/z.zip", "{}.ipynb", b""): ((), "more files are left out"),
    ("anna/z.zip", "{}/a1.ipynb", bytes(1 << 20)): (("anna", "a1"), "more files are left out"),
}  # fmt: skip


@pytest.mark.parametrize("how", ZIPS, ids=range(len(ZIPS)))
def test_zips_that_students_hand_in(how, tmp_path, roster):
    (where, name, content), (key, note) = how, ZIPS[how]
    path = lay(tmp_path, "in/bob/a2.ipynb", f"in/{where}") / "in" / where
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA if "broken" in str(name) else zipfile.ZIP_DEFLATED) as archive:
        for k in range(30_000 // (1 + len(content)) + 100 if "{" in str(name) else 1):
            archive.writestr(name.format(k) if isinstance(name, str) else name, content)
    if "broken" in str(name):
        raw = path.read_bytes()
        path.write_bytes(raw[:50] + bytes([255] * 40) + raw[90:])
    found = collect(tmp_path / "in", roster)
    assert {(s.student, s.assignment) for s in found if not s.left_out} == {("bob", "a2"), key} - {()}
    assert note in " | ".join(s.note for s in found) and len(found) < 30
    assert all(s.when is None or s.when.year > 2000 for s in found)


def row(automatic, written="", late=""):
    return {"automatic": automatic, "written": written, "late": late}


def test_late_days():
    due = datetime(2026, 10, 12, tzinfo=UTC)
    late = export.Late({"a1": due}, free=3, percent=10)
    assert [late.days("a1", due + timedelta(hours=h)) for h in (-5, 0, 1, 24, 25)] == ["0", "0", "1", "1", "2"]
    assert late.days("a2", due) == late.days("a1", None) == ""
    assert [late.days("a1", due, said, "4") for said in (None, False, True)] == ["0", "0", "4"]
    rows = {("ada", "a1"): row("20", "5", "2"), ("ada", "a2"): row("10", "", "2"),
            ("ada", "a3"): row("8", "2", "1"), ("bob", "a1"): row("20", "3.5"), ("", ""): row("")}  # fmt: skip
    late.totals(rows)  # ada's third late day is free, her fourth and fifth are not
    assert [each["total"] for each in rows.values()] == ["25", "9", "9", "23.5", ""]


def test_exports(roster):
    rows = {("anna", "a1"): row("20", "4"), ("bob", "a2"): row("7")}
    export.Late().totals(rows)
    written = export.gradebooks(rows, roster.rows).items()
    found = {name: list(csv.reader(text.splitlines())) for name, text in written}
    assert found["canvas.csv"][1:] == [
        ["Points Possible", "", "", "", "", "25", "25"],
        [UMLAUT, "31", "", "anna", "", "24", ""],
        ["Bob Ray", "32", "", "bob", "", "", "7"],
    ]
    assert found["moodle.csv"] == [["username", "email", "a1", "a2"], ["anna", "anna@x.org", "24", ""],
                                    ["bob", "b@x.org", "", "7"]]  # fmt: skip
    lost = checks_of("a1")[0]
    tests = json.loads(export.results(judge.Result("anna", "a1", {lost: "why"}, ["note"])))
    late = row("19", "3", "2") | {"total": "17.6", "notes": "note"}
    found = json.loads(export.with_row(json.loads(export.with_row(tests, late)), late))
    assert found["score"] == 17.6 and sum(test["score"] for test in found["tests"]) == 22
    assert found["tests"][0]["output"] == "why" and sum(test["max_score"] for test in found["tests"]) == 25
    assert "less 4.4 because it came 2 days late\nnote" in found["output"]


TWICE = "student;assignment;due\nada;a1;tomorrow\nada;a1;2026-01-01\n"


@pytest.mark.parametrize("text", ["who\nada\n", "", TWICE, None])
def test_tables_that_are_not_what_they_should_be(tmp_path, text):
    if text is not None:
        (tmp_path / "x.csv").write_text(text)
    for read in (Roster, export.due):
        with pytest.raises(SystemExit, match=r"x\.csv"):
            read(tmp_path / "x.csv")


@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("apart", ",;\t")
def test_tables_of_spreadsheets(tmp_path, code, apart):
    lines = f"Student,name\r\nanna,{UMLAUT}\r\n,\r\n".replace(",", apart)
    (tmp_path / "x.csv").write_bytes(lines.encode(code))
    assert Roster(tmp_path / "x.csv").student("mulleranna") == "anna"


@pytest.fixture
def marked(tmp_path, monkeypatch):
    """A course in which ada and bob were graded: a function that grades, without ever running a submission."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(grade, "protected", lambda anyway: None)
    (build.HOME / "release").mkdir(parents=True)
    roster = tmp_path / "roster.csv"
    roster.write_text("student\nada\nbob\nnew\n")
    lost = dict.fromkeys(checks_of("a1")[:1], "why")

    def run(*students, note=""):
        folder = lay(tmp_path / f"in{''.join(students)}", *(f"{student}/a1.ipynb" for student in students))
        results = [judge.Result(student, "a1", lost, [note]) for student in students]
        monkeypatch.setattr(grade, "grade_all", lambda *given: [given[-1](result) for result in results])
        grade.main(folder, roster=roster, unprotected=True)
        return grade.kept()

    run("ada", "bob")
    return run


def test_grading_some_again_leaves_the_others_their_marks(marked):
    path = build.HOME / "marks.csv"
    path.write_text(path.read_text().replace("ada,a1,19,20,,", "ada,a1,19,20,4.5,"))
    rows = marked("bob", note="again" * 40_000)  # longer than a table's cell may be
    assert [rows[student, "a1"]["automatic"] for student in ("ada", "bob", "new")] == ["19", "19", "0"]
    assert rows["ada", "a1"]["total"] == "23.5" and rows["ada", "a1"]["notes"] == ""
    assert (rows["bob", "a1"]["notes"][:5], rows["new", "a1"]["notes"]) == ("again", grade.ABSENT)
    for _ in range(2):  # a file that cannot be graded takes no earlier mark either
        links = [Submission(student, "a1", note="a link") for student in ("ada", "new")]
        rows = grade.write_marks([], links, export.Late(), {}, {})
    assert [rows[student, "a1"]["total"] for student in ("ada", "new")] == ["23.5", "0"]
    assert [rows[student, "a1"]["notes"] for student in ("ada", "new")] == ["a link"] * 2
    assert {row["student"] for row in tables.read(build.HOME / "tests.csv")} == {"ada", "bob"}


TYPED = {"2,5": "2.5", " 4 ": "4", "": "", "5.0": "5", "7": None, "-1": None, "4/5": None, "nan": None}


@pytest.mark.parametrize("apart", ",;")
@pytest.mark.parametrize("typed", TYPED)
def test_written_points_as_they_are_typed(marked, typed, apart):
    path = build.HOME / "marks.csv"
    rows = [row | ({"written": typed} if row["student"] == "bob" else {}) for row in tables.read(path)]
    text = tables.text([grade.COLUMNS, *([row[column] for column in grade.COLUMNS] for row in rows)])
    if apart == ";":
        text = "\ufeff" + text.replace('"2,5"', "2.5").replace(",", ";").replace("2.5", "2,5")
    path.write_text(text)
    if TYPED[typed] is None:
        with pytest.raises(SystemExit, match=r"marks.csv: bob a1 has .* in the column written, allowed .* 0 to 5"):
            grade.main(None)
        assert path.read_text() == text
    else:
        grade.main(None)
        assert grade.kept()["bob", "a1"]["written"] == TYPED[typed]


def test_feedback_begins_with_what_the_table_of_marks_says(marked):
    page = build.HOME / "feedback/ada/a1/a1.html"
    page.parent.mkdir(parents=True)
    page.write_text("<body><header></header>rest")
    for written, total, said in (("", "17.1", "written not marked yet"), ("4", "20.7", "written 4 of 5")):
        mark = {("ada", "a1"): row("19", written, "1") | {"total": total, "notes": "<b>"}}
        grade.put_on_top(mark)
        text = page.read_text()
        assert f"ada, a1</h3><p>{total} of 25 points" in text and said in text and "&lt;b&gt;" in text
        assert text.endswith("</header>rest") and "it came 1 day late" in text


@pytest.mark.parametrize(("text", "found"), [("p_i(c)", "<msub>"), ("\\frac{", "<code>"), ("a" * 2000, "<code>"),
                                             ("\\href{javascript:f()}{x}", "<code>"), ("<b>", "&#x0003C;"),
                                             ("\\text{<b>}", "")])  # fmt: skip
def test_formulas_need_no_script(text, found):
    assert found in grade.formula(text, "inline") and "<b>" not in grade.formula(text, "inline")


def test_a_refused_build_leaves_the_last_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lay(build.HOME, "release/a1/a1.ipynb")

    def refused(assignment, root, api):
        lay(root, "release/a1/a1.ipynb")
        raise SystemExit("19 + 5 points")

    monkeypatch.setattr(build, "build", refused)
    with pytest.raises(SystemExit, match="19"):
        build.main()
    assert (build.HOME / "release/a1/a1.ipynb").read_text() == "release/a1/a1.ipynb"
    with build.alone(), pytest.raises(SystemExit, match="in use"), build.alone():
        pass


def test_the_build_names_a_planted_mistake_that_is_stale(monkeypatch, capsys):
    each, new = build.planted("a1")[0], {"points": {"skew": 3}}
    for change, said in ({}, ""), (new, "leaves 0 "), ({"from": "?"}, "0 times"), ({"to": each["from"]}, "no hid"):
        monkeypatch.setattr(build, "planted", lambda name, change=change: [each | change])
        build.rubric(build.load("a1"))
        assert said in (out := capsys.readouterr().out) and bool(out) == bool(said)


def test_no_formula_reaches_a_spreadsheet():
    assert tables.text([["=1+1", "-2", "@x", "+3", "a"]]) == " =1+1,-2, @x, +3,a\n"
