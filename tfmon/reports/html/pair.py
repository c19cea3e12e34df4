"""The sections about two races: how much faster each lane was, and what differed."""

from __future__ import annotations

from tfmon import units
from tfmon.recordings.change import Change
from tfmon.recordings.compare import Comparison, compare
from tfmon.recordings.figures import RaceFigures
from tfmon.reports.html import charts, course
from tfmon.reports.html.gather import Run
from tfmon.reports.html.writer import NOTHING, Html, Writer

PREFIXES = ("1", "2")
"""Before the key of a lane, for the first and the second race."""


def comparison_of(first: Run, second: Run) -> Comparison:
    """Return the comparison of two races."""
    return compare(*(RaceFigures.of(run.id, run.header, run.end) for run in (first, second)))


def head(writer: Writer, found: Comparison) -> Html:
    """Return the title and, for each lane, what changed in words."""
    title = " and ".join(dict.fromkeys(race.scenario for race in (found.first, found.second)))
    lines = [f"{pair.second.name}: {change_text(pair.change)}" for pair in found.lanes]
    when = " → ".join(f"{race.id} ({race.started[:16].replace('T', ' ')})" for race in (found.first, found.second))
    return Html("".join((
        writer.tag("h1", f"{title}: two races compared"),
        writer.tag("p", when, class_="quiet"),
        *(writer.tag("p", line, class_="verdict") for line in lines),
        *(writer.tag("p", note) for note in (*found.unpaired, *found.notes)),
    )))  # fmt: skip


def change_text(change: Change | None) -> str:
    """Say how the second race's throughput compares with the first one's."""
    if change is None:
        return "nothing to compare"
    if change.low is None or change.high is None:
        return f"{units.ratio(change.ratio)} the first race's throughput, without an interval"
    factor, interval = units.ratio_in(change.ratio, change.low, change.high)
    told = f"{factor} the first race's throughput (95 % CI {interval})"
    return told if change.sure else f"too close to call: {told}"


def sections(writer: Writer, found: Comparison, runs: tuple[Run, Run]) -> list[Html]:
    """Return the sections of the comparison: ratios, both courses, and what differed."""
    return [
        writer.section("Compared", ratios(writer, found)),
        writer.section("Throughput over time", _both(writer, runs)),
        writer.section("What differed", differences(writer, found)),
    ]


def ratios(writer: Writer, found: Comparison) -> Html:
    """Return the ratio of every pair of lanes with its interval."""
    rows = [["lane", "first, examples/s", "second, examples/s", "second / first", "95 % CI"]]
    bars: list[tuple[str, float, float | None, float | None, str]] = []
    for pair in found.lanes:
        name = " / ".join(dict.fromkeys((pair.first.name, pair.second.name)))
        speeds = [lane.examples_per_s for lane in (pair.first, pair.second)]
        cells = ["–" if speed is None else units.rate(speed) for speed in speeds]
        rows.append([name, *cells, *_cells(pair.change)])
        if pair.change is not None:
            bars.append((name, pair.change.ratio, pair.change.low, pair.change.high, change_text(pair.change)))
    if found.verdict is not None:
        rows.append(["ratio of the lanes", "", "", *_cells(found.verdict)])
        verdict = found.verdict
        bars.append(("ratio of the lanes", verdict.ratio, verdict.low, verdict.high, change_text(verdict)))
    if not bars:
        return writer.table(rows)
    about = "Throughput of the second race over that of the first; right of the dashed line the second was faster."
    return writer.figure(
        "Ratios", about, charts.intervals(bars, f"Ratios. {about}", "second race / first race"), writer.table(rows)
    )


def _cells(change: Change | None) -> list[str]:
    if change is None:
        return ["–", ""]
    if change.low is None or change.high is None:
        return [units.ratio(change.ratio), "no interval"]
    return list(units.ratio_in(change.ratio, change.low, change.high))


def _both(writer: Writer, runs: tuple[Run, Run]) -> Html:
    every_s = max(course.interval_s(run) for run in runs)
    series = []
    for number, run in enumerate(runs):
        series += course.throughput_series(run, every_s, dashed=number == 1)
    if not any(one.points for one in series):
        return NOTHING
    about = "Both races from their start signals; the second is dashed. Each has its table below."
    spec = charts.over_time(series, "examples/s", f"Throughput of both races over time. {about}", tall=True)
    return writer.figure("Both races", about, spec)


def differences(writer: Writer, found: Comparison) -> Html:
    """Return the differences besides the figures."""
    if not found.differences:
        return writer.tag("p", "Scenario, knobs, versions, machine and environment are the same.")
    rows = [["about", "what", "first", "second"]]
    rows += [[one.about, one.what, one.first, one.second] for one in found.differences]
    return writer.table(rows, left=range(4), sortable=True)
