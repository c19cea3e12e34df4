"""A crossover, a tuning and a sweep as JSON objects. Units are in the names of the keys."""

from __future__ import annotations

from typing import Any

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.series_tables import answer, scaling_of
from tfmon.analysis.sweep import Ranking, SweepRow
from tfmon.analysis.tuning import change_text
from tfmon.model.readings import Estimate
from tfmon.model.series import CrossoverState
from tfmon.reports import estimate_json, head, lane_json, ratio_json, recording_json, scaling_json


def series_to_json(analysis: Analysis) -> dict[str, Any]:
    """Return the result of the race's crossover or tuning as JSON values."""
    part = crossover_json(analysis) or tuning_json(analysis) or {}
    return {**head(), "scenario": analysis.snapshot.race.scenario, **part, **recording_json(analysis.snapshot)}


def crossover_json(analysis: Analysis) -> dict[str, Any] | None:
    """Return the curve of a race's crossover. `None` if the last series is not a crossover.

    Units: throughput in examples/s; `ratio` is the first lane's throughput over the second's.
    """
    snapshot, state, curve = analysis.snapshot, analysis.snapshot.experiment, analysis.curve
    if not isinstance(state, CrossoverState) or curve is None:
        return None
    lanes = [snapshot.lane(name) for name in state.lanes]
    return {
        "knob": curve.knob,
        "lanes": [{**lane_json(lane), "title": name} for lane, name in zip(lanes, curve.titles, strict=True)],
        "values": [
            {
                "value": point.value,
                "first": estimate_json("examples_per_s", point.first),
                "second": estimate_json("examples_per_s", point.second),
                **ratio_json("ratio", point.ratio),
                "pairs": point.pairs,
                "reason": point.missing or None,
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
    }


def tuning_json(analysis: Analysis) -> dict[str, Any] | None:
    """Return the attempts of the tuning of a race. `None` without one. Gains are of throughput."""
    state, best = analysis.snapshot.tuned, analysis.tuning
    if state is None or best is None:
        return None
    lane, bottleneck = analysis.lane(state.lane).lane, analysis.lane(state.lane).bottleneck
    return {
        "lane": lane_json(lane),
        "began_with": state.series[0].before if state.series else lane.settings,
        "attempts": [
            {
                "lane": attempt.lane,
                "tried": change_text(attempt),
                "settings": attempt.change,
                "against": attempt.bottleneck,
                "outcome": attempt.outcome,
                "changes": attempt.changes,
                **_gain_json(attempt.gain),
                "reason": attempt.reason or None,
            }
            for attempt in state.attempts
        ],
        "best": {"settings": best.settings, "code": list(best.code), **_gain_json(best.speed_up)},
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


def sweep_to_json(ranking: Ranking, file: str = "") -> dict[str, Any]:
    """Return a sweep as JSON values, the best combination first. Units: in the names."""
    state, plan = ranking.state, ranking.state.plan
    return {
        **head(),
        "scenario": plan.scenario,
        "over": {knob: list(values) for knob, values in plan.over.items()},
        "baseline": {**ranking.baseline, **plan.baseline},
        "places": [{"place": place, "device_name": plan.machines.get(place) or None} for place in plan.places],
        "until_ci": plan.until_ci,
        "limit_s": plan.each_s,
        "all": plan.everything,
        "text": answer(ranking),
        "best": {
            kind: best.combination.settings if (best := ranking.best(kind)) and best.span[0] >= 1 else None
            for kind in plan.kinds
        },
        "scaling": [scaling_json(one) for one in scaling_of(ranking)],
        "combinations": [combination_json(row) for row in ranking.ranked],
        "settled": ranking.settled,
        "lost_places": state.lost,
        "interrupted": state.ended or None,
        "file": file or None,
    }


def combination_json(row: SweepRow) -> dict[str, Any]:
    """Return one combination as JSON values."""
    known, figures = row.combination, row.combination.figures
    missing = {} if figures is None or not figures.memory_missing else {"memory_bytes": figures.memory_missing}
    return {
        "number": known.number,
        "device": known.kind,
        "settings": known.settings,
        **ratio_json("ratio", row.ratio),
        "pairs": len(known.pairs),
        "visits": known.visits,
        "measured_s": known.measured_s,
        "examples_per_s": figures.examples_per_s if figures else None,
        "baseline_examples_per_s": figures.baseline_examples_per_s if figures else None,
        "step_ms": figures.step_ms if figures else None,
        "memory_bytes": figures.memory_bytes if figures else None,
        "bottleneck": figures.bottleneck or None if figures else None,
        "bottleneck_text": figures.bottleneck_text or None if figures else None,
        "place": figures.place if figures else row.place or None,
        "state": row.state,
        "learns_differently_by": list(row.learns),
        "deaths": list(known.deaths),
        "reason": row.reason or None,
        "missing": missing,
    }
