"""The tables of crossover, tuning and sweep, their answers in words, and their JSON values."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.causes import code_of
from tfmon.analysis.crossover_curve import CurvePoint, ahead_text, curve_of
from tfmon.analysis.series_layout import (
    DASH,
    Cell,
    CurveLine,
    Level,
    SeriesColumn,
    SeriesCurve,
    SeriesRow,
    SeriesTable,
    settings_text,
)
from tfmon.analysis.sweep_ranking import (
    BASELINE,
    BEATEN,
    FAILED,
    MEASURED,
    OPEN,
    OUTCOMES,
    REFUSED,
    Ranking,
    SweepRow,
)
from tfmon.analysis.tuning_trials import best_of, change_text, gain_of, gain_texts, news, outcome_text
from tfmon.analysis.verdict_notes import Scaling, scaling
from tfmon.model import codec
from tfmon.model.knobs import KnobValue, short_name, show
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Estimate
from tfmon.model.series import CROSSOVER, KEPT, STOPPED, TUNING, UNDONE, Attempt, SeriesState
from tfmon.model.session import Snapshot
from tfmon.model.spec import KINDS, counted


def answer(ranking: Ranking) -> list[str]:
    """Return the best combination for each device as text."""
    lines = [_answer_on(ranking, kind) for kind in ranking.state.plan.kinds]
    return [*lines, *(curve_point.text() for curve_point in scaling_of(ranking))]


def _answer_on(ranking: Ranking, kind: str) -> str:
    where = f" on {kind}" if len(ranking.state.plan.kinds) > 1 else ""
    so_far, yet = ("", "") if ranking.over else (" so far", " yet")
    best = ranking.best(kind)
    if best is None or best.ratio is None:
        return f"no combination has a ratio{where}{yet}"
    name = settings_text(best.attempt.settings)
    factor, interval = units.ratio_in(best.ratio.value, best.ratio.low, best.ratio.high)
    rivals = ranking.rivals(best)
    alike = [row for row in rivals if row.settled and best.ratio.low >= 1]
    unsettled = [row for row in rivals if not row.settled]
    baseline = baseline_text(ranking)
    if best.outcome == BASELINE:
        line = f"best{so_far}{where}: {baseline}"
    elif best.ratio.low > 1:
        line = f"best{so_far}{where}: {name}, {factor} the throughput of {baseline} ({interval})"
    elif best.ratio.high < 1:
        nearest = f"the nearest is {name}, {factor} ({interval})"
        line = f"nothing measured{where} is faster than {baseline}{so_far}; {nearest}"
    else:
        status = "found" if ranking.over else "known yet"
        line = f"no best {status}{where}: the nearest is {name}, {factor} {baseline} ({interval})"
    for rows, reason in ((alike, "within its error"), (unsettled, "not settled and may be better")):
        names = [settings_text(row.attempt.settings) for row in rows]
        if names:
            line += f"; {names[0]} is {reason}" if len(names) == 1 else f"; {len(names)} others are {reason}"
    without = [row for row in ranking.rows if row.ratio is None and row.outcome not in (FAILED, REFUSED)]
    unknown = sum(row.attempt.kind == kind for row in without)
    if ranking.over and unknown:
        line += f"; {unknown} without a ratio may be better"
    return f"{line}; it {_learns_text(best)}" if best.learns else line


def baseline_text(ranking: Ranking) -> str:
    """Return text such as "the baseline batch_size=32"."""
    return f"the baseline {settings_text(ranking.baseline)}".rstrip()


def scaling_of(ranking: Ranking) -> list[Scaling]:
    """Return the scaling, if only devices are swept."""
    over = ranking.state.plan.over
    name = counted(over)
    if not name or len(over) > 1:
        return []
    fewest = min(map(int, over[name]))
    return [
        scaling("", (int(row.attempt.settings[name]), fewest), KINDS[name], row.ratio)
        for row in ranking.rows
        if row.ratio is not None and row.outcome != BASELINE
    ]


def _learns_text(row: SweepRow) -> str:
    return f"trains differently (other {' and '.join(knob.replace('_', ' ') for knob in row.learns)})"


def progress_text(ranking: Ranking) -> str:
    """Return the progress as text."""
    left = f", at most {units.about(ranking.left_s)} left" if ranking.left_s and not ranking.over else ""
    return f"{ranking.settled} of {len(ranking.rows)} settled{left}"


INTERVAL = "95 % interval"
_MEASURED = (
    SeriesColumn("ratio", 7, most=8, estimated=True),
    SeriesColumn(INTERVAL, most=14, estimated=True),
    SeriesColumn("ex/s", 7, most=9),
    SeriesColumn("memory", 8, most=9, optional=True),
    SeriesColumn("limited by", most=11, optional=True),
    SeriesColumn("place", most=16, optional=True),
    SeriesColumn("state", most=24),
)
_LEVELS: dict[str, Level] = {FAILED: "failed", REFUSED: "refused", MEASURED: "", BEATEN: "faint"}
IDS = "ABCDEFGH"


def sweep_table(ranking: Ranking) -> SeriesTable:
    """Return the table of a sweep, the best first."""
    state, plan, several = ranking.state, ranking.state.plan, len(ranking.state.plan.kinds) > 1
    knobs = [SeriesColumn(name, most=max(len(name) + 1, 12)) for name in map(short_name, plan.over)]
    kind = [SeriesColumn("device", most=8)] if several else []
    bests = {id(best) for best in map(ranking.best, plan.kinds) if best and best.outcome != BASELINE}
    lost = [f"{device} is not used any more: {why}" for device, why in state.lost.items()]
    return SeriesTable(
        columns=(*knobs, *kind, *_MEASURED),
        rows=tuple(_row_of(row, several=several, best=id(row) in bests) for row in ranking.ranked),
        curves=curves_of(ranking),
        answer=tuple(answer(ranking)),
        troubles=(*lost, *([f"ended early: {state.ended}"] if state.ended else [])),
    )


def _row_of(row: SweepRow, *, several: bool, best: bool) -> SeriesRow:
    known, figures, ratio = row.attempt, row.figures, row.ratio
    speed, memory, device = figures.examples_per_s, figures.memory_bytes, row.place or figures.place
    outcome = OUTCOMES.index(row.outcome) if row.outcome != OPEN else -2 if row.place else -1
    factor, interval = ratio_texts(row)
    cells: tuple[Cell, ...] = (
        *((show(value), _rank(value)) for value in known.settings.values()),
        *([(known.kind, known.kind)] if several else []),
        (factor, ratio.value if ratio else None),
        (interval, ratio.high - ratio.low if ratio else None),
        (units.rate(speed) if speed else DASH, speed),
        (units.memory(memory) if memory else DASH, memory),
        (figures.bottleneck or DASH, figures.bottleneck or None),
        (device or DASH, device or None),
        (_state_text(row), (outcome, row.state)),
    )
    return SeriesRow(
        known.number,
        cells,
        level="best" if best else "" if ratio is not None and ratio.low > 1 else "faint",
        outcome=_LEVELS.get(row.outcome, "best" if row.place else "faint"),
        mark="✗" if row.outcome == FAILED else "•" if row.place else " ",
        whole=_about(row),
        interval=None if row.outcome == BASELINE else ratio,
    )


def _rank(value: KnobValue) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def ratio_texts(row: SweepRow) -> tuple[str, str]:
    """Return ratio and interval, with a mark for different training."""
    if row.ratio is None:
        return DASH, DASH
    if row.outcome == BASELINE:
        return "1×", "by definition"
    factor, interval = units.ratio_in(row.ratio.value, row.ratio.low, row.ratio.high)
    return factor + ("*" if row.learns else ""), interval


def _state_text(row: SweepRow) -> str:
    if row.outcome != OPEN:
        return f"{row.state}: {row.reason}" if row.reason else row.state
    pairs = len(row.attempt.pairs)
    died = "" if row.place else row.reason
    return ", ".join(filter(None, (row.state, units.several(pairs, "pair") if pairs else "", died)))


def _about(row: SweepRow) -> str:
    known, figures = row.attempt, row.figures
    pairs, visits = units.several(len(known.pairs), "pair"), units.several(known.visits, "visit")
    speed = figures.baseline_examples_per_s
    parts = (
        settings_text(known.settings),
        "the baseline: 1× by definition" if row.outcome == BASELINE else "",
        f"{pairs} in {visits}, raced for {units.about(known.measured_s)}" if known.pairs else "",
        f"* {_learns_text(row)}" if row.learns else "",
        f"the baseline there {units.rate(speed)} ex/s" if speed else "",
        figures.bottleneck_text,
        f"memory n/a ({figures.memory_missing})" if figures.memory_missing else "",
        row.reason,
    )
    return " · ".join(filter(None, parts))


def curves_of(ranking: Ranking) -> tuple[SeriesCurve, ...]:
    """Return curves over each numeric knob, the best first."""
    plan, curves = ranking.state.plan, []
    for knob, kind in itertools.product(plan.over, plan.kinds):
        values = sorted(value for value in plan.over[knob] if type(value) in (int, float))
        if len(values) < 2:
            continue
        ratios: dict[str, dict[KnobValue, Estimate]] = {}
        for row in ranking.ranked:
            settings = row.attempt.settings
            if row.attempt.kind == kind and row.ratio is not None and settings[knob] in values:
                other_settings = settings_text({name: value for name, value in settings.items() if name != knob})
                ratios.setdefault(other_settings, {})[settings[knob]] = row.ratio
        lines = tuple(
            CurveLine(id, other_settings, index, tuple(map(known.get, values)))
            for index, (id, (other_settings, known)) in enumerate(zip(IDS, ratios.items(), strict=False))
        )
        title = f"Ratio over {knob.replace('_', ' ')}" + (f" on {kind}" if len(plan.kinds) > 1 else "")
        about, axis = "Throughput over the baseline's, with 95 % intervals.", "throughput / baseline's"
        curves.append(SeriesCurve(knob, title, about, axis, tuple(values), lines, ratios=True))
    return tuple(curves)


def crossover_table(analysis: Analysis) -> SeriesTable | None:
    """Return the table of the last crossover by value."""
    snapshot, curve = analysis.snapshot, analysis.curve
    if curve is None:
        return None
    state, lanes = curve.state, curve.lanes
    ids = (lanes[0].spec.id, lanes[1].spec.id)
    knob = state.knob.replace("_", " ")
    speeds = [tuple(point.first for point in curve.points), tuple(point.second for point in curve.points)]
    lines = tuple(
        CurveLine(lane.spec.id, title, snapshot.lanes.index(lane), points)
        for lane, title, points in zip(lanes, curve.titles, speeds, strict=True)
    )
    about = f"examples/s over {knob}, with 95 % intervals"
    values, marks = tuple(point.value for point in curve.points), tuple(cross.about for cross in curve.crossings)
    drawn = SeriesCurve(state.knob, "Crossover", about, "examples/s", values, lines, marks)
    ended = f"{state.ended}; these are the values it had" if state.ended else "all is measured"
    heads = (SeriesColumn(knob, 6), *(SeriesColumn(f"{id} ex/s", 7) for id in ids), SeriesColumn("ahead"))
    return SeriesTable(
        columns=heads,
        rows=tuple(_value_row(point, ids) for point in curve.points),
        curves=(drawn,),
        answer=(curve.text,),
        notes=(ended,) if state.over else (),
    )


def _value_row(point: CurvePoint, ids: tuple[str, str]) -> SeriesRow:
    known = [speed and speed.value for speed in (point.first, point.second)]
    speeds: list[Cell] = [(units.rate(speed) if speed else DASH, speed) for speed in known]
    ratio = point.ratio.value if point.ratio else None
    ahead: Cell = (point.missing or ahead_text(point, ids), ratio)
    level: Level = "best" if point.sure else "refused" if point.refused else "faint"
    return SeriesRow(point.value, ((show(point.value), float(point.value)), *speeds, ahead), outcome=level)


def tuning_table(analysis: Analysis) -> SeriesTable | None:
    """Return the table of the tuning by change."""
    snapshot, state = analysis.snapshot, analysis.snapshot.tuned
    if state is None:
        return None
    lanes = {lane.spec.name: lane for lane in snapshot.lanes}
    lane = [SeriesColumn("lane")] if len(lanes) > 1 else []
    gained = SeriesColumn("throughput", 10, estimated=True), SeriesColumn(INTERVAL, most=14, estimated=True)
    heads = (*lane, SeriesColumn("tried"), *gained, SeriesColumn("pairs", 5), SeriesColumn("outcome"))
    rows = tuple(_attempt_row(number, change, lanes) for number, change in enumerate(state.changes))
    return SeriesTable(
        columns=heads,
        rows=rows,
        answer=(analysis.tuned,) if rows or state.over else (),
        notes=tuple(filter(None, (_progress(analysis, state),))),
        code=_code_of(state),
    )


def _code_of(state: SeriesState) -> tuple[str, ...]:
    return tuple(line for knob, value in best_of(state)[0].items() for line in code_of(None, knob, value))


def _progress(analysis: Analysis, state: SeriesState) -> str:
    if not state.over:
        return news(analysis.snapshot)
    if state.ended:
        return f"ended early: {state.ended}"
    if not state.attempts and analysis.lane(state.lane).bottleneck is None:
        return "too little was measured to know what limits the lane"
    return f"no{' other' * bool(state.attempts)} knob is known to help" if state.plan.everything else ""


def _attempt_row(at: int, attempt: Attempt, lanes: Mapping[str, LaneState]) -> SeriesRow:
    gain = attempt.gain if attempt.outcome else gain_of(attempt)
    pairs = gain.pairs if gain else len(attempt.pairs)
    names = [attempt.of_lane.title or attempt.of_lane.lane] if len(lanes) > 1 else []
    *labels, outcome = [(text, text) for text in (*names, change_text(attempt), outcome_text(attempt))]
    factor, interval = gain_texts(gain) if gain else (DASH, DASH)
    gained: list[Cell] = [(factor, gain and gain.value), (interval, gain and gain.high / gain.low)]
    level: Level = "best" if attempt.outcome == KEPT else "faint" if attempt.outcome in (UNDONE, STOPPED) else ""
    cells = (*labels, *gained, (str(pairs), pairs), outcome)
    return SeriesRow(at, cells, level, level or "faint", whole=attempt.of_lane.purpose, interval=gain)


def doing_text(snapshot: Snapshot) -> str:
    """Return the running series with its progress."""
    state = snapshot.experiment
    if state is None or state.over:
        return ""
    if state.plan.policy == TUNING:
        change = change_text(state.latest) if state.latest else ""
        id = next((lane.spec.id for lane in snapshot.lanes if lane.spec.name == state.lane), state.lane)
        doing = f"trying {change}" if change else "being tuned"
        return f"{id} is {doing}" if len(snapshot.lanes) > 1 else doing
    if state.plan.policy != CROSSOVER:
        return ""
    left_s = curve_of(snapshot, state).left_s
    left = "" if left_s is None else f", at most {units.clock(left_s)} left"
    doing = f"measuring {show(state.at)}{left}" if state.at is not None else "waiting for the lanes"
    return f"crossover over {short_name(state.knob)}: {doing}"


def lane_series_progress(snapshot: Snapshot) -> str:
    """Return the progress of a series."""
    if not all(lane.points for lane in snapshot.lanes):
        return "the lanes get ready"
    return news(snapshot) or doing_text(snapshot)


def crossover_json(analysis: Analysis) -> dict[str, Any] | None:
    """Return the curve of the last crossover. Units: examples/s."""
    curve = analysis.curve
    if curve is None:
        return None
    lanes = zip(curve.lanes, curve.titles, strict=True)
    return {
        "knob": curve.state.knob,
        "lanes": [{**_lane_json(lane), "title": name} for lane, name in lanes],
        "values": [
            {
                "value": point.value,
                "first": estimate_json("examples_per_s", point.first),
                "second": estimate_json("examples_per_s", point.second),
                **ratio_json("ratio", point.ratio),
                "pairs": point.pairs,
                "reason": point.missing or None,
            }
            for point in curve.points
        ],
        "crossings": codec.to_json(curve.crossings),
        "text": curve.text,
        "no_gpu": analysis.snapshot.machine.no_gpu or None,
        "interrupted": curve.state.ended or None,
    }


def tuning_json(analysis: Analysis) -> dict[str, Any] | None:
    """Return the attempts of the tuning, if any."""
    state = analysis.snapshot.tuned
    if state is None:
        return None
    (settings, speed_up), of_lane = best_of(state), analysis.lane(state.lane)
    lane, bottleneck = of_lane.lane, of_lane.bottleneck
    return {
        "lane": _lane_json(lane),
        "began_with": state.present[0].of_lane.before if state.present else lane.settings,
        "attempts": [
            {
                "lane": attempt.of_lane.lane,
                "tried": change_text(attempt),
                "settings": attempt.settings,
                "against": attempt.of_lane.bottleneck,
                "outcome": attempt.outcome,
                "changes": attempt.of_lane.work,
                **_gain_json(attempt.gain),
                "reason": attempt.refused or None,
            }
            for attempt in state.changes
        ],
        "best": {"settings": settings, "code": list(_code_of(state)), **_gain_json(speed_up)},
        "text": analysis.tuned,
        "settings": lane.settings,
        "examples_per_s": lane.steady.examples_per_s,
        "bottleneck": bottleneck.kind if bottleneck else None,
        "bottleneck_text": bottleneck.text if bottleneck else None,
        "error": lane.trouble.message if lane.trouble else None,
        "interrupted": state.ended or None,
    }


def _gain_json(gain: Estimate | None) -> dict[str, Any]:
    return {**ratio_json("gain", gain), "pairs": gain.pairs if gain else None}


def estimate_json(name: str, estimate: Estimate | None) -> dict[str, Any]:
    """Return an estimate, and the interval with suffix `_ci95`."""
    interval = [estimate.low, estimate.high] if estimate else None
    return {name: estimate.value if estimate else None, f"{name}_ci95": interval}


def ratio_json(name: str, estimate: Estimate | None) -> dict[str, Any]:
    """Return an estimate with the kind of interval."""
    return {**estimate_json(name, estimate), "interval_kind": estimate.kind if estimate else None}


def _lane_json(lane: LaneState) -> dict[str, Any]:
    return {name: getattr(lane.spec, name) for name in ("id", "name", "host", "device")}
