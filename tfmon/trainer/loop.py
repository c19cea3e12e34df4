"""The training loop of a lane: steps, windows, and requests taken at step boundaries."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tfmon.model.knobs import KnobError, KnobValue, find
from tfmon.model.lane_events import (
    Finished,
    KnobApplied,
    KnobRefused,
    PhaseEntered,
    Profiled,
    ProfileFailed,
    SliceEnded,
)
from tfmon.model.lane_state import PAUSED, RACING, READY, SLICE_START, WARMING_UP
from tfmon.model.wire import Assign, Pause, Profile, Request, Run, RunSlice, SetKnob, Stop
from tfmon.trainer import runtime
from tfmon.trainer.capture import MOST_NS, STEPS, WINDOWS, CaptureError, Splits
from tfmon.trainer.channel import Mailbox, Reporter
from tfmon.trainer.pipeline import Pipelines
from tfmon.trainer.slices import STILL_RISING, WINDOW_NS, Slices
from tfmon.trainer.step_clock import (
    CAPACITY,
    KNOB_CHANGE,
    CollectorWatch,
    OutlierWindows,
    Sampler,
    Samples,
    StepClock,
)
from tfmon.trainer.stepper import Stepper
from tfmon.trainer.steps import Preparer, Setup, Steps

WARM_UP_NS = 500_000_000
WARM_UP_STEPS, WARM_UP_CALM = 3, 2
"""A lane warms up for so many steps at least, and until so many stretches of 50 ms in a row were not faster than
the one before by `STILL_RISING`, or for so long, before it says that it is ready."""
PROFILE = "profile"


@dataclass(frozen=True, slots=True)
class SetupReady:
    """The preparer's answer to a request."""

    request: int
    result: Setup | BaseException


Message: TypeAlias = Request | SetupReady


