"""What submissions try: none of it crashes or holds up the grader, leaks a test, or gains a point."""

import base64
import json
import os
import re
import tempfile

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

pytest.importorskip("nbgrader", reason="the course needs requirements-course.txt")

from test_course_grading import RELEASE, ROOT, follow, graded, handed, notes

from course import checking, judge, sandbox
from course.checking import checks_of
from course.inside import Inside
from course.source import load, names

pytestmark = [
    pytest.mark.course,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not all(sandbox.layers().values()), reason="this system lacks a layer"),
]
HIDDEN, CANARY, LIBC = ROOT / "course/checks/a6.py", ROOT / "canary.txt", "libc = ctypes.CDLL(None, use_errno=True)"
SETUP = f"""import builtins, ctypes, gc, json, mmap, os, pathlib, signal, struct, subprocess, sys, threading, time
HIDDEN, CANARY, ROOT, GRADER = {str(HIDDEN)!r}, {str(CANARY)!r}, {str(ROOT)!r}, {os.getpid()}
{LIBC}
def refused(act, *arguments):
    try:
        done = act(*arguments)
    except BaseException:
        return
    assert isinstance(done, int) and done < 0, done
def send(message):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    os.write(int(sys.argv[2]), struct.pack("<I", len(body)) + body)
REPORT = {{"error": None, "output": "", "pictures": []}}
"""

REFUSED = """refused(open, HIDDEN)
refused(libc.open, HIDDEN.encode(), 0)
refused(lambda: torch.from_file(HIDDEN, False, 10, dtype=torch.uint8))
refused(lambda: __import__("sqlite3").connect(ROOT + "/build/course/gradebook.db").execute("select 1"))
refused(os.symlink, HIDDEN, "link"); refused(open, "link")
libc.symlink(HIDDEN.encode(), b"link2"); refused(libc.open, b"link2", 0)
refused(libc.link, HIDDEN.encode(), b"hard")
refused(os.link, HIDDEN, "hard")
open("mine", "w").write("x"); refused(os.rename, "mine", CANARY)
open("mine", "w").write("x"); refused(os.replace, "mine", CANARY); refused(libc.rename, b"mine", CANARY.encode())
refused(os.symlink, "mine", CANARY)
refused(os.listdir, "/proc"); refused(os.listdir, "/tmp"); refused(os.listdir, "..")
refused(open, "/proc/1/environ"); refused(libc.open, b"/proc/self/environ", 0)
refused(libc.ptrace, 16, GRADER, 0, 0)
refused(os.kill, GRADER, 0); refused(libc.kill, GRADER, 0); refused(os.kill, os.getppid(), 9)
refused(libc.connect, libc.socket(2, 2, 0), bytes([2, 0, 0, 53, 8, 8, 8, 8]) + bytes(8), 16)
refused(lambda: __import__("course.checks.a6"))
refused(lambda: __import__("urllib.request").request.urlopen("http://127.0.0.1:1"))
refused(open, "/dev/shm/mine", "w"); refused(libc.open, b"/dev/shm/mine", 65, 420)
refused(open, sys.prefix + "/mine.pth", "w"); refused(open, ROOT + "/cflkit/mine.py", "w")
refused(os.open, ROOT + "/cflkit/../course/checks/a6.py", os.O_RDONLY)
refused(subprocess.run, ["true"]); refused(os.execv, "/bin/true", ["true"])
refused(os.posix_spawn, "/bin/true", [], {})
refused(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None); refused(libc.chroot, b".")
refused(libc.setns, 0, 0); refused(lambda: __import__("resource").setrlimit(2, (-1, -1)))
libc.unshare(0x10020000); refused(libc.mount, b"none", os.getcwd().encode(), b"tmpfs", 0, None)
assert os.getpid() < 10 and libc.open(b"own", 65, 420) >= 0; refused(libc.open, b"/etc/passwd", 0)
refused(libc.open, CANARY.encode(), 65, 420)
refused(os.listdir, "/proc/self/fd"); refused(open, ROOT + "/build/course/marks.csv", "a")
refused(os.chmod, ROOT + "/Makefile", 0o777); refused(os.mkdir, CANARY); refused(os.mkfifo, CANARY)
refused(libc.shmget, 0, ctypes.c_size_t(1 << 30), 0o1600)
refused(libc.fcntl, os.open(sys.prefix + "/pyvenv.cfg", 0), 1024, 1)
refused(__import__("fcntl").fcntl, os.open(ROOT + "/cflkit/rng.py", 0), 1024, 0)
assert "CANARY_IN_ENVIRONMENT" not in os.environ""".splitlines()


