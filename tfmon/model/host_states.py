"""The facts about each machine, by host name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from tfmon.model.events import HostConnected, HostConnecting, HostEvent, HostLost, LinkMeasured
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import ALARM, GpuSample, ProcessName, taken_by_others, with_names
from tfmon.model.lane import Lane
from tfmon.model.lane_state import LaneState
from tfmon.model.race import Machine
from tfmon.model.readings import HostSample, known
from tfmon.model.windows import StatePart

HISTORY_SAMPLES = 60
SWAPPING, THROTTLED, GPU_THROTTLED = "swapping", "cgroup throttled", "GPU throttled"

SWAP_BYTES_PER_S = 1e6
THROTTLED_PCT = 5.0


@dataclass
class HostState(StatePart):
    """The facts about a machine."""

    machine: Machine = field(default_factory=Machine)
    sample: HostSample | None = None
    history: tuple[HostSample, ...] = ()
    gpus: tuple[GpuSample, ...] = ()
    gpu_history: Mapping[str, tuple[GpuSample, ...]] = field(default_factory=dict)
    gpu_users: tuple[ProcessName, ...] = ()
    """Shared reports must not contain them."""
    connected_ns: int | None = None
    link: LinkMeasured | None = None
    lost: str = ""
    lost_ns: int | None = None

    @property
    def connecting(self) -> bool:
        """Whether a connection is under way."""
        return self.connected_ns is None and not self.lost

    def on_connection(self, event: HostEvent) -> None:
        """Store a connection event."""
        match event:
            case HostConnecting():
                self.connected_ns = self.link = self.lost_ns = None
                self.lost = ""
            case HostConnected():
                if not event.machine.boot or event.machine.boot != self.machine.boot:
                    self.machine = event.machine  # the known one of the same start also has its GPUs
                self.connected_ns, self.lost, self.lost_ns = event.at_ns, "", None
            case LinkMeasured():
                self.link = event
            case HostLost():
                self.lost, self.lost_ns = event.reason, event.at_ns


Hosts: TypeAlias = Mapping[str, HostState]
Lanes: TypeAlias = Sequence[LaneState]


def machine_key(hosts: Hosts, host: str) -> str:
    """Return the boot id, or else the host name."""
    state = hosts.get(host)
    return (state.machine.boot if state is not None else "") or host


def take_host_sample(state: HostState, lanes: Sequence[Lane], sample: HostSample) -> None:
    """Store a sample, which can disturb lanes."""
    before, reasons = state.sample, host_disturbances(sample)
    for lane in lanes:
        if lane.spec.host == sample.host:
            if before is not None:
                lane.discard(before.at_ns, sample.at_ns, reasons)
            lane.speed.read(others_pct=known(sample.others_cpu_pct), stolen_pct=known(sample.steal_pct))
    state.sample, state.history = sample, (*state.history, sample)[-HISTORY_SAMPLES:]


def take_gpu_sample(hosts: Hosts, lanes: Sequence[Lane], sample: GpuSample) -> None:
    """Store a sample, which can disturb lanes."""
    state, key = hosts[sample.host], machine_key(hosts, sample.host)
    users = [lane for lane in lanes if machine_key(hosts, lane.spec.host) == key and has_device(lane, sample)]
    only_lane = sum(not lane.over for lane in users) == 1
    trained = [lane for lane in lanes if trains_on(lane, sample)]
    for lane in trained:
        lane.on_gpu_sample(sample, only_lane=only_lane)
    lane_pids = own_pids(hosts, lanes, sample.host)
    if users:
        state.gpu_users = with_names(state.gpu_users, sample.processes, lane_pids)
        taken = taken_by_others(sample.processes, lane_pids)
        for lane in users:
            lane.on_gpu_taken(sample.index, taken)
    before = next((gpu for gpu in state.gpus if gpu.key == sample.key), None)
    if before is None:
        state.gpus = tuple(sorted((*state.gpus, sample), key=lambda gpu: gpu.index))
    else:
        state.gpus = tuple(sample if gpu is before else gpu for gpu in state.gpus)
        for lane in trained:
            # A power cap does not disturb: most GPUs reach it.
            lane.discard(before.at_ns, sample.at_ns, (GPU_THROTTLED,) * bool(sample.clocks.lowered_by(ALARM)))
    history = (*state.gpu_history.get(sample.key, ()), sample)[-HISTORY_SAMPLES:]
    state.gpu_history = {**state.gpu_history, sample.key: history}


def own_pids(hosts: Hosts, lanes: Lanes, host: str) -> set[int]:
    """Return the lanes' processes on a machine."""
    key = machine_key(hosts, host)
    local = [lane for lane in lanes if machine_key(hosts, lane.spec.host) == key]
    return {pid for lane in local for pid in (*lane.tree.pids, lane.process.pid) if pid is not None}


def trains_on(state: LaneState, gpu: GpuSample) -> bool:
    """Return whether a lane trains on this host's GPU."""
    return gpu.host == state.spec.host and has_device(state, gpu)


def has_device(state: LaneState, gpu: GpuSample) -> bool:
    """Return whether a lane trains on a GPU."""
    if state.spec.kind != "gpu" or gpu.hidden:
        return False
    if state.process.gpu_uuids:
        return state.process.uses_gpu(gpu.key)
    if state.spec.is_instance:
        return gpu.key.lower().startswith(state.spec.device.lower())
    return gpu.index in (state.spec.indexes or (0,)) and not gpu.part_of


def host_disturbances(sample: HostSample) -> tuple[str, ...]:
    """Return the disturbances. Stolen time affects all lanes equally."""
    limits = (
        (SWAPPING, sample.swap_in_bytes_per_s, SWAP_BYTES_PER_S),
        (SWAPPING, sample.swap_out_bytes_per_s, SWAP_BYTES_PER_S),
        (THROTTLED, sample.throttled_pct, THROTTLED_PCT),
    )
    result = [name for name, reading, limit in limits if (value := known(reading)) is not None and value > limit]
    return tuple(dict.fromkeys(result))
