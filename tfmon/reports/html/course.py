"""A race over time: throughput, loss, and what was sampled of CPU, memory and GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from tfmon import units
from tfmon.model.lane_state import LaneState
from tfmon.model.lane_statistics import SLICE_START
from tfmon.reports.html import charts
from tfmon.reports.html.charts import Line, Series, Shade
from tfmon.reports.html.gather import BUSY, CPU, HEAT, MEMORY, POWER, USED, Measured, Moment, Run
from tfmon.reports.html.writer import NOTHING, Html, Writer

MOST_POINTS = 600
"""Points of a series, about; in a longer race each stands for more than a second."""
TABLE_ROWS = 30
LONGEST_REST_S = 10.0
"""A longer time without a value is a gap in a line: in turns, lanes rest for less."""
MOST_SHADES = 600
MOST_LABELS = 6
MOST_MOMENTS = 200
NOT_COUNTED = "not counted: "

Point = tuple[float, float | None, str, str]
"""Place on the axis, value, the value in words, a note."""


def throughput(writer: Writer, run: Run) -> Html:
    """Return the throughput of all lanes over time, with the marks of what was changed."""
    every_s = interval_s(run)
    series = throughput_series(run, every_s)
    if not any(one.points for one in series):
        return NOTHING
    shades = list(_shades(run))
    longest = sorted(shades, key=lambda one: one.since_s - one.until_s)[:MOST_SHADES]
    few = "" if len(longest) == len(shades) else f", the {MOST_SHADES} longest"
    lines = list(_lines(run))
    about = (
        f"Examples/s over time, a point for every {units.about(every_s)}, discarded windows included. Shaded: "
        f"windows that do not count{few}, but for those {SLICE_START}. Dashed: what was changed."
    )
    spec = charts.over_time(
        series, "examples/s", about, shades=longest, lines=lines, tall=True, labels=len(lines) <= MOST_LABELS
    )
    table = over_time_table(
        writer, run, "examples/s", lambda lane, since, until: _rate(run.windows[lane], since, until)
    )
    return writer.figure(
        "Throughput", about, spec, writer.folded("Throughput as a table", table), _moments(writer, run)
    )


def interval_s(run: Run) -> float:
    """Return how many seconds each point of a chart stands for: a whole number."""
    return max(1.0, math.ceil((run.until_ns - run.since_ns) / 1e9 / MOST_POINTS))


def throughput_series(run: Run, every_s: float, *, dashed: bool = False) -> list[Series]:
    """Return a line for each lane: examples over the wall time of the windows that ended in each interval."""
    names = run.names
    return [
        Series(run.key(lane), names[lane.spec.name], place, list(_throughput(run, lane, every_s)), dashed)
        for place, lane in enumerate(run.lanes)
    ]


def _throughput(run: Run, lane: LaneState, every_s: float) -> Iterator[Point]:
    before_s = None
    for at_s, windows in _grouped(run, run.windows[lane.spec.name], every_s):
        speed = _speed(windows)
        if speed is None:
            continue
        if before_s is not None and at_s - before_s > max(LONGEST_REST_S, 2 * every_s):
            yield (at_s + before_s) / 2, None, "", ""
        before_s = at_s
        gone = dict.fromkeys(one.reason for one in windows if one.reason)
        yield at_s, _short(speed), units.rate(speed), NOT_COUNTED + ", ".join(gone) if gone else ""


def _grouped(run: Run, windows: Sequence[Measured], every_s: float) -> Iterator[tuple[float, list[Measured]]]:
    """Yield the middle of each interval in which windows ended, and these."""
    group: list[Measured] = []
    latest = None
    for one in windows:
        place = math.floor((one.at_ns - run.since_ns) / 1e9 / every_s)
        if latest is not None and place != latest:
            yield (latest + 0.5) * every_s, group
            group = []
        latest = place
        group.append(one)
    if latest is not None:
        yield (latest + 0.5) * every_s, group


def _speed(windows: Sequence[Measured]) -> float | None:
    span_ns = sum(one.span_ns for one in windows)
    if span_ns <= 0 or any(one.examples is None for one in windows):
        return None
    return sum(one.examples or 0 for one in windows) / span_ns * 1e9


def _rate(windows: Sequence[Measured], since_ns: float, until_ns: float) -> str:
    speed = _speed([one for one in windows if since_ns <= one.at_ns < until_ns])
    return "–" if speed is None else units.rate(speed)


def _shades(run: Run) -> Iterator[Shade]:
    """Yield the stretches of discarded windows of each lane; those at the start of a slice come in every one."""
    for lane in run.lanes:
        since_ns = until_ns = 0
        for one in run.windows[lane.spec.name]:
            if not one.reason or one.reason == SLICE_START:
                continue
            begin_ns = one.at_ns - one.span_ns
            if until_ns and begin_ns - until_ns > 1e6:
                yield Shade(run.key(lane), (since_ns - run.since_ns) / 1e9, (until_ns - run.since_ns) / 1e9)
                until_ns = 0
            since_ns = since_ns if until_ns else begin_ns
            until_ns = one.at_ns
        if until_ns:
            yield Shade(run.key(lane), (since_ns - run.since_ns) / 1e9, (until_ns - run.since_ns) / 1e9)


def _lines(run: Run) -> Iterator[Line]:
    """Yield the marks; a knob that several lanes changed within a second is marked once."""
    keys = {lane.spec.name: run.key(lane) for lane in run.lanes}
    groups: list[tuple[Moment, list[str]]] = []
    for moment in run.moments[:MOST_MOMENTS]:
        same = next(
            (lanes for first, lanes in groups
             if first.text == moment.text and moment.lane and 0 <= moment.at_ns - first.at_ns < 1_000_000_000),
            None,
        )  # fmt: skip
        if same is not None:
            same.append(keys.get(moment.lane, moment.lane))
        else:
            groups.append((moment, [keys.get(moment.lane, moment.lane)] if moment.lane else []))
    for moment, lanes in groups:
        about = f"{moment.text} ({', '.join(lanes)})" if lanes else moment.text
        yield Line(lanes[0] if len(lanes) == 1 else "", (moment.at_ns - run.since_ns) / 1e9, about)


def _moments(writer: Writer, run: Run) -> Html:
    """Return the table of what happened."""
    if not run.moments:
        return NOTHING
    names = run.names
    rows = [["time", "what", "lane", "longest pause"]]
    for one in run.moments[:MOST_MOMENTS]:
        paused = units.milliseconds(one.gap_ns / 1e6) if one.gap_ns else ""
        rows.append(
            [units.signed_clock((one.at_ns - run.since_ns) / 1e9), one.text, names.get(one.lane, ""), paused]
        )
    more = len(run.moments) - MOST_MOMENTS
    return writer.folded(
        f"What happened: {len(run.moments)} changes and other events",
        writer.table(rows, left=(0, 1, 2)),
        writer.tag("p", f"… and {more} more, which the recording has") if more > 0 else NOTHING,
    )


def over_time_table(
    writer: Writer, run: Run, unit: str, cell: Callable[[str, float, float], str], subjects: Sequence[str] = ()
) -> Html:
    """Return a table of a value of each lane, or of each of these subjects, over some thirty stretches of time."""
    names = run.names
    subjects = subjects or [lane.spec.name for lane in run.lanes]
    total_s = (run.until_ns - run.since_ns) / 1e9
    step_s = max(1, math.ceil(total_s / TABLE_ROWS))
    rows = [["time", *(names.get(subject, subject) for subject in subjects)]]
    for number in range(max(1, math.ceil(total_s / step_s))):
        since_ns, until_ns = (run.since_ns + place * step_s * 1e9 for place in (number, number + 1))
        span = f"{units.clock(number * step_s)} to {units.clock((number + 1) * step_s)}"
        rows.append([span, *(cell(subject, since_ns, until_ns) for subject in subjects)])
    return writer.table(rows, f"{unit}, over {step_s} s each")


# ---------------------------------------------------------------- loss and what was sampled


def loss(writer: Writer, run: Run) -> Html:
    """Return the loss of all lanes over time; nothing where no lane has one."""
    names = run.names

    def points(lane: LaneState) -> Iterator[Point]:
        for at_s, windows in _grouped(run, run.windows[lane.spec.name], interval_s(run)):
            known = [one.loss for one in windows if one.loss is not None]
            if known:
                finite = math.isfinite(known[-1])
                yield at_s, float(f"{known[-1]:.5g}") if finite else None, units.loss(known[-1]), ""

    def cell(lane: str, since_ns: float, until_ns: float) -> str:
        known = [
            one.loss for one in run.windows[lane] if one.loss is not None and since_ns <= one.at_ns < until_ns
        ]
        return units.loss(known[-1]) if known else "–"

    series = [
        Series(run.key(lane), names[lane.spec.name], place, list(points(lane)))
        for place, lane in enumerate(run.lanes)
    ]
    if not any(one.points for one in series):
        return NOTHING
    about = "Of the last step of each interval."
    table = over_time_table(writer, run, "loss", cell)
    spec = charts.over_time(series, "loss", f"Loss over time. {about}", zero=False)
    return writer.figure("Loss", about, spec, writer.folded("Loss as a table", table))


def sampled(writer: Writer, run: Run) -> Html:
    """Return the charts of what was sampled about once a second, and what was not read."""
    found = [_readings(writer, run, *one) for one in _READINGS]
    missing = [title for (what, title, *_), html in zip(_READINGS, found, strict=True) if not html]
    told = f"Not read in this race: {', '.join(missing)}." if missing else ""
    return Html(writer.tag("div", *found, class_="grid") + (writer.tag("p", told, class_="quiet") if told else ""))


_LANES_OR_ALL = "Of the processes of a lane, while it trains; of the whole machine."
_READINGS: tuple[tuple[str, str, str, str, float, Callable[[float], str]], ...] = (
    (CPU, "CPU", "% of a core", _LANES_OR_ALL, 1.0, units.percent),
    (MEMORY, "Memory", "MiB", "That no other process shares.", 2.0**20, units.memory),
    (BUSY, "GPU load", "% of the time", "Time in which at least one kernel ran.", 1.0, units.percent),
    (USED, "GPU memory", "MiB", "Of all processes.", 2.0**20, units.memory),
    (POWER, "Power", "W", "As the driver or the processor counts it.", 1.0, lambda value: f"{value:.0f} W"),
    (HEAT, "Temperature", "°C", "Of the GPU.", 1.0, lambda value: f"{value:.0f} °C"),
)


def _readings(
    writer: Writer,
    run: Run,
    what: str,
    title: str,
    unit: str,
    about: str,
    scale: float,
    write: Callable[[float], str],
) -> Html:
    of = run.samples.get(what, {})
    subjects = [lane.spec.name for lane in run.lanes if lane.spec.name in of]
    largest = max((value for samples in of.values() for _, value in samples), default=0.0)
    if unit == "MiB" and largest >= 4 * 2**30:
        unit, scale = "GiB", 2.0**30
    others = [subject for subject in of if subject not in run.windows]
    subjects += others
    if not subjects:
        return NOTHING
    names, keys = run.names, {lane.spec.name: run.key(lane) for lane in run.lanes}
    order = [lane.spec.name for lane in run.lanes]
    series = []
    for subject in subjects:
        place = order.index(subject) if subject in order else len(order) + others.index(subject)
        points = list(_means(run, of[subject], scale, write))
        series.append(Series(keys.get(subject, subject), names.get(subject, subject), place, points))

    def cell(subject: str, since_ns: float, until_ns: float) -> str:
        known = [value for at_ns, value in of[subject] if since_ns <= at_ns < until_ns]
        return write(sum(known) / len(known)) if known else "–"

    table = over_time_table(writer, run, f"{title}, means", cell, subjects)
    spec = charts.over_time(series, unit, f"{title} over time. {about}")
    return writer.figure(title, about, spec, writer.folded(f"{title} as a table", table))


def _means(
    run: Run, samples: Sequence[tuple[int, float]], scale: float, write: Callable[[float], str]
) -> Iterator[Point]:
    """Yield the mean of each interval; a time without samples is a gap."""
    every_s = max(1.0, interval_s(run))
    groups: dict[int, list[float]] = {}
    for at_ns, value in samples:
        groups.setdefault(math.floor((at_ns - run.since_ns) / 1e9 / every_s), []).append(value)
    before = None
    for place in sorted(groups):
        if before is not None and (place - before) * every_s > max(LONGEST_REST_S, 2 * every_s):
            yield (before + 1) * every_s, None, "", ""
        before = place
        mean = sum(groups[place]) / len(groups[place])
        yield (place + 0.5) * every_s, _short(mean / scale), write(mean), ""


def _short(value: float) -> float:
    """Return a value with as many digits as a chart can show."""
    return float(f"{value:.5g}")
