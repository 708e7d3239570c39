"""The process of one submission: runs its cells from top to bottom, then its functions as the grader asks.

Started by :mod:`course.judge` as a script. It knows no test and no mark. Each request is answered in a fork that is
thrown away afterwards: a function that hangs, dies or remembers its arguments changes nothing for the next request.
The cells share this process, so that nothing it sends is trusted: the grader checks every message.
"""

import base64
import builtins
import contextlib
import io
import os
import signal
import sys
import warnings

import sandbox
import talk

OUTPUT = 4000  # characters of a cell's output that are kept
PICTURES = 4  # pictures of a cell that are kept


class TooLong(BaseException):
    """A cell or a call ran past its limit; no Exception, so that ``except Exception`` does not swallow it."""


busy = False  # whether a cell runs


def ring(*_):
    """Interrupt the cell that runs past its limit, by the grader's clock."""
    if busy:
        raise TooLong


def explain(error: BaseException, name: str) -> dict:
    """Return type, line and one-line text of an error; the line is that of the submission's own code.

    The type is the nearest built-in one: a name that a submission made up could carry what it was handed.
    """
    line, trace = None, error.__traceback__
    while trace is not None:
        if name in trace.tb_frame.f_code.co_filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        line = error.lineno
    kind = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    try:
        said = error.msg if isinstance(error, SyntaxError) else str(error)  # less the name of IPython's file
        text = " ".join(said.split())[:200]
    except Exception:
        text = ""
    if isinstance(error, MemoryError) or "allocate memory" in text:
        kind = "MemoryError"
    if isinstance(error, TooLong):
        kind = "TooLong"
    return {"type": kind, "line": line, "text": text}


class Capture(io.StringIO):
    """Keep the first characters of what is printed, and no more."""

    def write(self, text: str) -> int:
        """Keep `text` as long as there is room."""
        if self.tell() < OUTPUT:
            super().write(text[:OUTPUT])
        return len(text)


def guard(uses: list[str], refuses: list[str]) -> None:
    """Refuse imports, by the submission's own cells, of what the assignment asks students to write."""
    real = builtins.__import__

    def checked(name, globals=None, locals=None, fromlist=(), level=0):
        if globals is not None and globals.get("__name__") == "__main__":
            top = name.partition(".")[0]
            if top in refuses:
                raise ImportError(f"{top} may not be used in this assignment")
            if top == "cflkit":
                asked = [f"{name}.{item}".removeprefix("cflkit.") for item in fromlist or ("",)]
                for item in asked:
                    if item not in uses:
                        raise ImportError(f"from cflkit this assignment uses only {', '.join(uses)}")
        return real(name, globals, locals, fromlist, level)

    builtins.__import__ = checked


def own_work(package: str, uses: list[str]):
    """Return a profile function that ends a call of the package's code, by whatever way it was imported."""
    allowed = tuple(os.path.join(package, name) for name in uses)

    def entered(frame, event, _):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(package) and not path.startswith(allowed):
            raise ImportError("a function that students write may not call cflkit")

    return entered


class Pipe:
    """One end of a connection by messages."""

    def __init__(self, read: int, write: int):
        self.read, self.write = read, write

    def take(self, n: int) -> bytes:
        """Read `n` bytes, fewer at the end."""
        data = bytearray()  # `bytes` would be copied for each part
        while len(data) < n and (part := os.read(self.read, min(n - len(data), 1 << 20))):
            data += part
        return bytes(data)

    def receive(self) -> dict | None:
        """Read a message; None at the end."""
        return talk.read(self.take)

    def send(self, message: dict) -> None:
        """Write a message."""
        data = memoryview(talk.frame(message))
        while data:
            data = data[os.write(self.write, data) :]


def drawn(shown: list[dict]) -> list[str]:
    """Return the pictures of a cell, PNG in base64: what it displayed, then the figures that it left open."""
    found = [output["data"]["image/png"] for output in shown if "image/png" in output.get("data", {})]
    found = [each if isinstance(each, str) else base64.b64encode(each).decode() for each in found]
    if plots := sys.modules.get("matplotlib.pyplot"):
        try:
            for number in plots.get_fignums()[:PICTURES]:
                data = io.BytesIO()
                plots.figure(number).savefig(data, format="png", dpi=72)
                found.append(base64.b64encode(data.getvalue()).decode())
        finally:
            plots.close("all")
    return found[:PICTURES]


