"""The result of each combination of a sweep, and the next measurement.

Each combination is raced against the baseline on the same device, in visits of some rounds with fresh processes.
The best combination is chosen at any time, so every interval is always valid, and wider for that choice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import median

from tfmon import units
from tfmon.analysis.crossover_curve import values_of
from tfmon.analysis.intervals import Looks
from tfmon.analysis.statistics import LogRatio, compare
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.knobs import Knob, KnobError, KnobValue, Settings, find, guess_settings
from tfmon.model.lane_relations import distinct
from tfmon.model.race import BetweenProcesses
from tfmon.model.readings import ALWAYS_VALID, Estimate
from tfmon.model.series import Attempt, Figures, SeriesPlan, SeriesState, learns_differently
from tfmon.model.spec import DEVICE_KNOBS, counted

PAIRS_OF_A_VISIT = 16
"""More rounds of the same two processes add little."""

OPEN, MEASURED, BEATEN, LIMIT = "open", "measured", "stopped early", "time limit"
REFUSED, FAILED, BASELINE = "refused", "failed", "baseline"
OUTCOMES = (OPEN, MEASURED, BEATEN, LIMIT, REFUSED, FAILED, BASELINE)
"""`stopped early`: the combination cannot win."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """The result of a combination."""

    attempt: Attempt
    outcome: str = OPEN
    ratio: Estimate | None = None
    """Throughput over the baseline's."""
    learns: tuple[str, ...] = ()
    """Knobs that change the training."""
    place: str = ""
    over: bool = False

    @property
    def figures(self) -> Figures:
        """The other figures, unknown before the first visit has ended."""
        return self.attempt.figures or Figures(self.place)

    @property
    def state(self) -> str:
        """The state in words."""
        if self.outcome != OPEN:
            return self.outcome
        return "measuring" if self.place else "not settled" if self.over else "waiting"

    @property
    def span(self) -> tuple[float, float, float]:
        """The ratio with its interval's ends."""
        ratio = self.ratio
        return (ratio.low, ratio.value, ratio.high) if ratio is not None else (0.0, 0.0, math.inf)

    @property
    def settled(self) -> bool:
        """Whether the combination needs no more measurements."""
        return self.outcome != OPEN

    @property
    def rated(self) -> bool:
        """Whether the combination has a usable ratio."""
        return self.ratio is not None and self.outcome not in (REFUSED, FAILED)

    @property
    def reason(self) -> str:
        """Why the combination has no ratio, or ""."""
        known = self.attempt
        if known.refused or known.failed:
            return known.refused or known.failed
        if self.ratio is not None:
            return ""
        if known.deaths:
            return f"an earlier visit: {known.deaths[-1]}" if self.outcome == OPEN else known.deaths[-1]
        return f"{len(known.pairs)} pairs are too few for a ratio" if self.outcome == LIMIT else ""


@dataclass(frozen=True)
class Ranking:
    """The state of a sweep."""

    state: SeriesState
    rows: tuple[SweepRow, ...]
    floors: Mapping[str, float]
    """Minimum ratio of the best by device. A certainly lower combination cannot win."""
    choices: Mapping[str, int]
    results: tuple[LogRatio | None, ...]

    @cached_property
    def ranked(self) -> tuple[SweepRow, ...]:
        """The best first, then the settled rows."""
        bests = {id(self.best(kind)) for kind in self.state.plan.kinds}

        def key(row: SweepRow) -> tuple[bool, bool, bool, float]:
            return not row.rated, id(row) not in bests, row.rated and not row.settled, -row.span[1]

        return tuple(sorted(self.rows, key=key))

    @cached_property
    def left_s(self) -> float | None:
        """Longest remaining time, if known."""
        return _left_s(self.state, self.rows)

    @property
    def baseline(self) -> dict[str, KnobValue]:
        """The baseline's values of the swept knobs."""
        measured = next((row.figures.baseline for row in self.rows if row.figures.baseline), {})
        known = {**measured, **self.state.plan.baseline}
        return {knob: known[knob] for knob in self.state.plan.over if knob in known}

    @property
    def settled(self) -> int:
        """Number of settled combinations."""
        return sum(row.settled for row in self.rows)

    @property
    def over(self) -> bool:
        """Whether nothing more is measured."""
        return self.state.over or self.settled == len(self.rows)

    def best(self, kind: str) -> SweepRow | None:
        """Return the best combination on a kind of device, or the leading one.

        An unsettled combination is the best only if it is certainly faster than all settled combinations.
        """
        rated = [row for row in self.rows if row.attempt.kind == kind and row.rated]
        if all(row.outcome == BASELINE for row in rated):
            return None
        winners = [row for row in rated if row.settled and row.span[0] > 1]
        best = max(winners, key=lambda row: row.span, default=None)
        floor = best.span[2] if best is not None else 1.0
        surer = [row for row in rated if not row.settled and row.span[0] > floor]
        nearest = max(rated, key=lambda row: (row.span[2] >= 1, row.settled, row.span[1]))
        return max(surer, key=lambda row: row.span, default=best or nearest)

    @property
    def answered(self) -> bool:
        """Whether any combination has a ratio."""
        return any(row.ratio is not None and row.outcome != BASELINE for row in self.rows)

    def rivals(self, best: SweepRow) -> tuple[SweepRow, ...]:
        """Return the combinations whose interval overlaps the interval of the best."""
        kind = [row for row in self.rows if row is not best and row.attempt.kind == best.attempt.kind]
        return tuple(row for row in kind if row.rated and row.span[2] >= best.span[0])


