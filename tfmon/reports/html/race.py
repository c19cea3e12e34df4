"""The sections about one race: result, course, where the time goes, what was tried, machine, method, settings."""

from __future__ import annotations

from collections.abc import Callable

from tfmon import units
from tfmon.analysis.analysis import LaneAnalysis
from tfmon.analysis.attribution import Shares
from tfmon.analysis.crossover import ahead_text, ended_text
from tfmon.analysis.finish import finish_lines
from tfmon.analysis.tuning import best_text
from tfmon.doctor.report import Report
from tfmon.model import lane_statistics as histogram
from tfmon.model.knobs import show
from tfmon.model.lane_state import LaneState
from tfmon.model.race import CrossoverState
from tfmon.model.readings import Missing, known
from tfmon.reports import history_table
from tfmon.reports.experiments import attempt_table
from tfmon.reports.html import charts, course, facts
from tfmon.reports.html.charts import Series
from tfmon.reports.html.gather import Run
from tfmon.reports.html.writer import NOTHING, Html, Writer

PARTS = (
    "waiting for batches",
    "copying to the device",
    "dispatch",
    "compute",
    "tracing",
    "reading the loss",
    "tfmon itself",
    "other Python",
)
"""Parts of the time of a step, in the order of the bars; `page.css` has their colours."""
BOTH = "compute"
"""Stands for dispatch and compute together where nothing tells them apart."""
BINS = 80
OUTPUT_LINES = 12
DASH = "–"


def head(writer: Writer, run: Run, level: str = "h1") -> Html:
    """Return the title, the verdict in words, and what limits it."""
    header, snapshot, verdict = run.header, run.end, run.found.verdict
    when = f"{header.started[:16].replace('T', ' ')}, {units.clock((run.until_ns - run.since_ns) / 1e9)} long"
    notes = [run.found.earlier, verdict.note, run.found.news, snapshot.race.interrupted, *finish_lines(snapshot)]
    torn = "The recording is cut off at its end; this is what it holds." if run.torn else ""
    return Html("".join((
        writer.tag(level, f"{header.scenario}: {header.title}" if header.title else header.scenario),
        writer.tag("p", when, class_="quiet"),
        writer.tag("p", verdict.text, class_="verdict"),
        *(writer.tag("p", note) for note in notes if note),
        writer.tag("p", torn, class_="trouble") if torn else NOTHING,
    )))  # fmt: skip


def controls(writer: Writer, run: Run, legend: str = "lanes shown") -> Html:
    """Return the boxes by which lanes are shown and hidden in all charts."""
    names = run.names
    boxes = []
    for place, lane in enumerate(run.lanes):
        box = writer.tag("input", type="checkbox", checked=True, data_series=run.key(lane))
        colour = f"var(--lane{place % charts.COLOURS})"
        boxes.append(writer.tag("label", box, writer.swatch(colour), names[lane.spec.name]))
    return writer.tag("fieldset", writer.tag("legend", legend), *boxes, class_="controls")


def sections(writer: Writer, run: Run, again: str, doctor: Report | None) -> list[Html]:
    """Return every section about a race but its head.

    Args:
        writer: Writes the page.
        run: The race.
        again: The command that repeats it, or why there is none.
        doctor: What the doctor finds on the machine of the race; None where that is another one.
    """
    return [
        writer.section("Result", result_table(writer, run), _failures(writer, run)),
        writer.section("Throughput over time", course.throughput(writer, run)),
        writer.section(
            "Steps", writer.tag("div", step_times(writer, run), where_time_goes(writer, run), class_="grid")
        ),
        writer.section("Loss", course.loss(writer, run)),
        writer.section("CPU, memory and GPU", course.sampled(writer, run)),
        writer.section("What was tried", _history(writer, run), tried(writer, run), crossover(writer, run)),
        writer.section("How it was measured", facts.method(writer, run)),
        writer.section("Settings", facts.settings_table(writer, run), facts.again(writer, again)),
        writer.section("Machine and versions", facts.machine_table(writer, run), facts.doctor(writer, doctor)),
    ]


# ---------------------------------------------------------------- the result


def result_table(writer: Writer, run: Run) -> Html:
    """Return the figures of every lane, without columns that no lane has; a head sorts by its column."""
    columns = [one for one in _COLUMNS if any(one[1](found) is not None for found in run.found.lanes)]
    rows = [["lane", *(title for title, _, _ in columns)]]
    values: list[list[float | None]] = []
    for found in run.found.lanes:
        numbers = [of(found) for _, of, _ in columns]
        cells = [DASH if value is None else columns[at][2](value) for at, value in enumerate(numbers)]
        rows.append([run.names[found.lane.spec.name], *cells])
        values.append([None, *numbers])
    return writer.table(rows, "Steady state: discarded windows do not count", sortable=True, values=values)


