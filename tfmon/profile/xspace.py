"""Reads TensorFlow's profiles, which are an `XSpace` in protobuf's wire format.

Only what the analysis and the export need is kept: no bytes (compiled programs), no stats of names.

Source: `XSpace` in tsl/profiler/protobuf/xplane.proto; https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from tfmon.profile.trace import Line, Plane, Space, Stat, TraceError, TraceEvent

MOST_BYTES = 128 << 20
"""A larger file is refused; a capture of 20 steps is a few hundred KB, rarely tens of MB."""
MOST_ITEMS = 2_000_000
"""Events, distinct stats and names that are read; each takes some 200 bytes of memory."""

Span: TypeAlias = tuple[int, int]
"""Where a part of the file begins and ends."""

Wanted: TypeAlias = Callable[[str, str, Collection[str]], bool]
"""Whether to read the events of a line, by its name, theirs, and the names of all events that there may be."""

_BYTES = 2
_SPACE_PLANES, _SPACE_ERRORS, _SPACE_WARNINGS = (number << 3 | _BYTES for number in (1, 2, 3))
_PLANE_NAME, _PLANE_LINES, _PLANE_EVENT_NAMES, _PLANE_STAT_NAMES = (
    number << 3 | _BYTES for number in (2, 3, 4, 5)
)
_LINE_ID, _LINE_TIMESTAMP_NS = 1 << 3, 3 << 3
_LINE_NAME, _LINE_EVENTS, _LINE_DISPLAY_NAME = (number << 3 | _BYTES for number in (2, 4, 11))
_EVENT_NAME_ID, _EVENT_OFFSET_PS, _EVENT_DURATION_PS, _EVENT_OCCURRENCES = (number << 3 for number in (1, 2, 3, 5))
_EVENT_STATS = 4 << 3 | _BYTES
_STAT_NAME_ID, _STAT_UINT64, _STAT_INT64, _STAT_REF = (number << 3 for number in (1, 3, 4, 7))
_STAT_DOUBLE, _STAT_STR = 2 << 3 | 1, 5 << 3 | _BYTES
_ENTRY_KEY, _ENTRY_VALUE = 1 << 3, 2 << 3 | _BYTES
_NAME = 2 << 3 | _BYTES

_NO_STATS: Mapping[str, Stat] = {}
_KEPT_STATS = 20_000
"""Stats that are shared by events with the very same ones; XLA's operations have a handful in a million events."""


def everything(_line: str, _event: str, _names: Collection[str]) -> bool:
    """Accept every event."""
    return True


def read_space(path: Path, wanted: Wanted = everything) -> Space:
    """Return the trace in a `.xplane.pb` file, with those of its events that are wanted.

    Raises: TraceError, also when there is no such file.
    """
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise _too_large(f"it has {size >> 20} MiB, and tfmon reads up to {MOST_BYTES >> 20} MiB")
        return decode(path.read_bytes(), wanted)
    except OSError as error:
        raise TraceError(f"the profile {path.name} cannot be read: {error.strerror or error}") from error


def decode(data: bytes, wanted: Wanted = everything) -> Space:
    """Return the trace that these bytes hold. Events that only count, without a place in time, are skipped.

    `wanted` is called once for each name on each line. An event that is not wanted costs next to no time.

    Raises: TraceError, and no other.
    """
    if not data:
        raise TraceError("the profile is empty")
    return _Decoder(data, wanted).space()


def _torn(at: int) -> TraceError:
    return TraceError(f"this is not a TensorFlow profile, or a damaged one: it makes no sense at byte {at:,}")


def _too_large(reason: str) -> TraceError:
    return TraceError(f"the profile is too large: {reason}", "capture fewer steps")


