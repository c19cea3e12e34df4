"""`python -m tfmon`, and the `tfmon` command."""

import os
import sys

INTERRUPTED = 130


def run() -> None:
    """Run the command line. Ctrl+C ends the program without a traceback."""
    # The standard library comes before PYTHONPATH, whose modules may have the same names.
    library = os.path.dirname(os.__file__)
    sys.path.sort(key=lambda entry: not entry.startswith(library) or "-packages" in entry)
    try:
        os.fstat(0)
    except OSError:  # closed: the first opened file would be standard input
        sys.stdin = sys.__stdin__ = open(os.devnull)  # type: ignore[misc] # noqa: SIM115
    try:
        from tfmon.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # from a `__set_name__` in Python 3.11
            sys.exit(INTERRUPTED)
        raise


if __name__ == "__main__":
    run()
