"""The folder of recordings: names, finds and lists them, and keeps them below a size."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from tfmon.recordings.header import RecordingError

LIMIT_BYTES = 512 * 2**20
"""Most that all recordings in the folder take together."""
FOLDER_VARIABLE = "TFMON_RECORDINGS"
"""Environment variable that names another folder."""
EXAMPLE = Path(__file__).with_name("example.jsonl.gz")
"""A race that comes with tfmon."""
PLAIN, PACKED, PART = ".jsonl", ".jsonl.gz", ".part"
STALE_S = 3_600
"""The rest of an interrupted compression is dropped after so long."""


def folder() -> Path:
    """Return where races are recorded; it may not exist yet."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    from platformdirs import user_state_path

    return user_state_path("tfmon", appauthor=False) / "recordings"


def create(scenario: str) -> tuple[Path, int]:
    """Make a new file for the race of a scenario, private to the user, and open it; raises OSError."""
    place = folder()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    word = re.sub(r"[^A-Za-z0-9_.-]+", "-", scenario).strip("-.")[:40] or "race"
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{word}"
    for number in range(1, 1_000):
        path = place / f"{name}{'' if number == 1 else f'-{number}'}{PLAIN}"
        if not path.with_name(path.name + ".gz").exists():
            with contextlib.suppress(FileExistsError):
                return path, create_file(path)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place / name))


def create_file(path: Path) -> int:
    """Make a new file, private to the user, and open it, locked for writing.

    Raises: OSError; FileExistsError, because no file is overwritten.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def make_room(keep: Path, limit_bytes: int = LIMIT_BYTES) -> bool:
    """Drop the oldest recordings until all fit the limit; return False if `keep` alone does not.

    A recording that is being written is never dropped.
    """
    sizes = {}
    for path in keep.parent.glob(f"*{PART}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()
    for path in _files(keep.parent):
        with contextlib.suppress(OSError):
            sizes[path] = path.stat()
    total = sum(found.st_size for found in sizes.values())
    for path in sorted(sizes, key=lambda path: (sizes[path].st_mtime_ns, path.name)):
        if total <= limit_bytes:
            return True
        if path != keep and not _being_written(path):
            with contextlib.suppress(OSError):
                path.unlink()
                total -= sizes[path].st_size
    return total <= limit_bytes or keep not in sizes or sizes[keep].st_size <= limit_bytes


def recordings() -> list[Path]:
    """Return all recordings in the folder, the oldest first."""
    return sorted(_files(folder()), key=lambda path: (_modified(path), path.name))


def run_id(path: Path) -> str:
    """Return the name of a recording on the command line."""
    return path.name.removesuffix(".gz").removesuffix(PLAIN)


def find(word: str) -> Path:
    """Return the recording with this path, id or beginning of an id, or `last`, or `last~1` for the one before.

    Raises: RecordingError when there is none, or more than one.
    """
    if Path(word).is_file():
        return Path(word)
    if os.sep in word:
        raise RecordingError(f"there is no recording {word}", "tfmon runs lists those that are here")
    known = recordings()
    if match := re.fullmatch(r"last(?:~(\d{1,6}))?", word):
        back = int(match[1] or 0) + 1
        if back > len(known):
            raise RecordingError(f"there are {len(known)} recordings in {folder()}, so there is no {word}")
        return known[-back]
    exact = [path for path in known if run_id(path) == word]
    found = exact or [path for path in known if path.name.startswith(word)]
    if not found:
        raise RecordingError(f"there is no recording {word}", f"tfmon runs lists those in {folder()}")
    if len(found) > 1:
        raise RecordingError(
            f"{len(found)} recordings begin with {word!r}", ", ".join(run_id(path) for path in found[-4:])
        )
    return found[0]


def _files(place: Path) -> Iterator[Path]:
    try:
        paths = list(place.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise RecordingError(f"{place} cannot be read: {error.strerror}") from error
    yield from (path for path in paths if path.name.endswith((PLAIN, PACKED)) and not path.name.startswith("."))


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _being_written(path: Path) -> bool:
    """Return whether a process has locked the file for writing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
