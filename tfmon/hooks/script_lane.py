"""A lane that is a user's process, and handles requests between steps."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from tfmon.hooks import libraries
from tfmon.hooks.apply_settings import defaults, levers, requested, requested_settings
from tfmon.hooks.cause_reports import causes
from tfmon.hooks.inspection import line_now, stacks
from tfmon.hooks.meter import Meter
from tfmon.hooks.object_causes import ObjectGrowth
from tfmon.hooks.patches import hooks
from tfmon.hooks.sources import nothing
from tfmon.hooks.step_causes import step_causes
from tfmon.model.knobs import PYTHON, Knob, KnobError, KnobValue, find, not_offered, show
from tfmon.model.lane_events import (
    PAUSED,
    WARMING_UP,
    Built,
    DefaultsResolved,
    InputDescribed,
    KnobOffered,
    LaneFailed,
    NotMeasured,
    PathsUsed,
    Progressed,
    StepDescribed,
)
from tfmon.model.requests import Pause, ReportStack, Request, Run, RunSlice, SetKnob, Stop
from tfmon.system.lane_clock import lane_clock
from tfmon.system.lane_pipes import USES, LanePipes
from tfmon.system.threads import ThreadLife, start_hidden
from tfmon.trainer.channel import Mailbox, Reporter, start_inbox
from tfmon.trainer.lane_control import LaneControl
from tfmon.trainer.step_clock import Sampler
from tfmon.trainer.time_parts import account
from tfmon.trainer.traces import TraceWatch

ENDING = "ending"
"""Mark of windows after a request to end, which ignore slices."""
OTHER_THREADS = "several threads train at once, and the first alone is counted; not"
LOOK_NS = 1_000_000_000
"""Interval of the search for causes, which takes 0.3 ms."""
EXIT_S = 0.5
"""Maximum delay of `os._exit`."""


class OfferedKnobs:
    """The offered knobs. Thread: the training thread."""

    def __init__(self) -> None:
        self.settings: dict[str, KnobValue] = {}
        self._offered: dict[str, tuple[Knob, Callable[[Any], object]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._offered

    @property
    def not_offered(self) -> str:
        """Name of a requested knob that the script does not offer, or empty."""
        return next((name for name in requested_settings() if name not in (*self._offered, PYTHON)), "")

    def offer(self, knob: Knob, apply: Callable[[Any], object]) -> KnobValue:
        """Add a knob, and return its value. Raises KnobError for an impossible value.

        The training thread calls `apply` with each new value between steps. `apply` raises KnobError to refuse.
        """
        known = knob.name in self._offered
        self._offered[knob.name] = knob, apply
        if known:
            return self.settings[knob.name]
        self.settings[knob.name] = value = knob.default
        if (wanted := requested(knob)) is not None:
            value = wanted
            if apply(value):
                raise KnobError(f"{knob.name}={show(value)} is not possible from the script's first epoch on")
            self.settings[knob.name] = value
        return value

    def made_of_defaults(self, values: Mapping[str, KnobValue]) -> None:
        """Add values that cannot be changed."""
        self.settings.update({name: value for name, value in values.items() if name not in self._offered})

    def set(self, name: str, value: KnobValue) -> bool:
        """Change a value, and return whether it takes effect later. Raises KnobError."""
        value = find([knob for knob, _ in self._offered.values()], name).check(value)
        later = bool(self._offered[name][1](value))
        if not later:
            self.settings[name] = value
        return later


class Lane:
    """The lane of this process. Thread: the measured one."""

    def __init__(self, pipes: LanePipes) -> None:
        self.device = pipes.kind
        self.knobs = OfferedKnobs()
        lane_clock.follow(pipes.lock_fd)
        self._mailbox: Mailbox[Request] = Mailbox()
        self.reporter = Reporter(pipes.metric_fd, lambda _code: self._mailbox.post(Run()))
        self.control = LaneControl(
            self.reporter, self.knobs.settings, Sampler(), lambda: libraries.gpu_memory(self.device)
        )
        self.control.beside_window = lambda: () if self._progress is None else (self._progress(),)
        self.meter = Meter(self.control, self.reporter, self._mailbox.waiting)
        self.meter.ready, self.control.window_sent = self._ready, self._window_sent
        self._granted: RunSlice | None = None
        self._thread = threading.get_ident()
        self._life = ThreadLife()
        self._life.begin()
        account.thread = self._thread
        self._unmeasured_threads: dict[int, str] = {}
        self._ends, self._pid = False, os.getpid()
        self._pending: dict[str, SetKnob] = {}
        self._progress: Callable[[], Progressed] | None = None
        self.finish: Callable[[], object] = list
        self.look: Callable[..., object] = nothing
        self._objects = ObjectGrowth()
        self._look_ns = 0
        self._say_hello()
        start_inbox(pipes.knob_fd, self._deliver, self._release, end=self._end_waits, start=start_hidden)
        self.leaving: Callable[[], object] = list
        self._at_exit = hooks.guard(self._leave)
        atexit.register(self._at_exit)
        self._exit, self._hook = os._exit, self._exit_at_once
        os._exit = self._hook

    @property
    def measures_this_thread(self) -> bool:
        """Whether the caller is the measured thread."""
        return threading.get_ident() == self._thread and not self.reporter.closed

    def claims_thread(self) -> bool:
        """Return whether the calling thread is measured. It may replace an ended thread."""
        ident = threading.get_ident()
        if self._life.over:
            self._thread = account.thread = ident
            self._life.begin()
        if not self.measures_this_thread and ident not in self._unmeasured_threads:
            self._unmeasured_threads[ident] = line_now()
            self.cannot_know(
                "threads", f"{OTHER_THREADS}: {'; '.join(dict.fromkeys(self._unmeasured_threads.values()))}"
            )
        return self.measures_this_thread

    def _say_hello(self) -> None:
        self.reporter.hello(reports_stack=True)
        self.device, missing, loaded = libraries.find(self.device)
        if missing:
            self.fail("device_absent", missing)
        self.reporter.send(loaded)
        self.control.enter(WARMING_UP)
        if loaded.tensorflow:
            self.control.traces = TraceWatch()
        levers.offer(self, self.device)

    def fail(self, kind: str, message: str, hint: str = "") -> None:
        """Report a failure, and interrupt the script as Ctrl+C does."""
        self.reporter.send(LaneFailed(kind=kind, message=message, hint=hint))
        self.reporter.closed = True
        signal.raise_signal(signal.SIGINT)

    def _release(self, reason: str) -> None:
        message = f"{reason}; the script trains on, and is not measured"
        with contextlib.suppress(OSError):
            self.reporter.send(LaneFailed(kind="error", message=message))
        self.reporter.end()

    def report_model(self, parameters: int) -> None:
        """Report the size of the model."""
        now_ns, settings = time.monotonic_ns(), dict(self.knobs.settings)
        self.reporter.send(Built(at_ns=now_ns, parameters=parameters, examples=None, settings=settings))

    def cannot_know(self, what: str, reason: str) -> None:
        """Report why a value stays unknown."""
        self.reporter.send(NotMeasured(what=what, reason=reason))

    def describe_step(self, text: str, traits: Iterable[str]) -> None:
        """Report the meaning of a step, and its traits."""
        traits = (*traits, *libraries.traits())
        self.reporter.send(StepDescribed(text=text, traits=traits))

    def describe_input(self, traits: Iterable[str]) -> None:
        """Report the traits of the input."""
        self.reporter.send(InputDescribed(traits=tuple(traits)))

    def report_progress(self, progress: Callable[[], Progressed]) -> None:
        """Report progress now and with each window."""
        self._progress = progress
        self.reporter.offer(progress())

    def offer(self, knob: Knob, apply: Callable[[Any], object]) -> KnobValue:
        """Offer a knob. Interrupt the script if the value is impossible."""
        known = knob.name in self.knobs
        try:
            value = self.knobs.offer(knob, apply)
        except KnobError as error:
            self.fail("scenario", str(error))
            return knob.default
        if not known:
            self.reporter.send(
                KnobOffered(
                    knob=knob.name,
                    value=value,
                    default=knob.default,
                    help=knob.help,
                    choices=knob.choices,
                    low=knob.low,
                    high=knob.high,
                )
            )
        return value

    def begin_step(self, at_ns: int | None = None) -> bool:
        """Begin a step when the lane may train. Return whether the lane was paused."""
        if self.meter.stopped_ns:
            self.meter.start_clock(at_ns)
        paused = at_ns is None and self.obey()
        self.meter.start_step(at_ns)
        return paused

    def obey(self) -> bool:
        """Handle requests. Return whether the lane was paused."""
        paused = self.control.slices.paused and self.meter.warm
        if paused or self._mailbox.waiting:
            self._handle_requests()
        return paused

    def _ready(self) -> None:
        if unknown := self.knobs.not_offered:
            self.fail("scenario", *not_offered(unknown, self.knobs.settings))
        self.meter.warm = True
        self.reporter.send(DefaultsResolved(values=defaults()))
        self.control.become_ready()

    def _window_sent(self) -> None:
        if self._ends:
            self.meter.clock.marks.add(ENDING)
        self._report_uses()
        if (now_ns := lane_clock.now_ns()) >= self._look_ns:
            self._look_ns = now_ns + LOOK_NS
            self.look()
            step_causes.settle(self.control.clock.called_ns, self.control.clock.done)
            self._objects.look(self.meter.clock.done)
            causes.report(self.reporter)
        if account.due():
            self.reporter.send(account.report())
        feed = self.meter.feed
        while feed is not None and feed.unknown:
            self.cannot_know(*feed.unknown.popitem())

    def _report_uses(self) -> None:
        uses = sys.modules.get(USES)
        if uses is not None and (used := uses.take()):
            self.reporter.send(PathsUsed(uses=used))

    def _deliver(self, request: Request) -> None:
        """Thread: inbox."""
        if isinstance(request, Stop):
            self._end_waits()
            return
        if isinstance(request, ReportStack):
            self.reporter.send(stacks(self._thread))
            return
        if isinstance(request, RunSlice):
            self._granted = request
        self._mailbox.post(request)

    def _handle_requests(self) -> None:
        while True:
            while (request := self._mailbox.take()) is not None:
                with self.reporter.lock:
                    self._handle(request)
            paused = self.control.slices.paused and self.meter.warm
            if not paused or self._ends or self.reporter.closed:
                return
            lane_clock.pause(self._mailbox.wait)

    def _handle(self, request: Request) -> None:
        if isinstance(request, Run | RunSlice | Pause) and not self.meter.warm:
            return  # a request to the lane's previous process
        if isinstance(request, SetKnob):
            self._set_knob(request)
        else:
            self.control.handle(request)

    def _set_knob(self, request: SetKnob) -> None:
        try:
            waits = self.knobs.set(request.knob, request.value)
        except KnobError as error:
            self.control.refuse_knob(request, str(error))
            return
        earlier = self._pending.pop(request.knob, None)
        if earlier is not None:
            self.control.refuse_knob(earlier, f"{show(request.value)} was requested after it")
        if waits:
            self._pending[request.knob] = request
        else:
            self.control.knob_changed(request)

    def begin_pending(self, names: Iterable[str]) -> dict[str, KnobValue]:
        """Apply and return the pending values."""
        pending = {name: self._pending.pop(name) for name in names if name in self._pending}
        for request in pending.values():
            self.knobs.settings[request.knob] = request.value
            self.control.knob_changed(request)
        return {name: request.value for name, request in pending.items()}

    def leave(self) -> None:
        """Send all unsent data, and end the lane."""
        self._at_exit()
        atexit.unregister(self._at_exit)
        if os._exit is self._hook:
            os._exit = self._exit
        if self.control.traces is not None:
            self.control.traces.close()

    def _leave(self) -> None:
        if self.reporter.closed:
            return
        with hooks:
            self.leaving()
            self.finish()
            self.look(0)
            step_causes.settle(self.control.clock.called_ns, self.control.clock.done)
        self.meter.stop_clock()
        with self.reporter.lock:
            self.meter.send_rest()
            self._report_uses()
            causes.report(self.reporter, all_of_them=True)
            self.reporter.send(account.report(last=True))
        control = self.control
        granted = None if self._granted is control.reported else self._granted
        if (unfinished := control.slices.current or granted) is not None:
            control.slice_ended(unfinished, lane_clock.now_ns())
        elif not control.slices.paused:
            control.enter(PAUSED)
        self.reporter.close()

    def _exit_at_once(self, status: int) -> NoReturn:
        """Leave with a timeout, because interrupted code may hold a lock."""
        if os.getpid() == self._pid:
            sent = threading.Event()

            def leave() -> None:
                self._leave()
                sent.set()

            with hooks:
                start_hidden("tfmon-exit", leave, lambda _: sent.set())
                sent.wait(EXIT_S)
        self._exit(status)

    def _end_waits(self, _code: int = 0) -> None:
        self._ends = True
        self._mailbox.post(Run())
