"""What a key press asks of which lanes. Pure: the answer is a list of wishes and a line to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfmon.analysis.tuning import advised
from tfmon.model.knobs import Knob, KnobValue, show
from tfmon.model.lane_state import FAILED, OUT_OF_MEMORY, PAUSED, RACING, LaneState
from tfmon.model.session import Snapshot

_SHORT = {"batch_size": "batch"}


@dataclass(frozen=True, slots=True)
class Wish:
    """A setting to ask a lane for."""

    lane: str
    value: KnobValue


def short_name(knob: str) -> str:
    """Return a knob's name as the panes and the keys show it."""
    return _SHORT.get(knob, knob.replace("_", " "))


def in_force(lane: LaneState, knob: Knob) -> KnobValue:
    """Return the value in force, or before the lane has said one, the value it was started with."""
    if knob.name in lane.settings:
        return lane.settings[knob.name]
    return lane.spec.settings.get(knob.name, knob.default)


def wanted(lane: LaneState, knob: Knob) -> KnobValue:
    """Return the value asked for, or else the one in force."""
    asked = lane.asked.get(knob.name)
    return in_force(lane, knob) if asked is None else asked.value


def steps_of(lanes: Sequence[LaneState], knob: Knob, direction: int) -> tuple[list[Wish], str]:
    """Return what one press on a knob's key asks of the lanes, and a line that says what could not be asked."""
    if not lanes:
        return [], "no lane is training"
    wishes: list[Wish] = []
    stuck: list[str] = []
    for lane in lanes:
        value = wanted(lane, knob)
        high = lane.data_examples if knob.name == "batch_size" else None
        moved = knob.next(value, direction, high=high)
        if moved == value and type(moved) is type(value):
            stuck.append(_end_of_range(lane, knob, value, direction))
        else:
            wishes.append(Wish(lane.spec.name, moved))
    return wishes, stuck[0] if stuck and not wishes else ""


def _end_of_range(lane: LaneState, knob: Knob, value: KnobValue, direction: int) -> str:
    name = knob.name.replace("_", " ")
    if knob.name == "batch_size" and direction > 0 and lane.data_examples is not None:
        return f"{name} is already {show(value)}, and the data has {lane.data_examples} examples"
    return f"{name} is already {show(value)}; it takes {knob.allowed()}"


def targets(lanes: Sequence[LaneState], focused: str | None) -> list[LaneState]:
    """Return the lanes a key acts on: the focused one, or all."""
    return [lane for lane in lanes if focused is None or lane.spec.name == focused]


def living(lanes: Sequence[LaneState]) -> list[LaneState]:
    """Return the lanes that a knob can reach."""
    return [lane for lane in lanes if not lane.over]


def reachable(lanes: Sequence[LaneState], knob: Knob, direction: int, *, focused: bool) -> list[LaneState]:
    """Return the lanes that a knob's key acts on: those that train, and failed ones that it starts again.

    That is the focused lane; and one that ran out of memory, where the batch is made smaller.
    """
    smaller = knob.name == "batch_size" and direction < 0

    def starts_again(lane: LaneState) -> bool:
        greedy = lane.trouble is not None and lane.trouble.kind == OUT_OF_MEMORY
        return failed(lane) and (focused or (greedy and smaller))

    return [lane for lane in lanes if not lane.over or starts_again(lane)]


def failed(lane: LaneState) -> bool:
    """Return whether a lane failed and its process is gone, so that it can be started again."""
    return lane.phase == FAILED and lane.ended is not None


def pause_or_run(lanes: Sequence[LaneState]) -> tuple[list[LaneState], list[LaneState]]:
    """Return the lanes to hold and the lanes to let run: any that races is held, otherwise all run on."""
    racing = [lane for lane in lanes if lane.phase == RACING]
    if racing:
        return racing, []
    return [], [lane for lane in lanes if lane.phase == PAUSED]


def shared_value(lanes: Sequence[LaneState], knob: Knob) -> tuple[str, str]:
    """Return the value in force of a knob in all the lanes, such as `off` or `off/auto`, and what is asked."""
    now = list(dict.fromkeys(show(in_force(lane, knob)) for lane in lanes))
    asked = list(dict.fromkeys(show(lane.asked[knob.name].value) for lane in lanes if knob.name in lane.asked))
    return "/".join(now[:3]) + ("…" if len(now) > 3 else ""), "/".join(asked[:3])


def no_knob(snapshot: Snapshot, name: str) -> str:
    """Say why a knob cannot be changed that the race does not have."""
    if any(lane.command for lane in snapshot.lanes):
        return f"the script sets {short_name(name)} itself: Enter shows the code that may help; k lists its knobs"
    return f"this scenario has no knob {short_name(name)}"


def to_improve(snapshot: Snapshot, lanes: Sequence[LaneState]) -> str | None:
    """Return the lane that advice is tried on: one that trains, with advice, and a GPU's rather than a CPU's."""

    def rank(lane: LaneState) -> tuple[bool, bool, bool]:
        found = advised(snapshot, lane)
        return lane.over, found is None or not found.advice, lane.spec.kind == "cpu"

    return min(lanes, key=rank).spec.name if lanes else None
