"""The devices of a lane."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import field, replace

from tfmon import units
from tfmon.analysis.others import is_free, ranked, state, why
from tfmon.errors import DeviceAbsentError, GpusBusyError, UsageError
from tfmon.model.fast_dataclass import dataclass
from tfmon.model.gpu_samples import GpuSample
from tfmon.model.knobs import BATCH_SCOPE, BATCH_SIZE
from tfmon.model.race import ScenarioInfo
from tfmon.model.spec import ALL, ANY_GPU, SHORT_INSTANCE, LaneSpec, parse_lane
from tfmon.probes.base import Gpu
from tfmon.probes.find_gpus import GpuSearch

LOOK_EVERY_S = 5.0
Search = Callable[[str], GpuSearch]
Look = Callable[[str, Sequence[Gpu]], Sequence[GpuSample]]
Chosen = tuple[LaneSpec, tuple[Gpu, ...]]
Wanted = tuple[str, tuple[Gpu, ...], int]

EVERY = f"gpu:{ALL}"
MOST_LISTED = 3


def with_scope(info: ScenarioInfo, lanes: Sequence[str]) -> ScenarioInfo:
    """Add the knob `batch_scope` if necessary; raises SpecError."""
    specs = () if info.command else [parse_lane(lane.partition(",")[0], ()) for lane in lanes]
    if not any(spec.devices > 1 or spec.device == EVERY for spec in specs):
        return info
    names = [knob.name for knob in info.knobs]
    if BATCH_SIZE.name not in names or BATCH_SCOPE.name in names:
        return info
    index = names.index(BATCH_SIZE.name) + 1
    return replace(info, knobs=(*info.knobs[:index], BATCH_SCOPE, *info.knobs[index:]))


def candidates(spec: LaneSpec, listing: GpuSearch) -> tuple[tuple[Gpu, ...], int]:
    """Return the possible GPUs of a lane, and how many it needs; raises TfmonError."""
    if spec.kind == "cpu":
        return (), 0
    if spec.is_instance:
        return (_instance_of(spec, listing),), 1
    if not listing.usable:
        raise DeviceAbsentError(f"{spec.place} is not there: {listing.reason}", listing.hint)
    if spec.indexes:
        return _by_index(spec, listing), spec.devices
    if spec.device == ANY_GPU:
        return listing.usable, 1
    if not listing.whole:
        raise DeviceAbsentError(f"{spec.place} is not there: every GPU is split up (MIG)", listed(listing))
    count = len(listing.whole) if spec.device == EVERY else spec.devices
    if count > len(listing.whole):
        there = "is one GPU" if len(listing.whole) == 1 else f"are {len(listing.whole)} GPUs"
        raise DeviceAbsentError(f"{spec.place} is not there: there {there}", _listed(spec, listing))
    return listing.whole, count


def _by_index(spec: LaneSpec, listing: GpuSearch) -> tuple[Gpu, ...]:
    by_index = {gpu.index: gpu for gpu in listing.gpus}
    absent = [f"gpu:{index}" for index in spec.indexes if index not in by_index]
    if absent:
        name = f"{' and '.join(absent)} of {spec.place} {'is' if len(absent) == 1 else 'are'}"
        name = f"{spec.place} is" if spec.devices == 1 else name
        raise DeviceAbsentError(f"{name} not there", _listed(spec, listing))
    gpus = tuple(by_index[index] for index in spec.indexes)
    for gpu in gpus:
        if gpu.split:
            device = f"{spec.place_of(gpu.index)} ({gpu.name})"
            raise DeviceAbsentError(f"{device} is split up (MIG)", listed(listing, gpu.uuid))
    return gpus


def _listed(spec: LaneSpec, listing: GpuSearch) -> str:
    if not listing.whole:
        return listed(listing)
    known = ", ".join(f"gpu:{gpu.index} ({gpu.name})" for gpu in listing.whole)
    if len(listing.whole) > MOST_LISTED and len({gpu.name for gpu in listing.gpus}) == 1:
        known = f"{len(listing.whole)} GPUs from gpu:{listing.whole[0].index} on ({listing.whole[0].name})"
    return f"{spec.host or 'this machine'} has {known}"


def device_of(gpus: Sequence[Gpu], listing: GpuSearch) -> str:
    """Return GPUs as a device, such as `gpu:0+1`."""
    if gpus[0].part_of:
        return short_name(gpus[0], listing)
    return "gpu:" + "+".join(str(gpu.index) for gpu in gpus)


def _instance_of(spec: LaneSpec, listing: GpuSearch) -> Gpu:
    fitting = [instance for instance in listing.instances if instance.uuid.lower().startswith(spec.device.lower())]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"{spec.place} fits {len(fitting)} instances", listed(listing))
    if not listing.usable:
        raise DeviceAbsentError(f"{spec.place} is not there: {listing.reason}", listing.hint)
    raise DeviceAbsentError(f"{spec.place} is not there", listed(listing))


def short_name(instance: Gpu, listing: GpuSearch) -> str:
    """Return the unique start of a UUID."""
    uuids = [candidate.uuid for candidate in listing.instances if candidate.uuid != instance.uuid]
    length = SHORT_INSTANCE
    while any(uuid.startswith(instance.uuid[:length]) for uuid in uuids):
        length += 1
    return instance.uuid[:length]


def listed(listing: GpuSearch, part_of: str = "") -> str:
    """Return the allowed names."""
    instances = [instance for instance in listing.instances if part_of in ("", instance.part_of)]
    if not instances:
        return "there is no instance of a split GPU here; `tfmon doctor` lists the GPUs"
    names = ", ".join(f"--lane {short_name(instance, listing)} ({instance.name})" for instance in instances)
    return f"name an instance: {names}"


@dataclass
class Idle:
    """Chooses GPUs, once for all races."""

    look: Look = lambda host, gpus: ()
    wait_s: float | None = None
    tell: Callable[[str], object] = lambda _: None
    sleep: Callable[[float], object] = time.sleep
    clock_s: Callable[[], float] = time.monotonic
    ranked: dict[str, list[GpuSample]] = field(default_factory=dict)

    def choose(self, specs: Sequence[LaneSpec], search: Search) -> list[Chosen]:
        """Return the lanes with their GPUs."""
        result = [search(spec.host) if spec.kind == "gpu" else GpuSearch() for spec in specs]
        wanted = [(spec, listed, *candidates(spec, listed)) for spec, listed in zip(specs, result, strict=True)]
        if self.wait_s is not None:
            usable = [(spec.host, gpus, count) for spec, choice, gpus, count in wanted if choice.usable]
            self._wait(usable, self.wait_s)
        return [self._settled(*choice) for choice in wanted]

    def _settled(self, spec: LaneSpec, listing: GpuSearch, gpus: tuple[Gpu, ...], count: int) -> Chosen:
        reason = ""
        if count < len(gpus):
            if spec.host not in self.ranked:
                self.ranked[spec.host] = ranked(self.look(spec.host, listing.usable))
            keys = {gpu.uuid for gpu in gpus}
            best = [sample for sample in self.ranked[spec.host] if sample.key in keys][:count]
            if len(best) == count:
                keys, reason = {sample.key for sample in best}, why(best, len(gpus))
            gpus = tuple(gpu for gpu in gpus if gpu.uuid in keys)[:count]
        return (replace(spec, device=device_of(gpus, listing), chosen=reason) if gpus else spec), gpus

    def _wait(self, wanted: Sequence[Wanted], wait_s: float) -> None:
        began_s = self.clock_s()
        try:
            while busy := self._busy(wanted):
                waited_s = self.clock_s() - began_s
                if waited_s >= wait_s:
                    text = f"no GPU was free within {wait_s / 60:g} min: {'; '.join(busy)}"
                    hint = "--wait-idle with more minutes waits longer; without it, gpu is the idlest as it is"
                    raise GpusBusyError(text, hint, options=("wait_idle",))
                left = f"{units.clock(wait_s - waited_s)} left, Ctrl-C leaves"
                self.tell(f"waiting for a free GPU ({left}): {'; '.join(busy)}")
                self.sleep(min(LOOK_EVERY_S, wait_s - waited_s))
        finally:
            self.tell("")

    def _busy(self, wanted: Sequence[Wanted]) -> list[str]:
        seen: dict[str, list[GpuSample]] = {}
        for host in dict.fromkeys(host for host, *_ in wanted):
            every = dict.fromkeys(gpu for there, gpus, _ in wanted if there == host for gpu in gpus)
            seen[host] = ranked(self.look(host, tuple(every)))
        lines = [line for host, gpus, count in wanted for line in _who(host, gpus, count, seen[host])]
        return list(dict.fromkeys(lines))


def _who(host: str, gpus: Sequence[Gpu], count: int, samples: Sequence[GpuSample]) -> list[str]:
    devices = {gpu.uuid: gpu.uuid if gpu.part_of else f"gpu:{gpu.index}" for gpu in gpus}
    free = {sample.key for sample in samples if sample.key in devices and is_free(sample)}
    if len(free) >= count:
        return []
    known = {sample.key: state(sample, with_users=True) for sample in samples}
    prefix = f"{host}/" if host else ""
    busy = [
        f"{prefix}{device}: {known.get(key, 'not read')}" for key, device in devices.items() if key not in free
    ]
    if count == len(gpus):
        return busy
    if count > 1:
        return [f"{host + ': ' if host else ''}{len(free)} of {len(gpus)} GPUs free, and {count} are needed"]
    first = next((key for key in known if key in devices), gpus[0].uuid)
    return [f"the idlest of {len(gpus)}, {prefix}{devices[first]}: {known.get(first, 'not read')}"]
