"""Readings of NVIDIA GPUs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tfmon.model.events import Event
from tfmon.probes.base import Gpu
from tfmon.probes.nvidia.device import DriverContext, NvidiaDevice
from tfmon.probes.nvidia.faults import FaultLog
from tfmon.probes.nvidia.nvml import (
    CRASHES,
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    LIBRARY_MISMATCH,
    LIBRARY_NOT_FOUND,
    NO_ANSWER,
    NOT_LISTED,
    RESET_REQUIRED,
    WRONG_PACKAGE,
    Nvml,
    NvmlFailure,
    PhysicalGpu,
    list_instances,
    list_physical_gpus,
    open_nvml,
)
from tfmon.probes.surroundings import in_pid_namespace, in_wsl, survives_sampling

_RETRY_S = {DRIVER_NOT_LOADED: 30.0, GPU_IS_LOST: 60.0, RESET_REQUIRED: 60.0}
"""How long to wait before the driver is opened anew; anything else waits 5 s, then twice as long each time."""
_FOR_GOOD = frozenset({LIBRARY_MISMATCH, LIBRARY_NOT_FOUND, WRONG_PACKAGE, CRASHES, NO_ANSWER})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 60.0


class NvidiaProbe:
    """Samples GPUs through the driver's library, which is opened with the first sample.

    Thread: the ticker's only; a call may block there for as long as the driver likes.
    """

    name = "nvidia"

    def __init__(
        self,
        gpus: Sequence[Gpu] = (),
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        open_library: Callable[[], Nvml | NvmlFailure] = open_nvml,
        root: Path = Path("/"),
        rehearse: Callable[[], bool | None] = survives_sampling,
    ) -> None:
        """Sample these GPUs, or all that the driver lists when none is given."""
        self._devices = {gpu.uuid: NvidiaDevice(gpu) for gpu in gpus}
        self._takes_all = not gpus
        self._clock_ns = clock_ns
        self._open_library = open_library
        self._root = root
        self._rehearse = rehearse
        self._wsl = in_wsl(root)
        self._rehearsed = False
        self._faults = FaultLog()
        self._nvml: Nvml | None = None
        self._retry_at_ns: int | None = 0
        self._pause_s = _FIRST_PAUSE_S
        self.trouble: NvmlFailure | None = None
        """Why the library cannot be used, with a hint; None while it can."""

    def start(self) -> None:
        """Nothing yet: the driver is asked when there is something to sample."""

    def sample(self) -> Iterable[Event]:
        """Sample each GPU; see `NvidiaDevice.read` for what the readings are."""
        if self._due():
            self._reopen()
        self._faults.listen(self._clock_ns())
        for device in self._devices.values():
            uuid = device.part_of or device.gpu.uuid
            sample = device.read(self._clock_ns(), self._faults.of(uuid))
            yield replace(sample, faults_told=self._faults.hears(uuid))
        self._plan_retry()

    def missing(self, reason: str) -> Iterable[Event]:
        """Give every reading of every GPU as missing for that reason."""
        at_ns = self._clock_ns()
        return [device.absent(at_ns, reason) for device in self._devices.values()]

    def close(self) -> None:
        """Shut the library down."""
        if self._nvml is not None:
            self._faults.close()
            self._nvml.call("nvmlShutdown")
            self._nvml = None

    def _due(self) -> bool:
        return self._retry_at_ns is not None and self._clock_ns() >= self._retry_at_ns

    def _reopen(self) -> None:
        """Open the library and find every device again; the driver's numbers may have changed."""
        self.close()
        self._retry_at_ns = None
        opened = self._crash() or self._open_library()
        if isinstance(opened, NvmlFailure):
            self._give_up(opened)
            return
        self._nvml, self.trouble = opened, None
        physical_gpus, left_out = list_physical_gpus(opened)
        if not physical_gpus and left_out is not None:
            self._give_up(left_out)
            return
        self._faults.open(opened, physical_gpus)
        if self._takes_all:
            for physical_gpu in physical_gpus:
                self._know(physical_gpu, physical_gpu.index)
        around = DriverContext(
            lists_processes=_lists_processes(opened.call("nvmlSystemGetDriverVersion")),
            wsl=self._wsl,
            foreign_pids=in_pid_namespace(self._root),
            root=self._root,
        )
        attached: set[str] = set()
        for physical_gpu in physical_gpus:
            attached |= self._attach(opened, physical_gpu, around)
        for uuid, device in self._devices.items():
            if uuid not in attached:
                device.detach(left_out or NvmlFailure(NOT_LISTED))

    def _attach(self, nvml: Nvml, physical_gpu: PhysicalGpu, around: DriverContext) -> set[str]:
        """Attach a GPU and its instances, as far as they are wanted, and return which are."""
        attached: set[str] = set()
        instances = list_instances(nvml, physical_gpu)
        device = self._devices.get(physical_gpu.uuid)
        if device is not None:
            device.split = bool(instances)
            device.attach(nvml, physical_gpu.handle, around)
            attached.add(physical_gpu.uuid)
            for instance in instances:
                self._know(instance, device.gpu.index)
        for instance in instances:
            part = self._devices.get(instance.uuid)
            if part is not None:
                part.attach(nvml, instance.handle, around, whole=physical_gpu.handle, part_of=physical_gpu.uuid)
                attached.add(instance.uuid)
        return attached

    def _know(self, physical_gpu: PhysicalGpu, index: int) -> None:
        gpu = Gpu(index=index, uuid=physical_gpu.uuid, name=physical_gpu.name, physical_gpu=physical_gpu.index)
        self._devices.setdefault(physical_gpu.uuid, NvidiaDevice(gpu))

    def _crash(self) -> NvmlFailure | None:
        """Find out on WSL2, once and in another process, whether the library crashes."""
        if not self._wsl or self._rehearsed:
            return None
        self._rehearsed = True
        survives = self._rehearse()
        if survives:
            return None
        return NvmlFailure(NO_ANSWER if survives is None else CRASHES)

    def _give_up(self, refusal: NvmlFailure) -> None:
        self.trouble = refusal
        for device in self._devices.values():
            device.detach(refusal)

    def _plan_retry(self) -> None:
        """Settle when to open the library again, if anything is wrong."""
        if self._retry_at_ns is not None:
            return
        troubles = [device.trouble for device in self._devices.values() if device.trouble is not None]
        if self.trouble is not None:
            troubles = [self.trouble]
        if not troubles:
            self._pause_s = _FIRST_PAUSE_S
            return
        if all(trouble.code in _FOR_GOOD for trouble in troubles):
            return
        waits = []
        for trouble in troubles:
            if trouble.code not in _RETRY_S:
                waits.append(self._pause_s)
                self._pause_s = min(_LONGEST_PAUSE_S, 2 * self._pause_s)
                break
            waits.append(_RETRY_S[trouble.code])
        self._retry_at_ns = self._clock_ns() + int(min(waits) * 1e9)


def rehearse() -> None:
    """Sample once, in a process that may crash; see `survives_sampling`."""
    probe = NvidiaProbe(rehearse=lambda: True)
    list(probe.sample())
    probe.close()


def _lists_processes(version: object) -> bool:
    """Return False for drivers 535.43 to 535.85, whose process list has wrong fields."""
    match = re.match(r"535\.(\d+)", version) if isinstance(version, str) else None
    return match is None or not 43 <= int(match[1]) <= 85
