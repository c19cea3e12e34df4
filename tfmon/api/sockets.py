"""Sockets between viewers and a runner. Each message is a line of JSON.

After the runner's greeting, a viewer that sends the command `follow` receives a snapshot, then each event.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TypeAlias

from tfmon.errors import EXIT_LANE_FAILED, TfmonError, UsageError
from tfmon.model import codec
from tfmon.model.codec import CodecError
from tfmon.model.event_base import Event
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.header import SCHEMA
from tfmon.recordings import library, remote_bridge, sweeps
from tfmon.recordings.header_lines import Known
from tfmon.version import __version__

FOLDER_VARIABLE = "TFMON_RUNTIME"
SUFFIX = ".sock"
LOG = "runner.log"
LONGEST_PATH = 100
"""Source: unix(7). sun_path has 108 bytes, and 104 on macOS."""
ANSWER_S = 3.0
LONGEST_REQUEST_BYTES = 65_536
LONGEST_BYTES = 2**28
"""A lane's state after a day is 5 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerGreeting:
    """A run with its own process, and its first message."""

    schema: int = SCHEMA
    tfmon: str = __version__
    pid: int
    scenario: str
    recording: str = ""
    clock_ns: int = field(default=0, compare=False)
    """The runner's clock, for stamps of events."""
    path: str = ""
    """The socket, which its reader adds."""
    host: str = ""

    @property
    def name(self) -> str:
        """The id of the recording, or the process."""
        recording = Path(self.recording)
        folders = [library.folder().resolve(), sweeps.folder().resolve()]
        listed = bool(self.host) or recording.parent.resolve() in folders
        return library.run_id(recording) if self.recording and listed else str(self.pid)

    def has_name(self, word: str) -> bool:
        """Return whether a word of the command line names the run."""
        same = bool(self.recording) and Path(word).resolve() == Path(self.recording).resolve()
        return same or word == str(self.pid) or self.name.startswith(word)


END = -1
"""The number of the last answer, which has the output and the exit code of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The text or the error of a command. Without a number, a line for all viewers."""

    number: int = 0
    lines: tuple[str, ...] = ()
    error: str = ""
    hint: str = ""
    exit_code: int = 0

    @property
    def text(self) -> str:
        """The lines as text."""
        return "\n".join(self.lines)


FromRunner: TypeAlias = RunnerGreeting | Known | Answer | Event


def folder(*, create: bool = False) -> Path:
    """Return the folder of the sockets."""
    if chosen := os.environ.get(FOLDER_VARIABLE):
        path = Path(chosen)
    else:
        from platformdirs import user_runtime_path

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = user_runtime_path("tfmon", appauthor=False, ensure_exists=create)
    if create:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def listen() -> socket.socket:
    """Return a socket that listens; raises OSError."""
    parent = folder(create=True)
    status = parent.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise OSError(f"{parent} is not a folder of yours")
    parent.chmod(0o700)
    path = parent / f"{os.getpid()}{SUFFIX}"
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise OSError(f"{path} is too long for a socket; set {FOLDER_VARIABLE}")
    path.unlink(missing_ok=True)
    with contextlib.ExitStack() as undo:
        listening = undo.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen()
        undo.pop_all()
    return listening


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return process and user of the peer; raises OSError."""
    if hasattr(socket, "SO_PEERCRED"):
        pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid, uid
    # Source: sys/un.h of macOS, LOCAL_PEERCRED and LOCAL_PEERPID of the level SOL_LOCAL.
    _, uid = struct.unpack_from("2I", connection.getsockopt(0, 1, 76))
    return struct.unpack("i", connection.getsockopt(0, 2, 4))[0], uid


def connect(path: str) -> socket.socket:
    """Return a connection to a runner; raises OSError."""
    with contextlib.ExitStack() as undo:
        connection = undo.enter_context(socket.socket(socket.AF_UNIX))
        connection.settimeout(ANSWER_S)
        connection.connect(path)
        if peer(connection)[1] != os.getuid():
            raise PermissionError(f"{path} belongs to another user")
        undo.pop_all()
    return connection


def read_greeting(line: bytes) -> RunnerGreeting:
    """Read the greeting, of any schema; raises TfmonError."""
    if not line:
        from tfmon.api.run_base import state_folder

        hint = f"{LOG} in {state_folder()} may say why"
        raise TfmonError("the process that should run the race has ended", hint, exit_code=EXIT_LANE_FAILED)
    try:
        message: RunnerGreeting | Answer = codec.read(codec.parse(line), RunnerGreeting | Answer, strict=False)
    except CodecError as error:
        raise UsageError(
            f"the runner's message cannot be read: {error}", "it runs another version of tfmon"
        ) from None
    if isinstance(message, Answer):
        raise TfmonError(message.error, message.hint, exit_code=message.exit_code)
    return message


def under_way() -> list[RunnerGreeting]:
    """Return the user's runs, oldest first."""
    return live_runs(remote_bridge.greetings([folder()]))


def live_runs(greetings: Iterable[tuple[str, str]], host: str = "") -> list[RunnerGreeting]:
    """Return the runs whose greeting can be read."""
    result = []
    for path, line in greetings:
        with contextlib.suppress(TfmonError):
            result.append(replace(read_greeting(line.encode()), path=path, host=host))
    return result


def find(word: str) -> RunnerGreeting | None:
    """Return a local run; see `choose`."""
    return choose(under_way(), word)


def choose(runs: Sequence[RunnerGreeting], word: str) -> RunnerGreeting | None:
    """Return a run by id, process or recording, `last` the newest; raises UsageError."""
    fitting = runs[-1:] if word == "last" else [run for run in runs if run.has_name(word)]
    fitting = [run for run in fitting if word in (run.name, str(run.pid))] or fitting
    if len(fitting) > 1:
        names = ", ".join(run.name for run in fitting)
        raise UsageError(f"{len(fitting)} runs under way begin with {word}", names)
    return fitting[0] if fitting else None
