"""Measures the steps of a user's script."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence, Sized
from operator import sub
from pathlib import Path
from typing import Any

from tfmon.hooks.cause_reports import causes
from tfmon.hooks.process_account import part_of
from tfmon.hooks.tf_feed import TensorFlowFeed
from tfmon.model.requests import TakeProfile
from tfmon.system.lane_clock import lane_clock
from tfmon.trainer.capture import Capture, CaptureError
from tfmon.trainer.channel import Reporter
from tfmon.trainer.lane_control import SAMPLED, WARM_UP, LaneControl
from tfmon.trainer.slices import WINDOW_NS
from tfmon.trainer.step_clock import CAPACITY, Samples
from tfmon.trainer.time_parts import account

WARM_UP_NS, WARM_UP_STEPS = 500_000_000, 3
"""Time and steps, or a single step of this time without a trace."""
LEAST_WINDOW_NS = WINDOW_NS // 4
"""Minimum window that an epoch's end closes."""
BEHIND = 0.25
"""If reading the loss takes a larger share, calls only start steps, as in JAX."""
MOST = 1_024
"""Maximum number of bundled steps."""
END = "end"
"""Mark of a last window without steps."""
OUTSIDE, BETWEEN, VALIDATION = "outside the steps", "between epochs", "validation"
NO_TENSORFLOW = "a profile is taken by TensorFlow, which this script has not loaded"


