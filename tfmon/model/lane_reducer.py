"""How each event changes what is known of a lane. Pure: no clock, no lock, no process."""

from __future__ import annotations

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
from tfmon.model.knobs import show
from tfmon.model.lane_events import (
    CHANNEL_CLOSED,
    Built,
    CauseSeen,
    DefaultsResolved,
    Finished,
    Hello,
    KnobApplied,
    KnobOffered,
    KnobRefused,
    LaneFailed,
    LibrariesLoaded,
    NotMeasured,
    PathsUsed,
    PhaseEntered,
    Profiled,
    Progressed,
    SliceEnded,
    StackReported,
    StepDescribed,
    Window,
)
from tfmon.model.lane_state import (
    ABSENT,
    DONE,
    FAILED,
    PAUSED,
    RACING,
    STARTING,
    STOOD_STILL,
    Death,
    KnobRequest,
    LaneState,
    Trouble,
)
from tfmon.model.lane_statistics import KnobMark, Measurements
from tfmon.model.lane_texts import append_log, trouble_of, trouble_of_script
from tfmon.model.lane_use import NO_GPU, GpuUse
from tfmon.model.readings import NOT_SAMPLED, Missing, TreeSample, known
from tfmon.model.records import replace
from tfmon.model.speed import SpeedWatch

MOST_KNOB_MARKS = 64
MOST_DEATHS = 16
MOST_CAUSES = 32
"""Causes that are kept of a lane; a script observes no more."""
ORDERLY = (1, 2, 13, 15)
"""Signals by which a parent ends its children (SIGHUP, SIGINT, SIGPIPE, SIGTERM): such an end is no concern."""
MOST_PLACES = 100
"""Phases of a script that are told from each other; more are taken for the last one."""
NOT_SENT = "a signal ended the script: what it trained after its last report, in 0.2 s or one step, is not counted"


def advance(state: LaneState, event: Event) -> LaneState:
    """Return the lane's state after an event; an event that does not concern it changes nothing."""
    heartbeat = state.heartbeat.after(event, state.phase_since_ns)
    if isinstance(event, Window):
        if marks := state.heartbeat.marks(event):
            event = replace(event, marks=(*event.marks, *marks))
        if state.stood_still_s is not None:
            event = replace(event, marks=(*event.marks, STOOD_STILL))
        return _after_window(state, event, heartbeat)
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
            latest = KnobRequest(event.request, event.value, event.at_ns)
            return replace(state, requested={**state.requested, event.knob: latest}, refused="")
        case KnobApplied():
            return replace(
                restart_measurement(state),
                settings={**state.settings, event.knob: event.value},
                computing_share=None,
                calling_share=None,
                requested=_without(state.requested, event.knob, event.request),
                refused="",
                knob_marks=_marks(state, event.at_ns, f"{event.knob} {show(event.value)}", event.gap_ns),
            )
        case KnobRefused():
            requested = _without(state.requested, event.knob, event.request)
            return replace(state, requested=requested, refused=event.reason, refused_ns=event.at_ns)
        case LaneStarted(renewed=True):
            same = event.settings == state.settings
            return replace(
                state if same else restart_measurement(state),
                speed=SpeedWatch(),
                phase=STARTING,
                phase_since_ns=event.at_ns,
                started_ns=event.at_ns,
                pid=event.pid,
                process=state.process + 1,
                tree=replace(state.tree, pids=(), processes=None),
                settings=event.settings,
                requested={},
                ended=None,
                steps_before=state.steps,
            )
        case LaneStarted():
            same = event.source == state.source
            earlier = state.measurements.restarted(state.settings).earlier if same else ()
            until_ns = state.measurements.until_ns
            measurements = Measurements(earlier=earlier, until_ns=until_ns, history=state.history)
            return LaneState(
                spec=state.spec,
                started_ns=event.at_ns,
                phase_since_ns=event.at_ns,
                pid=event.pid,
                process=state.process + 1,
                source=event.source,
                command=event.command,
                settings=event.settings,
                measurements=measurements,
                gpu_use=GpuUse(used_bytes=NO_GPU if state.spec.kind == "cpu" else NOT_SAMPLED),
            )
        case Hello():
            stack = event.reports_stack
            reasons = {what: reason for what, reason in state.not_measured.items() if what != "steps"}
            versions = {**state.versions, "python": event.python}
            greeted = replace(
                state, pid=event.pid, versions=versions, not_measured=reasons, steps_before=state.steps
            )
            return replace(greeted, reports_stack=stack, unlike=event.unlike)
        case LibrariesLoaded():
            loaded = {"tensorflow": event.tensorflow, "keras": event.keras, "numpy": event.numpy}
            return replace(
                state,
                versions={**state.versions, **loaded},
                device_name=event.device_name,
                gpu_uuids=event.gpu_uuids or ((event.gpu_uuid,) if event.gpu_uuid else ()),
            )
        case Built():
            return replace(
                state, parameters=event.parameters, data_examples=event.examples, settings=event.settings
            )
        case DefaultsResolved():
            return replace(state, resolved=event.values)
        case SliceEnded():
            return replace(state, measurements=state.measurements.slice_ended(event))
        case LaneFailed():
            phase = ABSENT if event.kind == "device_absent" else FAILED
            trouble = Trouble(event.message, event.hint, event.kind)
            return replace(_enter(state, phase, event.at_ns), trouble=trouble)
        case Finished():
            return state if state.over else _enter(state, DONE, event.at_ns)
        case EndRequested():
            return replace(state, ending=event, stood_still_s=state.stands_still_s(event.at_ns))
        case LaneEnded():
            return _after_end(state, event)
        case KnobOffered():
            return replace(state, settings={**state.settings, event.knob: event.value})
        case Progressed():
            return replace(state, progress=event, speed=_progressed(state, event))
        case NotMeasured(reason=reason) if reason == CHANNEL_CLOSED:
            known = f"{reason} after {state.steps:,} steps"
            return replace(state, not_measured={**state.not_measured, event.what: known})
        case NotMeasured(what="processes"):
            others = [*filter(None, [state.not_measured.get("processes", "").partition(": ")[2]]), event.reason]
            text = f"several processes train at once, and the first alone is counted, {state.pid}; not: "
            return replace(state, not_measured={**state.not_measured, "processes": text + ", ".join(others)})
        case NotMeasured():
            reasons = {**state.not_measured, event.what: event.reason}
            return _without_unknown(replace(state, not_measured=reasons), event)
        case StepDescribed() if event.place not in state.places and len(state.places) < MOST_PLACES:
            then = replace(state, step=event.text, places=(*state.places, event.place))
            return marked(measured_again(then), event.at_ns, event.place) if state.places else then
        case BadLine():
            return replace(state, bad_lines=state.bad_lines + event.lines, last_bad_line=event.problem)
        case Suspended():
            kept = disturbed(state, event.since_ns, event.at_ns, SUSPENDED)
            return marked(kept, event.at_ns, f"{SUSPENDED} {event.lasted_s:.0f} s")
        case Profiled(profile=profile):
            if isinstance(profile.call, Missing):
                return state  # what a profile before it told still holds
            share = state.computing_share if profile.computing_share is None else profile.computing_share
            return replace(state, computing_share=share, calling_share=profile.calling_share)
        case StackReported():
            return replace(state, stack=event)
        case CauseSeen():
            other = [one for one in state.causes if one.key != event.key]
            return replace(state, causes=(*other, event)[-MOST_CAUSES:])
        case PathsUsed():
            uses = {path: state.uses.get(path, "") + use for path, use in event.uses.items()}
            written = [Path(path).name for path, use in event.uses.items() if "w" in use]
            speed = state.speed.noted(event.at_ns, f"{written[-1]} was written") if written else state.speed
            return replace(state, uses={**state.uses, **uses}, speed=speed)
        case _:
            return state


