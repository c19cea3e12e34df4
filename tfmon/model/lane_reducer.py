"""How each event changes what is known of a lane. Pure: no clock, no lock, no process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from tfmon.model import gpu_accounting
from tfmon.model.events import BadLine, Event, KnobRequested, LaneEnded, LanePrinted, LaneStarted, Suspended
from tfmon.model.gpu_accounting import GpuEnergy
from tfmon.model.knobs import show
from tfmon.model.lane_events import (
    Built,
    Finished,
    Hello,
    KnobApplied,
    KnobOffered,
    KnobRefused,
    LaneFailed,
    LibrariesLoaded,
    PhaseEntered,
    Profiled,
    ProfileFailed,
    Progressed,
    StackReported,
    Window,
)
from tfmon.model.lane_state import (
    ABSENT,
    BUILDING,
    DONE,
    FAILED,
    HISTORY_WINDOWS,
    IMPORTING,
    LOG_LINES,
    NO_GPU,
    NO_STEPS_HINT,
    NOT_SAMPLED,
    RACING,
    STARTING,
    SUSPENDED,
    KnobRequest,
    LaneState,
    LogLine,
    Trouble,
    trouble_of,
)
from tfmon.model.lane_statistics import KnobMark, Measurements, Point
from tfmon.model.readings import GpuSample, TreeSample, known


def advance(state: LaneState, event: Event) -> LaneState:
    """Return the lane's state after an event; an event that does not concern it changes nothing."""
    heartbeat = state.heartbeat.after(event, state.phase_since_ns)
    if isinstance(event, Window) and (marks := state.heartbeat.marks(event)):
        event = replace(event, marks=(*event.marks, *marks))
    after, log = _advance(state, event), append_log(state.log, event)
    same = heartbeat is after.heartbeat and log is after.log
    return after if same else replace(after, heartbeat=heartbeat, log=log)


def _advance(state: LaneState, event: Event) -> LaneState:
    match event:
        case Window():
            return _after_window(state, event)
        case TreeSample():
            return _after_tree_sample(state, event)
        case GpuSample():
            return take_gpu_sample(state, event, alone=True)
        case PhaseEntered():
            return state if state.over else _enter(state, event.phase, event.at_ns)
        case KnobRequested():
            asked = KnobRequest(event.request, event.value, event.at_ns)
            return replace(state, requested={**state.requested, event.knob: asked}, refused="")
        case KnobApplied():
            return _after_knob(state, event)
        case KnobRefused():
            return replace(state, requested=_without(state.requested, event.knob, event.request), refused=event.reason)
        case LaneStarted():
            same = event.source == state.source
            earlier = state.measurements.afresh(state.settings).earlier if same else ()
            fresh = LaneState(spec=state.spec, started_ns=event.at_ns, pid=event.pid, source=event.source)
            fresh = replace(fresh, measurements=Measurements(earlier=earlier), command=event.command)
            held = NO_GPU if state.spec.kind == "cpu" else NOT_SAMPLED
            fresh = replace(fresh, gpu_memory_used_bytes=held, gpu_lane_busy_pct=held)
            return replace(fresh, phase_since_ns=event.at_ns, settings=event.settings)
        case Hello():
            return replace(state, pid=event.pid, python=event.python, reports_stack=event.reports_stack)
        case LibrariesLoaded():
            return replace(
                state,
                tensorflow=event.tensorflow,
                keras=event.keras,
                numpy=event.numpy,
                device_name=event.device_name,
                gpu_uuid=event.gpu_uuid,
            )
        case Built():
            return replace(
                state,
                parameters=event.parameters,
                data_examples=event.examples,
                settings=event.settings,
            )
        case LaneFailed():
            phase = ABSENT if event.kind == "device_absent" else FAILED
            trouble = Trouble(event.message, event.hint, event.kind)
            return replace(_enter(state, phase, event.at_ns), trouble=trouble)
        case Finished():
            return _enter(state, DONE, event.at_ns)
        case LaneEnded():
            return _after_end(state, event)
        case KnobOffered():
            return replace(state, settings={**state.settings, event.knob: event.value})
        case Progressed():
            return replace(state, progress=event)
        case BadLine():
            return replace(state, bad_lines=state.bad_lines + event.lines, last_bad_line=event.problem)
        case Suspended():
            mark = KnobMark(event.at_ns, f"{SUSPENDED} {event.lasted_s:.0f} s", 0)
            kept = disturbed(state, event.since_ns, event.at_ns, SUSPENDED)
            return replace(kept, knob_marks=(*state.knob_marks[-63:], mark))
        case StackReported():
            return replace(state, stack=event)
        case _:
            return state


