"""The change of a lane's state by each event. Pure: no clock, no lock, no process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tfmon.model.events import (
    BadLine,
    EndRequested,
    Event,
    KnobRequested,
    LaneEnded,
    LaneStarted,
    Suspended,
)
from tfmon.model.heartbeat import SUSPENDED, Heartbeat
from tfmon.model.knobs import BATCH_SIZE, show
from tfmon.model.lane_events import (
    Built,
    Finished,
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
from tfmon.model.lane_measuring import (
    disturbed,
    marked,
    marks_with,
    measured_again,
    restart_measurement,
    take_tree_sample,
)
from tfmon.model.lane_state import (
    ABSENT,
    DONE,
    FAILED,
    PAUSED,
    RACING,
    STARTING,
    STOOD_STILL,
    LaneState,
    ProcessInfo,
    ScriptFacts,
    Totals,
    Trouble,
)
from tfmon.model.lane_statistics import LossCurve, Measurements
from tfmon.model.lane_texts import append_log, trouble_of, trouble_of_script
from tfmon.model.lane_use import NO_GPU, BatchPeaks, GpuUse
from tfmon.model.readings import NOT_SAMPLED, Missing, TreeSample
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

MOST_PROFILES = 6
"""Profiles kept of a lane, under one combination of settings."""
MOST_PLACES = 100
"""Phases of a script that are distinguished; further phases count as the last one."""
NOT_SENT = "a signal ended the script: what it trained after its last report, in 0.5 s or one step, is not counted"


def advance(state: LaneState, event: Event) -> LaneState:
    """Return the lane's state after an event; an event about another lane changes nothing."""
    heartbeat = state.heartbeat.after(event, state.phase_since_ns)
    if isinstance(event, Window):
        if marks := state.heartbeat.marks(event):
            event = replace(event, marks=(*event.marks, *marks))
        if state.end.stood_still_s is not None:
            event = replace(event, marks=(*event.marks, STOOD_STILL))
        return _after_window(state, event, heartbeat)
    if isinstance(event, SliceEnded):
        return replace(state, measurements=state.measurements.slice_ended(event), heartbeat=heartbeat)
    after = _advance(state, event)
    slice_began = isinstance(event, PhaseEntered) and after.phase == state.phase
    log = state.log if slice_began else append_log(state.log, event)
    same = heartbeat is after.heartbeat and log is after.log
    return after if same else replace(after, heartbeat=heartbeat, log=log)


