"""A lane that is a user's process: told where a step begins and ends, it measures, reports and heeds requests."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfmon.model.events import (
    PROTOCOL,
    Built,
    Equipped,
    Hello,
    KnobApplied,
    KnobOffered,
    KnobRefused,
    LaneFailed,
    PhaseEntered,
    Profiled,
    ProfileFailed,
    Progressed,
    TurnEnded,
)
from tfmon.model.knobs import Knob, KnobError, KnobValue, find
from tfmon.model.lane_state import PAUSED, RACING, READY, TURN_START, WARMING_UP
from tfmon.model.place import SETTINGS, Place
from tfmon.model.wire import Hold, Profile, Request, Run, SetKnob, Stop, Turn
from tfmon.script import equipment
from tfmon.trainer.capture import Capture, CaptureError
from tfmon.trainer.inbox import Inbox
from tfmon.trainer.mailbox import Mailbox
from tfmon.trainer.reporter import Reporter
from tfmon.trainer.slices import WINDOW_NS, Slices
from tfmon.trainer.step_clock import CAPACITY, OddWindows, Samples, StepClock
from tfmon.trainer.tracing import TraceWatch

WARM_UP_NS, WARM_UP_STEPS = 500_000_000, 3
WARM_UP, KNOB_CHANGE = "warm-up", "knob change"
LEAST_WINDOW_NS = WINDOW_NS // 4
"""A window that an epoch's end cuts off goes out if it is so long; else it stands still and goes on later."""
LEND_AFTER_S = 3.0
"""A lane that has the turn and comes to no step gives it back when it is so long over, for the others wait."""
SAMPLE_EVERY_NS, SAMPLE_BUDGET = 1_000_000_000, 0.01
NO_TENSORFLOW = "a profile is taken by TensorFlow, which this script has not loaded"


class Feed:
    """What is known of a lane's input besides its steps' times. This one knows nothing."""

    def totals(self) -> tuple[int, int] | None:
        """Return nanoseconds waited for batches inside the steps, and examples, so far; None for unknown."""
        return None


