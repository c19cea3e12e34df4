"""The runs of another machine."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tfmon.api.settings import find_host
from tfmon.api.sockets import LONGEST_BYTES, choose, live_runs
from tfmon.errors import EXIT_LANE_FAILED, TfmonError
from tfmon.lanes.remote.start_program import PATIENCE_S, Wire
from tfmon.lanes.remote.trouble import no_agent, why_ended
from tfmon.model.codec import clean
from tfmon.model.ports import RunInfo
from tfmon.recordings import library, remote_bridge
from tfmon.recordings.remote_bridge import CHUNK_BYTES, Outline
from tfmon.system.replace_file import replacing

EXIT_S = 5.0


def copies() -> Path:
    """Return the folder of copied recordings."""
    return library.folder().with_name("copies")


class RemoteRuns(Wire):
    """The runs of a host, over one connection."""

    def __init__(self, name: str) -> None:
        super().__init__(find_host(name))
        answer = self.first_word(Path(remote_bridge.__file__))
        self.connection.settimeout(PATIENCE_S)
        try:
            self.runs = live_runs([(str(path), str(line)) for path, line in answer["runs"]], self.host.name)
        except (ValueError, TypeError, KeyError):
            self.close()
            raise no_agent(self.host, "its answer cannot be read") from None

    def connect(self, word: str) -> socket.socket | None:
        """Return the connection to a run."""
        run = choose(self.runs, word)
        if run is None:
            return None
        self.connection.sendall(os.fsencode(run.path) + b"\n")
        return self.connection

    def recorded(self) -> list[RunInfo]:
        """Return the recordings, oldest first; raises TfmonError."""
        with self._answer(b"") as rows:
            return library.runs_of(
                Outline(clean(path), int(size), float(at_s), str(first), str(last), bool(locked), clean(problem))
                for path, size, at_s, first, last, locked, problem in json.loads(self._line(rows))
            )

    def find(self, word: str) -> RunInfo:
        """Return a recording; raises RecordingError."""
        known = self.recorded()
        path = library.choose(
            word, sorted(run.file for run in known), lambda: known, self.host.name, f"tfmon runs {self.host.name}"
        )
        return next(run for run in known if run.file == path)

    def fetch(self, run: RunInfo) -> Path:
        """Return a copy of a recording; raises TfmonError."""
        target = copies() / f"{self.host.name}-{run.file.name}"
        if target.exists() and target.stat().st_size == run.bytes:  # an ended run does not change
            return target
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._answer(os.fsencode(run.path)) as source, replacing(target) as file:
                left = int(self._line(source))
                while left:
                    chunk = source.read(min(left, CHUNK_BYTES))
                    if not chunk:
                        raise ConnectionError
                    left -= file.write(chunk)
        except OSError as error:
            raise TfmonError(f"{target} cannot be written: {error.strerror}", "free some space") from None
        library.make_room(target)
        return target

    def _line(self, source: BinaryIO) -> bytes:
        line = source.readline(LONGEST_BYTES)
        if not line:
            raise ConnectionError
        return line

    @contextlib.contextmanager
    def _answer(self, request: bytes) -> Iterator[BinaryIO]:
        try:
            self.connection.sendall(request + b"\n")
            with self.connection.makefile("rb") as answer:
                yield answer
        except (ValueError, TypeError, LookupError):
            raise no_agent(self.host, "its answer cannot be read") from None
        except (ConnectionError, TimeoutError):
            raise self._lost(self._ended(), f"tfmon runs {self.host.name} tries again") from None

    def lost(self, name: str) -> TfmonError | None:
        """Return the error for a broken connection."""
        code = self._ended()
        if code == 0:
            return None
        return self._lost(code, f"the run goes on if the machine does: tfmon attach {name} shows it again")

    def _lost(self, code: int | None, hint: str) -> TfmonError:
        why = why_ended(self.host, code, self.error_lines())
        message = f"the connection to {self.host.name} is lost: {why}"
        return TfmonError(message, hint, exit_code=EXIT_LANE_FAILED)

    def close(self) -> None:
        """End the connection."""
        self.connection.close()
        self._ended()

    def _ended(self) -> int | None:
        code = self.exit_code(EXIT_S)
        if code is None:
            self.kill()
        return code
