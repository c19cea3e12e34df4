"""The first program of a host's Python, as text on its command line: unpacks tfmon and runs the agent.

Any Python 3 can read it. The marker begins each line, because a login shell or a sitecustomize may print.
"""

import json
import os
import sys


def report(marker: str, **fields: object) -> None:
    """Write a line of JSON behind the marker."""
    sys.stdout.write(marker + " " + json.dumps(fields) + "\n")
    sys.stdout.flush()


def main(marker: str) -> None:
    """Unpack the monitor's code, and run the agent."""
    # Modules in the home directory must not hide the standard library's.
    sys.path[:] = [entry for entry in sys.path if entry]
    report(marker, python=list(sys.version_info[:3]), executable=sys.executable)
    # This may read ahead: the monitor sends nothing else before the agent's first line.
    size = int(sys.stdin.buffer.read(12) or 0)
    packed = sys.stdin.buffer.read(size)
    if not size or len(packed) < size:
        sys.exit(1)
    import io
    import shutil
    import tempfile
    import zipfile

    folder = None
    try:
        folder = tempfile.mkdtemp(prefix="tfmon-")  # readable by this user only
        zipfile.ZipFile(io.BytesIO(packed)).extractall(folder)
        del packed
        sys.path.insert(0, folder)
        from tfmon.lanes.remote.agent import run
    except Exception as error:  # noqa: BLE001 - the monitor shows it
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        where = (folder or os.environ.get("TMPDIR", "/tmp")) if isinstance(error, OSError) else ""
        report(marker, failed="%s: %s" % (type(error).__name__, error), folder=where)  # noqa: UP031 - an old Python reads it, too
        sys.exit(1)
    run(folder, marker, report)


if __name__ == "__main__":
    main(sys.argv[1])
