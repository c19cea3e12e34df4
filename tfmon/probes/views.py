"""Whether lanes can have a view of the working folder on this machine: tried, and in words why not."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfmon.model.views import (
    COPY,
    IN_PLACE,
    LIMIT_BYTES,
    MOST_ENTRIES,
    OVERLAY,
    LaneView,
    View,
    entry,
    remove,
    sweep,
    walk,
)

COPY_BYTES = 200 * 2**20
"""A folder of this size is copied for each lane, where no setting says otherwise."""
TRIAL_S = 10.0
_WRITE = ": > .tfmon-trial && rm .tfmon-trial"


@dataclass(frozen=True, slots=True)
class Survey:
    """What is in a folder, as far as it was looked at."""

    bytes: int = 0
    whole: bool = True
    """False for a folder of so many entries that the rest was not looked at."""
    unreadable: str = ""
    """A file or folder that cannot be read; empty for none."""
    foreign: str = ""
    """A file or folder of another user or group that this user may write; empty for none."""


def find_view(
    folder: str, base: Path, copy_bytes: int = COPY_BYTES, limit_bytes: int = LIMIT_BYTES, *, clear: bool = True
) -> View:
    """Return the best view of a folder that lanes can have on this machine; takes some tenths of a second.

    Args:
        folder: The working folder.
        base: The folder of all stores.
        copy_bytes: The most that is copied for each lane.
        limit_bytes: The most that all kept files take together.
        clear: Whether to remove what killed races left there.
    """
    folder = os.path.realpath(folder)
    base = Path(os.path.realpath(base))
    if folder == "/" or base in (Path(folder), *Path(folder).parents):
        return View(IN_PLACE, folder, "it is the root of all files, or the folder of the recordings")
    with suppress(OSError):
        if clear:
            sweep(base, limit_bytes)
    survey = look_at(Path(folder))
    why = why_no_overlay(folder, base, survey)
    if not why:
        return View(OVERLAY, folder, store=str(base), limit_bytes=limit_bytes)
    if Path(folder) in base.parents:
        return View(IN_PLACE, folder, f"{why}; and it has the recordings, so that no copy can be made")
    if survey.unreadable:
        return View(IN_PLACE, folder, f"{why}; and no copy can be made: {survey.unreadable} cannot be read")
    if not survey.whole or survey.bytes > copy_bytes:
        size = f"{survey.bytes / 2**20:,.0f} MiB" if survey.whole else f"more than {MOST_ENTRIES:,} files"
        return View(IN_PLACE, folder, f"{why}; and a copy is too large: {size}, view_copy={copy_bytes >> 20} MiB")
    return View(COPY, folder, why, str(base), limit_bytes)


def look_at(folder: Path) -> Survey:
    """Return what is in a folder; of a large one, of its first entries."""
    user, group = os.geteuid(), os.getegid()
    size, unreadable, foreign = 0, "", ""
    for number, (path, found) in enumerate(walk(folder)):
        if number >= MOST_ENTRIES:
            return Survey(size, False, unreadable, foreign)
        if found is None:
            unreadable = path
            continue
        size += found.st_size if stat.S_ISREG(found.st_mode) else 0
        if user and stat.S_ISREG(found.st_mode) and not os.access(path, os.R_OK):
            unreadable = path
        if (found.st_uid, found.st_gid) != (user, group) and not stat.S_ISLNK(found.st_mode):
            foreign = foreign or (path if os.access(path, os.W_OK) else "")
    return Survey(size, True, unreadable, foreign)


def why_no_overlay(folder: str, base: Path, survey: Survey) -> str:
    """Return why a folder cannot be overlaid here, in words; empty where it can: it was done."""
    if sys.platform != "linux":
        return "copy-on-write views need Linux"
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = tempfile.mkdtemp(prefix=".trial-", dir=base)
    except OSError as error:
        return f"nothing can be written in {base}: {error.strerror}"
    trial = "cat /proc/self/uid_map; " + (_WRITE if os.access(folder, os.W_OK) else "")
    try:
        done = subprocess.run(
            [*entry(LaneView(OVERLAY, folder, place), -1), "/bin/sh", "-c", trial],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TRIAL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the trial failed: {error}"
    finally:
        with suppress(OSError):
            remove(Path(place))
    said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    if done.returncode:
        return explained(said)
    mapped = done.stdout.split()[:3] != ["0", "0", "4294967295"]
    if mapped and survey.foreign:
        return f"{survey.foreign} is of another user or group, which an overlay without root's rights cannot write"
    return ""


def explained(said: str) -> str:
    """Return what a failed trial says, with what to do about it where that is known."""
    what = said.rpartition("could not be made: ")[2]
    if what.startswith(("unshare", "mount /")) or "Permission denied" in what:
        what += "; the system does not allow user namespaces to this program" + apparmor()
    elif what.startswith("mount overlay"):
        what += "; the file system of the folder or of the recordings does not allow an overlay (dmesg has more)"
    return what


def apparmor() -> str:
    """Return which setting of Ubuntu restricts namespaces; empty where it does not."""
    try:
        restricted = (
            Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").read_text("ascii").strip() == "1"
        )
    except OSError:
        restricted = False
    return " (kernel.apparmor_restrict_unprivileged_userns=1)" if restricted else ""
