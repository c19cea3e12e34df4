"""Where the time of steps goes: of the lanes of a race, in sections; and a profile, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from tfmon import units
from tfmon.analysis.analysis import Analysis
from tfmon.analysis.profile_diff import ProfiledSide
from tfmon.analysis.shares import Shares
from tfmon.model import window_sums as histogram
from tfmon.model.lane_state import LaneState
from tfmon.model.profile import NOT_COUNTED, Call, CpuCounters, GpuTime, Profile, Repeat
from tfmon.model.readings import Missing, Reading, known
from tfmon.reports import DASH, VERDICT, Block, Chart, Lines, Note, Report, Section, Table, charts, head, text
from tfmon.reports.charts import Point, Series
from tfmon.reports.profile_diff import memory_section

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
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def sections(analysis: Analysis) -> Sequence[Section]:
    """Return the section about the steps; it has nothing before a lane is in steady state."""
    return (Section("Steps", (_step_times(analysis), _where_time_goes(analysis)), long=True),)


def share_lines(analysis: Analysis) -> Iterator[str]:
    """Yield where the time of a step goes, of each lane of which that is known."""
    for one in analysis.lanes:
        if one.bottleneck is not None:
            parts = [f"{part} {share:.1f} %" for part, share in _parts(one.bottleneck.shares).items() if share]
            yield f"{analysis.snapshot.called(one.lane)}: time of a step: {', '.join(parts)}"


def _key(lane: LaneState) -> str:
    return lane.spec.id or lane.spec.name


def full_name(lane: LaneState) -> str:
    """Return the name of a lane beside charts, which show its id alone: `C cpu batch 64`."""
    return f"{lane.spec.id} {lane.title}".strip()


def _step_times(analysis: Analysis) -> Chart | None:
    snapshot = analysis.snapshot
    counted = [lane for lane in snapshot.lanes if lane.steady.histogram]
    if not counted:
        return None
    low = min(min(lane.steady.histogram) for lane in counted)
    high = max(max(lane.steady.histogram) for lane in counted)
    width = (high - low) // BINS + 1
    rows = [["lane", *(f"p{100 * share:.0f}" for share in QUANTILES), "steps"]]
    series = []
    for place, lane in enumerate(snapshot.lanes):
        if lane in counted:
            times = [lane.steady.step_ms(share) for share in QUANTILES]
            cells = [DASH if one is None else units.milliseconds(one) for one in times]
            rows.append([snapshot.called(lane), *cells, units.count(lane.steady.steps)])
            points = list(_binned(lane, low, high, width))
            series.append(Series(_key(lane), full_name(lane), place, points))
    about = "From the end of a step to the end of the next, in steady state; the axis is logarithmic."
    spec = charts.distribution(series, "step time, ms", f"Step times. {about}")
    return Chart("Step times", about, spec, Table(rows))


def _binned(lane: LaneState, low: int, high: int, width: int) -> Iterator[Point]:
    """Yield the share of the steps in each bin of the chart, with an empty one at either end."""
    total = sum(lane.steady.histogram.values())
    counts: dict[int, int] = {}
    for index, amount in lane.steady.histogram.items():
        counts[(index - low) // width] = counts.get((index - low) // width, 0) + amount
    for place in range(-1, (high - low) // width + 2):
        share = 100 * counts.get(place, 0) / total
        bins = (low + (place + side) * width for side in (0, 1))
        edges = [2.0 ** (one / histogram.BINS_PER_OCTAVE) / 1e6 for one in bins]
        note = f"{units.milliseconds(edges[0])} to {units.milliseconds(edges[1])}"
        yield float(f"{(edges[0] * edges[1]) ** 0.5:.5g}"), round(share, 4), f"{share:.2g} %", note


def _where_time_goes(analysis: Analysis) -> Chart | None:
    attributed = [(one.lane, one.bottleneck.shares) for one in analysis.lanes if one.bottleneck is not None]
    if not attributed:
        return None
    bars: list[tuple[str, str, str, float]] = []
    split = [(lane, analysis.snapshot.called(lane), _parts(shares)) for lane, shares in attributed]
    for lane, name, parts in split:
        bars += [(_key(lane), name, part, value) for part, value in parts.items() if value]
    shown = [part for part in PARTS if any(one[2] == part for one in bars)]
    rows = [["lane", *shown]]
    for _, name, parts in split:
        rows.append([name, *(DASH if (part := parts[one]) is None else f"{part:.1f} %" for one in shown)])
    legend = [(f"var(--part{PARTS.index(part)})", part) for part in shown]
    about = "Parts of the time of a step in steady state."
    if any(isinstance(shares.device_pct, Missing) for _, shares in attributed):
        about += f" Where nothing tells dispatch and computing apart, both stand under {BOTH}."
    spec = charts.bars(bars, PARTS, f"Where the time goes. {about}")
    return Chart("Where the time goes", about, spec, Table(rows), legend=legend)


def _parts(shares: Shares) -> dict[str, float | None]:
    """Return the parts, which add up to 100; None for what is not known."""
    split = not isinstance(shares.device_pct, Missing) and not isinstance(shares.dispatch_pct, Missing)
    values = (
        known(shares.input_pct), known(shares.copy_pct), known(shares.dispatch_pct) if split else None,
        known(shares.device_pct) if split else shares.step_pct, shares.retrace_pct, shares.sync_pct,
        shares.report_pct, shares.other_pct,
    )  # fmt: skip
    return dict(zip(PARTS, values, strict=True))


WIDTH = 100

_MODES = {
    "graph": "tf.function",
    "xla": "tf.function compiled by XLA",
    "eager": "eager",
    "unknown": "how they ran is not known",
}
_NAME, _OPERATION = 40, 50
"""Most characters of the names of what took time."""


def to_json(profile: Profile) -> dict[str, Any]:
    """Return a profile as plain values, times as means a step; what is not known is named under `missing`."""
    missing: dict[str, str] = {}
    plain = _plain(profile, "", missing)
    return {**head(), **plain, "missing": missing}


def _plain(value: Any, path: str, missing: dict[str, str]) -> Any:  # noqa: ANN401 - any part of a profile
    if isinstance(value, Missing):
        missing[path] = value.reason
        return None
    if is_dataclass(value):
        prefix = f"{path}." if path else ""
        return {
            part.name: _plain(getattr(value, part.name), f"{prefix}{part.name}", missing) for part in fields(value)
        }
    if isinstance(value, tuple):
        return [_plain(one, f"{path}.{index}", missing) for index, one in enumerate(value)]
    return dict(value) if isinstance(value, dict) else value


def to_text(profile: Profile) -> str:
    """Return a profile as plain text, at most 100 columns wide."""
    return text.write(describe(profile), width=WIDTH)


def describe(profile: Profile) -> Report:
    """Return where the time of the steps went, in sections."""
    step, longest = _time(profile.step_ns), _time(profile.longest_ns)
    bottleneck = profile.bottleneck
    limit = f"bottleneck: {units.absent(bottleneck)}" if isinstance(bottleneck, Missing) else bottleneck.text
    repeats = [*_repeats("traced", profile.retraces), *_repeats("compiled", profile.compiles)]
    return Report(
        "Profile",
        [
            _split("the loop's thread", profile, _loop(profile)),
            *(_split(device.name, profile, _device(device)) for device in profile.devices),
            Section("work of the input pipeline, on all threads", (_input(profile),)),
            Section("operations of the step, by their own time", list(_operations(profile))),
            memory_section((ProfiledSide("memory", "", (profile,)),)),
            Section("built again during the capture", (Lines(repeats),)),
            *(Section("", (Note(note),)) for note in profile.notes),
        ],
        [
            Note(f"{profile.steps} steps of {step} (the longest {longest}), {_MODES[profile.mode]}"),
            Note(limit, VERDICT),
            *map(Note, counted(profile)),
        ],
    )


def counted(profile: Profile) -> Iterator[str]:
    """Yield what the processor counted, or why it did not; nothing where that was not tried."""
    counters = profile.counters
    if isinstance(counters, CpuCounters):
        yield f"instructions per cycle: {counters.instructions_per_cycle:.2f}"
        waits = units.reading(counters.stalled_share, lambda value: units.percent(100 * value))
        yield f"cycles that waited for a result, as a rule for memory: {waits}"
    elif counters != NOT_COUNTED:
        yield f"instructions per cycle: {units.absent(counters)}"


Share = tuple[str, Reading, str]
"""What took time, how much a step in nanoseconds, and a note."""


def _split(heading: str, profile: Profile, parts: Iterable[Share]) -> Section:
    """Return parts of the time of a step; what is not known says why below the table."""
    rows, reasons = [["", "", "", ""]], []
    for name, time_ns, note in parts:
        if isinstance(time_ns, Missing):
            rows.append([_cut(name, _NAME), "n/a", "", ""])
            reasons.append(f"{name.strip()}: {units.absent(time_ns)}")
        else:
            rows.append([_cut(name, _NAME), _time(time_ns), units.percent(100 * time_ns / profile.step_ns), note])
    return Section(heading, (Table(rows, left=(0, 3)), Lines(reasons)))


def _loop(profile: Profile) -> Iterator[Share]:
    yield "input wait", profile.input.wait_ns, ""
    call = profile.call
    if isinstance(call, Missing):
        yield "step", call, ""
    else:
        yield from _call(profile, call)
    if profile.devices:
        yield "waiting for the GPU, outside", profile.sync_ns, ""
    yield "other", profile.other_ns, ""
    if profile.drain_ns:
        yield "after the last step", profile.drain_ns, ""


def _call(profile: Profile, call: Call) -> Iterator[Share]:
    yield "step" if profile.mode == "eager" else "step call", call.total_ns, ""
    if not isinstance(call.compute_ns, Missing):
        yield "  operations ran", call.compute_ns, ""
    yield "  dispatch", call.dispatch_ns, ""
    yield "    of it Python", call.python_ns, ""
    for name, time_ns in (("  tracing", call.tracing_ns), ("  compiling (XLA)", call.compile_ns)):
        if time_ns:
            yield name, time_ns, ""


def _device(device: GpuTime) -> Iterator[Share]:
    def copied(amount: Reading) -> str:
        return units.reading(amount, units.memory) + (" a step" if not isinstance(amount, Missing) else "")

    yield "kernels", device.kernels_ns, ""
    if device.all_reduce_ns:
        yield "  of it all-reduce only", device.all_reduce_ns, ""
    yield "copies from the host", device.h2d_ns, copied(device.h2d_bytes)
    yield "  that no kernel hid", device.h2d_exposed_ns, ""
    yield "copies to the host", device.d2h_ns, copied(device.d2h_bytes)
    yield "  that nothing hid", device.d2h_exposed_ns, ""
    yield "idle", device.idle_ns, ""
    yield "  the loop waited for input", device.idle_input_ns, ""
    yield "  the loop called the step", device.idle_launch_ns, ""
    if device.idle_tracing_ns:
        yield "  the loop traced or compiled", device.idle_tracing_ns, ""
    yield "  the loop did something else", device.idle_other_ns, ""


def _input(profile: Profile) -> Table | None:
    rows = [
        [_cut(stage.name, _NAME), _time(stage.busy_ns), f"{stage.elements:.3g} a step"]
        for stage in profile.input.stages
    ]
    if rows and not isinstance(profile.input.python_ns, Missing):
        rows.append(["Python functions in these", _time(profile.input.python_ns), ""])
    return Table([["", "", ""], *rows]) if rows else None


def _operations(profile: Profile) -> Iterator[Block]:
    ops = profile.ops
    if isinstance(ops, Missing):
        yield Note(units.absent(ops))
        return
    rows = [["operation", "device", "runs", "share", "own time"]]
    for op in ops.top:
        name = op.name
        if not name.startswith(op.kind):  # the last part of the name tells no more than the kind
            name = f"{op.kind} {name.rpartition('/')[0] or name}"
        runs, share = f"{op.count / profile.steps:.3g}/step", units.percent(100 * op.share)
        rows.append([_cut(name, _OPERATION), op.device, runs, share, _time(op.self_ns)])
    rows.append([f"all {units.count(ops.runs)} that the trace shows", "", "", "", _time(ops.time_ns)])
    yield Table(rows, left=(0, 1))
    if not isinstance(ops.parallelism, Missing) and ops.parallelism >= 1.05:
        yield Note(f"{ops.parallelism:.2g} operations in parallel on average, while any ran")


def _repeats(what: str, repeats: Iterable[Repeat]) -> Iterator[str]:
    for one in repeats:
        cost = units.reading(one.cost_ns, lambda value: f"{_time(value)} each")
        times = "once" if one.count == 1 else f"{one.count} times"
        yield f"{_cut(one.function, _NAME)} was {what} {times}, {cost}"


def _time(value_ns: float) -> str:
    return units.milliseconds(value_ns / 1e6)


def _cut(text: str, width: int) -> str:
    """Shorten a text in its middle: both ends of an operation's name are informative."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"
