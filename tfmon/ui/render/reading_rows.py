"""The readings of a lane, of its machine and of its GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfmon import units
from tfmon.analysis.bottleneck_rules import Shares
from tfmon.analysis.finish import seconds_left
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.host_states import HostState
from tfmon.model.knobs import BATCH_SCOPE, BATCH_SIZE, short_name, show
from tfmon.model.lane_events import Progressed
from tfmon.model.lane_relations import ordered_settings
from tfmon.model.lane_state import LaneState
from tfmon.model.lane_use import NO_GPU
from tfmon.model.race import TURNS
from tfmon.model.readings import NOT_SAMPLED, Missing, Reading, known, summed
from tfmon.model.session import Snapshot
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, cells, meter, stacked
from tfmon.ui.render.style import STRONG, WARN, banded

LABEL_CELLS = 8
WIDE = 44
_BAR_TAIL, _BAR_TAIL_WIDE = 17, 28
"""Cells for the text after a bar, so that all bars have equal lengths."""
UNKNOWN = "–"
DIFFERS = "≠ "
REFUSED_NS = 20_000_000_000


def labelled(label: str, *spans: tuple[str, str]) -> Row:
    """Return a row with a dim label."""
    return ((label.ljust(LABEL_CELLS - 1) + " ", DIM), *spans)


def done_row(lane: LaneState, width: int, *, discarded: bool = True) -> Row:
    """Return steps, examples and discarded share since the start signal."""
    missing, progress, steps = lane.script.not_measured, lane.script.progress, units.count(lane.totals.steps)
    if not lane.points:
        return labelled("done", (f"{UNKNOWN} {missing.get('steps', '')}".rstrip(), DIM))
    if progress is not None and progress.epochs:
        return _epoch_row(lane, progress, width)
    reason = missing.get("steps") or missing.get("examples", "")
    if reason and not lane.totals.examples:
        return labelled("done", (steps, TEXT), (f" steps · ex. {UNKNOWN} {reason}", DIM))
    row = labelled(
        "done",
        (f"epoch {progress.epoch} {progress.doing} · " if progress is not None and progress.epoch else "", DIM),
        (steps, TEXT),
        (" steps · ", DIM),
        (units.count(lane.totals.examples), TEXT),
        (" ex.", DIM),
    )
    whole = units.discarded(lane.discarded_shares) if discarded else ""
    return fitting(width, *((*row, (f" · {text}", DIM)) for text in (whole, whole.partition(":")[0]) if text), row)


def fitting(width: int, *rows: Row) -> Row:
    """Return the first row that fits, or the last row."""
    return next((row for row in rows if cells(row) <= width), rows[-1])


def _epoch_row(lane: LaneState, progress: Progressed, width: int) -> Row:
    epochs, doing = f"{progress.epoch} of {progress.epochs}  ", progress.doing.replace("fit", "")
    if not progress.batches:
        return labelled("epoch", (epochs, TEXT), (f"{units.count(progress.batch)} batches {doing}", DIM))
    left_s = None if lane.over else seconds_left(lane)
    left = f"{units.clock(left_s)} left" if left_s is not None else ""
    share = (max(0, progress.epoch - 1) + min(1.0, progress.batch / progress.batches)) / progress.epochs
    tail = "  ".join(filter(None, (f"{100 * share:4.0f} %", doing, left)))
    drawn = meter(share, max(4, width - LABEL_CELLS - len(epochs) - len(tail)), TEXT)
    return labelled("epoch", (epochs, STRONG), *drawn, (tail, STRONG))


_PARTS = (
    ("input", "input_pct", "█"),
    ("copy", "copy_pct", "▚"),
    ("dispatch", "dispatch_pct", "▓"),
    ("compute", "device_pct", "▒"),
    ("retrace", "retrace_pct", "▞"),
    ("sync", "sync_pct", "═"),
    ("tfmon", "report_pct", "·"),
    ("other", "other_pct", "░"),
)
_LEAST_PCT = 2.0


def time_parts(shares: Shares) -> list[tuple[str, float, str]]:
    """Return name, percent and character of the step time's known parts."""
    parts = [(name, known(getattr(shares, field)), glyph) for name, field, glyph in _PARTS]
    known_parts = [(name, value, glyph) for name, value, glyph in parts if value is not None]
    if known(shares.dispatch_pct) is None:
        known_parts.insert(1, ("step", max(0.0, shares.step_pct - (known(shares.device_pct) or 0.0)), "▓"))
    return known_parts