def test_what_the_system_refuses(tmp_path, monkeypatch):
    monkeypatch.setenv("CANARY_IN_ENVIRONMENT", "x")
    result = attacked(tmp_path, *REFUSED)
    assert notes(result) == [] and follow(result) == 3
    assert not CANARY.exists()


def attacked(tmp_path, *codes, body=None, assignment="a6"):
    """Grade the small submission with more cells, or with another function."""
    nb = handed()
    nb.cells[2:2] = [new_code_cell(code) for code in (SETUP, *codes)]
    for cell in nb.cells:
        if body and judge.grade_id(cell) == "follow":
            cell.source = f"def follow(student_weights, teacher_weights, x, lr):\n    {body}"
    return graded(nb, tmp_path)


HARMLESS = {  # cells after which everything goes on: what is noted, "" for nothing
    "print('\\ud800', '\\x00\\x1b[31m\\u202e')": "",
    "print('x' * 10**8)": "",
    "class Evil(Exception):\n    def __str__(self): raise RuntimeError\nraise Evil": "raises Exception in line 3",
    "class Number12345(Exception): pass\nraise Number12345": "raises Exception in line 2",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "def broken(:": "SyntaxError in line 1",
    "hog = []\nwhile True: hog.append(torch.empty(1 << 24))": "MemoryError in line 2",
    "del hog\n__import__('socket').socket()": "a submission may not open a socket",
    "from cflkit import IFCA": "from cflkit this assignment uses only images, rng",
    "import sklearn.metrics": "sklearn may not be used in this assignment",
    "sys.setrecursionlimit(3000)\ndef f(): return f()\nf()": "RecursionError",
    "sys.stdout = sys.stderr = None": "",
    "threading.Thread(target=time.sleep, args=(9,), daemon=False).start()": "",
    "gc.disable(); signal.signal(signal.SIGTERM, signal.SIG_IGN)": "",
    "from IPython.display import HTML, Javascript, display\n"
    "display(HTML('<script>1</script>'), Javascript('1'))": "",
    "get_ipython().display_pub.outputs = [{'data': {'image/png': 'bm8='}}, {'data': {'image/png': 'x' * 9}}]": "",
    "get_ipython().ast_transformers = 3": "",
    "%cd /": "",
    "!ls": "a submission may not",
    "import atexit\natexit.register(os._exit, 0)": "",
    "x = input()": "EOFError",
    "gr\u00f6\u00dfe = '\U0001f600'\nraise ValueError('\u00e4' * 500)": "\u00e4\u00e4",
    "%%writefile ../x.py\nx": "a submission may not change",
    "%%bash\nls": "a submission may not",
    "%pip install x": "raises OSError",
    "get_ipython().events.register('post_run_cell', lambda *_: 1 / 0)": "",
    "exit()": "AttributeError",
    "class Long:\n    def __repr__(self): return 'x' * 10**8\nLong()": "",
    "class Ending:\n    def __repr__(self): raise SystemExit\nEnding()": "raises SystemExit",
    "import matplotlib.pyplot as plt\nplt.figure(figsize=(3000, 3000)).savefig; plt.plot([1])": "MemoryError",
    "get_ipython().display_pub.outputs = [{'data': {'image/png': 5}}]": "raises TypeError",
    "from IPython.display import display\n"
    "display({'text/html': '<script>1', 'image/svg+xml': '<svg onload=1>'}, raw=True)": "",
    "sys.addaudithook(lambda event, _: None)\n__import__('faulthandler').dump_traceback_later(999, exit=True)": "",
    "for name in ('torch', 'talk', 'sitecustomize'): open(name + '.py', 'w').write('1/0')": "",
    "exit = quit = print = int = float = list = None": "",
    "student = type('S', (str,), {'__eq__': lambda *_: True, '__hash__': str.__hash__})('tom')": "",
    "for k in range(100): os.makedirs('d' * 9, exist_ok=True); os.chdir('d' * 9)": "",
    "class Odd(Exception):\n    def __repr__(self): raise self\n    __str__ = __repr__\nraise Odd": "raises Exc",
    "def trace(*_): return trace\nsys.settrace(trace); libc.prctl(15, b') R 1\\n\\xff')": "",
    "__import__('fcntl').flock(open(os.devnull), 2); open('shut', 'w'); os.chmod('.', 0)": "",
}


