"""A crossover and a tuning: as JSON objects of their own, and in sections of the race that they were part of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.crossover import Curve, ahead_text, ended_text
from tfmon.analysis.curve_chart import draw_curve
from tfmon.analysis.tuning import ALL_TRIED, Best, best_text, change_text, gain_text, outcome_text
from tfmon.model.knobs import show
from tfmon.model.race import CrossoverState, TuneState
from tfmon.model.readings import Estimate
from tfmon.reports import charts, estimate_json, head, lane_json, recording_json
from tfmon.reports.charts import Series
from tfmon.reports.sections import DASH, VERDICT, Block, Chart, Code, Lines, Note, Table

CHART = (90, 16)
"""Cells and rows of the chart of a crossover."""


def crossover_to_json(found: Analysis) -> dict[str, Any]:
    """Return the result of the crossover of a snapshot as plain values.

    Units: throughput in examples/s; `ratio` is the first lane's throughput over the second's.
    """
    snapshot = found.snapshot
    state, curve = _crossover(found)
    lanes = [snapshot.lane(name) for name in state.lanes]
    return {
        **head(),
        "scenario": snapshot.race.scenario,
        "knob": curve.knob,
        "lanes": [{**lane_json(lane), "title": name} for lane, name in zip(lanes, curve.titles, strict=True)],
        "values": [
            {
                "value": point.value,
                "first": estimate_json("examples_per_s", point.first),
                "second": estimate_json("examples_per_s", point.second),
                **estimate_json("ratio", point.ratio),
                "interval_kind": point.ratio.kind if point.ratio else None,
                "pairs": point.pairs,
                "reason": point.refused or None,
            }
            for point in curve.places
        ],
        "crossings": [
            {
                "about": crossing.about,
                "between": [crossing.low, crossing.high],
                "ahead_above": crossing.ahead,
                "ahead_below": crossing.behind,
            }
            for crossing in curve.crossings
        ],
        "text": curve.text,
        "no_gpu": snapshot.machine.no_gpu or None,
        "interrupted": state.ended or None,
        **recording_json(snapshot),
    }


def _crossover(found: Analysis) -> tuple[CrossoverState, Curve]:
    state = found.snapshot.experiment
    if not isinstance(state, CrossoverState) or found.curve is None:
        raise ValueError("the last experiment of this snapshot is not a crossover")
    return state, found.curve


def tuning_to_json(found: Analysis) -> dict[str, Any]:
    """Return the attempts of the tuning of a snapshot as plain values. A gain is throughput over throughput."""
    snapshot, state, tuned = found.snapshot, found.snapshot.tuned, found.tuning
    if state is None or tuned is None:
        raise ValueError("nothing was tuned in this snapshot")
    analysed, best = found.lane(state.lane), tuned.best
    lane, bottleneck = analysed.lane, analysed.bottleneck
    return {
        **head(),
        "scenario": snapshot.race.scenario,
        "lane": lane_json(lane),
        "began_with": state.attempts[0].before if state.attempts else lane.settings,
        "attempts": [
            {
                "tried": change_text(attempt),
                "settings": attempt.change,
                "against": attempt.bottleneck,
                "outcome": attempt.outcome,
                **_gain_json(attempt.gain),
                "reason": attempt.reason or None,
            }
            for attempt in state.attempts
        ],
        "best": {"settings": best.settings, "code": list(best.code), **_gain_json(best.speed_up)},
        "settings": lane.settings,
        "examples_per_s": lane.steady.examples_per_s,
        "bottleneck": bottleneck.kind if bottleneck else None,
        "bottleneck_text": bottleneck.text if bottleneck else None,
        "error": lane.trouble.message if lane.trouble else None,
        "interrupted": state.ended or None,
        **recording_json(snapshot),
    }


def _gain_json(gain: Estimate | None) -> dict[str, Any]:
    return {
        **estimate_json("gain", gain),
        "interval_kind": gain.kind if gain else None,
        "pairs": gain.pairs if gain else None,
    }


# ---------------------------------------------------------------- in sections


def is_all(found: Analysis) -> bool:
    """Return whether a race was there for its experiment: it answers no other question."""
    snapshot = found.snapshot
    if found.curve is not None:
        began = [one.experiment is not None for one in snapshot.periods]
        return not any(began) or began[-1]
    return found.tuning is not None and len(snapshot.lanes) == 1


def answer(found: Analysis) -> Iterator[Note | Code]:
    """Yield what came of the crossover or the tuning of a race; nothing where it answers another question, too."""
    snapshot, state = found.snapshot, found.snapshot.tuned
    if not is_all(found):
        return
    if found.curve is not None:
        yield Note(found.curve.text, VERDICT)
        if isinstance(snapshot.experiment, CrossoverState):
            yield Note(ended_text(snapshot.experiment))
    elif state is not None and found.tuning is not None:
        yield Note(best_text(found.tuning.best) if state.attempts else "nothing was tried", VERDICT)
        yield from _code(found.tuning.best)
        yield Note(_why_over(found, state))


def _code(best: Best) -> tuple[Code, ...]:
    """Return the lines of TensorFlow that do the same."""
    return (Code("\n".join(best.code)),) if best.code else ()


def _why_over(found: Analysis, state: TuneState) -> str:
    """Say why a tuning ended."""
    lane = found.lane(state.lane)
    if state.ended:
        return f"ended early: {state.ended}"
    if not state.attempts and lane.bottleneck is None:
        return "too little was measured to know what limits the lane"
    return ALL_TRIED


def crossover(found: Analysis) -> tuple[Block, ...]:
    """Return the curve of the last crossover with its table; nothing where there was none."""
    snapshot, curve, state = found.snapshot, found.curve, found.snapshot.experiment
    if curve is None or not isinstance(state, CrossoverState):
        return ()
    lanes = [snapshot.lane(name) for name in state.lanes]
    ids = (lanes[0].spec.id, lanes[1].spec.id)
    knob = curve.knob.replace("_", " ")
    rows, values = [[knob, *(f"{id} ex/s" for id in ids), "ahead"]], []
    for place in curve.places:
        speeds = [units.rate(speed.value) if speed else DASH for speed in (place.first, place.second)]
        rows.append([show(place.value), *speeds, place.refused or ahead_text(place, ids)])
        numbers = [speed.value if speed else None for speed in (place.first, place.second)]
        values.append([float(place.value), *numbers, place.ratio.value if place.ratio else None])
    series, spans = [], []
    for lane, title, part in zip(lanes, curve.titles, ("first", "second"), strict=True):
        known = [
            (float(place.value), speed) for place in curve.places if (speed := getattr(place, part)) is not None
        ]
        points = [(at, one.value, units.rate(one.value), interval_text(one)) for at, one in known]
        series.append(Series(lane.spec.id, f"{lane.spec.id} {title}", snapshot.lanes.index(lane), points))
        spans += [(lane.spec.id, at, one.low, one.high) for at, one in known]
    crossings = [one.about for one in curve.crossings]
    spec = charts.curve(series, "examples/s", knob, curve.text, crossings=crossings, spans=spans)
    drawn = draw_curve(curve, ids, *CHART)
    table = Table(rows, left=(3,), values=values)
    chart = Chart(
        "Crossover", f"examples/s over {knob}, with 95 % intervals", spec, table, drawn.lines if drawn else ()
    )
    return (chart, Lines([": ".join(one) for one in zip(ids, curve.titles, strict=True)]))


def interval_text(speed: Estimate) -> str:
    """Return the interval of a throughput: `4 990 to 5 010`."""
    return f"{units.rate(speed.low)} to {units.rate(speed.high)}"


def tuning(found: Analysis) -> tuple[Block, ...]:
    """Return the changes that were tried, what each gained, and the best; nothing where there were none."""
    snapshot, state, tuned = found.snapshot, found.snapshot.tuned, found.tuning
    if state is None or tuned is None:
        return ()
    titles = {lane.spec.name: snapshot.called(lane) for lane in snapshot.lanes}
    several = len(titles) > 1
    rows = [[*(["lane"] if several else []), "tried", "throughput", "pairs", "outcome"]]
    for one in state.attempts:
        gained, pairs = (gain_text(one.gain), one.gain.pairs) if one.gain else (DASH, 0)
        name = [titles.get(one.lane, one.lane)] if several else []
        rows.append([*name, change_text(one), gained, str(pairs), outcome_text(one)])
    left = [place for place, head in enumerate(rows[0]) if head != "pairs"]
    told = (
        [] if is_all(found) else [Note(best_text(tuned.best)), *_code(tuned.best), Note(_why_over(found, state))]
    )
    tried = (Table(rows, left=left),) if state.attempts else ()
    return (*tried, *told)