def _varint(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    value = shift = 0
    while pos < end and shift < 70:
        byte = data[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, pos
        shift += 7
    raise _torn(pos)


def _fields(data: bytes, pos: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Go through a message: each field's key, which is its number and its wire type, and its value.

    The value of a number is the number itself; that of everything else lies between it and the third item.
    """
    while pos < end:
        key = data[pos]
        if key < 128:
            pos += 1
        else:
            key, pos = _varint(data, pos, end)
        wire = key & 7
        if key < 8:
            raise _torn(pos)
        if wire == 0:
            value, pos = _varint(data, pos, end)
            yield key, value, pos
            continue
        if wire == _BYTES:
            size, pos = _varint(data, pos, end)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise _torn(pos)
        stop = pos + size
        if stop > end:
            raise _torn(pos)
        yield key, pos, stop
        pos = stop


def _past_short(data: bytes, pos: int, end: int, key: int) -> int:
    """Return where a field ends if it has this key and fewer than 128 bytes; 0 if it has not.

    Most of a trace is such fields, and `_fields` takes three times as long for one.
    """
    if data[pos] != key or pos + 1 >= end or data[pos + 1] > 127:
        return 0
    after = pos + 2 + data[pos + 1]
    if after > end:
        raise _torn(pos)
    return after


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


class _Names:
    """The names of a plane's events and stats by their numbers, and the stats that were read with them."""

    def __init__(self) -> None:
        self.events: dict[int, str] = {}
        self.stats: dict[int, str] = {}
        self.read: dict[tuple[int, bytes], Mapping[str, Stat]] = {}


class _Decoder:
    """Reads one trace, and keeps count of what it makes of it."""

    def __init__(self, data: bytes, wanted: Wanted) -> None:
        self._data = data
        self._wanted = wanted
        self._items = self._events_seen = 0
        self._origin_ns = 0

    def space(self) -> Space:
        planes: list[Span] = []
        troubles: list[str] = []
        for key, value, stop in _fields(self._data, 0, len(self._data)):
            if key == _SPACE_PLANES:
                self._count()
                planes.append((value, stop))
            elif key in (_SPACE_ERRORS, _SPACE_WARNINGS):
                self._count()
                troubles.append(self._text(value, stop))
        lines = [[self._head(line) for line in self._lines(plane)] for plane in planes]
        self._origin_ns = min((at_ns for plane in lines for _, _, at_ns in plane), default=0)
        read = tuple(self._plane(*pair) for pair in zip(planes, lines, strict=True))
        return Space(read, self._origin_ns, self._events_seen, tuple(troubles))

    def _count(self) -> None:
        self._items += 1
        if self._items > MOST_ITEMS:
            raise _too_large(f"it has more than {MOST_ITEMS:,} events and names")

    def _text(self, pos: int, stop: int) -> str:
        return self._data[pos:stop].decode("utf-8", "replace")

    def _lines(self, plane: Span) -> Iterator[Span]:
        for key, value, stop in _fields(self._data, *plane):
            if key == _PLANE_LINES:
                self._count()
                yield value, stop

    def _head(self, line: Span) -> tuple[Span, str, int]:
        """Return a line's name and the time that its events count from."""
        data, (pos, end) = self._data, line
        name = display = ""
        at_ns = 0
        while pos < end:
            if (after := _past_short(data, pos, end, _LINE_EVENTS)) > 0:
                pos = after
                continue
            key, value, pos = next(_fields(data, pos, end))
            if key == _LINE_NAME:
                name = self._text(value, pos)
            elif key == _LINE_DISPLAY_NAME:
                display = self._text(value, pos)
            elif key == _LINE_TIMESTAMP_NS:
                at_ns = _signed(value)
        return line, display or name, at_ns

    def _plane(self, span: Span, lines: list[tuple[Span, str, int]]) -> Plane:
        name, names = "", _Names()
        for key, value, stop in _fields(self._data, *span):
            if key == _PLANE_NAME:
                name = self._text(value, stop)
            elif key == _PLANE_EVENT_NAMES:
                self._name(value, stop, names.events)
            elif key == _PLANE_STAT_NAMES:
                self._name(value, stop, names.stats)
        return Plane(
            name, tuple(Line(title, self._events(title, line, at_ns, names)) for line, title, at_ns in lines)
        )

    def _name(self, pos: int, stop: int, names: dict[int, str]) -> None:
        number, name = 0, ""
        for key, value, after in _fields(self._data, pos, stop):
            if key == _ENTRY_KEY:
                number = value
            elif key == _ENTRY_VALUE:
                for inner, start, end in _fields(self._data, value, after):
                    if inner == _NAME:
                        name = self._text(start, end)
        self._count()
        names[number] = name

    def _events(self, title: str, line: Span, at_ns: int, names: _Names) -> tuple[TraceEvent, ...]:
        data, (pos, end) = self._data, line
        shift_ps = (at_ns - self._origin_ns) * 1000
        events: list[TraceEvent] = []
        wanted: dict[int, bool] = {}
        while pos < end:
            if (after := _past_short(data, pos, end, _LINE_EVENTS)) > 0:
                start, pos = pos + 2, after
            else:
                key, start, pos = next(_fields(data, pos, end))
                if key != _LINE_EVENTS:
                    continue
            self._events_seen += 1
            if pos - start > 1 and data[start] == _EVENT_NAME_ID:
                number = data[start + 1]
                if number > 127:
                    number, _ = _varint(data, start + 1, pos)
                if number not in wanted:
                    wanted[number] = self._wanted(title, names.events.get(number, ""), names.events.values())
                if not wanted[number]:
                    continue
            self._count()
            event = self._event(start, pos, shift_ps, names)
            if event is not None:
                events.append(event)
        events.sort(key=lambda event: (event[0], -event[1]))
        return tuple(events)

    def _event(self, pos: int, end: int, shift_ps: int, names: _Names) -> TraceEvent | None:
        data = self._data
        number = offset_ps = duration_ps = 0
        stats = _NO_STATS
        began = pos
        while pos < end:
            key = data[pos]
            if key == _EVENT_NAME_ID:
                number, pos = _varint(data, pos + 1, end)
            elif key == _EVENT_OFFSET_PS:
                offset_ps, pos = _varint(data, pos + 1, end)
            elif key == _EVENT_DURATION_PS:
                duration_ps, pos = _varint(data, pos + 1, end)
            elif key == _EVENT_OCCURRENCES:
                return None
            elif (after := _past_short(data, pos, end, _EVENT_STATS)) > 0:
                if stats is _NO_STATS:
                    stats = self._stats(pos + 2, after, end, names)
                pos = after
            else:
                key, value, pos = next(_fields(data, pos, end))
                if key == _EVENT_STATS and stats is _NO_STATS:
                    stats = self._stats(value, pos, end, names)
        start_ps, duration_ps = shift_ps + _signed(offset_ps), _signed(duration_ps)
        if duration_ps < 0:
            raise _torn(began)
        return TraceEvent(start_ps, start_ps + duration_ps, names.events.get(number, ""), stats)

    def _stats(self, pos: int, stop: int, end: int, names: _Names) -> Mapping[str, Stat]:
        """Return the stats of an event from its first one to its end."""
        token = (stop - pos, self._data[pos:end])
        found = names.read.get(token)
        if found is None:
            stats: dict[str, Stat] = {}
            self._stat(pos, stop, names, stats)
            for key, value, after in _fields(self._data, stop, end):
                if key == _EVENT_STATS:
                    self._stat(value, after, names, stats)
            if len(names.read) >= _KEPT_STATS:
                names.read.clear()
            found = names.read[token] = stats
        return found

    def _stat(self, pos: int, end: int, names: _Names, stats: dict[str, Stat]) -> None:
        number = 0
        found: Stat | None = None
        for key, value, stop in _fields(self._data, pos, end):
            if key == _STAT_NAME_ID:
                number = value
            elif key == _STAT_UINT64:
                found = value
            elif key == _STAT_INT64:
                found = _signed(value)
            elif key == _STAT_REF:
                found = names.stats.get(value, "")
            elif key == _STAT_STR:
                found = self._text(value, stop)
            elif key == _STAT_DOUBLE:
                (found,) = struct.unpack_from("<d", self._data, value)
        if found is not None:
            self._count()
            stats[names.stats.get(number, "")] = found
