"""The crossover: the value of a knob at which one lane overtakes the other.

Two lanes race at powers of two of the knob. Values next to a change of the lead get more pairs. Between values,
the log of the ratio is assumed linear in the log of the knob.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from tfmon import units
from tfmon.analysis.intervals import LEAST_PAIRS, trimmed_in_time
from tfmon.analysis.statistics import compare
from tfmon.errors import ExperimentError
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import Knob, KnobError, KnobValue, find, show
from tfmon.model.lane_state import LaneState
from tfmon.model.race import BetweenProcesses
from tfmon.model.readings import Estimate
from tfmon.model.series import CROSSOVER, Attempt, SeriesPlan, SeriesState
from tfmon.model.session import Snapshot
from tfmon.model.spec import LaneSpec, title

FIRST_PAIRS = LEAST_PAIRS + 1
SURE_PAIRS = 12
"""Minimum pairs next to a change of the lead."""
MOST_PAIRS = 24
LONG_PAIR_S = 20.0
HIGHEST = 4_096


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The measurements at one value of the knob."""

    value: KnobValue
    first: Estimate | None
    second: Estimate | None
    ratio: Estimate | None
    pairs: int = 0
    refused: str = ""
    """Why this value cannot be measured."""
    missing: str = ""

    @property
    def sure(self) -> bool:
        """Whether the faster lane is certain."""
        return self.ratio is not None and self.ratio.clear_of(1)


@dataclass(frozen=True, slots=True)
class Crossing:
    """A change of the lead."""

    about: float
    between: tuple[float, float]
    """The interval of the crossing."""
    ahead_above: str
    """The faster lane above the crossing."""
    ahead_below: str


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve so far, and the answer."""

    state: SeriesState
    lanes: tuple[LaneState, ...]
    titles: tuple[str, str]
    left_s: float | None
    """Upper bound of the remaining time."""
    points: tuple[CurvePoint, ...]
    crossings: tuple[Crossing, ...]
    text: str


def values_of(knob: Knob, low: float | None, high: float | None) -> tuple[KnobValue, ...]:
    """Return a range's powers of two. Raises KnobError for fewer than two."""
    if isinstance(knob.default, bool | str) and knob.low is None and knob.high is None:
        raise KnobError(f"{knob.name} takes {knob.allowed()}; a crossover needs a knob that is a number")
    least = max(bound for bound in (low, knob.low, 1) if bound is not None)
    most = min(bound for bound in (high if high is not None else HIGHEST, knob.high) if bound is not None)
    powers = [2**exponent for exponent in range(40) if least <= 2**exponent <= most]
    if len(powers) < 2:
        raise KnobError(f"{knob.name} has fewer than two powers of two from {least:g} to {most:g}")
    return tuple(float(power) for power in powers) if isinstance(knob.default, float) else tuple(powers)


def plan_crossover(
    knobs: Sequence[Knob],
    lanes: Sequence[LaneSpec],
    knob: str,
    bounds: tuple[float | None, float | None] = (None, None),
    examples: int | None = None,
) -> SeriesState:
    """Plan a crossover of the first two lanes. Raises ExperimentError."""
    if len(lanes) < 2:
        raise ExperimentError("a crossover compares two lanes that train; this race has fewer")
    low, high = bounds
    if knob == "batch_size" and examples is not None:
        high = min(examples, HIGHEST if high is None else high)
    try:
        values = values_of(find(knobs, knob), low, high)
    except KnobError as error:
        raise ExperimentError(str(error)) from error
    if differ_only_in(knob, lanes[0], lanes[1]):
        raise ExperimentError(
            f"the lanes differ only in {knob.replace('_', ' ')}, which a crossover sets to one value in both, so "
            "they would be alike; choose another knob, or lanes that differ in something else"
        )
    return crossover_of(knob, (lanes[0].name, lanes[1].name), values)


def crossover_of(knob: str, lanes: tuple[str, str], values: Sequence[KnobValue]) -> SeriesState:
    """Return a crossover before its start."""
    plan = SeriesPlan(CROSSOVER, {knob: tuple(values)}, lanes)
    return SeriesState(plan, tuple(Attempt(number, "", {knob: value}) for number, value in enumerate(values)))


def differ_only_in(knob: str, first: LaneSpec, second: LaneSpec) -> bool:
    """Return whether two lanes differ only in a knob."""
    settings = [{name: value for name, value in lane.settings.items() if name != knob} for lane in (first, second)]
    return first.place == second.place and settings[0] == settings[1]