def _enter(state: LaneState, phase: str, at_ns: int) -> LaneState:
    if phase == state.phase:
        return state
    speed = SpeedWatch() if (state.phase, phase) == (PAUSED, RACING) else state.speed
    return replace(state, phase=phase, phase_since_ns=at_ns, phase_before=state.phase, speed=speed)


def _progressed(state: LaneState, now: Progressed) -> SpeedWatch:
    """Return the watch of the speed with an epoch that began, or something else that a script does now."""
    before = state.progress
    if before is None or (before.epoch, before.doing) == (now.epoch, now.doing):
        return state.speed
    text = f"epoch {now.epoch} began" if now.epoch != before.epoch else f"{now.doing or before.doing} began"
    return state.speed.noted(now.at_ns, text)


def _without(requested: dict[str, KnobRequest], knob: str, request: int) -> dict[str, KnobRequest]:
    """Drop a request that was answered, unless a newer one for the same knob is under way."""
    return {name: one for name, one in requested.items() if name != knob or one.request > request}


def marked(state: LaneState, at_ns: int, text: str) -> LaneState:
    """Return the state with a mark in the charts; a lane that has ended needs none."""
    return state if state.over else replace(state, knob_marks=_marks(state, at_ns, text))


def _marks(state: LaneState, at_ns: int, text: str, gap_ns: int = 0) -> tuple[KnobMark, ...]:
    return (*state.knob_marks[1 - MOST_KNOB_MARKS :], KnobMark(at_ns, text, gap_ns))


def _without_unknown(state: LaneState, event: NotMeasured) -> LaneState:
    """Forget figures that were told before it was known that they may be wrong."""
    if event.what == "examples" and event.reason and state.examples:
        return replace(restart_measurement(state), examples=0, speed=state.speed)
    if event.what == "loss" and event.reason:
        return replace(state, losses=replace(state.losses, first=None, last=None))
    return state


