"""Machines, connections and GPUs of lanes."""

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
from tfmon.ui.render.reading_rows import LABEL_CELLS, UNKNOWN, WIDE, bar, fitting, labelled
from tfmon.ui.render.rows import BLANK, DIM, TEXT, Row
from tfmon.ui.render.style import TROUBLE, WARN, banded, strong


def machines(snapshot: Snapshot) -> list[tuple[str, HostState]]:
    """Return the machines of the lanes, or the monitor's machine."""
    by_machine: dict[str, tuple[str, HostState]] = {}
    for lane in snapshot.lanes:
        by_machine.setdefault(snapshot.machine_key(lane), (lane.spec.host, snapshot.place_of(lane)))
    return list(by_machine.values()) or [("", snapshot.hosts[""])]


def count_row(snapshot: Snapshot) -> Row:
    """Return the number of machines, or the name of a single machine."""
    used = machines(snapshot)
    lost = sum(bool(state.lost) for _, state in used)
    name = used[0][0] if len(used) == 1 else f"{len(used)} machines"
    lost_text = "" if not lost else " is lost" if len(used) == 1 else f", {lost} lost"
    return ((name, TEXT), (lost_text, strong(TROUBLE))) if lost_text else ((name, TEXT),)


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
    state = snapshot.place_of(lane)
    return bool(lane.spec.host) and state.connected_ns is None and not state.lost


def reconnection_text(snapshot: Snapshot, lane: LaneState) -> str:
    """Return the state of a new connection after a loss, or empty."""
    host, state = lane.spec.host, snapshot.place_of(lane)
    if lane.trouble is None or lane.trouble.kind != HOST_LOST or state.lost:
        return ""
    return f"connecting to {host} again…" if connecting(snapshot, lane) else f"{host} is connected again"


def silent_s(snapshot: Snapshot, lane: LaneState) -> float | None:
    """Return how long a machine has been silent in seconds, or None."""
    host, state = lane.spec.host, snapshot.place_of(lane)
    if not host or lane.over or state.lost or state.sample is None:
        return None
    heard_ns = [lane.heartbeat.heard_ns or 0 for lane in snapshot.lanes if lane.spec.host == host]
    age_s = (snapshot.at_ns - max(state.sample.at_ns, *heard_ns)) / 1e9
    return age_s if age_s > STALE_TICKS else None


def lines(snapshot: Snapshot, lane: LaneState) -> Iterator[tuple[str, str]]:
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
    other_lanes = [lane for lane in snapshot.lanes if snapshot.machine_key(lane) == key and lane.spec.host != host]
    alike = sorted({other.spec.place for other in other_lanes})
    if alike:
        yield "one machine", f"with {', '.join(alike)}: these lanes take turns"


_EIGHTHS = "▁▂▃▄▅▆▇█"
_UNITS = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20))


def load_row(lane: LaneState, snapshot: Snapshot, width: int, accent: str) -> Row:
    """Return the load of each GPU."""
    gpus = snapshot.gpus_of(lane)
    busy = [gpu.load.busy_pct for gpu in gpus]
    ages = [age for age in map(snapshot.stale_s, gpus) if age is not None]
    loads = [value for value in map(known, busy) if value is not None]
    if lane.spec.kind != "gpu":
        return labelled("gpu", (units.absent(NO_GPU), DIM))
    if ages:
        return labelled("gpu", (f"stale: read {units.seconds(max(ages))} ago", WARN))
    if not loads:
        return labelled("gpu", (units.absent(_first_missing(busy)), DIM))
    if lane.spec.devices == 1:
        return _one_load(gpus[0], loads[0], width - LABEL_CELLS, accent)
    values = _each(lane, busy)
    numbers = " ".join(UNKNOWN if value is None else f"{value:.0f}" for value in values)
    bars = [
        (UNKNOWN, DIM) if value is None else (_EIGHTHS[min(7, int(value / 12.5))], banded(accent, value / 100))
        for value in values
    ]
    power = known(summed([gpu.power.power_w for gpu in gpus])) if len(gpus) == lane.spec.devices else None
    watts = "" if power is None else f" · {units.count(round(power))} W"
    texts = (f"{numbers} % busy{watts}", f"{numbers} % busy", f"{numbers} %")
    short = labelled("gpu", *bars, (f" {_span(loads, 0)} %", TEXT))
    return fitting(width, *(labelled("gpu", (text, TEXT)) for text in texts), short)


def _one_load(gpu: GpuSample, busy: float, room: int, accent: str) -> Row:
    age_s, power, limit = gpu.age_s("load"), known(gpu.power.power_w), known(gpu.power.power_limit_w)
    text = f"{busy:4.0f} %, {age_s:.0f} s ago" if age_s >= 1 else f"{busy:4.0f} % busy"
    if power is not None and limit is not None and room >= WIDE:
        text += f" · {power:.0f} W of {limit:.0f}" + (" (whole GPU)" if gpu.part_of else "")
    return labelled("gpu", *bar(busy / 100, text, room, accent))


def memory_row(lane: LaneState, snapshot: Snapshot, width: int) -> Row:
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
        return _memory(width, *texts) if texts[0] else _memory_missing(NOT_SAMPLED)
    lane_bytes = [use.parts[gpu.key].used_bytes if gpu.key in use.parts else NOT_SAMPLED for gpu in gpus]
    by_lane = all(not isinstance(reading, Missing) for reading in lane_bytes)
    shown = lane_bytes if by_lane else [gpu.memory.used_bytes for gpu in gpus]
    values = _each(lane, shown)
    sizes = [value for value in values if value is not None]
    if not sizes:
        return _memory_missing(_first_missing(shown))
    unit, size = next((unit_ for unit_ in _UNITS if max(sizes) >= unit_[1]), _UNITS[-1])
    digits = 0 if min(sizes) / size >= 9.95 else 1
    numbers = " ".join(UNKNOWN if value is None else f"{value / size:.{digits}f}" for value in values)
    text = f"{numbers} {unit}{' used' if by_lane else ' used by all programs'}"
    span = f"{len(sizes)}x {_span([value / size for value in sizes], digits)} {unit}"
    return _memory(width, " · ".join(filter(None, (text, allocated))), text, f"{numbers} {unit}", span)


def _memory(width: int, *texts: str) -> Row:
    return fitting(width, *(labelled("gpu mem", (text, TEXT)) for text in texts))


def _memory_missing(missing: Missing) -> Row:
    return labelled("gpu mem", (units.absent(missing), DIM))


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
