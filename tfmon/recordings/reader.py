"""Reads recordings, also hostile ones, in bounded memory; drops a torn end, and reports other damage."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import tempfile
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

from tfmon.model import codec
from tfmon.model.codec import CodecError, clean
from tfmon.model.event_base import Event, kinds
from tfmon.model.header import SCHEMA, Closed, Header
from tfmon.model.ports import TimeMark
from tfmon.model.race import RecordingState
from tfmon.model.session import Session, Snapshot
from tfmon.recordings.header_lines import LONGEST_LINE_BYTES, MARKING, Known, RecordingError, mark_of
from tfmon.recordings.remote_bridge import GZIP, MEMBER, Outline, outline
from tfmon.version import __version__

LARGEST_BYTES = 4 * 2**30
"""Eight lanes for some forty hours."""
MOST_MARKS = 5_000
_KNOWN, _CLOCK = b'{"type":"Known",', b'{"type":"ClockStarted",'
_EVENTS = {kind.__name__ for kind in kinds(Event)}
_UNMARKED = "|".join(sorted(_EVENTS - MARKING)).encode()
_BEGIN = re.compile(
    rb'{"type":"(?:%b)",(?:"lane":"[^"\\]*",)?(?:"host":"[^"\\]*",)?"at_ns":(-?\d{1,18}),' % _UNMARKED
)
"""An event without a mark, which the index does not parse."""


class Recording:
    """A recording, readable from any event. Thread: one. Raises: RecordingError."""

    def __init__(self, path: Path) -> None:
        """Open a recording and index it."""
        self.path = path
        self.torn = False
        """Whether its last line is incomplete."""
        self.closed: Closed | None = None
        self.marks: list[TimeMark] = []
        self.started_ns: int | None = None
        self.times_ns = array("q")
        """Never less than the predecessor."""
        self._offsets = array("q")
        self._known: dict[int, int] = {}
        self._file = self._open()
        try:
            self.header = _header(self.path, self._file.readline(LONGEST_LINE_BYTES + 1))
            self._index()
            if not self.times_ns:
                raise self._damaged("no event", 2)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __len__(self) -> int:
        return len(self.times_ns)

    def events(self, without: Iterable[type] = ()) -> Iterator[Event]:
        """Read the events, except some kinds."""
        skipped = tuple(b'{"type":"%b",' % kind.__name__.encode() for kind in without)
        for position in range(len(self)):
            if not (line := self._line(position)).startswith(skipped):
                yield self._read(position, line)

    def event(self, position: int) -> Event:
        """Read one event."""
        return self._read(position, self._line(position))

    def _read(self, position: int, line: bytes) -> Event:
        try:
            event: Event = codec.read(codec.parse(line), Event)
        except CodecError as error:
            hint = _written_by(self.header.tfmon)
            raise RecordingError(f"{self.path}: event {position + 1}: {error}", hint) from None
        return event

    def play(self, session: Session, since: int, until: int) -> None:
        """Pass some events to a session."""
        for position in range(since, until):
            session.accept(self.event(position))
            if position + 1 in self._known:
                session.restore(self.known_after(position + 1))

    def known_after(self, position: int) -> Snapshot:
        """Return the snapshot after a number of events."""
        self._file.seek(self._known[position])
        try:
            known: Snapshot = codec.read(codec.parse(self._file.readline(LONGEST_LINE_BYTES + 1)), Known).known
        except CodecError as error:
            hint = _written_by(self.header.tfmon)
            raise RecordingError(f"{self.path}: after event {position}: {error}", hint) from None
        return replace(known, recording=RecordingState(str(self.path.absolute())))

    def last_known(self, position: int) -> int:
        """Return the number of events before the last snapshot."""
        return max((at for at in self._known if at <= position), default=0)

    def position_at(self, at_ns: int) -> int:
        """Return the number of events until a time."""
        return bisect_right(self.times_ns, at_ns)

    def _line(self, position: int) -> bytes:
        self._file.seek(self._offsets[position])
        return self._file.readline(LONGEST_LINE_BYTES + 1)

    def _open(self) -> BinaryIO:
        try:
            if not self.path.is_file():
                raise RecordingError(f"{self.path} is not a file")
            with contextlib.ExitStack() as opened:
                file = opened.enter_context(self.path.open("rb"))
                packed = file.read(2) == GZIP
                file.seek(0)
                if packed:
                    return self._unpacked(file)
                opened.pop_all()
                return file
        except OSError as error:
            raise RecordingError(f"{self.path} cannot be read: {error.strerror or error}") from None

    def _unpacked(self, packed: BinaryIO) -> BinaryIO:
        file = tempfile.TemporaryFile(prefix="tfmon-")  # noqa: SIM115 - the caller closes it
        try:
            with gzip.open(packed) as source:
                total = 0
                while chunk := source.read1(2**20):
                    total += len(chunk)
                    if total > LARGEST_BYTES:
                        raise self._too_large()
                    file.write(chunk)
        except EOFError:
            self.torn = True
        except (zlib.error, gzip.BadGzipFile) as error:
            packed.seek(-len(MEMBER), os.SEEK_END)
            self.torn = not any(packed.read())  # a power cut leaves zeros
            if not self.torn:
                file.close()
                raise RecordingError(f"{self.path} is damaged: {error}") from None
        except BaseException:
            file.close()
            raise
        file.seek(0)
        return cast(BinaryIO, file)

    def _index(self) -> None:
        number, latest_ns = 1, None
        while True:
            offset = self._file.tell()
            line = self._file.readline(LONGEST_LINE_BYTES + 1)
            if not line:
                return
            number += 1
            if offset > LARGEST_BYTES:
                raise self._too_large()
            if len(line) > LONGEST_LINE_BYTES:
                raise self._damaged(f"a line of more than {LONGEST_LINE_BYTES >> 20} MiB", number)
            if line.startswith(_KNOWN) and line.endswith(b"\n"):
                self._known[len(self.times_ns)] = offset
                continue
            try:
                plain = _BEGIN.match(line) if line.endswith(b"}\n") else None
                at_ns = int(plain[1]) if plain else self._index_line(codec.parse(line))
            except CodecError as error:
                if not line.endswith(b"\n"):
                    self.torn = True
                    return
                raise self._damaged(str(error), number) from None
            if at_ns is not None:
                if self.started_ns is None and line.startswith(_CLOCK):
                    self.started_ns = at_ns
                latest_ns = at_ns if latest_ns is None else max(latest_ns, at_ns)
                self.times_ns.append(latest_ns)
                self._offsets.append(offset)

    def _index_line(self, body: object) -> int | None:
        if not isinstance(body, dict):
            raise CodecError("no object")
        kind, at_ns = body.get("type"), body.get("at_ns")
        if kind == "Closed":
            self.closed = codec.read(body, Closed)
            return None
        if kind not in _EVENTS:
            raise CodecError(f"unknown type {codec.cut(kind)}")
        if isinstance(at_ns, bool) or not isinstance(at_ns, int) or abs(at_ns) > codec.LARGEST_INT:
            raise CodecError(f"at_ns {codec.cut(at_ns)} is not a time")
        if kind in MARKING and len(self.marks) < MOST_MARKS:
            self.marks += mark_of(codec.read(body, Event), self.header.lane_names)
        return at_ns

    def _too_large(self) -> RecordingError:
        return RecordingError(f"{self.path} is too large: more than {LARGEST_BYTES >> 30} GiB uncompressed")

    def _damaged(self, problem: str, line: int) -> RecordingError:
        return RecordingError(f"{self.path}, line {line}: {problem}", _written_by(self.header.tfmon))


def _written_by(version: str) -> str:
    if version == __version__:
        return ""
    return f"it was written by tfmon {version}; this is {__version__}"


def _header(path: Path, line: bytes) -> Header:
    try:
        body = codec.parse(line)
    except CodecError:
        body = None
    if isinstance(body, dict) and body.get("type") == "SweepHeader":
        raise RecordingError(f"{path} is a sweep, not a race", f"tfmon export {path} shows it")
    if not isinstance(body, dict) or body.get("type") != "Header" or "schema" not in body:
        raise RecordingError(f"{path} is not a recording of tfmon")
    schema, by = codec.cut(body["schema"]), clean(str(body.get("tfmon", "?")), 20)
    if schema != str(SCHEMA):
        raise RecordingError(
            f"{path} is a recording of schema {schema}, by tfmon {by}; "
            f"this is tfmon {__version__}, which reads schema {SCHEMA}",
            "replay it with the tfmon that wrote it, or race again",
        )
    try:
        header: Header = codec.read(body, Header)
        header.wall_s(0)
    except CodecError as error:
        raise RecordingError(f"{path}: {error}", _written_by(by)) from None
    except (ValueError, OverflowError, OSError):
        raise RecordingError(f"{path}: Header.started is not a time") from None
    return header


@contextlib.contextmanager
def guard(path: Path) -> Iterator[None]:
    """Raise RecordingError for impossible figures."""
    try:
        yield
    except (ArithmeticError, LookupError, ValueError) as error:
        hint = "a figure in it is impossible, or tfmon has a defect: please report it"
        raise RecordingError(f"{path} cannot be evaluated ({type(error).__name__}: {error})", hint) from None


def peek(path: Path) -> tuple[Header, Closed | None]:
    """Read the header and the end; raises RecordingError."""
    try:
        return read_outline(outline(path))
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error}") from None


def read_outline(facts: Outline) -> tuple[Header, Closed | None]:
    """Return the header and the end; raises RecordingError."""
    if facts.problem:
        raise RecordingError(facts.problem)
    header = _header(Path(facts.path), facts.first.encode())
    try:
        closed: Closed | None = codec.read(codec.parse(facts.last.encode()), Closed)
    except CodecError:
        closed = None
    return header, closed