class Meter:
    """Times steps and makes windows. Thread: training; any for `clock.last_end_ns`. Units: ns."""

    def __init__(self, control: LaneControl, reporter: Reporter, waiting: Sized = ()) -> None:
        self.control, self.reporter, self.clock = control, reporter, control.clock
        control.before_window = self.take_feed
        control.new_marks = lambda: () if self.warm else (WARM_UP,)
        self.ready: Callable[[], object] = list
        """Called after the warm-up; sets `warm`."""
        self.stopped_ns = 0
        self._resumed = False
        """Whether a stop was before the step, which is not sampled then: that would hide its wait."""
        self._passing: list[tuple[int, str]] = []
        self.feed: TensorFlowFeed | None = None
        """Counts the input that graphs read."""
        self.warm = False
        self.steady_step = False
        self.samples_steps = False
        self.waiting = waiting
        self._warm_up_began_ns = self._began_ns = self._call_ns = 0
        self._seen_traces, self._feed_totals = 0, (0, 0)
        self._waits: deque[tuple[int, int]] = deque(maxlen=8)
        self._loss: Any = None
        self._behind_ns = 0
        self._sampling = False
        self.confirm: Callable[[], int] = int
        """Returns the unreported steps that optimizers counted."""
        self._capture: tuple[Capture, TakeProfile] | None = None
        self._marker = contextlib.ExitStack()

    def start_step(self, at_ns: int | None = None) -> None:
        """Begin a step."""
        clock, control = self.clock, self.control
        in_window = clock.added or self._sampling or self._capture is not None
        # The wait of a step must not select samples.
        due = not self._resumed and control.sampler.due(clock.began_ns)
        if not in_window and clock.last_end_ns and control.steady:
            if control.profile_request is not None:
                request, control.profile_request = control.profile_request, None
                self._begin_capture(request)
            elif self.samples_steps and self.warm and due:
                self._sampling = True
                self.take_feed()
        if self._capture is not None:
            self._marker.enter_context(self._capture[0].step())
        self._began_ns = at_ns or lane_clock.now_ns()
        if not clock.last_end_ns:
            self.skip_feed()
            causes.training_begins(self._began_ns)
            account.steps_begin(self._began_ns)
            self._warm_up_began_ns = self._warm_up_began_ns or self._began_ns
            control.begin_window(self._began_ns)

    def cancel_step(self) -> None:
        """Discard the current step, which is not sampled either."""
        self._sampling = False
        self._marker.close()

    def end_step(
        self,
        *,
        steps: int = 1,
        loss: object = None,
        examples: int = 0,
        input_ns: int = 0,
        call_ns: int | None = None,
        ended_ns: int | None = None,
    ) -> None:
        """End one or several steps. Close the window if it is due, which reads the loss.

        Args:
            examples: without the feed's, as `input_ns`.
            call_ns: duration without input. None if the step began with `start_step`.
            ended_ns: end time, if before now. The time since then is in no step.
        """
        now_ns = ended_ns or lane_clock.now_ns()
        if self._capture is not None:
            self.cancel_step()
        clock, control = self.clock, self.control
        if call_ns is None:
            call_ns = now_ns - self._began_ns - input_ns
            for waited_at_ns, wait_ns in self._waits:
                call_ns -= wait_ns if self._began_ns < waited_at_ns <= now_ns else 0
        self._call_ns = call_ns
        took_ns = now_ns - clock.last_end_ns
        if control.traces is not None:
            self._seen_traces = control.traces.count
            if control.traces.latest_ns > self._began_ns:
                clock.traced_steps += 1
                clock.traced_ns += call_ns
        clock.add([took_ns // steps] * steps, now_ns, examples, input_ns, call_ns)
        self._loss = loss
        if ended_ns is not None:
            account.steps_end(*part_of(OUTSIDE), at_ns=ended_ns)
            now_ns = self._skip_to(lane_clock.now_ns())
        if self._sampling:
            self._finish_sample()
        elif self._capture is not None:
            if self._capture[0].steps >= self._capture[1].steps:
                self._finish_capture()
        elif control.unconfirmed:
            control.confirm_knobs(now_ns, took_ns)
        full = clock.kept + clock.added >= CAPACITY
        due_ns = control.slices.due_ns(control.stretch_began_ns)
        # Reading the loss waits for all started steps.
        due = now_ns >= due_ns or clock.added * self._behind_ns > due_ns - control.stretch_began_ns
        sample_next = self._resumed and self.warm and self.samples_steps and control.sampler.due(now_ns)
        self._resumed = False
        if due or full or self.waiting or clock.done == steps or sample_next:
            self.end_stretch()

    def alike_until(self) -> int:
        """Return the time until which steps may be bundled, or 0."""
        control = self.control
        traced = control.traces is None or control.traces.count != self._seen_traces
        alone = self._sampling or self._capture is not None or control.unconfirmed or self.waiting or traced
        if alone or self.clock.room <= MOST:
            return 0
        return control.slices.due_ns(control.stretch_began_ns)

    def end_steps(self, ends_ns: Sequence[int], *, loss: object, examples: int, input_ns: int) -> None:
        """End several steps. `loss` is the last step's."""
        times_ns = list(map(sub, ends_ns, (self.clock.last_end_ns, *ends_ns)))
        call_ns = ends_ns[-1] - self._began_ns - input_ns
        self.clock.add(times_ns, ends_ns[-1], examples, input_ns, call_ns)
        self._began_ns, self._loss = ends_ns[-1], loss

    def _skip_to(self, at_ns: int) -> int:
        reasons, since_ns, reason = Counter[str](), self.clock.last_end_ns, OUTSIDE
        self.clock.input_ns -= sum(wait_ns for ended_ns, wait_ns in self._waits if ended_ns > since_ns)
        self._waits.clear()
        for moment_ns, later in (*self._passing, (at_ns, "")):
            until_ns = min(max(moment_ns, since_ns), at_ns)
            reasons[reason] += until_ns - since_ns
            since_ns, reason = until_ns, later
        by_ns = self.clock.skip(at_ns, reasons)
        self.control.stretch_began_ns += by_ns
        self._began_ns += by_ns
        self._passing = []
        return at_ns

    def count_untimed(self, examples: int, loss: object) -> None:
        """Count a step before the first measurement."""
        self.clock.done += 1
        self.control.sampler.sums.examples += examples
        self.clock.marks.add(WARM_UP)
        self._loss = loss
        with self.reporter.lock:
            self.reporter.send(self.control.window(self.clock.last_end_ns, self.read_loss()))
            self.control.sampler.sums = Samples()
            self.clock.reset(self.clock.last_end_ns, self.clock.marks)

    def read_loss(self) -> float | None:
        """Wait for the device, and return the last loss."""
        loss: Any = self._loss() if callable(self._loss) else self._loss
        if loss is None:
            return None
        try:
            return float(loss if getattr(loss, "ndim", 0) == 0 else loss.mean())
        except (TypeError, ValueError, AttributeError, RuntimeError):
            return None

    def end_stretch(self) -> None:
        """Wait for the device, and close the window."""
        if self._capture is None:
            self._close_stretch()
        if not self.warm and self._warmed_up:
            self.ready()

    def _close_stretch(self) -> None:
        missed, trained = self.confirm(), self.clock.added + self.clock.steps
        loss = self.read_loss() if trained else None
        synced_ns = lane_clock.now_ns()
        if self.clock.added and not self.samples_steps:
            self._count_wait(synced_ns)
        self.clock.count_added(missed)
        if not trained:
            return
        if not self.warm:
            self.steady_step = self.clock.longest_ns >= WARM_UP_NS and not self.clock.traced_steps
        self.take_feed()
        with self.reporter.lock:
            self.control.finish_stretch(synced_ns, loss)
            self.clock.last_end_ns = lane_clock.now_ns()

    def _count_wait(self, synced_ns: int) -> None:
        began_ns = self.control.stretch_began_ns
        waited_ns = synced_ns - self.clock.last_end_ns
        behind = waited_ns > BEHIND * (synced_ns - began_ns)
        self._behind_ns = self.clock.count_wait(began_ns, synced_ns) if behind else 0

    @property
    def _warmed_up(self) -> bool:
        warm_ns = self.clock.last_end_ns - self._warm_up_began_ns
        return warm_ns > WARM_UP_NS and (self.steady_step or self.clock.done >= WARM_UP_STEPS)

    def send_rest(self) -> None:
        """Send the last window."""
        if self.clock.steps:
            self.take_feed()
        elif self.control.sampler.sums.examples or self.control.sampler.sums.steps:
            self.clock.marks.add(END)
        else:
            return
        window = self.control.window(self.clock.last_end_ns, self.read_loss())
        self.reporter.send(window)
        account.split(window)

    def skip_feed(self) -> None:
        """Discard the feed's counts."""
        self._feed_totals = (self.feed and self.feed.totals()) or self._feed_totals

    def all_waits_ns(self) -> int:
        """Return the total input wait."""
        return self.clock.waited_ns + (self.feed.waits_ns() if self.feed is not None else 0)

    def waited(self, time_ns: int) -> None:
        """Count input wait of the current step."""
        if self.clock.last_end_ns and not self.stopped_ns:
            self.clock.input_ns += time_ns
            self._waits.append((lane_clock.now_ns(), time_ns))

    def take_feed(self) -> None:
        """Add the feed's counts to the window."""
        before = self._feed_totals
        self.skip_feed()
        input_ns, examples = map(sub, self._feed_totals, before)
        # The clock of a graph includes suspensions.
        input_ns = min(input_ns, self.clock.call_ns)
        self.clock.input_ns += input_ns
        self.clock.call_ns -= input_ns
        self.clock.examples += examples

    def forget_start(self) -> None:
        """Measure from the next step on."""
        self.cancel_step()
        if self.clock.done:
            self.stop_clock()
        else:
            self.clock.last_end_ns = 0

    def stop_clock(self, reason: str = OUTSIDE) -> None:
        """Stop the clock until the next step, for a reason that the account shows."""
        if self.stopped_ns or not self.clock.last_end_ns:
            return
        self._finish_capture()
        if any(ended_ns > self.clock.last_end_ns for ended_ns, _ in self._waits):
            self._skip_to(lane_clock.now_ns())  # after the last step, such as the wait for freeing its iterator
        if self.clock.last_end_ns - self.clock.began_ns >= LEAST_WINDOW_NS:
            self.end_stretch()
        else:
            self.clock.count_added(self.confirm())
        self.clock.stop()
        account.steps_end(*part_of(reason), at_ns=self.clock.last_end_ns)
        self.stopped_ns = lane_clock.now_ns()
        self._passing = [(self.clock.last_end_ns, reason)]

    def passes(self, reason: str) -> str:
        """Change the reason of a stopped clock, and return the previous reason."""
        before = self._passing[-1][1] if self._passing else OUTSIDE
        if self.stopped_ns and reason != before:
            self._passing.append((lane_clock.now_ns(), reason))
            account.switch(*part_of(reason))
        return before

    def start_clock(self, at_ns: int | None = None) -> int:
        """Restart the clock. Return the time since the stop."""
        if not self.stopped_ns:
            return 0
        now_ns = at_ns or lane_clock.now_ns()
        gap_ns, self.stopped_ns, self._resumed = now_ns - self.stopped_ns, 0, True
        account.steps_begin(max(now_ns, self.clock.last_end_ns))
        self._skip_to(max(now_ns, self.clock.last_end_ns))
        return gap_ns

    def _finish_sample(self) -> None:
        self._sampling = False
        clock, control = self.clock, self.control
        called_ns = clock.last_end_ns
        self.read_loss()
        done_ns = lane_clock.now_ns()
        self.take_feed()
        sample = Samples(
            steps=1,
            examples=clock.examples,
            input_ns=clock.input_ns,
            call_ns=max(0, self._call_ns - clock.input_ns),
            tail_ns=done_ns - called_ns,
        )
        control.sampler.add(sample, done_ns, done_ns - self._began_ns - control.step_ns)
        clock.examples = 0
        control.begin_window(done_ns, SAMPLED)

    def _begin_capture(self, request: TakeProfile) -> None:
        if "tensorflow" not in sys.modules:
            self.control.report_profile_failure(request, NO_TENSORFLOW)
            return
        capture = Capture(Path(request.folder))
        try:
            capture.start()
        except CaptureError as error:
            self.control.report_profile_failure(request, str(error))
        else:
            self._capture = capture, request

    def _finish_capture(self) -> None:
        if self._capture is None:
            return
        (capture, request), self._capture = self._capture, None
        self.read_loss()
        self.control.report_profile(request, capture.stop)
        self.control.discard_steps()