def test_cells_that_only_spoil_their_own(tmp_path):
    result = attacked(tmp_path, *HARMLESS)
    said, expected = notes(result), [note for note in HARMLESS.values() if note]
    assert follow(result) == 3, said
    for note in expected:
        assert any(note in line for line in said), (note, said)
    text = nbformat.writes(result.notebook)
    text.encode()
    assert "12345" not in "".join(said) and "\x1b" not in text
    assert "<script>1" not in json.dumps([cell.get("outputs") for cell in result.notebook.cells])


ENDS = {  # cells that end or hold up their process: what is noted
    "os.close(int(sys.argv[2]))": "its process ended",
    "send({'cell': 0} | REPORT); os._exit(0)": "no readable message",
    "send(b'[' * 100_000)": "no readable message",
    "send({'nothing': 1})": "no readable message",
    "os.write(int(sys.argv[2]), struct.pack('<I', 2**32 - 1))": "no readable message",
    "os.write(int(sys.argv[2]), b'ab'); time.sleep(99)": "its process|no readable|longer than",
    "libc.raise_(9) if hasattr(libc, 'raise_') else ctypes.string_at(0)": "its process ended",
    "children = [os.fork() for _ in range(6)]; time.sleep(99)": "more than",
    "hogs = [os.fork() for _ in range(2)]; hog = bytearray(b'x' * (1100 << 20)); time.sleep(99)": "more memory",
    "for _ in range(40): os.write(os.memfd_create('m'), bytes(1 << 27))\ntime.sleep(99)": "more memory",
    "for k in range(60): open(f'f{k}', 'wb').write(bytes(1 << 24))\ntime.sleep(99)": "writes more",
    "keep = [open(f'f{k}', 'wb') for k in range(60)]\n"
    "for file in keep: os.unlink(file.name); file.write(bytes(1 << 24))\ntime.sleep(99)": "writes more",
    "for _ in range(300): libc.mkdir(b'd' * 9, 448); libc.chdir(b'd' * 9)\ntime.sleep(99)": "writes more",
    "while True: pass": "raises TooLong in line 1: it ran longer than",
    "signal.signal(17, signal.SIG_IGN)\nwhile True:\n    if os.fork(): time.sleep(0.1)\n    else:\n"
    "        while time.process_time() < 0.2: pass\n        os._exit(0)": "longer than",
    "os.mkdir('shut'); os.chmod('shut', 0); time.sleep(99)": "writes more" if os.getuid() else "longer than",
    "signal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass": "longer than",
    "libc.kill(0, 19); signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 60))\ntime.sleep(99)": "longer than",
    "threading.Thread(target=lambda: ctypes.string_at(0)).start()\ntime.sleep(99)": "its process ended",
    "send(b'{\"cell\": 9, \"output\": [' + b'[],' * 4_000_000 + b'[]]}'); time.sleep(1)": "no readable message",
    "os.fork = lambda: 0": "could not be finished",
    "os.waitpid = lambda *_: time.sleep(99)": "could not be finished",
    "import select\njson.loads = lambda *_: {'name': 'follow'}": "its process ended|could not be finished",
    "os.dup2(os.open('/dev/null', os.O_RDONLY), int(sys.argv[1]))": "could not be finished",
    "gc.collect = None; builtins.isinstance = None": "its process ended|could not be finished|raises",
}


