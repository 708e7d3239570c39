"""The console program: ``cflkit`` and ``python -m cflkit`` are the same."""

import os
import signal
import sys


def main() -> int:
    """Run the program; an interrupt is one line even while PyTorch is imported."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # what runs in the background was told to ignore it
        signal.signal(signal.SIGINT, _interrupt)
    for stream in filter(None, (sys.stdout, sys.stderr)):  # one may be closed
        stream.reconfigure(errors="backslashreplace")  # a locale without dashes and signs
    try:
        from cflkit.workbook.console import main as console

        return console()
    except KeyboardInterrupt:
        print("cflkit: interrupted", file=sys.stderr)
        return 130


def _interrupt(number: int, frame) -> None:
    """Interrupt as usual, but end at once in an import, which may swallow an exception or make it another."""
    at = frame
    while at is not None:
        if at.f_code.co_filename.startswith("<frozen importlib"):
            os.write(sys.stderr.fileno(), b"cflkit: interrupted\n")
            os._exit(130)
        at = at.f_back
    signal.default_int_handler(number, frame)


if __name__ == "__main__":
    sys.exit(main())
