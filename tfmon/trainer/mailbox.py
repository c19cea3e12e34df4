"""What the loop is told while it trains: requests from the monitor, and pipelines that have become ready."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

Letter = TypeVar("Letter")


class Mailbox(Generic[Letter]):
    """A queue that costs its reader one truth test a step while nothing lies in it.

    Thread: `post` from any thread; `empty`, `take` and `wait` from the loop's thread only.
    """

    def __init__(self) -> None:
        self._letters: deque[Letter] = deque()
        self._posted = threading.Event()
        self.waiting = self._letters
        """True in a boolean context while something lies in the box."""

    def post(self, letter: Letter) -> None:
        """Put something in."""
        self._letters.append(letter)
        self._posted.set()

    def take(self) -> Letter | None:
        """Return the oldest letter, or None when there is none."""
        self._posted.clear()
        return self._letters.popleft() if self._letters else None

    def wait(self) -> None:
        """Sleep until something lies in the box."""
        while not self._letters:
            self._posted.wait()
            self._posted.clear()


def leave(code: int) -> NoReturn:
    """End the process at once; the interpreter's own way out of a TensorFlow process takes most of a second.

    AutoGraph writes the code it makes into temporary files and leaves their removal to that way out.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("__autograph_generated_file") and module.__file__:
            with contextlib.suppress(OSError):
                Path(module.__file__).unlink()
    os._exit(code)
