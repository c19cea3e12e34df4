"""A lane that is a user's process: told where a step begins and ends, it measures, reports and heeds requests."""

from __future__ import annotations

import atexit
import json
import os
import platform
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from tfmon.model.knobs import Knob, KnobError, KnobValue
from tfmon.model.lane_events import PROTOCOL, Built, Hello, LaneFailed, LibrariesLoaded, Progressed, SliceEnded
from tfmon.model.lane_pipes import SETTINGS, LanePipes
from tfmon.model.lane_state import PAUSED, RACING, READY, SLICE_START, WARMING_UP
from tfmon.model.wire import Pause, Profile, ReportStack, Request, Run, RunSlice, SetKnob, Stop
from tfmon.script import libraries
from tfmon.script.asides import Asides
from tfmon.script.knobs import OfferedKnobs
from tfmon.script.meter import Meter
from tfmon.script.teller import Lending, Teller, stacks
from tfmon.trainer.channel import Inbox, Mailbox
from tfmon.trainer.slices import WINDOW_NS, Slices
from tfmon.trainer.step_clock import KNOB_CHANGE
from tfmon.trainer.stepper import TraceWatch

WARM_UP_NS, WARM_UP_STEPS = 500_000_000, 3
LEAST_WINDOW_NS = WINDOW_NS // 4
"""A window that an epoch's end cuts off goes out if it is so long; else it stands still and goes on later."""


