"""The recorded runs as the screen sees them: the port `Runs`, over the library of recordings and the reports."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tfmon.analysis.analysis import analyse
from tfmon.model.ports import OpenReplay, RunInfo
from tfmon.recordings import library, sweeps
from tfmon.recordings.compare import compare
from tfmon.recordings.figures import read_recorded
from tfmon.recordings.header import RecordingError
from tfmon.recordings.player import Player
from tfmon.recordings.reader import Recording
from tfmon.reports.diff import to_text as diff_text
from tfmon.reports.race import to_text
from tfmon.runner.repeat import command_line

LOWEST_PRIORITY = 19


class RecordedRuns:
    """The recordings in the user's folder. Every method raises RecordingError, which is a TfmonError."""

    def list(self) -> Sequence[RunInfo]:
        """Return all recordings by their start, the oldest first."""
        return [run.info() for run in library.runs()]

    def delete(self, id: str) -> None:
        """Delete a recording for good."""
        library.delete(_path(id))

    def rename(self, id: str, name: str) -> None:
        """Give a recording a name, or take it away with ""."""
        library.rename(_path(id), name)

    def diff(self, first: str, second: str) -> str:
        """Return the comparison of two races as text."""
        return diff_text(compare(*(read_recorded(_path(id))[0] for id in (first, second))))

    def report(self, path: str) -> str:
        """Write a report of a recording, or of a sweep, into the working directory; return where it is.

        A child writes it at the lowest priority, because a race may run.
        """
        recording = Path(path)
        if not recording.exists():  # compressed meanwhile, as the race is over
            recording = recording.with_name(recording.name + ".gz")
        name = library.run_id(recording).removesuffix(sweeps.SUFFIX)
        target = Path.cwd() / f"tfmon-{name}-{time.strftime('%H%M%S')}.html"
        command = [sys.executable, "-m", "tfmon", "export", str(recording), "--html", str(target)]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, LOWEST_PRIORITY)
            _, said = child.communicate()
        if child.returncode:
            lines = said.strip().splitlines() or [f"exit code {child.returncode}"]
            raise RecordingError(lines[0].removeprefix("tfmon: "), " ".join(map(str.strip, lines[1:2])))
        return f"saved {target}"

    def replay(self, id: str) -> OpenReplay:
        """Open a recording to play it."""
        return OpenPlayer(Recording(_path(id)))


class OpenPlayer(Player):
    """A player that knows the text and the command of its race, and closes its recording."""

    def table(self) -> str:
        """Return the race at the moment that is shown as text."""
        return to_text(analyse(self.session.snapshot()))

    def repeat(self) -> str:
        """Return the command that races these lanes with the settings of the moment that is shown."""
        return command_line(self.session.snapshot())

    def close(self) -> None:
        """Close the file."""
        self._recording.__exit__(None, None, None)


def _path(id: str) -> Path:
    """Return the recording of exactly that id; raises RecordingError for one that is gone."""
    for suffix in (library.PACKED, library.PLAIN):
        path = library.folder() / (id + suffix)
        if Path(id).name == id and path.is_file():
            return path
    raise RecordingError(f"there is no recording {id} any more", "it was deleted, or dropped to make room")