_COLUMNS: tuple[tuple[str, Callable[[LaneAnalysis], float | None], Callable[[float], str]], ...] = (
    ("examples/s", lambda one: one.lane.steady.examples_per_s, units.rate),
    ("95 % CI from", lambda one: one.speed.low if one.speed else None, units.rate),
    ("to", lambda one: one.speed.high if one.speed else None, units.rate),
    ("steps/s", lambda one: one.lane.steady.steps_per_s, units.rate),
    ("step p50", lambda one: one.lane.steady.step_ms(0.5), units.milliseconds),
    ("p95", lambda one: one.lane.steady.step_ms(0.95), units.milliseconds),
    ("p99", lambda one: one.lane.steady.step_ms(0.99), units.milliseconds),
    ("first loss", lambda one: one.lane.first_loss, units.loss),
    ("last loss", lambda one: one.lane.last_loss, units.loss),
    ("memory", lambda one: known(one.lane.memory_bytes), units.memory),
    ("CPU", lambda one: one.lane.racing_cpu_pct.value, units.percent),
    ("GPU busy", lambda one: one.lane.racing_gpu_busy_pct.value, units.percent),
    ("GPU memory", lambda one: known(one.lane.gpu_memory_used_bytes), units.memory),
    ("J per 1,000 examples", lambda one: known(one.lane.gpu_j_per_1000_examples), lambda value: f"{value:.3g}"),
)


def _failures(writer: Writer, run: Run) -> Html:
    told = []
    for lane in run.lanes:
        if lane.trouble is None:
            continue
        lines = lane.ended.output_tail[-OUTPUT_LINES:] if lane.ended is not None else ()
        told.append(writer.tag("p", f"{run.names[lane.spec.name]}: {lane.trouble.message}", class_="trouble"))
        told += [writer.tag("p", lane.trouble.hint)] if lane.trouble.hint else []
        told += [writer.tag("pre", "\n".join(lines))] if lines else []
    return Html("".join(told))


# ---------------------------------------------------------------- steps


def step_times(writer: Writer, run: Run) -> Html:
    """Return how long the steps of each lane took, in steady state."""
    counted = [lane for lane in run.lanes if lane.steady.histogram]
    if not counted:
        return NOTHING
    low = min(min(lane.steady.histogram) for lane in counted)
    high = max(max(lane.steady.histogram) for lane in counted)
    width = (high - low) // BINS + 1
    names, order = run.names, list(run.lanes)
    series = [
        Series(run.key(lane), names[lane.spec.name], order.index(lane), _binned(lane, low, high, width))
        for lane in counted
    ]
    about = "From the end of a step to the end of the next, in steady state; the axis is logarithmic."
    shares = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    rows = [["lane", *(f"p{100 * share:.0f}" for share in shares), "steps"]]
    for lane in counted:
        times = [lane.steady.step_ms(share) for share in shares]
        cells = [DASH if one is None else units.milliseconds(one) for one in times]
        rows.append([names[lane.spec.name], *cells, units.count(lane.steady.steps)])
    return writer.figure(
        "Step times",
        about,
        charts.distribution(series, "step time, ms", f"Step times. {about}"),
        writer.table(rows),
    )