def range_around(knob: Knob, values: Sequence[KnobValue], examples: int | None = None) -> tuple[int, int]:
    """Return a proposed range of values."""
    possible = [int(value) for value in values_of(knob, None, examples if knob.name == "batch_size" else None)]
    known = [float(value) for value in values if isinstance(value, int | float) and value >= 1] or [possible[0]]
    within = [value for value in possible if min(known) / 8 <= value <= max(known) * 16]
    return (within[0], within[-1]) if len(within) > 1 else (possible[0], possible[-1])


def curve_of(snapshot: Snapshot, state: SeriesState) -> Curve:
    """Return the curve so far."""
    lanes = tuple(map(snapshot.lane, state.plan.lanes))
    first, second = state.under or [lane.settings for lane in lanes]
    differs = [knob for knob, value in first.items() if second.get(knob) != value and knob != state.knob]
    titles = title(lanes[0].spec, first, differs), title(lanes[1].spec, second, differs)
    two_machines = snapshot.machine_key(lanes[0]) != snapshot.machine_key(lanes[1])
    points = tuple(_points(state, snapshot.race.between, two_machines=two_machines))
    crossings = _crossings(points, *titles)
    answer = _answer(state, points, crossings, titles)
    left_s = None
    if state.visits_s and not state.over:  # every visit measures `FIRST_PAIRS` pairs
        left_s = pairs_left(points) * sum(state.visits_s) / len(state.visits_s) / FIRST_PAIRS
    return Curve(state, lanes, titles, left_s, points, crossings, answer)


def next_value(points: Sequence[CurvePoint]) -> tuple[KnobValue, int] | None:
    """Return the next value and its required pairs."""
    open_points = [point for point in points if not point.refused]
    for point in open_points:
        if point.pairs < FIRST_PAIRS:
            return point.value, FIRST_PAIRS
    fewest = min(_near_crossings(open_points), key=lambda point: point.pairs, default=None)
    return None if fewest is None else (fewest.value, fewest.pairs + FIRST_PAIRS)


def pairs_left(points: Sequence[CurvePoint]) -> int:
    """Return the most pairs that are still needed."""
    open_points, most = [point for point in points if not point.refused], 0
    for at, point in enumerate(open_points):
        leads = {_lead(near) if near.sure else None for near in open_points[max(0, at - 1) : at + 2]}
        if len(leads) > 1 or None in leads:
            most += max(0, (SURE_PAIRS if point.sure else MOST_PAIRS) - point.pairs)
    return most if next_value(points) is not None else 0


def ahead_text(point: CurvePoint, ids: tuple[str, str]) -> str:
    """Return text such as "B 1.31× (1.27 to 1.35, 6 pairs)"."""
    ratio, who = point.ratio, ids[0] if point.sure else "/".join(ids)
    if ratio is None:
        return f"{units.several(point.pairs, 'pair')} so far" if point.pairs else "–"
    if point.sure and ratio.value < 1:
        ratio, who = ratio.inverse, ids[1]
    factor, interval = units.ratio_in(ratio.value, ratio.low, ratio.high)
    return f"{who} {factor} ({interval}, {ratio.pairs} pairs){'' if point.sure else ', too close'}"


def _points(state: SeriesState, between: BetweenProcesses | None, *, two_machines: bool) -> Iterator[CurvePoint]:
    slow = ""
    for attempt in state.attempts:
        pairs, value = attempt.pairs, attempt.settings[state.knob]
        logs = [pair.base + pair.log for pair in pairs], [pair.base for pair in pairs]
        first, second = (None if center is None else center.estimate() for center in map(trimmed_in_time, logs))
        result = compare(pairs, between, two_machines=two_machines)
        ratio = result.estimate() if result is not None else None
        refused, missing = attempt.refused or ("" if pairs else slow), ""
        if ratio is None:
            missing = f"{units.several(len(pairs), 'pair')}: too few" if pairs else "not measured"
            missing = refused or (missing if state.over else "")
        yield CurvePoint(value, first, second, ratio, len(pairs), refused, missing)
        pair_s = attempt.measured_s / len(pairs) if pairs else 0.0
        if not slow and pair_s > LONG_PAIR_S:
            slow = f"not measured: a pair takes {pair_s:.0f} s at {value} already"


