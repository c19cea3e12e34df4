"""A sweep: which combinations there are, what each comes to, which can still win, and what to measure next. Pure.

Each combination is raced in turns against the baseline settings on the same device, in visits: some rounds with
fresh processes of both. All that can still win get one visit before any gets another, so that those which cannot
are stopped early. A figure is looked at after every round and one answer is chosen from all combinations, so every
interval is always valid, and as much wider as that choice needs: see `intervals`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from tfmon import units
from tfmon.analysis.crossover import values_of
from tfmon.analysis.intervals import Looks
from tfmon.analysis.statistics import compare_pairs
from tfmon.model.knobs import Knob, KnobError, KnobValue, Settings, find, guess_settings, show
from tfmon.model.race import BetweenProcesses
from tfmon.model.readings import ALWAYS_VALID, Estimate
from tfmon.model.sweep import Combination, Figures, SweepPlan, SweepState, learns_differently

PAIRS_OF_A_VISIT = 16
"""Rounds that a visit has at most: equal processes differ, so more rounds of the same two tell less and less."""
MOST_COMBINATIONS = 2_000
LEAST_CI = 0.01
"""A narrower interval would take too many processes."""
USUAL_VISITS = 2
"""Visits that a combination is supposed to take before the first ones are through."""

OPEN, MEASURED, BEATEN, LIMIT = "open", "measured", "stopped early", "time limit"
REFUSED, FAILED, BASELINE = "refused", "failed", "baseline"
OUTCOMES = (OPEN, MEASURED, BEATEN, LIMIT, REFUSED, FAILED, BASELINE)
"""`measured`: to the interval that is wanted; `stopped early`: it cannot win; `time limit`: it had its time."""


# ---------------------------------------------------------------- which combinations


def parse_over(knobs: Sequence[Knob] | None, words: Sequence[str]) -> dict[str, tuple[KnobValue, ...]]:
    """Read what `--over` says: `batch_size=32,128`, or `batch_size=16..4096` for powers of two.

    Args:
        knobs: Those of the scenario; None for a script, whose knobs are not known before it runs.
        words: What is given, a knob each.

    Raises: KnobError for what cannot be swept.
    """
    over: dict[str, tuple[KnobValue, ...]] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not name or not text:
            raise KnobError(f"{word!r} is not KNOB=VALUE,VALUE or KNOB=LOW..HIGH")
        knob = None if knobs is None else find(knobs, name)
        if name in over:
            raise KnobError(f"{name} is given twice; one list has all its values")
        low, dots, high = text.partition("..")
        values = _range(name, knob, low, high) if dots else _listed(name, knob, text)
        if len(values) < 2:
            raise KnobError(f"{name}={text} is one value; a sweep needs two at least (--set sets one)")
        over[name] = values
    if not over:
        raise KnobError("no knob is swept; name one with its values")
    return over


def _listed(name: str, knob: Knob | None, text: str) -> tuple[KnobValue, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise KnobError(f"{name}={text} has an empty value")
    values = [guess_settings([f"{name}={word}"])[name] if knob is None else knob.parse(word) for word in words]
    return tuple(dict.fromkeys(values))


def _range(name: str, knob: Knob | None, low: str, high: str) -> tuple[KnobValue, ...]:
    try:
        ends = float(low), float(high)
    except ValueError:
        raise KnobError(f"{name}={low}..{high} is no range of numbers, such as 16..4096") from None
    if not 1 <= ends[0] < ends[1] <= 2**40:
        raise KnobError(f"{name}={low}..{high}: a range goes up through powers of two, from 1 on; or list values")
    return values_of(knob or Knob(name, default=1, help="", low=1), *ends)


def combine(
    plan: SweepPlan, defaults: Settings, check: Callable[[Settings], str] = lambda settings: ""
) -> tuple[Combination, ...]:
    """Return all combinations of a plan, on each kind of device, in the order in which they are measured first.

    Args:
        plan: What is swept.
        defaults: The baseline's settings, as far as they are known.
        check: Says why settings are not possible; empty if they are.

    Raises: KnobError for too many.
    """
    count = math.prod(map(len, plan.over.values())) * len(plan.kinds)
    if count > MOST_COMBINATIONS:
        raise KnobError(f"{units.count(count)} combinations are too many; {MOST_COMBINATIONS} is the most")
    grid = [dict(zip(plan.over, values, strict=True)) for values in itertools.product(*plan.over.values())]
    return tuple(
        Combination(
            number,
            kind,
            settings,
            baseline=all(knob in defaults and _same(defaults[knob], value) for knob, value in settings.items()),
            refused=check({**defaults, **settings}),
        )
        for number, (kind, settings) in enumerate(itertools.product(plan.kinds, grid))
    )


def _same(one: KnobValue, other: KnobValue) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


# ---------------------------------------------------------------- what they come to


@dataclass(frozen=True, slots=True)
class Row:
    """What a combination comes to."""

    combination: Combination
    outcome: str = OPEN
    """One of `OUTCOMES`; `open` while more is to be measured."""
    ratio: Estimate | None = None
    """Its throughput over the baseline's; None from too few pairs."""
    learnt: BetweenProcesses | None = None
    """What its visits tell of equal processes."""
    place: str = ""
    """Where it is measured now; empty if it is not."""
    learns: tuple[str, ...] = ()
    """Knobs by which it learns something else than the baseline."""

    @property
    def number(self) -> int:
        """The number of the combination."""
        return self.combination.number

    @property
    def state(self) -> str:
        """Its state in words."""
        if self.outcome != OPEN:
            return self.outcome
        if self.place:
            return "measuring"
        return "tried again" if self.combination.deaths else "waiting"

    @property
    def reason(self) -> str:
        """Why there is no figure, or why it died; empty if all is well."""
        known = self.combination
        return known.refused or known.failed or (known.deaths[-1] if known.deaths else "")


