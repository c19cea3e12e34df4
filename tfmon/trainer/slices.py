"""When a lane may train, where windows and slices end, and how much of a slice's start is discarded."""

from __future__ import annotations

import math

from tfmon.model.requests import RunSlice

WINDOW_NS = 200_000_000
"""Shortest length of a window; it ends with the step that is then running, or with the slice. In a slice, one that
would leave less than half a window behind it lasts until the end: every window costs time."""
STRETCH_NS, GPU_STRETCH_NS = 10_000_000, 25_000_000
STILL_RISING = 1.1
"""The start of a slice is discarded, because caches and clocks have just served the other lane. It is measured in
stretches of `STRETCH_NS` or one step; on a GPU, whose clocks take longer to rise, of `GPU_STRETCH_NS`. There are
at least two, and more until a stretch is not faster than the one before by the factor `STILL_RISING`. Stretches
that are compared are discarded, so that what is kept is not selected by its speed. At most half of the slice is
discarded."""
LONG_STEP_NS = 20_000_000
"""On a CPU, one step as long as this is the whole start: a switch costs it 3 ms, and the next one nothing."""
KEPT_NS, GPU_KEPT_NS = 100_000_000, 500_000_000
"""A first step that takes as long is kept: on a CPU a switch costs it 3 ms. On a GPU, whose clocks
take longer to rise, it must be as long as the usual slice, which a second step would double.

Source: `tests/benchmarks/slow_steps.py switch`."""


class Slices:
    """Tells whether a lane may train, and when the stretch that it trains now should end.

    Thread: the one that trains.
    """

    def __init__(self, device: str = "cpu") -> None:
        """Start paused; `device` is `cpu` or `gpu`."""
        self.paused = True
        self.current: RunSlice | None = None
        """The slice that is running; None while the lanes train concurrently."""
        self.start_done = False
        """False while the start of the slice is discarded."""
        self.ends_ns = 0
        gpu = device == "gpu"
        self.stretch_ns = GPU_STRETCH_NS if gpu else STRETCH_NS
        self._long_step_ns = math.inf if gpu else LONG_STEP_NS
        self._kept_ns = GPU_KEPT_NS if gpu else KEPT_NS
        self._speed: float | None = None
        self._steps = self._examples = 0

    @property
    def round(self) -> int | None:
        """Round of the slice; None while the lanes train concurrently."""
        return None if self.current is None else self.current.round

    @property
    def starting(self) -> bool:
        """Whether the lane is at the start of a slice, which is discarded."""
        return self.current is not None and not self.start_done

    def begin(self, granted: RunSlice, now_ns: int, steps: int, examples: int) -> None:
        """Begin a slice; `steps` and `examples` are what the current window has already."""
        self.current, self.start_done = granted, False
        self.ends_ns = now_ns + int(granted.seconds * 1e9)
        self._speed, self._steps, self._examples = None, steps, examples

    def pause(self) -> bool:
        """Pause the lane; return False if it is paused already."""
        if self.paused:
            return False
        self.current, self.paused = None, True
        return True

    def due_ns(self, since_ns: int) -> int:
        """Return when a stretch that began at `since_ns` should end."""
        if self.current is None:
            return since_ns + WINDOW_NS
        if not self.start_done:
            return since_ns + self.stretch_ns
        return since_ns + WINDOW_NS if self.ends_ns - since_ns >= 1.5 * WINDOW_NS else self.ends_ns

    def stretch_over(self, span_ns: int) -> bool:
        """Return whether a stretch of the start has lasted long enough; a request may have interrupted it."""
        return span_ns >= self.stretch_ns

    def keeps(self, span_ns: int, steps: int) -> bool:
        """End the start with its first stretch if that is one long step, which counts; return whether it did.

        Args:
            span_ns: How long the stretch has lasted.
            steps: Those of the window, from before the slice included.
        """
        long = self.starting and self._speed is None and span_ns >= self._kept_ns and steps == self._steps + 1
        self.start_done = self.start_done or long
        return long

    def still_rising(self, now_ns: int, since_ns: int, steps: int, examples: int) -> bool:
        """Return whether the start goes on: the stretch from `since_ns` to `now_ns` was the first, or faster.

        It does not after one long step.

        Args:
            steps: Those of the window, its earlier stretches included.
            examples: Theirs; 0 where examples are not counted.
        """
        if self.current is None or self.start_done:
            return False
        single = steps - self._steps == 1 and now_ns - since_ns >= self._long_step_ns
        done = examples - self._examples if examples else steps - self._steps
        before, self._speed = self._speed, done / (now_ns - since_ns)
        self._steps, self._examples = steps, examples
        if single or now_ns >= self.ends_ns - int(self.current.seconds * 0.5e9):
            return False
        return before is None or self._speed > before * STILL_RISING

    def window_closed(self, now_ns: int) -> RunSlice | None:
        """Record that a window is closed; return the slice and pause the lane if the slice ends with it."""
        if self.current is None:
            return None
        if not self.start_done:
            self.start_done = True
            return None
        if now_ns < self.ends_ns:
            return None
        ended, self.current, self.paused = self.current, None, True
        return ended
