"""The charts of a race over time."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tfmon import units
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.lane_events import SLICE_START
from tfmon.model.windows import LaneWindow
from tfmon.recordings.writer import RARE_NS, RARE_S
from tfmon.reports import DASH, QUIET, Chart, Note, Section, Table, charts
from tfmon.reports.charts import Line, Series, Shade
from tfmon.reports.recorded_numbers import BUSY, CPU, HEAT, MEMORY, POWER, USED, Course, Moment, Sample
from tfmon.reports.steps import full_name, key_of

MOST_POINTS = 600
TABLE_ROWS = 30
LONGEST_REST_NS = 10_000_000_000
"""A longer time without a value is a gap. In turns, lanes rest for less."""
IDLE_NS = 2_000_000_000
"""A longer time without training is a gap."""
MOST_SHADES = 600
MOST_LABELS = 6
MOST_MOMENTS = 200
NOT_COUNTED = "not counted: "
Items: TypeAlias = Sequence[LaneWindow] | Sequence[Sample]
Values: TypeAlias = Mapping[str, Sequence[LaneWindow]] | Mapping[str, Sequence[Sample]]


@dataclass(frozen=True, slots=True)
class _Quantity:
    title: str
    unit: str
    about: str
    fold: Callable[[Sequence[Any]], float | None]
    write: Callable[[float], str]
    note: Callable[[Sequence[Any]], str] = lambda _: ""
    scale: float = 1.0
    """Measured units per unit of the axis."""
    zero: bool = True


def sections(course: Course) -> list[Section]:
    """Return the sections about a race over time."""
    drawer = _Drawer(course)
    read = [(reading, drawer.sampled(reading)) for reading in _READINGS]
    missing = [_READINGS[reading].title for reading, chart in read if chart is None]
    unread = Note(f"Not read in this race: {', '.join(missing)}.", QUIET) if missing else None
    return [
        Section("Throughput over time", drawer.throughput(), long=True),
        Section("Loss", (drawer.chart(_LOSS, course.windows),), long=True),
        Section("CPU, memory and GPU", (*(chart for _, chart in read), unread), long=True),
    ]


def _speed(windows: Sequence[LaneWindow]) -> float | None:
    span_ns = sum(window.span_ns for window in windows)
    if span_ns <= 0 or any(window.examples_per_s is None for window in windows):
        return None
    return sum(window.examples for window in windows) / span_ns * 1e9


def _discarded(windows: Sequence[LaneWindow]) -> str:
    reasons = dict.fromkeys(window.reason for window in windows if window.reason)
    return NOT_COUNTED + ", ".join(reasons) if reasons else ""


def _latest(windows: Sequence[LaneWindow]) -> float | None:
    return next((window.loss for window in reversed(windows) if window.loss is not None), None)


def _mean(samples: Sequence[Sample]) -> float | None:
    return sum(float(sample.value) for sample in samples) / len(samples) if samples else None


_LOSS = _Quantity("Loss", "loss", "Of the last step of each interval.", _latest, units.loss, zero=False)
_SHARED = "Of the processes of a lane, while it trains; of the whole machine."
_READINGS = {
    CPU: _Quantity("CPU", "% of a core", _SHARED, _mean, units.percent),
    MEMORY: _Quantity("Memory", "MiB", "That no other process shares.", _mean, units.memory, scale=2.0**20),
    BUSY: _Quantity("GPU load", "% of the time", "Time in which at least one kernel ran.", _mean, units.percent),
    USED: _Quantity("GPU memory", "MiB", "Of all processes.", _mean, units.memory, scale=2.0**20),
    POWER: _Quantity("Power", "W", "As the driver counts it.", _mean, units.watts),
    HEAT: _Quantity("Temperature", "°C", "Of the GPU.", _mean, units.celsius),
}


class _Drawer:
    def __init__(self, course: Course) -> None:
        self._course = course
        self._names = {lane.spec.name: full_name(lane) for lane in course.end.lanes}
        self._keys = {lane.spec.name: key_of(lane) for lane in course.end.lanes}
        self._total_s = course.seconds(course.until_ns)
        self._every_s = max(1.0, math.ceil(self._total_s / MOST_POINTS))
        self._idle = list(_idle(course))
        self._unsampled_ns = 2 * RARE_NS if self._total_s > RARE_S else LONGEST_REST_NS

    def throughput(self) -> list[Chart | Table | None]:
        shades = list(self._shades())
        longest = sorted(shades, key=lambda shade: shade[1] - shade[2])[:MOST_SHADES]
        few = "" if len(longest) == len(shades) else f", the {MOST_SHADES} longest"
        about = (
            f"A point for every {units.about(self._every_s)}, discarded windows included. Shaded: "
            f"windows that do not count{few}, but for those {SLICE_START}. Dashed: what was changed."
        )
        quantity = _Quantity("Throughput", "examples/s", about, _speed, units.rate, _discarded)
        return [self.chart(quantity, self._course.windows, longest, list(self._lines())), self._moments()]

    def sampled(self, reading: str) -> Chart | None:
        quantity, by_subject = _READINGS[reading], self._course.samples.get(reading, {})
        largest = max((float(sample.value) for samples in by_subject.values() for sample in samples), default=0.0)
        if quantity.unit == "MiB" and largest >= 4 * 2**30:
            quantity = replace(quantity, unit="GiB", scale=2.0**30)
        lanes = [name for name in self._names if name in by_subject]
        return self.chart(quantity, {name: by_subject[name] for name in dict.fromkeys((*lanes, *by_subject))})

    def chart(
        self, quantity: _Quantity, by_subject: Values, shades: Sequence[Shade] = (), lines: Sequence[Line] = ()
    ) -> Chart | None:
        order = list(dict.fromkeys((*self._names, *by_subject)))
        rest_ns = LONGEST_REST_NS if by_subject is self._course.windows else self._unsampled_ns
        series = []
        for subject, items in by_subject.items():
            key, name = self._keys.get(subject, subject), self._names.get(subject, subject)
            points = list(self._points(quantity, items, rest_ns, subject in self._names))
            series.append(Series(key, name, order.index(subject), points))
        if not any(line.points for line in series):
            return None
        spec = charts.over_time(
            series,
            quantity.unit,
            f"{quantity.title} over time. {quantity.about}",
            shades=shades,
            lines=lines,
            tall=quantity.fold is _speed,
            zero=quantity.zero,
            labels=len(lines) <= MOST_LABELS,
        )
        return Chart(quantity.title, quantity.about, spec, self._table(quantity, by_subject))

    def _points(self, quantity: _Quantity, items: Items, rest_ns: int, of_lane: bool) -> Iterator[charts.Point]:
        before_s, before_ns = 0.0, None
        for at_s, group in self._grouped(items, self._every_s):
            value = quantity.fold(group)
            if value is None:
                continue
            since_ns = group[0].since_ns
            if before_ns is not None:
                next_idle = bisect.bisect(self._idle, (before_ns, 0))
                idle = of_lane and any(end_ns <= since_ns for _, end_ns in self._idle[next_idle : next_idle + 1])
                if idle or since_ns - before_ns > rest_ns:
                    yield (at_s + before_s) / 2, None, "", ""
            before_s, before_ns = at_s, group[-1].at_ns
            shown = float(f"{value / quantity.scale:.5g}") if math.isfinite(value) else None
            point = shown, quantity.write(value), quantity.note(group)
            since_s = self._course.seconds(group[0].since_ns) + self._every_s / 2
            if since_s < at_s - 2 * self._every_s:  # draw a long stop flat
                yield since_s, *point
            yield at_s, *point

    def _grouped(self, items: Sequence[Any], every_s: float) -> Iterator[tuple[float, Sequence[Any]]]:
        for number, group in itertools.groupby(items, lambda item: self._course.seconds(item.at_ns) // every_s):
            yield (number + 0.5) * every_s, list(group)

    def _table(self, quantity: _Quantity, by_subject: Values) -> Table:
        step_s = max(1, math.ceil(self._total_s / TABLE_ROWS))
        known = {
            subject: {at_s // step_s: quantity.fold(group) for at_s, group in self._grouped(items, step_s)}
            for subject, items in by_subject.items()
        }
        rows = [["time", *(self._names.get(subject, subject) for subject in by_subject)]]
        for number in range(max(1, math.ceil(self._total_s / step_s))):
            values = [known[subject].get(number) for subject in by_subject]
            span = f"{units.clock(number * step_s)} to {units.clock((number + 1) * step_s)}"
            rows.append([span, *(DASH if value is None else quantity.write(value) for value in values)])
        about = f"{quantity.title}, over {step_s} s each"
        return Table(rows, about, folded=f"{quantity.title} as a table")

    def _shades(self) -> Iterator[Shade]:
        """Yield the discarded periods, except the starts of slices."""
        seconds = self._course.seconds
        for lane, windows in self._course.windows.items():
            since_ns = until_ns = 0
            for window in (window for window in windows if window.marks not in ((), (SLICE_START,))):
                if until_ns and window.since_ns - until_ns > 1e6:
                    yield self._keys[lane], seconds(since_ns), seconds(until_ns)
                    until_ns = 0
                since_ns = since_ns if until_ns else window.since_ns
                until_ns = window.at_ns
            if until_ns:
                yield self._keys[lane], seconds(since_ns), seconds(until_ns)

    def _lines(self) -> Iterator[Line]:
        groups: list[tuple[Moment, list[str]]] = []
        for moment in self._course.moments[:MOST_MOMENTS]:
            key = [self._keys.get(moment.lane, moment.lane)] if moment.lane else []
            for first, lanes in groups:
                if first.text == moment.text and moment.lane and 0 <= moment.at_ns - first.at_ns < 1_000_000_000:
                    lanes += key
                    break
            else:
                groups.append((moment, key))
        for moment, lanes in groups:
            about = f"{moment.text} ({', '.join(lanes)})" if lanes else moment.text
            yield lanes[0] if len(lanes) == 1 else "", self._course.seconds(moment.at_ns), about

    def _moments(self) -> Table | None:
        moments = self._course.moments
        if not moments:
            return None
        rows = [["time", "what", "lane", "longest pause"]]
        for moment in moments[:MOST_MOMENTS]:
            paused = units.milliseconds(moment.gap_ns / 1e6) if moment.gap_ns else ""
            at = units.signed_clock(self._course.seconds(moment.at_ns))
            rows.append([at, moment.text, self._names.get(moment.lane, ""), paused])
        more = len(moments) - MOST_MOMENTS
        about = f"the recording has {more} more" if more > 0 else ""
        summary = f"What happened: {units.several(len(moments), 'event')}"
        return Table(rows, about, left=(0, 1, 2), folded=summary)


def _idle(course: Course) -> Iterator[tuple[int, int]]:
    windows = sorted((window.since_ns, window.at_ns) for lane in course.windows.values() for window in lane)
    latest_ns = windows[0][1] if windows else 0
    for begin_ns, end_ns in windows:
        if begin_ns - latest_ns > IDLE_NS:
            yield latest_ns, begin_ns
        latest_ns = max(latest_ns, end_ns)