@pytest.mark.parametrize("code", ENDS, ids=range(len(ENDS)))
def test_a_cell_that_ends_its_process_costs_itself(code, tmp_path, monkeypatch):
    monkeypatch.setattr(judge, "CELL_SECONDS", 3 if "longer than" in ENDS[code] else 30)
    monkeypatch.setattr(judge, "GRACE", 1)
    monkeypatch.setattr(judge, "BUSY", 99)  # what is ended is not ended by the clock on the wall
    result = attacked(tmp_path, code)
    assert any(part in note for note in notes(result) for part in ENDS[code].split("|")), notes(result)
    assert follow(result) == (0 if "could not be finished" in "".join(notes(result)) else 3)


def test_cells_that_sleep_end_with_the_submissions_time(tmp_path, monkeypatch):
    monkeypatch.setattr(judge, "ALL_SECONDS", 6)
    result = attacked(tmp_path, *["time.sleep(2)"] * 20)
    assert result.total == 0
    assert "too long" in result.notes[-1]


LEAKING = """text = str(x.flatten()[:9].tolist()) + str(teacher_weights.flatten().tolist())"""
FORGED = {  # bodies of `follow` that gain nothing, and what is said of them
    f"{LEAKING}\n    raise type(text, (Exception,), {{}})": "raises Exception",
    f"{LEAKING}\n    raise type(text, (ValueError,), {{'__module__': 'builtins'}})": "raises Exception",
    "return torch.zeros(0, *(x.flatten()[:4].abs() * 1000).long().tolist())": "its shape",
    "loop = []; loop.append(loop); return loop": "raises RecursionError",
    "return [[]] * 10**7": "",
    "return torch.zeros(3, dtype=torch.complex64)": "raises TypeError",
    "return torch.zeros(3, device='meta')": "",
    "return student_weights": "",
    "return 1.0": "its shape has 0 dimensions, not",
    "raise SystemExit": "raises SystemExit",
    "raise ValueError(str(x))": "raises ValueError in line 2",
    "send({'reply': {'value': 1}}); os._exit(0)": "",
    "os._exit(0)": "its process ended",
    "os.kill(os.getpid(), 9)": "raises PermissionError",
    "return torch.full_like(student_weights, float('nan'))": "not all numbers are finite",
    "return torch.Tensor._make_subclass(type('T', (torch.Tensor,), {}), student_weights)": "",
    "while True: pass": "it ran longer than is allowed",
    "time.sleep(99)": "it ran longer than is allowed",
    "if os.fork(): time.sleep(99)\n    os.setsid(); time.sleep(99)": "it ran longer than is allowed",
    "return [torch.empty(1 << 26) for _ in range(100)]": "it needs more memory than is allowed",
    "return 'ten points'": "it returned str, not numbers",
    "return object()": "raises TypeError",
    "return 10**5000": "",
    "return {0: 1, 2**61 - 1: 1}": "does not fit",
    "return student_weights.to_sparse()": "raises",
    "return student_weights.reshape(*[1] * 60, *student_weights.shape)": "its shape has 9 dimensions",
    "sys.setrecursionlimit(10**6); deep = []\n    for _ in range(10**5): deep = [deep]\n    return deep": "",
    "return type('F', (float,), {'__eq__': lambda *_: True, '__sub__': max})(0)": "its shape has 0 dim",
    "student_weights += 1; return student_weights": "an argument was changed",
    "import importlib; return importlib.import_module('cflkit.engine.metrics').ari(x[:, 0], 0)": "ImportError",
}


