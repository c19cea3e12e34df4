"""The bridge on another machine: the host's Python runs this text to list and watch runs, without tfmon.

It prints the sockets of the user's runs with the first line of each. Then it reads lines from stdin. An empty line
lists the recordings. The path of a recording sends its size and bytes. The path of a socket passes bytes both ways
until one side ends. It runs on any Python 3. The same functions list the recordings of this machine.
"""

import contextlib
import fcntl
import gzip
import json
import os
import select
import socket
import sys
import tempfile
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

ANSWER_S = 3.0
CHUNK_BYTES = 65536
LONGEST_LINE_BYTES = 16 * 2**20
GZIP = b"\x1f\x8b"
MEMBER = GZIP + b"\x08" + bytes(5)
"""Start of each part of a compressed recording."""
SUFFIXES = (".jsonl", ".jsonl.gz")


class Outline(NamedTuple):
    """The facts that a list shows of a recording."""

    path: str
    size: int
    modified_s: float
    first: str = ""
    last: str = ""
    """Its last whole line: how the race ended, if it was closed."""
    locked: bool = False
    problem: str = ""


def recordings_in(folder: Path) -> "list[Path]":
    """Return the recordings in a folder by their names; raises OSError."""
    named = [path for path in folder.iterdir() if path.name.endswith(SUFFIXES) and not path.name.startswith(".")]
    return sorted(path for path in named if path.is_file())  # who opens a named pipe waits


def outline(path: Path) -> Outline:
    """Return the facts that a list shows of a recording; raises OSError if it is not there."""
    about = path.stat()
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == GZIP
            raw.seek(0)
            source = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw
            first = source.readline(LONGEST_LINE_BYTES)
            raw.seek(max(0, about.st_size - CHUNK_BYTES))
            last = raw.read(CHUNK_BYTES)
            locked = is_locked(raw.fileno())
        if packed:
            with contextlib.suppress(zlib.error):
                last = zlib.decompress(last[max(0, last.rfind(MEMBER)) :], 16 + zlib.MAX_WBITS)
    except (OSError, EOFError, zlib.error) as error:
        path.stat()
        return Outline(str(path), about.st_size, about.st_mtime, problem=f"{path} cannot be read: {error}")
    last = last[: -len(b"\n")] if last.endswith(b"\n") else last
    lines = [line.decode("utf-8", "replace") for line in (first, last.rpartition(b"\n")[2])]
    return Outline(str(path), about.st_size, about.st_mtime, lines[0], lines[1], locked)


def is_locked(descriptor: int) -> bool:
    """Return whether another process has locked an open file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def recordings() -> "list[Outline]":
    """Return the outlines of the user's recordings, in the folders that tfmon takes where nothing is installed."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    places = [Path(state), Path.home() / "Library" / "Application Support"]
    named = os.environ.get("TFMON_RECORDINGS")
    result = []
    for folder in [Path(named)] if named else [place / "tfmon" / "recordings" for place in places]:
        with contextlib.suppress(OSError):
            for path in recordings_in(folder):
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    result.append(outline(path))
    return result


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
    """Return the first line of a run; raises OSError if nobody listens."""
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
                write(targets[source], chunk)


def write(descriptor: int, chunk: bytes) -> None:
    """Write all of it."""
    while chunk:
        chunk = chunk[os.write(descriptor, chunk) :]


def say(value: object) -> None:
    """Write a line of JSON."""
    write(1, json.dumps(value).encode() + b"\n")


def send(path: Path) -> None:
    """Write the size of a file, and then its bytes."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        say(size)
        for start in range(0, size, CHUNK_BYTES):
            write(1, file.read(min(CHUNK_BYTES, size - start)))


def read_line() -> bytes:
    """Read a line from stdin and no byte more; leave where stdin has ended."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit()
        line += byte
    return line


if __name__ == "__main__":
    write(1, sys.argv[1].encode() + b" ")
    say({"runs": greetings()})
    while True:
        chosen = os.fsdecode(read_line()[:-1])
        if not chosen:
            say(recordings())
        elif Path(chosen).is_socket():
            pass_on(chosen)
            break
        else:
            send(Path(chosen))
