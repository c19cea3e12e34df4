"""Writes one recording, compressed at once.

Each gzip member except the first begins with a snapshot. After a kill, the file is readable up to the last flush.
"""

from __future__ import annotations

import gzip
import os
import zlib
from dataclasses import replace
from pathlib import Path

from tfmon.model import codec
from tfmon.model.event_base import Event
from tfmon.model.events import LanePrinted, LinkMeasured
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.header import Closed, Header
from tfmon.model.lane_events import Progressed
from tfmon.model.readings import HostSample, TreeSample
from tfmon.model.session import Snapshot
from tfmon.recordings.header_lines import LONGEST_LINE_BYTES, Known

RARE_S, RARE_NS = 3_600.0, 10_000_000_000
"""After `RARE_S` of a race, one sample of each kind is kept per `RARE_NS`."""
SNAPSHOT_S = 600.0
MOST_LINES = 50
_LEVEL = 4
RARE_EVENTS = GpuSample, HostSample, TreeSample, LinkMeasured, Progressed


class Writer:
    """Appends to a new file, plain unless its name ends in .gz. It drops some events of a long race.

    Raises: OSError, except in `abandon`. Thread: one.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.written_bytes = 0
        self.events = self.events_written = 0
        self._fd = fd
        self._packed = path.name.endswith(".gz")
        self._packer = _packer()
        self._began_ns = self._latest_ns = self._snapshot_ns = 0
        self._pending: list[bytes] = []
        self._kept: dict[tuple[object, ...], int] = {}
        """In units of `RARE_NS`."""
        self._lines: dict[str, int] = {}

    def begin(self, header: Header) -> None:
        """Write the first line."""
        self._began_ns = self._latest_ns = self._snapshot_ns = header.started_ns
        self._write_member(codec.encode(header))

    def add(self, event: Event) -> None:
        """Take an event for the next `flush`."""
        self.events += 1
        self._latest_ns = max(self._latest_ns, event.at_ns)
        if self._packed and event.at_ns - self._began_ns >= RARE_S * 1e9:
            if isinstance(event, RARE_EVENTS) and not self._is_first(event):
                return
            if isinstance(event, LanePrinted):
                event = self._shortened(event)
        self._pending.append(codec.encode(event))

    def _is_first(self, event: Event) -> bool:
        kind = type(event), event.lane, getattr(event, "host", ""), getattr(event, "key", "")
        number = event.at_ns // RARE_NS
        is_first = self._kept.get(kind) != number
        self._kept[kind] = number
        return is_first

    def _shortened(self, printed: LanePrinted) -> LanePrinted:
        before = 0 if self._is_first(printed) else self._lines[printed.lane]
        kept = printed.lines[max(0, len(printed.lines) - MOST_LINES + before) :]
        self._lines[printed.lane] = before + len(kept)
        dropped = printed.lines[: len(printed.lines) - len(kept)]
        dropped_bytes = printed.dropped_bytes + sum(len(line.encode()) + 1 for line in dropped)
        return replace(printed, lines=kept, dropped_bytes=dropped_bytes)

    def flush(self) -> None:
        """Write the added events to the file."""
        if self._pending:
            data, self._pending = b"".join(self._pending), []
            self._write(self._pack(data, zlib.Z_SYNC_FLUSH))
            self.events_written = self.events

    def keep(self, known: Snapshot) -> None:
        """Write a snapshot, if the last one is old enough."""
        age_s = (self._latest_ns - self._began_ns) / 1e9
        if self._packed and self._latest_ns - self._snapshot_ns >= max(SNAPSHOT_S, age_s / 6) * 1e9:
            self._write_snapshot(known)

    def close(self, closed: Closed, known: Snapshot) -> None:
        """Write the last lines, after a long race its last state, and close the file."""
        try:
            is_long = self._latest_ns - self._began_ns >= SNAPSHOT_S * 1e9
            if self._packed and is_long:
                self._write_snapshot(known)
            self.flush()
            self._write(self._pack(b"", zlib.Z_FINISH))
            self._write_member(codec.encode(closed))
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file as it is."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write_snapshot(self, known: Snapshot) -> None:
        self._snapshot_ns = self._latest_ns
        line = codec.encode(Known(known=known))
        if len(line) <= LONGEST_LINE_BYTES:
            self.flush()
            self._write(self._pack(b"", zlib.Z_FINISH))
            self._packer = _packer()
            self._write_member(line)

    def _pack(self, data: bytes, how: int) -> bytes:
        return self._packer.compress(data) + self._packer.flush(how) if self._packed else data

    def _write_member(self, line: bytes) -> None:
        self._write(gzip.compress(line, _LEVEL, mtime=0) if self._packed else line)

    def _write(self, data: bytes) -> None:
        self.written_bytes += len(data)
        done = 0
        while done < len(data):
            done += os.write(self._fd, memoryview(data)[done:])


def _packer() -> zlib._Compress:
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS, strategy=zlib.Z_FILTERED)
