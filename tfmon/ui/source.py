"""The state of the screen, and the requests of its keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.batch_memory import warning_of
from tfmon.analysis.series_tables import doing_text
from tfmon.analysis.tuning_trials import undoes_last
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import BATCH_SIZE, MIXED_PRECISION, XLA, Knob, KnobValue, short_name, show
from tfmon.model.lane_events import FIT, OUT_OF_MEMORY
from tfmon.model.lane_state import ABSENT, FAILED, LaneState
from tfmon.model.series import TUNING
from tfmon.model.session import Snapshot
from tfmon.ui.keys import key_of
from tfmon.units import Charset

SHARED, OWN = "shared", "own"
SPANS_S = (60, 300, 1_800)


@dataclass(frozen=True, slots=True)
class Scale:
    """The vertical axis of a chart."""

    low: float = 0.0
    high: float = 0.0


@dataclass(slots=True)
class Display:
    """State of the screen. Thread: the app's."""

    focused: str | None = None
    message: str = ""
    notice: str = ""
    busy: str = ""
    race: int = 0
    failures: dict[str, bool] = field(default_factory=dict)
    """The failed lanes, and whether a lane failed while hidden, until Esc."""
    no_race: str = ""
    stopping: bool = False
    metric: str = "throughput"
    scale: str = ""
    """`SHARED`, `OWN`, or empty to decide by how much the lanes differ."""
    span_s: int = SPANS_S[0]
    scales: Mapping[str, Scale] = field(default_factory=dict)
    """Last drawn scales, by lane name or `SHARED`."""
    verdict: tuple[int, int, int] = (0, 0, 0)
    """Last drawn width, height, and rows of the verdict."""
    zoomed: bool = False
    zoomed_from: str | None = None
    readonly: bool = False
    replay: bool = False
    above: bool = False
    """Whether `q` goes back to another race."""
    tabs: tuple[str, ...] = ()
    charset: Charset = "braille"
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def fixed(self) -> bool:
        """Whether no key changes the race."""
        return self.readonly or self.replay

    def note_failures(self, snapshot: Snapshot, shown: Collection[str] = ()) -> bool:
        """Store which failed lanes were displayed. Return whether something changed."""
        before, failed = self.failures, [lane for lane in snapshot.lanes if lane.phase in (FAILED, ABSENT)]
        names = [lane.spec.name for lane in failed]
        self.failures = {name: before.get(name, name not in shown) for name in names}
        return self.failures != before


def focused_index(view: Display, snapshot: Snapshot) -> int | None:
    """Return the index of the focused lane, or None."""
    for index, lane in enumerate(snapshot.lanes):
        if lane.spec.name == view.focused:
            return index
    return None


def in_effect(lane: LaneState, knob: Knob) -> KnobValue:
    """Return the value in effect, or the default."""
    return lane.in_effect.get(knob.name, knob.default)


def next_values(lanes: Sequence[LaneState], knob: Knob, direction: int) -> tuple[dict[str, KnobValue], str]:
    """Return a knob's next values by lane, or a message."""
    if not lanes:
        return {}, "no lane is training"
    steps = {lane.spec.name: _step(lane, knob, direction) for lane in lanes}
    requests = {name: moved for name, (_, moved) in steps.items() if moved is not None}
    if requests:
        return requests, ""
    first = lanes[0]
    already = f"{knob.name.replace('_', ' ')} is already {show(steps[first.spec.name][0])}"
    if knob.name == "batch_size" and direction > 0 and first.process.data_examples is not None:
        return {}, f"{already}, and the data has {first.process.data_examples} examples"
    return {}, f"{already}; it takes {knob.allowed()}"


def _step(lane: LaneState, knob: Knob, direction: int) -> tuple[KnobValue, KnobValue | None]:
    requested = lane.changes.requested.get(knob.name)
    value = in_effect(lane, knob) if requested is None else requested.value
    moved = knob.next(value, direction, high=lane.process.data_examples if knob.name == "batch_size" else None)
    return value, None if moved == value and type(moved) is type(value) else moved


def targets(lanes: Sequence[LaneState], focused: str | None) -> list[LaneState]:
    """Return the lanes on which a key acts."""
    return [lane for lane in lanes if focused is None or lane.spec.name == focused]


def titles(lanes: Sequence[LaneState]) -> str:
    """Return the titles of lanes for a message."""
    return ", ".join(lane.title for lane in lanes)


