"""The results of `tfmon crossover` and `tfmon tune`."""

from __future__ import annotations

from typing import Any

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.crossover import Curve, CurvePoint, ahead_text, ended_text
from tfmon.analysis.curve_chart import draw_curve
from tfmon.analysis.tuning import ALL_TRIED, best_text, change_text, gain_text, outcome_text
from tfmon.model.knobs import show
from tfmon.model.race import CrossoverState, TuneState
from tfmon.model.readings import Estimate
from tfmon.reports import estimate_json, head, lane_json, recording_json, recording_lines, table

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


def crossover_to_text(found: Analysis) -> str:
    """Return the answer, the chart and the table of the crossover of a snapshot as plain text."""
    snapshot = found.snapshot
    state, curve = _crossover(found)
    lanes = [snapshot.lane(name) for name in state.lanes]
    ids = (lanes[0].spec.id, lanes[1].spec.id)
    lines = [curve.text, ended_text(state), ""]
    chart = draw_curve(curve, ids, *CHART)
    if chart is not None:
        lines += [*chart.lines, ""]
    rows = [[curve.knob.replace("_", " "), *(f"{id} ex/s" for id in ids), "ahead"]]
    lines += table(rows + [_point_cells(point, ids) for point in curve.places], right=(0, 1, 2))
    lines += ["", *map(": ".join, zip(ids, curve.titles, strict=True))]
    if snapshot.machine.no_gpu:
        lines.append(f"no GPU lane: {snapshot.machine.no_gpu}")
    return "\n".join(lines + recording_lines(snapshot))


def _crossover(found: Analysis) -> tuple[CrossoverState, Curve]:
    state = found.snapshot.experiment
    if not isinstance(state, CrossoverState) or found.curve is None:
        raise ValueError("the last experiment of this snapshot is not a crossover")
    return state, found.curve


def _point_cells(point: CurvePoint, ids: tuple[str, str]) -> list[str]:
    speeds = [units.rate(speed.value) if speed else "–" for speed in (point.first, point.second)]
    return [show(point.value), *speeds, point.refused or ahead_text(point, ids)]


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


def tuning_to_text(found: Analysis) -> str:
    """Return the bottleneck, the attempts, and the best settings with their code, as plain text."""
    snapshot, state, tuned = found.snapshot, found.snapshot.tuned, found.tuning
    if state is None or tuned is None:
        raise ValueError("nothing was tuned in this snapshot")
    analysed = found.lane(state.lane)
    lane = analysed.lane
    lines = [f"{snapshot.race.scenario} on {lane.title}"]
    if analysed.bottleneck is not None:
        lines.append(f"now {analysed.bottleneck.text}")
    lines.append(f"ended early: {state.ended}" if state.ended else ALL_TRIED)
    if state.attempts:
        lines += ["", *table(attempt_table(state), right=(2,))]
    lines += ["", best_text(tuned.best), *(f"  {line}" for line in tuned.best.code)]
    if lane.trouble is not None:
        lines += ["", f"{lane.trouble.message} {lane.trouble.hint}".rstrip()]
    return "\n".join(lines + recording_lines(snapshot))


def attempt_table(state: TuneState) -> list[list[str]]:
    """Return the attempts as a table, the head first."""
    rows = [["tried", "throughput", "pairs", "outcome"]]
    for one in state.attempts:
        gained, pairs = (gain_text(one.gain), one.gain.pairs) if one.gain else ("–", 0)
        rows.append([change_text(one), gained, str(pairs), outcome_text(one)])
    return rows
