"""`python -m tfmon`, and the `tfmon` command."""

from __future__ import annotations

import sys
from typing import NoReturn

INTERRUPTED = 130


def run() -> NoReturn:
    """Run the command line. Ctrl+C ends it without a traceback even while it is loading."""
    try:
        from tfmon.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11 makes this of one in a `__set_name__`
            sys.exit(INTERRUPTED)
        raise


if __name__ == "__main__":
    run()
