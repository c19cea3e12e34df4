"""The file of a sweep, locked by one writer: a plan, and a line for each measurement.

A line is written at once and never changed, so that a killed sweep can continue.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

from tfmon.errors import TfmonError, UsageError
from tfmon.model import codec
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.series import Figures, SeriesState, SeriesStep, VisitEnded, state_after
from tfmon.recordings import library
from tfmon.system.view_files import lock
from tfmon.version import __version__

SCHEMA = 4
SUFFIX = ".sweep"
OPTIONS = ("record", "resume")
_BEGINS = b'{"type":"SweepHeader",'
LARGEST = 256 * 2**20


@dataclass(frozen=True, slots=True)
class SweepHeader:
    """The first line of a sweep."""

    schema: int
    tfmon: str
    began: str
    state: SeriesState


class SweepFile:
    """The file of a sweep. Thread: any."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.failure = ""
        """Why the latest events are missing."""
        self._descriptor: int | None = descriptor
        self._unwritten = bytearray()
        self._lock = threading.Lock()

    def write(self, *events: SeriesStep | SweepHeader) -> None:
        """Add events; after a failure, with the next one."""
        with self._lock:
            if self._descriptor is None:
                return
            self._unwritten += b"".join(map(codec.encode, events))
            try:
                while self._unwritten:
                    del self._unwritten[: os.write(self._descriptor, self._unwritten)]
                self.failure = ""
            except OSError as error:
                self.failure = f"{self.path} cannot be written: {error.strerror or error}"

    def close(self) -> None:
        """Close the file after a last attempt to write."""
        self.write()
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None


def folder() -> Path:
    """Return the folder of sweeps."""
    return library.folder().with_name("sweeps")


def create(path: Path | None, state: SeriesState, scenario: str = "") -> SweepFile:
    """Create the file of a sweep; raises UsageError."""
    try:
        if path is None:
            path, descriptor = library.create(scenario, folder(), SUFFIX)
        else:
            path = path.absolute()
            descriptor = library.create_file(path)
    except FileExistsError:
        raise UsageError(
            f"{path} is there already", "--resume goes on with it; or name another file", options=OPTIONS
        ) from None
    except OSError as error:
        why = f"{path or folder()} cannot be written: {error.strerror or error}"
        raise UsageError(why, "--record names another file", options=OPTIONS) from None
    file = SweepFile(path, descriptor)
    file.write(SweepHeader(SCHEMA, __version__, time.strftime("%Y-%m-%dT%H:%M:%S%z"), state))
    if file.failure:
        file.close()
        path.unlink(missing_ok=True)
        raise UsageError(file.failure)
    return file


def read(path: Path) -> SeriesState:
    """Return the state of a sweep; raises TfmonError."""
    return _read(path)[0]


def is_sweep(path: Path) -> bool:
    """Return whether a file is a sweep."""
    if path.suffix == SUFFIX:
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGINS)) == _BEGINS
    except OSError:
        return False


def began(path: Path) -> str:
    """Return when a sweep began; raises TfmonError."""
    return _read(path)[1].began


def resume(path: Path) -> tuple[SeriesState, SweepFile]:
    """Return a sweep and its file; raises TfmonError."""
    path = path.absolute()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UsageError(
            f"there is no sweep {path}", "--resume last goes on with the newest", options=OPTIONS
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
    try:
        if not lock(descriptor):
            raise TfmonError(f"another tfmon writes {path}", "wait until it is through, or end it")
        state, _, length = _read(path)
        os.ftruncate(descriptor, length)
    except BaseException:
        os.close(descriptor)
        raise
    return state, SweepFile(path, descriptor)


def _read(path: Path) -> tuple[SeriesState, SweepHeader, int]:
    """Return the state, the header, and the length of the whole lines."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > LARGEST:
        raise UsageError(f"{path} is not a sweep: it is too large")
    whole = data[: data.rfind(b"\n") + 1]
    first, *lines = whole.split(b"\n")
    try:
        header: SweepHeader = codec.read(codec.parse(first), SweepHeader)
    except codec.CodecError as error:
        raise UsageError(f"{path} is not a sweep ({error})", "tfmon sweep says where it writes one") from None
    if header.schema != SCHEMA:
        raise UsageError(f"{path} was written by tfmon {header.tfmon}, in a form that this one cannot read")
    if any(attempt.number != index for index, attempt in enumerate(header.state.attempts)):
        raise UsageError(f"{path} is not a sweep: its combinations are not in order")
    state = header.state
    for number, line in enumerate(lines[:-1], 2):
        try:
            state = state_after(state, codec.read(codec.parse(line), SeriesStep))
        except codec.CodecError as error:
            raise TfmonError(f"{path}, line {number}: {error}", "what is before it can be kept") from None
    for number in tuple(state.running):  # the monitor was killed in these visits
        figures = state.attempts[number].figures or Figures(state.running[number])
        state = state_after(state, VisitEnded(number, figures))
    return replace(state, running={}, lost={}, visits_s=(), over=False, ended=""), header, len(whole)