def test_functions_gain_nothing_and_tell_nothing(tmp_path, monkeypatch):
    """All in one process: each body is a function of its own, tested as `follow` is."""
    monkeypatch.setattr(judge, "CALL_SECONDS", 2)
    nb = handed(only=("student",))
    nb.cells += [new_code_cell(SETUP), new_code_cell("from torch import relu")]
    nb.cells += [
        new_code_cell(f"def follow{k}(student_weights, teacher_weights, x, lr):\n    {body}")
        for k, body in enumerate(FORGED)
    ]
    process = judge.Process(str(tmp_path), 900)
    try:
        judge.run_cells(nb, load("a6"), process, set(), [])
        asked = judge.Student(process, "tom", load("a6"))
        with pytest.raises(checking.Wrong, match="raises TypeError"):  # no function of this notebook
            asked.relu(1.0)

        for k, (body, expected) in enumerate(FORGED.items()):

            class Renamed:
                id, named, hung = "tom", "tom", False
                follow = staticmethod(getattr(asked, f"follow{k}"))

                def calls(self, name, given, order, k=k):
                    return asked.calls(f"{name}{k}", given, order)

                def raises(self, *_):
                    raise checking.Wrong("no hunt")

                def __getattr__(self, name):
                    raise checking.Wrong("not asked")

            result = judge.Result("tom", "a6", dict.fromkeys(checks_of("a6"), "not run"))
            judge.test(result, Renamed())
            said = "".join(result.report("follow"))
            assert result.points["follow"] == 0 and expected in said, (body, said)
            told = re.sub(rf"follow{k}|line \d+|-\d  |has 9", "", said)
            assert not re.search(r"[4-9]|\d\.", told), (body, said)
    finally:
        process.close()


PATCHES = {
    "sys.modules": "import talk\ntalk.pack = None",
    "frames": """frame = sys._getframe()
while frame:
    if 'talk' in frame.f_globals and hasattr(frame.f_globals['talk'], 'pack'):
        kept, real = [], frame.f_globals['talk'].pack
        frame.f_globals['talk'].unpack = lambda value, proxy=None, un=frame.f_globals['talk'].unpack: (
            kept.append(value), un(value, proxy))[1]
        frame.f_globals['talk'].pack = lambda value, functions=None: (
            kept.copy() if isinstance(value, list) and kept else real(value, functions))
    frame = frame.f_back""",
    "tensors": "torch.Tensor.__eq__ = torch.Tensor.allclose = torch.equal = torch.allclose = lambda *_: True",
    "builtins": "builtins.all = builtins.any = lambda *_: True\nbuiltins.max = lambda *_: 0",
    "json": 'json.dumps = lambda *_, **__: \'{"reply": {"value": 1}}\'',
}


@pytest.mark.parametrize("how", PATCHES)
def test_an_argument_that_is_changed_shows_whatever_is_patched(how, tmp_path):
    """The grader sees it in what the second call gives, too, so that no forged copy helps."""
    body = "student_weights -= 0.1 * 0; student_weights += 1; return student_weights - 1"
    assert follow(attacked(tmp_path, PATCHES[how], body=body)) <= 1
    assert not CANARY.exists()


@pytest.mark.parametrize("assignment", names())
@pytest.mark.parametrize("every", [2, 3, 4, 5])
def test_a_hunt_that_counts_gains_nothing(assignment, every, monkeypatch):
    code = f"calls = [0]\ndef hunt(function):\n    calls[0] += 1\n    assert calls[0] % {every}\n"
    for name in ("tom", "ada", "bob"):
        student = Inside([("helper", code)], name)
        student.cells = []  # the counter lives on, as a file would
        against = checking.hunt(student, checks_of(assignment), "secret")
        assert all(against.values()), (name, against)