class Lane:
    """Measures the steps of one thread, the first that takes one.

    Thread: `begin_step`, `end_step`, `rest` and `resume` are that thread's; `mine` says whether it is. A turn is
    given back in a thread of its own, and the teller's lock keeps the two apart.
    """

    def __init__(self, pipes: LanePipes) -> None:
        self.device = pipes.device
        self._teller = Teller(pipes.metric_fd)
        self.meter = Meter(pipes.device, self._teller)
        self.asides = Asides(self.meter, self._teller)
        self.knobs = OfferedKnobs(json.loads(os.environ.get(SETTINGS, "{}")), self._teller)
        self._mailbox: Mailbox[Request] = Mailbox()
        self._slices = Slices()
        self._lending = Lending(self._teller.lock, lambda: self.meter.ended_ns, self._give_back)
        self._thread = threading.get_ident()
        self._rest_ns = 0
        self._raced = self._ending = False
        self._progress: Callable[[], Progressed] | None = None
        self._say_hello()
        Inbox(pipes.knob_fd, self._deliver, end=self._end_process).start()
        self._lending.start()
        atexit.register(self._leave)

    @property
    def mine(self) -> bool:
        """Whether the calling thread is the one that is measured."""
        return threading.get_ident() == self._thread and not self._teller.gone

    # ------------------------------------------------------------ words

    def _say_hello(self) -> None:
        now_ns, send = time.monotonic_ns(), self._teller.send
        python = platform.python_version()
        send(Hello(at_ns=now_ns, protocol=PROTOCOL, pid=os.getpid(), python=python, reports_stack=True))
        found = libraries.find(self.device)
        if found.absent:
            self.fail("device_absent", found.absent)
        send(
            LibrariesLoaded(
                at_ns=now_ns,
                tensorflow=found.tensorflow,
                keras=found.keras,
                numpy=found.numpy,
                device_name=found.device_name,
                gpu_uuid=found.gpu_uuid,
            )
        )
        self._teller.enter(WARMING_UP)
        if found.tensorflow:
            self.meter.traces = TraceWatch()

    def fail(self, kind: str, message: str, hint: str = "") -> None:
        """Say why this lane cannot be measured, and end the script as Ctrl+C does."""
        self._teller.send(LaneFailed(at_ns=time.monotonic_ns(), kind=kind, message=message, hint=hint))
        self._teller.gone = True
        signal.raise_signal(signal.SIGINT)

    def tell_model(self, parameters: int) -> None:
        """Tell how large the model is that trains now."""
        settings = dict(self.knobs.settings)
        self._teller.send(
            Built(at_ns=time.monotonic_ns(), parameters=parameters, examples=None, settings=settings)
        )

    def tell_progress(self, progress: Callable[[], Progressed]) -> None:
        """Tell now how far the script is, and from now on with each window."""
        self._progress = progress
        self._teller.offer(progress())

    def offer(self, knob: Knob, take: Callable[[Any], None]) -> KnobValue:
        """Offer a knob, and return its value; see `OfferedKnobs.offer`. What it cannot be ends the script."""
        try:
            return self.knobs.offer(knob, take)
        except KnobError as error:
            self.fail("scenario", str(error))
            return knob.default

    # ------------------------------------------------------------ steps

    def begin_step(self) -> bool:
        """Begin a step, once the lane may train; return whether it stood still before it."""
        if self._rest_ns:
            self.resume()
        stood = self._slices.held and self.meter.warm
        if stood or self._mailbox.waiting:
            self._obey()
        if self.meter.empty and not self.asides.under_way:
            self._before_window()
        self.asides.begin_step()
        self.meter.begin()
        return stood

    def give_up_step(self) -> None:
        """Take note that what was begun was no step: the data had ended."""
        self.asides.end_step()

    def end_step(
        self,
        *,
        steps: int = 1,
        loss: object = None,
        examples: int = 0,
        input_ns: int = 0,
        call_ns: int | None = None,
    ) -> None:
        """End a step, or several that were run as one; close the window when it is due.

        `loss` is kept, and read when the window ends. `examples` and `input_ns` are what the feed does not know.
        """
        now_ns = time.monotonic_ns()
        self.asides.end_step()
        meter = self.meter
        gap_ns = meter.end(now_ns, steps, loss, examples, input_ns, call_ns)
        if self.asides.under_way:
            self.asides.after_step()
        elif self.knobs.fresh:
            self.knobs.confirm(now_ns, meter.done, gap_ns)
        due = now_ns >= self._slices.due_ns(meter.tried_ns) or meter.full or self._mailbox.waiting
        if due and not self.asides.profiling:
            self._after_stretch()

    def rest(self) -> None:
        """Take note that no step follows for a while; the time until the next is no step's."""
        if self._rest_ns or not self.meter.ended_ns:
            return
        self.meter.count()
        self.asides.finish_capture()
        if self.meter.ended_ns - self.meter.clock.began_ns >= LEAST_WINDOW_NS:
            self._after_stretch()
        self._rest_ns = time.monotonic_ns()

    def resume(self) -> int:
        """Take note that steps follow again; return how long none did, in nanoseconds."""
        if not self._rest_ns:
            return 0
        now_ns = time.monotonic_ns()
        gap_ns, self._rest_ns = now_ns - self._rest_ns, 0
        self.meter.move(now_ns - self.meter.ended_ns)
        return gap_ns

    # ------------------------------------------------------------ windows

    def _before_window(self) -> None:
        steady = self.meter.ended_ns and not self.meter.clock.marks and not self.knobs.fresh
        if steady and not self._slices.starting:
            self.asides.before_window()

    def _after_stretch(self) -> None:
        """Wait for the device, and close the window if it is time."""
        meter = self.meter
        meter.count()
        if not meter.clock.steps:
            return
        loss = meter.read_loss()
        synced_ns = time.monotonic_ns()
        meter.clock.sync_ns += synced_ns - meter.ended_ns
        meter.take_feed()
        if self._slices.starting:
            meter.clock.marks.add(SLICE_START)
        with self._teller.lock:
            if self._slices.unsettled(synced_ns, meter.tried_ns, meter.clock.examples or meter.clock.steps):
                meter.tried_ns = meter.ended_ns = synced_ns
                return
            self._close_window(synced_ns, loss)
            ended = self._slices.window_ended(synced_ns)
            if ended is not None:
                self._lending.ended()
                self._teller.send(SliceEnded(at_ns=synced_ns, round=ended.round))
        if not meter.warm:
            self._warm_up(synced_ns)

    def _close_window(self, at_ns: int, loss: float | None) -> None:
        went = self.meter.close(at_ns, loss, dict(self.knobs.settings), self._slices.round)
        if went and self._progress is not None:
            self._teller.offer(self._progress())
        self.meter.told(at_ns)

    def _warm_up(self, now_ns: int) -> None:
        if now_ns - self.meter.warm_since_ns <= WARM_UP_NS or self.meter.done < WARM_UP_STEPS:
            return
        unknown = self.knobs.unknown
        if unknown:
            self.fail(
                "scenario",
                f"{unknown} was asked for, and the script has no such knob",
                f'report.knob("{unknown}", …) offers one',
            )
        self.meter.warm = True
        self._teller.enter(READY)

    # ------------------------------------------------------------ requests

    def _deliver(self, request: Request) -> None:
        """Take a request from the inbox's thread."""
        if isinstance(request, Stop):
            self._end_process(0)
            return
        if isinstance(request, ReportStack):
            self._teller.send(stacks(self._thread))
            return
        if isinstance(request, RunSlice):
            self._lending.given(request)
        self._mailbox.post(request)

    def _obey(self) -> None:
        """Do what was asked, and stand still while the lane is held."""
        while True:
            while (message := self._mailbox.take()) is not None:
                with self._teller.lock:
                    self._heed(message)
            if not (self._slices.held and self.meter.warm):
                return
            self._mailbox.wait()

    def _heed(self, message: Request) -> None:
        match message:
            case Run() | RunSlice() | Pause() if not self.meter.warm:
                pass  # it was meant for the process that was the lane before
            case SetKnob():
                if self.knobs.ask(message):
                    self.meter.expect_change()
            case Run():
                self._slices.current = None
                self._go_on("pause" if self._raced else "")
            case RunSlice() if message.round > self._lending.last:
                now_ns = time.monotonic_ns()
                self._go_on(SLICE_START)
                self._slices.begin(message, now_ns, 0)
            case Pause():
                if self._slices.stop():
                    self._teller.enter(PAUSED)
            case Profile():
                self.asides.ask(message)
            case _:
                pass

    def _go_on(self, mark: str) -> None:
        if self._slices.held:
            self._slices.held = False
            self.meter.restart(time.monotonic_ns())
            if mark:
                self.meter.clock.marks.add(mark)
            if self.knobs.fresh:
                self.meter.clock.marks.add(KNOB_CHANGE)
        self._raced = True
        self._teller.enter(RACING)

    def _give_back(self, given: RunSlice) -> None:
        self._slices.stop()
        self._teller.send(SliceEnded(at_ns=time.monotonic_ns(), round=given.round))

    # ------------------------------------------------------------ the end

    def forget(self) -> None:
        """Be no lane in a forked child."""
        self._teller.forget()

    def _leave(self) -> None:
        """Send what is left of the last window, and let others have the turn."""
        if self._teller.gone:
            return
        self.rest()
        with self._teller.lock:
            self.meter.end_all(dict(self.knobs.settings), self._slices.round)
        unfinished = self._slices.current or self._lending.current
        if unfinished is not None:
            self._teller.send(SliceEnded(at_ns=time.monotonic_ns(), round=unfinished.round))
        elif not self._slices.held:
            self._teller.enter(PAUSED)
        self._teller.leave()

    def _end_process(self, _code: int) -> None:
        """End the script as its author knows it: the monitor wants its end, or is gone."""
        if not self._ending:
            self._ending = True
            os.kill(os.getpid(), signal.SIGINT)
