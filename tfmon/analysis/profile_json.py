"""The comparison of two profiles as JSON values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tfmon import units
from tfmon.analysis.compare_profiles import GROUPINGS, ProfiledSide, compare, signed, time_text
from tfmon.analysis.memory_peak import latest_peaks, memory_sentence
from tfmon.model import codec
from tfmon.model.profile import NOT_COUNTED, CpuCounters, Profile
from tfmon.model.readings import Missing


def to_json(first: ProfiledSide, second: ProfiledSide) -> dict[str, Any]:
    """Return JSON values. Times are means of a step. Differences are second less first."""
    diffs = {by: compare(first.profiles, second.profiles, by) for by in GROUPINGS}
    diff = diffs["operation"]
    sides = [
        {
            "id": side.id,
            "title": side.title,
            "step_ns": step_ns,
            "profiled_step_ns": [profile.step_ns for profile in side.profiles],
            "step_ns_without_profiler": side.step_ns,
            **_memory(side),
        }
        for side, step_ns in ((first, diff.first_ns), (second, diff.second_ns))
    ]
    result = {
        "sides": sides,
        "difference": asdict(diff.difference),
        "explained": asdict(diff.explained) if diff.explained is not None else None,
        "parts": {by: [asdict(row) for row in diff.rows] for by, diff in diffs.items()},
        "notes": notes(first, second),
    }
    return dict(codec.plain(result))


def _memory(side: ProfiledSide) -> dict[str, Any]:
    peaks = latest_peaks(side.profiles)
    if isinstance(peaks, Missing):
        return {"memory": None, "memory_missing": peaks.reason}
    return {"memory": [{**asdict(peak), "text": memory_sentence(peak)} for peak in peaks], "memory_missing": None}


def notes(first: ProfiledSide, second: ProfiledSide) -> list[str]:
    """Return notes on the figures."""
    diff = compare(first.profiles, second.profiles)
    result = []
    if first.step_ns is not None and second.step_ns is not None:
        times = f"{first.id} {time_text(first.step_ns)}, {second.id} {time_text(second.step_ns)} a step"
        result.append(f"without the profiler: {times}, {signed(second.step_ns - first.step_ns)}")
    if first.examples and second.examples and round(first.examples) != round(second.examples):
        each = ((first.id, first.examples, diff.first_ns), (second.id, second.examples, diff.second_ns))
        examples = [
            f"{id} has {units.count(round(number))}, {time_text(mean / number)} each" for id, number, mean in each
        ]
        result.append(f"examples of a step: {'; '.join(examples)}")
    for side, incomplete in zip((first, second), diff.incomplete, strict=True):
        if incomplete:
            result.append(f"the smallest operations of {side.id} are not told apart; others may seem missing")
        only = [row for row in diff.rows if row.kind and (row.second if side is first else row.first) is None]
        if only:
            took = sum(abs(row.difference.value_ns) for row in only)
            result.append(f"only in {side.id}: {units.several(len(only), 'operation')}, {time_text(took)} a step")
        profile_notes = dict.fromkeys(note for profile in side.profiles for note in profile.notes)
        profile_notes |= dict.fromkeys(line for profile in side.profiles for line in counted(profile))
        result += [f"{side.id}: {note}" for note in profile_notes]
    profiles = (f"{units.several(len(side.profiles), 'profile')} of {side.id}" for side in (first, second))
    counts = " and ".join(profiles)
    if diff.difference.ci95_ns is None:
        return [*result, f"{counts}: too few for an interval"]
    return [*result, f"{counts}; ± is half the 95 % interval; more --profiles narrow it"]


def counted(profile: Profile) -> Iterator[str]:
    """Yield the processor's counts as text."""
    counters = profile.counters
    if isinstance(counters, CpuCounters):
        yield f"instructions per cycle: {counters.instructions_per_cycle:.2f}"
        waits = units.reading(counters.stalled_share, lambda value: units.percent(100 * value))
        yield f"cycles that waited for a result, as a rule for memory: {waits}"
    elif counters != NOT_COUNTED:
        yield f"instructions per cycle: {units.absent(counters)}"