class Loop:
    """Trains until it is told to stop.

    Thread: the child's main thread; other threads reach it through the mailbox.
    """

    def __init__(
        self,
        pipelines: Pipelines,
        steps: Steps,
        assign: Assign,
        mailbox: Mailbox[Message],
        reporter: Reporter,
    ) -> None:
        self._makers = (pipelines, steps)
        self._knobs = (*pipelines.knobs, *steps.knobs)
        self._assign = assign
        self._mailbox = mailbox
        self._reporter = reporter
        self._clock = StepClock()
        self._collector = CollectorWatch()
        self._sampler = Sampler(assign.device)
        self._splits = Splits(assign.device)
        self._period_ns = 0.0
        self._calls_ns: deque[float] = deque(maxlen=WINDOWS)
        self._profile: Profile | None = None
        self._odd = OutlierWindows()
        self._preparer = Preparer(pipelines, steps, lambda number, setup: mailbox.post(SetupReady(number, setup)))
        self._settings = dict(assign.settings)
        setup = self._preparer.make(self._settings)
        assert setup.feed is not None and setup.step is not None
        self._stepper = Stepper(setup.feed, setup.step, self._clock, mailbox.waiting)
        self._stepper.reads_loss = self._reads_loss()
        self._pending_requests: dict[int, SetKnob] = {}
        self._fresh: list[SetKnob] = []
        self._tried_ns = 0
        self._slices = Slices()
        self._stopped = False

    # ------------------------------------------------------------ the life of a lane

    def run(self) -> None:
        """Warm up, wait for the start signal, and train until the end."""
        self._stepper.begin()
        try:
            self._live()
        finally:
            self._stepper.end()

    def _live(self) -> None:
        self._preparer.start()
        self._preparer.prepare_neighbours(self._settings)
        self._warm_up()
        self._enter(READY)
        while not self._stopped:
            if self._slices.held:
                self._hold()
            elif self._assign.steps is not None and self._stepper.done >= self._assign.steps:
                break
            else:
                self._train_window()
            self._read_messages()
        self._reporter.send(Finished(at_ns=time.monotonic_ns(), steps=self._stepper.done))
        self._reporter.drain(timeout_s=1.0)

    def _warm_up(self) -> None:
        self._enter(WARMING_UP)
        began_ns = before_ns = time.monotonic_ns()
        calm, pace = 0, 0.0
        while not self._stopped:
            examples = self._clock.examples
            self._stepper.until(before_ns + WINDOW_NS // 4, CAPACITY)
            self._stepper.read_loss()
            now_ns = time.monotonic_ns()
            last, pace = pace, (self._clock.examples - examples) / max(1, now_ns - before_ns)
            calm = calm + 1 if pace <= last * STILL_RISING else 0
            settled = calm >= WARM_UP_CALM or now_ns - began_ns > WARM_UP_NS
            if settled and self._clock.steps >= WARM_UP_STEPS and self._preparer.idle:
                break
            before_ns = now_ns
            self._read_messages()
        if not self._stopped and self._splits.wanted(self._settings):
            self._take_split(STEPS)
        self._stepper.done, self._sampler.samples = 0, Samples()
        self._collector.settle()
        self._preparer.took_time()

    def _hold(self) -> None:
        """Sleep until a message comes; a pipeline's own threads stop when its buffer is full."""
        self._mailbox.wait()

    def _enter(self, phase: str) -> None:
        self._reporter.send(PhaseEntered(at_ns=time.monotonic_ns(), phase=phase))

    # ------------------------------------------------------------ steps and windows

    def _train_window(self) -> None:
        clock = self._clock
        if self._profile is not None and not clock.steps and not self._slices.starting:
            self._take_profile(self._profile)
        if self._may_split():
            self._take_split(min(STEPS, self._steps_left() - 1))
            if self._slices.current is None:
                clock.marks.add(PROFILE)
        if self._may_sample():
            self._sample_step()
        # Not from the window's beginning: one that was refused grows, and is due again after the same time.
        end_ns, least = self._slices.due_ns(self._tried_ns), 1
        if self._slices.starting:
            clock.marks.add(SLICE_START)
        if self._fresh:
            self._first_step_after_change()
        self._train(end_ns, least)
        loss = self._stepper.read_loss()
        synced_ns = time.monotonic_ns()
        clock.sync_ns += synced_ns - self._stepper.last_end_ns
        if self._slices.unsettled(synced_ns, self._tried_ns, clock.examples) and self._steps_left() > 0:
            self._tried_ns = synced_ns
            return
        self._close_window(synced_ns, loss)
        ended = self._slices.window_ended(synced_ns)
        if ended is not None:
            self._reporter.send(SliceEnded(at_ns=synced_ns, round=ended.round))

    def _train(self, end_ns: int, least: int) -> None:
        """Train until the time is reached and at least so many steps are done, or a message comes."""
        first = self._stepper.done
        while (left := self._steps_left()) > 0:
            self._stepper.until(end_ns, min(CAPACITY, left))
            over = self._stepper.last_end_ns >= end_ns and self._stepper.done - first >= least
            if over or self._mailbox.waiting:
                return

    def _steps_left(self) -> int:
        return CAPACITY if self._assign.steps is None else self._assign.steps - self._stepper.done

    def _first_step_after_change(self) -> None:
        """Train one step with the new pipeline, and say that it is in force."""
        before_ns = self._stepper.last_end_ns
        end_ns = self._stepper.until(0, 1)
        for request in self._fresh:
            value = self._settings[request.knob]
            self._reporter.send(
                KnobApplied(
                    at_ns=end_ns,
                    request=request.request,
                    knob=request.knob,
                    value=value,
                    step=self._stepper.done,
                    gap_ns=end_ns - before_ns,
                )
            )
        self._fresh = []

    def _close_window(self, at_ns: int, loss: float | None) -> None:
        clock = self._clock
        if self._collector.take():
            clock.marks.add("garbage collection")
        if self._preparer.took_time():
            clock.marks.add("preparing pipelines")
        if KNOB_CHANGE not in clock.marks:
            self._odd.mark(clock)
        samples = self._sampler.samples
        in_use, peak = runtime.gpu_memory(self._assign.device)
        traces = self._stepper.traces
        window = clock.window(
            at_ns,
            samples,
            step=self._stepper.done,
            loss=loss,
            settings=self._settings,
            round=self._slices.round,
            gpu_memory_allocated_bytes=in_use,
            gpu_memory_peak_bytes=peak,
            traced=traces.cause() if traces and clock.traced_steps else "",
            computing_share=self._splits.of(self._settings),
            sampled_copy_ns=samples.copy_ns if self._sampler.copies else None,
        )
        self._period_ns = (at_ns - clock.began_ns) / max(1, clock.steps)
        if not clock.marks:
            self._calls_ns.append(clock.call_ns / max(1, clock.steps))
        self._tried_ns = at_ns
        if self._reporter.offer(window):
            clock.reset(at_ns)
            self._sampler.samples = Samples()
        clock.report_ns += time.monotonic_ns() - at_ns

    def _take_profile(self, request: Profile) -> None:
        """Train some steps under the profiler, before the window that is about to begin."""
        self._profile = None
        try:
            steps, note = self._splits.shorten(self._settings, request.steps)
            path = self._stepper.capture(Path(request.folder), min(steps, max(1, self._steps_left() - 1)))
        except CaptureError as error:
            self._reporter.send(ProfileFailed(at_ns=time.monotonic_ns(), folder=request.folder, reason=str(error)))
        else:
            self._reporter.send(
                Profiled(at_ns=time.monotonic_ns(), folder=request.folder, path=str(path), note=note)
            )
        self._leave_out_steps()
        self._clock.marks.add(PROFILE)

    def _take_split(self, most: int) -> None:
        """Train a few steps under the profiler, to know how much of a call computes under these settings."""
        try:
            with tempfile.TemporaryDirectory(prefix="tfmon-split-") as folder:
                before = self._stepper.done
                trace = self._stepper.capture(Path(folder), most, time.monotonic_ns() + MOST_NS)
                self._splits.note(self._settings, trace, self._stepper.done - before)
        except (CaptureError, OSError):
            self._splits.note(self._settings, None, 0)
        self._calls_ns.clear()
        self._leave_out_steps()

    def _leave_out_steps(self) -> None:
        """Begin the window anew; the steps that it has had count as trained and no more.

        A pipeline filled its buffer while the trace was written, so the steps after it wait for less.
        """
        self._sampler.samples.examples += self._clock.examples
        marks = self._clock.marks
        self._tried_ns = self._stepper.last_end_ns = time.monotonic_ns()
        self._clock.reset(self._tried_ns)
        self._clock.marks.update(marks)

    def _may_split(self) -> bool:
        """Tell whether a split may be found: before a window that is left out, or in a steady run."""
        starts = self._slices.starting
        allowed = {SLICE_START} if starts else set()
        if self._clock.steps or self._clock.marks - allowed or self._fresh or self._steps_left() < 2:
            return False
        return (starts or self._slices.current is None) and self._splits.wanted(self._settings, self._calls_ns)

    def _may_sample(self) -> bool:
        """Tell whether a step may be sampled: between two windows of a steady run, when it is time for one."""
        if self._clock.steps or self._clock.marks or self._fresh or self._steps_left() < 2:
            return False
        return not self._slices.starting and self._sampler.due(time.monotonic_ns())

    def _sample_step(self) -> None:
        """Train a step before the window that is about to begin; it begins after that step."""
        self._stepper.sample(self._sampler, self._period_ns)
        self._tried_ns = self._stepper.last_end_ns
        self._clock.reset(self._tried_ns)

    def _reads_loss(self) -> bool:
        return bool(self._settings.get("sync_every_step", False))

    # ------------------------------------------------------------ requests

    def _read_messages(self) -> None:
        while (message := self._mailbox.take()) is not None:
            match message:
                case SetKnob():
                    self._ask(message)
                case SetupReady():
                    self._exchange(message)
                case Run():
                    self._slices.current = None
                    self._go_on("pause" if self._stepper.done else "")
                case RunSlice():
                    began_ns = time.monotonic_ns()
                    self._go_on(SLICE_START)
                    self._slices.begin(message, began_ns, self._clock.examples)
                case Pause():
                    # One that comes when the slice has just ended is too late: the lane stands still already.
                    if self._slices.stop():
                        self._enter(PAUSED)
                case Profile():
                    self._profile = message
                case Stop():
                    self._stopped = True
                case Assign():
                    pass

    def _go_on(self, mark: str) -> None:
        """Begin a window after a time without training."""
        if self._slices.held:
            self._slices.held = False
            self._tried_ns = self._stepper.last_end_ns = now_ns = time.monotonic_ns()
            self._clock.reset(now_ns)
            self._clock.marks.update([mark] if mark else [])
            self._clock.marks.update([KNOB_CHANGE] if self._fresh else [])
        self._enter(RACING)

    def _ask(self, request: SetKnob) -> None:
        try:
            value = find(self._knobs, request.knob).check(request.value)
            wanted = {**self._settings, **self._pending(), request.knob: value}
            for maker in self._makers:
                maker.check(wanted)
        except KnobError as error:
            self._refuse(request, str(error))
            return
        # While another request is under way nobody knows what this setup will follow, so it is made whole.
        before = None if self._pending_requests else self._settings
        self._pending_requests[request.request] = request
        self._preparer.order(request.request, wanted, before)

    def _pending(self) -> dict[str, KnobValue]:
        return {request.knob: request.value for _, request in sorted(self._pending_requests.items())}

    def _exchange(self, made: SetupReady) -> None:
        """Go over to another pipeline or step that has become ready; the weights stay as they are."""
        request = self._pending_requests.pop(made.request)
        if isinstance(made.result, BaseException):
            self._refuse(request, f"it could not be made: {type(made.result).__name__}: {made.result}")
            return
        setup = made.result
        if setup.feed is not None:
            self._preparer.drop(self._stepper.feed)
            self._stepper.feed = setup.feed
        if setup.step is not None:
            self._stepper.step = setup.step
        self._settings = setup.settings
        self._stepper.reads_loss = self._reads_loss()
        self._sampler.expect_change()
        self._odd = OutlierWindows()
        self._calls_ns.clear()
        self._fresh.append(request)
        self._clock.marks.add(KNOB_CHANGE)
        if not self._pending_requests:
            self._preparer.prepare_neighbours(self._settings)

    def _refuse(self, request: SetKnob, reason: str) -> None:
        self._reporter.send(
            KnobRefused(
                at_ns=time.monotonic_ns(),
                request=request.request,
                knob=request.knob,
                value=request.value,
                reason=reason,
            )
        )
