"""The training loop of a scenario's lane."""

from __future__ import annotations

import tempfile
from collections import deque
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tfmon.model.account import AFTER, BEFORE
from tfmon.model.knobs import KnobError
from tfmon.model.lane_events import SLICE_START, WARMING_UP, Finished
from tfmon.model.requests import Assign, Request, SetKnob, Stop, TakeProfile
from tfmon.system.lane_clock import lane_clock
from tfmon.trainer import runtime
from tfmon.trainer.batch_feed import Pipelines, count_examples
from tfmon.trainer.capture import PROFILED_NS, PROFILED_STEPS, WINDOWS, Capture, CaptureError, ComputingShares
from tfmon.trainer.channel import Mailbox, Reporter
from tfmon.trainer.lane_control import PROFILE, SAMPLED, LaneControl
from tfmon.trainer.scenario import ScenarioError
from tfmon.trainer.setups import Setup, SetupBuilder, Steps
from tfmon.trainer.slices import STILL_RISING, WINDOW_NS
from tfmon.trainer.step_clock import CAPACITY, GARBAGE_COLLECTION, CollectorWatch, Sampler, Samples
from tfmon.trainer.time_parts import account
from tfmon.trainer.traces import TraceWatch

WARM_UP_NS = 500_000_000
WARM_UP_STEPS, WARM_UP_CALM = 3, 2
"""A warm-up ends after `WARM_UP_CALM` consecutive stretches not faster by `STILL_RISING`, or `WARM_UP_NS`."""
PREPARING = "preparing pipelines"
"""Mark of windows that background threads slowed."""
DATA_ENDED = "the data ended: `batches` must return a Dataset that repeats"
Message: TypeAlias = Request | Setup