@pytest.mark.parametrize("assignment, code", [
    ("a3", "global_round(torch.ones(1), torch.ones(1, 1), 0.1, 10**9)"), ("a6", "sample(1, 1, 3 * 10**8, 5)"),
    ("a6", "sample('x', [[[]]], None, {1: 2})"), ("a6", "[sample(k, 1, 5, 2) for k in range(10**9)]"),
    ("a6", "sample(torch.zeros(1 << 22), 1, 1, 1)"), ("a6", "smaple(1, 1, 1, 1)"),
])  # fmt: skip
def test_what_a_hunt_asks_for_costs_itself(assignment, code, tmp_path, monkeypatch):
    monkeypatch.setattr(judge, "CALL_SECONDS", 2)
    only = ("student", "hunt", "test-hunt", "follow", "test-follow")
    nb = handed(assignment=assignment, only=only)
    for cell in nb.cells:
        if judge.grade_id(cell) == "hunt":
            cell.source = cell.source.partition("\n")[0] + f"\n    {code}\n    assert False"
    result = graded(nb, tmp_path, assignment=assignment)
    assert result.points["hunt"] == 0
    assert assignment != "a6" or follow(result) == 3, notes(result)
    assert ("NameError in line 2" in result.report("hunt")[0]) == ("smaple" in code)


def odd(change):
    """The small submission as JSON, after `change`."""
    nb = json.loads(nbformat.writes(handed()))
    change(nb)
    return json.dumps(nb)


def each(nb, **values):
    for cell in nb["cells"]:
        cell.update(values)


def mark(nb):
    for cell in nb["cells"]:
        cell["metadata"].setdefault("nbgrader", {})["points"] = 1000
    graded = {"grade": True, "grade_id": "test-extra", "points": 1000, "solution": False, "locked": True,
              "schema_version": 3, "task": False}  # fmt: skip
    nb["cells"].append({"cell_type": "code", "source": "1000", "outputs": [], "execution_count": 1,
                        "metadata": {"nbgrader": graded}, "id": "x"})  # fmt: skip


ODD = {
    "surrogate": lambda nb: nb["cells"][0].update(source="x = '\ud800'"),
    "points": mark,
    "kernel": lambda nb: nb["metadata"].update(kernelspec={"name": "evil"}, language_info={"pygments_lexer": "/"}),
    "many": lambda nb: nb["cells"].extend([nb["cells"][0]] * 20_000),
    "empty": lambda nb: nb["cells"].clear(),
    "outputs": lambda nb: [cell.update(outputs=[{"output_type": "stream", "name": "stdout", "text": "20 of 20"}])
                           for cell in nb["cells"] if cell["cell_type"] == "code"],
    "metadata": lambda nb: each(nb, metadata=[]),
    "source": lambda nb: each(nb, source=7),
    "types": lambda nb: each(nb, cell_type="heading"),
    "attachments": lambda nb: nb["cells"].append({
        "cell_type": "markdown", "source": "x", "metadata": {}, "id": "y",
        "attachments": {"../../x": {"image/svg+xml": "<svg onload=1>"}}}),
    "format": lambda nb: nb.update(nbformat=10**9),
    "deep": lambda nb: nb.update(metadata=json.loads("[" * 300 + "]" * 300)),
    "numbers": lambda nb: each(nb, metadata={"x": float("nan"), "y": 9**4000}, outputs=[{"q": 1}] * 10**5),
    "count": lambda nb: each(nb, execution_count={"a": 1}),
}  # fmt: skip


@pytest.mark.parametrize("how", ODD)
def test_odd_notebooks(how, tmp_path):
    result = graded(odd(ODD[how]), tmp_path)
    assert result.total <= 3
    assert how not in ("surrogate", "points", "kernel", "outputs", "attachments") or follow(result) == 3
    text = nbformat.writes(result.notebook)
    text.encode()
    assert "onload" not in text
    assert "1000" not in "".join(str(cell.metadata.get("nbgrader")) for cell in result.notebook.cells)


