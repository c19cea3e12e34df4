"""The bounded output of a lane's process."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tfmon.model.codec import clean
from tfmon.model.events import LanePrinted

TAIL_BYTES = 32_768
"""The rest is read and dropped, so that the process never blocks."""
TAIL_LINES = 200
NEWS_BYTES = 16_384
LINE_CHARACTERS = 500
TELL_EVERY_NS = 250_000_000
FLUSH_NS = 1_000_000_000
"""Time from the message of `sys.exit` until the process writes earlier, buffered output."""
_STACK_LINE = re.compile(r'(Current thread|Thread) 0x|  File "|  <|  \.\.\.|Stack \(most recent')


class ChildOutput:
    """Takes the output of a process."""

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self.printed_bytes = 0
        self.echo: Callable[[bytes], object] | None = None
        self.echo_error: Callable[[bytes], object] | None = None
        self._tail = b""
        self._error, self._error_ns = b"", 0
        self._news = b""
        self._dropped_bytes = 0
        self._told_ns = 0

    def take_error(self, chunk: bytes) -> None:
        """Take a chunk of a separate standard error."""
        if self.echo_error is not None:
            self.echo_error(chunk)
        self._error, self._error_ns = chunk, time.monotonic_ns()
        self._keep(chunk)

    def take(self, chunk: bytes) -> None:
        """Take a chunk of the output."""
        if self.echo is not None:
            self.echo(chunk)
        recent = time.monotonic_ns() - self._error_ns < FLUSH_NS
        self._keep(chunk, before=self._error if recent and self._tail.endswith(self._error) else b"")

    def _keep(self, chunk: bytes, before: bytes = b"") -> None:
        self.printed_bytes += len(chunk)
        self._tail = (self._tail[: len(self._tail) - len(before)] + chunk + before)[-TAIL_BYTES:]
        self._news += chunk
        if len(self._news) > NEWS_BYTES:
            kept = self._news[-NEWS_BYTES:].partition(b"\n")[2]
            self._dropped_bytes += len(self._news) - len(kept)
            self._news = kept

    def news(self, now_ns: int, *, last: bool = False) -> LanePrinted | None:
        """Return the new whole lines."""
        if not last and now_ns - self._told_ns < TELL_EVERY_NS:
            return None
        whole, end, rest = (self._news, b"", b"") if last else self._news.rpartition(b"\n")
        if not (whole or end or self._dropped_bytes):
            return None
        dropped, self._dropped_bytes = self._dropped_bytes, 0
        self._news, self._told_ns = rest, now_ns
        lines = tuple(line for line in map(_shown, whole.split(b"\n")) if line)
        if not lines and not dropped:
            return None
        return LanePrinted(lane=self.lane, at_ns=now_ns, lines=lines, dropped_bytes=dropped)

    def tail(self) -> tuple[str, ...]:
        """Return the last lines, safe to show."""
        return _lines(self._tail)

    def stack_since(self, printed_bytes: int) -> tuple[str, ...]:
        """Return the lines of stacks after `printed_bytes`."""
        new_bytes = self.printed_bytes - printed_bytes
        new = _lines(self._tail[-new_bytes:]) if new_bytes > 0 else ()
        return tuple(line for line in new if _STACK_LINE.match(line))


def _lines(printed: bytes) -> tuple[str, ...]:
    shown = (_shown(line, TAIL_BYTES) for line in printed.split(b"\n")[-TAIL_LINES - 1 :])
    return tuple(line for line in shown if line)[-TAIL_LINES:]


def _shown(line: bytes, most_characters: int = LINE_CHARACTERS) -> str:
    text = line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
    return clean(text, most_characters).rstrip()