def time_row(shares: Shares | None, width: int, accent: str) -> Row:
    """Return the parts of the step time as a bar and text."""
    if shares is None:
        return labelled("time", (UNKNOWN, DIM))
    parts, text = time_parts(shares), ""
    largest = max(value for _, value, _ in parts)
    styled = ((value, glyph, accent if value == largest else DIM) for _, value, glyph in parts)
    spans = stacked(styled, min(20, max(8, (width - LABEL_CELLS) // 3)))
    room = width - LABEL_CELLS - cells(spans)
    for name, value, glyph in sorted(parts, key=lambda part: -part[1]):
        word = f" {glyph}{name} {value:.0f} %"
        if value < _LEAST_PCT or len(text) + len(word) > room:
            break
        text += word
    return labelled("time", *spans, (text, TEXT))


def knobs_rows(lane: LaneState, width: int, most: int) -> list[Row]:
    """Return the knobs, first the knobs in which lanes differ."""
    requested, differing = dict(lane.to_change), lane.differs or ()
    settings = {name: (show(value), differs) for name, value, differs in ordered_settings(lane)}
    settings |= {name: ("", name in differing) for name in requested if name not in settings}
    scope, style = lane.in_effect.get(BATCH_SCOPE.name), TEXT if lane.points else DIM
    if scope is not None and BATCH_SCOPE.name not in {*requested, *differing}:
        settings.pop(BATCH_SCOPE.name, None)
        value, differs = settings[BATCH_SIZE.name]
        settings[BATCH_SIZE.name] = (f"{value} {scope}" if lane.spec.devices > 1 else value, differs)
    rows = [labelled("knobs")]
    for name in sorted(settings, key=lambda name: (not settings[name][1], name not in requested)):
        value, differs = settings[name]
        spans: Row = (
            (f"{DIFFERS if differs else ''}{short_name(name)}", STRONG if differs else DIM),
            (f" {value}" if value else "", STRONG if differs else style),
            (f" → {show(requested[name])} requested" if name in requested else "", DIM),
        )
        if len(rows[-1]) == 1:
            rows[-1] += spans
        elif cells(rows[-1]) + cells(spans) + 3 <= width:
            rows[-1] = (*rows[-1], (" · ", DIM), *spans)
        elif (differs or name in requested) and len(rows) < most:
            rows.append(labelled("", *spans))
    return rows if settings else [labelled("knobs", (UNKNOWN, DIM))]


def bar(share: float | None, text: str, width: int, accent: str) -> Row:
    """Return a bar and a text at a fixed position."""
    tail = f" {text}"
    length = min(24, width - max(len(tail), _BAR_TAIL_WIDE if width >= WIDE else _BAR_TAIL))
    if share is None or length < 4:
        return ((text, TEXT),)
    return (*meter(share, length, banded(accent, share)), (tail, TEXT))


def machines(snapshot: Snapshot) -> list[tuple[str, HostState]]:
    """Return the machines of the lanes, or the monitor's machine."""
    by_machine: dict[str, tuple[str, HostState]] = {}
    for lane in snapshot.lanes:
        by_machine.setdefault(snapshot.machine_key(lane), (lane.spec.host, snapshot.place_of(lane)))
    return list(by_machine.values()) or [("", snapshot.hosts[""])]


def mode_message(snapshot: Snapshot, mode: str) -> str:
    """Return how lanes train in a mode."""
    count, lanes = snapshot.machines, len(snapshot.lanes)
    if mode == TURNS:
        if count < 2:
            return "taking turns"
        return "each round begins on all machines together" if count == lanes else "taking turns on each machine"
    if count == lanes > 1:
        return "all lanes train at once: none waits for another"
    shared = "they share the cores" if count < 2 else "those of one machine share its cores"
    return f"all lanes train at once: {shared}"


def lane_names(snapshot: Snapshot, lane: LaneState) -> list[str]:
    """Return the names of a lane, the longest first."""
    if not any(lane.spec.host for lane in snapshot.lanes):
        counted = f"{lane.spec.devices}x{lane.spec.kind}"
        return [lane.title, lane.short_title, *([counted] if lane.spec.devices > 1 else [])]
    location, short = lane.spec.place, lane.short_title
    settings = "" if short == location else short.removeprefix(f"{location}, ")
    host = lane.spec.host.rpartition("@")[2]
    if not host.replace(".", "").isdecimal() and ":" not in host:  # an address stays whole
        host = host.partition(".")[0]
    brief = "/".join(filter(None, (host, lane.spec.device)))
    return [
        lane.title,
        *(f"{name}, {settings}" if settings else name for name in (location, brief)),
        location,
        brief,
    ]


def connecting(snapshot: Snapshot, lane: LaneState) -> bool:
    """Return whether a lane's machine is being connected."""
    return bool(lane.spec.host) and snapshot.place_of(lane).connecting


def connection_lines(snapshot: Snapshot, lane: LaneState) -> Iterator[tuple[str, str]]:
    """Yield the state of the connection to a lane's machine."""
    host, state = lane.spec.host, snapshot.place_of(lane)
    if not host:
        return
    link = state.link
    if state.lost and state.lost_ns is not None:
        yield "lost", f"{units.seconds(max(0, snapshot.at_ns - state.lost_ns) / 1e9)} ago: {state.lost}"
    elif state.connected_ns is None:
        yield "state", "connecting…"
    else:
        for_s = units.clock((snapshot.at_ns - state.connected_ns) / 1e9)
        hush_s = snapshot.silent_s(lane)
        hush = "" if hush_s is None else f"; nothing came for {units.seconds(hush_s)}"
        yield "state", f"connected for {for_s}{hush}"
    if link is None:
        yield "round trip", "n/a (not measured yet)"
    else:
        yield "round trip", f"{units.milliseconds(link.round_trip_ns / 1e6)} from tfmon to the agent and back"
        error = units.milliseconds(link.error_ns / 1e6)
        yield "clock offset", f"{units.offset(link.offset_ns)}, known to ±{error}; added to every stamp from there"
        cpu = units.reading(link.agent_cpu_pct, lambda value: f"{value:.1f} % of a core")
        memory = units.reading(link.agent_bytes, units.memory)
        yield "agent", f"{cpu} and {memory} there"
    key = snapshot.machine_key(lane)
    other_lanes = [lane for lane in snapshot.lanes if snapshot.machine_key(lane) == key and lane.spec.host != host]
    alike = sorted({other.spec.place for other in other_lanes})
    if alike:
        yield "one machine", f"with {', '.join(alike)}: these lanes take turns"


_EIGHTHS = "▁▂▃▄▅▆▇█"
_UNITS = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20))


def gpu_load_row(lane: LaneState, snapshot: Snapshot, width: int, accent: str) -> Row:
    """Return the load of each GPU."""
    if lane.spec.kind != "gpu":
        return labelled("gpu", (units.absent(NO_GPU), DIM))
    gpus = snapshot.gpus_of(lane)
    busy = [gpu.load.busy_pct for gpu in gpus]
    ages = [age for age in map(snapshot.stale_s, gpus) if age is not None]
    loads = [value for value in map(known, busy) if value is not None]
    if ages:
        return labelled("gpu", (f"stale: read {units.seconds(max(ages))} ago", WARN))
    if not loads:
        return labelled("gpu", (units.absent(_first_missing(busy)), DIM))
    if lane.spec.devices == 1:
        gpu, room = gpus[0], width - LABEL_CELLS
        age_s, watts, limit = gpu.age_s("load"), known(gpu.power.power_w), known(gpu.power.power_limit_w)
        text = f"{loads[0]:4.0f} %, {age_s:.0f} s ago" if age_s >= 1 else f"{loads[0]:4.0f} % busy"
        if watts is not None and limit is not None and room >= WIDE:
            text += f" · {watts:.0f} W of {limit:.0f}" + (" (whole GPU)" if gpu.part_of else "")
        return labelled("gpu", *bar(loads[0] / 100, text, room, accent))
    values = _each(lane, busy)
    numbers = " ".join(UNKNOWN if value is None else f"{value:.0f}" for value in values)
    bars = [
        (UNKNOWN, DIM) if value is None else (_EIGHTHS[min(7, int(value / 12.5))], banded(accent, value / 100))
        for value in values
    ]
    power = known(summed([gpu.power.power_w for gpu in gpus])) if len(gpus) == lane.spec.devices else None
    drawn = "" if power is None else f" · {units.count(round(power))} W"
    texts = (f"{numbers} % busy{drawn}", f"{numbers} % busy", f"{numbers} %")
    short = labelled("gpu", *bars, (f" {_span(loads, 0)} %", TEXT))
    return fitting(width, *(labelled("gpu", (text, TEXT)) for text in texts), short)


def gpu_memory_row(lane: LaneState, snapshot: Snapshot, width: int) -> Row:
    """Return the GPU memory used on each GPU and allocated by TensorFlow."""
    gpus, use = snapshot.gpus_of(lane), lane.gpu_use
    if lane.spec.kind != "gpu":
        return BLANK
    allocated = "" if use.allocated_bytes is None else f"{units.memory(use.allocated_bytes)} allocated"
    if lane.spec.devices == 1:
        used = _gpu_used(lane, gpus[0] if gpus else None)
        peak = f" (peak {units.memory(use.peak_bytes)})" if allocated and use.peak_bytes is not None else ""
        every = ((used, allocated + peak), (used, allocated), (used.removesuffix(" used"), allocated))
        texts = [" · ".join(filter(None, parts)) for parts in every]
        return _memory(width, *texts) if texts[0] else labelled("gpu mem", (units.absent(NOT_SAMPLED), DIM))
    lane_bytes = [use.parts[gpu.key].used_bytes if gpu.key in use.parts else NOT_SAMPLED for gpu in gpus]
    by_lane = all(not isinstance(reading, Missing) for reading in lane_bytes)
    shown = lane_bytes if by_lane else [gpu.memory.used_bytes for gpu in gpus]
    values = _each(lane, shown)
    sizes = [value for value in values if value is not None]
    if not sizes:
        return labelled("gpu mem", (units.absent(_first_missing(shown)), DIM))
    unit, size = next((unit_ for unit_ in _UNITS if max(sizes) >= unit_[1]), _UNITS[-1])
    digits = 0 if min(sizes) / size >= 9.95 else 1
    numbers = " ".join(UNKNOWN if value is None else f"{value / size:.{digits}f}" for value in values)
    text = f"{numbers} {unit}{' used' if by_lane else ' used by all programs'}"
    span = f"{len(sizes)}x {_span([value / size for value in sizes], digits)} {unit}"
    return _memory(width, " · ".join(filter(None, (text, allocated))), text, f"{numbers} {unit}", span)


def _memory(width: int, *texts: str) -> Row:
    return fitting(width, *(labelled("gpu mem", (text, TEXT)) for text in texts))


def _gpu_used(lane: LaneState, gpu: GpuSample | None) -> str:
    by_lane, source = known(lane.gpu_use.used_bytes), lane.gpu_use.source
    if by_lane is not None:
        return f"{units.memory(by_lane)} used" + (f" ({source})" if source not in ("", "driver") else "")
    if gpu is None:
        return ""
    used, total = gpu.memory.used_bytes, gpu.memory.total_bytes
    if isinstance(used, Missing) or isinstance(total, Missing):
        return units.reading(used, units.memory)
    return f"GPU {units.memory(used)} of {units.memory(total)}"


def _each(lane: LaneState, shown: Sequence[Reading]) -> list[float | None]:
    return [*map(known, shown), *[None] * (lane.spec.devices - len(shown))]


def _first_missing(shown: Sequence[Reading]) -> Missing:
    return next((reading for reading in shown if isinstance(reading, Missing)), NOT_SAMPLED)


def _span(values: Sequence[float], digits: int) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"