class Lane:
    """Measures the steps of one thread, the first that takes one.

    Thread: `begin_step`, `end_step`, `rest` and `resume` are that thread's; `mine` says whether it is. `lend` runs
    in a thread of its own, and a lock keeps the two apart.
    """

    def __init__(self, place: Place) -> None:
        self.device = place.device
        self.feed = Feed()
        self.barriers = False
        """Whether steps may be sampled between barriers: reading their loss says when the device was done."""
        self._reporter = Reporter(place.metric_fd, end=self._unheard)
        self._mailbox: Mailbox[Request] = Mailbox()
        self._lock = threading.RLock()
        self._thread = threading.get_ident()
        self._clock, self._odd, self._samples = StepClock(), OddWindows(), Samples()
        self._slices = Slices()
        self._traces: TraceWatch | None = None
        self._seen_traces = 0
        self._asked: dict[str, KnobValue] = json.loads(os.environ.get(SETTINGS, "{}"))
        self._knobs: dict[str, tuple[Knob, Callable[[Any], None]]] = {}
        self._settings: dict[str, KnobValue] = {}
        self._fresh: list[SetKnob] = []
        self._profile: Profile | None = None
        self._capture: tuple[Capture, Profile] | None = None
        self._marker: contextlib.AbstractContextManager[Any] | None = None
        self._warm = self._raced = False
        self._warm_since_ns = 0
        self._ring = 0
        self._steps = 0
        self._known = (0, 0)
        self._loss: Any = None
        self._step_began_ns = self._last_end_ns = self._rest_ns = 0
        self._tried_ns = 0
        self._sampling = False
        self._sample_due_ns = 0
        self._period_ns = 0.0
        self._call_ns = 0
        self._given: tuple[Turn, float] | None = None
        self._lent = 0
        self._progress: Callable[[], Progressed] | None = None
        self._gone = self._ending = False
        self._say_hello()
        Inbox(place.knob_fd, self._deliver, end=self._end_process).start()
        threading.Thread(target=self._lend_for_ever, name="tfmon-lend", daemon=True).start()
        atexit.register(self._leave)

    @property
    def mine(self) -> bool:
        """Whether the calling thread is the one that is measured."""
        return threading.get_ident() == self._thread and not self._gone

    # ------------------------------------------------------------ first words

    def _say_hello(self) -> None:
        now_ns = time.monotonic_ns()
        python = platform.python_version()
        self._send(Hello(at_ns=now_ns, protocol=PROTOCOL, pid=os.getpid(), python=python))
        found = equipment.find(self.device)
        if found.absent:
            self.fail("device_absent", found.absent)
        self._send(
            Equipped(
                at_ns=now_ns,
                tensorflow=found.tensorflow,
                keras=found.keras,
                numpy=found.numpy,
                device_name=found.device_name,
                gpu_uuid=found.gpu_uuid,
            )
        )
        self._enter(WARMING_UP)
        if found.tensorflow:
            self._traces = TraceWatch()

    def fail(self, kind: str, message: str, hint: str = "") -> None:
        """Say why this lane cannot be measured, and end the script as Ctrl+C does."""
        self._send(LaneFailed(at_ns=time.monotonic_ns(), kind=kind, message=message, hint=hint))
        self._gone = True
        signal.raise_signal(signal.SIGINT)

    def tell_model(self, parameters: int) -> None:
        """Tell how large the model is that trains now."""
        now_ns = time.monotonic_ns()
        self._send(Built(at_ns=now_ns, parameters=parameters, examples=None, settings=dict(self._settings)))

    # ------------------------------------------------------------ steps

    def begin_step(self) -> bool:
        """Begin a step, once the lane may train; return whether it stood still before it."""
        if self._rest_ns:
            self.resume()
        stood = self._slices.held and self._warm
        if self._mailbox.waiting or stood:
            self._obey()
        if self._capture is None and not self._clock.steps and not self._ring:
            self._before_window()
        if self._capture is not None:
            self._marker = self._capture[0].step()
            self._marker.__enter__()
        self._step_began_ns = time.monotonic_ns()
        if not self._last_end_ns:
            self._restart_clock(self._step_began_ns)
        return stood

    def give_up_step(self) -> None:
        """Take note that what was begun was no step: the data had ended."""
        if self._marker is not None:
            self._marker.__exit__(None, None, None)
            self._marker = None

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
        if self._marker is not None:
            self._marker.__exit__(None, None, None)
            self._marker = None
        clock = self._clock
        self._loss = loss
        call_ns = now_ns - self._step_began_ns - input_ns if call_ns is None else call_ns
        self._call_ns = call_ns
        took_ns = now_ns - self._last_end_ns
        if self._traces is not None and self._traces.count != self._seen_traces:
            self._seen_traces = self._traces.count
            clock.traced_steps += 1
            clock.traced_ns += call_ns
        clock.examples += examples
        clock.input_ns += input_ns
        clock.call_ns += call_ns
        clock.longest_call_ns = max(clock.longest_call_ns, call_ns)
        times, at = clock.times, self._ring
        for place in range(at, min(at + steps, CAPACITY)):
            times[place] = took_ns // steps
        self._ring = min(at + steps, CAPACITY)
        self._steps += steps
        self._last_end_ns = now_ns
        if self._capture is not None or self._sampling:
            self._after_odd_step()
        elif self._fresh:
            self._confirm_knobs(now_ns, took_ns)
        due = now_ns >= self._slices.due_ns(self._tried_ns) or self._ring >= CAPACITY or self._mailbox.waiting
        if due and self._capture is None:
            self._after_stretch()

    def rest(self) -> None:
        """Take note that no step follows for a while; the time until the next is no step's."""
        if self._rest_ns or not self._last_end_ns:
            return
        self._count_ring()
        if self._capture is not None:
            self._finish_capture()
        if self._last_end_ns - self._clock.began_ns >= LEAST_WINDOW_NS:
            self._after_stretch()
        self._rest_ns = time.monotonic_ns()

    def resume(self) -> int:
        """Take note that steps follow again; return how long none did, in nanoseconds."""
        if not self._rest_ns:
            return 0
        gap_ns = time.monotonic_ns() - self._rest_ns
        since_end_ns = time.monotonic_ns() - self._last_end_ns
        self._rest_ns = 0
        self._clock.began_ns += since_end_ns
        self._tried_ns += since_end_ns
        self._last_end_ns += since_end_ns
        return gap_ns

    def tell_progress(self, progress: Callable[[], Progressed]) -> None:
        """Tell now how far the script is, and from now on with each window."""
        self._progress = progress
        self._tell_progress()

    # ------------------------------------------------------------ windows

    def _restart_clock(self, at_ns: int) -> None:
        self._clock.reset(at_ns)
        self._ring = 0
        self._tried_ns = self._last_end_ns = at_ns
        self._known = self.feed.totals() or (0, 0)
        if not self._warm:
            self._warm_since_ns = self._warm_since_ns or at_ns
            self._clock.marks.add(WARM_UP)

    def _count_ring(self) -> None:
        if self._ring:
            self._clock.count(self._ring)
            self._ring = 0

    def _after_stretch(self) -> None:
        """Wait for the device, and close the window if it is time."""
        clock = self._clock
        self._count_ring()
        if not clock.steps:
            return
        loss = self.read_loss()
        synced_ns = time.monotonic_ns()
        clock.sync_ns += synced_ns - self._last_end_ns
        self._take_feed()
        if self._slices.starting:
            clock.marks.add(TURN_START)
        with self._lock:
            if self._slices.unsettled(synced_ns, self._tried_ns, clock.examples or clock.steps):
                self._tried_ns = self._last_end_ns = synced_ns
                return
            self._close_window(synced_ns, loss)
            ended = self._slices.window_ended(synced_ns)
            if ended is not None:
                self._given = None
                self._send(TurnEnded(at_ns=synced_ns, turn=ended.number))
        if not self._warm:
            self._warm_up(synced_ns)

    def _warm_up(self, now_ns: int) -> None:
        if now_ns - self._warm_since_ns > WARM_UP_NS and self._steps >= WARM_UP_STEPS:
            unknown = [name for name in self._asked if name not in self._knobs]
            if unknown:
                self.fail(
                    "scenario",
                    f"{unknown[0]} was asked for, and the script has no such knob",
                    f'report.knob("{unknown[0]}", …) offers one',
                )
            self._warm = True
            self._enter(READY)

    def _take_feed(self) -> None:
        totals = self.feed.totals()
        if totals is None:
            return
        input_ns, examples = totals[0] - self._known[0], totals[1] - self._known[1]
        self._known = totals
        self._clock.input_ns += input_ns
        self._clock.call_ns = max(0, self._clock.call_ns - input_ns)
        self._clock.examples += examples

    def _close_window(self, at_ns: int, loss: float | None) -> None:
        clock = self._clock
        if WARM_UP not in clock.marks and KNOB_CHANGE not in clock.marks:
            self._odd.mark(clock)
        in_use, peak = equipment.gpu_memory(self.device)
        window = clock.window(
            at_ns,
            self._samples,
            step=self._steps,
            loss=loss,
            settings=dict(self._settings),
            turn=self._slices.number,
            gpu_in_use_bytes=in_use,
            gpu_peak_bytes=peak,
            traced=self._traces.cause() if self._traces is not None and clock.traced_steps else "",
        )
        self._period_ns = window.span_ns / max(1, window.steps)
        self._tried_ns = at_ns
        if self._reporter.offer(window):
            clock.reset(at_ns)
            self._samples = Samples()
            if not self._warm:
                clock.marks.add(WARM_UP)
            self._tell_progress()
        self._last_end_ns = time.monotonic_ns()
        clock.report_ns += self._last_end_ns - at_ns

    def _tell_progress(self) -> None:
        if self._progress is not None and not self._gone:
            with self._lock:
                self._reporter.offer(self._progress())

    def read_loss(self) -> float | None:
        """Read the last step's loss, and by that wait for the device to finish it; None for no number."""
        loss: Any = self._loss() if callable(self._loss) else self._loss
        if loss is None:
            return None
        try:
            return float(loss if getattr(loss, "ndim", 0) == 0 else loss.mean())
        except (TypeError, ValueError, AttributeError, RuntimeError):
            return None

    # ------------------------------------------------------------ steps that are in no window

    def _before_window(self) -> None:
        now_ns = time.monotonic_ns()
        if not self._last_end_ns or self._clock.marks or self._fresh or self._slices.starting:
            return
        if self._profile is not None:
            wish, self._profile = self._profile, None
            self._begin_capture(wish)
        elif self.barriers and self._warm and now_ns >= self._sample_due_ns:
            self._sampling = True
            self._take_feed()

    def _begin_capture(self, wish: Profile) -> None:
        if "tensorflow" not in sys.modules:
            self._send(ProfileFailed(at_ns=time.monotonic_ns(), folder=wish.folder, reason=NO_TENSORFLOW))
            return
        capture = Capture(Path(wish.folder))
        try:
            capture.start()
        except CaptureError as error:
            self._send(ProfileFailed(at_ns=time.monotonic_ns(), folder=wish.folder, reason=str(error)))
        else:
            self._capture = capture, wish

    def _after_odd_step(self) -> None:
        if self._sampling:
            self._finish_sample()
        elif self._capture is not None and self._capture[0].steps >= self._capture[1].steps:
            self._finish_capture()

    def _finish_sample(self) -> None:
        """End a step that was run between two barriers: the one before it is the end of the window."""
        self._sampling = False
        called_ns = self._last_end_ns
        self.read_loss()
        done_ns = time.monotonic_ns()
        self._take_feed()
        input_ns, samples = self._clock.input_ns, self._samples
        samples.steps += 1
        samples.examples += self._clock.examples
        samples.input_ns += input_ns
        samples.call_ns += max(0, self._call_ns - input_ns)
        samples.tail_ns += done_ns - called_ns
        extra_ns = max(0.0, done_ns - self._step_began_ns - self._period_ns)
        self._sample_due_ns = done_ns + max(SAMPLE_EVERY_NS, int(extra_ns / SAMPLE_BUDGET))
        self._leave_out(done_ns)

    def _finish_capture(self) -> None:
        assert self._capture is not None
        (capture, wish), self._capture = self._capture, None
        self.read_loss()
        try:
            path = capture.stop()
        except CaptureError as error:
            self._send(ProfileFailed(at_ns=time.monotonic_ns(), folder=wish.folder, reason=str(error)))
        else:
            self._send(Profiled(at_ns=time.monotonic_ns(), folder=wish.folder, path=str(path)))
        self._take_feed()
        self._samples.examples += self._clock.examples
        self._leave_out(time.monotonic_ns())

    def _leave_out(self, at_ns: int) -> None:
        """Begin the window anew; the steps that it has had count as trained and no more."""
        self._clock.reset(at_ns)
        self._ring = 0
        self._tried_ns = self._last_end_ns = at_ns

    # ------------------------------------------------------------ requests

    def _deliver(self, request: Request) -> None:
        if isinstance(request, Stop):
            self._end_process(0)
            return
        if isinstance(request, Turn):
            self._given = request, time.monotonic() + request.seconds
        self._mailbox.post(request)

    def _obey(self) -> None:
        """Do what was asked, and stand still while the lane is held."""
        while True:
            while (letter := self._mailbox.take()) is not None:
                with self._lock:
                    self._heed(letter)
            if not (self._slices.held and self._warm):
                return
            self._mailbox.wait()

    def _heed(self, letter: Request) -> None:
        match letter:
            case Run() | Turn() | Hold() if not self._warm:
                pass  # it was meant for the process that was the lane before
            case SetKnob():
                self._set_knob(letter)
            case Run():
                self._slices.turn = None
                self._go_on("pause" if self._raced else "")
            case Turn() if letter.number > self._lent:
                now_ns = time.monotonic_ns()
                self._go_on(TURN_START)
                self._slices.begin(letter, now_ns, 0)
            case Hold():
                if self._slices.stop():
                    self._enter(PAUSED)
            case Profile():
                self._profile = letter
            case _:
                pass

    def _go_on(self, mark: str) -> None:
        if self._slices.held:
            self._slices.held = False
            self._restart_clock(time.monotonic_ns())
            if mark:
                self._clock.marks.add(mark)
            if self._fresh:
                self._clock.marks.add(KNOB_CHANGE)
        self._raced = True
        self._enter(RACING)

    def _lend_for_ever(self) -> None:
        while not self._gone:
            time.sleep(LEND_AFTER_S / 3)
            self.lend()

    def lend(self) -> None:
        """Give the turn back if the script is busy with something else than steps, so that the others go on."""
        given, idle_since = self._given, time.monotonic() - LEND_AFTER_S
        if given is None or idle_since < max(given[1], self._last_end_ns / 1e9):
            return
        with self._lock:
            if self._given is not given:
                return
            self._given, self._lent = None, given[0].number
            self._slices.stop()
            self._send(TurnEnded(at_ns=time.monotonic_ns(), turn=given[0].number))

    # ------------------------------------------------------------ knobs

    def offer(self, knob: Knob, take: Callable[[Any], None]) -> KnobValue:
        """Offer a knob, and return its value: the one in force, or that of the command line, or its default.

        `take` is called with each new value, in the thread that trains, between two steps; KnobError refuses it.
        """
        known = self._knobs.get(knob.name)
        self._knobs[knob.name] = knob, take
        if known is not None:
            return self._settings[knob.name]
        value = knob.default
        asked = self._asked.get(knob.name)
        if asked is not None:
            try:
                value = knob.parse(str(asked)) if isinstance(asked, str) else knob.check(asked)
                take(value)
            except KnobError as error:
                self.fail("scenario", str(error))
        self._settings[knob.name] = value
        self._send(
            KnobOffered(
                at_ns=time.monotonic_ns(),
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

    @property
    def knobs(self) -> tuple[str, ...]:
        """Names of the knobs that were offered."""
        return tuple(self._knobs)

    def value(self, name: str) -> KnobValue:
        """Return the value of a knob that was offered."""
        return self._settings[name]

    def _set_knob(self, wish: SetKnob) -> None:
        try:
            knob = find([knob for knob, _ in self._knobs.values()], wish.knob)
            value = knob.check(wish.value)
            self._knobs[wish.knob][1](value)
        except KnobError as error:
            refusal = KnobRefused(
                at_ns=time.monotonic_ns(),
                request=wish.request,
                knob=wish.knob,
                value=wish.value,
                reason=str(error),
            )
            self._send(refusal)
            return
        self._settings[wish.knob] = value
        self._odd = OddWindows()
        self._fresh.append(wish)
        self._clock.marks.add(KNOB_CHANGE)

    def _confirm_knobs(self, now_ns: int, gap_ns: int) -> None:
        for wish in self._fresh:
            value = self._settings[wish.knob]
            applied = KnobApplied(
                at_ns=now_ns, request=wish.request, knob=wish.knob, value=value, step=self._steps, gap_ns=gap_ns
            )
            self._send(applied)
        self._fresh = []

    # ------------------------------------------------------------ the end

    def _enter(self, phase: str) -> None:
        self._send(PhaseEntered(at_ns=time.monotonic_ns(), phase=phase))

    def _send(self, event: Any) -> None:  # noqa: ANN401
        if not self._gone:
            with self._lock:
                self._reporter.send(event)

    def _leave(self) -> None:
        """Send what is left of the last window, and let others have the turn."""
        self.rest()
        if self._clock.steps and not self._gone:
            self._take_feed()
            with self._lock:
                self._close_window(self._last_end_ns, self.read_loss())
        given = self._slices.turn or (self._given[0] if self._given else None)
        if given is not None:
            self._send(TurnEnded(at_ns=time.monotonic_ns(), turn=given.number))
        elif not self._slices.held:
            self._enter(PAUSED)
        self._reporter.drain(timeout_s=1.0)
        self._gone = True

    def _unheard(self, _code: int) -> None:
        """Stop reporting: nobody listens."""
        self._gone = True

    def _end_process(self, _code: int) -> None:
        """End the script as its author knows it: the monitor wants its end, or is gone."""
        if not self._ending:
            self._ending = True
            os.kill(os.getpid(), signal.SIGINT)
