"""Steps of a lane that are in no window: single ones between two barriers, and those under the profiler."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Any

from tfmon.model.lane_events import Profiled, ProfileFailed
from tfmon.model.wire import Profile
from tfmon.script.meter import Meter
from tfmon.script.teller import Teller
from tfmon.trainer.capture import Capture, CaptureError
from tfmon.trainer.step_clock import rest_ns

NO_TENSORFLOW = "a profile is taken by TensorFlow, which this script has not loaded"


class Asides:
    """Begins such steps between two windows, and leaves them out of both.

    Thread: the one that trains.
    """

    def __init__(self, meter: Meter, teller: Teller) -> None:
        self.barriers = False
        """Whether steps may be sampled between barriers: reading their loss says when the device was done."""
        self._meter, self._teller = meter, teller
        self._wish: Profile | None = None
        self._capture: tuple[Capture, Profile] | None = None
        self._marker: contextlib.AbstractContextManager[Any] | None = None
        self._sampling = False
        self._due_ns = 0

    @property
    def profiling(self) -> bool:
        """Whether a profile is being taken."""
        return self._capture is not None

    @property
    def under_way(self) -> bool:
        """Whether the step under way is in no window."""
        return self._sampling or self._capture is not None

    def ask(self, wish: Profile) -> None:
        """Take a profile before the next window that may have one."""
        self._wish = wish

    def before_window(self) -> None:
        """Begin what is due, where a steady window would begin."""
        if self._wish is not None:
            wish, self._wish = self._wish, None
            self._begin_capture(wish)
        elif self.barriers and self._meter.warm and time.monotonic_ns() >= self._due_ns:
            self._sampling = True
            self._meter.take_feed()

    def begin_step(self) -> None:
        """Mark the beginning of a step for the profiler."""
        if self._capture is not None:
            self._marker = self._capture[0].step()
            self._marker.__enter__()

    def end_step(self) -> None:
        """Mark its end."""
        if self._marker is not None:
            self._marker.__exit__(None, None, None)
            self._marker = None

    def after_step(self) -> None:
        """Take note of a step that is in no window."""
        if self._sampling:
            self._finish_sample()
        elif self._capture is not None and self._capture[0].steps >= self._capture[1].steps:
            self.finish_capture()

    def finish_capture(self) -> None:
        """End the profile with the steps that it has; harmless when none is being taken."""
        if self._capture is None:
            return
        (capture, wish), self._capture = self._capture, None
        self._meter.read_loss()
        try:
            path = capture.stop()
        except CaptureError as error:
            self._refuse(wish, str(error))
        else:
            self._teller.send(Profiled(at_ns=time.monotonic_ns(), folder=wish.folder, path=str(path)))
        self._meter.take_feed()
        self._meter.samples.examples += self._meter.clock.examples
        self._meter.leave_out(time.monotonic_ns())

    def _begin_capture(self, wish: Profile) -> None:
        if "tensorflow" not in sys.modules:
            self._refuse(wish, NO_TENSORFLOW)
            return
        capture = Capture(Path(wish.folder))
        try:
            capture.start()
        except CaptureError as error:
            self._refuse(wish, str(error))
        else:
            self._capture = capture, wish

    def _refuse(self, wish: Profile, reason: str) -> None:
        self._teller.send(ProfileFailed(at_ns=time.monotonic_ns(), folder=wish.folder, reason=reason))

    def _finish_sample(self) -> None:
        """End a step that was run between two barriers: the one before it is the end of the window."""
        self._sampling = False
        meter = self._meter
        called_ns = meter.ended_ns
        meter.read_loss()
        done_ns = time.monotonic_ns()
        meter.take_feed()
        input_ns, samples = meter.clock.input_ns, meter.samples
        samples.steps += 1
        samples.examples += meter.clock.examples
        samples.input_ns += input_ns
        samples.call_ns += max(0, meter.call_ns - input_ns)
        samples.tail_ns += done_ns - called_ns
        self._due_ns = done_ns + rest_ns(done_ns - meter.began_ns - meter.period_ns)
        meter.leave_out(done_ns)
