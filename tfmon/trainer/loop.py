"""The training loop of a scenario's lane: it calls the steps, and takes requests between them."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, TypeAlias

from tfmon.model.knobs import KnobError
from tfmon.model.lane_events import Finished
from tfmon.model.lane_state import WARMING_UP
from tfmon.model.lane_statistics import SLICE_START
from tfmon.model.requests import Assign, Request, SetKnob, Stop, TakeProfile
from tfmon.trainer import runtime
from tfmon.trainer.capture import PROFILED_NS, PROFILED_STEPS, WINDOWS, CaptureError, ComputingShares
from tfmon.trainer.channel import Mailbox, Reporter
from tfmon.trainer.control import PROFILE, LaneControl
from tfmon.trainer.pipeline import Pipelines
from tfmon.trainer.setups import SetupBuilder, SetupReady, Steps
from tfmon.trainer.slices import STILL_RISING, WINDOW_NS
from tfmon.trainer.step_clock import (
    CAPACITY,
    GARBAGE_COLLECTION,
    CollectorWatch,
    Sampler,
    Samples,
)
from tfmon.trainer.stepper import Stepper
from tfmon.trainer.traces import TraceWatch

WARM_UP_NS = 500_000_000
WARM_UP_STEPS, WARM_UP_CALM = 3, 2
"""A lane warms up for at least `WARM_UP_STEPS`, and until `WARM_UP_CALM` stretches of 50 ms in a row were not
faster than the one before by `STILL_RISING`, or `WARM_UP_NS` have passed. Where these have passed, it spares a
step, and another one if a profile of two follows."""
PREPARING = "preparing pipelines"
"""Mark of windows in which the background threads took time from the steps."""


Message: TypeAlias = Request | SetupReady


class Loop(LaneControl):
    """Trains until the monitor stops it. Thread: the main one; others reach it through the mailbox."""

    def __init__(
        self, pipelines: Pipelines, steps: Steps, assign: Assign, mailbox: Mailbox[Message], reporter: Reporter
    ) -> None:
        """Build what the assignment asks for."""
        sampler = Sampler(drop_first=True)
        super().__init__(
            reporter,
            dict(assign.settings),
            sampler,
            lambda: runtime.gpu_memory(assign.device, assign.devices),
            assign.device,
        )
        self._steps = assign.steps
        self._mailbox = mailbox
        self._reporter = reporter
        self._collector = CollectorWatch()
        self._shares = ComputingShares(assign.device)
        self._calls_ns: deque[float] = deque(maxlen=WINDOWS)
        self._builder = SetupBuilder(pipelines, steps, mailbox.post, reporter.fail)
        setup = self._builder.build(self.settings)
        assert setup.feed is not None and setup.step is not None
        # A step of several devices splits the batch on the host, and copies the parts itself.
        copied_to = assign.device if assign.devices == 1 else "cpu"
        self._stepper = Stepper(setup.feed, setup.step, self.clock, mailbox.waiting, copied_to)
        self._stepper.reads_loss = self._reads_loss()
        self._requests = 0
        """How many wait for their setup."""
        self._stopped = False

    def run(self) -> None:
        """Warm up, wait for the start signal, and train until the end."""
        self.traces = self._stepper.traces = TraceWatch()
        try:
            self._builder.start()
            self._builder.prepare_neighbours(self.settings)
            self._warm_up()
            self.become_ready()
            while not self._stopped:
                if self.slices.paused:
                    self._mailbox.wait()
                elif self._steps_left <= 0:
                    break
                else:
                    self._train_stretch()
                self._read_messages()
            done, measured = self.clock.done, self.measured_steps
            self._reporter.send(Finished(at_ns=time.monotonic_ns(), steps=done, measured=measured))
            self._reporter.drain(timeout_s=1.0)
        finally:
            self.traces.close()

    def _warm_up(self) -> None:
        self.enter(WARMING_UP)
        clock = self.clock
        began_ns = before_ns = time.monotonic_ns()
        calm, speed = 0, 0.0
        while not self._stopped:
            examples = clock.examples
            self._stepper.until(before_ns + WINDOW_NS // 4, clock.room)
            self._stepper.read_loss()
            now_ns = time.monotonic_ns()
            last, speed = speed, (clock.examples - examples) / max(1, now_ns - before_ns)
            calm = calm + 1 if speed <= last * STILL_RISING else 0
            long = now_ns - began_ns > WARM_UP_NS
            spared = 1 + self._shares.needed(self.settings) if long else 0
            if (calm >= WARM_UP_CALM or long) and clock.steps + spared >= WARM_UP_STEPS and self._builder.idle:
                break
            before_ns = now_ns
            self._read_messages()
        if not self._stopped and self._shares.needed(self.settings):
            self._find_computing_share(PROFILED_STEPS)
        clock.done = clock.examples = 0
        self.sampler.sums = Samples()
        self._collector.settle()
        self._builder.took_time()

    # ------------------------------------------------------------ steps and windows

    def _train_stretch(self) -> None:
        """Train until the window or the start of the slice should end, or until a message comes."""
        clock = self.clock
        if self.profile_request is not None and not clock.steps and not self.slices.starting:
            self._take_profile(self.profile_request)
        if self._may_find_share():
            self._find_computing_share(PROFILED_STEPS)
            if self.slices.current is None:
                clock.marks.add(PROFILE)
        if self.steady and self.sampler.due(time.monotonic_ns()):
            self._stepper.sample(self.sampler, self.step_ns)
            self.begin_window(clock.last_end_ns)
        end_ns = self.slices.due_ns(self.stretch_began_ns)
        if self.unconfirmed:
            before_ns = clock.last_end_ns
            at_ns = self._stepper.until(0, 1)
            self.confirm_knobs(at_ns, at_ns - before_ns)
        while (left := self._steps_left) > 0:
            if self._stepper.until(end_ns, min(clock.room, left)) >= end_ns or self._mailbox.waiting:
                break
        loss = self._stepper.read_loss()
        self.finish_stretch(time.monotonic_ns(), loss, last=self._steps_left <= 0)

    @property
    def _steps_left(self) -> int:
        """Steps that are still to be measured; those that are discarded do not count."""
        if self._steps is None or self.slices.starting or self.clock.marks:
            return CAPACITY
        return self._steps - self.measured_steps - self.clock.steps

    def own_figures(self) -> dict[str, Any]:
        """Return the fields of a window that only a scenario's lane knows."""
        clock = self.clock
        if self._collector.take():
            clock.marks.add(GARBAGE_COLLECTION)
        if self._builder.took_time():
            clock.marks.add(PREPARING)
        if not clock.marks:
            self._calls_ns.append(clock.call_ns / max(1, clock.steps))
        copied_ns = self.sampler.sums.copy_ns if self._stepper.copies else None
        return {"computing_share": self._shares.of(self.settings), "sampled_copy_ns": copied_ns}

    # ------------------------------------------------------------ steps in no window

    def _take_profile(self, request: TakeProfile) -> None:
        """Train some steps under the profiler, before the window that is about to begin."""
        self.profile_request = None
        try:
            steps, note = self._shares.shorten(self.settings, request.steps)
            path = self._stepper.capture(Path(request.folder), steps)
        except CaptureError as error:
            self.report_profile_failure(request, str(error))
        else:
            self.report_profile(request, path, note)
        # The pipeline filled its buffer while the trace was written, so the next steps wait less for input.
        self.discard_steps()
        self.clock.marks.add(PROFILE)

    def _may_find_share(self) -> bool:
        """Return whether steps may be profiled now: before a window that is discarded anyway, or a steady one."""
        starting = self.slices.starting
        marks = self.clock.marks - {SLICE_START} if starting else self.clock.marks
        if self.clock.steps or marks or self.unconfirmed:
            return False
        return (starting or self.slices.current is None) and self._shares.needed(self.settings, self._calls_ns)

    def _find_computing_share(self, most: int) -> None:
        """Train a few steps under the profiler, to know which share of a call computes under these settings."""
        try:
            with tempfile.TemporaryDirectory(prefix="tfmon-share-") as folder:
                before = self.clock.done
                trace = self._stepper.capture(Path(folder), most, time.monotonic_ns() + PROFILED_NS)
                self._shares.record(self.settings, trace, self.clock.done - before)
        except (CaptureError, OSError):
            self._shares.record(self.settings, None, 0)
        self._calls_ns.clear()
        self.discard_steps()

    def _read_messages(self) -> None:
        while (message := self._mailbox.take()) is not None:
            match message:
                case SetupReady():
                    self._use_setup(message)
                case SetKnob():
                    self._requests += 1
                    self._builder.request(message)
                case Stop():
                    self._stopped = True
                case _:
                    self.handle(message)

    def _use_setup(self, ready: SetupReady) -> None:
        """Train with another pipeline or step from now on; the weights stay as they are."""
        self._requests -= 1
        if isinstance(ready.result, BaseException):
            error = ready.result
            made = "" if isinstance(error, KnobError) else f"it could not be made: {type(error).__name__}: "
            self.refuse_knob(ready.request, f"{made}{error}")
            return
        setup = ready.result
        if setup.feed is not None:
            self._builder.discard(self._stepper.feed)
            self._stepper.feed = setup.feed
        if setup.step is not None:
            self._stepper.step = setup.step
        self.settings = setup.settings
        self._stepper.reads_loss = self._reads_loss()
        self.sampler.expect_change()
        self._calls_ns.clear()
        self.knob_changed(ready.request)
        if not self._requests:
            self._builder.prepare_neighbours(self.settings)

    def _reads_loss(self) -> bool:
        return bool(self.settings.get("sync_every_step", False))
