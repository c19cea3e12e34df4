"""The bridge on another machine: its Python (3.8 or newer) runs this text without tfmon.

It prints the sockets of the user's runs, then answers lines from stdin: an empty one with the recordings, a
recording's path with its size and bytes. A socket's path passes bytes both ways.
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
"""Start of a gzip member."""
SUFFIXES = (".jsonl", ".jsonl.gz")


class Outline(NamedTuple):
    """The listed facts of a recording."""

    path: str
    size: int
    modified_s: float
    first: str = ""
    last: str = ""
    locked: bool = False
    problem: str = ""


def recordings_in(folder: Path) -> "list[Path]":
    """Return the recordings in a folder; raises OSError."""
    paths = [path for path in folder.iterdir() if path.name.endswith(SUFFIXES) and not path.name.startswith(".")]
    return sorted(path for path in paths if path.is_file())  # no named pipes


def outline(path: Path) -> Outline:
    """Return the listed facts of a recording; raises OSError."""
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
    """Return whether another process has locked a file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def recordings() -> "list[Outline]":
    """Return the user's recordings."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    parents = [Path(state), Path.home() / "Library" / "Application Support"]
    configured = os.environ.get("TFMON_RECORDINGS")
    result = []
    for folder in [Path(configured)] if configured else [parent / "tfmon" / "recordings" for parent in parents]:
        with contextlib.suppress(OSError):
            for path in recordings_in(folder):
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    result.append(outline(path))
    return result


def folders() -> "list[Path]":
    """Return the folders of sockets: a run in tmux may use another one."""
    chosen, user = os.environ.get("TFMON_RUNTIME"), str(os.getuid())
    if chosen:
        return [Path(chosen)]
    parents = [
        Path("/run/user", user),
        Path("/var/run/user", user),
        Path(tempfile.gettempdir(), "runtime-" + user),
    ]
    parents.append(Path.home() / "Library" / "Caches" / "TemporaryItems")
    parents.append(Path(os.environ.get("XDG_RUNTIME_DIR") or parents[0]))
    return [parent / "tfmon" for parent in parents]


def greetings(directories: "list[Path]") -> "list[tuple[str, str]]":
    """Return the sockets of the user's runs and their greetings, oldest first; remove dead sockets."""
    result = {}
    for path in [path for directory in directories for path in directory.glob("*.sock")]:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as run:
            about = path.stat()
            if about.st_uid != os.getuid():
                continue
            run.settimeout(ANSWER_S)
            try:
                run.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
                continue
            line = run.makefile("rb").readline(CHUNK_BYTES).decode("utf-8", "replace")
            result[about.st_ino] = (about.st_mtime, str(path), line)
    return [(path, line) for _, path, line in sorted(result.values())]


def pass_on(path: str) -> None:
    """Pass bytes between a run and stdin and stdout."""
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
    """Write all bytes."""
    while chunk:
        chunk = chunk[os.write(descriptor, chunk) :]


def main(marker: str) -> None:
    """List the runs, and answer requests."""
    write(1, f"{marker} {json.dumps({'runs': greetings(folders())})}\n".encode())
    with open(0, "rb", buffering=0) as stdin:
        while line := stdin.readline():
            path = Path(os.fsdecode(line[:-1]))
            if line == b"\n":
                write(1, json.dumps(recordings()).encode() + b"\n")
            elif path.is_socket():
                pass_on(str(path))
                return
            else:
                with path.open("rb") as file:
                    write(1, b"%d\n" % os.fstat(file.fileno()).st_size)
                    while chunk := file.read(CHUNK_BYTES):
                        write(1, chunk)


if __name__ == "__main__":
    main(sys.argv[1])