def judge(attempt: Attempt, plan: SeriesPlan, choices: int, floor: float, result: LogRatio | None) -> SweepRow:
    """Return the result of a combination."""
    if attempt.baseline:
        return SweepRow(attempt, BASELINE, Estimate(1.0, 1.0, 1.0, 0, ALWAYS_VALID))
    ratio = result.estimate(Looks(ALWAYS_VALID, choices=choices)) if result is not None else None
    learns = learns_differently(attempt.settings, plan.baseline)
    return SweepRow(attempt, _outcome(attempt, ratio, plan, floor), ratio, learns)


def _outcome(attempt: Attempt, ratio: Estimate | None, plan: SeriesPlan, floor: float) -> str:
    if attempt.baseline:
        return BASELINE
    if attempt.refused:
        return REFUSED
    if attempt.failed:
        return FAILED
    if ratio is not None and ratio.half_width <= plan.until_ci:
        return MEASURED
    if attempt.measured_s >= plan.each_s:
        return LIMIT
    return BEATEN if ratio is not None and ratio.high < floor and not plan.everything else OPEN


def rank(state: SeriesState, before: Ranking | None = None) -> Ranking:
    """Return the results so far. Comparisons of unchanged combinations are taken from `before`."""
    plan, attempts = state.plan, state.attempts
    compared = [attempt for attempt in attempts if not (attempt.baseline or attempt.refused)]
    choices = {kind: max(1, sum(attempt.kind == kind for attempt in compared)) for kind in plan.kinds}
    known = dict(zip(map(id, before.state.attempts), before.results, strict=True)) if before is not None else {}
    results = tuple(known[id(attempt)] if id(attempt) in known else compare(attempt.pairs) for attempt in attempts)
    learnt = [result.between.learnt for result in results if result is not None and result.between.learnt]
    squares, degrees = (sum(getattr(part, name) for part in learnt) for name in ("squares", "degrees"))
    rows = []
    for attempt, result in zip(attempts, results, strict=True):
        if result is not None:
            less = result.between.learnt or BetweenProcesses(0.0, 0, 0)
            rest = BetweenProcesses(squares - less.squares, degrees - less.degrees, len(learnt) - less.races)
            result = replace(result, between=result.between.with_prior(rest if rest.degrees > 0 else None))
        rows.append(judge(attempt, plan, choices[attempt.kind], 0.0, result))
    floors = dict.fromkeys(plan.kinds, 1.0)
    for row in rows:
        if row.rated:
            floors[row.attempt.kind] = max(floors[row.attempt.kind], row.span[0])
    for number, row in enumerate(rows):
        attempt = _with_speed(row.attempt, attempts) if row.attempt.baseline else row.attempt
        outcome, device = _outcome(attempt, row.ratio, plan, floors[attempt.kind]), state.running.get(number, "")
        rows[number] = replace(row, attempt=attempt, outcome=outcome, place=device, over=state.over)
    return Ranking(state, tuple(rows), floors, choices, results)


