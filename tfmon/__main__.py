"""`python -m tfmon`, and the `tfmon` command."""

from __future__ import annotations

import sys
from typing import NoReturn

INTERRUPTED = 130


def run() -> NoReturn:
    """Run the command line. Ctrl+C ends it without a traceback even while it is loading."""
    try:
        from tfmon.cli.main import main
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    main()


if __name__ == "__main__":
    run()
