"""``python -m cflkit`` is the console program ``cflkit``."""

import sys

from cflkit.workbook.console import main

if __name__ == "__main__":
    sys.exit(main())