def _with_speed(baseline: Attempt, attempts: Iterable[Attempt]) -> Attempt:
    figures = [attempt.figures for attempt in attempts if attempt.kind == baseline.kind and attempt.figures]
    figures = [known for known in figures if known.baseline_examples_per_s]
    if not figures:
        return baseline
    speed = median(known.baseline_examples_per_s or 0.0 for known in figures)
    return replace(baseline, figures=Figures(figures[0].place, speed))


def _left_s(state: SeriesState, rows: Sequence[SweepRow]) -> float | None:
    visited = [attempt for attempt in state.attempts if attempt.pairs]
    visited = [attempt for attempt in visited if attempt.number not in state.running] or visited
    measured_s, visits = sum(attempt.measured_s for attempt in visited), sum(attempt.visits for attempt in visited)
    if not state.visits_s or not measured_s:
        return None
    start_s = max(0.0, sum(state.visits_s) / len(state.visits_s) - measured_s / visits)
    visit_s = PAIRS_OF_A_VISIT * measured_s / sum(len(attempt.pairs) for attempt in visited)
    due_s = [max(0.0, state.plan.each_s - row.attempt.measured_s) for row in rows if not row.settled]
    left_s = sum(visit_due_s + start_s * math.ceil(visit_due_s / visit_s) for visit_due_s in due_s)
    return left_s / max(1, len(state.running))


MOST_COMBINATIONS = 2_000


def parse_over(knobs: Sequence[Knob] | None, assignments: Sequence[str]) -> dict[str, tuple[KnobValue, ...]]:
    """Parse `--over`, such as `batch_size=16..4096` for powers of two; raises KnobError."""
    over: dict[str, tuple[KnobValue, ...]] = {}
    for word in assignments:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not name or not text:
            raise KnobError(f"{word!r} is not KNOB=VALUE,VALUE or KNOB=LOW..HIGH")
        knob = next((device_knob for device_knob in DEVICE_KNOBS if device_knob.name == name), None)
        knob = knob or (None if knobs is None else find(knobs, name))
        if name in over:
            raise KnobError(f"{name} is given twice; one list has all its values")
        low, dots, high = text.partition("..")
        values = _range(name, knob, low, high) if dots else _listed(name, knob, text)
        if len(values) < 2:
            raise KnobError(f"{name}={text} is one value; a sweep needs two at least")
        over[name] = values
    if not over:
        raise KnobError("no knob is swept; name one with its values")
    counted(over)
    return over


def _listed(name: str, knob: Knob | None, text: str) -> tuple[KnobValue, ...]:
    parts = [word.strip() for word in text.split(",")]
    if not all(parts):
        raise KnobError(f"{name}={text} has an empty value")
    values = [guess_settings([f"{name}={word}"])[name] if knob is None else knob.parse(word) for word in parts]
    return tuple(dict.fromkeys(values))


def _range(name: str, knob: Knob | None, low: str, high: str) -> tuple[KnobValue, ...]:
    try:
        ends = float(low), float(high)
    except ValueError:
        raise KnobError(f"{name}={low}..{high} is not a range of numbers, such as 16..4096") from None
    if not 1 <= ends[0] < ends[1] <= 2**40:
        raise KnobError(f"{name}={low}..{high}: a range goes up through powers of two, from 1 on; or list values")
    return values_of(knob or Knob(name, default=1, help="", low=1), *ends)


def combine(
    plan: SeriesPlan, defaults: Settings, check: Callable[[Settings, str], str] = lambda settings, kind: ""
) -> tuple[Attempt, ...]:
    """Return all combinations in order. Raises KnobError for too many."""
    count = math.prod(map(len, plan.over.values())) * len(plan.kinds)
    if count > MOST_COMBINATIONS:
        raise KnobError(f"{units.count(count)} combinations are too many; {MOST_COMBINATIONS} is the most")
    grid = [dict(zip(plan.over, values, strict=True)) for values in itertools.product(*plan.over.values())]
    attempts = []
    for number, (kind, settings) in enumerate(itertools.product(plan.kinds, grid)):
        is_baseline = all(distinct(defaults.get(knob)) == distinct(value) for knob, value in settings.items())
        refused = check({**defaults, **settings}, kind)
        attempts.append(Attempt(number, kind, settings, baseline=is_baseline, refused=refused))
    return tuple(attempts)