class Loop:
    """Trains until the monitor stops the loop. Thread: main; others use the mailbox."""

    def __init__(
        self, pipelines: Pipelines, steps: Steps, assign: Assign, mailbox: Mailbox[Message], reporter: Reporter
    ) -> None:
        self.control = LaneControl(
            reporter,
            dict(assign.settings),
            Sampler(drop_first=True),
            lambda: runtime.gpu_memory(assign.device, assign.devices),
            assign.device,
        )
        self.control.more_figures = self._more_figures
        self.control.window_sent = self._window_sent
        self._steps = assign.steps
        self._mailbox = mailbox
        self._reporter = reporter
        self._collector = CollectorWatch()
        self._shares = ComputingShares(assign.device)
        self._calls_ns: deque[float] = deque(maxlen=WINDOWS)
        self._builder = SetupBuilder(pipelines, steps, mailbox.post, reporter.fail)
        setup = self._builder.build(self.control.settings)
        assert setup.feed is not None and setup.step is not None
        self._feed, self._step = setup.feed, setup.step
        self._reads_loss = bool(assign.settings.get("sync_every_step", False))
        self._loss: Any = None
        self._copies = assign.device == "gpu" and assign.devices == 1
        self._requests = 0
        self._stopped = False

    def run(self) -> None:
        """Warm up, wait for the start, and train."""
        self.control.traces = self._traces = TraceWatch()
        try:
            self._builder.start()
            self._builder.prepare_neighbours(self.control.settings)
            self._warm_up()
            account.trained = True
            account.steps_begin()
            self.control.become_ready()
            while not self._stopped:
                if self.control.slices.paused:
                    lane_clock.pause(self._mailbox.wait)
                elif self._steps_left <= 0:
                    break
                else:
                    self._train_stretch()
                self._read_messages()
            account.steps_end(AFTER)
            self._reporter.send(account.report(last=True))
            done, measured = self.control.clock.done, self.control.measured_steps
            self._reporter.send(Finished(steps=done, measured=measured))
            self._reporter.drain(timeout_s=1.0)
        finally:
            self.control.traces.close()

    def _window_sent(self) -> None:
        if account.due():
            self._reporter.send(account.report())

    def _warm_up(self) -> None:
        account.switch(BEFORE, "warm-up")
        self.control.enter(WARMING_UP)
        clock = self.control.clock
        began_ns = before_ns = lane_clock.now_ns()
        calm, speed = 0, 0.0
        while not self._stopped:
            examples = clock.examples
            self._train_until(before_ns + WINDOW_NS // 4, clock.room)
            self._read_loss()
            now_ns = lane_clock.now_ns()
            last, speed = speed, (clock.examples - examples) / max(1, now_ns - before_ns)
            calm = calm + 1 if speed <= last * STILL_RISING else 0
            long = now_ns - began_ns > WARM_UP_NS
            spared = 1 + self._shares.needed(self.control.settings) if long else 0
            if (calm >= WARM_UP_CALM or long) and clock.steps + spared >= WARM_UP_STEPS and self._builder.idle:
                break
            before_ns = now_ns
            self._read_messages()
        if not self._stopped and self._shares.needed(self.control.settings):
            self._find_computing_share()
        clock.done = clock.examples = 0
        self.control.sampler.sums = Samples()
        self._collector.settle()
        self._builder.took_time()

    def _train_stretch(self) -> None:
        clock = self.control.clock
        if self.control.profile_request is not None and not clock.steps and not self.control.slices.starting:
            self._take_profile(self.control.profile_request)
        if self._may_find_share():
            self._find_computing_share()
            if self.control.slices.current is None:
                clock.marks.add(PROFILE)
        if self.control.steady and self.control.sampler.due(lane_clock.now_ns()):
            self._sample()
            self.control.begin_window(clock.last_end_ns, SAMPLED)
        end_ns = self.control.slices.due_ns(self.control.stretch_began_ns)
        if self.control.unconfirmed:
            before_ns = clock.last_end_ns
            at_ns = self._train_until(0, 1)
            self.control.confirm_knobs(at_ns, at_ns - before_ns)
        while (left := self._steps_left) > 0:
            if self._train_until(end_ns, min(clock.room, left)) >= end_ns or self._mailbox.waiting:
                break
        loss = self._read_loss()
        self.control.finish_stretch(lane_clock.now_ns(), loss, last=self._steps_left <= 0)

    def _train_until(self, deadline_ns: int, limit: int) -> int:
        """Train at least one step until the deadline, the limit or a message. Return the last step's end.

        Raises: ScenarioError when the data ends; all errors of model or pipeline.
        """
        clock_ns, step, batches = lane_clock.now_ns, self._step, self._feed.batches
        clock, waiting = self.control.clock, self._mailbox.waiting
        times, first = clock.times, clock.kept
        size, reads = self._feed.batch_examples, self._reads_loss
        traces, seen = self._traces, self._traces.count
        steps = input_ns = call_ns = sync_ns = examples = 0
        began_ns = clock_ns()
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                raise ScenarioError(DATA_ENDED) from None
            fed_ns = clock_ns()
            self._loss = step(*batch)
            ended_ns = called_ns = clock_ns()
            if reads:
                self._read_loss()
                ended_ns = clock_ns()
                sync_ns += ended_ns - called_ns
            times[first + steps] = ended_ns - began_ns
            steps += 1
            input_ns += fed_ns - began_ns
            call_ns += called_ns - fed_ns
            if traces.count != seen:
                seen = traces.count
                clock.traced_steps += 1
                clock.traced_ns += called_ns - fed_ns
            examples += count_examples(batch) if size is None else size
            began_ns = ended_ns
            if ended_ns >= deadline_ns or steps >= limit or waiting:
                break
        clock.count(steps)
        clock.done += steps
        clock.examples += examples
        clock.input_ns += input_ns
        clock.call_ns += call_ns
        clock.sync_ns += sync_ns
        clock.last_end_ns = ended_ns
        return ended_ns

    def _read_loss(self) -> float | None:
        """Wait for the last loss."""
        if self._loss is None:
            return None
        loss = np.asarray(self._loss)
        return float(loss if loss.ndim == 0 else loss.mean())

    def _sample(self) -> None:
        """Train a step between two barriers, in no window."""
        clock_ns = lane_clock.now_ns
        began_ns = clock_ns()
        batch = self._next_batch()
        fed_ns = clock_ns()
        if self._copies:
            batch = _on_gpu(batch)
        copied_ns = clock_ns()
        self._loss = self._step(*batch)
        called_ns = clock_ns()
        self._read_loss()
        ended_ns = clock_ns()
        sample = Samples(
            steps=1,
            examples=self._examples_in(batch),
            input_ns=fed_ns - began_ns,
            copy_ns=copied_ns - fed_ns,
            call_ns=called_ns - copied_ns,
            tail_ns=ended_ns - called_ns,
        )
        self.control.sampler.add(sample, ended_ns, ended_ns - began_ns - self.control.step_ns)
        self.control.clock.done += 1
        self.control.clock.last_end_ns = clock_ns()

    def _capture(self, folder: Path, steps: int, deadline_ns: int = 1 << 62) -> Path:
        """Profile at least one step, after a slow first step. Raises CaptureError."""
        capture, clock = Capture(folder), self.control.clock
        try:
            capture.start()
            self._train_until(0, 1)
            while capture.steps < steps and not (capture.steps and lane_clock.now_ns() >= deadline_ns):
                with capture.step():
                    batch = self._next_batch()
                    with capture.call():
                        self._loss = self._step(*batch)
                    if self._reads_loss:
                        self._read_loss()
                clock.done += 1
                clock.examples += self._examples_in(batch)
            self._read_loss()
            clock.last_end_ns = lane_clock.now_ns()
            return capture.stop()
        finally:
            capture.abandon()

    def _next_batch(self) -> Any:
        batch = next(self._feed.batches, None)
        if batch is None:
            raise ScenarioError(DATA_ENDED)
        return batch

    def _examples_in(self, batch: Any) -> int:
        size = self._feed.batch_examples
        return count_examples(batch) if size is None else size

    @property
    def _steps_left(self) -> int:
        if self._steps is None or self.control.slices.starting or self.control.clock.marks:
            return CAPACITY
        return self._steps - self.control.measured_steps - self.control.clock.steps

    def _more_figures(self) -> dict[str, Any]:
        clock = self.control.clock
        if self._collector.take():
            clock.marks.add(GARBAGE_COLLECTION)
        if self._builder.took_time():
            clock.marks.add(PREPARING)
        if not clock.marks:
            self._calls_ns.append(clock.call_ns / max(1, clock.steps))
        copied_ns = self.control.sampler.sums.copy_ns if self._copies else None
        return {"computing_share": self._shares.share(self.control.settings), "sampled_copy_ns": copied_ns}

    def _take_profile(self, request: TakeProfile) -> None:
        self.control.profile_request = None
        steps, note = self._shares.shorten(self.control.settings, request.steps)
        self.control.report_profile(request, lambda: self._capture(Path(request.folder), steps), note)
        self.control.discard_steps()
        self.control.clock.marks.add(PROFILE)

    def _may_find_share(self) -> bool:
        control, starting = self.control, self.control.slices.starting
        marks = control.clock.marks - {SLICE_START} if starting else control.clock.marks
        if control.clock.steps or marks or control.unconfirmed or not (starting or control.slices.current is None):
            return False
        return self._shares.needed(control.settings, self._calls_ns)

    def _find_computing_share(self) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="tfmon-share-") as folder:
                before = self.control.clock.done
                trace = self._capture(Path(folder), PROFILED_STEPS, lane_clock.now_ns() + PROFILED_NS)
                self._shares.record(self.control.settings, trace, self.control.clock.done - before)
        except (CaptureError, OSError):
            self._shares.record(self.control.settings, None, 0)
        self._calls_ns.clear()
        self.control.discard_steps()

    def _read_messages(self) -> None:
        while (message := self._mailbox.take()) is not None:
            match message:
                case Setup():
                    self._use_setup(message)
                case SetKnob():
                    self._requests += 1
                    self._builder.request(message)
                case Stop():
                    self._stopped = True
                case _:
                    self.control.handle(message)

    def _use_setup(self, setup: Setup) -> None:
        assert setup.request is not None
        self._requests -= 1
        if (error := setup.error) is not None:
            made = "" if isinstance(error, KnobError) else f"it could not be made: {type(error).__name__}: "
            self.control.refuse_knob(setup.request, f"{made}{error}")
            return
        if setup.feed is not None:
            self._builder.discard(self._feed)
            self._feed = setup.feed
        if setup.step is not None:
            self._step = setup.step
        self.control.settings = setup.settings
        self._reads_loss = bool(setup.settings.get("sync_every_step", False))
        self.control.sampler.expect_change()
        self._calls_ns.clear()
        self.control.knob_changed(setup.request)
        if not self._requests:
            self._builder.prepare_neighbours(self.control.settings)


def _on_gpu(batch: Any) -> Any:
    import tensorflow as tf

    with tf.device("GPU:0"):
        return tf.nest.map_structure(tf.identity, batch)
