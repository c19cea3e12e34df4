"""What the Python of a host runs, as text on its command line, so that another machine can watch the runs there.

It lists the sockets of the user's runs with what each says first. Then it connects to the one that a line on stdin
names, and passes bytes on, both ways. It needs no tfmon there but the one that runs, and any Python 3.
"""

import contextlib
import json
import os
import select
import socket
import sys
import tempfile
from pathlib import Path

ANSWER_S = 3.0
CHUNK_BYTES = 65536


def folders() -> "list[Path]":
    """Return where the sockets may be: a run in tmux may know another folder than this session."""
    named, user = os.environ.get("TFMON_RUNTIME"), str(os.getuid())
    if named:
        return [Path(named)]
    places = [Path("/run/user", user), Path("/var/run/user", user), Path(tempfile.gettempdir(), "runtime-" + user)]
    places.append(Path.home() / "Library" / "Caches" / "TemporaryItems")
    places.append(Path(os.environ.get("XDG_RUNTIME_DIR") or places[0]))
    return [place / "tfmon" for place in places]


def greetings() -> "list[tuple[str, str]]":
    """Return the path of each socket that answers, the oldest first, and its first line."""
    result = {}
    for folder in folders():
        for path in folder.glob("*.sock"):
            try:
                about = path.stat()
                if about.st_uid == os.getuid():
                    result[about.st_ino] = (about.st_mtime, str(path), first_line(str(path)))
            except OSError:  # of a run that is over
                continue
    return [(path, line) for _, path, line in sorted(result.values())]


def first_line(path: str) -> str:
    """Return what a run says first; raises OSError where nobody listens."""
    with socket.socket(socket.AF_UNIX) as run:
        run.settimeout(ANSWER_S)
        run.connect(path)
        with run.makefile("rb") as lines:
            return lines.readline(CHUNK_BYTES).decode("utf-8", "replace")


def pass_on(path: str) -> None:
    """Pass bytes on between a run and stdin and stdout until one of them ends, or is reset as by a kill."""
    with contextlib.suppress(ConnectionError), socket.socket(socket.AF_UNIX) as run:
        run.connect(path)
        targets = {0: run.fileno(), run.fileno(): 1}
        while True:
            for source in select.select(list(targets), [], [])[0]:
                chunk = os.read(source, CHUNK_BYTES)
                if not chunk:
                    return
                while chunk:
                    chunk = chunk[os.write(targets[source], chunk) :]


if __name__ == "__main__":
    sys.stdout.write(sys.argv[1] + " " + json.dumps({"runs": greetings()}) + "\n")
    sys.stdout.flush()
    chosen = b""
    while not chosen.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit()
        chosen += byte
    pass_on(os.fsdecode(chosen[:-1]))
