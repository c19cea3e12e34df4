"""Writes the progress of a lane as HTML for a notebook: no script, in the colours of the page."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.model.lane_state import LaneState
from tfmon.model.window_sums import MOST_FINE
from tfmon.reports import VERDICT, Chart, Note, Section, race, steps
from tfmon.reports.html import NOTHING, Html, HtmlWriter, keep

SHOWN = ("Result", "What limits the lanes")
LONG_S = 60
"""Longer trainings are drawn by seconds, and above five minutes by five seconds."""
GAP_NS = 2_000_000_000
"""A longer gap between steps breaks the line."""


def panel(analysis: Analysis, doing: str) -> str:
    """Return the HTML; `doing` is the lane's progress."""
    split = [block for section in steps.sections(analysis) for block in section.shown if isinstance(block, Chart)]
    sections = [one for one in race.report(analysis).sections if one.heading in SHOWN]
    return _PanelWriter(keep).panel(analysis.lanes[0].lane, doing, [one for one in split if one.legend], sections)


class _PanelWriter(HtmlWriter):
    """Makes the parts of one panel; its charts are drawn without a script."""

    def panel(self, lane: LaneState, doing: str, charts: Sequence[Chart], sections: Sequence[Section]) -> Html:
        parts = [self._block(Note(doing, VERDICT)), *map(self._chart, charts), self._over_time(lane)]
        return self._tag("div", _style(), *parts, *map(self._section, sections), class_="tfmon")

    def _chart(self, chart: Chart) -> Html:
        """Return bars of shares, with their legend and without their table."""
        colours = {part: colour for colour, part in chart.legend}
        bars = [
            self._tag(
                "span", title=f"{one['p']} {one['w']}", style=f"width:{one['v']}%;background:{colours[one['p']]}"
            )
            for one in chart.spec["layer"][0]["data"]["values"]
        ]
        values = {one["p"]: one["w"] for one in chart.spec["layer"][0]["data"]["values"]}
        legend = [
            self._tag("li", self._swatch(colour), f" {part} {values[part]}") for colour, part in chart.legend
        ]
        caption = self._tag("figcaption", self._tag("strong", chart.title), f" {chart.about}")
        drawn = self._tag("div", *bars, class_="bar", role="img", aria_label=chart.caption)
        return self._tag("figure", caption, drawn, self._tag("ul", *legend, class_="legend"))

    def _over_time(self, lane: LaneState) -> Html:
        """Return the throughput over time as a line. Nothing before there are two points."""
        points = list(_throughput(lane))
        if len(points) < 2:
            return NOTHING
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
        about = f"Examples/s over the last {span}, from 0 to {top}; discarded windows are included."
        drawn = [Html(f'<polyline points="{" ".join(one)}" vector-effect="non-scaling-stroke"/>') for one in lines]
        svg = self._tag(
            "svg", *drawn, viewBox="0 0 1000 100", preserveAspectRatio="none", role="img", aria_label=about
        )
        return self._tag("figure", self._tag("figcaption", self._tag("strong", "Throughput"), f" {about}"), svg)


def _throughput(lane: LaneState) -> Iterator[tuple[int, int, float]]:
    """Yield moments, the times before them, and the examples/s in these: windows, or longer stretches."""
    fine, coarse = lane.measurements.history.fine, lane.measurements.history.coarse
    if len(fine) < LONG_S:
        for point in lane.points:
            if point.examples:
                yield point.at_ns, point.span_ns, point.examples / point.span_ns * 1e9
    for one in coarse if len(fine) >= MOST_FINE - 1 else fine if len(fine) >= LONG_S else ():
        if one.examples_per_s is not None:
            yield one.until_ns, one.length_ns, one.examples_per_s


@functools.cache
def _style() -> Html:
    return Html(f"<style>\n{(Path(__file__).parent / 'panel.css').read_text('utf-8')}</style>")