def run_cells(shell, cells: list[str], grader: Pipe) -> None:
    """Run all cells and report on each."""
    global busy
    for number, cell in enumerate(cells):
        captured, error, pictures = Capture(), None, []
        shell.display_pub.outputs = []
        try:
            busy = True
            with contextlib.redirect_stdout(captured), contextlib.redirect_stderr(captured):
                result = shell.run_cell(cell, store_history=False, silent=False)
                error = result.error_before_exec or result.error_in_exec
                pictures = drawn(shell.display_pub.outputs)
        except BaseException as raised:  # an interrupt between two lines of ours
            error = raised
        finally:
            busy = False
        told = None if error is None else explain(error, "ipython-input")
        grader.send({"cell": number, "error": told, "output": captured.getvalue(), "pictures": pictures})


def answer(shell, request: dict, outer: Pipe) -> dict:
    """In the fork: call one of the submission's functions, or look at one of its variables."""

    def proxy(number: int):
        def ask(*arguments):
            outer.send({"ask": number, "arguments": talk.pack(list(arguments))})
            reply = outer.receive()
            if "error" in reply:
                raise RuntimeError(reply["error"])
            return talk.unpack(reply["value"])

        return ask

    name = request["name"]
    if name not in shell.user_ns:
        return {"error": {"type": "missing", "line": None, "text": ""}}
    if "calls" not in request:
        return {"value": talk.pack(shell.user_ns[name])}
    function, values = shell.user_ns[name], []
    if getattr(function, "__module__", None) != "__main__":
        raise TypeError(f"{name} is not a function written in this notebook")
    with contextlib.redirect_stdout(Capture()), contextlib.redirect_stderr(Capture()):
        given = [talk.unpack(arguments, proxy) for arguments in request["calls"]]
        for number in request["order"]:
            sys.setprofile(own_work(request["package"], request["uses"]))
            try:
                value = function(*given[number])
            finally:
                sys.setprofile(None)
            values.append(talk.pack(value))
        return {"values": values, "left": None if request["asks"] else talk.pack(given)}


def serve(shell, grader: Pipe, forks: set[int]) -> None:
    """Answer the grader's requests, each in a fork, until the grader hangs up."""
    while (request := grader.receive()) is not None:
        (up, told), (heard, down) = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            for fd in (grader.read, grader.write, up, down):
                os.close(fd)
            outer = Pipe(heard, told)
            try:
                reply = answer(shell, request, outer)
            except BaseException as error:
                reply = {"error": explain(error, "ipython-input")}
            outer.send({"reply": reply})
            os._exit(0)
        forks.add(child)
        os.close(told)
        os.close(heard)
        inner, reply = Pipe(up, down), None
        while reply is None:
            message = inner.receive()
            if message is None:  # it ended, or was ended by the grader, when its time was over
                reply = {"error": {"type": "died", "line": None, "text": ""}}
            elif "ask" in message:
                grader.send(message)
                with contextlib.suppress(BrokenPipeError):
                    inner.send(grader.receive())
            else:
                reply = message["reply"]
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(up)
        os.close(down)
        grader.send({"reply": reply})


def main() -> None:
    """Take the order, shut the doors, run the cells, serve."""
    grader = Pipe(int(sys.argv[1]), int(sys.argv[2]))
    order = grader.receive()
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell  # before the doors shut: it asks the system

    sys.path.pop(0)  # this folder
    sandbox.limit(order["memory"], order["seconds"])
    forks: set[int] = set()
    if order["namespaces"]:
        sandbox.no_shared_memory()
    sandbox.confine(order["readable"], os.getcwd(), forks)
    shell = InteractiveShell.instance(history_length=0, colors="nocolor")
    shell.history_manager.enabled = False
    shell.display_pub = CapturingDisplayPublisher()
    warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")  # plt.show() is all right
    guard(order["uses"], order["refuses"])
    for name in ("talk", "sandbox"):  # out of the way of ``sys.modules``, where cells would find them by name
        del sys.modules[name]
    signal.signal(signal.SIGALRM, ring)
    grader.send({"ready": True})
    run_cells(shell, order["cells"], grader)
    serve(shell, grader, forks)


if __name__ == "__main__":
    main()
