"""Writes one recording: compressed at once, and thinned with age (frequent events are kept once for each stretch).

A compressed recording is a chain of gzip members. Its blocks are ten minutes long, and all but the first begin
with a snapshot. If the process is killed, the recording can be read up to the last flush.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tfmon.model import codec
from tfmon.model.events import Event, LanePrinted, LinkMeasured
from tfmon.model.gpu import GpuSample
from tfmon.model.lane_events import Window
from tfmon.model.readings import HostSample, TreeSample
from tfmon.model.script_events import Progressed
from tfmon.model.session import Snapshot
from tfmon.model.window_sums import joined
from tfmon.recordings import library
from tfmon.recordings.header import LONGEST_LINE_BYTES, Closed, Header, Known

MOST_LINES = 50
"""The last lines of a lane's output that are kept of a stretch; a lane's log has 500 in all."""


class Thinner:
    """Takes events in their order, and returns fewer.

    It adds up the windows of a stretch that have the same settings, marks and round. It keeps the first sample of
    each kind in a stretch, the last lines of a lane's output, and all other events unchanged.
    """

    def __init__(self, every_s: float, give: Callable[[Event], object]) -> None:
        """Call `give` with an event as soon as nothing is added to it any more."""
        self._every_ns = round(every_s * 1e9)
        self._give = give
        self._open: dict[tuple[type, str], Window | LanePrinted] = {}
        """Events to which more may be added, by type and lane."""
        self._kept: dict[tuple[object, ...], int] = {}
        """The stretch of the last sample of each kind."""

    def add(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case Window() | LanePrinted():
                key = type(event), event.lane
                before = self._open.get(key)
                added = None if before is None else self._added(before, event)
                if before is not None and added is None:
                    self._give(before)
                self._open[key] = added or event
            case GpuSample() | HostSample() | TreeSample() | LinkMeasured() | Progressed():
                of = type(event), event.lane, getattr(event, "host", ""), getattr(event, "key", "")
                stretch = self._stretch(event)
                if self._kept.get(of) != stretch:
                    self._kept[of] = stretch
                    self._give(event)
            case _:
                self.flush(event.lane)
                self._give(event)

    def flush(self, lane: str = "") -> None:
        """Give what is held back: of a lane, or of all."""
        for key in [key for key in self._open if lane in ("", key[1])]:
            self._give(self._open.pop(key))

    def _stretch(self, event: Event) -> int:
        return event.at_ns // self._every_ns

    def _added(self, before: Window | LanePrinted, after: Window | LanePrinted) -> Window | LanePrinted | None:
        """Return the sum of both; `None` if they belong to two stretches or differ in settings or marks."""
        if self._stretch(before) != self._stretch(after):
            return None
        if isinstance(before, LanePrinted) and isinstance(after, LanePrinted):
            lines = (*before.lines, *after.lines)
            dropped = sum(len(line.encode()) + 1 for line in lines[:-MOST_LINES])
            dropped += before.dropped_bytes + after.dropped_bytes
            return replace(after, lines=lines[-MOST_LINES:], dropped_bytes=dropped)
        if isinstance(before, Window) and isinstance(after, Window):
            same = (before.settings, before.marks, before.round) == (after.settings, after.marks, after.round)
            return joined(before, after) if same else None
        return None


BLOCK_S = 600.0
STAGES = ((600.0, 1.0), (3_600.0, 60.0))
"""Age at which the events of a block are thinned, and the length of the stretches, in seconds."""
JOINED_S = 3_660.0
"""Blocks of the last stage are joined up to this length; only the beginning keeps its snapshot."""
_LEVEL = 4


@dataclass(slots=True)
class _Block:
    since_ns: int
    until_ns: int
    members: list[bytes | tuple[int, int]]
    """Its gzip members: the first line, then the events; written ones as offset and length."""
    thinned: list[bytes]
    """Its events in the stages that it has not reached yet."""


class _Stage:
    def __init__(self, every_s: float, line_of: Callable[[Event], bytes]) -> None:
        self._line_of = line_of
        self._packer, self._packed = _packer(), b""
        self.thinner = Thinner(every_s, self._take)
        self.next: _Stage | None = None

    def _take(self, event: Event) -> None:
        self._packed += self._packer.compress(self._line_of(event))
        if self.next is not None:
            self.next.thinner.add(event)

    def end(self) -> bytes:
        """Return the member; the stage before must have ended."""
        self.thinner.flush()
        return self._packed + self._packer.flush()


class Writer:
    """Appends to a new file. If its name does not end in .gz it has plain lines, and nothing in it is thinned.

    Raises: OSError, from every method but `abandon`; what was written before stays readable.
    Thread: one.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.written_bytes = 0
        self.events = self.events_written = 0
        self._fd = fd
        self._packed = path.name.endswith(".gz")
        self._pending: list[bytes] = []
        self._latest: tuple[Event | None, bytes] = (None, b"")
        """The last event and its line: most stages take it unchanged."""
        self._blocks: list[_Block] = []

    def begin(self, header: Header) -> None:
        """Write the first line."""
        self._latest_ns = header.started_ns
        self._begin_block(codec.encode(header))

    def add(self, event: Event) -> None:
        """Take an event; it is written with the next `flush`."""
        line = codec.encode(event)
        self._latest = event, line
        self._pending.append(line)
        self.events += 1
        self._latest_ns = max(self._latest_ns, event.at_ns)
        if self._packed:
            self._stages[0].thinner.add(event)

    def flush(self) -> None:
        """Write the added events."""
        if self._pending:
            data, self._pending = b"".join(self._pending), []
            self._write(self._pack(data, zlib.Z_SYNC_FLUSH))
            self.events_written = self.events

    def keep(self, known: Snapshot) -> None:
        """Begin a new block with what is known after all events, if the present one is long enough."""
        if self._packed and self._latest_ns - self._since_ns >= BLOCK_S * 1e9:
            line = codec.encode(Known(known=known))
            if len(line) <= LONGEST_LINE_BYTES:
                self._end_block()
                self._thin()
                self._begin_block(line)

    def close(self, closed: Closed | None, known: Snapshot | None) -> None:
        """Write the last lines and close the file: how the race ended, and if it was long, what was known then."""
        try:
            self.flush()
            lines = [codec.encode(Known(known=known))] if self._blocks and known is not None else []
            self._end_block()
            for line in (*lines, *([codec.encode(closed)] if closed is not None else [])):
                if len(line) <= LONGEST_LINE_BYTES:
                    self._write_member(line)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file as it is."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _begin_block(self, line: bytes) -> None:
        self._since_ns = self._latest_ns
        self._begins_at = self.written_bytes
        self._write_member(line)
        self._events_at = self.written_bytes
        self._packer = _packer()
        self._stages = [_Stage(every_s, self._line_of) for _, every_s in STAGES]
        for stage, after in zip(self._stages, self._stages[1:], strict=False):
            stage.next = after

    def _line_of(self, event: Event) -> bytes:
        latest, line = self._latest
        return line if event is latest else codec.encode(event)

    def _end_block(self) -> None:
        self._write(self._pack(b"", zlib.Z_FINISH))
        begins = self._begins_at, self._events_at - self._begins_at
        events = self._events_at, self.written_bytes - self._events_at
        thinned = [stage.end() for stage in self._stages]
        self._blocks.append(_Block(self._since_ns, self._latest_ns, [begins, events], thinned))

    def _pack(self, data: bytes, how: int) -> bytes:
        return self._packer.compress(data) + self._packer.flush(how) if self._packed else data

    def _write_member(self, line: bytes) -> None:
        self._write(gzip.compress(line, _LEVEL, mtime=0) if self._packed else line)

    def _write(self, data: bytes) -> None:
        self.written_bytes += len(data)
        _write_all(self._fd, data)

    def _thin(self) -> None:
        """Write the file again if blocks have reached their next stage; on an error it stays unchanged."""
        reached = False
        for block in self._blocks:
            while block.thinned and self._latest_ns - block.until_ns >= STAGES[-len(block.thinned)][0] * 1e9:
                block.members[1:] = [block.thinned.pop(0)]
                reached = True
        if reached:
            self._blocks = _joined(self._blocks)
            with contextlib.suppress(OSError):
                self._rewrite()

    def _rewrite(self) -> None:
        part = self.path.with_name(self.path.name + library.PART)
        part.unlink(missing_ok=True)
        fd, size = library.create_file(part), 0
        places: list[list[bytes | tuple[int, int]]] = []
        try:
            for block in self._blocks:
                places.append([])
                for member in block.members:
                    data = member if isinstance(member, bytes) else os.pread(self._fd, member[1], member[0])
                    _write_all(fd, data)
                    places[-1].append((size, len(data)))
                    size += len(data)
            part.replace(self.path)
        except BaseException:
            os.close(fd)
            part.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd, self.written_bytes = fd, size
        for block, members in zip(self._blocks, places, strict=True):
            block.members = members


def _packer() -> zlib._Compress:
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS, strategy=zlib.Z_FILTERED)


def _write_all(fd: int, data: bytes) -> None:
    done = 0
    while done < len(data):
        done += os.write(fd, memoryview(data)[done:])


def _joined(blocks: list[_Block]) -> list[_Block]:
    """Return the blocks. Those of the last stage are joined; a joined block keeps only its first snapshot."""
    joined: list[_Block] = []
    for block in blocks:
        last = joined[-1] if joined else None
        old = last is not None and not last.thinned and not block.thinned
        if last is not None and old and block.until_ns - last.since_ns <= JOINED_S * 1e9:
            last.members += block.members[1:]
            last.until_ns = block.until_ns
        else:
            joined.append(block)
    return joined