def _enter(state: LaneState, phase: str, at_ns: int) -> LaneState:
    if phase == state.phase:
        return state
    return replace(state, phase=phase, phase_since_ns=at_ns)


def _after_tree_sample(state: LaneState, sample: TreeSample) -> LaneState:
    if state.over:
        return state
    racing = state.phase == RACING
    return replace(
        state,
        tree_cpu_pct=sample.cpu_pct,
        private_bytes=sample.private_bytes,
        tree_at_ns=sample.at_ns,
        processes=sample.processes,
        pids=sample.pids,
        racing_cpu_pct=state.racing_cpu_pct.plus(sample.cpu_pct) if racing else state.racing_cpu_pct,
    )


def take_gpu_sample(state: LaneState, sample: GpuSample, *, alone: bool) -> LaneState:
    """Return the lane's state after a sample of a GPU; `alone` is False when other lanes train on it, too."""
    if state.over or not trains_on(state, sample):
        return state
    racing = state.phase == RACING
    busy, energy, before = state.racing_gpu_busy_pct, state.gpu_energy, state.gpu_used_before
    if before is None and state.phase in (STARTING, IMPORTING):
        before = known(sample.used_bytes)
    opened = state.phase not in (STARTING, IMPORTING, BUILDING)
    held, source = gpu_accounting.used_bytes_of_lane(
        sample,
        state.pids,
        alone=alone and opened,
        peak_bytes=state.gpu_memory_peak_bytes or state.gpu_memory_allocated_bytes,
        before_bytes=None if sample.part_of else before,
    )
    return replace(
        state,
        racing_gpu_busy_pct=busy.plus(sample.busy_pct) if racing else busy,
        gpu_memory_used_bytes=held,
        gpu_memory_source=source,
        gpu_lane_busy_pct=gpu_accounting.busy_pct(sample, state.pids, alone=alone and opened),
        gpu_used_before=before,
        gpu_energy=energy.plus(sample, state.points, shared=not alone) if racing else energy.interrupted(),
    )


def restart_measurement(state: LaneState) -> LaneState:
    """Return the state with steady state beginning anew: what was measured until now was another thing."""
    return replace(state, measurements=state.measurements.afresh(state.settings), gpu_energy=GpuEnergy())


def disturbed(state: LaneState, since_ns: int, until_ns: int, reason: str) -> LaneState:
    """Return the state without what was measured in a stretch of time that something disturbed."""
    measured = state.measurements.disturbed(since_ns, until_ns, reason)
    if measured is state.measurements:
        return state
    out = {one.at_ns for one in state.measurements.latest} - {one.at_ns for one in measured.latest}
    points = tuple(replace(one, steady=False) if one.at_ns in out else one for one in state.points)
    return replace(state, measurements=measured, points=points)


def trains_on(state: LaneState, gpu: GpuSample) -> bool:
    """Return whether a lane trains on this GPU: by UUID, or by index until the lane has told its UUID.

    CUDA gives the UUID of an instance (MIG) without saying that it is one, so the first word does not count.
    """
    if state.spec.kind != "gpu":
        return False
    if state.gpu_uuid:
        return gpu.key.removeprefix("MIG-") == state.gpu_uuid.removeprefix("GPU-") or gpu.key == state.gpu_uuid
    return gpu.index == state.spec.index and not gpu.part_of


def _after_window(state: LaneState, window: Window) -> LaneState:
    steady = not window.marks
    point = Point(window.at_ns, window.span_ns, window.examples, window.steps, steady, window.round is not None)
    loss = window.loss
    return replace(
        state,
        steps=window.step,
        examples=state.examples + window.examples + window.sampled_examples,
        first_loss=loss if state.first_loss is None else state.first_loss,
        last_loss=loss if loss is not None else state.last_loss,
        measurements=state.measurements.plus(window),
        points=(*state.points[-(HISTORY_WINDOWS - 1) :], point),
        settings=window.settings,
        computing_share=window.computing_share,
        traced=window.traced or state.traced,
        gpu_memory_allocated_bytes=window.gpu_memory_allocated_bytes,
        gpu_memory_peak_bytes=window.gpu_memory_peak_bytes,
    )


