"""A lane of the running race."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import get_args

from tfmon.model import gpu_others
from tfmon.model.account import Accounted
from tfmon.model.events import (
    BadLine,
    EndRequested,
    Event,
    KnobRequested,
    LaneEnded,
    LaneStalled,
    LaneStarted,
    Suspended,
)
from tfmon.model.gpu_others import Taken
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.knobs import BATCH_SIZE, show
from tfmon.model.lane_events import (
    IN_A_STEP,
    STOOD_STILL,
    SUSPENDED,
    Built,
    Finished,
    FromLane,
    Hello,
    KnobApplied,
    KnobRefused,
    LaneFailed,
    LibrariesLoaded,
    PhaseEntered,
    Profiled,
    SliceEnded,
    Window,
)
from tfmon.model.lane_state import (
    ABSENT,
    BUILDING,
    DONE,
    FAILED,
    IMPORTING,
    PAUSED,
    RACING,
    STARTING,
    Heartbeat,
    LaneState,
    LossCurve,
    ProcessInfo,
    ScriptFacts,
    Trouble,
)
from tfmon.model.lane_texts import append_log, trouble_of, trouble_of_script
from tfmon.model.lane_use import NO_GPU, BatchPeaks, GpuPart, GpuUse
from tfmon.model.readings import NOT_SAMPLED, HostSample, Missing, TreeSample, known
from tfmon.model.script_events import (
    CHANNEL_CLOSED,
    MOST_CAUSES,
    CauseSeen,
    DefaultsResolved,
    InputDescribed,
    KnobOffered,
    NotMeasured,
    PathsUsed,
    Progressed,
    StackReported,
    StepDescribed,
)
from tfmon.model.speed import SpeedWatch
from tfmon.model.windows import Measurements

MOST_PROFILES = 6
MOST_PLACES = 100
"""Further phases of a script count as the last one."""
MOST_SUSPENSIONS = 16
NOT_SENT = "a signal ended the script: what it trained after its last report, in 0.5 s or one step, is not counted"
OTHERS_MARK = "others "
OTHERS_MARK_EVERY_NS = 30_000_000_000
SIGNS_OF_LIFE = tuple(kind for kind in get_args(FromLane) if kind not in (StackReported, PathsUsed))
"""A lane that hangs also reports stacks."""


class Lane(LaneState):
    """Thread: the session's lock is required."""

    @classmethod
    def from_state(cls, state: LaneState) -> Lane:
        """Return a lane with a copied state."""
        return state._copy_as(cls)

    def accept(self, event: Event) -> None:
        """Change the state by an event."""
        if isinstance(event, SIGNS_OF_LIFE) and not isinstance(event, Window):
            self.heartbeat.hear(event.at_ns)
        phase = self.phase
        self._take(event)
        unchanged = isinstance(event, PhaseEntered) and self.phase == phase
        quiet = isinstance(event, Window) and not event.traced_steps
        if not unchanged and not quiet:
            self.log = append_log(self.log, event)

    def _take(self, event: Event) -> None:
        match event:
            case Window():
                self._on_window(event)
            case SliceEnded():
                self.measurements.end_slice(event)
            case TreeSample():
                self.on_tree_sample(event)
            case PhaseEntered():
                self._on_phase_entered(event)
            case KnobRequested():
                self.changes.requested = {**self.changes.requested, event.knob: event}
                self.changes.refused = ""
            case KnobApplied():
                self._on_knob_applied(event)
            case KnobRefused():
                self.changes.answer(event.knob, event.request)
                self.changes.refused, self.changes.refused_ns = event.reason, event.at_ns
            case LaneStarted():
                self._on_started(event)
            case Hello():
                self._on_hello(event)
            case LibrariesLoaded():
                self._on_libraries_loaded(event)
            case Built():
                self.process.data_examples = event.examples
                self.settings = event.settings
            case LaneFailed():
                self._enter(ABSENT if event.kind == "device_absent" else FAILED, event.at_ns)
                self.trouble = Trouble(event.message, event.hint, event.kind)
            case Finished() if not self.over:
                self._enter(DONE, event.at_ns)
            case EndRequested():
                self.end.stood_still_s = self.stands_still_s(event.at_ns)
                self.end.requested = event
            case LaneEnded():
                self._on_ended(event)
            case LaneStalled():
                self.heartbeat.stalled_since_ns = event.since_ns
            case Suspended():
                self._on_suspended(event)
            case _:
                self._learn(event)

    def _learn(self, event: Event) -> None:
        """Store a fact about the process or its script."""
        process, script = self.process, self.script
        match event:
            case Progressed():
                self._on_progressed(event)
            case NotMeasured():
                self._on_not_measured(event)
            case StepDescribed():
                self._on_step_described(event)
            case Profiled():
                self._on_profiled(event)
            case PathsUsed():
                self._on_paths_used(event)
            case KnobOffered():
                self.settings = {**self.settings, event.knob: event.value}
            case DefaultsResolved():
                script.resolved = event.values
            case InputDescribed():
                script.input_traits = event.traits
            case CauseSeen():
                causes = [cause for cause in script.causes if cause.key != event.key]
                script.causes = (*causes, event)[-MOST_CAUSES:]
            case BadLine():
                process.bad_lines += event.lines
                process.last_bad_line = event.problem
            case StackReported():
                process.stack = event
            # A process that has not trained may have started the training one.
            case Accounted() if event.trained or not self.totals.steps:
                self.account = event

    def _on_window(self, window: Window) -> None:
        heartbeat = self.heartbeat
        if reasons := heartbeat.reasons_to_discard(window):
            window = replace(window, marks=(*window.marks, *reasons))
        elif IN_A_STEP not in window.marks:
            heartbeat.longest_window_ns = max(heartbeat.longest_window_ns, window.span_ns)
        heartbeat.hear(window.at_ns)
        if self.end.stood_still_s is not None:
            window = replace(window, marks=(*window.marks, STOOD_STILL))
        if self.script.not_measured.get("examples"):
            window = replace(window, examples=0, sampled_examples=0)
        if self.script.not_measured.get("loss"):
            window = replace(window, loss=None)
        totals = self.totals
        totals.steps = totals.steps_before + window.step
        totals.examples += window.examples + window.sampled_examples
        totals.losses = totals.losses.plus(totals.steps, window.loss)
        sampled_ns = window.sampled_input_ns + (window.sampled_copy_ns or 0) + window.sampled_call_ns
        totals.trained_ns += (window.span_ns if window.steps else 0) + sampled_ns + window.sampled_tail_ns
        if window.traced_steps:
            self.speed.note(window.at_ns, f"{window.traced or 'a function'} was traced")
        if not window.marks:
            self.speed.add(window, totals.steps)
            totals.measured_steps += window.steps
        if window.computing_share is not None:
            self.step.computing_share = window.computing_share
        self.step.traced = window.traced or self.step.traced
        self.measurements.add(window, self.process.number)
        self.step_clock = self.step_clock.sampled(window.at_ns)
        self.settings = window.settings
        self.tree.end_window()
        self.gpu_use.end_window(window)

    def on_slice_granted(self, at_ns: int, *, own: bool) -> None:
        """Store the start of a slice."""
        if own != (self.step_clock.granted_ns is not None):
            self.turn_since_ns = at_ns
        self.tree.clock = self.tree.clock.granted(at_ns, own=own)
        self.step_clock = self.step_clock.granted(at_ns, own=own)

    def on_tree_sample(self, sample: TreeSample, *, sliced: bool = False, cores: float = 0) -> None:
        """Store a sample; CPU of a `sliced` lane is per time in slices."""
        if self.over:
            return
        racing = self.phase == RACING
        if sliced and racing:
            sample = self.tree.in_slices(sample, cores)
        self.tree.add(sample, self.phase, racing=racing, ending=self.end.requested is not None)
        self.measurements.sample(sample.at_ns, cpu_pct=sample.cpu_pct, private_bytes=sample.private_bytes)
        self.speed.read(cpu_pct=known(sample.cpu_pct), waited_pct=known(sample.waited_pct))

    def on_host_sample(self, sample: HostSample) -> None:
        """Store readings of its machine."""
        self.speed.read(others_pct=known(sample.others_cpu_pct), stolen_pct=known(sample.steal_pct))

    def on_gpu_sample(self, sample: GpuSample, *, only_lane: bool) -> None:
        """Store a sample of one of its GPUs."""
        if self.over:
            return
        racing, count, use = self.phase == RACING, self.spec.devices, self.gpu_use
        opening = self.phase in (STARTING, IMPORTING)
        part = use.parts.get(sample.key, GpuPart()).plus(
            sample,
            self.tree.pids,
            before=opening,
            only_lane=only_lane and not opening and self.phase != BUILDING,
            peak_bytes=(use.peak_bytes or use.allocated_bytes) if count == 1 else None,
        )
        use.parts = {key: one for key, one in use.parts.items() if self.process.uses_gpu(key)}
        use.add_part(sample.key, part, count, racing=racing)
        if racing and only_lane:
            use.add_activity(sample.activity)
        self.measurements.sample(sample.at_ns, gpu_busy_pct=sample.load.busy_pct)
        self.speed.read(clock_mhz=known(sample.clocks.sm_clock_mhz))

    def on_gpu_taken(self, index: int, taken: Taken | None) -> None:
        """Store and mark the use by others."""
        if self.phase != RACING:
            return
        before = self.gpu_use.taken.get(index, ())
        readings = gpu_others.with_taken(before, taken)
        if taken is None or readings is before:
            return
        self.gpu_use.taken = {**self.gpu_use.taken, index: readings}
        if not taken.counts:
            return
        marks = [mark.at_ns for mark in self.changes.marks if mark.text.startswith(OTHERS_MARK)]
        if not marks or taken.since_ns - max(marks) > OTHERS_MARK_EVERY_NS:
            self.mark_charts(taken.since_ns, f"{OTHERS_MARK}{taken.pct:.0f} %")

    def _on_phase_entered(self, event: PhaseEntered) -> None:
        if event.phase == "warming up":
            self.heartbeat.warm_up_ns = 0
        elif event.phase == "ready":
            self.heartbeat.warm_up_ns = max(0, event.at_ns - self.phase_since_ns)
        if not self.over:
            self._enter(event.phase, event.at_ns)

    def _on_knob_applied(self, event: KnobApplied) -> None:
        self.changes.answer(event.knob, event.request)
        self.changes.refused = ""
        self.changes.mark(event.at_ns, f"{event.knob} {show(event.value)}", event.gap_ns)
        only_batch = event.knob == BATCH_SIZE.name
        self.gpu_use.batch_peaks = self.gpu_use.batch_peaks.changed(self.gpu_use.peak_bytes, only_batch=only_batch)
        self._restart_measurement()
        self.settings = {**self.settings, event.knob: event.value}
        self.step.computing_share = self.step.calling_share = None
        self.step.profiles = ()

    def _on_started(self, event: LaneStarted) -> None:
        self.heartbeat = Heartbeat(heard_ns=event.at_ns, suspensions=self.heartbeat.suspensions)
        if event.renewed:
            self._renew(event)
            return
        before = self.measurements
        before.begin_process()
        measurements = Measurements(
            old=before.old,
            samples=before.samples,
            old_samples=before.old_samples,
            period=before.period + 1,
            until_ns=before.until_ns,
        )
        fresh = LaneState(
            spec=self.spec,
            phase_since_ns=event.at_ns,
            process=ProcessInfo(self.process.number + 1, event.pid, event.at_ns, event.source),
            script=ScriptFacts(command=event.command),
            settings=event.settings,
            measurements=measurements,
            gpu_use=GpuUse(used_bytes=NO_GPU if self.spec.kind == "cpu" else NOT_SAMPLED),
            heartbeat=self.heartbeat,
            log=self.log,
        )
        vars(self).update(vars(fresh))

    def _renew(self, event: LaneStarted) -> None:
        if event.settings != self.settings:
            self._restart_measurement()
            self.step.profiles = ()
        self.speed = SpeedWatch()
        self.phase, self.phase_since_ns = STARTING, event.at_ns
        self.process.number += 1
        self.process.pid, self.process.started_ns = event.pid, event.at_ns
        self.tree.pids, self.tree.processes = (), None
        self.gpu_use.batch_peaks = BatchPeaks()
        self.settings = event.settings
        self.changes.requested = {}
        self.end.event = None
        self.totals.steps_before = self.totals.steps

    def _on_hello(self, event: Hello) -> None:
        process = self.process
        process.pid = event.pid
        process.versions = {**process.versions, "python": event.python}
        process.reports_stack, process.unlike = event.reports_stack, event.unlike
        reasons = self.script.not_measured.items()
        self.script.not_measured = {what: reason for what, reason in reasons if what != "steps"}
        self.totals.steps_before = self.totals.steps
        self.measurements.process = 0

    def _on_libraries_loaded(self, event: LibrariesLoaded) -> None:
        process = self.process
        loaded = {"tensorflow": event.tensorflow, "keras": event.keras, "numpy": event.numpy}
        process.versions = {**process.versions, **loaded}
        process.device_name, process.bfloat16 = event.device_name, event.bfloat16
        process.gpu_uuids = event.gpu_uuids or ((event.gpu_uuid,) if event.gpu_uuid else ())

    def _on_ended(self, event: LaneEnded) -> None:
        command = self.script.command
        if command and event.signal is not None and self.totals.steps:
            self._set_not_measured("end", NOT_SENT)
        self.end.event = event
        self.changes.requested = {}
        if self.over:
            return
        of_script = trouble_of_script(self, event) if command else None
        stalled = self.heartbeat.stalled_since_ns is not None
        well = event.exit_code == 0 or self.end.requested is not None
        trouble = None if command and not stalled and well else trouble_of(event, self)
        if trouble is not None:
            if not stalled and not event.memory_kills:
                trouble = of_script or trouble
            self._enter(FAILED, event.at_ns)
            self.trouble = trouble
        else:
            if command and not stalled and well:
                self.trouble = of_script
            self._enter(DONE, event.at_ns)

    def _on_progressed(self, event: Progressed) -> None:
        script, before = self.script, self.script.progress
        if before is not None and (before.epoch, before.doing) != (event.epoch, event.doing):
            epoch = f"epoch {event.epoch} began"
            text = epoch if event.epoch != before.epoch else f"{event.doing or before.doing} began"
            self.speed.note(event.at_ns, text)
        done = before.epochs_done if before is not None else 0
        if event.epochs_done < done:
            script.validation = LossCurve()
        if event.epochs_done != done:
            script.validation = script.validation.plus(event.epochs_done, event.metrics.get("val_loss"))
        script.progress = event

    def _on_not_measured(self, event: NotMeasured) -> None:
        what, reason = event.what, event.reason
        if reason == CHANNEL_CLOSED:
            self._set_not_measured(what, f"{reason} after {self.totals.steps:,} steps")
            return
        if what == "processes":
            others = self.script.not_measured.get("processes", "").partition(": ")[2]
            text = f"several processes train at once, and the first alone is counted, {self.process.pid}; not: "
            self._set_not_measured(what, text + (f"{others}, {reason}" if others else reason))
            return
        self._set_not_measured(what, reason)
        if what == "examples" and reason and self.totals.examples:
            speed = self.speed
            self._restart_measurement()
            self.totals.examples, self.speed = 0, speed
        elif what == "loss" and reason:
            self.totals.losses = replace(self.totals.losses, first=None, last=None)

    def _on_step_described(self, event: StepDescribed) -> None:
        """A step at another location begins a new steady state."""
        script, places = self.script, self.script.places
        script.step_traits = event.traits
        if event.place in places or len(places) >= MOST_PLACES:
            return
        script.step, script.places = event.text, (*places, event.place)
        if places:
            self.measure_again()
            self.mark_charts(event.at_ns, event.place)

    def _on_suspended(self, event: Suspended) -> None:
        suspensions = self.heartbeat.suspensions[1 - MOST_SUSPENSIONS :]
        self.heartbeat.suspensions = (*suspensions, (event.since_ns, event.at_ns))
        self.discard(event.since_ns, event.at_ns, (SUSPENDED,))
        self.mark_charts(event.at_ns, f"{SUSPENDED} {event.lasted_s:.0f} s")

    def _on_profiled(self, event: Profiled) -> None:
        step, profile = self.step, event.profile
        step.profiles = (*step.profiles, profile)[-MOST_PROFILES:]
        if isinstance(profile.call, Missing):
            return
        step.calling_share = profile.calling_share
        if profile.computing_share is not None:
            step.computing_share = profile.computing_share

    def _on_paths_used(self, event: PathsUsed) -> None:
        uses = self.script.uses
        self.script.uses = uses | {path: uses.get(path, "") + use for path, use in event.uses.items()}
        written = [Path(path).name for path, use in event.uses.items() if "w" in use]
        if written:
            self.speed.note(event.at_ns, f"{written[-1]} was written")

    def measure_again(self) -> None:
        """Begin a new steady state, unless over."""
        if not self.over:
            self._restart_measurement()

    def mark_charts(self, at_ns: int, text: str) -> None:
        """Add a mark, unless over."""
        if not self.over:
            self.changes.mark(at_ns, text)

    def discard(self, since_ns: int, until_ns: int, reasons: Iterable[str]) -> None:
        """Discard the measurements during a disturbance."""
        for reason in reasons:
            if self.measurements.discard(since_ns, until_ns, reason):
                self.speed.discard(since_ns, until_ns)

    def _enter(self, phase: str, at_ns: int) -> None:
        if phase == self.phase:
            return
        if (self.phase, phase) == (PAUSED, RACING):
            self.speed = SpeedWatch()
        self.phase_before, self.phase, self.phase_since_ns = self.phase, phase, at_ns

    def _restart_measurement(self) -> None:
        self.measurements.restart()
        self.speed = SpeedWatch()
        self.gpu_use.taken = {}

    def _set_not_measured(self, what: str, reason: str) -> None:
        self.script.not_measured = {**self.script.not_measured, what: reason}
