"""`python -m tfmon`, and the `tfmon` command."""

import os
import sys

INTERRUPTED = 130


def run() -> None:
    """Run the command line. Ctrl+C ends it without a traceback even while it is loading."""
    # Before the folders of PYTHONPATH and `python -m`, whose modules may have names of the standard library.
    library = os.path.dirname(os.__file__)  # noqa: PTH120 - pathlib is slow to load
    sys.path.sort(key=lambda entry: not entry.startswith(library) or "-packages" in entry)
    try:
        os.fstat(0)
    except OSError:  # closed: what is opened first would be standard input
        sys.stdin = sys.__stdin__ = open(os.devnull)  # type: ignore[misc] # noqa: PTH123, SIM115
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
