"""The comparison of two recorded races."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tfmon import units
from tfmon.analysis.compare import Change, Comparison, LanePair
from tfmon.analysis.gate import Gate
from tfmon.analysis.result import RaceResult
from tfmon.model import codec
from tfmon.reports import VERDICT, Lines, Note, Report, Section, Table, common_keys, host_names, minute, text


def to_json(comparison: Comparison, gates: Sequence[Gate] = ()) -> dict[str, Any]:
    """Return the comparison as JSON; ratios are second over first."""
    return {
        **common_keys(),
        "first": _race_json(comparison.first),
        "second": _race_json(comparison.second),
        "lanes": [
            {
                "ids": [pair.first.id, pair.second.id],
                "first": pair.first.name,
                "second": pair.second.name,
                "examples_per_s": [pair.first.examples_per_s, pair.second.examples_per_s],
                **_change_json(pair.change),
            }
            for pair in comparison.lanes
        ],
        "unpaired": list(comparison.unpaired),
        "verdict": _change_json(comparison.verdict),
        "differences": [asdict(difference) for difference in comparison.differences],
        "notes": list(comparison.notes),
        **({"gates": list(map(_gate_json, gates))} if gates else {}),
    }


def _gate_json(gate: Gate) -> dict[str, Any]:
    return {"kind": gate.kind, "exit_code": gate.exit_code, **codec.to_json(gate)}


def _race_json(race: RaceResult) -> dict[str, Any]:
    return {"id": race.id, "scenario": race.scenario, "started": race.started}


def _change_json(change: Change | None) -> dict[str, Any]:
    return {"ratio": change and change.ratio, "ratio_ci95": change and change.ratio_ci95}


def to_text(comparison: Comparison, gates: Sequence[Gate] = ()) -> str:
    """Return the comparison as text, the answers last."""
    return text.write(describe(comparison, gates), brief=True, last=True)


def describe(comparison: Comparison, gates: Sequence[Gate] = ()) -> Report:
    """Return the comparison in sections."""
    races = (("first", comparison.first), ("second", comparison.second))
    sides = [["", "", ""], *([name, race.id, f"{race.scenario}, {minute(race.started)}"] for name, race in races)]
    same = Note("scenario, knobs, versions, machine and environment are the same")
    answer = [Note(gate.text, VERDICT) for gate in gates]
    title = " and ".join(dict.fromkeys(race.scenario for _, race in races))
    notes = [*comparison.unpaired, *comparison.notes]
    return Report(
        f"{title}: two races compared",
        [
            Section("", (Table(sides, left=range(3)),)),
            Section("Compared", (_ratios(comparison), Lines(notes))),
            Section("What differed", (_differences(comparison) or same,)),
        ],
        answer,
        " → ".join(f"{race.id} ({minute(race.started)})" for _, race in races),
        hosts=host_names(machine for _, race in races for machine in race.machines.items()),
        data=to_json(comparison, gates),
    )


def _ratios(comparison: Comparison) -> Table:
    rows = [["examples/s", "first", "second", "second / first", ""]]
    for pair in comparison.lanes:
        name = " / ".join(dict.fromkeys((pair.first.full_name, pair.second.full_name)))
        speeds = [lane.examples_per_s for lane in (pair.first, pair.second)]
        cells = ["n/a" if speed is None else units.rate(speed) for speed in speeds]
        rows.append([name, *cells, *_change_cells(pair.change)])
        rows += _memory_rows(pair)
    if comparison.verdict is not None:
        rows.append(["ratio of the lanes", "", "", *_change_cells(comparison.verdict)])
    return Table(rows, left=(0, 4))


def _memory_rows(pair: LanePair) -> Iterator[list[str]]:
    lanes = (pair.first, pair.second)
    for name, peaks in (
        ("memory", [lane.peak_private_bytes for lane in lanes]),
        ("GPU memory", [lane.gpu_memory_peak_bytes for lane in lanes]),
    ):
        if any(peaks):
            cells = ["n/a" if peak is None else units.memory(peak) for peak in peaks]
            ratio = units.ratio(peaks[1] / peaks[0]) if peaks[0] and peaks[1] else "n/a"
            yield [f"  {name}, at its peak", *cells, ratio, ""]


def _differences(comparison: Comparison) -> Table | None:
    rows, about = [["different", "", "first", "second"]], ""
    for difference in comparison.differences:
        heading = difference.about if difference.about != about else ""
        rows.append([heading, difference.what, difference.first, difference.second])
        about = difference.about
    return Table(rows, left=range(4)) if comparison.differences else None


def _change_cells(change: Change | None) -> list[str]:
    if change is None:
        return ["n/a", ""]
    if change.ratio_ci95 is None:
        return [units.ratio(change.ratio), "no interval"]
    (low, high), (factor, interval) = change.ratio_ci95, units.ratio_in(change.ratio, *change.ratio_ci95)
    return [factor, f"95 % CI {interval}" + (": too close to call" if low <= 1 <= high else "")]
