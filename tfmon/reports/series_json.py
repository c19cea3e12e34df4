"""Series as JSON objects."""

from __future__ import annotations

from typing import Any

from tfmon.analysis.analysis import Analysis
from tfmon.analysis.series_tables import answer, scaling_of
from tfmon.analysis.series_values import crossover_json, ratio_json, tuning_json
from tfmon.analysis.sweep_ranking import Ranking, SweepRow
from tfmon.reports import head, recording_json, scaling_json


def series_to_json(analysis: Analysis) -> dict[str, Any]:
    """Return a crossover or tuning as JSON."""
    part = crossover_json(analysis) or tuning_json(analysis) or {}
    return {**head(), "scenario": analysis.snapshot.race.scenario, **part, **recording_json(analysis.snapshot)}


def sweep_to_json(ranking: Ranking, file: str = "") -> dict[str, Any]:
    """Return a sweep as JSON."""
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
            kind: best.attempt.settings if (best := ranking.best(kind)) and best.span[0] >= 1 else None
            for kind in plan.kinds
        },
        "scaling": [scaling_json(one) for one in scaling_of(ranking)],
        "combinations": [_combination_json(row) for row in ranking.ranked],
        "settled": ranking.settled,
        "lost_places": state.lost,
        "interrupted": state.ended or None,
        "file": file or None,
    }


def _combination_json(row: SweepRow) -> dict[str, Any]:
    known, figures = row.attempt, row.attempt.figures
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
