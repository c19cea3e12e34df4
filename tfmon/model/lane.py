"""A lane of the running race."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tfmon.model import events, lane_events, lane_state
from tfmon.model.event_base import Event, LaneEvent, kinds
from tfmon.model.gpu_samples import MOST_TAKEN, GpuSample, Taken
from tfmon.model.knobs import BATCH_SIZE, show
from tfmon.model.lane_events import Accounted
from tfmon.model.lane_texts import append_log, trouble_of, trouble_of_script
from tfmon.model.lane_use import NO_GPU, BatchPeaks, GpuUse
from tfmon.model.readings import NOT_SAMPLED, Missing, TreeSample, known
from tfmon.model.speed import SpeedWatch
from tfmon.model.windows import Measurements

MOST_PROFILES = 6
MOST_PLACES = 100
"""Further steps count as the last step."""
MOST_SUSPENSIONS = 16
NOT_SENT = "a signal ended the script: what it trained after its last report, in 0.5 s or one step, is not counted"
OTHERS_MARK = "others "
OTHERS_MARK_EVERY_NS = 30_000_000_000
SIGNS_OF_LIFE = tuple({*kinds(LaneEvent)} - {lane_events.StackReported, lane_events.PathsUsed})
"""A hanging lane also reports stacks."""


class Lane(lane_state.LaneState):
    """A lane. Thread: the session's lock is required."""

    def accept(self, event: Event) -> None:
        """Change the state by an event."""
        if isinstance(event, SIGNS_OF_LIFE) and not isinstance(event, lane_events.Window):
            self.heartbeat.hear(event.at_ns)
        phase = self.phase
        self._take(event)
        unchanged = isinstance(event, lane_events.PhaseEntered) and self.phase == phase
        quiet = isinstance(event, lane_events.Window) and not event.traced_steps
        if not unchanged and not quiet:
            self.log = append_log(self.log, event)

    def _take(self, event: Event) -> None:
        process = self.process
        match event:
            case lane_events.Window():
                self._on_window(event)
            case lane_events.SliceEnded():
                self.measurements.end_slice(event)
            case TreeSample():
                self.on_tree_sample(event)
            case lane_events.PhaseEntered():
                self._on_phase_entered(event)
            case events.KnobRequested():
                self.changes.requested = {**self.changes.requested, event.knob: event}
                self.changes.refused = ""
            case lane_events.KnobApplied():
                self._on_knob_applied(event)
            case lane_events.KnobRefused():
                self.changes.answer(event.knob, event.request)
                self.changes.refused, self.changes.refused_ns = event.reason, event.at_ns
            case events.LaneStarted():
                self._on_started(event)
            case lane_events.Hello():
                self._on_hello(event)
            case lane_events.LibrariesLoaded():
                loaded = {"tensorflow": event.tensorflow, "keras": event.keras, "numpy": event.numpy}
                process.versions = {**process.versions, **loaded}
                process.device_name, process.bfloat16 = event.device_name, event.bfloat16
                process.gpu_uuids = event.gpu_uuids or ((event.gpu_uuid,) if event.gpu_uuid else ())
            case lane_events.Built():
                process.data_examples = event.examples
                self.settings = event.settings
            case lane_events.LaneFailed():
                self._enter(lane_state.ABSENT if event.kind == "device_absent" else lane_state.FAILED, event.at_ns)
                self.trouble = lane_state.Trouble(event.message, event.hint, event.kind)
            case lane_events.Finished() if not self.over:
                self._enter(lane_state.DONE, event.at_ns)
            case events.EndRequested():
                self.end.stood_still_s = self.stands_still_s(event.at_ns)
                self.end.requested = event
            case events.LaneEnded():
                self._on_ended(event)
            case events.LaneStalled():
                self.heartbeat.stalled_since_ns = event.since_ns
            case events.Suspended():
                suspensions = self.heartbeat.suspensions[1 - MOST_SUSPENSIONS :]
                self.heartbeat.suspensions = (*suspensions, (event.since_ns, event.at_ns))
                self.discard(event.since_ns, event.at_ns, (lane_events.SUSPENDED,))
                self.mark_charts(event.at_ns, f"{lane_events.SUSPENDED} {event.lasted_s:.0f} s")
            case _:
                self._learn(event)

    def _learn(self, event: Event) -> None:
        process, script = self.process, self.script
        match event:
            case lane_events.Progressed():
                self._on_progressed(event)
            case lane_events.NotMeasured():
                self._on_not_measured(event)
            case lane_events.StepDescribed():
                self._on_step_described(event)
            case lane_events.Profiled():
                self._on_profiled(event)
            case lane_events.PathsUsed():
                uses = script.uses
                script.uses = uses | {path: uses.get(path, "") + use for path, use in event.uses.items()}
                if written := [Path(path).name for path, use in event.uses.items() if "w" in use]:
                    self.speed.note(event.at_ns, f"{written[-1]} was written")
            case lane_events.KnobOffered():
                self.settings = {**self.settings, event.knob: event.value}
            case lane_events.DefaultsResolved():
                script.resolved = event.values
            case lane_events.InputDescribed():
                script.input_traits = event.traits
            case lane_events.CauseSeen():
                causes = [cause for cause in script.causes if cause.key != event.key]
                script.causes = (*causes, event)[-lane_events.MOST_CAUSES :]
            case events.BadLine():
                process.bad_lines += event.lines
                process.last_bad_line = event.problem
            case lane_events.StackReported():
                process.stack = event
            # A process that has not trained may have started the training one.
            case Accounted() if event.trained or not self.totals.steps:
                self.account = event

    def _on_window(self, window: lane_events.Window) -> None:
        heartbeat = self.heartbeat
        if reasons := heartbeat.reasons_to_discard(window):
            window = replace(window, marks=(*window.marks, *reasons))
        elif lane_events.IN_A_STEP not in window.marks:
            heartbeat.longest_window_ns = max(heartbeat.longest_window_ns, window.span_ns)
        heartbeat.hear(window.at_ns)
        if self.end.stood_still_s is not None:
            window = replace(window, marks=(*window.marks, lane_events.STOOD_STILL))
        if self.script.not_measured.get("examples"):
            window = replace(window, examples=0, sampled_examples=0)
        if self.script.not_measured.get("loss"):
            window = replace(window, loss=None)
        totals = self.totals
        totals.steps = totals.steps_before + window.step
        totals.examples += window.examples + window.sampled_examples
        totals.losses = totals.losses.with_loss(totals.steps, window.loss)
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

    def on_slice_granted(self, at_ns: int, *, trains: bool) -> None:
        """Store the start of a slice."""
        if trains != (self.step_clock.granted_ns is not None):
            self.turn_since_ns = at_ns
        self.tree.clock = self.tree.clock.granted(at_ns, trains=trains)
        self.step_clock = self.step_clock.granted(at_ns, trains=trains)

    def on_tree_sample(self, sample: TreeSample, *, sliced: bool = False, cores: float = 0) -> None:
        """Store a sample. CPU of a `sliced` lane is per time in slices."""
        if self.over:
            return
        racing = self.phase == lane_events.RACING
        if sliced and racing:
            sample = self.tree.in_slices(sample, cores)
        self.tree.add(sample, self.phase, racing=racing, ending=self.end.requested is not None)
        self.measurements.sample(sample.at_ns, cpu_pct=sample.cpu_pct, private_bytes=sample.private_bytes)
        self.speed.read(cpu_pct=known(sample.cpu_pct), waited_pct=known(sample.waited_pct))

    def on_gpu_sample(self, sample: GpuSample, *, only_lane: bool) -> None:
        """Store a sample of one of the lane's GPUs."""
        if self.over:
            return
        use, phase = self.gpu_use, self.phase
        opening = phase in (lane_events.STARTING, lane_events.IMPORTING)
        alone = only_lane and not opening and phase != lane_events.BUILDING
        use.parts = {key: part for key, part in use.parts.items() if self.process.uses_gpu(key)}
        use.add(sample, self.tree.pids, self.spec.devices, opening=opening, only_lane=alone)
        if phase == lane_events.RACING:
            use.racing_busy_pct = use.racing_busy_pct.with_sample(sample.load.busy_pct)
            if only_lane:
                use.add_activity(sample.activity)
        self.measurements.sample(sample.at_ns, gpu_busy_pct=sample.load.busy_pct)
        self.speed.read(clock_mhz=known(sample.clocks.sm_clock_mhz))

    def on_gpu_taken(self, index: int, taken: Taken | None) -> None:
        """Store and mark the use of a GPU by others."""
        if self.phase != lane_events.RACING:
            return
        before = self.gpu_use.taken.get(index, ())
        if taken is None or (before and taken.until_ns <= before[-1].until_ns):
            return
        self.gpu_use.taken = {**self.gpu_use.taken, index: (*before[1 - MOST_TAKEN :], taken)}
        if not taken.counts:
            return
        marks = [mark.at_ns for mark in self.changes.marks if mark.text.startswith(OTHERS_MARK)]
        if not marks or taken.since_ns - max(marks) > OTHERS_MARK_EVERY_NS:
            self.mark_charts(taken.since_ns, f"{OTHERS_MARK}{taken.pct:.0f} %")

    def _on_phase_entered(self, event: lane_events.PhaseEntered) -> None:
        if event.phase == "warming up":
            self.heartbeat.warm_up_ns = 0
        elif event.phase == "ready":
            self.heartbeat.warm_up_ns = max(0, event.at_ns - self.phase_since_ns)
        if not self.over:
            self._enter(event.phase, event.at_ns)

    def _on_knob_applied(self, event: lane_events.KnobApplied) -> None:
        self.changes.answer(event.knob, event.request)
        self.changes.refused = ""
        self.changes.mark(event.at_ns, f"{event.knob} {show(event.value)}", event.gap_ns)
        only_batch = event.knob == BATCH_SIZE.name
        self.gpu_use.batch_peaks = self.gpu_use.batch_peaks.changed(self.gpu_use.peak_bytes, only_batch=only_batch)
        self.measure_again()
        self.settings = {**self.settings, event.knob: event.value}
        self.step.computing_share = self.step.calling_share = None
        self.step.profiles = ()

    def _on_started(self, event: events.LaneStarted) -> None:
        self.heartbeat = lane_state.Heartbeat(heard_ns=event.at_ns, suspensions=self.heartbeat.suspensions)
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
        fresh = lane_state.LaneState(
            spec=self.spec,
            phase_since_ns=event.at_ns,
            process=lane_state.ProcessInfo(self.process.number + 1, event.pid, event.at_ns, event.source),
            script=lane_state.ScriptFacts(command=event.command),
            settings=event.settings,
            measurements=measurements,
            gpu_use=GpuUse(used_bytes=NO_GPU if self.spec.kind == "cpu" else NOT_SAMPLED),
            heartbeat=self.heartbeat,
            log=self.log,
        )
        vars(self).update(vars(fresh))

    def _renew(self, event: events.LaneStarted) -> None:
        self.phase, self.phase_since_ns = lane_events.STARTING, event.at_ns
        if event.settings != self.settings:
            self.measure_again()
            self.step.profiles = ()
        self.speed = SpeedWatch()
        self.process.number += 1
        self.process.pid, self.process.started_ns = event.pid, event.at_ns
        self.tree.pids, self.tree.processes = (), None
        self.gpu_use.batch_peaks = BatchPeaks()
        self.settings = event.settings
        self.changes.requested = {}
        self.end.event = None
        self.totals.steps_before = self.totals.steps

    def _on_hello(self, event: lane_events.Hello) -> None:
        process = self.process
        process.pid = event.pid
        process.versions = {**process.versions, "python": event.python}
        process.reports_stack, process.unlike = event.reports_stack, event.unlike
        reasons = self.script.not_measured.items()
        self.script.not_measured = {figure: reason for figure, reason in reasons if figure != "steps"}
        self.totals.steps_before = self.totals.steps
        self.measurements.process = 0

    def _on_ended(self, event: events.LaneEnded) -> None:
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
            self._enter(lane_state.FAILED, event.at_ns)
            self.trouble = trouble
        else:
            if command and not stalled and well:
                self.trouble = of_script
            self._enter(lane_state.DONE, event.at_ns)

    def _on_progressed(self, event: lane_events.Progressed) -> None:
        script, before = self.script, self.script.progress
        if before is not None and (before.epoch, before.doing) != (event.epoch, event.doing):
            epoch = f"epoch {event.epoch} began"
            text = epoch if event.epoch != before.epoch else f"{event.doing or before.doing} began"
            self.speed.note(event.at_ns, text)
        done = before.epochs_done if before is not None else 0
        if event.epochs_done < done:
            script.validation = lane_state.LossCurve()
        if event.epochs_done != done:
            script.validation = script.validation.with_loss(event.epochs_done, event.metrics.get("val_loss"))
        script.progress = event

    def _on_not_measured(self, event: lane_events.NotMeasured) -> None:
        figure, reason = event.what, event.reason
        if reason == lane_events.CHANNEL_CLOSED:
            self._set_not_measured(figure, f"{reason} after {self.totals.steps:,} steps")
            return
        if figure == "processes":
            processes = self.script.not_measured.get("processes", "").partition(": ")[2]
            text = f"several processes train at once, and the first alone is counted, {self.process.pid}; not: "
            self._set_not_measured(figure, text + (f"{processes}, {reason}" if processes else reason))
            return
        self._set_not_measured(figure, reason)
        if figure == "examples" and reason and self.totals.examples:
            speed = self.speed
            self.measure_again()
            self.totals.examples, self.speed = 0, speed
        elif figure == "loss" and reason:
            self.totals.losses = replace(self.totals.losses, first=None, last=None)

    def _on_step_described(self, event: lane_events.StepDescribed) -> None:
        script, places = self.script, self.script.places
        script.step_traits = event.traits
        if event.position in places or len(places) >= MOST_PLACES:
            return
        script.step, script.places = event.text, (*places, event.position)
        if places:
            self.measure_again()
            self.mark_charts(event.at_ns, event.position)

    def _on_profiled(self, event: lane_events.Profiled) -> None:
        step, profile = self.step, event.profile
        step.profiles = (*step.profiles, profile)[-MOST_PROFILES:]
        if isinstance(profile.call, Missing):
            return
        step.calling_share = profile.calling_share
        if profile.computing_share is not None:
            step.computing_share = profile.computing_share

    def measure_again(self) -> None:
        """Begin a new steady state of a running lane."""
        if not self.over:
            self.measurements.restart()
            self.speed = SpeedWatch()
            self.gpu_use.taken = {}

    def mark_charts(self, at_ns: int, text: str) -> None:
        """Mark the charts of a running lane."""
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
        if (self.phase, phase) == (lane_events.PAUSED, lane_events.RACING):
            self.speed = SpeedWatch()
        self.phase_before, self.phase, self.phase_since_ns = self.phase, phase, at_ns

    def _set_not_measured(self, figure: str, reason: str) -> None:
        self.script.not_measured = {**self.script.not_measured, figure: reason}
