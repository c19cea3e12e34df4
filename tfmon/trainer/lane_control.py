"""The work of every lane around its steps: windows, slices, pauses, samples, knobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfmon.model.event_base import LaneEvent
from tfmon.model.knobs import KnobValue
from tfmon.model.lane_events import (
    PAUSED,
    RACING,
    READY,
    SLICE_START,
    KnobApplied,
    KnobRefused,
    PhaseEntered,
    Profiled,
    ProfileFailed,
    SliceEnded,
    Window,
)
from tfmon.model.requests import Pause, Request, Run, RunSlice, SetKnob, TakeProfile
from tfmon.system.lane_clock import lane_clock
from tfmon.trainer.capture import CaptureError
from tfmon.trainer.channel import Reporter
from tfmon.trainer.slices import WITH_END_NS, CpuMeter, Slices
from tfmon.trainer.step_clock import COMPILING, KNOB_CHANGE, MOST_OUTLIER_WINDOWS, Sampler, Samples, StepClock
from tfmon.trainer.time_parts import account
from tfmon.trainer.traces import TraceWatch

PAUSE, PROFILE, WARM_UP = "pause", "profile", "warm-up"
"""Marks of discarded windows. The first two are also reasons for steps outside of windows."""
SAMPLED = "sampled"
"""Reason for steps outside of windows, which ran between barriers."""


class LaneControl:
    """Closes windows, obeys slices and pauses, and confirms knobs.

    A window consists of stretches: each ends with a wait for the device.

    Thread: the training thread. Units: nanoseconds of `lane_clock`.
    """

    def __init__(
        self,
        reporter: Reporter,
        settings: Mapping[str, KnobValue],
        sampler: Sampler,
        gpu_memory: Callable[[], tuple[int | None, int | None]],
        device: str = "cpu",
    ) -> None:
        self.clock = StepClock()
        self.sampler = sampler
        self.slices = Slices(device)
        self.settings = settings
        self.traces: TraceWatch | None = None
        self.stretch_began_ns = 0
        self.step_ns = 0.0
        self.profile_request: TakeProfile | None = None
        self.unconfirmed: list[SetKnob] = []
        self.before_window: Callable[[], object] = tuple
        """Called before a window that does not follow a sent window."""
        self.new_marks: Callable[[], Iterable[str]] = tuple
        """Returns the first marks of each window."""
        self.beside_window: Callable[[], Iterable[LaneEvent]] = tuple
        self.window_sent: Callable[[], object] = tuple
        self.more_figures: Callable[[], dict[str, Any]] = dict
        """Returns more fields of a window, and may add marks."""
        self.reported: RunSlice | None = None
        self._reporter = reporter
        self._gpu_memory = gpu_memory
        self.measured_steps = 0
        """Steps in sent windows without a mark."""
        self._traced_windows = 0
        self._steps_when_ready = 0
        self._cpu = CpuMeter()
        self._examples_reported = self._examples_before = 0

    def enter(self, phase: str, *, later: bool = False) -> None:
        """Report a phase, now or with the next event."""
        event = PhaseEntered(phase=phase)
        if not (later and self._reporter.offer(event, later=True)):
            self._reporter.send(event)

    def become_ready(self) -> None:
        """Report the end of the warm-up."""
        self._steps_when_ready = self.clock.done
        self.enter(READY)

    def handle(self, request: Request) -> None:
        """Carry out the monitor's requests, except knobs."""
        match request:
            case Run():
                self.slices.current = None
                self.resume(PAUSE if self.clock.done > self._steps_when_ready else "")
            case RunSlice():
                now_ns = lane_clock.now_ns()
                self._cpu.begin()
                self.resume(SLICE_START)
                self._examples_before = self._examples_trained
                self.slices.begin(request, now_ns, self.clock.steps, self.clock.examples)
            case Pause():
                if self.slices.pause():
                    self.enter(PAUSED)
            case TakeProfile():
                self.profile_request = request
            case _:
                pass

    def resume(self, mark: str) -> None:
        """Begin a window after a pause. A `mark` discards the window."""
        if self.slices.paused:
            self.slices.paused = False
            self.begin_window(lane_clock.now_ns())
            self.clock.marks.update([mark] if mark else [])
            self.clock.marks.update([KNOB_CHANGE] if self.unconfirmed else [])
        self.enter(RACING, later=0 < self.step_ns <= WITH_END_NS and mark == SLICE_START)

    def knob_changed(self, request: SetKnob) -> None:
        """Record that the next step has a new value."""
        self._traced_windows = 0
        self.unconfirmed.append(request)
        self.clock.marks.add(KNOB_CHANGE)

    def confirm_knobs(self, at_ns: int, gap_ns: int) -> None:
        """Report the first step under new values."""
        requests, self.unconfirmed = self.unconfirmed, []
        for request in requests:
            self._reporter.send(
                KnobApplied(
                    at_ns=lane_clock.stamp(at_ns),
                    request=request.request,
                    knob=request.knob,
                    value=self.settings[request.knob],
                    step=self.clock.done,
                    gap_ns=gap_ns,
                )
            )

    def refuse_knob(self, request: SetKnob, reason: str) -> None:
        """Report why a knob is not changed."""
        self._reporter.send(
            KnobRefused(
                request=request.request,
                knob=request.knob,
                value=request.value,
                reason=reason,
            )
        )

    @property
    def steady(self) -> bool:
        """Whether the next step begins a steady window."""
        clock = self.clock
        return not (clock.steps or clock.marks or self.unconfirmed or self.slices.starting)

    def begin_window(self, at_ns: int, reason: str = PAUSE) -> None:
        """Begin a window. For this reason, the current steps are in no window."""
        self.before_window()
        self.sampler.sums.examples += self.clock.examples
        self.clock.leave_out(at_ns, reason, self.new_marks())
        self.stretch_began_ns = at_ns

    def discard_steps(self) -> None:
        """Begin a window with the same marks, after a profile."""
        marks = self.clock.marks
        self.begin_window(lane_clock.now_ns(), PROFILE)
        self.clock.marks.update(marks)

    def finish_stretch(self, at_ns: int, loss: float | None, *, last: bool = False) -> bool:
        """Count the steps that the device finished at `at_ns`. Return whether the window was closed.

        `last`: close the window, because no step follows.
        """
        clock = self.clock
        clock.sync_ns += at_ns - clock.last_end_ns
        if self.slices.keeps(at_ns - self.stretch_began_ns, clock.steps):
            clock.marks.discard(SLICE_START)
        elif self.slices.starting:
            clock.marks.add(SLICE_START)
            if not last:
                if at_ns - self.stretch_began_ns < self.slices.stretch_ns:
                    return False
                if self.slices.still_rising(at_ns, self.stretch_began_ns, clock.steps, clock.examples):
                    self.stretch_began_ns = at_ns
                    return False
        ended = self.slices.window_closed(at_ns)
        window = self.window(at_ns, loss, ended)
        self.step_ns = window.span_ns / max(1, window.steps)
        self.stretch_began_ns = at_ns
        with_end = window.round is not None and self.slices.ends_ns - at_ns <= WITH_END_NS
        try:
            sent = self._reporter.offer(window, *self.beside_window(), later=with_end)
        except BaseException:  # raised by a signal's handler, after the window was written
            self._reported(window, at_ns)
            clock.last_end_ns = at_ns
            raise
        if ended is not None and not sent:
            self._reporter.send(window)  # the window must not include the pause
        if ended is not None or sent:
            self._reported(window, at_ns)
            self.window_sent()
        clock.report_ns += lane_clock.now_ns() - at_ns
        if ended is not None:
            self.slice_ended(ended, at_ns)
        return True

    def _reported(self, window: Window, at_ns: int) -> None:
        self._examples_reported += window.examples + window.sampled_examples
        self.measured_steps += 0 if window.marks else window.steps
        self.clock.reset(at_ns, self.new_marks())
        account.split(window)
        self.sampler.sums = Samples()

    def slice_ended(self, ended: RunSlice, at_ns: int) -> None:
        """Report the end of a slice."""
        self.reported = ended
        load = self._cpu.end(self._examples_trained - self._examples_before)
        self._reporter.send(SliceEnded(at_ns=lane_clock.stamp(at_ns), round=ended.round, load=load))

    @property
    def _examples_trained(self) -> int:
        return self._examples_reported + self.clock.examples + self.sampler.sums.examples

    def window(self, at_ns: int, loss: float | None, ended: RunSlice | None = None) -> Window:
        """Return the window that ends at `at_ns`."""
        clock, samples, traces = self.clock, self.sampler.sums, self.traces
        clock.note_suspension()
        traced = clock.traced_steps and not clock.marks & {KNOB_CHANGE, WARM_UP}
        if traced and self._traced_windows < MOST_OUTLIER_WINDOWS:
            clock.marks.add(COMPILING)
            self._traced_windows += 1
        more_figures = self.more_figures()
        allocated, peak = self._gpu_memory()
        return Window(
            at_ns=at_ns + clock.stopped_ns,
            span_ns=max(1, at_ns - clock.began_ns),
            left_out_ns=clock.left_out_ns,
            steps=clock.steps,
            examples=clock.examples,
            step=clock.done,
            input_ns=clock.input_ns,
            call_ns=clock.call_ns,
            sync_ns=clock.sync_ns,
            report_ns=clock.report_ns,
            longest_ns=clock.longest_ns,
            histogram=clock.histogram,
            loss=loss,
            settings=dict(self.settings),
            marks=tuple(sorted(clock.marks)),
            gpu_memory_allocated_bytes=allocated,
            gpu_memory_peak_bytes=peak,
            traced_steps=clock.traced_steps,
            traced_ns=clock.traced_ns,
            traced=traces.cause() if traces is not None and clock.traced_steps else "",
            sampled=samples.steps,
            sampled_examples=samples.examples,
            sampled_input_ns=samples.input_ns,
            sampled_call_ns=samples.call_ns,
            sampled_tail_ns=samples.tail_ns,
            round=self.slices.round if ended is None else ended.round,
            **more_figures,
        )

    def report_profile(self, request: TakeProfile, take: Callable[[], Path], note: str = "") -> None:
        """Report the profile of `take`, or its failure."""
        from tfmon.profile.breakdown import read_profile
        from tfmon.profile.trace import TraceError

        try:
            profile = read_profile(take(), on_gpu=request.on_gpu, note=note, chrome=request.chrome)
        except CaptureError as error:
            self.report_profile_failure(request, str(error))
        except TraceError as error:
            self.report_profile_failure(request, error.message)
        else:
            profile = replace(profile, counters=request.counters)
            self._reporter.send(Profiled(folder=request.folder, profile=profile))

    def report_profile_failure(self, request: TakeProfile, reason: str) -> None:
        """Report why no profile was taken."""
        self._reporter.send(ProfileFailed(folder=request.folder, reason=reason))
