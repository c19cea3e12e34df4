"""The folder of recordings, kept below a size."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tfmon.model.folder_views import KEPT
from tfmon.model.ports import RunInfo
from tfmon.recordings.header_lines import RecordingError
from tfmon.recordings.reader import peek, read_outline
from tfmon.recordings.remote_bridge import Outline, outline, recordings_in
from tfmon.system.view_files import is_locked, lock, recordings_folder, remove

LIMIT_BYTES = 512 * 2**20
EXAMPLE = Path(__file__).with_name("example.jsonl.gz")
PLAIN, PACKED, PART = ".jsonl", ".jsonl.gz", ".part"
STALE_S = 3_600

folder = recordings_folder


def create(scenario: str, directory: Path | None = None, suffix: str = ".jsonl.gz") -> tuple[Path, int]:
    """Make and open a new private file; raises OSError."""
    directory = directory or folder()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    word = re.sub(r"[^A-Za-z0-9_.-]+", "-", scenario).strip("-.")[:40] or "race"
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{word}"
    for number in range(1, 1_000):
        path = directory / f"{name}{'' if number == 1 else f'-{number}'}{suffix}"
        with contextlib.suppress(FileExistsError):
            return path, create_file(path)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(directory / name))


def create_file(path: Path) -> int:
    """Make, open and lock a private file; raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    lock(fd)
    return fd


def make_room(keep: Path, limit_bytes: int = LIMIT_BYTES) -> bool:
    """Remove the oldest recordings; return False if `keep` does not fit."""
    sizes = {}
    for path in keep.parent.glob(f"*{PART}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()
    for path in _files(keep.parent):
        with contextlib.suppress(OSError):
            sizes[path] = path.stat()
    total = sum(result.st_size for result in sizes.values())
    for path in sorted(sizes, key=lambda path: (sizes[path].st_mtime_ns, path.name)):
        if total <= limit_bytes:
            return True
        if path != keep and not is_locked(path):
            with contextlib.suppress(OSError):
                _remove(path)
                total -= sizes[path].st_size
    return total <= limit_bytes or keep not in sizes or sizes[keep].st_size <= limit_bytes


def runs() -> list[RunInfo]:
    """Return all recordings, the oldest first."""
    result = []
    for path in _files(folder()):
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            result.append(outline(path))
    return runs_of(result)


def runs_of(outlines: Iterable[Outline]) -> list[RunInfo]:
    """Return recordings, the oldest first."""
    dated = []
    for facts in outlines:
        run = _run(facts)
        began_s = facts.modified_s if run.header is None else run.header.wall_s(run.header.started_ns)
        dated.append((began_s, run.file.name, run))
    return [run for _, _, run in sorted(dated, key=lambda dated: dated[:2])]


def run_id(path: Path) -> str:
    """Return the name of a recording in commands."""
    return path.name.removesuffix(".gz").removesuffix(PLAIN)


def find(word: str) -> Path:
    """Return the recording of a path, an id's beginning, `last` or `last~1`; raises RecordingError."""
    if Path(word).is_file():
        return Path(word)
    if os.sep in word:
        raise RecordingError(f"there is no recording {word}", "tfmon runs lists those that are here")
    return choose(word, _files(folder()), runs, str(folder()), "tfmon runs")


def choose(
    word: str, paths: Sequence[Path], runs: Callable[[], Sequence[RunInfo]], where: str, command: str
) -> Path:
    """Return one of `paths`; see `find`."""
    if match := re.fullmatch(r"last(?:~(\d{1,6}))?", word):
        known = runs()
        over = [run for run in known if not run.running]
        back = int(match[1] or 0) + 1
        if back > len(over):
            ended = " that ended" if len(known) > len(over) else ""
            raise RecordingError(f"there are {len(over)} recordings{ended} in {where}, so there is no {word}")
        return over[-back].file
    exact = [path for path in paths if run_id(path) == word]
    result = exact or [path for path in paths if path.name.startswith(word)]
    if not result:
        raise RecordingError(f"there is no recording {word}", f"{command} lists those in {where}")
    if len(result) > 1:
        raise RecordingError(
            f"{len(result)} recordings begin with {word!r}", ", ".join(run_id(path) for path in result[-4:])
        )
    return result[0]


def delete(path: Path) -> None:
    """Delete a recording, unless it is being written; raises RecordingError."""
    if path.is_file() and is_locked(path):
        raise RecordingError(f"{run_id(path)} is being written, so it cannot be deleted", "end its race first")
    try:
        _remove(path)
    except OSError as error:
        raise RecordingError(f"{run_id(path)} cannot be deleted: {error.strerror or error}") from None


def _remove(path: Path) -> None:
    store = None
    with contextlib.suppress(RecordingError):
        view = peek(path)[0].views.get("")
        store = Path(view.store) if view is not None else None
    path.unlink()
    if store is not None and store.parent == path.parent.resolve() and store.name.endswith(KEPT):
        remove(store)


def _run(facts: Outline) -> RunInfo:
    path = Path(facts.path)
    try:
        header, closed = read_outline(facts)
    except RecordingError as error:
        return RunInfo(run_id(path), facts.path, bytes=facts.size, problem=error.message)
    return RunInfo(
        run_id(path),
        facts.path,
        started=header.started,
        scenario=header.scenario,
        mode=header.mode,
        lanes=(closed and closed.lanes) or tuple(spec.name for spec in header.lanes),
        verdict=closed.verdict if closed else "",
        ratio=closed.ratio if closed else None,
        failure=closed.failure if closed else "",
        seconds=closed.seconds if closed else None,
        bytes=facts.size,
        running=closed is None and facts.locked,
        header=header,
        closed=closed,
    )


def _files(directory: Path) -> list[Path]:
    try:
        return recordings_in(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordingError(f"{directory} cannot be read: {error.strerror}") from error
