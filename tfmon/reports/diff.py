"""The comparison of two recorded races, of `tfmon diff`."""

from __future__ import annotations

from typing import Any

from tfmon import units
from tfmon.recordings.change import Change
from tfmon.recordings.compare import Comparison
from tfmon.recordings.figures import RaceFigures
from tfmon.recordings.gate import Gate
from tfmon.reports import head, table


def to_json(comparison: Comparison, gate: Gate | None = None) -> dict[str, Any]:
    """Return the comparison as plain values, with what a gate says of it.

    Units: throughput in examples/s; a ratio is the second race over the first.
    """
    return {
        **head(),
        "first": _race_json(comparison.first),
        "second": _race_json(comparison.second),
        "lanes": [
            {
                "ids": [pair.first.id, pair.second.id],
                "first": pair.first.title,
                "second": pair.second.title,
                "examples_per_s": [pair.first.examples_per_s, pair.second.examples_per_s],
                **_change_json(pair.change),
            }
            for pair in comparison.lanes
        ],
        "unpaired": list(comparison.unpaired),
        "verdict": _change_json(comparison.verdict),
        "differences": [
            {"about": one.about, "what": one.what, "first": one.first, "second": one.second}
            for one in comparison.differences
        ],
        "notes": list(comparison.notes),
        **({} if gate is None else {"gate": _gate_json(gate)}),
    }


def _gate_json(gate: Gate) -> dict[str, Any]:
    return {
        "kind": gate.kind,
        "exit_code": gate.exit_code,
        "slower_than": gate.limit,
        "lanes": [
            {
                "lane": one.lane,
                "kind": one.kind,
                "reason": one.reason,
                "ratio": one.ratio,
                "ratio_ci95": None if one.low is None else [one.low, one.high],
                "needed": one.needed,
            }
            for one in gate.lanes
        ],
    }


def _race_json(race: RaceFigures) -> dict[str, Any]:
    return {"id": race.id, "scenario": race.scenario, "started": race.started}


def _change_json(change: Change | None) -> dict[str, Any]:
    interval = None if change is None or change.low is None else [change.low, change.high]
    return {"ratio": change.ratio if change else None, "ratio_ci95": interval}


def to_text(comparison: Comparison, gate: Gate | None = None) -> str:
    """Return the comparison as tables of plain text, with what a gate says of it below."""
    return _tables(comparison) + ("" if gate is None else f"\n\n{gate.text}")


def _tables(comparison: Comparison) -> str:
    sides = [
        [name, race.id, f"{race.scenario}, {race.started[:16].replace('T', ' ')}"]
        for name, race in (("first", comparison.first), ("second", comparison.second))
    ]
    speeds = [["examples/s", "first", "second", "second / first", ""]]
    for pair in comparison.lanes:
        titles = dict.fromkeys((pair.first.name, pair.second.name))
        cells = [
            "n/a" if (speed := lane.examples_per_s) is None else units.rate(speed)
            for lane in (pair.first, pair.second)
        ]
        speeds.append([" / ".join(titles), *cells, *_change_cells(pair.change)])
    if comparison.verdict is not None:
        speeds.append(["ratio of the lanes", "", "", *_change_cells(comparison.verdict)])
    lines = [*table(sides), "", *table(speeds), *comparison.unpaired, *comparison.notes, ""]
    if not comparison.differences:
        return "\n".join([*lines, "scenario, knobs, versions, machine and environment are the same"])
    rows = [["different", "", "first", "second"]]
    about = ""
    for one in comparison.differences:
        rows.append([one.about if one.about != about else "", one.what, one.first, one.second])
        about = one.about
    return "\n".join(lines + table(rows))


def _change_cells(change: Change | None) -> list[str]:
    if change is None:
        return ["n/a", ""]
    if change.low is None or change.high is None:
        return [units.ratio(change.ratio), "no interval"]
    factor, interval = units.ratio_in(change.ratio, change.low, change.high)
    return [factor, f"95 % CI {interval}" + ("" if change.sure else ": too close to call")]
