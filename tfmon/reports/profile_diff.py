"""The comparison of two profiles."""

from __future__ import annotations

from dataclasses import replace

from tfmon.analysis.compare_profiles import (
    GROUPINGS,
    Grouping,
    ProfiledSide,
    compare,
    heads,
    sentences,
    share_text,
    signed,
    time_text,
)
from tfmon.analysis.profile_json import notes, to_json
from tfmon.reports import VERDICT, Chart, Lines, Note, Report, Section, Table, charts, common_keys, text
from tfmon.reports.profile_report import memory_section

WIDTH = 100
MOST_ROWS = {"operation": 20, "kind": 10, "layer": 10}
MOST_BARS = 12
_NAME = 34
HEADINGS: dict[Grouping, str] = {
    "operation": "by operation",
    "kind": "by the type of the operation",
    "layer": "by layer, with its gradient",
}


def to_text(first: ProfiledSide, second: ProfiledSide) -> str:
    """Return the comparison as plain text."""
    return text.write(describe(first, second), width=WIDTH)


def describe(first: ProfiledSide, second: ProfiledSide, *, page: bool = False) -> Report:
    """Return the explanation of a longer step, with a chart for a page."""
    answer, *more = answers(first, second)
    chart = replace(_chart(first, second), table=None) if page else None
    return Report(
        f"Two profiles: {first.title} and {second.title}",
        [Section("", (chart,))]
        + [Section(HEADINGS[by], (_table(first, second, by),)) for by in GROUPINGS]
        + [memory_section((first, second)), Section("", (Lines(notes(first, second)),))],
        [Note(answer, VERDICT), *map(Note, more)],
        data={**common_keys(), **to_json(first, second)},
    )


def section(first: ProfiledSide, second: ProfiledSide) -> Section:
    """Return the explanation for a race's report."""
    chart = _chart(first, second)
    lines = Lines([*answers(first, second), *notes(first, second)])
    return Section("What explains the difference", (lines, chart), long=True)


def answers(first: ProfiledSide, second: ProfiledSide) -> list[str]:
    """Return how much longer a step takes, and why."""
    return sentences(compare(first.profiles, second.profiles), *_names(first, second))


def _table(first: ProfiledSide, second: ProfiledSide, by: Grouping) -> Table:
    diff = compare(first.profiles, second.profiles, by)
    most = MOST_ROWS[by]
    shown, rest = diff.rows[:most], diff.rows[most:]
    rows = [heads(by, first.id, second.id), *(row.cells(_NAME) for row in shown)]
    if rest:
        left = sum(row.first.step_ns for row in rest if row.first is not None)
        right = sum(row.second.step_ns for row in rest if row.second is not None)
        share = share_text((right - left) / diff.difference.value_ns) if diff.explained else ""
        name = f"{len(rest)} smaller differences"
        rows.append([name, time_text(left), time_text(right), signed(right - left), "", share, "", ""])
    whole = [time_text(diff.first_ns), time_text(diff.second_ns), *diff.difference.texts]
    rows.append(["a step", *whole, share_text(1.0) if diff.explained else "", "", ""])
    return Table(rows, left=(0, 7), marked=(len(rows) - 1,))


def _names(first: ProfiledSide, second: ProfiledSide) -> tuple[str, str]:
    names = [side.id if side.title in ("", side.id) else f"{side.id} ({side.title})" for side in (first, second)]
    return names[0], names[1]


def _chart(first: ProfiledSide, second: ProfiledSide) -> Chart:
    diff = compare(first.profiles, second.profiles)
    bars: dict[str, charts.Difference] = {}
    for row in diff.rows[:MOST_BARS]:
        name = row.label(_NAME)
        name = name if name not in bars else f"{name} ({len(bars)})"
        note = " ".join(filter(None, (row.difference.texts[0], row.cells(_NAME)[5])))
        bars[name] = (name, row.difference.value_ns, row.difference.ci95_ns, note)
    about = f"Right: {second.id} takes longer; left: {first.id} does. Thin lines are 95 % intervals."
    title = "What explains the difference of a step"
    spec = charts.diverging([*bars.values()], f"ms a step, {second.id} less {first.id}", f"{title}. {about}")
    return Chart(title, about, spec, _table(first, second, "operation"))
