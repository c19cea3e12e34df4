"""Machines, connections and GPUs of the lanes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfmon import units
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.host_states import HostState
from tfmon.model.lane_state import HOST_LOST, LaneState
from tfmon.model.lane_use import NO_GPU
from tfmon.model.race import TURNS
from tfmon.model.readings import NOT_SAMPLED, Missing, Reading, known, summed
from tfmon.model.session import STALE_TICKS, Snapshot
from tfmon.ui.render.reading_rows import LABEL_CELLS, UNKNOWN, WIDE, bar, labelled
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row, cells
from tfmon.ui.render.style import TROUBLE, WARN, banded, strong


def machines(snapshot: Snapshot) -> list[tuple[str, HostState]]:
    """Return the machines of the lanes; before there are lanes, the monitor's."""
    by_machine: dict[str, tuple[str, HostState]] = {}
    for lane in snapshot.lanes:
        by_machine.setdefault(snapshot.machine_key(lane), (lane.spec.host, snapshot.place_of(lane)))
    return list(by_machine.values()) or [("", snapshot.hosts[""])]


def count_row(snapshot: Snapshot) -> Row:
    """Return the number of machines, or the name of the only one."""
    used = machines(snapshot)
    lost = sum(bool(state.lost) for _, state in used)
    name = used[0][0] if len(used) == 1 else f"{len(used)} machines"
    lost_text = "" if not lost else " is lost" if len(used) == 1 else f", {lost} lost"
    return ((name, TEXT), (lost_text, strong(TROUBLE))) if lost_text else ((name, TEXT),)


def mode_said(snapshot: Snapshot, mode: str) -> str:
    """Say how the lanes train after a change of the mode."""
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
    if not any(one.spec.host for one in snapshot.lanes):
        counted = f"{lane.spec.devices}x{lane.spec.kind}"
        return [lane.title, lane.short_title, *([counted] if lane.spec.devices > 1 else [])]
    place, short = lane.spec.place, lane.short_title
    settings = "" if short == place else short.removeprefix(f"{place}, ")
    host = lane.spec.host.rpartition("@")[2]
    if not host.replace(".", "").isdecimal() and ":" not in host:  # an address stays whole
        host = host.partition(".")[0]
    brief = "/".join(filter(None, (host, lane.spec.device)))
    return [lane.title, *(f"{where}, {settings}" if settings else where for where in (place, brief)), place, brief]


def connecting(snapshot: Snapshot, lane: LaneState) -> bool:
    """Return whether the machine of a lane is being connected."""
    state = snapshot.place_of(lane)
    return bool(lane.spec.host) and state.connected_ns is None and not state.lost


def again_words(snapshot: Snapshot, lane: LaneState) -> str:
    """Return the state of a failed lane's new connection. Empty without one."""
    host, state = lane.spec.host, snapshot.place_of(lane)
    if lane.trouble is None or lane.trouble.kind != HOST_LOST or state.lost:
        return ""
    return f"connecting to {host} again…" if connecting(snapshot, lane) else f"{host} is connected again"


def silent_s(snapshot: Snapshot, lane: LaneState) -> float | None:
    """Return for how long a machine has been silent, or None."""
    host, state = lane.spec.host, snapshot.place_of(lane)
    if not host or lane.over or state.lost or state.sample is None:
        return None
    heard_ns = [one.heartbeat.heard_ns or 0 for one in snapshot.lanes if one.spec.host == host]
    age_s = (snapshot.at_ns - max(state.sample.at_ns, *heard_ns)) / 1e9
    return age_s if age_s > STALE_TICKS else None


def lines(snapshot: Snapshot, lane: LaneState) -> Iterator[tuple[str, str]]:
    """Yield the state of the connection to the machine of a lane."""
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
        hush_s = silent_s(snapshot, lane)
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
    others = [one for one in snapshot.lanes if snapshot.machine_key(one) == key and one.spec.host != host]
    alike = sorted({other.spec.place for other in others})
    if alike:
        yield "one machine", f"with {', '.join(alike)}: these lanes take turns"


_EIGHTHS = "▁▂▃▄▅▆▇█"
_UNITS = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20))


def load_row(lane: LaneState, snapshot: Snapshot, width: int, accent: str) -> Row:
    """Show the load of each GPU."""
    gpus = snapshot.gpus_of(lane)
    if lane.spec.devices == 1 or lane.spec.kind != "gpu":
        gpu = next(iter(gpus), None)
        return _gpu_row(lane, gpu, width, accent, snapshot.stale_s(gpu) if gpu is not None else None)
    if not gpus:
        return labelled("gpu", (units.absent(NOT_SAMPLED), DIM))
    ages = [age for age in map(snapshot.stale_s, gpus) if age is not None]
    if ages:
        return labelled("gpu", (f"stale: read {units.seconds(max(ages))} ago", WARN))
    values = _each(lane, [gpu.load.busy_pct for gpu in gpus])
    loads = [value for value in values if value is not None]
    if not loads:
        return labelled("gpu", (units.absent(_first_missing([gpu.load.busy_pct for gpu in gpus])), DIM))
    numbers = " ".join(UNKNOWN if value is None else f"{value:.0f}" for value in values)
    bars = [
        (UNKNOWN, DIM) if value is None else (_EIGHTHS[min(7, int(value / 12.5))], banded(accent, value / 100))
        for value in values
    ]
    power = known(summed([gpu.power.power_w for gpu in gpus])) if len(gpus) == lane.spec.devices else None
    watts = "" if power is None else f" · {units.count(round(power))} W"
    return _fitting(
        width,
        *(labelled("gpu", (numbers + end, TEXT)) for end in (f" % busy{watts}", " % busy", " %")),
        labelled("gpu", *bars, (f" {_span(loads, 0)} %", TEXT)),
    )


