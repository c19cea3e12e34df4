"""A crossover and a tuning as JSON values."""

from __future__ import annotations

from typing import Any

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.tuning_trials import change_text
from tfmon.model.lane_state import LaneState
from tfmon.model.readings import Estimate
from tfmon.model.series import CROSSOVER


def crossover_json(analysis: Analysis) -> dict[str, Any] | None:
    """Return the curve of the last crossover. Units: examples/s."""
    snapshot, state, curve = analysis.snapshot, analysis.snapshot.experiment, analysis.curve
    if curve is None or state is None or state.policy != CROSSOVER:
        return None
    lanes = [snapshot.lane(name) for name in state.plan.lanes]
    return {
        "knob": curve.knob,
        "lanes": [{**_lane_json(lane), "title": name} for lane, name in zip(lanes, curve.titles, strict=True)],
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
    """Return the attempts of the tuning, if any."""
    state, best = analysis.snapshot.tuned, analysis.tuning
    if state is None or best is None:
        return None
    lane, bottleneck = analysis.lane(state.lane).lane, analysis.lane(state.lane).bottleneck
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


def interval(estimate: Estimate | None) -> list[float] | None:
    """Return the ends of an estimate's 95 % interval."""
    return None if estimate is None else [estimate.low, estimate.high]


def estimate_json(name: str, estimate: Estimate | None) -> dict[str, Any]:
    """Return an estimate, and the interval with suffix `_ci95`."""
    return {name: None if estimate is None else estimate.value, f"{name}_ci95": interval(estimate)}


def ratio_json(name: str, estimate: Estimate | None) -> dict[str, Any]:
    """Return an estimate with the kind of interval."""
    return {**estimate_json(name, estimate), "interval_kind": estimate.kind if estimate else None}


def _lane_json(lane: LaneState) -> dict[str, Any]:
    spec = lane.spec
    return {"id": spec.id, "name": spec.name, "host": spec.host, "device": spec.device}