NO_NOTEBOOK = [b"", b"\xff\xfe\x00", b"[" * 10**6, b'{"cells": NaN}', b"null", b"\xef\xbb\xbf{", b"[]", b"{",
               b'{"cells": 3, "nbformat": 4, "nbformat_minor": 5}', b'{"cells": %s}' % (b"1" * 10**5)]  # fmt: skip


@pytest.mark.parametrize("data", NO_NOTEBOOK, ids=range(len(NO_NOTEBOOK)))
def test_bytes_that_are_no_notebook(data):
    result = judge.judge(data, "tom", "a6", RELEASE)
    assert result.total == 0 and "is no notebook that can be read" in result.notes[-1]


def test_a_function_that_hangs_everywhere_leaves_time_for_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(judge, "CALL_SECONDS", 2)
    nb = handed(only=("student", "follow", "adjacency", "test-follow", "test-adjacency"))
    for cell in nb.cells:
        if judge.grade_id(cell) == "adjacency":
            cell.source = "def adjacency(V, beta):\n    while True: pass"
    result = graded(nb, tmp_path)
    assert (result.points["adjacency"], follow(result)) == (0, 3)
    assert all("longer" in line for line in result.report("adjacency"))


def test_pictures_and_pasted_pictures_are_kept(tmp_path):
    nb = handed()
    png = base64.b64encode(judge.PNG + b"rest").decode()
    nb.cells.insert(2, new_code_cell("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"))
    text = new_markdown_cell("![d](attachment:d.png) ![e](attachment:e.png)")
    text.attachments = {"d.png": {"image/png": png}}
    nb.cells.append(text)
    result = graded(nb, tmp_path)
    outputs = [output for cell in result.notebook.cells for output in cell.get("outputs", [])]
    drawn = [output for output in outputs if "data" in output and "image/png" in output.data]
    assert len(drawn) == 1 and notes(result) == [], result.notes
    last = next(cell for cell in result.notebook.cells if "attachments" in cell)
    assert last.attachments == text.attachments and "attachment:e.png" not in last.source


PLOT = "import matplotlib.pyplot as plt\n"
NOISE = "from IPython.display import Image, display\nfor _ in range(4): display(Image(PNG + bytes(900_000)))"


@pytest.mark.parametrize(("code", "most", "note"), [
    (PLOT + "for k in range(300): plt.figure(figsize=(.1, .1))", 4, ""), (NOISE, 2, "there is too much"),
    (PLOT + "plt.figure(figsize=(20_000 / 72, 20_000 / 72))", 0, ""), ("'" + "x" * 10**6 + "'", 0, "too much"),
])  # fmt: skip
def test_pictures_and_texts_that_are_too_many(tmp_path, code, most, note):
    nb = handed()
    nb.cells.insert(2, new_code_cell(f"PNG = {judge.PNG!r}\n{code}"))
    for size in ((20_000).to_bytes(4) * 2, bytes(400_000)):
        text = new_markdown_cell("![][d] " * 9 + "\n\n[d]: attachment:d.png")
        text.attachments = {"d.png": {"image/png": base64.b64encode(judge.PNG + bytes(8) + size).decode()}}
        nb.cells.append(text)
    result = graded(nb, tmp_path)
    drawn = [output for cell in result.notebook.cells for output in cell.get("outputs", []) if "data" in output]
    assert sum("image/png" in output.data for output in drawn) <= most and follow(result) == 3, result.notes
    assert note in " ".join(result.notes) and "attachments" not in str(result.notebook)
    assert len(nbformat.writes(result.notebook)) < 4 << 20


def test_no_process_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    attacked(tmp_path, "for _ in range(9):\n    if os.fork() == 0:\n        os.setsid(); time.sleep(300)")
    found = [each.info["environ"] or {} for each in psutil.process_iter(["environ"])]
    assert os.environ["HOME"] in [each.get("HOME") for each in found]
    assert not [each for each in found if each.get("HOME", "").startswith(str(tmp_path))]
