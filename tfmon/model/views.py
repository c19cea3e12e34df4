"""Views of the working folder: how lanes see it, and the files that they wrote, which are kept beside recordings.

Each race has a store, a folder that only its user can read. In it each process of a lane has a place, such as `A`,
and `A-2` after a restart. While it runs a place has `upper` and `work` (of an overlay), or `copy`. When it is
settled, only `written` is left: what the lane wrote.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

OVERLAY, COPY, IN_PLACE = "overlay", "copy", "in place"
WRITTEN, UPPER, WORK = "written", "upper", "work"
KEPT, NOT_KEPT = ".files", ".files.part"
"""How the names of stores end: of a recorded race, and of one whose files nobody wants."""
LIMIT_BYTES = 4 * 2**30
"""Most that all kept files take together, where no setting says otherwise."""
ENTER = "import sys; sys.path.insert(0, sys.argv[1]); from tfmon.lanes.enter_view import main; main(sys.argv[2:])"
MOST_ENTRIES = 20_000
"""Entries of a folder that are looked at, which takes some tenths of a second."""
MOST_EDITED = 3
"""Files that are named of those that were edited while lanes ran."""
_locked: dict[str, int] = {}
"""Descriptors of this process's own stores, which stay locked until it ends."""


@dataclass(frozen=True, slots=True)
class View:
    """How the lanes of a race on one machine see the working folder."""

    kind: str
    """`overlay`: the same paths, and what a lane writes goes elsewhere; `copy`; or `in place`."""
    folder: str
    """The working folder."""
    reason: str = ""
    """Why it is not the better one; empty for an overlay."""
    store: str = ""
    """Where the files go that the lanes write; before the race the folder of all stores. Empty in place."""
    limit_bytes: int = LIMIT_BYTES
    kept: bool = True
    """Whether what lanes write is kept: it goes with the recording."""

    @property
    def text(self) -> str:
        """What it means for the user's files, in one line."""
        kept = "kept beside the recording" if self.kept else "not kept"
        if self.kind == OVERLAY:
            return f"each lane has a copy-on-write view of {self.folder}; what it writes is {kept}"
        if self.kind == COPY:
            return f"each lane has a copy of {self.folder}; what it writes is {kept} (no view: {self.reason})"
        return f"all lanes write to {self.folder} itself{': ' * bool(self.reason)}{self.reason}"

    def begun(self, number: int) -> View:
        """Return the view with a store of its own, for a race that begins now."""
        if self.kind == IN_PLACE:
            return self
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{number}{KEPT if self.kept else NOT_KEPT}"
        before = Path(self.store)
        base = before.parent if before.name.endswith((KEPT, NOT_KEPT)) else before
        return replace(self, store=str(base / name))

    def of_lane(self, name: str, process: int) -> LaneView | None:
        """Return the view of a lane's process, counted from 1; None in place."""
        if self.kind == IN_PLACE:
            return None
        place = Path(self.store) / (name if process == 1 else f"{name}-{process}")
        return LaneView(self.kind, self.folder, str(place), self.limit_bytes)


@dataclass(frozen=True, slots=True)
class LaneView:
    """The view of one process of a lane."""

    kind: str
    folder: str
    place: str
    """Where its files are."""
    limit_bytes: int = LIMIT_BYTES


@dataclass(frozen=True, slots=True)
class Written:
    """What a process of a lane wrote."""

    files: int = 0
    bytes: int = 0
    dropped: tuple[str, ...] = ()
    """Files that were not kept, because all together are larger than the limit."""
    edited: tuple[str, ...] = ()
    """Files of the folder itself that somebody changed meanwhile; some of them."""


def default_base() -> Path:
    """Return where stores are on Linux, if no setting of the library of recordings says otherwise."""
    named = os.environ.get("TFMON_RECORDINGS")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(named) if named else Path(state).expanduser() / "tfmon" / "recordings"


def entry(view: LaneView, pipe: int) -> list[str]:
    """Return the words that run the command behind them in a view; a metric pipe is told of failures, or -1."""
    package = str(Path(__file__).parents[2])
    return [sys.executable, "-I", "-S", "-c", ENTER, package, view.kind, view.folder, view.place, str(pipe)]


def describe(views: Mapping[str, View]) -> list[str]:
    """Return a line for each machine that says where lanes write."""
    return [f"on {host}: {view.text}" if host else view.text for host, view in views.items()]


# ---------------- a store while its race runs


def open_place(place: Path) -> None:
    """Make a place, and its store unless it is there, locked until this process ends; raises OSError."""
    store = place.parent
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.mkdir(mode=0o700)
    if str(store) not in _locked:
        _locked[str(store)] = fd = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def close_store(store: Path) -> None:
    """Unlock a store, and remove it if its files are not kept or there are none."""
    fd = _locked.pop(str(store), None)
    if fd is not None:
        os.close(fd)
    if store.name.endswith(NOT_KEPT):
        remove(store)
    with contextlib.suppress(OSError):
        store.rmdir()


def _is_free(store: Path) -> bool:
    """Return whether no process has locked a store."""
    try:
        fd = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def sweep(base: Path, limit_bytes: int) -> None:
    """Remove what killed races left and nobody wants, and of all kept files the oldest beyond the limit."""
    free = sorted(one for one in base.glob(f"*{KEPT}*") if _is_free(one))
    for store in [one for one in free if one.name.endswith(NOT_KEPT)]:
        remove(store)
    kept = [one for one in free if one.name.endswith(KEPT)]
    sizes = {store: sum(size for _, size in files_of(store)) for store in kept}
    total = sum(sizes.values())
    for store in kept:
        if total > limit_bytes:
            remove(store)
            total -= sizes[store]