def reachable(lanes: Sequence[LaneState], knob: Knob, direction: int, *, focused: bool) -> list[LaneState]:
    """Return the lanes that train or that the change restarts."""
    smaller = knob.name == "batch_size" and direction < 0
    result = []
    for lane in lanes:
        out_of_memory = lane.trouble is not None and lane.trouble.kind == OUT_OF_MEMORY
        if not lane.over or (may_start_again(lane) and (focused or (out_of_memory and smaller))):
            result.append(lane)
    return result


def may_start_again(lane: LaneState) -> bool:
    """Return whether a lane failed and its process has ended."""
    return lane.phase == FAILED and lane.end.event is not None


def shared_value(lanes: Sequence[LaneState], knob: Knob) -> tuple[str, str]:
    """Return the values in effect, such as `off/auto`, and requested values."""
    now = list(dict.fromkeys(show(in_effect(lane, knob)) for lane in lanes))
    requested = [lane.to_change[knob.name] for lane in lanes if knob.name in lane.to_change]
    return "/".join(now[:3]) + ("…" if len(now) > 3 else ""), "/".join(dict.fromkeys(map(show, requested[:3])))


def effect(lanes: Sequence[LaneState], knob: Knob, direction: int = 1) -> str:
    """Return such as `batch 10 → 16` for a knob's key."""
    moves = {lane.spec.id: _step(lane, knob, direction) for lane in lanes}
    warnings = [warning_of(lane, moves[lane.spec.id][1]) for lane in lanes if knob.name == BATCH_SIZE.name]
    warning = next((f" ({warning})" for warning in warnings if warning), "")
    steps = {id: f"{show(value)} → {show(moved)}" for id, (value, moved) in moves.items() if moved is not None}
    if not steps:
        return ""
    if len(set(steps.values())) == 1 and len(steps) == len(lanes):
        return f"{short_name(knob.name)} {next(iter(steps.values()))}{warning}"
    changes = [f"{id} {step}" for id, step in steps.items()]
    return f"{short_name(knob.name)} {', '.join(changes[:3])}" + ("…" if len(changes) > 3 else "") + warning


def no_knob(snapshot: Snapshot, name: str) -> str:
    """Return why the race lacks a knob."""
    uses_fit = any(lane.script.progress is not None and lane.script.progress.epochs for lane in snapshot.lanes)
    if uses_fit and name == BATCH_SIZE.name:
        return "`fit` trains a fixed number of batches an epoch, so only the script can set their size"
    if any(lane.script.command for lane in snapshot.lanes):
        uses_fit = any(FIT in lane.script.step_traits for lane in snapshot.lanes)
        if name in (XLA.name, MIXED_PRECISION.name) and uses_fit:
            return f"{short_name(name)} can be set when the script starts: --set {name}=VALUE; k lists its knobs"
        return f"this script has no knob {short_name(name)}: k lists its knobs"
    return f"this scenario has no knob {short_name(name)}"


def to_improve(analysis: Analysis, lanes: Sequence[LaneState]) -> str | None:
    """Return the name of the lane that needs advice most."""

    def rank(lane: LaneState) -> tuple[bool, bool, bool]:
        causes = analysis.lane(lane.spec.name).causes
        return lane.over, not any(cause.can_try for cause in causes), lane.spec.kind == "cpu"

    return min(lanes, key=rank).spec.name if lanes else None


def news_line(analysis: Analysis, view: Display) -> str:
    """Return the current trial or the last change's result, with the undo key."""
    undo = analysis.news and not shows(analysis.snapshot, view) and not view.fixed
    undo = undo and undoes_last(analysis.snapshot)
    return f"{analysis.news} · {key_of('undo', view.keys)} to undo" if undo else analysis.news


def shows(snapshot: Snapshot, view: Display) -> bool:
    """Return whether to display the result."""
    return snapshot.over and not view.stopping


def running_line(snapshot: Snapshot, keys: Mapping[str, str]) -> str:
    """Return the running experiment and the keys that stop it."""
    if snapshot.experiment is None:
        return ""
    doing, key = doing_text(snapshot), "tune" if snapshot.experiment.plan.policy == TUNING else "crossover"
    return f"{doing}; {key_of(key, keys)}, {key_of('choose', keys)} stops it" if doing else ""
