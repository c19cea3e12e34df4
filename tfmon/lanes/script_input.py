"""tfmon's standard input for the lanes' commands: each process gets all of it.

A single process gets the descriptor itself, unless its lane can be restarted. Others get a reopened file or a copy
of a pipe, read as fast as the fastest process.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from typing import IO

from tfmon.system.threads import start_thread

CHUNK_BYTES = 65_536
KEPT_BYTES = 256 << 20
TOO_LONG = f"standard input is longer than the {KEPT_BYTES >> 20} MiB that are kept for a restart"
ELSEWHERE = "standard input is not passed to other machines"


class ScriptInput:
    """Standard input for lanes. Thread: any."""

    def __init__(self, fd: int = 0, *, single: bool) -> None:
        self._fd, self._single = fd, single
        self._lock = threading.Lock()
        self._pipes: set[int] = set()
        self._size = self._passed = 0
        self._over = False
        self._kept: IO[bytes] | None = None
        with contextlib.suppress(OSError):
            self._offset = os.lseek(fd, 0, os.SEEK_CUR)

    @property
    def is_sent(self) -> bool:
        """Whether the input is a file or a pipe."""
        return not stat.S_ISCHR(os.fstat(self._fd).st_mode)

    def open(self, failed: Callable[[str], object]) -> int:
        """Return a descriptor, which the caller closes; `failed` gets the reason for an early end."""
        if os.isatty(self._fd):
            return (
                os.dup(self._fd) if self._single and _in_foreground(self._fd) else os.open(os.devnull, os.O_RDONLY)
            )
        if self._single or not self.is_sent:
            return os.dup(self._fd)
        if stat.S_ISREG(os.fstat(self._fd).st_mode):
            with contextlib.suppress(OSError):
                file = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY)
                os.lseek(file, self._offset, os.SEEK_SET)
                return file
        read_fd, write_fd = os.pipe()
        start_thread("tfmon-input", partial(self._feed, write_fd, failed), failed)
        return read_fd

    def _feed(self, pipe: int, failed: Callable[[str], object]) -> None:
        offset = 0
        self._pipes.add(pipe)
        try:
            while chunk := self._chunk(offset):
                offset += os.write(pipe, chunk)
        except BrokenPipeError:
            pass
        except OSError as error:
            failed(error.strerror or str(error))
        finally:
            self._pipes.discard(pipe)
            os.close(pipe)

    def _chunk(self, offset: int) -> bytes:
        """Return available data, or empty at the end."""
        waits = offset >= self._size and not self._missed(offset)
        with self._lock if waits else contextlib.nullcontext():
            if self._missed(offset):
                raise OSError(0, TOO_LONG)
            if offset >= self._size and not self._over:
                alone = self._size >= KEPT_BYTES and (self._passed > 0 or len(self._pipes) == 1)
                chunk = os.read(self._fd, CHUNK_BYTES)
                self._over = not chunk
                if alone:
                    self._passed += len(chunk)
                    return chunk
                if self._kept is None:
                    self._kept = tempfile.TemporaryFile()  # noqa: SIM115 - it stays as long as this object
                os.pwrite(self._kept.fileno(), chunk, self._size)
                self._size += len(chunk)
        return b"" if self._kept is None else os.pread(self._kept.fileno(), CHUNK_BYTES, offset)

    def _missed(self, offset: int) -> bool:
        return self._size <= offset < self._size + self._passed


def _in_foreground(fd: int) -> bool:
    """The shell that started tfmon may need the input."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # not the controlling terminal
        return True


_input: ScriptInput | None = None


def pass_on(*, single: bool) -> None:
    """Pass standard input on from now on."""
    global _input  # noqa: PLW0603 - state of the process
    _input = ScriptInput(single=single)


def current() -> ScriptInput | None:
    """Return the input to pass on."""
    return _input
