"""Samples all NVIDIA GPUs."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfmon.model.event_base import Event
from tfmon.model.gpu_samples import GpuFault, GpuSample
from tfmon.model.readings import Missing
from tfmon.probes.base import Backoff, Gpu, GpuProbe, absent_gpu
from tfmon.probes.machine import in_pid_namespace, in_wsl
from tfmon.probes.nvidia import nvml
from tfmon.probes.nvidia.device import UNRELIABLE_LIST, WSL, DriverContext, NvidiaDevice
from tfmon.probes.nvidia.explain import FaultLog
from tfmon.system.programs import run_program

_RETRY_S = 30.0
"""Until the driver is opened again after a failure."""
_PERMANENT = frozenset(
    {nvml.LIBRARY_MISMATCH, nvml.LIBRARY_NOT_FOUND, nvml.WRONG_PACKAGE, nvml.CRASHES, nvml.NO_ANSWER}
)
_REHEARSAL_S = 10.0


class NvidiaProbe(GpuProbe):
    """Samples GPUs through the driver's library. Thread: the ticker's; a call may block without limit."""

    name = "nvidia"

    def __init__(
        self,
        gpus: Sequence[Gpu] = (),
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        root: Path = Path("/"),
        survives: Callable[[], bool | None] | None = None,
        before_s: float = 0.0,
    ) -> None:
        """Without `gpus`, sample all; the first sample covers `before_s`."""
        super().__init__(gpus, clock_ns)
        self._takes_all = not gpus
        self._devices: dict[str, NvidiaDevice] = {}
        self._failures: dict[str, nvml.NvmlFailure] = {}
        """Of unreadable GPUs."""
        self._root = root
        self._survives = survives or survives_sampling
        self._before_s = before_s
        self._wsl = in_wsl(root)
        self._rehearsed = False
        self._fault_log = FaultLog()
        self._backoff = Backoff(clock_ns)
        self._nvml: nvml.Nvml | None = None
        self._retry_at_ns: int | None = 0
        self.failure: nvml.NvmlFailure | None = None

    def sample(self) -> Iterable[Event]:
        """Sample each GPU; see `NvidiaDevice.sample`."""
        if self._retry_at_ns is not None and self._clock_ns() >= self._retry_at_ns:
            self._reopen()
        self._backoff.read("messages", lambda: self._fault_log.poll(self._clock_ns()))
        for uuid, gpu in self._gpus.items():
            sample = self._sample(gpu, self._clock_ns(), self._fault_log.of_device(gpu.part_of or uuid))
            yield replace(sample, slow=(*sample.slow, *self._backoff.slow)) if self._backoff.slow else sample
        self._plan_retry()

    def _sample(self, gpu: Gpu, at_ns: int, faults: tuple[GpuFault, ...]) -> GpuSample:
        if gpu.uuid not in self._failures:
            try:
                return self._devices[gpu.uuid].sample(at_ns, faults)
            except nvml.DeviceFailedError as error:
                self._failures[gpu.uuid] = error.failure
        return absent_gpu(gpu, at_ns, self._failures[gpu.uuid].reason, faults)

    def close(self) -> None:
        """Shut the library down."""
        if self._nvml is not None:
            self._fault_log.close()
            for device in self._devices.values():
                device.close()
            self._nvml.ask("nvmlShutdown")
            self._nvml = None

    def _reopen(self) -> None:
        """Open the library again: the driver's numbers may have changed."""
        self.close()
        self._retry_at_ns = None
        try:
            self._rehearse()
            self._nvml = opened = nvml.open_nvml()
            gpus, failure = nvml.list_physical_gpus(opened)
            if not gpus and failure is not None:
                raise nvml.CallFailedError(failure.code)
        except nvml.CallFailedError as error:
            self.failure, self._failures = error.failure, dict.fromkeys(self._gpus, error.failure)
            return
        self.failure = None
        self._fault_log.open(opened, gpus)
        context = DriverContext(
            self._clock_ns,
            self._root,
            no_process_list=WSL if self._wsl else _list_problem(opened.ask("nvmlSystemGetDriverVersion")),
            foreign_pids=in_pid_namespace(self._root),
            before_s=self._before_s,
        )
        self._devices = {}
        for gpu, handle in gpus:
            self._attach(opened, gpu, handle, context)
        absent = failure or nvml.NvmlFailure(nvml.NOT_LISTED)
        self._failures = {uuid: absent for uuid in self._gpus if uuid not in self._devices}

    def _attach(self, opened: nvml.Nvml, listed: Gpu, handle: Any, context: DriverContext) -> None:
        if self._takes_all:
            self._gpus.setdefault(listed.uuid, listed)
        instances = nvml.list_instances(opened, listed, handle)
        gpu = self._gpus.get(listed.uuid)
        if gpu is not None:
            self._devices[gpu.uuid] = NvidiaDevice(gpu, opened, handle, context, split=instances is not None)
        for listed_instance, instance_handle in instances or ():
            if gpu is not None:
                self._gpus.setdefault(listed_instance.uuid, replace(listed_instance, index=gpu.index))
            instance = self._gpus.get(listed_instance.uuid)
            if instance is not None:
                self._devices[instance.uuid] = NvidiaDevice(
                    instance, opened, instance_handle, context, whole=handle
                )

    def _rehearse(self) -> None:
        """Try a sample once on WSL2, because the library may crash."""
        if self._wsl and not self._rehearsed:
            self._rehearsed = True
            survives = self._survives()
            if not survives:
                raise nvml.CallFailedError(nvml.NO_ANSWER if survives is None else nvml.CRASHES)

    def _plan_retry(self) -> None:
        failures = [*self._failures.values()] if self.failure is None else [self.failure]
        if self._retry_at_ns is None and any(failure.code not in _PERMANENT for failure in failures):
            self._retry_at_ns = self._clock_ns() + int(_RETRY_S * 1e9)


def rehearse() -> None:
    """Sample once, in a process that may crash."""
    probe = NvidiaProbe(survives=lambda: True)
    list(probe.sample())
    probe.close()


def survives_sampling(program: tuple[str, ...] = (), timeout_s: float = _REHEARSAL_S) -> bool | None:
    """Return whether another process survives a sample; `None` if it is silent."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import rehearse; rehearse()"
    try:
        return run_program(program or (sys.executable, "-c", code), timeout_s).returncode >= 0
    except subprocess.TimeoutExpired:
        return None
    except OSError:
        return True  # not tried


def _list_problem(version: object) -> Missing | None:
    """The process list of drivers 535.43 to 535.85 has wrong fields."""
    match = re.match(r"535\.(\d+)", version) if isinstance(version, str) else None
    return UNRELIABLE_LIST if match is not None and 43 <= int(match[1]) <= 85 else None
