"""The periods of a race, each with other settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from tfmon.model.event_base import Event
from tfmon.model.events import LaneEnded, LaneStarted, ModeChanged, SeriesAdvanced
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import KnobValue, short_name, show
from tfmon.model.lane_events import KnobApplied, LaneFailed, StepDescribed
from tfmon.model.lane_state import FAILED, LaneState, copied
from tfmon.model.race import Race, interleaved
from tfmon.model.series import SeriesState

MOST_PERIODS = 100
CAUSES = (SeriesAdvanced, ModeChanged, KnobApplied, LaneStarted, LaneFailed, LaneEnded, StepDescribed)


@dataclass(frozen=True, slots=True)
class KnobChange:
    """A changed knob of a lane."""

    lane: str
    knob: str
    before: KnobValue
    after: KnobValue

    @property
    def text(self) -> str:
        """Text such as `batch 10 → 16`."""
        return f"{short_name(self.knob)} {show(self.before)} → {show(self.after)}"


@dataclass(frozen=True, slots=True)
class Period:
    """The measurements before a change."""

    until_ns: int
    lanes: tuple[LaneState, ...]
    race: Race
    changes: tuple[KnobChange, ...] = ()
    event: str = ""
    phase_of: str = ""
    experiment: SeriesState | None = None

    def lane(self, name: str) -> LaneState:
        """Return the lane of that name."""
        return next(lane for lane in self.lanes if lane.spec.name == name)


Periods: TypeAlias = tuple[Period, ...]


def after_event(
    periods: Periods,
    event: Event,
    race: Race,
    lanes: Lanes,
    later: Lanes,
    running: SeriesState | None,
    experiment: SeriesState | None,
) -> Periods:
    """Return the periods after an event of `CAUSES`, which led to `later` and `experiment`."""
    sliced = interleaved(race.mode, "", len(lanes))
    trying = running is not None and not running.over

    def ended(
        *changes: KnobChange, text: str = "", experiment: SeriesState | None = None, phase_of: str = ""
    ) -> Periods:
        kept = tuple(_kept(lane, sliced=sliced) for lane in lanes)
        period = Period(event.at_ns, kept, race, changes, text, phase_of, experiment)
        return (*periods[1 - MOST_PERIODS :], period)

    if isinstance(event, SeriesAdvanced):
        if not trying and experiment is not None and not experiment.over:
            return ended(experiment=experiment)
        latest = max(
            (index for index, period in enumerate(periods) if period.experiment is not None), default=None
        )
        if latest is None:
            return periods
        return _with(periods, latest, replace(periods[latest], experiment=experiment))
    if isinstance(event, ModeChanged) and event.mode != race.mode:
        return ended(text=f"mode {event.mode}")
    for lane, changed in zip(lanes, later, strict=True):
        if lane.spec.name != event.lane or not lane.process.number or trying:
            continue
        now = {knob: value for knob, value in changed.settings.items() if value != lane.settings.get(knob, value)}
        changes = [KnobChange(event.lane, knob, lane.settings[knob], value) for knob, value in now.items()]
        if changes and isinstance(event, KnobApplied | LaneStarted):
            index = _same_key(periods, lane, changes[0], event.at_ns)
            if index is None:
                return ended(*changes)
            period = periods[index]
            old = period.lane(event.lane)
            kept = _kept(lane, sliced=sliced)
            kept.differs, kept.mark = old.differs, old.mark
            joined = tuple(kept if other is old else other for other in period.lanes)
            return _with(periods, index, replace(period, lanes=joined, changes=(*period.changes, *changes)))
        if lane.steady.windows and isinstance(event, LaneStarted) and not event.renewed:
            return ended(text=f"{lane.spec.id} restarted")
        if lane.steady.windows and changed.phase == FAILED != lane.phase:
            return ended(text=f"{lane.spec.id} failed")
        if lane.steady.windows and lane.script.places != changed.script.places:
            return ended(text=f"{lane.spec.id} went on to {changed.script.places[-1]}", phase_of=event.lane)
    return periods


Lanes: TypeAlias = Sequence[LaneState]


def _same_key(periods: Periods, lane: LaneState, change: KnobChange, at_ns: int) -> int | None:
    """Return the index of the period of the same key press."""
    requested_ns = lane.changes.requested[change.knob].at_ns if change.knob in lane.changes.requested else at_ns
    result = None
    for index, period in reversed([*enumerate(periods)]):
        if period.until_ns < requested_ns or any(other.lane == change.lane for other in period.changes):
            break
        if any(other.knob == change.knob for other in period.changes):
            result = index
    return result


def _with(periods: Periods, index: int, period: Period) -> Periods:
    return (*periods[:index], period, *periods[index + 1 :])


def why_mode_stays(lanes: Lanes) -> str:
    """Return why the mode cannot change."""
    if len(lanes) < 2:
        return "one lane has the machine for itself: turns need two lanes"
    if all(lane.over for lane in lanes):
        return "the race is over and its result stays: r races again"
    ended = [lane.spec.id or lane.spec.name for lane in lanes if lane.over and lane.steady.windows]
    if ended:
        return f"{' and '.join(ended)} ended, and what was measured stays: r starts again"
    return ""


def _kept(lane: LaneState, *, sliced: bool) -> LaneState:
    result = copied(lane, LaneState)
    measurements = result.measurements
    measurements.recent = () if sliced else lane.points
    measurements.old, measurements.samples, measurements.old_samples = (), (), ()
    result.totals.losses = replace(lane.totals.losses, points=())
    result.process.stack = None
    result.log = ()
    return result
