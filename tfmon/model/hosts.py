"""The known facts about each machine of a race, and their change by samples and connection events. Pure.

The key of a machine is the host name that the user gave; "" is the monitor's machine. Two names can mean the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tfmon.model import gpu_others
from tfmon.model.events import HostConnected, HostConnecting, HostEvent, HostLost, LinkMeasured
from tfmon.model.gpu import ALARM, GpuSample, ProcessName
from tfmon.model.gpu_others import Taken
from tfmon.model.lane_measuring import disturbed, marked
from tfmon.model.lane_state import BUILDING, IMPORTING, RACING, STARTING, LaneState
from tfmon.model.lane_use import GpuPart
from tfmon.model.race import Machine
from tfmon.model.readings import HostSample, known

HISTORY_SAMPLES = 60
"""Samples kept for a GPU or a machine: a minute at one a second."""
SWAPPING, THROTTLED, GPU_THROTTLED = "swapping", "cgroup throttled", "GPU throttled"

OTHERS_MARK = "others "
"""Start of a mark in the charts: from here on others use the lane's GPU."""
OTHERS_MARK_EVERY_NS = 30_000_000_000

SWAP_BYTES_PER_S = 1e6
THROTTLED_PCT = 5.0


@dataclass(frozen=True, slots=True)
class HostState:
    """The known facts about one machine."""

    machine: Machine = field(default_factory=Machine)
    sample: HostSample | None = None
    history: tuple[HostSample, ...] = ()
    gpus: tuple[GpuSample, ...] = ()
    gpu_history: Mapping[str, tuple[GpuSample, ...]] = field(default_factory=dict)
    gpu_users: tuple[ProcessName, ...] = ()
    """Other users of the lanes' GPUs during the race; shared reports must not contain them."""
    connected_ns: int | None = None
    """Last connection to another machine. `None` before it and for the monitor's machine."""
    link: LinkMeasured | None = None
    """`None` before the first measurement and for the monitor's machine."""
    lost: str = ""
    lost_ns: int | None = None

    @property
    def connecting(self) -> bool:
        """Whether a connection to another machine is under way."""
        return self.connected_ns is None and not self.lost


Hosts: TypeAlias = Mapping[str, HostState]
Lanes: TypeAlias = tuple[LaneState, ...]


def machine_key(hosts: Hosts, host: str) -> str:
    """Return the key of a host's machine: its boot id, or else the host name."""
    state = hosts.get(host)
    return (state.machine.boot if state is not None else "") or host


def with_machine(hosts: Hosts, machine: Machine, host: str = "") -> Hosts:
    """Return the hosts with new facts about one machine."""
    return {**hosts, host: replace(hosts.get(host, HostState()), machine=machine)}


def after_connection(hosts: Hosts, event: HostEvent) -> Hosts:
    """Return the hosts after a connection event."""
    state = hosts.get(event.host, HostState())
    match event:
        case HostConnecting():
            state = replace(state, connected_ns=None, link=None, lost="", lost_ns=None)
        case HostConnected():
            machine = _same_start(state.machine, event.machine)
            state = replace(state, machine=machine, connected_ns=event.at_ns, lost="", lost_ns=None)
        case LinkMeasured():
            state = replace(state, link=event)
        case HostLost():
            state = replace(state, lost=event.reason, lost_ns=event.at_ns)
    return {**hosts, event.host: state}


def _same_start(before: Machine, now: Machine) -> Machine:
    """Return a reconnected machine with the known facts about its devices, unless it was rebooted."""
    if not now.boot or now.boot != before.boot:
        return now
    return replace(
        now,
        gpus=before.gpus,
        no_gpu=before.no_gpu,
        python=before.python,
        tensorflow=before.tensorflow,
        driver=before.driver,
        power_limits_w=before.power_limits_w,
    )


def after_sample(hosts: Hosts, lanes: Lanes, sample: GpuSample | HostSample) -> tuple[Hosts, Lanes]:
    """Return the hosts and lanes after a sample of a GPU, or of a machine, which can disturb its lanes."""
    if isinstance(sample, GpuSample):
        return _after_gpu_sample(hosts, lanes, sample)
    state = hosts.get(sample.host, HostState())
    if state.sample is not None:
        before, reasons = state.sample, host_disturbances(sample)
        lanes = tuple(
            _disturbed(lane, before, sample, reasons) if lane.spec.host == sample.host else lane for lane in lanes
        )
    read = {"others_pct": known(sample.others_cpu_pct), "stolen_pct": known(sample.steal_pct)}
    lanes = tuple(
        replace(lane, speed=lane.speed.read(**read)) if lane.spec.host == sample.host else lane for lane in lanes
    )
    history = (*state.history, sample)[-HISTORY_SAMPLES:]
    return {**hosts, sample.host: replace(state, sample=sample, history=history)}, lanes


def _after_gpu_sample(hosts: Hosts, lanes: Lanes, sample: GpuSample) -> tuple[Hosts, Lanes]:
    state = hosts.get(sample.host, HostState())
    before = next((gpu for gpu in state.gpus if gpu.key == sample.key), None)
    key = machine_key(hosts, sample.host)
    on_it = [one for one in lanes if machine_key(hosts, one.spec.host) == key and has_device(one, sample)]
    only_lane = sum(not lane.over for lane in on_it) == 1
    lanes = tuple(take_gpu_sample(lane, sample, only_lane=only_lane) for lane in lanes)
    own = own_pids(hosts, lanes, sample.host)
    if on_it:
        state = replace(state, gpu_users=gpu_others.with_names(state.gpu_users, sample.processes, own))
        more = gpu_others.taken(sample.processes, own)
        names = {one.spec.name for one in on_it}
        lanes = tuple(take_others(lane, sample.index, more) if lane.spec.name in names else lane for lane in lanes)
    if before is None:
        gpus = tuple(sorted((*state.gpus, sample), key=lambda gpu: gpu.index))
    else:
        gpus = tuple(sample if gpu is before else gpu for gpu in state.gpus)
        reasons = gpu_disturbances(sample)
        lanes = tuple(
            _disturbed(lane, before, sample, reasons) if trains_on(lane, sample) else lane for lane in lanes
        )
    history = (*state.gpu_history.get(sample.key, ()), sample)[-HISTORY_SAMPLES:]
    state = replace(state, gpus=gpus, gpu_history={**state.gpu_history, sample.key: history})
    return {**hosts, sample.host: state}, lanes


