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

from tfmon.model.events import Event
from tfmon.probes.base import Backoff, Gpu, absent_gpu
from tfmon.probes.machine import in_pid_namespace, in_wsl
from tfmon.probes.nvidia.device import DriverContext, NvidiaDevice
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
    list_instances,
    list_physical_gpus,
    open_nvml,
)
from tfmon.probes.nvidia.power import FaultLog
from tfmon.probes.process_names import ProcessNames

_RETRY_S = {DRIVER_NOT_LOADED: 30.0, GPU_IS_LOST: 60.0, RESET_REQUIRED: 60.0}
"""Until the driver is opened again; after other failures 5 s, then twice as long each time."""
_PERMANENT = frozenset({LIBRARY_MISMATCH, LIBRARY_NOT_FOUND, WRONG_PACKAGE, CRASHES, NO_ANSWER})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 60.0
_REHEARSAL_S = 10.0


class NvidiaProbe:
    """Samples GPUs through the driver's library. Thread: the ticker's; a call may block without limit."""

    name = "nvidia"

    def __init__(
        self,
        gpus: Sequence[Gpu] = (),
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        open_library: Callable[[], Nvml | NvmlFailure] = open_nvml,
        root: Path = Path("/"),
        survives: Callable[[], bool | None] | None = None,
        before_s: float = 0.0,
    ) -> None:
        """Without `gpus`, sample all; the first sample covers `before_s`."""
        self._devices = {gpu.uuid: NvidiaDevice(gpu, clock_ns) for gpu in gpus}
        self._takes_all = not gpus
        self._clock_ns = clock_ns
        self._open_library = open_library
        self._root = root
        self._survives = survives or survives_sampling
        self._before_s = before_s
        self._names = ProcessNames(root)
        self._wsl = in_wsl(root)
        self._rehearsed = False
        self._faults = FaultLog()
        self._backoff = Backoff(clock_ns)
        self._nvml: Nvml | None = None
        self._retry_at_ns: int | None = 0
        self._pause_s = _FIRST_PAUSE_S
        self.failure: NvmlFailure | None = None

    def sample(self) -> Iterable[Event]:
        """Sample each GPU; see `NvidiaDevice.sample`."""
        if self._retry_at_ns is not None and self._clock_ns() >= self._retry_at_ns:
            self._reopen()
        self._backoff.read("messages", lambda: self._faults.poll(self._clock_ns()))
        for device in self._devices.values():
            sample = device.sample(self._clock_ns(), self._faults.of(device.gpu.part_of or device.gpu.uuid))
            yield replace(sample, slow=(*sample.slow, *self._backoff.slow)) if self._backoff.slow else sample
        self._plan_retry()

    def missing(self, reason: str) -> Iterable[Event]:
        """Return every reading as missing."""
        at_ns = self._clock_ns()
        return [absent_gpu(device.gpu, at_ns, reason) for device in self._devices.values()]

    def close(self) -> None:
        """Shut the library down."""
        if self._nvml is not None:
            self._faults.close()
            for device in self._devices.values():
                device.close()
            self._nvml.call("nvmlShutdown")
            self._nvml = None

    def _reopen(self) -> None:
        """The driver's numbers may have changed."""
        self.close()
        self._retry_at_ns = None
        opened = self._rehearse() or self._open_library()
        if isinstance(opened, NvmlFailure):
            self._give_up(opened)
            return
        self._nvml, self.failure = opened, None
        gpus, failure = list_physical_gpus(opened)
        if not gpus and failure is not None:
            self._give_up(failure)
            return
        self._faults.open(opened, gpus)
        if self._takes_all:
            for gpu, _ in gpus:
                self._add(gpu, gpu.index)
        context = DriverContext(
            lists_processes=_lists_processes(opened.call("nvmlSystemGetDriverVersion")),
            wsl=self._wsl,
            foreign_pids=in_pid_namespace(self._root),
            before_s=self._before_s,
            names=self._names,
        )
        attached: set[str] = set()
        for gpu, handle in gpus:
            attached |= self._attach(opened, gpu, handle, context)
        for uuid, device in self._devices.items():
            if uuid not in attached:
                device.detach(failure or NvmlFailure(NOT_LISTED))

    def _attach(self, nvml: Nvml, gpu: Gpu, handle: Any, context: DriverContext) -> set[str]:
        attached: set[str] = set()
        instances = list_instances(nvml, gpu, handle)
        device = self._devices.get(gpu.uuid)
        if device is not None:
            device.split = instances is not None
            device.attach(nvml, handle, context)
            attached.add(gpu.uuid)
            for instance, _ in instances or ():
                self._add(instance, device.gpu.index)
        for instance, own in instances or ():
            part = self._devices.get(instance.uuid)
            if part is not None:
                part.attach(nvml, own, context, whole=handle)
                attached.add(instance.uuid)
        return attached

    def _add(self, gpu: Gpu, index: int) -> None:
        self._devices.setdefault(gpu.uuid, NvidiaDevice(replace(gpu, index=index), self._clock_ns))

    def _rehearse(self) -> NvmlFailure | None:
        """Once on WSL2, because the library may crash."""
        if not self._wsl or self._rehearsed:
            return None
        self._rehearsed = True
        survives = self._survives()
        if survives:
            return None
        return NvmlFailure(NO_ANSWER if survives is None else CRASHES)

    def _give_up(self, failure: NvmlFailure) -> None:
        self.failure = failure
        for device in self._devices.values():
            device.detach(failure)

    def _plan_retry(self) -> None:
        if self._retry_at_ns is not None:
            return
        failures = [device.failure for device in self._devices.values() if device.failure is not None]
        if self.failure is not None:
            failures = [self.failure]
        if not failures:
            self._pause_s = _FIRST_PAUSE_S
            return
        if all(failure.code in _PERMANENT for failure in failures):
            return
        waits = []
        for failure in failures:
            if failure.code not in _RETRY_S:
                waits.append(self._pause_s)
                self._pause_s = min(_LONGEST_PAUSE_S, 2 * self._pause_s)
                break
            waits.append(_RETRY_S[failure.code])
        self._retry_at_ns = self._clock_ns() + int(min(waits) * 1e9)


def rehearse() -> None:
    """Sample once, in a process that may crash."""
    probe = NvidiaProbe(survives=lambda: True)
    list(probe.sample())
    probe.close()


def survives_sampling(program: tuple[str, ...] = (), timeout_s: float = _REHEARSAL_S) -> bool | None:
    """Return whether another process survives a sample; `None` if it is silent."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import rehearse; rehearse()"
    try:
        answer = subprocess.run(
            program or (sys.executable, "-c", code),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError:
        return True  # not tried
    return answer.returncode >= 0


def _lists_processes(version: object) -> bool:
    """The process list of drivers 535.43 to 535.85 has wrong fields."""
    match = re.match(r"535\.(\d+)", version) if isinstance(version, str) else None
    return match is None or not 43 <= int(match[1]) <= 85
