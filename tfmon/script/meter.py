"""The window under way in a lane that is a user's process: what its steps took, and whence their input came."""

from __future__ import annotations

import time
from typing import Any

from tfmon.model.knobs import KnobValue
from tfmon.model.lane_events import Window
from tfmon.script import libraries
from tfmon.script.teller import Teller
from tfmon.trainer.step_clock import CAPACITY, KNOB_CHANGE, OutlierWindows, Samples, StepClock
from tfmon.trainer.stepper import TraceWatch

WARM_UP = "warm-up"
"""Mark of the windows before the lane says that it is ready."""
END = "end"
"""Mark of a last window without steps, after those that are in none."""


class InputMeter:
    """What is known of a lane's input besides its steps' times. This one knows nothing."""

    def totals(self) -> tuple[int, int] | None:
        """Return nanoseconds waited for batches inside the steps, and examples, so far; None for unknown."""
        return None


class Meter:
    """Adds up steps, and makes a window of them.

    Thread: the one that trains; `ended_ns` may be read by others.
    Units: nanoseconds of `time.monotonic_ns`.
    """

    def __init__(self, device: str, teller: Teller) -> None:
        self.clock, self.samples = StepClock(), Samples()
        self.feed = InputMeter()
        self.traces: TraceWatch | None = None
        self.warm = False
        """Whether the lane was ready once: windows before that are marked."""
        self.done = 0
        """Steps since the start."""
        self.began_ns = self.ended_ns = 0
        """When the last step began, and ended; 0 before the first."""
        self.tried_ns = 0
        """Since when the window may be closed."""
        self.call_ns = 0
        """What the last step took without its input."""
        self.period_ns = 0.0
        """What a step of the last window took."""
        self.warm_since_ns = 0
        self._device = device
        self._teller = teller
        self._odd = OutlierWindows()
        self._ring = 0
        self._seen_traces = 0
        self._known = (0, 0)
        self._loss: Any = None

    # ------------------------------------------------------------ steps

    @property
    def empty(self) -> bool:
        """Whether the window has no step yet."""
        return not self._ring and not self.clock.steps

    @property
    def full(self) -> bool:
        """Whether the steps' times must be counted now."""
        return self._ring >= CAPACITY

    def begin(self) -> None:
        """Begin a step."""
        self.began_ns = time.monotonic_ns()
        if not self.ended_ns:
            self.restart(self.began_ns)

    def end(self, now_ns: int, steps: int, loss: object, examples: int, input_ns: int, call_ns: int | None) -> int:
        """End a step, or several that were run as one; return the time since the end of the one before."""
        clock = self.clock
        self._loss = loss
        if call_ns is None:
            call_ns = now_ns - self.began_ns - input_ns
        self.call_ns = call_ns
        took_ns = now_ns - self.ended_ns
        if self.traces is not None and self.traces.count != self._seen_traces:
            self._seen_traces = self.traces.count
            clock.traced_steps += 1
            clock.traced_ns += call_ns
        clock.examples += examples
        clock.input_ns += input_ns
        clock.call_ns += call_ns
        if call_ns > clock.longest_call_ns:
            clock.longest_call_ns = call_ns
        if steps == 1 and self._ring < CAPACITY:
            clock.times[self._ring] = took_ns
            self._ring += 1
        else:
            after = min(self._ring + steps, CAPACITY)
            for pipes in range(self._ring, after):
                clock.times[pipes] = took_ns // steps
            self._ring = after
        self.done += steps
        self.ended_ns = now_ns
        return took_ns

    def count(self) -> None:
        """Count the times of the last steps into the window."""
        if self._ring:
            self.clock.count(self._ring)
            self._ring = 0

    def read_loss(self) -> float | None:
        """Read the last step's loss, and by that wait for the device to finish it; None for no number."""
        loss: Any = self._loss() if callable(self._loss) else self._loss
        if loss is None:
            return None
        try:
            return float(loss if getattr(loss, "ndim", 0) == 0 else loss.mean())
        except (TypeError, ValueError, AttributeError, RuntimeError):
            return None

    def take_feed(self) -> None:
        """Add to the window what the feed knows of the steps since the last time."""
        totals = self.feed.totals()
        if totals is None:
            return
        input_ns, examples = totals[0] - self._known[0], totals[1] - self._known[1]
        self._known = totals
        self.clock.input_ns += input_ns
        self.clock.call_ns = max(0, self.clock.call_ns - input_ns)
        self.clock.examples += examples

    # ------------------------------------------------------------ windows

    def restart(self, at_ns: int) -> None:
        """Begin a window after a time without steps."""
        self.leave_out(at_ns)
        self._known = self.feed.totals() or (0, 0)
        if not self.warm:
            self.warm_since_ns = self.warm_since_ns or at_ns
            self.clock.marks.add(WARM_UP)

    def leave_out(self, at_ns: int) -> None:
        """Begin the window anew; the steps that it has had count as trained and no more."""
        self.clock.reset(at_ns)
        self._ring = 0
        self.tried_ns = self.ended_ns = at_ns

    def move(self, by_ns: int) -> None:
        """Let the window stand still for so long."""
        self.clock.began_ns += by_ns
        self.tried_ns += by_ns
        self.ended_ns += by_ns

    def expect_change(self) -> None:
        """Take note that a knob changes in this window."""
        self._odd = OutlierWindows()
        self.clock.marks.add(KNOB_CHANGE)

    def close(
        self, at_ns: int, loss: float | None, settings: dict[str, KnobValue], round_number: int | None
    ) -> bool:
        """Send the window if the pipe has room, and begin the next; else it grows. Return whether it went."""
        window = self._window(at_ns, loss, settings, round_number)
        self.period_ns = window.span_ns / max(1, window.steps)
        self.tried_ns = at_ns
        if not self._teller.offer(window):
            return False
        self.clock.reset(at_ns)
        self.samples = Samples()
        if not self.warm:
            self.clock.marks.add(WARM_UP)
        return True

    def end_all(self, settings: dict[str, KnobValue], round_number: int | None) -> None:
        """Send what is left of the last window; without a step of its own it tells of those before it."""
        if self.clock.steps:
            self.take_feed()
            self._teller.send(self._window(self.ended_ns, self.read_loss(), settings, round_number))
        elif self.samples.examples or self.samples.steps:
            self.clock.marks.add(END)
            self._teller.send(self._window(time.monotonic_ns(), None, settings, round_number))

    def _window(
        self, at_ns: int, loss: float | None, settings: dict[str, KnobValue], round_number: int | None
    ) -> Window:
        clock = self.clock
        if WARM_UP not in clock.marks and KNOB_CHANGE not in clock.marks:
            self._odd.mark(clock)
        in_use, peak = libraries.gpu_memory(self._device)
        return clock.window(
            at_ns,
            self.samples,
            step=self.done,
            loss=loss,
            settings=settings,
            round=round_number,
            gpu_memory_allocated_bytes=in_use,
            gpu_memory_peak_bytes=peak,
            traced=self.traces.cause() if self.traces is not None and clock.traced_steps else "",
        )

    def told(self, since_ns: int) -> None:
        """Take note that reporting is over which began then: it is no part of the next step."""
        self.ended_ns = time.monotonic_ns()
        self.clock.report_ns += self.ended_ns - since_ns