def _after_window(state: LaneState, window: Window, heartbeat: Heartbeat) -> LaneState:
    if state.not_measured.get("examples"):
        window = replace(window, examples=0, sampled_examples=0)
    if state.not_measured.get("loss"):
        window = replace(window, loss=None)
    sampled_ns = window.sampled_input_ns + (window.sampled_copy_ns or 0) + window.sampled_call_ns
    trained_ns = (window.span_ns if window.steps else 0) + sampled_ns + window.sampled_tail_ns
    speed, step, memory = state.speed, state.steps_before + window.step, state.memory
    if window.traced_steps:
        speed = speed.noted(window.at_ns, f"{window.traced or 'a function'} was traced")
    if not window.marks:
        speed = speed.plus(window, step)
    private, allocated = known(state.tree.private_bytes), window.gpu_memory_allocated_bytes
    sample_ns = state.tree.clock.sampled_ns
    if private is not None and sample_ns is not None and sample_ns != memory.latest_ns:
        memory = memory.plus(sample_ns, private)  # a later sample may be of a process that exits
    return replace(
        state,
        steps=step,
        speed=speed,
        memory=memory,
        device_memory=state.device_memory
        if allocated is None
        else state.device_memory.plus(window.at_ns, allocated),
        measured_steps=state.measured_steps + (0 if window.marks else window.steps),
        examples=state.examples + window.examples + window.sampled_examples,
        losses=state.losses.plus(step, window.loss),
        trained_ns=state.trained_ns + trained_ns,
        measurements=state.measurements.plus(window, state.process),
        step_clock=state.step_clock.sampled(window.at_ns),
        settings=window.settings,
        computing_share=state.computing_share if window.computing_share is None else window.computing_share,
        traced=window.traced or state.traced,
        gpu_use=state.gpu_use.with_allocated(window.gpu_memory_allocated_bytes, window.gpu_memory_peak_bytes),
        heartbeat=heartbeat,
        log=append_log(state.log, window) if window.traced_steps else state.log,
    )


def restart_measurement(state: LaneState) -> LaneState:
    """Return the lane with a new steady state, because something else is measured from now on."""
    measurements = state.measurements.restarted(state.settings)
    return replace(state, measurements=measurements, speed=SpeedWatch(), gpu_use=replace(state.gpu_use, taken={}))


def granted(lane: LaneState, at_ns: int, *, own: bool) -> LaneState:
    """Return a lane after a slice began: its own, or another lane's or nobody's."""
    tree = replace(lane.tree, clock=lane.tree.clock.granted(at_ns, own=own))
    return replace(lane, tree=tree, step_clock=lane.step_clock.granted(at_ns, own=own))


def measured_again(lane: LaneState) -> LaneState:
    """Return a lane with a new measurement; one that has ended keeps what it came to."""
    return lane if lane.over else restart_measurement(lane)


def disturbed(state: LaneState, since_ns: int, until_ns: int, reason: str) -> LaneState:
    """Return the state without what was measured while something disturbed the lane."""
    measurements = state.measurements.disturbed(since_ns, until_ns, reason)
    if measurements is state.measurements:
        return state
    return replace(state, measurements=measurements, speed=state.speed.without(since_ns, until_ns))


def take_tree_sample(state: LaneState, sample: TreeSample, *, sliced: bool, cores: float) -> LaneState:
    """Return the lane's state after a sample of its processes; CPU of a `sliced` lane counts over its slices."""
    if state.over:
        return state
    racing = state.phase == RACING
    if sliced and racing:
        sample = state.tree.in_slices(sample, cores)
    measurements = state.measurements.with_sample(
        sample.at_ns, cpu_pct=sample.cpu_pct, private_bytes=sample.private_bytes
    )
    seen = {one.pid for one in state.deaths}
    killed = [(pid, number) for pid, number in sample.killed.items() if pid not in seen and number not in ORDERLY]
    deaths = tuple(Death(pid, number, sample.at_ns) for pid, number in killed if state.ending is None)
    return replace(
        state,
        tree=state.tree.plus(sample, racing=racing),
        measurements=measurements,
        deaths=(*state.deaths, *deaths)[:MOST_DEATHS],
        speed=state.speed.read(cpu_pct=known(sample.cpu_pct), waited_pct=known(sample.waited_pct)),
    )


def _after_end(state: LaneState, event: LaneEnded) -> LaneState:
    lost = {"end": NOT_SENT} if state.command and event.signal is not None and state.steps else {}
    state = replace(state, ended=event, requested={}, not_measured={**state.not_measured, **lost})
    if state.over:
        return state
    of_script = trouble_of_script(state, event) if state.command else None
    stalled_since_ns = state.heartbeat.stalled_since_ns
    if state.command and stalled_since_ns is None and (state.ending is not None or event.exit_code == 0):
        return replace(_enter(state, DONE, event.at_ns), trouble=of_script)
    trouble = trouble_of(event, state)
    if trouble is None:
        return _enter(state, DONE, event.at_ns)
    if stalled_since_ns is None and not event.memory_kills:
        trouble = of_script or trouble
    return replace(_enter(state, FAILED, event.at_ns), trouble=trouble)