def memory_row(lane: LaneState, snapshot: Snapshot, width: int) -> Row:
    """Show the memory in use on each GPU."""
    gpus = snapshot.gpus_of(lane)
    if lane.spec.devices == 1 or lane.spec.kind != "gpu":
        return gpu_memory_row(lane, next(iter(gpus), None), width)
    if not gpus:
        return labelled("gpu mem", (units.absent(NOT_SAMPLED), DIM))
    own = [
        lane.gpu_use.parts[gpu.key].used_bytes if gpu.key in lane.gpu_use.parts else NOT_SAMPLED for gpu in gpus
    ]
    by_lane = all(not isinstance(one, Missing) for one in own)
    shown = own if by_lane else [gpu.memory.used_bytes for gpu in gpus]
    values = _each(lane, shown)
    sizes = [value for value in values if value is not None]
    if not sizes:
        return labelled("gpu mem", (units.absent(_first_missing(shown)), DIM))
    unit, size = next((one for one in _UNITS if max(sizes) >= one[1]), _UNITS[-1])
    digits = 0 if min(sizes) / size >= 9.95 else 1
    numbers = " ".join(UNKNOWN if value is None else f"{value / size:.{digits}f}" for value in values)
    source = " used" if by_lane else " used by all programs"
    allocated = lane.gpu_use.allocated_bytes
    more = "" if allocated is None else f" · {units.memory(allocated)} allocated"
    texts = [f"{numbers} {unit}{end}" for end in (source + more, source, "")]
    span = f"{len(sizes)}x {_span([value / size for value in sizes], digits)} {unit}"
    return _fitting(width, *(labelled("gpu mem", (text, TEXT)) for text in (*texts, span)))


def _gpu_row(lane: LaneState, gpu: GpuSample | None, width: int, accent: str, stale_s: float | None = None) -> Row:
    if lane.spec.kind != "gpu":
        return labelled("gpu", (units.absent(NO_GPU), DIM))
    if gpu is None:
        return labelled("gpu", (units.absent(NOT_SAMPLED), DIM))
    if stale_s is not None:
        return labelled("gpu", (f"stale: read {units.seconds(stale_s)} ago", WARN))
    busy = gpu.load.busy_pct
    if isinstance(busy, Missing):
        return labelled("gpu", (units.absent(busy), DIM))
    age_s = gpu.age_s("load")
    text = f"{busy:4.0f} %, {age_s:.0f} s ago" if age_s >= 1 else f"{busy:4.0f} % busy"
    power, limit = known(gpu.power.power_w), known(gpu.power.power_limit_w)
    room = width - LABEL_CELLS
    if power is not None and limit is not None and room >= WIDE:
        text += f" · {power:.0f} W of {limit:.0f}" + (" (whole GPU)" if gpu.part_of else "")
    return labelled("gpu", *bar(busy / 100, text, room, accent))


def gpu_memory_row(lane: LaneState, gpu: GpuSample | None, width: int) -> Row:
    """Show GPU memory: used by the lane, and allocated by TensorFlow."""
    if lane.spec.kind != "gpu":
        return BLANK
    used, allocated, peak = _gpu_used(lane, gpu), "", ""
    if lane.gpu_use.allocated_bytes is not None:
        allocated = f"{units.memory(lane.gpu_use.allocated_bytes)} allocated"
        if lane.gpu_use.peak_bytes is not None:
            peak = f" (peak {units.memory(lane.gpu_use.peak_bytes)})"
    row: Row = ()
    for parts in ((used, allocated + peak), (used, allocated), (used.removesuffix(" used"), allocated)):
        text = " · ".join(filter(None, parts))
        row = labelled("gpu mem", (text, TEXT) if text else (units.absent(NOT_SAMPLED), DIM))
        if cells(row) <= width:
            break
    return row


def _gpu_used(lane: LaneState, gpu: GpuSample | None) -> str:
    by_lane = known(lane.gpu_use.used_bytes)
    if by_lane is not None:
        source = lane.gpu_use.source
        return f"{units.memory(by_lane)} used" + (f" ({source})" if source not in ("", "driver") else "")
    if gpu is None:
        return ""
    used, total = gpu.memory.used_bytes, gpu.memory.total_bytes
    if isinstance(used, Missing) or isinstance(total, Missing):
        return units.reading(used, units.memory)
    return f"GPU {units.memory(used)} of {units.memory(total)}"


def _each(lane: LaneState, shown: Sequence[Reading]) -> list[float | None]:
    """Return the known values, and `None` for GPUs without a reading."""
    values = [known(one) for one in shown]
    return values + [None] * (lane.spec.devices - len(values))


def _first_missing(shown: Sequence[Reading]) -> Missing:
    return next((one for one in shown if isinstance(one, Missing)), NOT_SAMPLED)


def _span(values: Sequence[float], digits: int) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _fitting(width: int, *rows: Row) -> Row:
    return next((row for row in rows if cells(row) <= width), rows[-1])
