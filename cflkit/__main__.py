"""The console program: ``cflkit`` and ``python -m cflkit`` are the same."""

import sys


def main() -> int:
    """Run the program; an interrupt is one line even while PyTorch is imported."""
    try:
        from cflkit.workbook.console import main as console

        return console()
    except KeyboardInterrupt:
        print("cflkit: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