def _binned(lane: LaneState, low: int, high: int, width: int) -> list[course.Point]:
    """Return the share of the steps in each bin of the chart, with an empty one at either end."""
    total = sum(lane.steady.histogram.values())
    counts: dict[int, int] = {}
    for index, amount in lane.steady.histogram.items():
        counts[(index - low) // width] = counts.get((index - low) // width, 0) + amount
    points: list[course.Point] = []
    for place in range(-1, (high - low) // width + 2):
        share = 100 * counts.get(place, 0) / total
        edges = [_edge_ms(low + (place + side) * width) for side in (0, 1)]
        note = f"{units.milliseconds(edges[0])} to {units.milliseconds(edges[1])}"
        points.append((float(f"{(edges[0] * edges[1]) ** 0.5:.5g}"), round(share, 4), f"{share:.2g} %", note))
    return points


def _edge_ms(bin_index: int) -> float:
    """Return the lower end of a bin, in milliseconds."""
    return float(2.0 ** (bin_index / histogram.BINS_PER_OCTAVE) / 1e6)


def where_time_goes(writer: Writer, run: Run) -> Html:
    """Return the parts of the time of a step of each lane, and what limits it."""
    names = run.names
    told = [found for found in run.found.lanes if found.bottleneck is not None]
    if not told:
        return NOTHING
    bars: list[tuple[str, str, str, float]] = []
    rows = [["lane", *PARTS]]
    for found in told:
        if found.bottleneck is None:
            continue
        parts = _parts(found.bottleneck.shares)
        name = names[found.lane.spec.name]
        bars += [
            (run.key(found.lane), name, part, value)
            for part, value in parts.items()
            if value is not None and value > 0
        ]
        rows.append([name, *(DASH if parts[part] is None else f"{parts[part]:.1f} %" for part in PARTS)])
    texts = []
    for found in told:
        if found.bottleneck is not None:
            name = names[found.lane.spec.name]
            texts.append(f"{name}: {found.bottleneck.text}")
            texts += [f"{name}: {line}" for line in found.bottleneck.also]
            texts += [f"{name}: may help: {one.text} ({one.purpose})" for one in found.bottleneck.advice[:1]]
    shown = [part for part in PARTS if any(one[2] == part for one in bars)]
    legend = writer.tag(
        "ul",
        *(writer.tag("li", writer.swatch(f"var(--part{PARTS.index(part)})"), part) for part in shown),
        class_="legend",
    )
    unsplit = any(isinstance(one.bottleneck.shares.device_pct, Missing) for one in told if one.bottleneck)
    about = "Parts of the time of a step in steady state." + (
        f" Where nothing tells dispatch and computing apart, both stand under {BOTH}." if unsplit else ""
    )
    spec = charts.bars(bars, PARTS, f"Where the time goes. {about}")
    table = writer.folded("Where the time goes as a table", writer.table(rows))
    return writer.figure("Where the time goes", about, spec, legend, writer.lines(texts), table)


def _parts(shares: Shares) -> dict[str, float | None]:
    """Return the parts, which add up to 100; None for what is not known."""
    split = not isinstance(shares.device_pct, Missing) and not isinstance(shares.dispatch_pct, Missing)
    values = (
        known(shares.input_pct), known(shares.copy_pct), known(shares.dispatch_pct) if split else None,
        known(shares.device_pct) if split else shares.step_pct, shares.retrace_pct, shares.sync_pct,
        shares.report_pct, shares.other_pct,
    )  # fmt: skip
    return dict(zip(PARTS, values, strict=True))


# ---------------------------------------------------------------- what was tried


def _history(writer: Writer, run: Run) -> Html:
    """Return every change of the race and what came of it."""
    rows = history_table(run.found)
    return writer.table(rows, "Every change, and the verdict from then on", left=range(6)) if rows else NOTHING


def tried(writer: Writer, run: Run) -> Html:
    """Return the changes that were tried and what each gained."""
    state, tuned = run.end.tuned, run.found.tuning
    if state is None or tuned is None or not state.attempts:
        return NOTHING
    heads, *rows = attempt_table(state)
    lanes = [run.names.get(one.lane, one.lane) for one in state.attempts]
    table = writer.table(
        [["lane", *heads], *([lane, *row] for lane, row in zip(lanes, rows, strict=True))], left=(0, 1, 2, 4)
    )
    ended = [writer.tag("p", f"ended early: {state.ended}")] if state.ended else []
    code = [writer.tag("pre", "\n".join(tuned.best.code))] if tuned.best.code else []
    return Html("".join((table, *ended, writer.tag("p", best_text(tuned.best)), *code)))


def crossover(writer: Writer, run: Run) -> Html:
    """Return the crossover of two lanes over the values of a knob."""
    found, state = run.found.curve, run.end.experiment
    if found is None or not isinstance(state, CrossoverState):
        return NOTHING
    names = run.names
    lanes = [run.end.lane(name) for name in state.lanes]
    knob = found.knob.replace("_", " ")
    series, spans = [], []
    for lane, part in zip(lanes, ("first", "second"), strict=True):
        points: list[course.Point] = []
        for place in found.places:
            speed = getattr(place, part)
            if speed is not None:
                note = f"{units.rate(speed.low)} to {units.rate(speed.high)}"
                points.append((float(place.value), float(f"{speed.value:.5g}"), units.rate(speed.value), note))
                spans.append((run.key(lane), float(place.value), speed.low, speed.high))
        series.append(Series(run.key(lane), names[lane.spec.name], list(run.lanes).index(lane), points))
    ids = (run.key(lanes[0]), run.key(lanes[1]))
    rows = [[knob, *(f"{id} examples/s" for id in ids), "ahead"]]
    values: list[list[float | None]] = []
    for place in found.places:
        speeds = [units.rate(speed.value) if speed else DASH for speed in (place.first, place.second)]
        rows.append([show(place.value), *speeds, place.refused or ahead_text(place, ids)])
        numbers = [speed.value if speed else None for speed in (place.first, place.second)]
        values.append([float(place.value), *numbers, place.ratio.value if place.ratio else None])
    ended = ended_text(state)
    spec = charts.curve(
        series, "examples/s", knob, found.text, crossings=[one.about for one in found.crossings], spans=spans
    )
    table = writer.table(rows, left=(3,), sortable=True, values=values)
    return writer.figure("Crossover", found.text, spec, writer.tag("p", ended) if ended else NOTHING, table)
