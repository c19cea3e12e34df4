"""The files that lanes write in their views of the working folder.

Each race has a private store, locked while it runs, with a lane store for each process of a lane, such as `A`, and
`A-2` after a restart: `written`, the upper folder of an overlay or the copy, and until the end `work` and
`changes`.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.model.folder_views import COPY, KEPT, NOT_KEPT, PORTS, View

WRITTEN, WORK = "written", "work"
CHANGES = "changes"
"""In a lane store: JSON with the paths to which a copy links, and the content of changed files in Latin-1, or null
for a removed file."""
LIMIT_BYTES = 4 * 2**30
"""Limit for all kept files."""
MOST_ENTRIES = 20_000
"""Read in some tenths of a second."""
MOST_EDITED = 3
_ENTER = "import sys; sys.path[:0] = sys.argv[1:2]; from tfmon.lanes.enter_view import main; main(*sys.argv[2:])"
_locked: dict[Path, int] = {}


def recordings_folder() -> Path:
    """Return the folder of recordings, beside which views are."""
    configured = os.environ.get("TFMON_RECORDINGS")
    if configured:
        return Path(configured)
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    state = "~/Library/Application Support" if sys.platform == "darwin" else state
    return Path(state).expanduser() / "tfmon" / "recordings"


def new_store(view: View, number: int) -> View:
    """Return the view with a new store."""
    if not view.store:
        return view
    before = Path(view.store)
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{number}{''.join(before.suffixes)}"
    return replace(view, store=str(before.with_name(name)))


def open_lane_store(view: View, files: Mapping[str, str | None]) -> None:
    """Create a lane store with changed files, see `CHANGES`; raises OSError."""
    lane_store = Path(view.store)
    lane_store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if lane_store.parent not in _locked:
        _locked[lane_store.parent] = os.open(lane_store.parent, os.O_RDONLY)
        lock(_locked[lane_store.parent])
        (lane_store.parent / PORTS).mkdir(exist_ok=True)
    for path in (lane_store, lane_store / WORK, lane_store / WRITTEN):
        path.mkdir(mode=0o700)
    if view.kind != COPY:  # an overlay shows the attributes of its upper folder
        if os.geteuid() == 0:
            result = Path(view.folder).stat()
            os.chown(lane_store / WRITTEN, result.st_uid, result.st_gid)
        shutil.copystat(view.folder, lane_store / WRITTEN)
    if files or view.links:
        (lane_store / CHANGES).write_text(json.dumps([view.links, files]))


def entry(view: View) -> list[str]:
    """Return the arguments that run a command in a view."""
    package = str(Path(__file__).parents[2])
    return [sys.executable, "-I", "-S", "-c", _ENTER, package, view.kind, view.folder, view.store]


def settle(view: View, age_s: float) -> View:
    """Reduce a store to the written files; return the view. Thread: any; may take long."""
    store, written = Path(view.store), {}
    edited = tuple(itertools.islice(_edited(view, time.time() - age_s), MOST_EDITED))
    remove(store / PORTS)
    for lane_store in sorted(store.glob("*")) if view.store.endswith(KEPT) else ():
        tidy(lane_store, view)
        sizes = [size for _, size in files_of(lane_store / WRITTEN) if size is not None]
        written[lane_store.name] = (len(sizes), sum(sizes))
    close_store(store)
    return replace(view, written=written, edited=edited)


def close_store(store: Path) -> None:
    """Unlock a store; remove it if empty or not kept."""
    if store in _locked:
        os.close(_locked.pop(store))
    if store.name.endswith(NOT_KEPT):
        remove(store)
    for empty, *_ in os.walk(store, topdown=False):
        with contextlib.suppress(OSError):
            Path(empty).rmdir()


def tidy(lane_store: Path, view: View) -> None:
    """Reduce a lane store to the written files."""
    for link in view.links:
        if (path := lane_store / WRITTEN / link).is_symlink():  # the script may have written its own
            path.unlink()
    (lane_store / CHANGES).unlink(missing_ok=True)
    if view.kind == COPY and (lane_store / WORK).exists():
        for name, _ in files_of(lane_store / WRITTEN):
            if _mark(lane_store / WRITTEN / name) == _mark(Path(view.folder, name)):
                (lane_store / WRITTEN / name).unlink()
    remove(lane_store / WORK)


def _mark(path: Path) -> tuple[int, int, int] | None:
    with contextlib.suppress(OSError):
        result = path.lstat()
        return result.st_mode, result.st_size, result.st_mtime_ns
    return None


def files_of(written: Path) -> Iterator[tuple[str, int | None]]:
    """Yield each path and size; `None` is a removed file."""
    for root, folders, files in os.walk(written):
        for path in (Path(root, name) for name in (*files, *folders)):
            with contextlib.suppress(OSError):
                result = path.lstat()
                if stat.S_ISREG(result.st_mode) or stat.S_ISLNK(result.st_mode):
                    yield str(path.relative_to(written)), result.st_size
                elif stat.S_ISCHR(result.st_mode):
                    yield str(path.relative_to(written)), None


def take_out(lane_store: Path, target: Path) -> int:
    """Copy the files of a lane store; raises OSError."""
    if not (lane_store / WRITTEN).is_dir():
        raise FileNotFoundError(2, "it kept no files", str(lane_store))
    target.mkdir(parents=True)
    names = [name for name, size in files_of(lane_store / WRITTEN) if size is not None]
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(lane_store / WRITTEN / name, target / name, follow_symlinks=False)
    return len(names)


def sweep(base: Path) -> None:
    """Remove files of killed races and old ones."""
    total = 0
    for store in sorted(base.glob(f"*{KEPT}*"), reverse=True):
        if is_locked(store):
            continue
        for path in (store / PORTS, *store.glob(f"*/{WORK}")):
            remove(path)
        for path in store.glob(f"*/{CHANGES}"):
            path.unlink(missing_ok=True)
        total += sum(size or 0 for _, size in files_of(store)) if store.name.endswith(KEPT) else 0
        if total > LIMIT_BYTES:
            remove(store)
        close_store(store)


def remove(folder: Path) -> None:
    """Remove a folder, even with unreadable parts."""
    for root, names, _ in os.walk(folder):
        for path in (Path(root, name) for name in names):
            with contextlib.suppress(OSError):
                if not path.is_symlink():
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def entries(folder: Path, without: Sequence[str] = ()) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the first entries of a folder."""
    for path in itertools.islice(_paths(folder, without), MOST_ENTRIES):
        with contextlib.suppress(OSError):
            yield path, os.lstat(path)


def _paths(folder: Path, without: Sequence[str]) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if f"{root}/{name}" not in without]
        yield from (path for name in (*folders, *files) if (path := f"{root}/{name}") not in without)


def _edited(view: View, since_s: float) -> Iterator[str]:
    base = os.path.dirname(view.store)  # noqa: PTH120 - paths of views are text
    for path, result in entries(Path(view.folder)):
        changed = stat.S_ISREG(result.st_mode) and result.st_ctime > since_s and not path.startswith(base)
        if changed and not is_locked(Path(path)):  # not the recording
            yield os.path.relpath(path, view.folder)


def lock(fd: int) -> bool:
    """Lock an open file, if the file system can; return False if another process has locked it."""
    with contextlib.suppress(OSError):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_locked(path: Path) -> bool:
    """Return whether a file is locked or unreadable."""
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