# ---------------- what a lane wrote


def settle(view: LaneView, age_s: float) -> Written:
    """Leave of a place whose process has ended only the files that the lane wrote, and say what they are.

    Args:
        view: The view of the process.
        age_s: How long ago it was started.

    Thread: any; takes as long as looking at the files.
    """
    place, edited = Path(view.place), tuple(_edited(view, time.time() - age_s))
    if place.parent.name.endswith(NOT_KEPT):
        remove(place)
        if not any(place.parent.iterdir()):
            close_store(place.parent)
        return Written(edited=edited)
    with contextlib.suppress(OSError):
        tidy(place, Path(view.folder))
    found = sorted(files_of(place / WRITTEN), key=lambda one: one[1])
    dropped = []
    while found and sum(size for _, size in found) > view.limit_bytes:
        path, _ = found.pop()
        dropped.append(str(path.relative_to(place / WRITTEN)))
        path.unlink()
    return Written(len(found), sum(size for _, size in found), tuple(dropped), edited)


def tidy(place: Path, folder: Path) -> None:
    """Turn an overlay's upper folder, or a copy of `folder`, into `written`."""
    if (place / UPPER).is_dir():
        remove(place / WORK)
        (place / UPPER).rename(place / WRITTEN)
    elif (place / COPY).is_dir():
        for path, _ in files_of(place / COPY):
            if _is_same(path, folder / path.relative_to(place / COPY)):
                path.unlink()
        for root, _, _ in os.walk(place / COPY, topdown=False):
            with contextlib.suppress(OSError):
                Path(root).rmdir()
        with contextlib.suppress(FileNotFoundError):
            (place / COPY).rename(place / WRITTEN)


def files_of(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield each file and symbolic link below a folder, with its size; marks of an overlay are none."""
    for root, names, files in os.walk(folder):
        for name in [*files, *(name for name in names if Path(root, name).is_symlink())]:
            path = Path(root, name)
            with contextlib.suppress(OSError):
                found = path.lstat()
                if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
                    yield path, found.st_size


def removed_in(written: Path) -> Iterator[Path]:
    """Yield what a lane removed, by the marks that an overlay leaves."""
    for root, _, files in os.walk(written):
        for path in (Path(root, name) for name in files):
            with contextlib.suppress(OSError):
                if stat.S_ISCHR(path.lstat().st_mode):
                    yield path


def take_out(store: Path, lane: str, target: Path) -> int:
    """Copy the files that a lane's last process wrote into a new folder, and return how many they are.

    Raises: OSError; FileNotFoundError where the lane kept none, FileExistsError for a folder that is not empty.
    """
    places = [place for place in store.iterdir() if place.name.partition("-")[0] == lane]
    latest = max(places, key=lambda place: int(place.name.partition("-")[2] or 1), default=store / lane)
    written = latest / WRITTEN
    if not written.is_dir():
        raise FileNotFoundError(2, "it kept no files", str(written))
    if target.exists() and any(target.iterdir()):
        raise FileExistsError(17, "it is there already and not empty", str(target))
    count = 0
    for path, _ in files_of(written):
        copy = target / path.relative_to(written)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy, follow_symlinks=False)
        count += 1
    return count


def remove(path: Path) -> None:
    """Remove a folder with what is in it, also where a script, or an overlay, made it unreadable."""

    def permit(function: Callable[..., Any], name: str, _: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(Path(name).parent, 0o700)  # noqa: PTH101
            os.chmod(name, 0o700)  # noqa: PTH101
            if function in (os.open, os.scandir, os.lstat):
                shutil.rmtree(name, ignore_errors=True)
            else:
                function(name)

    shutil.rmtree(path, onerror=permit)


def _is_same(one: Path, other: Path) -> bool:
    try:
        first, second = one.lstat(), other.lstat()
    except OSError:
        return False
    if stat.S_ISLNK(first.st_mode) and stat.S_ISLNK(second.st_mode):
        return one.readlink() == other.readlink()
    return (first.st_mode, first.st_size, first.st_mtime_ns) == (
        second.st_mode,
        second.st_size,
        second.st_mtime_ns,
    )


# ---------------- the folder itself


def walk(folder: Path) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield what is below a folder, of its own file system, by its path; None for what cannot be read."""
    device = folder.stat().st_dev
    waiting = [str(folder)]
    while waiting:
        here = waiting.pop()
        try:
            entries = list(os.scandir(here))
        except OSError:
            yield here, None
            continue
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it has gone
            yield entry.path, found
            if stat.S_ISDIR(found.st_mode) and found.st_dev == device:
                waiting.append(entry.path)


def _edited(view: LaneView, since_s: float) -> Iterator[str]:
    """Yield some files of the folder itself that were changed since then; of a large one, of what is looked at."""
    own = os.path.dirname(os.path.dirname(view.place)) + os.sep  # noqa: PTH120 - of recordings and stores
    with contextlib.suppress(OSError):
        changed = (
            os.path.relpath(path, view.folder)
            for path, found in itertools.islice(walk(Path(view.folder)), MOST_ENTRIES)
            if found is not None and stat.S_ISREG(found.st_mode) and found.st_ctime > since_s
            if not path.startswith(own)
        )
        yield from itertools.islice(changed, MOST_EDITED)