@dataclass(frozen=True, slots=True)
class Found:
    """What a sweep came to so far."""

    state: SweepState
    rows: tuple[Row, ...]
    """By the number of the combination."""
    ranked: tuple[Row, ...]
    """The best first; those without a figure last, in their order."""
    floors: Mapping[str, float]
    """By kind of device, the ratio that the best one has at least: what is certainly below it cannot win."""
    choices: Mapping[str, int]
    """By kind of device, from how many combinations the best is chosen."""
    left_s: float | None
    """About how long it will still take; None while that is not known."""

    @property
    def settled(self) -> int:
        """Of how many nothing more is to be measured."""
        return sum(row.outcome != OPEN for row in self.rows)

    def best(self, kind: str) -> Row | None:
        """Return the best combination on a kind of device; None before anything is known."""
        return next((row for row in self.ranked if row.combination.kind == kind and row.ratio is not None), None)

    def rivals(self, best: Row) -> tuple[Row, ...]:
        """Return the others on its kind of device whose interval reaches into that of the best."""
        low = best.ratio.low if best.ratio else 0.0
        kind = best.combination.kind
        return tuple(
            row
            for row in self.rows
            if row is not best and row.combination.kind == kind and row.ratio is not None and row.ratio.high >= low
        )


def judge(
    combination: Combination, plan: SweepPlan, choices: int, floor: float, prior: BetweenProcesses | None = None
) -> Row:
    """Return what a combination comes to.

    Args:
        combination: It, and its pairs.
        plan: What is measured.
        choices: From how many combinations one is chosen.
        floor: See `Found.floors`.
        prior: What the other combinations tell of equal processes.
    """
    learns = learns_differently(combination.settings, plan.baseline)
    if combination.baseline:
        return Row(combination, BASELINE, Estimate(1.0, 1.0, 1.0, 0, ALWAYS_VALID))
    pairs = combination.pairs
    found = compare_pairs(
        [pair.log for pair in pairs], [pair.leads for pair in pairs], [pair.visit for pair in pairs], prior
    )
    logs = found.estimate(Looks(ALWAYS_VALID, choices=choices)) if found is not None else None
    learnt = found.between.learnt if found is not None and found.between is not None else None
    row = Row(combination, OPEN, logs, learnt, learns=learns)
    return replace(row, outcome=_outcome(row, plan, floor))


