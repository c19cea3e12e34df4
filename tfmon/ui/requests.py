"""What a key press requests of which lanes, and what the screen says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.series_tables import doing_text
from tfmon.model.knobs import BATCH_SIZE, Knob, KnobValue, show
from tfmon.model.knobs import short_name as short_name
from tfmon.model.lane_state import FAILED, OUT_OF_MEMORY, PAUSED, RACING, LaneState
from tfmon.model.series import TuneState
from tfmon.model.session import Snapshot
from tfmon.ui.keys import key_of


def in_effect(lane: LaneState, knob: Knob) -> KnobValue:
    """Return the value in effect, or before the lane has reported one, the value it was started with."""
    return lane.in_effect.get(knob.name, knob.default)


def next_values(lanes: Sequence[LaneState], knob: Knob, direction: int) -> tuple[dict[str, KnobValue], str]:
    """Return the value that a press on a knob's key requests of each lane, and a message if there are none."""
    if not lanes:
        return {}, "no lane is training"
    requests: dict[str, KnobValue] = {}
    ends: list[str] = []
    for lane in lanes:
        value, moved = _step(lane, knob, direction)
        if moved is None:
            ends.append(_end_of_range(lane, knob, value, direction))
        else:
            requests[lane.spec.name] = moved
    return requests, ends[0] if ends and not requests else ""


def _step(lane: LaneState, knob: Knob, direction: int) -> tuple[KnobValue, KnobValue | None]:
    """Return the value that is requested or in effect, and the one after it; None where there is none."""
    requested = lane.requested.get(knob.name)
    value = in_effect(lane, knob) if requested is None else requested.value
    moved = knob.next(value, direction, high=lane.data_examples if knob.name == "batch_size" else None)
    return value, None if moved == value and type(moved) is type(value) else moved


def _end_of_range(lane: LaneState, knob: Knob, value: KnobValue, direction: int) -> str:
    name = knob.name.replace("_", " ")
    if knob.name == "batch_size" and direction > 0 and lane.data_examples is not None:
        return f"{name} is already {show(value)}, and the data has {lane.data_examples} examples"
    return f"{name} is already {show(value)}; it takes {knob.allowed()}"


def targets(lanes: Sequence[LaneState], focused: str | None) -> list[LaneState]:
    """Return the lanes a key acts on: the focused one, or all."""
    return [lane for lane in lanes if focused is None or lane.spec.name == focused]


def titles(lanes: Sequence[LaneState]) -> str:
    """Name lanes in a message."""
    return ", ".join(lane.title for lane in lanes)


def reachable(lanes: Sequence[LaneState], knob: Knob, direction: int, *, focused: bool) -> list[LaneState]:
    """Return the lanes that a knob's key acts on: those that train, and failed ones that it starts again.

    Started again are the focused lane, and one that ran out of memory where the batch is made smaller.
    """
    smaller = knob.name == "batch_size" and direction < 0

    def starts_again(lane: LaneState) -> bool:
        out_of_memory = lane.trouble is not None and lane.trouble.kind == OUT_OF_MEMORY
        return may_start_again(lane) and (focused or (out_of_memory and smaller))

    return [lane for lane in lanes if not lane.over or starts_again(lane)]


def may_start_again(lane: LaneState) -> bool:
    """Return whether a lane failed and its process is gone."""
    return lane.phase == FAILED and lane.ended is not None


def pause_or_resume(lanes: Sequence[LaneState]) -> tuple[list[LaneState], list[LaneState]]:
    """Return the lanes to pause and the lanes to resume: any that races is paused, else all are resumed."""
    racing = [lane for lane in lanes if lane.phase == RACING]
    if racing:
        return racing, []
    return [], [lane for lane in lanes if lane.phase == PAUSED]


def shared_value(lanes: Sequence[LaneState], knob: Knob) -> tuple[str, str]:
    """Return the value in effect of a knob in all the lanes, such as `off/auto`, and what is requested."""
    now = list(dict.fromkeys(show(in_effect(lane, knob)) for lane in lanes))
    requested = [lane.to_change[knob.name] for lane in lanes if knob.name in lane.to_change]
    return "/".join(now[:3]) + ("…" if len(now) > 3 else ""), "/".join(dict.fromkeys(map(show, requested[:3])))


def effect(lanes: Sequence[LaneState], knob: Knob) -> str:
    """Return the effect of a press on a knob's key: `batch 10 → 16`, or by lane where values differ."""
    moves = {lane.spec.id: _step(lane, knob, 1) for lane in lanes}
    steps = {id: f"{show(value)} → {show(moved)}" for id, (value, moved) in moves.items() if moved is not None}
    if not steps:
        return ""
    if len(set(steps.values())) == 1 and len(steps) == len(lanes):
        return f"{short_name(knob.name)} {next(iter(steps.values()))}"
    changes = [f"{id} {step}" for id, step in steps.items()]
    return f"{short_name(knob.name)} {', '.join(changes[:3])}" + ("…" if len(changes) > 3 else "")


def no_knob(snapshot: Snapshot, name: str) -> str:
    """Return why a knob cannot be changed that the race does not have."""
    fits = any(lane.progress is not None and lane.progress.epochs for lane in snapshot.lanes)
    if fits and name == BATCH_SIZE.name:
        return "`fit` trains a fixed number of batches an epoch, so only the script can set their size"
    if any(lane.command for lane in snapshot.lanes):
        return f"the script sets {short_name(name)} itself: Enter shows the code that may help; k lists its knobs"
    return f"this scenario has no knob {short_name(name)}"


def to_improve(analysis: Analysis, lanes: Sequence[LaneState]) -> str | None:
    """Return the lane to try advice on: one that trains, with advice, and a GPU's rather than a CPU's."""

    def rank(lane: LaneState) -> tuple[bool, bool, bool]:
        bottleneck = analysis.lane(lane.spec.name).bottleneck
        return lane.over, bottleneck is None or not bottleneck.advice, lane.spec.kind == "cpu"

    return min(lanes, key=rank).spec.name if lanes else None


def running_line(snapshot: Snapshot, keys: Mapping[str, str]) -> str:
    """Return which experiment runs, how far it is, and the keys that stop it; empty for none."""
    doing = doing_text(snapshot)
    key = "tune" if isinstance(snapshot.experiment, TuneState) else "crossover"
    return f"{doing}; {key_of(key, keys)}, {key_of('choose', keys)} stops it" if doing else ""
