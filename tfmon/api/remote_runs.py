"""The runs under way on another machine: listed and watched over ssh, or whatever reaches it for lanes."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tfmon.api.settings import find_host
from tfmon.api.sockets import LONGEST_BYTES, LiveRun, choose, read_greeting
from tfmon.errors import EXIT_LANE_FAILED, TfmonError, UsageError
from tfmon.lanes.remote import runs_bridge, wire
from tfmon.lanes.remote.trouble import ended_early, no_agent, no_launcher, no_python, too_slow, why_ended

EXIT_S = 5.0
"""How long ssh may take to end after its pipe."""


class RemoteRuns:
    """The runs under way on a host, and one connection there, over which one of them is watched."""

    def __init__(self, name: str) -> None:
        """Connect to the host, and ask; raises TfmonError where it cannot be reached."""
        self.host = find_host(name)
        self.connection, theirs = socket.socketpair()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as the connection
        argv = wire.words_of(self.host)
        try:
            # A session of its own, so that Ctrl+C and Ctrl+Z reach the viewer alone. It ends with the connection.
            self._launcher = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=self._said, start_new_session=True
            )
        except OSError as error:
            raise no_launcher(self.host, argv[0], error) from error
        finally:
            theirs.close()
        self.runs = list(self._ask())
        """The oldest first."""

    def _ask(self) -> Sequence[LiveRun]:
        marker, printed = f"tfmon-{secrets.token_hex(8)}", b""
        patience_s = wire.LAUNCHER_PATIENCE_S if self.host.run else wire.PATIENCE_S
        self.connection.settimeout(patience_s)
        try:
            self.connection.sendall(wire.script_of(self.host, marker, Path(runs_bridge.__file__)))
            with self.connection.makefile("rb") as lines:
                while line := lines.readline(LONGEST_BYTES):
                    before, found, word = line.partition(marker.encode() + b" ")
                    if found:
                        return self._read(word)
                    printed = (printed + before)[-wire.KEPT_BYTES :]
        except TimeoutError:
            self._launcher.kill()
            raise too_slow(self.host, patience_s, self._errors(), printed.decode(errors="replace")) from None
        except OSError:  # it has ended while it was told
            pass
        raise ended_early(self.host, self._exit_code(), self._errors(), printed.decode(errors="replace"))

    def _read(self, word: bytes) -> Sequence[LiveRun]:
        try:
            answer = json.loads(word)
            if "missing" in answer:
                raise no_python(self.host)
            found = [(Path(path), str(line).encode()) for path, line in answer["runs"]]
        except (ValueError, TypeError, KeyError):
            raise no_agent(self.host, "its word cannot be read") from None
        runs = []
        for path, line in found:
            with contextlib.suppress(TfmonError):  # it could not begin
                runs.append(LiveRun(path, read_greeting(line), self.host.name))
        return runs

    def connect(self, word: str) -> socket.socket:
        """Return the connection to the run that a word names; raises UsageError where there is none."""
        run = choose(self.runs, word)
        if run is None:
            name = self.host.name
            raise UsageError(f"{word} is not under way on {name}", f"tfmon runs {name} lists the runs that are")
        self.connection.sendall(os.fsencode(run.path) + b"\n")
        return self.connection

    def lost(self, name: str) -> TfmonError | None:
        """Return the error to report where the connection to a run broke; None where the run has ended there."""
        code = self._exit_code()
        if code == 0:
            return None
        why = why_ended(self.host, code, self._errors())
        failed = TfmonError(
            f"the connection to {self.host.name} is lost: {why}",
            f"the run goes on if the machine does: tfmon attach {name} shows it again",
        )
        failed.exit_code = EXIT_LANE_FAILED
        return failed

    def close(self) -> None:
        """End the connection."""
        self.connection.close()
        self._exit_code()

    def _exit_code(self) -> int | None:
        try:
            return self._launcher.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self._launcher.kill()
            return None

    def _errors(self) -> list[str]:
        self._said.seek(0)
        return self._said.read(wire.KEPT_BYTES).decode(errors="replace").splitlines()