def _outcome(row: Row, plan: SweepPlan, floor: float) -> str:
    known, ratio = row.combination, row.ratio
    if known.refused:
        return REFUSED
    if known.failed:
        return FAILED
    if ratio is not None and ratio.half_width <= plan.until_ci:
        return MEASURED
    if ratio is not None and ratio.high < floor and not plan.everything:
        return BEATEN
    return LIMIT if known.measured_s >= plan.each_s else OPEN


def choices_of(combinations: Iterable[Combination], kind: str) -> int:
    """Return from how many combinations the best on a kind of device is chosen, beside the baseline."""
    counted = sum(one.kind == kind and not one.baseline and not one.refused for one in combinations)
    return max(1, counted)


def rank(state: SweepState, before: Found | None = None) -> Found:
    """Return what a sweep came to so far; `before` spares the figures of combinations that nothing happened to."""
    choices = {kind: choices_of(state.combinations, kind) for kind in state.plan.kinds}
    earlier = before.rows if before is not None and len(before.rows) == len(state.combinations) else ()
    pooled = _pooled(earlier)
    rows = []
    for one in state.combinations:
        old = earlier[one.number] if earlier else None
        if old is not None and old.combination is one:
            rows.append(old)
        else:
            prior = None if pooled is None else _less(pooled, old.learnt if old is not None else None)
            rows.append(judge(one, state.plan, choices[one.kind], 0.0, prior))
    floors = {kind: floor_of(rows, kind) for kind in state.plan.kinds}
    settled = []
    for row in rows:
        floor, place = floors[row.combination.kind], state.running.get(row.number, "")
        outcome = row.outcome if row.outcome == BASELINE else _outcome(row, state.plan, floor)
        same = row.outcome == outcome and row.place == place
        settled.append(row if same else replace(row, outcome=outcome, place=place))
    shown = tuple(_with_speed(row, settled) if row.outcome == BASELINE else row for row in settled)
    ranked = sorted(shown, key=lambda row: (row.ratio is None, -row.ratio.value if row.ratio else 0))
    return Found(state, shown, tuple(ranked), floors, choices, _left_s(state, settled))


def _with_speed(baseline: Row, rows: Sequence[Row]) -> Row:
    """Return the row of the baseline with the throughput that it had beside the others."""
    beside = [
        row.combination.figures
        for row in rows
        if row.combination.figures is not None and row.combination.kind == baseline.combination.kind
    ]
    speeds = [figures.baseline_examples_per_s for figures in beside if figures.baseline_examples_per_s]
    if not speeds:
        return baseline
    figures = Figures(beside[0].place, median(speeds))
    return replace(baseline, combination=replace(baseline.combination, figures=figures))


def floor_of(rows: Iterable[Row], kind: str) -> float:
    """Return the ratio that the best combination on a kind of device has at least; the baseline's is 1."""
    lows = [row.ratio.low for row in rows if row.ratio is not None and row.combination.kind == kind]
    return max([1.0, *lows])


def _pooled(rows: Sequence[Row]) -> BetweenProcesses | None:
    """Return what all combinations tell of equal processes."""
    learnt = [row.learnt for row in rows if row.learnt is not None]
    if not learnt:
        return None
    return BetweenProcesses(sum(one.squares for one in learnt), sum(one.degrees for one in learnt), len(learnt))


def _less(pooled: BetweenProcesses, own: BetweenProcesses | None) -> BetweenProcesses | None:
    """Return what the others tell, without a combination's own part."""
    if own is None:
        return pooled
    degrees = pooled.degrees - own.degrees
    return BetweenProcesses(pooled.squares - own.squares, degrees, pooled.races - 1) if degrees > 0 else None


# ---------------------------------------------------------------- what to measure next


def next_due(rows: Sequence[Row], kind: str, busy: Collection[int]) -> int | None:
    """Return the number of the combination to measure next on a kind of device; None for none.

    The one with the fewest visits, so that all have one before any has another.
    """
    due = [
        row.combination
        for row in rows
        if row.outcome == OPEN and row.combination.kind == kind and row.number not in busy
    ]
    return min(due, key=lambda one: (one.visits, one.number)).number if due else None


