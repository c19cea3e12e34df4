"""Whether a lane may train now, and where it is in its slice: the same for a scenario and for a user's script."""

from __future__ import annotations

from tfmon.model.wire import RunSlice

WINDOW_NS = 200_000_000
"""How long a window lasts at least; it ends with the step that is then under way."""
SLICE_START_NS = 25_000_000
STILL_RISING = 1.1
"""The start of a slice is left out, for caches and clocks were the other lane's a moment ago: stretches of so
long, or of a step, two at least, and more until one is not faster than the one before by this factor. All that
is compared is left out, so what is kept was not chosen by its speed. Half the slice at most."""


class Slices:
    """Holds a lane, and ends its windows where its slices need an end.

    Thread: the one that trains.
    """

    def __init__(self) -> None:
        self.held = True
        self.current: RunSlice | None = None
        """The slice that is under way; None while the lanes train at once."""
        self.started = False
        """False while the start of the slice is left out."""
        self.ends_ns = 0
        self._pace: float | None = None
        self._examples = 0

    @property
    def round(self) -> int | None:
        """Round of the slice; None while the lanes train at once."""
        return None if self.current is None else self.current.round

    @property
    def starting(self) -> bool:
        """Whether the lane is at the start of a slice, which is left out."""
        return self.current is not None and not self.started

    def begin(self, given: RunSlice, now_ns: int, examples: int) -> None:
        """Begin a slice; `examples` is what the window under way has of them."""
        self.current, self.started = given, False
        self.ends_ns = now_ns + int(given.seconds * 1e9)
        self._pace, self._examples = None, examples

    def stop(self) -> bool:
        """Pause the lane; return False for one that stands still already."""
        if self.held:
            return False
        self.current, self.held = None, True
        return True

    def due_ns(self, since_ns: int) -> int:
        """Return when the window under way should end."""
        if self.current is None:
            return since_ns + WINDOW_NS
        return since_ns + SLICE_START_NS if not self.started else min(since_ns + WINDOW_NS, self.ends_ns)

    def unsettled(self, now_ns: int, since_ns: int, examples: int) -> bool:
        """Tell whether the start of the slice is not over yet, after one more stretch of it."""
        if self.current is None or self.started:
            return False
        span_ns, more = now_ns - since_ns, examples - self._examples
        self._examples = examples
        if now_ns >= self.ends_ns - int(self.current.seconds * 0.5e9):
            return False
        if span_ns < SLICE_START_NS:
            return True  # a message cut it short
        before, self._pace = self._pace, more / span_ns
        return before is None or self._pace > before * STILL_RISING

    def window_ended(self, now_ns: int) -> RunSlice | None:
        """Take note that a window was closed; return the slice if that was its end, and the lane is held then."""
        if self.current is None:
            return None
        if not self.started:
            self.started = True
            return None
        if now_ns < self.ends_ns:
            return None
        ended, self.current, self.held = self.current, None, True
        return ended
