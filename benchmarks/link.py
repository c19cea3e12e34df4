"""A program in a terminal at the end of a link that may be slow."""

import time

from support.terminal import Terminal
from support.waiting import PATIENCE_S

LOOK_S = 0.05


class Link(Terminal):
    """A program in a terminal that accepts a number of bytes a second: `None` for all, 0 for none."""

    def __init__(self, *arguments: str, bytes_per_s: float | None = None, **how) -> None:
        super().__init__(*arguments, **how)
        self.process.delaybeforesend = None
        self.bytes_per_s = bytes_per_s
        self.taken_at = 0.0
        self._may_take_at = 0.0

    def read(self) -> str:
        """Read the output that the link lets through, and return the screen."""
        wait_s = max(0.0, self._may_take_at - time.monotonic())
        if self.bytes_per_s == 0 or wait_s > LOOK_S:
            time.sleep(LOOK_S)
            return self.text()
        time.sleep(wait_s)
        self.most = 65_536 if self.bytes_per_s is None else 512
        before = self.taken
        shown = super().read()
        if self.taken != before:
            self.taken_at = time.monotonic()
            if self.bytes_per_s is not None:
                took_s = (self.taken - before) / self.bytes_per_s
                self._may_take_at = max(self._may_take_at, self.taken_at - 0.02) + took_s
        return shown

    def run(self, seconds: float) -> None:
        """Read for some seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.read()

    def quit(self, keys: str) -> float:
        """Quit by keys and return the time until the end in seconds; infinity if the program had to be killed."""
        if self.process.closed:
            return 0.0
        began = time.monotonic()
        self.process.send(keys)
        while self.process.isalive() and time.monotonic() - began < PATIENCE_S:
            self.read()
        took_s = float("inf") if self.process.isalive() else time.monotonic() - began
        self.close()
        return took_s
