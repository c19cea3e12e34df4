"""Changes of a lane's measurement: restart it, discard a part, add a sample, mark the charts.

Pure; `lane_reducer` decides which events need these, and the session which events of other lanes.
"""

from __future__ import annotations

from dataclasses import replace

from tfmon.model.lane_state import RACING, LaneState
from tfmon.model.lane_statistics import KnobMark
from tfmon.model.readings import TreeSample, known
from tfmon.model.speed import SpeedWatch

MOST_KNOB_MARKS = 64


def marked(state: LaneState, at_ns: int, text: str) -> LaneState:
    """Return the state with a mark in the charts, unless the lane has ended."""
    changes = replace(state.changes, marks=marks_with(state, at_ns, text))
    return state if state.over else replace(state, changes=changes)


def marks_with(state: LaneState, at_ns: int, text: str, gap_ns: int = 0) -> tuple[KnobMark, ...]:
    """Return a lane's marks with one more, of a change that can leave a gap between two steps."""
    return (*state.changes.marks[1 - MOST_KNOB_MARKS :], KnobMark(at_ns, text, gap_ns))


def restart_measurement(state: LaneState) -> LaneState:
    """Return the lane with a new steady state."""
    measurements = state.measurements.restarted(state.settings)
    return replace(state, measurements=measurements, speed=SpeedWatch(), gpu_use=replace(state.gpu_use, taken={}))


def granted(lane: LaneState, at_ns: int, *, own: bool) -> LaneState:
    """Return a lane after the start of a slice, its own or not."""
    tree = replace(lane.tree, clock=lane.tree.clock.granted(at_ns, own=own))
    turned = own != (lane.step_clock.granted_ns is not None)
    since_ns = at_ns if turned else lane.turn_since_ns
    return replace(lane, tree=tree, step_clock=lane.step_clock.granted(at_ns, own=own), turn_since_ns=since_ns)


def measured_again(lane: LaneState) -> LaneState:
    """Return a lane with a new measurement; a lane that has ended keeps its result."""
    return lane if lane.over else restart_measurement(lane)


def disturbed(state: LaneState, since_ns: int, until_ns: int, reason: str) -> LaneState:
    """Return the state without the measurements during a disturbance."""
    measurements = state.measurements.disturbed(since_ns, until_ns, reason)
    if measurements is state.measurements:
        return state
    return replace(state, measurements=measurements, speed=state.speed.without(since_ns, until_ns))


def take_tree_sample(state: LaneState, sample: TreeSample, *, sliced: bool, cores: float) -> LaneState:
    """Return the lane's state after a sample of its processes; CPU of a `sliced` lane is per time in slices."""
    if state.over:
        return state
    racing = state.phase == RACING
    if sliced and racing:
        sample = state.tree.in_slices(sample, cores)
    measurements = state.measurements.with_sample(
        sample.at_ns, cpu_pct=sample.cpu_pct, private_bytes=sample.private_bytes
    )
    return replace(
        state,
        tree=state.tree.plus(sample, state.phase, racing=racing, ending=state.end.requested is not None),
        measurements=measurements,
        speed=state.speed.read(cpu_pct=known(sample.cpu_pct), waited_pct=known(sample.waited_pct)),
    )
