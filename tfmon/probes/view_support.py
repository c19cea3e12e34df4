"""Decides how lanes see the working folder."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from tfmon.model.folder_views import COPY, IN_PLACE, KEPT, NOT_KEPT, OVERLAY, View
from tfmon.system.programs import run_program
from tfmon.system.view_files import MOST_ENTRIES, close_store, entries, entry, open_lane_store

COPY_BYTES = 200 * 2**20
TRIAL_S = 10.0


def find_view(
    folder: str, base: Path, copy_bytes: int = COPY_BYTES, *, kept: bool = True, links: tuple[str, ...] = ()
) -> View:
    """Return the best view of a folder; a copy links to `links` in it."""
    folder, base = os.path.realpath(folder), Path(os.path.realpath(base))
    if folder == "/" or base in (Path(folder), *Path(folder).parents):
        return View(IN_PLACE, folder, "it is the root of all files, or in the folder of the recordings")
    store = str(base / f"race{KEPT if kept else NOT_KEPT}")
    why = why_no_overlay(folder, base)
    if not why:
        return View(OVERLAY, folder, store=store)
    if no_copy := why_no_copy(folder, base, copy_bytes, links):
        return View(IN_PLACE, folder, f"{why}; and no copy can be made: {no_copy}")
    return View(COPY, folder, why, store, links=links)


def why_no_copy(folder: str, base: Path, most_bytes: int, links: tuple[str, ...] = ()) -> str:
    """Return why a folder cannot be copied, or empty."""
    if Path(folder) in base.parents:
        return "it has the recordings"
    result = list(entries(Path(folder), [f"{folder}/{link}" for link in links]))
    if len(result) == MOST_ENTRIES:
        return f"more than {MOST_ENTRIES:,} files"
    for path, status in result:
        if not stat.S_ISLNK(status.st_mode) and not os.access(path, os.R_OK):
            return f"{path} cannot be read"
    size = sum(status.st_size for _, status in result)
    return f"{size / 2**20:,.0f} MiB, view_copy={most_bytes >> 20} MiB" if size > most_bytes else ""


def why_no_overlay(folder: str, base: Path) -> str:
    """Try an overlay; return why it is impossible, or empty."""
    if sys.platform != "linux":
        return "copy-on-write views need Linux"
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = tempfile.mkdtemp(prefix="trial-", suffix=NOT_KEPT, dir=base)
    except OSError as error:
        return f"nothing can be written in {base}: {error.strerror}"
    trial = "! test -w . || { : > .tfmon-trial && rm .tfmon-trial; }"
    view = View(OVERLAY, folder, store=f"{store}/A")
    try:
        try:
            os.setxattr(store, "user.tfmon", b"")
        except OSError as error:  # without, an overlay cannot make a folder again
            return f"the file system of {base} has no extended attributes: {error.strerror}"
        open_lane_store(view, {})
        done = run_program([*entry(view), "/bin/sh", "-c", trial], TRIAL_S, folder=folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the trial of an overlay failed: {error}"
    finally:
        close_store(Path(store))
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        reason = reason.partition("could not be made: ")[2].partition(";")[0] or reason
        if reason.startswith("mount overlay"):
            return f"{reason}; the file system of the folder or of the recordings allows none (dmesg has more)"
        return f"{reason}; the system allows no user namespaces here"
    return _foreign(folder) if os.geteuid() else ""


def _foreign(folder: str) -> str:
    ids = os.geteuid(), os.getegid()
    for path, result in entries(Path(folder)):
        if (result.st_uid, result.st_gid) != ids and not stat.S_ISLNK(result.st_mode) and os.access(path, os.W_OK):
            return f"{path} is of another user or group, which an overlay without root's rights cannot write"
    return ""
