"""Writes how a lane trains as a piece of HTML for a notebook: no script, in the colours of the page around it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.model.lane_state import LaneState
from tfmon.model.window_sums import MOST_FINE, Stretch
from tfmon.reports import QUIET, Chart, Note, Section, race, steps
from tfmon.reports.html import NOTHING, Html, HtmlWriter, keep

SHOWN = ("Result", "What limits the lanes")
"""The sections of a race's report that are shown below the charts."""


def panel(analysis: Analysis, doing: str) -> str:
    """Return the HTML; `doing` says how far the lane is."""
    split = [block for section in steps.sections(analysis) for block in section.shown if isinstance(block, Chart)]
    sections = [one for one in race.report(analysis).sections if one.heading in SHOWN]
    return _PanelWriter(keep).panel(analysis.lanes[0].lane, doing, [one for one in split if one.legend], sections)


class _PanelWriter(HtmlWriter):
    """Makes the parts of one panel; its charts are drawn without a script."""

    def panel(self, lane: LaneState, doing: str, charts: Sequence[Chart], sections: Sequence[Section]) -> Html:
        """Return the whole panel."""
        parts = [self._block(Note(doing, QUIET)), *map(self._chart, charts), self._over_time(lane)]
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
        """Return the throughput over time as a line; nothing before there are two points of it."""
        history = lane.measurements.history
        long = len(history.fine) >= MOST_FINE - 1
        points = [one for one in (history.coarse if long else history.fine) if one.examples_per_s is not None]
        if len(points) < 2:
            return NOTHING
        first_ns, last_ns = points[0].start_ns, points[-1].start_ns
        most = max(one.examples_per_s or 0.0 for one in points) or 1.0
        lines = [
            " ".join(
                f"{1_000 * (one.start_ns - first_ns) / (last_ns - first_ns):.1f},"
                f"{100 - 98 * (one.examples_per_s or 0.0) / most:.1f}"
                for one in stretch
            )
            for stretch in _unbroken(points)
        ]
        span = f"{units.clock((last_ns - first_ns) / 1e9)}"
        about = f"Examples/s over the last {span}, from 0 to {units.rate(most)}; discarded windows are included."
        drawn = [Html(f'<polyline points="{line}" vector-effect="non-scaling-stroke"/>') for line in lines]
        svg = self._tag(
            "svg", *drawn, viewBox="0 0 1000 100", preserveAspectRatio="none", role="img", aria_label=about
        )
        return self._tag("figure", self._tag("figcaption", self._tag("strong", "Throughput"), f" {about}"), svg)


def _unbroken(points: Sequence[Stretch]) -> Iterator[list[Stretch]]:
    """Yield the stretches between which the lane trained all the time."""
    part: list[Stretch] = []
    for point in points:
        if part and point.start_ns - part[-1].start_ns > 3 * point.length_ns:
            yield part
            part = []
        part.append(point)
    yield part


@functools.cache
def _style() -> Html:
    return Html(f"<style>\n{(Path(__file__).parent / 'panel.css').read_text('utf-8')}</style>")
