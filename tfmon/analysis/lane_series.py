"""The table of a crossover and of a tuning, which measure on the lanes of a race. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.crossover import CurvePoint, ahead_text, ended_text
from tfmon.analysis.series import DASH, Cell, CurveLine, Level, SeriesColumn, SeriesCurve, SeriesRow, SeriesTable
from tfmon.analysis.tuning import (
    ALL_TRIED,
    best_text,
    change_text,
    gain_of,
    gain_text,
    news,
    outcome_text,
    pairs_of,
)
from tfmon.model.knobs import short_name, show
from tfmon.model.lane_state import LaneState
from tfmon.model.race import KEPT, STOPPED, UNDONE, Attempt, CrossoverState, TuneState
from tfmon.model.session import Snapshot


def crossover_table(found: Analysis) -> SeriesTable | None:
    """Return the table of the last crossover: a row for each value of the knob. None where there was none."""
    snapshot, curve, state = found.snapshot, found.curve, found.snapshot.experiment
    if curve is None or not isinstance(state, CrossoverState):
        return None
    lanes = [snapshot.lane(name) for name in state.lanes]
    ids = (lanes[0].spec.id, lanes[1].spec.id)
    knob = curve.knob.replace("_", " ")
    speeds = [tuple(place.first for place in curve.places), tuple(place.second for place in curve.places)]
    lines = tuple(
        CurveLine(lane.spec.id, title, snapshot.lanes.index(lane), points)
        for lane, title, points in zip(lanes, curve.titles, speeds, strict=True)
    )
    about = f"examples/s over {knob}, with 95 % intervals"
    values, marks = tuple(place.value for place in curve.places), tuple(one.about for one in curve.crossings)
    drawn = SeriesCurve(curve.knob, "Crossover", about, "examples/s", values, lines, marks)
    heads = (SeriesColumn(knob, 6), *(SeriesColumn(f"{id} ex/s", 7) for id in ids), SeriesColumn("ahead"))
    return SeriesTable(
        columns=heads,
        rows=tuple(_value_row(place, ids) for place in curve.places),
        curves=(drawn,),
        answer=(curve.text,),
        notes=(ended_text(state),) if state.over else (),
    )


def _value_row(place: CurvePoint, ids: tuple[str, str]) -> SeriesRow:
    speeds: list[Cell] = [
        (units.rate(speed.value), speed.value) if speed else (DASH, None) for speed in (place.first, place.second)
    ]
    ratio = place.ratio.value if place.ratio else None
    ahead: Cell = (place.refused or ahead_text(place, ids), ratio)
    level: Level = "best" if place.sure else "refused" if place.refused else "faint"
    return SeriesRow(place.value, ((show(place.value), float(place.value)), *speeds, ahead), outcome=level)


def tuning_table(found: Analysis) -> SeriesTable | None:
    """Return the table of the tuning of a race: a row for each change. None where nothing was tuned."""
    snapshot, state, best = found.snapshot, found.snapshot.tuned, found.tuning
    if state is None or best is None:
        return None
    lanes = {lane.spec.name: lane for lane in snapshot.lanes}
    called = {lane.spec.name: snapshot.called(lane) for lane in snapshot.lanes}
    lane = [SeriesColumn("lane")] if len(called) > 1 else []
    heads = (*lane, *map(SeriesColumn, ("tried", "throughput")), SeriesColumn("pairs", 5), SeriesColumn("outcome"))
    rows = tuple(_attempt_row(number, one, lanes, called) for number, one in enumerate(state.attempts))
    return SeriesTable(
        columns=heads,
        rows=rows,
        answer=(best_text(best) if rows else "nothing was tried",) if rows or state.over else (),
        notes=tuple(filter(None, (_progress(found, state),))),
        code=best.code,
    )


def _progress(found: Analysis, state: TuneState) -> str:
    """Return how far a tuning is, or why it ended."""
    if not state.over:
        return news(found.snapshot)
    if state.ended:
        return f"ended early: {state.ended}"
    if not state.attempts and found.lane(state.lane).bottleneck is None:
        return "too little was measured to know what limits the lane"
    return ALL_TRIED if state.everything else ""


def _attempt_row(at: int, attempt: Attempt, lanes: Mapping[str, LaneState], names: Mapping[str, str]) -> SeriesRow:
    running = lanes.get(attempt.lane) if not attempt.outcome else None
    gain = gain_of(running, attempt) if running is not None else attempt.gain
    pairs = gain.pairs if gain else len(pairs_of(running, attempt)) if running is not None else 0
    name = names.get(attempt.lane, attempt.lane)
    lane: list[Cell] = [(name, name)] if len(names) > 1 else []
    change, outcome = change_text(attempt), outcome_text(attempt)
    gained: Cell = (gain_text(gain), gain.value) if gain else (DASH, None)
    level: Level = "best" if attempt.outcome == KEPT else "faint" if attempt.outcome in (UNDONE, STOPPED) else ""
    cells = (*lane, (change, change), gained, (str(pairs), pairs), (outcome, outcome))
    return SeriesRow(at, cells, level, level or "faint", whole=attempt.purpose)


def doing_text(snapshot: Snapshot) -> str:
    """Return which series is measured on the lanes now, and how far it is; empty for none."""
    state = snapshot.experiment
    if state is None or state.over:
        return ""
    if isinstance(state, TuneState):
        settings = state.latest.change.items() if state.latest else ()
        change = ", ".join(f"{short_name(knob)} {show(value)}" for knob, value in settings)
        id = next((one.spec.id for one in snapshot.lanes if one.spec.name == state.lane), state.lane)
        return f"{id} is {f'trying {change}' if change else 'being tuned'}"
    left = f", about {units.clock(state.left_s)} left" if state.left_s is not None else ""
    doing = f"measuring {show(state.at)}{left}" if state.at is not None else "waiting for the lanes"
    return f"crossover over {short_name(state.knob)}: {doing}"
