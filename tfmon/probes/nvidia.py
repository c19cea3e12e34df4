"""Readings of NVIDIA GPUs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence

from tfmon.model.events import Event
from tfmon.probes.absent import absent_gpu
from tfmon.probes.base import Gpu
from tfmon.probes.nvidia_device import NvidiaDevice
from tfmon.probes.nvml import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    LIBRARY_MISMATCH,
    LIBRARY_NOT_FOUND,
    NOT_LISTED,
    RESET_REQUIRED,
    WRONG_PACKAGE,
    Nvml,
    Refusal,
    list_boards,
    open_nvml,
)

_RETRY_S = {DRIVER_NOT_LOADED: 30.0, GPU_IS_LOST: 60.0, RESET_REQUIRED: 60.0}
"""How long to wait before the driver is opened anew; anything else waits 5 s, then twice as long each time."""
_FOR_GOOD = frozenset({LIBRARY_MISMATCH, LIBRARY_NOT_FOUND, WRONG_PACKAGE})
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
        open_library: Callable[[], Nvml | Refusal] = open_nvml,
    ) -> None:
        """Sample these GPUs, or all that the driver lists when none is given."""
        self._devices = {gpu.uuid: NvidiaDevice(gpu) for gpu in gpus}
        self._takes_all = not gpus
        self._clock_ns = clock_ns
        self._open_library = open_library
        self._nvml: Nvml | None = None
        self._retry_at_ns: int | None = 0
        self._pause_s = _FIRST_PAUSE_S
        self.trouble: Refusal | None = None
        """Why the library cannot be used, with a hint; None while it can."""

    def start(self) -> None:
        """Nothing yet: the driver is asked when there is something to sample."""

    def sample(self) -> Iterable[Event]:
        """Sample each GPU; see `NvidiaDevice.read` for what the readings are."""
        if self._due():
            self._reopen()
        for device in self._devices.values():
            yield device.read(self._clock_ns())
        self._plan_retry()

    def missing(self, reason: str) -> Iterable[Event]:
        """Give every reading of every GPU as missing for that reason."""
        at_ns = self._clock_ns()
        return [absent_gpu(device.gpu, at_ns, reason) for device in self._devices.values()]

    def close(self) -> None:
        """Shut the library down."""
        if self._nvml is not None:
            self._nvml.call("nvmlShutdown")
            self._nvml = None

    def _due(self) -> bool:
        return self._retry_at_ns is not None and self._clock_ns() >= self._retry_at_ns

    def _reopen(self) -> None:
        """Open the library and find every device again; the driver's numbers may have changed."""
        self.close()
        self._retry_at_ns = None
        opened = self._open_library()
        if isinstance(opened, Refusal):
            self._give_up(opened)
            return
        self._nvml, self.trouble = opened, None
        boards, left_out = list_boards(opened)
        if not boards and left_out is not None:
            self._give_up(left_out)
            return
        found = {board.uuid: board for board in boards}
        lists_processes = _lists_processes(opened.call("nvmlSystemGetDriverVersion"))
        if self._takes_all:
            for board in boards:
                gpu = Gpu(index=board.index, uuid=board.uuid, name=board.name, board=board.index)
                self._devices.setdefault(board.uuid, NvidiaDevice(gpu))
        for uuid, device in self._devices.items():
            if uuid in found:
                device.attach(opened, found[uuid].handle, lists_processes=lists_processes)
            else:
                device.detach(left_out or Refusal(NOT_LISTED))

    def _give_up(self, refusal: Refusal) -> None:
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


def _lists_processes(version: object) -> bool:
    """Return False for drivers 535.43 to 535.85, whose process list has wrong fields."""
    match = re.match(r"535\.(\d+)", version) if isinstance(version, str) else None
    return match is None or not 43 <= int(match[1]) <= 85