def _after_knob(state: LaneState, event: KnobApplied) -> LaneState:
    mark = KnobMark(event.at_ns, f"{event.knob} {show(event.value)}", event.gap_ns)
    return replace(
        restart_measurement(state),
        settings={**state.settings, event.knob: event.value},
        requested=_without(state.requested, event.knob, event.request),
        refused="",
        knob_marks=(*state.knob_marks[-63:], mark),
    )


def _without(asked: dict[str, KnobRequest], knob: str, request: int) -> dict[str, KnobRequest]:
    """Drop a wish that was answered, unless a newer one for the same knob is under way."""
    return {name: wish for name, wish in asked.items() if name != knob or wish.request > request}


def _after_end(state: LaneState, event: LaneEnded) -> LaneState:
    stalled_since_ns = state.heartbeat.stalled_since_ns
    state = replace(state, ended=event, requested={})
    if state.over:
        return state
    if state.command and event.exit_code == 0 and state.steps:
        return _enter(state, DONE, event.at_ns)
    trouble = trouble_of(event, stalled_since_ns)
    if trouble is None:
        return _enter(state, DONE, event.at_ns)
    if state.command and stalled_since_ns is None and not event.memory_kills:
        trouble = _trouble_of_script(state, event)
    return replace(_enter(state, FAILED, event.at_ns), trouble=trouble)


def _trouble_of_script(state: LaneState, event: LaneEnded) -> Trouble:
    """Say how a script ended that did not end well: with its own last words, or without a step."""
    if event.signal is not None:
        return Trouble(f"the script was ended by {event.signal}")
    if event.exit_code:
        last = event.output_tail[-1].strip() if event.output_tail else ""
        return Trouble(f"the script left with exit code {event.exit_code}" + (f": {last}" if last else ""))
    return Trouble("the script ended, and no training step was seen", NO_STEPS_HINT)


# ---------------- the log


def append_log(log: tuple[LogLine, ...], event: Event) -> tuple[LogLine, ...]:
    """Return a lane's log after an event; the same object if there is nothing to tell."""
    new = tuple(LogLine(event.at_ns, kind, text) for kind, text in _log_lines(event))
    return (*log, *new)[-LOG_LINES:] if new else log


def _log_lines(event: Event) -> Iterator[tuple[Literal["printed", "event", "trouble"], str]]:
    match event:
        case Window():
            if event.traced_steps:
                yield "event", f"traced {event.traced or 'a function'} ({event.traced_ns / 1e6:.0f} ms)"
        case LanePrinted():
            if event.dropped_bytes:
                yield "trouble", f"{event.dropped_bytes:,} bytes were printed faster than they are shown: left out"
            for line in event.lines:
                yield "printed", line
        case LaneStarted():
            settings = ", ".join(f"{knob}={show(value)}" for knob, value in event.settings.items())
            yield "event", f"started, process {event.pid}; {settings}".rstrip("; ")
        case PhaseEntered():
            yield "event", event.phase
        case LibrariesLoaded():
            yield "event", f"TensorFlow {event.tensorflow}, Keras {event.keras} {event.device_name}".rstrip()
        case Built():
            examples = "?" if event.examples is None else f"{event.examples:,}"
            yield "event", f"built: {event.parameters:,} parameters, {examples} examples"
        case KnobApplied():
            in_force = f"{event.knob}={show(event.value)} in force from step {event.step:,}"
            yield "event", f"{in_force}; longest gap between steps {event.gap_ns / 1e6:.1f} ms"
        case KnobRefused():
            yield "trouble", f"{event.knob}={show(event.value)} refused: {event.reason}"
        case Profiled():
            yield "event", "profiled"
        case ProfileFailed():
            yield "trouble", f"no profile: {event.reason}"
        case BadLine():
            yield "trouble", f"unreadable line passed over: {event.problem}"
        case LaneFailed():
            yield "trouble", " · ".join(part for part in (event.message, event.hint) if part)
        case Finished():
            yield "event", f"finished after {event.steps:,} steps"
        case LaneEnded():
            how = f"ended by {event.signal}" if event.signal else f"ended with exit code {event.exit_code}"
            yield ("event" if event.requested or event.exit_code == 0 else "trouble"), f"process {how}"
        case _:
            return
