"""One recording that is being written: lines are appended, in batches, and a torn one is taken back."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
from pathlib import Path

from tfmon.recordings import codec, library
from tfmon.recordings.header import Closed, Header

LONGEST_PACKED_BYTES = 64 * 2**20
"""Longer recordings are not compressed: quitting must not take seconds."""


class Writer:
    """Appends to a new file.

    Errors: every method but `abandon` raises OSError; what was written before stays readable.
    Thread: one.
    """

    def __init__(self, path: Path, fd: int) -> None:
        """Write to a file that `library.create` or `library.create_file` has opened."""
        self.path = path
        self.written_bytes = 0
        self.events = 0
        self._fd = fd
        self._header = b""
        self._pending: list[bytes] = []

    def begin(self, header: Header) -> None:
        """Write the first line."""
        self._header = codec.encode(header)
        self._pending.append(self._header)
        self.flush()

    def add(self, event: object) -> None:
        """Take an event; it is written with the next `flush`."""
        self._pending.append(codec.encode(event))
        self.events += 1

    def flush(self) -> None:
        """Write what was added."""
        data, self._pending = b"".join(self._pending), []
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, memoryview(data)[done:])
        except OSError:
            # The last line may be torn; whole lines before it stay.
            whole = data.rfind(b"\n", 0, done) + 1
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.written_bytes + whole)
            raise
        self.written_bytes += done

    def close(self, closed: Closed | None, *, pack: bool) -> Path:
        """Write the last line and close the file; return where the recording lies now."""
        last = codec.encode(closed) if closed is not None else b""
        try:
            self._pending.append(last)
            self.flush()
            if pack and self.written_bytes <= LONGEST_PACKED_BYTES:
                self.path = self._pack(last)
        finally:
            self.abandon()
        return self.path

    def abandon(self) -> None:
        """Close the file as it is."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _pack(self, last: bytes) -> Path:
        """Compress the recording, with its last line also behind the first, where lists find it soon."""
        named_so = self.path.name.endswith(".gz")  # a file that the user named; it has held plain lines until now
        packed = self.path if named_so else self.path.with_name(self.path.name + ".gz")
        part = packed.with_name(packed.name + library.PART)
        try:
            with (
                os.fdopen(library.create_file(part), "wb") as raw,
                gzip.GzipFile("", "wb", 6, raw, mtime=0) as target,
                self.path.open("rb") as source,
            ):
                target.write(source.readline() + last)
                shutil.copyfileobj(source, target, 2**20)
            part.replace(packed)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()
            return self.path  # as good, only larger
        if packed != self.path:
            self.path.unlink()
        return packed