def _advance(state: LaneState, event: Event) -> LaneState:
    match event:
        case TreeSample():
            return take_tree_sample(state, event, sliced=False, cores=0)
        case PhaseEntered():
            return state if state.over else _enter(state, event.phase, event.at_ns)
        case KnobRequested():
            requested = {**state.changes.requested, event.knob: event}
            return replace(state, changes=replace(state.changes, requested=requested, refused=""))
        case KnobApplied():
            requested = state.changes.answered(event.knob, event.request)
            marks = marks_with(state, event.at_ns, f"{event.knob} {show(event.value)}", event.gap_ns)
            use, only_batch = state.gpu_use, event.knob == BATCH_SIZE.name
            peaks = use.batch_peaks.changed(use.peak_bytes, only_batch=only_batch)
            return replace(
                restart_measurement(replace(state, gpu_use=replace(use, batch_peaks=peaks))),
                settings={**state.settings, event.knob: event.value},
                step=replace(state.step, computing_share=None, calling_share=None, profiles=()),
                changes=replace(state.changes, requested=requested, refused="", marks=marks),
            )
        case KnobRefused():
            requested = state.changes.answered(event.knob, event.request)
            refused = replace(state.changes, requested=requested, refused=event.reason, refused_ns=event.at_ns)
            return replace(state, changes=refused)
        case LaneStarted(renewed=True):
            same, before = event.settings == state.settings, state.process
            return replace(
                state if same else restart_measurement(state),
                step=state.step if same else replace(state.step, profiles=()),
                speed=SpeedWatch(),
                phase=STARTING,
                phase_since_ns=event.at_ns,
                process=replace(before, number=before.number + 1, pid=event.pid, started_ns=event.at_ns),
                tree=replace(state.tree, pids=(), processes=None),
                gpu_use=replace(state.gpu_use, batch_peaks=BatchPeaks()),
                settings=event.settings,
                changes=replace(state.changes, requested={}),
                end=replace(state.end, event=None),
                totals=replace(state.totals, steps_before=state.totals.steps),
            )
        case LaneStarted():
            same = event.source == state.process.source
            earlier = state.measurements.restarted(state.settings).earlier if same else ()
            until_ns = state.measurements.until_ns
            measurements = Measurements(earlier=earlier, until_ns=until_ns, history=state.measurements.history)
            return LaneState(
                spec=state.spec,
                phase_since_ns=event.at_ns,
                process=ProcessInfo(state.process.number + 1, event.pid, event.at_ns, event.source),
                script=ScriptFacts(command=event.command),
                settings=event.settings,
                measurements=measurements,
                gpu_use=GpuUse(used_bytes=NO_GPU if state.spec.kind == "cpu" else NOT_SAMPLED),
            )
        case Hello():
            greeted = replace(
                state.process,
                pid=event.pid,
                versions={**state.process.versions, "python": event.python},
                reports_stack=event.reports_stack,
                unlike=event.unlike,
            )
            reasons = {what: reason for what, reason in state.script.not_measured.items() if what != "steps"}
            return replace(
                state,
                process=greeted,
                script=replace(state.script, not_measured=reasons),
                totals=replace(state.totals, steps_before=state.totals.steps),
                measurements=replace(state.measurements, process=0),
            )
        case LibrariesLoaded():
            loaded = {"tensorflow": event.tensorflow, "keras": event.keras, "numpy": event.numpy}
            process = replace(
                state.process,
                versions={**state.process.versions, **loaded},
                device_name=event.device_name,
                bfloat16=event.bfloat16,
                gpu_uuids=event.gpu_uuids or ((event.gpu_uuid,) if event.gpu_uuid else ()),
            )
            return replace(state, process=process)
        case Built():
            process = replace(state.process, data_examples=event.examples)
            return replace(state, process=process, settings=event.settings)
        case DefaultsResolved():
            return replace(state, script=replace(state.script, resolved=event.values))
        case LaneFailed():
            phase = ABSENT if event.kind == "device_absent" else FAILED
            trouble = Trouble(event.message, event.hint, event.kind)
            return replace(_enter(state, phase, event.at_ns), trouble=trouble)
        case Finished():
            return state if state.over else _enter(state, DONE, event.at_ns)
        case EndRequested():
            still_s = state.stands_still_s(event.at_ns)
            return replace(state, end=replace(state.end, requested=event, stood_still_s=still_s))
        case LaneEnded():
            return _after_end(state, event)
        case KnobOffered():
            return replace(state, settings={**state.settings, event.knob: event.value})
        case Progressed():
            script = replace(state.script, progress=event, validation=_validated(state.script, event))
            return replace(state, script=script, speed=_progressed(state, event))
        case NotMeasured(reason=reason) if reason == CHANNEL_CLOSED:
            return _not_measured(state, {event.what: f"{reason} after {state.totals.steps:,} steps"})
        case NotMeasured(what="processes"):
            told = state.script.not_measured.get("processes", "").partition(": ")[2]
            others = f"{told}, {event.reason}" if told else event.reason
            text = f"several processes train at once, and the first alone is counted, {state.process.pid}; not: "
            return _not_measured(state, {"processes": text + others})
        case NotMeasured():
            return _without_unknown(_not_measured(state, {event.what: event.reason}), event)
        case InputDescribed(traits=traits):
            return replace(state, script=replace(state.script, input_traits=traits))
        case StepDescribed():
            script = replace(state.script, step_traits=event.traits)
            places = script.places
            if event.place in places or len(places) >= MOST_PLACES:
                return replace(state, script=script)
            then = replace(state, script=replace(script, step=event.text, places=(*places, event.place)))
            return marked(measured_again(then), event.at_ns, event.place) if places else then
        case BadLine():
            lines = state.process.bad_lines + event.lines
            process = replace(state.process, bad_lines=lines, last_bad_line=event.problem)
            return replace(state, process=process)
        case Suspended():
            kept = disturbed(state, event.since_ns, event.at_ns, SUSPENDED)
            return marked(kept, event.at_ns, f"{SUSPENDED} {event.lasted_s:.0f} s")
        case Profiled(profile=profile):
            step = replace(state.step, profiles=(*state.step.profiles, profile)[-MOST_PROFILES:])
            if isinstance(profile.call, Missing):
                return replace(state, step=step)  # the shares that a profile before it told still hold
            step = replace(step, calling_share=profile.calling_share)
            if profile.computing_share is not None:
                step = replace(step, computing_share=profile.computing_share)
            return replace(state, step=step)
        case StackReported():
            return replace(state, process=replace(state.process, stack=event))
        case CauseSeen():
            other = [one for one in state.script.causes if one.key != event.key]
            return replace(state, script=replace(state.script, causes=(*other, event)[-MOST_CAUSES:]))
        case PathsUsed():
            uses = dict(state.script.uses)
            uses |= {path: uses.get(path, "") + use for path, use in event.uses.items()}
            written = [Path(path).name for path, use in event.uses.items() if "w" in use]
            speed = state.speed.noted(event.at_ns, f"{written[-1]} was written") if written else state.speed
            return replace(state, script=replace(state.script, uses=uses), speed=speed)
        case _:
            return state