def _left_s(state: SweepState, rows: Sequence[Row]) -> float | None:
    """Return how long the open combinations take, if each takes as many visits as those that are through."""
    if not state.visits_s:
        return None
    through = [row.combination.visits for row in rows if row.outcome in (MEASURED, BEATEN, LIMIT)]
    usual = max(1.0, sum(through) / len(through)) if through else USUAL_VISITS
    visits = sum(max(1.0, usual - row.combination.visits) for row in rows if row.outcome == OPEN)
    each_s = sum(state.visits_s) / len(state.visits_s)
    return visits * each_s / max(1, len(state.running))


# ---------------------------------------------------------------- in words


def settings_text(settings: Settings) -> str:
    """Name settings as the command line takes them: "batch_size=512 mixed_precision=off"."""
    return " ".join(f"{knob}={show(value)}" for knob, value in settings.items())


def answer(found: Found) -> list[str]:
    """Say which combination is the best, on each kind of device."""
    lines = []
    several = len(found.state.plan.kinds) > 1
    for kind in found.state.plan.kinds:
        where, best = f" on {kind}" if several else "", found.best(kind)
        others = [row for row in found.rows if row.combination.kind == kind and row.outcome != BASELINE]
        if best is None or best.ratio is None or not any(row.ratio for row in others):
            lines.append(f"nothing is measured yet{where}")
            continue
        name = settings_text(best.combination.settings)
        if best.ratio.high < 1:
            factor, interval = units.ratio_in(best.ratio.value, best.ratio.low, best.ratio.high)
            line = f"nothing is faster than the baseline{where}; the nearest is {name}, {factor} ({interval})"
        elif best.outcome == BASELINE:
            line = f"best{where}: the baseline, {name}"
        else:
            factor, interval = units.ratio_in(best.ratio.value, best.ratio.low, best.ratio.high)
            line = f"best{where}: {name}, {factor} the baseline's throughput ({interval})"
        rivals = found.rivals(best)
        if rivals:
            named = settings_text(rivals[0].combination.settings) if len(rivals) == 1 else f"{len(rivals)} others"
            line += f"; {named} cannot be told from it"
        if best.learns:
            line += f"; it does not learn the same: {learns_text(best)}"
        lines.append(line)
    return lines


def learns_text(row: Row) -> str:
    """Say by what a combination learns something else than the baseline: "another batch size"."""
    return " and ".join(f"another {knob.replace('_', ' ')}" for knob in row.learns)


def progress_text(found: Found) -> str:
    """Say how far a sweep is: "12 of 48 settled, about 20 min left"."""
    left = f", about {units.about(found.left_s)} left" if found.left_s and not found.state.over else ""
    return f"{found.settled} of {len(found.rows)} settled{left}"


# ---------------------------------------------------------------- curves


@dataclass(frozen=True, slots=True)
class SweepCurve:
    """The ratio over the values of one numeric knob, on one kind of device."""

    knob: str
    kind: str
    values: tuple[KnobValue, ...]
    """From the lowest."""
    series: tuple[tuple[Settings, tuple[Estimate | None, ...]], ...]
    """For each setting of the other knobs, the ratio at each value; the best series first."""


def curves_of(found: Found) -> tuple[SweepCurve, ...]:
    """Return a curve for each knob that is swept over numbers, and each kind of device."""
    plan, curves = found.state.plan, []
    for knob, kind in itertools.product(plan.over, plan.kinds):
        values = [
            value for value in plan.over[knob] if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        if len(values) < 2:
            continue
        series: dict[tuple[KnobValue, ...], dict[KnobValue, Estimate]] = {}
        for row in found.ranked:  # the series with the best one comes first
            settings = row.combination.settings
            if row.combination.kind == kind and row.ratio is not None and settings[knob] in values:
                others = tuple(value for name, value in settings.items() if name != knob)
                series.setdefault(others, {})[settings[knob]] = row.ratio
        names = [name for name in plan.over if name != knob]
        ordered = tuple(sorted(values))
        curves.append(
            SweepCurve(
                knob,
                kind,
                ordered,
                tuple(
                    (dict(zip(names, others, strict=True)), tuple(map(known.get, ordered)))
                    for others, known in series.items()
                ),
            )
        )
    return tuple(curves)
