"""What a child prints: its last words are kept, and what is new is told a few times a second."""

from __future__ import annotations

from tfmon.model.events import LanePrinted
from tfmon.model.text import clean

TAIL_BYTES = 32_768
"""How much of a child's output is kept; the rest is read and dropped, so that the child never blocks."""
TAIL_LINES = 200
NEWS_BYTES = 16_384
"""Most that is told at once; of a child that prints more in between, the newest."""
LINE_CHARACTERS = 500
TELL_EVERY_NS = 250_000_000


class Output:
    """Takes what a child prints, in chunks that end anywhere. Bounded, whatever the child prints."""

    def __init__(self, lane: str) -> None:
        self.lane = lane
        """Whose output it is; a spare child's is that of its lane once it is one."""
        self.printed_bytes = 0
        """How much was printed in all."""
        self._tail = b""
        self._news = b""
        self._dropped_bytes = 0
        self._told_ns = 0

    def take(self, chunk: bytes) -> None:
        """Take a chunk."""
        self.printed_bytes += len(chunk)
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]
        self._news += chunk
        if len(self._news) > NEWS_BYTES:
            kept = self._news[-NEWS_BYTES:].partition(b"\n")[2]
            self._dropped_bytes += len(self._news) - len(kept)
            self._news = kept

    def news(self, now_ns: int, *, last: bool = False) -> LanePrinted | None:
        """Return the whole lines since the news before; None if there are none, or those were told a moment ago.

        The last news are told at once, with a line that has no end.
        """
        if not self._news and not self._dropped_bytes:
            return None
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

    def since(self, before: int) -> tuple[str, ...]:
        """Return the last lines of what was printed after so many bytes, safe to show. Thread: any."""
        return _lines(self._tail[-(self.printed_bytes - before) :]) if self.printed_bytes > before else ()


def _lines(printed: bytes) -> tuple[str, ...]:
    text = clean(printed.decode(errors="replace"), limit=TAIL_BYTES)
    return tuple(line.rstrip() for line in text.splitlines()[-TAIL_LINES:] if line.strip())


def _shown(line: bytes) -> str:
    """Return a line safe to show: of one that was written over, as progress bars are, what was left find_verdict."""
    text = line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
    return clean(text, LINE_CHARACTERS).rstrip()
