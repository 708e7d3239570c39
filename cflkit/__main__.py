"""The console program: ``cflkit`` and ``python -m cflkit`` are the same."""

import os
import signal
import sys


def main() -> int:
    """Run the program; an interrupt is one line even while PyTorch is imported."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.SIG_IGN:  # what runs in the background was told to ignore it
        signal.signal(signal.SIGINT, _at_once)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # a locale without dashes and signs
    from cflkit.workbook.console import main as console

    try:
        signal.signal(signal.SIGINT, usual)
        return console()
    except KeyboardInterrupt:
        print("cflkit: interrupted", file=sys.stderr)
        return 130


def _at_once(*_) -> None:
    """End the program: an exception in the middle of an import may be swallowed, or become another one."""
    os.write(sys.stderr.fileno(), b"cflkit: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