def own_pids(hosts: Hosts, lanes: Lanes, host: str) -> set[int]:
    """Return the processes of all lanes on a host's machine."""
    key = machine_key(hosts, host)
    here = [lane for lane in lanes if machine_key(hosts, lane.spec.host) == key]
    return {pid for lane in here for pid in (*lane.tree.pids, lane.process.pid) if pid is not None}


def take_gpu_sample(state: LaneState, sample: GpuSample, *, only_lane: bool) -> LaneState:
    """Return the lane's state after a sample of a GPU; `only_lane` is False if other lanes train on it."""
    if state.over or not trains_on(state, sample):
        return state
    racing, count, use = state.phase == RACING, state.spec.devices, state.gpu_use
    opening = state.phase in (STARTING, IMPORTING)
    part = use.parts.get(sample.key, GpuPart()).plus(
        sample,
        state.tree.pids,
        before=opening,
        only_lane=only_lane and not opening and state.phase != BUILDING,
        peak_bytes=(use.peak_bytes or use.allocated_bytes) if count == 1 else None,
    )
    known_ones = {
        key: one
        for key, one in use.parts.items()
        if not state.process.gpu_uuids or any(_is_uuid(key, uuid) for uuid in state.process.gpu_uuids)
    }
    use = replace(use, parts=known_ones).with_part(sample.key, part, count, racing=racing)
    return replace(
        state,
        measurements=state.measurements.with_sample(sample.at_ns, gpu_busy_pct=sample.load.busy_pct),
        gpu_use=use.with_activity(sample.activity) if racing and only_lane else use,
        speed=state.speed.read(clock_mhz=known(sample.clocks.sm_clock_mhz)),
    )


def take_others(state: LaneState, index: int, more: Taken | None) -> LaneState:
    """Return the lane's state after a reading of the use of a GPU by others; affected windows are marked."""
    if state.phase != RACING:
        return state
    before = state.gpu_use.taken.get(index, ())
    kept = gpu_others.with_taken(before, more)
    if more is None or kept is before:
        return state
    state = replace(state, gpu_use=replace(state.gpu_use, taken={**state.gpu_use.taken, index: kept}))
    if not more.counts:
        return state
    state = replace(state, measurements=state.measurements.with_others(more.since_ns, more.until_ns))
    marks = [one.at_ns for one in state.changes.marks if one.text.startswith(OTHERS_MARK)]
    if marks and more.since_ns - max(marks) <= OTHERS_MARK_EVERY_NS:
        return state
    return marked(state, more.since_ns, f"{OTHERS_MARK}{more.pct:.0f} %")


def trains_on(state: LaneState, gpu: GpuSample) -> bool:
    """Return whether a lane of the sample's host trains on this GPU."""
    return gpu.host == state.spec.host and has_device(state, gpu)


def has_device(state: LaneState, gpu: GpuSample) -> bool:
    """Return whether a GPU belongs to a lane: by UUID, or by index until the lane's UUID is known.

    For a MIG instance, CUDA reports a UUID with the prefix of a GPU, so prefixes are not compared.
    """
    if state.spec.kind != "gpu" or gpu.hidden:
        return False
    if state.process.gpu_uuids:
        return any(_is_uuid(gpu.key, uuid) for uuid in state.process.gpu_uuids)
    if state.spec.is_instance:
        return gpu.key.lower().startswith(state.spec.device.lower())
    return gpu.index in (state.spec.indexes or (0,)) and not gpu.part_of


def _is_uuid(key: str, uuid: str) -> bool:
    return key.removeprefix("MIG-") == uuid.removeprefix("GPU-") or key == uuid


def _disturbed(
    lane: LaneState, before: GpuSample | HostSample, sample: GpuSample | HostSample, reasons: Iterable[str]
) -> LaneState:
    for reason in reasons:
        lane = disturbed(lane, before.at_ns, sample.at_ns, reason)
    return lane


def host_disturbances(sample: HostSample) -> tuple[str, ...]:
    """Return the disturbances of all lanes; a missing reading is not a disturbance.

    Stolen time is not one: it affects all lanes equally, and `analysis.others` reports it.
    """
    limits = (
        (SWAPPING, sample.swap_in_bytes_per_s, SWAP_BYTES_PER_S),
        (SWAPPING, sample.swap_out_bytes_per_s, SWAP_BYTES_PER_S),
        (THROTTLED, sample.throttled_pct, THROTTLED_PCT),
    )
    result = [name for name, reading, limit in limits if (value := known(reading)) is not None and value > limit]
    return tuple(dict.fromkeys(result))


def gpu_disturbances(sample: GpuSample) -> tuple[str, ...]:
    """Return the disturbances of the lanes on this GPU: clocks lowered by heat or hardware.

    A power cap is not one: at full load most GPUs reach it.
    """
    return (GPU_THROTTLED,) if sample.clocks.lowered_by(ALARM) else ()
