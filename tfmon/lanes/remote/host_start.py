"""The first program of a host's Python, as text on its command line: unpacks tfmon and runs the agent.

Any Python 3 can read it. The marker begins each of its lines, because a login shell or a sitecustomize may print.
"""

import json
import os
import sys


def say(marker: str, **fields: object) -> None:
    """Write a line of JSON behind the marker."""
    line = (marker + " " + json.dumps(fields) + "\n").encode("ascii")
    while line:
        line = line[os.write(1, line) :]


def read(size: int) -> bytes:
    """Read exactly `size` bytes, because the agent reads on."""
    parts = []
    while size:
        part = os.read(0, min(size, 65536))
        if not part:
            sys.exit(1)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def main(marker: str) -> None:
    """Unpack the monitor's code, and run the agent."""
    # Modules in the home directory must not hide the standard library's.
    sys.path[:] = [entry for entry in sys.path if entry]
    say(marker, python=list(sys.version_info[:3]), executable=sys.executable)
    size = int(read(12))
    packed = read(size)
    import io
    import shutil
    import tempfile
    import zipfile

    folder = None
    try:
        folder = tempfile.mkdtemp(prefix="tfmon-")  # readable by this user only
        zipfile.ZipFile(io.BytesIO(packed)).extractall(folder)
        sys.path.insert(0, folder)
        from tfmon.lanes.remote.agent import run
    except Exception as error:  # noqa: BLE001 - the monitor shows it
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        where = (folder or os.environ.get("TMPDIR", "/tmp")) if isinstance(error, OSError) else ""
        say(marker, failed="%s: %s" % (type(error).__name__, error), folder=where)  # noqa: UP031 - an old Python reads it, too
        sys.exit(1)
    run(folder, marker, say)


if __name__ == "__main__":
    main(sys.argv[1])