def _near_crossings(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    known = [point for point in points if point.ratio is not None]
    near = []
    for at, point in enumerate(known):
        around = known[max(0, at - 1) : at + 2]
        flips, doubtful = len(set(map(_lead, around))) > 1, not any(other.sure for other in around)
        if point.pairs < (SURE_PAIRS if point.sure else MOST_PAIRS) and (flips or doubtful):
            near.append(point)
    return near


def _lead(point: CurvePoint) -> bool:
    return point.ratio is not None and point.ratio.value > 1


def _crossings(points: Sequence[CurvePoint], first: str, second: str) -> tuple[Crossing, ...]:
    result = []
    known = [point for point in points if point.ratio is not None]
    sure = [at for at, point in enumerate(known) if point.sure]
    for left, right in itertools.pairwise(sure):
        if _lead(known[left]) != _lead(known[right]):
            ahead, behind = (first, second) if _lead(known[right]) else (second, first)
            result.append(Crossing(*_where(known[left : right + 1]), ahead, behind))
    return tuple(result)


def _where(stretch: Sequence[CurvePoint]) -> tuple[float, tuple[float, float]]:
    """Return where the ratio passes 1, and the ends of the interval."""
    logs = [math.log2(float(point.value)) for point in stretch]
    rises = _lead(stretch[-1])
    passes = []
    for part in ("low", "value", "high"):
        heights = [math.log(getattr(point.ratio, part)) * (1 if rises else -1) for point in stretch]
        at = next(index for index in range(1, len(heights)) if heights[index] > 0)
        below, above = heights[at - 1], heights[at]
        share = 1.0 if above == below else max(0.0, min(1.0, -below / (above - below)))
        passes.append(2 ** (logs[at - 1] + (logs[at] - logs[at - 1]) * share))
    low, about, high = sorted(passes)
    return about, (low, high)


def _answer(
    state: SeriesState, points: Sequence[CurvePoint], crossings: Sequence[Crossing], titles: tuple[str, str]
) -> str:
    known = [point for point in points if point.ratio is not None]
    if not known:
        if any(point.pairs for point in points):
            return "too few pairs for an answer" if state.over else "too few pairs yet"
        return "nothing was measured" if state.over else "nothing is measured yet"
    low, high = show(known[0].value), show(known[-1].value)
    span = f"from {low} to {high}" if low != high else f"at {low}"
    sure = [point for point in known if point.sure]
    if crossings:
        what = state.knob.replace("_", " ")
        answer = "; then ".join(
            f"{crossing.ahead_above} overtakes {crossing.ahead_below} at a {what} of about "
            f"{_rounded(crossing.about)} (between {' and '.join(map(_rounded, crossing.between))})"
            for crossing in crossings
        )
    elif not sure:
        answer = f"too close to call {span}: neither lane is clearly faster"
    else:
        winner, loser = titles if _lead(sure[0]) else (titles[1], titles[0])
        factors = [max(point.ratio.value, 1 / point.ratio.value) for point in sure if point.ratio is not None]
        by = " to ".join(dict.fromkeys(map(units.ratio, (min(factors), max(factors)))))
        where, doubt = "throughout", ""
        if len(sure) < len(known):
            where, doubt = f"at {len(sure)} of {len(known)} values", "; too close to call at the others"
        seen = " so far" if not state.over else "" if len(sure) == len(points) else " seen"
        answer = f"no crossing{seen} {span}: {winner} is faster than {loser} {where}, by {by}{doubt}"
    return answer + _unknown(state, points) if state.over else answer


def _unknown(state: SeriesState, points: Sequence[CurvePoint]) -> str:
    values = [point.value for point in points if point.ratio is None]
    if not values:
        return "; stopped before it was certain" if state.ended else ""
    listed = ", ".join(map(show, values))
    if len(values) > 2 and list(state.values)[-len(values) :] == values:
        listed = f"{show(values[0])} to {show(values[-1])}"
    verb = "was" if len(values) == 1 else "were"
    return f"; stopped before {listed} {verb} measured" if state.ended else f"; {listed} {verb} not measured"


def _rounded(value: float) -> str:
    digits = max(0, math.floor(math.log10(value)) - 1) if value >= 1 else 0
    rounded = round(value, -digits)
    return units.count(int(rounded)) if value >= 9.5 else f"{value:.2g}"
