"""Writes traces in protobuf's wire format, from nothing but what a test says is in them."""

# This folder is no package: one named `profile` would hide the standard library's, which cProfile loads.
from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field


class Literal(str):
    """A text that is written where it is used, not as a reference to the plane's table of names."""


class Unsigned(int):
    """A number that is written as a uint64."""


@dataclass(frozen=True)
class Mark:
    """An event, timed in microseconds."""

    name: str
    start_us: float
    length_us: float
    stats: dict = field(default_factory=dict)


def mark(name: str, start_us: float, length_us: float, /, **stats) -> Mark:
    return Mark(name, start_us, length_us, stats)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(field_number: int, value: int) -> bytes:
    return varint(field_number << 3) + varint(value)


def blob(field_number: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field_number << 3 | 2) + varint(len(data)) + data


class Table:
    """The numbers that stand for names in a plane."""

    def __init__(self, first: int) -> None:
        self.numbers: dict[str, int] = {}
        self._first = first

    def of(self, name: str) -> int:
        return self.numbers.setdefault(name, self._first + len(self.numbers))

    def encode(self, field_number: int) -> bytes:
        return b"".join(
            blob(field_number, number(1, key) + blob(2, number(1, key) + blob(2, name)))
            for name, key in self.numbers.items()
        )


def stat(names: Table, name: str, value) -> bytes:
    head = number(1, names.of(name))
    if isinstance(value, Literal):
        return head + blob(5, str(value))
    if isinstance(value, str):
        return head + number(7, names.of(value))
    if isinstance(value, bytes):
        return head + blob(6, value)
    if isinstance(value, float):
        return head + varint(2 << 3 | 1) + struct.pack("<d", value)
    return head + number(3 if isinstance(value, Unsigned) else 4, value)


def event(events: Table, stats: Table, one: Mark) -> bytes:
    data = (
        number(1, events.of(one.name))
        + number(2, round(one.start_us * 1e6))
        + number(3, round(one.length_us * 1e6))
    )
    return data + b"".join(blob(4, stat(stats, name, value)) for name, value in one.stats.items())


def plane(
    name: str, lines: dict[str, Iterable[Mark]], starts_ns: dict[str, int] | None = None, names_first: bool = False
) -> bytes:
    """Write a plane; `starts_ns` says when each line begins, and `names_first` where the names are."""
    events, stats = Table(1), Table(1000)
    body = b"".join(
        blob(
            3,
            number(1, index)
            + blob(2, title)
            + number(3, (starts_ns or {}).get(title, 0))
            + b"".join(blob(4, event(events, stats, one)) for one in marks),
        )
        for index, (title, marks) in enumerate(lines.items())
    )
    tables = events.encode(4) + stats.encode(5)
    head = number(1, 7) + blob(2, name)
    return head + tables + body if names_first else head + body + tables


def space(*planes: bytes, errors: Iterable[str] = ()) -> bytes:
    return b"".join(blob(1, one) for one in planes) + b"".join(blob(2, text) for text in errors) + blob(4, "host")