def _enter(state: LaneState, phase: str, at_ns: int) -> LaneState:
    if phase == state.phase:
        return state
    speed = SpeedWatch() if (state.phase, phase) == (PAUSED, RACING) else state.speed
    return replace(state, phase=phase, phase_since_ns=at_ns, phase_before=state.phase, speed=speed)


def _progressed(state: LaneState, now: Progressed) -> SpeedWatch:
    before = state.script.progress
    if before is None or (before.epoch, before.doing) == (now.epoch, now.doing):
        return state.speed
    text = f"epoch {now.epoch} began" if now.epoch != before.epoch else f"{now.doing or before.doing} began"
    return state.speed.noted(now.at_ns, text)


def _validated(script: ScriptFacts, now: Progressed) -> LossCurve:
    done = script.progress.epochs_done if script.progress is not None else 0
    course = script.validation if now.epochs_done >= done else LossCurve()
    return course.plus(now.epochs_done, now.metrics.get("val_loss")) if now.epochs_done != done else course


def _not_measured(state: LaneState, reasons: dict[str, str]) -> LaneState:
    return replace(state, script=replace(state.script, not_measured={**state.script.not_measured, **reasons}))


def _without_unknown(state: LaneState, event: NotMeasured) -> LaneState:
    if event.what == "examples" and event.reason and state.totals.examples:
        return replace(restart_measurement(state), totals=replace(state.totals, examples=0), speed=state.speed)
    if event.what == "loss" and event.reason:
        losses = replace(state.totals.losses, first=None, last=None)
        return replace(state, totals=replace(state.totals, losses=losses))
    return state


def _after_window(state: LaneState, window: Window, heartbeat: Heartbeat) -> LaneState:
    if state.script.not_measured.get("examples"):
        window = replace(window, examples=0, sampled_examples=0)
    if state.script.not_measured.get("loss"):
        window = replace(window, loss=None)
    sampled_ns = window.sampled_input_ns + (window.sampled_copy_ns or 0) + window.sampled_call_ns
    trained_ns = (window.span_ns if window.steps else 0) + sampled_ns + window.sampled_tail_ns
    speed, before = state.speed, state.totals
    step = before.steps_before + window.step
    if window.traced_steps:
        speed = speed.noted(window.at_ns, f"{window.traced or 'a function'} was traced")
    if not window.marks:
        speed = speed.plus(window, step)
    totals = Totals(
        steps=step,
        steps_before=before.steps_before,
        measured_steps=before.measured_steps + (0 if window.marks else window.steps),
        examples=before.examples + window.examples + window.sampled_examples,
        losses=before.losses.plus(step, window.loss),
        trained_ns=before.trained_ns + trained_ns,
    )
    share = state.step.computing_share if window.computing_share is None else window.computing_share
    steps, traced = state.step, window.traced or state.step.traced
    if (share, traced) != (steps.computing_share, steps.traced):
        steps = replace(steps, computing_share=share, traced=traced)
    return replace(
        state,
        totals=totals,
        speed=speed,
        step=steps,
        measurements=state.measurements.plus(window, state.process.number),
        step_clock=state.step_clock.sampled(window.at_ns),
        settings=window.settings,
        tree=state.tree.at_window(),
        gpu_use=state.gpu_use.at_window(window),
        heartbeat=heartbeat,
        log=append_log(state.log, window) if window.traced_steps else state.log,
    )


def _after_end(state: LaneState, event: LaneEnded) -> LaneState:
    lost = {"end": NOT_SENT} if state.script.command and event.signal is not None and state.totals.steps else {}
    state = replace(
        _not_measured(state, lost),
        end=replace(state.end, event=event),
        changes=replace(state.changes, requested={}),
    )
    if state.over:
        return state
    of_script = trouble_of_script(state, event) if state.script.command else None
    stalled_since_ns = state.heartbeat.stalled_since_ns
    well = event.exit_code == 0 or state.end.requested is not None
    if state.script.command and stalled_since_ns is None and well:
        return replace(_enter(state, DONE, event.at_ns), trouble=of_script)
    trouble = trouble_of(event, state)
    if trouble is None:
        return _enter(state, DONE, event.at_ns)
    if stalled_since_ns is None and not event.memory_kills:
        trouble = of_script or trouble
    return replace(_enter(state, FAILED, event.at_ns), trouble=trouble)
