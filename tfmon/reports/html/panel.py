"""Writes a lane's progress as HTML for a notebook, without scripts."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.summarise import summarise
from tfmon.model.lane_state import LaneState
from tfmon.reports import Chart, race_report, steps
from tfmon.reports.html import render

SHOWN = ("Result", "What limits the lanes")
MOST_POINTS = 300
GAP_NS = 2_000_000_000


def panel(analysis: Analysis, doing: str) -> str:
    """Return the HTML."""
    split = [block for block in steps.section(analysis).shown if isinstance(block, Chart)]
    report = race_report.report(analysis, summarise(analysis))
    sections = [section for section in report.sections if section.heading in SHOWN]
    lines, about = _lines(analysis.lanes[0].lane)
    return render(
        "panel.html",
        style=_style(),
        doing=doing,
        bars=[_bar(chart) for chart in split if chart.legend],
        lines=lines,
        about=about,
        sections=sections,
    )


def _bar(chart: Chart) -> dict[str, object]:
    parts = chart.spec["layer"][0]["data"]["values"]
    widths = {part["p"]: part["w"] for part in parts}
    return {
        "chart": chart,
        "parts": parts,
        "colours": {part: colour for colour, part in chart.legend},
        "legend": [(colour, f"{part} {widths[part]}") for colour, part in chart.legend],
    }


def _lines(lane: LaneState) -> tuple[list[list[str]], str]:
    points = list(_throughput(lane))
    if len(points) < 2:
        return [], ""
    first_ns, last_ns, most = points[0][0], points[-1][0], max(value for _, _, value in points) or 1.0
    lines: list[list[str]] = [[]]
    before_ns = first_ns
    for at_ns, span_ns, value in points:
        if at_ns - before_ns > span_ns + GAP_NS:
            lines.append([])
        before_ns = at_ns
        across = 1_000 * (at_ns - first_ns) / (last_ns - first_ns)
        lines[-1].append(f"{across:.1f},{100 - 98 * value / most:.1f}")
    span, top = units.clock((last_ns - first_ns) / 1e9), units.rate(most)
    return lines, f"Examples/s over the last {span}, from 0 to {top}; discarded windows are included."


def _throughput(lane: LaneState) -> Iterator[tuple[int, int, float]]:
    """Yield moments, durations in ns, and examples/s."""
    windows = [window for window in (*lane.measurements.old, *lane.points) if window.examples_per_s is not None]
    together = 1 + len(windows) // MOST_POINTS
    for first in range(0, len(windows), together):
        part = windows[first : first + together]
        examples, span_ns = sum(window.examples for window in part), sum(window.span_ns for window in part)
        yield part[-1].at_ns, part[-1].at_ns - part[0].since_ns, examples / span_ns * 1e9


@functools.cache
def _style() -> str:
    return (Path(__file__).parent / "panel.css").read_text("utf-8")
